"""Sentences as answers of a chat model: `context="chat"`, and the scores that are kept with their texts."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
from conftest import CONFIGS, papermill, small_random

from redditbias_repro.cli import main
from redditbias_repro.data.pairs import load_pairs
from redditbias_repro.metrics.language_model import measure_lmb
from redditbias_repro.metrics.likelihood import measure_likelihood_bias
from redditbias_repro.models.chat import CHAT_PROMPT, chat_context
from redditbias_repro.models.loading import load_model
from redditbias_repro.records import project_path, read_records, record_path, repo_root
from redditbias_repro.scoring.likelihoods import sequence_scores
from redditbias_repro.show.tables import lmb_table

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PETS = "text1,text2\ncats are lazy,dogs are lazy\nthe cat sleeps,the dog sleeps\nmy cat bites,my dog bites\n"


@pytest.fixture
def pets(tmp_path):
    (tmp_path / "pets.csv").write_text(PETS)
    return tmp_path / "pets.csv"


@pytest.fixture(scope="module")
def chat_folder(tokenizer, tmp_path_factory):
    """A small model with a chat template beside it."""
    folder, words = tmp_path_factory.mktemp("chat") / "tiny-chat", copy.deepcopy(tokenizer)
    words.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    words.chat_template = CHATML
    small_random(CONFIGS["llama"](len(words))).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def test_a_sentence_is_scored_after_what_the_template_puts_before_it(chat_folder, pets):
    """Token by token: the sum over the sentence's own tokens, given the whole of the template before."""
    import torch

    net, words = load_model(chat_folder)
    before = f"<|im_start|>user\n{CHAT_PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    assert chat_context(words) == before
    (record,) = measure_lmb(chat_folder, corpus=pets, outliers="all", context="chat")
    pairs = load_pairs("pets", corpus=str(pets))
    gaps = []
    for row in pairs.itertuples():
        logs = []
        for text in (row.text1, row.text2):
            start, ids = (words(t, add_special_tokens=False)["input_ids"] for t in (before, before + text))
            assert ids[: len(start)] == start and words.convert_tokens_to_ids("<|im_start|>") == ids[0]
            with torch.no_grad():
                logs.append(net(torch.tensor([ids])).logits[0].log_softmax(-1)[range(len(ids) - 1), ids[1:]])
            logs[-1] = -float(logs[-1][len(start) - 1 :].mean())
        gaps.append(logs[0] - logs[1])
    assert np.isclose(record["values"]["gap"], np.mean(gaps), rtol=1e-4)
    assert record["params"] == {"outliers": "all", "context": "chat"}
    assert record["provenance"]["chat"] == {"prompt": CHAT_PROMPT, "before": before}
    assert record_path(record, "x") != record_path({**record, "params": {}}, "x")


def test_without_a_context_all_is_as_it_was(chat_folder, pets):
    net, words = load_model(chat_folder)
    (bare,) = measure_lmb((net, words), corpus=pets, outliers="all")
    pairs = load_pairs("pets", corpus=str(pets))
    scores = sequence_scores(net, words, [*pairs.text1, *pairs.text2])
    each = (scores["nll"] / scores["n_tokens"]).to_numpy()
    assert np.isclose(bare["values"]["gap"], (each[:3] - each[3:]).mean(), rtol=1e-12)
    assert bare["params"] == {"outliers": "all"} and "chat" not in bare["provenance"]


def test_another_prompt_is_another_record_and_the_chat_another_row(chat_folder, pets):
    how = dict(corpus=pets, outliers="all")
    told = [{}, {"context": "chat"}, {"context": "chat", "prompt": "Say something."}]
    records = [measure_lmb(chat_folder, **how, **more)[0] for more in told]
    assert len({record_path(r, "x").name for r in records}) == 3 and len(records[2]["params"]["prompt"]) == 16
    assert len({r["values"]["gap"] for r in records}) == 3
    models = lmb_table(records[:2], paper="own")["model"].tolist()
    assert sorted(models) == [records[0]["model"], records[0]["model"] + " (chat)"]


def test_what_a_template_may_not_do(tokenizer, model_folder, pets):
    with pytest.raises(ValueError, match="has no chat template.*--context chat"):
        measure_lmb(model_folder, corpus=pets, context="chat")
    with pytest.raises(ValueError, match="context 'talk' is unknown"):
        measure_lmb(model_folder, corpus=pets, context="talk")
    words = copy.deepcopy(tokenizer)
    assert not words.chat_template
    for template, says in (
        ("{{ raise_exception('no roles here') }}", "takes no turn.*no roles here"),
        ("{% for m in messages %}{{ m.role }}{% endfor %}", "does not hold the assistant's answer"),
    ):
        words.chat_template = template
        with pytest.raises(ValueError, match=says):
            chat_context(words)
    words.chat_template = (
        "{% for m in messages %}[{{ m.role }}] {% if enable_thinking %}?{% endif %}{{ m.content }}{% endfor %}"
    )
    assert chat_context(words, "Hm") == "[user] Hm[assistant] "


