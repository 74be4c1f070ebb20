"""Metrics of texts against independent ones: formulas, SacreBLEU, NLTK, by hand; tokens, bad input."""

import math
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest

from redditbias_repro.answers.text_metrics import (
    bleu_interval,
    bleu_k,
    bleu_parts,
    bleu_statistics,
    bleu_test,
    clean_dstc,
    distinct_n,
    entropy_n,
    meteor,
    meteor_kind,
    nist,
    pair_scores,
    rouge_l,
    score_responses,
    tokenize,
    unigram_f1,
)

HYPS = ["the cat sat on the mat .", "there is a dog in the garden", "yes", "i do not know what you mean by that"]
REFS = [
    ["the cat is on the mat .", "a cat sat on a mat ."],
    ["a dog is in the garden now"],
    ["yes .", "no", "maybe yes"],
    ["what do you mean by that ?", "i do not know"],
]
TOKENS = ([h.split() for h in HYPS], [[r.split() for r in rs] for rs in REFS])


def ngrams(tokens, n):
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def bleu(hyps, refs, n=4):
    """As the package has it, of its statistics."""
    return float(bleu_k(bleu_parts(bleu_statistics(hyps, refs)).sum(0), n))


def sacrebleus(hyps, refs, n=4):
    from sacrebleu.metrics import BLEU

    streams = [[" ".join(r[i]) if i < len(r) else None for r in refs] for i in range(max(map(len, refs)))]
    scorer = BLEU(tokenize="none", smooth_method="exp", max_ngram_order=n, force=True)
    return scorer.corpus_score([" ".join(h) for h in hyps], streams).score


def slow_bleu(hyps, refs, most):
    """From the formula.

    Clipped counts, the nearest reference length, mteval's smoothing of zero matches by 1/2, 1/4, …"""
    matches, totals, length, nearest = [0] * most, [0] * most, 0, 0
    for h, rs in zip(hyps, refs):
        length += len(h)
        nearest += min((abs(len(r) - len(h)), len(r)) for r in rs)[1]
        for n in range(1, most + 1):
            counts, best = ngrams(h, n), Counter()
            for r in rs:
                best |= ngrams(r, n)
            matches[n - 1] += (counts & best).total()
            totals[n - 1] += counts.total()
    logs, k = [], 1
    for m, t in zip(matches, totals):
        if t == 0:
            break
        k = k if m else 2 * k
        logs.append(math.log(m / t) if m else math.log(1 / (k * t)))
    if not any(matches):
        return 0.0
    return 100 * min(1, math.exp(1 - nearest / length)) * math.exp(sum(logs) / len(logs))


def slow_nist(hyps, refs, most):
    """From Doddington (2002).

    Information weights from the references, and a penalty of 1/2 at two thirds of the mean reference length."""
    of_refs = Counter(g for rs in refs for r in rs for n in range(1, most + 1) for g in ngrams(r, n).elements())
    words = sum(len(r) for rs in refs for r in rs)
    info = {g: math.log2((of_refs[g[:-1]] if len(g) > 1 else words) / c) for g, c in of_refs.items()}
    score = 0
    for n in range(1, most + 1):
        gained = total = 0
        for h, rs in zip(hyps, refs):
            counts, best = ngrams(h, n), Counter()
            for r in rs:
                best |= ngrams(r, n)
            gained += sum(info[g] * c for g, c in (counts & best).items())
            total += counts.total()
        score += gained / total if total else 0
    ratio = sum(map(len, hyps)) / sum(np.mean([len(r) for r in rs]) for rs in refs)
    return score * (1 if ratio >= 1 else math.exp(math.log(0.5) / math.log(1.5) ** 2 * math.log(ratio) ** 2))


# --- metrics ---


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_bleu_is_that_of_the_formula(n):
    assert bleu(*TOKENS, n) == pytest.approx(slow_bleu(*TOKENS, n), abs=1e-6)
    assert bleu(*TOKENS, n) == pytest.approx(sacrebleus(*TOKENS, n), abs=1e-9)
    if n > 2:
        return
    few = ([["a", "b"], ["c"]], [[["a", "x"]], [["d"], ["e", "f"]]])
    assert bleu(*few, n) == pytest.approx(slow_bleu(*few, n), abs=1e-6)


