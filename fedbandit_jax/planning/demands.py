"""Demands on a recommendation, and facts about an environment that need no simulation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Environment, Spec
from fedbandit_jax.privacy import Budget, Mechanism, Users
from fedbandit_jax.privacy.mechanism import check_norms
from fedbandit_jax.privacy.statistic import Linear
from fedbandit_jax.privacy.trust import find

ONE_USER = "user"  # unit with contribution bounds chosen by the plan
LET_IN = (1, 4)  # contribution bounds, besides the average number of visits
WATCHED, SPREADS = 1000, 3.0  # rounds to count silos that are away, and standard deviations above their mean


class Party(NamedTuple):
    """A party that users may trust besides their own silo, or the silo alone."""

    trust: str  # trust model that needs no more
    release: str  # release with the least noise
    grows: bool  # whether batches may grow
    words: str


PARTIES = {
    "silo": Party("silo_local", "blt", True, "silos"),
    "shuffler": Party("shuffle_vector_sum", "tree", False, "a shuffler"),
    "secagg": Party("secagg", "blt", True, "secure aggregation"),
    "server": Party("central", "blt", True, "the server"),
}


class Demands(NamedTuple):
    """Demands on a recommendation."""

    spec: Spec
    horizon: int  # T
    budget: Budget
    trusted: tuple[str, ...]  # keys of `PARTIES`
    unit: Any  # as in `Mechanism`, or `ONE_USER`
    max_syncs: int | None
    arms: np.ndarray | None = None  # (K, d) offered to every user in every round, if fixed
    alone: bool = True  # whether returning users arrive one at a time, and can be served separately
    away: int = 0  # silos that may miss a synchronisation, with shares of noise in secure aggregation
    liars: float = 0.0  # share of silos that lie
    sums: bool = False  # whether this is a multi-armed bandit, and algorithms have sums of arms
    at: str = ""  # epsilon, in labels of plans with several budgets


def units(demands: Demands) -> list[Any]:
    """Returns the requested unit or, for `ONE_USER`, several contribution bounds, at most one to a batch."""
    if demands.unit != ONE_USER:
        return [demands.unit]
    often = math.ceil(demands.horizon / demands.spec.n_users)
    silos = demands.spec.silos
    return [
        Users(visits, per_batch=1, silos=silos)
        for visits in sorted({often, *(min(visits, often) for visits in LET_IN)})
    ]


def fixed_arms(env: Environment) -> np.ndarray | None:
    """Returns the arms (K, d) offered to every user in every round; None if worlds or users differ in them."""
    if not env.spec.fixed_contexts:
        return None
    both = jax.random.split(jax.random.key(0))
    offered, _ = jax.jit(jax.vmap(lambda key: env.observe(key, env.init(key), jnp.int32(0))))(both)
    if offered.mask is not None and not np.all(offered.mask):
        return None
    rows = np.concatenate(offered.contexts)
    return rows[0] if (rows == rows[0]).all() else None


def quietest(spec: Spec, trust: Any) -> Linear:
    """Returns the statistic of linear bandits with the least noise under a trust model."""
    if find(trust).needs_users:  # its noise is for unscaled (x y, x x')
        return Linear()
    return Linear(centred=spec.constant, gram_scale=0.5 if spec.constant else 0.5**0.5)


def silos_away(env: Environment) -> int:
    """Returns the number of absent silos to tolerate: the mean over `WATCHED` rounds plus `SPREADS` deviations."""
    if not env.spec.drops:
        return 0
    drawn, rounds = jax.random.key(0), jnp.arange(WATCHED)

    def count(world: Any, t: Any) -> tuple[Any, Any]:
        offered, world = env.observe(jax.random.fold_in(drawn, t), world, t)
        return world, jnp.asarray(offered.away).sum()

    away = np.asarray(jax.jit(lambda: jax.lax.scan(count, env.init(drawn), rounds)[1])())
    return min(math.ceil(away.mean() + SPREADS * away.std()), env.spec.n_agents - 1)


def demanded(
    env: Environment,
    budget: Any,
    horizon: int,
    *,
    at_most: Any,
    trusted: Any,
    unit: Any,
    liars: Any,
    max_syncs: Any,
) -> list[Demands]:
    """Checks arguments of `plan`, and returns the demands for every budget, the smallest epsilon first."""
    spec = env.spec
    check_norms("plan", spec.max_norm)
    budgets = [budget] if isinstance(budget, Budget) else validate.sequence("budget", budget, "fb.privacy.Budget")
    for one in budgets:
        validate.instance("budget", one, Budget, "an fb.privacy.Budget")
    if len({one.epsilon for one in budgets}) < max(1, len(budgets)):
        raise BadValue("budget", "must be at least one, each of another epsilon", budgets)
    if at_most is not None:
        if validate.positive("at_most", at_most) < 1:
            raise BadValue("at_most", "must be >= 1, for the least regret without privacy", at_most)
    elif len(budgets) > 1:
        raise BadValue("budget", "must be one without at_most", budgets, got=f"{len(budgets)}", others=("at_most",))
    names = [trusted] if isinstance(trusted, str) else validate.sequence("trusted", trusted, "names")
    for name in names:
        validate.one_of("trusted", name, PARTIES)
    if unit is None and spec.n_users:
        kinds = f"{ONE_USER!r}, 'visit' or fb.privacy.Users(...)"
        raise BadValue("unit", f"must be given for returning users ({spec.n_users:,} here): {kinds}", None, got="")
    if isinstance(unit, str) and validate.one_of("unit", unit, (ONE_USER, "visit")) == ONE_USER:
        if not spec.n_users:
            raise BadValue("unit", "must be fb.privacy.Users(...) or None if users are not identified", unit)
    else:
        Mechanism(budgets[0], unit=unit)  # checks it
    if max_syncs is not None:
        validate.integer("max_syncs", max_syncs, at_least=1)
    sums = callable(getattr(env, "answers", None))
    demands = Demands(
        spec=spec,
        horizon=horizon,
        budget=budgets[0],
        trusted=("silo", *names),
        unit=unit,
        max_syncs=max_syncs,
        liars=_lying(liars, spec),
        arms=None if sums else fixed_arms(env),
        sums=sums,
        alone=callable(getattr(env, "clusters", None)),
        away=silos_away(env),
    )
    several = sorted(budgets, key=lambda one: one.epsilon)
    return [demands._replace(budget=one, at=f" at epsilon {one.epsilon:g}" * (len(several) > 1)) for one in several]


def _lying(liars: Any, spec: Spec) -> float:
    share = validate.within("liars", liars, 0, 0.5)
    if share == 0:
        return 0.0
    lying = round(share * spec.n_agents)
    if not 0 < 2 * lying < spec.n_agents:
        raise BadValue("liars", f"must be at least one and fewer than half of {spec.n_agents} silos, or 0", liars)
    if spec.drops:
        raise BadValue("liars", "must be 0 with drop-outs, since a median needs all silos", liars)
    return share
