"""Debiasing losses (RedditBias §4): by hand, against slow loops, and where terms stand."""

import dataclasses
import math

import pytest
import torch
from conftest import CONFIGS, each, released, small_random
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedTokenizerFast

from redditbias_repro.data.pairs import load_pairs, load_phrases
from redditbias_repro.debias import losses as losses_module
from redditbias_repro.debias.losses import (
    METHODS,
    Collator,
    Method,
    add_loss,
    augment_attributes,
    augment_targets,
    bias_subspace,
    combined_loss,
    get_method,
    hd_loss,
    hd_release_loss,
    lmd_loss,
    lmd_release_loss,
    locate_terms,
    occurrence_states,
    pack_batch,
    release_loss,
    target_pairs,
    term_tokens,
    token_losses,
    unknown_terms,
)
from redditbias_repro.debias.training import DebiasLoss, mean_losses, training_sentences
from redditbias_repro.specs import BIAS_TYPES, BiasSpec, load_spec

SPEC = BiasSpec(
    targets1=["jews", "jewish men"], targets2=["christians", "christian men"],
    pairs=[["jews", "christians"], ["jewish", "christian"], ["jew", "christian"]],
    attributes1=["greed*", "shady practices", "violin"], name="small",
)  # fmt: skip
TEXTS = [
    "jews are greedy",
    "the christian jews, greedy and greedier",
    "nobody",
    "shady practices of a jew",
    "a violin and the christians with violin",
    "christian",
    "jews and jews",
]


@pytest.fixture(scope="module")
def gpt2_tokenizer():
    """GPT-2's own, from DialoGPT's files."""
    folder = released(*(f"microsoft/DialoGPT/configs/117M/{name}" for name in ("vocab.json", "merges.txt")))[0].parent
    return AutoTokenizer.from_pretrained(folder, config=None, use_fast=True, tokenizer_type="gpt2")


# --- by hand ---


def test_lmd_by_hand():
    """h = (1, 2); logits of jews 3, christians −1, jew 0.5: |3 − (−1)| and |0.5 − (−1)|, mean 2.75."""
    h = torch.tensor([[1.0, 2.0]])
    t1, t2 = torch.tensor([[1.0, 1.0], [0.5, 0.0]]), torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    assert lmd_loss(h, t1, t2, torch.tensor([[True, True]])).tolist() == [2.75]
    assert lmd_loss(h, t1, t2, torch.tensor([[False, True]])).tolist() == [1.5]
    assert lmd_loss(h, t1, t2, torch.tensor([[True, False]]), bias=torch.tensor([-5.0, 0.0])).tolist() == [1.0]


def test_add_by_hand():
    """a = (3, 4) has cosines 0.6 and 0.8 with the axes, 1.4/√2 with the diagonal."""
    a, x, y = torch.tensor([[3.0, 4.0]]), [2.0, 0.0], [0.0, 0.1]
    found = add_loss(a, torch.tensor([x, [1.0, 1.0]]), torch.tensor([y, y])).item()
    assert math.isclose(found, 0.2 + (1.4 / math.sqrt(2) - 0.8), rel_tol=1e-6)


def test_hd_by_hand():
    """Half differences (3, 0, 0), (0, 2, 0), (0, 0, 1): squares 9, 4, 1 of 14.

    Half is reached by the first, 13/14 by two."""
    t1, t2 = 2 * torch.diag(torch.tensor([3.0, 2.0, 1.0])), torch.zeros(3, 3)
    a = torch.tensor([[1.0, -2.0, 4.0], [0.0, 0.0, 1.0]])
    for share, k in ((0.5, 1), (9 / 14, 1), (0.65, 2), (13 / 14, 2), (0.95, 3), (1, 3)):
        subspace = bias_subspace(t1, t2, share)
        assert subspace.shape == (k, 3) and torch.allclose(hd_loss(a, subspace)[0], a[0, :k].abs().sum()), share
    assert hd_loss(a, bias_subspace(t1, t2))[1] == 0, "orthogonal to the subspace"
    for share in (0, 1.1, -1):
        with pytest.raises(ValueError, match="share is"):
            bias_subspace(t1, t2, share)


