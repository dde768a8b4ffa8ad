"""The loop of federated learning with a server in batches of equal length, for any policy and mechanism.

Letters: M agents, d features, B rounds in a batch, S synchronisations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops.beliefs import first_belief
from fedbandit_jax.algos.loops.late import Late, arrived
from fedbandit_jax.algos.loops.loop import PolicyLoop
from fedbandit_jax.core import ridge, struct
from fedbandit_jax.interfaces import Report, Round, Spec, Status
from fedbandit_jax.privacy.attendance import Attendance
from fedbandit_jax.privacy.bound import MechanismState
from fedbandit_jax.privacy.totals import UserTotals


class ServerState(NamedTuple):
    """The state of the server between synchronisations."""

    mechanism: MechanismState  # exact sums and the noise that was drawn
    belief: Any  # the policy's belief, from the releases
    status: Array  # () int32 `Status` bits
    attendance: Attendance | None  # (M, n) of all users of every silo, if their contributions are bounded
    held: Any = None  # (d, d + 1, M) sums that silos have not sent, if they may be away; `Wide` in steps
    late: Late | None = None  # whose rewards have not arrived, if these come late


class BatchRecord(NamedTuple):
    """The agents' record of a round, kept until the batch ends."""

    x: Array  # (d, M) features of the arms played, as the mechanism admits them
    v: Array  # (M,) responses, or (2, M) weights and responses, as the mechanism admits them
    outside: Array  # (M,) bool: which users broke what the environment promises
    clipped: Array | None  # (M,) bool: whose contribution was clipped, if that is counted
    user: Array | None  # (M,) who came, if contributions of a user are bounded
    away: Array | None  # (M,) bool: which silos miss the synchronisation after this round, if they may


class BatchSums(NamedTuple):
    """The input of a synchronisation from a batch; that of several groups of agents is the sum of theirs."""

    rows: Array | None  # (d, d + 1) sum of the summands over users; None if some may be left out, or silos away
    users: tuple[Array, Array]  # their x (B, d, M) and v if single users are needed, else with B = 0
    outside: Array  # () int32: number of users who broke what the environment promises
    clipped: Array | int  # () int32: number of contributions clipped
    user: Array | None  # (B, M) who came, if contributions of a user are bounded
    away: Array | None = None  # (M,) bool: which silos miss this synchronisation, if they may


class InBatch(NamedTuple):
    """The state of the agents within a batch."""

    prepared: Any  # input of the policy's `indices`
    seen: Any  # what contributions are given of the last release
    late: Late | None  # whose rewards have not arrived, if these come late


