"""Agents' own Gram matrices between synchronisations, followed by rank-one updates.

Rounding errors of these updates pile up, so that every agent's inverse is computed anew by Cholesky once in `REFRESH`
rounds. Letters: M agents, of whom n have their turn; d features; V_i the matrix of agent i, and c >= 0 a shift of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import ridge
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.ridge import Posterior

REFRESH = 1000  # most rank-one updates between two Cholesky solves that float32 bears

T = TypeVar("T")


class Tracked(NamedTuple):
    """A regularised Gram matrix of every agent, followed since the last synchronisation."""

    posterior: Posterior  # theta_i and the inverse, A = M
    gained: Array  # (M,) its log det, less log det V


def follow(tracked: Tracked | None, x: Array, y: Array) -> Tracked | None:
    """Adds one row per agent, features x (d, M) and rewards y (M,); None stays None."""
    if tracked is None:
        return None
    gain = ridge.gain(tracked.posterior, x, y)
    return Tracked(ridge.update(tracked.posterior, gain), tracked.gained + jnp.log1p(gain.leverage))


def floor(posterior: Posterior) -> Array:
    """A lower bound on the smallest eigenvalue of the V of a posterior that is shared, A = 1."""
    inverse = ridge.matrices(posterior)[0]  # either norm bounds its largest eigenvalue
    norm = jnp.minimum(jnp.abs(inverse).sum(0).max(), jnp.sqrt((inverse * inverse).sum()))
    return 1 / (1.001 * norm)


class Turn(NamedTuple):
    """The agents whose inverses are computed anew after a round."""

    who: Array | slice  # (n,) int32, or all of M in their order
    place: Array | slice  # (M,) int32: where an agent is among these
    due: Array | bool  # (M,) bool: whether it is


def in_turn(k: Array, n_agents: int, refresh: Callable[[T, Turn], T], state: T, most: int = REFRESH) -> T:
    """The state after round k, where every agent has its turn in `refresh` once in `REFRESH` or `most` rounds.

    On a CPU all have theirs in one round, in a branch. Before a branch a GPU waits until the host has read whether it
    is taken; so there a few agents have their turn after every round.
    """
    period = max(1, min(REFRESH, most))
    if on_cpu():
        everyone = Turn(slice(None), slice(None), True)
        return lax.cond((k + 1) % period == 0, lambda state: refresh(state, everyone), lambda state: state, state)
    n = -(-n_agents // period)
    first = k % period * n  # past the last agent when all have had their turn
    place = jnp.arange(n_agents) - first
    who = jnp.minimum(first + jnp.arange(n), n_agents - 1)
    return refresh(state, Turn(who, jnp.clip(place, 0, n - 1), (place >= 0) & (place < n)))


def add_pending(pending: Array, settled: Array, turn: Turn) -> tuple[Array, Array, Array]:
    """All rows of agents whose turn it is, (n, d, d + 1), and the new `pending` and `settled`, sums (d, d + 1, M)."""
    both = settled + pending
    pending, settled = jnp.where(turn.due, 0, pending), jnp.where(turn.due, both, settled)
    return jnp.moveaxis(both[..., turn.who], 2, 0), pending, settled


def solve_anew(
    v: Array, bias: Array, shift: Array, own: Tracked, shifted: Tracked | None, turn: Turn
) -> tuple[Tracked, Tracked | None]:
    """The posteriors of V_i (n, d, d) and V_i + c_i I, by Cholesky, with biases (n, d) and shifts c (n,).

    Both are found in one solve. Log-determinants stay as they were tracked: their errors are smaller than those of a
    difference of two.
    """
    n, d = bias.shape
    if shifted is not None:
        v = jnp.concatenate([v, v + shift[:, None, None] * jnp.eye(d)])
        bias = jnp.concatenate([bias, bias])
    solved, _, ok = ridge.solve(v, bias)

    def fresh(old: Tracked, first: int) -> Tracked:
        mine = slice(first, first + n)
        new = ridge.agents(ridge.agents(solved, mine), turn.place)
        return old._replace(posterior=ridge.where(ok[mine][turn.place] & turn.due, new, old.posterior))

    return fresh(own, 0), None if shifted is None else fresh(shifted, n)
