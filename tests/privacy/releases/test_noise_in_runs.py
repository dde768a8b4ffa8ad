"""The noise of every prefix has the law its release says it has, alone and inside a private algorithm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factors import ALL, ALPHA, SIZE, N, drawn, matrices
from helpers import variance_test

import fedbandit_jax as fb
from fedbandit_jax.core import ridge
from fedbandit_jax.engine.runners import Synchronous

RUNS = 4000
S = 7


@pytest.mark.parametrize("name", ALL)
def test_law(key, name):
    """Variance of every prefix, and all correlations between prefixes; 10 % more or less is ten standard errors."""
    release, _, r = matrices(name, SIZE)
    noise, variance = drawn(release, key), release.prefix_variance()
    for sample, v in zip(noise, variance):
        assert variance_test(sample, v) > ALPHA
        assert variance_test(sample, 1.1 * v) < ALPHA > variance_test(sample, v / 1.1)
    np.testing.assert_allclose(np.corrcoef(noise), correlations(r), atol=6 / np.sqrt(N))


def correlations(r):
    covariance = r @ r.T
    return covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))


@jax.jit
def statistics_of(process, ks, keys):
    """The noise of all runs, by one program for all processes that differ in numbers only."""
    bound = process.algo

    def run(key):
        def body(carry, k):
            world, state, _ = process.step(key, *carry, k)
            posterior = state.belief.posterior
            v = jnp.linalg.inv(ridge.matrices(posterior)[0])
            gram = v - bound.policy.regularization * jnp.eye(2)
            return (world, state), jnp.concatenate([gram.ravel(), v @ posterior.theta[:, 0]])

        return jax.lax.scan(body, process.init(key), ks)[1]

    return jax.vmap(run)(keys)


def released_noise(bound, env, key):
    """Noise found in the statistics that decide: theta and V of real runs on users with x = 0, at each sync."""
    process = Synchronous(env=env, algo=bound, horizon=2 * S)
    found = statistics_of(process, np.arange(bound.n_syncs), jax.random.split(key, RUNS))
    return np.asarray(found, float)  # (n, S, 6): n00, .., n11, n0, n1


def test_noise_is_in_the_statistics_that_decide(key):
    """Of silos whose users have x = 0: the server's sums carry M sigma_0^2 prefix_variance[k], and no other scale."""
    budget, (release, _, r) = fb.privacy.Budget(1.0, 0.1), matrices("blt", S)
    env = fb.envs.script(np.zeros((2 * S, 3, 2, 2)), np.zeros((2 * S, 3, 2)))
    bound = fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(budget, "blt"), schedule=2).bind(env.spec, 2 * S)
    noise = released_noise(bound, env, key)
    sigma = fb.privacy.calibrate(budget, n_syncs=S, release="blt").sigma
    for k, variance in enumerate(3 * sigma**2 * release.prefix_variance()):
        for entry, share in ((0, 1.0), (1, 0.5), (3, 1.0), (4, 1.0), (5, 1.0)):
            sample = noise[:, k, entry]
            assert variance_test(sample, share * variance) > ALPHA, (k, entry)
            assert variance_test(sample, share * variance * 1.1**2) < ALPHA * 100  # 10 % more would be seen
            assert variance_test(sample, share * variance / 1.2**2) < ALPHA  # and 20 % too little
    np.testing.assert_allclose(np.corrcoef(noise[:, :, 0].T), correlations(r), atol=6 / np.sqrt(RUNS))