def test_bleu_is_nltks_where_nothing_is_smoothed():
    from nltk.translate.bleu_score import corpus_bleu

    hyps = [h for h in TOKENS[0] if len(h) > 3]
    refs = [r for h, r in zip(*TOKENS) if len(h) > 3]
    assert bleu(hyps, refs, 2) == pytest.approx(100 * corpus_bleu(refs, hyps, weights=(0.5, 0.5)), abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_nist_is_that_of_the_formula(n):
    """And NLTK's where there is one reference."""
    from nltk.translate.nist_score import corpus_nist

    assert nist(*TOKENS, n) == pytest.approx(slow_nist(*TOKENS, n))
    hyps, refs = zip(*((h, rs[:1]) for h, rs in zip(*TOKENS) if len(h) > 4))
    assert nist(hyps, refs, n) == pytest.approx(corpus_nist(refs, hyps, n))


def test_meteor():
    assert meteor_kind() in ("meteor-1.5", "nltk", "nltk without synonyms")
    for kind in {meteor_kind(), "nltk without synonyms"}:
        same = meteor(TOKENS[0], [[h] for h in TOKENS[0]], kind)
        assert (
            same > 80
            and meteor(*TOKENS, kind) < same
            and meteor([["zebra"]], [[["cat"]]], kind) == pytest.approx(0, abs=1e-6)
        ), kind
        twice = meteor(TOKENS[0], [rs * 2 for rs in TOKENS[1]], kind)
        assert twice == pytest.approx(meteor(*TOKENS, kind), abs=1e-4), "a reference that stands twice changes nothing"
    by_hand = 100 * (10 * 1 * 1 / (1 + 9 * 1)) * (1 - 0.5 * (1 / 3) ** 3)  # three words in one chunk
    assert meteor([["a", "b", "c"]], [[["a", "b", "c"]]], "nltk without synonyms") == pytest.approx(by_hand)


def test_entropy_and_distinct_by_hand():
    tokens = [["a", "b", "a", "b"], ["a", "b"]]  # bigrams ab ×3, ba ×1
    assert distinct_n(tokens, 1) == 2 / 6 and distinct_n(tokens, 2) == 2 / 4
    assert entropy_n(tokens, 2) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert entropy_n([["a"]], 4) == 0 == distinct_n([["a"]], 4), "no n-gram of that length"
    scores = score_responses(
        ["a b c d a b c d a", "", "x"], [["a b c d e"], ["a b c d"], ["x", "a b c d e f"]], kind="nltk without synonyms"
    )
    assert scores["entropy_4_max"] == pytest.approx(math.log(6)) and scores["entropy_4"] < math.log(6), (
        "six 4-grams, two of them twice"
    )
    people = {k: v for k, v in scores.items() if k.startswith("people")}
    assert people == {
        "people_entropy_4": pytest.approx(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))),
        "people_entropy_4_max": pytest.approx(math.log(3)),
        "people_distinct_2": pytest.approx(4 / 7),
    }, "first references"


def test_f1_rouge_and_vectors():
    assert unigram_f1(["a", "a", "b"], ["a", "c"]) == pytest.approx(2 * 1 / 5)
    vectors = {"a": np.array([1.0, 0]), "b": np.array([0, 2.0])}
    hyps = [["a", "x", "b", "y"], ["a", "b"], ["a", "b"]]
    found = pair_scores(hyps, [[["a", "b"], ["z"]], [["a"], ["b", "a"]], [["a"]]], vectors=vectors)
    assert found.rouge_l[0] == pytest.approx(2 * (2 / 4) * (2 / 2) / (2 / 4 + 2 / 2))
    assert found.greedy_matching.tolist()[1:] == pytest.approx([1, (1 + 0.5) / 2])
    assert found.embedding_average.tolist()[1:] == pytest.approx([1, 1 / math.sqrt(5)])


def test_what_has_no_vector_counts_nothing():
    """Nine of ten answers without one gave 1.0 when they were left out."""
    vectors = {"a": np.array([1.0, 0]), "minus": np.array([-1.0, 0]), "zero": np.zeros(2)}
    near = lambda hyps, refs: pair_scores(hyps, refs, vectors=vectors)[["greedy_matching", "embedding_average"]]
    assert near([["a"]] + [["?"]] * 9, [[["a"]]] * 10).mean().tolist() == pytest.approx([0.1, 0.1])
    without = near([["a"], ["a"]], [[["?"]], [["?"], ["a"]]])
    assert without.embedding_average.tolist() == pytest.approx([0, 1]), "references without one"
    assert (near([["zero"], ["?"]], [[["a"]], [["a"]]]) == 0).all(axis=None)
    assert near([["a", "minus"]], [[["a"]]]).embedding_average[0] == 0, "vectors that cancel out"
    assert near([["minus"]], [[["a"], ["?"]]]).embedding_average[0] == -1, "an unknown reference is none"


def score_of(statistics):
    return float(bleu_k(bleu_parts(statistics).sum(0)))


