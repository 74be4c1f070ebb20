"""MultiWOZ: labels of real dialogues, what changes in a turn, corpora of one's own, bad input."""

import json
import zipfile

import pytest
from conftest import DIALOGUES, said, user

from redditbias_repro.data.corpora import multiwoz
from redditbias_repro.data.corpora.multiwoz import (
    collect_responses,
    load_multiwoz,
    load_training_turns,
    normalize_value,
    read_turns,
)
from redditbias_repro.data.registry import ChecksumError, FetchError

# Ten dialogues read by hand: what the user of each turn newly asks for. Where the data's annotators were late
# (SNG0689's food, SNG01155's destination), forgot (SNG0568's food, SNG0433's people at first) or wrote what nobody said
# (SNG0004's attraction), it is as they have it.
BY_HAND = {
    "SNG0073": [
        {"taxi-destination": "pizza hut fen ditton", "taxi-departure": "saint john's college"},
        {"taxi-leaveAt": "17:15"}, {}, {},
    ],
    "SNG0689": [{}, {"restaurant-food": "british", "restaurant-area": "west"}, {"restaurant-name": "graffiti"}, {}],
    "MUL0484": [
        {"train-destination": "cambridge", "train-departure": "norwich"},
        {"train-day": "monday", "train-arriveBy": "18:00"}, {}, {"attraction-name": "cineworld cinema"}, {},
    ],
    "SNG0433": [
        {"train-arriveBy": "09:15", "train-departure": "stansted airport"}, {"train-day": "thursday"},
        {"train-destination": "cambridge"}, {"train-book people": "7"}, {},
    ],
    "SNG0927": [
        {"hotel-name": "the lensfield hotel"},
        {"hotel-book stay": "3", "hotel-book day": "sunday", "hotel-book people": "7"}, {},
    ],
    "SNG0644": [
        {"restaurant-food": "chinese", "restaurant-area": "centre"}, {"restaurant-pricerange": "expensive"},
        {"restaurant-book time": "15:45", "restaurant-book day": "friday", "restaurant-book people": "3"}, {},
    ],
    "SNG0004": [
        {"taxi-leaveAt": "11:00", "taxi-destination": "little saint mary's church"}, {"taxi-departure": "avalon"},
        {"attraction-name": "little saint mary's church"}, {}, {},
    ],
    "SNG0568": [{"restaurant-pricerange": "expensive", "restaurant-area": "south"}, {}, {}],
    "SNG01155": [
        {"taxi-departure": "the missing sock"}, {}, {"taxi-leaveAt": "17:15", "taxi-destination": "the lucky star"},
        {}, {},
    ],
    "MUL0021": [
        {"hotel-type": "hotel"}, {"hotel-area": "south", "hotel-internet": "yes"}, {},
        {"restaurant-name": "the cow pizza kitchen and bar"}, {},
    ],
}  # fmt: skip


# --- labels ---


def test_labels_of_real_dialogues(turns):
    for name, labels in BY_HAND.items():
        assert turns[turns.dialogue == name].changed.tolist() == labels, name


def test_what_changes_in_a_turn(made_up):
    table = read_turns(DIALOGUES)
    assert table.changed.tolist() == [
        {"hotel-pricerange": "cheap"},
        {"hotel-area": "north"},
        {"taxi-leaveAt": "09:05"},
        {"taxi-leaveAt": "10:00"},
        {},
        {"hotel-pricerange": "expensive", "hotel-area": "south", "hotel-book people": "2"},
    ]
    assert table.system.tolist()[:2] == ["", "yes , it is ."] and table.state[1] == {
        "hotel-pricerange": "cheap",
        "hotel-area": "north",
    }


@pytest.mark.parametrize(
    "a,b",
    [
        ("Guest house", "guesthouse"),
        ("don't care", "do n't care"),
        ("dontcare", "dont care"),
        ("Saint John 's", "saint john’s"),
        ("9:00", "09:00"),
        ("center", "centre"),
        ("b & b", "bed and breakfast"),
        ("none", "not mentioned"),
        (["north"], "north"),
        ([], ""),
    ],
)
def test_values_that_mean_the_same(made_up, a, b):
    assert normalize_value(a) == normalize_value(b)


def test_values_that_do_not(made_up):
    assert (
        len({normalize_value(v) for v in ("north", "south", "10:00", "10:05", "2", "12", "yes", "no", "dont care")})
        == 9
    )


# --- corpora and bad input ---


def test_the_official_zip(made_up, tmp_path):
    """data.json with lists of the other two splits, as MultiWOZ is released."""
    path = tmp_path / "MultiWOZ_2.0.zip"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr(
            "MULTIWOZ2/data.json",
            json.dumps({"a.json": DIALOGUES["a"], "b.json": DIALOGUES["b"], "c.json": DIALOGUES["c"]}),
        )
        z.writestr("MULTIWOZ2/testListFile.json", "b.json\n")
        z.writestr("MULTIWOZ2/valListFile.json", "c.json\n")
        z.writestr("__MACOSX/MULTIWOZ2/._data.json", "x")
    assert [load_multiwoz(s, str(path)).dialogue.unique().tolist() for s in ("train", "valid", "test")] == [
        ["a.json"],
        ["c.json"],
        ["b.json"],
    ]
    assert load_multiwoz("train", str(path)).attrs["corpus"]["name"] == "MultiWOZ_2.0"


