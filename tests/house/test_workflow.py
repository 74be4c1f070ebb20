"""The workflow: what a run would do, and errors in its configuration."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import Forked, forking_papermill

from redditbias_repro.debias.losses import METHODS
from redditbias_repro.records import read_records, repo_root

ROOT = repo_root()

CODE = "import sys; from snakemake.cli import main; main(sys.argv[1:])"


def snakemake(*arguments, config=ROOT / "config" / "demo.yaml", real=False, env=()):
    """What `snakemake` says and its exit status, by a fork of a process that has imported it, or by a new one."""
    own = ["--snakefile", "workflow/Snakefile", "--configfile", str(config), "--cores", "1", "--nolock"]
    command = [*(own if config else []), *arguments]
    if real:
        program = [str(Path(sys.executable).with_name("snakemake"))]
        return subprocess.run(
            [*program, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    with tempfile.TemporaryDirectory() as d:
        run = Forked(Path(d, "log"), env, code=CODE, arguments=command)
        return subprocess.CompletedProcess(command, run.wait(), stdout=run.log.read_text(encoding="utf-8"))


@pytest.mark.offline  # the graph needs no release
@pytest.mark.parametrize(
    "profile,notebooks", [("demo", ["smollm2-135m-instruct"]), ("paper", ["microsoft--DialoGPT-small", "gpt2"])]
)
def test_dry_run(profile, notebooks):
    done = snakemake("--dry-run", "--forceall", "--printshellcmds", config=ROOT / "config" / f"{profile}.yaml")
    assert done.returncode == 0, done.stdout
    for name in notebooks:
        assert f"papermill nbs/papers/redditbias.ipynb runs/{profile}/redditbias/{name}.ipynb -p model" in done.stdout


@pytest.mark.parametrize(
    "change,says",
    [
        ("seed: zero", "'zero' is not of type 'integer'"),
        ("models: []", "non-empty"),
        ("model: gpt2", "'model' was unexpected"),
    ],
)
def test_the_configuration_is_checked(tmp_path, change, says):
    config = tmp_path / "own.yaml"
    key = change.split(":")[0]
    lines = [
        x for x in "profile: own\nmodels: [gpt2]\ncorpus: queries\nseed: 0".split("\n") if not x.startswith(key + ":")
    ]
    config.write_text("\n".join([*lines, change]))
    done = snakemake("--dry-run", config=config)
    assert done.returncode and says in done.stdout


def planned(config, *arguments):
    """Number of jobs by rule, of a dry run from nothing."""
    done = snakemake("--dry-run", "--forceall", *arguments, config=ROOT / "config" / f"{config}.yaml")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.split("Job stats:")[1].split("total")[0].splitlines()[3:]
    return {rule: int(n) for rule, n in (line.split() for line in lines if line.strip())}


@pytest.mark.offline
def test_what_the_grid_is():
    """Five types by five methods by three seeds.

    The search tries the paper's grid of 54 on each of three methods and five types, for two models."""
    assert planned("smollm") == {
        "fetch": 1,
        "search_run": 45,
        "chosen": 15,
        "configured": 1,
        "debias": 75,
        "task": 2 * 21,
        "prompt_axis": 13,
        "prompts": 1,
        "answers": 1,
        "paper": 1,
        "claims": 1,
        "all": 1,
    }
    assert planned("paper") == {
        "fetch": 2,
        "search_run": 2 * 5 * 3 * 54,
        "chosen": 2 * 15,
        "configured": 1,
        "debias": 2 * 25 * 3,
        "task": 2 * 2 * 21 * 3,
        "prompt_axis": 2 * 13,
        "prompts": 2,
        "answers": 2,
        "paper": 2,
        "all": 1,
    }
    runs = {"debias": 1, "prompt_axis": 1, "prompts": 1, "answers": 1, "responses": 1}
    assert planned("demo") == {"fetch": 1, "configured": 1, **runs, "paper": 1, "tables": 1, "claims": 1, "all": 1}
    assert planned("smollm-equation2") == {"fetch": 1, "search_run": 9, "chosen": 3, "debias": 15, "paper": 1, "all": 1}
    fairness = {"responses": 4, "debiased_model": 1, "model_responses": 2, "all": 1}
    assert planned("dialoguefairness") == fairness
    assert planned("smollm", "search") == {"fetch": 1, "search_run": 45, "chosen": 15, "search": 1}


