"""Response generation: encoding, learning to answer, corpora, records, resuming."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CONFIGS, debiased_folder, papermill, small_random

from redditbias_repro.answers import text_metrics
from redditbias_repro.answers.generation import respond
from redditbias_repro.answers.text_metrics import bleu_k, bleu_parts, bleu_test, meteor_kind
from redditbias_repro.metrics import crg as module
from redditbias_repro.metrics import downstream
from redditbias_repro.metrics.crg import (
    CrgTask,
    compare_answers,
    encode_pairs,
    load_responses,
    measure_crg,
    pack_statistics,
    read_statistics,
)
from redditbias_repro.metrics.downstream import MAX_TOKENS, train_task
from redditbias_repro.records import record_path, repo_root, write_record
from redditbias_repro.stats.resampling import pack_dialogues, unpack_dialogues, verdict_of

# --- encoding ---


def score_of(statistics):
    return float(bleu_k(bleu_parts(statistics).sum(0)))


def pairs():
    return pd.DataFrame(
        {
            "key": ["1", "2"],
            "context": [["hello there", "hi , who are you ?"], ["the women are nurses " * 60]],
            "response": ["me .", "they are lazy"],
            "references": [["me ."], ["they are lazy"]],
        }
    )


def test_only_the_response_is_learned(tokenizer):
    first, long = encode_pairs(pairs(), tokenizer, max_tokens=64)
    learned = [i for i, y in zip(first["input_ids"], first["labels"]) if y != -100]
    assert (
        tokenizer.decode(learned) == "me .<eos>"
        and tokenizer.decode(first["input_ids"]) == "hello there<eos>hi , who are you ?<eos>me .<eos>"
    )
    assert len(long["input_ids"]) == 64 and tokenizer.decode(long["input_ids"]).endswith(
        "nurses <eos>they are lazy<eos>"
    ), "the beginning of the context is left out"
    asked = encode_pairs(pairs(), tokenizer, 64, responses=False, reserve=24)
    assert (
        len(asked[1]["input_ids"]) == 40 and asked[0]["input_ids"] == first["input_ids"][: first["labels"].count(-100)]
    )
    long = encode_pairs(pairs(), tokenizer, responses=False, first=10)[1]["input_ids"]
    assert long == encode_pairs(pairs(), tokenizer, 10_000, responses=False)[1]["input_ids"][:10], (
        "the beginning, as the release has it"
    )


def test_a_tokenizer_without_an_end(tokenizer):
    from copy import deepcopy

    bare = deepcopy(tokenizer)
    bare.eos_token = None
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        encode_pairs(pairs(), bare)


# --- learning to answer ---


def test_it_learns_to_answer(tokenizer, tmp_path):
    table = pd.DataFrame(
        {"key": "1", "context": [["the women"], ["the men"]] * 16, "response": ["they are lazy", "christians"] * 16}
    )
    model = train_task(
        small_random(CONFIGS["gpt2"](len(tokenizer))),
        encode_pairs(table, tokenizer),
        tmp_path / "run",
        epochs=20,
        batch_size=8,
        learning_rate=5e-3,
        disable_tqdm=True,
    )
    assert (
        respond(model, tokenizer, encode_pairs(table.iloc[:2], tokenizer, responses=False))
        == ["they are lazy", "christians"]
        and not (tmp_path / "run").exists()
    )


# --- corpora ---


def own_corpus(folder):
    for split in ("train", "test"):
        pd.DataFrame(
            {"context": ["hello", "hello", "who are\nyou ?", ""], "response": ["hi", "hello !", "me", "x"]}
        ).to_csv(folder / f"{split}.csv", index=False)
    return folder


def test_a_corpus_of_ones_own(tmp_path):
    test = load_responses("test", str(own_corpus(tmp_path)))
    assert test.context.tolist() == [["hello"], ["who are", "you ?"]] and test.references.tolist() == [
        ["hi", "hello !"],
        ["me"],
    ]
    assert len(load_responses("train", str(tmp_path))) == 3 and len(load_responses("train", str(tmp_path), 2)) == 2
    (tmp_path / "test.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no column context and response; its columns are \['a', 'b'\]"):
        load_responses("test", str(tmp_path))


def test_multiwoz_responses(made_up):
    test = load_responses("test", "multiwoz", 50)
    assert len(test) == 50 and (test.references.str.len() == 1).all() and all(c and c[-1] for c in test.context)


# --- two records ---


def test_two_records():
    """BLEU-4 of what they hold, which is 16-bit numbers, lowest byte first."""
    better = np.array([[9, 7, 5, 3, 12, 11], [4, 2, 1, 0, 6, 8], [20, 15, 10, 6, 25, 300]])
    worse = better // [2, 2, 2, 2, 1, 1]
    record = lambda counts, names="aab": {
        "values": {"statistics": pack_statistics(counts), "dialogues": pack_dialogues(names)}
    }
    assert pack_statistics(better)[-4:] == "2c01" and np.array_equal(read_statistics(pack_statistics(better)), better)
    found, change = compare_answers([record(worse)], [record(better)]), bleu_test(worse, better, "aab")
    assert {k: found[k] for k in change} == change and change["change"] == pytest.approx(
        score_of(better) - score_of(worse)
    )
    assert found["verdict"] == verdict_of(*(change[k] for k in ("change", "change_low", "change_high", "p")))
    with pytest.raises(ValueError, match="not of the same examples"):
        compare_answers([record(worse)], [record(better, "abb")])


# --- from a model to a record ---


def test_a_record(model_folder, tmp_path):
    task = CrgTask(str(own_corpus(tmp_path)), batch_size=2)
    record = measure_crg(debiased_folder(model_folder, tmp_path / "hd"), task, tmp_path / "run", max_new_tokens=4)
    assert (record["model"], record["method"], record["paper"], record["bias_type"]) == (
        "tiny",
        "HD",
        "redditbias",
        "race",
    )
    assert record["n"] == 2 and {"bleu_4", "nist_2", "meteor", "entropy_4", "distinct_2", "mean_length"} <= set(
        record["values"]
    )
    assert (
        record["provenance"]["meteor"] == record["params"]["meteor_kind"] == meteor_kind()
        and set(record["params"]) == {*CrgTask.kept, "train_seed"}
        and record["provenance"]["training"]["decoding"] == {"max_new_tokens": 4, "num_beams": 1, "do_sample": False}
    )
    assert str(tmp_path.parent.parent) not in json.dumps(record["provenance"]["model"]), "no path of this machine"
    assert write_record(record, tmp_path / "results").is_file() and not list((tmp_path / "run").iterdir())


def test_what_differs_has_another_name(model_folder, tmp_path, monkeypatch):
    """Decoding, tokens and the kind of METEOR, which share nothing but the model."""
    task, out = CrgTask(str(own_corpus(tmp_path)), batch_size=2), tmp_path / "run"
    monkeypatch.setattr(downstream, "train_task", lambda model, *args, **kwargs: model)
    monkeypatch.setattr(module, "respond", lambda model, tokenizer, rows, **kwargs: ["hi"] * len(rows))
    tasks = ({}, {"how": "dstc"}, {"epochs": 2}, {"batch_size": 1})
    records = [measure_crg(str(model_folder), replace(task, **v), out) for v in tasks]
    decodings = ({"preset": "release"}, {"num_beams": 2}, {"max_new_tokens": 5})
    records += [measure_crg(str(model_folder), task, out, **v) for v in decodings]
    monkeypatch.setattr(module, "meteor_kind", lambda: "nltk")
    monkeypatch.setattr(text_metrics, "meteor", lambda *args: 20.0)
    records.append(measure_crg(str(model_folder), task, out))
    assert len({record_path(r, tmp_path) for r in records}) == len(records) == 8


def test_a_stopped_run_goes_on(model_folder, tmp_path, monkeypatch):
    """Stopped while it answers: it is not trained again, and the record is the same."""
    options = dict(task=CrgTask(str(own_corpus(tmp_path)), batch_size=2), max_new_tokens=4)
    whole = measure_crg(str(model_folder), out_dir=tmp_path / "a", **options)
    real, trained = module.respond, []
    monkeypatch.setattr(module, "respond", lambda *args, **kwargs: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        measure_crg(str(model_folder), out_dir=tmp_path / "b", **options)
    monkeypatch.setattr(module, "respond", real)
    monkeypatch.setattr(downstream, "train_task", lambda *args, **kwargs: trained.append(1))
    again = measure_crg(str(model_folder), out_dir=tmp_path / "b", **options)
    assert again["values"] == whole["values"] and not trained and not list((tmp_path / "b").iterdir())


def test_the_notebook(made_up, model_folder, tmp_path):
    parameters = dict(
        model=str(model_folder),
        train_pairs=40,
        test_pairs=10,
        batch_size=8,
        max_new_tokens=5,
        out_dir=str(tmp_path / "run"),
        results_dir=str(tmp_path / "results"),
    )
    papermill(repo_root() / "nbs" / "07_crg.ipynb", tmp_path / "out.ipynb", **parameters)
    (record,) = [json.loads(p.read_text()) for p in (tmp_path / "results").rglob("*.json")]
    assert record["n"] == 10 and record["params"]["train_pairs"] == 40 and record["corpus"].startswith("multiwoz")
    statistics = np.frombuffer(bytes.fromhex(record["values"].pop("statistics")), "<u2").reshape(-1, 6)
    assert len(statistics) == 10 and score_of(statistics.astype(int)) == pytest.approx(record["values"]["bleu_4"])
    assert (
        len(unpack_dialogues(record["values"].pop("dialogues"))) == 10
        and torch.tensor(list(record["values"].values())).isfinite().all()
        and MAX_TOKENS == 128
    )
    assert record["params"]["decoding"] == "greedy-new5" and record["params"]["train_split"] == "train"
