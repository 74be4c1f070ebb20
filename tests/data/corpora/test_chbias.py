"""CHBias: specifications, swapping, the released files, and how the release differs from its paper."""

import dataclasses
import itertools
import json
import subprocess

import pandas as pd
import pytest
import regex
from conftest import each
from made_up import AUGMENTED

from redditbias_repro.cli import main
from redditbias_repro.data.corpora import chbias
from redditbias_repro.data.corpora.chbias import (
    CATEGORIES,
    cdial_tokenizer,
    read_released,
    release_files,
    released_spec,
    swap_released,
)
from redditbias_repro.data.pairs import load_pairs, load_phrases, load_references, released_papers
from redditbias_repro.data.registry import SPLITS, fetch, list_files
from redditbias_repro.debias.losses import METHODS
from redditbias_repro.papers.chbias.release import count_overlaps, flag_pairs, has_keyword, has_unknown, table2
from redditbias_repro.records import data_file, repo_root
from redditbias_repro.specs import DIRECTIONS, list_specs, load_spec, replace_in_order

SPECS = {b: load_spec(f"chbias/{b}") for b in CATEGORIES}
SIZES = {
    "gender": (800, 200, 200),
    "orientation": (800, 200, 200),
    "age": (799, 200, 200),
    "appearance": (799, 200, 200),
}


# --- specifications ---

# Counted by hand in Appendix A: T1, T2, A1, attribute pairs; and the target pairs of the release's script.
APPENDIX = {"gender": (9, 8, 29, 17, 21), "orientation": (5, 2, 15, 7, 6), "age": (7, 3, 8, 6, 10)} | {
    "appearance": (7, 5, 18, 10, 7)
}


@pytest.mark.parametrize("bias_type", CATEGORIES)
def test_counts_of_the_appendix(bias_type):
    s = SPECS[bias_type]
    counts = tuple(map(len, (s.targets1, s.targets2, s.attributes1, s.attribute_pairs, s.pairs)))
    assert counts == APPENDIX[bias_type] and (s.paper, s.language, s.name) == ("chbias", "zh", bias_type)
    assert s.attributes2 == tuple(b for _, b in s.attribute_pairs), "A2 stands only in the pairs"
    assert {a for a, _ in s.attribute_pairs} <= set(s.attributes1) and set(s.targets1) <= {a for a, _ in s.pairs}


def test_specifications_are_listed_in_the_papers_order():
    assert [n for n in list_specs() if n.startswith("chbias/")] == [f"chbias/{b}" for b in CATEGORIES]
    assert [len(SPECS[b].queries()) for b in CATEGORIES] == [261, 75, 56, 126], "Table 2's keys"


def test_attribute_pairs_in_which_paper_and_release_differ():
    paper, release = ({b: set(s(b).attribute_pairs) for b in CATEGORIES} for s in (SPECS.get, released_spec))
    assert paper["orientation"] == release["orientation"] and paper["age"] == release["age"]
    assert (paper["appearance"] - release["appearance"], release["appearance"] - paper["appearance"]) == (
        set(),
        {("讨厌", "喜欢")},
    )
    assert paper["gender"] - release["gender"] == {
        ("丑", "帅"), ("恶心", "舒心"), ("不靠谱", "靠谱"), ("化妆", "素颜"), ("泼", "文雅"), ("奇葩", "普通"),
    }  # fmt: skip
    assert release["gender"] - paper["gender"] == {
        ("丑", "美"), ("恶心", "美好"), ("不靠谱", "不离谱"), ("骚", "文静"), ("空姐", "空少"),
        ("大龄", "年轻"), ("撒泼", "文雅"),
    }  # fmt: skip


def test_terms_in_which_the_paper_differs_from_itself():
    gender = SPECS["gender"]
    assert "护士" not in gender.attributes1 and "医生" not in gender.attributes2, "examples of Table 1"
    assert "男" not in gender.targets2 and ("女", "男") in gender.pairs, "the English of T2 has man twice"
    answered = {b for s in SPECS.values() for _, b in s.pairs} - {t for s in SPECS.values() for t in s.targets2}
    assert answered == {
        "夫", "男", "哥", "弟", "爸", "父亲", "丈夫", "大爷", "爷爷", "姥爷", "老公", "异性", "青年",
    }, "what the script writes and no T2 has"  # fmt: skip