def test_a_debiased_model_is_asked_beside_the_model_before(tmp_path):
    """It is trained first; with `resume`, what records have of both bias types is not asked again."""
    path = ROOT / "config" / "dialoguefairness.yaml"
    done = snakemake("--dry-run", "--forceall", "--printshellcmds", config=path)
    folder = "runs/dialoguefairness/responses/models/smollm2-135m-instruct-CDA-gender-0"
    command = (
        "redditbias debias --model smollm2-135m-instruct --method CDA --bias-type gender --corpus redditbias --seed 0"
    )
    assert f"{command} --out {folder} --replace" in done.stdout
    assert f"-r kinds '' -r model {folder} -p bias_type 'gender race'" in done.stdout
    assert done.stdout.index("-CDA-gender-0 trained\n") < done.stdout.index(f"-r model {folder}")
    four = "original CDA WER CDA+WER"  # of the ranker; Seq2Seq has a control more
    assert f"-p kinds ranker -p bias_type race -p methods '{four}' " in done.stdout
    assert f"-p kinds seq2seq -p bias_type race -p methods '{four} WER-apart CDA+WER-apart' " in done.stdout
    (kept,) = (ROOT / "results" / "dialoguefairness").rglob("smollm2-135m-instruct/CDA--gender/*.json")
    config = yaml.safe_load(path.read_text()) | {"resume": True}
    config["responses"] |= {"results": str(tmp_path / "results"), "kinds": [], "models": []}
    (tmp_path / "results").mkdir()
    for bias_type, left in (("gender", 1), ("race", 0)):
        record = json.loads(kept.read_text()) | {"bias_type": bias_type}
        (tmp_path / "results" / f"{bias_type}.json").write_text(json.dumps(record))
        own = tmp_path / "own.yaml"
        own.write_text(yaml.safe_dump(config))
        done = snakemake("--dry-run", config=own)
        assert done.returncode == 0 and done.stdout.count("-CDA-gender-0 trained\n") == left, done.stdout
    config["responses"]["debiased"][0]["bias_type"] = "nobody"
    own.write_text(yaml.safe_dump(config))
    done = snakemake("--dry-run", config=own)
    assert done.returncode and "nobody" in done.stdout


def test_the_grid_of_chinese_categories():
    """Four categories by five methods and two controls; three are searched. Special tokens reach every measurement."""
    runs = {"search_run": 4 * 3 * 3, "chosen": 4 * 3, "configured": 1, "debias": 4 * 7}
    assert planned("chbias") == {"fetch": 1, **runs, "paper": 1, "all": 1}
    done = snakemake("--dry-run", "--forceall", "--printshellcmds", config=ROOT / "config" / "chbias.yaml")
    commands = [line for line in done.stdout.splitlines() if "papermill" in line]
    assert len(commands) == 36 + 28 + 1 and all("-p special_tokens True" in c for c in commands)
    assert sum("-p bf16 True" in c for c in commands) == 36 + 28
    (one,) = (c for c in commands if "chbias--age-CTDA-0.ipynb" in c)
    assert "-f runs/chbias/chosen/configured.yaml -p method CTDA -p bias_type chbias/age -p model gemma-3-270m" in one
    assert "-p lmp_sentences 500" in one and "-r references kdconv" in one
    assert "-p corpus chbias" in one and "-p attributes False" in one and "-p results_dir results" in one
    (page,) = (c for c in commands if "nbs/papers/" in c)
    assert "papermill nbs/papers/chbias.ipynb runs/chbias/chbias/gemma-3-270m.ipynb -p model gemma-3-270m" in page
    assert "redditbias fetch chbias " in done.stdout


