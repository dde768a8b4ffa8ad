"""Thompson sampling by noisy sums equals its pseudo-code user by user, and its certificate counts every sample."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, HORIZON
from helpers import variance_test

import fedbandit_jax as fb
from fedbandit_jax.algos.arms.thompson import paths, phases, spent
from fedbandit_jax.core import wide
from fedbandit_jax.interfaces import certify

A = fb.algos


def most(sizes, n_arms, horizon, squares):
    """The largest sum of squares over all orders of arms, with the changed user in the first phase of arm 0."""
    first, found = sizes[0], 0.0

    def walk(asked, left, total):
        nonlocal found
        found = max(found, total)
        for arm in range(n_arms):
            users = sizes[asked[arm]]
            if users <= left:
                after = [*asked[:arm], asked[arm] + 1, *asked[arm + 1 :]]
                walk(after, left - users, total + squares[after[0] - 1])

    if horizon >= n_arms * first:
        walk([1] * n_arms, horizon - n_arms * first, squares[0])
    return found


@pytest.mark.parametrize(
    ("first", "growth", "n_arms", "horizon"),
    [(2, 1.5, 2, 17), (1, 1, 3, 8), (3, 2, 3, 40), (4, 1, 3, 11), (2, 1.5, 2, 4)],
)
def test_no_order_of_arms_spends_more(first, growth, n_arms, horizon):
    """And the order that spends the most attains the bound, with noise that grows with the users."""
    sizes = phases(first, growth, horizon)
    for squares in (1 / np.cumsum(sizes), 1 / (np.cumsum(sizes) + 100), np.ones(len(sizes))):
        bound = spent(paths(sizes, n_arms, horizon), squares)
        assert bound == pytest.approx(most(sizes, n_arms, horizon, squares), abs=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):  # of any tables it is a bound
        sizes, squares = rng.integers(1, 6, 12), rng.random(12)
        assert spent(paths(sizes, n_arms, 14), squares) >= most(sizes, n_arms, 14, squares) - 1e-12


def test_the_law_of_samples(key):
    """A sample is the mean with a variance of (c (N + 1) + a) / (N + 1)^2, and one tenth more or less is rejected."""
    algo = A.ThompsonArms(1.0, first=30, variance=0.25)
    bound = algo.bind(ARMS.spec, HORIZON)
    state = bound.init(key, ARMS.spec)._replace(asked=np.array([3, 1, 2, 1]), drawn=np.zeros(4, np.float32))
    exact = wide.of([int(s * bound.steps) for s in (20, 25, 10, 7)])
    state, zero = jax.tree.map(jnp.asarray, state._replace(sums=exact)), wide.of([0] * 4)
    after = jax.jit(jax.vmap(lambda key: bound.conclude(key, 0, state, zero)[0]))(jax.random.split(key, 4000))
    phase = np.asarray(after.asked[0]) - 1
    noise = (np.asarray(after.drawn) - [20, 25, 10, 7]) / (np.asarray(bound.std)[phase] / bound.steps)
    assert variance_test(noise.ravel()) > 1e-3
    assert variance_test(noise.ravel() * 1.05) < 1e-9
    variance, users = (np.asarray(bound.std) / bound.steps) ** 2, np.cumsum(bound.sizes)
    np.testing.assert_allclose(np.diff(variance)[:8], 0.25 * np.diff(users)[:8], rtol=1e-4)
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.08  # five standard errors


def test_certificate_is_of_the_samples():
    """Mu by hand for a horizon that lets arms have one more phase; the variance decides, and not the recipe."""
    bound = A.ThompsonArms(1.0, delta=0.01, first=10, growth=2).bind(ARMS.spec, 70)  # one more phase, of 10, for three
    std = np.asarray(bound.std, float) / bound.steps
    mu = math.sqrt(max(4 / std[0] ** 2, 3 / std[0] ** 2 + 1 / std[1] ** 2))
    found = certify(bound)
    assert found.releases == 4
    assert found.sensitivity / found.noise_std == pytest.approx(mu)
    assert found.epsilon_exact == pytest.approx(fb.privacy.gaussian_epsilon(mu, 0.01), rel=1e-6)
    half = certify(bound.replace(std=bound.std / np.float32(2**0.5)))
    assert half.claim == "none"
    assert half.epsilon_exact == pytest.approx(fb.privacy.gaussian_epsilon(mu * 2**0.5, 0.01), rel=1e-6)


def test_without_privacy_it_is_thompson_sampling(key):
    """At a large epsilon nothing is added: the variance is c / (N + 1), and its own epsilon is stated."""
    for how in ("constant", "factor"):
        algo = A.ThompsonArms(20.0, first=1000, inflate=how)
        bound = algo.bind(ARMS.spec, 10**5)
        users = np.cumsum(phases(1000, algo.growth, 10**5))
        np.testing.assert_allclose(bound.std[: len(users)] / bound.steps, np.sqrt((users + 1) / 4), rtol=1e-6)
        assert certify(bound).claim == "certified"
        assert 0 < certify(bound).epsilon_exact < 5


@pytest.mark.parametrize(
    ("sums", "first"), [(A.SE(), 100), (A.CDPSE(0.1), 600), (A.LDPSE(1.0), 3600), (A.CDPSE(1e-6), 12_500)]
)
def test_first_users_outweigh_the_noise(sums, first):
    """The standard deviation of a first noisy mean is root 2 / 60, unless half of the horizon would not do."""
    bound, sizes = A.PhasedThompson(sums).bind(ARMS.spec, 100_000), phases(first, 1.5, 100_000)[:5]
    np.testing.assert_array_equal(bound.users[: len(sizes)], sizes)
    std = bound.protocol.stds()[0] / first
    assert std <= 2**0.5 / 60 * 1.01 or first == 12_500
