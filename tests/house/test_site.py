"""The documentation site: every page has a place, and links lead somewhere."""

import importlib.util
import re

import pytest

from redditbias_repro.records import repo_root

ROOT = repo_root()


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "site" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages_of(navigation):
    """The files that a navigation lists."""
    if isinstance(navigation, str):
        return [navigation]
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for part in parts for page in pages_of(part)]


def test_every_guide_and_notebook_is_listed(hooks):
    listed = pages_of(hooks.navigation())
    wanted = [p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts]
    wanted += list((ROOT / "docs").rglob("*.md"))
    assert sorted(listed) == sorted(["index.md", *(str(p.relative_to(ROOT)) for p in wanted)])


def test_pages_lie_where_they_are_linked_to(hooks, tmp_path):
    hooks.lay_out(tmp_path / "source")
    known = {str(p.relative_to(tmp_path / "source")) for p in (tmp_path / "source").rglob("*") if p.is_file()}
    assert {"index.md", "docs/reading.md", "figures/redditbias/figure1a.png", "wide.css"} <= known
    shown = (tmp_path / "source" / "nbs" / "debias/losses.ipynb").read_text(encoding="utf-8")
    assert "def lmd_loss" in shown and "#| export" not in shown and "disable_progress_bar" not in shown
    for page in ("index.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))):
        text = (tmp_path / "source" / page).read_text(encoding="utf-8")
        changed = hooks.elsewhere(text, page, known, "https://example.org/blob/main")
        for target in re.findall(r"\]\(([^)#?\s]+)[^)]*\)", changed):
            there = (tmp_path / "source" / page).parent / target
            assert target.startswith("http") or there.is_file(), f"{page}: {target}"


def test_links_to_what_is_no_page_lead_to_the_repository(hooks):
    known, base = {"index.md", "docs/reading.md", "nbs/debias/losses.ipynb"}, "https://example.org/blob/main"
    page, away = "nbs/debias/losses.ipynb", "[d](https://a.b/c) [e](none.md)"
    text = f"[a](../README.md#x) [b](../{page}) [c](../config/demo.yaml) {away}"
    changed = hooks.elsewhere(text, "docs/reading.md", known, base)
    assert changed == f"[a](../index.md#x) [b](../{page}) [c]({base}/config/demo.yaml) {away}"
