"""Truncated elimination and randomised response: radii that hold, noise that grows with the level, certificates."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, HORIZON, P
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.algos.arms import radius as radii
from fedbandit_jax.core import wide
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.integers.noise import Asked, LocalNoise, PolyaNoise, ServerNoise

A = fb.algos


@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
def test_the_bias_is_the_largest(order):
    """Of rewards that are 0 or k M / (k - 1); no Pareto law of that moment has more."""
    level = 3.0
    value, often = order / (order - 1) * level, 0.01
    moment = often * value**order
    about = dict(n_arms=2, p=P, moment=moment, order=order, level=level)
    _, radius = radii.truncated([1e30], 0.0, 0.0, **about)
    assert radius[0, 2] == pytest.approx(often * (value - level), rel=1e-6)
    for shape in (1.2 * order, 3 * order):
        least = (moment * (shape - order) / shape) ** (1 / order)
        beyond = stats.pareto(shape, scale=least).expect(lambda x: x - level, lb=max(level, least))
        assert beyond < radius[0, 2]


@pytest.mark.parametrize("trust", ["central", "before", "after"])
def test_intervals_hold(trust):
    """Noisy means of clipped rewards, with all corrupted users below, are inside as often as promised.

    Most are outside of a radius that forgets the corrupted users, and the radius is less than twice the largest error.
    """
    rng, n, runs, share, shape = np.random.default_rng(5), 40_000, 200, 0.1, 2.5
    epsilon = 0.3 if trust == "after" else 1.0  # messages of small epsilon are what corrupted users like
    least = 0.6 * (1 - 1 / shape)
    about = dict(n_arms=2, p=P, moment=shape / (shape - 2) * least**2, order=2.0)
    c = 1 / math.tanh(epsilon / 2)
    s, h = (math.sqrt(2) / epsilon, 1 / epsilon) if trust == "central" else (0.0, 0.0)
    how = {} if trust == "central" else dict(stretch=c, reach=c if trust == "after" else 1.0)
    (level,), radius = radii.truncated([n], s, h, share=share, **about, **how)
    lies = rng.random((runs, n)) < share
    x = np.clip(np.where(lies, -np.inf, least * rng.random((runs, n)) ** (-1 / shape)), -level, level)
    unit = x / (2 * level) + 0.5
    if trust == "central":
        means = unit.mean(1) + rng.laplace(scale=1 / epsilon, size=runs) / n
    else:
        flips = (rng.random(x.shape) < 1 / (1 + math.exp(epsilon))) & ~(lies & (trust == "after"))
        means = (((rng.random(x.shape) < unit) ^ flips).mean(1) - 0.5) * c + 0.5
    errors = np.abs(2 * level * (means - 0.5) - 0.6)
    assert (errors > radius[0, 2]).mean() < 2.5 * P / 2
    assert errors.max() > radius[0, 2] / 2
    _, unaware = radii.truncated([n], s, h, level=level, **about, **how)
    assert np.median(errors) > unaware[0, 2]


def test_noise_grows_with_the_level():
    """Discrete Laplace of scale 2 M / epsilon in units of reward: of the last batch is what is stated."""
    bound = A.TruncatedSE(A.CDPSE(0.5, growth=4)).bind(ARMS.spec, 10**5)
    last = np.flatnonzero(bound.protocol.users).max()
    assert certify(bound).noise_std == pytest.approx(2**0.5 * 2 * bound.level[last] / 0.5, rel=1e-3)
    assert "finite" in certify(bound).adjacency


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
def test_randomised_response_is_certified(epsilon):
    """By the probability that is drawn, rounded up; messages are one bit, and move a sum by c."""
    algo = A.RRSE(epsilon)
    found = algo.certificate(ARMS.spec, 5000)
    assert (found.claim, found.notion, found.trusted) == ("certified", "pure DP", "nobody")
    assert epsilon * (1 - 1e-3) < found.epsilon_exact <= epsilon
    assert found.bits_per_user == (1, 1)
    assert algo.stretch == pytest.approx(1 / math.tanh(epsilon / 2), rel=1e-9)
    q = 1 / (1 + math.exp(epsilon))
    assert found.noise_std == pytest.approx(algo.stretch * math.sqrt(q * (1 - q)), rel=1e-3)
    noise = algo.law.made(Asked(epsilon, 1.0, 0.1, 10), [5])
    assert noise.probability(0) >= q


def test_epsilon_beyond_the_words():
    """From 22.2 on a flip is as rare as a word of 32 bits. Below 1e-7 the coin is fair."""
    bound: Any = A.RRSE(100.0).bind(ARMS.spec, 5000)
    assert certify(bound).epsilon_exact == pytest.approx(32 * math.log(2), rel=1e-6)
    noise = bound.protocol.noise
    assert int(jax.jit(lambda noise: noise.words(0))(noise)) == 1
    for tiny in (1e-38, 1e-40, 0.0):  # a compiled program may take them for 0
        forged = dataclasses.replace(noise, size=np.full_like(noise.size, tiny))
        bare = dataclasses.replace(bound, protocol=dataclasses.replace(bound.protocol, noise=forged))
        assert certify(bare).claim == "none"


@pytest.mark.parametrize("kind", [ServerNoise, PolyaNoise, LocalNoise])
def test_noise_that_flips_no_bits_is_refused(kind):
    """It would never be added to a sum of bits."""
    bound: Any = A.RRSE(0.1).bind(ARMS.spec, 1000)
    other = kind(size=np.full(len(bound.protocol.users), 50.0, np.float32))
    found = certify(dataclasses.replace(bound, protocol=dataclasses.replace(bound.protocol, noise=other)))
    assert (found.claim, "flips no bits" in found.reason) == ("none", True)


def test_corrupted_users_are_not_protected(key):
    """The certificate says so, of messages only. Whoever has a finite reward is protected, however large it is."""
    algos = [A.RRSE(1.0, corrupted=where) for where in ("rewards", "messages")]
    for before, after in (algos, [A.TruncatedSE(one, level=1e-3) for one in algos]):
        one, other = (algo.certificate(ARMS.spec, 1000) for algo in (before, after))
        assert one.claim == other.claim == "certified"
        assert len(other.not_covered) == len(one.not_covered) + 1
    bound, flags, n = after.bind(ARMS.spec, 1000), (jnp.ones(1000, bool),) * 2, 2000
    ones = {
        x: int(wide.to_int(bound.collect(key, key, jnp.int32(2), (jnp.full(1000, x, jnp.float32),) * 2, flags)))
        for x in (3e38, np.inf, -3e38, -np.inf, np.nan)
    }
    assert (ones[np.inf], ones[-np.inf]) == (n, 0)
    q = 1 / (1 + math.e)
    for x, mean in ((3e38, 1 - q), (-3e38, q), (np.nan, q)):
        assert abs(ones[x] - n * mean) < 5 * math.sqrt(n * q * (1 - q))


def test_every_bit_of_a_user_has_its_share_of_epsilon():
    algo = A.RRSE(8.0, unit=fb.privacy.Users(visits=4, per_batch=1))
    found = algo.certificate(fb.envs.returning(ARMS, 3000).spec, HORIZON)
    assert found.claim == "certified"
    assert found.epsilon_exact == pytest.approx(8.0, rel=1e-4)
    assert algo.stretch == pytest.approx(1 / math.tanh(1.0))
