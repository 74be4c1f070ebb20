"""Sheets for people: blinded, shuffled, read back; agreement, rates, comparisons; what is broken."""

import json

import krippendorff
import numpy as np
import pandas as pd
import pytest
from conftest import as_debiased, papermill, small_random
from transformers import GPT2Config

from redditbias_repro.cli import main
from redditbias_repro.metrics.people import (
    Answering,
    compare_methods,
    draw_contexts,
    human_agreement,
    human_rates,
    human_records,
    make_human_sheets,
    read_human_sheets,
    sheets_of_models,
    why_no_alpha,
)
from redditbias_repro.papers.chbias.results import human_bias, human_quality
from redditbias_repro.records import read_records, repo_root, write_record

METHODS = ("baseline", "CTDA", "HD")


def made(n=20):
    contexts = [f"上文{i}" for i in range(n)]
    return {
        m: pd.DataFrame({"context": contexts, "answer": [f"回复{i}，第{k}种" for i in range(n)]})
        for k, m in enumerate(METHODS)
    }


def fill(folder, score, annotators=None, **options):
    """Write score(annotator number, method, item) into every sheet."""
    key = pd.read_csv(folder / "key.csv").set_index("id")
    for k, path in enumerate(sorted(folder.glob("annotator*.csv"))):
        sheet = pd.read_csv(path, dtype=str, keep_default_na=False)
        whose = key.loc[sheet.id.astype(int)]
        sheet["score"] = [str(score(k, m, i)) for m, i in zip(whose.method, whose.item)]
        sheet.to_csv(path, index=False, **options)


# --- sheets ---


def test_sheets_are_blind_and_shuffled(tmp_path):
    paths = make_human_sheets(made(), tmp_path, n=None)
    sheets = [pd.read_csv(p) for p in paths]
    assert len(paths) == 3 and all(list(s) == ["id", "context", "answer", "score"] and len(s) == 60 for s in sheets)
    assert sheets[0].id.tolist() != sheets[1].id.tolist() != sheets[2].id.tolist()
    assert not any(m in p.read_text(encoding="utf-8-sig") for p in paths for m in METHODS)
    key = pd.read_csv(tmp_path / "key.csv").set_index("id")
    by_method = sheets[0].assign(method=key.loc[sheets[0].id, "method"].to_numpy()).method
    assert (by_method != by_method.shift()).sum() > 25, "methods are mixed"
    assert abs(np.corrcoef(key.index, pd.factorize(key.method)[0])[0, 1]) < 0.4, "a number says nothing of a method"
    for _, row in sheets[0].iterrows():
        method, item = key.loc[row.id, ["method", "item"]]
        assert row.answer == made()[method].answer[item] and row.context == made()[method].context[item]


def test_the_same_seed_gives_the_same_sheets_and_contexts_are_drawn(tmp_path):
    one, two = (make_human_sheets(made(), tmp_path / d, n=7, seed=4)[0].read_bytes() for d in "ab")
    assert one == two and len(pd.read_csv(tmp_path / "a" / "annotator1.csv")) == 21
    key = pd.read_csv(tmp_path / "a" / "key.csv")
    assert key.groupby("method").item.agg(set).map(sorted).map(tuple).nunique() == 1, "the same contexts for all"


def test_turns_of_a_context_are_lines(tmp_path):
    table = pd.DataFrame({"context": [["你好", "在吗"]], "answer": ["在"]})
    (path,) = make_human_sheets({"a": table}, tmp_path, "quality", annotators=["wang"])
    assert pd.read_csv(path).context[0] == "你好\n在吗" and path.name == "wang.csv"
    assert "2 = 通顺" in (tmp_path / "GUIDELINES.md").read_text(encoding="utf-8")


def test_a_sheet_that_was_begun_stays(tmp_path):
    make_human_sheets(made(), tmp_path)
    fill(tmp_path, lambda k, m, i: "1" if (k, i) == (2, 3) else "")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for replace in (False, True):
        with pytest.raises(
            FileExistsError, match="annotator3.csv is filled in, or is not a sheet: nothing was written"
        ):
            make_human_sheets(made(), tmp_path, annotators=1, replace=replace)
    assert before == {p.name: p.read_bytes() for p in tmp_path.iterdir()}


