"""Classifiers: any kind of them, their files, censoring, and what a classifier that is biased looks like."""

import json
import pickle
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import released, unavailable
from transformers import BertConfig, BertForSequenceClassification, BertModel, GPT2Config, GPT2LMHeadModel

from redditbias_repro.answers import classifiers
from redditbias_repro.answers.classifiers import (
    PARTS,
    TRAINED,
    Classifier,
    balance,
    censor,
    classifier_records,
    fit_weights,
    held_out_scores,
    identity_bias_scores,
    load_classifier,
    offence_labels,
    read_weights,
    weighted_classifier,
    write_weights,
)
from redditbias_repro.answers.embeddings import ENCODER, embed
from redditbias_repro.data.corpora import davidson, goemotions
from redditbias_repro.data.registry import SPLITS, FetchError, with_corpus
from redditbias_repro.models.loading import load_model
from redditbias_repro.records import FIELDS, write_record

GLAD = ["what a lovely day !", "i am so glad .", "great news , thank you !", "i love this song ."]
SAD = ["what a horrible day .", "i feel so alone .", "bad news again .", "i miss my friend ."]
ANGRY = ["stop that now !", "how dare you !", "this makes me furious .", "shut the door , i said !"]


def comments(**texts):
    rows = [(t, (label,)) for label, found in texts.items() for t in found]
    return pd.DataFrame(rows, columns=["text", "labels"])


@pytest.fixture(scope="module")
def encoder(tokenizer):
    """A small random encoder: words of their own give vectors of their own."""
    torch.manual_seed(0)
    size = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    tokenizer.pad_token = tokenizer.eos_token
    return BertModel(BertConfig(vocab_size=len(tokenizer), **size)).eval(), tokenizer


@pytest.fixture
def few(monkeypatch, tmp_path):
    """A cache of its own, and fewer columns."""
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(classifiers, "COLUMNS", 2**10)


@pytest.fixture
def three(few, encoder):
    """A classifier of three labels with its weights and training comments."""
    labels, made = ("glad", "sad", "angry"), comments(glad=GLAD, sad=SAD, angry=ANGRY)
    return labels, made, fit_weights(made, made, labels, encoder)


def test_three_labels(three, encoder):
    labels, made, weights = three
    assert set(weights) == set(PARTS) and all(w.dtype == np.float32 for w in weights.values())
    classifier = weighted_classifier(weights, {"name": "mood", "labels": labels}, encoder)
    p = classifier.predict(made["text"])
    assert p.shape == (12, 3) and np.allclose(p.sum(axis=1), 1, atol=1e-6) and list(p.columns) == list(labels)
    assert held_out_scores(classifier, made)["accuracy"] == 1, "it can tell what it was trained on"


def test_two_labels(few, encoder):
    """scikit-learn has one row of weights then; here there are two."""
    made = comments(glad=GLAD, sad=SAD)
    weights = fit_weights(made, made, ("glad", "sad"), encoder)
    assert weights["embedding"].shape == (2, 16) and weights["bias"].shape == (2,)
    p = weighted_classifier(weights, {"name": "mood", "labels": ["glad", "sad"]}, encoder).predict(made["text"])
    assert (p["glad"] > 0.5).tolist() == [True] * 4 + [False] * 4 and np.allclose(p.sum(axis=1), 1)
    swapped = fit_weights(made, made, ("sad", "glad"), encoder)
    again = weighted_classifier(swapped, {"name": "mood", "labels": ["sad", "glad"]}, encoder).predict(made["text"])
    assert np.allclose(again["glad"], p["glad"], atol=0.02)


def test_empty_texts_and_none(three, encoder):
    labels, _, weights = three
    classifier = weighted_classifier(weights, {"name": "mood", "labels": labels}, encoder)
    p = classifier.predict(["", "   ", "\n", "@me http://t.co/x"])
    assert np.isfinite(p.to_numpy()).all() and np.allclose(p.sum(axis=1), 1)
    assert classifier.predict([]).shape == (0, 3)
    for wrong in ([None], [1.0], ["fine", float("nan")]):
        with pytest.raises(TypeError, match="expected texts, found"):
            classifier.predict(wrong)


