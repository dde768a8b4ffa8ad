"""Arguments that do not go together are refused, and extreme ones end in a finite epsilon, whatever is asked."""

import math

import pytest
from helpers import refused

from fedbandit_jax.privacy.accounting import discrete
from fedbandit_jax.privacy.accounting.conversions import advanced_composition, rdp_epsilon, zcdp_epsilon
from fedbandit_jax.privacy.accounting.events import Gaussian, PureDP, compose
from fedbandit_jax.privacy.accounting.lattice import Skellam, shift_epsilon
from fedbandit_jax.privacy.accounting.nearly_gaussian import binomial, discrete_gaussian
from fedbandit_jax.privacy.accounting.shuffling import relaxed_secagg, shuffled_epsilon, shuffled_sigma

INF, NAN = math.inf, math.nan


def binomial_epsilon(**noise):
    return binomial(**noise).epsilon(noise["delta"])


INTEGERS = {"sensitivity": 1.0, "n_entries": 3, "delta": 0.1}


def test_what_does_not_go_together():
    for argument, call in (
        ("epsilons", lambda: advanced_composition([1.0], [], 0.1)),
        ("deltas", lambda: advanced_composition([1.0, 1.0], [0.5, 0.6], 0.1)),
        *(("rdp", lambda at=at: rdp_epsilon(lambda alpha: at * alpha, 0.1)) for at in (NAN, -1.0, INF)),
        ("failure / n", lambda: relaxed_secagg(1.0, 1e-100, 4, 5)),
        ("sigma / sqrt(n_agents)", lambda: discrete_gaussian(sensitivity=1.0, n_entries=3, sigma=0.6, n_agents=2)),
        ("sigma", lambda: discrete.discrete_gaussian_sum_zcdp(1, 0.49, 8)),  # where no bound of the paper holds
        ("shift", lambda: shift_epsilon(Skellam(1.0), 10**13, 0.1)),
    ):
        with refused(argument):
            call()


@pytest.mark.parametrize("delta", [1e-300, 0.5, 1 - 1e-12])
def test_extremes_are_finite(delta):
    for event in (Gaussian(1e4), Gaussian(0.0), PureDP(1e6), PureDP(0.0), PureDP(1e-300)):
        for events in ([event], [event, PureDP(1.0)]):
            assert 0 <= compose(events, delta) < 1e9
    for rho in (0.0, 1e-300, 1e-9, 1e7):
        assert 0 <= zcdp_epsilon(rho, delta) < 1e10
    for sensitivity in (1.0, 1e-300):
        near = discrete_gaussian(sensitivity=sensitivity, n_entries=3, sigma=10.0, n_agents=2)
        assert 0 <= near.epsilon(delta) < 1e3
        noise = {**INTEGERS, "sensitivity": sensitivity, "delta": delta}
        assert 0 <= binomial_epsilon(**noise, n_trials=10**6) < 1e3
    for m, points in ((10**5, [1]), (10**9, [10**6 * 2**level for level in range(29)])):
        tree = {"n_agents": m, "points": points, "delta": max(delta, 1e-280)}
        for epsilon in (1e-9, 1e6):
            assert 0 < shuffled_sigma(epsilon=epsilon, sensitivity=1e-50, **tree) < INF
        assert shuffled_epsilon(sigma=1e300, sensitivity=1.0, **tree) <= 1e-8
    assert zcdp_epsilon(0.0, delta) < 1e-12


def test_too_few_trials_prove_nothing():
    for change in ({"n_trials": 10}, {"n_entries": 10**15}):
        assert binomial_epsilon(**{**INTEGERS, "n_trials": 1000, **change}) == INF
