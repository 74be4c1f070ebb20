"""`redditbias audit`: everything of one model, resumed, on one page."""

import copy
import json
import shutil
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from redditbias_repro import papers
from redditbias_repro.cli import main
from redditbias_repro.metrics.association import association_sentences, measure_association
from redditbias_repro.metrics.languages import language_signs, token_shares
from redditbias_repro.metrics.likelihood import LOVE
from redditbias_repro.metrics.measure import Kind, Measure, findings, measure
from redditbias_repro.models.loading import Opened, load_model, open_model
from redditbias_repro.papers import audit as room
from redditbias_repro.papers import commands, report
from redditbias_repro.papers import measures as shared
from redditbias_repro.papers.audit import audit
from redditbias_repro.papers.commands import left_out
from redditbias_repro.papers.dialoguefairness import measures as fairness
from redditbias_repro.papers.holisticbias import measures as likelihood
from redditbias_repro.records import new_record, project_path, read_records, write_atomic
from redditbias_repro.show.html import page_problems, table_block
from redditbias_repro.show.saving import save_figure, save_table
from redditbias_repro.specs import load_spec, to_toml

FEW_PROMPTS = f"""
nouns = [["person", "people", "neutral"], ["friend", "friends", "neutral"], ["writer", "writers", "neutral"]]
templates = ["{LOVE}"]
[axes]
hair = ["bald", "blond", "curly-haired"]
height = ["short", "tall"]
"""


@pytest.fixture
def few_prompts(tmp_path, monkeypatch):
    """A handful of prompts in place of thousands."""
    path = tmp_path / "prompts.toml"
    path.write_text(FEW_PROMPTS, encoding="utf-8")
    monkeypatch.setattr(likelihood, "available_prompts", lambda: (str(path), ["prompts: a few of one's own"]))


@pytest.fixture
def own_spec(tmp_path):
    """A TOML file of one's own."""
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(load_spec("redditbias/race"), own=True), encoding="utf-8")
    return path


@pytest.fixture
def one_type(monkeypatch):
    """One bias type of each language."""
    of = {"redditbias": ["race"], "chbias": ["age"]}
    monkeypatch.setattr(shared, "paper_bias_types", of.__getitem__)


def test_special_tokens_are_of_prompts_as_well(few_prompts):
    for special, reading in ((False, "sentence"), (True, "beginning")):
        measures, _ = likelihood.planned(shared.Wanted(("en",), special_tokens=special))
        assert len(measures) == 2 and {m.settings["reading"] for m in measures} == {reading}


def forbid(*args, **options):
    raise AssertionError("measured again")


MADE_UP = Kind(
    "Made up",
    lambda records: [{"what": "made up", "value": f"{r['values']['letters']}"} for r in records],
    lambda records: [table_block(pd.DataFrame([r["values"] for r in records]), "Made up", "letters of the name")],
    ("made up: the longer the better.",),
)


def made(part, title="made up", run=lambda model: [], size=1.0):
    """A made-up measure."""
    return Measure(part, title, size, {}, run, MADE_UP)


def test_everything_offline_then_nothing_again(
    offline, few_prompts, one_type, own_spec, model_folder, tmp_path, monkeypatch, capsys
):
    """Queries stand in and are named; a second call with the same weights measures nothing."""
    before, out = set(project_path("results").rglob("*")), tmp_path / "out"
    call = ["audit", "--model", str(model_folder), "--quick", "--languages", "en", "zh", "--pairs", "4"]
    call += ["--specs", str(own_spec), "--out", str(out)]
    assert main(call) == 0
    told = capsys.readouterr()
    assert "| bias (redditbias) " in told.out and "| bias (chbias) " in told.out and "| bias (own) " in told.out
    assert "queries of the specification stand in" in told.out and "queries of the specifications are used" in told.out
    assert "LM perplexity is not measured: its references are not available" in told.out
    numbers = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    measured = {(r["metric"], r["paper"]) for r in numbers["records"]}
    of_pairs = {(metric, paper) for metric in ("lmb", "association") for paper in ("redditbias", "chbias", "own")}
    assert measured == {*of_pairs, ("likelihood_bias", "holisticbias"), ("response_fairness", "dialoguefairness")}
    assert "| association (redditbias) " in told.out and "| association (own) " in told.out
    assert not any(k in r["values"] for r in numbers["records"] for k in room.PACKED)
    assert len(read_records(out / "records")) == len(numbers["records"])
    assert {r["corpus"] for r in numbers["records"] if r["metric"] == "lmb"} == {"queries"}
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page_problems(page) == [] and "Substitutes and omissions" in page
    assert "LM perplexity is not measured" in page
    assert set(project_path("results").rglob("*")) == before

    for where, name in (
        (shared, "measure_lmb"),
        (shared, "measure_association"),
        (likelihood, "measure_likelihood_bias"),
        (fairness, "measure_fairness"),
    ):
        monkeypatch.setattr(where, name, forbid)
    again = audit(model_folder, out, [own_spec], ["en", "zh"], quick=True, pairs=4, progress=False)
    assert json.loads(json.dumps(again["found"])) == numbers["found"]


