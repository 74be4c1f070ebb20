"""Scores against one forward pass a sentence, for every family of models, on both paths."""

import ast
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
import weakref
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CONFIGS, SMALL, small_random, two_processes
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    BertConfig,
    BloomConfig,
    GPTJConfig,
    GPTNeoConfig,
    Llama4TextConfig,
    MambaConfig,
    MistralConfig,
    PhimoeConfig,
    T5Config,
)

from redditbias_repro.data.pairs import load_pairs
from redditbias_repro.data.registry import FetchError
from redditbias_repro.models.loading import open_model
from redditbias_repro.records import repo_root
from redditbias_repro.scoring import layouts as layouts_room
from redditbias_repro.scoring import likelihoods as scoring
from redditbias_repro.scoring import masked as masked_room
from redditbias_repro.scoring import network as network_room
from redditbias_repro.scoring import passes as passes_room
from redditbias_repro.scoring import products as products_room
from redditbias_repro.scoring import texts as texts_room
from redditbias_repro.scoring.likelihoods import perplexity, sequence_scores, token_scores
from redditbias_repro.scoring.masked import pseudo_log_likelihood
from redditbias_repro.scoring.passes import ScoringStats

TEXTS = [
    "they are lazy",
    "they are",  # a beginning of another
    "they are lazy",  # the same again
    "the women are nurses and the men are officers, and so on",
    "the women are nurses and the men are lazy",
    "é 中文 🙂👩‍👩‍👧 Ünï",
    "a b",
    "The  end\n",
    "they are lazy and " * 12,
]


@torch.no_grad()
def one_by_one(model, ids):
    """Log-probability of each token after the first, in one forward pass of this sequence alone."""
    logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].double()
    return logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]].numpy()


def tokens(tokenizer, text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


def loop(model, tokenizer, texts):
    return [float(np.exp(-one_by_one(model, tokens(tokenizer, t)).mean())) for t in texts]


def scored_frames(model, tokenizer, texts, **options):
    """Scores as they are finished, as runs with `out` write them."""
    numbered, options = texts_room.number_texts(texts, None), texts_room.Options(**options)
    return (scoring._frame(*found) for found in scoring._scored(model, tokenizer, numbered, options, ScoringStats()))


# Equality with the loop


@pytest.mark.parametrize("path", ["tree", "batches"])
@pytest.mark.parametrize("token_budget", [1, 16, None])
def test_every_family(random_model, tokenizer, path, token_budget):
    scores = perplexity(random_model, tokenizer, TEXTS, token_budget=token_budget, path=path)
    assert scores.dtype == np.float64 and scores.shape == (len(TEXTS),) and scores[0] == scores[2]
    np.testing.assert_allclose(scores, loop(random_model, tokenizer, TEXTS), rtol=1e-4)


def test_every_family_shares(random_model, tokenizer):
    table = sequence_scores(random_model, tokenizer, TEXTS)
    stats = ScoringStats(**table.attrs["stats"])
    assert stats.path == "tree" and stats.why_batches == "" and stats.sentences == len(TEXTS)
    assert stats.tokens == table.n_tokens.sum() == sum(len(tokens(tokenizer, t)) - 1 for t in TEXTS)
    distinct = {tuple(s[:i]) for s in (tokens(tokenizer, t) for t in TEXTS) for i in range(1, len(s))}
    assert stats.tree_nodes == len(distinct) < stats.tokens and stats.forward_positions >= stats.tree_nodes
    assert sequence_scores(random_model, tokenizer, TEXTS, path="batches").attrs["stats"]["tree_nodes"] > len(distinct)


@pytest.mark.parametrize(
    "texts",
    [["they are lazy"], ["a b"], ["they are lazy"] * 3, ["they are", "they are lazy"], ["they are lazy", "they are"]],
)
def test_a_few_texts(random_model, tokenizer, texts):
    np.testing.assert_allclose(
        perplexity(random_model, tokenizer, texts), loop(random_model, tokenizer, texts), rtol=1e-4
    )


class Ids:
    """A tokenizer whose texts are token ids, so that any tree can be asked for."""

    is_fast, all_special_ids = True, []

    def __call__(self, texts, **_):
        return {"input_ids": [[int(t) for t in text.split()] for text in texts]}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=12), min_size=1, max_size=25), st.integers(1, 40))
def test_random_trees(random_model, sequences, token_budget):
    texts = [" ".join(map(str, s)) for s in sequences]
    table = sequence_scores(random_model, Ids(), texts, token_budget=token_budget)
    np.testing.assert_allclose(table.nll, [-one_by_one(random_model, s).sum() for s in sequences], rtol=1e-4)
    assert table.n_tokens.tolist() == [len(s) - 1 for s in sequences]


@pytest.fixture(scope="module")
def real(default_model):
    """Texts and what the loop says of them with the real model.

    Each is scored once, by the loop and by the tree, for all tests."""
    model, tokenizer = default_model
    pairs = load_pairs("gender", "test", "queries")
    kinds = {"queries": [*pairs.text1[:12], *pairs.text2[:12]], "odd": TEXTS}
    try:
        released = load_pairs("orientation", "test", "redditbias")
        kinds["released"] = sorted([*released.text1, *released.text2], key=len)[:48]  # as many as ever, in fewer tokens
    except FetchError:
        pass
    texts = [t for some in kinds.values() for t in some]
    known = dict(zip(distinct := list(dict.fromkeys(texts)), loop(model, tokenizer, distinct)))
    tree = dict(zip(texts, perplexity(model, tokenizer, texts, path="tree")))
    return {kind: (some, [known[t] for t in some], [tree[t] for t in some]) for kind, some in kinds.items()}


@pytest.mark.parametrize("kind", ["queries", "odd"])
def test_real_model(real, kind):
    _, expected, tree = real[kind]
    np.testing.assert_allclose(tree, expected, rtol=1e-4)


def test_real_model_in_batches(real, default_model):
    model, tokenizer = default_model
    long = "A much longer text, so that the batch needs padding: " + "word " * 150
    texts = [*real["queries"][0], *TEXTS, long]
    expected = [*real["queries"][1], *real["odd"][1], *loop(model, tokenizer, [long])]
    np.testing.assert_allclose(perplexity(model, tokenizer, texts, path="batches"), expected, rtol=1e-4)


def test_released_sentences(corpus, real):
    texts, expected, tree = real["released"]
    assert len(set(texts)) > 40
    np.testing.assert_allclose(tree, expected, rtol=1e-4)


