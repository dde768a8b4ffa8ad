"""Base classes of loops that run a policy: actions, attendance, releases, costs and certificates.

Letters: M agents, K arms, d features, S releases; W = sum x x' and U = sum x y over users.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.algos.loops.beliefs import next_belief
from fedbandit_jax.algos.loops.doors import policy_doors
from fedbandit_jax.certificate import Certificate, Raw, no_privacy
from fedbandit_jax.core import lots, random, struct, wide
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.interfaces import Algorithm, Policy, Released, Report, Round, Spec, Status
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.attendance import Attendance
from fedbandit_jax.privacy.bound import BoundMechanism, MechanismState, Timing
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.statistic import LINEAR
from fedbandit_jax.schedules import BoundSchedule, doors, timing

LEFT_OUT = "contributions left out"
MISSED = "silos that missed a synchronisation"
CLIPPED = "contributions clipped"
PEERS = "there is no server: silos send messages to each other"


def without_sums(found: Certificate, aside: str, most: float, sums: str, *, server: bool = True) -> Certificate:
    """A certificate where no server adds up silos' sums: who does, `aside`, and the most noise in the `sums` there.

    `server` says whether there is one at all.
    """
    whose, trust = f"{found.noise_whose}, at most {most:.6g} in {sums}", f"{found.trust} ({aside})"
    return dataclasses.replace(found, trust=trust, server=server, noise_whose=whose, server_noise_std=None)


@struct.pytree
class PlayingLoop(Algorithm):
    """A loop whose agents play the best arms by a policy's indices."""

    policy: Policy
    spec: Spec = struct.static()

    def prepared(self, t: Array, local: Any, offered: Round) -> Any:
        """The input of the policy's `indices` in round t; by default the local state, as `download` makes it."""
        return local

    def indices(self, key: Array, t: Array, local: Any, offered: Round) -> Array:
        """The policy's indices of all arms for all agents, (K, M)."""
        return self.policy.indices(key, t, self.prepared(t, local, offered), offered)

    @override
    def act(self, key: Array, t: Array, local: Any, offered: Round) -> Array:
        indices = self.indices(key, t, local, offered)
        if offered.mask is not None:
            indices = jnp.where(offered.mask.T, indices, -jnp.inf)
        return lots.best(key, indices)

    @property
    @override
    def scores_alone(self) -> bool:
        return struct.is_sealed(self.policy) and self.policy.scores_alone

    @override
    def scorer(self, t: Array, local: Any) -> Scorer:
        nothing = Round(jnp.zeros((self.spec.n_agents, 0, self.spec.dim)))
        return self.policy.scorer(t, self.prepared(t, local, nothing))


