"""Cases of schedules: what is learned from when silos synchronise, alone and together with what they release."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax import networks
from fedbandit_jax.algos import Federated, Gossip, Greedy, fed_ucb, private_fed_lin_ucb
from fedbandit_jax.algos.policies.ucb import BoundUCB
from fedbandit_jax.audits._case import Case
from fedbandit_jax.audits._linear import (
    FARTHEST,
    Transcript,
    answer,
    certified,
    farthest_user,
    mechanism_of,
    neighbours,
    spec_of,
)
from fedbandit_jax.core import struct, validate
from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.schedules import UNITS, BoundSchedule, Every, Geometric, PrivateLogDet, Setting, as_schedule

BUDGET = Budget(1.0, 0.1)
QUERIES = 4  # rounds before the last: enough to lose most of what AboveThreshold may lose


def scheduled(algo: Federated | Gossip, *, n_agents: int, horizon: int = 12, name: str) -> Case:
    """Builds a case of all that a certified algorithm with a schedule shows: releases, their rounds, and who asked.

    The pairs are those of `neighbours`. If the schedule reads what agents have seen, in another pair the first user of
    the first silo is Alice or Tracy of `timing`, and nobody else contributes anything.

    Args:
        algo: algorithm with one budget, and a schedule that is not `Every` unless it is `Gossip`.
        n_agents: M.
        horizon: T.
        name: name of the case.

    Raises:
        TypeError: the schedule is `Every`, or there is no single budget.
        ValueError: the algorithm is not certified, or the horizon is shorter than the visits that differ.
    """
    privacy, budget = mechanism_of(algo)
    if isinstance(algo, Federated) and isinstance(algo.schedule, Every):
        raise TypeError(f"algo must have a schedule that is not Every, got {algo.schedule!r}; see fb.audits.linear")
    horizon = validate.integer("horizon", horizon, at_least=privacy.together)
    spec = spec_of(n_agents, constant=privacy.centred)
    bound: Any = algo.bind(spec, horizon)
    certified(bound)
    fixed = bound.schedule.reads == "nothing"
    worst = farthest_user(bound.mechanism) if fixed else FARTHEST
    pairs = neighbours(
        horizon, n_agents, budget.adjacency, privacy.together, farthest=worst, others=answer(bound.mechanism)
    )
    if not fixed:
        pairs = {"Alice or Tracy": alone(horizon, n_agents), **pairs}
    return Case.of(
        pairs,
        name=name,
        mechanism=Transcript(algo=bound, spec=spec, horizon=horizon),
        epsilon=budget.epsilon,
        delta=budget.delta,
        gaussian=fixed,
        fixed_control_flow=fixed,
    )


def timing(algo: Federated, *, n_agents: int = 2, horizon: int = 4, name: str) -> Case:
    """Builds a case of timing alone, i.e. after which rounds silos synchronise: Example 3.1 of Zhou & Chowdhury (2024).

    The first user of the first silo is Alice with x = (1, 0), or Tracy with x = 0; nobody else contributes anything.
    Whatever is claimed must hold for this, too. Arguments are those of `scheduled`; any schedule will do.
    """
    _, budget = mechanism_of(algo)
    spec = spec_of(n_agents)
    whole = Transcript(algo=algo.bind(spec, horizon), spec=spec, horizon=horizon)
    (*data, _), (*neighbour, _) = alone(horizon, n_agents)

    def mechanism(key: Array, data: tuple[Array, Array]) -> Any:
        shown, rounds = whole(key, data)
        return rounds, shown[2] if isinstance(shown, tuple) else ()  # who asked; nobody with a fixed batch

    pure = float(as_schedule(algo.schedule).pure(budget.epsilon))
    return Case(
        name=name,
        mechanism=mechanism,
        data=tuple(data),
        neighbour=tuple(neighbour),
        which="Alice or Tracy",
        epsilon=pure or budget.epsilon,
        delta=1e-6 if pure else budget.delta,
    )


def brink(algo: Federated, *, n_agents: int = 2, horizon: int = 4) -> float:
    """Returns the threshold D with which Alice of `timing` makes her silo ask after round 1, and Tracy does not.

    It is half of Alice's g_i = ln(1 + 1 / lambda), by which she alone raises her silo's log-determinant.

    Raises:
        TypeError: the policy has no regulariser of its own, as `UCB` and `LogDetUCB` have.
    """
    validate.instance("algo", algo, Federated, "an fb.algos.Federated")
    policy: Any = algo.bind(spec_of(n_agents), horizon).policy
    if not isinstance(policy, BoundUCB):
        raise TypeError(f"algo must have a policy UCB or LogDetUCB, got {validate.shown(algo.policy)}")
    return math.log1p(1 / float(policy.first_regularization)) / 2


def alone(horizon: int, n_agents: int) -> tuple[Any, Any]:
    """Returns data of `Transcript` in which the first silo's first user has x = (1, 0), or x = 0 like all others."""
    contexts, answers = (np.zeros(shape, np.float32) for shape in ((horizon, n_agents, 2, 2), (horizon, n_agents, 2)))
    one, seen = contexts.copy(), np.ones((horizon, n_agents), bool)
    one[0, 0], seen[0, 0] = (1, 0), False
    return (one, answers + 1, seen), (contexts, answers + 1, seen)


