"""Bias specifications: what the paper's appendix lists, wildcards, word boundaries, and the laws of swapping."""

import csv
import tomllib
from dataclasses import replace
from importlib.resources import files

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from redditbias_repro.data import RELEASE, fetch
from redditbias_repro.specs import BIAS_TYPES, BiasSpec, find_terms, list_specs, load_spec

SPECS = {b: load_spec(f"redditbias/{b}") for b in BIAS_TYPES}

# Counted by hand in Appendix A.1 to A.5: phrases of T1, pairs, terms of A1, terms of A2.
APPENDIX = {"religion1": (22, 4, 52, 42), "religion2": (26, 5, 49, 42), "race": (18, 9, 53, 53), "gender": (25, 16, 21, 22), "orientation": (19, 13, 62, 42)}

# Terms of A1 and A2 that only the paper has, and that only the release has (without those that it marks as having no opposite).
A1_DIFFERENCES = {
    "religion2": ({"yielded"}, {"vielded"}),
    "gender": ({"dance literature", "shakespeare"}, {"dance", "literature", "Shakespeare"}),
    "orientation": ({"indecis*"}, {"indecisi*"}),
}
A2_DIFFERENCES = {
    "religion1": ({"decircumcision", "underfeed", "neglecting"}, {"decircumcision/foreskin restoration", "underfeed*", "Neglecting"}),
    "religion2": ({"unyielded", "gentle kind"}, {"unvielded", "gentle", "kind"}),
    "orientation": ({"police officer", "compassionate"}, {"Police officer", "cheerful*", "compassionate*"}),
}


@pytest.mark.parametrize("bias_type", BIAS_TYPES)
def test_counts_of_the_appendix(bias_type):
    s = SPECS[bias_type]
    assert (len(s.targets1), len(s.pairs), len(s.attributes1), len(s.attributes2)) == APPENDIX[bias_type]
    assert len(s.queries()) == len(set(s.queries())) == len(s.targets1) * len(s.attributes1)
    assert s.paper == "redditbias" and s.language == "en" and s.attribute_pairs == ()


def released_lines(bias_type, name):
    with fetch(f"{RELEASE}/data/{bias_type}/{name}").open(encoding="utf-8") as f:
        return [line.strip().strip('"') for line in f if line.strip()]


@pytest.mark.parametrize("bias_type", BIAS_TYPES)
def test_differences_from_the_release(corpus, bias_type):
    s = SPECS[bias_type]
    stem = f"{bias_type}_{s.groups[0]}"
    a1 = set(released_lines(bias_type, f"{stem}.txt"))
    assert (set(s.attributes1) - a1, a1 - set(s.attributes1)) == A1_DIFFERENCES.get(bias_type, (set(), set()))
    a2 = {t for t in released_lines(bias_type, f"{stem}_pos.txt") if not t.endswith("**")}
    assert (set(s.attributes2) - a2, a2 - set(s.attributes2)) == A2_DIFFERENCES.get(bias_type, (set(), set()))
    with fetch(f"{RELEASE}/data/{bias_type}/{bias_type}_opposites.txt").open(encoding="utf-8", newline="") as f:
        opposites = list(csv.reader(f))
    assert [a for a, _ in opposites] == list(s.targets1)
    assert list(dict.fromkeys(b for _, b in opposites if b)) == list(s.targets2)


@pytest.mark.parametrize("bias_type", BIAS_TYPES)
def test_differences_are_commented_in_the_file(bias_type):
    text = (files("redditbias_repro") / f"resources/specs/redditbias/{bias_type}.toml").read_text(encoding="utf-8")
    comments = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    for differences in (A1_DIFFERENCES, A2_DIFFERENCES):
        for term in differences.get(bias_type, ((), ()))[1]:
            assert f'"{term}"' in comments, term
    assert tomllib.loads(text)["paper"] == "redditbias"


@pytest.mark.parametrize("bias_type", BIAS_TYPES)
def test_every_target_phrase_has_its_released_counterfactual(corpus, bias_type):
    s = SPECS[bias_type]
    with fetch(f"{RELEASE}/data/{bias_type}/{bias_type}_opposites.txt").open(encoding="utf-8", newline="") as f:
        opposites = {a.lower(): b.lower() for a, b in csv.reader(f)}
    different = {a for a, b in opposites.items() if b and s.swap_targets(a, "1to2") != b}
    assert different == {  # where the paper's pairs say something else than the release's opposites
        "race": {"african-americans are", "afro-americans are"},
        "orientation": {"gays are", "lesbians are"},
    }.get(bias_type, set())


