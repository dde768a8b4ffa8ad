"""The loop of users with a stream each: a release of every user's sums, at times fixed in advance.

A stream has the data of one user only, so one budget covers all of them. All else is post-processing of releases: the
groups, the sums over a group, and the arms. Letters: n users, d features, S releases. One user has W = sum x x' and U =
sum x y.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax.algos.loops.beliefs import first_belief, next_belief
from fedbandit_jax.algos.loops.ledger import Ledger
from fedbandit_jax.algos.loops.loop import PolicyLoop, without_sums
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import control, random, struct, tables
from fedbandit_jax.core.programs import call
from fedbandit_jax.interfaces import ArrivalAlgorithm, Partition, Released, Report, Spec
from fedbandit_jax.privacy.bound import WHO_COMES
from fedbandit_jax.schedules import BoundSchedule


class UserReleases(NamedTuple):
    """Input of a grouping at a release: noisy sums of every user, and noise standard deviations."""

    gram: Float[Array, "n d d"]  # W of each user, plus noise
    bias: Float[Array, "n d"]  # U of each user, plus noise
    count: Float[Array, " n"]  # rounds in these sums  # pyright: ignore[reportIncompatibleMethodOverride]
    std: Float[Array, ""]  # standard deviation of the noise on the diagonal of `gram`
    bias_std: Float[Array, ""]  # standard deviation of the noise on `bias`, at most `std`


class Grouping:
    """Base class of partitions of users into groups: `Mixture`, `Alone` and `Together`.

    A grouping is a function of released sums, of the groups after the last release, and of a key. So by post-processing
    a run is as private as its mechanism.
    """

    def bind(self, spec: Spec) -> Grouping:
        """Returns the grouping that runs, with checked parameters."""
        return self

    def group(self, key: Key[Array, ""], released: UserReleases, last: Int[Array, " n"]) -> Int[Array, " n"]:
        """Returns the group of every user, in 0 ... n - 1. `last` are those before, 0 before the first release."""
        raise NotImplementedError(f"{type(self).__name__}.group")

    def pool(self, released: UserReleases, label: Int[Array, " n"]) -> Released:
        """Returns the sums that serve each user, with leading axis n; by default the sums of the user's group."""
        n = len(label)
        gram, bias, count, size = (
            jax.ops.segment_sum(x, label, n)[label] for x in (released.gram, released.bias, released.count, jnp.ones(n))
        )
        return Released(gram, bias, count, released.std * jnp.sqrt(size))  # noise of m users


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
            found = dataclasses.replace(found, not_covered=(WHO_COMES, *found.not_covered))
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
    def partition(self, state: StreamState) -> Partition:
        return Partition(state.label, state.label)

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
