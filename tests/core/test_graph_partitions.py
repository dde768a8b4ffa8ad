"""The adjusted Rand index is scikit-learn's, in degenerate cases, too."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fedbandit_jax.core import graph

N, M = 24, 6
rand = jax.jit(graph.adjusted_rand, static_argnums=2)
count = jax.jit(graph.n_labels)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, N), st.integers(1, M), st.floats(0, 1), st.integers(0, 10**6))
def test_random_partitions(found, true, right, seed):
    """The truth with some labels drawn anew; names do not matter."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, true, N)
    labels = np.where(rng.random(N) < right, truth, rng.integers(0, found, N))
    labels = rng.permutation(N)[labels]
    np.testing.assert_allclose(rand(labels, truth, M), adjusted_rand_score(truth, labels), atol=2e-6)
    assert count(labels) == len(set(labels.tolist()))


ONE, ALL, HALVES = np.zeros(N, int), np.arange(N), np.arange(N) % 2


@pytest.mark.parametrize(
    ("labels", "truth", "value"),
    [
        (ONE, ONE, 1),
        (ALL, ALL, 1),
        (ONE, ALL, 0),
        (ALL, ONE, 0),
        (ONE, HALVES, 0),
        (ALL, HALVES, 0),
        (HALVES, 1 - HALVES, 1),
        (23 - HALVES, HALVES, 1),
    ],
)
def test_degenerate(labels, truth, value):
    assert rand(labels, truth, N) == value == adjusted_rand_score(truth, labels)


@pytest.mark.parametrize("n", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_few_users(n):
    for labels in np.ndindex(*[n] * n):
        for truth in np.ndindex(*[n] * n):
            found = rand(np.array(labels), np.array(truth), n)
            np.testing.assert_allclose(found, adjusted_rand_score(truth, labels), atol=1e-6)


def test_users_of_every_server_alone():
    """User u is at server u % L: the labels of servers are not compared, and the mean is over servers."""
    truth, labels = np.array([0, 0, 0, 1, 1, 1, 0]), np.array([0, 1, 0, 1, 4, 1, 0])
    mean = jax.jit(graph.mean_adjusted_rand, static_argnums=(2, 3))
    for n_servers in (1, 2, 3):
        alone = [adjusted_rand_score(truth[i::n_servers], labels[i::n_servers]) for i in range(n_servers)]
        np.testing.assert_allclose(mean(labels, truth, 2, n_servers), np.mean(alone), atol=1e-6)
    for out_of_range in (-1, 7, 9):
        assert np.isnan(mean(np.append([6], [*labels[1:-1], out_of_range]), truth, 2, 2))


def test_many_users():
    """Pairs of thousands, in float32."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 20, 5000)
    labels = np.where(rng.random(5000) < 0.7, truth, rng.integers(0, 20, 5000))
    np.testing.assert_allclose(rand(labels, truth, 20), adjusted_rand_score(truth, labels), atol=1e-5)
