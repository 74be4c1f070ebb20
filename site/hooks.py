"""What mkdocs does not know of this project: where its pages come from, and files that are not among them."""

import json
import posixpath
import re
import shutil
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)#?\s]+)([^)]*\))")
HIDDEN = re.compile(r"#\| *(hide|default_exp)\b")
DIRECTIVE = re.compile(r"(?m)^#\| *(export|exporti|corpus|slow|hide_line|eval).*\n?")
KEPT = ("*.md", "*.ipynb", "*.png", "*.svg")
WIDE = """.md-grid { max-width: 92rem; }
.md-typeset table:not([class]) th, .md-typeset table:not([class]) td { min-width: 0; padding: .4em .6em; }
"""  # tables have many columns
MATHJAX = {"tex": {"inlineMath": [["$", "$"], ["\\(", "\\)"]], "processEscapes": True}}
ROOMS = ["stats", "data", "models", "scoring", "answers", "debias", "metrics", "show", "papers"]
GUIDES = (
    """start biased choose statements reading groups holisticbias chinese fairness scoring extend data_card""".split()
)


def repository() -> str:
    """Address of the files of the main branch."""
    settings = ConfigParser(delimiters=["="])
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    return f"{settings['DEFAULT']['git_url']}/blob/{settings['DEFAULT']['branch']}"


def without_directives(notebook: Path) -> str:
    """A notebook as a reader wants it: without hidden cells and what only nbdev reads."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    kept = [c for c in content["cells"] if not HIDDEN.match("".join(c["source"]))]
    for cell in kept:
        cell["source"] = DIRECTIVE.sub("", "".join(cell["source"])) if cell["cell_type"] == "code" else cell["source"]
    return json.dumps({**content, "cells": kept}, ensure_ascii=False)


def lay_out(source: Path) -> None:
    """Pages and pictures where README and docs link to them."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    shutil.copy(ROOT / "README.md", source / "index.md")
    for part in ("docs", "nbs", "figures"):
        for pattern in KEPT:
            for path in (ROOT / part).rglob(pattern):
                if ".ipynb_checkpoints" not in path.parts:
                    there = source / path.relative_to(ROOT)
                    there.parent.mkdir(parents=True, exist_ok=True)
                    if path.suffix == ".ipynb":
                        there.write_text(without_directives(path), encoding="utf-8")
                    else:
                        shutil.copy(path, there)
    # Equations are drawn by MathJax, which the reader's browser loads; without a network their source is shown.
    (source / "mathjax.js").write_text(f"window.MathJax = {json.dumps(MATHJAX)};\n", encoding="utf-8")
    (source / "wide.css").write_text(WIDE, encoding="utf-8")


def title(notebook: str) -> str:
    """The first heading of a notebook."""
    return re.search(r'"# (.*?)(?:\\n)?"', (ROOT / notebook).read_text(encoding="utf-8"))[1].replace('\\"', '"')


def navigation() -> list:
    """Guides first, then the papers, then runs, then every room in the order of imports."""
    guides = sorted((p.stem for p in (ROOT / "docs").glob("*.md")), key=GUIDES.index)
    listed = lambda folder, pattern: [
        {title(p): p} for p in sorted(str(x.relative_to(ROOT)) for x in (ROOT / folder).glob(pattern))
    ]
    is_page = lambda entry: "#| default_exp" not in (ROOT / next(iter(entry.values()))).read_text(encoding="utf-8")
    papers = listed("nbs/papers", "**/*.ipynb")
    rooms = [{room.capitalize(): listed(f"nbs/{room}", "**/*.ipynb")} for room in ROOMS[:-1]]
    return [
        {"Start": "index.md"},
        {"Guides": [f"docs/{g}.md" for g in guides]},
        {"Appendices": sorted(f"docs/appendix/{p.name}" for p in (ROOT / "docs/appendix").glob("*.md"))},
        {"Papers": [p for p in papers if is_page(p)]},
        {"Runs": listed("nbs", "[0-9]*.ipynb")},
        {"Modules": ["nbs/index.ipynb", *listed("nbs", "[a-hj-z]*.ipynb"), *rooms]},
        {"What papers print": [p for p in papers if not is_page(p)]},
    ]


def elsewhere(markdown: str, page: str, known: set[str], base: str) -> str:
    """Links to files of the repository that are no page lead to the repository."""

    def change(found):
        target = found[2]
        if re.match(r"[a-z]+:|/|mailto", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        path = "index.md" if path == "README.md" else path
        if path in known:
            there = posixpath.relpath(path, posixpath.dirname(page) or ".")
            return f"{found[1]}{there}{found[3]}"
        return f"{found[1]}{base}/{path}{found[3]}" if (ROOT / path).exists() else found[0]

    return LINK.sub(change, markdown)


def on_config(config):
    lay_out(Path(config["docs_dir"]))
    config["nav"] = navigation()
    return config


def on_page_markdown(markdown, page, config, files):
    known = {f.src_uri for f in files}
    return elsewhere(markdown, page.file.src_uri, known, repository())