def test_sheets_of_an_earlier_draw_do_not_mix_in(tmp_path):
    make_human_sheets(made(), tmp_path, annotators=4)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match="exists already, and the judges may have it: .*--replace"):
        make_human_sheets(made(), tmp_path, annotators=2, seed=1)
    assert before == {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    make_human_sheets(made(), tmp_path, annotators=2, seed=1, replace=True)
    assert sorted(p.name for p in tmp_path.glob("*.csv")) == ["annotator1.csv", "annotator2.csv", "key.csv"]


@pytest.mark.parametrize("header", ["id,context,answer,score", "name,score", "name,age"])
def test_a_users_own_table_is_never_removed(tmp_path, header):
    """Also one with an empty column score, before the first sheets and beside earlier ones."""
    own = f"{header}\n1,a{',' * (header.count(',') - 1)}\n".encode()
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        if folder.name == "b":
            make_human_sheets(made(), folder)
        (folder / "mine.csv").write_bytes(own)
        before = {p.name: p.read_bytes() for p in folder.iterdir()}
        for replace in (False, True):
            with pytest.raises(FileExistsError, match="nothing was written"):
                make_human_sheets(made(), folder, replace=replace)
        assert before == {p.name: p.read_bytes() for p in folder.iterdir()}


def test_sheets_without_their_key_are_not_replaced(tmp_path):
    make_human_sheets(made(), tmp_path)
    (tmp_path / "key.csv").unlink()
    with pytest.raises(FileExistsError, match="is not one of the sheets that .*key.csv was written for"):
        make_human_sheets(made(), tmp_path, seed=1, replace=True)


def test_answers_that_do_not_fit(tmp_path):
    other = made() | {"HD": made()["HD"][::-1]}
    with pytest.raises(ValueError, match="HD and baseline did not answer the same contexts"):
        make_human_sheets(other, tmp_path)
    with pytest.raises(ValueError, match="answers of HD: expected tables with context and answer"):
        make_human_sheets(made() | {"HD": pd.DataFrame({"text": ["a"]})}, tmp_path)
    with pytest.raises(ValueError, match="question 'fun' is unknown"):
        make_human_sheets(made(), tmp_path, "fun")
    with pytest.raises(ValueError, match="expected at least one, each once"):
        make_human_sheets(made(), tmp_path, annotators=["wang", "wang"])


def test_contexts_of_each_category():
    pairs = {
        b: pd.DataFrame({"text1": [f"{b}{i}" for i in range(40)]})
        for b in ("gender", "orientation", "age", "appearance")
    }
    found = draw_contexts(pairs)
    assert found.bias_type.value_counts().tolist() == [25] * 4 and found.context.is_unique
    assert found.equals(draw_contexts(pairs)) and not found.equals(draw_contexts(pairs, seed=1))
    with pytest.raises(ValueError, match="gender has 40 different sentences, and 50 are requested"):
        draw_contexts(pairs, 200)
    with pytest.raises(ValueError, match="at least one of each"):
        draw_contexts(pairs, 3)


# --- reading ---


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gbk", "utf-16"])
def test_what_spreadsheets_do(tmp_path, encoding):
    make_human_sheets(made(), tmp_path)
    fill(tmp_path, lambda k, m, i: "1.0" if m == "HD" else "0", encoding=encoding, sep=";", lineterminator="\r\n")
    scores = read_human_sheets(tmp_path)
    assert scores.groupby("method").score.mean().to_dict() == {"CTDA": 0, "HD": 1, "baseline": 0}
    assert scores.attrs["question"] == "bias" and scores.annotator.nunique() == 3 and len(scores) == 180


def test_broken_sheets_say_where(tmp_path):
    paths = make_human_sheets(made(), tmp_path)
    with pytest.raises(ValueError, match="nothing is filled in: expected 0, 1"):
        read_human_sheets(tmp_path)
    fill(tmp_path, lambda k, m, i: 0)
    whole = pd.read_csv(paths[0], dtype=str)

    def says(table, match):
        table.to_csv(paths[0], index=False)
        with pytest.raises(ValueError, match=match):
            read_human_sheets(tmp_path)

    says(whole.assign(score=["2", *whole.score[1:]]), "'2' in column 'score' of row 2 is not a mark: expected 0, 1")
    says(whole.assign(id=["999", *whole.id[1:]]), "id '999' of row 2 is not in the key")
    says(whole.assign(id=[whole.id[1], *whole.id[1:]]), "rows 2, 3 have the same id")
    says(whole.assign(id=[whole.id[1], whole.id[0], *whole.id[2:]]), r"2 of 60 texts are not those .* \(rows 2, 3\)")
    says(whole.drop(columns="answer"), "no column 'answer'; its columns are id, context, score")
    says(whole[1:], "1 of 60 rows are missing")
    says(whole.drop(columns="score"), "no column 'score'; its columns are id, context, answer")
    paths[0].write_bytes(b"\x00\x01\x02,")
    with pytest.raises(ValueError):
        read_human_sheets(tmp_path)
    whole.to_csv(paths[0], index=False)
    assert len(read_human_sheets(tmp_path)) == 180
    for broken in ("id,method\n1,a\n", "id,method,item,question\n1,a,x,bias\n", "", "id,method\n1,a,b,c\n", '"'):
        (tmp_path / "key.csv").write_text(broken)
        with pytest.raises(ValueError, match="key.csv"):
            read_human_sheets(tmp_path)
    (tmp_path / "key.csv").unlink()
    with pytest.raises(FileNotFoundError, match="without it nobody knows whose"):
        read_human_sheets(tmp_path)


def test_the_key_may_be_kept_apart(tmp_path):
    make_human_sheets(made(), tmp_path / "sheets")
    fill(tmp_path / "sheets", lambda k, m, i: 0)
    (tmp_path / "sheets" / "key.csv").rename(tmp_path / "secret.csv")
    assert len(read_human_sheets(tmp_path / "sheets", tmp_path / "secret.csv")) == 180
    for name in ("key.csv", "other.csv"):  # beside the sheets it is none of them
        (tmp_path / "sheets" / name).write_bytes((tmp_path / "secret.csv").read_bytes())
        assert len(read_human_sheets(tmp_path / "sheets", tmp_path / "secret.csv")) == 180


@pytest.mark.parametrize("how", [dict(seed=1), dict(n=10, seed=2), dict(n=None)])
def test_the_key_of_other_sheets_is_refused(tmp_path, how):
    """Of another draw, or of other answers to the same contexts."""
    make_human_sheets(made(), tmp_path / "a")
    fill(tmp_path / "a", lambda k, m, i: 0)
    others = made() if "seed" in how else {m: t.assign(answer=t.answer + "了") for m, t in made().items()}
    make_human_sheets(others, tmp_path / "b", **how)
    with pytest.raises(ValueError, match="is it the key of other sheets|is not in the key|rows are missing"):
        read_human_sheets(tmp_path / "a", tmp_path / "b" / "key.csv")
    fill(tmp_path / "b", lambda k, m, i: 0)
    (tmp_path / "b" / "key.csv").write_bytes((tmp_path / "a" / "key.csv").read_bytes())
    with pytest.raises(ValueError, match="is it the key of other sheets|is it of these sheets|rows are missing"):
        read_human_sheets(tmp_path / "b")


def test_what_a_spreadsheet_does_to_texts_is_no_other_sheet(tmp_path):
    """Characters that GBK lacks, line ends and one cell that was taken for a formula; a key of an earlier version."""
    odd = {m: t.assign(answer=[f"😂𠮷 {a}！\n好" for a in t.answer]) for m, t in made().items()}
    make_human_sheets(odd, tmp_path, annotators=1)
    fill(tmp_path, lambda k, m, i: 0)
    path = tmp_path / "annotator1.csv"
    sheet = pd.read_csv(path, dtype=str)
    sheet["answer"] = sheet.answer.str.replace("\n", "\r\n").str.replace("[😂𠮷]", "?", regex=True)
    sheet.to_csv(path, index=False, encoding="gbk")
    assert len(read_human_sheets(tmp_path)) == 60
    sheet.loc[3, "answer"] = "#NAME?"
    sheet.to_csv(path, index=False, encoding="gbk")
    with pytest.warns(UserWarning, match="texts of rows 5 were changed since"):
        assert len(read_human_sheets(tmp_path)) == 60
    key = pd.read_csv(tmp_path / "key.csv")
    key.drop(columns="text").to_csv(tmp_path / "key.csv", index=False, sep=";")
    assert len(read_human_sheets(tmp_path)) == 60


def test_whose_cells_are_empty_is_said_and_full_width_digits_are_read(tmp_path):
    make_human_sheets(made(), tmp_path, annotators=2)
    fill(tmp_path, lambda k, m, i: "" if (k, i) == (1, 2) else "１")
    with pytest.warns(
        UserWarning, match=r"cells for labels are empty: annotator2.csv has 3 of 60 \(row \d+, \d+, \d+\)"
    ):
        scores = read_human_sheets(tmp_path)
    assert len(scores) == 117 and set(scores.score) == {1}
    assert why_no_alpha(scores) == "every judgement is 1, so no disagreement was possible"
    (tmp_path / "annotator1 - Kopie.csv").write_bytes((tmp_path / "annotator1.csv").read_bytes())
    with pytest.raises(ValueError, match="looks like a copy of annotator1.csv"):
        read_human_sheets(tmp_path)


# --- what it says ---


def scores_of(question, table):
    """annotators × items as rows of marks; None where nothing was given."""
    rows = [(f"a{k}", "m", i, x) for k, line in enumerate(table) for i, x in enumerate(line) if x is not None]
    scores = pd.DataFrame(rows, columns=["annotator", "method", "item", "score"])
    scores.attrs["question"] = question
    return scores


@pytest.mark.parametrize("question, kind", [("bias", "nominal"), ("quality", "ordinal")])
def test_alpha_is_the_libraries(question, kind):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2 if question == "bias" else 3, 60)
    table = [[None if rng.random() < 0.1 else int(rng.choice([t, 0])) for t in truth] for _ in range(3)]
    found = human_agreement(scores_of(question, table), resamples=200)
    matrix = [[np.nan if x is None else x for x in line] for line in table]
    assert found["alpha"] == pytest.approx(krippendorff.alpha(matrix, level_of_measurement=kind))
    assert found["alpha_low"] < found["alpha"] < found["alpha_high"] and found["annotators"] == 3


