"""`redditbias audit`: everything of one model, resumed, on one page."""

import copy
import json
import sys

import pandas as pd
import pytest

from redditbias_repro.cli import main
from redditbias_repro.metrics.languages import language_signs, token_shares
from redditbias_repro.metrics.likelihood import LOVE
from redditbias_repro.metrics.measure import Kind, Measure, findings, measure
from redditbias_repro.models.loading import load_model, open_model
from redditbias_repro.papers import audit as room
from redditbias_repro.papers import measures as shared
from redditbias_repro.papers.audit import audit
from redditbias_repro.papers.chbias import measures as chinese
from redditbias_repro.papers.dialoguefairness import measures as fairness
from redditbias_repro.papers.holisticbias import measures as likelihood
from redditbias_repro.papers.redditbias import measures as bias
from redditbias_repro.records import new_record, project_path, read_records
from redditbias_repro.show.html import page_problems, table_block
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
    monkeypatch.setattr(bias, "paper_bias_types", lambda paper: ["race"])
    monkeypatch.setattr(chinese, "paper_bias_types", lambda paper: ["age"])


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
    assert "queries of the specification stand in" in told.out and "queries of the specifications stand in" in told.out
    assert "not measured: LM perplexity" in told.err  # its references cannot be had
    numbers = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    measured = {(r["metric"], r["paper"]) for r in numbers["records"]}
    assert measured == {("lmb", "redditbias"), ("lmb", "chbias"), ("lmb", "own"), ("likelihood_bias", "holisticbias"),
                        ("response_fairness", "dialoguefairness")}  # fmt: skip
    assert not any(k in r["values"] for r in numbers["records"] for k in room.PACKED)
    assert len(read_records(out / "records")) == len(numbers["records"])
    assert {r["corpus"] for r in numbers["records"] if r["metric"] == "lmb"} == {"queries"}
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page_problems(page) == [] and "What stands in and what is left out" in page and "LM perplexity: " in page
    assert set(project_path("results").rglob("*")) == before

    for where, name in (
        (shared, "measure_lmb"),
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
    measure(stopped, model._replace(about={**model.about, "weights_sha256": "f"}), tmp_path, progress=False)
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
        ("no/such-model-anywhere", 1, "is no local folder and could not be had"),
        ("not a name", 2, "is no folder and no name on the Hugging Face hub"),
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
    assert "the model knows no language here (English: 0% unknown tokens" in said and "say --languages" in said


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
    assert list(findings([])) == ["what", "of", "n", "value", "interval", "p", "found"] and isinstance(
        findings([]), pd.DataFrame
    )


def test_help_says_what_quick_leaves_out(capsys):
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    left_out = [bias.LEFT_OUT, likelihood.LEFT_OUT, fairness.LEFT_OUT.format(pairs=40)]
    assert all(part in said for part in left_out)


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
    measure(steps[:1], opened._replace(tokenizer=other), tmp_path / "out", progress=False)
    assert len(asked) == 3


PETS = """
import pandas as pd

from redditbias_repro.models.loading import open_model
from redditbias_repro.papers.measures import Command, Shown
from test_audit import letters, made


def run(args):
    records = letters(open_model(args.model))
    table = pd.DataFrame([r["values"] for r in records])
    return Shown(records, table, table, "letters: of the name")


COMMAND = Command("names", {"an_option_of_its_own": None}, run)


def planned(wanted):
    return [made("letters", run=letters)], ["pets: made up"]
"""


def letters(model):
    """A record of a made-up measure."""
    values = {"letters": len(model.about["name"])}
    return [new_record("letters", model.about, {"name": "none", "files": {}}, 1, values, paper="pets")]


def test_a_made_up_papers_made_up_measure_is_measured_and_audited(model_folder, tmp_path, monkeypatch, capsys):
    """Its folder alone is enough: measured by name, planned, kept, found again, summed up and shown."""
    import redditbias_repro.papers as papers

    letters_of_name = len(open_model(model_folder).about["name"])
    (tmp_path / "papers" / "pets").mkdir(parents=True)
    for name, text in {"__init__": "", "measures": PETS}.items():
        (tmp_path / "papers" / "pets" / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path / "papers")])
    monkeypatch.setitem(sys.modules, "test_audit", sys.modules[__name__])
    monkeypatch.setattr(shared, "DEFAULT_PAPER", "pets")
    for name in ("redditbias", "chbias", "holisticbias", "dialoguefairness"):
        of = __import__(f"redditbias_repro.papers.{name}.measures", fromlist=["planned"])
        monkeypatch.setattr(of, "planned", lambda wanted: ([], []))
    command = ["measure", "--paper", "pets", "--model", str(model_folder), "--out", str(tmp_path / "out.csv")]
    assert main(command) == 0 and "letters: of the name" in capsys.readouterr().out
    assert pd.read_csv(tmp_path / "out.csv")["letters"].tolist() == [letters_of_name]
    assert (
        main([*command, "--axes", "age"]) == 2
        and "--axes is of prompts, and --paper pets has" in capsys.readouterr().err
    )
    assert main(["measure", "--model", str(model_folder), "--axes", "age"]) == 2, "its options trouble no other paper"
    assert "--axes is of prompts" in capsys.readouterr().err
    assert main([*command[:2], "dogs"]) == 2 and "paper 'dogs' is unknown: expected one of" in capsys.readouterr().err
    for _ in range(2):
        result = audit(model_folder, tmp_path / "out", languages=["en"], progress=False)
        assert [r["values"] for r in result["records"]] == [{"letters": letters_of_name}] and result["failed"] == []
        for module in ("redditbias_repro.papers.pets.measures", __name__):
            monkeypatch.setattr(sys.modules[module], "letters", forbid)
    assert [r["value"] for r in result["found"]] == [f"{letters_of_name}"] and "pets: made up" in result["notes"]
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page_problems(page) == [] and "letters of the name" in page and "the longer the better" in page
    kept = read_records(tmp_path / "out" / "records", paper="pets", metric="letters")
    assert kept["letters"].tolist() == [letters_of_name]
    for module in [m for m in sys.modules if m.startswith("redditbias_repro.papers.pets")]:
        monkeypatch.delitem(sys.modules, module)