def test_answers_of_the_demo_and_ways_to_ask(tmp_path):
    """Judged by a file of words, outside of committed figures; how prompts are read reaches the notebook."""
    commands = lambda config: [
        line
        for line in snakemake("--dry-run", "--forceall", "--printshellcmds", config=config).stdout.splitlines()
        if "holisticbias_answers.ipynb" in line and "papermill" in line
    ]
    (demo,) = commands(ROOT / "config" / "demo.yaml")
    for part in ("-r style config/words.toml", "-r frequency ''", "-p tune False", "-p results_dir runs/demo/results",
                 "-p figures_dir runs/demo/answers/smollm2-135m-instruct"):  # fmt: skip
        assert part in demo, demo
    own = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    own["answers"] |= {"chat": False, "system": "Be kind, please.", "turn_end": ""}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    (command,) = commands(tmp_path / "own.yaml")
    assert "-p chat False -r system 'Be kind, please.' -r turn_end ''" in command


def own_profile(path, **sections):
    """A profile with nothing but some sections, written."""
    profile = {"profile": "own", "models": ["smollm2-135m-instruct"], "papers": [], "corpus": "queries", "seed": 0}
    path.write_text(yaml.safe_dump(profile | sections))
    return path.with_suffix("")


def test_readings_and_decoding_of_prompts(tmp_path):
    """A masked model is fetched as such and scored once, in the notebook; personas and beams reach the commands."""
    run = lambda path: snakemake("--dry-run", "--forceall", "--printshellcmds", config=path.with_suffix(".yaml"))
    spans = {"source": "paper", "axes": ["nonce", "age"], "reading": "span", "results": "x"}
    masked = run(own_profile(tmp_path / "masked.yaml", models=["roberta-large"], prompts=spans))
    assert masked.returncode == 0 and "fetch --model roberta-large --kind masked" in masked.stdout, masked.stdout
    assert "-p reading span" in masked.stdout and "prompt_axis " not in masked.stdout
    chat = run(own_profile(tmp_path / "chat.yaml", prompts=spans | {"reading": "chat"}))
    assert chat.stdout.count("--reading chat") == 2 and "--kind" not in chat.stdout
    asked = {"source": "paper", "nouns": 1, "max_new_tokens": 40, "tune": False, "tune_answers": 0, "results": "x"}
    asked |= {"tune_templates": 0, "seed": 17, "num_beams": 10, "personas": "my people.txt"}
    told = spans | {"reading": "answer", "personas": "my people.txt"}
    both = run(own_profile(tmp_path / "both.yaml", prompts=told, answers=asked))
    assert both.stdout.count("--reading answer") == 2 == both.stdout.count("--personas 'my people.txt'")
    assert "-p reading answer -r personas 'my people.txt'" in both.stdout
    assert "-p num_beams 10 -r personas 'my people.txt'" in both.stdout
    paper = run(ROOT / "config" / "paper.yaml")
    (command,) = (x for x in paper.stdout.splitlines() if "answers.ipynb" in x and "papermill" in x and "gpt2" in x)
    assert "-p num_beams 10" in command and "-p nouns 16 -p max_new_tokens 40" in command


def test_only_what_was_asked_in_the_same_way_is_left_out(tmp_path):
    """By committed records: v1.0, reading "sentence"; answers by greedy decoding, two nouns, seed 17."""
    smollm = yaml.safe_load((ROOT / "config" / "smollm.yaml").read_text())
    rules = ("prompts", "answers")

    def left(name, **change):
        (section,) = change
        path = own_profile(tmp_path / f"{name}.yaml", **{section: smollm[section] | change[section]}, resume=True)
        done = snakemake("--dry-run", "--forceall", config=path.with_suffix(".yaml"))
        assert done.returncode == 0, done.stdout
        return any(re.search(rf"^{rule} +1$", done.stdout, re.MULTILINE) for rule in rules)

    (five,) = {tuple(t) for t in read_records(corpus="holisticbias-v1.1", metric="likelihood_bias")["templates"]
               if len(t) == 5 and "difference" not in t}  # fmt: skip
    assert not left("done", prompts={}) and not left("judged", answers={})
    assert not left("five", prompts={"source": "v1.1", "templates": [*five]})
    assert not left("untuned", answers={"tune": False, "tune_answers": 0, "tune_templates": 0})
    changes = [{"source": "v1.1"}, {"reading": "answer"}, {"templates": [*five]}]
    changes += [{"source": "v1.1", "templates": [*five[:4], "I love {plural_noun_phrase}."]}]
    for i, change in enumerate(changes):
        assert left(f"prompts{i}", prompts=change), change
    changes = [{"source": "v1.1"}, {"nouns": 3}, {"max_new_tokens": 30}, {"num_beams": 3}, {"seed": 0}]
    changes += [{"system": "Hi."}, {"chat": False}, {"axes": ["age"]}, {"style": "config/words.toml"}]
    changes += [{"tune_templates": 5}, {"tune_answers": 2000}, {"personas": "people.txt"}]
    for i, change in enumerate(changes):
        assert left(f"answers{i}", answers=change), change