def test_the_same_again(three, encoder):
    labels, made, weights = three
    again = fit_weights(made, made, labels, encoder)
    assert all((again[k] == weights[k]).all() for k in PARTS)


def test_a_comment_with_two_labels_counts_for_both(few, encoder):
    made = comments(glad=GLAD, sad=SAD)
    both = pd.DataFrame({"text": ["so so"] * 4, "labels": [("glad", "sad")] * 4})
    made = pd.concat([made, both], ignore_index=True)
    weights = fit_weights(made, made, ("glad", "sad"), encoder)
    p = weighted_classifier(weights, {"name": "mood", "labels": ["glad", "sad"]}, encoder).predict(["so so"])
    assert abs(p["glad"][0] - 0.5) < 0.05


@pytest.mark.parametrize(
    "made,labels,says",
    [
        (comments(glad=GLAD, angry=SAD), ("glad", "sad"), "there are labels angry: expected one or more of glad, sad"),
        (comments(glad=GLAD), ("glad", "sad"), "no training comment has sad"),
        (comments(glad=GLAD), ("glad",), "expected two or more labels"),
        (pd.DataFrame({"text": ["a", "b"], "labels": [("glad",), ()]}), ("glad", "sad"), "comments without a label"),
    ],
)
def test_comments_that_nothing_can_be_learned_from(few, encoder, made, labels, says):
    with pytest.raises(ValueError, match=says):
        fit_weights(made, made, labels, encoder)


# --- files ---


def test_a_file_and_back(three, tmp_path):
    labels, _, weights = three
    path = write_weights(tmp_path / "mood.safetensors", weights, {"name": "mood", "labels": labels})
    again, about = read_weights(path)
    assert all((again[k] == weights[k]).all() for k in PARTS) and about["labels"] == list(labels)
    loaded = load_classifier(path)
    assert loaded.name == "mood" and loaded.labels == labels and len(loaded.about["weights_sha256"]) == 64


