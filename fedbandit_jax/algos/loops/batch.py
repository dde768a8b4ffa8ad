"""The loop of fixed batches, Algorithms 1 and 8 of Zhou & Chowdhury (2024), for any policy and mechanism.

Letters: M agents, d features, B rounds in a batch, S synchronisations; W = sum x x' and U = sum x y over the users of
all batches that were synchronised.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops.loop import PolicyLoop
from fedbandit_jax.core import ridge, struct
from fedbandit_jax.interfaces import Report, Round, Spec, Status
from fedbandit_jax.privacy.bound import MechanismState, rows


class ServerState(NamedTuple):
    """What the server holds between synchronisations."""

    mechanism: MechanismState  # exact sums and the noise that was drawn
    belief: Any  # the policy's belief, from what was released
    status: Array  # () int32 `Status` bits


class BatchRecord(NamedTuple):
    """What the agents remember of a round until the batch ends."""

    x: Array  # (d, M) features of the arms played, as the mechanism admits them
    y: Array  # (M,) rewards, as the mechanism admits them
    outside: Array  # (M,) bool: which users broke what the environment promises


class BatchSums(NamedTuple):
    """What a synchronisation needs of a batch: of the records of several groups of agents it is the sum."""

    rows: Array  # (d, d + 1) sum of [x x' | x y] over users
    users: tuple[Array, Array]  # their x (B, d, M) and y (B, M) if the mechanism needs single users, else with B = 0
    outside: Array  # () int32: how many users broke what the environment promises


@struct.sealed
@struct.pytree
class BatchLoop(PolicyLoop):
    """Federated learning with a fixed batch, for a known environment and horizon; private if its mechanism is.

    With B = 1, learning inside the batch opens no door to raw data: `sync` drops what was learned, and the next batch
    downloads what was released, before any other user comes.
    """

    schedule: None = None
    batch: int = struct.static()  # B

    def init(self, key: Array, spec: Spec) -> ServerState:
        """The state before the first round: W = 0, U = 0, and what the policy believes of no data."""
        return ServerState(self.mechanism.init(spec.dim), *self.first())

    @override
    def download(self, state: ServerState, offered: Round) -> Any:
        prepare = self.policy.prepare_raw if self.learns_in_batch else self.policy.prepare
        return prepare(state.belief, offered, self.spec.fixed_contexts)

    def learn(self, t: Array, local: Any, offered: Round, arms: Array, rewards: Array) -> tuple[Any, BatchRecord]:
        """Records what enters the sums: features x (d, M) and rewards y (M,), which the mechanism bounds first.

        Without `learns_in_batch` nothing is learned yet (Algorithm 8, lines 5 and 8); with it, each agent updates its
        estimate by its own raw row (Algorithm 1, line 7), which is the door `LEARNS_IN_BATCH`.
        """
        record = BatchRecord(*self.mechanism.admit(ridge.take(offered.contexts, arms), rewards))
        if self.learns_in_batch:
            local = self.policy.learn(local, offered, record.x, record.y)
        return local, record

    @property
    @override
    def adds(self) -> bool:
        return not self.mechanism.needs_users

    @override
    def gather(self, records: BatchRecord) -> BatchSums:
        x, y, outside = records
        total = jnp.einsum("bim,bjm->ij", x, rows(x, y), precision="highest")
        users = (x, y) if self.mechanism.needs_users else (x[:0], y[:0])
        return BatchSums(total, users, outside.sum(dtype=jnp.int32))

    def sync(
        self, key: Array, k: Array, state: ServerState, local: Any, records: BatchSums
    ) -> tuple[ServerState, Report]:
        """Puts the batch through the mechanism and shows the policy what is released (Algorithm 1, lines 9-18).

        The mechanism adds the noise; its trust model says who draws it. After an incomplete last batch nothing is
        released.
        """
        m = self.spec.n_agents
        statistics, sent = self.mechanism.step(key, k + 1, state.mechanism, records.rows, *records.users)
        belief, status = self.shown(k, state.belief, statistics, jnp.float32(m * self.batch) * (k + 1))
        happens = k < self.n_syncs  # nothing is released after an incomplete batch
        synced = ServerState(sent, belief, state.status | status)
        synced = jax.tree.map(lambda new, old: jnp.where(happens, new, old), synced, state)
        broken = jnp.where(records.outside > 0, Status.OUTSIDE_SPEC, 0)
        return synced, self.report(happens, k, synced.status | broken, receivers=m)
