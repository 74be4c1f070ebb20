"""Chinese dialogue: readers, metrics by hand and beside libraries, answers, records, comparisons."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CONFIGS, papermill, released, small_random
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu
from sacrebleu.metrics import BLEU
from transformers import AutoModelForSeq2SeqLM, BertTokenizer, T5Config

from redditbias_repro.answers.chinese_metrics import (
    VARIANTS,
    compare_scores,
    distinct_parts,
    distinct_without,
    score_dialogues,
    tokenize_pairs,
    unpack_sums,
)
from redditbias_repro.answers.generation import answers, decoding_of, name_decoding
from redditbias_repro.answers.text_metrics import (
    bleu_interval,
    bleu_k,
    bleu_parts,
    bleu_statistics,
    pair_scores,
    rouge_l,
    tokenize,
)
from redditbias_repro.data.corpora.kdconv import DIALOGUES, DOMAINS, read_turns
from redditbias_repro.data.corpora.lccc import TOY, join_characters, read_lccc, read_toy
from redditbias_repro.data.registry import FetchError
from redditbias_repro.metrics.chinese import (
    LAYOUTS,
    _from_file,
    answer_dialogues,
    compare_zh_dialogue,
    last_turns,
    layout_of,
    load_dialogues,
    measure_zh_dialogue,
)
from redditbias_repro.models.speakers import SPEAKERS
from redditbias_repro.models.vocabulary import input_vectors
from redditbias_repro.records import FIELDS, record_path, repo_root, write_record
from redditbias_repro.stats.resampling import jackknife

ANSWERS = ["我很好，谢谢", "", "。。。", "今天去iPhone店看看", "好", "我很好"]
PEOPLE = ["我也很好，谢谢你", "好的", "再见。", "今天去苹果店看看吧", "好", "你呢"]
OF = ["a", "a", "b", "b", "c", "c"]


# --- readers ---


def test_kdconv_as_released():
    released(*(f"{DIALOGUES}/{domain}/{split}.json" for domain in DOMAINS for split in ("test", "dev")))
    test, valid = read_turns("test"), read_turns("valid")
    turns = int(test.turns.str.len().sum())
    assert (len(test), turns, turns - len(test)) == (450, 9737, 9287) and len(valid) == 450
    assert test.dialogue.str.split("-").str[0].value_counts().to_dict() == dict.fromkeys(DOMAINS, 150)
    assert len(test.attrs["corpus"]["files"]) == 3 and test.dialogue.is_unique
    responses = load_dialogues("kdconv")
    assert len(responses) == 9287 and responses.key.is_unique and responses.context.map(len).min() == 1
    assert responses.context.map(len).max() == 29


def test_the_toy_data_as_released():
    released(TOY)
    table = read_toy("valid")
    assert len(table) == 200 and not any(" " in t for t in table.turns[0])
    assert len(load_dialogues("cdial-toy", "valid")) == 617
    with pytest.raises(ValueError, match="split 'dev' is unknown"):
        read_toy("dev")


def test_lccc_by_hand_and_without_the_hub(offline, tmp_path):
    with pytest.raises(FetchError, match="kdconv and cdial-toy do not need the hub"):
        read_lccc()
    (tmp_path / "a.jsonl").write_text('["你 好", "好"]\n\n["看 i p", "T . T"]\n', encoding="utf-8")
    assert read_lccc("test", tmp_path / "a.jsonl").turns.tolist() == [["你好", "好"], ["看i p", "T.T"]]
    (tmp_path / "b.jsonl").write_text('["你 好"]\n{"dialog": []}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: expected a list of turns"):
        read_lccc("test", tmp_path / "b.jsonl")
    (tmp_path / "c.gz").write_bytes(b"\x1f\x8bbroken")
    with pytest.raises(ValueError, match="broken, or not JSON lines"):
        read_lccc("test", tmp_path / "c.gz")


def test_blanks_between_characters():
    assert join_characters(" 你 好 hello world 3 个 ") == "你好hello world 3个" and join_characters("") == ""


def test_a_file_of_dialogues(tmp_path):
    path = tmp_path / "own.txt"
    path.write_bytes('\ufeff["你好", "好", " "]\r\n在吗\t在\r'.encode())
    found = load_dialogues(str(path))
    assert found.response.tolist() == ["好", "在"] and found.attrs["corpus"]["name"] == "own", "no turn of blanks"
    for content, said in (("在吗", "two turns or more"), ("[1, 2]", "two turns or more"), ('["你', "broken JSON")):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=f"line 1: .*{said}"):
            load_dialogues(str(path))
    path.write_bytes("在吗\t在".encode("gbk"))
    with pytest.raises(ValueError, match="not UTF-8 text"):
        load_dialogues(str(path))
    with pytest.raises(FileNotFoundError, match="nor one of kdconv, lccc, cdial-toy"):
        load_dialogues("kdconf")


# --- metrics ---


def test_tokens_of_the_variants():
    text = "去 iPhone店，2个！"
    assert tokenize(text, "char") == ["去", "iPhone", "店", "，", "2", "个", "！"]
    assert tokenize(text, "letters") == list("去iPhone店，2个！")
    assert "".join(tokenize(text, "jieba")) == text.replace(" ", "")


@pytest.mark.parametrize("k", [2, 4])
def test_bleu_of_eva_is_nltks_method_3(k):
    said, people = tokenize_pairs(ANSWERS, PEOPLE, "letters")
    nltks = 100 * corpus_bleu(people, said, [1 / k] * k, SmoothingFunction().method3)
    assert bleu_k(bleu_parts(bleu_statistics(said, people), True).sum(0), k) == pytest.approx(nltks)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("我你好吗。", max_size=7), st.text("我你好吗。", min_size=1, max_size=7)),
        min_size=1,
        max_size=5,
    )
)
def test_bleu_is_nltks_and_rouge_is_evas_whatever_is_said(pairs):
    said, people = tokenize_pairs([a for a, _ in pairs], [b for _, b in pairs], "letters")
    for k in (2, 4):
        nltks = corpus_bleu(people, said, [1 / k] * k, SmoothingFunction().method3)
        assert bleu_k(bleu_parts(bleu_statistics(said, people), True).sum(0), k) == pytest.approx(100 * nltks, abs=1e-9)
    for h, (r,) in zip(said, people):
        lengths = np.zeros((len(h) + 1, len(r) + 1), int)
        for i, j in np.ndindex(len(h), len(r)):
            longer = lengths[i, j] + 1 if h[i] == r[j] else max(lengths[i, j + 1], lengths[i + 1, j])
            lengths[i + 1, j + 1] = longer
        p, q = lengths[-1, -1] / max(len(h), 1), lengths[-1, -1] / len(r)
        assert rouge_l(h, r, 1.2) == pytest.approx(2.44 * p * q / (q + 1.44 * p) if p else 0)


def test_bleu_of_characters_is_the_houses():
    said, people = tokenize_pairs(ANSWERS, PEOPLE)
    counts = bleu_statistics(said, people)
    scorer = BLEU(tokenize="none", smooth_method="exp", force=True)
    theirs = scorer.corpus_score([" ".join(s) for s in said], [[" ".join(r) for (r,) in people]]).score
    assert bleu_k(bleu_parts(counts).sum(0)) == pytest.approx(theirs)
    values, _ = score_dialogues(ANSWERS, PEOPLE, OF, resamples=500)
    assert (values["bleu_4_low"], values["bleu_4_high"]) == pytest.approx(bleu_interval(counts, OF, 500))


def test_means_by_hand():
    """我很好 beside 你呢: nothing. 好 beside 好: all. 我也很好 beside 我很好: 3 of 3 and 3 of 4."""
    said, people = tokenize_pairs(["我很好", "好", "我很好", "！", ""], ["你呢", "好", "我也很好", "再见！", "好"])
    found = 100 * pair_scores(said, people)
    assert found.unigram_f1.tolist() == pytest.approx([0, 100, 600 / 7, 50, 0])
    assert found.rouge_l.tolist() == pytest.approx([0, 100, 600 / 7, 50, 0])
    precision, recall = 1, 3 / 4
    assert pair_scores(said, people, 1.2).rouge_l[2] == pytest.approx(
        2.44 * precision * recall / (recall + 1.44 * precision)
    )


def test_embeddings_by_hand():
    vectors = {"我": np.array([1.0, 0]), "你": np.array([0, 1.0]), "好": np.array([1.0, 1.0])}
    said, people = tokenize_pairs(["我", "我好", "！！！", "我"], ["你", "你好", "好", "嗯"])
    found = 100 * pair_scores(said, people, 1.0, vectors)
    h = np.sqrt(0.5)
    assert found.greedy_matching.tolist() == pytest.approx([0, 100 * (h + 1) / 2, 0, 0])
    assert found.embedding_average.tolist() == pytest.approx([0, 100 * 4 / 5, 0, 0]), "(2, 1) beside (1, 2)"


def test_distinct_by_hand_and_without_the_last():
    tokens = [list("好的好的"), list("好的"), [], ["！"]]
    values, _ = score_dialogues(["好的好的", "好的", "", "！"], ["x"] * 4, range(4), resamples=200)
    assert values["distinct_1"] == pytest.approx(100 * 3 / 7) and values["distinct_2"] == pytest.approx(100 * 2 / 4)
    assert values["distinct_4"] == 100 and values["empty"] == 1 and values["mean_length"] == 7 / 4
    parts, different = distinct_parts(tokens, range(4), 2, last_ngram=False)
    assert (parts[:, 0].sum(), different) == (2, 2), "EVA's range ends one too early"


def test_distinct_without_each_dialogue_is_distinct_of_the_others():
    rng = np.random.default_rng(0)
    tokens, of = [list(rng.choice(list("我你好吗"), 5)) for _ in range(12)], np.arange(12) // 3
    _, without = distinct_without(*distinct_parts(tokens, of))
    again = [
        distinct_without(*distinct_parts([t for t, d in zip(tokens, of) if d != k], of[of != k]))[0] for k in range(4)
    ]
    assert without.tolist() == pytest.approx(again)


def test_jackknife_of_a_mean_is_students_interval():
    from scipy import stats

    x = np.array([1.0, 4, 2, 8, 5])
    low, high, p = jackknife(x.mean(), (x.sum() - x) / 4)
    test = stats.ttest_1samp(x, 0)
    assert (low, high, p) == pytest.approx((*test.confidence_interval(), test.pvalue))
    assert jackknife(3.0, np.array([5.0])) == (3, 3, 0), "one dialogue says nothing of others"


def test_answers_of_nothing_and_of_punctuation():
    for said in (["", " ", "\u3000"], ["！", "。", "…"]):
        for variant in VARIANTS:
            values, _ = score_dialogues(said, ["你好", "在吗", "好的"], range(3), variant, resamples=200)
            assert values["bleu_4"] == values["unigram_f1"] == values["rouge_l"] == 0
            assert np.isfinite([v for v in values.values() if not isinstance(v, str)]).all()
    assert score_dialogues(["", ""], ["a", "b"], [0, 1], resamples=50)[0]["distinct_1"] == 0


def test_wrong_numbers_and_empty_references():
    with pytest.raises(ValueError, match="2 answers and 1 references"):
        tokenize_pairs(["a", "b"], ["c"])
    with pytest.raises(ValueError, match=r"references at \[1\] are empty"):
        tokenize_pairs(["a", "b"], ["c", "\u3000"])
    with pytest.raises(ValueError, match="variant 'words' is unknown"):
        score_dialogues(["a"], ["b"], [0], "words")


def test_word_vectors_from_a_file(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("好 1 2\n我 0 1\n", encoding="utf-8-sig")
    assert list(_from_file(path, ["好"])[0]) == ["好"], "word2vec's first line may be missing"
    for content, said in (
        ("好 1 2\n我 0\n", "line 2: '我' has 1 numbers, expected 2"),
        ("好 1 x\n", "line 1: '好' is not followed by 2 numbers"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=said):
            _from_file(path, ["好", "我"])
    with pytest.raises(FileNotFoundError):
        _from_file(tmp_path / "none", ["好"])


def test_input_embeddings_by_hand(cdial_model):
    model, tokenizer = cdial_model
    found, about = input_vectors(model, tokenizer, ["你好", "gay", "好"])
    rows = model.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids(["你", "好"])].detach().numpy()
    assert list(found) == ["你好", "好"], "what is unknown has no vector"
    assert np.allclose(found["你好"], rows.mean(0)) and about["name"].startswith("input embeddings of CDial-GPT2")


def test_change_of_each_metric():
    before, _ = score_dialogues(["嗯"] * 60, ["你好吗"] * 60, np.arange(60) // 2, resamples=500)
    after, _ = score_dialogues([f"你好{i}" for i in range(60)], ["你好吗"] * 60, np.arange(60) // 2, resamples=500)
    table = compare_scores(before, after, resamples=500).set_index("metric")
    assert set(table.verdict[["bleu_2", "unigram_f1", "rouge_l", "distinct_1", "distinct_2"]]) == {"gain"}
    assert np.allclose(table.change, table.after - table.before, atol=1e-4)
    back = compare_scores(after, before, resamples=500).set_index("metric")
    assert back.verdict["distinct_2"] == "loss" and back.change["rouge_l"] == -table.change["rouge_l"]
    other, _ = score_dialogues(["嗯"] * 60, ["你好"] * 60, np.arange(60) // 2, resamples=50)
    with pytest.raises(ValueError, match="do not cover the same contexts"):
        compare_scores(before, other)


# --- answers ---


@pytest.fixture
def dialogues():
    rows = [
        ("a/1", "a", ["你好"], "你好啊"),
        ("a/2", "a", ["你好", "你好啊"], "吃了吗"),
        ("b/1", "b", ["在吗"], "在的"),
    ]
    table = pd.DataFrame(rows, columns=["key", "dialogue", "context", "response"])
    table.attrs["corpus"] = {"name": "own", "files": {"own.txt": "0" * 40}, "note": ""}
    return table


def test_decoding_presets():
    assert name_decoding(decoding_of("cdial")) == "sample-k0-p0.9-t0.7-new30"
    assert name_decoding(decoding_of("eva")) == "sample-k0-p0.9-t0.9-new128"


def test_speakers_answer_as_by_hand(cdial_model):
    """Greedy, token by token, the whole dialogue with its types each time."""
    model, tokenizer = cdial_model
    code = lambda t: tokenizer(t, add_special_tokens=False)["input_ids"]
    one, two = tokenizer.convert_tokens_to_ids(list(SPEAKERS))
    ids, types = [0, one, *code("你好"), two], [0, *[one] * 3, two]
    said = []
    for _ in range(6):
        with torch.no_grad():
            logits = model(torch.tensor([ids + said]), token_type_ids=torch.tensor([types + [two] * len(said)])).logits
        said.append(int(logits[0, -1].argmax()))
        if said[-1] == 2:
            break
    found = answers(model, tokenizer, ["你好"], decoding_of(max_new_tokens=6), speakers=True)
    wanted = tokenizer.decode([i for i in said if i != 2], skip_special_tokens=True)
    assert found.answer[0] == " ".join(wanted.split()) and found.attrs["stats"]["why_alone"].startswith("token types")


def test_speakers_answer_the_same_in_a_batch(cdial_model, dialogues):
    model, tokenizer = cdial_model
    how = dict(decoding=decoding_of(max_new_tokens=5), layout="speakers")
    together = answer_dialogues(model, tokenizer, dialogues, **how)
    alone = [answer_dialogues(model, tokenizer, dialogues[i : i + 1], **how).answer[0] for i in range(3)]
    assert together.answer.tolist() == alone


@pytest.mark.parametrize("layout", ["lines", "bare", "speakers"])
def test_layouts_of_a_causal_model(cdial_model, dialogues, layout, tmp_path):
    model, tokenizer = cdial_model
    assert layout_of(model, tokenizer) == "speakers"
    found = answer_dialogues(model, tokenizer, dialogues, "cdial", layout, out=tmp_path, seed=3)
    again = answer_dialogues(model, tokenizer, dialogues, "cdial", layout, out=tmp_path, seed=3)
    assert found.answer.tolist() == again.answer.tolist() and again.attrs["stats"]["answers"] == 0
    assert (found.n_tokens <= 30).all() and found.attrs["layout"] == layout
    with pytest.raises(ValueError, match="chat template"):
        answer_dialogues(model, tokenizer, dialogues, "cdial", "chat")
    with pytest.raises(ValueError, match=f"expected one of {', '.join(LAYOUTS)}"):
        answer_dialogues(model, tokenizer, dialogues, "cdial", "letters")


def test_openais_gpt_answers_too(cdial_folder, dialogues, tmp_path):
    from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

    torch.manual_seed(0)
    tokenizer = BertTokenizer.from_pretrained(cdial_folder)
    small = OpenAIGPTConfig(vocab_size=13088, n_positions=513, n_embd=48, n_layer=1, n_head=2)
    model = OpenAIGPTLMHeadModel(small).eval()
    found = answer_dialogues(model, tokenizer, dialogues, decoding_of(max_new_tokens=3))
    assert len(found) == 3 and found.attrs["layout"] == "speakers"


def test_an_encoder_decoder_answers_its_source(cdial_folder, dialogues):
    torch.manual_seed(0)
    tokenizer = BertTokenizer.from_pretrained(cdial_folder)
    sizes = dict(d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
    model = AutoModelForSeq2SeqLM.from_config(T5Config(vocab_size=13088, decoder_start_token_id=1, **sizes)).eval()
    assert layout_of(model, tokenizer) == "lines"
    found = answer_dialogues(model, tokenizer, dialogues, decoding_of(max_new_tokens=4))
    assert len(found) == 3 and (found.n_tokens <= 4).all()
    with pytest.raises(ValueError, match="speakers=True is for causal models"):
        answer_dialogues(model, tokenizer, dialogues, decoding_of(max_new_tokens=4), "speakers")


def test_the_last_turns_are_kept(cdial_model):
    tokenizer = cdial_model[1]
    turns = [["一二三", "四五", "六"]]
    assert [len(last_turns(tokenizer, turns, n)[0]) for n in (1, 4, 5, 8, 9, None)] == [1, 1, 2, 2, 3, 3]


# --- records ---


def test_from_a_model_to_a_record_and_two_compared(cdial_model, dialogues, tmp_path):
    model, tokenizer = cdial_model
    how = dict(layout="lines", preset="cdial", max_new_tokens=6, paper="chbias", vectors=(model, tokenizer))
    before = measure_zh_dialogue(model, tokenizer, dialogues, out=tmp_path / "answers", **how)
    assert set(before) == set(FIELDS) and before["metric"] == "zh_dialogue" and before["paper"] == "chbias"
    assert before["params"]["decoding"] == "sample-k0-p0.9-t0.7-new6" and before["n"] == 3
    assert before["values"]["unknown"] == 0 and unpack_sums(before["values"]["statistics"]).shape[0] == 2
    path = write_record(before, tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(before)) and path == record_path(
        before, tmp_path
    )
    again = measure_zh_dialogue(model, tokenizer, dialogues, out=tmp_path / "answers", **how)
    assert again["values"] == before["values"] and again["provenance"]["answering"]["answers"] == 0, "it goes on"
    after = measure_zh_dialogue(model, tokenizer, dialogues, **{**how, "seed": 5})
    table = compare_zh_dialogue(before, after)
    assert {"greedy_matching", "embedding_average"} <= set(table.metric) and len(table) == 9


def test_records_that_do_not_compare(cdial_model, dialogues):
    model, tokenizer = cdial_model
    how = dict(layout="lines", max_new_tokens=3)
    one = measure_zh_dialogue(model, tokenizer, dialogues, **how)
    other = measure_zh_dialogue(model, tokenizer, dialogues, variant="eva", preset="default", **how)
    with pytest.raises(ValueError, match="the records differ in decoding, variant"):
        compare_zh_dialogue(one, other)
    elsewhere = {**one, "provenance": {**one["provenance"], "vectors": {"name": "mine", "sha256": "1"}}}
    assert not {"greedy_matching", "embedding_average"} & set(compare_zh_dialogue(one, elsewhere).metric)


def test_unknown_words_are_in_the_record(cdial_model, dialogues):
    dialogues.loc[0, "response"] = "gay和txl"
    record = measure_zh_dialogue(*cdial_model, dialogues, layout="bare", preset="default", max_new_tokens=2)
    assert record["values"]["unknown"] == 2


def test_the_notebook_by_papermill(tokenizer, tmp_path):
    small_random(CONFIGS["gpt2"](len(tokenizer))).save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    own = tmp_path / "own.txt"
    own.write_text("在吗\t在\n你好\t你好啊\t嗯\n", encoding="utf-8")
    papermill(
        repo_root() / "nbs" / "07a_chinese_dialogue.ipynb", tmp_path / "out.ipynb", model=tmp_path / "m", corpus=own,
        max_new_tokens=4, variant="eva", results_dir=tmp_path / "results", out_dir=tmp_path / "runs",
    )  # fmt: skip
    (path,) = (tmp_path / "results").rglob("*.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["n"] == 3 and record["params"]["variant"] == "eva" and record["paper"] == "chbias"


def test_a_debiased_model_is_judged_by_the_vectors_of_the_one_before(tmp_path, monkeypatch):
    """Else what debiasing did to the embeddings would be taken for what it did to the answers."""
    from redditbias_repro.metrics import chinese as module

    model, words = (
        SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=False, debiased={"base_model": "before"})),
        object(),
    )
    monkeypatch.setattr(module, "load_model", lambda name, *_, **how: (name, how["kind"]))
    assert module._undebiased(model, words) == ("before", "causal")

    def gone(*_, **__):
        raise FetchError("no network")

    monkeypatch.setattr(module, "load_model", gone)
    with pytest.warns(UserWarning, match="'before', the model before debiasing, cannot be loaded.*cannot be compared"):
        assert module._undebiased(model, words) == (model, words)
    model.config.debiased = None
    assert module._undebiased(model, words) == (model, words), "it was not debiased"
