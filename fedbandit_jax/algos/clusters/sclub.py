"""SCLUB (Li, Chen & Leung 2019), run on every server by itself: sets of users that are split and merged.

Letters: n users sit on L servers, at most P = ceil(n / L) on each; N = L P is the number of seats (see `users`).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos.clusters import users
from fedbandit_jax.algos.clusters.users import ClusteringRecipe, Seats, UserSums, UserWidth
from fedbandit_jax.core import control, rows, struct
from fedbandit_jax.interfaces import ClusteringAlgorithm, Partition, Report, Spec


class Sets(NamedTuple):
    """The clusters of one server or, with a leading axis L, of all servers.

    Entries of a cluster stand at the place of its smallest user.
    """

    label: Array  # (P,) int32, the cluster of every user
    inverse: Array  # (P, d, d), inverse regularised matrix of every cluster
    theta: Array  # (P, d), estimate of every cluster
    count: Array  # (P,) float32, rounds of every cluster's members  # pyright: ignore[reportIncompatibleMethodOverride]
    noted_theta: Array  # (P, d), estimate of every user's cluster, noted when a phase begins, she leaves or it merges
    noted_count: Array  # (P,) float32, the rounds that `noted_theta` is from
    checked: Array  # (P,) bool, whether a user has come in this phase
    served: Array  # () int32, rounds of the server so far


class SCLUBState(NamedTuple):
    """The state between two rounds: what is known of every user, and the clusters of every server."""

    users: UserSums
    sets: Sets  # with a leading axis L


@struct.sealed
@struct.pytree
class BoundSCLUB(ClusteringAlgorithm):
    """SCLUB with its confidence width and seats, for a known environment."""

    width: UserWidth
    alpha_theta: struct.Number
    alpha_p: struct.Number
    regularization: struct.Number
    seats: Seats = struct.static()

    def init(self, key: Array, spec: Spec) -> SCLUBState:
        """Returns the state before the first round, in which all users of a server are one cluster."""
        del key
        (n_servers, p), d = self.seats.taken.shape, spec.dim
        shape, taken = (n_servers, p), jnp.asarray(self.seats.taken)
        return SCLUBState(
            users=users.nothing(self.seats.n_seats, d, self.regularization),
            sets=Sets(
                label=jnp.where(taken, 0, jnp.arange(p, dtype=jnp.int32)),
                inverse=jnp.broadcast_to(jnp.eye(d) / self.regularization, (*shape, d, d)),
                theta=jnp.zeros((*shape, d)),
                count=jnp.zeros(shape),
                noted_theta=jnp.zeros((*shape, d)),
                noted_count=jnp.zeros(shape),
                checked=jnp.zeros(shape, bool),
                served=jnp.zeros(n_servers, jnp.int32),
            ),
        )

    def index(self, key: Array, t: Array, state: SCLUBState, user: Array, contexts: Array) -> Array:
        """Returns the upper confidence bounds of the arms (K,), from the sums of all users of the user's cluster."""
        del key, t
        server, place = self.seats.find(user)
        sets = state.sets
        slot = sets.label[server, place]
        beta = self.width(sets.count[server, slot], self.regularization, self.regularization)
        return users.index(contexts, sets.inverse[server, slot], sets.theta[server, slot], beta)

    def serve(
        self, key: Array, t: Array, state: SCLUBState, user: Array, x: Array, y: Array
    ) -> tuple[SCLUBState, Report]:
        """Updates the user's estimate, splits her off her cluster if she no longer fits, and merges what is alike."""
        del key, t
        server, place = self.seats.find(user)
        known = users.learn(state.users, self.seats.seat(user), x, y, self.regularization)
        of, sets = self.seats.at(known, server), rows.take(state.sets, server)
        sets = control.cond_any(users.begins_phase(sets.served), _note, sets)
        sets = sets._replace(served=sets.served + 1, checked=sets.checked.at[place].set(True))
        sets = control.cond_any(self._leaves(of, sets, place), lambda sets: self._split(of, sets, place), sets)
        sets = self._settle(of, sets, sets.label == sets.label[place])
        sets = self._merge(of, sets, place)
        return SCLUBState(known, rows.put(state.sets, server, sets)), Report()

    def partition(self, state: SCLUBState) -> Partition:
        """Returns the sets as clusters, the same on servers and globally, as servers do not communicate."""
        found = self.seats.of_users(self.seats.everywhere(state.sets.label))
        return Partition(found, found)

    def _leaves(self, known: UserSums, sets: Sets, place: Array) -> Array:
        """Returns whether the user at a place must leave her cluster (Algorithm 2).

        She must if her estimate is far from the noted one of her cluster, or if she comes more or less often than some
        other member.
        """
        counts, t = known.counts.astype(jnp.float32), sets.served.astype(jnp.float32)
        others = (sets.label == sets.label[place]).at[place].set(False)
        spread = users.spread(counts[place]) + users.spread(sets.noted_count[place])
        far = users.distance(known.theta[place], sets.noted_theta[place]) > self.alpha_theta * spread
        often = jnp.abs(counts - counts[place]) / t > 2 * self.alpha_p * users.spread(t)
        return others.any() & (far | (others & often).any())

    def _split(self, known: UserSums, sets: Sets, place: Array) -> Sets:
        """Makes the user at a place a cluster by herself; the others remain one, with what was noted of it."""
        others = (sets.label == sets.label[place]).at[place].set(False)
        alone = sets._replace(
            label=jnp.where(others, jnp.argmax(others), sets.label).astype(jnp.int32).at[place].set(place),
            noted_theta=sets.noted_theta.at[place].set(known.theta[place]),
            noted_count=sets.noted_count.at[place].set(known.counts[place].astype(jnp.float32)),
        )
        return self._settle(known, alone, others)

    def _settle(self, known: UserSums, sets: Sets, members: Array) -> Sets:
        """Computes the estimate of a cluster anew, from the sums of its members (P,) bool."""
        found, count = users.together(known, members, self.regularization)
        slot = jnp.argmax(members)
        return sets._replace(
            inverse=sets.inverse.at[slot].set(found.inverse),
            theta=sets.theta.at[slot].set(found.theta),
            count=sets.count.at[slot].set(count),
        )

    def _merge(self, known: UserSums, sets: Sets, place: Array) -> Sets:
        """Merges the cluster of the user at a place with others, one after the other while any is alike (Algorithm 3).

        Nothing is merged before all members of the cluster have come in this phase.
        """

        def join(carry: tuple[Sets, Array]) -> tuple[Sets, Array]:
            sets, alike = carry
            both = (sets.label == sets.label[place]) | (sets.label == jnp.argmax(alike))
            slot = jnp.argmax(both).astype(jnp.int32)
            union = self._settle(known, sets._replace(label=jnp.where(both, slot, sets.label)), both)
            union = union._replace(
                noted_theta=jnp.where(both[:, None], union.theta[slot], union.noted_theta),
                noted_count=jnp.where(both, union.count[slot], union.noted_count),
            )
            return union, self._alike(union, place)

        def all_of_them(sets: Sets) -> Sets:
            return lax.while_loop(lambda carry: carry[1].any(), join, (sets, self._alike(sets, place)))[0]

        unchecked = (sets.label == sets.label[place]) & ~sets.checked
        return control.cond_any(~unchecked.any(), all_of_them, sets, costly=True)

    def _alike(self, sets: Sets, place: Array) -> Array:
        """Returns which clusters are like that of the user at a place, (P,) bool, each at its place.

        Only clusters count whose members have all come in this phase; if hers is none of them, the answer is none.
        """
        slot, t = sets.label[place], sets.served.astype(jnp.float32)
        members = sets.label[None] == jnp.arange(len(sets.label))[:, None]
        size = members.sum(1)
        ready = (size > 0) & ~(members & ~sets.checked).any(1)
        f, rate = users.spread(sets.count), sets.count / jnp.maximum(size, 1) / t
        near = users.distance(sets.theta[slot], sets.theta) < self.alpha_theta / 2 * (f + f[slot])
        near &= jnp.abs(rate - rate[slot]) < self.alpha_p * users.spread(t)
        return (near & ready & ready[slot]).at[slot].set(False)


