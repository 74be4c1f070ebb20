"""Word lists, corpora, printed numbers and measures of Liu et al. (COLING 2020)."""

import gzip
import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import conftest
import numpy as np
import pandas as pd
import pytest

from redditbias_repro.data.corpora import twitter
from redditbias_repro.data.corpora.dialoguefairness import LISTS, RELEASE, read_word_pairs, slips
from redditbias_repro.data.pairs import load_pairs, released_papers, split_bias_type
from redditbias_repro.data.registry import SPLITS, list_files, read_lines
from redditbias_repro.metrics import response_measures
from redditbias_repro.metrics.response_measures import (
    attribute_lists,
    compare_values,
    count_words,
    diversity,
    diversity_test,
    drop_repeated_punctuation,
    lemmatizer,
    never_found,
    response_values,
    sentiment,
    tokens_of,
)
from redditbias_repro.records import data_file
from redditbias_repro.specs import BiasSpec, load_spec, to_toml

SPECS = {name: load_spec(f"dialoguefairness/{name}") for name in LISTS}
# Counted in Appendices A.1 to A.4: pairs, distinct terms of group 1 and 2, terms of A1 and A2
APPENDIX = {"gender": (126, 126, 126, 81, 61), "race": (89, 86, 68, 58, 56)}


@pytest.fixture(scope="module")
def released():
    conftest.released(*(f"{RELEASE}/{name}_words.txt" for name in LISTS))
    return {name: read_word_pairs(name) for name in LISTS}


# Words


@pytest.mark.parametrize("name", LISTS)
def test_counts_of_the_appendix(name):
    s = SPECS[name]
    distinct = [len({p[i].lower() for p in s.pairs}) for i in (0, 1)]
    assert (len(s.pairs), *distinct, len(s.attributes1), len(s.attributes2)) == APPENDIX[name]
    assert s.targets1 == tuple(a for a, _ in s.pairs) and s.targets2 == tuple(b for _, b in s.pairs)
    assert s.paper == "dialoguefairness" and s.language == "en"


@pytest.mark.parametrize("name", LISTS)
def test_the_release_has_the_same_pairs_in_the_same_order(released, name):
    assert [(left, right) for right, left in SPECS[name].pairs] == list(released[name].itertuples(False, None))
    assert list_files("zgahhblhc")["key"].str.endswith(f"{name}_words.txt").sum() == 1


def test_a_line_that_is_no_pair(tmp_path, monkeypatch):
    (tmp_path / "w.txt").write_text("he - she\n\nhim her\n")
    monkeypatch.setattr("redditbias_repro.data.corpora.dialoguefairness.fetch", lambda key: tmp_path / "w.txt")
    with pytest.raises(ValueError, match="line 3: 'him her' is not a pair"):
        read_word_pairs("gender")
    with pytest.raises(ValueError, match="list 'age' is unknown"):
        read_word_pairs("age")


def test_examples_of_table_2():
    pairs = pd.read_csv(data_file("paper", "dialoguefairness", "table2.csv")).replace("’", "'", regex=True)
    for row in pairs.itertuples():
        assert (row.minoritized, row.dominant) in SPECS[row.list].pairs
    lists = {n: w for s in SPECS.values() for n, w in zip(s.attribute_names, (s.attributes1, s.attributes2))}
    words = pd.read_csv(data_file("paper", "dialoguefairness", "table2_attributes.csv"))
    assert all(row.word in lists[row.list] for row in words.itertuples()) and set(words["list"]) == set(lists)


def test_slips_are_listed_and_kept():
    found = slips()
    entries = set(zip(found["list"], found["entry"]))
    assert {("race", "shortie ↔ girlfiend"), ("race", "mad"), ("unpleasant", "kill lie"), ("family", "wife")} <= entries
    assert ("shortie", "girlfiend") in SPECS["race"].pairs and "kill lie" in SPECS["race"].attributes1
    assert ("police", "po po") in SPECS["race"].pairs and ("her", "his") in SPECS["gender"].pairs
    echoed = found[found["what"].str.contains("an echo")]
    assert Counter(echoed["list"])["family"] == 23 and not found.duplicated().any()
    for row in found[found["entry"].str.contains("↔")].itertuples():
        assert tuple(row.entry.split(" ↔ ")) in SPECS[row.list].pairs, "what is said of a pair is of one that is there"


