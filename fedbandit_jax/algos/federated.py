"""Federated learning with a server: in batches (Zhou & Chowdhury 2024), adaptively, and one agent at a time."""

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
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.aggregates import AGGREGATES
from fedbandit_jax.privacy.apart import shown_apart
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.liars import Liars
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.privacy.statistic import LINEAR
from fedbandit_jax.privacy.sums import USERS
from fedbandit_jax.schedules import Every, Geometric, LogDet, Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Federated(PolicyRecipe):
    """A policy that acts on what a private mechanism releases, at synchronisations that a schedule decides about.

    Released are the sums of x x' and x y over the users of all silos. Who adds the noise and who is trusted, adjacency,
    privacy unit and sensitivity are those of `privacy`, see `fb.privacy.Mechanism`; the certificate of a run states
    them.

    Args:
        policy: an `fb.Policy`, for instance `fb.algos.UCB()`, `fb.algos.Thompson()` or one of your own.
        schedule: one of `fb.schedules`, or B, rounds between synchronisations. If B does not divide the horizon T, the
            last T mod B rounds are played without a final synchronisation. `Geometric` needs fewer releases;
            `PrivateLogDet` adapts and pays for it from the budget; `LogDet` adapts and leaks (claim `none`).
        privacy: an `fb.privacy.Mechanism`, or a budget for one with its defaults; None: no privacy.
        learns_in_batch: False: agents act on released statistics only (Algorithm 8). True: they also learn from their
            raw rewards inside the batch (Algorithm 1 as printed). Then replacing one user changes later actions of the
            batch, and so its sum, by far more than the theorem assumes, and the certificate claims only `as_printed`,
            unless the batch is of one round (schedule=1), where both are the same.
        aggregate: how the server adds up what M silos send. "sum"; or, if some may lie, M times a robust centre of
            their sums: "median" (of every coordinate), "geometric_median" or "trimmed_mean" (a quarter of the values of
            a coordinate is left out at each end). It is post-processing of silos' messages. `Released.std` is that of
            the noise in it where nobody lies. The error that it makes because silos' own sums differ is not in it, nor
            in any width.
        liars: `fb.privacy.Liars`, silos that lie to the server; None: none.
        name: label in results; default: the name of the policy's class.

    Raises:
        ValueError: if two parts exclude each other, see `privacy.compatibility`; when bound, also if the noise cannot
            be calibrated or, with noise, feature vectors may be longer than 1.

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

    bears_dropouts = bears_delay = True

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
            | tagged(name, getattr(self, name), {"server shown silos": self.apart})
            | tagged("schedule", schedule, {"long batch": long})
        )

    @property
    def apart(self) -> bool:
        """Whether the server is shown the sums of every silo apart, because it must bear lies or is told some."""
        return self.aggregate != "sum" or self.liars is not None

    def patient(self, spec: Spec, horizon: int) -> Federated:
        """The same recipe with a first release that is late enough, by the rule of `fb.algos.Greedy`.

        Where that is after the middle of the run, a warning says so: little is learned, and privacy seems to be free.
        The first release is that of this budget, trust model and horizon: for others call this anew.

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
        while True:  # a later first release leaves fewer of them, with less noise each
            std = float(np.asarray(one.bind(spec, horizon).stds)[0]) / statistic.max_weight
            rounds = math.ceil(policy.users(spec.dim, std, statistic.centred) / spec.n_agents)
            first = min(rounds + spec.late, horizon)  # rewards of the last rounds are not there yet
            if first <= schedule.first:
                break
            schedule = dataclasses.replace(schedule, first=first)
            one = self.replace(schedule=schedule)
        if std > 0 and 2 * schedule.first > horizon:
            warnings.warn(
                f"horizon = {horizon:,} rounds of {spec.n_agents:,} agents are too few for noise of standard deviation "
                f"{std:.3g}: nothing is released, and nothing learned, before round {schedule.first:,}",
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
        if self.apart:
            mechanism = shown_apart(mechanism, self.aggregate, self.liars)
            stds = mechanism.stds() if isinstance(mechanism, NoisyMechanism) else stds
        policy = self.informed(spec, mechanism, m, ServerLoop.shown_stds(stds, 1, horizon))
        compatibility.check(self.tags | self.keeps(policy))
        common = parts(spec, policy, mechanism, stds, learns_in_batch=self.learns_in_batch)
        if batch is not None:
            return ServerLoop(**common, schedule=None, batch=batch)
        chosen, shift = self.scheduled(spec, horizon, m, policy)
        return ServerLoop(**common, schedule=chosen, shift=np.float32(shift), shifts=shift > 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsyncFederated(PolicyRecipe):
    """Agents who come one at a time, in any order, and exchange statistics with a server without waiting for others.

    The agents are the users of an environment whose users return, such as `fb.envs.clustered`. One of them comes in a
    round, acts on what it downloaded last, and adds the round to its own sums. If its schedule then asks, it uploads,
    and downloads the sum of what every agent uploaded last. So agents who come often, or learn much, exchange often.

    With privacy every agent releases the prefix sums over its own rounds, by the mechanism of one silo. The agent adds
    the noise: it is trusted with its own rounds, and neither the server nor other agents are. The privacy unit is one
    interaction, i.e. what an agent did in one round, or all that an agent did; adjacency and sensitivity are those of
    `fb.privacy.Mechanism`. Who comes in which round is public. In the server's sum are the noises of all agents who
    have uploaded, sqrt(M) times one agent's in the end.

    Args:
        policy: an `fb.Policy`. The k of its `update` numbers the uploads of all agents, from 0, and `Released.std` is
            that of the sum which the agent downloads.
        schedule: one of `fb.schedules`, or B, rounds of an agent between its uploads. Rounds t and Dt are the agent's
            own, and it makes at most `n_syncs` uploads, after which it learns nothing new. `Every` and `Geometric` are
            public, as who comes when is; `PrivateLogDet` tests what the agent has learned and pays for it from the
            budget; `LogDet` shows it (claim `none`).
        privacy: an `fb.privacy.Mechanism` with trust "silo_local" or "silo_local_matrix" and a `unit`; None: no
            privacy.
        name: label in results; default: "Async-" and the name of the policy's class.

    Raises:
        ValueError: when bound, also if the environment's users do not return, or if the noise cannot be calibrated.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=8, n_servers=1, n_clusters=1, arrivals=[1, 1, 1, 1, 2, 2, 4, 8])
        >>> mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt", unit="visit")
        >>> fixed = fb.schedules.Geometric(1.5, first=20)
        >>> algo = fb.algos.AsyncFederated(policy=fb.algos.Greedy(), schedule=fixed, privacy=mechanism)
        >>> algo.certificate(env.spec, horizon=1_000).claim
        'certified'
        >>> algo.replace(schedule=fb.schedules.LogDet(0.7, "he22")).certificate(env.spec, horizon=1_000).claim
        'none'

    Reference: He, Wang, Min & Gu (2022), Algorithm 1. Privacy, and schedules but its own, are ours.
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
        m, n_syncs = spec.n_users, self.n_syncs(horizon)  # of one agent, who may come in all rounds
        mechanism, stds = self.calibrated(spec, 1, n_syncs)
        policy = self.informed(spec, mechanism, 1, AsyncLoop.shown_stds(stds, m, horizon))
        schedule, _ = self.scheduled(spec, horizon, 1, policy)
        return AsyncLoop(**parts(spec, policy, mechanism, stds), schedule=schedule)
