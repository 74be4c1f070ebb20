"""What both tasks share: batches, folders of runs that go on, records of fine-tuned models."""

import json

import pytest
import torch

from redditbias_repro.finetune import pad_right, rescore_all, rescored, run_folder, task_record
from redditbias_repro.records import digest, write_record

CORPUS = {"name": "own", "files": {"train.csv": "a1", "test.csv": "b2"}, "note": ""}


def test_batches():
    rows = [{"input_ids": [4, 5, 6], "labels": [-100, 5, 6]}, {"input_ids": [7], "labels": [7]}]
    batch = pad_right(rows, 9)
    assert batch["input_ids"].tolist() == [[4, 5, 6], [7, 9, 9]] and batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 5, 6], [7, -100, -100]] and all(v.dtype == torch.int64 for v in batch.values())
    assert pad_right([{"input_ids": [1], "labels": 1}, {"input_ids": [2], "labels": 0}], 0)["labels"].tolist() == [1, 0]
    assert "labels" not in pad_right([{"input_ids": [1]}], 0)
    assert rows == [{"input_ids": [4, 5, 6], "labels": [-100, 5, 6]}, {"input_ids": [7], "labels": [7]}], "as they were"


def test_a_run_is_found_again(tmp_path):
    """By the weights and all that was asked for; folders of runs that were begun before are found, too."""
    about, asked = {"weights_sha256": "0123456789abcdef"}, ({"epochs": 1.0}, 0, {"test.json": "a1"}, 1, None)
    folder = run_folder(tmp_path, about, *asked)
    assert folder.name == f"0123456789ab-{digest(list(asked))}" == "0123456789ab-159745f1999811a6" and folder.parent == tmp_path
    others = [run_folder(tmp_path, {"weights_sha256": "f" * 16}, *asked), run_folder(tmp_path, about, *asked[:-1], 5)]
    assert len({folder, *others}) == 3


def a_record(**fields):
    settings = {**dict(n=3, values={"f1": 0.5}, seed=4, params={"epochs": 1.0}, seconds=1.0), **fields}
    return task_record("dst", {"name": "my-model"}, "gpt2", "HD", "race", CORPUS, "cpu", {"epochs": 1.0}, **settings)


def test_a_debiased_model_goes_by_the_name_of_its_base():
    record = a_record()
    assert (record["model"], record["method"], record["bias_type"], record["split"]) == ("gpt2", "HD", "race", "test")
    assert record["provenance"]["model"] == {"name": "gpt2", "origin": "gpt2, debiased"} and record["params"] == {"epochs": 1.0, "train_seed": 4}
    plain = task_record("crg", {"name": "m"}, "", "baseline", "all", CORPUS, "cpu", {}, **{k: record[k] for k in ("n", "values", "seed", "params", "seconds")})
    assert plain["model"] == "m" and "origin" not in plain["provenance"]["model"]


def test_scores_anew_are_written_under_their_new_names(tmp_path):
    old = write_record(a_record(), tmp_path)
    (new,) = rescore_all("dst", lambda r: rescored(r, CORPUS, "by hand", values={"f1": 0.4}, params={"epochs": 2.0}), tmp_path)
    assert not old.exists() and json.loads(new.read_text())["provenance"]["rescored"]["how"] == "by hand"
    assert rescore_all("crg", None, tmp_path) == [] and [p for p in tmp_path.rglob("*.json")] == [new]
    with pytest.raises(ValueError, match="test.csv is not what the record was measured on"):
        rescored(a_record(), {"files": {"test.csv": "c3"}}, "")
