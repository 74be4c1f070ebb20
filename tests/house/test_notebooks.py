"""Notebooks are the source: exported, clean, parameterised, and run headless by papermill."""

import ast
import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from conftest import papermill

from redditbias_repro.records import read_records, repo_root

ROOT = repo_root()
NOTEBOOKS = sorted(p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
BIN = Path(sys.executable).parent


def tagged(path):
    return [
        c
        for c in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if "parameters" in c["metadata"].get("tags", [])
    ]


PARAMETERISED = [p for p in NOTEBOOKS if tagged(p)]


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory):
    """A copy of the notebooks and the package after `nbdev_export` and `nbdev_clean`."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("nbs", "redditbias_repro"):
        shutil.copytree(
            ROOT / name,
            copy / name,
            ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", ".last_checked"),
        )
    for name in ("settings.ini", "pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, copy / name)
    for command in ("nbdev_export", "nbdev_clean"):
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        subprocess.run([str(BIN / command)], cwd=copy, check=True, capture_output=True, env=environment)
    return copy


def same(a, b):
    return filecmp.cmp(a, b, shallow=False)


def test_the_package_is_what_the_notebooks_export(cleaned):
    modules, ours = (
        sorted(p.relative_to(r / "redditbias_repro") for p in (r / "redditbias_repro").rglob("*.py"))
        for r in (cleaned, ROOT)
    )
    assert modules == ours
    assert [
        str(m) for m in modules if not same(cleaned / "redditbias_repro" / m, ROOT / "redditbias_repro" / m)
    ] == [], "run nbdev_export"


def test_notebooks_are_clean(cleaned):
    assert [str(p.relative_to(ROOT)) for p in NOTEBOOKS if not same(p, cleaned / p.relative_to(ROOT))] == [], (
        "run nbdev_clean"
    )


def test_code_that_only_draws_is_folded_away():
    """By the tag in `make pages`, by the metadata in JupyterLab: a cell has both or none."""
    for path in (p for p in PARAMETERISED if p.parent.name == "papers"):
        cells = [c["metadata"] for c in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        tagged = ["hide-input" in c.get("tags", []) for c in cells]
        assert tagged == [c.get("jupyter", {}).get("source_hidden", False) for c in cells] and any(tagged), path.name


def test_which_notebooks_have_parameters():
    assert [p.relative_to(ROOT / "nbs").as_posix() for p in PARAMETERISED] == [
        "02_retrieval.ipynb",
        "02a_annotation.ipynb",
        "02b_collection.ipynb",
        "03b_metrics.ipynb",
        "03c_false_alarms.ipynb",
        "05_debias.ipynb",
        "06_dst.ipynb",
        "07_crg.ipynb",
        "07a_chinese_dialogue.ipynb",
        "07b_human_evaluation.ipynb",
        "papers/chbias.ipynb",
        "papers/claims.ipynb",
        "papers/dialoguefairness.ipynb",
        "papers/holisticbias.ipynb",
        "papers/holisticbias_answers.ipynb",
        "papers/redditbias.ipynb",
    ]


@pytest.mark.parametrize("path", PARAMETERISED, ids=lambda p: p.stem)
def test_parameters_are_injected_below_the_defaults_after_cleaning(cleaned, path):
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    node = load_notebook_node(str(cleaned / path.relative_to(ROOT)))
    cells = parameterize_notebook(node, {"model": "injected"}).cells
    tags = [c.metadata.get("tags", []) for c in cells]
    assert tags.index(["injected-parameters"]) == tags.index(["parameters"]) + 1


def assigned(node):
    """Names that a cell assigns, but for those within functions, classes and comprehensions."""
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    own = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    return set().union(*(assigned(child) for child in ast.iter_child_nodes(node) if not isinstance(child, own)))


@pytest.mark.parametrize("path", PARAMETERISED, ids=lambda p: p.stem)
def test_no_example_gives_a_parameter_another_value(path):
    """A cell below the parameters that assigned one would win over `-p`."""
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    tags = [c["metadata"].get("tags", []) for c in cells]
    first = tags.index(["parameters"])
    code = ["".join(c["source"]) for c in cells[first:]]
    given, *others = (assigned(ast.parse(c)) for c in code if "#| slow" not in c)
    assert given and not [given & names for names in others if given & names]


LATE = {  # functions that stand below an example which calls what could call them, and when only it does
    "data/pairs": {"corpora": "in an error"},
    "models/loading": {"hash_weights": "of an adapter"}, "scoring/likelihoods": {"_resumed": "with out="},
    "data/corpora/holisticbias": {"_read_regard_prompts": "of another version"},
}  # fmt: skip
_DEFINED = (ast.FunctionDef, ast.ClassDef)


def _names(node: ast.AST, how: type) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, how)}


def _needed(node: ast.AST) -> set[str]:
    """Names from outside that a statement or function asks for."""
    if not isinstance(node, ast.FunctionDef):
        return _names(node, ast.Load)
    return _names(node, ast.Load) - _names(node, ast.Store) - {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}


def late_names(path: Path) -> set[str]:
    """What an example reaches through the functions above it and what is defined only below."""
    code = [c for c in nbformat.read(path, 4).cells if c.cell_type == "code" and not c.source.startswith(("%", "!"))]
    trees = [ast.parse(c.source) for c in code]
    defined = {n.name for tree in trees for n in tree.body if isinstance(n, _DEFINED)}
    defined |= {
        n for tree in trees for s in tree.body if isinstance(s, ast.Assign) for n in _names(s, ast.Store) if n.isupper()
    }
    there, calls, late = set(), {}, set()
    for tree in trees:
        functions = {n.name: _needed(n) for n in tree.body if isinstance(n, _DEFINED)}
        calls |= functions
        there |= functions.keys() | _names(tree, ast.Store)
        todo = set().union(*(_needed(n) for n in tree.body if not isinstance(n, _DEFINED)))
        seen = set()
        while todo:
            seen.add(name := todo.pop())
            late |= {name} & defined - there
            todo |= calls.get(name, set()) - seen
    return late


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_from_top_to_bottom(path):
    """Examples run with the built package elsewhere; here: no example needs a function that stands below it."""
    name = str(path.relative_to(ROOT / "nbs").with_suffix(""))
    assert late_names(path) == set(LATE.get(name, {}))


def test_saving_outputs_of_a_page_measures_nothing(tmp_path):
    """It shows what is on record; what a run that measured said of itself stays."""
    sys.path.insert(0, str(ROOT / "workflow"))
    from save_outputs import run

    code = ["#| slow\nif measure:\n    print('for hours')", "print('measured' if measure else 'on record')"]
    cells = [nbformat.v4.new_code_cell("measure = True  # False: tables", metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(c) for c in code]
    cells[1].outputs = [nbformat.v4.new_output("stream", text="1,000 answers")]
    path = tmp_path / "papers" / "page.ipynb"
    path.parent.mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    run(path)
    given, slow, shown = nbformat.read(path, as_version=4).cells
    assert given.source == "measure = True  # False: tables"
    assert slow.outputs[0].text == "1,000 answers" and shown.outputs[0].text == "on record\n"


def test_metrics_notebook_by_papermill(cleaned, model_folder, tmp_path):
    own = tmp_path / "pets.csv"
    own.write_text(
        "text1,text2\ncats are lazy,dogs are lazy\nthe cat sleeps,the dog sleeps\nmy cat bites,my dog bites\n"
    )
    notebook = cleaned / "nbs" / "03b_metrics.ipynb"
    papermill(
        notebook,
        tmp_path / "out.ipynb",
        model=model_folder,
        bias_type="animals",
        corpus=own,
        seed=7,
        out_dir=tmp_path / "results",
    )
    records = read_records(tmp_path / "results")
    assert set(records.bias_type) == {"animals"} and set(records.corpus) == {"pets"} and set(records.seed) == {7}
    assert records.model[0].startswith("tiny-gpt2@") and sorted(records.outliers) == ["all", "base", "own"]


def test_papers_notebook_by_papermill_with_a_small_model(corpus, cleaned, model_folder, tmp_path):
    results, figures = tmp_path / "results", tmp_path / "figures"
    notebook = cleaned / "nbs" / "papers" / "redditbias.ipynb"
    out = papermill(
        notebook,
        tmp_path / "out.ipynb",
        model=model_folder,
        corpus="redditbias",
        seed=3,
        results_dir=results,
        figures_dir=figures,
    )
    table = pd.read_csv(figures / "lmb.csv")
    assert len(table) == 2 * 5 * 3 and set(table.outliers) == {"all", "base", "own"}
    assert set(table.model.str.split("@").str[0]) == {"tiny-gpt2", "DialoGPT-small (published)"}
    assert set(read_records(results).seed) == {3} and set(table.corpus) == {"redditbias"}
    names = {"figure1a.png", "figure1a.svg"} | {
        f"{n}{s}"
        for n in ("table1", "table3", "table3_differences", "lmb", "claims", "inconsistencies")
        for s in (".csv", ".md")
    }
    assert {p.name for p in figures.iterdir()} == names
    assert not [o for c in out["cells"] for o in c.get("outputs", []) if o["output_type"] == "error"]


def test_papers_notebook_without_network(offline, cleaned, model_folder, tmp_path):
    """Nothing but the package: queries stand in, and it is said wherever they are shown."""
    results, figures = tmp_path / "results", tmp_path / "figures"
    notebook = cleaned / "nbs" / "papers" / "redditbias.ipynb"
    out = papermill(notebook, tmp_path / "out.ipynb", model=model_folder, results_dir=results, figures_dir=figures)
    text = json.dumps(out, ensure_ascii=False)
    assert (
        "specification stand in" in text
        and "Table 3 is counted from the released files, which are not available" in text
    )
    assert {p.name for p in figures.iterdir()} >= {"figure1a-queries.png", "lmb.csv", "table1.md"} and not (
        figures / "table3.csv"
    ).exists()
    measured = read_records(results)
    notes = {r["corpus"]["note"] for r in measured[measured.corpus == "queries"].provenance}
    assert len(notes) == 1 and "stand in" in notes.pop()


def test_saved_outputs_hold_no_machine_paths_and_no_errors():
    for path in NOTEBOOKS:
        outputs = json.dumps([c.get("outputs", []) for c in json.loads(path.read_text(encoding="utf-8"))["cells"]])
        assert str(ROOT) not in outputs and str(Path.home()) not in outputs and '"error"' not in outputs, path
    paper = json.loads((ROOT / "nbs" / "papers" / "redditbias.ipynb").read_text(encoding="utf-8"))
    kinds = {k for c in paper["cells"] for o in c.get("outputs", []) for k in o.get("data", {})}
    assert {"image/png", "text/markdown"} <= kinds, (
        "the paper's notebook is kept with its tables and figures: make notebooks"
    )


def test_no_corpus_sentence_is_committed(corpus, committed):
    """No run of nine words of the released sentences stands in any committed file."""
    import re

    from redditbias_repro.data.corpora.redditbias import load_annotations
    from redditbias_repro.data.pairs import load_pairs
    from redditbias_repro.specs import BIAS_TYPES

    def runs(text):
        words = re.findall(r"[a-z']+", text.lower())
        return {" ".join(words[i : i + 9]) for i in range(len(words) - 8)}

    sentences = set()
    for b in BIAS_TYPES:
        for split in ("train", "valid", "test"):
            pairs = load_pairs(b, split, "redditbias")
            sentences |= set().union(*map(runs, [*pairs.text1, *pairs.text2]))
        sentences |= set().union(*map(runs, load_annotations(b).comment))
    for path in committed.rglob("*"):
        if path.is_file() and ".git" not in path.parts and path.suffix not in (".png", ".svg", ".eval"):
            assert not runs(path.read_text(encoding="utf-8")) & sentences, path
