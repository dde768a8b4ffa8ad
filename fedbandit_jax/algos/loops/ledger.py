"""The stages from contributions to pending sums, and from pending sums to a release.

Letters: M silos, d features, n users of a silo; W = sum x x' and U = sum x y over users.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core import random, ridge, wide
from fedbandit_jax.interfaces import Round, Spec, Status
from fedbandit_jax.privacy.admission import Admitted
from fedbandit_jax.privacy.bound import BoundMechanism, MechanismState
from fedbandit_jax.privacy.users import Attendance

LEFT_OUT = "contributions left out"
MISSED = "silos that missed a synchronisation"
CLIPPED = "contributions clipped"


class Late(NamedTuple):
    """Pending rewards of every silo, from the last L rounds."""

    x: Array  # (L, M, d) features of the arms played, zero before the first round
    y: Array  # (L, M) rewards
    user: Array | None  # (L, M), if users are identified

    @classmethod
    def none(cls, spec: Spec) -> Late | None:
        """Returns the table before the first round; None if no reward is delayed."""
        if not spec.late:
            return None
        shape = spec.late, spec.n_agents
        user = jnp.full(shape, spec.n_users, jnp.int32) if spec.n_users else None
        return cls(jnp.zeros((*shape, spec.dim)), jnp.zeros(shape), user)


def arrived(late: Late | None, offered: Round, arms: Array, rewards: Array) -> tuple[Array, Array, Array | None, Any]:
    """Returns features (d, M), rewards (M,) and users (M,) of the rewards that arrive in a round, and the new table."""
    x = ridge.take(offered.contexts, arms)
    if late is None:
        return x, rewards, offered.user, None
    assert offered.arrives is not None
    which, silo, most = offered.arrives, jnp.arange(len(rewards)), len(late.y)
    exists = (which >= 0) & (which < most)  # otherwise nothing arrives
    at = jnp.where(exists, which, most), silo
    now = Late(x.T, rewards, offered.user)
    old = jax.tree.map(lambda table: table.at[at].get(mode="fill", fill_value=0), late)
    user = None if old.user is None else jnp.where(exists, old.user, 2**30)
    return old.x.T, old.y, user, jax.tree.map(lambda table, row: table.at[at].set(row, mode="drop"), late, now)


class Absent(NamedTuple):
    """Silos that miss synchronisations, and the unsent sums of all silos."""

    away: Array  # (M,) bool, which silos are absent now
    unsent: Any  # (d, d + 1, M) sums that were pending before; `Wide` for fixed point

    @classmethod
    def none(cls, spec: Spec, dtype: Any) -> Absent | None:
        """Returns the state before the first round; None if all silos are always present."""
        if not spec.drops:
            return None
        unsent = jnp.zeros((spec.dim, spec.dim + 1, spec.n_agents), dtype)
        return cls(jnp.zeros(spec.n_agents, bool), wide.from_int32(unsent) if dtype == jnp.int32 else unsent)

    def add(self, part: Array) -> Absent:
        """Adds sums of every silo, (d, d + 1, M), to the unsent ones."""
        whole = isinstance(self.unsent, wide.Wide)
        return self._replace(unsent=wide.add(self.unsent, wide.from_int32(part)) if whole else self.unsent + part)

    def send(self, resends: bool) -> tuple[Any, Absent]:
        """Returns the sum over present silos. Absent ones keep their sums, or lose them unless they resend."""

        def of(which: Array) -> Any:
            return jax.tree.map(lambda x: jnp.where(which, x, jnp.zeros_like(x)), self.unsent)

        sent = of(~self.away)
        total = wide.add_up(sent) if isinstance(sent, wide.Wide) else sent.sum(-1)
        return total, self._replace(unsent=of(self.away & resends))


class Ledger(NamedTuple):
    """Pending sums of senders, and the states of the stages of contributions.

    The state of a stage that is not needed is None.
    """

    mechanism: MechanismState  # exact sums, and drawn noise
    pending: Any  # (d, d + 1, A) further sums; A = M, or 1 for all silos; None: none are pending
    attendance: Attendance | None  # of all users of every silo or of all silos, if contributions are bounded
    late: Late | None  # pending rewards, if rewards are delayed
    absent: Absent | None  # absent silos and unsent sums, if silos may miss synchronisations
    counts: dict[str, Array]  # int32, contributions clipped and left out, if counted
    status: Array  # int32 `Status` bits


class Stages(NamedTuple):
    """Stages that a mechanism needs in an environment; `stds` as in `PolicyLoop`."""

    mechanism: BoundMechanism
    spec: Spec
    stds: Any

    def open(self, n_sums: int | None, *users: int, status: Array | int = 0) -> Ledger:
        """Returns the ledger before the first round, with A = `n_sums` pending sums and a table of `users`."""
        one, spec = self.mechanism, self.spec
        return Ledger(
            mechanism=one.init(spec.dim),
            pending=None if n_sums is None else jnp.zeros((spec.dim, spec.dim + 1, n_sums), one.dtype),
            attendance=Attendance.none(*users[one.together :]) if one.enforced else None,
            late=Late.none(spec),
            absent=Absent.none(spec, one.dtype),
            counts=self.tally(),
            status=jnp.int32(status),
        )

    def open_all(self, n: int, n_users: int = 1) -> Ledger:
        """Returns the ledgers of n senders with `n_users` identified users each, along a new leading axis."""
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), self.open(1, 1, n_users))

    def tally(self, clipped: Array | int = 0, left_out: Array | int = 0) -> dict[str, Array]:
        """Returns the numbers of contributions clipped and left out, if they are counted."""
        counts = {CLIPPED: clipped} if self.mechanism.clips else {}
        counts |= {LEFT_OUT: left_out} if self.mechanism.enforced else {}
        return jax.tree.map(jnp.int32, counts)

    def add(self, ledger: Ledger, k: Array, user: Array | None, x: Array, y: Array) -> tuple[Ledger, Array, Array]:
        """Adds contributions to batch k: clips them, drops those beyond the bounds of their users, and sums the rest.

        `user` (M,) is n for nobody, and None if users are not identified. x are features (d, M) and y rewards (M,).
        Also returns the features that enter, zero where they are dropped, and the responses, as `admit` returns them.
        Counts are replaced.
        """
        x, v, outside, clipped = self.mechanism.admit(x, y, ledger.mechanism.seen)
        status = ledger.status | jnp.where(outside.any(), Status.OUTSIDE_SPEC, 0)
        clipped, left_out = clipped.sum(dtype=jnp.int32), jnp.int32(0)
        mechanism, pending, attendance = ledger.mechanism, ledger.pending, ledger.attendance
        if attendance is not None:
            attendance, enters, left_out = self._attend(attendance, k, user)
            x = jnp.where(enters, x, 0)
        if pending is not None and pending.shape[-1] == 1 < len(y):
            part = self.mechanism.total(x[None], v[None])[..., None]
        else:
            part = self.mechanism.summands(x, v)
        if pending is None:
            mechanism = self.mechanism.absorb(mechanism, part[..., 0])
        else:
            pending = pending + part
        ledger = ledger._replace(mechanism=mechanism, pending=pending, attendance=attendance, status=status)
        return ledger._replace(counts=self.tally(clipped, left_out)), x, v

    def receive(
        self, ledger: Ledger, k: Array, offered: Round, arms: Array, rewards: Array
    ) -> tuple[Ledger, Array, Array]:
        """Adds the contributions that arrive in a round to batch k, as in `add`. Counts add up over rounds."""
        x, y, user, late = arrived(ledger.late, offered, arms, rewards)
        absent = None if ledger.absent is None else ledger.absent._replace(away=offered.away)
        new, x, v = self.add(ledger._replace(late=late, absent=absent), k, user, x, y)
        return new._replace(counts=jax.tree.map(jnp.add, ledger.counts, new.counts)), x, v

    def gather(self, admitted: Admitted) -> tuple[Array, Array, Array]:
        """Returns the sums over a batch of admitted contributions, and how many were outside the spec or clipped."""
        x, v, outside, clipped = admitted
        return self.mechanism.total(x, v), outside.sum(dtype=jnp.int32), clipped.sum(dtype=jnp.int32)

    def enter(self, ledger: Ledger, total: Array, outside: Array, clipped: Array) -> Ledger:
        """Returns the ledger with these sums over a batch as the pending ones."""
        status = ledger.status | jnp.where(outside > 0, Status.OUTSIDE_SPEC, 0)
        return ledger._replace(pending=total[..., None], counts=self.tally(clipped), status=status)

    def _attend(self, attendance: Attendance, k: Array, user: Any) -> tuple[Attendance, Array, Array]:
        """Returns the new table, the visits that enter, and the number of those left out."""
        at, mechanism = (jnp.arange(len(user)), user), cast(Any, self.mechanism)  # those that are `enforced` have users
        if mechanism.together:
            enters, new = attendance.come_together(mechanism.users, k, user)
            return new, enters, ((user < len(new.count)) & ~enters).sum(dtype=jnp.int32)
        enters, rows = jax.tree.map(lambda table: table[at], attendance).come(mechanism.users, k)
        exists = user < attendance.count.shape[1]
        attendance = jax.tree.map(lambda table, row: table.at[at].set(row, mode="drop"), attendance, rows)
        return attendance, enters & exists, (exists & ~enters).sum(dtype=jnp.int32)

    def hand_over(self, ledger: Ledger, due: Array | bool) -> Ledger:
        """Passes `due` pending sums on to the mechanism, whose sums have more digits than float32 and int32."""
        part = jnp.where(due, ledger.pending, 0)
        ledger = ledger._replace(pending=jnp.where(due, 0, ledger.pending))
        if ledger.absent is not None:
            return ledger._replace(absent=ledger.absent.add(part))
        part = part if self.mechanism.per_silo else part.sum(-1)
        return ledger._replace(mechanism=self.mechanism.absorb(ledger.mechanism, part))

    def present(self, ledger: Ledger, due: Array) -> tuple[Array, Any, dict[str, Array]]:
        """Returns whether a release that is `due` has enough senders, the share of silos that send, and the counts."""
        if ledger.absent is None:
            return due, 1, ledger.counts
        away = ledger.absent.away
        missed = jnp.where(due, away.sum(dtype=jnp.int32), 0)
        return due & ((~away).sum() >= self.mechanism.needed), (~away).mean(), ledger.counts | {MISSED: missed}

    def release(
        self, key: Array, k: Array, ledger: Ledger, users: tuple[Array, Array] | None = None
    ) -> tuple[Array, Ledger]:
        """Returns release k = 0, 1, ... of [W | U], (d, d + 1), and a ledger without pending sums.

        At least `mechanism.needed` silos must be present. `users` are features (B, d, M) and responses of single users,
        if the mechanism needs them.
        """
        total, absent, some = ledger.pending, ledger.absent, ()
        if absent is not None:
            some = (~absent.away,)
            total, absent = absent.add(total).send(self.mechanism.resends)
        elif total is None:
            total = jnp.zeros((self.spec.dim, self.spec.dim + 1))
        elif not self.mechanism.per_silo:
            total = total.sum(-1)
        nobody = jnp.zeros((0, self.spec.dim, self.mechanism.n_agents))
        x, v = users or (nobody, nobody[:, 0])
        statistics, state = self.mechanism.step(key, k + 1, ledger.mechanism, total, x, v, *some)
        state = state._replace(seen=self.mechanism.read(statistics, jnp.asarray(self.stds)[k]))
        pending = None if ledger.pending is None else jnp.zeros_like(ledger.pending)
        return statistics, ledger._replace(mechanism=state, pending=pending, absent=absent)

    def release_all(self, key: Array, k: Array, ledgers: Ledger) -> tuple[Array, Ledger]:
        """Returns the releases of n senders with independent noise, for ledgers with a leading axis n."""
        keys = jax.random.split(random.stream(key, "release"), len(ledgers.status))
        return jax.vmap(self.release, (0, None, 0))(keys, k, ledgers)
