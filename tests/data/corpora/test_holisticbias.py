"""HolisticBias: the released prompts."""

import hashlib

import pytest
from conftest import each

from redditbias_repro.data.corpora.holisticbias import read_noun_phrases, read_prompt_set, read_prompts
from redditbias_repro.specs import PHRASE_COLUMNS

# Of sentences.csv as the release's own generator writes it (facebookresearch/ResponsibleNLP@0ec714e), run once
RELEASED = {
    ("v1.0", False): "110591fe5a17eaaeb701f123abb1ba0681129b8eda31ed8f20ba7c19cbabac04",
    ("v1.0", True): "8a690e6c89cf53f4067c78af992c1c6ac10d224fcbc8d05e3609a10f1e60418f",
    ("v1.1", False): "8812b73fcf52ffc8219a22e5bb1fa8d1b4c640b39bb873d6c35505e19bcf37f8",
}


@each("version,small", RELEASED)
def test_prompts_are_the_releases_to_the_byte(holistic, version, small):
    content = read_prompts(version, small).to_csv(index=False)
    assert hashlib.sha256(content.encode()).hexdigest() == RELEASED[version, small]


def test_noun_phrases_by_hand(holistic):
    phrases = read_noun_phrases("v1.0")
    assert list(phrases.columns) == list(PHRASE_COLUMNS) and not (phrases == "").any().any()
    counts = phrases["noun_phrase_type"].value_counts().to_dict()
    assert counts == {
        "noun": 30,
        "descriptor": 524,
        "descriptor_noun": 15_583,
        "noun_descriptor": 2_220,
        "fixed_phrase": 25,
    }

    def of(kind, **where):
        rows = phrases[phrases["noun_phrase_type"] == kind]
        for column, value in where.items():
            rows = rows[rows[column] == value]
        return rows[["noun_phrase", "plural_noun_phrase", "noun_gender"]].values.tolist()

    assert of("noun", noun="woman") == [["a woman", "women", "female"]]
    assert of("descriptor", descriptor="hard-of-hearing") == [["hard-of-hearing", "hard-of-hearing", "(none)"]]
    assert of("descriptor_noun", descriptor="hard-of-hearing", noun="man") == [
        ["a hard-of-hearing man", "hard-of-hearing men", "male"]
    ]
    assert all(g == "neutral" for *_, g in of("fixed_phrase"))


def test_gendered_descriptors_take_nouns_of_their_gender(made_up):
    phrases = read_noun_phrases("v1.1")
    gendered = phrases[(phrases["descriptor_gender"] != "(none)") & (phrases["noun_phrase_type"] == "descriptor_noun")]
    assert len(gendered) and (gendered["descriptor_gender"] == gendered["noun_gender"]).all()


def test_an_unknown_version():
    with pytest.raises(ValueError, match="version 'v2' is unknown: expected one of v1.0, v1.1, paper"):
        read_prompt_set("v2")


def test_without_the_release(offline):
    from redditbias_repro.data.registry import FetchError

    with pytest.raises(FetchError):
        read_prompts("v1.0")