def test_a_call_that_was_stopped_goes_on(model_folder, tmp_path):
    """After Ctrl-C, what was done is read; a file that was torn is made again; other weights are measured anew."""
    model, asked = open_model(load_model(model_folder)), []

    def step(name, fails=()):
        def run(model):
            asked.append(name)
            if fails:
                raise fails.pop()
            return []

        return made(name, name, run)

    stopped = [step("a"), step("b", [KeyboardInterrupt()]), step("c")]
    with pytest.raises(KeyboardInterrupt):
        measure(stopped, model, tmp_path, progress=False)
    measure(stopped, model, tmp_path, progress=False)
    assert asked == ["a", "b", "b", "c"]
    (tmp_path / "steps" / "b.json").write_text('{"key": "', encoding="utf-8")
    measure(stopped, model, tmp_path, progress=False)
    assert asked == ["a", "b", "b", "c", "b"]
    measure(
        stopped, Opened(model.model, model.tokenizer, {**model.about, "weights_sha256": "f"}), tmp_path, progress=False
    )
    assert asked[5:] == ["a", "b", "c"]


def test_a_step_that_fails_stops_no_other(model_folder, tmp_path):
    steps = [made("a", "first", lambda model: int("x")), made("b", "second")]
    _, failed = measure(steps, open_model(load_model(model_folder)), tmp_path, progress=False)
    assert (
        failed == ["first: invalid literal for int() with base 10: 'x'"] and (tmp_path / "steps" / "b.json").is_file()
    )


def test_one_bar_at_a_time(model_folder, tmp_path, capsys):
    """Bars of parts are not shown while that of the whole is, and are back afterwards."""
    from tqdm.auto import tqdm

    def run(model):
        from tqdm.auto import tqdm

        assert list(tqdm([1], desc="a part")) == [1]
        return []

    measure([made("a", "the whole", run, 5)], open_model(load_model(model_folder)), tmp_path)
    said = capsys.readouterr().err
    assert "the whole: 100%" in said and "left: 00:00" in said and "a part" not in said
    assert not tqdm([1]).disable


