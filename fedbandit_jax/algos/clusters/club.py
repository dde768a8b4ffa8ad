"""CLUB (Gentile, Li & Zappella 2014) on every server of its own: users whose estimates part are no longer linked."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.algos.clusters import users
from fedbandit_jax.algos.clusters.users import ClusteringRecipe, Seats, UserSums, UserWidth
from fedbandit_jax.core import control, graph, struct
from fedbandit_jax.interfaces import ClusteringAlgorithm, Partition, Report, Spec


class CLUBState(NamedTuple):
    """Users, and who is linked to whom."""

    users: UserSums
    linked: Array  # (L, P, P) bool
    label: Array  # (L, P) int32, smallest place of the component


@struct.sealed
@struct.pytree
class BoundCLUB(ClusteringAlgorithm):
    """CLUB for a known environment."""

    width: UserWidth
    alpha_edge: struct.Number
    regularization: struct.Number
    seats: Seats = struct.static()

    def init(self, key: Array, spec: Spec) -> CLUBState:
        """All users of a server are one cluster."""
        del key
        taken = jnp.asarray(self.seats.taken)
        return CLUBState(
            users=users.nothing(self.seats.n_seats, spec.dim, self.regularization),
            linked=taken[:, :, None] & taken[:, None, :],
            label=jnp.where(taken, 0, jnp.arange(self.seats.per_server, dtype=jnp.int32)),
        )

    def index(self, key: Array, t: Array, state: CLUBState, user: Array, contexts: Array) -> Array:
        """By the sums of all users of the component."""
        del key, t
        server, place = self.seats.find(user)
        of = self.seats.at(state.users, server)
        members = state.label[server] == state.label[server, place]
        found, count = users.together(of, members, self.regularization)
        beta = self.width(count, self.regularization, self.regularization)
        return users.index(contexts, found.inverse, found.theta, beta)

    def serve(
        self, key: Array, t: Array, state: CLUBState, user: Array, x: Array, y: Array
    ) -> tuple[CLUBState, Report]:
        """The user's own estimate moves; links to users from whom it is now too far are cut."""
        del key, t
        server, place = self.seats.find(user)
        known = users.learn(state.users, self.seats.seat(user), x, y, self.regularization)
        of = self.seats.at(known, server)
        links = state.linked[server, place]
        kept = links & ~users.differ(of, place, self.alpha_edge)
        linked, label = control.when_any(
            (kept != links).any(), lambda old: self._cut(*old, server, place, kept), (state.linked, state.label)
        )
        return CLUBState(known, linked, label), Report()

    def partition(self, state: CLUBState) -> Partition:
        """Components; servers do not talk."""
        found = self.seats.of_users(self.seats.everywhere(state.label))
        return Partition(found, found)

    def _cut(self, linked: Array, label: Array, server: Array, place: Array, kept: Array) -> tuple[Array, Array]:
        """Links and labels when one user keeps these links, (P,) bool; nothing changes if those are all."""
        linked = linked.at[server, place].set(kept).at[server, :, place].set(kept)
        found = graph.components(graph.smallest_neighbour(linked[server]), self.seats.per_server)
        return linked, label.at[server].set(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CLUB(ClusteringRecipe):
    """CLUB on every server of its own: a graph of its users, complete at first, whose components are the clusters.

    A user is served by LinUCB on the sums of her component. Then her links to users i with ||theta - theta_i|| >
    alpha_edge (F(T) + F(T_i)) are cut, theta the estimates of single users from T rounds, F(T) = sqrt((1 + ln(1 + T)) /
    (1 + T)). No communication between servers, no privacy.

    Args:
        alpha_edge: factor of the distance at which a link is cut, > 0; inf: never.
        regularization, alpha, subgaussian, theta_norm, exploration_scale, name: as in `ClusteringRecipe`.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound, if the environment's users are all new.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=2, dim=4)
        >>> result = fb.simulate(env, fb.algos.CLUB(), horizon=300, key=jax.random.key(0), n_seeds=2)
        >>> sorted(result.gauges)
        ['adjusted Rand index', 'adjusted Rand index on servers', 'clusters']

    Reference: Gentile, Li & Zappella (2014), Figure 1; as a baseline Liu et al. (2022), Section 5. DEVIATION
    gentile2014: the graph is complete at first, not random, and the width is that of linear bandits, as of the others.
    """

    factors = ("alpha_edge",)

    alpha_edge: float = 0.25

    def bind(self, spec: Spec, horizon: int) -> BoundCLUB:
        """Width for these users."""
        del horizon
        return BoundCLUB(alpha_edge=np.float32(self.alpha_edge), **self.common(spec))
