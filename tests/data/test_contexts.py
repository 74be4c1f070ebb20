"""Parallel contexts by hand in both modes, streamed, from files of one's own."""

import gzip
import hashlib
import itertools
import warnings

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redditbias_repro.cli import main
from redditbias_repro.data.contexts import (
    _readers,
    contexts,
    dialogues,
    parallel_context,
    parallel_contexts,
    read_own_contexts,
    read_own_parallel,
)
from redditbias_repro.data.corpora import twitter
from redditbias_repro.data.registry import list_files
from redditbias_repro.records import repo_root, write_table
from redditbias_repro.specs import BiasSpec, load_spec

GENDER, RACE = load_spec("dialoguefairness/gender"), load_spec("dialoguefairness/race")


def pair(text, spec=GENDER, mode="words"):
    found = parallel_context(text, spec, mode)
    return found and (found["text1"], found["text2"], found["origin"])


@pytest.mark.parametrize(
    "text,text1,text2,origin",
    [
        ("he sings", "she sings", "he sings", "text2"),
        ("HE sings, He does", "SHE sings, She does", "HE sings, He does", "text2"),
        ("my mom's cat", "my mom's cat", "my dad's cat", "text1"),
        ("she'll sing. he's out", "she'll sing. she's out", "he'll sing. he's out", "neither"),
        ("he’d sing", "she'd sing", "he'd sing", "text2"),
        ("her step-father", "her step-mother", "his step-father", "neither"),
        ("a father-in-law", "a mother-in-law", "a father-in-law", "text2"),
        ("mr. and mrs. Day", "mrs. and mrs. Day", "mr. and mr. Day", "neither"),
        ("@king is a queen #boy http://he.is/he", "@king is a queen #boy http://he.is/he",
         "@king is a king #boy http://he.is/he", "text1"),
    ],
)  # fmt: skip
def test_words_by_hand(text, text1, text2, origin):
    assert pair(text) == (text1, text2, origin)


@pytest.mark.parametrize("mode", ["words", "release"])
def test_without_a_word_of_the_list(mode):
    for text in ("it rained", "", "  ", "the cat sleeps", "mango human", "@he #she"):
        assert parallel_context(text, GENDER, mode) is None


@pytest.mark.parametrize(
    "text,text1,text2,origin",
    [
        ("he sings to her mom", "she sings to his dad", "he sings to her mom", "text2"),
        ("her dad sings", "her dad sings", "his mom sings", "text1"),
        ("He sings. my dad.  his", "He sings. my dad. her", "He sings. my dad.  his", "text2"),
        ("he'll see his son-in-law", "he'll see her daughter-in-law", "he'll see his son-in-law", "text2"),
    ],
)
def test_release_by_hand_where_words_are_one_to_one(text, text1, text2, origin):
    assert pair(text, mode="release") == (text1, text2, origin)


def test_release_does_not_see_capitals_and_punctuation():
    assert pair("He sings", mode="release") is None and pair("my dad.", mode="release") is None


@pytest.mark.parametrize(
    "text,text1,text2,origin",
    [
        ("dis car", "dis car", "this car", "text1"),  # only group 1 is replaced, though car is of group 2
        ("this car", "dis whip", "this car", "text2"),
        ("nah fam", "nah fam", "no fam", "text1"),  # nah comes before nah fam
        ("Dis is it", None, None, None),  # the text is not lower-cased
        ("it's cool", "its lit", "it's cool", "text2"),  # before cool, which has three counterparts
        ("tight", "tight", "mad", "text1"),  # mad → a lot stands before tight → mad
    ],
)
def test_release_by_hand_where_words_have_several_counterparts(text, text1, text2, origin):
    assert pair(text, RACE, "release") == ((text1, text2, origin) if text1 else None)


def test_patterns_run_one_after_the_other():
    """What one put in, a later one takes out again."""
    chains = {parallel_context("a lot", RACE, "release", seed)["text1"] for seed in range(40)}
    assert chains == {"hella", "tight", "dumb"}
    police = {parallel_context("police", RACE, "release", seed)["text2"] for seed in range(10)}
    assert police == {"po po"}, "as a word of group 1, because the pair is reversed"