def _note(sets: Sets) -> Sets:
    """Begins a phase: notes the estimate of every user's cluster, and that nobody has come yet."""
    theta, count = sets.theta[sets.label], sets.count[sets.label]
    return sets._replace(noted_theta=theta, noted_count=count, checked=jnp.zeros_like(sets.checked))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SCLUB(ClusteringRecipe):
    """SCLUB on every server by itself: clusters are sets of users, which are split and merged again.

    A server has phases of 2, 4, 8, ... of its rounds. A user i is served by LinUCB on the sums of her cluster. Let
    theta_i be her own estimate and T_i her rounds, t the rounds of the server so far, and F(T) = sqrt((1 + ln(1 + T)) /
    (1 + T)). Then

    - she leaves her cluster if ||theta_i - theta~|| > alpha_theta (F(T_i) + F(T~)), where theta~ and T~ are the
      estimate and the rounds of her cluster that were noted when the phase began or, if later, when she last left a
      cluster or hers last merged; or if some member j comes more or less often: |T_i - T_j| / t > 2 alpha_p F(t);
    - if all members of her cluster C have come in this phase, it merges with every other such cluster C' for which
      ||theta_C - theta_C'|| < alpha_theta / 2 (F(T_C) + F(T_C')), and rounds per member and server round differ by less
      than alpha_p F(t).

    Servers do not communicate. Not private.

    Args:
        alpha_theta: factor of the distances between estimates, > 0; with inf estimates do not matter.
        alpha_p: factor of the differences between arrival rates, > 0; with inf rates do not matter.
        regularization, alpha, subgaussian, theta_norm, exploration_scale, name: as in `ClusteringRecipe`.

    Raises:
        ValueError, TypeError: an argument is out of range or of the wrong type; `bind` also raises `ValueError` if the
            environment's users cannot be told apart.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=2, dim=4)
        >>> fb.algos.SCLUB().certificate(env.spec, horizon=300).claim
        'none'

    Reference: Li, Chen & Leung (2019), Algorithms 1-3; used as a baseline in Liu et al. (2022), Section 5. DEVIATION
    li2019 Alg. 3: after a round, only the cluster of the user who came is compared with others; all other pairs are
    compared after rounds of their own users.
    """

    factors = ("alpha_theta", "alpha_p")

    alpha_theta: float = 1.5
    alpha_p: float = 1.0

    def bind(self, spec: Spec, horizon: int) -> BoundSCLUB:
        """Returns the algorithm with its confidence width and seats for an environment."""
        del horizon
        factors = {name: np.float32(getattr(self, name)) for name in self.factors}
        return BoundSCLUB(**factors, **self.common(spec))
