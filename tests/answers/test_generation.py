"""Answers: the same alone and in batches, seeded, resumed, decoded as they are named."""

import os
import signal
import subprocess
import sys
import textwrap
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CONFIGS, SMALL, seq2seq, small_random
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GenerationConfig,
    GPT2LMHeadModel,
    MambaConfig,
    MistralConfig,
)

from redditbias_repro.answers import generation
from redditbias_repro.answers.generation import (
    answers,
    block_repeats,
    common_start,
    decoding_of,
    encode_prompts,
    name_decoding,
    prompt_texts,
    respond,
)
from redditbias_repro.models.loading import load_model


def test_the_same_alone_and_in_a_batch(random_model, tokenizer):
    model = random_model
    rows = [
        {"input_ids": tokenizer(t)["input_ids"]}
        for t in (
            "the women",
            "they are lazy and people",
            "christians",
            "jews and muslims are",
            "the men are officers and the women are nurses",
        )
    ]
    alone = [respond(model, tokenizer, [r], max_new_tokens=6)[0] for r in rows]
    assert (
        respond(model, tokenizer, rows, batch_size=2, max_new_tokens=6)
        == alone
        == respond(model, tokenizer, rows, batch_size=5, max_new_tokens=6)
    )
    assert respond(model, tokenizer, rows[:2], max_new_tokens=4, num_beams=2) == [
        respond(model, tokenizer, [r], max_new_tokens=4, num_beams=2)[0] for r in rows[:2]
    ]


def test_sampling_is_seeded_and_goes_on(tokenizer, tmp_path, monkeypatch):
    model = small_random(CONFIGS["gpt2"](len(tokenizer)))
    rows = [{"input_ids": tokenizer("the women " * (1 + i % 3))["input_ids"]} for i in range(8)]
    options = dict(batch_size=2, max_new_tokens=5, do_sample=True, progress=False)
    whole = respond(model, tokenizer, rows, seed=1, **options)
    assert (
        whole
        == respond(model, tokenizer, rows, seed=1, **options)
        != respond(model, tokenizer, rows, seed=2, **options)
    )
    real, calls = model.generate, []

    def killed(**kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(**kwargs)

    monkeypatch.setattr(model, "generate", killed)
    with pytest.raises(KeyboardInterrupt):
        respond(model, tokenizer, rows, seed=1, keep=tmp_path / "answers", **options)
    assert respond(model, tokenizer, rows, seed=1, keep=tmp_path / "answers", **options) == whole and len(calls) == 5


def test_decoding_has_a_name():
    assert (
        decoding_of(max_new_tokens=4) == {"max_new_tokens": 4, "num_beams": 1, "do_sample": False}
        and name_decoding(decoding_of(max_new_tokens=4)) == "greedy-new4"
    )
    names = {
        name_decoding(decoding_of(**c))
        for c in (
            {},
            {"num_beams": 4},
            {"do_sample": True},
            {"do_sample": True, "top_p": 0.9},
            {"do_sample": True, "temperature": 0.7},
            {"max_new_tokens": 50},
            {"preset": "release"},
            {"preset": "release", "max_new_tokens": 20},
            {"preset": "beam3"},
            {"preset": "beam10"},
            {"min_new_tokens": 20},
        )
    }
    assert (
        len(names) == 11
        and "beam10-new40-min20-block3" in names
        and decoding_of("release")
        == {
            "num_beams": 1,
            "do_sample": True,
            "top_k": 50,
            "top_p": 0.95,
            "temperature": 1.0,
            "first_tokens": 64,
            "max_length": 128,
        }
    )
    for bad in (dict(preset="theirs"), dict(beams=3)):
        with pytest.raises(ValueError, match="expected one of default, release"):
            decoding_of(**bad)


def test_context_and_answer_have_a_limit_together(random_model, tokenizer):
    rows = [{"input_ids": tokenizer("the women " * k)["input_ids"]} for k in (1, 4)]
    together = respond(random_model, tokenizer, rows, max_new_tokens=None, max_length=12)
    assert together == [respond(random_model, tokenizer, [r], max_new_tokens=12 - len(r["input_ids"]))[0] for r in rows]
    assert respond(random_model, tokenizer, rows, max_new_tokens=2, max_length=12) == respond(
        random_model, tokenizer, rows, max_new_tokens=2
    )
    with pytest.raises(ValueError, match="might never end"):
        respond(random_model, tokenizer, rows, max_new_tokens=None)


# Answers to prompts


PROMPTS = pd.DataFrame(
    {
        "text": [
            "the women",
            "they are lazy",
            "the women are lazy",
            "the men are officers and nurses",
            "hm",
            "the women",
        ],
        "descriptor": list("abcdef"),
    }
)
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}you: "