def test_words_take_the_longest_and_one_pass():
    assert pair("no cap", RACE)[1:] == ("seriously", "text1")
    assert pair("nah fam", RACE)[1] == "no"
    drawn = {parallel_context("a lot", RACE, seed=seed)["text1"] for seed in range(40)}
    assert drawn == {"hella", "mad", "dumb"}, "in one pass mad stays"
    assert pair("I'm good", RACE)[0] == "I'm straight" and pair("THIS", RACE)[0] == "DIS"


def test_the_same_text_has_the_same_pair():
    texts = [f"{n} hello, what's up" for n in range(20)]
    once = list(parallel_contexts(texts, RACE))
    again = list(parallel_contexts(texts[::-1], RACE))[::-1]
    assert [r["text1"] for r in once] == [r["text1"] for r in again]
    assert [r["text1"] for r in once] != [r["text1"] for r in parallel_contexts(texts, RACE, seed=1)]


alphabet = st.sampled_from(["he", "she", "dad", "mom's", "her", "rain", "the", "no cap", "a lot", "@he", "5-0", "mr."])


@settings(max_examples=80, deadline=None)
@given(st.lists(alphabet, max_size=8).map(" ".join), st.sampled_from([GENDER, RACE]))
def test_each_text_of_a_pair_is_of_its_group(text, spec):
    found = parallel_context(text, spec)
    if found is None:
        assert not spec.find_groups(" ".join(w for w in text.split() if w[0] != "@"))
        return
    assert found["text1"] != found["text2"]
    if found["origin"] != "neither":
        assert found[found["origin"]] == text
    if spec is GENDER:  # its words are one to one and of one group each
        for name, group in (("text1", 1), ("text2", 2)):
            words = " ".join(w for w in found[name].split() if w[0] != "@")
            assert {g for *_, g in spec.find_groups(words)} == {group}
            assert parallel_context(found[name], spec)["text1"] == found["text1"]


# Many


def test_streams_and_stops():
    endless = (f"he sings {i}" for i in itertools.count())
    rows = list(parallel_contexts(endless, GENDER, n=3))
    assert [r["row"] for r in rows] == [0, 1, 2] and next(endless) == "he sings 3"


def test_directions_and_repeats():
    texts = ["he sings", "she sings", "he and she", "it rains", "he sings"]
    by = {d: [r["row"] for r in parallel_contexts(texts, GENDER, direction=d)] for d in ("both", "1to2", "2to1")}
    assert by == {"both": [0, 1, 2], "1to2": [1], "2to1": [0]}


@pytest.mark.parametrize(
    "arguments,says",
    [
        (dict(direction="2to3"), "direction '2to3' is unknown"),
        (dict(mode="word"), "mode 'word' is unknown"),
        (dict(n=0), "expected one or more"),
        (dict(split="test"), "have splits"),
    ],
)
def test_bad_arguments(arguments, says):
    with pytest.raises(ValueError, match=says):
        contexts(["he sings"], "dialoguefairness/gender", **arguments)


def test_a_specification_of_ones_own():
    pets = BiasSpec(
        ["cats"], ["dogs"], pairs=[["cats", "dogs"], ["c++ (cat)", "d++"]], attributes1=["lazy"], name="pets"
    )
    table = contexts(["Cats sleep", "a c++ (cat) sleeps", "rain"], pets)
    assert table["text2"].tolist() == ["Dogs sleep", "a d++ sleeps"]
    assert table.attrs["corpus"]["bias_type"] == "own/pets"
    with pytest.raises(ValueError, match="no context with a word"):
        contexts(["rain", ""], pets)


# Files of one's own


def test_files(tmp_path):
    lines = 'context,n\nhe sings,1\n"she, too",2\n,3\n"my dad\nsings",4\n'
    (tmp_path / "a.csv").write_text(lines, encoding="utf-8")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "b.txt").write_text("he sings\n\nshe, too\n", encoding="utf-8")
    expected = ["he sings", "she, too", "my dad\nsings"]
    assert list(read_own_contexts(tmp_path / "a.csv")) == list(read_own_contexts(tmp_path / "a.csv.gz")) == expected
    assert list(read_own_contexts(tmp_path / "b.txt")) == expected[:2]
    (tmp_path / "c.csv").write_text("said\nhe sings\n")
    with pytest.raises(ValueError, match="no column 'context'; its columns are said"):
        list(read_own_contexts(tmp_path / "c.csv"))
    assert list(read_own_contexts(tmp_path / "c.csv", "said")) == ["he sings"]