@pytest.fixture(params=products_room.PRODUCTS)
def product(request, monkeypatch):
    """Each product in turn, also for work of a moment."""
    if request.param == "packed" and not products_room._packs(768):
        pytest.skip("this build of torch lays no matrix out")
    monkeypatch.setattr(products_room, "PACK_NODES", 1)
    monkeypatch.setattr(products_room, "fastest_product", lambda *_: request.param)
    return request.param


def test_products(real, default_model, product):
    """Each gives the same, and leaves the model as it was."""
    model, tokenizer = default_model
    table = sequence_scores(model, tokenizer, TEXTS)
    assert table.attrs["stats"]["product"] == product and not any("forward" in vars(m) for m in model.modules())
    np.testing.assert_allclose(scoring.mean_perplexity(table), real["odd"][1], rtol=1e-4)


@pytest.fixture(scope="module")
def exact(default_model):
    """Sentences, and their perplexities where all is computed in float64."""
    model, tokenizer = default_model
    texts = [
        f"the {who} {what}" for who in ("women", "men", "boys") for what in ("are nurses", "like it", "went home.")
    ]
    return texts, loop(deepcopy(model).double(), tokenizer, texts)


def test_products_against_float64(default_model, exact, product):
    texts, expected = exact
    np.testing.assert_allclose(perplexity(*default_model, texts), expected, rtol=3e-5)


def test_a_model_in_float64_is_scored_in_float64(random_model, tokenizer):
    model = deepcopy(random_model).double()
    np.testing.assert_allclose(perplexity(model, tokenizer, TEXTS), loop(model, tokenizer, TEXTS), rtol=1e-6)


@pytest.mark.parametrize("family", CONFIGS)
def test_products_in_every_family(tokenizer, family, product):
    model = small_random(CONFIGS[family](len(tokenizer)))
    np.testing.assert_allclose(perplexity(model, tokenizer, TEXTS), loop(model, tokenizer, TEXTS), rtol=1e-4)


def test_the_fastest_product_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path))
    timed, fast = [], {"mm": 0.5}
    seconds = lambda products, shapes, lines: timed.append(shapes) or {p: fast.get(p, 1.0) for p in products}
    monkeypatch.setattr(products_room, "_time", seconds)
    shapes = [(8, 16)] * 3 + [(16, 8), (4, 4)]
    assert [products_room.fastest_product(shapes, 768) for _ in range(2)] == ["mm", "mm"]
    assert timed == [[(8, 16), (16, 8)]]  # once, on those that most work is in
    assert products_room.fastest_product(shapes, 64) == "mm" and len(timed) == 2  # for other lines anew
    for broken in ("{", "[]", '{"product": "none such"}'):
        for path in tmp_path.rglob("*.json"):
            path.write_text(broken)
        assert products_room.fastest_product(shapes, 768) == "mm"
    fast = {"packed": 0.1}
    assert products_room.fastest_product(shapes, 768, packs=False) == "linear"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path / "file"))  # where nothing can be kept
    assert products_room.fastest_product(shapes, 768) == "packed"


def test_between_passes_the_model_is_as_it_was(random_model, tokenizer, monkeypatch):
    """Whoever reads a stream may use the model in between."""
    monkeypatch.setattr(products_room, "PACK_NODES", 1)
    monkeypatch.setattr(passes_room, "SEGMENT", 1)
    attention = random_model.config._attn_implementation
    stream = scored_frames(random_model, tokenizer, TEXTS, token_budget=16)
    next(stream)
    assert not any("forward" in vars(m) for m in random_model.modules())
    assert random_model.config._attn_implementation == attention
    random_model(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in random_model.base_model.parameters())
    random_model.zero_grad(set_to_none=True)


def test_what_a_model_is_is_tried_once_for_its_weights(tokenizer, monkeypatch):
    model, tried = small_random(CONFIGS["llama"](len(tokenizer))), []
    run = network_room._try_network
    monkeypatch.setattr(network_room, "_try_network", lambda m: tried.append(1) or run(m))
    for _ in range(2):
        first = perplexity(model, tokenizer, TEXTS)
    assert len(tried) == 1
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    second = perplexity(model, tokenizer, TEXTS)
    assert len(tried) == 2 and not np.allclose(first, second)
    np.testing.assert_allclose(second, loop(model, tokenizer, TEXTS), rtol=1e-4)
    hook = model.register_forward_hook(lambda m, given, out: _halved(out))
    np.testing.assert_allclose(perplexity(model, tokenizer, TEXTS), loop(model, tokenizer, TEXTS), rtol=1e-4)
    hook.remove()
    model.forward = types.MethodType(type(model).forward, model)  # as accelerate's hooks do
    np.testing.assert_allclose(perplexity(model, tokenizer, TEXTS), second, rtol=1e-4)
    assert len(tried) == 4
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None  # what is known of a model does not keep it


def _halved(out):
    out.logits = out.logits / 2
    return out


# Tokenizers


@pytest.fixture
def with_start(tokenizer):
    """The tokenizer with a token that it puts at a text's beginning."""
    started = deepcopy(tokenizer)
    started.backend_tokenizer.post_processor = TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", tokenizer.eos_token_id)]
    )
    return started


def test_special_tokens(random_model, tokenizer, with_start):
    """They are left out unless asked for, as the authors tokenize."""
    plain, started = (
        perplexity(random_model, with_start, ["they are"]),
        perplexity(random_model, with_start, ["they are"], add_special_tokens=True),
    )
    assert plain == perplexity(random_model, tokenizer, ["they are"]) and started != plain
    assert started == perplexity(random_model, tokenizer, ["<eos>they are"])
    with pytest.warns(UserWarning, match=r"at \[1\]: nan"):
        one = sequence_scores(random_model, with_start, ["t", ""], add_special_tokens=True, on_short="nan")
    assert one.n_tokens.tolist() == [1, 0]
    np.testing.assert_allclose(
        one.nll[0], -one_by_one(random_model, [tokenizer.eos_token_id, *tokens(tokenizer, "t")])[0], rtol=1e-4
    )


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_padding_side_does_not_matter(random_model, tokenizer, side):
    padded = deepcopy(tokenizer)
    padded.pad_token, padded.padding_side = "<eos>", side
    np.testing.assert_array_equal(perplexity(random_model, padded, TEXTS), perplexity(random_model, tokenizer, TEXTS))


# Contexts and tokens


