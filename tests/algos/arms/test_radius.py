"""Radii of batched elimination: below the paper's, and missed as often as stated."""

import itertools
import math

import numpy as np
import pytest
from four_arms import P, lemma_2, printed
from scipy import stats

from fedbandit_jax.algos.arms import radius as radii
from fedbandit_jax.privacy.accounting.lattice import DiscreteGaussian, DiscreteLaplace, Skellam

NOISES = {
    "CDP-SE": lambda width, size: DiscreteLaplace(width),
    "Dist-RDP-SE": lambda width, size: Skellam(width**2),
    "Dist-CDP-SE": lambda width, size: DiscreteGaussian(width),
    "LDP-SE": DiscreteLaplace,
}


def setting(name, epsilon, size):
    """(law, g, s, h) of the paper for one batch."""
    one = printed(name, size, epsilon, 1)
    return NOISES[name](one.g / epsilon, size), one.g, one.s, one.h


def failures(law, g, size, radius):
    """How often the mean of fair coins with this noise is outside the radius: the law's tails, coin by coin."""
    heads = np.arange(size + 1)
    room = g * (radius * size - (heads[:, None] - size / 2))  # the noise that a sum of so many heads has, upwards
    tail = np.where(room >= 0, law.tail(np.maximum(room, 0)), 1 - law.tail(np.maximum(np.ceil(-room) - 1, 0)))
    return 2 * stats.binom.pmf(heads, size, 0.5) @ tail


def test_theory_is_the_paper_s():
    table = radii.theory([2.0, 4.0, 8.0], 3.0, [0.0, 0.1, 0.2], n_arms=4, p=P)
    assert table.shape == (3, 5)
    assert np.all(table[:, 0] == np.inf)
    assert table[2, 4] == pytest.approx(lemma_2(3, 8, 4, 3.0, 0.2))


def test_the_union_bound_of_lemma_2():
    """Its rewards and noise fail with probability (1/2 + 2) p pi^2 / 6, not 3 p; the exact radius' with 3 p."""
    p, arms, b = 0.1, 7, np.arange(1, 10**6)
    rewards = 2 * np.exp(-2 * np.log(4 * arms * b[:3] ** 2 / p) / 2)  # Hoeffding at sqrt(ln(.) / 2 l)
    noise = 2 * p / (arms * b[:3] ** 2)  # Assumption 1 at p / (|Phi| b^2)
    np.testing.assert_allclose(arms * (rewards + noise), 2.5 * p / b[:3] ** 2)
    assert (2.5 * p / b**2.0).sum() == pytest.approx(4.112 * p, rel=1e-3)
    size = np.array([64.0, 64.0, 64.0])
    exact = radii.exact(size, [None] * 3, 1.0, n_arms=arms, p=p)[:, arms]
    level = 2 * np.exp(-2 * size * exact**2)
    assert (arms * level[0] / b**2.0).sum() == pytest.approx(3 * p, rel=1e-5)
    np.testing.assert_allclose(level[0] / level, [1, 4, 9])
    quiet = radii.exact(size, [Skellam(1e-12)] * 3, 1.0, n_arms=arms, p=p)[:, arms]
    np.testing.assert_allclose(quiet, exact, rtol=1e-6)


@pytest.mark.parametrize("noise", NOISES)
def test_exact_is_below_theory(noise):
    sizes = 2 ** np.arange(1, 21)
    laws, g, s, h = zip(*(setting(noise, 0.1, int(size)) for size in sizes))
    exact, theory = radii.exact(sizes, laws, g, n_arms=10, p=0.1), radii.theory(sizes, s, h, n_arms=10, p=0.1)
    assert exact.shape == theory.shape == (20, 11)
    assert np.all(exact[:, 0] == np.inf)
    assert np.all(exact[:, 1:] < 0.95 * theory[:, 1:])


def halved(law):
    if isinstance(law, Skellam):
        return Skellam(law.variance / 4)
    if isinstance(law, DiscreteGaussian):
        return DiscreteGaussian(law.sigma / 2)
    return DiscreteLaplace(law.scale / 2, law.n)


@pytest.mark.parametrize(("noise", "epsilon", "size"), list(itertools.product(NOISES, [0.1, 1.0], [4, 256])))
def test_exact_fails_as_often_as_it_says(noise, epsilon, size):
    """And a radius for half of the noise fails more often, where there is more noise than data."""
    law, g, *_ = setting(noise, epsilon, size)
    level = 3 * 0.1 * 6 / math.pi**2 / np.arange(1, 5)
    radius, narrow = (radii.exact([size], [one], g, n_arms=4, p=0.1)[0, 1:] for one in (law, halved(law)))
    rate = failures(law, g, size, radius)
    assert np.all(rate <= level)
    if math.sqrt(law.variance) / g > 4 * math.sqrt(size):  # the noise dominates
        assert np.all(rate > 0.7 * level)
    if (epsilon, size) == (0.1, 4):
        assert np.all(failures(law, g, size, narrow) > 1.5 * level)
