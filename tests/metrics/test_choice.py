"""The plot for choosing a method: bias beside its price, from records."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from redditbias_repro.metrics.choice import SEARCHED, choose
from redditbias_repro.papers.redditbias.results import _applied_for_several
from redditbias_repro.records import read_json, read_records, write_record
from redditbias_repro.show.figures import plot_choice
from redditbias_repro.show.tables import CHOICE_COLUMNS, choice_table, lmb_changes, lmp_changes

ENDS = ("", "_low", "_high")


def row(method, bias, rise=(np.nan,) * 3, dst=(np.nan,) * 3, **more):
    columns = [f"{c}{end}" for c in ("bias_change", "rise_calibrated", "dst", "crg") for end in ENDS]
    values = dict(zip(columns, (*bias, *rise, *dst, *(np.nan,) * 3)))
    return {"model": "gpt2", "method": method, "bias_type": "race", "verdict": "less", **values, **more}


def test_a_row_of_panels_for_each_cost_that_was_measured():
    rows = [
        row("LMD", (-0.1, -0.2, -0.05), (0.9, 0.8, 1.0)),
        row("HD", (-0.1, -0.2, -0.05), (0.9, np.nan, np.nan), (-0.02, -0.05, 0.01)),
        row("CDA", (np.nan,) * 3, dst=(-0.01, -0.02, 0.01)),
    ]
    figure = plot_choice(pd.DataFrame(rows))
    assert [ax.get_ylabel().split(":")[0] for ax in figure.axes] == [
        "rise of calibrated\nperplexity",
        "dialog state tracking",
    ]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["LMD", "HD"]
    assert "not shown: CDA" in figure._suptitle.get_text()
    assert figure._suptitle.get_text().startswith("2 of 2 debiased models are less biased; perplexity: +90% to +90%")
    assert figure.axes[0].get_title() == "Race" and figure.axes[1].get_title() == ""


def test_what_cannot_be_drawn():
    one = row("LMD", (-0.1, -0.2, -0.05), (0.9, 0.8, 1.0))
    with pytest.raises(ValueError, match="rows of one model"):
        plot_choice(pd.DataFrame([one, {**one, "model": "other"}]))
    with pytest.raises(ValueError, match="no method has both"):
        plot_choice(pd.DataFrame([row("CDA", (np.nan,) * 3, (0.1, 0.0, 0.2)), row("HD", (-0.1, -0.2, -0.05))]))


def test_the_committed_choice_is_that_of_the_records(committed):
    table = choice_table(committed / "results")
    in_sequence = table["method"].map(_applied_for_several).notna()  # no choice of one's own
    table = table[~in_sequence].reset_index(drop=True)
    kept = pd.read_csv(committed / "figures" / "redditbias" / "choice.csv")
    assert tuple(kept) == CHOICE_COLUMNS and kept["method"].tolist() == table["method"].tolist()
    numbers = [c for c in CHOICE_COLUMNS if kept[c].dtype == float]
    np.testing.assert_allclose(kept[numbers], table[numbers].astype(float), rtol=1e-5)
    one = table.set_index(["method", "bias_type"]).loc[("HD", "orientation")]
    changes = lmb_changes(folder=committed / "results")
    found = changes[(changes.method == "HD") & (changes.bias_type == "orientation") & (changes.split == "test")]
    together = found[(found.swap == "targets") & found.train_seed.isna()]  # all training seeds
    assert one.bias_change == together.bias_change.item()
    rises = lmp_changes(folder=committed / "results").query("train_seed.isna()").set_index(["method", "bias_type"])
    assert one.rise_calibrated == rises.loc[("HD", "orientation")].rise_calibrated
    assert (committed / "figures" / "redditbias" / "choice-smollm2-135m-instruct.svg").is_file()


def test_a_search_that_was_made_stands_whatever_outliers_it_took_out(committed, tmp_path):
    """What was chosen on all pairs is chosen again; runs that were read otherwise are not mixed with it."""
    of = dict(metric="search", model="smollm2-135m-instruct", method="HD", paper="redditbias", bias_type="race")
    runs = read_records(committed / "results", **of)
    assert len(runs) == 3 and set(runs.outliers) == {"all"}
    for path in runs.path:
        write_record(read_json(Path(path)), tmp_path)
    again = choose([], "HD", "race", results=tmp_path, known=of["model"])
    assert again == runs.loc[runs.chosen == True, list(SEARCHED)].iloc[0].to_dict()  # noqa: E712
    one = read_json(Path(runs.path[0]))
    write_record({**one, "params": {**one["params"], "outliers": "base", "lambda_d": 7.0}}, tmp_path)
    with pytest.raises(ValueError, match="3 earlier runs of this search have outliers 'all', and the others 'base'"):
        choose([], "HD", "race", results=tmp_path, known=of["model"])