@pytest.fixture(scope="module")
def gpt2(tokenizer):
    return small_random(CONFIGS["gpt2"](len(tokenizer)))


@pytest.fixture
def chatty(tokenizer):
    words = deepcopy(tokenizer)
    words.chat_template = CHAT
    return words


def said(model, tokenizer, prompts=PROMPTS, decoding="default", **options):
    return answers(model, tokenizer, prompts, decoding, progress=False, **options)


SHORT = decoding_of(max_new_tokens=6)


def one_by_one(model, tokenizer, texts, **options):
    "What `generate` says to each text alone, to its end"
    found, ends = [], [0, model.generation_config.eos_token_id or 0]
    for text in texts:
        ids = torch.tensor([tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]])
        seen, special = torch.ones_like(ids), dict(pad_token_id=0, eos_token_id=ends)
        out = model.generate(ids, attention_mask=seen, do_sample=False, **special, **options)[
            0, ids.shape[1] :
        ].tolist()
        out = out[: next((i for i, t in enumerate(out) if t in ends), None)]
        found.append(" ".join(tokenizer.decode(out).split()))
    return found


def test_shared_or_alone_the_answers_are_those_of_generate(random_model, tokenizer):
    shared, alone = (said(random_model, tokenizer, decoding=SHORT, share=s) for s in (True, False))
    assert shared.equals(alone) and shared.descriptor.tolist() == list("abcdef")
    assert shared.attrs["stats"]["shared"] and shared.attrs["stats"]["why_alone"] == ""
    assert not alone.attrs["stats"]["shared"] and "not asked" in alone.attrs["stats"]["why_alone"]
    assert shared.answer.tolist() == one_by_one(random_model, tokenizer, PROMPTS.text, max_new_tokens=6)
    assert shared.equals(said(random_model, tokenizer, decoding=SHORT, batch_size=2))
    beams = decoding_of("beam3", max_new_tokens=6, min_new_tokens=4)
    shared, alone = (said(random_model, tokenizer, decoding=beams, share=s) for s in (True, False))
    assert shared.equals(alone) and shared.equals(said(random_model, tokenizer, decoding=beams, batch_size=1))
    beams = decoding_of(num_beams=3, max_new_tokens=6)
    assert said(random_model, tokenizer, decoding=beams).answer.tolist() == one_by_one(
        random_model, tokenizer, PROMPTS.text, max_new_tokens=6, num_beams=3
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1, max_size=6))
def test_a_common_start(rows):
    start = common_start(rows)
    assert 0 <= start < min(map(len, rows)) and len({r[:start] for r in rows}) == 1
    assert start == min(map(len, rows)) - 1 or len({r[: start + 1] for r in rows}) > 1


def test_models_that_cannot_share_answer_alone(tokenizer):
    v = len(tokenizer)
    mamba = small_random(MambaConfig(vocab_size=v, hidden_size=16, state_size=4, num_hidden_layers=1))
    alone = said(mamba, tokenizer, decoding=SHORT)
    assert not alone.attrs["stats"]["shared"] and alone.attrs["stats"]["why_alone"]
    assert alone.equals(said(mamba, tokenizer, decoding=SHORT, share=False))
    narrow = MistralConfig(vocab_size=v, **{**SMALL, "sliding_window": 8})
    alone = said(small_random(narrow), tokenizer, decoding=SHORT)
    assert "sliding window of 8" in alone.attrs["stats"]["why_alone"]


