"""Committed tables and figures: drawn again they are the same, however numbers were rounded; one that moves is seen."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from redditbias_repro.records import read_records, repo_root

ROOT = repo_root() or Path()
SMOLLM = "smollm2-135m-instruct"


def of_redditbias(results, folder):
    from redditbias_repro.papers.redditbias import results as paper

    paper.draw(results).save(folder)


def of_chbias(results, folder):
    from redditbias_repro.papers.chbias.results import draw

    draw(results).save(folder)


def of_holisticbias(results, folder):
    from redditbias_repro.papers.holisticbias import answers
    from redditbias_repro.papers.holisticbias import results as prompts

    prompts.draw(results).save(folder)
    answers.draw(results).save(folder)


def of_dialoguefairness(results, folder):
    from redditbias_repro.papers.dialoguefairness.results import draw

    draw(results).save(folder)


def of_claims(results, folder):
    from redditbias_repro.papers.statements import draw

    draw(results).save(folder)


DRAWN = {n.removeprefix("of_"): f for n, f in list(globals().items()) if n.startswith("of_")}


def rounded_otherwise(part, rng, key=""):
    """Every number of a part of a record by up to a millionth larger or smaller; packed ones too, equal ones alike."""
    if isinstance(part, dict):
        return {k: rounded_otherwise(v, rng, k) for k, v in part.items()}
    if isinstance(part, list):
        return [rounded_otherwise(v, rng, key) for v in part]
    if isinstance(part, float):
        return part * (1 + 1e-6 * rng.uniform(-1, 1))
    if isinstance(part, str) and key.startswith("nll"):
        numbers = np.frombuffer(bytes.fromhex(part), "<f4")
        return (numbers * (1 + 1e-6 * np.sin(1e6 * numbers.astype(float)))).astype("<f4").tobytes().hex()
    return part


@pytest.fixture(scope="session")
def perturbed(tmp_path_factory):
    """All records, every number rounded otherwise."""
    folder, rng = tmp_path_factory.mktemp("perturbed"), random.Random(0)
    for path in sorted((ROOT / "results").rglob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        record["values"] = rounded_otherwise(record["values"], rng)
        to = folder / path.relative_to(ROOT / "results")
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    return folder


def changed(paper, results, folder):
    """Names of files in a copy of a paper's committed tables and figures that drawing them again changes, or adds."""
    committed, copy = ROOT / "figures" / paper, folder / paper
    shutil.copytree(committed, copy)
    DRAWN[paper](results, copy)
    there = {p.name: p.read_bytes() for p in committed.iterdir()}
    return {p.name for p in copy.iterdir() if there.get(p.name) != p.read_bytes()}


@pytest.mark.parametrize("paper", DRAWN)
def test_rounding_changes_no_table_and_no_figure(paper, corpus, perturbed, tmp_path):
    assert changed(paper, perturbed, tmp_path) == set()


def test_a_number_that_moves_changes_its_tables_and_its_figure(corpus, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(ROOT / "results", results)
    of = {"model": "ranker-small", "method": "baseline", "bias_type": "gender", "split": "all"}
    (path,) = map(Path, read_records(results, paper="dialoguefairness", metric="response_fairness", **of).path)
    record = json.loads(path.read_text(encoding="utf-8"))
    (shown,) = [m for m in record["values"]["measures"] if m["measure"] == "sentiment_positive"]
    shown["paired_low"] *= 1.01
    path.write_text(json.dumps(record), encoding="utf-8")
    assert changed("dialoguefairness", results, tmp_path) == {
        "measured.csv", "measured.md", "table4.csv", "table4.md", "differences-gender.svg", "differences-gender.png",
    }  # fmt: skip
