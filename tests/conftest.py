"""Shared fixtures: a persistent compilation cache, and an environment that replays a script."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

CACHE = Path(os.environ.get("FEDBANDIT_TEST_CACHE", Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@fb.pytree
class Scripted:
    """Contexts (T, M, K, d), answers and means (T, M, K) written down in advance; the world is the round number."""

    contexts: np.ndarray
    answers: np.ndarray
    means: np.ndarray
    spec: fb.Spec = fb.static()

    def init(self, key):
        return jnp.int32(0)

    def observe(self, key, world, t):
        t = jnp.minimum(t, len(self.contexts) - 1)  # rounds past the horizon are never recorded
        return fb.Round(jnp.asarray(self.contexts)[t]), jnp.asarray(t, jnp.int32)

    def pull(self, key, world, offered, arms):
        means = jnp.asarray(self.means)[world]
        played = jnp.take_along_axis(means, arms[:, None], 1)[:, 0]
        reward = jnp.take_along_axis(jnp.asarray(self.answers)[world], arms[:, None], 1)[:, 0]
        return fb.Feedback(reward, means.max(1) - played)


def scripted(contexts, answers, means=None, *, rewards_in_unit=True, fixed_contexts=False):
    contexts = np.asarray(contexts, np.float32)
    _, m, k, d = contexts.shape
    spec = fb.Spec(
        n_agents=m,
        n_arms=k,
        dim=d,
        fixed_contexts=fixed_contexts,
        max_norm=float(np.linalg.norm(contexts, axis=-1).max()),
        rewards_in_unit=rewards_in_unit,
    )
    answers = np.asarray(answers, np.float32)
    return Scripted(
        contexts=contexts,
        answers=answers,
        means=answers if means is None else np.asarray(means, np.float32),
        spec=spec,
    )


@pytest.fixture
def key():
    return jax.random.key(20261120)


@pytest.fixture
def script():
    """A small random script: T=60 rounds, M=3 agents, K=7 arms, d=4."""
    rng = np.random.default_rng(7)
    shape = (60, 3, 7, 4)
    contexts = rng.standard_normal(shape)
    contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True) * rng.uniform(1, 2, shape[:-1])[..., None]
    theta = np.array([0.6, -0.5, 0.3, 0.2])
    means = 0.5 + 0.5 * contexts @ theta
    answers = (rng.random(means.shape) < means).astype(float)
    return scripted(contexts, answers, means)
