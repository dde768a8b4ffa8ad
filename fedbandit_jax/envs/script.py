"""A world written down in advance: every context and every answer. For tests, audits and counterexamples."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import struct, validate
from fedbandit_jax.interfaces import Feedback, Round, Spec


@struct.pytree
class Script:
    """See `script`. The world is the round number; rounds past the script repeat its last one."""

    contexts: Any  # (T, M, K, d)
    answers: Any  # (T, M, K)
    means: Any  # (T, M, K)
    spec: Spec = struct.static()

    def init(self, key: Array) -> Array:
        """Round 0."""
        del key
        return jnp.int32(0)

    def observe(self, key: Array, world: Array, t: Array) -> tuple[Round, Array]:
        """Round t of the script."""
        del key, world
        t = jnp.minimum(jnp.asarray(t, jnp.int32), len(self.contexts) - 1)
        return Round(jnp.asarray(self.contexts)[t]), t

    def pull(self, key: Array, world: Array, offered: Round, arms: Array) -> Feedback:
        """The answers written down for the arms played."""
        del key, offered

        def played(table):
            return jnp.take_along_axis(table, arms[:, None], 1)[:, 0]

        means = jnp.asarray(self.means)[world]
        return Feedback(played(jnp.asarray(self.answers)[world]), means.max(1) - played(means))


def script(contexts: Any, answers: Any, means: Any = None, *, fixed_contexts: bool = False) -> Script:
    """What every user would be offered and would answer, round by round. Nothing is random.

    Args:
        contexts: feature vectors, (T, M, K, d).
        answers: the reward of every arm, (T, M, K).
        means: what regret is scored on, (T, M, K); default: the answers.
        fixed_contexts: promise that all rounds offer the same.

    Raises:
        ValueError: naming the argument and its shape.

    Example:
        >>> env = script([[[[1.0, 0.0], [0.0, 1.0]]]], [[[0.0, 1.0]]])
        >>> env.spec.n_agents, env.spec.n_arms, env.spec.dim, env.spec.max_norm
        (1, 2, 2, 1.0)
    """
    contexts = validate.finite_array("contexts", contexts, ndim=4)
    answers = np.asarray(answers, np.float32)
    means = answers if means is None else np.asarray(means, np.float32)
    for name, table in (("answers", answers), ("means", means)):
        if table.shape != contexts.shape[:3]:
            raise ValueError(f"{name} must have shape {contexts.shape[:3]} as contexts do, got {table.shape}")
    _, m, k, d = contexts.shape
    spec = Spec(
        n_agents=m,
        n_arms=k,
        dim=d,
        fixed_contexts=validate.boolean("fixed_contexts", fixed_contexts),
        max_norm=float(np.linalg.norm(contexts, axis=-1).max()),
        rewards_in_unit=bool((answers >= 0).all() and (answers <= 1).all()),
    )
    return Script(contexts=contexts, answers=answers, means=means, spec=spec)
