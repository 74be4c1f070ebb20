"""The HTML report: what is on the page, and that a reader without network, eyes or scripts misses nothing."""

import html
import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from redditbias_repro.cli import main
from redditbias_repro.papers.report import (
    _saved,
    make_report,
    read_about,
    read_claim_tables,
    report_papers,
)
from redditbias_repro.records import repo_root
from redditbias_repro.show.html import LOOKS, figure_block, html_page, page_problems, section, table_block
from redditbias_repro.show.saving import save_table
from redditbias_repro.stats.verdicts import VERDICTS

ROOT = repo_root()
PAPERS = report_papers()


class Page(HTMLParser):
    """Tags with their attributes, in their order, and the text of headings and summaries."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.within = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.within = tag

    def handle_endtag(self, tag):
        self.within = ""

    def handle_data(self, data):
        if self.within in ("h1", "h2", "h3", "h4", "summary"):
            self.texts.append((self.within, data))

    def all(self, tag):
        return [about for name, about in self.tags if name == tag]

    def said(self, tag):
        return [text for name, text in self.texts if name == tag]


@pytest.fixture(scope="module")
def report():
    """The report on what is committed."""
    return make_report(ROOT / "figures", ROOT / "results")


@pytest.fixture(scope="module")
def page(report):
    return Page(report)


def test_scorecard_stands_first_and_every_paper_follows(page):
    assert PAPERS == ["redditbias", "chbias", "holisticbias", "dialoguefairness"]
    assert page.said("h2") == ["Scorecard", *(read_about(p)["title"] for p in PAPERS)]


def test_headings_are_in_order(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in zip(levels, levels[1:]))


def test_every_figure_is_there_with_a_text(page):
    drawn = [name for p in PAPERS for name in _saved(ROOT / "figures" / p, ".svg")]
    texts = [about["alt"] for about in page.all("img")]
    assert len(texts) == len(drawn) > 10 and all(len(t) > 40 for t in texts)
    assert not [t for t in texts if ": the figure " in t], "a figure that resources/report has no text of"


def test_every_table_is_there_with_a_caption_and_scopes(page):
    tables = [name for p in PAPERS for name in _saved(ROOT / "figures" / p, ".csv")]
    assert len(page.all("caption")) == len(page.all("table")) >= len(tables) - 5  # statements are shown otherwise
    assert {about["scope"] for about in page.all("th")} == {"col", "row"}


def test_nothing_is_loaded(page, report):
    sources = [about[k] for _, about in page.tags for k in ("src", "data", "poster") if k in about]
    assert sources and all(s.startswith("data:image/") for s in sources) and len(page.all("script")) == 1
    assert all(about["href"].startswith("data:") for about in page.all("link"))
    assert "default-src 'none'" in report and "@import" not in report


def test_ids_are_there_once_and_links_lead_to_them(page):
    ids = [about["id"] for _, about in page.tags if "id" in about]
    assert len(ids) == len(set(ids))
    assert {about["href"][1:] for about in page.all("a")} <= set(ids)


def test_tables_scroll_in_their_own_box(page):
    boxes = [about for about in page.all("div") if about.get("class") == "scroll"]
    assert len(boxes) == len(page.all("table")) and all(about["tabindex"] == "0" for about in boxes)


def test_what_offends_is_folded_behind_a_warning(page, report):
    assert report.index("Content warning") < report.index("<h2")
    (slurs,) = [s for s in page.said("summary") if s.startswith("Table 1: bias specifications")]
    assert "content warning" in slurs


def test_the_scorecard_counts_every_statement_once(report):
    statements = read_claim_tables(ROOT / "figures", PAPERS)
    assert set(statements.paper) == set(PAPERS) and set(statements.verdict) <= set(VERDICTS) == set(LOOKS)
    row = r'<th scope="row"[^>]*>([^<]*)</th><td[^>]*>([^<]*)</td>(?:<td class="number">\d+</td>)*'
    row += r'<td class="number">(\d+)</td></tr>'
    shown = {(html.unescape(way), verdict): int(n) for way, verdict, n in re.findall(row, report)}
    assert shown.pop(("all", "statements")) == len(statements)
    counted = statements.groupby(["looked at", "verdict"]).size().to_dict()
    assert {k: n for k, n in shown.items() if n and k[1] in VERDICTS} == counted


def test_provenance_names_weights_files_and_commits(report):
    for said in (
        "weights_sha256",
        "git_commit",
        "hours",
        "f5b84f20539d15d6bad41b35754507b2d164cfe4ea25707ec40562e0ef6c8d78",
    ):
        assert said in report


def test_a_table_that_no_part_names_is_shown_too(tmp_path):
    save_table(pd.DataFrame({"a": [1]}), tmp_path / "chbias" / "something_new", "Of today.")
    assert (
        "Further tables and figures" in (made := make_report(tmp_path, tmp_path, ("chbias",))) and "Of today." in made
    )


def test_nothing_to_show(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no tables of chbias: `make reproduce` writes them"):
        make_report(tmp_path, tmp_path, ("chbias",))


def test_what_a_table_says_is_no_markup():
    made = html_page("a", [section("b", [table_block(pd.DataFrame({"<b>": ["<script>x</script>"]}), "t & u")])])
    assert "&lt;script&gt;" in made and made.count("<script") == 1 and "t &amp; u" in made


def test_a_figure_needs_a_text_and_a_file(tmp_path):
    with pytest.raises(ValueError, match="needs a text for readers who do not see it"):
        figure_block(tmp_path / "x", " ")
    with pytest.raises(FileNotFoundError, match="no figure .*x: expected it as .svg or .png"):
        figure_block(tmp_path / "x", "Bars")


def test_a_name_with_a_dot_keeps_it(tmp_path):
    (tmp_path / "figure-v1.0.svg").write_bytes(b'<svg width="30pt" height="10pt"></svg>')
    assert figure_block(tmp_path / "figure-v1.0", "Bars")["wide"]


def test_a_page_without_a_section():
    with pytest.raises(ValueError, match="a page needs a section"):
        html_page("a", [])


@pytest.mark.parametrize(
    "broken,said",
    [
        ("<h1>a</h1><h2 id=x>b</h2><h2 id=x>c</h2>", "the id 'x' twice"),
        ("<h2>a</h2>", "not one first heading"),
        ("<h1>a</h1><table><tr><th>b</th></tr></table>", "a heading of a table without scope"),
        ("<h1>a</h1><script>b</script><script>c</script>", "a script beside ours"),
        ("<h1>a</h1><a href='#there'>b</a>", "a link to 'there', which is not there"),
        ("<h1>a</h1><style>b { background: url(https://c.d/e.png) }</style>", "a style that loads something"),
        ("<h1>a</h1><link href='https://c.d/e.css'>", "link is loaded from https://c.d/e.css"),
    ],
)
def test_what_is_wrong_with_a_page(broken, said):
    assert said in page_problems(broken)


def test_command(tmp_path, capsys, monkeypatch, report):
    monkeypatch.setattr("redditbias_repro.papers.report.make_report", lambda folder, results: report)
    assert main(["report", "--html", str(tmp_path / "new" / "index.html")]) == 0
    assert (tmp_path / "new" / "index.html").read_text(encoding="utf-8") == report
    for wrong, said in ((tmp_path, "expected a name that ends in .html"), (tmp_path / "a.html", "is a folder")):
        (tmp_path / "a.html").mkdir(exist_ok=True)
        assert main(["report", "--html", str(wrong)]) == 2 and said in capsys.readouterr().err