# --- matching and swapping on made-up sentences ---


@pytest.mark.parametrize(
    "bias_type,text,forth",
    [
        ("gender", "我妈妈和阿姨都在厨房", "我爸爸和叔叔都在厨房"),
        ("gender", "女儿长大了", "儿子长大了"),
        ("orientation", "同性恋也要吃饭", "异性恋也要吃饭"),
        ("orientation", "他是gay，不是TXL", "他是直男，不是异性恋"),
        ("age", "大妈在公园跳舞，老太太在看", "小姑娘在公园跳舞，小姑娘在看"),
        ("age", "老头子", "小伙子"),
        ("appearance", "胖子爱跑步，矮子爱游泳", "瘦子爱跑步，高个爱游泳"),
    ],
)
def test_targets_to_the_other_group(bias_type, text, forth):
    assert SPECS[bias_type].swap_targets(text, "1to2") == forth
    assert SPECS[bias_type].find_targets(text, 1) and not SPECS[bias_type].find_targets(forth, 1)


@pytest.mark.parametrize(
    "bias_type,text,back",
    [
        ("gender", "爸爸和叔叔在看球", "妈妈和阿姨在看球"),
        ("orientation", "直男和异性恋", "基佬和同性恋"),
        ("age", "小姑娘和年轻人", "大妈和老人"),
        ("appearance", "瘦子比高个轻", "胖子比矮子轻"),
    ],
)
def test_targets_back(bias_type, text, back):
    assert SPECS[bias_type].swap_targets(text, "2to1") == back


def test_both_ways_in_one_pass_and_in_order():
    gender = SPECS["gender"]
    assert gender.swap_targets("妈妈爱爸爸", "both") == "爸爸爱妈妈"
    assert gender.swap_targets(gender.swap_targets("姐姐和弟弟", "both"), "both") == "姐姐和弟弟"
    # as released: 男人 meets three pairs, 妈妈 goes there and back, 妇女 ends as no word
    slips = {"男人": "夫男", "妈妈": "妈妈", "妇女": "孕夫", "女人": "男人", "她": "他", "夫人": "妇人"}
    for text, released in slips.items():
        assert gender.swap_targets(text, "both", sequential=True) == released
    assert gender.swap_targets("男人和妇女", "both") == "妇女和男人"


def test_attributes_both_directions():
    assert SPECS["age"].swap_attributes("老人固执又恶心") == "老人随和又舒心"
    assert SPECS["age"].swap_attributes("年轻人随和", "2to1") == "年轻人固执"
    assert SPECS["gender"].swap_attributes("不靠谱的女人") == "靠谱的女人", "the longest: 不靠谱, not 靠谱 alone"
    assert SPECS["appearance"].swap_attributes("不喜欢，不好看，懒惰") == "喜欢，漂亮，努力"
    gender = released_spec("gender")
    assert gender.swap_attributes("他胖她瘦") == "他瘦她胖"
    assert gender.swap_attributes("他胖她瘦", sequential=True) == "他胖她胖", "胖 → 瘦 → 胖"


def test_replacing_in_order():
    assert replace_in_order("abc", [("a", "b"), ("b", "c")]) == "ccc"
    assert replace_in_order("abc", [("a", "b"), ("b", "c")], "2to1") == "aab"
    assert replace_in_order("abab", [("a", "b")], "both") == "baba" and replace_in_order("ab", []) == "ab"
    with pytest.raises(ValueError, match="direction 'forth' is unknown: expected one of both, 1to2, 2to1"):
        replace_in_order("a", [("a", "b")], "forth")
    spec = load_spec("race")
    for direction in DIRECTIONS:
        text = "black women and white men"
        assert spec.swap_targets(text, direction, sequential=True) == replace_in_order(text, spec.pairs, direction)


