"""Cases of users who arrive one at a time: agents that release their own sums, and users with private streams.

Axes: T rounds, n users, d features.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.algos import Alone, AsyncFederated, Grouped, Mixture, Thompson
from fedbandit_jax.audits.case import Case
from fedbandit_jax.audits.linear import BUDGET, prefixes_moved
from fedbandit_jax.audits.transcripts import case_of, certified, one_budget, played, spec_of
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import ArrivalAlgorithm, Spec
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.releases import Decaying
from fedbandit_jax.privacy.statistic import Linear
from fedbandit_jax.privacy.users import Users
from fedbandit_jax.schedules import Geometric, PrivateLogDet

AGENTS, USERS = 2, 3  # that take turns in a case of agents, and in one of streams


@struct.pytree
class TranscriptOfTurns:
    """A mechanism for `audit`: (key, (contexts, answers, seen)) -> the view of a run of a bound algorithm.

    The view holds, after every round, the releases and every arm that is `seen`. For `asynchronous` these are the
    active agent's last release, and whether it uploaded. For `streams` they are all users' releases,
    (T, n, d, d + 1), and groups (T, n). Data are as in `Transcript` with one silo.
    """

    algo: ArrivalAlgorithm  # bound
    users: Array | np.ndarray  # (T,), user of every round
    spec: Spec = struct.static()
    all_users: bool = struct.static()

    def __call__(self, key: Array, data: tuple[Array, Array, Array]) -> Any:
        contexts, answers, seen = data

        def show(before: Any, after: Any, user: Array, arm: Array, report: Any) -> Any:
            if self.all_users:
                return after[0], after[1].astype(jnp.float32), arm
            return after[0][user], report.rounds, arm

        released, beside, arms = played(self.algo, self.spec, key, jnp.asarray(self.users), contexts, answers, show)
        return released, beside, jnp.where(seen[:, 0], arms, 0).astype(jnp.float32)


def asynchronous(algo: AsyncFederated, *, horizon: int = 12, name: str) -> Case:
    """Builds a case of certified agents that take turns: releases, their rounds, and recommendations.

    The pairs are as in `linear`, which differ in one round of one agent; agents 0 and 1 take turns for T rounds.

    Raises:
        TypeError: the algorithm has no budget.
        ValueError: the algorithm is not certified, or protects several visits together.
    """
    privacy, budget = one_budget(algo, AsyncFederated, "AsyncFederated")
    if privacy.users.together != 1:
        raise BadValue("algo", "must have unit='visit'", privacy.unit)
    horizon = validate.integer("horizon", horizon, at_least=1)
    spec = spec_of(1, constant=privacy.statistic.centred, n_users=AGENTS)
    bound = certified(algo, spec, horizon)
    fixed = bound.schedule.reads == "nothing"
    users = (np.arange(horizon) % AGENTS).astype(np.int32)
    mechanism = TranscriptOfTurns(algo=bound, users=users, spec=spec, all_users=False)
    return case_of(bound, budget, horizon, 1, 1, fixed=fixed, name=name, mechanism=mechanism)


def streams(algo: Grouped, *, horizon: int = 8, name: str | None = None) -> Case:
    """Builds a case of a certified `Grouped`, on the pairs of `linear`; users take turns for T rounds.

    Raises:
        TypeError: there is no single budget.
        ValueError: the algorithm is not certified, or nothing is released.
    """
    privacy, budget = one_budget(algo, Grouped, "Grouped")
    visits = privacy.users.together
    horizon = validate.integer("horizon", horizon, at_least=visits)
    spec = spec_of(1, constant=privacy.statistic.centred, n_users=USERS)
    bound = certified(algo, spec, horizon)
    mechanism = bound.mechanism
    users = (np.arange(horizon) // visits % USERS).astype(np.int32)
    ends = [t for t in range(horizon) if bound.schedule.requests(None, t, (), None, 1)]
    moved = prefixes_moved(mechanism, by_silo=False)

    def measure(view: Any, other: Any) -> float:
        both = [np.asarray(one[0])[ends] for one in (view, other)]
        return float(np.linalg.norm([moved((both[0][:, u],), (both[1][:, u],)) for u in range(USERS)]))

    fields: dict[str, Any] = dict(sensitivity=mechanism.sensitivity, measure=measure)
    fields["mechanism"] = TranscriptOfTurns(algo=bound, users=users, spec=spec, all_users=True)
    return case_of(bound, budget, horizon, 1, visits, name=str(algo.name) if name is None else name, **fields)


def shipped_asynchronous() -> list[Case]:
    """Makes cases of counts of rounds, and of private tests at a threshold that one round decides."""
    fixed = AsyncFederated(
        policy=Thompson(),
        schedule=Geometric(1.5, first=1),
        privacy=Mechanism(Budget(1.0, 0.1), "blt", unit="visit", statistic=Linear(centred=True, gram_scale=0.5)),
    )
    tested = AsyncFederated(
        schedule=PrivateLogDet(share=0.5, max_syncs=2, trigger="he22"),
        privacy=Mechanism(Budget(4.0, 0.1, "zero_out"), unit="visit"),
    )
    policy: Any = tested.bind(spec_of(1, n_users=AGENTS), 8).policy
    tested = tested.replace(threshold=math.log1p(1 / float(policy.first_regularization)) / 2)
    return [
        asynchronous(fixed, name="asynchronous blt geometric"),
        asynchronous(tested, horizon=8, name="asynchronous tree private_logdet"),
    ]


def shipped_streams() -> list[Case]:
    """Makes cases of groups found by a mixture, of separate users, and of two removed visits."""
    half: dict[str, Any] = dict(statistic=Linear(centred=True, gram_scale=0.5))
    mixture = Mixture(max_groups=2, tries=1)
    geometric = Geometric(1.5, first=2)

    def case(name: str, budget: Budget = BUDGET, grouping: Any = mixture, schedule: Any = geometric, **options: Any):
        mechanism = Mechanism(budget, **{"release": "blt", "unit": "visit", **options})
        return streams(Grouped(grouping=grouping, schedule=schedule, privacy=mechanism), name=name)

    return [
        case("mixture blt"),
        case("mixture decaying centred 1/2", release=Decaying(1.5), **half),
        case("alone tree", grouping=Alone(), schedule=2, release="tree"),
        case("mixture 2 visits removed", Budget(BUDGET.epsilon, BUDGET.delta, "zero_out"), unit=Users(2)),
    ]
