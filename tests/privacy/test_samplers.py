"""Integer noise has the laws stated (p > 1e-4), and not those of a slightly different scale (p < 1e-6)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, p_value
from scipy import special, stats

from fedbandit_jax.core import wide
from fedbandit_jax.privacy import samplers, tails

N = 25_000
ALPHA = 1e-4


def lattice(weight, reach):
    values = np.arange(-reach, reach + 1)
    weights = weight(values)
    return stats.rv_discrete(values=(values, weights / weights.sum()))


def normal(variance):
    return stats.norm(0, variance**0.5)


def laplace_law(scale):
    return stats.dlaplace(1 / scale)


def gaussian_law(sigma):
    return lattice(lambda x: np.exp(-((x / sigma) ** 2) / 2), int(12 * sigma) + 3) if sigma < 1e3 else normal(sigma**2)


def skellam_law(v):
    return lattice(lambda x: special.ive(x, v), int(12 * v**0.5) + 12) if v < 1e5 else normal(v)


class Law(NamedTuple):
    sampler: Callable
    law: Callable
    params: list
    wrong: float  # a part of the last parameter that is refuted


def half(exact):
    """Centred binomials of n trials: beyond `NORMAL_LIMIT` the limit takes over, whatever `exact` says."""
    return lambda key, n, p, shape: samplers.centred_binomial(key, n, shape, exact=exact)


LAWS = {
    "normal": Law(lambda key, std, shape: std * tails.normal(key, shape), lambda std: stats.norm(0, std), [1.0], 1.07),
    "exponential": Law(
        lambda key, scale, shape: scale * tails.exponential(key, shape),
        lambda scale: stats.expon(scale=scale),
        [1.0],
        1.1,
    ),
    "centred": Law(half(True), lambda n, p: stats.binom(n, p, -n / 2), [(7, 0.5), (400, 0.5)], 0.98),
    "centred, many": Law(half(True), lambda n, p: normal(n * p / 2), [(4e8, 0.5)], 1.1),
    "their limit": Law(half(False), lambda n, p: normal(n * p / 2), [(4e8, 0.5)], 1.1),
    "laplace": Law(samplers.discrete_laplace, laplace_law, [0.3, 1.0, 2.7, 30.0, 1e4, 2.0**25], 1.1),
    "gaussian": Law(samplers.discrete_gaussian, gaussian_law, [0.5, 1.0, 3.0, 20.0, 1e4, 2.0**25], 1.07),
    "binomial": Law(
        samplers.binomial,
        lambda n, p: stats.binom(n, np.float32(p)),
        [(1, 0.2), (10, 0.3), (1000, 0.5), (10**6, 0.01), (10**9, 0.37), (2**30, 3e-9), (30, 0.9)],
        1.1,
    ),
    "poisson": Law(samplers.poisson, stats.poisson, [0.3, 1.0, 2.8, 77.7, 1e5, 2.0**30], 1.1),
    "skellam": Law(samplers.skellam, skellam_law, [0.5, 3.0, 63.9, 64.0, 1e4, 2.0**52], 1.1),
    "polya": Law(
        samplers.polya,
        lambda r, scale: stats.nbinom(r, -np.expm1(-1 / scale)),
        [(1 / 4096, 30.0), (1e-5, 2.0**20), (1 / 64, 2.0), (0.5, 100.0), (1.0, 0.3), (1.0, 2.0**25)],
        1.25,
    ),
}


FLOATS = "normal", "exponential", "centred", "centred, many", "their limit"


# Sums of Polya variables are in integers/test_protocol.py.
@pytest.mark.parametrize("name", deep(LAWS, keep=range(len(LAWS) - 1)))
def test_laws(key, name):
    """All parameters in one call; for each, the law with its last parameter a little larger is refuted."""
    sampler, law, params, wrong = LAWS[name]
    params = [np.atleast_1d(param).tolist() for param in params]
    columns = [np.array(column)[:, None] for column in zip(*params)]
    n = 2 * N if name == "polya" else N  # its draws are mostly 0
    draws = jax.jit(lambda *args: sampler(key, *args, (len(params), n)))(*columns)
    assert name in FLOATS or draws.dtype == np.int32
    for x, param in zip(np.asarray(draws), params):
        assert p_value(x, law(*param)) > ALPHA, param
        if param[0] != 1 / 4096 and param[0] != 1e-5:  # few draws are not 0
            assert abs(np.corrcoef(x[::2], x[1::2])[0, 1]) < 4.5 / len(x[::2]) ** 0.5  # neighbours are independent
            assert p_value(x, law(*param[:-1], wrong * param[-1])) < 1e-6, param
        if (std := law(*param).std()) > 1e4:  # no lattice coarser than the integers
            counts = np.bincount(x % 8, minlength=8)
            assert stats.chisquare(counts).pvalue > ALPHA
            kurtosis = float(law(*param).stats("k"))
            assert abs(x.astype(float).var() / std**2 - 1) < 4 * ((kurtosis + 2) / n) ** 0.5


def poisson_law(x, rate):
    return stats.poisson.logpmf(np.floor(np.float32(rate)) + x, np.float32(rate).astype(float))


def binomial_law(x, n, p):
    p = np.float32(p).astype(float)
    return stats.binom.logpmf(np.floor((n + 1) * p) + x, n, p)


RATES = np.geomspace(1e-3, 1e6, 399)
P = np.linspace(0.0025, 0.5, 200)
SHAPES = {  # sampler, ln of its law at mode + x, parameters
    "poisson": (samplers.poisson, poisson_law, [RATES]),
    "few": (samplers.binomial, binomial_law, [np.resize([1, 2, 3, 7, 30], 200), P]),
    "many": (samplers.binomial, binomial_law, [np.geomspace(100, 1e9, 200).astype(int), P]),
    "rare": (samplers.binomial, binomial_law, [np.full(399, 10**9), RATES / 1e9]),
    "skellam": (samplers.skellam, lambda x, v: np.log(special.ive(x, v)), [np.geomspace(64, 1e5, 200)]),
    "gaussian": (
        samplers.discrete_gaussian,
        lambda x, sigma: -((x / sigma) ** 2) / 2,
        [np.geomspace(0.5, 2.0**25, 200)],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_rejection(key, name, monkeypatch):
    """ln P is right within 8 standard deviations, and `_rejection` finds the largest P / Q, over the whole range."""
    sampler, law, params = SHAPES[name]
    seen = []

    def spy(key, log_ratio, std, shape, start=1):
        del key, start
        width = np.float32(2) ** jnp.clip(jnp.floor(jnp.log2(1.17 * std)), 0)
        edges = jnp.int32(width * np.arange(32)[:, None])
        x = jnp.int32(jnp.round(np.linspace(-8, 8, 65)[:, None] * jnp.maximum(std, 1)))
        seen.append((x, log_ratio(x), jnp.maximum(log_ratio(edges), log_ratio(~edges))))
        return jnp.zeros(shape, jnp.int32)

    def values(*args):
        sampler(key, *args, args[0].shape)
        return seen[-1]

    monkeypatch.setattr(samplers, "_rejection", spy)
    x, found, edges = (np.asarray(v, float) for v in jax.jit(values)(*params))
    right = law(x, *params) - law(0 * x[:1], *params)
    assert (np.isneginf(found) == np.isneginf(right)).all()
    seen = right > -40
    assert np.abs(found[seen] - right[seen]).max() < 1e-4
    assert (edges + np.arange(32)[:, None] * np.log(2)).argmax(0).max() <= 3


SUMS = [(10**6, 30.0), (2**30, 2.0**25)]


def test_sums_of_discrete_laplace(key):
    """By moments; a scale 10 % larger, of variance 1.21, is refuted by five errors; 64 bits do not overflow."""
    n, scale = (np.array(column)[:, None] for column in zip(*SUMS))
    draws = jax.jit(lambda n, s: samplers.discrete_laplace_sum(key, s, n, (len(SUMS), 1500)))(n.astype(np.int32), scale)
    sums = wide.to_int(draws)
    for draw, (n, scale) in zip(sums, SUMS):
        x = (draw / float(n * laplace_law(scale).var()) ** 0.5).astype(float)
        error = (2 / len(x)) ** 0.5
        assert abs(x.mean()) < 4 * (1 / len(x)) ** 0.5
        assert abs(x.var() - 1) < 4 * error
        assert abs(1.21 * x.var() - 1) > 4 * error < abs(1.21 - x.var())
        assert abs(stats.kurtosis(x)) < 4 * (24 / len(x)) ** 0.5
        assert p_value(x, normal(1)) > ALPHA
    assert len(set(sums[-1] % 16)) == 16


SIDE = jax.jit(samplers._side)


@pytest.mark.parametrize("scale", [2e4, 1e6, 1e7, 2.0**25])
def test_zero_is_as_likely_as_it_should_be(scale):
    """1 - 2 P(1) in float32 is 5 % off at scale 10^6, and 0 at 10^7: of 2^64 words the right number give 0."""
    zero = math.tanh(0.5 / scale)
    near = np.linspace(0.99, 1.01, 20_001)  # where the last words that do not give 0 should be
    edge = wide.of([2**63 - round(2**63 * zero * one) for one in near])
    plus, minus = (np.asarray(side) for side in SIDE(edge, np.full(near.shape, scale, np.float32)))
    assert not minus.any()
    last = 1e-4 + 2 / (2**63 * zero)
    assert abs(near[~plus].max() - 1) < last
    assert abs(near[plus].min() - 1) < last
    mirrored = SIDE(wide.Wide(~edge.high, ~edge.low), np.full(near.shape, scale, np.float32))
    np.testing.assert_array_equal(mirrored[1], plus)


def test_far_values_of_discrete_laplace(key, monkeypatch):
    """What lies above the low digits is the exponential, rounded down, to 88 scales; with 32 bits it ended at 22."""
    monkeypatch.setattr(samplers, "_side", lambda words, scale: (words.high == words.high, words.high != words.high))
    e = np.array([0.0, 3.3, 21.0, 47.7, 61.0, 88.7], np.float32)
    monkeypatch.setattr(samplers, "exponential", lambda key, shape: jnp.resize(e, shape))
    draw = jax.jit(lambda scale: samplers.discrete_laplace(key, scale, (6,)))
    for scale, n_low in ((1.0, 0), (3.0, 2), (2.0**20 + 1, 21), (2.0**25, 25)):
        reached = np.asarray(draw(scale))
        above = [(int(x) - 1) >> n_low for x in reached]
        fits = 5 if scale == 2**25 else 6  # 88 scales do not fit into 31 bits, 61 do
        assert above[:fits] == [math.floor(float(one) * scale / 2**n_low) for one in e[:fits]]
        assert int(reached[5]) >= 61 * scale


@pytest.mark.slow
def test_far_values_by_rejection(key, monkeypatch):
    """Discrete Gaussian given that it is beyond 6, 8 or 11 standard deviations; a scale 5 % larger is refuted."""
    # Leading zeros force proposals into far cells; coins are as small as the inner edge of these needs.
    sigma, n = 8.0, 2**14
    real = samplers.bits

    @jax.jit
    def draw(cells, coin):
        monkeypatch.setattr(samplers, "bits", lambda key, n: (real(key, n)[0] >> cells, real(key, n)[1]))
        monkeypatch.setattr(samplers, "exponential", lambda key, shape: coin + tails.exponential(key, shape))
        return samplers.discrete_gaussian(key, sigma, (n,))

    for cells in (6, 8, 11):
        edge = 8 * cells
        draws = np.asarray(draw(np.uint32(cells), np.float32(edge**2 / (2 * sigma**2) - cells * math.log(2))))
        for factor, right in ((1.0, True), (1.05, False)):
            values = np.arange(edge, edge + 60)
            weights = np.exp((edge**2 - values**2) / (2 * (factor * sigma) ** 2))
            counts = np.bincount(np.where(draws < 0, -1 - draws, draws) - edge, minlength=60)
            assert counts[60:].sum() == 0
            assert min(draws) < 0 < max(draws)
            mirror = np.exp((edge**2 - (values + 1) ** 2) / (2 * (factor * sigma) ** 2))  # of -1 - x, see `_rejection`
            expected = n * (weights + mirror) / (weights + mirror).sum()
            rare = expected < 5
            pooled = [np.append(one[~rare], one[rare].sum()) for one in (counts, expected)]
            p = stats.chisquare(pooled[0], pooled[1]).pvalue
            assert p > ALPHA if right else p < 1e-6


def test_rounding_at_random(key):
    """To one of the two integers around a number, with the number as the mean, to 5 standard errors."""
    x = np.array([-1.8, -0.3, 0.0, 0.2, 0.5, 3.0], np.float32)
    draws = np.asarray(jax.jit(samplers.stochastic_round)(key, np.broadcast_to(x, (10_000, 6))), float)
    assert (abs(draws - x) < 1).all()
    np.testing.assert_array_equal(draws, np.round(draws))
    assert (abs(draws.mean(0) - x) <= 5 * np.sqrt((x % 1) * (1 - x % 1) / len(draws))).all()


def test_what_is_missing():
    """The masses that are charged are those of what lies beyond the last values, by the laws themselves."""
    assert math.exp(-61) < samplers.LAPLACE_CUT  # at scale 2^25, int32 ends; smaller scales reach 88 scales
    assert 2 * stats.norm.sf(32 * 0.58) + 2.0**-124 < samplers.GAUSSIAN_CUT  # 32 cells; coins of 128 bits
    rates = np.concatenate([np.linspace(0.01, 3, 300), np.geomspace(3, 1e6, 300)])
    width = 2 ** np.floor(np.maximum(np.log2(1.17 * np.sqrt(rates)), 0))
    assert stats.poisson.sf(np.floor(rates) + 32 * width - 1, rates).max() < samplers.CUT
    assert stats.gamma.sf(1.8e9 / 2.0**25, 1.0) < samplers.CUT  # the largest rate of a Polya variable