def test_several_counterparts_need_a_field():
    pairs = [["cats", "dogs"], ["cats", "hounds"]]
    with pytest.raises(ValueError, match="targets1: 'cats' occurs twice"):
        BiasSpec(["cats", "cats"], ["dogs"], pairs, ["lazy"])
    spec = BiasSpec(["cats", "cats"], ["dogs", "hounds"], pairs, ["lazy"], counterparts="drawn")
    assert {spec.swap_targets("cats", "1to2", seed) for seed in range(20)} == {"dogs", "hounds"}
    first = BiasSpec(["cats"], ["dogs", "hounds"], pairs, ["lazy"])
    assert {first.swap_targets("cats", "1to2", seed) for seed in range(20)} == {"dogs"}
    with pytest.raises(ValueError, match="counterparts 'all' is unknown: expected one of"):
        BiasSpec(["cats"], ["dogs"], pairs, ["lazy"], counterparts="all")
    with pytest.raises(ValueError, match="attribute_names is .*expected two names"):
        BiasSpec(["cats"], ["dogs"], pairs, ["lazy"], attribute_names=["traits"])


def test_one_sided_lists():
    """Words of one group that all have the same counterpart, and a pair that is missing."""
    spec = BiasSpec(["cat", "kitten"], ["dog"], [["cat", "dog"], ["kitten", "dog"]], ["lazy"])
    assert spec.of_group("a kitten", 2) == "a dog" and spec.of_group("a dog", 1) == "a cat"
    with pytest.raises(ValueError, match="targets2 is empty"):
        BiasSpec(["cat"], [], [["cat", "dog"]], ["lazy"])
    with pytest.raises(ValueError, match="not a term"):
        BiasSpec(["cat"], ["dog"], [["cat", ""]], ["lazy"])


def test_files_and_bias_types(tmp_path):
    for name, spec in SPECS.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(to_toml(spec), encoding="utf-8")
        assert load_spec(path) == spec
        assert split_bias_type(f"dialoguefairness/{name}") == ("dialoguefairness", name)
    assert split_bias_type("gender") == ("redditbias", "gender")
    assert "dialoguefairness" not in released_papers(), "it released words and no pairs of texts"
    assert load_pairs("dialoguefairness/race").attrs["corpus"]["name"] == "queries"


# Corpora


def test_conversations_by_hand():
    lines = ["", "", "", "", "Did it rain", "", "", "No", "  It  did  ", "", "", "", "", "", "", "Alone", "", "", ""]
    assert twitter.parse_conversations(lines) == [["Did it rain", "No", "It did"], ["Alone"]]
    assert twitter.parse_conversations([]) == []


def test_released_conversations():
    conftest.released(twitter.CONVERSATIONS)
    known = look_at_splits(8703)
    assert sum(map(len, known.values())) < 7700, "many stand there more than once"


def test_the_corpus_and_its_splits(made_up):
    look_at_splits(180)
    assert not twitter.read_dialogues("test", seed=1).equals(twitter.read_dialogues("test"))
    with pytest.raises(ValueError, match="split 'dev' is unknown"):
        twitter.read_dialogues("dev")


def look_at_splits(n):
    """Dialogues of the splits, n in all, of which no two share a conversation or what is said."""
    dialogues = {split: twitter.read_dialogues(split) for split in SPLITS}
    of = {split: set(d["conversation"]) for split, d in dialogues.items()}
    assert sum(map(len, dialogues.values())) == n == len(twitter.read_dialogues())
    assert not of["train"] & of["valid"] and not of["train"] & of["test"] and not of["valid"] & of["test"]
    known = {s: set(zip(d["context"].str.casefold(), d["response"].str.casefold())) for s, d in dialogues.items()}
    assert (
        not known["train"] & known["valid"]
        and not known["train"] & known["test"]
        and not known["valid"] & known["test"]
    )
    assert twitter.read_dialogues("test").equals(dialogues["test"])
    assert dialogues["test"].attrs["corpus"]["name"] == "twitter-conversations"
    assert list(twitter.read_contexts("twitter-conversations", "test")) == dialogues["test"]["context"].tolist()
    return known


@pytest.fixture
def spoken(monkeypatch):
    """Stand-ins for emoji and unidecode, which the package does not require."""
    emoji, unidecode = ModuleType("emoji"), ModuleType("unidecode")
    emoji.EMOJI_DATA = {"☀": {"en": ":sun:"}}
    unidecode.unidecode = lambda text: text.replace("é", "e").encode("ascii", "ignore").decode()
    monkeypatch.setitem(sys.modules, "emoji", emoji)
    monkeypatch.setitem(sys.modules, "unidecode", unidecode)
    twitter._letter.cache_clear()
    yield
    twitter._letter.cache_clear()


def test_parlais_preparation(spoken):
    assert twitter.prepare_tweet('  Café, "ok"(so)?!;: ') == 'Cafe , " ok " ( so ) ? ! ; :'
    assert twitter.prepare_tweet("a\tb | c☀") == "a b __PIPE__ c @sun@"
    assert twitter.prepare_tweet("well...") == "well . . ." and twitter.prepare_tweet("…") == ""


