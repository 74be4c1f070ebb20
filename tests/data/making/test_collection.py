"""A user's own export of posts: encodings, line ends, cleaning, keywords, caps; sheets of one label a text."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from unittest import mock

import pandas as pd
import pytest

from redditbias_repro.cli import main
from redditbias_repro.data.making import collection
from redditbias_repro.data.making.annotation import (
    agreement,
    annotate,
    make_sheets,
    merge_labels,
    read_sheets,
)
from redditbias_repro.data.making.collection import (
    clean_post,
    collect,
    collect_sentences,
    default_cap,
    encoding_of,
    find_posts,
    keywords_of,
    split_sentences,
)
from redditbias_repro.data.making.sheets import has_labels
from redditbias_repro.specs import BiasSpec, load_spec, load_specs

PETS = BiasSpec(
    targets1=["小猫", "大猫"], targets2=["小狗", "大狗"], pairs=[("小猫", "小狗"), ("大猫", "大狗")],
    attributes1=["懒", "很凶", "凶"], language="zh",
)  # fmt: skip
POSTS = [
    {"id": "1", "text": "小猫真懒", "user": "某人"},
    {"id": "2", "text": "小狗真懒"},
    {"id": "3", "text": "大猫，很凶！"},
    {"id": "4", "text": "天气不错"},
]


def jsonl(posts=POSTS, end="\n", ascii=False):
    return end.join(json.dumps(p, ensure_ascii=ascii) for p in posts) + end


def table(posts=POSTS, end="\n"):
    return end.join(["id,text", *(f"{p['id']},{p['text']}" for p in posts)]) + end


# --- files ---


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "gb18030", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_any_encoding_and_line_end_gives_the_same(tmp_path, encoding, end, name):
    path = tmp_path / name
    path.write_bytes((table(end=end) if name.endswith("csv") else jsonl(end=end)).encode(encoding))
    found = find_posts(path, {"pets": PETS})
    assert found.id.tolist() == ["1", "3"] and found.body.tolist() == ["小猫真懒", "大猫，很凶！"]
    assert list(found) == ["id", "bias_type", "target", "attribute", "body"], "no user, no time, no device"


def test_mixed_line_ends_and_no_last_one(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(p, ensure_ascii=False) for p in POSTS]
    path.write_bytes(f"{lines[0]}\r\n{lines[1]}\n\n{lines[2]}\r{lines[3]}".encode())
    assert find_posts(path, {"pets": PETS}).id.tolist() == ["1", "3"]


def test_escaped_characters_are_found(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(ascii=True) + jsonl(ascii=True).replace("\\u5c0f", "\\u5C0F"))
    assert find_posts(path, {"pets": PETS}).body.tolist() == ["小猫真懒", "大猫，很凶！"] * 2


def test_a_packed_file_and_a_spreadsheet_say_so(tmp_path):
    for name, content in (("a.jsonl", gzip.compress(jsonl().encode() * 50)), ("a.csv", bytes(range(128, 256)) * 9)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="neither UTF-8, UTF-16 nor GBK"):
            find_posts(tmp_path / name, {"pets": PETS})
    with pytest.raises(FileNotFoundError, match="no file"):
        encoding_of(tmp_path / "none.csv")


ASCII = 2 << 20  # bytes, more than are read at a time


def test_gbk_that_comes_after_a_beginning_of_ascii(tmp_path):
    (tmp_path / "a.csv").write_bytes(
        ("id,text\n" + f"1,{'none' * 50}\n" * (ASCII // 200) + "2,小猫真懒\n").encode("gbk")
    )
    assert encoding_of(tmp_path / "a.csv") == "gb18030"
    assert find_posts(tmp_path / "a.csv", {"pets": PETS}).id.tolist() == ["2"]


@pytest.mark.parametrize("mark", ["utf-8", "utf-8-sig"])
def test_two_encodings_in_one_file_lose_nothing_in_silence(tmp_path, mark):
    """UTF-8 for two MiB and GBK afterwards: the place is named, as GBK would make something of nearly all of it."""
    first = jsonl([POSTS[0], *[{"text": "none"}] * (ASCII // 17)]).encode(mark)
    (tmp_path / "a.jsonl").write_bytes(first + jsonl([{"text": "真懒的小猫"}]).encode("gbk"))
    line = first.count(b"\n") + 1
    with pytest.raises(
        ValueError, match=f"is something else from byte {len(first) + 10:,} .* in line {line:,}. Are th"
    ):
        find_posts(tmp_path / "a.jsonl", {"pets": PETS})


def test_a_byte_that_is_wrong_is_named(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,text\n1,good\n2,\xff\xff\n")
    with pytest.raises(ValueError, match="not UTF-8 from byte 17 .* line 3, and not GBK from byte 17, in line 3"):
        find_posts(tmp_path / "a.csv", {"pets": PETS})
    (tmp_path / "b.csv").write_bytes(b"id,text\n1,x\n" + "2,小猫真懒\n".encode() + "3,小".encode()[:-1])
    assert find_posts(tmp_path / "b.csv", {"pets": PETS}).id.tolist() == ["2"], "a file that was cut in a character"


def test_carriage_returns_alone_that_come_late(tmp_path):
    late = jsonl([{"text": "none"}] * (ASCII // 17)) + jsonl(end="\r")
    (tmp_path / "a.jsonl").write_text(late, encoding="utf-8", newline="")
    assert find_posts(tmp_path / "a.jsonl", {"pets": PETS}).id.tolist() == ["1", "3"]


def test_broken_lines_are_counted_and_a_table_needs_its_ending(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl() + '{"id": 9, "text": "小猫懒\n[1, "小猫"]\n', encoding="utf-8")
    stats = Counter()
    with pytest.warns(UserWarning, match="a.jsonl: 2 lines with a target are left out"):
        found = find_posts(tmp_path / "a.jsonl", {"pets": PETS}, stats=stats)
    assert len(found) == 2 and stats["broken"] == 2
    (tmp_path / "b.jsonl").write_text(table(), encoding="utf-8")
    with pytest.raises(ValueError, match="must end in .csv"):
        find_posts(tmp_path / "b.jsonl", {"pets": PETS})
    (tmp_path / "c.csv").write_text('id,text\n1,"小猫', encoding="utf-8")
    with pytest.raises(ValueError, match="is not a CSV file"):
        find_posts(tmp_path / "c.csv", {"pets": PETS})


def test_columns(tmp_path):
    (tmp_path / "a.csv").write_text("微博id;微博正文\n5;小猫真懒\n", encoding="utf-8-sig")
    assert find_posts(tmp_path / "a.csv", {"pets": PETS}).id.tolist() == ["5"]
    (tmp_path / "b.csv").write_text("编号,说的话\n5,小猫真懒\n", encoding="utf-8")
    with pytest.raises(ValueError, match="编号, 说的话: expected one of"):
        find_posts(tmp_path / "b.csv", {"pets": PETS})
    found = find_posts(tmp_path / "b.csv", {"pets": PETS}, column="说的话")
    assert found.id.tolist() == ["b.csv:1"], "the file's name and a number"
    (tmp_path / "c.jsonl").write_text('{"words": "小猫真懒"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="has the columns words: expected 'text'"):
        find_posts(tmp_path / "c.jsonl", {"pets": PETS}, column="text")


def test_rows_with_more_cells_than_the_header(tmp_path):
    """A comma in a text without quotation marks: such rows were taken for rows of a table with an index, and lost."""
    (tmp_path / "a.csv").write_text("id,text\n1,小猫真懒,真的\n2,大猫很凶,真的\n", encoding="utf-8")
    with pytest.raises(ValueError, match="a.csv: each of 2 rows has more cells than the header has names"):
        find_posts(tmp_path / "a.csv", {"pets": PETS})
    stats = Counter()
    (tmp_path / "b.csv").write_text('id,text\n1,小猫真懒,,\n2,大猫很凶,真的\n3,"小猫，\n凶"\n4\n', encoding="utf-8")
    with pytest.warns(UserWarning, match="b.csv: 1 rows are left out, the first in line 3"):
        found = find_posts(tmp_path / "b.csv", {"pets": PETS}, stats=stats)
    assert found.id.tolist() == ["1", "3"] and found.body[1] == "小猫，\n凶", "empty cells at an end are none"
    assert (stats["lines"], stats["parsed"], stats["broken"], stats["without_text"]) == (4, 3, 1, 1)


@pytest.mark.parametrize("n", [1, 40_000])
def test_a_quotation_mark_that_is_not_closed(tmp_path, n):
    (tmp_path / "a.csv").write_text('id,text\n1,小猫\n2,"小猫懒\n' + "3,大猫\n" * n, encoding="utf-8")
    with pytest.raises(ValueError, match="is not a CSV file: a quotation mark opened in or after line 3"):
        find_posts(tmp_path / "a.csv", {"pets": PETS})


def test_rows_without_the_text(tmp_path):
    """One such row does not stop the run; if none has it, the columns are named."""
    stats, rows = (
        Counter(),
        [{"id": 1, "note": "小猫"}, {"id": 2, "text": "小猫真懒"}, {"id": 3, "text": None, "x": "小猫"}],
    )
    (tmp_path / "a.jsonl").write_text(jsonl(rows), encoding="utf-8")
    assert find_posts(tmp_path / "a.jsonl", {"pets": PETS}, stats=stats).id.tolist() == ["2"]
    assert stats["without_text"] == 2
    (tmp_path / "b.jsonl").write_text(jsonl(rows[:1]), encoding="utf-8")
    with pytest.raises(ValueError, match="b.jsonl has the columns id, note: expected one of text"):
        find_posts(tmp_path / "b.jsonl", {"pets": PETS})


def test_a_list_of_json_and_names_with_blanks(tmp_path):
    stats = Counter()
    (tmp_path / "a.json").write_text(" " + json.dumps(POSTS, ensure_ascii=False, indent=1), encoding="utf-8-sig")
    assert (
        find_posts(tmp_path / "a.json", {"pets": PETS}, stats=stats).id.tolist() == ["1", "3"] and stats["lines"] == 4
    )
    (tmp_path / "b.json").write_text(json.dumps(POSTS, ensure_ascii=False)[:-1], encoding="utf-8")
    with (
        pytest.warns(UserWarning, match="middle of a line"),
        pytest.raises(ValueError, match=r"a list of them, \[\{…\}"),
    ):
        find_posts(tmp_path / "b.json", {"pets": PETS})
    (tmp_path / "c.csv").write_text("id , text\n1,小猫真懒\n", encoding="utf-8")
    (tmp_path / "d.jsonl").write_text('{" text": "小猫真懒", "id": 1}\n', encoding="utf-8")
    for name in ("c.csv", "d.jsonl"):
        assert find_posts(tmp_path / name, {"pets": PETS}).id.tolist() == ["1"]
        assert len(find_posts(tmp_path / name, {"pets": PETS}, column=" text")) == 1


def test_traditional_characters_are_not_found(tmp_path):
    "As the notebook says: an export in them has to be converted first"
    (tmp_path / "a.jsonl").write_text('{"text": "小貓真懶"}\n{"text": "小猫真懒"}\n', encoding="utf-8")
    assert len(find_posts(tmp_path / "a.jsonl", {"pets": PETS})) == 1


# --- cleaning ---


@pytest.mark.parametrize(
    "raw, clean",
    [
        ("小猫http://t.cn/A6xyz真懒", "小猫真懒"),
        ("看 https://weibo.com/1/ab?x=1&y=2 小猫", "看小猫"),
        ("回复@老王:小猫懒 //@小李：是的", "小猫懒是的"),
        ("@老王 小猫懒", "小猫懒"),
        ("小猫懒[doge][笑cry]😂👨‍👩‍👧🏽❤️", "小猫懒"),
        ("#宠物# 小猫懒#日常#", "小猫懒"),
        ("小猫懒！！！！！，，，", "小猫懒！，"),
        ("小猫……懒～～～", "小猫…懒～"),
        ("小猫&amp;大猫&nbsp;懒", "小猫&大猫懒"),
        ("小猫\u200b懒 O网页链接", "小猫懒"),
        ("a  b   小猫 iPhone 8", "a b 小猫 iPhone 8"),
        ("<br/>小猫<span class='x'>懒</span>", "小猫懒"),
        ("老王的微博视频 小猫懒 展开全文", "小猫懒"),
        ("房间3-1，电话1234", "房间3-1，电话1234"),
        ("！！！", "！"),
        ("", ""),
    ],
)
def test_cleaning(raw, clean):
    assert clean_post(raw) == clean and clean_post(clean) == clean


def test_sentences_are_short_and_lose_nothing():
    text = "小猫很懒，" * 40 + "真的！" + "呀" * 300 + "。完"
    pieces = split_sentences(text)
    assert all(len(p) <= 130 for p in pieces) and "".join(pieces) == text
    assert split_sentences("短。短。") == ["短。短。"] and split_sentences("  ") == []
    with pytest.raises(ValueError, match="max_chars is 0"):
        split_sentences("a", 0)


# --- keywords and caps ---


def test_the_longest_term_counts():
    assert keywords_of("大猫很凶", PETS) == [("大猫", "很凶")] and keywords_of("小狗懒", PETS) == []


def test_a_post_counts_for_each_of_its_keywords():
    posts = pd.DataFrame({"id": list("abcd"), "body": ["小猫懒", "小猫懒呀", "小猫懒又凶", "小猫又凶"]})
    found = collect_sentences(posts, PETS, cap=1)
    assert found.id.tolist() == ["a", "c"] and found.attribute.tolist() == ["懒", "凶"]
    assert found.attrs["counts"]["posts, beyond the cap"] == 2
    assert len(collect_sentences(posts, PETS)) == 4, "no paper, no cap"


def test_only_sentences_with_a_keyword_each_once():
    long = "天气不错。" * 30 + "小猫懒。" + "没有别的。" * 30
    posts = pd.DataFrame({"id": list("abc"), "body": [long, "小猫\n懒！", "小猫 懒！！"]})
    found = collect_sentences(posts, PETS)
    assert found.id.str.startswith("a-").tolist() == [True, False] and "小猫懒" in found.comment[0]
    assert found.comment.str.len().max() <= 130 and found.attrs["counts"]["posts, repeated"] == 1


def test_a_keyword_that_is_only_in_a_name_is_none():
    posts = pd.DataFrame({"id": ["a"], "body": ["@小猫 懒"]})
    assert not len(collect_sentences(posts, PETS))


def test_table2_keywords_and_caps():
    rows = {n.split("/")[1]: (len(s.queries()), default_cap(s)) for n, s in load_specs("chbias").items()}
    assert rows == {"gender": (261, 100), "orientation": (75, 200), "age": (56, 200), "appearance": (126, 100)}
    assert default_cap(load_spec("race")) is None and default_cap(PETS) is None


# --- a run, and its sheets ---


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "posts.jsonl"
    own = [{"text": f"那个胖子{i}真丑"} for i in range(30)] + [{"text": "瘦子很美"}]
    path.write_bytes(jsonl(own, "\r\n").encode("gbk"))
    return path


def test_command_line(export, tmp_path, capsys):
    out = tmp_path / "own"
    assert main(["collect", str(export), "--bias-type", "chbias/appearance", "--cap", "5", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "gb18030" in said and "sentences, each once" in said
    (path,) = out.rglob("phrases.csv")
    assert len(pd.read_csv(path)) == 5
    assert main(["collect", str(tmp_path / "none.csv"), "--bias-type", "chbias/age", "--out", str(out)]) == 2


KILLED = """
import os, signal, sys
from redditbias_repro import cli
from redditbias_repro.data.making import collection
from redditbias_repro.data.making import retrieval
post, posts = collection._post, []
def killed(*args):
    posts.append(args)
    if len(posts) == 1500:
        os.kill(os.getpid(), signal.SIGKILL)
    return post(*args)
