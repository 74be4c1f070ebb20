"""Response generation: metrics against independent ones, encoding, decoding in batches, corpora, resuming."""

import json
import math
import sys
from collections import Counter

import numpy as np
import papermill
import pandas as pd
import pytest
import torch
from conftest import CONFIGS, small_random, unavailable

from redditbias_repro import crg as module
from redditbias_repro.crg import (
    bleu,
    bleu_of,
    bleu_statistics,
    bleu_test,
    distinct_n,
    embedding_scores,
    encode_pairs,
    entropy_n,
    load_responses,
    measure_crg,
    meteor,
    meteor_kind,
    nist,
    read_dstc7,
    respond,
    rouge_l,
    score_responses,
    tokenize,
    train_crg,
    unigram_f1,
)
from redditbias_repro.data import FetchError
from redditbias_repro.records import repo_root, write_record

HYPS = ["the cat sat on the mat .", "there is a dog in the garden", "yes", "i do not know what you mean by that"]
REFS = [["the cat is on the mat .", "a cat sat on a mat ."], ["a dog is in the garden now"], ["yes .", "no", "maybe yes"], ["what do you mean by that ?", "i do not know"]]
TOKENS = ([h.split() for h in HYPS], [[r.split() for r in rs] for rs in REFS])


def ngrams(tokens, n):
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def slow_bleu(hyps, refs, most):
    """From the formula: clipped counts, the nearest reference length, mteval's smoothing of zero matches by 1/2, 1/4, …"""
    matches, totals, length, nearest = [0] * most, [0] * most, 0, 0
    for h, rs in zip(hyps, refs):
        length += len(h)
        nearest += min((abs(len(r) - len(h)), len(r)) for r in rs)[1]
        for n in range(1, most + 1):
            counts, best = ngrams(h, n), Counter()
            for r in rs:
                best |= ngrams(r, n)
            matches[n - 1] += (counts & best).total()
            totals[n - 1] += counts.total()
    logs, k = [], 1
    for m, t in zip(matches, totals):
        if t == 0:
            break
        k = k if m else 2 * k
        logs.append(math.log(m / t) if m else math.log(1 / (k * t)))
    if not any(matches):
        return 0.0
    return 100 * min(1, math.exp(1 - nearest / length)) * math.exp(sum(logs) / len(logs))


def slow_nist(hyps, refs, most):
    """From Doddington (2002): information weights from the references, and a penalty of 1/2 at two thirds of the mean reference length."""
    of_refs = Counter(g for rs in refs for r in rs for n in range(1, most + 1) for g in ngrams(r, n).elements())
    words = sum(len(r) for rs in refs for r in rs)
    info = {g: math.log2((of_refs[g[:-1]] if len(g) > 1 else words) / c) for g, c in of_refs.items()}
    score = 0
    for n in range(1, most + 1):
        gained = total = 0
        for h, rs in zip(hyps, refs):
            counts, best = ngrams(h, n), Counter()
            for r in rs:
                best |= ngrams(r, n)
            gained += sum(info[g] * c for g, c in (counts & best).items())
            total += counts.total()
        score += gained / total if total else 0
    ratio = sum(map(len, hyps)) / sum(np.mean([len(r) for r in rs]) for rs in refs)
    return score * (1 if ratio >= 1 else math.exp(math.log(0.5) / math.log(1.5) ** 2 * math.log(ratio) ** 2))


# --- metrics ---


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_bleu_is_that_of_the_formula(n):
    assert bleu(*TOKENS, n) == pytest.approx(slow_bleu(*TOKENS, n), abs=1e-6)
    if n > 2:
        return
    few = ([["a", "b"], ["c"]], [[["a", "x"]], [["d"], ["e", "f"]]])
    assert bleu(*few, n) == pytest.approx(slow_bleu(*few, n), abs=1e-6)