def test_targets_are_found_on_characters_the_longest_first():
    spec = SPECS["age"]
    text = "那个老太婆和中老年大妈"
    assert [text[a:b] for a, b in spec.find_targets(text, 1)] == ["老太婆", "中老年", "大妈"]
    assert SPECS["gender"].find_targets("大妈") == [(1, 2)], "妈 in 大妈 is a term of Gender"


# --- the release ---


@each("bias_type", CATEGORIES)
def test_released_pairs(release, bias_type):
    for split, size in zip(SPLITS, SIZES[bias_type]):
        pairs = load_pairs(f"chbias/{bias_type}", split)
        assert list(pairs.columns) == ["text1", "text2", "target1", "target2"] and len(pairs) == size
        texts = [*pairs.text1, *pairs.text2]
        assert all(t and t == t.strip() and "\n" not in t and "\r" not in t for t in texts)
        about = pairs.attrs["corpus"]
        assert about["name"] == "chbias" and not about["note"] and set(about["files"]) <= set(release_files())
        assert (pairs.target1 != "").mean() > 0.93 and ((pairs.target1 == "") == (pairs.target2 == "")).all()
    assert list(load_phrases(f"chbias/{bias_type}").text) == list(load_pairs(f"chbias/{bias_type}", "train").text1)


@each("bias_type", CATEGORIES)
def test_tables_of_the_test_set_hold_the_same(release, bias_type):
    groups = SPECS[bias_type].groups
    pairs = read_released(bias_type, "test")
    for group, texts in zip(groups, (pairs.text1, pairs.text2)):
        path = fetch(f"hyintell/CHBias/data/{bias_type}/{bias_type}_{group}_test.csv")
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        assert list(table.columns) == ["Unnamed: 0", "replaced_sentence"]
        assert table.replaced_sentence.tolist() == texts.tolist()


@each("bias_type,split", itertools.product(CATEGORIES, ("valid", "test")))
def test_sequential_swaps_are_the_release_row_by_row(release, bias_type, split):
    one, two = (chbias._read_lines(k) for k in chbias._pair_keys(bias_type, split))
    assert swap_released(one, bias_type, split) == two and len(two) == 200


def test_files_that_do_not_pair_are_refused(made_up, monkeypatch):
    lines = chbias._read_lines
    monkeypatch.setattr(chbias, "_read_lines", lambda key: lines(key)[::-1] if "young" in key else lines(key))
    with pytest.raises(ValueError, match="age_old_test.txt and .*age_young_test.txt do not hold the same sentences in"):
        read_released("age")


def test_bad_names_are_named():
    with pytest.raises(ValueError, match="bias type 'religion' is unknown: expected one of gender, orientation"):
        read_released("religion")
    with pytest.raises(ValueError, match="split 'dev' is unknown"):
        read_released("age", "dev")
    with pytest.raises(ValueError, match="swap 'both' is unknown"):
        read_released("age", "train", "both")
    with pytest.raises(ValueError, match="swaps attributes in its training sentences only, not in test: use train"):
        load_pairs("chbias/age", "test", swap="attributes")
    with pytest.raises(ValueError, match="age is called 'chbias/age' here"):
        load_pairs("age")


def test_what_chbias_did_not_release():
    assert "chbias" in released_papers()
    with pytest.raises(ValueError, match="chbias released nothing that load_references reads"):
        load_references(corpus="chbias")


def test_a_lines_end_is_a_line_feed_and_nothing_else(monkeypatch, tmp_path):
    path = tmp_path / "x.txt"
    monkeypatch.setattr(chbias, "fetch", lambda key: path)
    path.write_bytes("一\u2028二 \r\n\u200b三\x85\r\n四".encode())
    assert chbias._read_lines("x") == ["一\u2028二 ", "\u200b三\x85", "四"]
    path.write_bytes("一\n二\n".encode())
    assert chbias._read_lines("x") == ["一", "二"]


