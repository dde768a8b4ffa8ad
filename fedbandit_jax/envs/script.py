"""An environment in which every context and every answer is given in advance, for tests, audits and counterexamples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float, Int, Key, Real, Shaped

from fedbandit_jax.core import struct, validate
from fedbandit_jax.interfaces import Feedback, Round, Spec


@struct.pytree
class Script:
    """Contexts and answers that are given round by round; made by `script`.

    The world is the number of the round; later rounds repeat the last one of the script.
    """

    contexts: Float[Array | np.ndarray, "T M K d"]  # feature vectors offered
    answers: Float[Array | np.ndarray, "T M K"]  # reward of every arm
    means: Float[Array | np.ndarray, "T M K"]  # what regret is computed from
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Returns the number of the first round, 0."""
        return jnp.int32(0)

    def observe(
        self, key: Key[Array, ""], world: Int[Array, ""], t: Int[ArrayLike, ""]
    ) -> tuple[Round, Int[Array, ""]]:
        """Offers the contexts of round t of the script, or of its last one."""
        t = jnp.minimum(jnp.asarray(t, jnp.int32), len(self.contexts) - 1)
        return Round(jnp.asarray(self.contexts)[t]), t

    def pull(self, key: Key[Array, ""], world: Int[Array, ""], offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Returns the given answers of the arms played, and their gaps."""

        def played(table):
            return jnp.take_along_axis(table, arms[:, None], 1)[:, 0]

        means = jnp.asarray(self.means)[world]
        return Feedback(played(jnp.asarray(self.answers)[world]), means.max(1) - played(means))


def script(
    contexts: Real[Array | np.ndarray, "T M K d"] | Sequence[Any],
    answers: Shaped[Array | np.ndarray, "T M K"] | Sequence[Any],
    means: Shaped[Array | np.ndarray, "T M K"] | Sequence[Any] | None = None,
    *,
    fixed_contexts: bool = False,
) -> Script:
    """Environment that offers given contexts and gives given answers, round by round; nothing in it is random.

    Args:
        contexts: feature vectors offered, an array or nested lists; rounds after the first T repeat the last one.
        answers: the reward of every arm.
        means: the mean rewards that regret is computed from; by default the answers.
        fixed_contexts: promise that all rounds offer the same contexts.

    Raises:
        ValueError, TypeError: an array is not finite, shapes disagree, or `fixed_contexts` is not a bool.

    Example:
        >>> env = script([[[[1.0, 0.0], [0.0, 1.0]]]], [[[0.0, 1.0]]])
        >>> env.spec.n_agents, env.spec.n_arms, env.spec.dim, env.spec.max_norm
        (1, 2, 2, 1.0)
    """
    contexts = validate.finite_array("contexts", contexts, ndim=4)
    if not contexts.size:
        raise ValueError(f"contexts must have at least one entry along every axis, got shape {contexts.shape}")
    answers = validate.finite_array("answers", answers, ndim=3)
    means = answers if means is None else validate.finite_array("means", means, ndim=3)
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
