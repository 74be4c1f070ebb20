"""What `make reproduce` says to the person who ran it."""

import importlib.util
import sys

import pytest
import yaml

from redditbias_repro.papers.redditbias import PUBLISHED_MODEL, published_lmb
from redditbias_repro.records import repo_root, write_record
from redditbias_repro.reports import measured_report

ROOT = repo_root()
SAID = """Building DAG of jobs...
Job 3: the model measured
Reason: Missing output files
Converting:  50%|████  | 1/2 [00:01<00:01]\r
Job 4: tables drawn
[Tue Nov 24 20:00:00 2026]
Finished jobid: 3 (Rule: paper)
"""


@pytest.fixture
def console(monkeypatch, tmp_path):
    """The program, with its log elsewhere."""
    spec = importlib.util.spec_from_file_location("reproduce", ROOT / "workflow" / "reproduce.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOG", tmp_path / "run.log")
    return module


def says(text, status=0):
    return [sys.executable, "-c", f"import sys; sys.stdout.write({text!r}); sys.exit({status})"]


def test_a_step_is_a_line_and_all_else_is_in_the_log(console, capsys):
    assert console.follow(says(SAID + "Finished jobid: 4 (Rule: tables)\n"), {}) == (0, 2)
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["the model measured", "tables drawn"]
    assert all(" s  " in line for line in lines) and "Converting" in console.LOG.read_text(encoding="utf-8")


def test_a_step_that_fails_is_named(console, capsys):
    assert console.follow(says(SAID + "Error in rule tables:\n", 1), {}) == (1, 1)
    assert capsys.readouterr().out.strip().splitlines()[-1] == "failed    tables drawn"


def test_where_the_host_does_not_answer_it_is_said_in_a_sentence(console, offline):
    why = console.host_away()
    assert "does not answer" in why and len(why) < 100


def test_every_step_of_the_workflow_has_words_for_a_reader():
    rules = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "workflow" / "rules").glob("*.smk"))
    steps = [part.split("\nrule ")[0] for part in rules.split("\nrule ")[1:]]
    at_work = [s for s in steps if "    shell:" in s]
    assert len(at_work) > 10 and all("    message:" in s for s in at_work)


def test_what_was_measured_is_a_small_table(console, monkeypatch, tmp_path):
    for record in published_lmb():
        write_record(record, tmp_path)
    text = measured_report(tmp_path, PUBLISHED_MODEL)
    assert len(text.splitlines()) == 7 and max(map(len, text.splitlines())) < 120 and "stereotype likelier" in text
    assert console.measured({**yaml.safe_load((ROOT / "config/demo.yaml").read_text()), "models": ["none/such"]}) == []