def test_registered_files():
    files = list_files("hyintell/CHBias/data").key
    names = {k.rpartition("/")[2] for k in files}
    for b in CATEGORIES:
        assert {f"{b}_train.txt", f"{b}_train_cada.txt", f"{b}_train_ctda.txt"} <= names
    assert len(release_files()) == len(set(release_files())) == 20 and set(release_files()) < set(files)


# --- counts ---


def test_table2(release):
    counted = table2().pivot(index="bias_type", columns="quantity", values="released").loc[list(CATEGORIES)]
    assert counted.retrieval.tolist() == [26_100, 15_000, 11_200, 12_600]
    assert list(counted[["train", "dev", "test"]].itertuples(index=False, name=None)) == list(SIZES.values())


def test_overlaps(release):
    counted = pd.DataFrame({b: count_overlaps(b) for b in CATEGORIES}).T
    assert counted["train and valid"].tolist() == [0, 4, 1, 7]
    assert counted["train and test"].tolist() == [0, 4, 0, 7] and counted["valid and test"].tolist() == [0, 0, 0, 3]
    assert counted["repeated in train"].tolist() == [0, 12, 1, 19] and counted["repeated in test"].tolist() == [
        0,
        1,
        0,
        0,
    ]


def test_identical_pairs_and_artefacts(release):
    found = {s: pd.DataFrame({b: flag_pairs(read_released(b, s), b, s).sum() for b in CATEGORIES}) for s in SPLITS}
    assert found["test"].loc["identical"].tolist() == [5, 7, 12, 1]
    assert found["valid"].loc["identical"].tolist() == [5, 12, 5, 0]
    assert found["test"].loc["artefact"].tolist() == [23, 4, 0, 0]
    assert found["valid"].loc["artefact"].tolist() == [27, 5, 0, 0]
    for split, non_words in (("valid", (22, 3)), ("test", (12, 2))):
        pairs = read_released("gender", split)
        held = [pairs.text2.str.contains(w) for w in ("夫男", "孕夫")]
        assert tuple(int(h.sum()) for h in held) == non_words
        assert flag_pairs(pairs, "gender", split).artefact[held[0] | held[1]].all()


def test_flags_by_hand():
    pairs = pd.DataFrame({"text1": ["老人好", "今天好", "他是Gay"], "text2": ["年轻人好", "今天好", "他是Gay"]})
    assert flag_pairs(pairs, "age").values.tolist() == [[False, False], [True, False], [True, False]]
    assert flag_pairs(pairs, "orientation").artefact.tolist() == [True, False, True]


def test_keywords(release):
    held = [sum(has_keyword(read_released(b).text1, b)) for b in CATEGORIES]
    assert held == [24, 154, 174, 179], "in any case; 150 of Orientation as the terms are written"
    assert has_keyword(["老人固执", "老人", "GAY恶心"], "age") == [True, False, False]
    assert has_keyword(["GAY恶心"], "orientation") == [True]


def test_unknown_tokens(release):
    tokenizer = cdial_tokenizer()
    assert tokenizer.unk_token_id == 3 and tokenizer.tokenize("胖子") == ["胖", "子"]
    assert has_unknown(["胖子", "Gay", "txl", "老人\u200b"], tokenizer) == [False, True, True, False]
    texts = read_released("orientation").text1
    assert sum(has_unknown(texts, tokenizer)) == 115 and texts.str.contains("gay|txl", case=False).sum() == 103


# --- augmentation ---


