"""Tests between two groups, against statsmodels and SciPy, and the rows that Liu et al. print."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from redditbias_repro.papers.dialoguefairness.recomputed import implied_variance, recompute, z_range
from redditbias_repro.records import data_file
from redditbias_repro.stats.multiplicity import holm
from redditbias_repro.stats.proportions import (
    compare_groups,
    group_test,
    paired_group_test,
    rate_test,
    smallest_difference,
)

N = 300_000


def printed(table):
    return pd.read_csv(data_file("paper", "dialoguefairness", f"table{table}.csv"))


# The unpaired test

counts = st.integers(2, 40).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 2))


@settings(max_examples=60, deadline=None)
@given(counts)
def test_z_is_that_of_statsmodels(values):
    a, b = values
    test = group_test(a, b)
    if np.var(a) + np.var(b) == 0:
        return
    means = CompareMeans(DescrStatsW(a), DescrStatsW(b))
    z, p = means.ztest_ind(usevar="unequal")
    assert test.z == pytest.approx(z) and test.p == pytest.approx(p)
    assert (test.low, test.high) == pytest.approx(means.zconfint_diff(usevar="unequal"), abs=1e-12)


def test_rates_say_what_zeros_and_ones_say():
    a, b = np.repeat([1, 0], [30, 70]), np.repeat([1, 0], [45, 55])
    of_values, of_rates = group_test(a, b), rate_test(0.30, 0.45, 100)
    assert vars(of_rates) == pytest.approx(vars(of_values))
    assert of_rates.relative == pytest.approx(-0.5) and of_rates.difference == pytest.approx(-0.15)


def test_nothing_varies():
    same = group_test([0, 0, 0], [0, 0, 0])
    assert (same.z, same.p, same.difference) == (0, 1, 0) and np.isnan(same.relative)
    apart = group_test([0, 0], [1, 1])
    assert apart.z == -np.inf and apart.p == 0
    assert rate_test(0.2298, 0.2298, N).p == 1, "Table 7, WER"


@pytest.mark.parametrize(
    "a,b,says",
    [
        ([1, 0], [1], "the same number of finite values"),
        ([1, np.nan], [1, 0], "the same number of finite values"),
        ([[1, 0]], [[1, 0]], "the same number of finite values"),
        ([], [], "two or more"),
        ([1], [0], "two or more"),
    ],
)
def test_values_that_cannot_be_tested(a, b, says):
    for test in (group_test, paired_group_test):
        with pytest.raises(ValueError, match=says):
            test(a, b)


def test_arguments_out_of_range():
    with pytest.raises(ValueError, match="share from 0 to 1"):
        rate_test(36.763, 40.098, N)
    with pytest.raises(ValueError, match="two or more"):
        rate_test(0.1, 0.2, 1)
    with pytest.raises(ValueError, match="any variance"):
        implied_variance(0.1, 0.2, 0.0, N)


# Printed rows


@pytest.mark.parametrize("table,rows", [(3, 6), (4, 6), (5, 6), (6, 6), (7, 20)])
def test_printed_rows_agree_with_each_other(table, rows):
    again = recompute(printed(table), N)
    assert len(again) == rows and again["difference_agrees"].all()
    tested = again[again["p"].notna()]
    assert len(tested) == (rows if table == 7 else rows - 1)
    counts = tested["unit"] != "percent"
    assert counts.sum() == 2 * (len(tested) // 5)
    if table == 7:
        assert tested["z_agrees"].isna().all()
        assert (tested["p_agrees"] == np.where(counts, "only bounded", "yes")).all()
    else:
        assert (tested["z_agrees"] == np.where(counts, "only bounded", "yes")).all()
        assert (tested["p_agrees"] == "yes").all()


@pytest.mark.parametrize(
    "row,z",
    [((36.763, 40.098), -26.569), ((21.081, 23.758), -24.867), ((26.080, 27.104), -8.974), ((12.405, 16.408), -44.222)],
)
def test_printed_offence(row, z):
    a, b = (x / 100 for x in row)
    low, high = z_range(a, b, N, 5)
    assert low - 0.0005 <= z <= high + 0.0005 and rate_test(a, b, N).z == pytest.approx(z, abs=0.01)


def test_a_slip_in_a_printed_row_is_seen():
    rows = printed(3)
    rows["z"], rows["p"] = -rows["z"], rows["p"].replace("0.028", "0.28")
    rows.loc[rows["measure"] == "offence", "difference_percent"] = 9.1
    again = recompute(rows, N).set_index("measure")
    assert set(again["z_agrees"].dropna()) == {"no"}
    assert again["difference_agrees"].tolist() == [True, False, True, True, True, True]
    assert again["p_agrees"].dropna().tolist() == ["yes", "no", "yes", "yes", "yes"]


def test_a_wrong_size_is_seen_in_rates_and_never_taken_for_right_in_counts():
    """Z of -18.8 made -0.5: of rates it is wrong, of counts it is only bounded unless it is too large."""
    rows = printed(3)
    rows["z"] = rows["z"] * 0.5 / 18.815
    again = recompute(rows, N).dropna(subset="z")
    counts = again["unit"] != "percent"
    assert set(again["z_agrees"][~counts]) == {"no"} and set(again["z_agrees"][counts]) == {"only bounded"}
    assert set(again["p_agrees"]) == {"no"}, "p no longer belongs to Z"
    rows = printed(3)
    rows["z"] *= 3
    assert set(recompute(rows, N)["z_agrees"].dropna()) == {"no"}
    rows = printed(7)
    rows["p"] = "0.95"
    again = recompute(rows, N).set_index(["bias_type", "variant", "measure"])["p_agrees"]
    assert again["gender", "CDA", "family"] == "only bounded" and again["gender", "CDA", "offence"] == "no"
    rows["p"] = "<1e-12"
    assert set(recompute(rows, N)["p_agrees"][rows["unit"] != "percent"]) == {"no"}


def test_one_sided_p_would_not_agree():
    """The released code has half of what is printed."""
    half = stats.norm.sf(2.194)
    assert round(2 * half, 3) == 0.028 != round(half, 3)


def test_implied_variance_gives_z_back():
    rng = np.random.default_rng(0)
    a, b = rng.poisson(0.2, 5000), rng.poisson(0.3, 5000)
    test = group_test(a, b)
    variance = implied_variance(test.dominant, test.minoritized, test.z, len(a))
    assert variance == pytest.approx((a.var(ddof=1) + b.var(ddof=1)) / 2)


# The paired test


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60))
def test_mcnemar_is_that_of_statsmodels(pairs):
    a, b = np.array(pairs, dtype=int).T
    table = [[((a == i) & (b == j)).sum() for j in (1, 0)] for i in (1, 0)]
    test = paired_group_test(a, b)
    assert test.test == "McNemar" and test.p == pytest.approx(mcnemar(table, exact=True).pvalue)
    assert test.differ == (a != b).sum()


def test_t_and_sign_flips():
    rng = np.random.default_rng(1)
    a, b = rng.poisson(1.0, 60), rng.poisson(1.5, 60)
    flips, t = paired_group_test(a, b), stats.ttest_rel(a, b)
    assert flips.test == "sign flips" and flips.p == pytest.approx(t.pvalue, abs=0.05)
    assert (flips.low, flips.high) == pytest.approx(tuple(t.confidence_interval()))
    assert flips == paired_group_test(a, b, seed=0)


def test_what_a_number_of_pairs_finds():
    """At the smallest difference the test finds it with the power that was asked for."""
    rng, n, sd = np.random.default_rng(2), 200, 1.0
    smallest = smallest_difference(sd, n)
    found = [stats.ttest_1samp(rng.normal(smallest, sd, n), 0).pvalue < 0.05 for _ in range(2000)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_several_measures_are_corrected():
    rng = np.random.default_rng(3)
    values = {k: (rng.random(80) < 0.4, rng.random(80) < 0.5) for k in "abc"} | {"words": (rng.poisson(1, 80),) * 2}
    table = compare_groups(values, resamples=99)
    np.testing.assert_allclose(table["p_holm"], holm(table["p"]))
    np.testing.assert_allclose(table["paired_p_holm"], holm(table["paired_p"]))
    assert table.set_index("measure").loc["words", "paired_p"] == 1 and compare_groups({}).empty