def test_contexts_are_conditioned_on(random_model, tokenizer):
    contexts, texts = (
        ["the women are", "the women are", "they", ""],
        [" nurses", " lazy and so on", " are lazy", "they are"],
    )
    table = sequence_scores(random_model, tokenizer, texts, contexts)
    for i, (context, text) in enumerate(zip(contexts, texts)):
        ids = tokens(tokenizer, context + text)
        first = max(1, len(tokens(tokenizer, context)))
        assert tokenizer.decode(ids[:first]) == context or not context
        scored = one_by_one(random_model, ids)[first - 1 :]
        assert table.n_tokens[i] == len(scored)
        np.testing.assert_allclose(table.nll[i], -scored.sum(), rtol=1e-4)
    with pytest.raises(ValueError, match="1 contexts and more texts"):
        sequence_scores(random_model, tokenizer, texts, contexts[:1])
    with pytest.raises(ValueError, match="1 texts and more contexts"):
        sequence_scores(random_model, tokenizer, texts[:1], contexts)
    with pytest.raises(TypeError, match=r"the context at 1 is not a string \(None\)"):
        sequence_scores(random_model, tokenizer, texts[:2], ["they", None])
    with pytest.raises(TypeError, match="contexts is one string"):
        sequence_scores(random_model, tokenizer, texts, "they")


def test_a_token_across_the_border_belongs_to_the_text(random_model, tokenizer):
    ids = tokens(tokenizer, "the women")
    table = sequence_scores(random_model, tokenizer, ["omen"], ["the w"])
    np.testing.assert_allclose(
        table.nll[0], -one_by_one(random_model, ids)[len(tokens(tokenizer, "the")) - 1 :].sum(), rtol=1e-4
    )


def test_the_same_tokens_in_different_contexts(random_model, tokenizer):
    table = sequence_scores(random_model, tokenizer, [" are lazy", " lazy"], ["they", "they are"])
    expected = one_by_one(random_model, tokens(tokenizer, "they are lazy"))
    np.testing.assert_allclose(
        table.nll, [-expected[-table.n_tokens[0] :].sum(), -expected[-table.n_tokens[1] :].sum()], rtol=1e-4
    )
    assert table.attrs["stats"]["tree_nodes"] == len(tokens(tokenizer, "they are lazy")) - 1


def test_tokens_have_their_characters(random_model, tokenizer):
    table = token_scores(random_model, tokenizer, TEXTS)
    assert list(table.columns) == ["text", "position", "token_id", "token", "start", "end", "logprob"]
    for i, text in enumerate(TEXTS):
        rows = table[table.text == i]
        assert rows.token_id.tolist() == tokens(tokenizer, text) and rows.position.tolist() == list(range(len(rows)))
        covered = {c for a, b in zip(rows.start, rows.end) for c in range(a, b)}
        assert covered == set(range(len(text)))
        assert np.isnan(rows.logprob.iloc[0])
        np.testing.assert_allclose(
            rows.logprob[1:], one_by_one(random_model, tokens(tokenizer, text)), rtol=1e-3, atol=1e-4
        )
    table = token_scores(random_model, tokenizer, [" are lazy"], ["they"])
    assert [" are lazy"[a:b] for a, b in zip(table.start, table.end)] == tokenizer.convert_tokens_to_string(
        [" are", " lazy"]
    ).replace(" lazy", "| lazy").split("|")
    assert table.logprob.notna().all()


# What cannot be scored


def test_short_texts_are_named(random_model, tokenizer):
    texts = ["they are lazy", "", "t", "a b"]
    with pytest.raises(ValueError, match=r"2 texts have no token to score .* at \[1, 2\]: leave them out"):
        perplexity(random_model, tokenizer, texts)
    with pytest.warns(UserWarning, match=r"at \[1, 2\]: nan"):
        scores = perplexity(random_model, tokenizer, texts, on_short="nan")
    assert np.isnan(scores).tolist() == [False, True, True, False]
    with pytest.warns(UserWarning, match=r"at \[0\]: nan"):
        assert np.isnan(perplexity(random_model, tokenizer, ["t"], on_short="nan")).all()
    with pytest.raises(ValueError, match="expected one of raise, nan"):
        perplexity(random_model, tokenizer, texts, on_short="zero")


@pytest.mark.filterwarnings("ignore:1 texts are cut")
def test_long_texts_are_named_or_cut(random_model, tokenizer, with_start):
    with pytest.raises(ValueError, match=r"texts at \[1\] have more than the 256 tokens"):
        perplexity(random_model, tokenizer, ["a b", "x " * 300])
    full = tokens(tokenizer, "x " * 300)
    with pytest.warns(UserWarning, match=r"1 texts are cut to the 256 tokens .* at \[1\]"):
        table = sequence_scores(random_model, tokenizer, ["a b", "x " * 300], on_long="truncate")
    assert table.n_tokens[1] == 255
    np.testing.assert_allclose(table.nll[1], -one_by_one(random_model, full[:256]).sum(), rtol=1e-4)
    table = sequence_scores(
        random_model, tokenizer, [" a b"], ["x " * 300], on_long="truncate"
    )  # the context loses its beginning
    np.testing.assert_allclose(
        table.nll[0],
        -one_by_one(random_model, tokens(tokenizer, "x " * 300 + " a b")[-256:])[-table.n_tokens[0] :].sum(),
        rtol=1e-4,
    )
    table = sequence_scores(
        random_model, with_start, [" a b"], ["x " * 300], on_long="truncate", add_special_tokens=True
    )
    kept = [tokenizer.eos_token_id, *tokens(tokenizer, "x " * 300 + " a b")[-255:]]
    np.testing.assert_allclose(table.nll[0], -one_by_one(random_model, kept)[-table.n_tokens[0] :].sum(), rtol=1e-4)


def test_what_is_wrong_in_a_list_is_said_before_anything_is_scored(random_model, tokenizer, monkeypatch):
    monkeypatch.setattr(texts_room, "CHUNK", 2)
    monkeypatch.setattr(scoring, "causal_log_probs", lambda *a: pytest.fail("scored"))
    with pytest.raises(ValueError, match=r"texts at \[5\] have more"):
        sequence_scores(random_model, tokenizer, ["a b"] * 5 + ["x " * 300])
    with pytest.raises(TypeError, match="the text at 4 is not a string"):
        sequence_scores(random_model, tokenizer, ["a b"] * 4 + [None])


def test_a_list_whose_contexts_come_as_an_iterator(random_model, tokenizer, monkeypatch):
    """They can be read only once: nothing is said about texts without them."""
    monkeypatch.setattr(texts_room, "CHUNK", 2)
    texts, contexts = ["t"] * 5, ["they are "] * 5
    pd.testing.assert_frame_equal(
        sequence_scores(random_model, tokenizer, texts, iter(contexts)),
        sequence_scores(random_model, tokenizer, texts, contexts),
    )