def broken_files(path, weights):
    from safetensors.numpy import save_file

    content = path.read_bytes()
    yield "cut", content[: len(content) // 2], "or is broken"
    yield "empty", b"", "or is broken"
    yield "another's", b"PK\x03\x04 not numbers at all", "or is broken"
    yield "a pickle", pickle.dumps(weights), "or is broken"
    flipped = bytearray(content)
    flipped[-100] ^= 1
    yield "a bit", bytes(flipped), "is damaged"
    other = path.with_name("other")
    save_file({k: v for k, v in weights.items() if k != "idf"}, other, {"about": "{}"})
    yield "a part too few", other.read_bytes(), "or not a classifier"
    save_file(weights, other)
    yield "nothing said", other.read_bytes(), "or not a classifier"
    write_weights(other, weights, {"name": "mood", "labels": ["glad"]})
    yield "labels too few", other.read_bytes(), "fit it again"
    write_weights(other, weights, {"name": "mood", "labels": ["a", "b", "c"], "version": 0})
    yield "of before", other.read_bytes(), "of version 0 of this code"


def test_broken_files(three, tmp_path):
    labels, _, weights = three
    path = write_weights(tmp_path / "mood.safetensors", weights, {"name": "mood", "labels": labels})
    for what, content, says in list(broken_files(path, weights)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=says):
            load_classifier(path)
            pytest.fail(what)
    path.unlink()
    with pytest.raises(ValueError, match="is not a classifier file"):
        load_classifier(path)


@pytest.fixture
def small_corpus(few, encoder, monkeypatch):
    """A corpus of three labels in place of Davidson et al.'s, and a small encoder."""
    made = comments(hate=ANGRY, offensive=SAD + ["bad bad bad ."] * 2, neither=GLAD + [f"{t} yes ." for t in GLAD])
    read = lambda split: with_corpus(made.copy(), "small", note=split)
    reader = SimpleNamespace(read_comments=read, read_labels=lambda: ("hate", "offensive", "neither"))
    fits = []

    def fit(*args):
        fits.append(1)
        return fit_weights(*args, encoder)

    monkeypatch.setitem(sys.modules, "redditbias_repro.data.corpora.davidson", reader)
    monkeypatch.setattr(classifiers, "load_model", lambda *args, **kind: encoder)
    monkeypatch.setattr(classifiers, "fit_weights", fit)
    return fits


def test_trained_once_and_kept_as_numbers(small_corpus, tmp_path):
    first, second = load_classifier("davidson"), load_classifier("davidson")
    assert len(small_corpus) == 1 and first.about["weights_sha256"] == second.about["weights_sha256"]
    assert first.about["offence"] == ["hate", "offensive"] == offence_labels(second)
    assert (
        second.about["held_out"]["scores"] == first.about["held_out"]["scores"] and second.about["held_out"]["n"] == 16
    )
    assert (first.predict(GLAD) == second.predict(GLAD)).all(axis=None)
    kept = [p.suffix for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert set(kept) <= {".safetensors", ".npy", ".lock"}, "numbers, no pickle"


def test_a_broken_file_of_the_cache_is_fitted_again(small_corpus, tmp_path):
    before = load_classifier("davidson")
    (path,) = (tmp_path / "cache" / "classifiers").glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="Fitting it again"):
        again = load_classifier("davidson")
    assert len(small_corpus) == 2 and again.about["weights_sha256"] == before.about["weights_sha256"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_classifier("davidson")


def test_as_many_offences_as_not():
    made = with_corpus(comments(rude=["a"] * 7, cruel=["b"], kind=["c"] * 2), "mine", note="made up")
    kept = balance(made, ("rude", "cruel"))
    assert kept["labels"].tolist() == [("rude",), ("cruel",), ("kind",), ("kind",)]
    assert kept.attrs["corpus"]["note"] == "made up; as many offences as not" and kept.attrs["corpus"]["name"] == "mine"
    few = comments(rude=["a"], kind=["c"] * 3)
    assert balance(few, ("rude",))["labels"].tolist() == [("rude",), ("kind",)]
    assert balance(kept, ("rude", "cruel")).equals(kept)
    with pytest.raises(ValueError, match="3 comments too many on one side, only 2 have its first label"):
        balance(comments(a=["a"] * 2, b=["b"] * 2, kind=["c"]), ("a", "b"))


# --- other kinds ---


def test_a_function():
    by_length = lambda texts: pd.DataFrame({"short": [len(t) < 9 for t in texts], "long": [len(t) >= 9 for t in texts]})
    classifier = load_classifier(by_length)
    assert classifier.labels == ("short", "long") and classifier.predict(["a", "a" * 9])["long"].tolist() == [0, 1]
    assert load_classifier(classifier) is classifier
    array = load_classifier(lambda texts: np.ones((len(texts), 1)), labels=["yes"])
    assert array.predict(["a", "b"])["yes"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="gives numbers without names"):
        load_classifier(lambda texts: np.ones((len(texts), 1)))
    with pytest.raises(ValueError, match=r"numbers of shape \(1, 1\): expected \(1, 2\)"):
        load_classifier(lambda texts: np.ones((len(texts), 1)), labels=["yes", "no"])
    for value in (2.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="not from 0 to 1: expected probabilities"):
            load_classifier(lambda texts: np.full((len(texts), 1), value), labels=["yes"])


def saved(folder, tokenizer, model):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def small_bert(tokenizer, **how):
    torch.manual_seed(0)
    size = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **size, **how)
    return BertForSequenceClassification(config)


def test_a_folder(tokenizer, tmp_path):
    folder = saved(tmp_path / "moods", tokenizer, small_bert(tokenizer, id2label={0: "glad", 1: "sad", 2: "angry"}))
    classifier = load_classifier(folder)
    assert classifier.labels == ("glad", "sad", "angry") and classifier.name.startswith("moods@")
    texts = ["they are lazy", "", "the women are nurses " * 30, "hm"]
    p = classifier.predict(texts)
    assert np.allclose(p.sum(axis=1), 1) and classifier.about["sums_to_one"]
    alone = np.concatenate([classifier.predict([t]).to_numpy() for t in texts])
    assert np.allclose(p, alone, atol=1e-5), "the same in any batch"


def test_labels_that_go_together(tokenizer, tmp_path):
    several = small_bert(tokenizer, num_labels=3, problem_type="multi_label_classification")
    one = small_bert(tokenizer, num_labels=1)
    first = load_classifier(saved(tmp_path / "several", tokenizer, several))
    second = load_classifier(saved(tmp_path / "one", tokenizer, one))
    assert not np.allclose(first.predict(["hm"]).sum(axis=1), 1) and not first.about["sums_to_one"]
    assert 0 < second.predict(["hm"]).iloc[0, 0] < 1


def test_models_that_classify_nothing(tokenizer, tmp_path):
    number = small_bert(tokenizer, num_labels=1, problem_type="regression")
    with pytest.raises(ValueError, match="predicts a number"):
        load_classifier(saved(tmp_path / "number", tokenizer, number))
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=32, n_embd=16, n_layer=1, n_head=2)
    with pytest.raises(ValueError, match="which would be random"):
        load_classifier(saved(tmp_path / "language", tokenizer, GPT2LMHeadModel(config)))
    with pytest.raises(ValueError, match="holds no config.json"):
        load_classifier(tmp_path)
    with pytest.raises(ValueError, match="is not a folder, a GGUF file or a name on the Hugging Face hub"):
        load_classifier("no such classifier")


