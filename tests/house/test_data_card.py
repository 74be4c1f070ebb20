"""The data card names every repository that is read, with the licence that the registry has."""

from redditbias_repro.data.registry import list_files
from redditbias_repro.records import repo_root

CARD = (repo_root() / "docs" / "data_card.md").read_text(encoding="utf-8")


def test_every_repository_is_named_with_its_licence():
    rows = [line for line in CARD.splitlines() if line.startswith("|")]
    for (repository, licence), _ in list_files().groupby(["repository", "license"]):
        (row,) = [r for r in rows if repository in r.split("|")[1]]
        assert row.split("|")[-2].strip() == licence


def test_no_repository_is_named_that_is_not_read():
    known = set(list_files()["repository"])
    table = CARD.partition("## Corpora")[2].partition("\n\nA licence")[0]
    named = {n.strip() for r in table.splitlines() if r.startswith("| ") for n in r.split("|")[1].split(",")}
    assert named - {"repository"} == known
