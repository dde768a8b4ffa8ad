"""Numbers out of range are refused by name, and extreme ones end in a finite epsilon, whatever function is asked."""

import math

import pytest
from helpers import refused

from fedbandit_jax.core.validate import BadArgument
from fedbandit_jax.privacy.accounting import discrete
from fedbandit_jax.privacy.accounting.conversions import advanced_composition, rdp_epsilon, zcdp_epsilon
from fedbandit_jax.privacy.accounting.events import Gaussian, PureDP, compose
from fedbandit_jax.privacy.accounting.lattice import DiscreteGaussian, DiscreteLaplace, Skellam, shift_epsilon
from fedbandit_jax.privacy.accounting.nearly_gaussian import binomial, discrete_gaussian_epsilon
from fedbandit_jax.privacy.accounting.shuffling import authors_sigma, relaxed_secagg, shuffled_epsilon, shuffled_sigma

INF, NAN = math.inf, math.nan
BAD = (NAN, INF, -INF, -1.0, 1e300)


def binomial_epsilon(**noise):
    return binomial(**noise).epsilon(noise["delta"])


def shifted(shift, delta):
    return shift_epsilon(Skellam(1.0), shift, delta)


def composed(epsilon, delta, slack):
    return advanced_composition([0.1, epsilon], [0.0, delta], slack)


# Functions that no other file asks of every wrong value, their arguments, and what else is out of range.
INTEGERS = {"sensitivity": 1.0, "n_entries": 3, "delta": 0.1}
TREE = {"sensitivity": 1.0, "n_agents": 100, "points": [1, 2], "delta": 1e-4}
CASES = {
    composed: (dict(epsilon=0.1, delta=0.0, slack=0.1), dict(slack=(0, 1))),
    discrete.discrete_laplace_rdp: (dict(shift=1, scale=1.0), dict(shift=(0, 2**62), scale=0.0)),
    discrete.wrapped_discrete_laplace_epsilon: (dict(shift=1, scale=1.0, modulus=8), dict(modulus=(0, 1.5))),
    discrete.skellam_rdp: (dict(shift=1, variance=1.0), dict(variance=0.0)),
    discrete.discrete_gaussian_sum_zcdp: (dict(shift=1, sigma=1.0, n=8), dict(sigma=0.49, n=0)),
    Skellam: (dict(variance=1.0), dict(variance=(0.0, 1e17))),
    DiscreteGaussian: (dict(sigma=1.0), dict(sigma=0.4)),
    DiscreteLaplace: (dict(scale=1.0, n=1), dict(scale=0.0, n=(0, 2**32))),
    shifted: (dict(shift=1, delta=0.1), dict(shift=(0, 10**13), delta=(1.0, -1e-9))),
    discrete_gaussian_epsilon: (dict(INTEGERS, sigma=10.0, n_agents=2), dict(sensitivity=1e5, n_entries=10**40)),
    binomial_epsilon: (dict(INTEGERS, n_trials=1000), dict(n_trials=0, delta=0)),
    shuffled_epsilon: (dict(TREE, sigma=1e5), dict(points=([], [0]), n_agents=10**20, sigma=1e-300)),
    shuffled_sigma: (dict(TREE, epsilon=0.1), dict(delta=0, epsilon=0)),
    authors_sigma: (dict(epsilon=0.1, delta=1e-4, n_agents=100, horizon=1000, n_levels=4), dict(horizon=0)),
    relaxed_secagg: (dict(epsilon=1.0, failure=0.01, n=4, modulus=5), dict(n=(1, 10**20), modulus=(1, 10**40))),
}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_wrong_numbers_are_refused_by_name(function):
    arguments, more = CASES[function]
    function(**arguments)
    for name in arguments:
        wrong = more.get(name, ())
        for value in (*BAD, *(wrong if isinstance(wrong, tuple) else (wrong,))):
            if (function, name, value) == (shuffled_epsilon, "sigma", 1e300):
                continue
            with pytest.raises(BadArgument) as found:
                function(**{**arguments, name: [value] if name == "points" and value != [] else value})
            assert name in found.value.argument, (name, value)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("epsilons", lambda: advanced_composition([], [], 0.1)),
        ("epsilons", lambda: advanced_composition([1.0], [], 0.1)),
        ("deltas", lambda: advanced_composition([1.0, 1.0], [0.5, 0.6], 0.1)),
        ("rdp", lambda: rdp_epsilon(lambda alpha: NAN, 0.1)),
        ("rdp", lambda: rdp_epsilon(lambda alpha: -alpha, 0.1)),
        ("rdp", lambda: rdp_epsilon(lambda alpha: INF, 0.1)),
        ("failure / n", lambda: relaxed_secagg(1.0, 1e-100, 4, 5)),
        (
            "sigma / sqrt(n_agents)",
            lambda: discrete_gaussian_epsilon(sensitivity=1.0, sigma=0.6, n_agents=2, n_entries=3, delta=0.1),
        ),
    ],
)
def test_what_does_not_go_together(argument, call):
    with refused(argument):
        call()


@pytest.mark.parametrize("delta", [1e-300, 0.5, 1 - 1e-12])
def test_extremes_are_finite(delta):
    for event in (Gaussian(1e4), Gaussian(0.0), PureDP(1e6), PureDP(0.0), PureDP(1e-300)):
        for events in ([event], [event, PureDP(1.0)]):
            assert 0 <= compose(events, delta).epsilon < 1e9
    for rho in (0.0, 1e-300, 1e-9, 1e7):
        assert 0 <= zcdp_epsilon(rho, delta) < 1e10
    for sensitivity in (1.0, 1e-300):
        noise = {**INTEGERS, "sensitivity": sensitivity, "delta": delta}
        assert 0 <= discrete_gaussian_epsilon(**noise, sigma=10.0, n_agents=2) < 1e3
        assert 0 <= binomial_epsilon(**noise, n_trials=10**6) < 1e3
    for m, points in ((10**5, [1]), (10**9, [10**6 * 2**level for level in range(29)])):
        tree = {"n_agents": m, "points": points, "delta": max(delta, 1e-280)}
        for epsilon in (1e-9, 1e6):
            assert 0 < shuffled_sigma(epsilon=epsilon, sensitivity=1e-50, **tree) < INF
        assert shuffled_epsilon(sigma=1e300, sensitivity=1.0, **tree) <= 1e-8
    assert zcdp_epsilon(0.0, delta) < 1e-12
    assert authors_sigma(epsilon=1e-4, delta=delta, n_agents=100, horizon=1, n_levels=9) < INF


def test_too_few_trials_prove_nothing():
    for change in ({"n_trials": 10}, {"n_entries": 10**15}):
        assert binomial_epsilon(**{**INTEGERS, "n_trials": 1000, **change}) == INF