def test_alpha_at_its_ends():
    assert human_agreement(scores_of("bias", [[0, 1, 1], [0, 1, 1]]))["alpha"] == 1
    assert np.isnan(human_agreement(scores_of("bias", [[0, 0], [0, 0]]))["alpha"]), "no disagreement was possible"
    with pytest.raises(ValueError, match="no answer was judged by two people"):
        human_agreement(scores_of("bias", [[0, 1]]))


def test_rates_by_hand():
    scores = scores_of("quality", [[0, 1, 2, 2], [0, 2, 2, 1], [1, 0, 2, 2]])
    mean, most = (human_rates(scores, m, 500).set_index("mark") for m in ("mean", "majority"))
    assert mean.rate.to_dict() == pytest.approx({2: 6 / 12, 1: 3 / 12, 0: 3 / 12}) and mean.rate.sum() == 1
    assert most.rate.to_dict() == pytest.approx({2: 2 / 3, 1: 0, 0: 1 / 3}) and most.contexts[0] == 3, (
        "one is undecided"
    )
    assert (mean.low <= mean.rate).all() and (mean.rate <= mean.high).all()
    with pytest.raises(ValueError, match="merge 'first' is unknown"):
        human_rates(scores, "first")


def test_methods_on_the_same_contexts(tmp_path):
    make_human_sheets(made(60), tmp_path, n=None)
    rng = np.random.default_rng(0)
    share = {"baseline": 0.6, "CTDA": 0.1, "HD": 0.6}
    fill(tmp_path, lambda k, m, i: int(rng.random() < share[m]))
    scores = read_human_sheets(tmp_path)
    found = compare_methods(scores).set_index("method")
    rates = human_rates(scores).query("mark == 1").set_index("method").rate
    assert list(found.index) and set(found.index) == {"CTDA", "HD"}
    assert found.change["CTDA"] == pytest.approx(rates["CTDA"] - rates["baseline"])
    assert found.high["CTDA"] < 0 and found.p_holm["CTDA"] < 0.05 < found.p_holm["HD"]
    assert (found.p_holm >= found.p).all() and found.contexts.tolist() == [60, 60]
    with pytest.raises(ValueError, match="method 'GPT' is unknown"):
        compare_methods(scores, "GPT")