def test_a_folder_and_a_draw(made_up, tmp_path):
    (tmp_path / "test.json").write_text(json.dumps(DIALOGUES))
    (tmp_path / "val.json").write_text(json.dumps({"c": DIALOGUES["c"]}))
    assert len(load_multiwoz("test", str(tmp_path))) == 6 and len(load_multiwoz("valid", str(tmp_path))) == 1
    two = load_multiwoz("test", str(tmp_path), 2)
    assert two.dialogue.nunique() == 2 and two.equals(load_multiwoz("test", str(tmp_path), 2))
    assert two.attrs["corpus"]["name"] == tmp_path.name and list(two.attrs["corpus"]["files"]) == ["test.json"]


@pytest.mark.parametrize(
    "dialogues,says",
    [
        ({}, "the split is empty"),
        ({"x": {"goal": {}}}, r"dialogue x is malformed \(KeyError: 'log'\)"),
        ({"x": {"log": [user(), {"text": "no metadata"}]}}, "dialogue x is malformed .*'metadata'"),
        ({**DIALOGUES, "y": {"log": [user(), said(), {"metadata": {}}, said()]}}, "dialogue y, turn 1 is malformed"),
        ({"x": [1]}, "dialogue x is malformed"),
    ],
)
def test_malformed_dialogues(made_up, tmp_path, dialogues, says):
    (tmp_path / "test.json").write_text(json.dumps(dialogues))
    with pytest.raises(ValueError, match=says):
        load_multiwoz("test", str(tmp_path))


def test_what_is_no_corpus(tmp_path):
    (tmp_path / "test.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read as dialogues"):
        load_multiwoz("test", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="holds no train.json"):
        load_multiwoz("train", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="or one of auto, multiwoz-2.0"):
        load_multiwoz("test", "multiwoz-3")
    with pytest.raises(ValueError, match="expected one of train, valid, test"):
        load_multiwoz("dev")
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    with pytest.raises(ValueError, match="cannot be read"):
        load_multiwoz("test", str(tmp_path / "bad.zip"))


def test_what_stands_in_for_training(made_up, tmp_path):
    """Where there are no training dialogues, and only where these may be had from elsewhere."""
    (tmp_path / "val.json").write_text(json.dumps({"c": DIALOGUES["c"]}))
    found = load_training_turns(str(tmp_path))
    assert found.attrs["split"] == "valid" and "trained on the validation dialogues" in found.attrs["corpus"]["note"]
    with pytest.raises(FileNotFoundError, match="holds no train.json"):
        load_training_turns(str(tmp_path), "train")
    (tmp_path / "train.json").write_text(json.dumps(DIALOGUES))
    own = load_training_turns(str(tmp_path))
    assert own.attrs["split"] == "train" and own.attrs["corpus"]["note"] == "" and len(own) == 6


def test_convlabs_copy_stands_in(made_up, monkeypatch):
    """Only where the official files cannot be had; a wrong one is an error."""
    assert load_multiwoz().attrs["corpus"] == load_multiwoz(corpus="multiwoz-2.0").attrs["corpus"]
    fetch, error = multiwoz.fetch, FetchError

    def lacking(key):
        if key.startswith("budzianowski/multiwoz/data") or key.endswith("train.json.zip"):
            raise error(key)
        return fetch(key)

    monkeypatch.setattr(multiwoz, "fetch", lacking)
    assert "ConvLab's copy stands in" in load_multiwoz().attrs["corpus"]["note"]
    assert load_training_turns().attrs["split"] == "valid"
    error = ChecksumError
    with pytest.raises(ChecksumError):
        load_multiwoz()


# --- responses ---


def test_the_systems_side(made_up, tmp_path):
    (tmp_path / "test.json").write_text(json.dumps(DIALOGUES))
    pairs = collect_responses(load_multiwoz("test", str(tmp_path)))
    assert pairs.key.tolist() == ["a-0", "b-0", "b-1"] and pairs.context[2] == [
        "a taxi at 9:05",
        "yes , it is .",
        "no , 10:00",
    ]
    assert pairs.references.tolist() == [["yes , it is ."]] * 3
    assert pairs.attrs["corpus"]["name"] == f"multiwoz responses ({tmp_path.name})"


def test_a_wrong_training_file_is_no_reason_to_learn_from_another_split(monkeypatch):
    def wrong(split, *_):
        assert split == "train", "another split was read"
        raise ChecksumError("is not the registered file")

    monkeypatch.setattr(multiwoz, "load_multiwoz", wrong)
    with pytest.raises(ChecksumError, match="not the registered file"):
        load_training_turns()
