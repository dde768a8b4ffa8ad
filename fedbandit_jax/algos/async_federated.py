"""Asynchronous federated LinUCB (He, Wang, Min & Gu 2022), for any policy, schedule and private mechanism."""

from __future__ import annotations

import copy
import dataclasses
import math

import jax
import numpy as np

from fedbandit_jax import schedules
from fedbandit_jax.algos.loops.asynchronous import AsyncLoop
from fedbandit_jax.algos.loops.loop import check_policy
from fedbandit_jax.algos.policies.phased_elimination import PhasedElimination
from fedbandit_jax.algos.policies.ucb import UCB
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import NoiseLaw, Policy, Recipe, Spec
from fedbandit_jax.privacy.bound import Exact
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism, check_norms
from fedbandit_jax.privacy.statistic import LinearStatistic
from fedbandit_jax.privacy.trust import TRUST, find
from fedbandit_jax.schedules import LogDet, Schedule, Setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsyncFederated(Recipe):
    """Agents who come one at a time, in any order, and exchange statistics with a server without waiting for others.

    The agents are the users of an environment whose users return, such as `fb.envs.clustered`. One of them comes in a
    round, acts on what it downloaded last, and adds the round to its own sums. If its schedule then asks, it uploads,
    and downloads the sum of what every agent uploaded last. So agents who come often, or learn much, exchange often.

    With privacy every agent releases the prefix sums over its own rounds, by the mechanism of one silo. The agent adds
    the noise: it is trusted with its own rounds, and neither the server nor other agents are. The privacy unit is one
    interaction, i.e. what an agent did in one round, or in `visits` rounds; adjacency and sensitivity are those of
    `fb.privacy.Mechanism`. Who comes in which round is public. In the server's sum are the noises of all agents who
    have uploaded, sqrt(M) times one agent's in the end.

    Args:
        policy: an `fb.Policy`. The k of its `update` numbers the uploads of all agents, from 0, and `Released.std` is
            that of the sum which the agent downloads.
        schedule: one of `fb.schedules`, or B, rounds of an agent between its uploads. Rounds t and Dt are the agent's
            own, and it makes at most `n_syncs` uploads, after which it learns nothing new. `Every` and `Geometric` are
            public, as who comes when is; `PrivateLogDet` tests what the agent has learned and pays for it from the
            budget; `LogDet` shows it (claim `none`).
        privacy: an `fb.privacy.Mechanism` with trust "silo_local" or "silo_local_matrix" and `visits`; None: no
            privacy.
        name: label in results; default: "Async-" and the name of the policy's class.

    Raises:
        ValueError, TypeError: if an argument is not one of these; the message names it and its value. When bound to an
            environment, also if its users do not return, or if the noise cannot be calibrated.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=8, n_servers=1, n_clusters=1, arrivals=[1, 1, 1, 1, 2, 2, 4, 8])
        >>> mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt", visits=1)
        >>> fixed = fb.schedules.Geometric(1.5, first=20)
        >>> algo = fb.algos.AsyncFederated(policy=fb.algos.Greedy(), schedule=fixed, privacy=mechanism)
        >>> algo.certificate(env.spec, horizon=1_000).claim
        'certified'
        >>> algo.replace(schedule=fb.schedules.LogDet(0.7, "he22")).certificate(env.spec, horizon=1_000).claim
        'none'

    Reference: He, Wang, Min & Gu (2022), Algorithm 1. Privacy, and schedules but its own, are ours.
    """

    policy: Policy = UCB()
    schedule: Schedule | int = LogDet(math.log(2), "he22")
    privacy: Mechanism | Budget | None = None
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.instance("policy", self.policy, Policy, "an fb.Policy")
        if isinstance(self.policy, PhasedElimination):
            raise ValueError(f"policy must not be PhasedElimination, as agents share no phases, got {self.policy!r}")
        schedule, privacy = schedules.as_schedule(self.schedule), as_mechanism(self.privacy)
        object.__setattr__(self, "schedule", schedule)
        object.__setattr__(self, "privacy", privacy)
        if isinstance(schedule, LogDet) and schedule.trigger == "dp20":
            raise ValueError(f"schedule must not have trigger 'dp20', as agents have no common V, got {schedule!r}")
        if privacy is None and np.max(schedule.pure(1.0)) > 0:
            raise ValueError(f"schedule must spend no budget without privacy, got {schedule!r}")
        if privacy is not None:
            if not find(privacy.trust).per_silo:
                able = " or ".join(repr(name) for name, model in TRUST.items() if model.per_silo)
                raise ValueError(f"trust must be {able}, as agents upload by themselves, got {privacy.trust!r}")
            if len(privacy.budgets) > 1:
                raise ValueError(f"budget must be one for all agents, got {len(privacy.budgets)}")
        name = f"Async-{type(self.policy).__name__}" if self.name is None else self.name
        object.__setattr__(self, "name", validate.text("name", name))

    def bind(self, spec: Spec, horizon: int) -> AsyncLoop:
        """Calibrates the mechanism of one agent for this horizon, then tells the policy the law of the noise.

        An agent may come in all T rounds, so that S is that of `schedule` for T. The policy is told of as many releases
        as all agents can make, with the noise that there is if all of them have made the noisiest of their own.
        """
        schedule, privacy, m = schedules.as_schedule(self.schedule), as_mechanism(self.privacy), spec.n_users
        if not m:
            raise ValueError(
                f"{self.name} is for agents who come one at a time and return, and the environment has none: "
                "fb.envs.clustered(...) has"
            )
        n_syncs = validate.integer(f"{type(schedule).__name__}.n_syncs", schedule.n_syncs(horizon), at_least=0)
        mechanism, stds, shares = Exact(n_agents=1), np.zeros(1), None
        if privacy is not None:
            check_norms(str(self.name), spec.max_norm)
            shares = privacy.shares()
            mechanism = privacy.bind(LinearStatistic.of(spec), n_agents=1, n_syncs=n_syncs, pure=schedule.pure(shares))
            stds = mechanism.stds() if n_syncs else stds
        law = np.full(min(m * n_syncs, horizon), math.sqrt(m) * stds.max())
        policy = self.policy.bind(NoiseLaw(1, spec.dim, law, copy.deepcopy(jax.tree.map(np.array, mechanism))))
        check_policy(policy, spec)
        low, high = policy.rho if policy.keeps_matrix else (1.0, 1.0)  # pyright: ignore
        chosen = schedule.bind(Setting(1, spec.dim, horizon, low, high, shares))
        schedules.check(chosen, 1)
        if not policy.keeps_matrix and chosen.reads != "nothing":
            raise ValueError(
                "policy must keep a matrix, as fb.algos.UCB does, for a schedule that reads what agents have learned, "
                f"got {type(self.policy).__name__}"
            )
        return AsyncLoop(
            policy=policy,
            mechanism=mechanism,
            stds=stds.astype(np.float32),
            schedule=chosen,
            n_syncs=n_syncs,
            spec=spec,
        )
