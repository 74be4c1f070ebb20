"""Annotation: sheets, what spreadsheets do to them, agreement, splits."""

from unittest import mock

import krippendorff
import numpy as np
import pandas as pd
import pytest
from conftest import papermill

from redditbias_repro.data.corpora.redditbias import load_annotations
from redditbias_repro.data.making import annotation as module
from redditbias_repro.data.making.annotation import (
    LABELS,
    MARKS,
    RELEASE_MARKS,
    SHEET,
    LabelScreen,
    agreement,
    annotate,
    count_labels,
    make_sheets,
    merge_labels,
    read_sheets,
    sheet_order,
    split,
)
from redditbias_repro.data.making.sheets import KINDS, has_labels, sheet_cells, sheets_in
from redditbias_repro.data.pairs import load_pairs, load_phrases, own_bias_types
from redditbias_repro.metrics.language_model import measure_lmb
from redditbias_repro.papers.redditbias.results import table2
from redditbias_repro.records import repo_root
from redditbias_repro.specs import BIAS_TYPES, BiasSpec, load_spec

CATS = BiasSpec(
    targets1=("cats are", "lynxes are"),
    targets2=("dogs are",),
    pairs=(("cats", "dogs"), ("cat", "dog")),
    attributes1=("laz*",),
    verbs=("are",),
    name="cats",
)


@pytest.fixture
def phrases():
    rows = [
        (f"c{i // 2}", True, f"comment {i // 2} says, “cats” are lazy", f"{'cats' if i % 3 else 'a cat'} are lazy; {i}")
        for i in range(60)
    ]
    return pd.DataFrame(rows, columns=SHEET[:4])


