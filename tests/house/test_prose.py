"""What a person reads, by DESIGN's rules: short pages, short sentences, plain words, tables that fit."""

import re
import tomllib

import pytest

from redditbias_repro.records import repo_root

ROOT = repo_root()
PAGES, APPENDICES = sorted((ROOT / "docs").glob("*.md")), sorted((ROOT / "docs" / "appendix").glob("*.md"))
README, RESOURCES = ROOT / "README.md", ROOT / "redditbias_repro" / "resources"
TEXTS = [
    *sorted(RESOURCES.glob("papers/*.toml")),
    *sorted(RESOURCES.glob("report/*.toml")),
    *(RESOURCES / f"{name}.toml" for name in ("readme", "measures", "model_card", "shared_results", "tables")),
]
CAPTIONED = sorted(p for p in (ROOT / "figures").rglob("*.md") if not p.name.startswith(("statements-", "summary-")))
# Words and constructions that a native writer would not use here
STOP = re.compile(
    r"""likelier|\bcomes?\ out\b|\bcan(?:not)?\ be\ had\b|\bother\ side\b|\bof\ one's\ own\b|\bnats\ a\ token\b
    |\bTested\ are\b|\bAsked\ by\b|\bcannot\ tell\b|\bcan\ be\ told\b|\bby\ target\ terms?\b|\bheld\ against\b
    |\bWhat\ is\ there\b|\bwhat\ holds\b|\bWhat\ is\ open\b|\bstands?\ beside\b|\ba\ (?:row|point|panel|line)\ an?\b
    |\bis\ no\ (?:size|row|page|proof)\b|\bas\ it\ stands\b|\bare\ no\ (?:terms|models|pairs)\b""",
    re.X | re.I,
)


def words(text):
    """Words of a text: what has a letter or a digit in it."""
    return [w for w in text.split() if re.search(r"\w", w)]


def prose(markdown):
    """A page's paragraphs and points without code, tables, addresses and marks."""
    text = re.sub(r"(?s)```.*?```|<!--.*?-->|<details>.*?</details>", "\n\n", markdown)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    lines = [
        "\n\n" if line.lstrip().startswith(("|", "#", ">")) else re.sub(r"^\s*[-*] |^\s*\d+\. ", "\n\n", line)
        for line in text.splitlines()
    ]
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    return [" ".join(p.replace("*", "").split()) for p in paragraphs if p.strip()]


def strings(value):
    """Every text in what a TOML file holds."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for v in inner for text in strings(v)]


def paragraphs(path):
    if path.suffix == ".toml":
        return [" ".join(text.split()) for text in strings(tomllib.loads(path.read_text(encoding="utf-8")))]
    return prose(path.read_text(encoding="utf-8"))


def sentences(paragraph):
    """What a reader takes in at once: to a full stop, a semicolon, or a colon before a capital."""
    return re.split(r"(?<=[.;!?])\)?\s+|(?<=:)\s+(?=[\"“(†`]*[A-Z0-9αλ†`*{])", paragraph)


def name(path):
    return str(path.relative_to(ROOT))


def test_a_page_answers_one_question_in_900_words():
    assert 10 <= len(PAGES) <= 12
    long = {name(p): n for p in PAGES if (n := len(words(p.read_text(encoding="utf-8")))) > 900}
    assert not long and len(words(README.read_text(encoding="utf-8"))) <= 700


def test_every_page_is_linked_from_the_front_page_and_every_appendix_from_a_page():
    front, pages = README.read_text(encoding="utf-8"), "".join(p.read_text(encoding="utf-8") for p in PAGES)
    assert [p.name for p in PAGES if f"(docs/{p.name})" not in front] == []
    assert [p.name for p in APPENDICES if f"(appendix/{p.name}" not in pages] == []


@pytest.mark.parametrize("path", [README, *PAGES], ids=name)
def test_tables_fit_the_screen(path):
    most = 6 if path == README else 8
    rows = re.findall(r"(?m)^\|[-:| ]+\|$", path.read_text(encoding="utf-8"))
    assert max((row.count("|") - 1 for row in rows), default=0) <= most


@pytest.mark.parametrize("path", [README, *PAGES, *APPENDICES, *TEXTS, *CAPTIONED], ids=name)
def test_plain_words_and_short_sentences(path):
    found = paragraphs(path)
    said = [m.group() for p in found for m in STOP.finditer(p)]
    long = [s for p in found for s in sentences(p) if len(words(s)) > 40]
    assert not said and not long, "\n".join([*said, *(f"{len(words(s))} words: {s[:160]}" for s in long)])


def test_what_the_rules_find():
    assert STOP.search("It is likelier") and not STOP.search("It is more likely")
    assert prose("# A\n\nSee [b](c.md).\n\n| x |\n|---|\n\n- *one*\n- two") == ["See b.", "one", "two"]
    assert len(sentences("One. Two; three: Four.")) == 4
    assert strings({"a": ["b", {"c": "d"}], "e": 1}) == ["b", "d"]
