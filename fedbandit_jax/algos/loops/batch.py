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

from fedbandit_jax.algos.loops.loop import adopt, believe, best_arms, first, policy_doors, proven
from fedbandit_jax.certificate import Certificate, Raw
from fedbandit_jax.core import ridge, struct
from fedbandit_jax.core.kernels.choose import Scorer
from fedbandit_jax.interfaces import Algorithm, Policy, Released, Report, Round, Spec, Status
from fedbandit_jax.privacy.bound import Exact, MechanismState, Timing, rows
from fedbandit_jax.privacy.statistic import packed_size


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
class BatchLoop(Algorithm):
    """Federated learning with a fixed batch, for a known environment and horizon; private if its mechanism is."""

    policy: Policy
    mechanism: Exact
    stds: Any  # (S,) standard deviation of the noise of every release, `Released.std`; (1,) if all are alike
    spec: Spec = struct.static()
    batch: int = struct.static()  # B
    n_syncs: Any  # S, a number
    learns_in_batch: bool = struct.static()

    @property
    def raw(self) -> tuple[Raw, ...]:
        """Returns the doors to raw data: learning inside a batch, and a policy that scores several users at once.

        Nobody acts on what was learned inside a batch of one round: `sync` drops it, and the next batch downloads what
        was released.
        """
        return policy_doors(self.policy, self.learns_in_batch, self.batch)

    @override
    def guarantee(self) -> Certificate:
        timing = Timing("fixed in advance, so it tells nothing about users")
        return proven(self.mechanism, timing, self.batch, self.spec).through(self.raw)

    def init(self, key: Array, spec: Spec) -> ServerState:
        """Returns the state before the first round: W = 0, U = 0, and what the policy believes of no data."""
        del key
        return ServerState(self.mechanism.init(spec.dim), *first(self.policy, spec.dim))

    @override
    def download(self, state: ServerState, offered: Round) -> Any:
        prepare = self.policy.prepare_raw if self.learns_in_batch else self.policy.prepare
        return prepare(state.belief, offered, self.spec.fixed_contexts)

    def act(self, key: Array, t: Array, local: Any, offered: Round) -> Array:
        """Returns the arms of the largest indices, (M,), as in Algorithm 1, line 6."""
        return best_arms(self.policy.indices(key, t, local, offered), offered)

    def learn(self, t: Array, local: Any, offered: Round, arms: Array, rewards: Array) -> tuple[Any, BatchRecord]:
        """Records what enters the sums: features x (d, M) and rewards y (M,), which the mechanism bounds first.

        Without `learns_in_batch` nothing is learned yet (Algorithm 8, lines 5 and 8); with it, each agent updates its
        estimate by its own raw row (Algorithm 1, line 7), which is the door `LEARNS_IN_BATCH`.
        """
        del t
        record = BatchRecord(*self.mechanism.admit(ridge.take(offered.contexts, arms), rewards))
        if self.learns_in_batch:
            local = self.policy.learn(local, offered, record.x, record.y)
        return local, record

    @property
    def adds(self) -> bool:
        """Returns whether agents can be played one group after another, unless single users are needed."""
        return not self.mechanism.needs_users

    @property
    @override
    def scores_alone(self) -> bool:
        return struct.is_sealed(self.policy) and self.policy.scores_alone

    @override
    def scorer(self, t: Array, local: Any) -> Scorer:
        return self.policy.scorer(t, local)

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
        del local
        d, m = self.spec.dim, self.spec.n_agents
        statistics, sent = self.mechanism.step(key, k + 1, state.mechanism, records.rows, *records.users)
        count = jnp.float32(m * self.batch) * (k + 1)
        std = jnp.asarray(self.stds)[k]
        fresh = believe(self.policy, k, state.belief, Released(statistics[:, :-1], statistics[:, -1], count, std))
        belief, ok = adopt(fresh, state.belief)
        happens = k < self.n_syncs  # nothing is released after an incomplete batch
        status = state.status | jnp.where(ok, 0, Status.NO_ESTIMATE)
        synced = ServerState(sent, belief, status)
        synced = jax.tree.map(lambda new, old: jnp.where(happens, new, old), synced, state)
        up, bits = self.mechanism.uplink(k + 1, d)
        report = Report(
            rounds=jnp.where(happens, 1, 0),
            floats=jnp.where(happens, jnp.stack([jnp.asarray(up, jnp.float32), jnp.float32(m * packed_size(d))]), 0),
            float_bits=jnp.stack([jnp.asarray(bits, jnp.float32), jnp.float32(32)]),
            status=synced.status | jnp.where(records.outside > 0, Status.OUTSIDE_SPEC, 0),
        )
        return synced, report

    @override
    def view(self, state: ServerState) -> Any:
        return state.mechanism.view
