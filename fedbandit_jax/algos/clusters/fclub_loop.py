"""The loop of FCLUB: Algorithms 1 to 4 of Liu et al. (2022), and the certificate of a run.

Letters: S, u and T are a sum of x x', a sum of x y and a count of rounds. A local cluster recommends by S^l, u^l, T^l
(`local`). Its users have dS, du, dT since its last upload (`buffer`). A global cluster has S^g, u^g, T^g (`shared`). A
local cluster has the seat of its smallest user. A global one has the seat of its smallest local cluster. L servers with
P places each have N = L P seats (see `seats`). Sums hold data and noise, which the `Replanted` trees draw. Multiples of
rho I keep them positive definite. `shift` counts these. Uses of a matrix add lambda I (`regularization`).

The paper's download buffer dS^- holds what others have uploaded since a local cluster's last download. Then S^g = S^l +
dS^- holds at all times, as renewal, upload and download each preserve it. To receive the buffer is therefore to take
S^g. The buffer need not be stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.algos.clusters import seats
from fedbandit_jax.algos.clusters.phase_trees import Replanted
from fedbandit_jax.algos.clusters.seats import SeatedAlgorithm
from fedbandit_jax.certificate import Certificate, Raw, no_privacy
from fedbandit_jax.core import control, graph, struct, tables
from fedbandit_jax.interfaces import Report, Spec, Status
from fedbandit_jax.privacy.packing import packed_size

RAW_CLUSTERS = Raw(
    why="which users are in one local cluster is found from raw estimates, and seen",
    seen="which users are in one local cluster, which the server finds from raw estimates",
)
RAW_UPLOADS = Raw(
    why="when a local cluster uploads depends on the determinant of raw statistics",
    seen="when a local cluster uploads, which depends on the determinant of raw statistics",
)
STOPPED = 2**30  # number of uploads of a tree that may make no more


class Held(NamedTuple):
    """Statistics of local or of global clusters, and the estimates from them."""

    sums: Array  # (N, d, d + 1), sums [x x' | x y] of data and noise
    count: Array  # (N,) float32, rounds in these sums  # pyright: ignore[reportIncompatibleMethodOverride]
    shift: Array  # (N,) float32, how many times rho I has been added
    inverse: Array  # (N, d, d), inverse of the regularised matrix lambda I + shift rho I + sum x x' + noise
    theta: Array  # (N, d), estimate
    log_det: Array  # (N,), log determinant of the regularised matrix


class Buffer(NamedTuple):
    """Upload buffers of local clusters."""

    sums: Array  # (N, d, d + 1), sums of data, and the change of noise that the next upload brings
    count: Array  # (N,) float32, rounds in these sums  # pyright: ignore[reportIncompatibleMethodOverride]


class Assignment(NamedTuple):
    """Assignment of users to local clusters, and of these to global ones. Clusters are numbered by seats."""

    local: Array  # (N,) int32, the local cluster of every user
    group: Array  # (N,) int32, the global cluster of every local cluster
    sharing: Array  # (N,) float32, the number L' of local clusters in every global cluster


class FCLUBState(NamedTuple):
    """Servers between two rounds."""

    sums: Array  # (N, d, d + 1), raw sums [x x' | x y] of every user
    count: Array  # (N,) float32, rounds of every user  # pyright: ignore[reportIncompatibleMethodOverride]
    moved: Array  # (N,) bool, users with rounds in this phase
    linked: Array  # (L, P, W) uint32, symmetric: links of a server's users, packed as in `core.graph`
    clusters: Assignment  # local and global clusters
    local: Held  # statistics by which every local cluster recommends
    shared: Held  # statistics of every global cluster
    buffer: Buffer  # upload buffer of every local cluster
    uploads: Array  # (N,) int32, uploads that every local cluster's tree has made
    tree: Array  # () int32, the phase in which the current trees began
    released: Array  # (N, d, d + 1), private sums of local clusters at the phase's beginning
    status: Array  # () int32, `Status` bits


class Place(NamedTuple):
    """Table rows of the served user's clusters, without the axis N."""

    own: Held  # statistics of the user's local cluster
    common: Held  # statistics of its global cluster
    pending: Buffer  # the local cluster's upload buffer
    uploads: Array  # () int32, uploads of the local cluster's tree
    sent: Array  # () bool, whether it uploads in this round
    failed: Array  # () bool, whether an upload was due but a matrix was not positive definite


