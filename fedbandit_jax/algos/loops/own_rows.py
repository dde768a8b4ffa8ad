"""Epochs, the times between two synchronisations, and agents' own Gram matrices in them, by rank-one updates.

Rounding errors accumulate, so every agent's inverse is recomputed by Cholesky once in `REFRESH` rounds. Letters: M
agents, n of them at a time, and d features. V is the matrix of the last release, V_i the one of agent i, and c >= 0 a
shift.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import ridge
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.programs import call
from fedbandit_jax.core.ridge import Posterior
from fedbandit_jax.schedules import BoundSchedule

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


def where(which: Array, new: Any, old: Any) -> Any:
    """Selects `new`, a `Tracked` or None, for the agents `which` (M,), and `old` for the others."""
    if new is None:
        return None
    return Tracked(ridge.where(which, new.posterior, old.posterior), jnp.where(which, new.gained, old.gained))


class Turn(NamedTuple):
    """The agents with recomputed inverses after a round."""

    who: Array | slice  # (n,) int32, or all M in order
    place: Array | slice  # (M,) int32: position of an agent in `who`
    due: Array | bool  # (M,) bool: whether it is in `who`


EVERYONE = Turn(slice(None), slice(None), True)


def in_turn(k: Array, n_agents: int, refresh: Callable[[T, Turn], T], state: T, most: int = REFRESH) -> T:
    """Returns the state after round k. `refresh` runs for every agent once in `REFRESH` or `most` rounds.

    On a CPU it runs for all agents in one round, in a branch. On a GPU a branch waits for the host. So it runs for a
    few agents after every round.
    """
    period = max(1, min(REFRESH, most))
    if on_cpu():
        return lax.cond((k + 1) % period == 0, lambda state: refresh(state, EVERYONE), lambda state: state, state)
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
    v: Array, bias: Array, shift: Any, own: Tracked, shifted: Tracked | None, turn: Turn
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


class Epoch(NamedTuple):
    """Epoch between two releases, for a schedule and for agents that learn in it. Unused fields are None."""

    own: Tracked | None  # V_i
    shifted: Tracked | None  # V_i + c I
    settled: Array | None  # (d, d + 1, M) rows from which V_i is recomputed, perhaps with pending ones
    counted: Array | None  # (M,) int32, sums of `count` over users
    memory: Any  # the schedule's
    rounds: Array  # int32

    @classmethod
    def start(
        cls, schedule: BoundSchedule, key: Array, shared: Any, n_agents: int, tracks: bool, shift: Any = None
    ) -> Epoch:
        """Returns the epoch of M agents with the belief `shared`; c = `shift` if the schedule reads V_i + c I."""
        own, shifted, settled, floor = None, None, None, jnp.float32(0)
        if tracks:
            own = Tracked(ridge.tile(shared.posterior, n_agents), jnp.zeros(n_agents))
            settled = jnp.zeros((len(shared.gram), len(shared.gram) + 1, n_agents))
        if shift is not None:
            gram = shared.gram + shift * jnp.eye(len(shared.gram))
            posterior, log_det, _ = ridge.solve(gram[None], jnp.zeros((1, len(gram))))
            gained = jnp.broadcast_to(log_det - shared.log_det, (n_agents,))
            shifted = Tracked(ridge.tile(posterior, n_agents), gained)
        if type(schedule).reads != "nothing":
            inverse = ridge.matrices(shared.posterior)[0]  # both norms bound its largest eigenvalue
            norm = jnp.minimum(jnp.abs(inverse).sum(0).max(), jnp.sqrt((inverse * inverse).sum()))
            floor = 1 / (1.001 * norm)  # of the smallest eigenvalue of V
        counted = jnp.zeros(n_agents, jnp.int32) if type(schedule).reads == "users" else None
        return cls(own, shifted, settled, counted, call(schedule, "start", key, floor), jnp.int32(0))

    def add(self, schedule: BoundSchedule, shared: Any, x: Array, v: Array) -> Epoch:
        """Returns the epoch after a round with features x (d, M) and responses v (M,)."""
        counted = self.counted
        if counted is not None:
            leverage = ridge.gain(shared.posterior, x, v).leverage
            counted = jnp.minimum(counted + call(schedule, "count", self.memory, leverage), 2**29)
        own, shifted = follow(self.own, x, v), follow(self.shifted, x, v)
        return self._replace(own=own, shifted=shifted, counted=counted, rounds=self.rounds + 1)

    def asked(self, schedule: BoundSchedule, key: Array, t: Array) -> Array:
        """Returns which agents ask for a synchronisation after round t."""
        read = self.counted
        if type(schedule).reads == "log_det":
            read = (self.own if self.shifted is None else self.shifted).gained  # pyright: ignore
        return call(schedule, "requests", key, t, self.memory, read, self.rounds)

    def anew(self, shared: Any, rows: Array, shift: Any, turn: Turn) -> Epoch:
        """Returns the epoch with the posteriors of the agents in turn recomputed from their rows (n, d, d + 1)."""
        bias = jnp.matmul(shared.gram, shared.posterior.theta[:, 0], precision="highest") + rows[..., -1]
        shift = None if shift is None else jnp.broadcast_to(shift, rows.shape[:1])
        own, shifted = solve_anew(shared.gram + rows[..., :-1], bias, shift, self.own, self.shifted, turn)  # pyright: ignore
        return self._replace(own=own, shifted=shifted)