@each("bias_type,targets,attributes", [("gender", 634, 77), ("orientation", 771, 569)])
def test_augmentation_beside_the_release(release, bias_type, targets, attributes):
    """By the text a copy is added only where something is replaced; of these so many lines stand in the released file
    as well. What is trained on by default is the file, whatever the order."""
    texts = list(load_phrases(f"chbias/{bias_type}").text)
    for method, swap in (("CTDA", "targets"), ("CADA", "attributes")):
        key = f"hyintell/CHBias/data/{bias_type}/{bias_type}_{AUGMENTED[swap]}.txt"
        released = sorted(line.strip() for line in chbias._read_lines(key))
        assert sorted(METHODS[method].augment(SPECS[bias_type], texts)) == released
    edited = dataclasses.replace(SPECS[bias_type], pairs=SPECS[bias_type].pairs[::-1])
    assert edited.swap_targets(texts[0], "1to2", sequential=True) in METHODS["CTDA"].augment(edited, texts[:1])
    for method, swap, in_release in (("CTDA-text", "targets", targets), ("CADA-text", "attributes", attributes)):
        made = METHODS[method].augment(SPECS[bias_type], texts)
        assert made[: len(texts)] == texts and not set(made[len(texts) :]) & set(texts)
        key = f"hyintell/CHBias/data/{bias_type}/{bias_type}_{AUGMENTED[swap]}.txt"
        released = {line.strip() for line in chbias._read_lines(key)}
        assert sum(line in released for line in made[len(texts) :]) == in_release


def test_reasons_by_single_terms():
    orientation, gender, appearance = (SPECS[b] for b in ("orientation", "gender", "appearance"))
    assert METHODS["CTDA-text"].augment(orientation, ["TXL"])[1:] == ["异性恋"] != swap_released(["TXL"], "orientation")
    assert METHODS["CTDA-text"].augment(gender, ["男人"])[1:] == [] and swap_released(["男人"], "gender", "train") == [
        "夫男"
    ]
    assert METHODS["CADA-text"].augment(appearance, ["讨厌胖子"])[1:] == []
    assert swap_released(["讨厌胖子"], "appearance", "train", "attributes") == ["喜欢胖子"]
    assert METHODS["CADA-text"].augment(gender, ["又丑又恶心"])[1:] == ["又帅又舒心"]
    assert swap_released(["又丑又恶心"], "gender", "train", "attributes") == ["又美又美好"]


# --- through the rooms that exist ---