def test_what_is_no_list_of_strings(random_model, tokenizer):
    with pytest.raises(TypeError, match="texts is one string"):
        perplexity(random_model, tokenizer, "they are lazy")
    with pytest.raises(TypeError, match=r"the text at 1 is not a string \(nan\)"):
        perplexity(random_model, tokenizer, ["a b", float("nan")])
    with pytest.raises(ValueError, match="token_budget is 0"):
        perplexity(random_model, tokenizer, ["a b"], token_budget=0)
    assert perplexity(random_model, tokenizer, []).shape == (0,)
    assert len(token_scores(random_model, tokenizer, [])) == len(sequence_scores(random_model, tokenizer, [])) == 0
    assert perplexity(random_model, tokenizer, iter(["a b", "they are"])).shape == (2,)


def test_tokens_that_the_model_does_not_know(tokenizer):
    """A tokenizer that was added to, or is another's: texts are named, and nothing ends in a traceback of an index."""
    added = deepcopy(tokenizer)
    added.add_tokens(["<odd>"])
    model = small_random(CONFIGS["gpt2"](len(tokenizer)))
    texts = ["they are lazy", "they are <odd> lazy"]
    with pytest.raises(
        ValueError, match=rf"texts at \[1\] have tokens beyond the {len(tokenizer)} that the model has vectors for"
    ):
        perplexity(model, added, texts)
    assert np.isfinite(perplexity(model, added, texts[:1])).all()
    torch.manual_seed(0)
    bart = AutoModelForSeq2SeqLM.from_config(SEQ2SEQ["bart"](len(tokenizer))).eval()
    with pytest.raises(ValueError, match=r"texts at \[0\] have tokens beyond"):
        sequence_scores(bart, added, texts[:1], texts[1:])
    bert = AutoModelForMaskedLM.from_config(BertConfig(vocab_size=len(tokenizer), **SMALL)).eval()
    added.mask_token = "<eos>"
    with pytest.raises(ValueError, match=r"texts at \[1\] have tokens beyond"):
        pseudo_log_likelihood(bert, added, texts)
    added.add_special_tokens({"mask_token": "[MASK]"})
    with pytest.raises(ValueError, match="the mask token was added to the tokenizer"):
        pseudo_log_likelihood(bert, added, texts[:1])


@given(st.lists(st.lists(st.integers(-5, 99), max_size=9), min_size=1, max_size=9).filter(any), st.integers(-100, 5))
def test_padding(sequences, value):
    for side in ("left", "right"):
        batch, mask = network_room.pad_batch(sequences, value, side)
        longest = max(map(len, sequences))
        assert batch.shape == mask.shape == (len(sequences), longest) and batch.dtype == mask.dtype == torch.int64
        for line, real, s in zip(batch.tolist(), mask.tolist(), sequences):
            fill = longest - len(s)
            assert line == ([value] * fill + s if side == "left" else s + [value] * fill)
            assert real == ([0] * fill + [1] * len(s) if side == "left" else [1] * len(s) + [0] * fill)


def test_no_finite_score_is_said(tokenizer):
    model = small_random(CONFIGS["llama"](len(tokenizer)))
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="not numbers"):
        perplexity(model, tokenizer, TEXTS)
    model = small_random(CONFIGS["llama"](len(tokenizer)))
    with torch.no_grad():
        model.get_input_embeddings().weight[tokens(tokenizer, "they")[0]] = torch.nan
    with pytest.warns(UserWarning, match=r"no finite log-probability for texts at \[0"):
        scores = perplexity(model, tokenizer, ["they are lazy", "a b"], path="batches")
    assert np.isnan(scores).tolist() == [True, False]


# Which way was taken


FALLBACKS = {
    "bloom": lambda v: BloomConfig(vocab_size=v, hidden_size=32, n_layer=2, n_head=4),  # ALiBi
    "mamba": lambda v: MambaConfig(vocab_size=v, hidden_size=32, num_hidden_layers=2, state_size=8),
    "gpt_neo": lambda v: GPTNeoConfig(
        vocab_size=v,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=16,
        max_position_embeddings=256,
    ),  # a window shorter than the texts, in an attention that cannot be exchanged
}
LAYOUTS = {  # of a pass, by family
    **dict.fromkeys(CONFIGS, "line"),
    "gemma2": "rows",  # it caps attention scores
    "mistral": "line",
    "gptj": "rows",  # its attention cannot be exchanged
}
OTHERS = {
    "mistral": lambda v: MistralConfig(vocab_size=v, sliding_window=8, **SMALL),  # a window shorter than the texts
    "gptj": lambda v: GPTJConfig(vocab_size=v, n_positions=256, n_embd=32, n_layer=2, n_head=2, rotary_dim=8),
}


@pytest.mark.parametrize("family", LAYOUTS)
def test_layouts(tokenizer, family):
    """A line computes each node once, but for the ancestors of a pass's first; padded rows more."""
    model = small_random({**CONFIGS, **OTHERS}[family](len(tokenizer)))
    for budget in (16, None):
        table = sequence_scores(model, tokenizer, TEXTS, token_budget=budget)
        stats = ScoringStats(**table.attrs["stats"])
        assert (stats.path, stats.layout) == ("tree", LAYOUTS[family])
        np.testing.assert_allclose(scoring.mean_perplexity(table), loop(model, tokenizer, TEXTS), rtol=1e-4)
        if stats.layout == "line" and budget is None:
            assert stats.forward_positions == stats.tree_nodes


REACHES = {  # models that see fewer tokens than the texts have, by their mask alone
    "llama4": lambda v: Llama4TextConfig(
        vocab_size=v, attention_chunk_size=32, num_local_experts=2, head_dim=8, intermediate_size_mlp=32, **SMALL
    ),
    "phimoe": lambda v: PhimoeConfig(vocab_size=v, sliding_window=32, num_local_experts=2, **SMALL),
}


@pytest.mark.parametrize("family", REACHES)
def test_windows_that_only_a_mask_knows(tokenizer, family):
    """They are longer than what is tried of short texts, so the whole is tried."""
    model = small_random(REACHES[family](len(tokenizer)))
    texts = ["they are lazy and the women are nurses " * k for k in (3, 4)]
    assert 32 < max(len(tokens(tokenizer, t)) for t in texts) < layouts_room.SHORT
    table = sequence_scores(model, tokenizer, texts)
    assert table.attrs["stats"]["layout"] != "line"
    np.testing.assert_allclose(scoring.mean_perplexity(table), loop(model, tokenizer, texts), rtol=1e-4)