# --- censoring ---


@pytest.mark.parametrize(
    "text,descriptor,expected",
    [
        ("Being Deaf is fine.", "Deaf", "Being left-handed is fine."),
        ("DEAF? deaf.", "Deaf", "left-handed? left-handed."),
        ("A deafening noise, deafness", "deaf", "A deafening noise, deafness"),
        ("I'm hard of hearing.", "hard-of-hearing", "I'm left-handed."),
        ("I'm hard-of-hearing.", "hard of hearing", "I'm left-handed."),
        ("Wheelchair users, a wheelchair user's chair", "a wheelchair user", "left-handed, a left-handed's chair"),
        ("An amputee met amputees.", "an amputee", "An left-handed met left-handed."),
        ("men with limps and a man with a limp", "with a limp", "men left-handed and a man left-handed"),
        ("a limp", "with a limp", "a limp"),
        ("He was in a midlife  crisis.", "in a midlife crisis", "He was left-handed."),
        ("LGBTQ+ people, LGBTQ people", "LGBTQ+", "left-handed people, LGBTQ people"),
        ("Bahá'í and bahá'í", "Bahá'í", "left-handed and left-handed"),
        ("junkies and a junky", "junky", "left-handed and a left-handed"),
        ("who's short in stature", "who's short in stature", "left-handed"),
        ("80-year-old and 80 year old, 180-year-old", "80-year-old", "left-handed and left-handed, 180-year-old"),
        ("a.b a+b", "a.b", "left-handed a+b"),
        ("a woman", "(none)", "a woman"),
        ("a woman", "", "a woman"),
        ("Sure. _POTENTIALLY_UNSAFE__", "(none)", "Sure."),
        ("deaf _POTENTIALLY_UNSAFE__", "deaf", "left-handed"),
        ("", "deaf", ""),
        ("I'm left-handed too", "left-handed", "I'm left-handed too"),
    ],
)
def test_censoring(text, descriptor, expected):
    assert censor([text], [descriptor]) == [expected]


def test_each_answer_by_its_own_descriptor():
    assert censor(["deaf and blind"] * 2, ["deaf", "blind"]) == ["left-handed and blind", "deaf and left-handed"]
    assert censor([], []) == [] and censor(["deaf"], ["deaf"], "short") == ["short"]
    with pytest.raises(ValueError, match="2 texts and 1 descriptors"):
        censor(["a", "b"], ["c"])


# --- scores, bias, records ---


