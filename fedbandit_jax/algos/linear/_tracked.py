"""Every agent's own matrix V_i, followed by rank-one updates: inverse, estimate and log-determinant."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedbandit_jax.algos.linear._local import Record
from fedbandit_jax.core import ridge
from fedbandit_jax.core.ridge import Posterior

REFRESH = 1000  # rank-one updates that float32 bears between two Cholesky solves


class Tracked(NamedTuple):
    """A regularised Gram matrix of every agent since the last synchronisation."""

    posterior: Posterior  # A = M
    gained: Array  # (M,) its log det, less that of the V all started from


def follow(tracked: Tracked | None, record: Record) -> Tracked | None:
    """One more row of every agent."""
    if tracked is None:
        return None
    gain = ridge.gain(tracked.posterior, record.x, record.y)
    return Tracked(ridge.update(tracked.posterior, gain), tracked.gained + jnp.log1p(gain.leverage))


def again(v: Array, bias: Array, shift: Array, own: Tracked, shifted: Tracked | None) -> tuple[Tracked, Tracked | None]:
    """Inverses of V_i (M, d, d) and V_i + c_i I by Cholesky, with biases (M, d), in one solve: see `_estimate`.

    Their log-determinants stay as they were tracked: their errors are smaller than those of a difference of two.
    """
    m, d = bias.shape
    if shifted is not None:
        v = jnp.concatenate([v, v + shift[:, None, None] * jnp.eye(d)])
        bias = jnp.concatenate([bias, bias])
    solved, ok = ridge.solve(v, bias)

    def fresh(old: Tracked, first: int) -> Tracked:
        mine = slice(first, first + m)
        return old._replace(posterior=ridge.where(ok[mine], ridge.agents(solved, mine), old.posterior))

    return fresh(own, 0), None if shifted is None else fresh(shifted, m)
