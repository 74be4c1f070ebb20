"""Texts with a planted bias hold what they say, a model that learned it is found, and a frequent term is none."""

import numpy as np
import pandas as pd
import pytest

from redditbias_repro.metrics.association import CELLS
from redditbias_repro.metrics.planted import (
    measure_planted,
    planted_cells,
    planted_texts,
    planted_values,
    word_tokenizer,
)
from redditbias_repro.records import read_records, record_path, write_record
from redditbias_repro.show.power import PLANTED_MEASURES


@pytest.fixture(scope="module")
def cells():
    return planted_cells()


def counts(texts, cells):
    """Of each word of the cells, how often it stands in the texts; and of t1 with a1."""
    words = pd.Series([w for t in texts for w in t.split()]).value_counts()
    targets, attributes = {*cells.t1}, {*cells.a1}
    linked = sum(bool(targets & set(t.split())) == bool(attributes & set(t.split())) for t in texts)
    return words, linked / len(texts)


@pytest.mark.parametrize("dose", [0.0, 0.05, 0.2, 1.0])
def test_a_dose_is_the_share_that_links_and_changes_no_words_frequency(cells, dose):
    texts = planted_texts(cells, dose, seed=3)
    words, linked = counts(texts, cells)
    assert np.isclose(linked, (1 + dose) / 2)
    for column in ("t1", "t2", "a1", "a2"):
        assert words[[*{*cells[column]}]].nunique() == 1
    assert words[cells.t1[0]] == words[cells.t2[0]] and len(texts) == 4 * len(cells)
    assert sorted(texts) != sorted(planted_texts(cells, dose, seed=4)) or dose in (0.0, 1.0)


def test_the_control_is_frequency_alone(cells):
    words, linked = counts(planted_texts(cells, frequent=True), cells)
    assert linked == 0.5 and words[[*{*cells.a1}, *{*cells.a2}]].nunique() == 1
    assert np.isclose(words[[*{*cells.t1}]].sum(), 3 * words[[*{*cells.t2}]].sum())


def test_templates_that_are_measured_were_trained_on_by_no_text(cells):
    held = planted_cells(held_out=True)
    assert len(cells) == 3 * len(held) and not {*cells.text11} & {*held.text11}
    tokenizer = word_tokenizer(cells[c][i] for c in CELLS for i in cells.index)
    ids = tokenizer(held.text22.tolist())["input_ids"]
    assert tokenizer.unk_token_id not in {i for line in ids for i in line}


def test_sizes_are_those_of_known_scores(cells, monkeypatch):
    """Scores of which the answer is known: I is the link, and the gap has the frequency as well."""
    held, rng = planted_cells(held_out=True), np.random.default_rng(0)
    link, frequency = 0.3, 2.0

    def scores(net, tokenizer, texts, **options):
        sides = [(c[4] == "1", c[5] == "1") for c in CELLS for _ in range(len(held))]
        nll = [40 - frequency * t - link * (t and a) + rng.normal(0, 0.05) for t, a in sides]
        made = pd.DataFrame({"nll": nll, "n_tokens": 8})
        made.attrs["stats"] = {}
        return made

    monkeypatch.setattr("redditbias_repro.metrics.planted.sequence_scores", scores)
    values, _ = planted_values(None, None, held)
    assert abs(values["association"] - link) < 0.02 and values["p_association"] < 0.01
    assert abs(values["gap"] - (frequency + link) / 8) < 0.01 and values["t"] > 0
    link = 0.0
    values, _ = planted_values(None, None, held)
    assert values["p_association"] > 0.05 and values["p_t"] < 0.001 and abs(values["frequency"] - frequency) < 0.02
    assert {*PLANTED_MEASURES} <= {*values}


def test_a_large_dose_is_found_and_a_run_goes_on(tmp_path):
    made = []
    for record in measure_planted(doses=[0.4], seeds=[0]):
        made.append(record)
        assert write_record(record, tmp_path) == record_path(record, tmp_path)
    linked, control = (r["values"] for r in made)
    assert linked["p_association"] < 0.01 and linked["association"] > 0.1
    assert control["p_t"] < 0.001 and abs(control["association"]) < 0.1 * control["frequency"]
    done = read_records(tmp_path, metric="planted")
    assert list(measure_planted(doses=[0.4], seeds=[0], done=done)) == []
