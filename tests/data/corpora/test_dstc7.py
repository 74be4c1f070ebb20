"""DSTC-7's files: references and keys as its evaluation takes them, what is malformed or missing."""

import pytest

from redditbias_repro.data.corpora.dstc7 import read_dstc7
from redditbias_repro.metrics.crg import load_responses


def dstc7(folder, keys="test.2k.txt"):
    (folder / "train_convos.txt").write_text("h1\ttil\tc1\t5\t2\tSTART EOS cats are nice . EOS are they ?\tyes .\n")
    (folder / "test_convos.txt").write_text(
        "k1\ttil\tc1\t5\t2\tSTART EOS hm\tno\n"
        "k2\ttil\tc2\t5\t2\tSTART EOS what is EOS of it\tnothing\n"
        "k3\ttil\tc2\t1\t2\tEOS a\tb\n"
    )
    (folder / "test.refs").write_text(
        "k1\t12|r0\t3|r1\t1|r | 2\t1|r3\t1|r3\t1|r5\t1|r6\nk2\t5|one\nk3\t1|a0\t1|a1\t1|a2\n"
    )
    if keys:
        (folder / keys).parent.mkdir(exist_ok=True)
        (folder / keys).write_text("k2\nk9\n")
    return folder


def test_the_official_extraction(tmp_path):
    """Six references by number, from the beginning again, and in place of number 1 (people's answer) the next."""
    test = read_dstc7(dstc7(tmp_path, keys=None), "test")
    assert test.references.tolist() == [
        ["r0", "r | 2", "r | 2", "r3", "r3", "r5"],
        ["one"] * 6,
        ["a0", "a2", "a2", "a0", "a2", "a2"],
    ] and test.dialogue.tolist() == ["c1", "c2", "c2"]
    train = load_responses("train", str(tmp_path))
    assert train.context.tolist() == [["cats are nice .", "are they ?"]] and train.attrs["corpus"]["name"] == "dstc7"


@pytest.mark.parametrize("keys", ["test.2k.txt", "keys/test.2k.txt", "keys.2k.txt", "my.keys.txt"])
def test_the_official_keys(tmp_path, keys):
    test = load_responses("test", str(dstc7(tmp_path, keys)))
    assert (
        test.key.tolist() == ["k2"]
        and test.context.tolist() == [["what is", "of it"]]
        and list(test.attrs["corpus"]["files"]) == ["test_convos.txt", "test.refs", keys]
    )
    (tmp_path / "valid.keys.txt").write_text("k1\n")
    assert keys == "my.keys.txt" or load_responses("test", str(tmp_path)).key.tolist() == ["k2"], (
        "the official name comes first"
    )


@pytest.mark.parametrize(
    "name,content,says",
    [
        ("test_convos.txt", "k1\ta\tb\n", r"line 1: 3 columns, expected 7"),
        ("test.refs", "k1\tyes\n", r"line 1: no reference of the form score\|response"),
        ("test_convos.txt", "", "the test split of .* is empty"),
    ],
)
def test_malformed_extractions(tmp_path, name, content, says):
    (dstc7(tmp_path, keys=None) / name).write_text(content)
    with pytest.raises(ValueError, match=says):
        load_responses("test", str(tmp_path))


def test_what_is_not_there(tmp_path):
    for names, says in ((["test.refs"], "holds no test.refs"), (["test_convos.txt"], "holds no test_convos.txt or")):
        dstc7(tmp_path)
        for n in names:
            (tmp_path / n).unlink()
        with pytest.raises(FileNotFoundError, match=says):
            load_responses("test", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="is not a folder, and not multiwoz"):
        load_responses("test", "reddit")
    with pytest.raises(ValueError, match="expected train or test"):
        load_responses("dev")
