"""Ties are broken by lot: every one of the best arms is as likely, in all agents and rounds apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from fedbandit_jax.core import lots
from fedbandit_jax.core.ridge import NOWHERE

ROUNDS, AGENTS = 400, 25


def chosen(scores):
    """The arms (ROUNDS, AGENTS) that are played by these scores (K,)."""
    table = jnp.broadcast_to(jnp.asarray(scores, jnp.float32)[:, None], (len(scores), AGENTS))
    keys = jax.random.split(jax.random.key(0), ROUNDS)
    return np.asarray(jax.jit(jax.vmap(lambda key: lots.best(key, table)))(keys))


TIES = {
    "nothing known": np.zeros(7),
    "infinite": np.full(7, np.inf),
    "some": [3.0, 1.0, 3.0, 3.0, 2.0],
    "rounded": [1.0, 1.0 - 1e-7, 1.0, 0.9999],
    "not offered": [-2.0, -2.0, -np.inf],
    "all of a power of two": np.zeros(8),
}


@pytest.mark.parametrize("scores", TIES.values(), ids=TIES)
def test_the_best_are_equally_likely(scores):
    """By a chi-squared test at 1e-4."""
    arms, best = chosen(scores), np.flatnonzero(np.isclose(scores, np.max(scores), rtol=1e-6))
    counts = np.bincount(arms.ravel(), minlength=len(scores))
    assert set(np.flatnonzero(counts)) == set(best)
    assert chisquare(counts[best]).pvalue > 1e-4
    for one, other in ((arms[:, 1:], arms[:, :-1]), (arms[1:], arms[:-1])):  # neighbours agree no more than by chance
        pairs = np.bincount((one * len(scores) + other).ravel(), minlength=len(scores) ** 2)
        pairs = pairs.reshape(len(scores), -1)[np.ix_(best, best)]
        assert chisquare(pairs.ravel()).pvalue > 1e-4


@pytest.mark.parametrize("cpu", [True, False])
def test_one_best_arm_is_played(cpu, monkeypatch):
    """On every machine; nothing where a score is not a number."""
    monkeypatch.setattr(lots, "on_cpu", lambda: cpu)
    scores = np.random.default_rng(0).normal(size=(100, 300)).astype(np.float32)
    scores[4, 7] = np.nan
    expected = np.where(np.isnan(scores).any(0), NOWHERE, scores.argmax(0))
    np.testing.assert_array_equal(jax.jit(lambda *x: lots.best(*x))(jax.random.key(1), scores), expected)


@pytest.mark.parametrize("n_arms", [1, 2, 3, 255, 256, 257, 2**15, 2**15 + 1])
def test_ties_are_seen_at_every_size(n_arms):
    """One best arm at each end, two neighbours, and all arms: counts and indices share a word of 32 bits."""
    scores = np.full((n_arms, 4), -1.0, np.float32)
    scores[0, 0] = scores[-1, 1] = 0
    scores[-2:, 2] = 0
    scores[:, 3] = 0
    keys = jax.random.split(jax.random.key(2), 40)
    arms = np.asarray(jax.jit(jax.vmap(lambda key: lots.best(key, jnp.asarray(scores))))(keys))
    assert set(arms[:, 0]) == {0}
    assert set(arms[:, 1]) == {n_arms - 1}
    assert set(arms[:, 2]) == set(range(max(n_arms - 2, 0), n_arms))
    assert len(set(arms[:, 3])) >= min(n_arms, 2)
    assert arms.max() < n_arms