def test_the_combined_loss_by_hand():
    lm, at = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])
    assert combined_loss(lm, at, torch.tensor([4.0]), 0.5, 10.0).item() == pytest.approx((0.5 + 2 + 1.5 + 40) / 3)
    assert combined_loss(lm, at & False, torch.zeros(0), 0.5, 10.0).item() == pytest.approx(2), (
        "no term: the language-model loss"
    )
    assert combined_loss(lm, at, torch.tensor([4.0]), 0.5, 10.0, n_tokens=6).item() == pytest.approx(44 / 6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scale, cap", [(1.0, None), (0.5, None), (1.0, 2.0), (2.0, 3.0)])
@pytest.mark.parametrize("block", [7, 10, 64])
def test_token_losses_in_blocks_are_cross_entropy_and_so_are_their_gradients(monkeypatch, block, scale, cap, bias):
    monkeypatch.setitem(losses_module.WORDS, "cpu", block)
    torch.manual_seed(0)
    inputs = [torch.randn(*n, dtype=torch.float64, requires_grad=True) for n in ((6, 5), (20, 5), (20,))]
    words, weigh = torch.tensor([0, 6, 7, 9, 19, 7]), torch.rand(6, dtype=torch.float64)

    def ours(hidden, weight, own):
        return token_losses(hidden, weight, words, own if bias else None, scale, cap)

    def theirs(hidden, weight, own):
        logits = scale * (hidden @ weight.T + (own if bias else 0))
        logits = logits if cap is None else cap * torch.tanh(logits / cap)
        return torch.nn.functional.cross_entropy(logits, words, reduction="none")

    assert torch.allclose(ours(*inputs), theirs(*inputs), rtol=1e-12)
    used = inputs if bias else inputs[:2]
    for a, b in zip(*(torch.autograd.grad((f(*inputs) * weigh).sum(), used) for f in (ours, theirs))):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-14)
    assert torch.autograd.gradcheck(ours, inputs)
    kept = ours(*inputs).sum()  # what is kept for the gradient is not used up by it
    first, second = (torch.autograd.grad(kept, used, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_token_losses_of_products_in_bfloat16_are_those_of_its_logits(monkeypatch):
    monkeypatch.setitem(losses_module.WORDS, "cpu", 16)
    torch.manual_seed(0)
    hidden = torch.randn(9, 32).bfloat16().requires_grad_()
    weight, words = torch.randn(50, 32, requires_grad=True), torch.randint(50, (9,))
    ours = token_losses(hidden, weight, words)
    logits = torch.nn.functional.linear(hidden, weight.bfloat16()).float()
    theirs = torch.nn.functional.cross_entropy(logits, words, reduction="none")
    assert ours.dtype == torch.float32 and torch.allclose(ours, theirs, rtol=1e-5)
    found, expected = (torch.autograd.grad(x.mean(), (hidden, weight)) for x in (ours, theirs))
    assert [g.dtype for g in found] == [torch.bfloat16, torch.float32]
    for a, b in zip(found, expected):
        assert (a - b).abs().max() < 0.02 * b.abs().max()
    frozen = token_losses(hidden, weight.detach(), words).sum()  # as under LoRA
    frozen.backward()
    assert hidden.grad is not None


def test_identical_embeddings_cost_nothing():
    torch.manual_seed(0)
    h, t = torch.randn(5, 8), torch.randn(3, 8)
    assert lmd_loss(h, t, t, torch.ones(5, 3, dtype=torch.bool)).tolist() == add_loss(h, t, t).tolist() == [0.0] * 5
    assert hd_loss(h, bias_subspace(t, t)).tolist() == [0.0] * 5 and bias_subspace(t, t).shape == (0, 8)


# --- against slow loops ---


def slow_lmd(h, t1, t2, takes_part):
    """Equation 1 to the letter: a softmax over the reduced vocabulary of all terms of P."""
    losses = []
    for state, part in zip(h, takes_part):
        log_y = torch.log_softmax(torch.stack([state @ t for t in [*t1, *t2]]), 0)
        pairs = [i for i in range(len(t1)) if part[i]]
        losses.append(sum((log_y[i] - log_y[len(t1) + i]).abs() for i in pairs) / len(pairs))
    return torch.stack(losses)


def slow_add(a, t1, t2):
    def cosine(x, y):
        return x @ y / (x.norm() * y.norm())

    return torch.stack([sum((cosine(u, x) - cosine(v, x)).abs() for u, v in zip(t1, t2)) for x in a])


def slow_hd(a, t1, t2):
    c = torch.stack([(u - v) / 2 for u, v in zip(t1, t2)]).detach()  # found, then held
    _, s, v = torch.linalg.svd(c)
    k = next(k for k in range(1, len(s) + 1) if s[:k].square().sum() >= 0.5 * s.square().sum())
    return torch.stack([sum((v[j] * (x @ v[j])).norm() for j in range(k)) for x in a])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5), st.integers(6, 12))