def test_two_threads_with_one_model(tokenizer):
    model = small_random(CONFIGS["llama"](len(tokenizer)))
    texts = [f"{t} {i}" for t in TEXTS[:5] for i in range(12)]
    expected, found = perplexity(model, tokenizer, texts), []
    run = lambda: found.append(perplexity(model, tokenizer, texts, token_budget=24))
    threads = [threading.Thread(target=run) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 3 and model.config._attn_implementation == "sdpa"
    for own in found:
        np.testing.assert_allclose(own, expected, rtol=1e-4)


def test_a_users_random_numbers_stay_as_they_are(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path))
    monkeypatch.setattr(products_room, "PACK_NODES", 1)
    model, drawn = small_random(CONFIGS["llama"](len(tokenizer))), []
    for _ in range(2):  # the first times the products
        products_room._packs.cache_clear()
        torch.manual_seed(1)
        perplexity(model, tokenizer, TEXTS)
        drawn.append(torch.rand(1))
    torch.manual_seed(1)
    assert drawn == [torch.rand(1)] * 2 and list((tmp_path / "products").iterdir())


def test_a_mixed_model_is_no_line(tokenizer):
    """One that mixes neighbours before attention, as convolutions do, is found out."""
    model = small_random(CONFIGS["llama"](len(tokenizer)))
    norm = model.model.layers[1].input_layernorm
    plain = norm.forward
    norm.forward = lambda x: plain(x) + 0.1 * torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]
    table = sequence_scores(model, tokenizer, TEXTS)
    assert table.attrs["stats"]["layout"] == "batches"
    np.testing.assert_allclose(scoring.mean_perplexity(table), loop(model, tokenizer, TEXTS), rtol=1e-4)


def test_after_an_error_the_model_attends_as_before(tokenizer, monkeypatch):
    model = small_random(CONFIGS["llama"](len(tokenizer)))
    expected, attention = perplexity(model, tokenizer, TEXTS), model.config._attn_implementation

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(layouts_room.torch.nn.functional, "scaled_dot_product_attention", broken)
    with pytest.raises(ZeroDivisionError):
        sequence_scores(model, tokenizer, TEXTS)
    monkeypatch.undo()
    assert model.config._attn_implementation == attention
    np.testing.assert_array_equal(perplexity(model, tokenizer, TEXTS), expected)


@pytest.mark.parametrize("family", FALLBACKS)
def test_models_that_cannot_share(tokenizer, family):
    model = small_random(FALLBACKS[family](len(tokenizer)))
    table = sequence_scores(model, tokenizer, TEXTS)
    assert table.attrs["stats"]["path"] == "batches" and table.attrs["stats"]["why_batches"]
    np.testing.assert_allclose(scoring.mean_perplexity(table), loop(model, tokenizer, TEXTS), rtol=1e-4)
    with pytest.raises(ValueError, match="cannot score a tree"):
        sequence_scores(model, tokenizer, TEXTS, path="tree")


@pytest.mark.parametrize("family", [*CONFIGS, *OTHERS, *FALLBACKS])
@pytest.mark.parametrize("path", ["auto", "batches"])
def test_last_hidden_states(tokenizer, family, path):
    """Those of each sequence alone; of sequences that begin others, end like padding, are one token, or come twice."""
    model = small_random({**CONFIGS, **OTHERS, **FALLBACKS}[family](len(tokenizer))).base_model
    whole = [tokenizer(t)["input_ids"] for t in TEXTS[:20]]
    sequences = [*whole, *(s[:k] for s in whole[:5] for k in (1, 2, len(s) - 1)), whole[0][:2] + [0], [0], whole[3]]
    with torch.no_grad():
        alone = torch.stack([model(input_ids=torch.tensor([s])).last_hidden_state[0, -1] for s in sequences])
    found = passes_room.last_hidden_states(model, sequences, path=path)
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4 * alone.abs().max().item())
    in_parts = passes_room.last_hidden_states(model, sequences, 8, path)
    torch.testing.assert_close(in_parts, found, rtol=1e-4, atol=1e-4 * alone.abs().max().item())


def test_last_hidden_states_with_less_memory_and_bad_input(random_model, monkeypatch):
    model, sequences, run = random_model.base_model, [[1, 2, 3, 4], [1, 2, 5], [6, 7]], passes_room.node_states
    plain = passes_room.last_hidden_states(model, sequences)

    def small(network, tree, rows, *rest):
        if sum(b - a for a, b in rows) > 3:
            raise torch.OutOfMemoryError("no more")
        return run(network, tree, rows, *rest)

    monkeypatch.setattr(passes_room, "node_states", small)
    with pytest.warns(UserWarning, match="do not fit the memory of cpu: going on with"):
        torch.testing.assert_close(passes_room.last_hidden_states(model, sequences), plain, rtol=1e-4, atol=1e-5)
    for wrong, says in [
        ([], "no sequences"),
        ([[1], []], r"of no token, or of more than 256: \[1\]"),
        ([[1] * 257], r"\[0\]"),
    ]:
        with pytest.raises(ValueError, match=says):
            passes_room.last_hidden_states(model, wrong)


def test_a_model_that_ignores_the_mask(tokenizer):
    model = small_random(OTHERS["gptj"](len(tokenizer)))
    heard = model.transformer.forward
    model.transformer.forward = lambda input_ids, attention_mask=None, **kwargs: heard(input_ids=input_ids, **kwargs)
    table = sequence_scores(model, tokenizer, TEXTS)
    assert table.attrs["stats"]["path"] == "batches" and "without the mask" in table.attrs["stats"]["why_batches"]
    np.testing.assert_allclose(scoring.mean_perplexity(table), loop(model, tokenizer, TEXTS), rtol=1e-4)


def test_a_model_that_does_more_than_its_head(random_model, tokenizer, monkeypatch):
    plain = random_model.forward

    def odd(*args, **kwargs):
        out = plain(*args, **kwargs)
        out.logits = out.logits + out.logits.abs().sqrt()
        return out

    monkeypatch.setattr(random_model, "forward", odd)
    with torch.inference_mode():
        assert network_room.find_network(random_model).head is None
    np.testing.assert_allclose(
        perplexity(random_model, tokenizer, TEXTS), loop(random_model, tokenizer, TEXTS), rtol=1e-4
    )


def test_a_scaled_head(random_model, tokenizer, monkeypatch):
    plain = random_model.forward

    def scaled(*args, **kwargs):
        out = plain(*args, **kwargs)
        out.logits = out.logits / 4
        return out

    monkeypatch.setattr(random_model, "forward", scaled)
    with torch.inference_mode():
        network = network_room.find_network(random_model)
    assert (
        network.head is None if random_model.config.model_type == "gemma2" else network.scale == pytest.approx(0.25)
    )  # Gemma 2 caps first
    np.testing.assert_allclose(
        perplexity(random_model, tokenizer, TEXTS), loop(random_model, tokenizer, TEXTS), rtol=1e-4
    )