@pytest.mark.parametrize("bias_type,direction,share", [("religion1", "both", 0.98), ("religion2", "both", 0.96), ("race", "both", 0.99), ("gender", "1to2", 0.97), ("orientation", "1to2", 0.65)])
def test_released_counterfactuals_are_our_swaps(corpus, bias_type, direction, share):
    """All but a few: substrings (muslimity, nurse-midhusband), extra pairs, and for orientation `straights` for `straight`. Two types are swapped one way."""
    from redditbias_repro.data import load_pairs

    s = SPECS[bias_type]
    pairs = [row for split in ("valid", "test") for row in load_pairs(bias_type, split, "redditbias").itertuples()]
    same = {d: sum(s.swap_targets(p.text1, d) == p.text2 for p in pairs) / len(pairs) for d in ("both", "1to2")}
    assert same[direction] >= share and max(same, key=same.get) == direction


@pytest.mark.parametrize("bias_type,kept", [("religion1", {"torah"}), ("religion2", {"arab"}), ("race", set()), ("gender", {"wives", "ladies"}), ("orientation", set())])
def test_extra_pairs_that_the_released_counterfactuals_keep(corpus, bias_type, kept):
    from redditbias_repro.data import load_pairs

    pairs = [(p.text1.lower(), p.text2.lower()) for split in ("train", "valid", "test") for p in load_pairs(bias_type, split, "redditbias").itertuples()]
    there = {a: [y for x, y in pairs if find_terms(x, (a,))] for a, _ in SPECS[bias_type].extra_pairs}
    assert {a for a, texts in there.items() if texts and all(find_terms(y, (a,)) for y in texts)} == kept
    assert all(find_terms(y, (b,)) for a, b in SPECS[bias_type].extra_pairs if a not in kept for y in there[a]), "the others are replaced"


# Wildcards and word boundaries


@pytest.mark.parametrize(
    "text,found",
    [("greed", ["greed"]), ("Greedy!", ["Greedy"]), ("agreed", []), ("GREED-driven", ["GREED"]), ("greed_y", ["greed_y"]), ("greedé", ["greedé"]), ("gre ed", [])],
)
def test_wildcards(text, found):
    assert [text[a:b] for a, b in find_terms(text, ("greed*",))] == found


@pytest.mark.parametrize(
    "text,found",
    [
        ("he", ["he"]), ("she", []), ("he's", ["he"]), ("(he)", ["he"]), ("the", []), ("he2", []), ("_he", []), ("hé he", ["he"]),
        ("he\u0301", []), ("ﬁhe", []), ("", []), ("他he她", ["he"]), ("HE", ["HE"]), ("he-man", ["he"]),
    ],
)  # fmt: skip
def test_word_boundaries(text, found):
    assert [text[a:b] for a, b in find_terms(text, ("he",))] == found


def test_longest_term_first_and_no_overlap():
    s = SPECS["race"]
    text = "African american people and Africans"
    assert [text[a:b] for a, b in s.find_targets(text)] == ["African american", "Africans"]
    assert s.find_targets("black people, white people", 2) == [(14, 26)]


def test_chinese_has_no_word_boundaries():
    s = BiasSpec(("女孩",), ("男孩",), (("女孩", "男孩"), ("gay", "直男")), ("护士",), language="zh")
    text = "那个女孩是护士吗，gay不是gayle"
    assert [text[a:b] for a, b in s.find_targets(text)] == ["女孩", "gay"]
    assert [text[a:b] for a, b in s.find_attributes(text)] == ["护士"]
    assert s.swap_targets(text) == "那个男孩是护士吗，直男不是gayle"


def test_groups_of_targets_and_attributes():
    s = SPECS["gender"]
    assert s.find_targets("she and he", 1) == [(0, 3)] and s.find_targets("she and he", 2) == [(8, 10)]
    assert s.find_attributes("a nurse, a surgeon", 1) == [(2, 7)] and s.find_attributes("a nurse, a surgeon", 2) == [(11, 18)]
    with pytest.raises(ValueError, match="expected one of 1, 2, None"):
        s.find_targets("she", 3)


# Swapping


def test_one_pass():
    s = SPECS["gender"]
    assert s.swap_targets("woman, women, man, men") == "man, men, woman, women"
    assert s.swap_targets("woman, women, man, men", "1to2") == "man, men, man, men"
    assert s.swap_targets("woman, women, man, men", "2to1") == "woman, women, woman, women"
    with pytest.raises(ValueError, match="direction is 'back': expected one of 'both', '1to2', '2to1'"):
        s.swap_targets("woman", "back")


@pytest.mark.parametrize("bias_type", BIAS_TYPES)
def test_every_pair_swaps(bias_type):
    s = SPECS[bias_type]
    for a, b in s.pairs:
        for case in (str.lower, str.upper, str.title):
            assert s.swap_targets(case(a), "1to2") == case(b), (a, b)


