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

    The view holds, after every round, the releases and every arm that is `seen`. For agents these are the active one's
    last release, and whether it uploaded. For streams they are all users' releases, (T, n, d, d + 1), and groups
    (T, n). Data are as in `Transcript` with one silo.
    """

    algo: ArrivalAlgorithm  # bound
    users: Array | np.ndarray  # (T,), user of every round
    spec: Spec = struct.static()
    streams: bool = struct.static()

    def __call__(self, key: Array, data: tuple[Array, Array, Array]) -> Any:
        contexts, answers, seen = data

        def show(before: Any, after: Any, user: Array, arm: Array, report: Any) -> Any:
            if self.streams:
                return after[0], after[1].astype(jnp.float32), arm
            return after[0][user], report.rounds, arm

        released, beside, arms = played(self.algo, self.spec, key, jnp.asarray(self.users), contexts, answers, show)
        return released, beside, jnp.where(seen[:, 0], arms, 0).astype(jnp.float32)


def turns(algo: AsyncFederated | Grouped, *, horizon: int = 8, name: str | None = None) -> Case:
    """Builds a case of certified agents, or users with private streams, who take turns for T rounds.

    The pairs are as in `linear`. They differ in one round of one agent, or in all visits of a user that are protected
    together.

    Raises:
        TypeError: there is no single budget.
        ValueError: the algorithm is not certified, releases nothing, or protects several visits of an agent together.
    """
    privacy, budget = one_budget(algo, (AsyncFederated, Grouped), "AsyncFederated or Grouped")
    streams, visits = isinstance(algo, Grouped), privacy.users.together
    if visits != 1 and not streams:
        raise BadValue("algo", "must have unit='visit'", privacy.unit)
    horizon = validate.integer("horizon", horizon, at_least=visits)
    n_users = USERS if streams else AGENTS
    spec = spec_of(1, constant=privacy.statistic.centred, n_users=n_users)
    bound = certified(algo, spec, horizon)
    users = (np.arange(horizon) // visits % n_users).astype(np.int32)
    fields: dict[str, Any] = {"name": str(algo.name) if name is None else name}
    fields["mechanism"] = TranscriptOfTurns(algo=bound, users=users, spec=spec, streams=streams)
    if streams:
        ends = [t for t in range(horizon) if bound.schedule.requests(None, t, (), None, 1)]
        moved = prefixes_moved(bound.mechanism, by_silo=False)

        def measure(view: Any, other: Any) -> float:
            one, two = (np.asarray(its[0])[ends] for its in (view, other))
            return float(np.linalg.norm([moved((one[:, u],), (two[:, u],)) for u in range(n_users)]))

        fields |= dict(sensitivity=bound.mechanism.sensitivity, measure=measure)
    return case_of(bound, budget, horizon, 1, visits, **fields)


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
        turns(fixed, horizon=12, name="asynchronous blt geometric"),
        turns(tested, name="asynchronous tree private_logdet"),
    ]


def shipped_streams() -> list[Case]:
    """Makes cases of groups found by a mixture, of separate users, and of two removed visits."""
    half: dict[str, Any] = dict(statistic=Linear(centred=True, gram_scale=0.5))
    mixture = Mixture(max_groups=2, tries=1)
    geometric = Geometric(1.5, first=2)

    def case(name: str, budget: Budget = BUDGET, grouping: Any = mixture, schedule: Any = geometric, **options: Any):
        mechanism = Mechanism(budget, **{"release": "blt", "unit": "visit", **options})
        return turns(Grouped(grouping=grouping, schedule=schedule, privacy=mechanism), name=name)

    return [
        case("mixture blt"),
        case("mixture decaying centred 1/2", release=Decaying(1.5), **half),
        case("alone tree", grouping=Alone(), schedule=2, release="tree"),
        case("mixture 2 visits removed", Budget(BUDGET.epsilon, BUDGET.delta, "zero_out"), unit=Users(2)),
    ]
