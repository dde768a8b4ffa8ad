"""The loop of federated learning with a server, in batches or under a schedule.

Letters: M agents, d features, B rounds in a batch, S synchronisations. V is the matrix that all agents share in an
epoch, between two synchronisations. V_i = V + sum x x' includes agent i's own rows. The shift c >= 0 is for schedules
that read log det (V_i + c I).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.algos.loops.ledger import Ledger
from fedbandit_jax.algos.loops.loop import PolicyLoop, first_belief, next_belief
from fedbandit_jax.algos.loops.own_rows import Epoch, Turn
from fedbandit_jax.core import control, random, ridge, struct
from fedbandit_jax.interfaces import Released, Report, Round, Spec


class ServerState(NamedTuple):
    """Server and agents between two batches, or between two rounds under a schedule."""

    ledger: Ledger
    belief: Any  # the policy's, from the releases
    synced: Array  # int32, synchronisations so far
    asked: Array | None  # (M,) bool, which agents asked to synchronise after the last round; None without a schedule
    epoch: Any  # `Epoch`; None without a schedule


class InBatch(NamedTuple):
    """Agents within a batch."""

    prepared: Any  # input of the policy's `indices`
    state: ServerState


@struct.sealed
@struct.pytree
class ServerLoop(PolicyLoop):
    """Federated learning with a server, for a known environment and horizon; private if mechanism and schedule are.

    At a synchronisation all silos send, and the mechanism releases their sum. V_i is raw, and is kept only if agents
    learn within an epoch or the schedule reads log det V_i. A schedule gets only the statistic that it declares.

    With B = 1 and no schedule, learning inside the batch reads no raw data. The next batch downloads the release before
    any other user arrives.
    """

    supports_dropouts = supports_delay = True

    batch: int = struct.static(default=1)  # B
    shift: Any = None  # c > 0; None if the schedule reads no log det (V_i + c I)

    @property
    def tracks(self) -> bool:
        """Whether every agent's matrix V_i is needed from round to round."""
        return self.schedule is not None and (self.reads == "log_det" or self.learns_in_batch)

    @property
    @override
    def adds(self) -> bool:
        one, spec = self.mechanism, self.spec
        alone = one.needs_users or one.enforced or one.per_silo or spec.drops or spec.late
        return self.schedule is None and not alone

    @property
    @override
    def source(self) -> Any:
        known = struct.is_sealed(self) and self.schedule is None and not self.spec.drops  # absent silos add no noise
        return self.mechanism.source if known else None

    @override
    def given(self, rows: Any) -> ServerLoop:
        mechanism: Any = self.mechanism
        return dataclasses.replace(self, mechanism=mechanism.given(rows))

    @override
    def init(self, key: Array, spec: Spec) -> ServerState:
        belief, status = first_belief(self.policy, spec.dim)
        each, m = self.tracks or self.mechanism.per_silo or spec.drops, spec.n_agents
        n_sums = None if self.adds else m if each else 1  # sums that `gather` forms are pending in `sync` only
        ledger = self.stages.open(n_sums, m, spec.n_users, status=status)
        asked = None if self.schedule is None else jnp.zeros(m, bool)
        return ServerState(ledger, belief, jnp.int32(0), asked, self._epoch(key, belief))

    @override
    def download(self, state: ServerState, offered: Round) -> InBatch:
        belief, epoch, fixed = state.belief, state.epoch, self.spec.fixed_contexts and self.schedule is None
        if self.learns_in_batch and epoch is None:
            belief = belief._replace(posterior=ridge.tile(belief.posterior, len(offered.contexts)))
        elif self.learns_in_batch:
            belief = belief._replace(posterior=epoch.own.posterior, log_det=belief.log_det + epoch.own.gained)
        state = state._replace(ledger=state.ledger._replace(counts=self.stages.tally()))
        return InBatch(self.policy.prepare(belief, offered, fixed), state)

    @override
    def prepared(self, t: Array, local: InBatch, offered: Round) -> Any:
        return local.prepared

    def learn(self, t: Array, local: InBatch, offered: Round, arms: Array, rewards: Array) -> tuple[InBatch, Any]:
        """Records contributions (Algorithm 8, lines 5, 8), and may learn from raw rewards (Algorithm 1, line 7)."""
        state, epoch = local.state, local.state.epoch
        if self.adds:
            x = ridge.take(offered.contexts, arms)
            record = self.mechanism.admit(x, rewards, state.ledger.mechanism.seen)
            x, v = record.x, record.v
        else:
            ledger, x, v = self.stages.receive(state.ledger, state.synced, offered, arms, rewards)
            state, record = state._replace(ledger=ledger), (x, v) if self.mechanism.needs_users else ()
        if self.learns_in_batch and epoch is None:
            return InBatch(self.policy.learn(local.prepared, offered, x, v), state), record
        if epoch is not None:
            epoch = epoch.add(self.schedule, state.belief, x, v)
        return local._replace(state=state._replace(epoch=epoch)), record

    @override
    def gather(self, records: Any) -> Any:
        return self.stages.gather(records) if self.adds else records

    def sync(self, key: Array, k: Array, state: ServerState, local: Any, records: Any) -> tuple[ServerState, Report]:
        """Releases the sums of the batch if they are due, and shows the policy the release (Algorithm 1, lines 9-24).

        Under a schedule k = 0, 1, ... numbers rounds, otherwise batches.
        """
        m, users = self.spec.n_agents, records if self.mechanism.needs_users else None
        state = state._replace(ledger=self.stages.enter(state.ledger, *records)) if self.adds else local.state
        due, stream, rounds = k < self.n_syncs, key, self.batch * (k + 1)
        if state.epoch is not None:
            asked = state.epoch.asked(self.schedule, random.stream(key, "requests"), k) & (state.synced < self.n_syncs)
            asked = jnp.broadcast_to(asked, (m,))
            state, due, stream = state._replace(asked=asked), asked.any(), random.stream(key, "release")
        due, senders, counts = self.stages.present(state.ledger, due)
        new = control.cond_any(due, lambda state: self._release(key, stream, rounds, state, users), state)
        if state.epoch is not None:
            new = own_rows.in_turn(k, m if self.tracks else 1, self._refresh, new, self.longest)
        elif self.adds:
            new = new._replace(ledger=new.ledger._replace(pending=None))
        elif state.ledger.absent is not None:
            new = new._replace(ledger=self.stages.hand_over(new.ledger, True))
        status = new.ledger.status
        return new, self.report(due, state.synced, status, senders=senders, receivers=m, counts=counts)

    @override
    def view(self, state: ServerState) -> Any:
        view = state.ledger.mechanism.view
        return view if state.asked is None else (view, state.synced, state.asked)

    def _release(self, key: Array, stream: Array, rounds: Array, state: ServerState, users: Any) -> ServerState:
        statistics, ledger = self.stages.release(stream, state.synced, state.ledger, users)
        count, std = jnp.float32(self.spec.n_agents) * rounds, jnp.asarray(self.stds)[state.synced]
        if ledger.attendance is not None:
            count = ledger.attendance.count.sum().astype(jnp.float32)
        released = Released(statistics[:, :-1], statistics[:, -1], count, std)
        belief, status = next_belief(self.policy, state.synced, state.belief, released)
        ledger = ledger._replace(status=ledger.status | status)
        return state._replace(ledger=ledger, belief=belief, synced=state.synced + 1, epoch=self._epoch(key, belief))

    def _epoch(self, key: Array, shared: Any) -> Epoch | None:
        if self.schedule is None:
            return None
        key = random.stream(key, "epoch")
        return Epoch.start(self.schedule, key, shared, self.spec.n_agents, self.tracks, self.shift)

    def _refresh(self, state: ServerState, turn: Turn) -> ServerState:
        epoch, pending = state.epoch, state.ledger.pending
        state = state._replace(ledger=self.stages.hand_over(state.ledger, turn.due))
        if epoch is None or epoch.own is None:
            return state
        rows, _, settled = own_rows.add_pending(self.mechanism.real(pending), epoch.settled, turn)
        return state._replace(epoch=epoch.anew(state.belief, rows, self.shift, turn)._replace(settled=settled))
