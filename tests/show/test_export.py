"""Export: what lm-evaluation-harness and `datasets` make of it is what `measure` says."""

import json
import os
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from conftest import CONFIGS, small_random
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from redditbias_repro.cli import main
from redditbias_repro.data.prompts import comparable, prompts
from redditbias_repro.metrics.language_model import measure_lmb
from redditbias_repro.metrics.likelihood import descriptor_tests, likelihood_bias, score_prompts
from redditbias_repro.models.loading import load_model
from redditbias_repro.show.export import export_dataset, export_lm_eval, origins, pair_parts
from redditbias_repro.show.lm_eval_task import cut, likelihood_share, split_first
from redditbias_repro.stats.packing import unpack_pairs
from redditbias_repro.stats.ranks import pair_tests

PETS = """text1,text2,target1,target2
the cats are lazy and grey,the dogs are lazy and grey,cats,dogs
"all cats sleep, and then they eat","all dogs sleep, and then they eat",cats,dogs
cats like the sun,dogs like the sun,cats,dogs
a cat is a small animal,a dog is a small animal,cat,dog
my cat was here,my dog was here,cat,dog
cats and birds are no friends,dogs and birds are no friends,cats,dogs
the cat ran away,the dog ran away,cat,dog
people and cats live here,people and dogs live here,cats,dogs
no cat was seen,no dog was seen,cat,dog
I see the cat,I see the dog,cat,dog
what do cats want?,what do dogs want?,cats,dogs
"""
PEOPLE = """
templates = ["I like {plural_noun_phrase}.", "I'm {noun_phrase}."]
nouns = [["neighbour", "neighbours", "neutral"], ["man", "men", "male"], ["woman", "women", "female"]]
[axes]
height = ["short", "tall", "very tall"]
mood = ["merry", "sad"]
"""


@pytest.fixture
def pets(tmp_path):
    (tmp_path / "pets.csv").write_text(PETS)
    return tmp_path / "pets.csv"


@pytest.fixture
def people(tmp_path):
    (tmp_path / "people.toml").write_text(PEOPLE)
    return tmp_path / "people.toml"


@pytest.fixture(scope="module")
def bos_folder(tokenizer, tmp_path_factory):
    """A model whose tokenizer begins every text with a token."""
    words = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, bos_token="<eos>", eos_token="<eos>")
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", words.eos_token_id)]
    )
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    small_random(CONFIGS["llama"](len(words))).save_pretrained(folder)
    words.save_pretrained(folder)
    words.backend_tokenizer.post_processor = processors.Sequence([])
    return folder


def harness(model, folder, tasks, model_args="", **how):
    """What the harness itself gives: results by task, and samples."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import simple_parse_args_string

    args = f"pretrained={model},dtype=float32{model_args}"
    found = TaskManager(include_path=str(folder), include_defaults=False, metadata=simple_parse_args_string(args))
    how = dict(tasks=list(tasks), task_manager=found, device="cpu", batch_size=4, bootstrap_iters=0) | how
    with mock.patch("lm_eval.evaluator.add_env_info"):  # asks the machine for ten seconds
        done = simple_evaluate("hf", model_args=args, log_samples=True, **how)
    return done["results"], done["samples"]


def ours(model, corpus, **options):
    record = measure_lmb(str(model), None, corpus, outliers="all", **options)[0]
    pairs = unpack_pairs(record["values"]["pairs"])
    ppl = np.exp(np.stack([pairs["nll1"] / pairs["tokens1"], pairs["nll2"] / pairs["tokens2"]], 1))
    return record["values"], ppl.ravel()


# --- lm-evaluation-harness ---


def test_the_harness_gives_what_measure_gives(model_folder, pets, tmp_path):
    folder = tmp_path / "tasks"
    assert export_lm_eval(folder, corpus=pets) == ["own-pets"]
    results, samples = harness(model_folder, folder, ["own-pets"])
    values, perplexities = ours(model_folder, pets)
    theirs = [s["mean_perplexity"] for s in sorted(samples["own-pets"], key=lambda s: s["doc_id"])]
    assert np.allclose(theirs, perplexities, rtol=2e-6)
    assert results["own-pets"]["preference_share,none"] == values["share"]
    assert np.isclose(results["own-pets"]["t,none"], values["t"], rtol=1e-4)
    assert np.isclose(results["own-pets"]["mean_perplexity,none"], perplexities.mean(), rtol=2e-6)


def test_other_requests_would_not_be_the_same(model_folder, pets):
    """An empty context and `loglikelihood_rolling` score the first token as well, after one that begins a text."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(pretrained=str(model_folder), device="cpu", dtype="float32")
    text = pd.read_csv(pets).text1[0]
    ask = lambda kind, *args: Instance(request_type=kind, doc={}, arguments=args, idx=0)
    empty = lm.loglikelihood([ask("loglikelihood", "", text)])[0][0]
    rolling = lm.loglikelihood_rolling([ask("loglikelihood_rolling", text)])[0]
    ((context, rest, _),) = split_first(lm.tokenizer, [text])
    cut_ = lm.loglikelihood([ask("loglikelihood", context, rest)])[0][0]
    assert np.isclose(empty, rolling, rtol=2e-6) and not np.isclose(empty, cut_, rtol=1e-2)