def test_a_model_patched_again_is_looked_at_again(random_model):
    """However often: the next function may be put at the address of the last one."""
    plain, capped = random_model.forward, random_model.config.model_type == "gemma2"

    def by(factor):
        def scaled(*args, **kwargs):
            out = plain(*args, **kwargs)
            out.logits = out.logits * factor
            return out

        return scaled

    for n in range(2, 30):
        random_model.forward = by(1 / n)
        with torch.inference_mode():
            network = network_room.find_network(random_model)
        assert network.head is None if capped else network.scale == pytest.approx(1 / n)  # Gemma 2 caps first
        del random_model.forward


def test_a_masked_model_is_no_causal_one(tokenizer):
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(BertConfig(vocab_size=len(tokenizer), **SMALL)).eval()
    with pytest.raises(ValueError, match="not a causal language model.*pseudo_log_likelihood"):
        perplexity(model, tokenizer, TEXTS)


def test_half_precision(random_model, tokenizer):
    """Weights in bfloat16, softmax in float32."""
    model = deepcopy(random_model).bfloat16()
    table = sequence_scores(model, tokenizer, TEXTS)
    assert table.nll.dtype == np.float64 and table.attrs["stats"]["path"] == "tree"
    np.testing.assert_allclose(table.nll, [-one_by_one(model, tokens(tokenizer, t)).sum() for t in TEXTS], rtol=5e-2)


# Memory


def test_logits_are_never_all_held(random_model, tokenizer, monkeypatch):
    monkeypatch.setitem(network_room.LOGIT_BYTES, "cpu", 8 * 4 * len(tokenizer))
    held = []
    finish = network_room._finish
    monkeypatch.setattr(
        network_room, "_finish", lambda network, logits: held.append(logits.shape) or finish(network, logits)
    )
    perplexity(random_model, tokenizer, TEXTS)
    blocks = [s for s in held if len(s) == 2]
    assert max(rows * words for rows, words in blocks) <= 8 * len(tokenizer) and sum(s[0] for s in blocks) > 40


def test_equal_texts_are_scored_once(random_model, tokenizer):
    one, many = (
        sequence_scores(random_model, tokenizer, t).attrs["stats"] for t in (["they are lazy"], ["they are lazy"] * 50)
    )
    assert one["forward_positions"] == many["forward_positions"] and many["sentences"] == 50


def test_less_memory_than_asked_for(random_model, tokenizer, monkeypatch):
    plain, run = perplexity(random_model, tokenizer, TEXTS), passes_room.row_log_probs

    def small(network, tree, rows, *rest):
        if sum(b - a for a, b in rows) > 5:
            raise torch.OutOfMemoryError("no more")
        return run(network, tree, rows, *rest)

    monkeypatch.setattr(passes_room, "row_log_probs", small)
    with pytest.warns(UserWarning, match="do not fit the memory of cpu: going on with"):
        table = sequence_scores(random_model, tokenizer, TEXTS)
    assert table.attrs["stats"]["token_budget"] < 1024
    np.testing.assert_allclose(scoring.mean_perplexity(table), plain, rtol=1e-4)
    with pytest.raises(MemoryError, match="one sequence of .* tokens does not fit"), pytest.warns(UserWarning):
        sequence_scores(random_model, tokenizer, TEXTS, path="batches")


def test_a_stream_is_read_as_it_is_scored(random_model, tokenizer, monkeypatch):
    monkeypatch.setattr(texts_room, "CHUNK", 10)
    monkeypatch.setattr(texts_room, "WINDOW", 200)
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield f"they are {read} lazy"

    seen = set()
    for frame in scored_frames(random_model, tokenizer, endless()):
        seen |= set(frame["index"])
        if len(seen) >= 100:
            break
    assert read < 150
    texts = [f"they are {i + 1} lazy" for i in range(100)]
    whole = sequence_scores(random_model, tokenizer, texts)
    np.testing.assert_allclose(scoring.mean_perplexity(whole), loop(random_model, tokenizer, texts), rtol=1e-4)


def test_the_model_keeps_its_mode(random_model, tokenizer):
    random_model.train()
    try:
        first = perplexity(random_model, tokenizer, TEXTS)
        assert random_model.training and not torch.is_inference_mode_enabled()
        next(scored_frames(random_model, tokenizer, TEXTS))
        assert not torch.is_inference_mode_enabled()
    finally:
        random_model.eval()
    np.testing.assert_array_equal(first, perplexity(random_model, tokenizer, TEXTS))


# Long runs


KILLED = textwrap.dedent("""
    import os, sys, time
    from redditbias_repro.scoring import passes
    from redditbias_repro.scoring import likelihoods as scoring
    from redditbias_repro.models.loading import load_model

    passes.SEGMENT = 1
    write = scoring.write_part
    scoring.write_part = lambda *a: (write(*a), print("part", flush=True), time.sleep(0.05))
    model, tokenizer = load_model(sys.argv[1])
    for _ in sys.stdin:  # each run is a process of its own; only what they import is imported once
        if (run := os.fork()) == 0:
            print("run", os.getpid(), flush=True)
            texts = (f"number {i} is they and {i * 7} are lazy" for i in range(300))
            table = scoring.sequence_scores(model, tokenizer, texts, out=sys.argv[2], token_budget=64)
            print("done", table.attrs["stats"]["sentences"], flush=True)
            os._exit(0)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]), flush=True)
""")