def test_bleu_is_nltks_where_nothing_is_smoothed():
    from nltk.translate.bleu_score import corpus_bleu

    hyps = [h for h in TOKENS[0] if len(h) > 3]
    refs = [r for h, r in zip(*TOKENS) if len(h) > 3]
    assert bleu(hyps, refs, 2) == pytest.approx(100 * corpus_bleu(refs, hyps, weights=(0.5, 0.5)), abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_nist_is_that_of_the_formula(n):
    """And NLTK's where there is one reference."""
    from nltk.translate.nist_score import corpus_nist

    assert nist(*TOKENS, n) == pytest.approx(slow_nist(*TOKENS, n))
    hyps, refs = zip(*((h, rs[:1]) for h, rs in zip(*TOKENS) if len(h) > 4))
    assert nist(hyps, refs, n) == pytest.approx(corpus_nist(refs, hyps, n))


def test_meteor():
    assert meteor_kind() in ("meteor-1.5", "nltk", "nltk without synonyms")
    for kind in {meteor_kind(), "nltk without synonyms"}:
        same = meteor(TOKENS[0], [[h] for h in TOKENS[0]], kind)
        assert same > 80 and meteor(*TOKENS, kind) < same and meteor([["zebra"]], [[["cat"]]], kind) == pytest.approx(0, abs=1e-6), kind
        twice = meteor(TOKENS[0], [rs * 2 for rs in TOKENS[1]], kind)
        assert twice == pytest.approx(meteor(*TOKENS, kind), abs=1e-4), "a reference that stands twice changes nothing"
    by_hand = 100 * (10 * 1 * 1 / (1 + 9 * 1)) * (1 - 0.5 * (1 / 3) ** 3)  # three words in one chunk
    assert meteor([["a", "b", "c"]], [[["a", "b", "c"]]], "nltk without synonyms") == pytest.approx(by_hand)


def test_entropy_and_distinct_by_hand():
    tokens = [["a", "b", "a", "b"], ["a", "b"]]  # bigrams ab ×3, ba ×1
    assert distinct_n(tokens, 1) == 2 / 6 and distinct_n(tokens, 2) == 2 / 4
    assert entropy_n(tokens, 2) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert entropy_n([["a"]], 4) == 0 == distinct_n([["a"]], 4), "no n-gram of that length"


def test_f1_rouge_and_vectors():
    assert unigram_f1([["a", "a", "b"]], [[["a", "c"]]]) == pytest.approx(2 * 1 / 5)
    assert rouge_l([["a", "x", "b", "y"]], [[["a", "b"], ["z"]]]) == pytest.approx(2 * (2 / 4) * (2 / 2) / (2 / 4 + 2 / 2))
    vectors = {"a": np.array([1.0, 0]), "b": np.array([0, 2.0])}
    found = embedding_scores([["a", "b"], ["?"]], [[["a"], ["b", "a"]], [["a"]]], vectors)
    assert found == {"greedy_matching": pytest.approx(1), "embedding_average": pytest.approx(1)}
    one = embedding_scores([["a", "b"]], [[["a"]]], vectors)
    assert one["greedy_matching"] == pytest.approx((1 + 0.5) / 2) and one["embedding_average"] == pytest.approx(1 / math.sqrt(5))
    assert math.isnan(embedding_scores([["?"]], [[["a"]]], vectors)["greedy_matching"])


@pytest.fixture(scope="module")
def two_models():
    """Answers of two models to 120 contexts, one better than the other, with one to three references each."""
    rng = np.random.default_rng(0)
    words = "the a hotel is in north east cheap and train leaves at nine what time do you want".split()
    references = [[rng.choice(words, rng.integers(4, 12)).tolist() for _ in range(rng.integers(1, 4))] for _ in range(120)]
    spoiled = lambda share: [[w if rng.random() > share else "x" for w in rs[0]] for rs in references]
    return spoiled(0.5), spoiled(0.3), references


def test_bleu_of_its_statistics(two_models):
    for hyps in two_models[:2]:
        statistics = bleu_statistics(hyps, two_models[2])
        assert bleu_of(statistics) == pytest.approx(bleu(hyps, two_models[2])) and len(statistics) == 120
    assert bleu_of(bleu_statistics([["x"]], [[["a", "b"]]])) == bleu([["x"]], [[["a", "b"]]]) == 0


def test_the_paired_test_is_sacrebleus(two_models):
    """Its approximate randomization and its intervals, on the same answers."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    worse, better, references = two_models
    joined = [[" ".join(r[i]) if i < len(r) else None for r in references] for i in range(3)]
    middle = [b if i % 8 == 0 else w for i, (w, b) in enumerate(zip(worse, better))]
    for after in (better, middle, worse):
        ours = bleu_test(*(bleu_statistics(h, references) for h in (worse, after)))
        named = [("before", [" ".join(h) for h in worse]), ("after", [" ".join(h) for h in after])]
        results = {kind: PairedTest(named, {"BLEU": BLEU(tokenize="none", force=True)}, joined, test_type=kind, n_samples=1000)()[1]["BLEU"] for kind in ("ar", "bs")}
        assert ours["change"] == pytest.approx(results["ar"][1].score - results["ar"][0].score)
        assert ours["p"] == (1 if after is worse else pytest.approx(results["ar"][1].p_value, abs=0.06)), "SacreBLEU calls no difference at all significant"
        assert ours["change_low"] <= ours["change"] <= ours["change_high"]
        assert after is middle or (ours["change_low"] > 0, ours["p"] < 0.05) == (after is better, after is better)
        scores = score_responses([" ".join(h) for h in after], [[" ".join(r) for r in rs] for rs in references], kind="nltk without synonyms")
        assert (scores["bleu_4_high"] - scores["bleu_4_low"]) / 2 == pytest.approx(results["bs"][1].ci, rel=0.15)
    with pytest.raises(ValueError, match="the same contexts"):
        bleu_test(np.ones((2, 6), int), np.ones((3, 6), int))


@pytest.mark.parametrize("hyps,refs", [([""], [["yes"]]), (["yes"], [["yes"]]), (["..."], [["! ?"]]), (["", "a b c d e"], [["x"], ["a b c d e", "y", "z"]]), (["好的"], [["好的。"]])])
def test_every_metric_on_what_is_odd(hyps, refs):
    scores = score_responses(hyps, refs, kind="nltk without synonyms")
    assert all(np.isfinite(v) for v in scores.values()) and scores["bleu_4"] >= 0 and scores["empty"] == hyps.count("")


def test_bad_input_to_metrics():
    with pytest.raises(ValueError, match="2 hypotheses and references for 1"):
        score_responses(["a", "b"], [["a"]])
    with pytest.raises(ValueError, match=r"no reference for hypothesis \[1\]"):
        score_responses(["a", "b"], [["a"], ["  "]])
    with pytest.raises(ValueError, match="space, char, jieba"):
        score_responses(["a"], [["a"]], "words")
    assert tokenize("女孩 like 3 cats", "char") == ["女", "孩", "like", "3", "cats"]


def test_chinese_words(monkeypatch):
    assert tokenize("我喜欢北京的 cats", "jieba") == ["我", "喜欢", "北京", "的", "cats"]
    scores = score_responses(["我喜欢北京"], [["我爱北京"]], "jieba", kind="nltk without synonyms")
    assert scores["rouge_l"] == pytest.approx(2 / 3) and scores["mean_length"] == 3 and scores["unigram_f1"] == pytest.approx(2 / 3)
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'redditbias_repro\[chinese\]'"):
        tokenize("我", "jieba")


# --- encoding ---


def pairs():
    return pd.DataFrame({"key": ["1", "2"], "context": [["hello there", "hi , who are you ?"], ["the women are nurses " * 60]], "response": ["me .", "they are lazy"], "references": [["me ."], ["they are lazy"]]})


def test_only_the_response_is_learned(tokenizer):
    first, long = encode_pairs(pairs(), tokenizer, max_tokens=64)
    learned = [i for i, y in zip(first["input_ids"], first["labels"]) if y != -100]
    assert tokenizer.decode(learned) == "me .<eos>" and tokenizer.decode(first["input_ids"]) == "hello there<eos>hi , who are you ?<eos>me .<eos>"
    assert len(long["input_ids"]) == 64 and tokenizer.decode(long["input_ids"]).endswith("nurses <eos>they are lazy<eos>"), "the beginning of the context is left out"
    asked = encode_pairs(pairs(), tokenizer, 64, responses=False, reserve=24)
    assert len(asked[1]["input_ids"]) == 40 and asked[0]["input_ids"] == first["input_ids"][: first["labels"].count(-100)]


def test_a_tokenizer_without_an_end(tokenizer):
    from copy import deepcopy

    bare = deepcopy(tokenizer)
    bare.eos_token = None
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        encode_pairs(pairs(), bare)


# --- generation ---


def test_the_same_alone_and_in_a_batch(random_model, tokenizer):
    model = random_model
    rows = [{"input_ids": tokenizer(t)["input_ids"]} for t in ("the women", "they are lazy and people", "christians", "jews and muslims are", "the men are officers and the women are nurses")]
    alone = [respond(model, tokenizer, [r], max_new_tokens=6)[0] for r in rows]
    assert respond(model, tokenizer, rows, batch_size=2, max_new_tokens=6) == alone == respond(model, tokenizer, rows, batch_size=5, max_new_tokens=6)
    assert respond(model, tokenizer, rows[:2], max_new_tokens=4, num_beams=2) == [respond(model, tokenizer, [r], max_new_tokens=4, num_beams=2)[0] for r in rows[:2]]


def test_sampling_is_seeded_and_goes_on(tokenizer, tmp_path, monkeypatch):
    model = small_random(CONFIGS["gpt2"](len(tokenizer)))
    rows = [{"input_ids": tokenizer("the women " * (1 + i % 3))["input_ids"]} for i in range(8)]
    options = dict(batch_size=2, max_new_tokens=5, do_sample=True, progress=False)
    whole = respond(model, tokenizer, rows, seed=1, **options)
    assert whole == respond(model, tokenizer, rows, seed=1, **options) != respond(model, tokenizer, rows, seed=2, **options)
    real, calls = model.generate, []

    def killed(**kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(**kwargs)

    monkeypatch.setattr(model, "generate", killed)
    with pytest.raises(KeyboardInterrupt):
        respond(model, tokenizer, rows, seed=1, keep=tmp_path / "answers.json", **options)
    assert respond(model, tokenizer, rows, seed=1, keep=tmp_path / "answers.json", **options) == whole and len(calls) == 5


def test_it_learns_to_answer(tokenizer, tmp_path):
    table = pd.DataFrame({"key": "1", "context": [["the women"], ["the men"]] * 16, "response": ["they are lazy", "christians"] * 16})
    model = train_crg(small_random(CONFIGS["gpt2"](len(tokenizer))), encode_pairs(table, tokenizer), tmp_path / "run", epochs=20, batch_size=8, learning_rate=5e-3, disable_tqdm=True)
    assert respond(model, tokenizer, encode_pairs(table.iloc[:2], tokenizer, responses=False)) == ["they are lazy", "christians"] and not (tmp_path / "run").exists()


# --- corpora ---


def dstc7(folder, keys=True):
    (folder / "train_convos.txt").write_text("h1\ttil\tc1\t5\t2\tSTART EOS cats are nice . EOS are they ?\tyes .\n")
    (folder / "test_convos.txt").write_text("k1\ttil\tc1\t5\t2\tSTART EOS hm\tno\nk2\ttil\tc2\t5\t2\tSTART EOS what is EOS of it\tnothing\nk3\ttil\tc3\t1\t2\tEOS a\tb\n")
    (folder / "test.refs").write_text("k1\t12|yes .\t3|they | are\t1|yes .\t1|a\t1|b\t1|c\t1|d\nk2\t5|one\n")
    if keys:
        (folder / "keys.2k.txt").write_text("k2\nk9\n")
    return folder


def test_the_official_extraction(tmp_path):
    test = read_dstc7(dstc7(tmp_path), "test")
    assert test.key.tolist() == ["k2"] and test.context.tolist() == [["what is", "of it"]] and test.references.tolist() == [["one"]]
    (tmp_path / "keys.2k.txt").unlink()
    test = read_dstc7(tmp_path, "test")
    assert test.references.tolist() == [["yes .", "they | are", "a", "b", "c"], ["one"]], "five references, each once"
    train = load_responses("train", str(tmp_path))
    assert train.context.tolist() == [["cats are nice .", "are they ?"]] and train.attrs["corpus"]["name"] == "dstc7"


@pytest.mark.parametrize("name,content,says", [("test_convos.txt", "k1\ta\tb\n", r"line 1: 3 columns, expected 7"), ("test.refs", "k1\tyes\n", r"line 1: no reference of the form score\|response"), ("test_convos.txt", "", "the test split of .* is empty")])
def test_malformed_extractions(tmp_path, name, content, says):
    (dstc7(tmp_path, keys=False) / name).write_text(content)
    with pytest.raises(ValueError, match=says):
        load_responses("test", str(tmp_path))


def test_what_is_not_there(tmp_path):
    for names, says in ((["test.refs"], "holds no test.refs"), (["test_convos.txt"], "holds no test_convos.txt or")):
        dstc7(tmp_path)
        for n in names:
            (tmp_path / n).unlink()
        with pytest.raises(FileNotFoundError, match=says):
            load_responses("test", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="is no folder, and not multiwoz"):
        load_responses("test", "reddit")
    with pytest.raises(ValueError, match="expected train or test"):
        load_responses("dev")


def own_corpus(folder):
    for split in ("train", "test"):
        pd.DataFrame({"context": ["hello", "hello", "who are\nyou ?", ""], "response": ["hi", "hello !", "me", "x"]}).to_csv(folder / f"{split}.csv", index=False)
    return folder


def test_a_corpus_of_ones_own(tmp_path):
    test = load_responses("test", str(own_corpus(tmp_path)))
    assert test.context.tolist() == [["hello"], ["who are", "you ?"]] and test.references.tolist() == [["hi", "hello !"], ["me"]]
    assert len(load_responses("train", str(tmp_path))) == 3 and len(load_responses("train", str(tmp_path), 2)) == 2
    (tmp_path / "test.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no column context and response; its columns are \['a', 'b'\]"):
        load_responses("test", str(tmp_path))


def test_multiwoz_responses():
    try:
        test = load_responses("test", "multiwoz", 200)
    except FetchError as e:
        unavailable(f"MultiWOZ cannot be had: {e}")
    assert len(test) == 200 and (test.references.str.len() == 1).all() and all(c and c[-1] for c in test.context)


# --- from a model to a record ---


def test_a_record(model_folder, tmp_path):
    record = measure_crg(str(model_folder), "tiny", "CDA", "race", str(own_corpus(tmp_path)), batch_size=2, out_dir=tmp_path / "run", max_new_tokens=4)
    assert record["n"] == 2 and {"bleu_4", "nist_2", "meteor", "entropy_4", "distinct_2", "mean_length"} <= set(record["values"])
    assert record["provenance"]["meteor"] == meteor_kind() and record["provenance"]["training"]["decoding"] == {"max_new_tokens": 4, "num_beams": 1, "do_sample": False}
    assert str(tmp_path.parent.parent) not in json.dumps(record["provenance"]["model"]), "no path of this machine"
    assert write_record(record, tmp_path / "results").is_file() and not list((tmp_path / "run").iterdir())


def test_a_stopped_run_goes_on(model_folder, tmp_path, monkeypatch):
    """Stopped while it answers: it is not trained again, and the record is the same."""
    options = dict(corpus=str(own_corpus(tmp_path)), batch_size=2, max_new_tokens=4)
    whole = measure_crg(str(model_folder), out_dir=tmp_path / "a", **options)
    real, trained = module.respond, []
    monkeypatch.setattr(module, "respond", lambda *args, **kwargs: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        measure_crg(str(model_folder), out_dir=tmp_path / "b", **options)
    monkeypatch.setattr(module, "respond", real)
    monkeypatch.setattr(module, "train_crg", lambda *args, **kwargs: trained.append(1))
    again = measure_crg(str(model_folder), out_dir=tmp_path / "b", **options)
    assert again["values"] == whole["values"] and not trained and not list((tmp_path / "b").iterdir())


def test_the_notebook(corpus, model_folder, tmp_path):
    root = repo_root()
    parameters = dict(model=str(model_folder), train_pairs=40, test_pairs=10, batch_size=8, max_new_tokens=5, out_dir=str(tmp_path / "run"), results_dir=str(tmp_path / "results"))
    papermill.execute_notebook(str(root / "nbs" / "07_crg.ipynb"), None, parameters, cwd=root / "nbs", progress_bar=False)
    (record,) = [json.loads(p.read_text()) for p in (tmp_path / "results").rglob("*.json")]
    assert record["n"] == 10 and record["params"]["train_pairs"] == 40 and record["corpus"].startswith("multiwoz")
    statistics = np.frombuffer(bytes.fromhex(record["values"].pop("statistics")), "<u2").reshape(-1, 6)
    assert len(statistics) == 10 and bleu_of(statistics.astype(int)) == pytest.approx(record["values"]["bleu_4"])
    assert torch.tensor(list(record["values"].values())).isfinite().all() and module.MAX_TOKENS == 128
