"""The loop of agents that exchange releases with their neighbours in a graph."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops.ledger import Ledger
from fedbandit_jax.algos.loops.loop import PEERS, PolicyLoop, first_belief, next_belief, without_sums
from fedbandit_jax.algos.loops.own_rows import Turn, in_turn
from fedbandit_jax.algos.policies.ucb import BoundUCB, Prepared
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import control, ridge, struct
from fedbandit_jax.core.programs import call
from fedbandit_jax.interfaces import Released, Report, Round, Spec
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.schedules import BoundSchedule


class GossipState(NamedTuple):
    """Silos and agents between two rounds."""

    ledgers: Ledger  # of every silo, with leading axis M
    status: Array  # int32 `Status` bits
    sent: Array  # (M, d, d + 1) the last release of every silo
    users: Array  # (M,) float32: number of users in it
    belief: Any  # every agent's, from the releases that it has received, leaves (M, ...)
    released: Array  # int32: number of releases so far
    heard: Array  # int32: number of releases received by all


@struct.sealed
@struct.pytree
class GossipLoop(PolicyLoop):
    """A bound `Gossip`. A step is one round; all silos release after the same rounds.

    Mechanism and `stds` are for one silo, and all silos have noise of the same distribution. Every agent has a policy.
    """

    policy: Any = struct.part()  # leaves (M, ...)
    schedule: BoundSchedule = struct.part()
    hears: Any  # (M, M) float32, 1 if agent i receives from silo j
    hops: Any  # (M,) int32: transmissions over edges of one broadcast
    delay: struct.Number  # gamma - 1, full rounds between a release and its first use

    @property
    @override
    def one_policy(self) -> Any:
        return jax.tree.map(lambda leaf: leaf[0] if np.ndim(leaf) else leaf, self.policy)

    @override
    def guarantee(self) -> Certificate:
        found = self.proof(dataclasses.replace(self.spec, n_agents=1))
        if found.epsilon is not None and found.server_noise_std is not None:
            most = math.sqrt(np.asarray(self.hears, float).sum(1).max()) * found.server_noise_std
            found = without_sums(found, PEERS, most, "the sums that an agent adds up", server=False)
        return found.through(self.raw)

    @override
    def init(self, key: Array, spec: Spec) -> GossipState:
        m, d = spec.n_agents, spec.dim
        belief, status = jax.vmap(lambda policy: first_belief(policy, d), axis_size=m)(self.policy)
        ledgers, sent, zero = self.stages.open_all(m, spec.n_users), jnp.zeros((m, d, d + 1)), jnp.int32(0)
        return GossipState(ledgers, jnp.bitwise_or.reduce(status), sent, jnp.zeros(m), belief, zero, zero)

    @override
    def indices(self, key: Array, t: Array, local: GossipState, offered: Round) -> Array:
        if isinstance(self.policy, BoundUCB):
            return super().indices(key, t, local, offered)
        keys = jax.random.split(key, self.spec.n_agents)
        alone = jax.vmap(lambda policy, key, belief, contexts: call(policy, "index", key, t, belief, contexts))
        return alone(self.policy, keys, local.belief, offered.contexts).T

    @override
    def prepared(self, t: Array, local: GossipState, offered: Round) -> Prepared:
        return Prepared(ridge.join(local.belief.posterior), None, local.belief.width)

    @override
    def learn(
        self, t: Array, local: GossipState, offered: Round, arms: Array, rewards: Array
    ) -> tuple[GossipState, tuple[()]]:
        x = ridge.take(offered.contexts, arms)
        user = None if offered.user is None else offered.user[:, None]
        add = jax.vmap(self.stages.add, (0, None, 0, 1, 0))
        ledgers, *_ = add(local.ledgers, local.released, user, x[..., None], rewards[:, None])
        return local._replace(ledgers=ledgers, status=local.status | jnp.bitwise_or.reduce(ledgers.status)), ()

    def sync(
        self, key: Array, k: Array, state: GossipState, local: GossipState, records: Any
    ) -> tuple[GossipState, Report]:
        """Lets silos release after round k = 0, 1, ..., and agents use the releases of gamma - 1 rounds ago."""
        m, d = self.spec.n_agents, self.spec.dim
        due = self._asked(k) & (local.released < self.n_syncs)
        new = control.cond_any(due, lambda state: self._release(key, k, state), local)
        arrived = self._asked(k - self.delay) & (new.heard < new.released)
        new = control.cond_any(arrived, self._hear, new)
        new = in_turn(k, 1, self._refresh, new, self.longest)
        hops = jnp.asarray(self.hops).sum()
        counts = jax.tree.map(jnp.sum, local.ledgers.counts)
        counts |= {"messages": jnp.where(due, m, 0), "hops": jnp.where(due, hops, 0)}
        numbers = jnp.where(due, hops * jnp.float32(packed_size(d)), 0)
        return new, Report(jnp.where(due, 1, 0), numbers, 32, new.status, counts)

    @override
    def view(self, state: GossipState) -> Any:
        return state.sent, state.released

    def _asked(self, t: Array) -> Array:
        return jnp.all(call(self.schedule, "requests", jax.random.key(0), t, (), None, jnp.int32(1)))

    def _release(self, key: Array, t: Array, state: GossipState) -> GossipState:
        k = state.released
        sent, ledgers = self.stages.release_all(key, k, state.ledgers)
        came = ledgers.attendance
        users = jnp.full(self.spec.n_agents, t + 1) if came is None else came.count.sum((1, 2))
        return state._replace(ledgers=ledgers, sent=sent, released=k + 1, users=users.astype(jnp.float32))

    def _hear(self, state: GossipState) -> GossipState:
        hears, k = jnp.asarray(self.hears), state.heard
        total = jnp.einsum("ij,jab->iab", hears, state.sent, precision="highest")
        std = jnp.sqrt(hears.sum(1)) * jnp.asarray(self.stds)[k]
        count = jnp.matmul(hears, state.users, precision="highest")

        def update(policy: Any, old: Any, total: Array, count: Array, std: Array) -> tuple[Any, Array]:
            return next_belief(policy, k, old, Released(total[:, :-1], total[:, -1], count, std))

        belief, status = jax.vmap(update)(self.policy, state.belief, total, count, std)
        return state._replace(belief=belief, heard=k + 1, status=state.status | jnp.bitwise_or.reduce(status))

    def _refresh(self, state: GossipState, turn: Turn) -> GossipState:
        return state._replace(ledgers=jax.vmap(self.stages.hand_over, (0, None))(state.ledgers, turn.due))
