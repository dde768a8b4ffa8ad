"""Upper confidence bounds of arms by their features alone, as `choose` evaluates them one arm after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from fedbandit_jax.core import ridge
from fedbandit_jax.core.backend import UNROLL_DIM
from fedbandit_jax.core.ridge import Posterior


class Own(NamedTuple):
    """What agents know in a round, as `optimism` reads it."""

    posterior: Posterior  # A = 1 or A = M
    width: Float[Array, ""] | Float[Array, " A"]  # beta_t, A = 1 or A = M


def optimism(own: Any, x: Sequence[Array] | Array) -> Array:
    """Returns the upper confidence bound <x, theta> + beta sqrt(x' V^-1 x) of vectors with these d features.

    `own` is an `Own`, whose arrays may have more axes after that of the agents.
    """
    width_sq = jnp.maximum(ridge.form(x, own.posterior.inverse), 0)
    theta = own.posterior.theta
    mean = ridge.dot(x, list(theta) if len(x) <= UNROLL_DIM else theta)
    return mean + own.width * jnp.sqrt(width_sq)


def one(own: Own, agent: Int[Array, ""]) -> Own:
    """The knowledge of one agent."""
    return Own(ridge.one(own.posterior, agent), own.width if own.width.size == 1 else own.width[agent])
