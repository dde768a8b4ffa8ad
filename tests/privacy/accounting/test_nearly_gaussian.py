"""Epsilon of integer noise against exact hockey-stick divergences of the integer laws themselves."""

import dataclasses
import math

import numpy as np
import pytest
from divergences import binomial, discrete_gaussian, never_optimistic
from helpers import deep, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedbandit_jax.privacy import compose, events, gaussian_epsilon
from fedbandit_jax.privacy.accounting.nearly_gaussian import NearlyGaussian, discrete_gaussian_xi
from fedbandit_jax.privacy.accounting.nearly_gaussian import binomial as binomial_event
from fedbandit_jax.privacy.accounting.nearly_gaussian import discrete_gaussian as discrete_gaussian_event

SHIFTS = st.lists(st.integers(1, 25), min_size=1, max_size=2)  # of one entry or two


def binomial_epsilon(**noise):
    return binomial_event(**noise).epsilon(noise["delta"])


def discrete_gaussian_epsilon(*, delta, **noise):
    return discrete_gaussian_event(**noise).epsilon(delta)


def check_discrete_gaussian(sigma, n_agents, shifts, **tight):
    rest = {"sensitivity": math.hypot(*shifts), "sigma": sigma, "n_agents": n_agents, "n_entries": len(shifts)}
    p = discrete_gaussian(sigma, n_agents)
    never_optimistic(lambda delta: discrete_gaussian_epsilon(**rest, delta=delta), p, shifts, **tight)


def check_binomial(n, shifts, **tight):
    rest = {"sensitivity": math.hypot(*shifts), "n_trials": n, "n_entries": len(shifts)}
    never_optimistic(lambda delta: binomial_epsilon(**rest, delta=delta), binomial(n), shifts, **tight)


@settings(max_examples=30, deadline=None)
@given(st.floats(3, 10), st.integers(1, 20), SHIFTS)
def test_discrete_gaussian_is_never_optimistic(sigma, n_agents, shifts):
    check_discrete_gaussian(sigma, n_agents, shifts)


@settings(max_examples=30, deadline=None)
@given(st.integers(200, 5000), SHIFTS)
def test_binomial_is_never_optimistic(n, shifts):
    check_binomial(n, shifts)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_large_noise_costs_nearly_what_it_must(mu):
    for sigma in (100, 1000):
        check_discrete_gaussian(sigma, 1, [round(mu * sigma)], slack=0.1, above=0.1)
    for n in (10**5, 10**6):
        check_binomial(n, [round(mu * math.sqrt(n) / 2)], slack=0.1, above=0.1)


def test_a_shift_spread_over_many_entries():
    """64 entries moved by 3 each: the privacy losses of one entry, rounded up to a grid, convolved 64 times."""
    n, entries, step = 2_500, 64, 1e-4
    pmf = binomial(n)
    with np.errstate(divide="ignore"):
        loss = np.log(pmf[:-3]) - np.log(pmf[3:])
    law = np.bincount(np.ceil(loss / step).astype(int) - math.floor(loss.min() / step), weights=pmf[:-3])
    size = 1 << math.ceil(math.log2(entries * len(law)))
    total = np.fft.irfft(np.fft.rfft(law, size) ** entries, size)[: entries * len(law)]
    values = (np.arange(len(total)) + entries * math.floor(loss.min() / step)) * step
    for delta in (0.1, 1e-3, 1e-6):
        epsilon = binomial_epsilon(sensitivity=3 * 8.0, n_trials=n, n_entries=entries, delta=delta)
        assert (total * np.clip(-np.expm1(epsilon - values), 0, 1)).sum() <= delta
        assert epsilon > gaussian_epsilon(24 / 25, delta)


@pytest.mark.parametrize(("n", "entries", "shift", "delta"), [(10**4, 50, 60.0, 0.1), (10**6, 400, 900.0, 1e-6)])
def test_the_bound_of_a_binomial_by_hand(n, entries, shift, delta):
    """*Binomial* and *Smoothing* of the module, where entries above t std are given a ten-thousandth of delta."""
    std, rare = math.sqrt(n) / 2, 1e-4 * delta
    t = math.sqrt(2 * math.log(entries / rare))
    u = (t * std + shift) / (n / 2)
    cubic = math.sqrt(entries) * shift * 2 / 3 * u**3 / (1 - u**2)
    tau = math.sqrt(math.log(2 * entries / 1e-4) / 2) / math.pi
    q = math.exp(-2 * math.pi**2 / (1 / std**2 + 1 / tau**2))
    log_c = math.log1p(2 * q / (1 - q**3)) + 1 / (4 * n)
    mu = shift / std

    def at(r):
        left = (delta - rare) * norm.cdf(r) * math.exp(-entries * log_c)
        return r * tau * mu / std + gaussian_epsilon(mu * math.sqrt(1 + (tau / std) ** 2), left)

    found = binomial_epsilon(sensitivity=shift, n_trials=n, n_entries=entries, delta=delta)
    assert found == pytest.approx(cubic + min(at(k / 2) for k in range(1, 13)), rel=1e-8)


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
def test_sums_of_discrete_gaussians(sigma):
    """Within e^(+-xi) of one discrete Gaussian of the summed parameter."""
    for n_agents in (2, 3, 8):
        total = sigma * math.sqrt(n_agents)
        ratio = discrete_gaussian(total, n_agents) / (one := discrete_gaussian(total))
        assert np.abs(np.log(ratio[one > 1e-9])).max() <= discrete_gaussian_xi(sigma, n_agents) + 1e-6
    k = np.arange(1, 5000)
    assert discrete_gaussian_xi(sigma, 5000) >= 10 * np.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)).sum()