def test_losses_are_those_of_a_slow_loop(seed, occurrences, pairs, width):
    g = torch.Generator().manual_seed(seed)
    h, t1, t2 = (torch.randn(n, width, generator=g, dtype=torch.float64) for n in (occurrences, pairs, pairs))
    takes_part = torch.rand(occurrences, pairs, generator=g) < 0.5
    takes_part[:, 0] = True
    torch.testing.assert_close(lmd_loss(h, t1, t2, takes_part), slow_lmd(h, t1, t2, takes_part))
    torch.testing.assert_close(add_loss(h, t1, t2), slow_add(h, t1, t2))
    # no comparison with a share of exactly one half: which k is right there is a matter of rounding
    torch.testing.assert_close(hd_loss(h, bias_subspace(t1, t2).double()), slow_hd(h, t1, t2), rtol=1e-5, atol=1e-5)


ATTRIBUTES = ("greedier", "greedy", "shady practices", "violin")  # words for those of SPEC


def slow_occurrences(tokenizer, ids, words):
    """(word, first token, token after the last) of each whole word, by comparing token sequences."""

    def tokens_of(word):
        found = tokenizer(word)["input_ids"]
        return tuple(
            found[1:] if tokenizer.decode(found[0]) == " " else found
        )  # a blank of its own is no part of the term

    for w in words:
        for form in {tokens_of(" " + w), tokens_of(w)}:
            for i in range(len(ids) - len(form) + 1):
                ends = i + len(form) == len(ids) or not tokenizer.decode(ids[i + len(form)])[0].isalpha()
                starts = i == 0 or tokenizer.decode(ids[i])[0] == " " or tokenizer.decode(ids[i - 1]) == " "
                if tuple(ids[i : i + len(form)]) == form and ends and starts:
                    yield w, i, i + len(form)


def slow_targets(model, tokenizer, spec, detach):
    weight = model.get_output_embeddings().weight
    weight = weight.detach() if detach else weight

    def row(term):
        ids = tokenizer(" " + term)["input_ids"]
        return weight[ids[1:] if tokenizer.decode(ids[0]) == " " else ids].mean(0)

    return (torch.stack([row(p[i]) for p in spec.pairs]) for i in (0, 1))


def slow_passes(model, tokenizer, texts):
    """(token ids, loss of each token after the first, hidden states) of each text that has two tokens.

    One pass a text."""
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        if len(ids) > 1:
            out = model(torch.tensor([ids]), output_hidden_states=True)
            yield (
                ids,
                [-torch.log_softmax(out.logits[0, i - 1], -1)[ids[i]] for i in range(1, len(ids))],
                out.hidden_states[-1][0],
            )


def slow_equation2(model, tokenizer, spec, texts, name, lambda_lm, lambda_d):
    """Equation 2, sentence by sentence, in Python."""
    words = sorted({t for p in spec.pairs for t in p}) if name == "LMD" else ATTRIBUTES
    t1, t2 = slow_targets(model, tokenizer, spec, detach=False)
    total, tokens = 0.0, 0
    for ids, lm, hidden in slow_passes(model, tokenizer, texts):
        weight = [1.0] * len(ids)
        for w, i, after in slow_occurrences(tokenizer, ids, words):
            weight[i:after] = [lambda_lm] * (after - i)
            if name == "LMD" and i:
                total = (
                    total
                    + lambda_d * slow_lmd(hidden[i - 1 : i], t1, t2, torch.tensor([[w in p for p in spec.pairs]]))[0]
                )
            elif name != "LMD":
                total = (
                    total
                    + lambda_d
                    * (slow_add if name == "ADD" else slow_hd)(hidden[i:after].mean(0, keepdim=True), t1, t2)[0]
                )
        total = total + sum(w * loss for w, loss in zip(weight[1:], lm))
        tokens += len(lm)
    return total / tokens


