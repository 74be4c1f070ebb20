"""Results as other places collect them, by their own schemas, and records by ours."""

import json
import math
import subprocess
import sys
import zipfile

import jsonschema
import pytest
import yaml
from conftest import unavailable
from huggingface_hub import parse_eval_result_entries

from redditbias_repro.cli import main
from redditbias_repro.data.registry import cache_dir
from redditbias_repro.metrics.language_model import measure_lmb, measure_lmp
from redditbias_repro.records import read_json, write_record
from redditbias_repro.show.sharing import SCORES, every_eval_ever, share_results


@pytest.fixture(scope="session")
def schema():
    """Every Eval Ever's, from its package on PyPI, which wants a newer Python than we do."""
    folder = cache_dir() / "tests"
    name = "every_eval_ever-0.3.0-py3-none-any.whl"
    if not (folder / name).is_file():
        how = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.12", "--quiet", "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", "download", *how, "every-eval-ever==0.3.0"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            unavailable("the package every-eval-ever on PyPI", done.stderr[-300:])
    with zipfile.ZipFile(folder / name) as wheel:
        return json.loads(wheel.read("every_eval_ever/schemas/eval.schema.json"))


@pytest.fixture(scope="module")
def records(model_folder):
    return [
        *measure_lmb(str(model_folder), ["race"], "queries"),
        *measure_lmb(str(model_folder), ["gender"], "queries"),
    ]


@pytest.fixture
def kept(records, tmp_path):
    for r in records:
        write_record(r, tmp_path / "records")
    return tmp_path / "records"


def test_every_committed_record_goes_out_by_the_schema(schema, committed, tmp_path):
    whole = [read_json(p) for p in sorted((committed / "results").rglob("*.json")) if "bench" not in p.parts]
    paths, left = share_results(whole, tmp_path, "every-eval-ever", organization="us")
    assert len(paths) > 20 and "gen_bias" in left and not set(left) & SCORES.keys()
    for path in paths:
        shared = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.validate(shared, schema)
        ids = [r["evaluation_result_id"] for r in shared["evaluation_results"]]
        assert len(path.relative_to(tmp_path).parts) == 5 and ids
        for result in shared["evaluation_results"]:
            bounds, score = result["metric_config"], result["score_details"]["score"]
            assert float(bounds["min_score"]) <= score <= float(bounds["max_score"])


def test_records_are_as_their_schema_says(committed, records):
    """Committed ones, and those that --json prints."""
    schema = json.loads((committed / "redditbias_repro" / "resources" / "record.schema.json").read_text())
    checked = jsonschema.Draft202012Validator(schema)
    for record in [*(read_json(p) for p in sorted((committed / "results").rglob("*.json"))), *records]:
        checked.validate(json.loads(json.dumps(record)))


def test_scores_and_intervals_are_those_of_the_record(records):
    shared = every_eval_ever(records, "us", "first_party", at=7)
    values = records[0]["values"]
    gap = next(r for r in shared["evaluation_results"] if r["metric_config"]["metric_name"] == "gap")
    assert gap["score_details"]["score"] == values["gap"]
    ends = gap["score_details"]["uncertainty"]["confidence_interval"]
    assert (ends["lower"], ends["upper"], ends["confidence_level"]) == (values["gap_low"], values["gap_high"], 0.95)
    assert gap["score_details"]["uncertainty"]["num_samples"] == records[0]["n"]
    assert shared["model_info"]["id"].startswith("local/tiny-gpt2@") and shared["evaluation_id"].endswith("/7")
    assert shared["source_metadata"]["evaluator_relationship"] == "first_party"
    details = shared["model_info"]["additional_details"]
    assert details["weights_sha256"] == records[0]["provenance"]["model"]["weights_sha256"]


def test_the_hub_reads_what_is_written_for_it(records, tmp_path):
    paths, _ = share_results(records, tmp_path, "eval-results", "me/pairs")
    assert len(paths) == 3  # a file for each way of treating outliers
    for path in paths:
        assert path.parent.name == ".eval_results"
        entries = parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        tasks = [e.task_id for e in entries]
        assert len(set(tasks)) == len(tasks) == 6 and {e.dataset_id for e in entries} == {"me/pairs"}
        assert all("95 % interval" in e.notes for e in entries if "gap" in e.task_id)


def test_what_has_no_score_is_left_out(records, model_folder, tmp_path):
    broken = {**records[0], "values": {**records[0]["values"], "gap": math.nan, "share": None, "t": math.inf}}
    with pytest.raises(ValueError, match="none of 2 records"):
        share_results([broken, {**records[0], "metric": "gen_bias"}], tmp_path, "every-eval-ever")
    with pytest.raises(ValueError, match="format 'csv' is unknown"):
        share_results(records, tmp_path, "csv")
    with pytest.raises(ValueError, match="name its data set"):
        share_results(records, tmp_path, "eval-results")
    (tmp_path / "said.txt").write_text("they are lazy\nthe women are nurses\nthey are people\n")
    lmp = measure_lmp(str(model_folder), references=tmp_path / "said.txt")
    (path,), _ = share_results(lmp, tmp_path, "every-eval-ever")
    assert "perplexity_calibrated" in path.read_text()


@pytest.mark.parametrize(
    "name, start", [("x" * 5000, "x" * 71 + "-"), ("own/" + "x" * 5000, "x" * 71 + "-"), ("..", "none")]
)
def test_no_name_is_longer_than_file_systems_take(records, tmp_path, name, start):
    """And none leads out of the folder."""
    renamed = [{**r, "model": name} for r in records]
    for kind in ("every-eval-ever", "eval-results"):
        paths, _ = share_results(renamed, tmp_path / "out", kind, "me/pairs")
        assert all(p.is_file() and p.resolve().is_relative_to(tmp_path / "out") for p in paths)
        parts = {part for p in paths for part in p.relative_to(tmp_path / "out").parts}
        assert max(map(len, parts)) <= 85 and (kind == "eval-results" or any(part.startswith(start) for part in parts))


def test_no_text_goes_out(records, kept, tmp_path, capsys):
    """Of records alone: no query stands in what is shared."""
    from redditbias_repro.data.pairs import load_pairs

    assert main(["export", "every-eval-ever", "--results", str(kept), "--out", str(tmp_path / "out")]) == 0
    assert "6 records" in capsys.readouterr().out
    shared = "".join(p.read_text(encoding="utf-8") for p in (tmp_path / "out").rglob("*.json"))
    assert not any(text in shared for text in load_pairs("race", corpus="queries").text1)


@pytest.mark.parametrize(
    "given, said",
    [
        (["eval-results"], "name its data set"),
        (["eval-results", "--benchmark", "me/pairs", "--axes", "age"], "--axes does not go with `export eval-results`"),
        (["every-eval-ever", "--benchmark", "me/pairs"], "--benchmark does not go with"),
        (["every-eval-ever", "--model", "nosuch"], "there is no record of nosuch"),
        (["dataset", "--organization", "us"], "--organization does not go with"),
    ],
)
def test_wrong_options(given, said, kept, tmp_path, capsys):
    where = [] if given[0] == "dataset" else ["--results", str(kept)]
    assert main(["export", *given, *where, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
