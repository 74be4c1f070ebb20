"""The card of a debiased model: what it says, what it must not say, and where it takes its numbers from."""

import copy
import json

import numpy as np
import pytest
from huggingface_hub import ModelCard

from redditbias_repro.cli import main
from redditbias_repro.debias.training import debias
from redditbias_repro.metrics.association import measure_association
from redditbias_repro.metrics.language_model import measure_lmb
from redditbias_repro.models.card import model_card
from redditbias_repro.models.loading import load_model
from redditbias_repro.records import write_record
from redditbias_repro.show.association import association_changes
from redditbias_repro.show.card import card_of_run, records_of_run
from redditbias_repro.show.tables import lmb_changes
from redditbias_repro.specs import load_spec

SPEC = load_spec("redditbias/race")
HOW = dict(bias_types=["race"], corpus="queries", outliers="all")


@pytest.fixture(scope="module")
def run(model_folder, tmp_path_factory):
    """A finished run, and records of the model before and after."""
    net, words = load_model(model_folder)
    before = measure_lmb(model_folder, **HOW)
    folder = tmp_path_factory.mktemp("card") / "tiny-hd"
    made = debias(net, words, SPEC, SPEC.queries()[:8], "HD", folder, epochs=1, batch_size=4, disable_tqdm=True)
    return made, before + measure_lmb(folder, **HOW)


def test_debias_writes_a_card_that_claims_nothing(run):
    made, _ = run
    text = (made.folder / "README.md").read_text(encoding="utf-8")
    assert "Not measured yet" in text and "not measured" in text and "model-index" not in text
    data = ModelCard(text).data
    assert data.pipeline_tag == "text-generation" and data.base_model is None  # the base is a folder of somebody's
    assert "HD" in data.tags and made.settings["base"][:16] in text and "Content warning" in text


def test_it_names_all_trainings_and_a_command_for_ones_own_terms(run):
    made, _ = run
    steps = [
        {**made.settings, "method": m, "bias_type": f"redditbias/{b}"} for m, b in (("HD", "race"), ("CDA", "gender"))
    ]
    settings = {**made.settings, "bias_type": "own/pets", "earlier": {**steps[1], "earlier": steps[0]}}
    text = model_card(settings)
    assert "trained by HD for redditbias/race, then by CDA for redditbias/gender before." in text
    assert "--bias-type pets.toml --save" in text and "own/pets --save" not in text


def test_it_has_the_numbers_of_the_change(run):
    made, records = run
    text = card_of_run(made.folder, records)
    row = lmb_changes(records).iloc[0]
    assert f"{row.gap_before:+.3f} nats per token" in text
    assert f"[{row.bias_change_low:+.3f}, {row.bias_change_high:+.3f}]" in text
    t = [r["values"]["t"] for r in records]
    assert f"t before {t[0]:.2f}, after {t[1]:.2f}" in text and "Intended use and limits" in text
    results = {r.metric_type: r for r in ModelCard(text).data.eval_results}
    assert results["gap_after"].metric_value == round(row.gap_after, 4)
    assert results["gap_after"].dataset_type == "redditbias/race" and results["gap_after"].dataset_split == "test"


def test_it_says_what_was_left_of_the_association(run, model_folder):
    made, records = run
    both = [measure_association(m, ["race"], "queries")[0] for m in (model_folder, made.folder)]
    text, row = card_of_run(made.folder, [*records, *both]), association_changes(both).iloc[0]
    said = [f"{np.exp(r['values']['association']):.2f} times as likely" for r in both]
    assert all(words in text for words in said) and f"{row.bias_change:+.2f} nats, 95 % interval" in text
    assert "Association of stereotypes" not in card_of_run(made.folder, [*records, both[1]])


def test_it_takes_the_numbers_of_no_other_run(run):
    made, records = run
    other = copy.deepcopy(records[1])
    other["provenance"]["training"]["seed"] = 1
    of_base = copy.deepcopy(records[0])
    of_base["provenance"]["model"]["weights_sha256"] = "0" * 64
    assert records_of_run(made.settings, [*records, other, of_base]) == records
    assert "Not measured yet" in card_of_run(made.folder, [records[0], other])
    assert "Not measured yet" in card_of_run(made.folder, [of_base, records[1]])


def test_on_the_command_line(run, tmp_path, capsys):
    made, records = run
    for r in records:
        write_record(r, tmp_path / "results")
    assert main(["card", str(made.folder), "--results", str(tmp_path / "results")]) == 0
    said = capsys.readouterr().out
    assert "nats per token" in said and "Not measured yet" in (made.folder / "README.md").read_text()
    assert main(["card", str(made.folder), "--results", str(tmp_path / "results"), "--write"]) == 0
    assert (made.folder / "README.md").read_text() == said.rstrip("\n") + "\n"
    assert main(["card", str(tmp_path)]) == 2 and "holds no debias.json" in capsys.readouterr().err


def test_a_card_does_not_change_the_model(run):
    made, _ = run
    settings = json.loads((made.folder / "debias.json").read_text())["settings"]
    assert load_model(made.folder)[0].config.debiased == settings


def test_it_takes_the_numbers_of_its_own_bias_type(run):
    """And of the corpus that it was trained on, else of a release before queries."""
    made, records = run
    of_another = [copy.deepcopy(r) | {"bias_type": "gender"} for r in records]
    assert "Not measured yet" in card_of_run(made.folder, of_another)
    assert card_of_run(made.folder, [*of_another, *records]) == card_of_run(made.folder, records)
    released = [copy.deepcopy(r) | {"corpus": "redditbias"} for r in records]
    assert "test pairs of redditbias (race)" in " ".join(card_of_run(made.folder, [*records, *released]).split())
    assert main(["card", str(made.folder), "--results", str(made.folder / "nowhere")]) == 2