def test_a_killed_run_goes_on(model_folder, tmp_path):
    """Killed again and again; what was written is never scored again, and the end is the same as of one run."""
    from redditbias_repro.models.loading import load_model

    command = [sys.executable, "-c", KILLED, str(model_folder), str(tmp_path / "scores")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as runs:

        def begin():
            runs.stdin.write("go on\n")
            runs.stdin.flush()
            said, process = runs.stdout.readline().split()
            assert said == "run"
            return int(process)

        def end():
            lines = []
            while not lines or lines[-1][0] != "ended":
                lines.append(runs.stdout.readline().split())
                assert lines[-1], "the run broke off"
            return lines

        for parts in (1, 4):
            process = begin()
            for _ in range(parts):
                assert runs.stdout.readline() == "part\n"
            time.sleep(0.02 * parts)
            os.kill(process, signal.SIGKILL)
            assert end()[-1] == ["ended", str(-signal.SIGKILL)]
        kept = pd.read_parquet(tmp_path / "scores")
        assert 0 < len(kept) < 300 and kept["index"].is_unique
        (tmp_path / "scores" / ".part-000099.parquet.x").write_bytes(b"half")
        begin()
        said = end()
        runs.stdin.close()
    assert said[-2:] == [["done", str(300 - len(kept))], ["ended", "0"]]
    done = pd.read_parquet(tmp_path / "scores").sort_values("index")
    assert done["index"].tolist() == list(range(300))
    model, tokenizer = load_model(model_folder)
    texts = [f"number {i} is they and {i * 7} are lazy" for i in range(300)]
    np.testing.assert_allclose(done.nll, sequence_scores(model, tokenizer, texts).nll, rtol=1e-4)


def test_a_broken_part_is_named_and_scored_anew(model_folder, tmp_path):
    from redditbias_repro.models.loading import load_model

    model, tokenizer = load_model(model_folder)
    whole = sequence_scores(model, tokenizer, TEXTS, out=tmp_path)
    (part,) = tmp_path.glob("part-*.parquet")
    for broken in (part.read_bytes()[:-20], b"", b"no Parquet"):
        (part,) = tmp_path.glob("part-*.parquet")
        part.write_bytes(broken)
        with pytest.warns(UserWarning, match=rf"{part.name} is broken and was removed \(.*\): it is scored again"):
            again = sequence_scores(model, tokenizer, TEXTS, out=tmp_path)
        assert again.equals(whole) and again.attrs["stats"]["sentences"] == len(TEXTS)
    assert sequence_scores(model, tokenizer, TEXTS, out=tmp_path).attrs["stats"]["sentences"] == 0
    (tmp_path / "_scores.json").write_text('{"dtype": ')
    with pytest.raises(ValueError, match="_scores.json is broken, so that nobody knows whose scores"):
        sequence_scores(model, tokenizer, TEXTS, out=tmp_path)


def test_a_cache_of_scores(random_model, tokenizer, tmp_path, monkeypatch):
    """The same again is read, names of columns and all.

    Another text, score or setting is another file; a broken file heals."""
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path))
    opened = open_model((random_model, tokenizer))
    kinds = [(None, {}), (None, {"on_short": "nan"}), (scoring.nll_at_temperatures, {"temperatures": (0.5, 2.0)})]
    first = [scoring.cached_scores(opened, TEXTS, score, **how) for score, how in kinds]
    assert len(list((tmp_path / "likelihoods").iterdir())) == 3
    monkeypatch.setattr(scoring, "_scored", lambda *a: pytest.fail("scored again"))
    for (score, how), before in zip(kinds, first):
        again = scoring.cached_scores(opened, TEXTS, score, **how)
        pd.testing.assert_frame_equal(again, before, check_exact=True)
        assert again.attrs == before.attrs
    monkeypatch.undo()
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path))
    for path in (tmp_path / "likelihoods").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    for (score, how), before in zip(kinds, first):
        with pytest.warns(UserWarning, match=r"likelihoods.*parquet is broken and was removed"):
            again = scoring.cached_scores(opened, TEXTS, score, **how)
        pd.testing.assert_frame_equal(again, before, check_exact=True)


