"""The loop of federated LinUCB that synchronises when a schedule says so: Algorithm 1 of Dubey & Pentland (2020).

One step is one round. In a round in which no seed synchronises nothing is solved: every agent's V_i^-1 and log det V_i
follow by rank-one updates. Letters: M agents, V the matrix that all share since the last synchronisation, V_i = V +
sum x x' over what agent i has seen since.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax import schedules
from fedbandit_jax.algos.linear import _estimate, _local
from fedbandit_jax.algos.linear._confidence import KnownNoise, LogDetWidth, Width
from fedbandit_jax.algos.linear._estimate import Estimate
from fedbandit_jax.algos.linear._local import Local, Record
from fedbandit_jax.algos.linear._tracked import REFRESH, Tracked, again, follow
from fedbandit_jax.core import control, random, ridge, struct
from fedbandit_jax.interfaces import Algorithm, Report, Round, Spec, Status
from fedbandit_jax.privacy.channel import ChannelState, Exact
from fedbandit_jax.privacy.statistic import packed_size
from fedbandit_jax.schedules import Bound, Schedule, Setting


class State(NamedTuple):
    """Everything between two rounds."""

    channel: ChannelState
    estimate: Estimate  # shared since the last synchronisation
    pending: Array  # (d, d + 1, A) sums of [x x' | x y] since then: of every agent if tracked, of all together if not
    settled: Array  # what is no longer in `pending`, for float32 cannot add small numbers to large ones for long
    own: Tracked | None  # of V_i
    shifted: Tracked | None  # of V_i + c I, if the schedule reads that
    counted: Array  # (M,) int32 sums of what users add, if the schedule reads that
    memory: Any  # the schedule's
    asked: Array  # (M,) who asked after the last round
    synced: Array  # int32: synchronisations so far
    since: Array  # int32: rounds since the last one
    status: Array  # `Status` bits


@struct.pytree
class BoundScheduled(Algorithm):
    """Federated LinUCB under a schedule, for a known environment and horizon; private if channel and schedule are."""

    first_regularization: struct.Number  # before the first synchronisation
    regularization: struct.Number
    width: Width | LogDetWidth
    known_noise: KnownNoise | None
    channel: Exact
    schedule: Bound
    shift: struct.Number  # c
    spec: Spec = struct.static()
    n_syncs: int = struct.static()
    lazy: bool = struct.static()
    clip_rewards: bool = struct.static()
    project: bool = struct.static()
    shifts: bool = struct.static()  # is c > 0?

    @property
    def tracks(self) -> bool:
        """Is every agent's own matrix needed?"""
        return self.schedule.reads == "log_det" or not self.lazy

    def init(self, key: Array, spec: Spec) -> State:
        """V = lambda I, and nothing seen."""
        nothing = jnp.zeros((spec.dim, spec.dim + 1, spec.n_agents if self.tracks else 1))
        return self._epoch(
            key,
            State(
                channel=self.channel.init(spec.dim),
                estimate=_estimate.first(spec.dim, self.first_regularization, self.width),
                pending=nothing,
                settled=nothing,
                own=None,
                shifted=None,
                counted=jnp.zeros(spec.n_agents, jnp.int32),
                memory=(),
                asked=jnp.zeros(spec.n_agents, bool),
                synced=jnp.int32(0),
                since=jnp.int32(0),
                status=jnp.int32(0),
            ),
        )

    def act(self, key: Array, t: Array, local: State, offered: Round) -> Array:
        """Algorithm 1, lines 4-8; lazy agents use shared statistics only."""
        del key
        shared, own = local.estimate, local.own
        posterior, log_det = shared.posterior, shared.log_det
        if not self.lazy and own is not None:
            posterior, log_det = own.posterior, shared.log_det + own.gained
        width = shared.width
        if isinstance(width, LogDetWidth):
            width = width._replace(log_det=log_det)
        return _local.act(t, Local(posterior, None, width), offered)

    def learn(self, t: Array, local: State, offered: Round, arms: Array, rewards: Array) -> tuple[State, tuple[()]]:
        """Lines 10-11: statistics and determinants of every agent."""
        del t
        y = jnp.clip(jnp.nan_to_num(rewards), 0, 1) if self.clip_rewards else rewards
        record = Record(ridge.take(offered.contexts, arms), y)
        rows = jnp.concatenate([record.x, y[None]])  # (d + 1, M)
        if self.tracks:
            pending = local.pending + record.x[:, None] * rows[None]
        else:
            pending = local.pending + jnp.einsum("im,jm->ij", record.x, rows, precision="highest")[..., None]
        counted = local.counted
        if self.schedule.reads == "users":
            leverage = ridge.gain(local.estimate.posterior, record.x, y).leverage
            counted = jnp.minimum(counted + self.schedule.count(local.memory, leverage), 2**29)
        return local._replace(
            pending=pending,
            counted=counted,
            own=follow(local.own, record),
            shifted=follow(local.shifted, record),
            since=local.since + 1,
        ), ()

    def sync(self, key: Array, k: Array, state: State, local: State, records: Any) -> tuple[State, Report]:
        """Lines 12-24, after round k = 0, 1, ...: does anyone ask, and what then."""
        del state, records
        d, m = self.spec.dim, self.spec.n_agents
        gained = local.counted
        if self.schedule.reads == "log_det":
            read = local.shifted if local.shifted is not None else local.own
            assert read is not None
            gained = read.gained
        asked = self.schedule.requests(random.stream(key, "requests"), k, local.memory, gained, local.since)
        local = local._replace(asked=jnp.broadcast_to(asked & (local.synced < self.n_syncs), (m,)))
        due = local.asked.any()
        up, bits = self.channel.uplink(local.synced + 1, d)
        floats = jnp.stack([jnp.asarray(up, jnp.float32), jnp.float32(m * packed_size(d))])
        new = control.cond_any(due, lambda state: self._synchronise(key, state), local)
        new = lax.cond((k + 1) % REFRESH == 0, self._refresh, lambda state: state, new)
        return new, Report(
            rounds=jnp.where(due, 1, 0),
            floats=jnp.where(due, floats, 0),
            float_bits=jnp.stack([jnp.asarray(bits, jnp.float32), jnp.float32(32)]),
            status=new.status,
        )

    def view(self, state: State) -> Any:
        """What the server was shown, or shows, at the last synchronisation, how many there were, and who asked now."""
        return state.channel.view, state.synced, state.asked

    def _synchronise(self, key: Array, state: State) -> State:
        """Lines 16-21."""
        d, m = self.spec.dim, self.spec.n_agents
        statistics, channel = self.channel.release_sum(
            random.stream(key, "release"),
            state.synced + 1,
            state.channel,
            (state.settled + state.pending).sum(-1),
            jnp.zeros((0, d, m)),
            jnp.zeros((0, m)),
        )
        fresh = _estimate.estimate(
            state.synced,
            statistics,
            regularization=self.regularization,
            width=self.width,
            known_noise=self.known_noise,
            project=self.project,
        )
        return self._epoch(
            key,
            state._replace(
                channel=channel,
                estimate=_estimate.where(fresh.ok, fresh, state.estimate),
                synced=state.synced + 1,
                status=state.status | jnp.where(fresh.ok[0], 0, Status.NO_ESTIMATE),
            ),
        )

    def _epoch(self, key: Array, state: State) -> State:
        """Begin an epoch: nothing pending, every agent starts from what all share."""
        m, shared = self.spec.n_agents, state.estimate
        own = Tracked(ridge.tile(shared.posterior, m), jnp.zeros(m)) if self.tracks else None
        shifted = None
        if self.shifts:
            posterior, log_det, _ = ridge.solve_det(
                (shared.gram + self.shift * jnp.eye(self.spec.dim))[None], jnp.zeros((1, self.spec.dim))
            )
            shifted = Tracked(ridge.tile(posterior, m), jnp.broadcast_to(log_det - shared.log_det, (m,)))
        inverse = shared.posterior.inverse  # neither norm is smaller than its largest eigenvalue
        norm = jnp.minimum(jnp.abs(inverse).sum(1).max(), jnp.sqrt((inverse * inverse).sum()))
        return state._replace(
            pending=jnp.zeros_like(state.pending),
            settled=jnp.zeros_like(state.settled),
            own=own,
            shifted=shifted,
            counted=jnp.zeros_like(state.counted),
            memory=self.schedule.start(random.stream(key, "epoch"), 1 / (1.001 * norm)),
            since=jnp.int32(0),
        )

    def _refresh(self, state: State) -> State:
        """Settle a thousand rows; Cholesky instead of a thousand rank-one updates."""
        settled = state.settled + state.pending
        state = state._replace(settled=settled, pending=jnp.zeros_like(settled))
        if state.own is None:
            return state
        m, shared = self.spec.n_agents, state.estimate
        rows = jnp.moveaxis(settled, 2, 0)  # (M, d, d + 1)
        bias = jnp.matmul(shared.gram, shared.posterior.theta[:, 0], precision="highest")
        own, shifted = again(
            shared.gram + rows[..., :-1],
            bias + rows[..., -1],
            jnp.broadcast_to(self.shift, (m,)),
            state.own,
            state.shifted,
        )
        return state._replace(own=own, shifted=shifted)


def scheduled(
    schedule: Schedule, setting: Setting, *, regularization: Any, first_regularization: Any = None, **bound: Any
) -> BoundScheduled:
    """`BoundScheduled` with the schedule bound to its setting."""
    shift, chosen = schedule.shift(setting), schedule.bind(setting)
    schedules.check(schedule, chosen)
    return BoundScheduled(
        schedule=chosen,
        shift=np.float32(shift),
        shifts=shift > 0,
        regularization=regularization,
        first_regularization=regularization if first_regularization is None else first_regularization,
        **bound,
    )