def test_parlais_splits(spoken):
    lines = ["dropped", "dropped"] + [f"{side}{i}" for i in range(600) for side in "ab"]
    rows = list(twitter.prepare_dialogues(lines))
    assert len(rows) == 600 and all(a[1:] == b[1:] and a[0] + b[0] == "ab" for a, b, _ in rows)
    assert [a for a, _, s in rows if s == "valid"] == ["a0", "a250", "a500"]
    assert [a for a, _, s in rows if s == "test"] == ["a1", "a251", "a501"]
    assert list(twitter.prepare_dialogues(lines, "test")) == [r for r in rows if r[2] == "test"]


def test_odd_numbers_and_empty_sides(spoken):
    assert list(twitter.prepare_dialogues(["x", "x", "a", "b", "alone"])) == [("a", "b", "valid")]
    assert list(twitter.prepare_dialogues(["x", "x", "a"])) == list(twitter.prepare_dialogues([])) == []
    rows = list(twitter.prepare_dialogues(["x", "x", "a", "…", "c", "d"]))
    assert rows == [("c", "d", "test")], "what is dropped was counted"


def test_a_file_of_ones_own(spoken, tmp_path):
    text = "\n".join(["x", "x", "a", "b", "c", "d", "e", "f", ""])
    packed = tmp_path / "big.txt.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    table = twitter.read_big(packed)
    assert table["context"].tolist() == ["a", "c", "e"] and table["split"].tolist() == ["valid", "test", "train"]
    assert len(twitter.read_big(packed, "train")) == 1 and len(twitter.read_big(packed, n=2)) == 2
    packed.write_bytes(gzip.compress(text.encode())[:-9])
    with pytest.raises(ValueError, match="broken, or not a .gz"):
        twitter.read_big(packed)
    with pytest.raises(FileNotFoundError, match="is not a file"):
        twitter.read_big(tmp_path / "nowhere.txt")
    assert not list(read_lines(Path(os.devnull).resolve())) if Path(os.devnull).is_file() else True


def test_without_emoji(monkeypatch):
    monkeypatch.setitem(sys.modules, "emoji", None)
    twitter._letter.cache_clear()
    with pytest.raises(ModuleNotFoundError, match="pip install emoji unidecode"):
        list(twitter.prepare_dialogues(["x", "x", "a", "b"]))


# Printed numbers


def test_printed_numbers():
    sizes = {i: len(pd.read_csv(data_file("paper", "dialoguefairness", f"table{i}.csv"))) for i in range(3, 8)}
    assert sizes == {3: 6, 4: 6, 5: 6, 6: 6, 7: 20}
    text = pd.read_csv(data_file("paper", "dialoguefairness", "text.csv")).set_index("quantity")["value"]
    augmented = "single-turn dialogues of training after counterpart data augmentation"
    assert text[augmented] == 4_197_883 and text["parallel context pairs"] == 300_000


# Measures


def test_diversity_by_hand():
    """7 words; the, cat, sat, dog are 4; the cat, cat sat, the dog are 3 — "sat" and "the" are of two responses."""
    assert diversity(["the cat sat", "the dog", "the cat"]) == pytest.approx((4 + 3) / 2 / 7)
    assert diversity(["one"]) == 0.5 and diversity([""]) == 0
    assert diversity(["a . . . ."]) == diversity(["a ."])


def test_diversity_is_over_the_number_of_words():
    """And so never reaches 1, as there are fewer bigrams than words."""
    assert diversity(["a b c d"]) == pytest.approx((4 + 3) / 2 / 4)


def test_permutations_of_diversity():
    same = [f"a b {i}" for i in range(30)]
    assert diversity_test(same, same, resamples=50)["p"] == 1
    found = diversity_test(same, ["a b c"] * 30, resamples=99)
    assert found["p"] == 0.01 and found["dominant"] == pytest.approx(diversity(same))
    assert found == diversity_test(same, ["a b c"] * 30, resamples=99)
    assert diversity_test(["", ""], ["", ""], resamples=9)["p"] == 1
    for a, b in ((["a"], []), ([], [])):
        with pytest.raises(ValueError, match="the same number of both groups"):
            diversity_test(a, b)


def test_repeated_marks():
    assert drop_repeated_punctuation("ha ha ! ! ! ? ? ok ' ' \" \"") == "ha ha ! ? ok ' \""
    assert drop_repeated_punctuation("- - ; ;") == "- - ; ;" and drop_repeated_punctuation("  ") == ""


def test_tokens():
    assert tokens_of("My Mother-in-law's OK.") == ["my", "mother-in-law", "'", "s", "ok", "."]
    assert tokens_of("") == []


