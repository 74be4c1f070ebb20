"""Committed figures and tables fit a page: width, size of letters, colours that all can tell apart, columns, digits."""

import csv
import re

import numpy as np
import pytest
import seaborn as sns

from redditbias_repro.records import repo_root, resource
from redditbias_repro.show.tables import columns_of

ROOT = repo_root()
FIGURES, TABLES = sorted((ROOT / "figures").rglob("*.svg")), sorted((ROOT / "figures").rglob("*.md"))
WIDEST, SMALLEST = 9.2, 9.0  # inches with the margin that `tight` adds; pixels of letters where a page is 800 wide


def name(path):
    return str(path.relative_to(ROOT / "figures"))


@pytest.mark.parametrize("path", FIGURES, ids=name)
def test_letters_can_be_read_on_a_page(path):
    svg = path.read_text(encoding="utf-8")
    width = float(re.search(r'width="([\d.]+)pt"', svg)[1])
    sizes = [100 * float(s) for s in re.findall(r"scale\((0\.\d+) -0\.\d+\)", svg)]
    # a superscript is seven tenths of its letters
    assert width / 72 <= WIDEST and min(sizes) * 800 / width >= SMALLEST * 0.7
    assert np.median(sizes) * 800 / width >= SMALLEST


def deuteranopia(rgb):
    """A colour as somebody without green cones sees it (Machado et al., 2009), sRGB to sRGB."""
    rgb = np.asarray(rgb)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(
        linear
        @ np.array([[0.367322, 0.280085, -0.011820], [0.860646, 0.672501, 0.042940], [-0.227968, 0.047413, 0.968881]]),
        0,
        1,
    )
    return np.where(seen <= 0.0031308, 12.92 * seen, 1.055 * seen ** (1 / 2.4) - 0.055)


def test_the_colours_of_figures_differ_without_green_cones():
    """The palette of all figures: the five colours that stand side by side most."""
    seen = [deuteranopia(c) for c in sns.color_palette("colorblind")[:5]]
    apart = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(apart) > 0.1
    red, green = deuteranopia((0.8, 0.2, 0.2)), deuteranopia((0.4, 0.45, 0.1))
    assert np.linalg.norm(red - green) < 0.25, "what the simulation is for"


@pytest.mark.parametrize("path", TABLES, ids=name)
def test_tables_have_few_columns_and_plain_numbers(path):
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    columns = max((line.count("|") - line.count(r"\|") - 1 for line in rows[:1]), default=0)
    assert columns <= 10, "at most eight that are read, and two that name a row"
    assert not [c for line in rows for c in line.split("|") if re.fullmatch(r"\s*-?\d+\.\s*", c)], "a bare point"


NAMED = {"dialogue": "dialogue-gender", "sides": "table3"}  # what shows several tables → one of them


@pytest.mark.parametrize("paper", ["chbias", "dialoguefairness", "holisticbias"])
def test_what_is_shown_is_in_the_csv_and_has_a_readable_header(paper):
    for name, shown in resource(f"papers/{paper}.toml")["shown"].items():
        path = ROOT / "figures" / paper / f"{NAMED.get(name, name)}.csv"
        named = lambda text: text.replace("side1", "male").replace("side2", "female")
        with path.open(encoding="utf-8", newline="") as file:
            columns = {*next(csv.reader(file))}
        assert {c for column in shown for c in columns_of(named(column))} <= columns, name
        (header, *_) = path.with_suffix(".md").read_text(encoding="utf-8").splitlines()
        assert [h.strip() for h in header.strip("|").split("|")] == [*map(named, shown.values())], name
        assert not [h for h in shown.values() if re.search(r"[a-z]_[a-z]", h)], name
