"""The loops of federated learning with a server, in batches or when a schedule says so, for any policy and mechanism.

Letters: M agents, d features, B rounds in a batch, S synchronisations; W = sum x x' and U = sum x y over the users of
all batches that were synchronised. An epoch is the time between two synchronisations; V is the matrix that all share
since the last one, V_i = V + sum x x' over what agent i has seen since, and c >= 0 the shift by which some schedules
read log det (V_i + c I).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.algos.loops.beliefs import first_belief
from fedbandit_jax.algos.loops.late import Late, arrived
from fedbandit_jax.algos.loops.loop import PolicyLoop
from fedbandit_jax.algos.loops.own_rows import Tracked, Turn, follow
from fedbandit_jax.core import control, random, ridge, struct
from fedbandit_jax.interfaces import Report, Round, Spec, Status
from fedbandit_jax.privacy.attendance import Attendance
from fedbandit_jax.privacy.bound import MechanismState
from fedbandit_jax.privacy.totals import UserTotals
from fedbandit_jax.schedules import BoundSchedule


class ServerState(NamedTuple):
    """What the server holds between synchronisations."""

    mechanism: MechanismState  # exact sums and the noise that was drawn
    belief: Any  # the policy's belief, from what was released
    status: Array  # () int32 `Status` bits
    attendance: Attendance | None  # (M, n) of all users of every silo, if their contributions are bounded
    held: Any = None  # (d, d + 1, M) sums that silos have not sent, if they may be away; `Wide` in steps
    late: Late | None = None  # whose rewards have not arrived, if these come late


class BatchRecord(NamedTuple):
    """What the agents remember of a round until the batch ends."""

    x: Array  # (d, M) features of the arms played, as the mechanism admits them
    v: Array  # (M,) responses, or (2, M) weights and responses, as the mechanism admits them
    outside: Array  # (M,) bool: which users broke what the environment promises
    clipped: Array | None  # (M,) bool: whose contribution was clipped, if that is counted
    user: Array | None  # (M,) who came, if contributions of a user are bounded
    away: Array | None  # (M,) bool: which silos miss the synchronisation after this round, if they may


class BatchSums(NamedTuple):
    """What a synchronisation needs of a batch: of the records of several groups of agents it is the sum."""

    rows: Array | None  # (d, d + 1) sum of the mechanism's summands over users; None if some may be left out
    users: tuple[Array, Array]  # their x (B, d, M) and v if single users are needed, else with B = 0
    outside: Array  # () int32: how many users broke what the environment promises
    clipped: Array | int  # () int32: how many contributions were clipped
    user: Array | None  # (B, M) who came, if contributions of a user are bounded
    away: Array | None = None  # (M,) bool: which silos miss this synchronisation, if they may


class InBatch(NamedTuple):
    """What agents hold within a batch."""

    prepared: Any  # what the policy scores arms with
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
        prepare = self.policy.prepare_raw if self.learns_in_batch else self.policy.prepare
        prepared = prepare(state.belief, offered, self.spec.fixed_contexts)
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
        """Puts the batch through the mechanism and shows the policy what is released (Algorithm 1, lines 9-18)."""
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
        """What enters of a batch of users (B, M).

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


class RoundState(NamedTuple):
    """Everything that the server and the agents hold between two rounds."""

    mechanism: MechanismState  # exact sums and the noise that was drawn
    belief: Any  # the policy's belief, shared since the last synchronisation
    pending: Array  # (d, d + 1, A) sums not in the mechanism yet; A = M if `tracks` or if it is `apart`, else 1: all
    settled: Array | None  # (d, d + 1, M) older rows of this epoch, which are in the mechanism; None unless `tracks`
    own: Tracked | None  # V_i, if tracked
    shifted: Tracked | None  # V_i + c I, if the schedule reads that
    counted: Array  # (M,) int32: sums of what users add, if the schedule reads that
    memory: Any  # what the schedule remembers of this epoch
    asked: Array  # (M,) bool: who asked after the last round
    synced: Array  # int32: number of synchronisations so far
    since: Array  # int32: rounds since the last one
    status: Array  # int32 `Status` bits
    attendance: Attendance | None  # (M, n) of all users of every silo, if their contributions are bounded
    away: Array | None  # (M,) bool: which silos would miss a synchronisation now, if they may
    held: Any  # (d, d + 1, M) sums that silos have not sent and that are not pending, if they may be away
    late: Late | None  # whose rewards have not arrived, if these come late
    counts: dict[str, Array]  # int32: contributions of the last round that were clipped and left out, if counted