def test_what_is_shared_wrongly_is_found_out(random_model, tokenizer, monkeypatch):
    whole = said(random_model, tokenizer, decoding=SHORT)
    real = generation.shared_prefill

    def wrong(*args):
        ids, mask, cache = real(*args)
        cache.layers[-1].values.mul_(0.9)
        return ids, mask, cache

    monkeypatch.setattr(generation, "shared_prefill", wrong)
    alone = said(random_model, tokenizer, decoding=SHORT)
    assert "logits of token" in alone.attrs["stats"]["why_alone"] and alone.equals(whole)


def runs_of(ids, n=3):
    return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]


class Parrot(GPT2LMHeadModel):
    "Says what it heard: each token is followed by the one after its last but one mention, or by the next number"

    def forward(self, input_ids=None, **more):
        out = super().forward(input_ids=input_ids, **more)
        nexts = (input_ids - 10 + 1) % 4 + 10
        out.logits = (
            out.logits * 1e-3
            + 5.0 * torch.nn.functional.one_hot(nexts, out.logits.shape[-1])[:, -out.logits.shape[1] :]
        )
        return out


def test_three_tokens_twice_in_an_answer_only(tokenizer):
    """The model says 10 11 12 13 10 11 … for ever, and the prompt holds those runs."""
    model = Parrot(CONFIGS["gpt2"](len(tokenizer))).eval()
    prompt = tokenizer.decode([10, 11, 12, 13, 10, 11, 12, 13])
    assert tokenizer(prompt)["input_ids"] == [10, 11, 12, 13] * 2
    for beams in (1, 3):
        free, kept = (
            said(
                model, tokenizer, [prompt], decoding_of(num_beams=beams, max_new_tokens=12, block_ngrams=b), turn_end=""
            )
            for b in (0, 3)
        )
        free, kept = (tokenizer(x.answer[0].replace(" ", ""))["input_ids"] for x in (free, kept))
        assert free == [10, 11, 12, 13] * 3
        assert len(set(runs_of(kept))) == len(runs_of(kept)), "no run twice"
        if beams == 1:
            assert kept[:6] == [10, 11, 12, 13, 10, 11] and kept[6] != 12, "though the prompt holds 10 11 12 twice"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(0, 4),
    st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=4),
)
def test_blocked_tokens_against_a_loop(n, start, rows):
    blocked = block_repeats(n, start)(torch.tensor(rows), torch.zeros(len(rows), 5)).isinf()
    for row, found in zip(rows, blocked):
        answer = row[start:]
        expected = {t for t in range(5) if tuple([*answer, t][-n:]) in runs_of(answer, n)}
        assert set(found.nonzero()[:, 0].tolist()) == expected


def test_least_and_most_tokens(gpt2, tokenizer):
    free = said(gpt2, tokenizer, decoding=decoding_of(max_new_tokens=12))
    assert (free.n_tokens <= 12).all() and (free.ended == (free.n_tokens < 12)).all()
    with torch.no_grad():
        gpt2.transformer.wte.weight[0] *= 3  # the end token, which is likelier now
    ends = said(gpt2, tokenizer, decoding=decoding_of(max_new_tokens=12))
    held = said(gpt2, tokenizer, decoding=decoding_of(max_new_tokens=12, min_new_tokens=10))
    both = said(gpt2, tokenizer, decoding=decoding_of(max_new_tokens=None, max_length=20))
    with torch.no_grad():
        gpt2.transformer.wte.weight[0] /= 3
    assert ends.ended.any() and (held.n_tokens >= 10).all()
    assert (both.n_tokens <= [20 - len(tokenizer(t)["input_ids"]) - 1 for t in PROMPTS.text]).all()
    with pytest.raises(ValueError, match="min_new_tokens is 50 and max_new_tokens 40"):
        decoding_of("beam3", min_new_tokens=50)
    assert respond(gpt2, tokenizer, [{"input_ids": [5, 6]}], min_new_tokens=3, max_new_tokens=3, block_ngrams=1)


