"""Answers: the same alone and in batches, seeded, resumed, decoded as they are named."""

import pytest
from conftest import CONFIGS, small_random

from redditbias_repro.generation import decoding_of, name_decoding, respond


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
        respond(model, tokenizer, rows, seed=1, keep=tmp_path / "answers.json", **options)
    assert (
        respond(model, tokenizer, rows, seed=1, keep=tmp_path / "answers.json", **options) == whole and len(calls) == 5
    )


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
        )
    }
    assert len(names) == 8 and decoding_of("release") == {
        "num_beams": 1,
        "do_sample": True,
        "top_k": 50,
        "top_p": 0.95,
        "temperature": 1.0,
        "first_tokens": 64,
        "max_length": 128,
    }
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