def test_what_records_say_was_measured_is_left_out():
    left = planned("smollm", "--config", "resume=True")
    trained = read_records(metric="training")
    ours = trained[trained.method.isin(["LMD", "ADD", "HD", "CDA", "FT"]) & (trained.model == "smollm2-135m-instruct")]
    assert left.get("debias", 0) >= 75 - len(ours) and left.get("task", 0) < 2 * 21


def test_make_goes_on_with_a_part():
    """What `make full RESUME=1 SNAKEMAKE=search` calls: the target is no entry of the configuration."""
    make = ["make", "--dry-run", "full", "RESUME=1", "SNAKEMAKE=search"]
    told = subprocess.run(make, cwd=ROOT, capture_output=True, text=True).stdout
    command = re.search(r"reproduce\.py (--configfile [^|]*)\|\|", told)[1].split()
    assert command[-1] == "search" and "resume=True" in command
    done = snakemake("--dry-run", "--snakefile", "workflow/Snakefile", "--nolock", *command, config=None)
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_paper_profile_searches_the_papers_grid():
    search = yaml.safe_load((ROOT / "config" / "paper.yaml").read_text())["debias"]["search"]
    wanted = {
        "batch_size": [4, 8, 16],
        "grad_accum": [1, 5, 8],
        "lambda_lm": [0.001, 0.01],
        "lambda_d": [10, 50, 100],
    }  # §5.1
    assert {k: search[k] for k in wanted} == wanted


def test_any_part_can_be_asked_for():
    assert planned("smollm", "runs/smollm/debias/smollm2-135m-instruct/gender-CDA-0.ipynb") == {
        "fetch": 1,
        "configured": 1,
        "debias": 1,
    }
    own = planned("smollm", "runs/smollm/debias/smollm2-135m-instruct/gender-HD-1.ipynb")
    assert own == {"fetch": 1, "search_run": 3, "chosen": 1, "debias": 1}
    borrowed = planned(
        "smollm-equation2", "runs/smollm-equation2/debias/smollm2-135m-instruct/gender-HD-equation2-0.ipynb"
    )
    assert borrowed == {"fetch": 1, "search_run": 3, "chosen": 1, "debias": 1}, (
        "gender takes what religion1's search chose"
    )


def test_a_cluster_takes_the_grid_unchanged():
    """Dry run with Snakemake's slurm plugin: the same jobs."""
    done = snakemake(
        "--dry-run",
        "--forceall",
        "--executor",
        "slurm",
        "--jobs",
        "20",
        "--default-resources",
        "slurm_account=a",
        "runtime=120",
        "--set-resources",
        "debias:gpu=1",
        "search_run:gpu=1",
        config=ROOT / "config" / "smollm.yaml",
    )
    assert done.returncode == 0 and "debias" in done.stdout, done.stdout


def test_a_debiasing_run_gets_its_parameters():
    done = snakemake("--dry-run", "--forceall", "--printshellcmds", config=ROOT / "config" / "smollm.yaml")
    command = next(line for line in done.stdout.splitlines() if "gender-HD-0.ipynb" in line and "papermill" in line)
    for part in (
        "-f runs/smollm/chosen/smollm2-135m-instruct/gender-HD.yaml",
        "-p method HD -p bias_type gender",
        "-p epochs 2 -p phrases 0 -p lmp_sentences 2000",
        "-p results_dir results",
    ):
        assert part in command, command


