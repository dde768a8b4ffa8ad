"""SCLUB (Li, Chen & Leung 2019) on every server of its own: sets of users that are split and merged."""

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
    """Clusters of one server or, with a leading axis L, of all. A cluster has the place of its smallest user."""

    label: Array  # (P,) int32, of every user
    inverse: Array  # (P, d, d) of every cluster, at its place
    theta: Array  # (P, d)
    count: Array  # (P,) float32, rounds
    noted_theta: Array  # (P, d) of every user's cluster when the phase began, or since it was split or merged
    noted_count: Array  # (P,) float32
    checked: Array  # (P,) bool: came in this phase
    served: Array  # () int32, rounds of the server


class SCLUBState(NamedTuple):
    """Users and clusters."""

    users: UserSums
    sets: Sets  # leading axis L


@struct.sealed
@struct.pytree
class BoundSCLUB(ClusteringAlgorithm):
    """SCLUB for a known environment."""

    width: UserWidth
    alpha_theta: struct.Number
    alpha_p: struct.Number
    regularization: struct.Number
    seats: Seats = struct.static()

    def init(self, key: Array, spec: Spec) -> SCLUBState:
        """All users of a server are one cluster."""
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
        """By the sums of all users of the cluster."""
        del key, t
        server, place = self.seats.find(user)
        sets = state.sets
        slot = sets.label[server, place]
        beta = self.width(sets.count[server, slot], self.regularization, self.regularization)
        return users.index(contexts, sets.inverse[server, slot], sets.theta[server, slot], beta)

    def serve(
        self, key: Array, t: Array, state: SCLUBState, user: Array, x: Array, y: Array
    ) -> tuple[SCLUBState, Report]:
        """The user leaves her cluster if her estimate has, then clusters that are alike merge."""
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
        """Sets; servers do not talk."""
        found = self.seats.of_users(self.seats.everywhere(state.sets.label))
        return Partition(found, found)

    def _leaves(self, known: UserSums, sets: Sets, place: Array) -> Array:
        """Algorithm 2: is her estimate far from what was noted of her cluster, or does she come more or less often?"""
        counts, t = known.counts.astype(jnp.float32), sets.served.astype(jnp.float32)
        others = (sets.label == sets.label[place]).at[place].set(False)
        spread = users.spread(counts[place]) + users.spread(sets.noted_count[place])
        far = users.distance(known.theta[place], sets.noted_theta[place]) > self.alpha_theta * spread
        often = jnp.abs(counts - counts[place]) / t > 2 * self.alpha_p * users.spread(t)
        return others.any() & (far | (others & often).any())

    def _split(self, known: UserSums, sets: Sets, place: Array) -> Sets:
        """She is alone; the others keep what was noted."""
        others = (sets.label == sets.label[place]).at[place].set(False)
        alone = sets._replace(
            label=jnp.where(others, jnp.argmax(others), sets.label).astype(jnp.int32).at[place].set(place),
            noted_theta=sets.noted_theta.at[place].set(known.theta[place]),
            noted_count=sets.noted_count.at[place].set(known.counts[place].astype(jnp.float32)),
        )
        return self._settle(known, alone, others)

    def _settle(self, known: UserSums, sets: Sets, members: Array) -> Sets:
        """The estimate of a cluster, from the sums of its members (P,) bool."""
        found, count = users.together(known, members, self.regularization)
        slot = jnp.argmax(members)
        return sets._replace(
            inverse=sets.inverse.at[slot].set(found.inverse),
            theta=sets.theta.at[slot].set(found.theta),
            count=sets.count.at[slot].set(count),
        )

    def _merge(self, known: UserSums, sets: Sets, place: Array) -> Sets:
        """Algorithm 3, for the cluster that has just changed: while another one is alike, the first such joins it."""

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
        return control.cond_any(~unchecked.any(), all_of_them, sets)

    def _alike(self, sets: Sets, place: Array) -> Array:
        """Which clusters, all of them checked, are like hers, (P,) bool at their places; none if hers is not."""
        slot, t = sets.label[place], sets.served.astype(jnp.float32)
        members = sets.label[None] == jnp.arange(len(sets.label))[:, None]
        size = members.sum(1)
        ready = (size > 0) & ~(members & ~sets.checked).any(1)
        f, rate = users.spread(sets.count), sets.count / jnp.maximum(size, 1) / t
        near = users.distance(sets.theta[slot], sets.theta) < self.alpha_theta / 2 * (f + f[slot])
        near &= jnp.abs(rate - rate[slot]) < self.alpha_p * users.spread(t)
        return (near & ready & ready[slot]).at[slot].set(False)


def _note(sets: Sets) -> Sets:
    """A phase begins."""
    theta, count = sets.theta[sets.label], sets.count[sets.label]
    return sets._replace(noted_theta=theta, noted_count=count, checked=jnp.zeros_like(sets.checked))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SCLUB(ClusteringRecipe):
    """SCLUB on every server of its own: clusters are sets of users, which are split and merged again.

    A server has phases of 2, 4, 8, ... of its rounds. A user is served by LinUCB on the sums of her cluster. Then, with
    F(T) = sqrt((1 + ln(1 + T)) / (1 + T)) and t rounds of the server,

    - she leaves it if ||theta_i - theta~|| > alpha_theta (F(T_i) + F(T~)), theta~ and T~ being what was noted of her
      cluster when the phase began, or if some member comes more or less often: |T_i - T_j| / t > 2 alpha_p F(t);
    - if all members of her cluster have come in this phase, it merges with every other such cluster with ||theta_C -
      theta_C'|| < alpha_theta / 2 (F(T_C) + F(T_C')) and rates per member less than alpha_p F(t) apart.

    No communication between servers, no privacy.

    Args:
        alpha_theta: factor of distances of estimates, > 0 or inf.
        alpha_p: factor of differences of arrival rates, > 0 or inf: rates do not matter.
        regularization, alpha, subgaussian, theta_norm, exploration_scale, name: as in `ClusteringRecipe`.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound, if the environment's users are all new.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=2, dim=4)
        >>> fb.simulate(env, fb.algos.SCLUB(), horizon=300, key=jax.random.key(0), n_seeds=2).regret.shape
        (2, 300)

    Reference: Li, Chen & Leung (2019), Algorithms 1-3; as a baseline Liu et al. (2022), Section 5. DEVIATION li2019
    Alg. 3: only pairs with the cluster that has just changed are compared, others after their own rounds.
    """

    factors = ("alpha_theta", "alpha_p")

    alpha_theta: float = 1.5
    alpha_p: float = 1.0

    def bind(self, spec: Spec, horizon: int) -> BoundSCLUB:
        """Width for these users."""
        del horizon
        factors = {name: np.float32(getattr(self, name)) for name in self.factors}
        return BoundSCLUB(**factors, **self.common(spec))
