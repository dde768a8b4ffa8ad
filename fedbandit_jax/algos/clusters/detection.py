"""Detection of clusters by FCLUB: Algorithm 2 of Liu et al. (2022).

Letters: L servers with P places each have N = L P seats (see `seats`). A local cluster has the seat of its smallest
user. A global one has the seat of its smallest local cluster.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.algos.clusters.exchange import Exchange, Exchanged, Held
from fedbandit_jax.algos.clusters.seats import Seats, differ, distance, estimate, spread
from fedbandit_jax.core import control, graph, struct, tables
from fedbandit_jax.interfaces import Status


class Profiles(NamedTuple):
    """Raw statistics of every user."""

    sums: Array  # (N, d, d + 1), sums of [x x' | x y]
    count: Array  # (N,) float32, rounds  # pyright: ignore[reportIncompatibleMethodOverride]


class Clusters(NamedTuple):
    """Local and global clusters, numbered by seats, between two rounds."""

    linked: Array  # (L, P, W) uint32, symmetric: links of a server's users, packed as in `core.graph`
    moved: Array  # (N,) bool, users with rounds in this phase
    local: Array  # (N,) int32, the local cluster of every user
    group: Array  # (N,) int32, the global cluster of every local cluster
    sharing: Array  # (N,) float32, the number L' of local clusters in every global cluster
    released: Array  # (N, d, d + 1), private sums of local clusters at the phase's beginning
    exchanged: Exchanged  # statistics since the last renewal
    status: Array  # () int32, `Status` bits


class Detection(NamedTuple):
    """Algorithm 2 for these users, by the distances of estimates."""

    seats: Seats
    alpha_1: struct.Number  # factor of the distance above which links are cut
    alpha_2: struct.Number  # factor of the distance below which local clusters merge
    exchange: Exchange

    def split(self, s: Array, clusters: Clusters, users: Profiles) -> tuple[Array, Array]:
        """Returns the remaining links, (L, P, W), and every user's local cluster, (N,) (Algorithm 2, lines 2-3).

        Only users with rounds since the last phase are compared, since between two others nothing has changed.
        """
        taken, cuts = jnp.asarray(self.seats.taken), self.alpha_1 < jnp.inf
        (n_servers, p), lam = taken.shape, self.exchange.regularization
        theta = tables.each((users.count > 0) & cuts, lambda sums: estimate(sums, lam).theta, users.sums)
        theta, f = theta.reshape(n_servers, p, -1), spread(users.count).reshape(n_servers, p)
        order, n_moved = tables.numbers(clusters.moved & cuts)

        def compare(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            linked, cut = carry
            server, place = jnp.divmod(order[i], p)
            far = graph.pack(differ(theta[server], f[server], place, self.alpha_1))
            some = (linked[server, place] & far != 0).any()
            linked = graph.cut(linked, server, place, far, some)
            return linked, cut.at[server].max(some, mode="drop")

        start = clusters.linked, jnp.zeros(n_servers, bool)
        linked, cut = lax.fori_loop(0, control.max_over_lanes(n_moved), compare, start)

        def of_server(args: tuple[Array, Array, Array]) -> Array:
            server, known, among = args
            among &= s > 0  # all: on a GPU a kernel does this, where the host would copy, see `control.put_row`
            return jnp.where(among, graph.components(lambda place: linked[server, place], among), known)

        servers = jnp.arange(n_servers, dtype=jnp.int32)
        known = clusters.local.reshape(n_servers, p) - servers[:, None] * p
        again = taken & (cut | (s == 1))[:, None]
        return linked, self.seats.everywhere(lax.map(of_server, (servers, known, again)))

    def join(self, held: Held, live: Array) -> Array:
        """Returns the global cluster of every local one (N,); other seats keep their number (Algorithm 2, line 7)."""
        server = jnp.arange(self.seats.n_seats, dtype=jnp.int32) // self.seats.per_server
        f = spread(held.count)

        def near(i: Array) -> Array:
            close = distance(held.theta[i], held.theta) < self.alpha_2 * (f + f[i])
            close |= jnp.isinf(self.alpha_2)  # then all are close, also without estimates
            return graph.pack(live[i] & live & (server != server[i]) & close)

        return graph.components(near, live)

    def detect(self, key: Array, s: Array, users: Profiles, clusters: Clusters) -> tuple[Clusters, Array, Array]:
        """Returns the clusters when phase s begins, and the numbers of uploads and downloads (Algorithm 2)."""
        n, exchange = self.seats.n_seats, self.exchange
        linked, local = self.split(s, clusters, users)
        live = self.seats.heads(local)
        sums, count = tables.segment_sum(users.count > 0, local, users)
        sums = exchange.released(key, s, live, sums)  # lines 4-5
        held, ok = tables.each(live, exchange.held, sums, count, jnp.full(n, 2.0))
        group = self.join(held, live)
        sharing = tables.segment_sum(live, group, jnp.ones(n))
        changed = (s == 1) | (local != clusters.local).any() | (live & (group != clusters.group)).any()  # line 8
        state = clusters._replace(
            linked=linked,
            moved=jnp.zeros(n, bool),
            released=jnp.where(live[:, None, None], sums, 0),
            status=clusters.status | jnp.where((ok | ~live).all(), 0, Status.NO_ESTIMATE),
        )

        def renew(state: Clusters) -> Clusters:  # also of equal numbers: XLA:CPU would copy them in every round
            exchanged, fine = exchange.renewed(key, s, group, sharing > 0, held, live)
            status = state.status | jnp.where(fine, 0, Status.NO_ESTIMATE)
            return state._replace(local=local, group=group, sharing=sharing, exchanged=exchanged, status=status)

        up = live.sum().astype(jnp.int32)
        return control.cond_any(changed, renew, state, costly=True), up, jnp.where(changed, up, 0)