@struct.sealed
@struct.pytree
class ScheduledLoop(PolicyLoop):
    """Federated learning under a schedule, for a known environment and horizon; private if mechanism and schedule are.

    What is raw stays behind two doors: `own` is kept only if agents learn within their epoch or the schedule reads log
    det V_i, and a schedule is handed no more than it says it reads.
    """

    bears_dropouts = bears_delay = True

    schedule: BoundSchedule
    shift: struct.Number  # c
    shifts: bool = struct.static()  # whether c > 0

    @property
    def reads(self) -> str:
        """The statistic that the schedule is handed, see `BoundSchedule.reads`."""
        return type(self.schedule).reads

    @property
    def tracks(self) -> bool:
        """Whether every agent's own matrix V_i is needed."""
        return self.reads == "log_det" or self.learns_in_batch

    def _sent(self, pending: Array) -> Array:
        """The sums of all silos, or of every one where the mechanism wants them apart."""
        return pending if self.mechanism.apart else pending.sum(-1)

    @override
    def init(self, key: Array, spec: Spec) -> RoundState:
        belief, status = first_belief(self.policy, spec.dim)
        apart = self.tracks or self.mechanism.apart or spec.drops
        nothing = jnp.zeros((spec.dim, spec.dim + 1, spec.n_agents if apart else 1), self.mechanism.dtype)
        return self._epoch(
            key,
            RoundState(
                mechanism=self.mechanism.init(spec.dim),
                belief=belief,
                pending=nothing,
                settled=self.mechanism.real(nothing) if self.tracks else None,
                own=None,
                shifted=None,
                counted=jnp.zeros(spec.n_agents, jnp.int32),
                memory=(),
                asked=jnp.zeros(spec.n_agents, bool),
                synced=jnp.int32(0),
                since=jnp.int32(0),
                status=status,
                attendance=self.nobody_came(spec.n_agents, spec.n_users),
                away=jnp.zeros(spec.n_agents, bool) if spec.drops else None,
                held=self.nothing_held(),
                late=Late.none(spec),
                counts=self.tally(),
            ),
        )

    @override
    def prepared(self, t: Array, local: RoundState, offered: Round) -> Any:
        belief, own = local.belief, local.own
        if self.learns_in_batch and own is not None:
            belief = belief._replace(posterior=own.posterior, log_det=belief.log_det + own.gained)
        return self.policy.prepare(belief, offered, False)

    def learn(
        self, t: Array, local: RoundState, offered: Round, arms: Array, rewards: Array
    ) -> tuple[RoundState, tuple[()]]:
        """Adds each agent's row to its statistics and, where they are read, to its determinants (lines 10-11)."""
        x, y, user, late = arrived(local.late, offered, arms, rewards)
        x, v, broken, clipped = self.admit(x, y, local.mechanism.seen)
        attendance, x, left_out, which = self.attend(local.attendance, local.synced, user, x)
        mechanism = local.mechanism
        if mechanism.totals is not None:
            assert which is not None
            totals, change, cut = mechanism.totals.add(self.mechanism, user, *which, x, v)
            mechanism, clipped = mechanism._replace(totals=totals), clipped + cut
            pending = local.pending + change[..., None]
        elif self.tracks or self.spec.drops:
            pending = local.pending + self.mechanism.summands(x, v)
        elif self.mechanism.apart:
            pending = local.pending + self.mechanism.total(x[None], v[None])
        else:
            pending = local.pending + self.mechanism.total(x[None], v[None])[..., None]
        counted = local.counted
        if self.reads == "users":
            leverage = ridge.gain(local.belief.posterior, x, v).leverage
            counted = jnp.minimum(counted + self.schedule.count(local.memory, leverage), 2**29)
        return local._replace(
            mechanism=mechanism,
            pending=pending,
            counted=counted,
            own=follow(local.own, x, v),
            shifted=follow(local.shifted, x, v),
            since=local.since + 1,
            status=local.status | broken,
            attendance=attendance,
            away=self.away(offered),
            late=late,
            counts=self.tally(clipped, left_out, local.away),
        ), ()

    def sync(
        self, key: Array, k: Array, state: RoundState, local: RoundState, records: Any
    ) -> tuple[RoundState, Report]:
        """Asks the schedule after round k = 0, 1, ..., and synchronises if any agent asks (lines 12-24)."""
        m = self.spec.n_agents
        gained = local.counted if self.reads == "users" else None
        if self.reads == "log_det":
            read = local.shifted if local.shifted is not None else local.own
            assert read is not None
            gained = read.gained
        given = random.stream(key, "requests"), k, local.memory, gained, local.since
        asked = self.schedule.requests(*given)
        local = local._replace(asked=jnp.broadcast_to(asked & (local.synced < self.n_syncs), (m,)))
        due, senders, counts = local.asked.any(), jnp.float32(1), local.counts
        if local.away is not None:
            counts = counts | self.missed(local.away, due)
            senders = (~local.away).mean(dtype=jnp.float32)
            due &= (~local.away).sum() >= self.mechanism.needed
            local = local._replace(counts=counts)
        new = control.cond_any(due, lambda state: self._synchronise(key, k, state), local)
        new = own_rows.in_turn(k, m if self.tracks else 1, self._refresh, new, self.longest)
        return new, self.report(due, local.synced, new.status, senders=senders, receivers=m, counts=counts)

    @override
    def view(self, state: RoundState) -> Any:
        return state.mechanism.view, state.synced, state.asked

    def _synchronise(self, key: Array, t: Array, state: RoundState) -> RoundState:
        """Releases the sums with the mechanism's noise after round t, and begins an epoch (lines 16-21)."""
        total, k, held, sends = self._sent(state.pending), state.synced, state.held, None  # older rows are not pending
        if state.away is not None:
            total, held, sends, _ = self.sent(held, state.pending, state.away)
        statistics, sent = self.release(random.stream(key, "release"), k, state.mechanism, total, None, sends)
        belief, status = self.shown(k, state.belief, statistics, t + 1, state.attendance)
        state = state._replace(mechanism=sent, belief=belief, synced=k + 1, status=state.status | status, held=held)
        return self._epoch(key, state)

    def _epoch(self, key: Array, state: RoundState) -> RoundState:
        m, shared = self.spec.n_agents, state.belief
        own = Tracked(ridge.tile(shared.posterior, m), jnp.zeros(m)) if self.tracks else None
        shifted = None
        if self.shifts:
            posterior, log_det, _ = ridge.solve_det(
                (shared.gram + self.shift * jnp.eye(self.spec.dim))[None], jnp.zeros((1, self.spec.dim))
            )
            shifted = Tracked(ridge.tile(posterior, m), jnp.broadcast_to(log_det - shared.log_det, (m,)))
        floor = jnp.float32(0)
        if self.reads != "nothing":
            floor = own_rows.floor(shared.posterior)
        return state._replace(
            pending=jnp.zeros_like(state.pending),
            settled=None if state.settled is None else jnp.zeros_like(state.settled),
            own=own,
            shifted=shifted,
            counted=jnp.zeros_like(state.counted),
            memory=self.schedule.start(random.stream(key, "epoch"), floor),
            since=jnp.int32(0),
        )

    def _refresh(self, state: RoundState, turn: Turn) -> RoundState:
        """Hands pending rows to the mechanism, whose sums are more than float32, and computes inverses anew."""
        due, own, settled = jnp.where(turn.due, state.pending, 0), state.own, state.settled
        if state.held is not None:
            state = state._replace(held=self.more(state.held, due))
        else:
            state = state._replace(mechanism=self.mechanism.absorb(state.mechanism, self._sent(due)))
        if own is None or settled is None:
            return state._replace(pending=jnp.where(turn.due, 0, state.pending))
        rows, _, settled = own_rows.add_pending(self.mechanism.real(state.pending), settled, turn)
        shared = state.belief
        bias = jnp.matmul(shared.gram, shared.posterior.theta[:, 0], precision="highest")
        own, shifted = own_rows.solve_anew(
            shared.gram + rows[..., :-1],
            bias + rows[..., -1],
            jnp.broadcast_to(self.shift, rows.shape[:1]),
            own,
            state.shifted,
            turn,
        )
        pending = jnp.where(turn.due, 0, state.pending)
        return state._replace(pending=pending, settled=settled, own=own, shifted=shifted)