@pytest.mark.parametrize(
    "change,says",
    [
        ("methods: [HDD]", "'HDD' is not one of"),
        ("epochs: 0", "less than or equal to the minimum of 0"),
        ("lmp_sentence: 3", "'lmp_sentence' was unexpected"),
        ("bias_types: [height]", "bias type 'height' is unknown: expected one of"),
        ("bias_types: [nowhere.toml]", "nowhere.toml"),
    ],
)
def test_the_configuration_of_the_grid_is_checked(tmp_path, change, says):
    lines = ["profile: own", "models: [gpt2]", "corpus: queries", "seed: 0", "debias:"]
    grid = [
        "bias_types: [race]",
        "methods: [HD]",
        "seeds: [0]",
        "epochs: 1",
        "phrases: 0",
        "lmp_sentences: 0",
        "results: x",
    ]
    grid = [x for x in grid if not x.startswith(change.split(":")[0] + ":")] + [change]
    (tmp_path / "own.yaml").write_text("\n".join([*lines, *("  " + x for x in grid)]))
    done = snakemake("--dry-run", config=tmp_path / "own.yaml")
    assert done.returncode and says in done.stdout, done.stdout


def test_a_model_before_and_after_talks():
    """A debiased model is trained first; its folder and its names reach the notebook."""
    assert planned("smollm", "runs/smollm/dst/smollm2-135m-instruct/all-baseline-0.ipynb") == {"fetch": 1, "task": 1}
    assert planned("smollm", "runs/smollm/crg/smollm2-135m-instruct/race-CDA-0.ipynb") == {
        "fetch": 1,
        "configured": 1,
        "debias": 1,
        "task": 1,
    }
    done = snakemake("--dry-run", "--forceall", "--printshellcmds", "dialogue", config=ROOT / "config" / "smollm.yaml")
    command = next(
        line
        for line in done.stdout.splitlines()
        if "dst/smollm2-135m-instruct/gender-HD-0.ipynb" in line and "papermill" in line
    )
    for part in (
        "-p model runs/smollm/models/smollm2-135m-instruct/gender-HD-0 ",
        "-p train_dialogues 100",
        "-p results_dir results",
    ):
        assert part in command, command


def test_a_small_grid_from_search_to_records(made_up, model_folder, tmp_path):
    """For real, with a small model: search, choice, a run with what was chosen, in kernels as a user's; called again,
    nothing is done."""
    runs = ROOT / "runs" / "test-grid"
    shutil.rmtree(runs, ignore_errors=True)
    search = (
        "{bias_types: [race], methods: [HD], batch_size: [8], grad_accum: [1], lambda_lm: [0.01], lambda_d: [1, 100], "
        "lmp_sentences: 20, max_lmp_rise: 10}"
    )
    (tmp_path / "own.yaml").write_text(f"""profile: test-grid
models: [{model_folder}]
corpus: redditbias
seed: 0
threads: 1
debias:
  {{bias_types: [race], methods: [HD], seeds: [0], epochs: 1, phrases: 16, lmp_sentences: 20,
    results: {tmp_path}/results, search: {search}}}
""")
    slug = re.sub(r"[^\w.-]+", "--", str(model_folder))
    target = f"runs/test-grid/debias/{slug}/race-HD-0.ipynb"
    try:
        (tmp_path / "bin").mkdir()
        with forking_papermill(tmp_path / "bin") as env:
            done = snakemake("search", config=tmp_path / "own.yaml", env=env)
        assert done.returncode == 0, done.stdout[-6000:]
        done = snakemake(target, config=tmp_path / "own.yaml", real=True)
        assert done.returncode == 0 and "search_run" not in done.stdout, done.stdout[-6000:]
        records = read_records(tmp_path / "results")
        tried = records[records.metric == "search"].set_index("lambda_d")
        chosen = tried.index[tried.chosen.astype(bool)].item()
        assert set(tried.index) == {1.0, 100.0} and abs(tried.t[chosen]) == tried.t.abs().min()
        training = records[(records.metric == "training")].provenance.item()["training"]
        assert training["lambda_d"] == chosen and training["batch_size"] == 8 and training["sentences"] == 16
        assert (
            not list((runs / "search").rglob("*.safetensors"))
            and len(list((runs / "models").rglob("*.safetensors"))) == 1
        )
        assert "Nothing to be done" in snakemake(target, config=tmp_path / "own.yaml").stdout
    finally:
        shutil.rmtree(runs, ignore_errors=True)


