"""The loop of users with a stream each: at times fixed in advance, a release of her own of her sums so far.

No user's data are in another's stream, so that one budget pays for all of them, and no phase begins anew. Whatever is
done with the releases is post-processing: which users are taken to be alike, the sums over those who are, and how they
are served. Letters: n users, d features, S releases; W = sum x x' and U = sum x y of one user.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax.algos.loops.beliefs import first_belief, next_belief
from fedbandit_jax.algos.loops.doors import CALLS_HOST
from fedbandit_jax.algos.loops.loop import PolicyLoop, without_sums
from fedbandit_jax.certificate import Certificate, Raw
from fedbandit_jax.core import control, random, struct, tables
from fedbandit_jax.core.programs import refusal
from fedbandit_jax.core.returned import is_array, need, returned
from fedbandit_jax.interfaces import ArrivalAlgorithm, Partition, Released, Report, Spec
from fedbandit_jax.privacy.attendance import Attendance
from fedbandit_jax.privacy.bound import WHO_COMES, MechanismState
from fedbandit_jax.schedules import BoundSchedule


class UserReleases(NamedTuple):
    """The input of a grouping at a release: the noisy sums of every user, and the law of their noise."""

    gram: Float[Array, "n d d"]  # W of each user, plus noise
    bias: Float[Array, "n d"]  # U of each user, plus noise
    count: Float[Array, " n"]  # rounds of each that are in these sums  # pyright: ignore[reportIncompatibleMethodOverride]
    std: Float[Array, ""]  # standard deviation of the noise on the diagonal of `gram`
    bias_std: Float[Array, ""]  # that of the noise on `bias`, at most `std`


class Grouping:
    """A partition of users into groups, as a function of released sums. Subclass it, decorate with `@fb.pytree`.

    It is given released sums, what it found in them before, and a key, and nothing else: by post-processing a run is as
    private as its mechanism, whatever a class of one's own makes of them.
    """

    calls_host: ClassVar[bool] = False
    """Whether `group` or `pool` may call the host, as in `fb.Policy`: nothing is claimed then."""

    def bind(self, spec: Spec) -> Grouping:
        """The grouping that runs; this is where to check parameters, on the host."""
        return self

    def group(self, key: Key[Array, ""], released: UserReleases, last: Int[Array, " n"]) -> Int[Array, " n"]:
        """The group of every user, in 0 ... n - 1.

        Args:
            key: for what the grouping draws.
            released: the noisy sums of all users.
            last: the groups found after the release before; all 0 before the first one.
        """
        raise NotImplementedError(f"{type(self).__name__}.group")

    def pool(self, released: UserReleases, label: Int[Array, " n"]) -> Released:
        """The sums by which each user is served, with leading axis n: those of her group, unless overridden."""
        n = len(label)
        gram, bias, count, size = (
            jax.ops.segment_sum(x, label, n)[label] for x in (released.gram, released.bias, released.count, jnp.ones(n))
        )
        return Released(gram, bias, count, released.std * jnp.sqrt(size))  # m users have sqrt m times the noise of one


def check_grouping(grouping: Grouping, spec: Spec) -> None:
    """Checks the results of a grouping of one's own, and that it has no side effects, compiling nothing."""
    if struct.is_sealed(grouping):
        return
    n, d, name = spec.n_users, spec.dim, type(grouping).__name__
    key, released, last = _released(spec)
    label = returned(grouping, "group", key, released, last)
    need(f"{name}.group", is_array(label, (n,), jnp.int32), f"int32 of shape ({n},)", label)
    pool = returned(grouping, "pool", released, label)
    wanted = (n, d, d), (n, d), (n,), (n,)
    fine = isinstance(pool, Released) and tuple(getattr(x, "shape", None) for x in pool) == wanted
    need(f"{name}.pool", fine, f"an fb.Released of arrays of shapes {wanted}", pool)
    if not type(grouping).calls_host and (found := leak_of(grouping, spec)):
        raise TypeError(found)


def leak_of(grouping: Grouping, spec: Spec) -> str:
    """The refusal of a grouping of one's own for its first side effect; "" if it has none."""
    if struct.is_sealed(grouping):
        return ""
    key, released, label = _released(spec)
    found = refusal(grouping, "group", lambda grouping, *given: grouping.group(*given), key, released, label)
    return found or refusal(grouping, "pool", lambda grouping, *given: grouping.pool(*given), released, label)


def _released(spec: Spec) -> tuple[Array, UserReleases, Array]:
    """The arguments of `Grouping.group`, without data."""
    n, d = spec.n_users, spec.dim
    released = UserReleases(jnp.zeros((n, d, d)), jnp.zeros((n, d)), jnp.zeros(n), jnp.float32(0), jnp.float32(0))
    return jax.random.key(0), released, jnp.zeros(n, jnp.int32)


