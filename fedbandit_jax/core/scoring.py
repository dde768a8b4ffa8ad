"""Scores of arms by their features alone, offers as functions of arm and agent, and optimistic scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from fedbandit_jax.core import ridge
from fedbandit_jax.core.backend import UNROLL_DIM
from fedbandit_jax.core.ridge import Posterior


class Scorer(NamedTuple):
    """The score of an arm by its features alone."""

    worth: Callable[[Any, Sequence[Array] | Array], Array]  # (own, d features) -> index, elementwise in their shape
    own: Any  # pytree of arrays that say what agents know, with agents last: (..., A), (..., 1) or ()
    one: Callable[[Any, Array], Any]  # (own, agent) -> what this agent knows, as if it were all agents


class Offer(NamedTuple):
    """The offer of a round, as functions of `shared` and of (arm, agent), elementwise in the shape of these."""

    draw: Callable[[Any, Array, Array], Sequence[Array]]  # (shared, arm, agent), uint32 -> the d features
    mean: Callable[[Any, Sequence[Array]], Array]  # (shared, the d features) -> mean reward
    shared: Any  # pytree of arrays that are alike for all agents


class Own(NamedTuple):
    """Posteriors and confidence widths of agents in a round, as `optimism` reads them."""

    posterior: Posterior  # A = 1 or A = M
    width: Float[Array, ""] | Float[Array, " A"]  # beta_t, A = 1 or A = M


def optimism(own: Any, x: Sequence[Array] | Array) -> Array:
    """Upper confidence bounds <x, theta> + beta sqrt(x' V^-1 x) of vectors with these d features.

    `own` is an `Own`, whose arrays may have more axes after that of the agents.
    """
    width_sq = jnp.maximum(ridge.form(x, own.posterior.inverse), 0)
    theta = own.posterior.theta
    mean = ridge.dot(x, list(theta) if len(x) <= UNROLL_DIM else theta)
    return mean + own.width * jnp.sqrt(width_sq)


def one(own: Own, agent: Int[Array, ""]) -> Own:
    """The posterior and confidence width of one agent."""
    return Own(ridge.one(own.posterior, agent), own.width if own.width.size == 1 else own.width[agent])