@pytest.mark.offline
def test_a_job_for_each_dump_file(tmp_path):
    """Months are scanned side by side, then merged; for real, on two small dumps."""
    runs = ROOT / "runs" / "test-retrieval"
    shutil.rmtree(runs, ignore_errors=True)
    own = tmp_path / "pets.toml"
    own.write_text(
        'targets1 = ["cats are"]\ntargets2 = ["dogs are"]\npairs = [["cats", "dogs"]]\n'
        'attributes1 = ["laz*"]\nverbs = ["are"]\n'
    )
    for month, ids in (("01", (1, 2)), ("02", (2, 3))):
        lines = [
            json.dumps(
                {
                    "id": str(i),
                    "body": f"cats are lazy number {'abc'[i - 1]}",
                    "created_utc": 1_500_000_000,
                    "author": "x",
                    "subreddit": "pets",
                }
            )
            for i in ids
        ]
        (tmp_path / f"RC_2019-{month}.ndjson").write_text("\n".join(lines))
    (tmp_path / "own.yaml").write_text(f"""profile: test-retrieval
models: [x]
corpus: auto
seed: 0
retrieval: {{dumps: "{tmp_path}/RC_*.ndjson", bias_types: ["{own}"], out: "{tmp_path}/corpus"}}
""")
    (tmp_path / "bin").mkdir()
    try:
        with forking_papermill(tmp_path / "bin") as env:
            done = snakemake("retrieve", config=tmp_path / "own.yaml", env=env)
        assert done.returncode == 0, done.stdout[-6000:]
        assert sorted(p.name for p in (runs / "scanned").glob("*.parquet")) == [
            "RC_2019-01.ndjson.parquet",
            "RC_2019-02.ndjson.parquet",
        ]
        phrases = pd.read_csv(tmp_path / "corpus" / "pets" / "phrases.csv", dtype=str)
        assert phrases.id.tolist() == ["1", "2", "3"] and phrases.phrase[0] == "cats are lazy number a"
        assert "Nothing to be done" in snakemake("retrieve", config=tmp_path / "own.yaml").stdout
    finally:
        shutil.rmtree(runs, ignore_errors=True)
    planned_jobs = snakemake("retrieve", "--dry-run", "--forceall", config=tmp_path / "own.yaml")
    assert re.search(r"scan +2", planned_jobs.stdout) and re.search(r"phrases +1", planned_jobs.stdout)


def test_methods_of_the_schema_are_those_of_the_losses():
    schema = yaml.safe_load((ROOT / "workflow" / "config.schema.yaml").read_text())
    assert schema["$defs"]["methods"]["items"]["enum"] == list(METHODS)


def test_other_bias_types_in_paths(tmp_path, model_folder):
    """Another paper's, and a file: their names have slashes and dots, their paths have not."""
    own = tmp_path / "my-pets.toml"
    own.write_text(
        'targets1 = ["cats are"]\ntargets2 = ["dogs are"]\npairs = [["cats", "dogs"]]\n'
        'attributes1 = ["laz*"]\nverbs = ["are"]\n'
    )
    lines = ["profile: own", f"models: [{model_folder}]", "corpus: queries", "seed: 0", "debias:"]
    grid = [
        f"bias_types: [redditbias/race, {own}]",
        "methods: [HD-equation2, CTDA]",
        "seeds: [0]",
        "epochs: 1",
        "phrases: 0",
        "lmp_sentences: 0",
        "results: x",
    ]
    (tmp_path / "own.yaml").write_text("\n".join([*lines, *("  " + x for x in grid)]))
    done = snakemake("--dry-run", "--printshellcmds", config=tmp_path / "own.yaml")
    assert done.returncode == 0, done.stdout
    for name, given in (("redditbias--race-HD-equation2-0", "redditbias/race"), ("my-pets-CTDA-0", str(own))):
        command = next(line for line in done.stdout.splitlines() if f"/{name}.ipynb" in line and "papermill" in line)
        assert f"-p bias_type {given} " in command, command


def test_dumps_that_are_not_there():
    done = snakemake("retrieve", "--dry-run", config=ROOT / "config" / "retrieval.yaml")
    assert done.returncode and "there are no such files" in done.stdout
