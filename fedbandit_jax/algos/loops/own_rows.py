"""Agents' own Gram matrices between synchronisations, followed by rank-one updates.

Rounding errors accumulate, so every agent's inverse is recomputed by Cholesky once in `REFRESH` rounds. Letters: M
agents, n of them at a time; d features; V_i the matrix of agent i, and c >= 0 a shift.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import ridge
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.ridge import Posterior

REFRESH = 1000  # most rank-one updates in float32 between two Cholesky solves

T = TypeVar("T")


class Tracked(NamedTuple):
    """The regularised Gram matrix of every agent since the last synchronisation."""

    posterior: Posterior  # theta_i and the inverse, A = M
    gained: Array  # (M,) its log det, less log det V


def follow(tracked: Tracked | None, x: Array, y: Array) -> Tracked | None:
    """Adds one row per agent, features x (d, M) and rewards y (M,); None stays None."""
    if tracked is None:
        return None
    gain = ridge.gain(tracked.posterior, x, y)
    return Tracked(ridge.update(tracked.posterior, gain), tracked.gained + jnp.log1p(gain.leverage))


def floor(posterior: Posterior) -> Array:
    """Returns a lower bound on the smallest eigenvalue of V, for a shared posterior (A = 1)."""
    inverse = ridge.matrices(posterior)[0]  # both norms bound its largest eigenvalue
    norm = jnp.minimum(jnp.abs(inverse).sum(0).max(), jnp.sqrt((inverse * inverse).sum()))
    return 1 / (1.001 * norm)


class Turn(NamedTuple):
    """The agents with recomputed inverses after a round."""

    who: Array | slice  # (n,) int32, or all M in order
    place: Array | slice  # (M,) int32: position of an agent in `who`
    due: Array | bool  # (M,) bool: whether it is in `who`


def in_turn(k: Array, n_agents: int, refresh: Callable[[T, Turn], T], state: T, most: int = REFRESH) -> T:
    """Returns the state after round k. `refresh` runs for every agent once in `REFRESH` or `most` rounds.

    On a CPU it runs for all agents in one round, in a branch. On a GPU a branch waits for the host, so it runs for a
    few agents after every round.
    """
    period = max(1, min(REFRESH, most))
    if on_cpu():
        everyone = Turn(slice(None), slice(None), True)
        return lax.cond((k + 1) % period == 0, lambda state: refresh(state, everyone), lambda state: state, state)
    n = -(-n_agents // period)
    first = k % period * n  # past the last agent at the end of a period
    place = jnp.arange(n_agents) - first
    who = jnp.minimum(first + jnp.arange(n), n_agents - 1)
    return refresh(state, Turn(who, jnp.clip(place, 0, n - 1), (place >= 0) & (place < n)))


def add_pending(pending: Array, settled: Array, turn: Turn) -> tuple[Array, Array, Array]:
    """Returns all rows (n, d, d + 1) of the agents in turn, and the new `pending` and `settled`, sums (d, d + 1, M)."""
    both = settled + pending
    pending, settled = jnp.where(turn.due, 0, pending), jnp.where(turn.due, both, settled)
    return jnp.moveaxis(both[..., turn.who], 2, 0), pending, settled


def solve_anew(
    v: Array, bias: Array, shift: Array, own: Tracked, shifted: Tracked | None, turn: Turn
) -> tuple[Tracked, Tracked | None]:
    """Returns the posteriors of V_i (n, d, d) and V_i + c_i I by Cholesky, with biases (n, d) and shifts c (n,).

    One solve finds both. Log-determinants stay as tracked, which is more accurate than a difference of two.
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
