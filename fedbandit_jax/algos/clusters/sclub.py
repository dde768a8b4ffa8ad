"""SCLUB (Li, Chen & Leung 2019) on every server by itself: sets of users that split and merge."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.algos.clusters import seats
from fedbandit_jax.algos.clusters.seats import RESOLVE, ClusteringRecipe, SeatedAlgorithm, UserSums, together
from fedbandit_jax.core import control, struct, tables
from fedbandit_jax.interfaces import Report, Spec


class Sets(NamedTuple):
    """Clusters of one server or, with a leading axis L, of all servers.

    A cluster's entries are at the place of its smallest user.
    """

    label: Array  # (P,) int32, the cluster of every user
    theta: Array  # (P, d), estimate of every cluster
    count: Array  # (P,) float32, rounds of every cluster's members  # pyright: ignore[reportIncompatibleMethodOverride]
    noted_theta: Array  # (P, d), estimate of every user's cluster at the phase's beginning, or the last split or merge
    noted_count: Array  # (P,) float32, the rounds of `noted_theta`
    checked: Array  # (P,) bool, users with rounds in this phase
    served: Array  # () int32, rounds of the server so far


class SCLUBState(NamedTuple):
    """The state between two rounds: the statistics of every user, and the clusters of every server."""

    users: UserSums
    sets: Sets  # with a leading axis L
    inverse: Array  # (L, P, d, d), inverse regularised matrix of every cluster, at the place of its smallest user


class Change(NamedTuple):
    """Clusters of one server after a round, and the inverses that change."""

    sets: Sets
    own: Array  # (d, d), inverse of the served user's cluster
    rest: Array  # () int32, the cluster that the user has left, P if none
    left: Array  # (d, d), its inverse


class OneServer(NamedTuple):
    """The users of one server, and the rules by which the cluster of the user at a `place` splits and merges."""

    users: UserSums  # with a leading axis P
    regularization: struct.Number
    alpha_theta: struct.Number
    alpha_p: struct.Number

    def leaves(self, sets: Sets, place: Array) -> Array:
        """Returns whether the user at a place must leave the cluster (Algorithm 2)."""
        counts, t = self.users.counts.astype(jnp.float32), sets.served.astype(jnp.float32)
        others = tables.put(sets.label == sets.label[place], place, jnp.bool_(False))
        spread = seats.spread(counts[place]) + seats.spread(sets.noted_count[place])
        far = seats.distance(self.users.theta[place], sets.noted_theta[place]) > self.alpha_theta * spread
        often = jnp.abs(counts - counts[place]) / t > 2 * self.alpha_p * seats.spread(t)
        return others.any() & (far | (others & often).any())

    def split(self, change: Change, place: Array) -> Change:
        """Makes the user at a place a cluster; the others keep their noted statistics."""
        sets = change.sets
        slot = sets.label[place]
        others = tables.put(sets.label == slot, place, jnp.bool_(False))
        rest = jnp.argmax(others).astype(jnp.int32)
        count = self.users.counts[place].astype(jnp.float32)
        sets = sets._replace(
            label=tables.put(jnp.where(others, rest, sets.label), place, place),
            noted_theta=tables.put(sets.noted_theta, place, self.users.theta[place]),
            noted_count=tables.put(sets.noted_count, place, count),
        )
        left = self.settle(change._replace(sets=sets), rest)
        sets = left.sets._replace(
            theta=tables.put(left.sets.theta, place, self.users.theta[place]),
            count=tables.put(left.sets.count, place, count),
        )
        return Change(sets, self.users.inverse[place], rest, left.own)

    def settle(self, change: Change, slot: Array) -> Change:
        """Recomputes the estimate of a cluster from the sums of its members; its inverse is `own`."""
        sets = change.sets
        found, count = together(self.users, sets.label == slot, self.regularization)
        sets = sets._replace(theta=tables.put(sets.theta, slot, found.theta), count=tables.put(sets.count, slot, count))
        return change._replace(sets=sets, own=found.inverse)

    def merge(self, change: Change, place: Array) -> Change:
        """Merges the cluster of the user at a place with similar ones, until there are none (Algorithm 3)."""

        def join(carry: tuple[Change, Array]) -> tuple[Change, Array]:
            change, alike = carry
            sets, one, other = change.sets, change.sets.label[place], jnp.argmax(alike).astype(jnp.int32)
            both, slot = (sets.label == one) | (sets.label == other), jnp.minimum(one, other)
            sets = sets._replace(label=jnp.where(both, slot, sets.label))
            change = self.settle(change._replace(sets=sets), slot)
            union = change.sets
            union = union._replace(
                noted_theta=jnp.where(both[:, None], union.theta[slot], union.noted_theta),
                noted_count=jnp.where(both, union.count[slot], union.noted_count),
            )
            return change._replace(sets=union), self.alike(union, place)

        def all_of_them(change: Change) -> Change:
            start = change, self.alike(change.sets, place)
            return lax.while_loop(lambda carry: carry[1].any(), join, start)[0]

        label, checked = change.sets.label, change.sets.checked
        return control.cond_any((checked | (label != label[place])).all(), all_of_them, change, costly=True)

    def alike(self, sets: Sets, place: Array) -> Array:
        """Returns the clusters similar to that at a place, (P,) bool, if both have no member left to see."""
        slot, t = sets.label[place], sets.served.astype(jnp.float32)
        size, seen = (jnp.zeros_like(sets.label).at[sets.label].add(x) for x in (1, sets.checked.astype(jnp.int32)))
        ready = (size > 0) & (seen == size)
        f, rate = seats.spread(sets.count), sets.count / jnp.maximum(size, 1) / t
        near = seats.distance(sets.theta[slot], sets.theta) < self.alpha_theta / 2 * (f + f[slot])
        near &= jnp.abs(rate - rate[slot]) < self.alpha_p * seats.spread(t)
        return tables.put(near & ready & ready[slot], slot, jnp.bool_(False))


@struct.sealed
@struct.pytree
class BoundSCLUB(SeatedAlgorithm):
    """SCLUB for a known environment."""

    alpha_theta: struct.Number
    alpha_p: struct.Number

    @override
    def init(self, key: Array, spec: Spec) -> SCLUBState:
        taken, d = jnp.asarray(self.seats.taken), spec.dim
        shape, (n_servers, p) = taken.shape, taken.shape
        return SCLUBState(
            users=self.nothing(d),
            sets=Sets(
                label=jnp.where(taken, 0, jnp.arange(p, dtype=jnp.int32)),  # empty seats are clusters of their own
                theta=jnp.zeros((*shape, d)),
                count=jnp.zeros(shape),
                noted_theta=jnp.zeros((*shape, d)),
                noted_count=jnp.zeros(shape),
                checked=jnp.zeros(shape, bool),
                served=jnp.zeros(n_servers, jnp.int32),
            ),
            inverse=jnp.broadcast_to(jnp.eye(d) / self.regularization, (*shape, d, d)),
        )

    @override
    def index(self, key: Array, t: Array, state: SCLUBState, user: Array, contexts: Array) -> Array:
        server, place = self.seats.find(user)
        sets = state.sets
        at = server, sets.label[server, place]
        return self.bounds(contexts, state.inverse[at], sets.theta[at], sets.count[at])

    @override
    def serve(
        self, key: Array, t: Array, state: SCLUBState, user: Array, x: Array, y: Array
    ) -> tuple[SCLUBState, Report]:
        server, place = self.seats.find(user)
        known = self.learned(state.users, user, x, y)
        of = OneServer(self.seats.at(known, server), self.regularization, self.alpha_theta, self.alpha_p)
        sets = tables.take(state.sets, server)
        sets = control.cond_any(seats.begins_phase(sets.served), _note, sets)
        slot = sets.label[place]
        sets = sets._replace(
            served=sets.served + 1,
            checked=tables.put(sets.checked, place, jnp.bool_(True)),
            count=tables.add(sets.count, slot, jnp.float32(1)),
        )
        own, theta = seats.rank_one(state.inverse[server, slot], sets.theta[slot], x, y)
        sets = sets._replace(theta=tables.put(sets.theta, slot, theta))
        change = Change(sets, own, jnp.int32(len(sets.label)), jnp.zeros_like(own))
        change = control.cond_any(sets.count[slot] % RESOLVE == 0, lambda change: of.settle(change, slot), change)
        change = control.cond_any(of.leaves(sets, place), lambda change: of.split(change, place), change)
        change = of.merge(change, place)
        inverse = state.inverse.at[server, change.rest].set(change.left, mode="drop")
        inverse = inverse.at[server, change.sets.label[place]].set(change.own, mode="drop")
        return SCLUBState(known, tables.put(state.sets, server, change.sets), inverse), Report()

    @override
    def partition(self, state: SCLUBState) -> Array:
        return self.at_servers(state.sets.label)


def _note(sets: Sets) -> Sets:
    theta, count = sets.theta[sets.label], sets.count[sets.label]
    return sets._replace(noted_theta=theta, noted_count=count, checked=jnp.zeros_like(sets.checked))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SCLUB(ClusteringRecipe):
    """SCLUB on every server by itself: clusters are sets of users, which split and merge again.

    A server has phases of 2, 4, 8, ... of its rounds. LinUCB on the sums of a cluster serves its users. Let theta_i be
    user i's own estimate from T_i rounds. The server has had t rounds so far. Let F(T) = sqrt((1 + ln(1 + T)) / (1 +
    T)). Then

    - user i leaves the cluster if ||theta_i - theta~|| > alpha_theta (F(T_i) + F(T~)). Here theta~ and T~ are the
      cluster's estimate and rounds at the phase's beginning or, if later, at the last split or merge. User i also
      leaves if some member j has another arrival rate: |T_i - T_j| / t > 2 alpha_p F(t);
    - a cluster C with all members seen in this phase merges with every other such cluster C' under two conditions.
      These are ||theta_C - theta_C'|| < alpha_theta / 2 (F(T_C) + F(T_C')), and rounds per member and server round that
      differ by less than alpha_p F(t).

    Servers do not communicate. Not private.

    Args:
        alpha_theta: factor of the distances between estimates, > 0; with inf estimates do not matter.
        alpha_p: factor of the differences between arrival rates, > 0; with inf rates do not matter.
        regularization, failure, subgaussian, theta_norm, exploration_scale, name: as in `ClusteringRecipe`.

    Reference: Li, Chen & Leung (2019), Algorithms 1-3; a baseline in Liu et al. (2022), Section 5. DEVIATION li2019
    Alg. 3: after a round, only the served user's cluster is compared with others. All other pairs are compared after
    rounds of their own users.
    """

    title, factors, bound = "SCLUB", ("alpha_theta", "alpha_p"), BoundSCLUB

    alpha_theta: float = 1.5
    alpha_p: float = 1.0
