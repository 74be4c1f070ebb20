"""CrowS-Pairs and StereoSet as corpora of one's own."""

import csv
import io
import json

import pytest
from made_up import JUDGED

from redditbias_repro.cli import main
from redditbias_repro.data.corpora import crows_pairs, stereoset
from redditbias_repro.data.pairs import load_pairs
from redditbias_repro.data.registry import FetchError, list_files
from redditbias_repro.metrics.language_model import measure_lmb
from redditbias_repro.show.export import import_pairs, pair_sets

CROWS = f""",sent_more,sent_less,stereo_antistereo,{",".join(JUDGED)}
0,"The cats, all of them, are lazy.","The dogs, all of them, are lazy.",stereo,animals,x,a0,a1
1,Dogs are loyal to people.,Cats are loyal to people.,antistereo,animals,x,a0,a1
2,Weak roses stand there.,Oaks stand there.,stereo,garden-plants,x,a0,a1
"""


def example(context, said):
    labels = ("stereotype", "unrelated", "anti-stereotype")
    about = {"id": "1", "target": "cat", "bias_type": "animals", "context": context}
    return {**about, "sentences": [{"sentence": s, "gold_label": g} for s, g in zip(said, labels)]}


@pytest.fixture
def crows(tmp_path):
    (tmp_path / "crows.csv").write_text(CROWS)
    return tmp_path / "crows.csv"


@pytest.fixture
def stereo(tmp_path):
    said = ("Cats are lazy.", "Cats are seven.", "Cats are busy.")
    data = {"intrasentence": [example("Cats are BLANK.", said)], "intersentence": [example("I met a cat.", said)]}
    (tmp_path / "dev.json").write_text(json.dumps({"version": "1.0", "data": data}))
    return tmp_path / "dev.json"


def test_sides_of_crows_pairs(crows):
    by_stereotype = crows_pairs.read_pair_set(path=crows)
    assert list(by_stereotype.text1.str[:4]) == ["The ", "Dogs", "Weak"]
    by_group = crows_pairs.read_pair_set(path=crows, first="group")
    assert by_group.text1[1] == "Cats are loyal to people." and by_group.text1[0] == by_stereotype.text1[0]
    assert by_stereotype[["target1", "target2"]].values.tolist() == [
        ["cats,", "dogs,"],
        ["Dogs", "Cats"],
        ["Weak roses", "Oaks"],
    ]
    assert by_group.attrs["corpus"]["note"] == "group" and "sha256" in by_group.attrs["corpus"]


def test_stereoset_pairs_stereotypes_with_their_opposites(stereo):
    within, between = (stereoset.read_pair_set(name, stereo) for name in stereoset.PAIR_SETS)
    assert within[["text1", "text2"]].values.tolist() == [["Cats are lazy.", "Cats are busy."]]
    assert between.text1[0] == "I met a cat. Cats are lazy."


def test_imported_pairs_are_a_corpus(crows, tmp_path, model_folder):
    folder = tmp_path / "my-crows"
    assert import_pairs("crows-pairs", folder, crows) == {"animals": 2, "garden-plants": 1}
    with pytest.warns(UserWarning, match="so few is not informative"):
        pairs = load_pairs("animals", corpus=folder)
    assert list(pairs.target2) == ["dogs,", "Cats"] and pairs.attrs["corpus"]["name"] == "my-crows"
    with pytest.warns(UserWarning):
        (record,) = measure_lmb(str(model_folder), ["animals"], folder, outliers="all")
    assert record["bias_type"] == "animals" and record["n"] == 2
    assert "Blodgett" in (folder / "README.md").read_text()


def test_registered_pairs_are_imported(made_up, tmp_path):
    kinds = ("age", "gender", "socioeconomic")
    for name, n in {"crows-pairs": 10, "stereoset": 6, "stereoset-intersentence": 6}.items():
        assert import_pairs(name, tmp_path / name) == dict.fromkeys(kinds, n)


