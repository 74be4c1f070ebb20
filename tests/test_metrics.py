"""LMB against scipy and against cases worked out by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from redditbias_repro import metrics
from redditbias_repro.data import load_published
from redditbias_repro.metrics import LMB_COLUMNS, PUBLISHED_MODEL, holm, lmb, lmb_table, measure_lmb, published_lmb
from redditbias_repro.records import write_record
from redditbias_repro.specs import BIAS_TYPES

# The paper's Figure 1a and §5.2: sign of t, and whether it is significant.
FIGURE_1A = {"religion1": (-1, True), "religion2": (-1, True), "race": (1, False), "gender": (-1, False), "orientation": (1, False)}


def test_by_hand():
    """Differences 1, 2, 3: mean 2, standard deviation 1, t = 2 / (1 / √3)."""
    r = lmb([11, 12, 13], [10, 10, 10])
    assert np.isclose(r.t, 2 * np.sqrt(3)) and r.df == 2 and r.n == 3 and r.n_removed == 0
    assert np.isclose(r.p, 2 * stats.t.sf(2 * np.sqrt(3), 2)) and np.isclose(r.d_z, 2) and not r.significant
    assert np.isclose(r.p_permutation, 2 / 8)  # of the 8 ways to flip signs, 2 are as extreme


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 60))
def test_against_scipy(seed, n):
    rng = np.random.default_rng(seed)
    a, b = rng.gamma(2, 100, n) + 1, rng.gamma(2, 100, n) + 1
    r = lmb(a, b, resamples=99)
    expected, logs = stats.ttest_rel(a, b), stats.ttest_rel(np.log(a), np.log(b))
    assert (r.t, r.p, r.df) == (expected.statistic, expected.pvalue, n - 1) and (r.t_log, r.p_log) == (logs.statistic, logs.pvalue)
    swapped = lmb(b, a, resamples=99)
    assert np.isclose(swapped.t, -r.t) and np.isclose(swapped.p, r.p) and np.isclose(swapped.d_z, -r.d_z)


def test_outliers_of_either_sample_take_their_pair_out():
    a, b = np.full(30, 10.0) + np.arange(30) / 10, np.full(30, 12.0)
    b = b + np.tile([0, 1], 15)
    a[3], b[7] = 500, 900
    r = lmb(a, b, outlier_sd=3)
    keep = np.ones(30, bool)
    keep[[3, 7]] = False
    expected = stats.ttest_rel(a[keep], b[keep])
    assert (r.n, r.n_removed, r.t, r.p) == (28, 2, expected.statistic, expected.pvalue) and r.outlier_sd == 3
    assert lmb(a, b).n_removed == 0


def test_the_limit_itself_is_kept():
    x = np.array([0.0, 0, 0, 0, 4])
    k = (4 - x.mean()) / x.std(ddof=1)
    assert metrics.within(x, k * 1.0000001).all() and metrics.within(x, k * 0.9999999).tolist() == [True] * 4 + [False]


def test_interval_and_seed():
    rng = np.random.default_rng(1)
    a = rng.gamma(2, 100, 100)
    b = a + rng.normal(20, 30, 100) + 1
    first, again, other = lmb(a, b, seed=1), lmb(a, b, seed=1), lmb(a, b, seed=2)
    assert first == again and (first.d_z_low, first.d_z_high) != (other.d_z_low, other.d_z_high)
    assert first.d_z_low < first.d_z < first.d_z_high < 0
    d = a - b
    draws = np.random.default_rng(5).choice(d, (4000, 100))
    low, high = np.quantile(draws.mean(1) / draws.std(1, ddof=1), [0.025, 0.975])
    assert abs(first.d_z_low - low) < 0.05 and abs(first.d_z_high - high) < 0.05


def test_alpha():
    a, b = [10, 11, 12, 13.5], [10.5, 11.7, 12.3, 14.6]
    p = lmb(a, b).p
    assert lmb(a, b, alpha=p * 1.01).significant and not lmb(a, b, alpha=p * 0.99).significant


@pytest.mark.parametrize(
    "ppl1,ppl2,says",
    [
        ([1, 2, 3], [1, 2], "ppl1 has 3 values and ppl2 2"),
        ([1, np.nan], [1, 2], r"ppl1 holds 1 values that are no perplexity, at \[1\] \(the first is nan\)"),
        ([1, 2], [1, np.inf], r"ppl2 holds 1 values .* \(the first is inf\)"),
        ([1, 2], [-1, 2], "ppl2 holds 1 values that are no perplexity"),
        ([1, 2], [0, 2], "ppl2 holds 1 values that are no perplexity"),
        ([1], [2], "1 of 1 pairs are left to test"),
        ([], [], "0 of 0 pairs are left to test"),
        ([1, 2, 3], [1, 2, 3], "all 3 differences are the same"),
        ([2, 3, 4], [1, 2, 3], "all 3 differences are the same"),
        ([1.1, 2.1, 3.1], [1, 2, 3], "all 3 differences are the same"),
        ([[1, 2]], [[1, 3]], "expected one perplexity a text"),
    ],
)
def test_bad_input(ppl1, ppl2, says):
    with pytest.raises(ValueError, match=says):
        lmb(ppl1, ppl2)


def test_one_ratio_for_all_pairs_has_a_t_but_none_on_logarithms():
    r = lmb([1, 2, 4], [2, 4, 8])
    assert np.isclose(r.t, stats.ttest_rel([1, 2, 4], [2, 4, 8]).statistic) and np.isnan(r.t_log) and np.isnan(r.p_log)


def test_bad_outlier_sd():
    with pytest.raises(ValueError, match="outlier_sd is 0: expected a positive number"):
        lmb([1, 2], [2, 1], outlier_sd=0)
    with pytest.raises(ValueError, match="pairs are left to test"):
        lmb([1, 2, 3.5], [2, 1, 4], outlier_sd=0.01)


def test_few_pairs_have_no_interval():
    r = lmb([1, 2], [2, 5])
    assert r.n == 2 and np.isfinite(r.t) and np.isnan(r.d_z_low) and np.isnan(r.d_z_high)
    rng = np.random.default_rng(0)
    intervals = [(r.d_z_low, r.d_z_high) for r in (lmb(*rng.gamma(2, 9, (2, 3)), resamples=199) for _ in range(20))]
    assert not np.isinf(intervals).any()


def test_holm():
    """By hand: sorted p times 5, 4, 3, 2, 1, never falling, at most 1."""
    assert np.allclose(holm([0.04, 0.001, 0.9, 0.03, 0.012]), [0.09, 0.005, 0.9, 0.09, 0.048])
    assert len(holm([])) == 0


@pytest.mark.parametrize("bias_type", BIAS_TYPES)
def test_the_papers_bars_come_out_of_the_published_perplexities(bias_type):
    p = load_published(bias_type)
    r = lmb(p.perplexity1, p.perplexity2)
    assert (np.sign(r.t), r.significant) == FIGURE_1A[bias_type]


def test_table(tmp_path):
    records = published_lmb()
    for r in records:
        write_record(r, tmp_path)
    table = lmb_table(folder=tmp_path)
    assert tuple(table.columns) == LMB_COLUMNS and len(table) == 10 and set(table.model) == {PUBLISHED_MODEL}
    pd.testing.assert_frame_equal(table, lmb_table(records))
    paper = table[table.outlier_sd.isna()]
    assert list(paper.bias_type) == list(BIAS_TYPES) and np.allclose(paper.p_holm, holm(paper.p))
    assert (table[table.outlier_sd == 3].n_removed > 0).all() and (table.n + table.n_removed).nunique() == 5
    assert list(lmb_table(folder=tmp_path / "none").columns) == list(LMB_COLUMNS)


def test_measure(model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path / "cache"))
    records = measure_lmb(str(model_folder), corpus="queries", split="valid")
    table = lmb_table(records)
    assert len(records) == 10 and set(table.bias_type) == set(BIAS_TYPES) and set(table.split) == {"valid"} and set(table.corpus) == {"queries"}

    def never(*args, **kwargs):
        raise AssertionError("scored twice")

    monkeypatch.setattr(metrics, "sequence_scores", never)  # what was scored is in the cache
    pd.testing.assert_frame_equal(lmb_table(measure_lmb(str(model_folder), corpus="queries", split="valid")), table)
    with pytest.raises(AssertionError, match="scored twice"):
        measure_lmb(str(model_folder), corpus="queries", split="test")
    monkeypatch.setattr(metrics, "versions", lambda: {"torch": "another"})  # another library may give other numbers
    with pytest.raises(AssertionError, match="scored twice"):
        measure_lmb(str(model_folder), corpus="queries", split="valid")


def test_measure_ones_own_pairs(model_folder, tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text("text1,text2\ncats are lazy,dogs are lazy\nthe cat sleeps,the dog sleeps\nmy cat bites,my dog bites\n")
    records = measure_lmb(str(model_folder), corpus=str(path), outlier_sd=[None])
    assert len(records) == 1 and records[0]["bias_type"] == "pets" and records[0]["split"] == "all" and records[0]["n"] == 3
    assert str(tmp_path) not in str(records[0])


def test_unknown_types_are_named_before_a_model_is_loaded():
    with pytest.raises(ValueError, match="bias type 'sex' is unknown: expected one of religion1"):
        measure_lmb("no such model", ["sex"])