def test_the_cache_depends_on_all_that_scores_are_computed_by():
    """The modules that scoring imports, but for those that a model's hash and the tokens stand for.

    Metrics' cache has them too."""
    import inspect

    from redditbias_repro.metrics import language_model as metrics

    package, todo, found = repo_root() / "redditbias_repro", ["scoring.likelihoods"], set()
    while todo:
        name = todo.pop()
        found.add(name)
        *room, _ = name.split(".")
        tree = ast.parse(package.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
        imports = {
            ".".join([*(room if n.level == 1 else []), n.module]).removeprefix("redditbias_repro.")
            for n in ast.walk(tree)
            if isinstance(n, ast.ImportFrom) and (n.level or n.module.startswith("redditbias_repro"))
        }
        todo += imports - found - {"models.loading", "records", "data.registry", "scoring.store"}
    assert found == set(scoring.SCORED_BY)
    assert all(
        f'"{name}"' in inspect.getsource(metrics) for name in scoring.SCORED_BY
    ) or "cached_scores" in inspect.getsource(metrics)


def test_a_folder_of_another_run(random_model, tokenizer, tmp_path):
    kept = sequence_scores(random_model, tokenizer, TEXTS, out=tmp_path)
    pd.testing.assert_frame_equal(kept, sequence_scores(random_model, tokenizer, TEXTS), check_exact=True)
    assert "text" not in pd.read_parquet(tmp_path).columns
    with pytest.raises(ValueError, match="text 2 is not the one"):
        sequence_scores(random_model, tokenizer, [*TEXTS[:2], "another", *TEXTS[3:]], out=tmp_path)
    with pytest.raises(ValueError, match="scores of 2 texts after the 7 that were given"):
        sequence_scores(random_model, tokenizer, TEXTS[:7], out=tmp_path)
    with pytest.raises(ValueError, match="with other add_special_tokens"):
        sequence_scores(random_model, tokenizer, TEXTS, out=tmp_path, add_special_tokens=True)
    other = deepcopy(random_model)
    with torch.no_grad():
        next(other.parameters()).add_(1)
    with pytest.raises(ValueError, match="with other weights_sha256"):
        sequence_scores(other, tokenizer, TEXTS, out=tmp_path)
    more = sequence_scores(random_model, tokenizer, [*TEXTS, "they are lazy too"], out=tmp_path)
    assert len(more) == len(TEXTS) + 1 and more.attrs["stats"]["sentences"] == 1


def test_another_run_in_the_folder_is_waited_for(random_model, tokenizer, tmp_path, capfd):
    """Said once, and then what it wrote is read."""
    whole = sequence_scores(random_model, tokenizer, TEXTS, out=tmp_path)
    found = []
    with FileLock(tmp_path / "_lock"):
        other = threading.Thread(
            target=lambda: found.append(sequence_scores(random_model, tokenizer, TEXTS, out=tmp_path))
        )
        other.start()
        told, until = "", time.monotonic() + 60
        while "waiting for another run" not in told and time.monotonic() < until:
            time.sleep(0.05)
            told += capfd.readouterr().err
        assert other.is_alive() and told.count("waiting for another run") == 1
    other.join(60)
    assert found[0].equals(whole) and found[0].attrs["stats"]["sentences"] == 0


PROCESSES = """
import sys
from accelerate import Accelerator
from redditbias_repro.scoring import passes
from redditbias_repro.scoring import likelihoods as scoring
from redditbias_repro.models.loading import load_model

passes.SEGMENT = 1
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2
model, tokenizer = load_model(sys.argv[1])
texts = [f"number {i} is they and {i * 7} are lazy" for i in range(120)]
for path in ("tree", "batches"):
    how = dict(token_budget=64, accelerator=accelerator, path=path, out=sys.argv[2] + path)
    table = scoring.sequence_scores(model, tokenizer, texts, **how)
    said = (table.attrs["stats"]["forward_positions"], float(table.nll.sum()))
    open(f"{sys.argv[2]}{path}-{accelerator.process_index}.txt", "w").write(repr(said))
"""


def test_two_processes(model_folder, tmp_path):
    """Each gets all scores; together they compute what one does."""
    from redditbias_repro.models.loading import load_model

    two_processes(tmp_path / "log", PROCESSES, model_folder, tmp_path / "scores-")
    model, tokenizer = load_model(model_folder)
    texts = [f"number {i} is they and {i * 7} are lazy" for i in range(120)]
    for path in ("tree", "batches"):
        said = [ast.literal_eval((tmp_path / f"scores-{path}-{process}.txt").read_text()) for process in range(2)]
        assert said[0] == said[1]
        alone = sequence_scores(model, tokenizer, texts, token_budget=64, path=path)
        np.testing.assert_allclose(said[0][1], alone.nll.sum(), rtol=1e-5)
        assert len(pd.read_parquet(f"{tmp_path}/scores-{path}")) == 120


# Other kinds of models


SEQ2SEQ = {
    "t5": lambda v: T5Config(
        vocab_size=v, d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4,
        decoder_start_token_id=0, pad_token_id=0,
    ),
    "bart": lambda v: BartConfig(
        vocab_size=v, d_model=32, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=256,
        decoder_start_token_id=0, pad_token_id=0, bos_token_id=0, eos_token_id=0, forced_eos_token_id=0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("token_budget", [1, 40, None])
@pytest.mark.parametrize("family", SEQ2SEQ)
def test_encoder_decoder_models(tokenizer, family, token_budget):
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(SEQ2SEQ[family](len(tokenizer))).eval()
    sources = [
        "the women are nurses",
        "they are lazy and so on and so on",
        "the women are nurses",
        "a",
        "the women are nurses",
    ]
    targets = ["they are lazy", "and", "the men are officers and people", "they are lazy", "they are lazy"]
    table = sequence_scores(model, tokenizer, targets, sources, token_budget=token_budget)
    tokenwise = token_scores(model, tokenizer, targets, sources, token_budget=token_budget)
    for i, (source, target) in enumerate(zip(sources, targets)):
        labels = torch.tensor([tokens(tokenizer, target)])
        with torch.no_grad():
            loss = model(input_ids=torch.tensor([tokens(tokenizer, source)]), labels=labels).loss.item()
        assert table.n_tokens[i] == labels.shape[1]
        np.testing.assert_allclose(table.nll[i], loss * labels.shape[1], rtol=1e-4)
        rows = tokenwise[tokenwise.text == i]
        np.testing.assert_allclose(-rows.logprob.sum(), table.nll[i], rtol=1e-5)
        assert [target[a:b] for a, b in zip(rows.start, rows.end)] == [tokenizer.decode([t]) for t in labels[0]]
    assert table.nll[0] == table.nll[4] and table.attrs["stats"]["path"] == "batches"
    with pytest.raises(ValueError, match="pass the sources as contexts"):
        sequence_scores(model, tokenizer, targets)
    with pytest.raises(ValueError, match=r"contexts at \[1\] have no token"):
        sequence_scores(model, tokenizer, targets[:2], ["a", ""])
    with pytest.raises(ValueError, match="scored in batches"):
        sequence_scores(model, tokenizer, targets, sources, path="tree")


@pytest.fixture(scope="module")
def masked(tokenizer):
    """A small random BERT, and a tokenizer with [CLS], [SEP] and a mask."""
    words = deepcopy(tokenizer)
    words.add_special_tokens({"mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"})
    ends = [(t, words.convert_tokens_to_ids(t)) for t in ("[CLS]", "[SEP]")]
    words.backend_tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    torch.manual_seed(0)
    return AutoModelForMaskedLM.from_config(BertConfig(vocab_size=len(words), **SMALL)).eval(), words


def pll(model, tokenizer, text, places=None):
    ids = tokenizer(text)["input_ids"]
    total = 0.0
    for p in range(1, len(ids) - 1) if places is None else places:
        masked = [*ids[:p], tokenizer.mask_token_id, *ids[p + 1 :]]
        with torch.no_grad():
            total += model(input_ids=torch.tensor([masked])).logits[0, p].log_softmax(-1)[ids[p]].item()
    return total


@pytest.mark.parametrize("token_budget", [1, 64, None])
def test_pseudo_log_likelihood(masked, token_budget):
    model, tokenizer = masked
    table = pseudo_log_likelihood(model, tokenizer, TEXTS[:8], token_budget=token_budget)
    np.testing.assert_allclose(table.pll, [pll(model, tokenizer, t) for t in TEXTS[:8]], rtol=1e-4)
    assert table.n_tokens.tolist() == [len(tokenizer(t)["input_ids"]) - 2 for t in TEXTS[:8]]


def test_only_shared_tokens_are_masked(masked):
    model, tokenizer = masked
    text, other = "the women are nurses", "the men are nurses"
    table = pseudo_log_likelihood(model, tokenizer, [text], [other])
    ids, theirs = tokenizer(text)["input_ids"], tokenizer(other)["input_ids"]
    shared = [p for p in range(1, len(ids) - 1) if ids[p] in theirs]
    assert table.n_tokens[0] == len(shared) < len(ids) - 2
    np.testing.assert_allclose(table.pll[0], pll(model, tokenizer, text, shared), rtol=1e-4)


def test_what_no_masked_model_can_score(masked, tokenizer, random_model):
    model, words = masked
    with pytest.raises(ValueError, match="no mask token"):
        pseudo_log_likelihood(random_model, tokenizer, TEXTS)
    with pytest.raises(ValueError, match="there are 1 others and more texts"):
        pseudo_log_likelihood(model, words, ["they are", "a b"], ["they are"])
    with pytest.raises(ValueError, match="the text at 1 has no token to mask"):
        pseudo_log_likelihood(model, words, ["they are", ""])
    with pytest.raises(ValueError, match="the text at 0 has .* positions for 256"):
        pseudo_log_likelihood(model, words, ["x " * 300])


def test_a_masked_word_is_computed_once(masked, monkeypatch):
    model, tokenizer = masked
    computed = []
    run = masked_room._masked_log_probs
    monkeypatch.setattr(
        masked_room,
        "_masked_log_probs",
        lambda model, pad, maskings, budget: computed.append(len(maskings)) or run(model, pad, maskings, budget),
    )
    pseudo_log_likelihood(model, tokenizer, ["they are lazy", "they are lazy"])
    assert computed == [len(tokenizer("they are lazy")["input_ids"]) - 2]