def slow_release(model, tokenizer, spec, texts, name, lambda_lm, lambda_d):
    """The release's objective from its description, sentence by sentence, in Python."""
    t1, t2 = slow_targets(model, tokenizer, spec, detach=True)
    _, s, v = torch.linalg.svd(torch.stack([(a - b) / 2 for a, b in zip(t1, t2)]))
    k = next(k for k in range(1, len(s) + 1) if s[:k].square().sum() > 0.5 * s.square().sum())
    debias, lm, projected = 0.0, [], 0.0
    for ids, of_text, hidden in slow_passes(model, tokenizer, texts):
        lm += of_text
        if name == "LMD":
            there = {w for w, _, _ in slow_occurrences(tokenizer, ids, [a for a, _ in spec.pairs])}
            for n, (a, _) in enumerate(spec.pairs):
                if a in there:
                    ratio = torch.log_softmax(hidden @ torch.stack([t1[n], t2[n]]).T, -1)
                    debias = debias + (ratio[:, 0] - ratio[:, 1]).abs().mean() / len(spec.pairs)
            continue
        for _, i, after in sorted(slow_occurrences(tokenizer, ids, ATTRIBUTES), key=lambda o: o[1]):
            a = hidden[i:after].mean(0)
            if name == "ADD":
                debias = debias + slow_add(a[None], t1, t2)[0]
                continue
            own = sum((a @ v[j]) * v[j] for j in range(k))
            projected = projected + own
            debias = debias + (projected if name == "HD-accumulated" else own).abs().sum()
    plain = torch.stack(lm).mean()
    return lambda_lm * plain + lambda_d * debias if isinstance(debias, torch.Tensor) else plain


def run_packed(model, batch, packed):
    """Outputs of a model on a batch as it is, or packed into a line, and that batch."""
    batch = pack_batch(batch, model.dtype) if packed else batch
    inputs = {k: v for k, v in batch.items() if k in ("input_ids", "attention_mask", "position_ids")}
    return model(**inputs, output_hidden_states=True, use_cache=False), batch


def assert_same_gradients(model, fast, slow):
    for p, q in zip(*(torch.autograd.grad(x, list(model.parameters()), allow_unused=True) for x in (fast, slow))):
        torch.testing.assert_close(p, q, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["LMD", "ADD", "HD"])
def test_equation_2_is_that_of_a_slow_loop(random_model, tokenizer, name):
    """On six families of models: alignment, padding, weights and losses together, and their gradients."""
    method, pairs = METHODS[f"{name}-equation2"], target_pairs(SPEC, tokenizer)
    sentences = [s for s in locate_terms(tokenizer, TEXTS, method.find(SPEC, pairs)) if len(s.input_ids) > 1]
    outputs, batch = run_packed(random_model, Collator(0)(sentences), False)
    fast = DebiasLoss(method, pairs, 0.25, 3.0)(random_model, outputs, batch)
    slow = slow_equation2(random_model, tokenizer, SPEC, TEXTS, name, 0.25, 3.0)
    torch.testing.assert_close(fast, slow, rtol=2e-5, atol=2e-5)
    assert_same_gradients(random_model, fast, slow)


@pytest.mark.parametrize("name", ["LMD", "ADD", "HD", "HD-accumulated"])
def test_the_releases_objective_is_that_of_a_slow_loop(random_model, tokenizer, name):
    pairs = target_pairs(SPEC, tokenizer)
    for texts in (TEXTS, ["nobody is here", "a christian and christians"]):  # with occurrences, and without
        sentences = [s for s in locate_terms(tokenizer, texts, METHODS[name].find(SPEC, pairs)) if len(s.input_ids) > 1]
        outputs, batch = run_packed(random_model, Collator(0)(sentences), False)
        fast = DebiasLoss(METHODS[name], pairs, 0.25, 3.0)(random_model, outputs, batch)
        slow = slow_release(random_model, tokenizer, SPEC, texts, name, 0.25, 3.0)
        torch.testing.assert_close(fast, slow, rtol=2e-5, atol=2e-5)
        assert_same_gradients(random_model, fast, slow)


@pytest.mark.parametrize(
    "name", ["LMD", "ADD", "HD", "HD-accumulated", "LMD-equation2", "ADD-equation2", "HD-equation2"]
)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_packed_batch_is_the_padded_one(tokenizer, family, name):
    model, method, pairs = (
        small_random(CONFIGS[family](len(tokenizer))).eval(),
        METHODS[name],
        target_pairs(SPEC, tokenizer),
    )
    batch = Collator(0)([s for s in locate_terms(tokenizer, TEXTS, method.find(SPEC, pairs)) if len(s.input_ids) > 1])
    losses = []
    for packed in (False, True):
        outputs, given = run_packed(model, batch, packed)
        losses.append(DebiasLoss(method, pairs, 0.25, 3.0)(model, outputs, given))
    torch.testing.assert_close(*losses, rtol=2e-5, atol=2e-5)
    assert_same_gradients(model, *losses)
    plain = [
        model(**{k: v for k, v in b.items() if k in ("input_ids", "attention_mask", "position_ids", "labels")}).loss
        for b in (batch, pack_batch(batch))
    ]
    torch.testing.assert_close(*plain, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["LMD", "ADD", "HD"])
