"""The loop of federated learning with a server when a schedule says so, for any policy and mechanism.

Letters: M agents, d features. An epoch is the time between two synchronisations; V is the matrix that all share since
the last one, V_i = V + sum x x' over what agent i has seen since, and c >= 0 the shift by which some schedules read
log det (V_i + c I).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.algos.loops.beliefs import first_belief
from fedbandit_jax.algos.loops.late import Late, arrived
from fedbandit_jax.algos.loops.loop import PolicyLoop
from fedbandit_jax.algos.loops.own_rows import Tracked, Turn, follow
from fedbandit_jax.core import control, random, ridge, struct
from fedbandit_jax.interfaces import Report, Round, Spec
from fedbandit_jax.privacy.attendance import Attendance
from fedbandit_jax.privacy.bound import MechanismState
from fedbandit_jax.schedules import BoundSchedule


class RoundState(NamedTuple):
    """The state of the server and the agents between two rounds."""

    mechanism: MechanismState  # exact sums and the noise that was drawn
    belief: Any  # the policy's belief, shared since the last synchronisation
    pending: Array  # (d, d + 1, A) sums not in the mechanism yet; A = M if `tracks`, `apart` or `drops`, else 1
    settled: Array | None  # (d, d + 1, M) older rows of this epoch, which are in the mechanism; None unless `tracks`
    own: Tracked | None  # V_i, if tracked
    shifted: Tracked | None  # V_i + c I, if the schedule reads that
    counted: Array  # (M,) int32: sums of `count` over users of this epoch, if the schedule reads that
    memory: Any  # the schedule's memory of this epoch
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
        elif self.tracks or self.spec.drops or self.mechanism.apart:
            pending = local.pending + self.mechanism.summands(x, v)
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
            counts=self.tally(clipped, left_out),
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
            posterior, log_det, _ = ridge.solve(
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
