"""Loading the released files as they are, the query set, one's own pairs, and Table 3."""

import shutil
import sys
import textwrap
import warnings
from dataclasses import replace

import pandas as pd
import pytest
from conftest import each

from redditbias_repro import specs
from redditbias_repro.cli import main
from redditbias_repro.data import corpora
from redditbias_repro.data import pairs as data
from redditbias_repro.data.corpora import redditbias as release
from redditbias_repro.data.corpora.redditbias import (
    count_annotations,
    load_annotations,
    load_published,
)
from redditbias_repro.data.pairs import load_pairs, load_phrases, read_pairs
from redditbias_repro.data.registry import SPLITS, SWAPS, ChecksumError, FetchError, list_files
from redditbias_repro.debias.training import debias
from redditbias_repro.metrics.choice import measure_model, training_record
from redditbias_repro.metrics.language_model import measure_lmb, pairs_to_measure
from redditbias_repro.models.loading import load_model, open_model
from redditbias_repro.papers.redditbias.results import table3
from redditbias_repro.papers.statements import read_claims
from redditbias_repro.records import data_file, record_path, write_record
from redditbias_repro.show.figures import plot_changes, plot_lmb
from redditbias_repro.show.tables import PAPER_METHODS, lmb_changes, lmb_table
from redditbias_repro.specs import BIAS_TYPES, load_spec

SIZES = {  # train, valid, test: Table 3's train, dev, test
    "religion1": (720, 238, 238), "religion2": (720, 235, 236), "race": (763, 253, 254),
    "gender": (1521, 252, 253), "orientation": (720, 234, 235),
}  # fmt: skip
COLUMNS = ["text1", "text2", "target1", "target2"]


@each("bias_type", BIAS_TYPES)
def test_released_pairs(corpus, bias_type):
    for split, size in zip(("train", "valid", "test"), SIZES[bias_type]):
        pairs = load_pairs(bias_type, split, "redditbias")
        assert list(pairs.columns) == COLUMNS and len(pairs) == size
        assert all(isinstance(t, str) and t.strip() for t in [*pairs.text1, *pairs.text2])
        assert pairs.attrs["corpus"]["name"] == "redditbias" and all(
            len(h) == 40 for h in pairs.attrs["corpus"]["files"].values()
        )
        assert not pairs.text1.str.contains("<bos>|<eos>").any()
        assert int((pairs.text1 == pairs.text2).sum()) <= (
            6 if split == "train" else 1
        )  # a few were released without a swap
        assert (pairs.target1 != "").mean() > 0.98 and ((pairs.target1 == "") == (pairs.target2 == "")).all()


def test_terms_of_released_pairs(corpus):
    pairs = load_pairs("gender", "test", "redditbias")
    assert {"mom; she", "girl", "wife; wife"} <= set(pairs.target1) and {"dad; he", "boy"} <= set(pairs.target2)


@each("bias_type", BIAS_TYPES)
def test_training_phrases_are_released_twice(corpus, bias_type):
    phrases = load_phrases(bias_type, "train", "redditbias")
    assert list(phrases.columns) == ["text"] and len(phrases) == SIZES[bias_type][0]
    assert list(phrases.text) == [t.lower() for t in release._read_lines(release._train_key(bias_type))]
    assert phrases.attrs["corpus"]["name"] == "redditbias"


ATTRIBUTE_SIZES = {  # train, and all that was not trained on; of these, pairs in which nothing differs
    "religion1": (720, 475, 45, 47), "religion2": (720, 476, 7, 5), "race": (763, 506, 0, 0),
    "gender": (1521, 505, 2, 0), "orientation": (720, 477, 15, 9),
}  # fmt: skip


