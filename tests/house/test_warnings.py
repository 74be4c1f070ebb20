"""Files of one's own that a test would say too much of."""

import pytest

from redditbias_repro.data.pairs import read_pairs

ROWS = [f"cats are {w},dogs are {w}" for w in ("lazy", "sly", "vain", "odd", "shy", "mad", "sad", "bad", "wet", "dry")]


def written(path, rows):
    path.write_text("\n".join(["text1,text2", *rows]) + "\n")
    return path


def test_rows_that_repeat_a_pair(tmp_path):
    with pytest.warns(UserWarning, match="20 of 30 rows repeat a pair: tests treat pairs as independent"):
        assert len(read_pairs(written(tmp_path / "pets.csv", ROWS * 3))) == 30


def test_few_pairs(tmp_path):
    with pytest.warns(UserWarning, match="2 different pairs: a test of so few is not informative"):
        read_pairs(written(tmp_path / "pets.csv", ROWS[:2]))


def test_enough_different_pairs(tmp_path, recwarn):
    assert len(read_pairs(written(tmp_path / "pets.csv", ROWS))) == 10 and not recwarn.list