@pytest.fixture(scope="module")
def two_models():
    """Answers of two models to 120 contexts, one better than the other, with one to three references each."""
    rng = np.random.default_rng(0)
    words = "the a hotel is in north east cheap and train leaves at nine what time do you want".split()
    references = [
        [rng.choice(words, rng.integers(4, 12)).tolist() for _ in range(rng.integers(1, 4))] for _ in range(120)
    ]
    spoiled = lambda share: [[w if rng.random() > share else "x" for w in rs[0]] for rs in references]
    return spoiled(0.5), spoiled(0.3), references


def test_bleu_of_its_statistics(two_models):
    for hyps in two_models[:2]:
        statistics = bleu_statistics(hyps, two_models[2])
        assert score_of(statistics) == pytest.approx(sacrebleus(hyps, two_models[2])) and len(statistics) == 120
    assert bleu([["x"]], [[["a", "b"]]]) == sacrebleus([["x"]], [[["a", "b"]]]) == 0


def test_the_paired_test_is_sacrebleus(two_models):
    """Its approximate randomization and its intervals, on the same answers."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    worse, better, references = two_models
    joined = [[" ".join(r[i]) if i < len(r) else None for r in references] for i in range(3)]
    middle = [b if i % 8 == 0 else w for i, (w, b) in enumerate(zip(worse, better))]
    for after in (better, middle, worse):
        ours = bleu_test(*(bleu_statistics(h, references) for h in (worse, after)))
        named = [("before", [" ".join(h) for h in worse]), ("after", [" ".join(h) for h in after])]
        results = {
            kind: PairedTest(
                named, {"BLEU": BLEU(tokenize="none", force=True)}, joined, test_type=kind, n_samples=1000
            )()[1]["BLEU"]
            for kind in ("ar", "bs")
        }
        assert ours["change"] == pytest.approx(results["ar"][1].score - results["ar"][0].score)
        assert ours["p"] == (1 if after is worse else pytest.approx(results["ar"][1].p_value, abs=0.06)), (
            "SacreBLEU calls no difference at all significant"
        )
        assert ours["change_low"] <= ours["change"] <= ours["change_high"]
        assert after is middle or (ours["change_low"] > 0, ours["p"] < 0.05) == (after is better, after is better)
        scores = score_responses(
            [" ".join(h) for h in after], [[" ".join(r) for r in rs] for rs in references], kind="nltk without synonyms"
        )
        assert (scores["bleu_4_high"] - scores["bleu_4_low"]) / 2 == pytest.approx(results["bs"][1].ci, rel=0.2)
    with pytest.raises(ValueError, match="the same contexts"):
        bleu_test(np.ones((2, 6), int), np.ones((3, 6), int))


def test_bleu_of_every_sample_is_sacrebleus(two_models):
    """The sums of a sample, also of one that has no match of an order, or no 4-gram at all."""
    hyps, references = two_models[0], two_models[2]
    statistics = bleu_statistics(hyps, references)
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 5, 10, 120):
        for _ in range(20):
            pick = rng.integers(120, size=size)
            assert score_of(statistics[pick]) == pytest.approx(
                sacrebleus([hyps[i] for i in pick], [references[i] for i in pick]), abs=1e-9
            ), pick


def test_the_interval_of_bleu_covers(two_models):
    """In samples of the answers, as often as it says, and it misses on both sides. Percentiles do not."""
    statistics = bleu_statistics(two_models[0], two_models[2])
    truth, rng, missed = score_of(statistics), np.random.default_rng(0), []
    for _ in range(200):
        low, high = bleu_interval(statistics[rng.integers(120, size=100)], resamples=500)
        missed.append((low > truth) - (high < truth))
    assert np.mean(missed) == pytest.approx(0, abs=0.05) and np.mean(np.abs(missed)) < 0.1, (
        missed.count(1),
        missed.count(-1),
    )


def test_answers_of_one_dialogue_belong_together(two_models):
    """Every answer three times.

    By dialogue the interval and the test are those of the single answers, by answer they are too sure."""
    once = [bleu_statistics(h, two_models[2])[:40] for h in two_models[:2]]
    thrice, by = [np.repeat(s, 3, axis=0) for s in once], np.repeat(np.arange(40), 3)
    assert bleu_interval(thrice[0], by) == pytest.approx(bleu_interval(once[0])) and bleu_test(
        *thrice, by
    ) == pytest.approx(bleu_test(*once))
    wide, narrow = (np.ptp(bleu_interval(thrice[0], d)) for d in (by, None))
    assert narrow < 0.7 * wide


@pytest.mark.parametrize(
    "hyps,refs",
    [
        ([""], [["yes"]]),
        (["yes"], [["yes"]]),
        (["..."], [["! ?"]]),
        (["", "a b c d e"], [["x"], ["a b c d e", "y", "z"]]),
        (["好的"], [["好的。"]]),
    ],
)
def test_every_metric_on_what_is_odd(hyps, refs):
    scores = score_responses(hyps, refs, kind="nltk without synonyms")
    assert all(np.isfinite(v) for v in scores.values()) and scores["bleu_4"] >= 0 and scores["empty"] == hyps.count("")


def test_bad_input_to_metrics():
    with pytest.raises(ValueError, match="2 hypotheses and references for 1"):
        score_responses(["a", "b"], [["a"]])
    with pytest.raises(ValueError, match=r"no reference for hypothesis \[1\]"):
        score_responses(["a", "b"], [["a"], ["  "]])
    with pytest.raises(ValueError, match="space, dstc, char, jieba"):
        score_responses(["a"], [["a"]], "words")
    assert tokenize("女孩 like 3 cats", "char") == ["女", "孩", "like", "3", "cats"]


def test_accents_are_letters():
    """Also where they are written as marks of their own (NFD), and where there is no composed letter."""
    nfd = unicodedata.normalize("NFD", "café 是 résumé")
    assert len(nfd) > len("café 是 résumé") and tokenize(nfd, "char") == ["café", "是", "résumé"] == tokenize(
        "café 是 résumé", "char"
    ) == tokenize(nfd)
    assert tokenize("x\u030ca 是\u0301", "char") == ["x\u030ca", "是\u0301"]


# --- as DSTC-7 evaluates ---


@pytest.mark.parametrize(
    "text,cleaned",
    [
        ("I WON'T , can't and Don't", "i will n't , can n't and do n't"),
        ("[a page] ( http://x.org/y?z=1 ) and seehttps://x.org now", "a page and see __url__ now"),
        ("it's 1.5 <b> a_b #c @d 🙂", "it 's 1.5 b a b c d"),
        ("caf\u00e9 ... y'all'd've", "caf ... y'all 'd 've"),
        ("  ", ""),
    ],
)
def test_cleaning(text, cleaned):
    assert clean_dstc(text) == cleaned


def test_dstc_by_hand():
    """Cleaned to twelve tokens.

    mteval then parts the five of `__url__`, and all sixteen but the last are in the reference."""
    hyps, refs = ["It's U.S.A. , http://x.org ok ?"], [["IT'S u.s.a. , http://y.org ok"]]
    assert tokenize(hyps[0], "dstc") == "it 's u . s . a . , __url__ ok ?".split()
    scores = score_responses(hyps, refs, "dstc", "nltk without synonyms")
    said, wanted = ("it 's u . s . a . , _ _ url _ _ ok" + end for end in (" ?", ""))
    assert scores["bleu_1"] == pytest.approx(100 * 15 / 16) and scores["bleu_4"] == pytest.approx(
        100 * (15 / 16 * 14 / 15 * 13 / 14 * 12 / 13) ** 0.25
    )
    assert (
        scores["nist_2"] == pytest.approx(slow_nist([said.split()], [[wanted.split()]], 2))
        and scores["mean_length"] == 12
        and scores["distinct_1"] == 10 / 12
    )
    assert score_responses(hyps, refs, kind="nltk without synonyms")["bleu_1"] == pytest.approx(100 * 2 / 6), (
        "as written only `,` and `ok` are the same"
    )


def test_dstc_of_what_is_odd():
    scores = score_responses(
        ["", "🙂", "yes it is so"], [["no"], ["🙂", "yes"], ["🙂"]], "dstc", "nltk without synonyms"
    )
    assert scores["empty"] == 2 and scores["bleu_1"] == 0 and all(np.isfinite(v) for v in scores.values())
    assert score_responses(["", "a b c d"], [["x y"], ["a b c d"]], "dstc", "nltk without synonyms")[
        "bleu_4"
    ] == pytest.approx(100 * math.exp(1 - 6 / 4)), "an empty answer has no token"


def test_chinese_words(monkeypatch):
    assert tokenize("我喜欢北京的 cats", "jieba") == ["我", "喜欢", "北京", "的", "cats"]
    scores = score_responses(["我喜欢北京"], [["我爱北京"]], "jieba", kind="nltk without synonyms")
    assert (
        scores["rouge_l"] == pytest.approx(2 / 3)
        and scores["mean_length"] == 3
        and scores["unigram_f1"] == pytest.approx(2 / 3)
    )
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'redditbias_repro\[chinese\]'"):
        tokenize("我", "jieba")


def test_rouge_l_is_the_librarys():
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import Tokenizer

    class Blanks(Tokenizer):
        def tokenize(self, text):
            return text.split()

    scorer, rng = RougeScorer(["rougeL"], tokenizer=Blanks()), np.random.default_rng(0)
    for _ in range(300):
        said, ref = (rng.choice(list("abcdef"), rng.integers(least, 12)).tolist() for least in (0, 1))
        assert rouge_l(said, ref) == scorer.score(" ".join(ref), " ".join(said))["rougeL"].fmeasure
