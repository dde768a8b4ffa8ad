"""Asynchronous federated LinUCB (He, Wang, Min & Gu 2022), for any policy, schedule and private mechanism."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.loops.asynchronous import AsyncLoop
from fedbandit_jax.algos.policies.ucb import UCB
from fedbandit_jax.algos.recipe import PolicyRecipe, parts
from fedbandit_jax.interfaces import Policy, Spec
from fedbandit_jax.schedules import LogDet, Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsyncFederated(PolicyRecipe):
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

    by_itself = "as agents upload by themselves"

    policy: Policy = UCB()
    schedule: Schedule | int = LogDet(math.log(2), "he22")

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.schedule, LogDet) and self.schedule.trigger == "dp20":
            raise ValueError(
                f"schedule must not have trigger 'dp20', as agents have no common V, got {self.schedule!r}"
            )

    @property
    @override
    def label(self) -> str:
        return f"Async-{super().label}"

    def bind(self, spec: Spec, horizon: int) -> AsyncLoop:
        """Calibrates the mechanism of one agent for this horizon, then tells the policy the law of the noise.

        An agent may come in all T rounds, so that S is that of `schedule` for T. The policy is told of as many releases
        as all agents can make, with the noise that there is if all of them have made the noisiest of their own.
        """
        spec.need_users(str(self.name))
        m, n_syncs = spec.n_users, self.n_syncs(horizon)
        mechanism, stds = self.calibrated(spec, 1, n_syncs)
        law = np.full(min(m * n_syncs, horizon), math.sqrt(m) * stds.max(initial=0))
        policy = self.informed(spec, mechanism, 1, law)
        schedule, _ = self.timed(spec, horizon, 1, policy)
        return AsyncLoop(**parts(spec, policy, mechanism, stds), schedule=schedule)
