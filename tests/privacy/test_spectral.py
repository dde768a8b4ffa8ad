"""Bounds on the spectrum of tree noise: printed, and from its law."""

import math

import numpy as np
import pytest
from scipy import stats

from fedbandit_jax.privacy.spectral import bounds, norm_quantile

SIZE = dict(sigma=2.0, nodes=5.0, dim=6, n_syncs=100, n_agents=20, failure=0.01, delta=0.1)


def draws(n, dim, seed):
    g = np.random.default_rng(seed).standard_normal((n, dim, dim))
    return (g + g.transpose(0, 2, 1)) / math.sqrt(2)


@pytest.mark.parametrize("dim", [1, 3, 10])
def test_quantiles_hold(dim):
    """At a tail of 1 %, 50,000 draws: exceeded by no more, up to four standard errors, and by some."""
    norms = np.abs(np.linalg.eigvalsh(draws(50_000, dim, 5))).max(1)
    for tail in (1e-2, 1e-3):
        above = (norms > norm_quantile(dim, tail)).mean()
        assert above <= tail + 4 * math.sqrt(tail / len(norms))
    assert (norms > 0.8 * norm_quantile(dim, 1e-3)).mean() > 1e-3  # and they are not far off
    if dim == 1:  # sqrt 2 |N(0, 1)|
        assert norm_quantile(1, 1e-8) >= math.sqrt(2) * stats.norm.isf(0.5e-8)


def test_theory_is_as_printed():
    """Lambda = sqrt 32 m (L^2 + 1) ln(4/delta) (4 sqrt d + 2 ln(2nM/failure)) / epsilon with the printed sigma_N."""
    m, epsilon, delta = 5, 0.7, 0.1
    sigma = 8 * math.sqrt(m) * math.log(2 / delta) / epsilon
    found = bounds("theory", **{**SIZE, "sigma": sigma, "nodes": m})
    tail = 2 * 100 * 20 / 0.01
    printed = math.sqrt(32) * m * 2 * math.log(4 / delta) * (4 * math.sqrt(6) + 2 * math.log(tail)) / epsilon
    assert found.rho_min == pytest.approx(printed)
    assert found.rho_max == pytest.approx(3 * printed)


def test_the_quantile_is_a_fraction_of_the_theory():
    theory, quantile = (bounds(method, **SIZE) for method in ("theory", "quantile"))
    assert 4 < theory.rho_min / quantile.rho_min < 8
    assert quantile.kappa > theory.kappa  # ||h|| is the same, the regulariser smaller


def test_kappa_holds():
    """||h|| of a chi law: P(||h|| > kappa sqrt(rho_min)) = failure / (4 n M) per release."""
    found = bounds("quantile", **SIZE)
    norm = found.kappa * math.sqrt(found.rho_min) / (2.0 * math.sqrt(5))
    assert stats.chi(6).sf(norm) == pytest.approx(0.01 / (4 * 100 * 20))
