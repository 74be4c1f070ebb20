"""What both tasks share: batches, folders of runs that go on, records of fine-tuned models."""

import torch

from redditbias_repro.debias.finetune import pad_right
from redditbias_repro.metrics.downstream import run_folder
from redditbias_repro.records import digest, new_record

CORPUS = {"name": "own", "files": {"train.csv": "a1", "test.csv": "b2"}, "note": ""}


def test_batches():
    rows = [{"input_ids": [4, 5, 6], "labels": [-100, 5, 6]}, {"input_ids": [7], "labels": [7]}]
    batch = pad_right(rows, 9)
    assert batch["input_ids"].tolist() == [[4, 5, 6], [7, 9, 9]] and batch["attention_mask"].tolist() == [
        [1, 1, 1],
        [1, 0, 0],
    ]
    assert batch["labels"].tolist() == [[-100, 5, 6], [7, -100, -100]] and all(
        v.dtype == torch.int64 for v in batch.values()
    )
    assert pad_right([{"input_ids": [1], "labels": 1}, {"input_ids": [2], "labels": 0}], 0)["labels"].tolist() == [1, 0]
    assert "labels" not in pad_right([{"input_ids": [1]}], 0)
    assert rows == [{"input_ids": [4, 5, 6], "labels": [-100, 5, 6]}, {"input_ids": [7], "labels": [7]}], "as they were"


def test_a_run_is_found_again(tmp_path):
    """By the weights and all that was asked for; folders of runs that were begun before are found, too."""
    about, asked = {"weights_sha256": "0123456789abcdef"}, ({"epochs": 1.0}, 0, {"test.json": "a1"}, 1, None)
    folder = run_folder(tmp_path, about, *asked)
    assert (
        folder.name == f"0123456789ab-{digest(list(asked))}" == "0123456789ab-159745f1999811a6"
        and folder.parent == tmp_path
    )
    others = [run_folder(tmp_path, {"weights_sha256": "f" * 16}, *asked), run_folder(tmp_path, about, *asked[:-1], 5)]
    assert len({folder, *others}) == 3


def a_record():
    about = {
        "name": "gpt2",
        "debiased": {"base_model": "gpt2", "method": "HD", "bias_type": "redditbias/race", "seed": 4},
    }
    return new_record(
        "dst", about, CORPUS, 3, {"f1": 0.5}, seed=4, params={"epochs": 1.0, "train_seed": 4}, training={"epochs": 1.0}
    )


def test_a_record_of_a_debiased_model_on_a_task():
    record = a_record()
    assert (record["model"], record["method"], record["paper"], record["bias_type"], record["split"]) == (
        "gpt2",
        "HD",
        "redditbias",
        "race",
        "test",
    )
    assert record["params"] == {"epochs": 1.0, "train_seed": 4} and record["provenance"]["training"] == {"epochs": 1.0}
    assert record["provenance"]["debiasing"]["method"] == "HD", "how it was debiased, and how it was fine-tuned"
    plain = new_record("crg", {"name": "m"}, CORPUS, 3, {"bleu_4": 5.0}, training={})
    assert (plain["model"], plain["method"], plain["bias_type"]) == ("m", "baseline", "all")