@struct.sealed
@struct.pytree
class BoundFCLUB(SeatedAlgorithm):
    """FCLUB for a known environment and horizon, which is private if it has noise; see `FCLUB`."""

    alpha_1: struct.Number  # factor of the distance above which links are cut
    alpha_2: struct.Number  # factor of the distance below which local clusters merge
    rho: struct.Number  # bound on the norm of the noise of a prefix sum, 0 without noise
    noise: Replanted | None  # the trees that draw the noise, None without privacy
    shifts: bool = struct.static()  # whether every upload adds 3 rho I
    upload: struct.Number  # U if counts are compared, ln U if determinants are
    download: struct.Number  # D or ln D, likewise
    vector: struct.Number  # bound on ||h||, the noise of one local cluster on sum x y, 0 without noise
    max_uploads: struct.Number  # largest number of uploads of a tree
    spec: Spec = struct.static()  # of the environment that it is bound to
    counts: bool = struct.static()  # whether uploads and downloads compare counts of rounds, not determinants

    @override
    def init(self, key: Array, spec: Spec) -> FCLUBState:
        n, d = self.seats.n_seats, spec.dim
        nowhere, zeros = jnp.arange(n, dtype=jnp.int32), jnp.zeros(n)
        sums = jnp.zeros((n, d, d + 1))
        held = Held(sums, zeros, zeros, jnp.zeros((n, d, d)), jnp.zeros((n, d)), zeros)
        return FCLUBState(
            sums=sums,
            count=zeros,
            moved=jnp.zeros(n, bool),
            linked=seats.complete(self.seats),
            clusters=Assignment(nowhere, nowhere, zeros),
            local=held,
            shared=held,
            buffer=Buffer(sums, zeros),
            uploads=jnp.zeros(n, jnp.int32),
            tree=jnp.int32(0),
            released=sums,
            status=jnp.int32(0),
        )

    def begin(self, key: Array, t: Array, state: FCLUBState) -> tuple[FCLUBState, Report]:
        """Adjusts clusters if a calibrated phase begins just before round t (Algorithm 2)."""
        s, due = seats.phase(t), seats.begins_phase(t)
        if self.noise is not None:
            due &= s <= self.noise.n_phases
        sums, count = state.sums, state.count

        def detect(found: tuple[FCLUBState, Array, Array]) -> tuple[FCLUBState, Array, Array]:
            return self._detect(key, s, found[0]._replace(sums=sums, count=count))

        found, up, down = control.when_any(due, detect, (_found(state), jnp.int32(0), jnp.int32(0)))
        state = found._replace(sums=sums, count=count)
        return state, self._report(up, down, state)

    @override
    def index(self, key: Array, t: Array, state: FCLUBState, user: Array, contexts: Array) -> Array:
        slot = state.clusters.local[self.seats.seat(user)]
        local, sharing = state.local, state.clusters.sharing[state.clusters.group[slot]]
        low = self.regularization + self.rho * (local.shift[slot] - sharing)
        high = self.regularization + self.rho * (local.shift[slot] + sharing)
        beta = self.width(local.count[slot], low, high, sharing * self.vector / jnp.sqrt(low))
        return seats.upper_bounds(contexts, local.inverse[slot], local.theta[slot], beta)

    @override
    def serve(
        self, key: Array, t: Array, state: FCLUBState, user: Array, x: Array, y: Array
    ) -> tuple[FCLUBState, Report]:
        # Alg. 1 l. 13, Algorithms 3 and 4. The branch of the upload has rows of tables, not tables: see `core.tables`.
        if self.noise is not None:
            x, y = self.noise.admit(x, y)
        n, seat = self.seats.n_seats, self.seats.seat(user)
        slot, row = state.clusters.local.at[seat].get(mode="fill", fill_value=n), seats.row(x, y)
        group = state.clusters.group.at[slot].get(mode="fill", fill_value=n)
        own, common = tables.take(state.local, slot), tables.take(state.shared, group)
        pending = Buffer(state.buffer.sums[slot] + row, state.buffer.count[slot] + 1)
        place = Place(own, common, pending, state.uploads[slot], jnp.bool_(False), jnp.bool_(False))
        due = (slot < n) & (place.uploads < self._room(state.tree, t)) & self._perhaps(own, pending)
        place = control.when_any(due, lambda place: self._upload(key, state.tree, slot, place, due), place)
        state = state._replace(
            sums=tables.add(state.sums, seat, row),
            count=tables.add(state.count, seat, jnp.float32(1)),
            moved=tables.put(state.moved, seat, jnp.bool_(True)),
            local=tables.put(state.local, slot, place.own),
            shared=tables.put(state.shared, group, place.common),
            buffer=tables.put(state.buffer, slot, place.pending),
            uploads=tables.put(state.uploads, slot, place.uploads),
            status=state.status | jnp.where(place.failed, Status.NO_ESTIMATE, 0),
        )
        state, down = self._download(state, group, place.common, place.sent)
        return state, self._report(place.sent.astype(jnp.int32), down, state)

    @override
    def partition(self, state: FCLUBState) -> Array:
        return self.seats.of_users(state.clusters.group[state.clusters.local])

    def view(self, state: FCLUBState) -> Any:
        """Returns the global server's view: the phase's first releases, global sums since, uploads, and local
        clusters."""
        return state.released, state.shared.sums, state.uploads, state.clusters.local

    @property
    def raw(self) -> tuple[Raw, ...]:
        """The accesses to raw data: estimates cut links, unless alpha_1 = inf, and determinants trigger uploads."""
        fixed = bool(np.all(np.asarray(self.alpha_1) == np.inf))
        return (*(() if fixed else (RAW_CLUSTERS,)), *(() if self.counts else (RAW_UPLOADS,)))

    @override
    def guarantee(self) -> Certificate:
        if self.noise is None:
            return no_privacy("not a private algorithm: no noise is added")
        if not struct.is_sealed(self.noise):
            return no_privacy(f"nothing is known of the noise that {type(self.noise).__name__} draws")
        servers = self.seats.n_servers
        if (self.seats.n_users, servers) != (self.spec.n_users, self.spec.n_servers):
            return no_privacy(f"the trees are those of {self.seats}, and the environment's users are {self.spec}")
        trees = self.seats.n_users if RAW_CLUSTERS in self.raw else servers
        return Replanted.guarantee(self.noise, servers, trees).through(self.raw)

    def _detect(self, key: Array, s: Array, state: FCLUBState) -> tuple[FCLUBState, Array, Array]:
        """Returns the state after Algorithm 2, without users' own sums, and the numbers of uploads and downloads."""
        n, own, noise = self.seats.n_seats, jnp.arange(self.seats.n_seats, dtype=jnp.int32), self.noise
        taken = jnp.asarray(self.seats.taken).reshape(-1)
        linked, local = self._split(s, state)
        live = (local == own) & taken
        sums, count = tables.segment_sum(state.count > 0, local, (state.sums, state.count))
        if noise is not None:
            sums = sums + tables.each(live, lambda slot: noise.first(key, s, slot, sums.shape[1]), own)
        held, ok = tables.each(live, self._held, sums, count, jnp.full(n, 2.0))
        group = self._join(held, live)
        clusters = Assignment(local, group, tables.segment_sum(live, group, jnp.ones(n)))
        before = state.clusters
        renewed = (s == 1) | (local != before.local).any() | (live & (group != before.group)).any()
        state = _found(state)._replace(
            moved=jnp.zeros(n, bool),
            linked=linked,
            released=jnp.where(live[:, None, None], sums, 0),
            status=state.status | jnp.where((ok | ~live).all(), 0, Status.NO_ESTIMATE),
        )

        def renew(state: FCLUBState) -> FCLUBState:
            return self._renew(key, s, state, clusters, held, live)

        state = control.cond_any(renewed, renew, state, costly=True)
        up = live.sum().astype(jnp.int32)
        return state, up, jnp.where(renewed, up, 0)

    def _split(self, s: Array, state: FCLUBState) -> tuple[Array, Array]:
        """Returns the remaining links, (L, P, W), and every user's local cluster, (N,) (Algorithm 2, lines 2-3).

        Only users with rounds since the last phase are compared, since between two others nothing has changed.
        """
        (n_servers, p), taken = self.seats.taken.shape, jnp.asarray(self.seats.taken)
        cuts = self.alpha_1 < jnp.inf
        theta = tables.each(
            (state.count > 0) & cuts, lambda sums: seats.estimate(sums, self.regularization).theta, state.sums
        )
        theta, f = theta.reshape(n_servers, p, -1), seats.spread(state.count).reshape(n_servers, p)
        order, count = tables.numbers(state.moved & cuts)

        def compare(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            linked, cut = carry
            server, place = jnp.divmod(order[i], p)
            far = graph.pack(seats.differ(theta[server], f[server], place, self.alpha_1))
            some = (linked[server, place] & far != 0).any()
            linked = graph.cut(linked, server, place, far, some)
            return linked, cut.at[server].max(some, mode="drop")

        linked, cut = lax.fori_loop(
            0, control.max_over_lanes(count), compare, (state.linked, jnp.zeros(n_servers, bool))
        )

        def of_server(args: tuple[Array, Array, Array]) -> Array:
            server, known, among = args
            among &= s > 0  # all: on a GPU a kernel does this, where the host would copy, see `control.put_row`
            return jnp.where(among, graph.components(lambda place: linked[server, place], among), known)

        servers = jnp.arange(n_servers, dtype=jnp.int32)
        known = state.clusters.local.reshape(n_servers, p) - servers[:, None] * p
        again = taken & (cut | (s == 1))[:, None]
        return linked, self.seats.everywhere(lax.map(of_server, (servers, known, again)))

    def _join(self, held: Held, live: Array) -> Array:
        """Returns the global cluster of every local one (N,); other seats keep their number (Algorithm 2, line 7)."""
        server = jnp.arange(self.seats.n_seats, dtype=jnp.int32) // self.seats.per_server
        f = seats.spread(held.count)

        def near(i: Array) -> Array:
            close = seats.distance(held.theta[i], held.theta) < self.alpha_2 * (f + f[i])
            close |= jnp.isinf(self.alpha_2)  # then all are close, also without estimates
            return graph.pack(live[i] & live & (server != server[i]) & close)

        return graph.components(near, live)

    def _renew(
        self, key: Array, s: Array, state: FCLUBState, clusters: Assignment, held: Held, live: Array
    ) -> FCLUBState:
        """Restarts every global cluster from the releases of its local ones (Algorithm 2, lines 8-19)."""
        group, heads, noise = clusters.group, clusters.sharing > 0, self.noise

        pooled = tables.segment_sum(live, group, (held.sums, held.count, held.shift))
        shared, ok = tables.each(heads, self._held, *pooled)
        local, sums = tables.each(live, lambda group: tables.take(shared, group), group), jnp.zeros_like(held.sums)
        if noise is not None:
            slots, d = jnp.arange(len(live)), sums.shape[1]
            sums = tables.each(live, lambda slot: noise.change(key, s, slot, jnp.int32(0), d), slots)
        return state._replace(
            clusters=clusters,
            local=local,
            shared=shared,
            buffer=Buffer(sums, jnp.zeros_like(held.count)),
            uploads=jnp.zeros_like(state.uploads),
            tree=s,
            status=state.status | jnp.where((ok | ~heads).all(), 0, Status.NO_ESTIMATE),
        )

    def _room(self, tree: Array, t: Array) -> Array:
        if self.noise is None:
            return self.max_uploads
        return jnp.minimum(self.max_uploads, self.noise.room(tree, seats.phase(t)))

    def _perhaps(self, own: Held, pending: Buffer) -> Array:
        # For determinants only necessary: tr(A^-1 dS) >= log det(A + dS) - log det A for A = lambda I + S^l.
        if self.counts:
            return (own.count + pending.count) / jnp.maximum(own.count, 1) >= self.upload
        trace = (own.inverse * pending.sums[:, :-1]).sum()
        if self.shifts:
            trace = trace + 3 * self.rho * jnp.trace(own.inverse)
        return (trace >= self.upload) | (self.upload == 0)

    def _upload(self, key: Array, tree: Array, slot: Array, place: Place, due: Array) -> Place:
        """Returns the place after Algorithm 3, unchanged if no upload is due.

        If a matrix is not positive definite, nothing is sent and the tree makes no more uploads. This reveals no more
        than the upload would.
        """
        (own, ok), (common, also) = (self._received(held, place.pending) for held in (place.own, place.common))
        if not self.counts:  # NaN (not positive definite) stays due, and is then reported
            due &= ~(own.log_det - place.own.log_det < self.upload) | (self.upload == 0)
        sent = due & ok & also
        noise = jnp.zeros_like(own.sums)
        if self.noise is not None:
            noise = self.noise.change(key, tree, slot, place.uploads + 1, len(noise))
        new = Place(own, common, Buffer(noise, jnp.float32(0)), place.uploads + 1, sent, due & ~sent)
        kept = place._replace(failed=due & ~sent, uploads=jnp.where(due, STOPPED, place.uploads))
        return jax.tree.map(lambda new, old: jnp.where(sent, new, old), new, kept)

    def _received(self, held: Held, pending: Buffer) -> tuple[Held, Array]:
        shift = held.shift + (3.0 if self.shifts else 0.0)
        return self._held(held.sums + pending.sums, held.count + pending.count, shift)

    def _download(self, state: FCLUBState, group: Array, common: Held, sent: Array) -> tuple[FCLUBState, Array]:
        """Returns the state after the downloads of local clusters, and their number (Algorithm 4)."""
        own, n = jnp.arange(self.seats.n_seats), self.seats.n_seats

        def find(nobody: Array) -> Array:
            live = (state.clusters.local == own) & jnp.asarray(self.seats.taken).reshape(-1)
            missing = live & (state.clusters.group == group) & (common.count > state.local.count)
            if self.counts:
                behind = common.count / jnp.maximum(state.local.count, 1) >= self.download
            else:
                behind = (common.log_det - state.local.log_det >= self.download) | (self.download == 0)
            return nobody | (missing & behind & sent)

        def one(carry: tuple[Held, Array]) -> tuple[Held, Array]:
            local, behind = carry
            slot = jnp.where(behind, own, n).min()  # n if nobody is behind
            return tables.put(local, slot, common), tables.put(behind, slot, jnp.bool_(False))

        behind = control.cond_any(sent, find, jnp.zeros(n, bool))
        down = behind.sum().astype(jnp.int32)
        local, _ = lax.while_loop(lambda carry: control.any_over_lanes(carry[1].any()), one, (state.local, behind))
        return state._replace(local=local), down

    def _report(self, up: Array, down: Array, state: FCLUBState) -> Report:
        floats = packed_size(state.sums.shape[1]) + 1
        return Report(
            rounds=up + down,
            floats=jnp.stack([up, down]) * floats,
            status=state.status,
            counts={"uploads": up, "downloads": down},
        )

    def _held(self, sums: Array, count: Array, shift: Array) -> tuple[Held, Array]:
        found = seats.estimate(sums, self.regularization + self.rho * shift)
        return Held(sums, count, shift, found.inverse, found.theta, found.log_det), found.ok


def _found(state: FCLUBState) -> FCLUBState:
    return state._replace(sums=None, count=None)