class StreamState(NamedTuple):
    """The state between two rounds."""

    streams: MechanismState  # exact sums and the noise that was drawn, with leading axis n
    pending: Array  # (n, d, d + 1) sums of the mechanism's summands since the last release
    count: Array  # (n,) int32, rounds of every user  # pyright: ignore[reportIncompatibleMethodOverride]
    label: Array  # (n,) int32, the group of every user
    belief: Any  # the policy's belief of every user, with leading axis n
    synced: Array  # () int32, releases so far
    status: Array  # () int32 `Status` bits
    attendance: Attendance | None  # (1, n), if contributions of a user are bounded


@struct.sealed
@struct.pytree
class BoundGrouped(PolicyLoop, ArrivalAlgorithm):
    """A bound `Grouped`: releases every user's sums, groups the users, and serves each by the sums pooled for her.

    The mechanism and `stds` are of one user's stream.
    """

    grouping: Grouping
    schedule: BoundSchedule
    bias_scale: Any  # the noise on U is this times that on the diagonal of W

    @property
    @override
    def raw(self) -> tuple[Raw, ...]:
        calls = type(self.grouping).calls_host or leak_of(self.grouping, self.spec)
        return (*super().raw, *[CALLS_HOST] * bool(calls))

    @override
    def guarantee(self) -> Certificate:
        found = self.proof(self.spec)
        if found.epsilon is not None:
            found = dataclasses.replace(found, not_covered=(WHO_COMES, *found.not_covered))
        if found.epsilon is not None and found.server_noise_std is not None:
            aside = "a silo is whoever keeps a user's data, here a server; every user has a stream"
            found = without_sums(found, aside, found.server_noise_std, "a user's released sums")
        return found.through(self.raw)

    @override
    def init(self, key: Array, spec: Spec) -> StreamState:
        n, d = spec.n_users, spec.dim
        belief, status = first_belief(self.policy, d)
        return StreamState(
            streams=jax.vmap(lambda _: self.mechanism.init(d))(jnp.arange(n)),
            pending=jnp.zeros((n, d, d + 1), self.mechanism.dtype),
            count=jnp.zeros(n, jnp.int32),
            label=jnp.zeros(n, jnp.int32),
            belief=jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), belief),
            synced=jnp.int32(0),
            status=status,
            attendance=self.nobody_came(1, n),
        )

    @override
    def index(self, key: Array, t: Array, state: StreamState, user: Array, contexts: Array) -> Array:
        return self.worth(key, t, tables.take(state.belief, user), user, contexts)

    @override
    def serve(
        self, key: Array, t: Array, state: StreamState, user: Array, x: Array, y: Array
    ) -> tuple[StreamState, Report]:
        x, v, broken, clipped = self.admit(x[:, None], y[None], tables.take(state.streams.seen, user))
        attendance, x, left_out, _ = self.attend(state.attendance, state.synced, user[None], x)
        sums, count = tables.take((state.streams.sums, state.count), user)
        pending = state.pending[user] + self.mechanism.summands(x, v)[..., 0]
        sums, pending = self._hand_over(sums, pending, count + 1)
        state = state._replace(
            streams=state.streams._replace(sums=tables.put(state.streams.sums, user, sums)),
            pending=tables.put(state.pending, user, pending),
            count=tables.put(state.count, user, count + 1),
            status=state.status | broken,
            attendance=attendance,
        )
        key = jax.random.fold_in(key, t)
        due = self.schedule.requests(random.stream(key, "requests"), t, (), None, jnp.int32(1))
        due &= state.synced < self.n_syncs
        k, n = state.synced, self.spec.n_users
        state = control.seldom(due, lambda state: self._release(key, state), state)
        counts = self.tally(clipped, left_out)
        return state, self.report(due, k, state.status, senders=n, receivers=n, counts=counts)

    @override
    def partition(self, state: StreamState) -> Partition:
        return Partition(state.label, state.label)

    @override
    def view(self, state: StreamState) -> Any:
        return state.streams.view, state.label, state.synced

    def _hand_over(self, sums: Any, pending: Array, count: Array) -> tuple[Any, Array]:
        def absorb(both: tuple[Any, Array]) -> tuple[Any, Array]:
            state = MechanismState(both[0], (), (), ())
            return self.mechanism.absorb(state, both[1]).sums, jnp.zeros_like(both[1])

        return control.cond_any(count % max(1, self.longest) == 0, absorb, (sums, pending))

    def _release(self, key: Array, state: StreamState) -> StreamState:
        k = state.synced
        statistics, streams = self.release_all(key, k, state.streams, state.pending)
        std = jnp.asarray(self.stds)[k]
        entered = state.count if state.attendance is None else state.attendance.count[0]
        releases = UserReleases(statistics[..., :-1], statistics[..., -1], entered * 1.0, std, self.bias_scale * std)
        label = self.grouping.group(random.stream(key, "grouping"), releases, state.label)
        shown = jax.vmap(lambda belief, released: next_belief(self.policy, k, belief, released))
        belief, status = shown(state.belief, self.grouping.pool(releases, label))
        return state._replace(
            streams=streams,
            pending=jnp.zeros_like(state.pending),
            label=label,
            belief=belief,
            synced=k + 1,
            status=state.status | jnp.bitwise_or.reduce(status),
        )