def test_gradients_of_the_debiasing_loss_reach_the_transformer(random_model, tokenizer, name):
    """The release's reach nothing else: output vectors are detached. Equation 2's reach the output layer too."""
    pairs = target_pairs(SPEC, tokenizer)
    for which in (name, f"{name}-equation2"):
        outputs, batch = run_packed(
            random_model, Collator(0)(locate_terms(tokenizer, TEXTS[:2], METHODS[which].find(SPEC, pairs))), False
        )
        hidden = outputs.hidden_states[-1]
        occurrences = DebiasLoss(METHODS[which], pairs, 1.0, 1.0)._occurrences(random_model, hidden, batch, 0)
        loss = METHODS[which].loss(occurrences).sum()
        (gradient,) = torch.autograd.grad(loss, hidden, retain_graph=True)
        assert gradient.abs().max() > 0
        assert occurrences.targets1.requires_grad is occurrences.targets2.requires_grad is (which != name)
        first_layer = next(p for n, p in random_model.named_parameters() if ".0." in n and p.dim() > 1)
        assert torch.autograd.grad(loss, first_layer)[0].abs().max() > 0


def test_the_releases_losses_by_hand():
    """Two sentences of two and one positions.

    |h·(t1 − t2)| is 2, 4 and 1 for the first pair, 1, 1 and 3 for the second."""
    h, t1, t2 = torch.tensor([[2.0, 1.0], [-4.0, 1.0], [1.0, 3.0]]), torch.eye(2), torch.zeros(2, 2)
    of, part = torch.tensor([0, 0, 1]), torch.tensor([[True, True], [False, True]])
    assert lmd_release_loss(h, of, t1, t2, part).tolist() == [(3 + 1) / 2, 3 / 2]
    assert lmd_release_loss(h, of, t1, t2, part, bias=torch.tensor([1.0, 0.0])).tolist() == [
        ((3 + 3) / 2 + 1) / 2,
        3 / 2,
    ]
    diagonal = torch.tensor([[math.sqrt(0.5), math.sqrt(0.5)]])
    assert hd_release_loss(torch.tensor([[1.0, 3.0], [-1.0, -3.0]]), diagonal).tolist() == pytest.approx([4.0, 4.0])
    assert hd_release_loss(
        torch.tensor([[1.0, 3.0], [-1.0, -3.0]]), diagonal, accumulate=True
    ).tolist() == pytest.approx([4.0, 0.0])
    assert release_loss(torch.tensor([1.0, 3.0]), torch.tensor([0.5, 1.0]), 0.1, 10.0).item() == pytest.approx(0.2 + 15)
    assert (
        release_loss(torch.tensor([1.0, 3.0]), torch.zeros(0), 0.1, 10.0).item()
        == release_loss(torch.tensor([1.0, 3.0]), torch.zeros(2), 0.1, 10.0).item()
        == 2.0
    )


