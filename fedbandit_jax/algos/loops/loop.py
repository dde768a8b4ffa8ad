"""Base classes of loops that run a policy: beliefs, actions, attendance, releases, costs and certificates.

Letters: M agents, K arms, d features, S releases; W = sum x x' and U = sum x y over users.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.algos.loops.leaks import policy_leaks
from fedbandit_jax.algos.loops.ledger import Stages
from fedbandit_jax.certificate import Certificate, Raw, no_privacy
from fedbandit_jax.core import lots, random, struct
from fedbandit_jax.core.programs import call, in_words
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces import Algorithm, Policy, Released, Report, Round, Spec, Status
from fedbandit_jax.privacy.bound import BoundMechanism, Timing
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.schedules import BoundSchedule, leaks, timing

PEERS = "there is no server: silos send messages to each other"


def without_sums(found: Certificate, aside: str, most: float, sums: str, *, server: bool = True) -> Certificate:
    """Returns a certificate for runs without a server that adds up silos' sums.

    `aside` names the party that does, `most` is the largest noise in the `sums` there, and `server` tells whether there
    is a server.
    """
    whose, trust = f"{found.noise_whose}, at most {most:.6g} in {sums}", f"{found.trust} ({aside})"
    return dataclasses.replace(found, trust=trust, server=server, noise_whose=whose, server_noise_std=None)


def finite_or(old: Any, fresh: Any) -> tuple[Any, Array]:
    """Returns a fresh belief if all its numbers are finite, the old one otherwise, and `Status` bits.

    Raises:
        TypeError: the two beliefs have different structures or shapes.
    """
    fresh = jax.tree.map(jnp.asarray, fresh)
    (leaves, kind), (others, like) = (jax.tree.flatten(belief) for belief in (fresh, old))
    if kind != like or in_words(leaves) != in_words(others):
        raise BadType("a policy's update", f"must return a belief as at its start, {in_words(old)}", in_words(fresh))
    finite = [jnp.isfinite(x).all() for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    ok = jnp.stack(finite).all() if finite else jnp.bool_(True)
    belief = jax.tree.map(lambda new, old: jnp.where(ok, new, old), fresh, old)
    return belief, jnp.where(ok, jnp.int32(0), jnp.int32(Status.NO_ESTIMATE))


def first_belief(policy: Policy, dim: int) -> tuple[Any, Array]:
    """Returns the belief before the first release, zeros if it is not finite, and `Status` bits."""
    belief = jax.tree.map(jnp.asarray, call(policy, "start", dim))
    return finite_or(jax.tree.map(jnp.zeros_like, belief), belief)


def next_belief(policy: Policy, k: Array, belief: Any, released: Released) -> tuple[Any, Array]:
    """Returns the belief after release k = 0, 1, ..., the old one if it is not finite, and `Status` bits."""
    return finite_or(belief, call(policy, "update", k, belief, released))


@struct.pytree
class PlayingLoop(Algorithm):
    """A loop of agents that play the best arms by a policy's indices."""

    policy: Policy = struct.part()
    spec: Spec = struct.static()

    def prepared(self, t: Array, local: Any, offered: Round) -> Any:
        """Returns the input of the policy's `indices` in round t; by default the local state."""
        return local

    def indices(self, key: Array, t: Array, local: Any, offered: Round) -> Array:
        """Returns the policy's indices of all arms for all agents, (K, M)."""
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
    """Base class of loops with a policy that acts on a mechanism's releases, for a known environment and horizon.

    A subclass decides about senders and released sums. A run is private if mechanism and schedule are.
    """

    mechanism: BoundMechanism
    stds: Any  # (S,) standard deviation of the noise of every release, `Released.std`; (1,) zero without noise
    n_syncs: struct.Number  # S
    schedule: BoundSchedule | None = struct.part()  # None: after each batch of B rounds
    learns_in_batch: bool = struct.static(default=False)

    @property
    def equal_batches(self) -> int | None:
        """Returns the rounds B of every batch; None if a schedule decides."""
        return self.batch if self.schedule is None else None

    @property
    def reads(self) -> str:
        """The statistic passed to the schedule, see `BoundSchedule.reads`."""
        return "nothing" if self.schedule is None else type(self.schedule).reads

    @property
    def raw(self) -> tuple[Raw, ...]:
        """The accesses to raw data."""
        when = () if self.schedule is None else leaks(self.schedule)
        return (*when, *policy_leaks(self.one_policy, self.spec, self.learns_in_batch, self.equal_batches))

    @property
    def one_policy(self) -> Policy:
        """The policy; the first agent's, if every agent has one."""
        return self.policy

    def proof(self, spec: Spec) -> Certificate:
        """Returns the mechanism's guarantee for the users of `spec`, without regard to raw data."""
        mechanism = self.mechanism
        if not struct.is_sealed(mechanism):
            return no_privacy(f"nothing is proved of {type(mechanism).__name__}, a user-defined mechanism")
        if wrong := mechanism.objection(spec):
            return no_privacy(wrong)
        total = None if self.equal_batches is None else int(self.n_syncs) * self.equal_batches
        equal = Timing("fixed in advance, so it tells nothing about users", total=total)
        when = equal if self.schedule is None else timing(self.schedule)
        return mechanism.guarantee(when, self.equal_batches)

    @override
    def guarantee(self) -> Certificate:
        return self.proof(self.spec).through(self.raw)

    @property
    def stages(self) -> Stages:
        """The stages from contributions to a release."""
        return Stages(self.mechanism, self.spec, self.stds)

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
        """Returns the cost of synchronisation k, if `due`. It is the mechanism's uplink, and a packed sum for each
        receiver.

        `senders` is the number of senders, or the share of silos that send.
        """
        size = packed_size(self.spec.dim)
        up, bits = self.mechanism.uplink(k + 1, self.spec.dim)
        sent = jnp.round(senders * jnp.asarray(up, jnp.float32))  # float32 shares are inexact
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
        """Returns the most rounds of pending rows in float32."""
        return self.mechanism.longest or own_rows.REFRESH

    def worth(self, key: Array, t: Array, belief: Any, user: Array, contexts: Array) -> Array:
        """Returns the policy's indices of the arms (K,) for one user with this belief."""
        offered = Round(contexts[None], user=user[None])
        prepared = self.policy.prepare(belief, offered, False)
        return self.policy.indices(random.fold_in(key, t), t, prepared, offered)[:, 0]
