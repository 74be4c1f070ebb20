"""What lm-evaluation-harness and Inspect wrote, compared sample by sample.

Inspect's logs are real ones of made-up sums (tests/data/logs/make.py); the harness writes its own here."""

import json
import math
import shutil
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import stats

from redditbias_repro.cli import main
from redditbias_repro.data.logs import _inspect_log, read_log
from redditbias_repro.metrics.compare import compare_logs
from redditbias_repro.models.loading import load_model
from redditbias_repro.stats.multiplicity import holm

INSPECT = [Path(__file__).parents[1] / "data" / "logs" / f"{name}.eval" for name in "ab"]
TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: "{{{{c}}}}"
doc_to_target: 0
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""


@pytest.fixture(scope="module")
def harness_logs(model_folder, tmp_path_factory):
    """Folders of `--log_samples`, of two small random models on forty made-up questions."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    folder = tmp_path_factory.mktemp("logs")
    questions = [
        {"q": f"{a} and {b}", "c": [f" {a + b}", f" {a - b}"], "group": f"g{a}"} for a in range(8) for b in range(5)
    ]
    (folder / "sums.json").write_text("\n".join(map(json.dumps, questions)))
    (folder / "tasks").mkdir()
    (folder / "tasks" / "sums.yaml").write_text(TASK.format(file=folder / "sums.json"))
    model, words = load_model(model_folder)
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.weight.neg_()
    for part in (model, words):
        part.save_pretrained(folder / "other")
    tasks, out = TaskManager(include_path=str(folder / "tasks"), include_defaults=False), []
    for name in (model_folder, folder / "other"):
        tracker = EvaluationTracker(output_path=str(folder / "out" / name.name))
        how = dict(tasks=["sums"], task_manager=tasks, device="cpu", batch_size=8, bootstrap_iters=0, log_samples=True)
        with mock.patch("lm_eval.evaluator.add_env_info"):
            found = simple_evaluate("hf", model_args=f"pretrained={name}", evaluation_tracker=tracker, **how)
        samples = found.pop("samples")
        tracker.save_results_aggregated(found, samples)
        tracker.save_results_samples("sums", samples["sums"])
        out.append((folder / "out" / name.name, found["results"]["sums"]))
    return out


def right(*values, name="samples_made_2026-01-01T00-00-00.0.jsonl", folder, group=lambda i: i // 4):
    rows = [
        {"doc_id": i, "doc": {"group": group(i)}, "doc_hash": f"h{i}", "metrics": ["acc"], "acc": v}
        for i, v in enumerate(values)
    ]
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(map(json.dumps, rows)))
    return folder / name


# --- logs that the tools wrote ---


def test_what_the_harness_wrote(harness_logs):
    (a, said_a), (b, said_b) = harness_logs
    table = compare_logs(a, b).set_index("metric")
    assert list(table.index) == ["acc", "acc_norm"] and set(table["n"]) == {40} and set(table["task"]) == {"sums"}
    for metric in table.index:
        assert table["mean_a"][metric] == pytest.approx(said_a[f"{metric},none"])
        assert table["mean_b"][metric] == pytest.approx(said_b[f"{metric},none"])
    assert table["a"].iloc[0] == "tiny-gpt2" and table["b"].iloc[0] == "other"
    one, two = (read_log(folder).query("metric == 'acc'")["value"].to_numpy() for folder in (a, b))
    assert len(set(two - one)) > 1
    test = stats.ttest_rel(two, one)
    row = table.loc["acc"]
    assert row["t"] == pytest.approx(test.statistic) and row["p_t"] == pytest.approx(test.pvalue)
    assert (row["low"], row["high"]) == pytest.approx(tuple(test.confidence_interval()))
    with_groups = compare_logs(a, b, cluster="group").set_index("metric").loc["acc"]
    assert with_groups["n_clusters"] == 8 and with_groups["p_t"] != pytest.approx(row["p_t"])


def test_what_inspect_wrote():
    a, b = map(read_log, INSPECT)
    about, samples = _inspect_log(INSPECT[0])
    said = {m["name"]: m["metrics"]["accuracy"]["value"] for m in about["results"]["scores"]}
    for metric in ("match", "includes"):
        assert a.query("metric == @metric")["value"].mean() == pytest.approx(said[metric])
    assert len(samples) == 32 and len(a) == 32 and a.attrs == {"model": "mockllm/model", "left_out": []}
    table = compare_logs(*INSPECT)
    assert table["n"].tolist() == [16, 16] and (table["p_holm"] == 2 * table["p"]).all()
    by_first = compare_logs(*INSPECT, cluster="first")
    assert by_first["n_clusters"].tolist() == [4, 4] and len(b) == 32


def test_inspect_as_json(tmp_path):
    """The same log as `inspect log convert --to json` has it."""
    about, samples = _inspect_log(INSPECT[0])
    (tmp_path / "a.json").write_text(json.dumps({**about, "samples": samples}))
    assert read_log(tmp_path / "a.json").equals(read_log(INSPECT[0]))


# --- statistics ---


def test_right_and_wrong_are_tested_as_mcnemar_does(tmp_path):
    one = right(*[1.0] * 20 + [0.0] * 20, folder=tmp_path / "a")
    two = right(*[1.0] * 18 + [0.0] * 2 + [1.0] * 11 + [0.0] * 9, folder=tmp_path / "b")
    (row,) = compare_logs(one, two).to_dict("records")
    exact = stats.binomtest(11, 13).pvalue  # of 13 samples on which they differ
    assert row["p_flip"] == pytest.approx(exact) and row["p"] == max(exact, row["p_t"]) and row["verdict"] == "more"
    assert row["difference"] == pytest.approx(9 / 40) and row["a"] == "a"
    (back,) = compare_logs(two, one).to_dict("records")
    assert back["verdict"] == "less" and back["difference"] == -row["difference"]


def test_the_smallest_difference_is_found_as_often_as_said(tmp_path):
    """Samples that differ by what is said to be found in four of five cases."""
    rng, n = np.random.default_rng(0), 60
    before = rng.normal(size=n)
    one = right(*before, folder=tmp_path / "a")
    two = right(*(before + rng.normal(scale=0.5, size=n)), folder=tmp_path / "b")
    row = compare_logs(one, two).iloc[0]
    spread = row["smallest"] / (stats.t.ppf(0.975, n - 1) + stats.t.ppf(0.8, n - 1)) * np.sqrt(n)
    drawn = row["smallest"] + rng.normal(scale=spread, size=(4000, n))
    found = (stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05).mean()
    assert found == pytest.approx(0.8, abs=0.02)


def test_samples_that_belong_together_count_once(tmp_path):
    """Four copies of each sample say no more than one."""
    rng = np.random.default_rng(1)
    own, other = rng.normal(size=12), rng.normal(size=12)
    alone = [right(*x, folder=tmp_path / n, group=lambda i: i) for n, x in (("a", own), ("b", other))]
    copied = [right(*np.repeat(x, 4), folder=tmp_path / n) for n, x in (("c", own), ("d", other))]
    single, many = compare_logs(*alone).iloc[0], compare_logs(*copied, cluster="group").iloc[0]
    assert many["t"] == pytest.approx(single["t"]) and many["n"] == 48 and many["n_clusters"] == 12


def test_correction_is_over_all_rows(tmp_path):
    rng = np.random.default_rng(2)
    for name in "ab":
        for task in ("x", "y", "z"):
            right(*rng.normal(size=30), name=f"samples_{task}_2026-01-01T00-00-00.0.jsonl", folder=tmp_path / name)
    table = compare_logs(tmp_path / "a", tmp_path / "b")
    assert table["task"].tolist() == ["x", "y", "z"] and np.allclose(table["p_holm"], holm(table["p"]))


def test_what_never_differs_has_no_interval(tmp_path):
    one, two, all_better = (
        right(*x, folder=tmp_path / n) for n, x in (("a", [0.0] * 40), ("b", [0.0] * 40), ("c", [1.0] * 40))
    )
    (same,) = compare_logs(one, two, margin=0.1).to_dict("records")
    assert same["verdict"] == "undetermined" and np.isnan(same["low"]) and same["p"] == 1
    (better,) = compare_logs(one, all_better).to_dict("records")
    assert better["verdict"] == "more" and 0 < better["p"] < 1e-3


def test_one_sample_is_no_test(tmp_path):
    one, two = (right(x, folder=tmp_path / n) for n, x in (("a", 0.0), ("b", 1.0)))
    with pytest.raises(ValueError, match="share only one sample of each task"):
        compare_logs(one, two)


def test_equally_needs_a_margin(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.normal(size=400)
    one = right(*x, folder=tmp_path / "a")
    two = right(*(x + rng.normal(scale=0.01, size=400)), folder=tmp_path / "b")
    assert compare_logs(one, two)["verdict"].tolist() == ["undetermined"]
    assert compare_logs(one, two, margin=0.05)["verdict"].tolist() == ["equally"]


# --- what is left out, and what is none ---


def test_the_newest_samples_of_a_task_count(tmp_path):
    right(0.0, 0.0, folder=tmp_path / "a")
    right(1.0, 1.0, folder=tmp_path / "a", name="samples_made_2026-02-01T00-00-00.0.jsonl")
    assert read_log(tmp_path / "a")["value"].tolist() == [1, 1]


def test_what_only_one_has_is_said(tmp_path):
    one = right(0.0, 1.0, 1.0, folder=tmp_path / "a")
    two = right(0.0, 1.0, folder=tmp_path / "b")
    table = compare_logs(one, two)
    assert table.attrs["left_out"] == ["1 samples of made (only a)"] and table["n"].tolist() == [2]


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    rows = [{"doc_id": i, "metrics": ["acc", "ppl"], "acc": 1.0 * i, "ppl": [1, 2]} for i in range(3)]
    (tmp_path / "samples_x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_log(tmp_path / "samples_x.jsonl")
    assert set(found["metric"]) == {"acc"} and found.attrs["left_out"] == ["ppl of x"]


def test_values_whose_squares_overflow_are_left_out(tmp_path):
    for name in "ab":
        rows = [{"doc_id": i, "metrics": ["acc", "ppl"], "acc": 1.0 * i, "ppl": 1e300 * i} for i in range(3)]
        (tmp_path / f"samples_{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_log(tmp_path / "samples_a.jsonl").attrs["left_out"] == ["ppl of a"]
    (tmp_path / "samples_a.jsonl").write_text(json.dumps({"doc_id": 0, "metrics": ["ppl"], "ppl": 1e300}))
    with pytest.raises(ValueError, match=r"no sample whose score is a number of 1e\+100 at most"):
        read_log(tmp_path / "samples_a.jsonl")


def test_a_line_ends_where_json_lines_do(tmp_path):
    """The harness writes other separators of lines as they are; what is not finite is no number."""
    rows = [
        {"doc_id": i, "resps": "a\u2028b\x85c", "metrics": ["acc", "ppl"], "acc": 1.0, "ppl": math.inf}
        for i in range(3)
    ]
    text = "\r\n".join(json.dumps(r, ensure_ascii=False) for r in rows)
    (tmp_path / "samples_x.jsonl").write_text(text, encoding="utf-8", newline="")
    found = read_log(tmp_path / "samples_x.jsonl")
    assert len(found) == 3 and found.attrs["left_out"] == ["ppl of x"]


def test_filters_are_rows_of_their_own(tmp_path):
    rows = [{"doc_id": 0, "filter": f, "metrics": ["exact_match"], "exact_match": 1.0} for f in ("strict", "flexible")]
    (tmp_path / "samples_x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_log(tmp_path / "samples_x.jsonl")["metric"].tolist() == ["exact_match,strict", "exact_match,flexible"]


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.jsonl", "", "no sample whose score is a number"),
        ("a.jsonl", "{", "line 1 is not a sample"),
        ("a.jsonl", "[]", "line 1 is not a sample"),
        ("a.jsonl", '{"doc_id": 1}\n{"x": 2}', "line 2 is not a sample"),
        ("a.jsonl", '{"doc_id": 1, "metrics": ["acc"]}', "no sample whose score is a number"),
        ("a.json", "{}", "not an Inspect log"),
        (
            "a.json",
            '{"samples": [], "status": "error", "eval": {"model": "m"}}',
            "the evaluation of m ended with status error and 0 samples",
        ),
        ("a.json", "[1]", "not an Inspect log"),
        ("a.eval", "no zip", "not an Inspect log"),
        ("a.jsonl", "[" * 9999, "not a readable log"),
        ("a.jsonl", "{}", r"line 1 is not a sample of lm-evaluation-harness \(it lacks doc_id\)"),
        ("a.jsonl", "[1]", r"not a sample of lm-evaluation-harness \(it holds something else\)"),
        ("a.json", '{"samples": []}', r"not an Inspect log \(it lacks status\)"),
        ("a.jsonl", '{"doc_id": 1, "metrics": 5}', "not a readable log"),
        (
            "a.json",
            '{"samples": [1], "status": "success", "eval": {"model": "m", "task": "t"}}',
            "a sample has no id",
        ),
        ("a.json", '{"samples": [{}], "status": "success", "eval": {"model": "m"}}', "no names of model and task"),
    ],
)
def test_what_is_no_log(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=said):
        read_log(tmp_path / name)


def test_a_torn_log(tmp_path):
    whole = INSPECT[0].read_bytes()
    for n in (10, 1000, len(whole) - 10):
        (tmp_path / "a.eval").write_bytes(whole[:n])
        with pytest.raises(ValueError, match="not an Inspect log"):
            read_log(tmp_path / "a.eval")
    with zipfile.ZipFile(tmp_path / "b.eval", "w") as archive:
        archive.writestr("other.json", "{}")
    with pytest.raises(ValueError, match="not an Inspect log"):
        read_log(tmp_path / "b.eval")
    with pytest.raises(ValueError, match="no samples_"):
        read_log(tmp_path)


def test_other_versions_of_a_task(tmp_path):
    one = right(0.0, 1.0, folder=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    two = tmp_path / "b" / one.name
    two.write_text(two.read_text().replace("h1", "other"))
    with pytest.raises(ValueError, match="the same name but different texts"):
        compare_logs(one, two)
    with pytest.raises(ValueError, match="share no sample"):
        compare_logs(one, INSPECT[0])
    with pytest.raises(ValueError, match="have no field 'nosuch': expected one of group"):
        compare_logs(one, one, cluster="nosuch")


# --- on a command line ---


def test_from_a_command_line(tmp_path, capsys):
    one, two = (str(p) for p in INSPECT)
    assert main(["compare", "--logs", one, two, "--cluster", "first", "--out", str(tmp_path / "found.csv")]) == 0
    assert "undetermined" in capsys.readouterr().out and "p_flip" in (tmp_path / "found.csv").read_text()
    for wrong, said in (
        (["a"], "name two models"), (["a", "b", "--logs", one, two], "leave out the models"),
        (["a", "b", "--cluster", "x"], "--cluster needs --logs"), (["--logs", one, "nosuch"], "does not exist"),
    ):  # fmt: skip
        assert main(["compare", *wrong]) == 2 and said in capsys.readouterr().err