def one_to_one(s):
    pairs = s.pairs + s.extra_pairs
    count = lambda term: sum(term in p for p in pairs)
    return [t for p in pairs if count(p[0]) == count(p[1]) == 1 for t in p]


FILLERS = ["are", "agreed", "manly", "xx", "é", "中", "12", "sheep"]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(BIAS_TYPES))
def test_swapping_twice_returns_the_text_where_pairs_are_one_to_one(data, bias_type):
    s = SPECS[bias_type]
    terms = one_to_one(s)
    assume(terms)
    cased = st.builds(lambda t, f: f(t), st.sampled_from(terms), st.sampled_from([str.lower, str.upper, str.title]))
    words = data.draw(st.lists(st.one_of(cased, st.sampled_from(FILLERS)), max_size=12))
    text = " , ".join(words)
    assert s.swap_targets(s.swap_targets(text)) == text
    assert s.swap_targets(text).count(",") == text.count(",")


@settings(max_examples=200, deadline=None)
@given(st.text(), st.sampled_from(BIAS_TYPES))
def test_any_text_is_handled(text, bias_type):
    s = SPECS[bias_type]
    spans = s.find_targets(text)
    assert all(0 <= a < b <= len(text) for a, b in spans) and all(p[1] <= q[0] for p, q in zip(spans, spans[1:]))
    if not spans:
        assert s.swap_targets(text) == text


# Validation

GOOD = dict(targets1=["cats are"], targets2=["dogs are"], pairs=[["cats", "dogs"]], attributes1=["lazy"])


def toml(**keys):
    return "".join(f"{k} = {v if isinstance(v, str) else repr(v)}\n".replace("'", '"') for k, v in keys.items())


@pytest.mark.parametrize(
    "change,says",
    [
        ({"targets1": []}, "targets1 is empty"),
        ({"attributes1": []}, "attributes1 is empty"),
        ({"pairs": [["cats", "dogs"], ["Cats", "dogs"]]}, "pairs: ('Cats', 'dogs') is there twice"),
        ({"pairs": [["cats"]]}, "pairs: ('cats',) is not a pair"),
        ({"pairs": [["cats", "cats"]]}, "pairs a term with itself"),
        ({"pairs": [["cat*", "dogs"]]}, "wildcard in the wrong place in 'cat*' (an asterisk may stand in attributes only)"),
        ({"attributes1": ["la*zy"]}, "wildcard in the wrong place in 'la*zy'"),
        ({"attributes1": ["lazy **"]}, "wildcard in the wrong place in 'lazy **'"),
        ({"attributes1": ["lazy", "Lazy"]}, "attributes1: 'Lazy' is there twice"),
        ({"attributes1": [" lazy"]}, "attributes1: ' lazy' is not a term"),
        ({"attributes1": ["lazy", 3]}, "attributes1: 3 is not a term"),
        ({"language": '"xx"'}, "language is 'xx': expected an ISO 639-1 code"),
        ({"target1": ["cats"]}, "unknown key 'target1' (did you mean 'targets1'?)"),
        ({"targets2": '"dogs"'}, "targets2 is the string 'dogs': expected a list"),
        ({"groups": ["cats"]}, "expected two names"),
    ],
)
def test_errors_name_file_key_and_term(tmp_path, change, says):
    path = tmp_path / "own.toml"
    path.write_text(toml(**{**GOOD, **change}), encoding="utf-8")
    with pytest.raises(ValueError) as e:
        load_spec(path)
    assert str(e.value).startswith(str(path)) and says in str(e.value)


def test_own_file(tmp_path):
    path = tmp_path / "pets.toml"
    path.write_text(toml(**GOOD), encoding="utf-8")
    s = load_spec(path)
    assert s.name == "pets" and s.queries() == ["cats are lazy"] and s.swap_targets("Cats sleep") == "Dogs sleep"
    with pytest.raises(AttributeError):
        s.language = "zh"
    assert replace(s, language="zh").language == "zh"


@pytest.mark.parametrize("content,says", [(b"targets1 = [", "not a TOML file"), (b"\xff", "not a TOML file"), (b'targets1 = ["a"]', "key 'targets2' is missing")])
def test_broken_files(tmp_path, content, says):
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        load_spec(path)


def test_unknown_names():
    with pytest.raises(FileNotFoundError, match="did you mean 'redditbias/religion1'"):
        load_spec("religion1")
    with pytest.raises(FileNotFoundError, match="no specification file"):
        load_spec("nowhere.toml")
    assert list_specs() == [f"redditbias/{b}" for b in BIAS_TYPES]