def test_tokens_that_begin_a_text(bos_folder, pets, tmp_path):
    """With --special-tokens the harness puts it in front; without it has to be told not to."""
    special, plain = tmp_path / "special", tmp_path / "plain"
    export_lm_eval(special, corpus=pets, special_tokens=True)
    export_lm_eval(plain, corpus=pets)
    for folder, told, options in (
        (special, "", {"add_special_tokens": True}),
        (plain, ",add_bos_token=False", {}),
    ):
        results, samples = harness(bos_folder, folder, ["own-pets"], told)
        values, perplexities = ours(bos_folder, pets, **options)
        theirs = [s["mean_perplexity"] for s in sorted(samples["own-pets"], key=lambda s: s["doc_id"])]
        assert np.allclose(theirs, perplexities, rtol=2e-6), folder.name
        assert results["own-pets"]["preference_share,none"] == values["share"]
    with pytest.raises(ValueError, match="add_bos_token=False in --model_args"):
        harness(bos_folder, plain, ["own-pets"])


def test_half_a_pair_says_nothing(model_folder, pets, tmp_path):
    export_lm_eval(tmp_path / "tasks", corpus=pets)
    results, samples = harness(model_folder, tmp_path / "tasks", ["own-pets"], limit=7)
    _, perplexities = ours(model_folder, pets)
    three = perplexities[:6].reshape(3, 2)
    assert len(samples["own-pets"]) == 7
    assert results["own-pets"]["preference_share,none"] == (three[:, 0] < three[:, 1]).mean()


def test_prompts_in_the_harness(model_folder, people, tmp_path):
    folder = tmp_path / "tasks"
    assert export_lm_eval(folder, source=people) == ["own-height", "own-mood"]
    results, samples = harness(model_folder, folder, ["bias_prompts"])
    rows = comparable(prompts(people))
    scored = score_prompts(*load_model(model_folder, device="cpu"), rows, progress=False)
    shares = likelihood_bias(descriptor_tests(scored)).set_index("axis")["share"]
    for axis, some in scored.groupby("axis"):
        theirs = {s["doc"]["text"]: s["mean_perplexity"] for s in samples[f"own-{axis}"]}
        assert np.allclose([theirs[t] for t in some.text], some.perplexity, rtol=2e-6)
        assert results[f"own-{axis}"]["likelihood_bias,none"] == shares[axis]


def test_the_tag_runs_all_tasks_of_a_folder(model_folder, tmp_path):
    tasks = export_lm_eval(tmp_path / "tasks", ["race", "gender"], "queries")
    results, _ = harness(model_folder, tmp_path / "tasks", ["bias_pairs"], limit=4)
    assert set(tasks) <= set(results)


@pytest.mark.parametrize("nouns", [5, 12])
def test_shares_of_likelihood_bias(nouns):
    """The harness's side has SciPy alone; ours counts ranks for all pairs at once."""
    rng = np.random.default_rng(nouns)
    values = rng.normal(rng.normal(0, 1, 9)[:, None], 1, (9, nouns)).round(2)
    items = [("a", "t", f"d{i}", v) for i, row in enumerate(values) for v in row]
    assert likelihood_share(items) == (pair_tests(values)["p"] < 0.05).mean()