collection._post, retrieval.BLOCK, retrieval.SAVE_EVERY = killed, 2000, 0
cli.main(["collect", *sys.argv[1:]])
"""


@pytest.mark.parametrize("name,encoding", [("posts.jsonl", "utf-8"), ("posts.jsonl", "gbk"), ("posts.csv", "gbk")])
def test_a_killed_run_goes_on_within_the_export(tmp_path, monkeypatch, name, encoding):
    """What was read before is not read again, posts without an id keep their numbers, and the result is the same."""
    rows = [{"text": f"那个胖子{i}真丑"} for i in range(2000)]
    text = pd.DataFrame(rows).to_csv(index=False) if name.endswith("csv") else jsonl(rows, "\n")
    (tmp_path / name).write_bytes(text.encode(encoding))
    command = [
        str(tmp_path / name),
        "--bias-type",
        "chbias/appearance",
        "--cap",
        "3000",
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run([sys.executable, "-c", KILLED, *command], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    (begun,) = (tmp_path / "out" / "collection.parts").iterdir()
    assert begun.name.endswith(".begun.parquet")
    spec, posts, post = load_specs("chbias/appearance"), [], collection._post
    once = collect(tmp_path / name, spec, tmp_path / "once", cap=3000, progress=False)
    monkeypatch.setattr(collection, "_post", lambda *args: posts.append(args) or post(*args))
    found = collect(tmp_path / name, spec, tmp_path / "out", cap=3000, progress=False)
    assert found.equals(once) and found.attrs["stats"] == once.attrs["stats"]
    assert 500 <= len(posts) <= 1501, "those of the last block or thousand rows are read again"
    made = [next((tmp_path / d).rglob("phrases.csv")).read_bytes() for d in ("once", "out")]
    assert made[0] == made[1] and not (tmp_path / "out" / "collection.parts").exists()


def test_what_was_finished_is_not_scanned_again(export, tmp_path, monkeypatch):
    """Stopped while sentences are cut: the export itself is not read a second time."""
    spec, how = load_specs("chbias/appearance"), dict(progress=False)
    once = collect(export, spec, tmp_path / "once", **how)
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(collection, "collect_sentences", mock.Mock(side_effect=KeyboardInterrupt))
        collect(export, spec, tmp_path / "out", **how)
    monkeypatch.setattr(collection, "_post", mock.Mock(side_effect=AssertionError("scanned again")))
    again = collect(export, spec, tmp_path / "out", **how)
    assert again.equals(once) and again.attrs["stats"] == once.attrs["stats"]


def test_ids_stand_for_one_text(tmp_path):
    """Posts without ids of several files, and files that each count from 1."""
    for name, texts in (("a.jsonl", ["小猫懒", "小猫很凶"]), ("b.jsonl", ["大猫懒", "小猫懒"])):
        (tmp_path / name).write_text(jsonl([{"text": t} for t in texts]), encoding="utf-8")
        (tmp_path / f"own-{name}").write_text(
            jsonl([{"id": i, "text": t} for i, t in enumerate(texts)]), encoding="utf-8"
        )

    def ids(*names):
        collect([tmp_path / n for n in names], {"pets": PETS}, tmp_path / "out", progress=False)
        return pd.read_csv(tmp_path / "out" / "pets" / "phrases.csv", dtype=str).id.tolist()

    assert ids("a.jsonl", "b.jsonl") == ["a.jsonl:1", "a.jsonl:2", "b.jsonl:1"]
    assert ids("own-a.jsonl", "own-b.jsonl") == ["0", "1", "0~2"]
    (tmp_path / "d").mkdir()
    (tmp_path / "b.jsonl").rename(tmp_path / "d" / "a.jsonl")
    assert ids("a.jsonl", "d/a.jsonl") == ["a.jsonl:1", "a.jsonl:2", "a.jsonl:1~2"], "two files of one name"


def test_nothing_found_is_no_success(tmp_path, capsys):
    """The lines that were read are counted, and nothing is written."""
    (tmp_path / "a.jsonl").write_text(jsonl([{"text": "天气不错"}, {"text": "小貓真懶"}]), encoding="utf-8")
    ask = ["collect", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "out")]
    assert main([*ask, "--bias-type", "chbias/age"]) == 2
    said = capsys.readouterr().err
    assert "of 2 lines no post holds a target and an attribute of chbias/age" in said and "simplified" in said
    assert not list((tmp_path / "out").rglob("*.csv"))
    (tmp_path / "a.jsonl").write_text(jsonl([{"text": "胖子真丑"}, {"text": "天气"}]), encoding="utf-8")
    assert main([*ask, "--bias-type", "chbias/age", "--bias-type", "chbias/appearance"]) == 0
    said = capsys.readouterr().out
    assert "read: 2 lines as utf-8; found: 1 posts" in said and "nothing was found for chbias/age" in said


def test_phrases_of_which_there_are_sheets_stay(export, tmp_path):
    spec = load_specs("chbias/appearance")
    collect(export, spec, tmp_path / "out", progress=False)
    folder = tmp_path / "out" / "chbias" / "appearance"
    annotate(folder, load_spec("chbias/appearance"), layout="sentences")
    before = (folder / "phrases.csv").read_bytes()
    with pytest.raises(
        FileExistsError, match="sheets, made of the phrases that were collected before: nothing was read"
    ):
        collect(export, spec, tmp_path / "out", cap=3, progress=False)
    assert (folder / "phrases.csv").read_bytes() == before


def test_three_annotators_and_unanimous_labels(export, tmp_path):
    spec = load_spec("chbias/appearance")
    collect(export, {"appearance": spec}, tmp_path, progress=False)
    how = dict(
        annotators=3, overlap=None, rule="unanimous", layout="sentences", sizes={"train": 4, "valid": 3, "test": 3}
    )
    paths = annotate(tmp_path / "appearance", spec, **how)["sheets"]
    first = pd.read_csv(paths[0], dtype=str)
    assert len(paths) == 3 and list(first) == ["id", "target", "attribute", "text", "bias"] and len(first) == 30
    assert set(first.target) == {"胖子"} and not has_labels(paths[0])
    for k, path in enumerate(paths):  # the third one disagrees on every third text
        sheet = pd.read_csv(path, dtype=str)
        number = sheet.text.str.extract(r"(\d+)")[0].astype(int)
        label = (number < 20) ^ ((k == 2) & (number % 3 == 0))
        path.write_bytes(sheet.assign(bias=label.astype(int)).to_csv(index=False).encode("gbk"))
    done = annotate(tmp_path / "appearance", spec, **how)
    labels = done["labels"]["bias phrase"].value_counts().to_dict()
    assert labels == {"1": 13, "": 10, "0": 7} and {k: len(v) for k, v in done["splits"].items()} == how["sizes"]
    found = done["agreement"].iloc[0]
    assert found.level == "sentence" and found["rows"] == 30 and found.annotators == 3 and found.same == 20 / 30
    assert done["splits"]["test"].text2.str.contains("瘦子").all()


def test_kappa_and_alpha_by_hand():
    """Two annotators, 4 of 5 texts alike: Po = .8, Pe = .5² + .5², κ = .6; α = 1 − 9·2/(2·5·5) = .64"""
    rows = [(a, str(i), f"t{i}", x, x) for a, ls in {"a": "11001", "b": "11000"}.items() for i, x in enumerate(ls)]
    labels = pd.DataFrame(rows, columns=["annotator", "id", "phrase", "bias sent", "bias phrase"])
    found = agreement(labels, one_label=True).iloc[0]
    assert found.fleiss == pytest.approx(0.6) and found.alpha == pytest.approx(0.64)


def test_broken_sheets_of_sentences(tmp_path):
    rows = pd.DataFrame({"id": ["1", "2"], "target": "小猫", "attribute": "懒", "comment": ["小猫懒", "小猫真懒"]})
    (path,) = make_sheets(rows, tmp_path, layout="sentences", overlap=None)
    sheet = pd.read_csv(path, dtype=str)
    sheet.assign(bias=["1", "x"]).to_csv(path, index=False)
    with pytest.raises(ValueError, match="'x' in column 'bias' of row 3 is not a label"):
        read_sheets(path)
    sheet.assign(bias=["1", ""]).to_csv(path, index=False)
    assert sorted(merge_labels(read_sheets(path), "unanimous")["bias sent"]) == ["", "1"]
    with pytest.raises(FileExistsError, match="holds labels"):
        make_sheets(rows, tmp_path, layout="sentences")
    with pytest.raises(ValueError, match="no column 'target'"):
        make_sheets(rows.drop(columns="target"), tmp_path / "x", layout="sentences")
    with pytest.raises(ValueError, match="layout 'lines' is unknown"):
        make_sheets(rows, tmp_path / "x", layout="lines")
