import contextlib
import itertools
import math

import dp_accounting
import numpy as np
import pytest
from helpers import AUTHORS, refused
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit_jax as fb
from fedbandit_jax.privacy import gaussian_mu
from fedbandit_jax.privacy.accounting.shuffling import LemmaError, relaxed_secagg, shuffled_epsilon, shuffled_sigma

TREE = [25 * 2**level for level in range(9)]  # S = 400, B = 25
FIGURE = {"epsilon": 1e-4, "delta": 1e-4, "n_agents": 100}  # Figure 2(a) of the paper, T = 10^4


def test_figure_2a_of_the_paper():
    """The lemma asks for 20 times the noise of plain Gaussian accounting without any shuffler."""
    plain = math.sqrt(9 * 4.5) / gaussian_mu(1e-4, 1e-4)
    lemma = shuffled_sigma(**FIGURE, sensitivity=math.sqrt(4.5), points=TREE)
    assert plain == pytest.approx(1.757e4, rel=1e-3)
    assert lemma == pytest.approx(3.49e5, rel=1e-2)
    use = fb.privacy.trust.Requirement(
        budget=fb.privacy.Budget(1e-4, 1e-4), release=fb.privacy.RELEASES["tree"](400), n_agents=100, batch=25
    )
    released = AUTHORS["shuffle_amplified"](use)
    assert released == pytest.approx(5.53e4, rel=1e-3)
    kappa, t, m, delta, epsilon, log = 9, 10**4, 100, 1e-4, 1e-4, math.log
    code, printed = (log(1 + kappa / (t * delta)), 2 * log(kappa / (t * delta)))  # Theorem 5.3, its constant read as 1
    code, printed = (
        math.sqrt(kappa * log(1 / delta) * one * log(m * kappa / delta) / m) / epsilon for one in (code, printed)
    )
    assert released == pytest.approx(code, rel=1e-12)
    assert code < printed < lemma


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


def test_the_violated_condition_is_named():
    """Where the lemma fails: at which level, of how many points, or for want of agents."""
    rest = {"sensitivity": 1.0, "delta": 1e-4}
    with refused("sensitivity / sigma", 0.1):
        shuffled_epsilon(sigma=10.0, points=[1, 50], n_agents=10**6, **rest)
    for function, noise in ((shuffled_epsilon, {"sigma": 1e5}), (shuffled_sigma, {"epsilon": 0.1})):
        with refused("n_agents", 11):
            function(**noise, points=[1, 2], n_agents=11, **rest)


# What the shuffler shows of relaxed secure aggregation, by exact convolution of the users' reports.

# epsilon, failure, users, modulus
PAIRS = [(0.5, 0.01, 2, 5), (0.1, 0.01, 2, 2), (4.0, 0.2, 2, 6), (1.0, 0.9, 2, 3)]
GROUPS = [(0.3, 0.1, 3, 7), (6.0, 0.05, 3, 11), (3.0, 0.01, 4, 6)]


def report(y, modulus, secagg):
    """Law of the ones one user sends."""
    c = secagg.half_width
    z = np.exp(-np.abs(np.arange(-c, c + 1)) / secagg.scale)
    pmf = np.full(modulus * (2 * c + 1), secagg.omega / (modulus * (2 * c + 1)))
    pmf[y::modulus] += (1 - secagg.omega) * z / z.sum()
    return pmf


def views(inputs, modulus, secagg):
    """modular sum -> laws of the number of ones, for every input with that sum."""
    reports, laws = [report(y, modulus, secagg) for y in range(modulus)], {}
    for users in inputs:
        law = np.ones(1)
        for y in users:
            law = np.convolve(law, reports[y])
        laws.setdefault(sum(users) % modulus, []).append(law)
    return laws


def leak(n, modulus, secagg):
    """Of all inputs of two users; of more, those of 0, 1, m - 1, and random ones."""
    inputs = itertools.product(range(modulus), repeat=n)
    if n > 2:
        random = np.random.default_rng(0).integers(0, modulus, (60, n)).tolist()
        inputs = [*itertools.product((0, 1, modulus - 1), repeat=n), *random]
    return max(np.ptp(np.log(laws), axis=0).max() for laws in views(inputs, modulus, secagg).values())


@pytest.mark.parametrize(("epsilon", "failure", "n", "modulus"), PAIRS + GROUPS)
def test_no_two_inputs_of_a_sum_are_told_apart_and_the_sum_is_told(epsilon, failure, n, modulus):
    """R mod m is the sum with probability (1 - omega)^n, else uniform."""
    secagg = relaxed_secagg(epsilon, failure, n, modulus)
    assert leak(n, modulus, secagg) <= epsilon
    assert secagg.bits == len(report(0, modulus, secagg)) - 1
    right = (1 - secagg.omega) ** n
    assert 1 - right <= failure
    for users in ([0] * n, [modulus - 1] * n, [1, *[0] * (n - 1)]):
        total = sum(users) % modulus
        ((law,),) = views([users], modulus, secagg).values()
        law = np.array([law[y::modulus].sum() for y in range(modulus)])
        expected = np.where(np.arange(modulus) == total, right, 0) + (1 - right) / modulus
        assert law == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "failure", "n", "modulus"), PAIRS[:2])
def test_nothing_is_given_away(epsilon, failure, n, modulus):
    """Controls: the bound is nearly attained, and not kept with half the width, fewer uniform bits or less spread."""
    secagg = relaxed_secagg(epsilon, failure, n, modulus)
    assert leak(n, modulus, secagg) > 0.95 * epsilon
    for change in (
        {"half_width": secagg.half_width // 2},
        {"omega": secagg.omega * 1e-4},
        {"scale": 0.9 * secagg.scale},
    ):
        assert leak(n, modulus, secagg._replace(**change)) > 1.02 * epsilon


@pytest.mark.parametrize(("n", "epsilon", "bits"), [(2, 1.0, 25_414), (256, 0.5, 7.5e8), (2**20, 1.0, 5.52e17)])
def test_bits_of_a_user_of_the_bandit(n, epsilon, bits):
    """Theorem 3 for T = 1e6; twice as many for half the epsilon of the encoding."""
    p, g = 0.5e-6, math.ceil(0.5 * math.sqrt(n))
    modulus = n * g + 2 * math.ceil(g / 0.5 * math.log(2 / p)) + 1
    assert relaxed_secagg(epsilon / 4, p, n, modulus).bits == pytest.approx(bits, rel=0.01)
