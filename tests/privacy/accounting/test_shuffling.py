import contextlib
import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from fedbandit_jax.privacy import gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.accounting.gaussian import log_delta
from fedbandit_jax.privacy.accounting.shuffling import (
    LemmaError,
    authors_sigma,
    shuffled_epsilon,
    shuffled_sigma,
)

TREE = [25 * 2**level for level in range(9)]  # S = 400, B = 25
FIGURE = {"epsilon": 1e-4, "delta": 1e-4, "n_agents": 100}  # Figure 2(a) of the paper, T = 10^4


def theorem_5_3(kappa, t, m, delta, epsilon):
    """sigma_0 as printed, with the constant of its O(.) read as 1."""
    log = math.log
    return math.sqrt(2 * kappa * log(1 / delta) * log(kappa / (t * delta)) * log(m * kappa / delta) / m) / epsilon


def test_figure_2a_of_the_paper():
    """The lemma asks for 20 times the noise of plain Gaussian accounting without any shuffler."""
    plain = math.sqrt(9 * 4.5) / gaussian_mu(1e-4, 1e-4)
    lemma = shuffled_sigma(**FIGURE, sensitivity=math.sqrt(4.5), points=TREE)
    assert plain == pytest.approx(1.757e4, rel=1e-3)
    assert lemma == pytest.approx(3.49e5, rel=1e-2)
    released = authors_sigma(**FIGURE, horizon=10**4, n_levels=9)
    assert released == pytest.approx(5.53e4, rel=1e-3)
    assert released < theorem_5_3(9, 10**4, 100, 1e-4, 1e-4) < lemma
    kappa, t, m, delta, epsilon, log = 9, 10**4, 100, 1e-4, 1e-4, math.log
    printed = kappa * log(1 / delta) * log(1 + kappa / (t * delta)) * log(m * kappa / delta) / (epsilon**2 * m)
    assert released == pytest.approx(math.sqrt(printed), rel=1e-12)


def test_shuffling_helps_with_many_agents_and_one_point():
    sigma = shuffled_sigma(epsilon=0.05, delta=1e-6, sensitivity=1.0, n_agents=10**6, points=[1])
    assert sigma < 1 / gaussian_mu(0.05, 1e-6) / 15


def test_one_node_of_single_points_is_the_closed_form():
    """Feldman, McMillan & Talwar (2022), Theorem 3.1, for eps0 of an independent accountant; their delta times tanh."""
    m, delta, sigma = 10**5, 1e-5, 8.0
    eps0 = dp_accounting.get_epsilon_gaussian(sigma, delta / (25 * m))
    p = (math.exp(eps0) - 1) / (math.exp(eps0) + 1)
    d = delta / (3 * p)
    assert eps0 <= math.log(m / (16 * math.log(2 / d)))
    closed = math.log(1 + p * (8 * math.sqrt(math.exp(eps0) * math.log(4 / d) / m) + 8 * math.exp(eps0) / m))
    shuffled = shuffled_epsilon(sigma=sigma, sensitivity=1.0, n_agents=m, points=[1], delta=delta)
    assert shuffled == pytest.approx(closed, rel=1e-6)


def clones_delta(epsilon, eps0, m):
    """Hockey-stick of the pair that dominates m shuffled eps0-local mechanisms (their Theorem 3.2)."""
    p, alpha, total = math.exp(-eps0), 1 / (1 + math.exp(-eps0)), 0.0
    for clones, weight in enumerate(binom.pmf(np.arange(m), m - 1, p)):
        if weight < 1e-15:
            total += weight
            continue
        x = np.arange(clones + 2)
        zero, one = binom.pmf(x, clones, 0.5), binom.pmf(x - 1, clones, 0.5)
        first, second = alpha * one + (1 - alpha) * zero, alpha * zero + (1 - alpha) * one
        total += weight * np.maximum(first - math.exp(epsilon) * second, 0).sum()
    return total


