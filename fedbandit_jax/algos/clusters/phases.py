"""What happens when a phase of FCLUB begins: Algorithm 2 of Liu et al. (2022), and the statistics that it starts from.

Letters: S^l, u^l, T^l are what a local cluster recommends by (`local`), dS, du, dT what its users did since its last
upload (`buffer`), S^g, u^g, T^g what the global cluster has (`shared`). A local cluster has the seat of its smallest
user, a global one the seat of its smallest local cluster. Sums hold data and noise; the multiples of rho I that keep
them positive definite are counted in `shift`, and lambda I is added where a matrix is used.

The paper's download buffer dS^- is what others uploaded since a local cluster's last download: S^g = S^l + dS^- always
(renewal, upload and download each keep it), so that receiving it is to take S^g, and it need not be stored.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.algos.clusters import users
from fedbandit_jax.algos.clusters.users import Seats
from fedbandit_jax.core import control, graph, rows, struct
from fedbandit_jax.interfaces import ClusteringAlgorithm, Partition, Report, Spec, Status
from fedbandit_jax.privacy.replanted import Replanted
from fedbandit_jax.privacy.statistic import packed_size


class Held(NamedTuple):
    """Statistics that somebody works with, and the estimate from them."""

    sums: Array  # (N, d, d + 1) data and noise
    count: Array  # (N,) float32 rounds
    shift: Array  # (N,) float32, in units of rho
    inverse: Array  # (N, d, d)
    theta: Array  # (N, d)
    log_det: Array  # (N,)


class Buffer(NamedTuple):
    """What has not been uploaded."""

    sums: Array  # (N, d, d + 1) data, and the change of noise of the next upload
    count: Array  # (N,) float32
    trace: Array  # (N,) tr(A^-1 dS) >= log det(A + dS) - log det A, A = lambda I + S^l


class Grouping(NamedTuple):
    """Of whom: labels of seats."""

    local: Array  # (N,) int32 of every user
    group: Array  # (N,) int32 of every local cluster
    sharing: Array  # (N,) float32 of every global cluster: L', how many local clusters it has


class FCLUBState(NamedTuple):
    """Everything between two rounds."""

    sums: Array  # (N, d, d + 1) of users
    count: Array  # (N,) float32
    linked: Array  # (L, P, P) bool
    clusters: Grouping
    local: Held
    shared: Held
    buffer: Buffer
    uploads: Array  # (N,) int32 by the local cluster's tree
    tree: Array  # int32: phase in which the trees in use were planted
    released: Array  # (N, d, d + 1) sums that local clusters showed when the phase began
    status: Array  # `Status` bits


@struct.pytree
class Phases(ClusteringAlgorithm):
    """How phases of FCLUB begin; the rounds in between are in `loop`."""

    regularization: struct.Number
    alpha_1: struct.Number
    alpha_2: struct.Number
    rho: struct.Number
    noise: Replanted | None
    seats: Seats = struct.static()
    shifts: bool = struct.static()  # by 3 rho I at every upload?

    def init(self, key: Array, spec: Spec) -> FCLUBState:
        """Nothing seen; phase 1 begins before round 0."""
        del key
        n, d = self.seats.n_seats, spec.dim
        taken, nowhere, zeros = jnp.asarray(self.seats.taken), jnp.arange(n, dtype=jnp.int32), jnp.zeros(n)
        sums = jnp.zeros((n, d, d + 1))
        held = Held(sums, zeros, zeros, jnp.zeros((n, d, d)), jnp.zeros((n, d)), zeros)
        return FCLUBState(
            sums=sums,
            count=zeros,
            linked=taken[:, :, None] & taken[:, None, :],
            clusters=Grouping(nowhere, nowhere, zeros),
            local=held,
            shared=held,
            buffer=Buffer(sums, zeros, zeros),
            uploads=jnp.zeros(n, jnp.int32),
            tree=jnp.int32(0),
            released=sums,
            status=jnp.int32(0),
        )

    def begin(self, key: Array, t: Array, state: FCLUBState) -> tuple[FCLUBState, Report]:
        """Algorithm 2, when a phase begins for which there is noise."""
        s, due = users.phase(t), users.begins_phase(t)
        if self.noise is not None:
            due &= s <= self.noise.n_phases
        quiet = state, jnp.int32(0), jnp.int32(0)
        state, up, down = lax.cond(due, lambda quiet: self._detect(key, s, quiet[0]), lambda quiet: quiet, quiet)
        return state, self._report(up, down, state)

    def partition(self, state: FCLUBState) -> Partition:
        """Local clusters, and global ones."""
        local = state.clusters.local
        return Partition(self.seats.of_users(local), self.seats.of_users(state.clusters.group[local]))

    def _report(self, up: Array, down: Array, state: FCLUBState) -> Report:
        floats = packed_size(state.sums.shape[1]) + 1
        return Report(
            rounds=up + down,
            floats=jnp.stack([up, down]) * floats,
            status=state.status,
            counts={"uploads": up, "downloads": down},
        )

    def _held(self, sums: Array, count: Array, shift: Array) -> tuple[Held, Array]:
        """Of one cluster, and whether the estimate exists."""
        ridge = self.regularization if self.noise is None else self.regularization + self.rho * shift
        found = users.estimate(sums, ridge)
        return Held(sums, count, shift, found.inverse, found.theta, found.log_det), found.ok

    def _trace(self, inverse: Array, sums: Array) -> Array:
        """tr(A^-1 dS), with the shift."""
        trace = (inverse * sums[..., :-1]).sum((-1, -2))
        if self.shifts:
            trace = trace + 3 * self.rho * jnp.trace(inverse, axis1=-1, axis2=-2)
        return trace

    def _detect(self, key: Array, s: Array, state: FCLUBState) -> tuple[FCLUBState, Array, Array]:
        """Algorithm 2, and how many upload and download."""
        n, own, noise = self.seats.n_seats, jnp.arange(self.seats.n_seats, dtype=jnp.int32), self.noise
        taken = jnp.asarray(self.seats.taken).reshape(-1)
        linked, local = self._split(state)
        live = (local == own) & taken
        sums = jnp.zeros_like(state.sums).at[local].add(state.sums)
        count = jnp.zeros_like(state.count).at[local].add(state.count)
        if noise is not None:
            sums = sums + rows.each(live, lambda slot: noise.first(key, s, slot, sums.shape[1]), own)
        held, ok = rows.each(live, self._held, sums, count, jnp.full(n, 2.0))
        group = self._join(held, live)
        sharing = jnp.zeros(n).at[group].add(live)
        clusters = Grouping(local, group, sharing)
        before = state.clusters
        renewed = (s == 1) | (local != before.local).any() | (live & (group != before.group)).any()
        state = state._replace(
            linked=linked,
            released=jnp.where(live[:, None, None], sums, 0),
            status=state.status | jnp.where((ok | ~live).all(), 0, Status.NO_ESTIMATE),
        )
        state = control.cond_any(renewed, lambda state: self._renew(key, s, state, clusters, held, live), state)
        up = live.sum().astype(jnp.int32)
        return state, up, jnp.where(renewed, up, 0)

    def _split(self, state: FCLUBState) -> tuple[Array, Array]:
        """Lines 2-3, server by server, from raw sums: links, and local clusters as seats (N,)."""
        everybody = jnp.asarray(self.seats.taken).reshape(-1)
        theta = rows.each(everybody, lambda sums: users.estimate(sums, self.regularization).theta, state.sums)
        shape = self.seats.taken.shape

        def of_server(args):
            linked, theta, count = args
            f = users.spread(count)
            far = jax.vmap(lambda one: users.distance(one, theta))(theta) > self.alpha_1 * (f[:, None] + f[None])
            linked = linked & ~far
            return linked, graph.components(graph.smallest_neighbour(linked), len(linked))

        servers = state.linked, theta.reshape(*shape, -1), state.count.reshape(shape)
        linked, place = lax.map(of_server, servers)
        return linked, self.seats.everywhere(place)

    def _join(self, held: Held, live: Array) -> Array:
        """Line 7: global clusters of local ones (N,); who is no local cluster is by itself.

        DEVIATION liu2022 Alg. 2 l. 7: two of one server, which are not compared, are joined by one that is near both.
        """
        n, own = self.seats.n_seats, jnp.arange(self.seats.n_seats, dtype=jnp.int32)
        server = own // self.seats.per_server
        f, order = users.spread(held.count), jnp.argsort(~live)

        def near(i):
            close = users.distance(held.theta[i], held.theta) < self.alpha_2 * (f + f[i])
            close |= jnp.isinf(self.alpha_2)  # also where there is no estimate
            return live[i] & live & (server != server[i]) & close

        def smallest(label):
            def see(j, seen):
                i = order[j]
                return seen.at[i].set(jnp.where(near(i), label, n).min())

            return lax.fori_loop(0, control.largest(live.sum()), see, jnp.full(n, n, jnp.int32))

        return graph.components(smallest, n)

    def _renew(
        self, key: Array, s: Array, state: FCLUBState, clusters: Grouping, held: Held, live: Array
    ) -> FCLUBState:
        """Lines 8-19: every global cluster starts from what its local ones have just shown."""
        group, heads, noise = clusters.group, clusters.sharing > 0, self.noise

        def add_up(x: Array) -> Array:
            return jnp.zeros_like(x).at[group].add(x * live.reshape(-1, *(1,) * (x.ndim - 1)))

        shared, ok = rows.each(heads, self._held, *map(add_up, (held.sums, held.count, held.shift)))
        local, sums = rows.take(shared, group), jnp.zeros_like(state.sums)
        if noise is not None:
            slots, d = jnp.arange(len(live)), sums.shape[1]
            sums = rows.each(live, lambda slot: noise.change(key, s, slot, jnp.int32(0), d), slots)
        return state._replace(
            clusters=clusters,
            local=local,
            shared=shared,
            buffer=Buffer(sums, jnp.zeros_like(state.count), self._trace(local.inverse, sums)),
            uploads=jnp.zeros_like(state.uploads),
            tree=s,
            status=state.status | jnp.where((ok | ~heads).all(), 0, Status.NO_ESTIMATE),
        )
