"""The loop of federated LinUCB with a fixed batch: Algorithms 1 and 8 of Zhou & Chowdhury (2024).

Letters: M agents, B batch, S = floor(T/B) synchronisations, W = sum x x' and U = sum x y of the synchronised batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.algos.linear import _estimate, _local
from fedbandit_jax.algos.linear._confidence import KnownNoise, Width
from fedbandit_jax.algos.linear._estimate import Estimate
from fedbandit_jax.algos.linear._local import Local, Record
from fedbandit_jax.core import ridge, struct
from fedbandit_jax.interfaces import Algorithm, Report, Round, Spec, Status
from fedbandit_jax.privacy.channel import ChannelState, Exact
from fedbandit_jax.privacy.statistic import packed_size


class ServerState(NamedTuple):
    """What the server holds between synchronisations."""

    channel: ChannelState
    estimate: Estimate  # from the privatised statistics
    status: Array  # `Status` bits


@struct.pytree
class BoundFedLinUCB(Algorithm):
    """Fixed-batch federated LinUCB for a known environment and horizon; private if its channel is."""

    regularization: struct.Number
    width: Width
    known_noise: KnownNoise | None  # sets regularization and width anew at every synchronisation
    channel: Exact
    spec: Spec = struct.static()
    batch: int = struct.static()
    n_syncs: int = struct.static()
    lazy: bool = struct.static()
    clip_rewards: bool = struct.static()
    project: bool = struct.static()

    def init(self, key: Array, spec: Spec) -> ServerState:
        """W = 0, U = 0: every agent starts from lambda I."""
        del key
        start = _estimate.first(spec.dim, self.regularization, self.width)
        return ServerState(self.channel.init(spec.dim), start, jnp.int32(0))

    def download(self, state: ServerState, offered: Round) -> Local:
        """All agents share the server's estimate; each gets a copy of its own unless nobody learns in the batch."""
        shared = state.estimate.posterior
        posterior = shared if self.lazy else ridge.tile(shared, self.spec.n_agents)
        return _local.start(posterior, state.estimate.width, offered, self.spec.fixed_contexts)

    def act(self, key: Array, t: Array, local: Local, offered: Round) -> Array:
        """Algorithm 1 line 6."""
        del key
        return _local.act(t, local, offered)

    def learn(self, t: Array, local: Local, offered: Round, arms: Array, rewards: Array):
        """Algorithm 1 line 7 (local update), or Algorithm 8 lines 5 and 8 (only remember) when lazy."""
        del t
        y = jnp.clip(jnp.nan_to_num(rewards), 0, 1) if self.clip_rewards else rewards
        record = Record(ridge.take(offered.contexts, arms), y)
        return (local if self.lazy else _local.learn(local, offered, record)), record

    def sync(self, key: Array, k: Array, state: ServerState, local: Local, records: Record):
        """Algorithm 1 lines 9-18: the batch goes through the channel, then one Cholesky solve for all agents."""
        del local
        d, m = self.spec.dim, self.spec.n_agents
        statistics, sent = self.channel.step(key, k + 1, state.channel, records.x, records.y)
        fresh = _estimate.estimate(
            k,
            statistics,
            regularization=self.regularization,
            width=self.width,
            known_noise=self.known_noise,
            project=self.project,
        )
        status = state.status | jnp.where(fresh.ok[0], 0, Status.NO_ESTIMATE)
        happens = k < self.n_syncs  # nothing is released after an incomplete batch
        synced = ServerState(sent, _estimate.where(fresh.ok, fresh, state.estimate), status)
        synced = jax.tree.map(lambda new, old: jnp.where(happens, new, old), synced, state)
        up, bits = self.channel.uplink(k + 1, d)
        report = Report(
            rounds=jnp.where(happens, 1, 0),
            floats=jnp.where(happens, jnp.stack([jnp.asarray(up, jnp.float32), jnp.float32(m * packed_size(d))]), 0),
            float_bits=jnp.stack([jnp.asarray(bits, jnp.float32), jnp.float32(32)]),
            status=synced.status,
        )
        return synced, report

    def view(self, state: ServerState) -> Any:
        """What the server was shown, or shows, at the last synchronisation."""
        return state.channel.view