def test_closed_form_is_above_the_numerical_bound():
    m, delta, sigma = 2000, 1e-4, 9.0
    epsilon = shuffled_epsilon(sigma=sigma, sensitivity=1.0, n_agents=m, points=[1], delta=delta)
    eps0 = gaussian_epsilon(1 / sigma, delta / (25 * m))
    assert 2 * m * (math.exp(epsilon) + 1) * delta / (25 * m) + clones_delta(epsilon, eps0, m) <= delta


@settings(max_examples=40, deadline=None)
@given(st.floats(-5, 1).map(lambda x: 10**x), st.floats(-30, -1).map(math.exp), st.integers(2, 5000))
def test_why_n_points_are_not_n_eps0(mu, delta, n):
    """The step of the printed proof that fails: at the delta0 of one point, n points cost more than n eps0."""
    eps0 = gaussian_epsilon(mu, delta)
    if eps0 > 0 and n * mu < 1e3:
        assert gaussian_epsilon(n * mu, delta) >= n * eps0 * (1 - 1e-9) - n * 1e-13
        assert log_delta(n * eps0, n * mu) >= math.log(delta) - 1e-4


CASES = st.fixed_dictionaries(
    {
        "epsilon": st.floats(-8, 1).map(lambda x: 10**x),
        "delta": st.floats(-20, -1).map(math.exp),  # below, epsilon is rounded up to more than delta leaves
        "n_agents": st.integers(12, 10**7),
        "points": st.sampled_from([[1], [1, 2, 4], [25, 50], TREE]),
    }
)


@settings(max_examples=15, deadline=None)
@given(CASES, st.floats(-3, 3).map(lambda x: 10**x))
def test_least_sigma_is_certified(case, sensitivity):
    """Certified, not by much, scales with the sensitivity, falls with epsilon."""
    sigma = shuffled_sigma(**case, sensitivity=sensitivity)
    epsilon, rest = case["epsilon"], {key: case[key] for key in ("delta", "n_agents", "points")}
    assert shuffled_epsilon(sigma=sigma, sensitivity=sensitivity, **rest) <= epsilon
    with contextlib.suppress(LemmaError):
        assert shuffled_epsilon(sigma=sigma * (1 - 1e-6), sensitivity=sensitivity, **rest) > epsilon
    assert shuffled_epsilon(sigma=2 * sigma, sensitivity=sensitivity, **rest) <= epsilon
    assert sigma == pytest.approx(sensitivity * shuffled_sigma(**case, sensitivity=1.0), rel=1e-8)
    assert shuffled_sigma(**{**case, "epsilon": 2 * epsilon}, sensitivity=sensitivity) <= sigma * (1 + 1e-8)


@pytest.mark.parametrize("points", [[1], TREE])
def test_more_agents_need_less_noise(points):
    rest = {"epsilon": 1e-3, "delta": 1e-3, "sensitivity": 1.0, "points": points}
    sigmas = [shuffled_sigma(**rest, n_agents=m) for m in (12, 100, 1000, 10**4, 10**5)]
    assert sigmas == sorted(sigmas, reverse=True)


def test_the_violated_condition_is_named():
    """Where the lemma fails: at which level, of how many points, or for want of agents."""
    shuffled = {"sigma": 1e5, "sensitivity": 1.0, "n_agents": 100, "points": [1, 2], "delta": 1e-4}
    with pytest.raises(LemmaError, match="level 1 with n = 50"):
        shuffled_epsilon(**{**shuffled, "sigma": 10.0, "points": [1, 50], "n_agents": 10**6})
    few = {**shuffled, "n_agents": 11}
    with pytest.raises(LemmaError, match="got M = 11"):
        shuffled_epsilon(**few)
    del few["sigma"]
    with pytest.raises(LemmaError, match="got M = 11"):
        shuffled_sigma(epsilon=0.1, **few)