def test_records_know_the_files(tmp_path, monkeypatch):
    """Registered files by the registry's hashes, one's own by their SHA-256; texts that are in no file have none."""
    own = tmp_path / "talk.csv"
    own.write_text("context,response\nhe sings,ok\nshe left,no\nmy dad said no,why\n", encoding="utf-8")
    files = {"talk.csv": hashlib.sha256(own.read_bytes()).hexdigest()}
    of = lambda source, **how: contexts(source, GENDER, **how).attrs["corpus"]["files"]
    assert of(own) == of(dialogues(own)) == files and of(["he sings", "she left"]) == {}
    (tmp_path / "pairs.csv").write_text("text1,text2\nshe left,he left\n", encoding="utf-8")
    assert of(tmp_path / "pairs.csv") == {
        "pairs.csv": hashlib.sha256((tmp_path / "pairs.csv").read_bytes()).hexdigest()
    }
    keys = {"twitter-conversations": [twitter.CONVERSATIONS], "twitter-en-big": twitter.BIG}
    texts = lambda name, split=None: iter(["he sings"])
    monkeypatch.setattr(twitter, "read_contexts", texts)
    for name in _readers():
        hashes = list_files().set_index("key")["git_blob_sha1"]
        assert of(name) == of(name, split="test") == hashes[keys[name]].to_dict(), name


