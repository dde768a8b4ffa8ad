"""The loop of asynchronous federated learning: Algorithm 1 of He, Wang, Min & Gu (2022), with noise and any schedule.

In a round one agent arrives and acts. It may then upload its sums and download the server's. No agent waits for others.
Letters: M agents, d features. V is the matrix of an agent's last download, and U the Gram matrix of its rounds since.
Epochs of an agent end with its uploads.

Every agent has its own release, of the sums over all its rounds. The server adds up the last releases, so its sum has
the noise of all agents that have uploaded.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.algos.loops.ledger import Ledger
from fedbandit_jax.algos.loops.loop import PolicyLoop, first_belief, next_belief
from fedbandit_jax.algos.loops.own_rows import EVERYONE, Epoch
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import control, random, struct, tables
from fedbandit_jax.interfaces import ArrivalAlgorithm, Released, Report, Spec
from fedbandit_jax.privacy.bound import VISIT_TIMES
from fedbandit_jax.privacy.packing import added
from fedbandit_jax.privacy.sums import Sums
from fedbandit_jax.schedules import BoundSchedule


class Agent(NamedTuple):
    """One agent between two of its rounds. In `AsyncState` leaves have a leading axis M."""

    ledger: Ledger  # of its rounds, without pending sums
    belief: Any  # the policy's belief, from its last download
    epoch: Any  # `Epoch` of one agent, with all its rows
    rounds: Array  # () int32: its rounds so far
    users: Array  # () int32: the rounds that entered that release
    synced: Array  # () int32: its uploads so far


class AsyncState(NamedTuple):
    """Agents and server between two rounds."""

    agents: Agent  # leaves (M, ...)
    server: Sums  # sum of the last releases of all agents
    users: Array  # () float32: rounds in this sum
    variance: Array  # () float32: variance of the noise on the diagonal of its matrix
    synced: Array  # () int32: uploads of all agents
    status: Array  # () int32 `Status` bits


@struct.sealed
@struct.pytree
class AsyncLoop(PolicyLoop, ArrivalAlgorithm):
    """Asynchronous federated learning in a known environment; private if mechanism and schedule are.

    Mechanism and schedule are bound for one agent, and every agent has a state of these. `stds` and `n_syncs` are for
    one agent's uploads. A schedule counts the agent's own rounds, and gets only the statistic that it declares.
    """

    schedule: BoundSchedule = struct.part()  # of one agent

    @override
    def guarantee(self) -> Certificate:
        # A round enters its agent's releases and the tests of one epoch; all else is post-processing.
        found = self.proof(self.spec)
        if found.server_noise_std is not None:
            largest = found.server_noise_std * math.sqrt(self.spec.n_users)
            found = dataclasses.replace(found, server_noise_std=largest, not_covered=(VISIT_TIMES, *found.not_covered))
        return found.through(self.raw)

    @override
    def init(self, key: Array, spec: Spec) -> AsyncState:
        d, n = spec.dim, spec.n_users
        belief, status = first_belief(self.policy, d)
        zero = jnp.int32(0)
        ledger = self.stages.open(None, 1, 1)
        start = jax.vmap(lambda key: Agent(ledger, belief, self._epoch(key, belief), zero, zero, zero))
        agents = start(jax.random.split(key, n))
        nothing = jnp.zeros((d, d + 1))
        return AsyncState(agents, Sums(nothing, nothing), jnp.float32(0), jnp.float32(0), zero, status)

    @override
    def index(self, key: Array, t: Array, state: AsyncState, user: Array, contexts: Array) -> Array:
        return self.worth(key, t, tables.take(state.agents.belief, user), user, contexts)

    def serve(
        self, key: Array, t: Array, state: AsyncState, user: Array, x: Array, y: Array
    ) -> tuple[AsyncState, Report]:
        """Adds the round to the agent's sums, and exchanges with the server if the schedule asks (lines 7-14)."""
        key = random.fold_in(key, t)
        agent, exists = tables.take(state.agents, user), user < self.spec.n_users
        came = jnp.zeros(1, jnp.int32)
        ledger, x, v = self.stages.add(agent.ledger, agent.synced, came, x[:, None], y[None])  # as of one silo
        epoch = agent.epoch.add(self.schedule, agent.belief, x, v)
        if epoch.settled is not None:
            epoch = epoch._replace(settled=epoch.settled + added(x, v))
        asked = jnp.any(epoch.asked(self.schedule, random.stream(key, "requests"), agent.rounds))
        agent = agent._replace(ledger=ledger, epoch=epoch, rounds=agent.rounds + 1)
        due = asked & (agent.synced < self.n_syncs) & exists
        before = state._replace(agents=agent)  # of one agent: no branch copies the others
        after = control.cond_any(due, lambda state: self._exchange(key, state), before)
        agent = self._refresh(after.agents)
        status, counts = jax.tree.map(lambda one: jnp.where(exists, one, 0), (ledger.status, ledger.counts))
        status |= after.status
        report = self.report(due, before.agents.synced, status, receivers=1, counts=counts)
        return after._replace(agents=tables.put(state.agents, user, agent)), report

    @override
    def partition(self, state: AsyncState) -> Array:
        return jnp.zeros(self.spec.n_users, jnp.int32)

    @override
    def view(self, state: AsyncState) -> Any:
        return state.agents.ledger.mechanism.view, state.agents.synced

    def _exchange(self, key: Array, state: AsyncState) -> AsyncState:
        agent, k = state.agents, state.agents.synced
        before, attendance = agent.ledger.mechanism.view, agent.ledger.attendance
        statistics, ledger = self.stages.release(random.stream(key, "release"), k, agent.ledger)
        variances = jnp.asarray(self.stds) ** 2
        server = state.server.add(statistics - before)
        entered = agent.rounds if attendance is None else attendance.count[0, 0]
        users = state.users + (entered - agent.users)
        variance = state.variance + variances[k] - jnp.where(k > 0, variances[k - 1], 0)
        released = Released(server.high[:, :-1], server.high[:, -1], users, jnp.sqrt(variance))
        belief, status = next_belief(self.policy, state.synced, agent.belief, released)
        epoch = self._epoch(random.stream(key, "epoch"), belief)
        agent = Agent(ledger, belief, epoch, agent.rounds, entered, k + 1)
        return AsyncState(agent, server, users, variance, state.synced + 1, state.status | status)

    def _epoch(self, key: Array, belief: Any) -> Epoch:
        return Epoch.start(self.schedule, key, belief, 1, self.reads == "log_det")

    def _refresh(self, agent: Agent) -> Agent:
        if (rows := agent.epoch.settled) is None:
            return agent

        def anew(epoch: Epoch) -> Epoch:
            return epoch.anew(agent.belief, jnp.moveaxis(rows, 2, 0), None, EVERYONE)

        full = (agent.epoch.rounds + 1) % own_rows.REFRESH == 0
        return agent._replace(epoch=control.cond_any(full, anew, agent.epoch))