def test_scores_by_hand():
    gold = pd.DataFrame({"text": list("abcd"), "labels": [("x",), ("y",), ("x", "y"), ("x",)]})
    p = {"a": [0.9, 0.1], "b": [0.8, 0.2], "c": [0.3, 0.7], "d": [0.6, 0.4]}
    scores = held_out_scores(load_classifier(lambda texts: [p.get(t, [1, 0]) for t in texts], ["x", "y"]), gold)
    assert scores["accuracy"] == 0.75  # a, c, d
    # x: said of a, b, d, had by a, c, d; y: said of c, had by b, c
    assert (
        np.isclose(scores["f1 x"], 2 / 3) and np.isclose(scores["f1 y"], 2 / 3) and scores["macro_f1"] == scores["f1 x"]
    )
    assert np.isclose(scores["log_loss"], -np.mean(np.log([0.9, 0.2, np.sqrt(0.3 * 0.7), 0.6])))
    assert np.isclose(scores["calibration_error"], (0.1 + 0.8 + 0.3 + 0.4) / 4)
    assert np.isclose(scores["macro_f1_likeliest"], (0.8 + 0) / 2)


PROMPTS = pd.DataFrame(
    [
        (f"{start} {who}.", who, axis, start)
        for start in ("I'm a", "I know a")
        for who, axis in (("cat", "pets"), ("dog", "pets"), ("cow", "farm"))
    ]
    + [("I'm a being.", "(none)", "null", "I'm a"), ("I know a being.", "(none)", "null", "I know a")],
    columns=["text", "descriptor", "axis", "template"],
)


def hates_cats():
    """Neither label has to do with what is said, but with who is named."""
    p = lambda t: 0.1 + 0.1 * t.startswith("I know") + 0.6 * ("cat" in t)
    found = load_classifier(lambda texts: [[p(t), 1 - p(t)] for t in texts], ["rude", "kind"])
    return Classifier("hates cats", found.labels, found.score, {**found.about, "offence": ["rude"]})


def test_identity_bias():
    scores = identity_bias_scores(hates_cats(), PROMPTS)
    # 0.6 for one descriptor of three: variance 0.08 for each of two labels
    assert np.isclose(scores["descriptor_variance"], 160) and np.isclose(scores["descriptor_variance_censored"], 0)
    assert np.isclose(scores["share_offensive"], 1 / 3) and scores["share_offensive_censored"] == 0
    assert scores["share_offensive_control"] == 0 and np.isclose(scores["mean_offence"], 0.35)


def test_what_an_offence_is():
    classifier = hates_cats()
    assert offence_labels(classifier) == ["rude"] and offence_labels(classifier, ["kind"]) == ["kind"]
    unknown = load_classifier(lambda texts: [[0.5, 0.5] for t in texts], ["rude", "kind"])
    with pytest.raises(ValueError, match="labels of .* are rude, kind; none is known to be an offence"):
        offence_labels(unknown)
    with pytest.raises(ValueError, match="hate is not among them"):
        offence_labels(unknown, ["hate"])
    assert "share_offensive" not in identity_bias_scores(unknown, PROMPTS)


def test_records(small_corpus, tmp_path):
    prompts = with_corpus(PROMPTS.copy(), "pets")
    records = classifier_records(load_classifier("davidson"), "mine", prompts)
    assert [r["metric"] for r in records] == ["classifier", "classifier_bias"]
    assert all(set(r) == set(FIELDS) and r["model"] == "davidson" for r in records)
    about = records[0]["provenance"]["model"]
    assert about["encoder"]["name"] == ENCODER and about["trained_on"]["n"] == 16 and len(about["weights_sha256"]) == 64
    for record in records:
        path = write_record(record, tmp_path / "results")
        assert json.loads(path.read_text())["values"] == record["values"]
    with pytest.raises(ValueError, match="has no held-out scores"):
        classifier_records(hates_cats(), "mine")


# --- the real ones ---


@pytest.fixture(scope="session")
def minilm():
    """The packaged encoder."""
    try:
        return load_model(ENCODER, "cpu", kind="encoder")
    except FetchError as e:
        unavailable("the packaged encoder, which comes from PyPI", e)


