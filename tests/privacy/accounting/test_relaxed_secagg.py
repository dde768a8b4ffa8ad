"""What the shuffler shows, by exact convolution of the users' reports."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.privacy.accounting.shuffling import relaxed_secagg

# epsilon, failure, users, modulus
PAIRS = [(0.5, 0.01, 2, 5), (1.0, 0.1, 2, 8), (0.1, 0.01, 2, 2), (4.0, 0.2, 2, 6), (20.0, 0.2, 2, 4), (1.0, 0.9, 2, 3)]
GROUPS = [(1.0, 0.05, 3, 5), (0.3, 0.1, 3, 7), (6.0, 0.05, 3, 11), (1.0, 0.1, 4, 3), (3.0, 0.01, 4, 6)]


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


@pytest.mark.parametrize(("epsilon", "failure", "n", "modulus"), PAIRS[:3])
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


@settings(max_examples=40, deadline=None)
@given(st.floats(-2, 1), st.floats(-8, -0.1), st.integers(2, 50), st.integers(2, 10**6))
def test_half_width_is_the_least(log_epsilon, log_failure, n, modulus):
    secagg = relaxed_secagg(10**log_epsilon, 10**log_failure, n, modulus)
    eta, omega, c = 10**log_epsilon / (n - 1), secagg.omega, secagg.half_width

    def room(c):
        """ln of the largest t(0) that is paid for, over t(0)."""
        t_max = 1 / np.exp(-eta * np.abs(np.arange(-c, c + 1))).sum()
        share = omega / (modulus * (2 * c + 1))
        return math.log(eta * min(share**2 / (2 * t_max), share / 4)) - math.log(t_max) + eta * c

    assert room(c) >= -1e-9
    assert c == 0 or room(c - 1) < 1e-9


@pytest.mark.parametrize(
    ("n", "epsilon", "bits"),
    [
        *((2, 1.0, 25_414), (16, 1.0, 1.07e6), (256, 1.0, 3.72e8), (256, 0.5, 7.5e8), (1024, 1.0, 1.14e10)),
        *((16_384, 1.0, 1.34e13), (2**20, 1.0, 5.52e17)),
    ],
)
def test_bits_of_a_user_of_the_bandit(n, epsilon, bits):
    """Theorem 3 for T = 1e6; twice as many for half the epsilon of the encoding."""
    p, g = 0.5e-6, math.ceil(0.5 * math.sqrt(n))
    modulus = n * g + 2 * math.ceil(g / 0.5 * math.log(2 / p)) + 1
    assert relaxed_secagg(epsilon / 4, p, n, modulus).bits == pytest.approx(bits, rel=0.01)


def test_large_numbers():
    secagg = relaxed_secagg(1e-9, 1e-30, 10**15, 10**30)
    assert secagg.bits == 10**30 * (2 * secagg.half_width + 1) - 1
    assert secagg.half_width < 500 * secagg.scale
    assert relaxed_secagg(1e3, 0.9, 2, 2).half_width <= 1