@each("bias_type", BIAS_TYPES)
def test_released_attribute_swaps(corpus, bias_type):
    train, test = (load_pairs(bias_type, s, "redditbias", swap="attributes") for s in ("train", "test"))
    assert (
        len(train),
        len(test),
        (train.text1 == train.text2).sum(),
        (test.text1 == test.text2).sum(),
    ) == ATTRIBUTE_SIZES[bias_type]
    assert list(train.columns) == list(test.columns) == ["text1", "text2", "attribute1", "attribute2"]
    assert train.text1.equals(load_pairs(bias_type, "train", "redditbias").text1)
    held_out = {t for s in ("valid", "test") for t in load_pairs(bias_type, s, "redditbias").text1}
    assert test.text1.isin(held_out).mean() > 0.97, "the phrases of valid and test, but for outliers"
    assert ((test.attribute1 == "") == (test.text1 == test.text2)).all() and (
        (train.attribute1 == "") == (train.text1 == train.text2)
    ).mean() > 0.99
    spec = load_spec(f"redditbias/{bias_type}")
    assert (
        test.text1.map(lambda t: len(spec.find_targets(t, 1))) == test.text2.map(lambda t: len(spec.find_targets(t, 1)))
    ).mean() > 0.97, "the group stays"
    for p in (train, test):
        assert (
            set(p.attrs["corpus"]["files"]) < set(release.release_files()) and p.attrs["corpus"]["name"] == "redditbias"
        )


def test_noted_attributes_make_the_swap(corpus):
    for row in load_pairs("race", "test", "redditbias", swap="attributes").itertuples():
        text = row.text1
        for a, b in zip(row.attribute1.split("; "), row.attribute2.split("; ")):
            text = text.replace(a, b)
        assert text == row.text2


def test_released_files_that_do_not_pair(made_up, monkeypatch):
    read = release.read_cells
    shuffled = lambda text: read(text).iloc[::-1] if "comments," in text.split("\n", 1)[0] else read(text)
    monkeypatch.setattr(release, "read_cells", shuffled)
    for swap in SWAPS:
        with pytest.raises(ValueError, match="do not hold the same sentences in the same order"):
            load_pairs("race", "test", "redditbias", swap)
    lines = release._read_lines
    monkeypatch.setattr(release, "_read_lines", lambda key: lines(key)[:-1] if "swapped" in key else lines(key))
    for swap in SWAPS:
        with pytest.raises(
            ValueError, match="does not hold the .* training sentences and then as many counterfactuals"
        ):
            load_pairs("race", "train", "redditbias", swap)


def test_attribute_swaps_that_there_are_not(made_up, tmp_path):
    (tmp_path / "own.csv").write_text("text1,text2\na,b\n")
    for arguments, says in (
        (("dialoguefairness/race", "test", "queries", "attributes"), "specification race has no attribute_pairs"),
        (("race", "valid", "redditbias", "attributes"), "does not divide its attribute pairs into valid and test"),
        (("own", "test", str(tmp_path / "own.csv"), "attributes"), "holds whatever pairs you put into it"),
        (("race", "test", "redditbias", "groups"), "swap 'groups' is unknown: expected one of targets, attributes"),
    ):
        with pytest.raises(ValueError, match=says):
            load_pairs(*arguments)


def test_queries_stand_in_for_attribute_swaps(offline):
    with pytest.warns(UserWarning, match="stand in"):
        pairs = load_pairs("race", swap="attributes")
    assert pairs.attrs["corpus"]["stands_in_for"] == "redditbias" and {*pairs.attribute1} <= {*load_pairs_words("race")}


def load_pairs_words(name):
    """The attributes of a specification as queries have them."""
    spec = load_spec(f"redditbias/{name}")
    return [dict(spec.wildcard_forms).get(a, a.rstrip("*")).lower() for a, _ in spec.attribute_pairs]


def test_attribute_swaps_of_queries(monkeypatch):
    spec = replace(load_spec("redditbias/race"), attribute_pairs=(("criminal*", "police"), ("lazy", "active")))
    monkeypatch.setattr(data, "load_spec", lambda name: spec)
    pairs = pd.concat([load_pairs("race", s, "queries", "attributes") for s in SPLITS])
    assert len(pairs) == 2 * len(spec.targets1), "queries whose attribute has no pair are left out"
    assert set(zip(pairs.attribute1, pairs.attribute2)) == {("criminal", "police"), ("lazy", "active")}
    assert dict(zip(pairs.text1, pairs.text2))["blacks are lazy"] == "blacks are active"


