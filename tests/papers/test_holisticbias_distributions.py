"""Distributions from quantiles."""

import numpy as np
import pandas as pd
import pytest

from redditbias_repro.papers.holisticbias.distributions import density_of, plot_distributions, pool_quantiles

LEVELS = np.linspace(0, 1, 41)


def test_a_density_has_its_peak_and_its_ends_where_the_values_are():
    values = np.random.default_rng(0).lognormal(3, 0.5, 50_000)
    at, density = density_of(np.quantile(values, LEVELS), LEVELS)
    assert abs(np.log(at[density.argmax()]) - 3) < 0.1 and density.max() == 1
    assert at[0] <= values.min() and at[-1] >= values.max()
    assert density[np.searchsorted(at, np.exp(3 + 1.5))] < 0.05


def test_two_peaks_are_two():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.lognormal(1, 0.1, 1000), rng.lognormal(4, 0.1, 1000)])
    at, density = density_of(np.quantile(values, LEVELS), LEVELS)
    assert density[np.searchsorted(at, np.exp(2.5))] < 0.1 * min(density[np.searchsorted(at, np.exp([1, 4]))])


def test_one_value_only():
    at, density = density_of(np.full(41, 7.0), LEVELS)
    assert np.isfinite(density).all() and abs(at[density.argmax()] - 7) < 0.1


def test_pooled_by_weight():
    rng = np.random.default_rng(2)
    parts = [rng.lognormal(m, 0.3, n) for m, n in ((1, 500), (3, 4000), (4, 2500))]
    pooled = pool_quantiles([np.quantile(p, LEVELS) for p in parts], LEVELS, [len(p) for p in parts])
    whole = np.concatenate(parts)
    np.testing.assert_allclose([(whole <= q).mean() for q in pooled], LEVELS, atol=0.01)
    assert np.allclose(pooled[[0, -1]], [whole.min(), whole.max()])


@pytest.mark.parametrize("wrong", [[3, 2, 5], [0, 1, 2], [1, 2]])
def test_what_are_no_quantiles(wrong):
    with pytest.raises(ValueError, match="quantiles above 0 that rise"):
        density_of(wrong, [0, 0.5, 1])


def test_the_picture_names_what_stands_out():
    table = pd.DataFrame([np.geomspace(1, 10, 41), np.geomspace(2, 90, 41)], ["low", "high"], LEVELS)
    names = [f"descriptor {i}" for i in range(20)]
    marks = pd.DataFrame({"group": "high", "name": names, "value": np.geomspace(3, 80, 20)})
    figure = plot_distributions(table, marks, "Two")
    (ax,) = figure.axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["low", "high"] and ax.get_xscale() == "log"
    said = [t.get_text() for t in ax.texts]
    assert said[0].startswith("→ descriptor 19, descriptor 18") and said[0].endswith("…")
    assert said[1].startswith("← descriptor 0, descriptor 1") and all(len(s) < 75 for s in said)
    with pytest.raises(ValueError, match="no distributions"):
        plot_distributions(table.head(0))