@pytest.mark.parametrize(
    "model,code,says",
    [
        ("no/such-model-anywhere", 1, "is not a local folder and could not be downloaded"),
        ("not a name", 2, "is not a folder, a GGUF file or a name on the Hugging Face hub"),
        ("{empty}", 2, "the folder holds no config.json"),
    ],
)
def test_models_that_are_none(model, code, says, offline, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    call = ["audit", "--model", model.format(empty=tmp_path / "empty"), "--out", str(tmp_path / "out")]
    assert main(call) == code
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said and not (tmp_path / "out" / "index.html").exists()


def test_a_specification_that_is_none_is_known_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(room, "open_model", forbid)
    broken = tmp_path / "mine.toml"
    broken.write_text("pairs = [", encoding="utf-8")
    assert main(["audit", "--specs", str(broken), "--out", str(tmp_path / "out")]) == 2
    assert "mine.toml" in capsys.readouterr().err
    assert main(["audit", "--specs", str(tmp_path / "none.toml"), "--out", str(tmp_path / "out")]) == 2
    assert "none.toml" in capsys.readouterr().err


def test_a_place_that_is_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(room, "open_model", forbid)
    (tmp_path / "file").write_text("")
    assert main(["audit", "--out", str(tmp_path / "file")]) == 2
    assert "is a file: expected the name of a folder" in capsys.readouterr().err


def test_a_model_that_knows_no_language(model_folder, tmp_path, capsys):
    assert main(["audit", "--model", str(model_folder), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert (
        "the model knows none of the languages (English: 0% unknown tokens" in said
        and "name them, such as --languages" in said
    )


def test_signs_of_a_language(model_folder):
    model, tokenizer = load_model(model_folder)
    signs = language_signs(model, tokenizer).set_index("language")
    assert not signs.known.any() and signs.pieces["zh"] > 0.9 and signs.pieces["en"] == 0
    assert token_shares(tokenizer, []) == {"unknown": 0, "pieces": 0}
    with pytest.raises(ValueError, match="language 'xx' is unknown: expected one of en, zh"):
        language_signs(model, tokenizer, ["xx"])


def test_the_default_model_knows_english(default_model):
    signs = language_signs(*default_model).set_index("language")
    assert signs.known.to_dict() == {"en": True, "zh": False}


def test_nothing_found_of_nothing():
    assert list(findings([])) == ["what", "of", "found", "value", "interval", "p", "n"] and isinstance(
        findings([]), pd.DataFrame
    )


def test_help_says_what_quick_leaves_out(capsys):
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert len(left_out()) == 3 and all(" ".join(part.split()) in said for part in left_out())


def test_specifications_of_one_name_and_folders_of_others(own_spec, model_folder, tmp_path):
    steps = [made("bias-own-mine")] * 2
    with pytest.raises(ValueError, match="two measures are called bias-own-mine: rename one"):
        measure(steps, open_model(model_folder), tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "audit.json").write_text('{"model": {"name": "another"}}')
    with pytest.raises(ValueError, match="holds the audit of another, and this is tiny-gpt2"):
        audit(model_folder, tmp_path / "out", [own_spec], languages=["en"], quick=True)


def test_another_tokenizer_is_measured_anew_and_any_error_is_named(model_folder, tmp_path):
    opened, asked = open_model(model_folder), []

    def fail(model):
        asked.append(model)
        raise RuntimeError("the machine is tired")

    steps = [made("a", run=lambda m: asked.append(m) or []), made("b", run=fail)]
    assert "the machine is tired" in measure(steps, opened, tmp_path / "out", progress=False)[1][0]
    measure(steps[:1], opened, tmp_path / "out", progress=False)
    assert len(asked) == 2, "the same again is read"
    other = copy.deepcopy(opened.tokenizer)
    other.add_tokens(["zebra"])
    measure(steps[:1], Opened(opened.model, other, opened.about), tmp_path / "out", progress=False)
    assert len(asked) == 3


# A made-up paper: what its folder of code, its command, its statements and its part of the report hold

PETS = {
    "redditbias_repro/papers/pets/__init__.py": "",
    "redditbias_repro/papers/pets/measures.py": """
import pandas as pd

from redditbias_repro.models.loading import open_model
from redditbias_repro.papers.measures import Command, Shown, compared
from redditbias_repro.stats.paired import bias_change
from test_audit import letters, made


def run(args):
    records = letters(open_model(args.model), args.whiskers)
    table = pd.DataFrame([{"model": r["model"], "letters": r["values"]["letters"]} for r in records])
    return Shown(table, table, f"{args.whiskers} whiskers.", records)


def compare(args):
    (one,), (other,) = (letters(open_model(m), args.whiskers) for m in (args.a, args.b))
    change = bias_change(one["values"]["gaps"], other["values"]["gaps"])
    row = {"difference": change.change, "low": change.change_low, "high": change.change_high, "p": change.p}
    table = pd.DataFrame([{"a": one["model"], "b": other["model"], **row, "verdict": change.verdict}])
    return compared(table, table.drop(columns=["a", "b"]))


def planned(wanted):
    return [made("letters", run=letters)], ["pets: made up"]


COMMAND = Command(run, compare)
""",
    "redditbias_repro/papers/pets/checks.py": """
from redditbias_repro.papers.statements import Answer
from redditbias_repro.records import read_records


def read_measured(folder=None):
    return read_records(folder, paper="pets", metric="letters")


def names_are_long(claim, measured):
    return [Answer(r.model, "holds", f"{r.letters} letters", "its model's outputs") for r in measured.itertuples()]


CHECKS, AUDITS = {"names_are_long": names_are_long}, ()
""",
    "redditbias_repro/resources/papers/pets/command.toml": """
asked = "names"
title = "names of pets"
about = "letters, with --paper pets"
[measure]
caption = "letters: of the name."
[measure.options]
--whiskers = { type = "count", default = 2, help = "of a pet" }
[compare]
caption = "difference: of B and A."
[compare.options]
--whiskers = { type = "count", default = 2, help = "of both pets" }
[audit]
language = "en"
quick = "a pet in place of {pairs}"
never = ["pets that have no name"]
""",
    "redditbias_repro/resources/report/pets.toml": """
place = 5
title = "Pets"
citation = "Nobody"
lead = "Names."
warning = "Pets."
part = [{ title = "How long names are", tables = ["letters"], figures = ["letters"] }]
tables = { letters = "Letters of names" }
figures = { letters = "A bar for the letters of each name, as in the table." }
""",
    "data/paper/pets/claims.toml": """
sections = ["§1"]
kinds.names = { needs = "names", links = [] }
[[claim]]
id = "long"
section = "§1"
statement = "Names of pets are long"
kind = "names"
check = "names_are_long"
""",
}


def letters(model, whiskers=2):
    """A record of a made-up measure: gaps by pair, the larger the longer the name."""
    n = len(model.about["name"])
    values = {"letters": n, "gaps": np.random.default_rng(n).normal(n * whiskers, 1, 20).tolist()}
    return [new_record("letters", model.about, {"name": "none", "files": {}}, 20, values, paper="pets")]


@pytest.fixture
def pets(tmp_path, monkeypatch):
    """A checkout that holds the made-up paper, beside what the others have for the command line."""
    root = tmp_path / "checkout"
    for paper, said in ((p.parent.name, p.read_text(encoding="utf-8")) for p in commands.FOLDER.glob("*/command.toml")):
        write_atomic(root / f"redditbias_repro/resources/papers/{paper}/command.toml", said.partition("[audit]")[0])
    words = (report.RESOURCES / "page.toml").read_text(encoding="utf-8")  # of the page, of no paper
    kept = {"settings.ini": "", "nbs/.keep": "", "redditbias_repro/resources/report/page.toml": words}
    for path, text in {**PETS, **kept}.items():
        write_atomic(root / path, text)
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(root / "redditbias_repro" / "papers")])
    monkeypatch.setattr(commands, "FOLDER", root / "redditbias_repro" / "resources" / "papers")
    monkeypatch.setattr(report, "RESOURCES", root / "redditbias_repro" / "resources" / "report")
    monkeypatch.setitem(sys.modules, "test_audit", sys.modules[__name__])
    monkeypatch.chdir(root)
    yield root
    for module in [m for m in sys.modules if m.startswith("redditbias_repro.papers.pets")]:
        del sys.modules[module]


def test_a_made_up_papers_measure_is_a_command_with_options_of_its_own(pets, model_folder, tmp_path, capsys):
    """Its folders alone are enough: measured by name, kept, shown in the help, and no other paper's trouble."""
    letters_of_name = len(open_model(model_folder).about["name"])
    command = ["measure", "--paper", "pets", "--model", str(model_folder)]
    assert main([*command, "--out", str(tmp_path / "out.csv"), "--save"]) == 0
    assert "2 whiskers. letters: of the name." in capsys.readouterr().out
    assert pd.read_csv(tmp_path / "out.csv")["letters"].tolist() == [letters_of_name]
    assert read_records(paper="pets", metric="letters")["letters"].tolist() == [letters_of_name]
    assert main([*command, "--whiskers", "7"]) == 0 and "7 whiskers. letters" in capsys.readouterr().out
    for wrong, says in (
        ([*command, "--axes", "age"], "--axes is for prompts, but --paper pets uses names"),
        (["measure", "--whiskers", "7"], "--whiskers is for names, but --paper redditbias uses pairs"),
        (["measure", "--axes", "age"], "--axes is for prompts, but --paper redditbias uses pairs"),
        (
            ["measure", "--paper", "dogs"],
            "paper 'dogs' is unknown: expected one of redditbias, chbias, dialoguefairness",
        ),
    ):
        assert main(wrong) == 2 and says in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--whiskers", "0"])
    with pytest.raises(SystemExit):
        main(["measure", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "names of pets: letters, with --paper pets --whiskers WHISKERS of a pet (default: 2)" in said


def test_a_made_up_papers_measure_compares_two_models(pets, model_folder, tmp_path, capsys):
    """Its change, by a paired test with an interval and a verdict; named, or by its own option."""
    shutil.copytree(model_folder, other := tmp_path / "tom")
    command = ["compare", str(model_folder), str(other), "--out", str(tmp_path / "out.csv")]
    assert main([*command, "--paper", "pets"]) == 0
    said = capsys.readouterr().out
    assert "A: tiny-gpt2" in said and "; B: tom" in said and "difference: of B and A." in said
    row = pd.read_csv(tmp_path / "out.csv").iloc[0]
    assert row["verdict"] == "less" and row["low"] < row["difference"] < row["high"] < 0 and row["p"] < 0.05
    assert main([*command, "--whiskers", "20"]) == 0
    assert pd.read_csv(tmp_path / "out.csv")["difference"][0] < 5 * row["difference"]
    assert main([*command, "--whiskers", "20", "--margin", "1"]) == 2
    assert "--margin is for pairs" in (said := capsys.readouterr().err) or "--whiskers is for names" in said


def test_a_made_up_papers_measure_is_audited(pets, model_folder, tmp_path, monkeypatch, capsys):
    """Planned, measured once and found again, summed up and shown, in what is left out too."""
    letters_of_name = len(open_model(model_folder).about["name"])
    for _ in range(2):
        result = audit(model_folder, tmp_path / "out", languages=["en"], quick=True, progress=False)
        assert [r["values"]["letters"] for r in result["records"]] == [letters_of_name] and result["failed"] == []
        for module in ("redditbias_repro.papers.pets.measures", __name__):
            monkeypatch.setattr(sys.modules[module], "letters", forbid)
    assert [r["value"] for r in result["found"]] == [f"{letters_of_name}"]
    said = ["pets: made up", "--quick: a pet in place of 40", "not measured: pets that have no name"]
    assert result["notes"] == said
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page_problems(page) == [] and "letters of the name" in page and "the longer the better" in page
    kept = read_records(tmp_path / "out" / "records", paper="pets", metric="letters")
    assert kept["letters"].tolist() == [letters_of_name]
    with pytest.raises(ValueError, match="nothing could be measured"):
        audit(model_folder, tmp_path / "other", languages=["zh"], progress=False)
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    assert "a pet in place of 40" in " ".join(capsys.readouterr().out.split())


def test_a_made_up_papers_statements_tables_and_figures_are_on_the_report(pets, model_folder, capsys):
    """From its record to the verdict on what it says, and to its part of the page."""
    assert main(["measure", "--paper", "pets", "--model", str(model_folder), "--save"]) == 0
    assert main(["claims", "pets", "--out", "figures/claims/claims-pets.csv"]) == 0
    assert "| Names of pets are long |" in (said := capsys.readouterr().out) and "| reproduced |" in said
    table = read_records(paper="pets")[["model", "letters"]]
    figure, ax = plt.subplots()
    ax.bar(table["model"], table["letters"])
    save_table(table, pets / "figures" / "pets" / "letters", "letters: of the name.")
    save_figure(figure, pets / "figures" / "pets" / "letters")
    assert main(["report", "--html", "page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    parts = ("Scorecard", "Pets", "How long names are", "Letters of names", "A bar for the letters of each name")
    assert page_problems(page) == [] and all(part in page for part in (*parts, "Names of pets are long", "tiny-gpt2"))


def test_released_sentences_are_on_the_page_if_asked_for(corpus, model_folder):
    """Folded, behind a content warning; else the page says where they are."""
    records = measure_association(open_model(model_folder), ["race"], corpus="redditbias", limit=20)
    text = association_sentences(records[0], texts=True)["text"].iloc[0]
    for texts in (False, True):
        page = str(shared._association_blocks("redditbias", "Association", texts, records))
        assert (text in page) == texts and ("--show-texts" in page) != texts