def test_records_of_attribute_swaps(made_up, model_folder):
    made = {
        swap: measure_lmb(str(model_folder), ["race"], "redditbias", outliers="all", swap=swap)[0] for swap in SWAPS
    }
    assert (
        made["targets"]["params"] == {"outliers": "all"}
        and made["targets"] == measure_lmb(str(model_folder), ["race"], "redditbias", outliers="all")[0]
    )
    assert made["attributes"]["params"] == {"outliers": "all", "swap": "attributes"} and made["attributes"]["n"] == 48
    assert (
        record_path(made["targets"]).name.startswith("redditbias-race-test-")
        and record_path(made["attributes"]).name != record_path(made["targets"]).name
    )


@each(
    "bias_type,rows",
    [("religion1", 3554), ("religion2", 10584), ("race", 3000), ("gender", 3000), ("orientation", 7993)],
)
def test_annotations(corpus, bias_type, rows):
    annotations = load_annotations(bias_type)
    assert len(annotations) == rows and list(annotations.columns) == ["comment", "phrase", "bias_sent", "bias_phrase"]
    labels = set(annotations.bias_sent)
    assert {"0", "1"} <= labels and (bias_type != "religion1" or {"re-state", "question"} <= labels)


def test_the_file_in_another_encoding(corpus):
    assert load_annotations("religion1").comment.str.contains("’").sum() == 1


def test_table3(corpus):
    t = table3()
    assert len(t) == 30 and (t[t.quantity.isin(["train", "dev", "test"])].difference == 0).all()
    different = {(r.bias_type, r.quantity): (r.released, r.paper) for r in t.itertuples() if r.difference}
    assert different == {
        ("religion1", "annotated_comments"): (2111, 2112),
        ("religion1", "biased_phrases"): (1200, 1196),
        ("religion2", "biased_phrases"): (1200, 1191),
        ("race", "annotated_comments"): (2620, 3000),
        ("race", "biased_comments"): (1182, 2620),
        ("race", "biased_phrases"): (1273, 1270),
        ("gender", "biased_comments"): (2033, 2081),
        ("gender", "biased_phrases"): (2028, 2026),
        ("orientation", "biased_phrases"): (1200, 1189),
    }
    assert all(e.startswith("the paper's number equals: ") for e in t[t.difference != 0].explanation)
    assert count_annotations("gender")["sum of the comments' labels"] == 2081


def test_published_perplexities_are_the_released_ones(corpus):
    for b in BIAS_TYPES:
        for split in ("valid", "test"):
            keys = release._pairs_keys(b, split)
            released = [release.read_cells(release._decode(release.fetch(key).read_bytes())).perplexity for key in keys]
            kept = load_published(b, split)
            for side, said in zip(("perplexity1", "perplexity2"), released):
                assert kept[side].tolist() == said.astype(float).tolist() and kept.row.tolist() == list(said.index)
            assert kept.attrs["corpus"]["files"] == load_pairs(b, split, "redditbias").attrs["corpus"]["files"]
    header, *rows = data_file("published", release.PUBLISHED).read_text().splitlines()
    assert header == "bias_type,split,row,perplexity1,perplexity2" and len(rows) == 2428
    assert {r.split(",")[0] for r in rows} == set(BIAS_TYPES) and all(
        float(x) > 1 for r in rows for x in r.split(",")[3:]
    )


@pytest.mark.parametrize("bias_type", BIAS_TYPES)
def test_queries(bias_type):
    spec = load_spec(f"redditbias/{bias_type}")
    splits = {s: load_pairs(bias_type, s, "queries") for s in ("train", "valid", "test")}
    texts = [t for p in splits.values() for t in p.text1]
    assert len(texts) == len(set(texts)) == len({q.lower() for q in spec.queries(wildcards=False)})
    test = splits["test"]
    assert 0.15 < len(test) / len(texts) < 0.25 and not test.text1.str.contains("*", regex=False).any()
    assert (test.text1 != test.text2).all()
    assert all(p.target1 in p.text1 and p.target2 in p.text2 for p in test.itertuples())


def test_auto_takes_the_release(made_up):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_pairs("race").attrs["corpus"]["name"] == "redditbias"