def test_the_packaged_encoder(minilm):
    """The numbers that its documentation prints, alone and in a batch."""
    texts = ["This is an example sentence", "Each sentence is converted", ""]
    vectors = embed(texts, minilm)
    assert vectors.shape == (3, 384) and vectors.dtype == np.float32
    assert np.allclose(vectors[0, :3], [0.06765697, 0.06349594, 0.04871306], atol=1e-5)
    assert np.allclose(vectors, np.concatenate([embed([t], minilm) for t in texts]), atol=1e-5)


def test_embeddings_are_kept_and_go_on(encoder, few, tmp_path, monkeypatch):
    from redditbias_repro.answers import embeddings

    monkeypatch.setattr(embeddings, "KEPT_TOGETHER", 4)
    texts = [f"they are {i}" for i in range(10)]
    first = embed(texts, encoder, keep=True)
    files = sorted((tmp_path / "cache" / "embeddings").glob("*.npy"))
    assert len(files) == 3
    files[0].unlink()
    files[1].write_bytes(b"\x93NUMPY broken")
    with pytest.warns(UserWarning, match="its texts are embedded again"):
        assert np.allclose(embed(texts, encoder, keep=True), first, atol=1e-6)
    with pytest.raises(TypeError, match="found int among them"):
        embed(["a", 1], encoder)


@pytest.mark.parametrize("reader,sizes", [(goemotions, [43_410, 5_426, 5_427]), (davidson, [19_778, 2_520, 2_485])])
def test_released_comments(reader, sizes):
    released(*([davidson.TWEETS] if reader is davidson else [*goemotions.FILES.values(), goemotions.LABELS]))
    look_at_comments(reader, sizes)


@pytest.mark.parametrize("reader,sizes", [(goemotions, [336, 84, 84]), (davidson, [192, 24, 24])])
def test_comments(made_up, reader, sizes):
    look_at_comments(reader, sizes)


def look_at_comments(reader, sizes):
    read = [reader.read_comments(split) for split in SPLITS]
    assert [len(c) for c in read] == sizes and {n for c in read for has in c["labels"] for n in has} == set(
        reader.read_labels()
    )
    assert all(c["text"].str.strip().astype(bool).all() and len(c.attrs["corpus"]["files"]) for c in read)
    with pytest.raises(ValueError, match="split 'dev' is unknown: expected one of train, valid, test"):
        reader.read_comments("dev")


def test_the_tweets_are_divided_as_the_seed_says(made_up):
    assert davidson.read_comments("test").equals(davidson.read_comments("test", seed=0))
    assert not davidson.read_comments("test").equals(davidson.read_comments("test", seed=1))
    assert set(TRAINED) == {"goemotions", "davidson"}


def test_a_file_of_words(tmp_path):
    """Whole words, in any case; shared by the labels that have one; the empty label has what is left."""
    file = tmp_path / "moods.toml"
    file.write_text('offence = ["rude"]\n[labels]\nrude = ["you fool"]\nother = []\ncaring = ["sorry", "c++"]\n')
    words = load_classifier(str(file))
    found = words.predict(["SORRY you fool", "unsorry", "", "c++ it is"])
    assert list(found) == ["rude", "other", "caring"] and words.name == "moods"
    assert found.to_numpy().tolist() == [[0.5, 0, 0.5], [0, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert offence_labels(words) == ["rude"] and len(words.about["weights_sha256"]) == 64


@pytest.mark.parametrize(
    "content,says",
    [
        ("labels = 3", "expected \\[labels\\] with lists of words"),
        ("[labels]\na = ['x']", "found 0 empty ones"),
        ("[labels]\na = []\nb = []", "found 2 empty ones"),
        ("[labels]\na = [1]\nb = []", "words are not a list of texts"),
        ("offence = ['c']\n[labels]\na = []", "found c"),
        ("more = 1\n[labels]\na = []", "found more"),
        ("labels [", "not a TOML file"),
    ],
)
def test_a_file_of_words_that_is_none(tmp_path, content, says):
    file = tmp_path / "bad.toml"
    file.write_text(content)
    with pytest.raises(ValueError, match=says):
        load_classifier(file)