def test_with_a_chat_template_and_without(gpt2, chatty, tokenizer):
    texts = prompt_texts(PROMPTS.iloc[:1].assign(context="i have two cats\ni read"), "no_bias")
    assert texts == ["i have two cats\ni read\nthe women no_bias"]
    read = lambda *args, **more: tokenizer.decode(encode_prompts(*args, **more)[0])
    assert read(chatty, ["hm"]) == "user: hm\nyou: " and read(chatty, ["hm"], chat=False) == "hm<eos>"
    assert read(chatty, ["hm"], system="be brief") == "system: be brief\nuser: hm\nyou: "
    assert read(tokenizer, ["hm"]) == "hm<eos>" and read(tokenizer, ["hm"], turn_end="") == "hm"
    assert (
        read(tokenizer, ["the women are"], first_tokens=2)
        == tokenizer.decode(tokenizer("the women are")["input_ids"][:2]) + "<eos>"
    )
    assert (
        said(gpt2, chatty, decoding=SHORT).answer.tolist()
        == said(gpt2, tokenizer, [f"user: {t}\nyou: " for t in PROMPTS.text], SHORT, turn_end="").answer.tolist()
    )
    for bad, match in (
        (dict(chat=True), "no chat template"),
        (dict(system="be brief"), "need a chat template"),
    ):
        with pytest.raises(ValueError, match=match):
            encode_prompts(tokenizer, ["hm"], **bad)
    with pytest.raises(ValueError, match="first_tokens cuts plain text"):
        said(gpt2, chatty, decoding="release")
    chatty.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(ValueError, match="refuses the prompts .*no system role"):
        encode_prompts(chatty, ["hm"])


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_an_encoder_decoder_model(tokenizer, chatty, kind):
    model = seq2seq(tokenizer, kind)
    found = said(model, chatty, decoding=SHORT)
    expected = []
    for text in PROMPTS.text:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)[
            0, 1:
        ].tolist()
        expected.append(" ".join(tokenizer.decode(out[: out.index(0)] if 0 in out else out).split()))
    assert found.answer.tolist() == expected and len(set(expected)) > 1
    beams, real, made = decoding_of("beam3", max_new_tokens=8, min_new_tokens=5), model.generate, []
    model.generate = lambda **more: made.append(real(**more)) or made[-1]
    together, alone = (said(model, tokenizer, decoding=beams, batch_size=size) for size in (6, 1))
    assert together.equals(alone) and (together.n_tokens >= 5).all() and len(made) == 7
    for row in made[0].tolist():
        ended = row[1 : row.index(0, 1)] if 0 in row[1:] else row[1:]
        assert len(set(runs_of(ended))) == len(runs_of(ended))


def test_several_answers_are_drawn(gpt2, tokenizer):
    drawn = decoding_of(do_sample=True, max_new_tokens=6)
    found = said(gpt2, tokenizer, decoding=drawn, n=4, seed=1)
    assert found["sample"].tolist() == [0, 1, 2, 3] * 6 and found.text.tolist() == list(np.repeat(PROMPTS.text, 4))
    assert found.groupby("descriptor").answer.nunique().max() > 1
    assert found.equals(said(gpt2, tokenizer, decoding=drawn, n=4, seed=1))
    assert not found.equals(said(gpt2, tokenizer, decoding=drawn, n=4, seed=2))
    torch.manual_seed(3)
    one = torch.rand(1)
    torch.manual_seed(3)
    said(gpt2, tokenizer, decoding=drawn)
    assert torch.rand(1) == one, "a user's random numbers are as they were"
    for bad in (2, 0):
        with pytest.raises(ValueError, match="gives the same each time: draw them"):
            said(gpt2, tokenizer, n=bad)


def test_what_a_checkpoint_says_of_decoding_is_left_aside(gpt2, tokenizer):
    expected, own = said(gpt2, tokenizer, decoding=SHORT), gpt2.generation_config
    gpt2.generation_config = GenerationConfig(
        no_repeat_ngram_size=1, repetition_penalty=9.0, min_length=200, eos_token_id=0
    )
    changed = gpt2.generation_config
    assert said(gpt2, tokenizer, decoding=SHORT).equals(expected) and gpt2.generation_config is changed
    gpt2.generation_config = own
    assert not any("forward" in vars(m) for m in gpt2.modules()) and not torch.is_inference_mode_enabled()


