"""The loop of federated LinUCB that synchronises when a schedule says so: Algorithm 1 of Dubey & Pentland (2020).

One step is one round. In a round in which no seed synchronises nothing is solved: where agents follow their own V_i,
inverses and log-determinants move by rank-one updates. Letters: M agents, d features, S synchronisations; V is the
matrix that all share since the last synchronisation, V_i = V + sum x x' over what agent i has seen since, and c >= 0
the shift by which some schedules read log det (V_i + c I). An epoch is the time between two synchronisations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.algos.loops.loop import adopt, believe, best_arms, first, policy_doors, posterior_of, proven
from fedbandit_jax.algos.loops.own_rows import Tracked, Turn, follow
from fedbandit_jax.certificate import Certificate, Raw
from fedbandit_jax.core import control, random, ridge, struct
from fedbandit_jax.core.kernels.choose import Scorer
from fedbandit_jax.core.programs import call
from fedbandit_jax.interfaces import Algorithm, Policy, Released, Report, Round, Spec, Status
from fedbandit_jax.privacy.bound import BoundMechanism, Exact, MechanismState
from fedbandit_jax.privacy.statistic import packed_size
from fedbandit_jax.schedules import BoundSchedule, doors, timing


class RoundState(NamedTuple):
    """Everything that the server and the agents hold between two rounds."""

    mechanism: MechanismState  # exact sums and the noise that was drawn
    belief: Any  # the policy's belief, shared since the last synchronisation
    pending: Array  # (d, d + 1, A) sums of [x x' | x y] not in the mechanism yet; A = M if `tracks`, else 1: all
    settled: Array | None  # (d, d + 1, M) older rows of this epoch, which are in the mechanism; None unless `tracks`
    own: Tracked | None  # V_i, if tracked
    shifted: Tracked | None  # V_i + c I, if the schedule reads that
    counted: Array  # (M,) int32: sums of what users add, if the schedule reads that
    memory: Any  # what the schedule remembers of this epoch
    asked: Array  # (M,) bool: who asked after the last round
    synced: Array  # int32: number of synchronisations so far
    since: Array  # int32: rounds since the last one
    status: Array  # int32 `Status` bits


@struct.sealed
@struct.pytree
class ScheduledLoop(Algorithm):
    """Federated learning under a schedule, for a known environment and horizon; private if mechanism and schedule are.

    What is raw stays behind two doors: `own` is kept only if agents learn within their epoch or the schedule reads log
    det V_i, and a schedule is handed no more than it says it reads.
    """

    policy: Policy
    mechanism: Exact
    stds: Any  # (S,) standard deviation of the noise of every release, `Released.std`; (1,) if all are alike
    schedule: BoundSchedule
    shift: struct.Number  # c
    n_syncs: struct.Number  # S
    spec: Spec = struct.static()
    learns_in_batch: bool = struct.static()
    shifts: bool = struct.static()  # whether c > 0

    @property
    def raw(self) -> tuple[Raw, ...]:
        """Returns the doors to raw data: those of the schedule and the policy, and learning within an epoch."""
        return (*doors(self.schedule), *policy_doors(self.policy, self.learns_in_batch, None))

    @override
    def guarantee(self) -> Certificate:
        return proven(self.mechanism, timing(self.schedule), None, self.spec).through(self.raw)

    @property
    def reads(self) -> str:
        """Returns which statistic the schedule is handed, see `BoundSchedule.reads`."""
        return type(self.schedule).reads

    @property
    def tracks(self) -> bool:
        """Returns whether every agent's own matrix V_i is needed."""
        return self.reads == "log_det" or self.learns_in_batch

    @override
    def init(self, key: Array, spec: Spec) -> RoundState:
        belief, status = first(self.policy, spec.dim)
        nothing = jnp.zeros((spec.dim, spec.dim + 1, spec.n_agents if self.tracks else 1))
        return self._epoch(
            key,
            RoundState(
                mechanism=self.mechanism.init(spec.dim),
                belief=belief,
                pending=nothing,
                settled=nothing if self.tracks else None,
                own=None,
                shifted=None,
                counted=jnp.zeros(spec.n_agents, jnp.int32),
                memory=(),
                asked=jnp.zeros(spec.n_agents, bool),
                synced=jnp.int32(0),
                since=jnp.int32(0),
                status=status,
            ),
        )

    def act(self, key: Array, t: Array, local: RoundState, offered: Round) -> Array:
        """Returns the arms of the largest indices, (M,), as in Algorithm 1, lines 4-8."""
        prepared = self.policy.prepare(self._belief(local), offered, False)
        return best_arms(self.policy.indices(key, t, prepared, offered), offered)

    @property
    @override
    def scores_alone(self) -> bool:
        return struct.is_sealed(self.policy) and self.policy.scores_alone

    @override
    def scorer(self, t: Array, local: RoundState) -> Scorer:
        nothing = Round(jnp.zeros((self.spec.n_agents, 0, self.spec.dim)))
        return self.policy.scorer(t, self.policy.prepare(self._belief(local), nothing, False))

    def _belief(self, local: RoundState) -> Any:
        if not self.learns_in_batch or local.own is None:
            return local.belief
        own = local.own
        return local.belief._replace(posterior=own.posterior, log_det=local.belief.log_det + own.gained)

    def learn(
        self, t: Array, local: RoundState, offered: Round, arms: Array, rewards: Array
    ) -> tuple[RoundState, tuple[()]]:
        """Adds each agent's row to its statistics and, where they are read, to its determinants (lines 10-11)."""
        del t
        x, y, outside = self.mechanism.admit(ridge.take(offered.contexts, arms), rewards)
        rows = jnp.concatenate([x, y[None]])  # (d + 1, M)
        if self.tracks:
            pending = local.pending + x[:, None] * rows[None]
        else:
            pending = local.pending + jnp.einsum("im,jm->ij", x, rows, precision="highest")[..., None]
        counted = local.counted
        if self.reads == "users":
            leverage = ridge.gain(posterior_of(self.policy, local.belief), x, y).leverage
            counted = jnp.minimum(counted + self.schedule.count(local.memory, leverage), 2**29)
        return local._replace(
            pending=pending,
            counted=counted,
            own=follow(local.own, x, y),
            shifted=follow(local.shifted, x, y),
            since=local.since + 1,
            status=local.status | jnp.where(outside.any(), Status.OUTSIDE_SPEC, 0),
        ), ()

    def sync(
        self, key: Array, k: Array, state: RoundState, local: RoundState, records: Any
    ) -> tuple[RoundState, Report]:
        """Asks the schedule after round k = 0, 1, ..., and synchronises if any agent asks (lines 12-24)."""
        del state, records
        d, m = self.spec.dim, self.spec.n_agents
        gained = local.counted if self.reads == "users" else None
        if self.reads == "log_det":
            read = local.shifted if local.shifted is not None else local.own
            assert read is not None
            gained = read.gained
        given = random.stream(key, "requests"), k, local.memory, gained, local.since
        asked = call(self.schedule, "requests", *given)
        local = local._replace(asked=jnp.broadcast_to(asked & (local.synced < self.n_syncs), (m,)))
        due = local.asked.any()
        up, bits = self.mechanism.uplink(local.synced + 1, d)
        floats = jnp.stack([jnp.asarray(up, jnp.float32), jnp.float32(m * packed_size(d))])
        new = control.cond_any(due, lambda state: self._synchronise(key, k, state), local)
        longest = self.mechanism.longest if isinstance(self.mechanism, BoundMechanism) else own_rows.REFRESH
        new = own_rows.in_turn(k, m if self.tracks else 1, self._refresh, new, longest)
        return new, Report(
            rounds=jnp.where(due, 1, 0),
            floats=jnp.where(due, floats, 0),
            float_bits=jnp.stack([jnp.asarray(bits, jnp.float32), jnp.float32(32)]),
            status=new.status,
        )

    @override
    def view(self, state: RoundState) -> Any:
        return state.mechanism.view, state.synced, state.asked

    def _synchronise(self, key: Array, t: Array, state: RoundState) -> RoundState:
        """Releases the sums with the mechanism's noise after round t, and begins an epoch (lines 16-21)."""
        d, m = self.spec.dim, self.spec.n_agents
        statistics, sent = self.mechanism.step(
            random.stream(key, "release"),
            state.synced + 1,
            state.mechanism,
            state.pending.sum(-1),  # of older rows the mechanism has the sum
            jnp.zeros((0, d, m)),
            jnp.zeros((0, m)),
        )
        std = jnp.asarray(self.stds)[state.synced]
        released = Released(statistics[:, :-1], statistics[:, -1], jnp.float32(m) * (t + 1), std)
        belief, ok = adopt(believe(self.policy, state.synced, state.belief, released), state.belief)
        return self._epoch(
            key,
            state._replace(
                mechanism=sent,
                belief=belief,
                synced=state.synced + 1,
                status=state.status | jnp.where(ok, 0, Status.NO_ESTIMATE),
            ),
        )

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
            floor = own_rows.floor(posterior_of(self.policy, shared))
        return state._replace(
            pending=jnp.zeros_like(state.pending),
            settled=None if state.settled is None else jnp.zeros_like(state.settled),
            own=own,
            shifted=shifted,
            counted=jnp.zeros_like(state.counted),
            memory=call(self.schedule, "start", random.stream(key, "epoch"), floor),
            since=jnp.int32(0),
        )

    def _refresh(self, state: RoundState, turn: Turn) -> RoundState:
        """Hands pending rows to the mechanism, whose sums are more than float32, and computes inverses anew."""
        due, own, settled = jnp.where(turn.due, state.pending, 0), state.own, state.settled
        state = state._replace(mechanism=self.mechanism.absorb(state.mechanism, due.sum(-1)))
        if own is None or settled is None:
            return state._replace(pending=jnp.where(turn.due, 0, state.pending))
        rows, pending, settled = own_rows.settle(state.pending, settled, turn)
        shared = state.belief
        bias = jnp.matmul(shared.gram, shared.posterior.theta[:, 0], precision="highest")
        own, shifted = own_rows.again(
            shared.gram + rows[..., :-1],
            bias + rows[..., -1],
            jnp.broadcast_to(self.shift, rows.shape[:1]),
            own,
            state.shifted,
            turn,
        )
        return state._replace(pending=pending, settled=settled, own=own, shifted=shifted)
