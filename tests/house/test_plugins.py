"""A package of one's own that adds a corpus, a measure and a method by entry points, installed as any package is."""

import json
import subprocess
import sys

import pytest
from conftest import Command

pytestmark = pytest.mark.offline
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "pets-bias"
version = "1"
[project.entry-points."redditbias_repro.corpora"]
pets = "pets_bias.corpus"
[project.entry-points."redditbias_repro.measures"]
pets = "pets_bias.letters"
[project.entry-points."redditbias_repro.methods"]
Halved = "pets_bias.method:HALVED"
[tool.setuptools.packages.find]
include = ["pets_bias*"]
[tool.setuptools.package-data]
pets_bias = ["**/*.toml"]
"""
CORPUS = """
import pandas as pd

from redditbias_repro.data.registry import with_corpus
from redditbias_repro.specs import load_spec


def read_released(name, split, swap):
    terms = [(a, b, who) for a, b in load_spec(f"pets/{name}").pairs for who in ("he", "she", "it")]
    rows = [(f"{a} are lazy, {who} says", f"{b} are lazy, {who} says", a, b) for a, b, who in terms]
    return with_corpus(pd.DataFrame(rows, columns=["text1", "text2", "target1", "target2"]), "pets")
"""
SPEC = """
title = "Species"
paper = "pets"
language = "en"
targets1 = ["cats are"]
targets2 = ["dogs are"]
attributes1 = ["lazy"]
pairs = [["cats", "dogs"], ["kittens", "puppies"]]
"""
LETTERS = """
import pandas as pd

from redditbias_repro.models.loading import open_model
from redditbias_repro.papers.measures import Command, Shown
from redditbias_repro.records import new_record


def run(args):
    about = open_model(args.model, args.device, args.dtype).about
    record = new_record("letters", about, {"name": "names"}, 1, {"letters": len(about["name"]) * args.times}, "pets")
    table = pd.DataFrame([record["values"]])
    return Shown(table, table, "Names.", [record])


def planned(wanted):
    return [], []


COMMAND = Command(run)
"""
COMMAND = """
asked = "names"
title = "names of pets"
about = "letters, with --paper pets"
[measure]
caption = "letters: of the name."
[measure.options]
--times = { type = "count", default = 1, help = "counted so often" }
"""
METHOD = """
from redditbias_repro.debias.losses import METHODS, Method, add_loss

HALVED = Method(lambda o: add_loss(o.states, o.targets1, o.targets2) / 2)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that `pip install --target` made; the package stands in no other test's environment."""
    source, target = tmp_path_factory.mktemp("pets"), tmp_path_factory.mktemp("site")
    package = source / "pets_bias"
    (package / "specs" / "pets").mkdir(parents=True)
    (source / "pyproject.toml").write_text(PROJECT)
    for name, text in (
        ("__init__.py", ""), ("corpus.py", CORPUS), ("letters.py", LETTERS), ("command.toml", COMMAND),
        ("method.py", METHOD), ("specs/pets/species.toml", SPEC),
    ):  # fmt: skip
        (package / name).write_text(text)
    how = ["--no-deps", "--no-build-isolation", "--quiet", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *how, str(source)], check=True)
    return target


@pytest.fixture
def redditbias(installed, tmp_path, offline):
    def run(*args, ok=True):
        said = tmp_path / "said"
        said.mkdir(exist_ok=True)
        done = Command(said, *args, path=installed, cwd=tmp_path).done()
        assert (done.returncode == 0) == ok, done.stderr
        return done.stdout if ok else done.stderr

    return run


def test_what_a_package_adds_is_listed(redditbias):
    listed = json.loads(redditbias("ls", "--json"))
    assert listed["methods"]["Halved"] == "added by pets-bias" and "pets/species" in listed["bias-types"]
    assert "pets" in listed["corpora"] and "measure --paper pets" in listed["measures"]
    assert "--times" in redditbias("measure", "--help") and "Halved" in redditbias("debias", "--help")


def test_its_pairs_are_measured(redditbias, model_folder):
    records = json.loads(
        redditbias("measure", "--model", model_folder, "--bias-type", "pets/species", "--json", "--quiet")
    )
    assert {r["corpus"] for r in records} == {"pets"} and records[0]["paper"] == "pets" and records[0]["n"] <= 6


def test_its_measure_is_asked(redditbias, model_folder):
    once, twice = (
        json.loads(redditbias("measure", "--paper", "pets", "--model", model_folder, "--times", n, "--json"))[0]
        for n in (1, 2)
    )
    assert twice["values"]["letters"] == 2 * once["values"]["letters"] == 2 * len(once["model"])


def test_its_method_debiases(redditbias, model_folder, tmp_path):
    (tmp_path / "said.txt").write_text("cats are lazy\nkittens are lazy and small\n" * 4)
    how = ["--method", "Halved", "--bias-type", "pets/species", "--texts", "said.txt", "--epochs", "1", "--out", "out"]
    redditbias("debias", "--model", model_folder, *how)
    assert json.loads((tmp_path / "out" / "debias.json").read_text())["settings"]["method"] == "Halved"


def test_two_packages_of_one_name(redditbias, installed, tmp_path):
    """Said, and not one taken for the other."""
    info = installed / "other-1.dist-info"
    info.mkdir()
    try:
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[redditbias_repro.methods]\nHalved = other:X\n")
        assert "both add 'Halved' to methods" in redditbias("ls", "methods", ok=False)
    finally:
        for path in info.iterdir():
            path.unlink()
        info.rmdir()


def test_an_extension_that_is_broken_is_named(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from redditbias_repro import specs
    from redditbias_repro.papers import commands, measures
    from redditbias_repro.records import plugin_file

    point = SimpleNamespace(
        module="nosuch.corpus", name="pets", value="nosuch.corpus", dist=SimpleNamespace(name="own")
    )
    with pytest.raises(ValueError, match="own adds 'pets' by nosuch.corpus, and there is no such module: install it"):
        plugin_file(point)
    (tmp_path / "command.toml").write_text("x =")
    with monkeypatch.context() as m, pytest.raises(ValueError, match=r"command\.toml: not a TOML file"):
        m.setattr(commands, "plugins", lambda kind: {"pets": point})
        m.setattr(commands, "plugin_file", lambda point: tmp_path / "letters.py")
        commands.read_commands()
    (tmp_path / "command.toml").write_text(COMMAND.replace('about = "letters, with --paper pets"', ""))
    with monkeypatch.context() as m, pytest.raises(ValueError, match=r"command\.toml lacks about: add them"):
        m.setattr(commands, "plugins", lambda kind: {"pets": point})
        m.setattr(commands, "plugin_file", lambda point: tmp_path / "letters.py")
        commands.read_commands()
    monkeypatch.setattr(measures, "plugins", lambda kind: {"pets": point})
    monkeypatch.syspath_prepend(tmp_path)
    for name, code, said in (("odd_code", "def (", "cannot be imported .SyntaxError"), ("odd_none", "", "no COMMAND")):
        (tmp_path / f"{name}.py").write_text(code)
        point.module = name
        with pytest.raises(ValueError, match=said):
            measures.command_of("pets")
    for name in ("species.toml", "README.md"):
        (tmp_path / "pets" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "pets" / name).write_text("")
    monkeypatch.setattr(specs, "_spec_folders", lambda: {"pets": tmp_path / "pets"})
    assert specs.list_specs() == ["pets/species"]