def test_texts_that_strings_cannot_cut(tokenizer):
    with pytest.raises(ValueError, match=r"first token of texts at \[1\] ends within a character"):
        split_first(tokenizer, ["the cats", "猫 sleep"])
    with pytest.raises(ValueError, match=r"texts at \[0\] have no second token"):
        split_first(tokenizer, ["t"])
    assert cut(tokenizer, ["the cats"], special_tokens=True) == split_first(tokenizer, ["the cats"])


def test_released_pairs_keep_their_origin(made_up, tmp_path):
    export_lm_eval(tmp_path / "tasks", ["race"], "redditbias")
    readme = (tmp_path / "tasks" / "README.md").read_text()
    assert "Content warning" in readme and "https://github.com/umanlp/RedditBias at commit" in readme
    assert "licence: MIT" in readme and "issue in the repository above" in readme
    rows = [json.loads(x) for x in (tmp_path / "tasks" / "redditbias-race.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * len(pair_parts(["race"], "redditbias")["redditbias-race"])
    assert rows[0].keys() == {"pair", "side", "text", "target"}


# --- datasets ---


def loaded(folder, *args, **options):
    import datasets

    return datasets.load_dataset(str(folder), *args, cache_dir=str(folder.parent / "cache"), **options)


def test_datasets_reads_the_folder(tmp_path):
    sizes = export_dataset(tmp_path / "pairs", ["race", "gender"], "queries")
    found = loaded(tmp_path / "pairs", "redditbias-race")
    assert {split: len(rows) for split, rows in found.items()} == sizes["redditbias-race"]
    pairs = pair_parts(["race"], "queries", "valid")["redditbias-race"]
    assert found["validation"].to_pandas().equals(pd.DataFrame(pairs))
    assert list(loaded(tmp_path / "pairs", "redditbias-gender", split="test").features) == list(pairs)


def test_datasets_reads_a_file_and_prompts_of_ones_own(pets, people, tmp_path):
    assert export_dataset(tmp_path / "pets", corpus=pets) == {"own-pets": {"test": 11}}
    assert loaded(tmp_path / "pets", split="test")["text1"][2] == "cats like the sun"
    export_dataset(tmp_path / "people", source=people, axes=["mood"])
    rows = loaded(tmp_path / "people", "own-mood", split="test").to_pandas()
    assert set(rows.descriptor) == {"merry", "sad"}
    card = (tmp_path / "people" / "README.md").read_text()
    assert card.startswith("---\nlicense: other\n") and "Content warning" in card


def test_card_of_a_release(made_up, tmp_path):
    sizes = export_dataset(tmp_path / "pairs", ["race"], "redditbias")
    assert set(sizes["redditbias-race"]) == {"train", "validation", "test"}
    card = (tmp_path / "pairs" / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n") and "umanlp/RedditBias at commit" in card
    assert len(loaded(tmp_path / "pairs", "redditbias-race", split="train")) == sizes["redditbias-race"]["train"]


def test_origins_name_each_repository_once(made_up):
    found = origins(pair_parts(["race", "gender"], "redditbias").values())
    assert len(found) == 1 and found["license"][0] == "MIT" and len(found["files"][0]) > 1


# --- the folder, and the command ---


def test_a_folder_is_written_again_but_no_other_is_touched(pets, tmp_path):
    export_lm_eval(tmp_path / "tasks", ["race", "gender"], "queries")
    export_lm_eval(tmp_path / "tasks", ["race"], "queries")
    assert not list((tmp_path / "tasks").glob("*gender*"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for export in (export_lm_eval, export_dataset):
        with pytest.raises(ValueError, match="other files in it"):
            export(tmp_path / "mine", ["race"], "queries")
        with pytest.raises(ValueError, match="is a file"):
            export(pets, ["race"], "queries")
        with pytest.raises(ValueError, match="axes choose among prompts: give their source"):
            export(tmp_path / "new", ["race"], "queries", axes=["mood"])
    with pytest.raises(ValueError, match="other files in it"):
        export_dataset(tmp_path / "tasks", ["race"], "queries")
    assert os.listdir(tmp_path / "mine") == ["letter.txt"]


@pytest.mark.parametrize("export", [export_lm_eval, export_dataset])
def test_an_export_that_was_stopped_is_made_whole(export, tmp_path, monkeypatch):
    """By the same call, which knows the folder as its own."""
    from redditbias_repro import records
    from redditbias_repro.show import export as module

    real, left = module.write_atomic, [None] * 2

    def write_atomic(*args):
        left.pop()  # `IndexError`: it is stopped
        return real(*args)

    with monkeypatch.context() as m, pytest.raises(IndexError):
        for where in (module, records):  # which writes tables
            m.setattr(where, "write_atomic", write_atomic)
        export(tmp_path / "out", ["race", "gender"], "queries")
    export(tmp_path / "out", ["race", "gender"], "queries")
    export(tmp_path / "whole", ["race", "gender"], "queries")
    files = lambda folder: sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_command(pets, people, tmp_path, capsys):
    assert main(["export", "lm-eval", "--corpus", str(pets), "--out", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert "Content warning. Tasks: own-pets" in printed and "--tasks bias_pairs" in printed
    assert main(["export", "dataset", "--prompts", str(people), "--out", str(tmp_path / "b")]) == 0
    assert "own-height" in capsys.readouterr().out
    call = ["export", "dataset", "--bias-type", "race", "--corpus", "queries", "--out", str(tmp_path / "c")]
    assert main(call) == 0 and "validation" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, said",
    [
        (["lm-eval", "--axes", "age"], "--axes does not go with `export lm-eval` of pairs"),
        (["lm-eval", "--prompts", "v1.0", "--corpus", "queries"], "--corpus does not go with"),
        (["dataset", "--split", "train"], "--split does not go with `export dataset`"),
        (["dataset", "--bias-type", "nothing"], "bias type 'nothing' is unknown"),
        (["lm-eval", "--prompts", "v9"], "v9"),
    ],
)
def test_command_refuses(options, said, tmp_path, capsys):
    assert main(["export", *options, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_prompts_by_the_documented_command(people, tmp_path, capsys):
    command = ["export", "lm-eval", "--prompts", str(people), "--axes", "height", "--out", str(tmp_path / "tasks")]
    assert main(command) == 0 and "bias_prompts" in capsys.readouterr().out
    assert main([*command, "--split", "valid"]) == 2 and "--split does not go with" in capsys.readouterr().err


def test_another_export_leaves_what_it_did_not_write(people, tmp_path):
    out = tmp_path / "tasks"
    export_lm_eval(out, source=people)
    (out / "results").mkdir()
    mine = [out / "my_group.yaml", out / "results" / "samples.jsonl"]
    for path in mine:
        path.write_text("mine")
    export_lm_eval(out, source=people, axes=["mood"])
    assert all(path.read_text() == "mine" for path in mine)
    assert [p.name for p in sorted(out.glob("*.jsonl"))] == ["own-mood.jsonl"]
    export_dataset(tmp_path / "data", source=people)
    (tmp_path / "data" / "own.parquet").write_text("mine")
    export_dataset(tmp_path / "data", source=people, axes=["mood"])
    assert sorted(p.name for p in (tmp_path / "data").rglob("*.parquet")) == ["own.parquet", "test.parquet"]


def test_texts_of_ones_own_have_no_licence_of_ours(tmp_path):
    words = '["lazy", "sly", "odd", "sad", "mad", "shy", "wet", "old"]'
    own = f'targets1 = ["cats"]\ntargets2 = ["dogs"]\npairs = [["cats", "dogs"]]\nattributes1 = {words}\n'
    (tmp_path / "mine.toml").write_text(own)
    export_dataset(tmp_path / "mine", [tmp_path / "mine.toml"], "queries")
    export_dataset(tmp_path / "paper", ["race"], "queries")
    assert "license: other" in (tmp_path / "mine" / "README.md").read_text()
    assert "license: apache-2.0" in (tmp_path / "paper" / "README.md").read_text()