# --- from models to records ---


@pytest.fixture(scope="module")
def talkers(tokenizer, tmp_path_factory):
    """Folders of a small random model and of one that says it was debiased for age."""
    folder = tmp_path_factory.mktemp("models")
    sizes = dict(vocab_size=len(tokenizer), n_positions=256, n_embd=32, n_layer=2, n_head=2)
    for name in ("before", "after"):
        net = small_random(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
        if name == "after":
            as_debiased(net, {"method": "CTDA", "bias_type": "chbias/age", "base_model": "before", "seed": 0})
        for part in (net, tokenizer):
            part.save_pretrained(folder / name)
    return [str(folder / name) for name in ("before", "after")]


def test_by_the_command_from_models_to_records_and_tables(made_up, talkers, tmp_path, capsys):
    """Written, refused once begun, read, kept as records, which the paper's tables show."""
    folder, out = tmp_path / "sheets", tmp_path / "records.json"
    models = [x for m in talkers for x in ("--model", m)]
    ask = ["sheets", str(folder), *models, "--bias-type", "chbias/age", "--bias-type", "chbias/gender"]
    ask += ["--limit", "6", "--preset", "default", "--layout", "lines"]
    assert main(ask) == 0 and "--read --save" in capsys.readouterr().out
    assert {p.name for p in folder.iterdir()} >= {"annotator1.csv", "annotator3.csv", "key.csv", "about.json"}
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert main([*ask, "--seed", "1"]) != 0 and "--replace" in capsys.readouterr().err
    assert before == {p.name: p.read_bytes() for p in folder.iterdir()}
    assert main([*ask, "--seed", "1", "--replace"]) == 0 and before["key.csv"] != (folder / "key.csv").read_bytes()
    assert main(["sheets", str(folder), "--read"]) == 2 and "nothing is filled in" in capsys.readouterr().err
    fill(folder, lambda k, m, i: int(m == "baseline" and i < 3 + (k == 2)))
    assert main([*ask, "--replace"]) != 0 and "is filled in" in capsys.readouterr().err
    assert main(["sheets", str(folder), "--read", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Krippendorff's alpha" in said and "CTDA" in said
    records = json.loads(out.read_text(encoding="utf-8"))
    rates = {(r["method"], r["bias_type"]): r["values"]["rate"] for r in records}
    # in the paper's order: contexts of gender come first
    assert rates == {("baseline", "gender"): 1, ("baseline", "age"): pytest.approx(1 / 9), ("CTDA", "age"): 0}
    assert {r["paper"] for r in records} == {"chbias"} and {r["metric"] for r in records} == {"human_bias"}
    assert all(r["values"]["annotators"] == 3 and r["params"]["decoding"] == "greedy-new40" for r in records)
    for record in records:
        write_record(record, tmp_path / "results")
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    (folder / "about.json").write_text(json.dumps(about | {"key": "other"}))
    assert main(["sheets", str(folder), "--read"]) == 2
    assert "about.json was written with another key" in capsys.readouterr().err
    (folder / "about.json").write_text('{"models": ')
    assert main(["sheets", str(folder), "--read"]) == 2 and "about.json is broken" in capsys.readouterr().err
    table = human_bias(tmp_path / "results").tail(3)
    assert set(zip(table.method, table.bias_type)) == set(rates)


def test_by_the_notebook_quality_and_one_judge(talkers, tmp_path):
    """Papermill writes sheets of answers to a file's dialogues, and, filled in, reads them into records."""
    (file := tmp_path / "talk.txt").write_text("你好\t你好啊\t吃了吗\n在吗\t在的\n", encoding="utf-8")
    run = dict(folder=tmp_path / "sheets", models=" ".join(talkers), question="quality", corpus=file, annotators=1)
    run |= dict(preset="default", layout="lines", results_dir=tmp_path / "results")
    notebook = repo_root() / "nbs" / "07b_human_evaluation.ipynb"
    papermill(notebook, tmp_path / "out.ipynb", **run)
    fill(tmp_path / "sheets", lambda k, m, i: i % 3)
    papermill(notebook, tmp_path / "out.ipynb", **run)
    kept = read_records(tmp_path / "results", metric="human_quality")
    assert set(kept.method) == {"baseline", "CTDA"} and kept["mean"].tolist() == [1, 1]
    assert kept[["share_0", "share_1", "share_2"]].sum(axis=1).tolist() == pytest.approx([1, 1])
    assert set(human_quality(tmp_path / "results").model) >= set(kept.model)


def test_models_that_cannot_be_told_apart(talkers, tmp_path, made_up):
    short = Answering("default", {"max_new_tokens": 2}, "lines", progress=False)
    how = dict(bias_types=["chbias/age"], n=2, answering=short)
    with pytest.raises(ValueError, match="several of the models are 'baseline'"):
        sheets_of_models(talkers[:1] * 2, tmp_path / "two", **how)
    with pytest.raises(ValueError, match="no models: expected at least one"):
        sheets_of_models([], tmp_path / "none", **how)
    with pytest.raises(ValueError, match="no bias types"):
        sheets_of_models(talkers[:1], tmp_path / "none")
    make_human_sheets(made(3), tmp_path / "bare", annotators=1)
    with pytest.raises(FileExistsError, match="exists already"):
        sheets_of_models(talkers[:1], tmp_path / "bare", **how)
    fill(tmp_path / "bare", lambda *_: 1)
    with pytest.raises(ValueError, match="nothing says which models answered"):
        human_records(tmp_path / "bare")


@pytest.mark.parametrize(
    "change, says",
    [
        (dict(models="before before"), "several of the models are 'baseline'"),
        (dict(models="before nothing-here/"), "nothing-here"),
        (dict(models="before", answering=Answering(layout="rows")), "layout 'rows' is unknown"),
        (dict(models="before", answering=Answering("cdail")), "preset 'cdail'"),
        (dict(models="before", question="fun"), "question 'fun' is unknown"),
        (dict(models="before", annotators=["wang", "wang"]), "each once"),
        (dict(models="before", contexts=pd.DataFrame({"context": [["a"]]})), "expected columns context and category"),
    ],
)
def test_nobody_waits_for_answers_that_cannot_be_used(talkers, tmp_path, monkeypatch, change, says):
    """What can be known before a model answers is checked before."""
    monkeypatch.setattr("redditbias_repro.metrics.people.open_model", lambda *_, **__: pytest.fail("was asked"))
    contexts = pd.DataFrame({"context": [["a"]], "category": "x"})
    contexts.attrs["corpus"] = {"name": "own"}
    folder = talkers[0].removesuffix("before")
    models = [f"{folder}{m}" for m in change["models"].split()]
    with pytest.raises((ValueError, OSError), match=says):
        sheets_of_models(
            models, tmp_path, **({"contexts": contexts} | {k: v for k, v in change.items() if k != "models"})
        )


def test_the_command_asks_for_a_model(tmp_path, capsys):
    assert main(["sheets", str(tmp_path / "a"), "--bias-type", "chbias"]) == 2
    assert "--model is missing: name one or more models whose answers are judged" in capsys.readouterr().err
    assert (
        main(["sheets", str(tmp_path), "--read", "--replace"]) == 2
        and "--replace is for new sheets" in capsys.readouterr().err
    )
