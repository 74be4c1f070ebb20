"""Mann–Whitney U of all pairs at once, against SciPy one by one."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from scipy import stats

from redditbias_repro.stats.ranks import deal_out, pair_tests, u_statistics


def scipys(values):
    """U and p of all pairs, with SciPy's defaults."""
    found = []
    for i, j in combinations(range(len(values)), 2):
        a, b = (values[k][~np.isnan(values[k])] for k in (i, j))
        found.append(stats.mannwhitneyu(a, b) if len(a) and len(b) else (np.nan, np.nan))
    return np.array(found, dtype=float).reshape(-1, 2).T


@settings(max_examples=60, deadline=None)
@given(nps.arrays(np.float64, st.tuples(st.integers(2, 5), st.integers(1, 12)), elements=st.integers(0, 6).map(float)))
def test_with_many_ties(values):
    with np.errstate(all="ignore"):
        u, p = scipys(values)
    tests = pair_tests(values)
    np.testing.assert_array_equal(tests.u, u)
    np.testing.assert_allclose(tests.p, p, rtol=1e-10, equal_nan=True)


@pytest.mark.parametrize("sizes", [(30, 30, 30), (3, 30, 8), (8, 9, 10), (1, 1, 40)])
@pytest.mark.parametrize("ties", [False, True])
def test_of_unequal_sizes(sizes, ties):
    rng = np.random.default_rng(sum(sizes))
    values = np.full((len(sizes), max(sizes)), np.nan)
    for row, n in zip(values, sizes):
        row[:n] = rng.lognormal(4, 0.5, n).round(-1 if ties else 12)
    u, p = scipys(values)
    tests = pair_tests(values)
    np.testing.assert_array_equal(tests.u, u)
    np.testing.assert_allclose(tests.p, p, rtol=1e-10)


def test_one_sided_extremes():
    """All values of one row above all of another; the effect is ±1 and p as small as it gets."""
    values = np.stack([np.arange(30.0), np.arange(30.0) + 100, np.arange(30.0) - 100])
    tests = pair_tests(values)
    assert tests.effect.tolist() == [-1, 1, 1] and len(set(tests.p)) == 1 and tests.p[0] < 1e-10
    assert list(zip(tests.first, tests.second)) == [(0, 1), (0, 2), (1, 2)]


def test_what_cannot_be_tested():
    one = pair_tests(np.ones((1, 30)))
    assert len(one.p) == 0
    same = pair_tests(np.ones((2, 30)))
    assert same.p[0] == 1 and same.effect[0] == 0
    empty = pair_tests(np.array([[1.0, 2.0], [np.nan, np.nan]]))
    assert np.isnan(empty.p[0])
    with pytest.raises(ValueError, match="shape"):
        pair_tests(np.ones(30))


def test_u_of_both_sides_adds_up():
    u, ties = u_statistics(np.random.default_rng(0).integers(0, 9, (7, 30)).astype(float))
    np.testing.assert_array_equal(u + u.T, 900.0)
    np.testing.assert_array_equal(ties, ties.T)


def test_dealt_out_values_keep_their_columns():
    values = np.arange(60.0).reshape(6, 10)
    dealt = deal_out(values, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(dealt, 0), values)
    assert not np.array_equal(dealt, values)