def test_command(crows, stereo, tmp_path, capsys):
    assert main(["import", "crows-pairs", str(crows), "--first", "group", "--out", str(tmp_path / "a")]) == 0
    assert "animals 2, garden-plants 1" in capsys.readouterr().out
    assert main(["import", "stereoset", str(stereo), "--out", str(tmp_path / "b")]) == 0
    assert (tmp_path / "b" / "animals" / "test.csv").is_file()


def test_what_is_wrong_is_said(crows, stereo, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    for call, said in (
        (["import", "crows", str(crows)], "pair set 'crows' is unknown: expected one of crows-pairs"),
        (["import", "crows-pairs", str(tmp_path / "none.csv")], "is not a file"),
        (["import", "stereoset", str(crows)], "expected JSON with data and intrasentence"),
        (["import", "stereoset", str(stereo), "--first", "group"], "stereoset has no option first"),
    ):
        assert main([*call, *out]) == 2 and said in capsys.readouterr().err
    crows.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no column 'sent_more'.*expected crows_pairs_anonymized.csv"):
        import_pairs("crows-pairs", tmp_path / "out", crows)
    data = json.loads(stereo.read_text())
    data["data"]["intrasentence"][0]["sentences"].pop()
    stereo.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="example 0 .* has no anti-stereotype"):
        import_pairs("stereoset", tmp_path / "out", stereo)
    data["data"]["intrasentence"][0]["sentences"][0]["sentence"] = None
    stereo.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="example 0 .*: sentence is missing"):
        import_pairs("stereoset", tmp_path / "out", stereo)
    stereo.write_text(json.dumps({"data": {"intrasentence": [None]}}))
    with pytest.raises(ValueError, match="example 0 .*: target is missing"):
        import_pairs("stereoset", tmp_path / "out", stereo)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "before,after,says",
    [
        ("Weak roses stand there.", "", r"crows.csv: data row 3 has no sent_more"),
        (",antistereo,", ",both,", r"direction in .*crows.csv 'both' is unknown"),
    ],
)
def test_rows_of_crows_pairs_that_are_broken_are_named(crows, before, after, says):
    crows.write_text(CROWS.replace(before, after))
    with pytest.raises(ValueError, match=says):
        crows_pairs.read_pair_set(path=crows)


def test_registered_files_are_pinned(offline, tmp_path):
    """By commit and blob; where they cannot be had, that is said and nothing is written."""
    for key in (crows_pairs.PAIRS, stereoset.DEV):
        (row,) = list_files(key).to_dict("records")
        assert len(row["commit"]) == len(row["git_blob_sha1"]) == 40 and row["license"] == "CC-BY-SA-4.0"
    for name in pair_sets():
        with pytest.raises(FetchError):
            import_pairs(name, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_bias_types_that_would_share_a_folder(crows, tmp_path):
    text = crows.read_text()
    import_pairs("crows-pairs", tmp_path / "out", crows)
    (tmp_path / "out" / "mine").mkdir()
    (tmp_path / "out" / "mine" / "test.csv").write_text("text1,text2\n")
    import_pairs("crows-pairs", tmp_path / "out", crows)
    assert (tmp_path / "out" / "mine" / "test.csv").is_file(), "it was written by another"
    header, first, second, *_ = text.splitlines()
    place = header.split(",").index("bias_type")
    for names, says in (
        (("race color", "race/color"), "have the same name of a folder"),
        (("", "x"), "'' has no name"),
    ):
        rows = [next(csv.reader([row])) for row in (first, second)]
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(header.split(","))
        for row, name in zip(rows, names):
            writer.writerow([*row[:place], name, *row[place + 1 :]])
        (tmp_path / "own.csv").write_text(lines.getvalue())
        with pytest.raises(ValueError, match=says):
            import_pairs("crows-pairs", tmp_path / "other", tmp_path / "own.csv")
    assert not (tmp_path / "other").exists()