def filled(path, answer, **options):
    """A sheet with the labels that `answer` gives for a row's number in the phrases."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column in LABELS:
        table[column] = [str(answer(int(p.rsplit(" ", 1)[1]))) for p in table.phrase]
    table.to_csv(path, index=False, **options)
    return path


# --- sheets ---


def test_sheets_are_shared_and_shuffled(phrases, tmp_path):
    paths = make_sheets(phrases, tmp_path, 3, overlap=9, seed=1)
    sheets = [pd.read_csv(p, dtype=str, keep_default_na=False) for p in paths]
    assert [p.name for p in paths] == ["annotator1.csv", "annotator2.csv", "annotator3.csv"] and all(
        list(s.columns) == list(SHEET) for s in sheets
    )
    assert [len(s) for s in sheets] == [26] * 3 and len(set.intersection(*(set(s.phrase) for s in sheets))) == 9
    assert set().union(*(s.phrase for s in sheets)) == set(phrases.phrase) and sheets[0].phrase.tolist() != sorted(
        sheets[0].phrase
    )
    assert paths[0].read_bytes().startswith(b"\xef\xbb\xbf"), "Excel knows UTF-8 by it"
    assert (
        "Appendix B" in (tmp_path / "GUIDELINES.md").read_text()
        and "Sarcasm is biased" in (tmp_path / "GUIDELINES.md").read_text()
    )
    again = [p.read_bytes() for p in make_sheets(phrases, tmp_path / "b", 3, overlap=9, seed=1)]
    assert (
        again
        == [p.read_bytes() for p in paths]
        != [p.read_bytes() for p in make_sheets(phrases, tmp_path / "c", 3, overlap=9, seed=2)]
    )
    assert len(pd.read_csv(make_sheets(phrases, tmp_path / "d", ["me"], sample=10)[0])) == 10


def test_labels_are_never_written_over(phrases, tmp_path):
    first, second = make_sheets(phrases, tmp_path, 2)
    make_sheets(phrases, tmp_path, 2, seed=3)  # nothing is lost yet
    filled(second, lambda i: 1)
    before = [p.read_bytes() for p in (first, second)]
    with pytest.raises(FileExistsError, match="annotator2.csv holds labels: nothing was written"):
        make_sheets(phrases, tmp_path, 2)
    assert [p.read_bytes() for p in (first, second)] == before
    (tmp_path / "annotator1.csv").write_text("my own notes")
    assert has_labels(first), "something that is no sheet is not written over either"


@pytest.mark.parametrize(
    "change,says",
    [
        (lambda p: p.drop(columns="phrase"), "no column 'phrase'"),
        (lambda p: p.iloc[:0], "no phrases to label"),
    ],
)
def test_phrases_that_make_no_sheet(phrases, tmp_path, change, says):
    with pytest.raises(ValueError, match=says):
        make_sheets(change(phrases), tmp_path)
    with pytest.raises(ValueError, match="0 to 60 rows"):
        make_sheets(phrases, tmp_path, 2, overlap=61)
    assert sheet_order(0, 2, 0)[0].size == 0


# --- reading ---


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "mac_roman"])
@pytest.mark.parametrize("sep", [",", ";", "\t"])
def test_what_spreadsheets_do(phrases, tmp_path, encoding, sep):
    (path,) = make_sheets(phrases, tmp_path)
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    answers = ["1", "0", "", "1.0", "0.0", "TRUE", "false", " 1 "]
    table["bias sent"] = [answers[i % 8] for i in range(60)]
    table["bias phrase"] = "1"
    table["attribute in window"] = ["TRUE", "true"] * 30
    table = table.rename(columns={"bias sent": "Bias_Sent", "id": "ID"})
    table["Unnamed: 6"] = ""
    blank = pd.DataFrame([dict.fromkeys(table.columns, "")] * 2)
    path.write_bytes(pd.concat([table, blank]).to_csv(index=False, sep=sep, lineterminator="\r\n").encode(encoding))
    labels = read_sheets(path, phrases)
    assert (
        labels["bias sent"].tolist() == ["1", "0", "", "1", "0", "1", "0", "1"] * 7 + ["1", "0", "", "1"]
        and len(labels) == 60
    )
    assert (
        set(labels.phrase) == set(phrases.phrase)
        and set(labels.comment) == set(phrases.comment)
        and labels["attribute in window"].all()
    )


@pytest.mark.parametrize(
    "old,new,says",
    [
        (
            ",1,1\n",
            ",perhaps,1\n",
            r"annotator1.csv: 'perhaps' in column 'bias sent' of row 2 is not a label \(1 such cells\): "
            "expected 0, 1 or nothing",
        ),
        (",1,1\n", ",1,2\n", "'2' in column 'bias phrase' of row 2"),
        ("bias phrase", "biased phrase", r"no column 'bias phrase' \(did you mean 'biased phrase'\?\)"),
        (",True,", ",perhaps,", "'perhaps' in column 'attribute in window' of row 2: expected TRUE or FALSE"),
        (
            "lazy; 0,1,1",
            "sleepy; 0,1,1",
            r"are not among the phrases that the sheets were made of \(1 such rows\): was a cell changed",
        ),
        ("bias phrase", "bias sent", "two columns|no column"),
    ],
)
def test_what_cannot_be_read_is_named(phrases, tmp_path, old, new, says):
    path = filled(make_sheets(phrases.iloc[:1], tmp_path)[0], lambda i: 1)
    content = path.read_text().replace("\r", "")
    assert old in content
    path.write_text(
        content.replace(old, new, 1) if "lazy" not in old else content.replace("are lazy; 0,1,1", "are sleepy; 0,1,1")
    )
    with pytest.raises(ValueError, match=says):
        read_sheets(path, phrases)


def test_rows_are_known_by_their_text_where_a_spreadsheet_rounded_the_ids(phrases, tmp_path):
    long = phrases.assign(id=[f"49123456789{i:05}" for i in range(60)])
    paths = [filled(p, lambda i: i % 2) for p in make_sheets(long, tmp_path, 2, overlap=60)]
    excel = pd.read_csv(paths[0], dtype=str).assign(id="4.91235E+15")
    excel["comment"] = excel.comment.str.replace(" ", "  ")
    excel.to_csv(paths[0], index=False)
    labels = read_sheets(paths, long)
    assert len(labels) == 120 and set(labels.id) == set(long.id) and set(labels.comment) == set(long.comment)
    assert agreement(labels).set_index("level").loc["phrase", ["rows", "alpha"]].tolist() == [60, 1]
    assert len(merge_labels(labels)) == 60


@pytest.mark.parametrize("mark, label", [("１", "1"), ("０", "0"), ("１．０", "1"), ("\u3000", "")])
def test_full_width_digits(phrases, tmp_path, mark, label):
    path = filled(make_sheets(phrases.iloc[:1], tmp_path)[0], lambda i: mark)
    assert read_sheets(path)["bias phrase"].tolist() == [label]


def test_what_a_mark_means_is_left_to_people(phrases, tmp_path):
    path = filled(make_sheets(phrases.iloc[:1], tmp_path)[0], lambda i: "是")
    with pytest.raises(
        ValueError, match="expected 0, 1 or nothing. Write one of these, or explain it by .*'是': \"1\""
    ):
        read_sheets(path)
    assert read_sheets(path, marks={"是": "1"})["bias phrase"].tolist() == ["1"]


def test_columns_that_are_missing_are_named_with_those_there_are(phrases, tmp_path):
    rows = phrases.iloc[:1].assign(target="cats", attribute="lazy")
    (path,) = make_sheets(rows, tmp_path, layout="sentences")
    for old, new in (("bias", "偏见"), ("text", "句子")):
        table = pd.read_csv(path, dtype=str).rename(columns={old: new})
        table.to_csv(tmp_path / "a.csv", index=False)
        with pytest.raises(ValueError, match=f"no column '{old}'; its columns are id, target, attribute, .*{new}"):
            read_sheets(tmp_path / "a.csv")
        assert has_labels(tmp_path / "a.csv") == (old == "bias"), "what is no sheet is not written over"


def test_a_row_with_more_cells_than_the_header(tmp_path):
    (tmp_path / "a.csv").write_text("id,text,bias\n1,lazy,1,\n2,a cat,0,\n")
    assert read_sheets(tmp_path / "a.csv").phrase.tolist() == ["lazy", "a cat"], "empty cells at the end are none"
    (tmp_path / "a.csv").write_text("id,text,bias\n1,lazy, really,1\n2,a cat, so,0\n")
    with pytest.raises(ValueError, match="a.csv: row 2 has more cells than the header has names: put a text with"):
        read_sheets(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "name", ["{} - Kopie", "{} (2)", "Copy of {}", "{}的副本", "{} - 副本", "{} copy 2", "副本 {}"]
)
def test_a_file_managers_copy_is_no_annotator(phrases, tmp_path, name):
    first, _ = make_sheets(phrases, tmp_path, 2, overlap=60)
    (tmp_path / f"{name.format('annotator1')}.csv").write_bytes(first.read_bytes())
    with pytest.raises(ValueError, match="looks like a copy of annotator1.csv and would count as one more annotator"):
        read_sheets(tmp_path)


def test_names_that_begin_alike_are_names(phrases, tmp_path):
    names = ["li", "li na", "lina", "annotator1", "annotator10", "copycat"]
    make_sheets(phrases, tmp_path, names)
    for hidden in ("~$li.csv", "._li.csv"):
        (tmp_path / hidden).write_bytes(b"\x00")
    assert sorted(p.stem for p in sheets_in(tmp_path)) == sorted(names)


def test_rows_that_stand_twice(phrases, tmp_path):
    path = filled(make_sheets(phrases, tmp_path)[0], lambda i: 1)
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    pd.concat([table, table.iloc[:3]]).to_csv(path, index=False)
    assert len(read_sheets(path)) == 60
    pd.concat([table, table.iloc[:1].assign(**{"bias phrase": "0"})]).to_csv(path, index=False)
    with pytest.raises(ValueError, match="rows 2, 62 are the same phrase with different labels"):
        read_sheets(path)
    with pytest.raises(FileNotFoundError):
        read_sheets(tmp_path / "none")


def released(bias_type):
    """The released labels, as from `read_sheets`; other marks than 0 and 1 as `RELEASE_MARKS` maps them."""
    rows = load_annotations(bias_type).rename(columns={"bias_sent": "bias sent", "bias_phrase": "bias phrase"})
    marks = {c: rows[c].str.strip().str.lower().map(MARKS | RELEASE_MARKS) for c in LABELS}
    return rows.assign(**marks, annotator="release", id=[f"{bias_type}-{i}" for i in range(len(rows))])


def test_the_releases_own_marks(corpus):
    """All five read, with the counts of Table 3."""
    wanted = {
        "religion1": (1200, 1099),
        "religion2": (1200, 1159),
        "race": (1273, 1182),
        "gender": (2028, 2033),
        "orientation": (1200, 1119),
    }
    for b in BIAS_TYPES:
        labels = released(b)
        assert ((labels["bias phrase"] == "1").sum(), (labels["bias sent"] == "1").sum()) == wanted[b]
    assert {
        m for b in BIAS_TYPES for c in ("bias_sent", "bias_phrase") for m in load_annotations(b)[c].str.lower()
    } == {*RELEASE_MARKS, "", "0", "1"}


# --- the screen ---


def test_the_screen_saves_every_answer_and_goes_on(phrases, tmp_path):
    (path,) = make_sheets(phrases.iloc[:3], tmp_path)
    screen = LabelScreen(path)
    box = screen.show()
    assert screen.bar in box.children and not screen.finished
    rows = screen.table.phrase.tolist()
    assert rows[0] in screen.text.value.replace("&#x27;", "'") and "Is the comment biased?" in screen.text.value
    screen.buttons["1"].click()
    assert "taken by itself" in screen.text.value and read_sheets(path).loc[0, "bias sent"] == "1"
    screen.press({"key": "0"})
    screen.press({"key": "?"})  # no button: nothing
    screen.press({"key": "x"})
    again = LabelScreen(path)
    assert (again.row, again.question) == (1, 0), "an empty answer is not kept, so the row is open"
    again.show()
    for key in ("x", "1", "ArrowLeft", "0", "1", "1"):
        again.press({"key": key})
    assert again.finished and "All 3 rows are done" in again.text.value and again.bar.value == again.bar.max
    again.press({"key": "1"})
    assert read_sheets(path)[list(LABELS)].values.tolist() == [["1", "0"], ["", "0"], ["1", "1"]]
    with pytest.raises(ValueError, match="expected '0', '1' or ''"):
        again.answer("yes")


def test_the_screen_shows_text_as_text(tmp_path):
    rows = pd.DataFrame(
        {"id": ["a"], "attribute in window": [True], "comment": ["<script>alert(1)</script>"], "phrase": ["<b>x"]}
    )
    screen = LabelScreen(make_sheets(rows, tmp_path)[0])
    screen.show()
    assert "<script>" not in screen.text.value and "&lt;script&gt;" in screen.text.value


# --- agreement ---


def labelled(**by_annotator):
    rows = [(a, str(i), f"p{i}", x, x) for a, labels in by_annotator.items() for i, x in enumerate(labels) if x != "-"]
    return pd.DataFrame(rows, columns=["annotator", "id", "phrase", *LABELS]).replace({"_": ""})


def test_alpha_is_the_libraries(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 100)
    labels = {
        n: "".join(str(int(t ^ (rng.random() < 0.15))) if rng.random() < 0.9 else "_" for t in truth) for n in "abc"
    }
    found = agreement(labelled(**labels)).set_index("level").loc["phrase"]
    matrix = [[np.nan if x == "_" else int(x) for x in labels[n]] for n in "abc"]
    assert (
        np.isclose(found.alpha, krippendorff.alpha(matrix, level_of_measurement="nominal"))
        and found.alpha_low < found.alpha < found.alpha_high
    )
    assert found.annotators == 3 and 90 <= found["rows"] <= 100 and 0.5 < found.same < 1
    assert agreement(labelled(**labels)).equals(agreement(labelled(**labels)))


def test_alpha_by_hand_and_at_its_ends():
    assert agreement(labelled(a="1010", b="1010")).alpha.tolist() == [1.0, 1.0]
    assert agreement(labelled(a="10", b="01")).alpha[0] == pytest.approx(1 - 3 * 4 / (2 * 2 * 2)), (
        "two rows of 0 and 1: 1 - (n - 1) · Σo / (2 · n0 · n1)"
    )
    same = agreement(labelled(a="111", b="111"))
    assert same.alpha.isna().all() and same.same.tolist() == [1, 1], "no disagreement was possible"
    assert same.note.tolist() == ["every label is 1: no disagreement was possible"] * 2
    assert agreement(labelled(a="10", b="01")).note.tolist() == ["", ""]
    with pytest.raises(ValueError, match="no row was labelled by two"):
        agreement(labelled(a="11--", b="--01"))


def test_agreement_is_of_texts_where_ids_repeat():
    """Ids that several texts have: 4 texts, on which two people agree in half, and not one id with one label."""
    labels = labelled(a="1100", b="1010").assign(id="4.9E+15")
    assert agreement(labels, one_label=True)["rows"].tolist() == [4] and agreement(labels).same[1] == 0.5
    assert agreement(labels, one_label=True).same[0] == 0.5
    comments = agreement(labels.assign(comment=labels.phrase + " and more")).set_index("level")["rows"]
    assert comments.to_dict() == {"comment": 4, "phrase": 4}


def test_agreement_by_bias_type():
    labels = pd.concat(
        [labelled(a="1010", b="1011").assign(bias_type="x"), labelled(a="1100", b="1100").assign(bias_type="y")]
    )
    found = agreement(labels).set_index(["bias_type", "level"])
    assert found["rows"]["all", "phrase"] == 8 and found.alpha["y", "comment"] == 1 > found.alpha["x", "comment"]


def test_rules():
    labels = labelled(a="11_0", b="10_1", c="1011")
    assert merge_labels(labels)["bias phrase"].tolist() == ["1", "1", "1", "0"]
    assert merge_labels(labels, "majority")["bias phrase"].tolist() == ["1", "0", "1", "1"]
    assert merge_labels(labels, "unanimous")["bias phrase"].tolist() == ["1", "", "", ""], "empty is no vote for it"
    assert merge_labels(labelled(a="10-", b="1--"), "unanimous")["bias phrase"].tolist() == ["1", "0"], (
        "as many as had it"
    )
    assert merge_labels(labelled(a="10", b="00"), "majority")["bias phrase"].tolist() == ["", "0"]
    with pytest.raises(ValueError, match="first, majority, unanimous"):
        merge_labels(labels, "all")


# --- splits ---


def marked(phrases, share=1.0):
    return phrases.assign(
        **{"bias sent": "1", "bias phrase": ["1" if i < share * len(phrases) else "0" for i in range(len(phrases))]}
    )


def test_splits(phrases):
    parts = split(marked(phrases), CATS)
    assert {k: len(v) for k, v in parts.items()} == {"train": 36, "valid": 12, "test": 12}
    texts = {k: set(v.text1) for k, v in parts.items()}
    assert not texts["train"] & texts["test"] and not texts["valid"] & (texts["train"] | texts["test"])
    comments = {k: {int(t.rsplit(" ", 1)[1]) // 2 for t in v} for k, v in texts.items()}
    assert not comments["train"] & comments["test"], "all phrases of a comment stand in one split"
    for part in parts.values():
        assert (
            (part.text1 != part.text2).all()
            and part.text2.str.contains("dog").all()
            and set(part.target1) <= {"cats", "cat"}
        )
        assert abs((part.target1 == "cat").mean() - 1 / 3) < 0.1, "stratified by target"
    assert all(parts[k].equals(split(marked(phrases), CATS)[k]) for k in parts) and not parts["test"].equals(
        split(marked(phrases), CATS, seed=1)["test"]
    )
    assert {k: len(v) for k, v in split(marked(phrases), CATS, {"train": 40, "valid": 10, "test": 10}).items()} == {
        "train": 40,
        "valid": 10,
        "test": 10,
    }
    for sizes in ({"train": 50, "valid": 10, "test": 10}, {"train": 0.98, "valid": 0.01, "test": 0.01}):
        with pytest.raises(ValueError, match="labelled as biased"):
            split(marked(phrases, 0.5), CATS, sizes)


def test_a_phrase_without_a_counterfactual_is_only_trained_on(phrases):
    more = pd.concat(
        [
            phrases,
            phrases.assign(
                phrase=phrases.phrase.str.replace("cats|a cat", "lynxes", regex=True),
                id=phrases.id + "x",
                comment=phrases.comment + "x",
            ).iloc[:6],
        ]
    )
    parts = split(marked(more), CATS)
    assert (
        (parts["train"].text1 == parts["train"].text2).sum() == 6
        and (parts["test"].text1 != parts["test"].text2).all()
        and (parts["valid"].text1 != parts["valid"].text2).all()
    )


def test_the_released_sizes_from_the_released_labels(corpus):
    """The release: 1,200 biased phrases, 60 of a hundred to train on.

    Half of the rest is for validation and for test each, before outliers were taken out."""
    parts = split(released("religion1"), load_spec("redditbias/religion1"))
    n = released("religion1").query("`bias phrase` == '1'").phrase.nunique()
    assert sum(len(p) for p in parts.values()) == n < 1200, "some stand twice in the release"
    assert abs(len(parts["train"]) - 0.6 * n) < 2 and abs(len(parts["test"]) - 0.2 * n) < 2


# --- tables, and a corpus of one's own ---


def test_examples_of_the_paper(corpus):
    examples = table2()
    assert (
        examples.type.tolist() == ["Religion #1", "Religion #2", "Queerness", "Race", "Gender"]
        and examples.biased.all()
    )


def test_counts_of_labels(phrases):
    labels = marked(phrases, 0.5)
    row = count_labels(labels, split(labels, CATS), "cats").iloc[0]
    assert row.tolist() == ["cats", 60, 60, 30, 18, 6, 6]


def test_a_corpus_of_ones_own(phrases, tmp_path, model_folder):
    folder = tmp_path / "pets"
    (folder / "cats").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="run 02_retrieval"):
        annotate(folder / "cats", CATS)
    phrases.to_csv(folder / "cats" / "phrases.csv", index=False)
    made = annotate(folder / "cats", CATS, annotators=2, overlap=10)
    assert set(made) == {"sheets"} and annotate(folder / "cats", CATS) == made, "nothing is labelled yet"
    with pytest.raises(FileNotFoundError, match="no folder with a test.csv"):
        own_bias_types(folder)
    for path, flip in zip(made["sheets"], (0, 7)):
        filled(path, lambda i, flip=flip: int(i != flip))
    made = annotate(folder / "cats", CATS)
    given = read_sheets(made["sheets"])
    by_two = (
        given[given[LABELS[0]] != ""].groupby("id").annotator.nunique() > 1
    ).sum()  # also through different phrases
    assert (
        made["agreement"]["rows"].tolist() == [by_two, 10]
        and by_two >= 10
        and made["table3"].biased_phrases.item() >= 58
    )
    pairs = load_pairs("cats", "test", str(folder))
    assert len(pairs) == 12 and pairs.attrs["corpus"]["name"] == "pets" and own_bias_types(folder) == ["cats"]
    assert load_phrases("cats", "train", str(folder)).text.tolist() == made["splits"]["train"].text1.tolist()
    record = measure_lmb(str(model_folder), corpus=str(folder), outliers="all")[0]
    assert (record["bias_type"], record["corpus"], record["split"], record["n"]) == ("cats", "pets", "test", 12)
    for args in (("dogs", "test"), ("cats", "dev")):
        with pytest.raises(ValueError, match="is unknown: expected one of"):
            load_pairs(*args, str(folder))


def test_unfinished_sheets_are_told(phrases, tmp_path):
    """One that nobody has begun is an error, of one with empty cells it is said which."""
    folder = tmp_path / "cats"
    folder.mkdir()
    phrases.to_csv(folder / "phrases.csv", index=False)
    first, second = annotate(folder, CATS, annotators=2, overlap=None)["sheets"]
    filled(first, lambda i: 1)
    with pytest.raises(ValueError, match="no label yet in annotator2.csv, and some in annotator1.csv: nothing was w"):
        annotate(folder, CATS, rule="unanimous")
    filled(second, lambda i: 1 if i >= 6 else "")
    with pytest.warns(UserWarning, match=r"annotator2.csv has 6 of 60 \(row \d+, .*, …\)"):
        made = annotate(folder, CATS, rule="unanimous")
    assert made["labels"]["bias phrase"].value_counts().to_dict() == {"1": 54, "": 6}
    assert made["agreement"].note[0].startswith("every label is 1")


def test_splits_are_written_last(phrases, tmp_path, monkeypatch):
    folder = tmp_path / "cats"
    folder.mkdir()
    phrases.to_csv(folder / "phrases.csv", index=False)
    for path in annotate(folder, CATS, annotators=2, overlap=None)["sheets"]:
        filled(path, lambda i: 1)
    with monkeypatch.context() as m, pytest.raises(ValueError, match="none"):
        m.setattr(module, "agreement", mock.Mock(side_effect=ValueError("none")))
        annotate(folder, CATS)
    assert sorted(p.name for p in folder.glob("*.csv")) == ["phrases.csv"]
    for path, mark in zip(
        sorted((folder / "sheets").glob("*.csv")), (0, 1)
    ):  # each has labelled the other's empty ones
        filled(path, lambda i, mark=mark: 1 if i % 2 == mark else "")
    with pytest.warns(UserWarning, match="are empty"):
        assert annotate(folder, CATS)["agreement"] is None, "no row has two labels"


def test_phrases_that_cannot_be_read_are_named(phrases, tmp_path):
    (tmp_path / "phrases.csv").write_bytes(b'id,comment\n1,"a')
    with pytest.raises(ValueError, match="phrases.csv: not a CSV file"):
        annotate(tmp_path, CATS)
    phrases.to_csv(tmp_path / "phrases.csv", index=False)
    annotate(tmp_path, CATS)
    phrases.assign(phrase="other").to_csv(tmp_path / "phrases.csv", index=False)
    with pytest.raises(ValueError, match="or phrases.csv written again"):
        annotate(tmp_path, CATS)


def test_reading_gives_back_what_was_written(phrases, tmp_path):
    """Quotes, commas, line ends and formulas in a comment survive."""
    odd = phrases.iloc[:4].assign(
        comment=['say "cats", now', "=SUM(A1)", "two\nlines", "it’s 女孩"], phrase=["a", "b", "c", "d"]
    )
    (path,) = make_sheets(odd, tmp_path)
    assert set(read_sheets(path, odd).comment) == set(odd.comment)
    assert sheet_cells(path).columns.tolist() == [*SHEET, "row"]
    assert all(kind["guidelines"].startswith("# ") for kind in KINDS.values())


def test_a_comment_of_several_phrases_is_one_comment():
    """Three phrases of one comment and one of another: two comments; whoever called it biased once called it biased."""
    rows = [
        (a, i, f"phrase {n}", label)
        for a, labels in (("one", "0101"), ("two", "0000"))
        for n, (i, label) in enumerate(zip("aaab", labels))
    ]
    labels = pd.DataFrame(
        [(a, i, "", phrase, x, x) for a, i, phrase, x in rows],
        columns=["annotator", "id", "comment", "phrase", *LABELS],
    )
    found = agreement(labels).set_index("level")
    assert found.rows.to_dict() == {"comment": 2, "phrase": 4} and found.same.to_dict() == {
        "comment": 0.0,
        "phrase": 0.5,
    }


def test_a_corpus_that_is_not_there(tmp_path):
    """Is said to be missing, and not to have no phrases yet; a run of the notebook says so."""
    from redditbias_repro.data.making.annotation import phrases_folder

    (tmp_path / "race").mkdir()
    assert phrases_folder(tmp_path, "race") is None
    (tmp_path / "race" / "phrases.csv").write_text("")
    assert phrases_folder(tmp_path, "race") == tmp_path / "race"
    with pytest.raises(
        FileNotFoundError, match="there is no folder .*no-corpus: expected the out_dir of a run of 02_retrieval"
    ):
        phrases_folder(tmp_path / "no-corpus", "race")
    notebook, away = repo_root() / "nbs" / "02a_annotation.ipynb", tmp_path / "no-corpus"
    papermill(notebook, tmp_path / "out.ipynb", fails="there is no folder", corpus_dir=away)
