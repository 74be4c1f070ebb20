"""The command `redditbias`, as a user calls it."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from redditbias_repro.cli import main
from redditbias_repro.models import load_model
from redditbias_repro.scoring import perplexity


def test_installed_command():
    done = subprocess.run([str(Path(sys.executable).with_name("redditbias")), "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and all(c in done.stdout for c in ("measure", "score", "debias", "fetch", "specs", "report"))


def test_help_names_what_is_allowed(capsys):
    with pytest.raises(SystemExit):
        main(["measure", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "religion1, religion2, race, gender, orientation" in text and "columns text1 (stereotype) and text2" in text


def test_measure(model_folder, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert main(["measure", "--model", str(model_folder), "--bias-type", "race", "--corpus", "queries", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "| race" in printed and "negative t: the stereotype is likelier" in printed and "p_holm" in printed
    records = json.loads(out.read_text())
    assert len(records) == 1 and records[0]["bias_type"] == "race" and records[0]["provenance"]["corpus"]["name"] == "queries"


def test_measure_all_types_to_csv(model_folder, tmp_path, capsys):
    out = tmp_path / "out.csv"
    assert main(["measure", "--model", str(model_folder), "--corpus", "queries", "--outlier-sd", "3", "--out", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert len(lines) == 6 and lines[0].startswith("model,method,bias_type,train_seed,corpus") and ",3.0," in lines[1]


def test_measure_says_when_queries_stand_in(model_folder, offline, capsys):
    assert main(["measure", "--model", str(model_folder), "--bias-type", "gender"]) == 0
    captured = capsys.readouterr()
    assert "Note: the released corpus could not be had" in captured.out and "Warning: gender: the released corpus could not be had" in captured.err


def test_score(model_folder, tmp_path, capsys):
    lines = tmp_path / "lines.txt"
    lines.write_text("they are lazy\nthe women are nurses\n", encoding="utf-8")
    assert main(["score", str(lines), "--model", str(model_folder)]) == 0
    captured = capsys.readouterr()
    printed = pd.read_csv(io.StringIO(captured.out))
    assert list(printed.columns) == ["sentence", "nll", "n_tokens", "perplexity"] and "2 sentences" in captured.err and "as a tree" in captured.err
    np.testing.assert_allclose(printed.perplexity, perplexity(*load_model(model_folder), ["they are lazy", "the women are nurses"]))
    table = tmp_path / "table.csv"
    table.write_text("context,text\nthey, are lazy\n", encoding="utf-8")
    assert main(["score", str(table), "--model", str(model_folder), "--out", str(tmp_path / "out.csv")]) == 0
    assert pd.read_csv(tmp_path / "out.csv").nll[0] < printed.nll[0]
    for again in (2, 0):
        assert main(["score", str(lines), "--model", str(model_folder), "--out", str(tmp_path / "kept")]) == 0
        assert f"{again} sentences" in capsys.readouterr().err
    table.write_text("sentence\nthey are lazy\n", encoding="utf-8")
    assert main(["score", str(table), "--model", str(model_folder)]) == 2
    assert "has the columns sentence: expected text" in capsys.readouterr().err


def test_warnings_are_shown_as_before_afterwards(capsys):
    import warnings

    before = warnings.showwarning
    main(["specs"])
    assert warnings.showwarning is before


@pytest.mark.parametrize(
    "arguments,status,says",
    [
        (["measure", "--bias-type", "sex"], 2, "bias type 'sex' is unknown: expected one of religion1"),
        (["measure", "--model", "no such model", "--corpus", "queries"], 2, "is no folder and no name"),
        (["measure", "--corpus", "nowhere.csv"], 2, "corpus 'nowhere.csv' is no file"),
        (["measure", "--out", "out.txt"], 2, "expected a name that ends in .json (records) or .csv (table)"),
        (["specs", "redditbias/rice"], 2, "did you mean 'redditbias/race'"),
        (["fetch", "nobody/nothing"], 2, "no registered file begins with 'nobody/nothing'"),
    ],
)
def test_bad_input_ends_with_a_message(arguments, status, says, capsys):
    assert main(arguments) == status
    captured = capsys.readouterr()
    assert says in captured.err and "Traceback" not in captured.err


def test_fetch_without_network(offline, capsys):
    assert main(["fetch"]) == 1
    assert "could not be fetched" in capsys.readouterr().err


def test_fetch(corpus, capsys):
    assert main(["fetch"]) == 0 and main(["fetch", "umanlp/RedditBias/data/race/race_"]) == 0
    assert "51 files are in the cache and checked" in capsys.readouterr().out
    assert main(["fetch", "--list"]) == 0
    assert "budzianowski/multiwoz/data/MultiWOZ_2.0.zip" in capsys.readouterr().out


def test_specs(capsys):
    assert main(["specs"]) == 0 and "queries 1144" in capsys.readouterr().out
    assert main(["specs", "redditbias/gender"]) == 0
    assert "Content warning" in capsys.readouterr().out


def test_debias_and_measure(corpus, model_folder, tmp_path, capsys):
    texts, out = tmp_path / "texts.txt", tmp_path / "debiased"
    texts.write_text("women are nurses\nthe woman is a maid\n\nshe is a clerk\n")
    command = ["debias", "--model", str(model_folder), "--method", "ADD", "--bias-type", "gender", "--texts", str(texts), "--out", str(out), "--device", "cpu", "--epochs", "1"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert f"written: {out} (ADD on 3 sentences" in printed and f"redditbias measure --model {out} --bias-type gender" in printed
    assert main(["measure", "--model", str(out), "--bias-type", "gender", "--split", "valid"]) == 0
    assert main([*command, "--seed", "1"]) == 2 and "holds a run that differs in seed: remove it, give another out_dir, or replace=True" in capsys.readouterr().err
    assert main([*command, "--seed", "1", "--replace"]) == 0


def test_a_full_disk(corpus, model_folder, tmp_path, capsys, monkeypatch):
    import errno

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr("redditbias_repro.debias.debias", full)
    assert main(["debias", "--model", str(model_folder), "--out", str(tmp_path / "x"), "--device", "cpu"]) == 1
    assert "the disk is full" in capsys.readouterr().err


def test_report(capsys):
    assert main(["report"]) == 0
    out = capsys.readouterr().out
    assert "DialoGPT-small (published)" in out and "figure1a.png" in out


def test_methods_that_can_be_named_are_all_there_are():
    from redditbias_repro.cli import METHOD_NAMES
    from redditbias_repro.losses import METHODS

    assert METHOD_NAMES == tuple(METHODS)