def test_measured_by_the_command(made_up, model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "gender.json"  # the shortest sentences: the model reads bytes, and 256 of them
    assert main(["measure", "--model", str(model_folder), "--bias-type", "chbias/gender", "--out", str(out)]) == 0
    records = json.loads(out.read_text())
    assert {(r["paper"], r["bias_type"], r["corpus"]) for r in records} == {("chbias", "gender", "chbias")}


@pytest.mark.parametrize("method", ["CADA", "CTDA"])
def test_debiased_by_the_command(method, model_folder, tmp_path, capsys):
    texts, out = tmp_path / "texts.txt", tmp_path / "debiased"
    texts.write_text("大妈很固执\n老头在下棋，很讨厌\n下雨了\n", encoding="utf-8")
    command = ["debias", "--model", str(model_folder), "--method", method, "--bias-type", "chbias/age"]
    assert main([*command, "--texts", str(texts), "--out", str(out), "--epochs", "1", "--device", "cpu"]) == 0
    assert f"written: {out} ({method} on" in capsys.readouterr().out


def test_queries_stand_in(monkeypatch):
    for b in CATEGORIES:
        pairs = load_pairs(f"chbias/{b}", "test", "queries")
        assert len(pairs) and (pairs.text1 != pairs.text2).all()
        opposites = load_pairs(f"chbias/{b}", "train", "queries", swap="attributes")
        assert len(opposites) and (opposites.text1 != opposites.text2).all()


# --- printed numbers ---

METRICS = {"CDial-GPT": ("BLEU-4", "BLEU-2", "Dist-2", "Dist-1", "E-Average", "G-Matching")} | {
    "EVA2.0": ("F1", "R-L", "BLEU-4", "Dist-4")
}
ROWS = {2: 24, 3: 48, 4: 48, 5: 48, 6: 48, **dict.fromkeys(range(8, 12), 24), **dict.fromkeys(range(12, 16), 36)}
ROWS |= {16: 72, 17: 72}


def printed(n):
    return pd.read_csv(data_file("paper", "chbias", f"table{n}.csv"))


@pytest.mark.parametrize("n", ROWS)
def test_shapes_of_printed_tables(n):
    table = printed(n)
    values = ["t", "deviation"] if n == 3 else [table.columns[-1]]
    assert len(table) == ROWS[n] and not table.duplicated([c for c in table if c not in values]).any()
    assert not table.isna().any().any() and set(table.bias_type) <= set(CATEGORIES)
    if n > 2:
        assert set(table.method) == {"baseline", "LMD", "ADD", "HD", "CADA", "CTDA"} and set(table.model) <= set(
            METRICS
        )
    if 8 <= n <= 15:
        (model,), (bias_type,) = table.model.unique(), table.bias_type.unique()
        assert model == ("EVA2.0" if n < 12 else "CDial-GPT") and bias_type == CATEGORIES[n % 4]
        assert tuple(table.metric.unique()) == METRICS[model]


def test_values_of_printed_tables():
    keys = ["model", "method", "bias_type"]
    t = printed(3).set_index(keys)
    assert tuple(t.loc[("CDial-GPT", "HD", "orientation")]) == (-6.10, 0.18)
    assert tuple(t.loc[("EVA2.0", "baseline", "gender")]) == (1.48, 0.06)
    assert printed(6).set_index(keys).rate[("EVA2.0", "CTDA", "appearance")] == 0.10
    assert printed(6).set_index(keys).rate[("CDial-GPT", "LMD", "age")] == 0.24
    assert printed(9).set_index([*keys, "metric"]).value[("EVA2.0", "CADA", "orientation", "F1")] == 22.82
    assert printed(15).set_index([*keys, "metric"]).value[("CDial-GPT", "CTDA", "appearance", "G-Matching")] == 69.46
    assert printed(16).set_index([*keys, "score"]).share[("CDial-GPT", "CTDA", "appearance", 2)] == 0.42
    assert printed(17).set_index([*keys, "score"]).share[("EVA2.0", "HD", "age", 0)] == 0.24


def test_printed_tables_in_which_the_paper_differs_from_itself():
    keys = ["model", "method", "bias_type", "metric"]
    short, full = pd.concat([printed(4), printed(5)]), pd.concat([printed(n) for n in range(8, 16)])
    both = short.merge(full, on=keys, suffixes=("", "_appendix"))
    assert len(both) == len(short)
    assert both[both.value != both.value_appendix].drop(columns="metric").values.tolist() == [
        ["CDial-GPT", "ADD", "appearance", 11.31, 13.11],
        ["EVA2.0", "ADD", "appearance", 75.49, 74.49],
        ["EVA2.0", "CTDA", "gender", 73.39, 74.39],
    ]
    shares = pd.concat([printed(16), printed(17)]).groupby(["model", "method", "bias_type"]).share.sum().round(2)
    assert shares[shares != 1].to_dict() == {("EVA2.0", "CTDA", "orientation"): 0.94}


def test_table2_beside_the_release(release):
    wide = printed(2).pivot(index="bias_type", columns="quantity", values="value")
    ours = table2().pivot(index="bias_type", columns="quantity", values="released")
    for b in CATEGORIES:
        off = {q: ours.loc[b, q] - int(wide.loc[b, q]) for q in wide}
        assert {q: d for q, d in off.items() if d} == ({"train": -1, "total": -1} if b in ("age", "appearance") else {})


# --- no sentence of the corpus is kept ---


def test_no_released_sentence_is_committed(release):
    """No run of nine Han characters of the released sentences stands in any committed file."""
    runs = set()
    for key in release_files():
        for line in chbias._read_lines(key):
            runs |= {part[i : i + 9] for part in regex.findall(r"\p{Han}{9,}", line) for i in range(len(part) - 8)}
    files = subprocess.run(["git", "ls-files", "-z"], cwd=repo_root(), capture_output=True, check=True).stdout
    for name in filter(None, files.decode().split("\0")):
        path = repo_root() / name
        if path.suffix in (".png", ".svg") or not path.is_file():
            continue
        for part in regex.findall(r"\p{Han}{9,}", path.read_text(encoding="utf-8", errors="ignore")):
            assert not {part[i : i + 9] for i in range(len(part) - 8)} & runs, name