def test_sentiment_thresholds(monkeypatch):
    module = ModuleType("vaderSentiment.vaderSentiment")
    module.SentimentIntensityAnalyzer = lambda: type(
        "A", (), {"polarity_scores": lambda _, t: {"compound": float(t)}}
    )()
    monkeypatch.setitem(sys.modules, "vaderSentiment", ModuleType("vaderSentiment"))
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", module)
    assert sentiment(["0.8", "-0.8", "0.8"]).tolist() == [0.8, -0.8, 0.8]
    values, _ = response_measures.response_values(["0.8", "0.79", "-0.8", "-0.79"], SPECS["gender"], str)
    assert values["sentiment_positive"].tolist() == [True, False, False, False]
    assert values["sentiment_negative"].tolist() == [False, False, True, False]


def test_vader():
    pytest.importorskip("vaderSentiment")
    good, none, bad = sentiment(["i love this wonderful , happy day !", "", "that awful crime was a terrible tragedy"])
    assert good >= 0.8 and none == 0 and bad <= -0.8


def test_without_vader(monkeypatch):
    monkeypatch.setitem(sys.modules, "vaderSentiment", None)
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)
    with pytest.raises(ModuleNotFoundError, match="pip install vaderSentiment"):
        sentiment(["ok"])


def test_words_of_a_list():
    counted, found = count_words(["Brides and a bride", "", "bridegroom"], ["bride"], lambda t: t.removesuffix("s"))
    assert counted.tolist() == [2, 0, 0] and found == {"bride": 2}
    assert count_words([], ["bride"], str)[0].shape == (0,)


def test_lists_without_group_words():
    lists = attribute_lists(SPECS["gender"])
    assert list(lists) == ["family", "family without group words", "career", "career without group words"]
    assert set(lists["career"]) - set(lists["career without group words"]) == {"manager"}
    assert {len(v) for v in attribute_lists(SPECS["race"]).values()} == {58, 54, 56, 52}
    with pytest.raises(ValueError, match="give attribute_names"):
        attribute_lists(load_spec("redditbias/race"))


def dictionary(folder):
    """A WordNet of a few nouns, as Debian lays it out: without lexnames and index.sense."""
    for pos in ("noun", "verb", "adj", "adv"):
        (folder / f"index.{pos}").write_text("  1 licence\n")
        (folder / f"{pos}.exc").write_text("")
        (folder / f"data.{pos}").write_text("  1 WordNet 3.0 Copyright\n")
    nouns = ["wife", "dog", "ass", "as", "child"]
    (folder / "index.noun").write_text("".join(f"{n} n 1 0 1 0 00000001\n" for n in sorted(nouns)))
    (folder / "noun.exc").write_text("wives wife\nchildren child\n")


def test_wordnet_from_a_folder(tmp_path, monkeypatch):
    dictionary(tmp_path)
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    monkeypatch.setattr(response_measures, "_wordnet", without_nltks(response_measures._wordnet.__wrapped__))
    lemma = lemmatizer()
    assert [lemma(t) for t in ("wives", "dogs", "ass", "children", "unknowns", "")] == [
        "wife", "dog", "ass", "child", "unknowns", "",
    ]  # fmt: skip
    assert never_found(["wife", "wives", "kill lie"], lemma) == ["kill lie"]


def without_nltks(read):
    def wordnet(folder):
        if folder is None:
            raise LookupError("no data")
        return read(folder)

    return wordnet


def test_without_wordnet(tmp_path, monkeypatch):
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    monkeypatch.setattr(response_measures, "_wordnet", without_nltks(None))
    with pytest.raises(FileNotFoundError, match="apt-get install wordnet-base"):
        lemmatizer()


def test_all_measures(monkeypatch):
    scored = lambda responses, keep_marks: np.array([0.9 if "love" in r else 0.0 for r in responses])
    monkeypatch.setattr(response_measures, "sentiment", scored)
    men, women = ["i love my business", "", "ok"] * 20, ["i love my wife", "", "my wife and family"] * 20
    offence = np.zeros(60), np.repeat([0, 1], 30)
    (a, _), (b, _) = (response_values(said, SPECS["gender"], str) for said in (men, women))
    values = {"offence": offence, **{name: (a[name], b[name]) for name in a}}
    table = compare_values(values, diversity_test(men, women, 49), resamples=49).set_index("measure")
    assert list(table.index) == [
        "diversity", "offence", "sentiment_positive", "sentiment_negative", "family", "career",
        "family without group words", "career without group words",
    ]  # fmt: skip
    assert table.loc["family", "minoritized"] == 1.0 and table.loc["family without group words", "minoritized"] == 1 / 3
    assert table.loc["sentiment_positive", ["z", "p", "differ"]].tolist() == [0, 1, 0]
    assert table.loc["offence", "z"] < -5 and np.isnan(table.loc["diversity", "z"]) and table["n"].eq(60).all()
    assert table["p_holm"].notna().sum() == 5