@struct.sealed
@struct.pytree
class BatchLoop(PolicyLoop):
    """Federated learning with a fixed batch, for a known environment and horizon; private if its mechanism is.

    All silos send in every batch, and the mechanism releases their sum, so that `gather` may add up groups of agents.
    Of another rule of who sends make a subclass of `PolicyLoop`.

    With B = 1, learning inside the batch opens no door to raw data: `sync` drops what was learned, and the next batch
    downloads what was released, before any other user comes.
    """

    bears_dropouts = bears_delay = True

    schedule: None = None
    batch: int = struct.static()  # B

    @override
    def init(self, key: Array, spec: Spec) -> ServerState:
        attendance = self.nobody_came(spec.n_agents, spec.n_users)
        belief = first_belief(self.policy, spec.dim)
        mechanism, held = self.mechanism.init(spec.dim), self.nothing_held()
        return ServerState(mechanism, *belief, attendance, held, Late.none(spec))

    @override
    def download(self, state: ServerState, offered: Round) -> InBatch:
        belief = state.belief
        if self.learns_in_batch:
            belief = belief._replace(posterior=ridge.tile(belief.posterior, len(offered.contexts)))
        prepared = self.policy.prepare(belief, offered, self.spec.fixed_contexts)
        return InBatch(prepared, state.mechanism.seen, state.late)

    @override
    def prepared(self, t: Array, local: InBatch, offered: Round) -> Any:
        return local.prepared

    def learn(
        self, t: Array, local: InBatch, offered: Round, arms: Array, rewards: Array
    ) -> tuple[InBatch, BatchRecord]:
        """Records what enters the sums (Algorithm 8, lines 5, 8) and, behind a door, learns (Algorithm 1, line 7)."""
        x, y, user, late = arrived(local.late, offered, arms, rewards)
        x, v, outside, clipped = self.mechanism.admit(x, y, local.seen)
        local = local._replace(late=late)
        if self.learns_in_batch:
            local = local._replace(prepared=self.policy.learn(local.prepared, offered, x, v))
        user = user if self.mechanism.enforced else None
        return local, BatchRecord(x, v, outside, clipped if self.mechanism.clips else None, user, self.away(offered))

    @property
    @override
    def adds(self) -> bool:
        one, spec = self.mechanism, self.spec
        return not (one.needs_users or one.enforced or one.apart or spec.drops or spec.late)

    @override
    def gather(self, records: BatchRecord) -> BatchSums:
        x, v, outside, clipped, user, away = records
        users = (x[:0], v[:0]) if self.adds else (x, v)
        rows = None if self.mechanism.enforced or self.spec.drops else self.mechanism.total(x, v)
        n_clipped = 0 if clipped is None else clipped.sum(dtype=jnp.int32)
        return BatchSums(rows, users, outside.sum(dtype=jnp.int32), n_clipped, user, None if away is None else away[-1])

    def sync(
        self, key: Array, k: Array, state: ServerState, local: Any, records: BatchSums
    ) -> tuple[ServerState, Report]:
        """Puts the batch through the mechanism and shows the policy its release (Algorithm 1, lines 9-18)."""
        m = self.spec.n_agents
        (x, v), rows, attendance, left_out = records.users, records.rows, state.attendance, jnp.int32(0)
        mechanism, n_clipped = state.mechanism, records.clipped
        if records.user is not None:
            x, attendance, left_out, whole = self._attended(attendance, k, records.user, x, v, mechanism.totals)
            rows = self.mechanism.total(x, v)
            if whole is not None:
                totals, rows, cut = whole
                mechanism, n_clipped = mechanism._replace(totals=totals), n_clipped + cut
        users = (x, v) if self.mechanism.needs_users else (x[:0], v[:0])
        happens, held, sends = k < self.n_syncs, state.held, None  # nothing is released after an incomplete batch
        complete = happens
        if records.away is not None:
            rows, held, sends, enough = self.sent(held, self.mechanism.summands(x, v).sum(0), records.away)
            happens &= enough
        assert rows is not None
        statistics, sent = self.release(key, k, mechanism, rows, users, sends)
        belief, status = self.shown(k, state.belief, statistics, self.batch * (k + 1), attendance)
        synced = ServerState(sent, belief, state.status | status, attendance)
        synced = jax.tree.map(
            lambda new, old: jnp.where(happens, new, old), synced, state._replace(held=None, late=None)
        )
        synced = synced._replace(
            attendance=jax.tree.map(lambda new, old: jnp.where(complete, new, old), attendance, state.attendance),
            held=jax.tree.map(lambda new, old: jnp.where(complete, new, old), held, state.held),
            late=None if state.late is None else local.late,
        )
        broken = jnp.where(records.outside > 0, Status.OUTSIDE_SPEC, 0)
        counts = self.tally(n_clipped, jnp.where(complete, left_out, 0), records.away, complete)
        senders = 1 if sends is None else sends.mean(dtype=jnp.float32)
        return synced, self.report(happens, k, synced.status | broken, senders=senders, receivers=m, counts=counts)

    def _attended(
        self, attendance: Attendance | None, k: Array, user: Array, x: Array, v: Array, totals: UserTotals | None
    ) -> tuple[Array, Attendance | None, Array, tuple[UserTotals, Array, Array] | None]:
        """The contributions that enter from a batch of users (B, M).

        Returns:
            Their features (B, d, M), zero where left out, the new attendance, and how many are left out; and, if totals
            are clipped, these, their sum (d, d + 1) in steps, and how often one was clipped.
        """

        def come(carry, now):
            (attendance, totals), (user, x, v) = carry, now
            attendance, x, left_out, which = self.attend(attendance, k, user, x)
            change = cut = jnp.int32(0)
            if totals is not None:
                assert which is not None
                totals, change, cut = totals.add(self.mechanism, user, *which, x, v)
            return (attendance, totals), (x, left_out, change, cut)

        (attendance, totals), (x, left_out, change, cut) = jax.lax.scan(come, (attendance, totals), (user, x, v))
        return x, attendance, left_out.sum(), None if totals is None else (totals, change.sum(0), cut.sum())
