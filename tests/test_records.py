"""Records: provenance, predictable paths, and no result that is none."""

import json
import os
import subprocess
from dataclasses import fields

import pytest

from redditbias_repro.metrics import measure_lmb
from redditbias_repro.records import (
    FIELDS,
    LIBRARIES,
    provenance,
    read_records,
    record_path,
    repo_root,
    write_atomic,
    write_record,
)
from redditbias_repro.scoring import ScoringStats

PROVENANCE = {"model", "corpus", "package", "git_commit", "git_changed", "python", "libraries", "platform", "device"}


def test_provenance_of_a_measurement(model_folder, tmp_path):
    record = measure_lmb(str(model_folder), ["race"], "queries", outlier_sd=[None])[0]
    assert set(record) == set(FIELDS) and set(record["provenance"]) == PROVENANCE | {"scoring"}
    assert set(record["provenance"]["scoring"]) == {f.name for f in fields(ScoringStats)}
    p = record["provenance"]
    assert p["libraries"].keys() == set(LIBRARIES) and all(p["libraries"].values()) and p["device"] == "cpu"
    assert (
        p["model"]["name"] == record["model"] == f"tiny-gpt2@{p['model']['weights_sha256'][:8]}"
        and len(p["model"]["weights_sha256"]) == 64
    )
    assert p["corpus"] == {"name": "queries", "files": {}, "note": "", "sha256": p["corpus"]["sha256"]}
    assert record["n"] == record["values"]["df"] + 1 and record["seconds"] > 0
    path = write_record(record, tmp_path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(record)) and str(model_folder) not in path.read_text()


def test_git_commit_of_the_checkout():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo_root(), capture_output=True, text=True)
    assert provenance()["git_commit"] == (head.stdout.strip() or None)


def test_committed_records_are_complete(committed):
    paths = list((committed / "results").rglob("*.json"))
    assert len(paths) >= 20
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        # how a model was debiased, beside how it was fine-tuned on the task; older records do not say
        debiased = {"debiasing"} & set(record["provenance"]) if record["method"] != "baseline" else set()
        own = {
            "scoring": {"scoring", "packages", "batch_size", "matmul_gflops"},
            "debias": {"batch_size"},
            "training": {"training"},
            "search": {"scoring", "training"},
            "retrieval": {"scanning"},
            "candidates": {"faiss", "bfloat16_units"},
            "lmb_random": {"scoring"},
            "lmb_rows": {"scoring"} | ({"training"} if record["method"] != "baseline" else set()),
            "false_alarms": {"scoring"} if record["method"] == "random weights" else set(),
            "dst": {"training"} | debiased,
            "crg": {"training", "meteor"} | debiased,
            "pair_distance": {"training"},
            "held_out": {"training"},
            "classifier": set(),
            "likelihood_bias": {"scoring"},
            "classifier_bias": set(),
            "prompt_offence": set(),
            "descriptor_frequency": set(),
            "zh_dialogue": {"answering", "vectors"} | ({"training"} if record["method"] != "baseline" else set()),
        }
        scored = {"scoring"} if record["seconds"] else set()
        trained = {"training"} if record["method"] != "baseline" else set()
        judged = {"asked", "classifiers"} | trained if "classifiers" in record["provenance"] else None
        if record["metric"] == "response_fairness":  # models that are trained here say how, debiased or not
            judged = {"asked", "classifiers"} | {"training"} & set(record["provenance"])
        own = judged or own.get(record["metric"], scored | trained)
        assert set(record) == set(FIELDS) and set(record["provenance"]) - {"rescored"} == PROVENANCE | own, path
        assert record["provenance"].get("rescored", {"git_changed": False})["git_changed"] is False, (
            f"{path.name} was scored anew with code that no commit holds"
        )
        assert record["provenance"]["git_changed"] is False, f"{path.name} was measured with code that no commit holds"
        assert record_path(record, committed / "results") == path


def test_outside_a_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert repo_root() is not None  # the editable install says where it is


