"""What a recommendation must meet, and what is read off an environment before anything is tried."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.interfaces import Environment, Spec
from fedbandit_jax.privacy import Budget, Users

ONE_USER = "user"  # the unit that leaves the bounds of her contributions to the plan
LET_IN = (1, 4)  # of her visits, and as many as there are on average
WATCHED, SPREADS = 1000, 3.0  # rounds in which silos that are away are counted, and standard deviations more than that


class Party(NamedTuple):
    """Somebody whom users may trust beside their own silos, or these alone."""

    trust: str  # the trust model that needs no more
    release: str  # the release that has the least noise there
    grows: bool  # whether batches may grow there
    words: str


PARTIES = {
    "silo": Party("silo_local", "blt", True, "silos"),
    "shuffler": Party("shuffle_vector_sum", "tree", False, "a shuffler"),
    "secagg": Party("secagg", "blt", True, "secure aggregation"),
    "server": Party("central", "blt", True, "the server"),
}


class Demands(NamedTuple):
    """What a recommendation must meet."""

    spec: Spec
    horizon: int  # T
    budget: Budget
    trusted: tuple[str, ...]  # keys of `PARTIES`
    unit: Any  # as in `Mechanism`, or `ONE_USER`
    max_syncs: int | None
    max_bits: float | None  # that a silo sends and receives in T rounds
    arms: np.ndarray | None = None  # (K, d) what every round offers to every user, if it is always the same
    alone: bool = True  # whether users who return come one at a time, and may be served by themselves
    away: int = 0  # silos that may miss a synchronisation, for which secure aggregation has shares of noise
    liars: float = 0.0  # share of silos that lie

    def too_often(self, syncs: int) -> str:
        """Excess of synchronisations in words; empty if there is none."""
        most = math.inf if self.max_syncs is None else self.max_syncs
        return f"{syncs:,} synchronisations are more than {most:,}" if syncs > most else ""

    def too_much(self, bits: float) -> str:
        """Excess of communication in words; empty if there is none."""
        most = math.inf if self.max_bits is None else self.max_bits
        return f"{bits:,.0f} bits of a silo are more than {most:,.0f}" if bits > most else ""


def units(demands: Demands) -> list[Any]:
    """The unit that is asked for or, for `ONE_USER`, bounds of her contributions, one to a batch at most."""
    if demands.unit != ONE_USER:
        return [demands.unit]
    often = math.ceil(demands.horizon / demands.spec.n_users)
    silos = demands.spec.silos
    return [
        Users(visits, per_batch=1, silos=silos)
        for visits in sorted({often, *(min(visits, often) for visits in LET_IN)})
    ]


def fixed_arms(env: Environment) -> np.ndarray | None:
    """The arms (K, d) that every round offers to every user, in this order; None if worlds or users differ in them."""
    if not env.spec.fixed_contexts:
        return None
    drawn = []
    for key in jax.random.split(jax.random.key(0)):
        offered, _ = env.observe(key, env.init(key), jnp.int32(0))
        if offered.mask is not None and not bool(jnp.all(offered.mask)):
            return None
        drawn.append(np.asarray(offered.contexts))
    rows = np.concatenate(drawn)
    return rows[0] if (rows == rows[0]).all() else None


def silos_away(env: Environment) -> int:
    """How many silos to be ready to miss: those away in `WATCHED` rounds on average, and `SPREADS` deviations more."""
    if not env.spec.drops:
        return 0
    drawn, rounds = jax.random.key(0), jnp.arange(WATCHED)

    def count(world: Any, t: Any) -> tuple[Any, Any]:
        offered, world = env.observe(jax.random.fold_in(drawn, t), world, t)
        return world, jnp.asarray(offered.away).sum()

    away = np.asarray(jax.jit(lambda: jax.lax.scan(count, env.init(drawn), rounds)[1])())
    return min(math.ceil(away.mean() + SPREADS * away.std()), env.spec.n_agents - 1)
