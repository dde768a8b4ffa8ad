"""A release is the matrix it says it is, and its noise has the law it says it has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import scripted
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.privacy import RELEASES
from fedbandit_jax.privacy.noise import symmetric_gaussian
from fedbandit_jax.privacy.releases import make
from fedbandit_jax.process import RoundProcess

ALPHA = 1e-6  # chance that a correct mechanism fails one law test; keys are fixed


def materialise(release):
    """B: feed the recurrence unit vectors."""
    n = release.n_syncs

    def step(state, k):
        prefix, state = release.step(state, k + 1, jnp.eye(n)[k])
        return state, prefix

    return np.asarray(jax.lax.scan(step, release.init((n,)), jnp.arange(n))[1])


@pytest.mark.parametrize("name", RELEASES)
def test_matrix(name):
    """B C = prefix sums, row norms of B = prefix_variance, column norms of C <= sensitivity: S = 1 .. 40."""
    for n in range(1, 41):
        release = make(name, n)
        b, c = materialise(release), release.encoder()
        np.testing.assert_allclose(b @ c, np.tril(np.ones((n, n))), atol=1e-6)
        np.testing.assert_allclose((b**2).sum(1), release.prefix_variance(), atol=1e-6)
        assert (c**2).sum(0).max() == pytest.approx(release.sensitivity_sq())


def test_tree_by_definition():
    """Algorithm 2: node k sums the last 2^ctz(k) batches; prefix k adds the nodes at the one-bits of k."""
    release = make("tree", 13)
    c, b = release.encoder(), materialise(release)
    assert [int(row.sum()) for row in c] == [1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1, 4, 1]
    assert [sorted(np.flatnonzero(row) + 1) for row in b[[6, 10, 12]]] == [
        [4, 6, 7],
        [8, 10, 11],
        [8, 12, 13],
    ]
    assert [make("tree", s).sensitivity_sq() for s in (1, 2, 3, 4, 7, 8, 400)] == [1, 2, 2, 3, 3, 4, 9]


def test_symmetric_gaussian_law(key):
    """Diagonal and bias N(0, 1), off-diagonal N(0, 1/2), all independent; an 8 % wrong scale is rejected."""
    n, d = 40_000, 4
    draws = np.asarray(jax.vmap(symmetric_gaussian, (0, None))(jax.random.split(key, n), d), float)
    np.testing.assert_array_equal(draws[..., :d], np.swapaxes(draws[..., :d], 1, 2))
    upper = [draws[:, i, j] for i in range(d) for j in range(i, d)]
    scale = [1.0 if i == j else np.sqrt(0.5) for i in range(d) for j in range(i, d)]
    columns = np.stack(upper + [draws[:, i, d] for i in range(d)]) / np.array(scale + [1.0] * d)[:, None]
    for column in columns:
        assert stats.kstest(column, "norm").pvalue > ALPHA
        assert stats.kstest(1.08 * column, "norm").pvalue < ALPHA
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() < 6 / np.sqrt(n)


def variance_test(sample, variance):
    """Two-sided chi-square p-value that a zero-mean Gaussian sample has this variance."""
    p = stats.chi2(len(sample)).cdf((sample**2).sum() / variance)
    return 2 * min(p, 1 - p)


def released_noise(algo, n_syncs, key, n_runs, **changes):
    """Noise found in the statistics that decide: theta and V of real runs on users with x = 0, at each sync."""
    env = scripted(np.zeros((2 * n_syncs, 3, 2, 2)), np.zeros((2 * n_syncs, 3, 2)))
    bound = algo.bind(env.spec, 2 * n_syncs).replace(**changes)
    process = RoundProcess(env=env, algo=bound, horizon=2 * n_syncs)

    def run(key):
        def body(carry, k):
            world, state, _ = process.step(key, *carry, k)
            v = jnp.linalg.inv(state.posterior.inverse[..., 0])
            gram = v - bound.regularization * jnp.eye(2)
            return (world, state), jnp.concatenate([gram.ravel(), v @ state.posterior.theta[:, 0]])

        return jax.lax.scan(body, process.init(key), jnp.arange(n_syncs))[1]

    noise = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(key, n_runs)), float)
    return noise, bound  # (n_runs, S, 6): n00, n01, n10, n11, n0, n1


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("lazy", [True, False])
def test_noise_is_in_the_statistics_that_decide(key, name, lazy):
    """At sync k the server's sums carry M popcount(k) sigma_0^2, fresh per release; a wrong sigma is rejected."""
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), batch=2, release=name, lazy=lazy)
    noise, bound = released_noise(algo, 7, key, 4000)
    sigma = algo.calibrate(14).sigma
    assert bound.noise_std == pytest.approx(np.sqrt(3) * sigma, rel=1e-5)
    for k in range(1, 8):
        for entry, share in ((0, 1.0), (1, 0.5), (3, 1.0), (4, 1.0), (5, 1.0)):
            sample = noise[:, k - 1, entry]
            variance = share * 3 * sigma**2 * k.bit_count()
            assert variance_test(sample, variance) > ALPHA, (k, entry)
            assert variance_test(sample, variance * 1.1**2) < ALPHA * 100  # 10 % more would be seen
            assert variance_test(sample, variance / 1.2**2) < ALPHA  # and 20 % too little
    # prefixes 4 and 5 share node 4; prefix 3 = nodes 2 + 3 shares nothing with prefix 4
    correlation = np.corrcoef(noise[:, :, 0].T)
    tolerance = 6 / np.sqrt(4000)
    assert correlation[2, 3] == pytest.approx(0, abs=tolerance)
    assert correlation[3, 4] == pytest.approx(np.sqrt(1 / 2), abs=tolerance)


def test_controls_are_caught(key):
    """The same test rejects: no noise at all, half the scale, one silo's noise instead of M."""
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), batch=2)
    sigma = algo.calibrate(8).sigma
    for broken in (0.0, np.sqrt(3) * sigma / 2, sigma):
        noise, _ = released_noise(algo, 4, key, 1000, noise_std=np.float32(broken))
        assert variance_test(noise[:, 0, 0], 3 * sigma**2) < ALPHA