def test_broken_files(tmp_path):
    packed = gzip.compress(b"he sings\n" * 1000)
    (tmp_path / "cut.txt.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "none.txt.gz").write_bytes(b"he sings\n")
    (tmp_path / "latin.txt").write_bytes("he sings, olé\n".encode("latin-1"))
    for name in ("cut.txt.gz", "none.txt.gz"):
        with pytest.raises(ValueError, match=f"{name}: broken, or not a .gz"):
            list(read_own_contexts(tmp_path / name))
    with pytest.raises(ValueError, match="latin.txt: not UTF-8"):
        list(read_own_contexts(tmp_path / "latin.txt"))
    with pytest.raises(FileNotFoundError, match="nor one of .*twitter-conversations"):
        contexts(tmp_path / "nowhere.csv", "dialoguefairness/gender")


def test_a_file_of_another_kind(tmp_path):
    for name in ("a.jsonl", "a.tsv", "a"):
        (tmp_path / name).write_text("he sings\n")
        with pytest.raises(ValueError, match=r"expected a \.csv or \.txt"):
            contexts(tmp_path / name, "dialoguefairness/gender")
    (tmp_path / "a.parquet").write_text("he sings\n")
    with pytest.raises(ValueError, match="a.parquet: not a Parquet file"):
        contexts(tmp_path / "a.parquet", "dialoguefairness/gender")
    (tmp_path / "a.txt").write_text("he sings\n")
    with pytest.raises(ValueError, match="a text file has no columns"):
        contexts(tmp_path / "a.txt", "dialoguefairness/gender", column="said")


@pytest.mark.parametrize("missing", [float("nan"), None, 3])
def test_contexts_that_are_no_text(missing):
    for source in (["he sings", missing], pd.DataFrame({"context": ["he sings", missing]}, dtype=object)):
        with pytest.raises(TypeError, match="context 1 is .*, not text"):
            contexts(source, "dialoguefairness/gender")
    with pytest.raises(ValueError, match="no column 'context'; the table's|no column 'context': the table's"):
        contexts(pd.DataFrame({"said": ["he sings"]}), "dialoguefairness/gender")


def test_cells_that_do_not_fit(tmp_path):
    """A comma without quotes would shift columns, or cut a text off."""
    path = tmp_path / "a.csv"
    for rows, says in (
        ("context,n\nhe sings, ok,1\n", r"a\.csv: .*data row 1 has 3 cells and the header 2"),
        ("text1,text2\nwell, she sings,he sings\nwell, her dog,his dog\n", r"a\.csv: .*data row 1 has 3 cells"),
        ("text1,text2\nshe sings,he sings\nwell, her dog,his dog\n", r"a\.csv: .*data row 2 has 3 cells"),
        ("", r"a\.csv: no column 'context'"), ("\n\n", r"a\.csv: no column 'context'"),
        ("text1;text2\nshe sings;he sings\n", "separated by other marks"),
        ("Text1,text2\nshe sings,he sings\n", "called text1 and text2"),
        ("context\rhe sings\r", r"a\.csv: (not a CSV|no column)"),
    ):  # fmt: skip
        path.write_bytes(rows.encode())
        with pytest.raises(ValueError, match=says):
            contexts(path, "dialoguefairness/gender")
    path.write_text("\n\ncontext,n\nhe sings,1\n")
    assert contexts(path, "dialoguefairness/gender")["text1"].tolist() == ["she sings"]
    (tmp_path / "a.txt").write_bytes(b"he sings\rshe left\r\rno\r")
    assert len(contexts(tmp_path / "a.txt", "dialoguefairness/gender")) == 2
    (tmp_path / "A.CSV.GZ").write_bytes(gzip.compress(b"context\nhe sings\n"))
    assert contexts(tmp_path / "A.CSV.GZ", "dialoguefairness/gender").attrs["corpus"]["name"] == "A"
    pd.DataFrame({"text": ["he sings", None, "no"]}).to_parquet(tmp_path / "a.parquet")
    assert len(contexts(tmp_path / "a.parquet", "dialoguefairness/gender")) == 1


def test_what_there_is_none_of(tmp_path):
    for source, options, says in (
        (["he sings"], dict(direction="1to2"), "no context with a word of Gender words that direction 1to2 takes"),
        ([], {}, "texts: no contexts at all"), (["rain"], {}, "texts: no context with a word of Gender words$"),
        ("he sings " * 100, {}, "corpus 'he sings .* is not a file"),
        ("twitter-conversations", dict(column="said"), "column 'said' is for your own file"),
    ):  # fmt: skip
        with pytest.raises((ValueError, FileNotFoundError), match=says):
            contexts(source, "dialoguefairness/gender", **options)
    with pytest.raises(TypeError, match="no source of contexts is given"):
        contexts(None, "dialoguefairness/gender")


# Pairs of one's own


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.parquet"])
def test_pairs_come_back_as_they_were_written(tmp_path, name):
    made = contexts(["it rains", "he sings, ok", "my mom\nsings"], "dialoguefairness/gender")
    write_table(made, tmp_path / name, texts=True)
    given = contexts(tmp_path / name, "dialoguefairness/gender")
    assert given.equals(made.assign(row=[0, 1]))
    about = given.attrs["corpus"]
    assert about["mode"] == "given" and about["name"] == "pairs" and len(about["sha256"]) == 64
    assert len(contexts(tmp_path / name, "dialoguefairness/gender", n=1)) == 1
    assert contexts(made, "dialoguefairness/gender").equals(given), "as a table"
    for n in (0, -1):
        with pytest.raises(ValueError, match="expected one or more"):
            contexts(tmp_path / name, "dialoguefairness/gender", n=n)
    for wrong in (dict(mode="release"), dict(direction="1to2"), dict(split="test")):
        with pytest.raises(ValueError, match="holds pairs already: leave out mode, direction and split"):
            contexts(tmp_path / name, "dialoguefairness/gender", **wrong)


def test_pairs_that_look_like_something_else():
    pairs = pd.DataFrame({"text1": [f"he is {i}" for i in "abc"], "text2": [f"she is {i}" for i in "abc"]})
    of = "dialoguefairness/gender"
    with pytest.warns(UserWarning, match="most pairs have words of the other one there"):
        contexts(pairs, of)
    right = pairs.rename(columns={"text1": "text2", "text2": "text1"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        contexts(right, of)
    with pytest.warns(UserWarning, match="3 of 3 pairs of pairs hold no word of Race words"):
        contexts(right, "dialoguefairness/race")
    with pytest.warns(UserWarning, match="3 of 3 pairs of texts hold no word of Race words"):
        contexts(contexts([f"he is {i}" for i in "abc"], of), "dialoguefairness/race")
    with pytest.warns(UserWarning, match="3 of 6 pairs of pairs occur more than once"):
        contexts(pd.concat([right, right]), of)
    with pytest.warns(UserWarning, match="1 of 2 pairs of texts occur more than once"):
        contexts(["he is a", "she is a"], of)


def test_cells_of_a_table_of_pairs():
    one = pd.DataFrame({"text1": ["she sings "], "text2": ["he sings"], "origin": [None], "words": [float("nan")]})
    made = contexts(one.astype("category"), "dialoguefairness/gender")
    assert made[["text1", "origin", "words"]].values.tolist() == [["she sings", "given", ""]]
    with pytest.raises(ValueError, match=r"a value that is not text in data row 1"):
        contexts(one.assign(text1=3), "dialoguefairness/gender")
    with pytest.raises(ValueError, match=r"an empty text in data row 1"):
        contexts(one.assign(text1=None), "dialoguefairness/gender")
    with pytest.raises(ValueError, match="the same text on both sides"):
        contexts(one.assign(text2="she sings"), "dialoguefairness/gender")


def test_pairs_that_are_wrong(tmp_path):
    path = tmp_path / "pairs.csv"
    for rows, says in (
        ("she sings,he sings\n,he\n", "an empty text in data row 2"),
        ("she sings,he sings\nit rains,it rains\n", "the same text on both sides in data row \\[2\\]"),
        ("", "no rows"),
    ):
        path.write_text("text1,text2\n" + rows)
        with pytest.raises(ValueError, match=says):
            contexts(path, "dialoguefairness/gender")
    path.write_text("text1,text2\nshe sings,he sings\n")
    assert contexts(path, "dialoguefairness/gender")["origin"].tolist() == ["given"]
    assert contexts(path, "dialoguefairness/gender", column="text1")["text2"].tolist() == ["he sings"]
    with pytest.raises(ValueError, match="no column 'text2'"):
        (tmp_path / "half.csv").write_text("text1\nshe sings\n")
        read_own_parallel(tmp_path / "half.csv")


# The command


def test_command(tmp_path, capsys):
    own = tmp_path / "mine.csv"
    own.write_text("text\nhe sings\nit rains\nmy mom sings\n", encoding="utf-8")
    call = ["contexts", str(own), "--bias-type", "dialoguefairness/gender"]
    assert main(call) == 0
    assert "2 pairs" in capsys.readouterr().out
    assert main([*call, "--direction", "1to2", "--out", str(tmp_path / "out.csv")]) == 0
    assert pd.read_csv(tmp_path / "out.csv")["text2"].tolist() == ["my dad sings"]
    assert main([*call, "--mode", "release", "--limit", "1", "--out", str(tmp_path / "out.parquet")]) == 0
    assert pd.read_parquet(tmp_path / "out.parquet")["text1"].tolist() == ["she sings"]
    for more, says in (
        (["--out", str(tmp_path / "out.txt")], ".parquet or .csv"),
        (["--out", str(repo_root() / "results" / "out.csv")], "must not be stored in results/"),
        (["--limit", "0"], "whole number"),
        (["--column", "said"], "no column 'said'"),
    ):
        try:
            status = main([*call, *more])
        except SystemExit as e:  # argparse
            status = e.code
        assert status == 2 and says in capsys.readouterr().err


def test_corpora_are_known():
    assert {"twitter-conversations", "twitter-en-big"} <= set(_readers())


def test_conversations_that_share_a_dialogue_stay_together(tmp_path):
    """Chains of shared dialogues too; shares are those of conversations, and the same seed draws the same."""
    rows = [(f"c{i}", f"Hello {i}", f"r{i}") for i in range(100)]
    rows += [(f"c{i + 1}", f"hello {i}", f"R{i}") for i in range(0, 40, 2)] + [("c4", "hello 3", "r3")]
    path = tmp_path / "talk.csv"
    pd.DataFrame(rows, columns=["conversation", "context", "response"]).to_csv(path, index=False)
    parts = {s: dialogues(path, s) for s in ("train", "valid", "test")}
    talks = {s: set(p["conversation"]) for s, p in parts.items()}
    assert sum(map(len, talks.values())) == 100 and sum(map(len, parts.values())) == len(rows)
    assert all(abs(len(talks[s]) - n) <= 4 for s, n in (("train", 80), ("valid", 10), ("test", 10)))
    of = {c: s for s, own in talks.items() for c in own}
    assert all(of[f"c{i}"] == of[f"c{i + 1}"] for i in range(0, 40, 2)) and of["c3"] == of["c4"]
    assert dialogues(path, "test").equals(parts["test"])
    assert set(dialogues(path, "test", seed=1)["conversation"]) != talks["test"]