def test_auto_falls_back_with_a_warning_and_a_note(offline):
    with pytest.warns(
        UserWarning, match="redditbias: the released pairs are not available .*queries .* stand in"
    ) as told:
        pairs = load_pairs("race")
    assert len(told) == 1 and len(str(told[0].message)) < 300
    assert pairs.attrs["corpus"]["name"] == "queries" and "stand in" in pairs.attrs["corpus"]["note"]
    assert pairs.attrs["corpus"]["stands_in_for"] == "redditbias"
    with pytest.raises(FetchError):
        load_pairs("race", corpus="redditbias")


def test_a_wrong_file_is_no_reason_to_fall_back(offline, monkeypatch, tmp_path):
    key = release._pairs_keys("race", "test")[0]
    entry = list_files(key).iloc[0]
    file = tmp_path / "mirror" / entry["repository"] / entry["commit"] / entry["path"]
    file.parent.mkdir(parents=True)
    file.write_text("something else")
    monkeypatch.setenv("REDDITBIAS_MIRROR", str(tmp_path / "mirror"))
    with pytest.raises(ChecksumError):
        load_pairs("race")


@pytest.mark.parametrize(
    "arguments,says",
    [
        (("religion",), "bias type 'religion' is unknown: expected one of religion1, religion2"),
        (("race", "dev"), "split 'dev' is unknown: expected one of train, valid, test"),
        (("queerness",), "bias type 'queerness' is unknown: queerness is called 'orientation' here"),
        ((None,), "bias_type is None: expected one, such as religion1, religion2, race"),
        ((["race"],), r"bias_type is \['race'\]: expected one, such as"),
    ],
)
def test_unknown_names(arguments, says):
    with pytest.raises(ValueError, match=says):
        load_pairs(*arguments, corpus="queries")
    with pytest.raises(FileNotFoundError, match="is not a file, nor one of auto, redditbias, chbias, queries"):
        load_pairs("race", corpus="reddit")


@pytest.mark.parametrize(
    "content,says",
    [
        (b"text1,other\na,b\n", r"no column 'text2'; its columns are text1, other"),
        (b"text1;text2\na;b\n", "no column 'text1', 'text2'; .*separated by other marks than commas"),
        (b"text1,text2\na,b\nc,\n ,d\n", r"an empty text in data row 2, 3"),
        (b"text1,text2\n", "no rows"),
        (b"", "not a CSV file"),
        (b"text1,text2\n\xff,b\n", "not UTF-8"),
    ],
)
def test_errors_of_ones_own_pairs(tmp_path, content, says):
    path = tmp_path / "own.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_pairs(path)


