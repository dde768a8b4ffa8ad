"""The noise of every prefix has the law its release says it has, alone and inside a private algorithm."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, silent, variance_test
from scipy import stats
from test_matrices import decoder

import fedbandit_jax as fb
from fedbandit_jax.core import ridge
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.packing import packed_size, unpack
from fedbandit_jax.privacy.releases import RELEASES, make

ALPHA = 1e-6  # chance that a correct mechanism fails one law test; keys are fixed
N = 50_000
RUNS = 4000


def drawn(release, key, way):
    """Noise of all prefixes, (S, N): from one draw per synchronisation, or from messages of noise alone."""
    n = release.n_syncs
    shape, recurrence = ((N,), release.step) if way == "step" else ((release.n_parts, N), release.decode)

    def step(state, k):
        noise, state = recurrence(state, k, jax.random.normal(jax.random.fold_in(key, k), shape))
        return state, noise

    return np.asarray(jax.jit(lambda ks: jax.lax.scan(step, release.init((N,)), ks)[1])(np.arange(1, n + 1)))


@pytest.mark.parametrize("way", deep(["step", "decode"], keep={1}))
@pytest.mark.parametrize("name", RELEASES)
def test_law(key, name, way):
    """Variance of every prefix, and all correlations between prefixes; 5 % more or less is eight standard errors."""
    release = make(name, 12)
    noise, variance = drawn(release, key, way), release.prefix_variance()
    for sample, v in zip(noise, variance):
        assert variance_test(sample, v) > ALPHA
        assert variance_test(sample, 1.05 * v) < ALPHA
        assert variance_test(sample, v / 1.05) < ALPHA
    matrix = decoder(release)
    expected = matrix @ matrix.T / np.sqrt(np.outer(variance, variance))
    np.testing.assert_allclose(np.corrcoef(noise), expected, atol=6 / np.sqrt(N))


@pytest.mark.slow
def test_symmetric_gaussian_law(key):
    """Diagonal and bias N(0, 1), off-diagonal N(0, 1/2), all independent; an 8 % wrong scale is rejected."""
    n, d = 30_000, 4
    draws = np.asarray(jax.jit(lambda: unpack(jax.random.normal(key, (n, packed_size(d))), d))(), float)
    np.testing.assert_array_equal(draws[..., :d], np.swapaxes(draws[..., :d], 1, 2))
    upper = [draws[:, i, j] for i in range(d) for j in range(i, d)]
    scale = [1.0 if i == j else np.sqrt(0.5) for i in range(d) for j in range(i, d)]
    columns = np.stack(upper + [draws[:, i, d] for i in range(d)]) / np.array(scale + [1.0] * d)[:, None]
    for column in columns:
        assert stats.kstest(column, "norm").pvalue > ALPHA
        assert stats.kstest(1.08 * column, "norm").pvalue < ALPHA
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() < 6 / np.sqrt(n)


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


def released_noise(bound, env, horizon, key):
    """Noise found in the statistics that decide: theta and V of real runs on users with x = 0, at each sync."""
    process = RoundClock(env=env, algo=bound, horizon=horizon)
    return np.asarray(
        statistics_of(process, np.arange(bound.n_syncs), jax.random.split(key, RUNS)), float
    )  # (n, S, 6): n00, .., n11, n0, n1


def private(n_syncs, *, learns=False, **options):
    """(algorithm bound to 3 silos whose users all have x = 0, environment, horizon) with batches of 2."""
    horizon = 2 * n_syncs
    env = fb.envs.script(np.zeros((horizon, 3, 2, 2)), np.zeros((horizon, 3, 2)))
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), **options)
    algo = fb.algos.private_fed_lin_ucb(mechanism, schedule=2, learns_in_batch=learns)
    return algo.bind(env.spec, horizon), env, horizon


CASES = [(name, options) for name in RELEASES for options in ({}, {"messages": True}, {"learns": True})]
IN_RUNS = [("blt", {})]  # by default; `test_law` has all releases


@pytest.mark.parametrize(
    ("name", "options"),  # whether agents learn in the batch, or messages are noised one by one, is nothing to it
    [pytest.param(*case, marks=[pytest.mark.slow] * (case not in IN_RUNS)) for case in CASES],
    ids=str,
)
def test_noise_is_in_the_statistics_that_decide(key, name, options):
    """At sync k the server's sums carry M sigma_0^2 prefix_variance[k]; a wrong sigma is rejected."""
    noise = released_noise(*private(7, release=name, **options), key)
    sigma = fb.privacy.calibrate(fb.privacy.Budget(1.0, 0.1), n_syncs=7, release=name).sigma
    release = make(name, 7)
    for k, variance in enumerate(3 * sigma**2 * release.prefix_variance()):
        for entry, share in ((0, 1.0), (1, 0.5), (3, 1.0), (4, 1.0), (5, 1.0)):
            sample = noise[:, k, entry]
            assert variance_test(sample, share * variance) > ALPHA, (k, entry)
            assert variance_test(sample, share * variance * 1.1**2) < ALPHA * 100  # 10 % more would be seen
            assert variance_test(sample, share * variance / 1.2**2) < ALPHA  # and 20 % too little
    matrix = decoder(release)
    covariance = matrix @ matrix.T
    expected = covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    np.testing.assert_allclose(np.corrcoef(noise[:, :, 0].T), expected, atol=6 / np.sqrt(RUNS))


def test_controls_are_caught(key):
    """The same test rejects: no noise at all, half the scale, one silo's noise instead of M."""
    bound, env, horizon = private(7)
    std = bound.mechanism.trust.std
    alone = std * np.array([1, 0, 0], np.float32)
    for broken in (silent(bound).mechanism.trust.std, std / 2, alone):
        trust = replace(bound.mechanism.trust, std=broken)
        changed = replace(bound, mechanism=replace(bound.mechanism, trust=trust))
        noise = released_noise(changed, env, horizon, key)
        assert certify(changed).claim == "none"  # and by the certificate, which is read from them
        assert variance_test(noise[:, 0, 0], float((std.astype(float) ** 2).sum())) < ALPHA
