"""Integer noise has the laws stated, and not those of a slightly different scale."""

import jax
import numpy as np
import pytest
from scipy import stats

from fedbandit_jax.privacy.noise import NORMAL_LIMIT, centred_binomial, discrete_gaussian

N = 200_000


def p_value(draws, values, pmf):
    """Chi-square test of draws against a pmf on `values`, rare values pooled."""
    counts = np.array([(draws == v).sum() for v in values])
    common = pmf * len(draws) > 20
    observed, expected = counts[common], pmf[common] * len(draws)
    rest = len(draws) - observed.sum(), len(draws) - expected.sum()
    if rest[1] > 5:
        observed, expected = np.append(observed, rest[0]), np.append(expected, rest[1])
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(observed) - 1)


def gaussian_pmf(sigma, values):
    weights = np.exp(-(values**2) / (2 * sigma**2))
    return weights / weights.sum()


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0, 8.0, 20.0])
def test_discrete_gaussian(key, sigma):
    draws = np.asarray(jax.jit(lambda k: discrete_gaussian(k, sigma, (N,)))(key))
    values = np.arange(-int(12 * sigma) - 3, int(12 * sigma) + 4).astype(float)
    assert draws.dtype == np.int32
    assert p_value(draws, values, gaussian_pmf(sigma, values)) > 1e-4
    assert p_value(draws, values, gaussian_pmf(1.05 * sigma, values)) < 1e-6


@pytest.mark.parametrize("sigma", [1e3, 1e5, 2.0**24])
def test_wide_discrete_gaussian(key, sigma):
    draws = np.asarray(jax.jit(lambda k: discrete_gaussian(k, sigma, (N,)))(key), float)
    assert stats.kstest(draws / sigma, "norm").pvalue > 1e-4
    assert stats.kstest(draws / (1.05 * sigma), "norm").pvalue < 1e-6
    counts = np.bincount((draws % 8).astype(int), minlength=8)  # no lattice coarser than the integers
    assert stats.chi2.sf(((counts - N / 8) ** 2 / (N / 8)).sum(), 7) > 1e-4


@pytest.mark.parametrize("n", [1, 7, 400])
def test_binomial(key, n):
    draws = np.asarray(centred_binomial(key, np.float32(n), (N,), exact=True)) + n / 2
    values = np.arange(n + 1)
    assert p_value(draws, values, stats.binom.pmf(values, n, 0.5)) > 1e-4
    if n > 1:
        assert p_value(draws, values, stats.binom.pmf(values, n, 0.47)) < 1e-6


@pytest.mark.parametrize("exact", [True, False])
def test_large_binomials_are_gaussian(key, exact):
    """Beyond the float32 sampler's range the limit takes over, whatever `exact` says."""
    n = 4e8
    assert n / 4 > NORMAL_LIMIT
    draws = np.asarray(centred_binomial(key, np.float32(n), (N,), exact=exact))
    assert stats.kstest(draws / (np.sqrt(n) / 2), "norm").pvalue > 1e-4
    assert stats.kstest(draws / (1.05 * np.sqrt(n) / 2), "norm").pvalue < 1e-6