@pytest.mark.parametrize(
    ("agent", "n_agents", "entries", "delta"), [(0.8, 2, 5, 1e-5), (0.7, 10, 20, 1e-2), (1.0, 50, 200, 1e-3)]
)
def test_a_sum_costs_twice_its_distance_in_every_entry(agent, n_agents, entries, delta):
    """Both neighbours may be e^xi off: by 2 D xi more than for one agent's noise of the same size, and a little."""
    size = dict(sensitivity=1.0, sigma=agent * math.sqrt(n_agents), n_entries=entries, delta=delta)
    one, many = (discrete_gaussian_epsilon(**size, n_agents=m) for m in (1, n_agents))
    k = np.arange(1, n_agents)
    xi = 10 * np.exp(-2 * (math.pi * agent) ** 2 * k / (k + 1)).sum()
    assert 2 * entries * xi <= many - one <= 2.3 * entries * xi


def epsilon_of(known):
    return lambda delta: compose(known, delta)


RESPONSE, TELLS = np.array([math.exp(0.7), 1.0]) / (math.exp(0.7) + 1), np.array([1e-3, 0.999, 0.0])
OTHERS = {  # other mechanisms, probabilities of their outcomes for both neighbours, and deltas
    "pure": (events.PureDP(0.7), (RESPONSE, RESPONSE[::-1]), (0.3, 1e-3, 1e-9)),
    "approximate": (events.ApproximateDP(0.0, 1e-3), (TELLS, TELLS[::-1]), (0.3, 0.02, 1.1e-3)),
}
SEVERAL = [(3, 1, (2, 5)), (3, 4, (3, 3)), (2, 1, (1, 2, 2))]


@pytest.mark.parametrize(("sigma", "n_agents", "shifts"), deep(SEVERAL, keep={0}))
def test_several_discrete_gaussians_are_never_optimistic(sigma, n_agents, shifts):
    """Alone and with others."""
    p, size = discrete_gaussian(sigma, n_agents), {"sigma": sigma, "n_agents": n_agents, "n_entries": 1}
    near = [discrete_gaussian_event(sensitivity=s, **size) for s in shifts]
    never_optimistic(epsilon_of(near), p, shifts, slack=0.5 if n_agents == 1 else 1.0, above=0.5)
    for other, outcomes, deltas in OTHERS.values():
        never_optimistic(epsilon_of([*near, other]), p, shifts, others=[outcomes], deltas=deltas)


def test_several_binomials_are_never_optimistic():
    near = [binomial_event(sensitivity=s, n_trials=10_000, n_entries=1, delta=1e-3) for s in (20, 40)]
    tight = {"slack": 0.2, "above": 0.5, "deltas": (0.3, 1e-2, 1e-4, 1e-6)}
    never_optimistic(epsilon_of(near), binomial(10_000), (20, 40), **tight)
    with refused("delta", 1e-7):  # their own deltas are 2e-7
        compose(near, 1e-7)


def test_with_what_is_known_by_its_renyi_divergences():
    """A discrete Gaussian alone is also (s^2 / 2 sigma^2)-zCDP (Canonne, Kamath & Steinke 2020)."""
    near = discrete_gaussian_event(sensitivity=3, sigma=3, n_agents=1, n_entries=1)
    known = [near, events.Renyi(lambda alpha: 0.5 * alpha)]
    never_optimistic(epsilon_of(known), discrete_gaussian(3), (3, 3))


def test_what_proofs_add_is_added_up():
    """3-4-5 by hand; and for each of twelve r, epsilon is what makes the bound of delta equal to delta."""
    near = [NearlyGaussian(0.3, 0.06, 0.2, 0.1, 1e-4), NearlyGaussian(0.4, 0.08, 0.3, 0.2, 2e-4)]
    both = NearlyGaussian.together(near)
    assert dataclasses.astuple(both) == pytest.approx((0.5, 0.1, 0.5, 0.3, 3e-4))
    levels = {r: (1e-2 - 3e-4) * math.exp(-0.5) * norm.cdf(r) for r in np.arange(1, 13) / 2}
    by_hand = min(0.3 + 0.1 * r + gaussian_epsilon(0.5, level) for r, level in levels.items())
    assert both.epsilon(1e-2) == pytest.approx(by_hand, rel=1e-9)
    assert compose(near, 1e-2) == pytest.approx(by_hand, rel=1e-9)
    assert NearlyGaussian.together([]) is None
