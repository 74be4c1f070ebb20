"""The package as others install it."""

import os
import subprocess
import sys
import zipfile

import pytest

from redditbias_repro.records import repo_root

ROOT = repo_root()
CLEAN = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

CHECK = """
import redditbias_repro, sys
from redditbias_repro.specs import list_specs, load_spec
from redditbias_repro.data import load_pairs
from redditbias_repro.registry import list_files
from redditbias_repro.metrics import lmb, measure_lmb
assert "site-packages" in redditbias_repro.__file__, redditbias_repro.__file__
assert len(list_specs()) == 5 and len(load_spec("redditbias/race").pairs) == 9 and len(list_files()) > 190
records = measure_lmb(sys.argv[1], ["race"], "queries", outlier_sd=[None])
assert records[0]["n"] == len(load_pairs("race", corpus="queries"))

# what reads the papers' numbers, captions and released perplexities, and writes where it is called
from pathlib import Path
from redditbias_repro import reports
from redditbias_repro.papers import redditbias as paper
from redditbias_repro.records import write_record
for r in [*records, *paper.published_lmb()]:
    write_record(r)
assert len(paper.similar_trends()) == 5 and len(paper.table1_differences()) and len(paper.inconsistencies()) == 4
tables = paper.make_tables()
written = paper.save_all(tables, paper.make_figures(tables), Path("figures"))
assert {"table1.md", "claims.csv", "figure1a.png"} <= {p.name for p in written} and Path("results").is_dir()
assert "DialoGPT-small" in reports.lmb_report() and "DialoGPT-small" in reports.front_report()
assert reports.changes_report() == reports.found_report() == reports.downstream_report() == ""
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env=CLEAN)
    return next(folder.glob("redditbias_repro-*.whl"))


def test_wheel_holds_resources_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        f"redditbias_repro/resources/specs/redditbias/{b}.toml" for b in ("religion1", "race", "orientation")
    } <= set(names)
    assert "redditbias_repro/resources/sources.tsv" in names
    assert {f"redditbias_repro/corpora/{m}.py" for m in ("__init__", "dstc7", "multiwoz")} <= set(names)
    assert {n.split("/")[0].split("-")[0] for n in names} == {"redditbias_repro"}


def test_wheel_in_an_empty_environment(wheel, model_folder, tmp_path):
    """Its dependencies come from the index, as for any user; it runs outside the checkout."""
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True, env=CLEAN)
    python = env / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*install, "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True, env=CLEAN)
    check = [str(python), "-c", CHECK, str(model_folder)]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, env=CLEAN)
    assert done.returncode == 0, done.stderr[-2000:]
    specs = [str(env / "bin" / "redditbias"), "specs"]
    listed = subprocess.run(specs, cwd=tmp_path, capture_output=True, text=True, env=CLEAN)
    assert listed.returncode == 0 and "redditbias/orientation" in listed.stdout


def test_importing_needs_only_what_is_promised():
    """numpy, pandas, scipy, torch and transformers (and what they bring); everything else where it is used."""
    code = """
import sys
later = "sklearn seaborn matplotlib statsmodels tabulate platformdirs nbdev fastcore snakemake papermill IPython"
for name in later.split():
    sys.modules[name] = None
import importlib, pkgutil, redditbias_repro
for module in pkgutil.walk_packages(redditbias_repro.__path__, "redditbias_repro."):
    importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
