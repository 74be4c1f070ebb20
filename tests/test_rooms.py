"""The plan of the house: which rooms know papers, and that what they offer works where there is no checkout."""

import ast
import re
from pathlib import Path

import pytest

from redditbias_repro.records import repo_root

ROOT = repo_root()
PAPERS = ("redditbias", "chbias", "holisticbias", "dialoguefairness")
NAMED = re.compile(rf"(?<![\w.])({'|'.join(PAPERS)})(?!_repro)(?!\w)")
KNOW_PAPERS = {"cli.py", "_modidx.py"}  # the command is called redditbias; the index is nbdev's
DEFAULT = 'DEFAULT_PAPER = "redditbias"'  # in specs: whose a bare name is


def rooms():
    return [p for p in sorted((ROOT / "redditbias_repro").glob("*.py")) if p.name not in KNOW_PAPERS]


def strings(tree):
    """String constants that are no docstrings, with their lines."""
    holders = (ast.Module, ast.FunctionDef, ast.ClassDef)
    docs = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, holders) and n.body and isinstance(n.body[0], ast.Expr)
    }
    return [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs]


@pytest.mark.parametrize("path", rooms(), ids=lambda p: p.stem)
def test_a_general_room_knows_no_paper(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    named = [lines[n.lineno - 1] for n in strings(ast.parse(text)) if NAMED.search(n.value)]
    assert [line for line in named if not line.startswith(DEFAULT)] == []
    imported = re.findall(r"(?m)^\s*from [\w.]*(?:corpora|papers)\.(\w+) import", text)
    assert not set(imported) & set(PAPERS), "what a paper released or prints is reached by its name, through data"


def test_rooms_stand_in_the_order_of_data():
    """A module imports only from notebooks before it; what only examples need is no export."""
    places = {}
    for nb in sorted((ROOT / "nbs").glob("*.ipynb")):
        if found := re.search(r"#\| default_exp ([\w.]+)", nb.read_text(encoding="utf-8")):
            places[found[1]] = nb.name
    wrong = []
    for module, name in places.items():
        text = (ROOT / "redditbias_repro" / Path(*module.split(".")).with_suffix(".py")).read_text(encoding="utf-8")
        used = re.findall(r"(?m)^from (?:redditbias_repro)?\.{1,2}(\w+) import", text)
        wrong += [f"{name} imports {u}" for u in used if u in places and places[u].split("_")[0] > name.split("_")[0]]
    assert wrong == []