@struct.pytree
class PolicyLoop(PlayingLoop):
    """A policy that acts on the releases of a mechanism, for a known environment and horizon; base class of such loops.

    A subclass says who sends when, and whose sums a release is of. It is private if its mechanism and schedule are.
    """

    mechanism: BoundMechanism
    stds: Any  # (S,) standard deviation of the noise of every release, `Released.std`; (1,) zero without noise
    n_syncs: struct.Number  # S
    schedule: BoundSchedule | None  # None: after each of its batches, which are of equal length
    learns_in_batch: bool = struct.static(default=False)

    @classmethod
    def shown_stds(cls, stds: np.ndarray, n_streams: int, horizon: int) -> np.ndarray:
        """The standard deviations of the noise in all that a policy will be shown in T rounds, which it is told of.

        `stds` (S,) are those of one mechanism's releases, of which `n_streams` may add up in what is shown.
        """
        return stds * math.sqrt(n_streams)

    @property
    def equal_batches(self) -> int | None:
        """B, if every batch has that many rounds; None if a schedule decides."""
        return self.batch if self.schedule is None else None

    @property
    def reads(self) -> str:
        """The statistic that the schedule is handed, see `BoundSchedule.reads`."""
        return "nothing" if self.schedule is None else type(self.schedule).reads

    @property
    def raw(self) -> tuple[Raw, ...]:
        """The doors to raw data."""
        when = () if self.schedule is None else doors(self.schedule)
        return (*when, *policy_doors(self.one_policy, self.spec, self.learns_in_batch, self.equal_batches))

    @property
    def one_policy(self) -> Policy:
        """The policy or, if every agent has one, that of the first."""
        return self.policy

    def proof(self, spec: Spec) -> Certificate:
        """The guarantee of the mechanism for the users of `spec`, whatever doors there are."""
        mechanism = self.mechanism
        if not struct.is_sealed(mechanism):
            return no_privacy(f"{type(mechanism).__name__} is a mechanism of its own, of which nothing is proved")
        if mechanism.n_agents != spec.n_agents:
            return no_privacy(f"the mechanism is bound for {mechanism.n_agents} silos, there are {spec.n_agents}")
        if isinstance(mechanism, NoisyMechanism):
            one, plain = mechanism.statistic, BoundStatistic.of(spec)
            if not struct.is_sealed(one) or dataclasses.replace(one, rule=LINEAR, total=None) != plain:
                return no_privacy(f"the mechanism is bound to another statistic than this environment's, with {spec}")
        total = None if self.equal_batches is None else int(self.n_syncs) * self.equal_batches
        equal = Timing("fixed in advance, so it tells nothing about users", total=total)
        when = equal if self.schedule is None else timing(self.schedule)
        return mechanism.guarantee(when, self.equal_batches)

    @override
    def guarantee(self) -> Certificate:
        return self.proof(self.spec).through(self.raw)

    def admit(self, x: Array, y: Array, seen: Any, each: bool = False) -> tuple[Array, Array, Array, Array]:
        """Features (d, M) and responses as they enter sums, `Status` bits, and the number of contributions clipped."""
        x, v, outside, clipped = self.mechanism.admit(x, y, seen, each)
        return x, v, jnp.where(outside.any(), Status.OUTSIDE_SPEC, 0), clipped.sum(dtype=jnp.int32)

    def tally(
        self,
        clipped: Array | int = 0,
        left_out: Array | int = 0,
        away: Array | None = None,
        due: Array | bool = False,
    ) -> dict[str, Array]:
        """Numbers of contributions clipped and left out, and of silos away when a release was due, where counted."""
        counts = {CLIPPED: clipped} if self.mechanism.clips else {}
        counts |= {LEFT_OUT: left_out} if self.mechanism.enforced else {}
        return jax.tree.map(jnp.int32, counts) | (self.missed(away, due) if self.spec.drops else {})

    def missed(self, away: Array | None, due: Array | bool) -> dict[str, Array]:
        """The number of silos that miss a synchronisation that is due."""
        return {MISSED: jnp.int32(0) if away is None else jnp.where(due, away.sum(dtype=jnp.int32), 0)}

    def away(self, offered: Round) -> Array | None:
        """(M,) bool, the silos that miss the synchronisation after a round; None if none does."""
        return offered.away if self.spec.drops else None

    def nothing_held(self) -> Any:
        """The sums (d, d + 1, M) that silos have not sent before the first round; None if all are always there."""
        if not self.spec.drops:
            return None
        nothing = jnp.zeros((self.spec.dim, self.spec.dim + 1, self.spec.n_agents), self.mechanism.dtype)
        return wide.from_int32(nothing) if nothing.dtype == jnp.int32 else nothing

    def more(self, held: Any, part: Array) -> Any:
        """The sums that silos have not sent, with those of later users added."""
        return wide.add(held, wide.from_int32(part)) if isinstance(held, wide.Wide) else held + part

    def sent(self, held: Any, part: Array, away: Array) -> tuple[Any, Any, Array, Array]:
        """The sums that silos send, and those that they keep, at a synchronisation that some miss.

        Args:
            held: sums (d, d + 1, M) that they have not sent before.
            part: the same of the users since.
            away: (M,) bool, who misses it.

        Returns:
            The sum over silos that send, what all have not sent afterwards, who sends, and whether these are enough.
        """
        enough = (~away).sum() >= self.mechanism.needed
        sends = ~away & enough
        ready = self.more(held, part)
        keeps = ~sends if self.mechanism.resends else ~enough  # what others have sent without it is lost
        held = jax.tree.map(lambda x: jnp.where(keeps, x, jnp.zeros_like(x)), ready)
        going = jax.tree.map(lambda x: jnp.where(sends, x, jnp.zeros_like(x)), ready)
        return wide.add_up(going) if isinstance(going, wide.Wide) else going.sum(-1), held, sends, enough

    def nobody_came(self, *shape: int) -> Attendance | None:
        """The attendance of users (*shape) before the first round; None if nothing is left out."""
        return Attendance.none(*shape) if self.mechanism.enforced else None

    def attend(
        self, attendance: Attendance | None, k: Array, user: Array | None, x: Array
    ) -> tuple[Attendance | None, Array, Array, tuple[Array, Array] | None]:
        """Has users (M,) come in batch k, and leaves out what they contribute beyond the bounds of the mechanism.

        Args:
            attendance: of all users of every silo, (M, n).
            k: number of the batch.
            user: who came to each silo; n for nobody.
            x: (d, M) their features.

        Returns:
            The new attendance, the features, zero where they are left out, of how many contributions they are, and
            whose visits enter, and are the first ones in this batch, (M,) each, or None if nothing is left out.
        """
        if attendance is None:
            return None, x, jnp.int32(0), None
        assert user is not None
        assert isinstance(self.mechanism, NoisyMechanism)
        at = jnp.arange(len(user)), user
        enters, rows = jax.tree.map(lambda table: table[at], attendance).come(self.mechanism.users, k)
        exists = user < attendance.count.shape[1]
        attendance = jax.tree.map(lambda table, row: table.at[at].set(row, mode="drop"), attendance, rows)
        left_out = (exists & ~enters).sum(dtype=jnp.int32)
        return attendance, jnp.where(enters & exists, x, 0), left_out, (enters & exists, rows.now == 1)

    def release(
        self,
        key: Array,
        k: Array,
        state: MechanismState,
        total: Any,
        users: tuple[Array, Array] | None = None,
        sends: Array | None = None,
    ) -> tuple[Array, MechanismState]:
        """Release k = 0, 1, ... of [W | U], (d, d + 1), where `total` is the sum of what was not absorbed before."""
        d, silos = self.spec.dim, self.mechanism.n_agents
        x, v = users or (jnp.zeros((0, d, silos)), jnp.zeros((0, silos)))
        some = () if sends is None else (sends,)  # a mechanism of one's own need not know of them
        statistics, sent = self.mechanism.step(key, k + 1, state, total, x, v, *some)
        std = jnp.asarray(self.stds)[k]
        if sent.totals is not None:
            statistics, totals = sent.totals.release(self.mechanism, statistics, std)
            sent = sent._replace(totals=totals)
        return statistics, sent._replace(seen=self.mechanism.read(statistics, std))

    def release_all(self, key: Array, k: Array, states: Any, totals: Array) -> tuple[Array, Any]:
        """Release k of n mechanisms like this one, each with noise of its own; all has a leading axis n."""
        keys = jax.random.split(random.stream(key, "release"), len(totals))
        return jax.vmap(self.release, (0, None, 0, 0))(keys, k, states, totals)

    def shown(
        self, k: Array, belief: Any, statistics: Array, rounds: Array, attendance: Attendance | None
    ) -> tuple[Any, Array]:
        """Shows the policy release k, after so many rounds of all silos; returns its belief, and `Status` bits."""
        std = jnp.asarray(self.stds)[k]
        count = jnp.float32(self.spec.n_agents) * rounds
        if attendance is not None and isinstance(self.mechanism, NoisyMechanism) and self.mechanism.users.total is None:
            count = attendance.count.sum().astype(jnp.float32)
        return next_belief(self.policy, k, belief, Released(statistics[:, :-1], statistics[:, -1], count, std))

    def report(
        self,
        due: Array,
        k: Array,
        status: Array,
        *,
        senders: int | Array = 1,
        receivers: int,
        counts: dict[str, Array],
    ) -> Report:
        """The cost of synchronisation k, if `due`: what mechanisms like this one send, and a packed sum a receiver.

        `senders` is how many of them send, or the share of the silos that do.
        """
        size = packed_size(self.spec.dim)
        up, bits = self.mechanism.uplink(k + 1, self.spec.dim)
        sent = jnp.round(senders * jnp.asarray(up, jnp.float32))  # a share in float32 is not that of whole silos
        floats = jnp.stack([sent, jnp.float32(receivers * size)])
        return Report(
            rounds=jnp.where(due, 1, 0),
            floats=jnp.where(due, floats, 0),
            float_bits=jnp.stack([jnp.asarray(bits, jnp.float32), jnp.float32(32)]),
            status=status,
            counts=counts,
        )

    @property
    def longest(self) -> int:
        """The most rounds whose rows are added up before the mechanism does so."""
        return self.mechanism.longest if isinstance(self.mechanism, NoisyMechanism) else own_rows.REFRESH

    def worth(self, key: Array, t: Array, belief: Any, user: Array, contexts: Array) -> Array:
        """The policy's indices of the arms (K,) for one user who acts on this belief."""
        offered = Round(contexts[None], user=user[None])
        prepared = self.policy.prepare(belief, offered, False)
        return self.policy.indices(random.fold_in(key, t), t, prepared, offered)[:, 0]

    @override
    def view(self, state: Any) -> Any:
        return state.mechanism.view
