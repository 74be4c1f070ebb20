"""Style equality: bias values by hand, tags that no judge sees, tuning that goes on, sheets that come back."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CONFIGS, seq2seq, small_random
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from redditbias_repro.answers.generation import answers, decoding_of
from redditbias_repro.debias import style as style_equality
from redditbias_repro.debias.style import (
    QUESTIONS,
    TAGS,
    acute_sheets,
    answer_perplexity,
    bias_values,
    read_acute,
    tag,
    threshold,
    training_rows,
    tune,
    untag,
)
from redditbias_repro.models.loading import describe_model, hash_weights, load_model
from redditbias_repro.records import new_record

# Bias values


def loop(table, probs, alpha):
    "The formulas of C.1, one after another"
    p = {}
    for (d, t), vector in zip(zip(table.descriptor, table.template), probs):
        p.setdefault(d, {}).setdefault(t, []).append(vector)
    m = {d: np.mean([np.mean(v, 0) for v in of.values()], 0) for d, of in p.items()}
    bar, values = np.mean(list(m.values()), 0), []
    for d, vector in zip(table.descriptor, probs):
        length = np.linalg.norm(m[d] - bar)
        values.append((vector - bar) @ (m[d] - bar) / length**alpha if length > 0 else 0.0)
    return values


@pytest.mark.parametrize("alpha", [0, 1, 2])
def test_bias_values_by_hand(alpha):
    """Two templates, of which b lacks one; a says more to the second. m_a = (.6, .4), m_b = (.2, .8), mean (.4, .6)."""
    table = pd.DataFrame({"descriptor": list("aaab"), "template": ["t", "u", "u", "t"]})
    probs = np.array([[0.4, 0.6], [1.0, 0.0], [0.6, 0.4], [0.2, 0.8]])
    length = math.sqrt(0.08)  # of (.2, -.2) and (-.2, .2)
    by_hand = np.array([0.0, 0.6 * 0.2 * 2, 0.2 * 0.2 * 2, 0.2 * 0.2 * 2]) / length**alpha
    np.testing.assert_allclose(bias_values(table, probs, alpha), by_hand, atol=1e-12)
    np.testing.assert_allclose(bias_values(table, pd.DataFrame(probs, index=[7, 7, 8, 9]), alpha), by_hand, atol=1e-12)
    order = [3, 1, 0, 2]
    shuffled = bias_values(table.iloc[order], probs[order], alpha)
    np.testing.assert_allclose(shuffled, by_hand[order], atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("tuv")), min_size=1, max_size=25),
    st.sampled_from([0, 1, 2]),
)
def test_bias_values_against_a_loop(cells, alpha):
    table = pd.DataFrame(cells, columns=["descriptor", "template"])
    probs = np.random.default_rng(len(cells)).dirichlet(np.ones(4), len(cells))
    np.testing.assert_allclose(bias_values(table, probs, alpha), loop(table, probs, alpha), atol=1e-9)


def test_bias_values_where_there_is_none():
    table = pd.DataFrame({"descriptor": ["a", "b"], "template": "t"})
    same = np.full((2, 3), 1 / 3)
    assert bias_values(table, same, 2).tolist() == [0, 0] and bias_values(table[:1], same[:1], 1).tolist() == [0]
    assert len(bias_values(table[:0], same[:0])) == 0
    apart = table.assign(descriptor="a", axis=["x", "y"])
    assert bias_values(apart, np.eye(2)).tolist() == [0.5, 0.5], "the same word on two axes is two descriptors"
    for bad, match in (
        ((table.drop(columns="template"), same), "no column template"),
        ((table, same[:1]), "2 answers and probabilities of shape"),
        ((table, same[0]), "of shape"),
        ((table, same * np.nan), "not finite"),
        ((table.assign(descriptor=["a", None]), same), "no descriptor"),
        ((table, same, -1), "alpha is -1: expected 0, 1 or 2"),
    ):
        with pytest.raises(ValueError, match=match):
            bias_values(*bad)


# Tags


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9).map(float), min_size=1, max_size=30), st.floats(0.01, 0.99))
def test_a_threshold_leaves_at_most_its_share_above(values, share):
    above = np.array(values) > threshold(np.array(values), share)
    assert above.sum() <= share * len(values) + 1e-6
    distinct = np.arange(10.0)
    assert (distinct > threshold(distinct, share)).sum() == int(share * 10 + 1e-9)


def test_tags():
    assert tag(["x", "y", "z"], [0.2, 0.3, 0.4], 0.3) == ["x no_bias", "y no_bias", "z bias"]
    for bad in (0, 1):
        with pytest.raises(ValueError, match="expected one between 0 and 1"):
            threshold(np.arange(3), bad)
    with pytest.raises(ValueError):
        tag(["x"], [0.1, 0.2], 0)


def test_no_tag_is_ever_judged():
    texts = [
        "no_bias",
        "I am. no_bias",
        "no_bias I am.",
        "bias bias",
        "biases",
        "unbiased",
        "my_bias",
        "a bias, too",
        "",
    ]
    judged = untag(pd.DataFrame({"answer": texts, "other": range(9)}))
    assert judged.answer.tolist() == ["", "I am.", "I am.", "", "biases", "unbiased", "my_bias", "a, too", ""]
    assert judged.wrote_tag.tolist() == [True] * 4 + [False] * 3 + [True, False] and judged.other.tolist() == list(
        range(9)
    )
    words = {w.strip(".,") for a in judged.answer for w in a.split()}
    assert not words & set(TAGS)
    assert len(untag(judged[:0])) == 0


# Tuning


@pytest.fixture
def model(tokenizer):
    return small_random(CONFIGS["gpt2"](len(tokenizer)))


def heard():
    rows = [
        (f"{start} {d}", d, start, said)
        for start in ("the", "they are", "and the", "we are", "you are", "all")
        for d, said in (("women", "they are lazy"), ("men", "they are officers"))
    ]
    table = pd.DataFrame(rows * 2, columns=["text", "descriptor", "template", "answer"])
    style = np.where(table.descriptor.eq("women").to_numpy()[:, None], [[0.8, 0.2]], [[0.3, 0.7]])
    return table, style + np.array([[0.1, -0.1]]) * (np.arange(len(table)) % 4 < 2)[:, None]


OPTIONS = dict(epochs=4, batch_size=8, learning_rate=3e-3, held_out=0.2, disable_tqdm=True)


def tuned(model, tokenizer, folder, **changes):
    table, style = heard()
    options = dict(beta=threshold(bias_values(table, style), 0.5)) | OPTIONS | changes
    return tune(model, tokenizer, table, style, out_dir=folder, **options)


def test_only_the_answer_is_learned(model, tokenizer):
    table, style = heard()
    contexts = tag(table.text, bias_values(table, style), 0.1)
    rows = training_rows(model, tokenizer, table.assign(ended=[True, False] * 12), contexts)
    for row, context, answer, ended in zip(rows, contexts, table.answer, [True, False] * 12):
        learned = [t for t in row["labels"] if t >= 0]
        first = len(row["labels"]) - len(learned)
        assert tokenizer.decode(learned) == answer + "<eos>" * ended
        assert tokenizer.decode(row["input_ids"][:first]) == f"{context}<eos>" and row["input_ids"][first:] == learned
    with torch.no_grad():
        nll, n = 0.0, 0
        for row in rows:
            ids, labels = (torch.tensor([row[k]]) for k in ("input_ids", "labels"))
            found = model(ids).logits[0, :-1].log_softmax(1)[range(ids.shape[1] - 1), ids[0, 1:]][labels[0, 1:] >= 0]
            nll, n = nll - found.sum().item(), n + len(found)
    assert answer_perplexity(model, rows, 0, 5) == pytest.approx(math.exp(nll / n), rel=1e-4)
    with pytest.raises(
        ValueError, match=r"1 answers and their contexts are too long for the model's 256 positions \(at \[1\]"
    ):
        training_rows(model, tokenizer, pd.DataFrame({"answer": ["hm", "hm" * 150]}), ["a", "b"])


def test_an_encoder_decoder_model_is_tuned(tokenizer, tmp_path):
    run = tuned(seq2seq(tokenizer, "t5"), tokenizer, tmp_path / "t5")
    assert run.history.perplexity.min() < run.history.perplexity[0]
    model, words = load_model(run.folder, kind="seq2seq")
    assert len(answers(model, words, ["the women"], decoding_of(max_new_tokens=3), suffix=TAGS[1], progress=False)) == 1


@pytest.mark.parametrize("tags", [True, False])
def test_a_tuned_model_says_so_and_talks_as_it_was_taught(model, tokenizer, tmp_path, tags):
    before = hash_weights(model)
    run = tuned(model, tokenizer, tmp_path / "run", tags=tags, bias_type="own/people", epochs=30)
    assert not (tmp_path / "run.partial").exists() and not list((tmp_path / "run").glob("*.bin"))
    history = run.history.dropna(subset="perplexity")
    assert history.step[0] == 0 and history.perplexity.min() < 0.5 * history.perplexity[0]
    loaded, words = load_model(run.folder)
    about = describe_model(loaded)["debiased"]
    assert about == run.settings and about["base"] == before and about["seed"] == 0
    assert about["method"] == ("style-equality" if tags else "style-equality-untagged")
    assert (about["beta"] is None, about["alpha"] is None, about["tagged_bias"] is None) == (not tags,) * 3
    table, style = heard()
    values = bias_values(table, style)
    contexts = tag(table.text, values, threshold(values, 0.5)) if tags else table.text.tolist()
    valid = style_equality._held_out(table.text, 0.2, 0)
    rows = [r for r, v in zip(training_rows(loaded, words, table, contexts), valid) if v]
    assert answer_perplexity(loaded, rows, 0) == pytest.approx(history.perplexity.min(), rel=1e-3), "the best is kept"
    record = new_record("fgb", describe_model(loaded), {"name": "c"}, 3, {"fgb": 1.0}, "own")
    assert (record["method"], record["params"]) == (about["method"], {"train_seed": 0})
    said = answers(
        loaded, words, table.text.unique().tolist(), decoding_of(max_new_tokens=8), suffix=TAGS[1], progress=False
    )
    judged = untag(said)
    assert said.text.str.contains("bias").sum() == 0 and judged.answer.str.contains("they are").mean() > 0.5


def test_a_run_that_was_stopped_goes_on(tokenizer, tmp_path, monkeypatch):
    """The same weights and history as of a run that was not; then it is found again, and another is refused."""
    fresh = lambda: small_random(CONFIGS["gpt2"](len(tokenizer)))
    options = dict(save_steps=2, patience=100)
    whole = tuned(fresh(), tokenizer, tmp_path / "whole", **options)
    real, calls = style_equality.answer_perplexity, []

    def killed(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(style_equality, "answer_perplexity", killed)
    with pytest.raises(KeyboardInterrupt):
        tuned(fresh(), tokenizer, tmp_path / "part", **options)
    assert not (tmp_path / "part").exists() and (tmp_path / "part.partial" / "settings.json").is_file()
    with pytest.raises(ValueError, match="unfinished run with other settings"):
        tuned(fresh(), tokenizer, tmp_path / "part", seed=1, **options)
    before = len(calls)
    resumed = tuned(fresh(), tokenizer, tmp_path / "part", **options)
    measured = whole.history.perplexity.notna().sum()
    assert len(calls) - before < measured, "it did not begin anew"
    assert hash_weights(load_model(resumed.folder)[0]) == hash_weights(load_model(whole.folder)[0])
    np.testing.assert_allclose(resumed.history.perplexity.dropna(), whole.history.perplexity.dropna(), rtol=1e-6)
    calls.clear()
    assert tuned(fresh(), tokenizer, tmp_path / "part", **options).history.equals(resumed.history) and not calls
    with pytest.raises(ValueError, match="holds a run that differs in learning_rate"):
        tuned(fresh(), tokenizer, tmp_path / "part", learning_rate=1e-3, **options)


def test_training_ends_when_perplexity_falls_no_more(model, tokenizer, tmp_path, monkeypatch):
    values = iter([9.0, 5.0, 6.0, 7.0, 1.0])
    monkeypatch.setattr(style_equality, "answer_perplexity", lambda *a, **k: next(values))
    run = tuned(model, tokenizer, tmp_path / "run", save_steps=1, patience=2, optim="sgd", warmup_steps=1, epochs=20)
    assert run.history.perplexity.dropna().tolist() == [9, 5, 6, 7] and run.settings["optim"] == "sgd"
    assert json.loads((run.folder / "config.json").read_text())["debiased"] == run.settings


def test_what_cannot_be_tuned(model, tokenizer, tmp_path):
    table, style = heard()
    base, beta = hash_weights(model), threshold(bias_values(table, style))
    for changes, match in (
        (dict(beta=9.0), "0 of 24 answers have a bias value above 9, so that one tag is all there is"),
        (dict(beta=None), "tags need the style probabilities"),
        (dict(probs=style[:3]), "tags need the style probabilities of all answers"),
        (dict(probs=None), "tags need the style probabilities"),
        (dict(answers=table.assign(answer=" ")), "0 of 24 answers hold anything"),
        (dict(answers=table.drop(columns="answer")), "no column text or answer"),
        (dict(answers=table.assign(text="one")), "of 1 prompts is to be held out"),
        (dict(held_out=0.0), "is to be held out"),
        (dict(bias_type="people"), "expected paper/name"),
        (dict(model=small_random(CONFIGS["gpt2"](len(tokenizer))).bfloat16()), "load it with dtype"),
    ):
        with pytest.raises(ValueError, match=match):
            tune(
                **dict(model=model, tokenizer=tokenizer, answers=table, probs=style, beta=beta, out_dir=tmp_path / "no")
                | changes
            )
    assert hash_weights(model) == base and not list(tmp_path.iterdir())


# Acute-Eval


def two_models(n=30):
    before = pd.DataFrame({"text": [f"I am number {i}." for i in range(n)], "answer": [f"old {i}" for i in range(n)]})
    return before, before.assign(answer=[f"new, {i}" if i % 3 else f"old {i}" for i in range(n)])


def fill(sheet, choose):
    table = pd.read_csv(sheet)
    for question in QUESTIONS:
        table[question] = [choose(question, 1 if "B: new" in row["speaker 1"] else 2) for _, row in table.iterrows()]
    table.to_csv(sheet, index=False)


def test_sheets_are_blind_and_come_back(tmp_path):
    sheet, key = acute_sheets(*two_models(), 15, 3, tmp_path / "pairs.csv")
    table, sides = pd.read_csv(sheet), pd.read_csv(key)
    assert len(table) == 15 and table["id"].is_unique and set(sides.after) == {1, 2}
    assert (
        list(table) == ["id", "speaker 1", "speaker 2", *QUESTIONS]
        and "Who would you prefer" in (tmp_path / "pairs.md").read_text()
    )
    for row, side in zip(table.to_dict("records"), sides.after):
        assert "B: new" in row[f"speaker {side}"] and "B: old" in row[f"speaker {3 - side}"]
        assert row["speaker 1"].split("\n")[0] == row["speaker 2"].split("\n")[0]
    again = acute_sheets(*two_models(), 15, 3, tmp_path / "again.csv")
    assert again[0].read_bytes() == sheet.read_bytes() and again[1].read_bytes() == key.read_bytes()
    with pytest.raises(ValueError, match="nothing is filled in"):
        read_acute(sheet)
    numbers = iter(range(99))
    fill(
        sheet,
        lambda q, new: new if q == "preference" else "" if q == "humanness" else [new, new, 3 - new][next(numbers) % 3],
    )
    found = read_acute(sheet).set_index("question")
    test = binomtest(10, 15)
    low, high = test.proportion_ci(method="wilson")
    assert found.loc["preference"].tolist()[:3] == [15, 15, 1] and found.p["preference"] == pytest.approx(2 / 2**15)
    assert found.loc["interesting"].tolist() == pytest.approx([10, 15, 10 / 15, low, high, test.pvalue])
    assert found.n["humanness"] == 0 and found.loc["humanness", ["share", "low", "high", "p"]].isna().all()
    with pytest.raises(FileExistsError, match="filled in: nothing was written"):
        acute_sheets(*two_models(), 15, 4, sheet)
    other = tmp_path / "other person.csv"
    other.write_text(pd.read_csv(sheet).to_csv(index=False, sep=";"), encoding="utf-16")
    assert read_acute([sheet, other], key).n.tolist() == [30, 0, 30]


def test_sheets_that_cannot_be_made(tmp_path):
    before, after = two_models()
    for bad, match in (
        ((before, before, 5), "the two answered only 0 prompts differently"),
        ((before, after, 0), "0 pairs are requested"),
        ((before, pd.concat([after, after]), 5), "has a prompt twice"),
        ((before.drop(columns="answer"), after, 5), "lacks text or answer"),
    ):
        with pytest.raises(ValueError, match=match):
            acute_sheets(*bad, 0, tmp_path / "pairs.csv")
    assert len(pd.read_csv(acute_sheets(before, after, 99, 0, tmp_path / "pairs.csv")[0])) == 20, "as many as there are"


def test_sheets_that_cannot_be_read(tmp_path):
    sheet, key = acute_sheets(*two_models(), 6, 0, tmp_path / "pairs.csv")
    fill(sheet, lambda q, new: new)
    good = pd.read_csv(sheet)
    for change, match in (
        (lambda t: t.assign(humanness=[1, 2, 3, 1, 1, 1]), "'3' in column humanness of row 4 is not a choice"),
        (lambda t: t.assign(preference="left"), "'left' in column preference of row 2"),
        (lambda t: t.assign(id=t["id"] + 5), "id '7' of row 3 is not in the key"),
        (lambda t: t.assign(id=1), "a pair is answered twice"),
        (lambda t: t.drop(columns="humanness"), "no column humanness"),
    ):
        change(good).to_csv(sheet, index=False)
        with pytest.raises(ValueError, match=match):
            read_acute(sheet)
    good.astype({q: float for q in QUESTIONS}).to_csv(sheet, index=False)
    assert read_acute(sheet).n.tolist() == [6, 6, 6], "a spreadsheet may write 1.0"
    key.write_text("id,after\n1,3\n")
    with pytest.raises(ValueError, match="is not the key of a sheet"):
        read_acute(sheet)
    with pytest.raises(FileNotFoundError):
        read_acute(sheet, tmp_path / "none.csv")