def test_special_tokens_and_a_chat_are_one_too_many(chat_folder, pets, capsys):
    with pytest.raises(ValueError, match="brings its own special tokens"):
        measure_lmb(chat_folder, corpus=pets, context="chat", add_special_tokens=True)
    command = ["measure", "--model", str(chat_folder), "--corpus", str(pets)]
    for wrong, says in (
        (["--user-turn", "Hi"], "give it with --context chat"),
        (["--context", "chat", "--special-tokens"], "brings its own special tokens"),
        (["--paper", "holisticbias", "--context", "chat", "--reading", "answer"], "different readings"),
        (["--paper", "dialoguefairness", "--context", "chat"], "--context is for pairs"),
    ):
        args = command if "--paper" not in wrong else command[:3]
        assert main([*args, *wrong]) == 2 and says in capsys.readouterr().err


def test_prompts_as_answers(chat_folder):
    net = load_model(chat_folder)
    records = {r: measure_likelihood_bias(net, "paper", "nonce", reading=r)[0] for r in ("beginning", "chat")}
    assert records["chat"]["params"] == {"reading": "chat", "n_templates": None}
    assert records["chat"]["provenance"]["scoring"]["context"] == chat_context(net[1])
    medians = [r["values"]["medians"] for r in records.values()]
    assert medians[0].keys() == medians[1].keys() and medians[0] != medians[1]
    (other,) = measure_likelihood_bias(net, "paper", "nonce", reading="chat", prompt="Say something.")
    assert other["values"]["medians"] != medians[1] and len(other["params"]["prompt"]) == 16


def test_details_of_pairs(chat_folder, pets, tmp_path, capsys):
    command = ["measure", "--model", str(chat_folder), "--corpus", str(pets), "--context", "chat"]
    out = {"--details": tmp_path / "d.csv", "--out": tmp_path / "r.json"}
    assert main([*command, *(str(x) for pair in out.items() for x in pair)]) == 0
    assert f"written: {out['--details']}" in capsys.readouterr().out
    kept, (_, record) = pd.read_csv(out["--details"]), json.loads(out["--out"].read_text())
    assert record["params"]["outliers"] == "all"
    assert kept["text1"].tolist() == ["cats are lazy", "the cat sleeps", "my cat bites"]
    assert np.isclose(kept["gap"].mean(), record["values"]["gap"], rtol=1e-9)
    assert np.allclose(kept["perplexity1"], np.exp(kept["nll1"] / kept["n_tokens1"]), rtol=1e-9)
    assert "cats are lazy" not in out["--out"].read_text()  # texts are in no record


def test_details_of_prompts(chat_folder, tmp_path):
    out = tmp_path / "d.parquet"
    (record,) = measure_likelihood_bias(load_model(chat_folder), "paper", "nonce", details=out)
    kept = pd.read_parquet(out)
    assert len(kept) == record["n"] and {"text", "axis", "descriptor", "template", "perplexity"} <= set(kept)


@pytest.mark.parametrize("name", ["results/a.csv", "figures/a.parquet", "data/x/a.csv"])
def test_details_are_kept_nowhere_that_is_committed(name, model_folder, pets, capsys):
    with pytest.raises(ValueError, match="the corpus' sentences must not be stored"):
        measure_lmb(model_folder, corpus=pets, details=project_path(name))
    assert not project_path(name).exists()
    assert main(["measure", "--model", str(model_folder), "--corpus", str(pets), "--details", "d.txt"]) == 2
    assert "ends in .parquet or .csv" in capsys.readouterr().err


def test_the_notebook_takes_both(chat_folder, pets, tmp_path):
    told = dict(model=chat_folder, bias_type="pets", corpus=pets, context="chat")
    notebook = repo_root() / "nbs" / "03b_metrics.ipynb"
    papermill(notebook, tmp_path / "out.ipynb", **told, details=tmp_path / "d.csv", out_dir=tmp_path / "results")
    records = read_records(tmp_path / "results")
    assert set(records["context"]) == {"chat"} and len(pd.read_csv(tmp_path / "d.csv")) == 3


def test_another_turn_of_the_user_is_another_row(chat_folder):
    """Two turns are no two training seeds; an empty one is one too."""
    net = load_model(chat_folder)
    how = dict(bias_types=["race"], corpus="queries", outliers="all", context="chat")
    records = [r for turn in ({}, {"prompt": "Hi"}, {"prompt": ""}) for r in measure_lmb(net, **how, **turn)]
    table = lmb_table(records)
    assert table.model.nunique() == 3 and (table.p_holm == table.p).all()


def test_an_empty_turn_is_passed_on(chat_folder, pets, tmp_path):
    t = {}
    for name, more in (("default", []), ("empty", ["--user-turn", ""])):
        command = ["measure", "--model", str(chat_folder), "--corpus", str(pets), "--context", "chat", *more]
        assert main([*command, "--out", str(tmp_path / f"{name}.json")]) == 0
        record, _ = json.loads(
            (tmp_path / f"{name}.json").read_text()
        )  # then that of all pairs, which keeps the scores
        t[name] = record["values"]["gap"]
    assert t["default"] != t["empty"]