@struct.pytree
class Requests:
    """A mechanism for `audit`: (key, gained (QUERIES + 1,)) -> when one silo asks first, 1 in that round, (QUERIES,).

    `gained` are the sums that it has seen after every round but the first, in units of 1 / `UNITS` of a largest term.
    """

    schedule: BoundSchedule

    def __call__(self, key: Array, gained: Array) -> Array:
        bound: Any = self.schedule
        start, *keys = jax.random.split(key, QUERIES + 2)
        memory = bound.start(start, jnp.float32(1))
        asked = [bound.requests(k, jnp.int32(t), memory, gained[t, None], jnp.int32(1)) for t, k in enumerate(keys)]
        asked = jnp.stack([jnp.any(one) for one in asked])
        return (jnp.cumsum(asked) * asked == 1).astype(jnp.float32)


def above_threshold(schedule: PrivateLogDet, *, epsilon: float, name: str) -> Case:
    """Builds a case of one epoch of one silo's requests, on the worst sums that one user can move.

    She comes first, and nobody else adds anything: the sums are 0, 0, ... against 64, 64, ..., in units of a 64th of
    the largest term, at a threshold near 0. That it does not ask at all is then nearly e^epsilon times as likely on
    the former. In another pair she comes last. The claim is that of the schedule alone, `schedule.pure(epsilon)`.

    Args:
        schedule: the schedule; each silo adds noise to its own threshold and sums.
        epsilon: epsilon of the whole budget.
        name: name of the case.
    """
    validate.instance("schedule", schedule, PrivateLogDet, "an fb.schedules.PrivateLogDet")
    epsilon = validate.within("epsilon", epsilon, *EPSILON_RANGE)
    bound = schedule.bind(Setting(1, 1, QUERIES + 1, 1.0, 1.0, epsilon))
    low, high = np.zeros(QUERIES + 1, np.int32), np.full(QUERIES + 1, UNITS, np.int32)
    last = low.copy()
    last[-1] = UNITS
    return Case(
        name=name,
        mechanism=Requests(schedule=bound),
        data=low,
        neighbour=high,
        which="first user",
        others={"last user": (low, last)},
        epsilon=float(schedule.pure(epsilon)),
        delta=1e-6,
    )


def shipped_schedules() -> list[Case]:
    """Returns cases of every schedule that a certified algorithm may have."""
    removed = Budget(4.0, 0.1, "add_remove")
    adaptive = PrivateLogDet(share=0.5, max_syncs=2)
    fed = fed_ucb(removed, schedule=adaptive, learns_in_batch=False)
    fed = fed.replace(threshold=brink(fed))
    central = private_fed_lin_ucb(Mechanism(removed, trust="central"), schedule=adaptive)
    central = central.replace(threshold=brink(central, n_agents=1))
    fixed = private_fed_lin_ucb(Mechanism(BUDGET, release="blt"), schedule=Geometric(1.5, first=1))
    growing = fixed.replace(trust="secagg", centred=True, gram_scale=0.5)
    network: dict[str, Any] = dict(graph=networks.make("line", 3), policy=Greedy(), schedule=Geometric(1.5, first=1))
    gossip = Gossip(**network, privacy=Mechanism(BUDGET, release="blt", centred=True, gram_scale=0.5))
    return [
        above_threshold(PrivateLogDet(1e-3, share=0.5), epsilon=2.0, name="private_logdet tests alone"),
        timing(fed, name="FedUCB private_logdet timing"),
        scheduled(central, n_agents=1, horizon=4, name="central tree private_logdet"),
        scheduled(fed, n_agents=2, horizon=4, name="FedUCB private_logdet"),
        scheduled(fixed, n_agents=1, name="blt geometric"),
        scheduled(growing, n_agents=2, name="secagg blt geometric"),
        scheduled(gossip, n_agents=3, name="gossip blt geometric"),
    ]
