"""CLUB (Gentile, Li & Zappella 2014) on every server by itself: it unlinks users with different estimates."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.clusters import seats
from fedbandit_jax.algos.clusters.seats import ClusteringRecipe, SeatedAlgorithm, UserSums
from fedbandit_jax.core import graph, struct, tables
from fedbandit_jax.interfaces import Report, Spec


class CLUBState(NamedTuple):
    """The state between two rounds: the statistics of every user, and the graph of every server."""

    users: UserSums
    linked: Array  # (L, P, W) uint32, symmetric: links of a server's users, packed as in `core.graph`
    label: Array  # (L, P) int32, the smallest place in the component of each user


@struct.sealed
@struct.pytree
class BoundCLUB(SeatedAlgorithm):
    """CLUB for a known environment."""

    alpha_edge: struct.Number

    @override
    def init(self, key: Array, spec: Spec) -> CLUBState:
        taken = jnp.asarray(self.seats.taken)
        return CLUBState(
            users=self.nothing(spec.dim),
            linked=seats.complete(self.seats),
            label=jnp.where(taken, 0, jnp.arange(self.seats.per_server, dtype=jnp.int32)),
        )

    @override
    def index(self, key: Array, t: Array, state: CLUBState, user: Array, contexts: Array) -> Array:
        server, place = self.seats.find(user)
        of = self.seats.at(state.users, server)
        members = state.label[server] == state.label[server, place]
        found, count = seats.together(of, members, self.regularization)
        return self.bounds(contexts, found.inverse, found.theta, count)

    @override
    def serve(
        self, key: Array, t: Array, state: CLUBState, user: Array, x: Array, y: Array
    ) -> tuple[CLUBState, Report]:
        server, place = self.seats.find(user)
        known = self.learned(state.users, user, x, y)
        of = self.seats.at(known, server)
        f = seats.spread(of.counts.astype(jnp.float32))
        far = graph.pack(seats.differ(of.theta, f, place, self.alpha_edge))
        cut = (state.linked[server, place] & far != 0).any()
        label = state.label[server]
        lost = (label == label[place]) & cut  # the user's component, if links are cut
        found = graph.components(graph.without(state.linked, server, place, far), lost, place)
        label = jnp.where(lost, found, label)
        due = cut & (label[0] >= 0)  # always, and graphs are written after the search
        linked = graph.cut(state.linked, server, place, far, due)
        return CLUBState(known, linked, tables.put(state.label, server, label)), Report()

    @override
    def partition(self, state: CLUBState) -> Array:
        return self.at_servers(state.label)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CLUB(ClusteringRecipe):
    """CLUB on every server by itself: the clusters are the components of a graph of users, complete at first.

    LinUCB on the sums of a component serves its users. Then the user loses the links to users i with ||theta -
    theta_i|| > alpha_edge (F(T) + F(T_i)). Here theta and theta_i are the estimates from the T and T_i rounds of the
    two users alone. The scale is F(T) = sqrt((1 + ln(1 + T)) / (1 + T)). Servers do not communicate. Not private.

    Args:
        alpha_edge: factor of the distance above which a link is cut, > 0. With inf no link is ever cut.
        regularization, failure, subgaussian, theta_norm, exploration_scale, name: as in `ClusteringRecipe`.

    Reference: Gentile, Li & Zappella (2014), Figure 1; a baseline in Liu et al. (2022), Section 5. DEVIATION
    gentile2014: the graph is complete at first, not random. The confidence width is the one for linear bandits, as in
    all clustering algorithms here.
    """

    title, factors, bound = "CLUB", ("alpha_edge",), BoundCLUB

    alpha_edge: float = 0.25
