"""Returning users with a private stream each, served by pooled releases of similar users.

A stream has the data of one user only, so one budget covers all of them. Every user's sums are released, at times fixed
in advance. All else is post-processing of releases: the groups, the sums over a group, and the arms. Letters: n users,
d features, S releases. One user has W = sum x x' and U = sum x y.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.clusters.grouping import Mixture
from fedbandit_jax.algos.clusters.pooling import Grouping, UserReleases
from fedbandit_jax.algos.loops.ledger import Ledger
from fedbandit_jax.algos.loops.loop import PolicyLoop, first_belief, next_belief, without_sums
from fedbandit_jax.algos.loops.own_rows import REFRESH
from fedbandit_jax.algos.policies.greedy import Greedy
from fedbandit_jax.algos.recipe import PolicyRecipe, parts
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import control, random, struct, tables
from fedbandit_jax.core.programs import call
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces import ArrivalAlgorithm, Policy, Report, Spec
from fedbandit_jax.privacy.bound import VISIT_TIMES
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.trust import find
from fedbandit_jax.schedules import BoundSchedule, Geometric, Schedule


class StreamState(NamedTuple):
    """The state between two rounds."""

    ledgers: Ledger  # of every user, with leading axis n
    count: Array  # (n,) int32, rounds of every user  # pyright: ignore[reportIncompatibleMethodOverride]
    label: Array  # (n,) int32, the group of every user
    belief: Any  # the policy's belief of every user, with leading axis n
    synced: Array  # () int32, releases so far
    status: Array  # () int32 `Status` bits


@struct.sealed
@struct.pytree
class BoundGrouped(PolicyLoop, ArrivalAlgorithm):
    """A bound `Grouped`: releases every user's sums, groups the users, and serves each by the pooled sums.

    Mechanism and `stds` are for one user's stream.
    """

    grouping: Grouping
    schedule: BoundSchedule = struct.part()
    bias_scale: Any  # standard deviation of the noise on U over that on the diagonal of W

    @override
    def guarantee(self) -> Certificate:
        if not struct.is_sealed(self.grouping):
            return no_privacy(f"nothing is proved of {type(self.grouping).__name__}, a user-defined grouping")
        found = self.proof(self.spec)
        if found.epsilon is not None:
            found = dataclasses.replace(found, not_covered=(VISIT_TIMES, *found.not_covered))
        if found.epsilon is not None and found.server_noise_std is not None:
            aside = "a silo is the party that keeps a user's data, here a server; every user has a stream"
            found = without_sums(found, aside, found.server_noise_std, "a user's released sums")
        return found.through(self.raw)

    @override
    def init(self, key: Array, spec: Spec) -> StreamState:
        n, d = spec.n_users, spec.dim
        belief, status = first_belief(self.policy, d)
        return StreamState(
            ledgers=self.stages.open_all(n),
            count=jnp.zeros(n, jnp.int32),
            label=jnp.zeros(n, jnp.int32),
            belief=jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), belief),
            synced=jnp.int32(0),
            status=status,
        )

    @override
    def index(self, key: Array, t: Array, state: StreamState, user: Array, contexts: Array) -> Array:
        return self.worth(key, t, tables.take(state.belief, user), user, contexts)

    @override
    def serve(
        self, key: Array, t: Array, state: StreamState, user: Array, x: Array, y: Array
    ) -> tuple[StreamState, Report]:
        exists, all_of = user < self.spec.n_users, state.ledgers.mechanism
        small = state.ledgers._replace(mechanism=all_of._replace(release=(), trust=(), view=()))
        one, count = tables.take((small, state.count), user)
        one, *_ = self.stages.add(one, state.synced, jnp.zeros(1, jnp.int32), x[:, None], y[None])  # as of one silo
        full = (count + 1) % max(1, self.longest) == 0
        one = control.cond_any(full, lambda one: self.stages.hand_over(one, True), one)
        small = tables.put(small, user, one)
        noise = dict(release=all_of.release, trust=all_of.trust, view=all_of.view)
        status, counts = jax.tree.map(lambda one: jnp.where(exists, one, 0), (one.status, one.counts))
        state = state._replace(
            ledgers=small._replace(mechanism=small.mechanism._replace(**noise)),
            count=tables.put(state.count, user, count + 1),
            status=state.status | status,
        )
        key = jax.random.fold_in(key, t)
        due = call(self.schedule, "requests", random.stream(key, "requests"), t, (), None, jnp.int32(1))
        due &= state.synced < self.n_syncs
        k, n = state.synced, self.spec.n_users
        state = control.cond_as_while(due, lambda state: self._release(key, state), state)
        return state, self.report(due, k, state.status, senders=n, receivers=n, counts=counts)

    @override
    def partition(self, state: StreamState) -> Array:
        return state.label

    @override
    def view(self, state: StreamState) -> Any:
        return state.ledgers.mechanism.view, state.label, state.synced

    def _release(self, key: Array, state: StreamState) -> StreamState:
        k = state.synced
        statistics, ledgers = self.stages.release_all(key, k, state.ledgers)
        attendance = ledgers.attendance
        std = jnp.asarray(self.stds)[k]
        entered = state.count if attendance is None else attendance.count[:, 0, 0]
        releases = UserReleases(statistics[..., :-1], statistics[..., -1], entered * 1.0, std, self.bias_scale * std)
        label = self.grouping.group(random.stream(key, "grouping"), releases, state.label)
        shown = jax.vmap(lambda belief, released: next_belief(self.policy, k, belief, released))
        belief, status = shown(state.belief, self.grouping.pool(releases, label))
        return state._replace(
            ledgers=ledgers,
            label=label,
            belief=belief,
            synced=k + 1,
            status=state.status | jnp.bitwise_or.reduce(status),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouped(PolicyRecipe):
    """Serves returning users by the pooled releases of similar users, with a private stream for every user.

    A user's sums of x x' and x y are only in the user's own stream. All streams release at the same times, fixed in
    advance. Groups, pooled sums and arms follow from releases and from visit counts, which are public. So all of it is
    post-processing, and a run is certified.

    The server that keeps a user's data adds the noise and is trusted with them. No other party is. The privacy unit is
    one interaction, i.e. one round of a user, or all rounds of a user. Adjacency and sensitivity are those of the
    mechanism, which needs a `unit`. Arrivals are public. On average a user has an n-th of all rounds. The sums of m
    users have sqrt m times the noise of one. So groups must be large, and releases few.

    Args:
        grouping: `fb.algos.Mixture()`, or `fb.algos.Alone()` (one model for each user), or `fb.algos.Together()`.
        policy: an `fb.Policy`, which gets a user's pooled sums. Widths for sums of similar users
            (`confidence="known_noise"`) need not hold for what `Mixture` pools of different users.
        schedule: one of `fb.schedules` that reads nothing, in rounds of all users together, or a number of rounds.
        privacy: an `fb.privacy.Mechanism` with trust "silo_local" or "silo_local_matrix", or a budget for BLT noise
            that protects each interaction by itself; None: no privacy.

    Raises:
        ValueError: when bound, also if the environment's users do not return.

    Reference: ours. Clusters of users are from Gentile, Li & Zappella (2014). The noise is from Zhou & Chowdhury
    (2024), Algorithm 2, with a silo for each user.
    """

    said = ("recipe of single senders", "stream of every user")

    grouping: Grouping = Mixture()
    policy: Policy = Greedy()
    schedule: Schedule | int = Geometric(1.2, first=100)

    def __post_init__(self):
        if not (isinstance(self.grouping, Grouping) and struct.is_sealed(self.grouping)):
            must = "must be fb.algos.Mixture(), Alone() or Together(), as nothing is proved of others"
            raise BadType("grouping", must, self.grouping)
        if isinstance(self.privacy, Budget):
            object.__setattr__(self, "privacy", Mechanism(self.privacy, "blt", unit="visit"))
        super().__post_init__()

    @property
    @override
    def label(self) -> str:
        return type(self.grouping).__name__

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundGrouped:
        spec.need_users(str(self.name))
        _, privacy = self.normalised
        bound, _ = self.scheduled(spec, horizon, 1)
        mechanism, stds = self.calibrated(spec, 1, self.n_syncs(horizon), longest=REFRESH)
        bias_scale = 1.0
        if privacy is not None:
            bias_scale = privacy.statistic.gram_scale / (math.sqrt(2) if find(privacy.trust).joint_matrix else 1)
        most = stds * math.sqrt(spec.n_users)
        return BoundGrouped(
            **parts(spec, self.informed(spec, mechanism, 1, most), mechanism, stds),
            grouping=self.grouping.bind(spec),
            schedule=bound,
            bias_scale=np.float32(bias_scale),
        )