def test_ones_own_pairs(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("\ufefftext2,note,text1\nNA,x,null\n\n“b”,y,a\n", encoding="utf-8")
    pairs = load_pairs("anything", corpus=str(path))
    assert list(pairs.columns) == COLUMNS and list(pairs.text1) == ["null", "a"] and list(pairs.text2) == ["NA", "“b”"]
    assert pairs.attrs["corpus"]["name"] == "own" and len(pairs.attrs["corpus"]["sha256"]) == 64


# --- another paper ---


@pytest.fixture
def made_up_paper(monkeypatch, tmp_path):
    """A paper is a specification, a reader of ten lines and a CSV of pairs, nothing else."""
    specifications, rooms = tmp_path / "specs", tmp_path / "corpora"
    shutil.copytree(str(specs._SPECS), specifications)
    (specifications / "petbias").mkdir()
    (specifications / "petbias" / "race.toml").write_text(
        'paper = "petbias"\ntitle = "Breed"\ntargets1 = ["cats are"]\ntargets2 = ["dogs are"]\n'
        'pairs = [["cats", "dogs"]]\nattributes1 = ["lazy", "greedy", "evil"]\n'
    )
    rooms.mkdir()
    (rooms / "pairs.csv").write_text(
        "split,text1,text2\n"
        + "\n".join(f"{s},cats are {a} {s},dogs are {a} {s}" for s in SPLITS for a in ("lazy", "sly", "vain", "odd"))
    )
    (rooms / "petbias.py").write_text(
        textwrap.dedent("""
            from pathlib import Path
            import pandas as pd
            from redditbias_repro.data.registry import with_corpus

            def read_released(bias_type, split="test", swap="targets"):
                pairs = pd.read_csv(Path(__file__).with_name("pairs.csv")).query("split == @split")[["text1", "text2"]]
                return with_corpus(pairs.assign(target1="cats", target2="dogs").reset_index(drop=True), "petbias")
        """)
    )
    monkeypatch.setattr(specs, "_SPECS", specifications)
    monkeypatch.setattr(corpora, "__path__", [*corpora.__path__, str(rooms)])
    yield
    sys.modules.pop("redditbias_repro.data.corpora.petbias", None)


def test_a_paper_is_a_specification_and_a_reader(made_up_paper):
    assert (
        data.corpora() == ("auto", "redditbias", "chbias", "petbias", "queries")
        and data.bias_spec("petbias/race").title == "Breed"
        and data.bias_spec("race").title == "Race"
    )
    released = load_pairs("petbias/race", "valid")
    assert released.attrs["corpus"]["name"] == "petbias" and released.text1.tolist() == [
        f"cats are {a} valid" for a in ("lazy", "sly", "vain", "odd")
    ]
    assert load_phrases("petbias/race").text[0] == "cats are lazy train"
    assert sum(len(load_pairs("petbias/race", s, "queries")) for s in SPLITS) == 3
    with pytest.raises(
        ValueError,
        match="corpus 'redditbias' has no bias type 'petbias/race': "
        "expected auto, queries, petbias, or files of your own",
    ):
        load_pairs("petbias/race", corpus="redditbias")
    with pytest.raises(ValueError, match="bias type 'petbias/age' is unknown"):
        load_pairs("petbias/age")


def test_a_paper_is_measured_debiased_and_shown(made_up_paper, model_folder, tmp_path):
    net, tokenizer = load_model(str(model_folder), dtype="float32")
    run = debias(
        net,
        tokenizer,
        data.bias_spec("petbias/race"),
        load_phrases("petbias/race").text,
        "ADD",
        tmp_path / "model",
        epochs=1,
        disable_tqdm=True,
    )
    debiased = open_model(run.folder)
    before = measure_lmb(model_folder, ["petbias/race"], outliers="all")
    records = [
        *before,
        *measure_model(debiased, "petbias/race", lmp_sentences=0, base=before),
        training_record(run, debiased),
    ]
    assert {(r["paper"], r["bias_type"], r["corpus"]) for r in records} == {("petbias", "race", "petbias")} and len(
        {r["model"] for r in records}
    ) == 1
    for r in records:
        write_record(r, tmp_path / "results")
    table, changes = (
        lmb_table(folder=tmp_path / "results", paper="petbias"),
        lmb_changes(folder=tmp_path / "results", paper="petbias"),
    )
    assert (
        list(table[table.outliers == "all"].method) == ["baseline", "ADD"]
        and list(table[table.outliers == "base"].method) == ["ADD"]
        and changes.bias_type.tolist() == ["race"]
        and changes.n.tolist() == [4]
    )
    assert not len(lmb_table(folder=tmp_path / "results")), "another paper's race is not RedditBias'"
    shown = table[table.outliers == "all"]
    titles = [ax.get_xticklabels()[0].get_text() for ax in plot_lmb(shown, paper="petbias").axes]
    assert titles == ["Breed"] and plot_changes(changes, paper="petbias").axes[0].get_title() == "Breed"


def test_a_papers_corpus_brings_its_bias_types(made_up_paper, model_folder, capsys):
    assert [names[:2] for names in pairs_to_measure(corpus="petbias")] == [("petbias", "race")]
    assert main(["measure", "--model", str(model_folder), "--corpus", "petbias"]) == 0
    assert "4 " in capsys.readouterr().out


# --- the paper's statements ---

CLAIMS = {  # what decides on a statement: of each model by itself, or of all of its scope together; "": nothing here
    "each": {
        "biased", "stereotypical_insignificant", "opposite_insignificant", "removed", "kept", "attenuated",
        "raises_perplexity", "reduces_and_preserves", "loses",
    },
    "all": {
        "fewer_than_general", "only_these_remove", "tends_to_overshoot", "significant_in_a_few", "not_diminished",
        "not_diminished_in_sequence", "no_negative_consequences", "similar_trends", "mostly_mitigated", "",
    },
}  # fmt: skip


def test_claims_are_well_formed():
    said = read_claims("redditbias").query("bias_type != ''")
    assert not said.duplicated(["bias_type", "method", "check", "unchecked", "section"]).any()
    assert len(said) == 30 and said.statement.str.len().gt(20).all()
    assert all(r.check in CLAIMS[r.scope] for r in said.itertuples()) and set(said.check) == set().union(
        *CLAIMS.values()
    )
    assert said.section.str.match(r"§(5|5\.2|7)(,|$)").all()
    for column, known in (("bias_type", BIAS_TYPES), ("method", PAPER_METHODS)):
        words = said[column].str.split()
        assert all(w and set(w) <= set(known) and len(w) == len(set(w)) for w in words), column


def test_claims_on_religion_and_on_the_rest():
    """Of the eight debiased models for Religion six are said to lose the bias, two to keep and attenuate it.

    What is said of models without one beforehand is asked of all twenty: which those are is measured."""
    said = read_claims("redditbias").query("bias_type != ''")
    cells = {
        c: {(b, m) for r in rows.itertuples() for b in r.bias_type.split() for m in r.method.split()}
        for c, rows in said.groupby("check")
    }
    religion = {(b, m) for b in ("religion1", "religion2") for m in ("LMD", "ADD", "HD", "CDA")}
    assert (
        cells["removed"] | cells["kept"] == religion
        and not cells["removed"] & cells["kept"]
        and cells["attenuated"] == cells["kept"] == {("religion1", "LMD"), ("religion2", "ADD")}
    )
    assert (
        cells["mostly_mitigated"] == religion
        and len(cells["tends_to_overshoot"]) == len(cells["significant_in_a_few"]) == 20
    )


def test_a_target_without_a_pair_tests_nothing():
    own = specs.BiasSpec(["cats are", "nurses are"], ["dogs are"], [["cats", "dogs"]],
                         [f"lazy{c}" for c in "abcdefghijklmnopqrst"], verbs=["are"], name="own")  # fmt: skip
    with pytest.warns(UserWarning, match="no pair of the specification own holds nurses"):
        pairs = data.query_pairs(own)
    assert len(pairs) and (pairs.text1 != pairs.text2).all() and not pairs.text1.str.contains("nurses").any()


def test_two_specifications_of_one_name(tmp_path, model_folder):
    paths = []
    for folder, word in (("x", "cats"), ("y", "birds")):
        paths.append(tmp_path / folder / "mine.toml")
        paths[-1].parent.mkdir()
        paths[-1].write_text(f'targets1 = ["{word}"]\ntargets2 = ["dogs"]\npairs = [["{word}", "dogs"]]\n'
                             'attributes1 = ["lazy", "sly", "odd", "sad", "mad", "shy", "wet", "old"]\n')  # fmt: skip
    with pytest.raises(ValueError, match="two bias types are called own/mine: rename"):
        pairs_to_measure(paths, "queries")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(pairs_to_measure([paths[0], paths[0]], "queries")) == 1


def test_a_row_that_is_too_short_or_too_long(tmp_path):
    path = tmp_path / "own.csv"
    for row, says in (("red cats, who are lazy,dogs", "3 cells and the header 4"), ("a,b,c,d,e", "5 cells|saw 5")):
        path.write_text(f"text1,text2,target1,target2\n{row}\n")
        with pytest.raises(ValueError, match=rf"own\.csv: not a CSV .*({says})"):
            read_pairs(path)


def test_a_specification_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('﻿targets1 = ["cats"]\ntargets2 = ["dogs"]\npairs = [["cats", "dogs"]]\nattributes1 = ["lazy"]\n',
                    encoding="utf-8")  # fmt: skip
    assert load_spec(path).targets1 == ("cats",)