def test_untied_and_biased_output_layers(tokenizer):
    """The output layer's rows are used, not the input embeddings'; its bias enters LMD."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            tie_word_embeddings=False,
        )
    )
    before = [mean_losses(model, tokenizer, SPEC, TEXTS, m)["debias_loss"] for m in ("LMD", "LMD-equation2")]
    with torch.no_grad():
        model.lm_head.weight.zero_()  # the input embeddings stay
    assert (
        min(before) > 0
        and mean_losses(model, tokenizer, SPEC, TEXTS, "LMD")["debias_loss"]
        == mean_losses(model, tokenizer, SPEC, TEXTS, "LMD-equation2")["debias_loss"]
        == 0
    )
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(len(tokenizer)))
    with torch.no_grad():
        model.lm_head.bias[tokenizer(" jews")["input_ids"]] = 2.0
    assert mean_losses(model, tokenizer, SPEC, ["the jews"], "LMD-equation2")["debias_loss"] == pytest.approx(2.0)
    assert mean_losses(model, tokenizer, SPEC, ["the jews"], "LMD")["debias_loss"] == pytest.approx(2.0 / 3), (
        "one of three pairs"
    )


# --- where terms stand ---


@pytest.mark.parametrize("which", ["gpt2", "smollm2"])
def test_terms_on_real_tokenizers(which, gpt2_tokenizer, default_model):
    tokenizer = gpt2_tokenizer if which == "gpt2" else default_model[1]

    def shown(text, terms, **options):
        (sentence,) = locate_terms(tokenizer, [text], terms, **options)
        return [(tokenizer.decode(list(sentence.input_ids[a:b])).strip(), terms[t]) for t, a, b in sentence.terms]

    terms = ("hook-nose", "greed*", "jews", "uncivilized", "naïve")
    assert shown("hook-nose at the start", terms) == [("hook-nose", "hook-nose")]
    assert shown("the end is uncivilized", terms) == [("uncivilized", "uncivilized")]
    assert shown("jews and jews", terms) == [("jews", "jews")] * 2
    assert shown("greedy greed agreed", terms) == [("greedy", "greed*"), ("greed", "greed*")]
    assert shown("a naïve 🙂 greedy", terms) == [("naïve", "naïve"), ("greedy", "greed*")]
    n = len(tokenizer("the hook-nose")["input_ids"])
    assert shown("the hook-nose is", terms, block_size=n) == [("hook-nose", "hook-nose")]
    assert shown("the hook-nose is", terms, block_size=n - 1) == [], "cut off by the block"
    assert (
        len(term_tokens(tokenizer, "uncivilized")) > 1
        and tokenizer.decode(term_tokens(tokenizer, "jews")).strip() == "jews"
    )


def test_every_term_of_every_specification_has_tokens(gpt2_tokenizer, default_model):
    for b in BIAS_TYPES:
        for tokenizer in (gpt2_tokenizer, default_model[1]):
            spec = load_spec(f"redditbias/{b}")
            pairs = target_pairs(spec, tokenizer)
            assert len(pairs.rows1) == len(spec.pairs) and pairs.takes_part.sum() == 2 * len(spec.pairs)
            assert len(target_pairs(spec, tokenizer, extra_pairs=True).rows1) == len(spec.pairs + spec.extra_pairs)


def test_chinese_terms_stand_without_blanks(default_model):
    spec = BiasSpec(targets1=["女孩"], targets2=["男孩"], pairs=[["女孩", "男孩"]], attributes1=["软弱"], language="zh")
    tokenizer = default_model[1]
    pairs = target_pairs(spec, tokenizer)
    assert tokenizer.decode(pairs.rows1[0][pairs.rows1[0] >= 0].tolist()) == "女孩"
    (sentence,) = locate_terms(tokenizer, ["那个女孩很软弱"], ("软弱",))
    assert tokenizer.decode(list(sentence.input_ids[sentence.terms[0][1] : sentence.terms[0][2]])).endswith("软弱")


def test_a_term_at_the_start_is_predicted_by_no_state():
    hidden, term = torch.arange(12.0).reshape(2, 3, 2), torch.tensor([[0, 0, -1], [-1, 1, 1]])
    occurrence = torch.tensor([[0, 0, -1], [-1, 0, 0]])
    states, terms = occurrence_states(hidden, term, occurrence, "before")
    assert states.tolist() == [[6.0, 7.0]] and terms.tolist() == [1]
    states, terms = occurrence_states(hidden, term, occurrence)
    assert states.tolist() == [[1.0, 2.0], [9.0, 10.0]] and terms.tolist() == [0, 1]
    none = torch.full((2, 3), -1)
    for which in ("term", "before"):
        assert occurrence_states(hidden, none, none, which)[0].shape == (0, 2)


@pytest.mark.parametrize("name", ["LMD", "ADD", "HD"])
def test_a_batch_without_terms_has_the_plain_loss(random_model, tokenizer, name):
    batch = Collator(0)(locate_terms(tokenizer, ["nobody here", "a b c d"], ("greed*",)))
    outputs = random_model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], output_hidden_states=True
    )
    loss = DebiasLoss(METHODS[name], target_pairs(SPEC, tokenizer), 0.01, 100.0)
    plain = random_model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"]
    ).loss
    torch.testing.assert_close(loss(random_model, outputs, batch), plain)
    assert "debias_loss" not in loss.report()


def test_bad_input(tokenizer):
    with pytest.raises(ValueError, match="block_size is 1"):
        locate_terms(tokenizer, ["a"], block_size=1)
    with pytest.raises(ValueError, match="method 'HDD' is unknown: expected one of LMD, ADD, HD, CDA"):
        get_method("HDD")
    with pytest.raises(ValueError, match="states 'after' is unknown"):
        Method(states="after")
    with pytest.raises(ValueError, match="objective 'batch' is unknown: expected one of release, equation2"):
        Method(objective="batch")
    with pytest.raises(ValueError, match="no positions for equation 2"):
        Method(states="sentence", terms="targets1", objective="equation2")
    with pytest.raises(ValueError, match="is of pairs of targets"):
        Method(states="sentence")
    with pytest.raises(ValueError, match="expected a fast tokenizer"):
        locate_terms(object(), ["a"])
    with pytest.raises(ValueError, match="no attribute_pairs"):
        augment_attributes(SPEC, ["a violin"])
    object.__setattr__(
        empty := BiasSpec(targets1=["a"], targets2=["b"], pairs=[["a", "b"]], attributes1=["c"]), "pairs", ()
    )
    with pytest.raises(ValueError, match="no pairs of target terms"):
        target_pairs(empty, tokenizer)


# --- augmentation ---


def test_augmentation():
    assert augment_targets(SPEC, ["jews are greedy", "hi"]) == ["jews are greedy", "hi", "christians are greedy"]
    assert augment_targets(SPEC, ["christians and jews"], "1to2") == [
        "christians and jews",
        "christians and christians",
    ]
    paired = BiasSpec(
        targets1=["女孩"],
        targets2=["男孩"],
        pairs=[["女孩", "男孩"]],
        attributes1=["软弱"],
        attribute_pairs=[["软弱", "坚强"]],
        language="zh",
    )
    assert augment_attributes(paired, ["女孩很软弱", "你好"]) == ["女孩很软弱", "你好", "女孩很坚强"]
    assert METHODS["CADA-text"].augment is augment_attributes and METHODS["CDA"].augment is augment_targets
    both = ["女孩和男孩", "你好"]
    assert METHODS["CTDA-text"].augment(paired, both) == [*both, "男孩和男孩"], "t1 → t2 only"
    assert METHODS["CTDA"].augment(paired, both) == [*both, "男孩和男孩", "你好"], "a copy of every sentence"
    assert METHODS["CADA"].augment(paired, ["女孩很软弱"]) == ["女孩很软弱", "女孩很坚强"]
    chain = dataclasses.replace(paired, attribute_pairs=[["胖", "瘦"], ["瘦", "胖"]])
    assert METHODS["CADA"].augment(chain, ["很胖"]) == ["很胖", "很胖"], "pair after pair"
    assert METHODS["CADA-text"].augment(chain, ["很胖"]) == ["很胖", "很瘦"]


# Lines equal to the authors' counterfactuals; the rest differ because they replace substrings and we whole words (and
# see nbs/specs.ipynb).
EQUAL = {"religion1": 0.97, "religion2": 0.96, "race": 0.99, "gender": 0.97, "orientation": 0.64}


@each("bias_type", BIAS_TYPES)
def test_cda_against_the_authors_files(corpus, bias_type):
    """The first half are the phrases; of the second half, the stated share is equal line by line."""
    spec, released = load_spec(f"redditbias/{bias_type}"), load_pairs(bias_type, "train", "redditbias")
    assert list(released.text1) == list(load_phrases(bias_type, "train", "redditbias").text)
    ours = [spec.swap_targets(t) for t in released.text1]
    share = sum(a == b for a, b in zip(ours, released.text2)) / len(ours)
    assert EQUAL[bias_type] <= share < EQUAL[bias_type] + 0.02
    augmented = augment_targets(spec, released.text1)
    assert augmented[: len(ours)] == list(released.text1) and len(augmented) == len(ours) + sum(
        a != b for a, b in zip(ours, released.text1)
    )


def test_few_sentences_with_a_term_are_warned_of(tokenizer, recwarn):
    texts = ["jews are greedy", *["nobody is here"] * 3]
    assert len(training_sentences(SPEC, tokenizer, texts, "HD")) == 4 and not recwarn.list
    with pytest.warns(UserWarning, match="1 of 5 training sentences hold a term"):
        training_sentences(SPEC, tokenizer, [*texts, "nobody"], "HD")


@pytest.mark.parametrize("name", ["CTDA", "CTDA-text"])
def test_copies_of_which_none_is_changed_are_no_augmentation(tokenizer, name):
    with pytest.raises(ValueError, match="nothing to augment"):
        training_sentences(SPEC, tokenizer, ["nobody is here ", "nobody"], name)
    both = ["jews sing", "christians sing"]  # each is the other's copy
    assert len(training_sentences(SPEC, tokenizer, both, "CDA")) == 4


def test_training_sentences_say_what_is_wrong(tokenizer):
    for texts in ([], ["", "  "]):
        with pytest.raises(ValueError, match="training set is empty"):
            training_sentences(SPEC, tokenizer, texts, "HD")
    with pytest.raises(ValueError, match="no attribute of A1"):
        training_sentences(SPEC, tokenizer, ["hello there"], "HD")
    with pytest.raises(ValueError, match="no t1 of a pair"):
        training_sentences(SPEC, tokenizer, ["greedy christians"], "LMD")
    with pytest.raises(ValueError, match="no target term of a pair"):
        training_sentences(SPEC, tokenizer, ["greedy there"], "LMD-equation2")
    with pytest.raises(ValueError, match="nothing to augment"):
        training_sentences(SPEC, tokenizer, ["hello there"], "CDA")


# --- Chinese: terms of several characters, tokens smaller than a character, tokens that are not known ---


@pytest.fixture(scope="module")
def of_bytes():
    """A byte-level BPE that learned 老 whole, and the last byte of 人 together with the first of 好."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    as_bytes = lambda text: pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)[0][0]
    vocabulary = {c: i for i, c in enumerate(alphabet)}
    old, person, good = map(as_bytes, "老人好")
    merges = [(old[0], old[1]), (old[:2], old[2]), (person[2], good[0])]
    for a, b in merges:
        vocabulary[a + b] = len(vocabulary)
    bpe = Tokenizer(models.BPE(vocabulary, merges))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bpe)