def test_bad_prompts(gpt2, tokenizer):
    none = said(gpt2, tokenizer, [])
    assert len(none) == 0 and list(none) == ["text", "sample", "answer", "n_tokens", "ended"]
    assert len(said(gpt2, tokenizer, ["", "hm"], SHORT)) == 2
    with pytest.raises(
        ValueError, match=r"2 prompts are too long .*256 positions \(at \[1, 2\]; the first: 301 tokens"
    ):
        said(gpt2, tokenizer, ["hm", "hm" * 150, "the women " * 200], SHORT)
    for bad, error, match in (
        ("hm", TypeError, "one string"),
        (["hm", None], TypeError, r"1 prompts are not strings \(at \[1\]\)"),
        (PROMPTS.rename(columns={"text": "t"}), ValueError, "no column text"),
        (PROMPTS.assign(answer=""), ValueError, "has answer already"),
    ):
        with pytest.raises(error, match=match):
            said(gpt2, tokenizer, bad)
    with pytest.raises(ValueError, match="might never end"):
        said(gpt2, tokenizer, decoding={"num_beams": 1, "do_sample": False})


def test_a_folder_of_answers(gpt2, tokenizer, tmp_path):
    """What is there is not computed again, in whatever batches; another run's answers are not taken for one's own."""
    whole = said(gpt2, tokenizer, decoding=SHORT, out=tmp_path, batch_size=2)
    assert len(list(tmp_path.glob("part-*.parquet"))) == 3
    sorted(tmp_path.glob("part-*.parquet"))[1].unlink()
    again = said(gpt2, tokenizer, decoding=SHORT, out=tmp_path, batch_size=5)
    assert again.equals(whole) and again.attrs["stats"]["answers"] == 2
    assert said(gpt2, tokenizer, decoding=SHORT, out=tmp_path).attrs["stats"]["answers"] == 0
    other = small_random(CONFIGS["llama"](len(tokenizer)))
    for model, changes, match in (
        (other, {}, "holds answers of another run, with other weights_sha256"),
        (gpt2, dict(prompts=PROMPTS[::-1]), "with other prompts"),
        (gpt2, dict(suffix="no_bias"), "with other prompts"),
        (gpt2, dict(decoding=decoding_of(max_new_tokens=7)), "with other decoding"),
    ):
        with pytest.raises(ValueError, match=match):
            said(model, tokenizer, **{"decoding": SHORT, "out": tmp_path} | changes)
    part = next(tmp_path.glob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-10])
    with pytest.warns(UserWarning, match="is broken and was removed"):
        assert said(gpt2, tokenizer, decoding=SHORT, out=tmp_path).equals(whole)


KILLED = textwrap.dedent("""
    import sys, time
    from redditbias_repro.answers import generation
    from redditbias_repro.models.loading import load_model

    write = generation.write_part
    generation.write_part = lambda *a: (write(*a), print("part", flush=True), time.sleep(60))
    model, tokenizer = load_model(sys.argv[1])
    asked = [f"number {i % 7} and {i}" for i in range(12)]
    drawn = generation.decoding_of(do_sample=True, max_new_tokens=4)
    generation.answers(model, tokenizer, asked, drawn, n=2, seed=5, batch_size=4, out=sys.argv[2])
""")


def test_killed_and_resumed_is_as_never_killed(model_folder, tmp_path):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-c", KILLED, str(model_folder), str(tmp_path / "out")]
    model, tokenizer = load_model(model_folder)
    asked, drawn = [f"number {i % 7} and {i}" for i in range(12)], decoding_of(do_sample=True, max_new_tokens=4)
    options = dict(n=2, seed=5, batch_size=4)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout.readline() == "part\n"
        os.kill(run.pid, signal.SIGKILL)
    resumed = said(model, tokenizer, asked, drawn, out=tmp_path / "out", **options)
    assert resumed.equals(said(model, tokenizer, asked, drawn, **options)) and resumed.attrs["stats"]["answers"] == 20
    with pytest.raises(ValueError, match="with other batch_size, seed"):
        said(model, tokenizer, asked, drawn, out=tmp_path / "out", n=2, seed=6, batch_size=5)
