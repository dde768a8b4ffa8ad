"""Offers as functions of arm and agent, and optimistic scores of arms by their features alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from fedbandit_jax.core import ridge
from fedbandit_jax.core.backend import UNROLL_DIM
from fedbandit_jax.core.ridge import Posterior


class Offer(NamedTuple):
    """Arms offered in a round, as functions of `shared` and elementwise of (arm, agent)."""

    draw: Callable[[Any, Array, Array], Sequence[Array]]  # (shared, arm, agent), uint32 -> the d features
    mean: Callable[[Any, Sequence[Array]], Array]  # (shared, the d features) -> mean reward
    shared: Any  # pytree of arrays, equal for all agents


class Scorer(NamedTuple):
    """Posteriors and confidence widths of agents in a round, which score an arm by its features alone."""

    posterior: Posterior  # A = 1 or A = M
    width: Float[Array, ""] | Float[Array, " A"]  # beta_t, A = 1 or A = M

    def worth(self, x: Sequence[Array] | Array) -> Array:
        """Returns upper confidence bounds <x, theta> + beta sqrt(x' V^-1 x) of vectors with these d features.

        The arrays may have more axes after the agents' axis.
        """
        width_sq = jnp.maximum(ridge.form(x, self.posterior.inverse), 0)
        theta = self.posterior.theta
        mean = ridge.dot(x, list(theta) if len(x) <= UNROLL_DIM else theta)
        return mean + self.width * jnp.sqrt(width_sq)

    def one(self, agent: Int[Array, ""]) -> Scorer:
        """Returns the posterior and confidence width of one agent."""
        return Scorer(ridge.one(self.posterior, agent), self.width if self.width.size == 1 else self.width[agent])