@pytest.fixture
def record():
    return dict.fromkeys(FIELDS, "x") | {
        "n": 2,
        "values": {"t": 1.0},
        "seed": 0,
        "params": {"k": 3, "none": None},
        "seconds": 1.0,
        "provenance": {},
    }


def test_paths_are_predictable_and_safe(record, tmp_path):
    path = write_record(record | {"model": "microsoft/DialoGPT-small", "corpus": "../../etc"}, tmp_path)
    assert path.relative_to(tmp_path).parts[:4] == ("x", "x", "microsoft--DialoGPT-small", "x") and path.name.endswith(
        "-k=3.json"
    )
    assert path.resolve().is_relative_to(tmp_path.resolve())


def test_a_reproduced_record_stays_as_it_is(record, tmp_path):
    record["provenance"] = {"git_commit": "a", "git_changed": True, "device": "cpu"}
    write_record(record, tmp_path)
    clean = record | {"provenance": {"git_commit": "b", "git_changed": False, "device": "cpu"}}
    kept = write_record(clean, tmp_path).read_text()
    assert '"b"' in kept  # what no commit holds is replaced
    again = clean | {"seconds": 9.0, "provenance": {"git_commit": "c", "git_changed": True, "device": "cuda"}}
    assert write_record(again, tmp_path).read_text() == kept
    for change in (
        {"values": {"t": 2.0}},
        {"seed": 1},
        {"provenance": {**clean["provenance"], "model": {"weights_sha256": "0"}}},
    ):
        assert write_record(clean | change, tmp_path).read_text() != kept
        assert write_record(clean, tmp_path).read_text() == kept


@pytest.mark.parametrize(
    "change,says", [({"values": {"t": float("inf")}}, "not finite"), ({"more": 1}, r"unknown \['more'\]")]
)
def test_bad_records(record, tmp_path, change, says):
    with pytest.raises(ValueError, match=says):
        write_record(record | change, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_atomic(tmp_path / "a.txt", "old")

    def full(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_long_parameter_has_a_short_name():
    """A system message in a record's file: cut, and another for another message. Short ones stay as they were."""
    record = {k: "x" for k in FIELDS} | {"params": {"system": "Answer briefly.", "nouns": 2}}
    names = [record_path({**record, "params": {"system": "You are kind. " * 40 + end}}).name for end in ("", "!")]
    assert record_path(record).name == "x-x-x-nouns=2-system=Answer--briefly..json"
    assert len(set(names)) == 2 and max(map(len, names)) < 70


@pytest.mark.parametrize(
    "content,says",
    [("{", "is broken"), ("[]", "holds list and no record"), ("{}", "is no record, for want of paper, metric"),
     ('{"metric": "lmb", "values": []}', "is no record, for want of"), ("\xff", "is broken")],
)  # fmt: skip
def test_what_is_no_record_is_named(tmp_path, content, says):
    (tmp_path / "odd.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=rf"odd\.json {says}"):
        read_records(tmp_path)


def test_another_processor_leaves_the_file_alone(model_folder, tmp_path):
    """Numbers that differ in how they are rounded are the same; others are not."""
    import numpy as np

    (record,) = measure_lmb(str(model_folder), ["race"], "queries", outlier_sd=[None])
    record["provenance"]["git_changed"] = False
    record = json.loads(json.dumps(record))
    path = write_record(record, tmp_path)
    before = path.read_text()

    def changed(by):
        other = json.loads(json.dumps(record))
        other["values"] |= {k: v * (1 + by) for k, v in other["values"].items() if isinstance(v, float)}
        nll = np.frombuffer(bytes.fromhex(other["values"]["pairs"]["nll1"]), "<f4") * np.float32(1 + by)
        other["values"]["pairs"]["nll1"] = nll.astype("<f4").tobytes().hex()
        return other

    again = changed(2e-7)
    assert again["values"] != record["values"]
    write_record(again, tmp_path)
    assert path.read_text() == before
    write_record(changed(1e-4), tmp_path)
    assert path.read_text() != before