def test_tokens_that_cut_a_character(of_bytes):
    """老人好: 老 is one token; 人 is three bytes, of which the last stands in one token with the first of 好."""
    tokens = of_bytes("老人好")["input_ids"]
    assert len(tokens) == 1 + 2 + 1 + 2, "人 without its end, the shared token, 好 without its beginning"
    whole, first, last = locate_terms(of_bytes, ["老人好"] * 3, ["老人"])[0], *(
        locate_terms(of_bytes, ["老人好"], [t])[0] for t in ("老", "好")
    )  # fmt: skip
    assert whole.terms == ((0, 0, 4),), "the shared token holds a byte of the term"
    assert first.terms == ((0, 0, 1),) and last.terms == ((0, 3, 6),)
    assert term_tokens(of_bytes, "人") == of_bytes("人")["input_ids"] and len(term_tokens(of_bytes, "人")) == 3
    assert locate_terms(of_bytes, ["老人好"], ["老人", "好"], block_size=5)[0].terms == ((0, 0, 4),), "好 is cut"
    assert locate_terms(of_bytes, ["小老人"], ["老人"])[0].terms == ((0, 3, 7),)


def test_bytes_in_place_of_unknown_characters():
    """As Gemma's: characters are tokens; one that it does not have is spelt in bytes, which span it each."""
    from tokenizers import Tokenizer, models

    known = {"<unk>": 0, **{f"<0x{i:02X}>": i + 1 for i in range(256)}, "老": 257, "太": 258}
    words = Tokenizer(models.BPE(known, [], byte_fallback=True, unk_token="<unk>"))
    words = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    (found,) = locate_terms(words, ["老婆太"], ["老婆", "太"])
    assert found.input_ids[0] == 257 and len(found.input_ids) == 5 and found.terms == ((0, 0, 4), (1, 4, 5))
    assert unknown_terms(words, ["老婆"]) == []


def test_terms_that_are_not_known_are_left_out():
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = {c: i for i, c in enumerate(["[UNK]", *"同性恋异基佬直男是他很肮脏"])}
    words = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"[a-z]+"), "isolated"), pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated")]
    )
    words = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    orientation = load_spec("chbias/orientation")
    with pytest.warns(UserWarning, match="pairs of the terms .*gay.* does not know are left out"):
        pairs = target_pairs(orientation, words)
    assert "gay" not in pairs.terms and "同性恋" in pairs.terms and 0 < len(pairs.rows1) < len(orientation.pairs)
    assert not (pairs.rows1 == 0).any() and not (pairs.rows2 == 0).any(), "no row is that of the unknown token"
    with pytest.warns(UserWarning, match="occurrences of gay"):
        one, two = locate_terms(words, ["他是gay", "同性恋"], ["gay", "同性恋"])
    assert one.terms == () and two.terms == ((1, 0, 3),)
    with pytest.raises(ValueError, match="every pair of the specification race holds a token that the tokenizer"):
        target_pairs(load_spec("race"), words)
