"""Federated learning with a server, in batches, adaptively, or one agent at a time."""

from __future__ import annotations

import dataclasses
import math
import warnings

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.loops.asynchronous import AsyncLoop
from fedbandit_jax.algos.loops.own_rows import REFRESH
from fedbandit_jax.algos.loops.server import ServerLoop
from fedbandit_jax.algos.policies.greedy import Greedy, Thompson
from fedbandit_jax.algos.policies.ucb import UCB
from fedbandit_jax.algos.recipe import PolicyRecipe, parts
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Policy, Spec
from fedbandit_jax.privacy.byzantine import AGGREGATES, Liars, with_robust_server
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.privacy.statistic import LINEAR
from fedbandit_jax.privacy.sums import USERS
from fedbandit_jax.schedules import Every, Geometric, LogDet, Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Federated(PolicyRecipe):
    """A policy on sums of x x' and x y over the users of all silos, released by a mechanism at a schedule's times.

    The argument `privacy` decides who adds the noise, who is trusted, adjacency, privacy unit and sensitivity, see
    `fb.privacy.Mechanism`. The certificate states them.

    Args:
        policy, privacy, name: as in `PolicyRecipe`.
        schedule: one of `fb.schedules`, or B, rounds between synchronisations. `Geometric` needs fewer releases.
            `PrivateLogDet` adapts and spends budget. `LogDet` adapts and leaks (claim `none`).
        learns_in_batch: False: agents act on released statistics only (Algorithm 8). True: they also learn from their
            raw rewards inside the batch (Algorithm 1 as printed). Then the certificate claims only `as_printed`, except
            for batches of one round (schedule=1).
        aggregate: how the server adds up the messages of M silos: "sum", or M times a robust centre against Byzantine
            silos. A centre is "median" (of every coordinate), "geometric_median" or "trimmed_mean" (which drops a
            quarter of the values of a coordinate at each end). It is post-processing of silos' messages. `Released.std`
            is the noise standard deviation if all silos are honest. Neither it nor any width covers the bias of
            heterogeneous silos.
        liars: `fb.privacy.Liars`, silos with false sums; None: none.

    Raises:
        ValueError: if two parts exclude each other, see `privacy.compatibility`. When bound, also if the noise cannot
            be calibrated, or with noise if feature vectors may be longer than 1.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt", trust="secagg")
        >>> algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=10, privacy=mechanism)
        >>> certificate = algo.certificate(env.spec, horizon=50)
        >>> certificate.claim, round(certificate.epsilon_exact, 3)
        ('certified', 1.0)

    Reference: Zhou & Chowdhury (2024), Algorithms 1 and 8.
    """

    supports_dropouts = supports_delay = True

    policy: Policy = UCB()
    schedule: Schedule | int = Every(25)
    learns_in_batch: bool = False
    aggregate: str = "sum"
    liars: Liars | None = None

    def __post_init__(self):
        validate.one_of("aggregate", self.aggregate, AGGREGATES)
        if self.liars is not None:
            validate.instance("liars", self.liars, Liars, "fb.privacy.Liars or None")
        validate.boolean("learns_in_batch", self.learns_in_batch)
        super().__post_init__()

    @property
    @override
    def tags(self) -> Tags:
        schedule, name = self.schedule, "liars" if self.aggregate == "sum" else "aggregate"
        long = isinstance(schedule, Every) and schedule.batch > REFRESH
        return (
            super().tags
            | tagged("learns_in_batch", self.learns_in_batch, {"learning in a batch": self.learns_in_batch})
            | tagged(name, getattr(self, name), {"server shown silos": self.per_silo})
            | tagged("schedule", schedule, {"long batch": long})
        )

    @property
    def per_silo(self) -> bool:
        """Whether the server sees every silo's sums, for a robust centre or Byzantine silos."""
        return self.aggregate != "sum" or self.liars is not None

    def patient(self, spec: Spec, horizon: int) -> Federated:
        """Returns the recipe with a delayed first release, by the rule of `fb.algos.Greedy`.

        A first release after the middle of the run gives a warning. Little is learned then, and privacy seems to be
        free. The delay depends on budget, trust model and horizon, so call this again for others.

        Args:
            spec: the description of the environment.
            horizon: T.

        Raises:
            ValueError, TypeError: its policy is neither `Greedy` nor `Thompson`, its schedule not `Geometric`, or it
                cannot be bound.

        Example:
            >>> import fedbandit_jax as fb
            >>> env = fb.envs.sphere(n_agents=50, n_arms=5, dim=4, rewards="bernoulli")
            >>> budget, statistic = fb.privacy.Budget(1.0, 1e-6), fb.privacy.Linear(centred=True)
            >>> mechanism = fb.privacy.Mechanism(budget, fb.privacy.Decaying(1.5), statistic=statistic)
            >>> early = fb.schedules.Geometric(1.5, first=1)
            >>> algo = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=early, privacy=mechanism)
            >>> algo.patient(env.spec, horizon=1_000).schedule.first
            9
        """
        schedule = validate.instance("schedule", self.schedule, Geometric, "fb.schedules.Geometric")
        policy = validate.instance("policy", self.policy, (Greedy, Thompson), "fb.algos.Greedy or Thompson")
        statistic = self.privacy.statistic if isinstance(self.privacy, Mechanism) else LINEAR
        one = self
        while True:  # a later first release leaves fewer releases, with less noise each
            std = float(np.asarray(one.bind(spec, horizon).stds)[0]) / statistic.max_weight
            rounds = math.ceil(policy.users(spec.dim, std, statistic.centred) / spec.n_agents)
            first = min(rounds + spec.late, horizon)  # rewards of the last rounds are still pending
            if first <= schedule.first:
                break
            schedule = dataclasses.replace(schedule, first=first)
            one = self.replace(schedule=schedule)
        if std > 0 and 2 * schedule.first > horizon:
            warnings.warn(
                f"horizon = {horizon:,} rounds of {spec.n_agents:,} agents are too few for noise of standard deviation "
                f"{std:.3g}: the first release is after round {schedule.first:,}",
                stacklevel=2,
            )
        return one

    @override
    def bind(self, spec: Spec, horizon: int) -> ServerLoop:
        (schedule, _), m = self.normalised, spec.n_agents
        batch = schedule.batch if isinstance(schedule, Every) else None
        longest = min(REFRESH, max(1, USERS // m))
        sizes = dict(batch=batch, most=schedule.longest(horizon), longest=longest, rounds=horizon)
        mechanism, stds = self.calibrated(spec, m, self.n_syncs(horizon), **sizes)
        if self.per_silo:
            mechanism = with_robust_server(mechanism, self.aggregate, self.liars)
            stds = mechanism.stds() if isinstance(mechanism, NoisyMechanism) else stds
        policy = self.informed(spec, mechanism, m, stds)
        common = parts(spec, policy, mechanism, stds, learns_in_batch=self.learns_in_batch)
        if batch is not None:
            return ServerLoop(**common, schedule=None, batch=batch)
        chosen, shift = self.scheduled(spec, horizon, m, policy)
        return ServerLoop(**common, schedule=chosen, shift=np.float32(shift) if shift > 0 else None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsyncFederated(PolicyRecipe):
    """Agents that act one at a time, in any order, and exchange statistics with a server without waiting for others.

    The agents are the users of an environment of returning users, such as `fb.envs.clustered`. One agent arrives in a
    round and acts on its last download. It adds the round to its own sums. If its schedule asks, it uploads, and
    downloads the sum of all last uploads. So agents with many rounds, or with much to learn, exchange often.

    With privacy every agent releases the prefix sums over its own rounds, by the mechanism of one silo. The agent adds
    the noise. It is trusted with its own rounds. The server and other agents are not trusted. The privacy unit is one
    round of an agent, or all its rounds. Adjacency and sensitivity are those of `fb.privacy.Mechanism`. Arrivals are
    public. The server's sum has the noises of all agents that have uploaded.

    Args:
        policy: an `fb.Policy`. The k of its `update` numbers the uploads of all agents, from 0. `Released.std` belongs
            to the sum that the agent downloads.
        schedule: one of `fb.schedules`, or B, rounds of an agent between its uploads. Rounds t and Dt are the agent's
            own. After `n_syncs` uploads the agent learns nothing new. `Every` and `Geometric` are public, as arrivals
            are. `PrivateLogDet` tests the agent's raw data and spends budget. `LogDet` leaks them (claim `none`).
        privacy: an `fb.privacy.Mechanism` with trust "silo_local" or "silo_local_matrix" and a `unit`; None: no
            privacy.

    Raises:
        ValueError: when bound, also if the environment's users do not return.

    Reference: He, Wang, Min & Gu (2022), Algorithm 1. Privacy, and schedules other than its own, are ours.
    """

    said = ("recipe of single senders", "agents at their own pace")

    policy: Policy = UCB()
    schedule: Schedule | int = LogDet(math.log(2), "he22")

    @property
    @override
    def label(self) -> str:
        return f"Async-{super().label}"

    @override
    def bind(self, spec: Spec, horizon: int) -> AsyncLoop:
        spec.need_users(str(self.name))
        m, n_syncs = spec.n_users, self.n_syncs(horizon)  # of one agent, possibly with all rounds
        mechanism, stds = self.calibrated(spec, 1, n_syncs)
        shown = np.full(min(m * n_syncs, horizon), math.sqrt(m) * stds.max(initial=0))  # of the server's sum
        policy = self.informed(spec, mechanism, 1, shown)
        schedule, _ = self.scheduled(spec, horizon, 1, policy)
        return AsyncLoop(**parts(spec, policy, mechanism, stds), schedule=schedule)
