"""The loop of FCLUB: Algorithms 1-5 of Liu et al. (2022).

Letters: S^l, u^l, T^l are what a local cluster recommends by (`local`), dS, du, dT what its users did since its last
upload (`buffer`), S^g, u^g, T^g what the global cluster has (`shared`). A local cluster has the seat of its smallest
user, a global one the seat of its smallest local cluster. Sums hold data and noise; the multiples of rho I that keep
them positive definite are counted in `shift`, and lambda I is added where a matrix is used.

The paper's download buffer dS^- is what others uploaded since a local cluster's last download: S^g = S^l + dS^- always
(renewal, upload and download each keep it), so that receiving it is to take S^g, and it need not be stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.algos.clusters import _users
from fedbandit_jax.algos.clusters._users import Seats, Width
from fedbandit_jax.core import control, graph, random, struct
from fedbandit_jax.interfaces import ClusteringAlgorithm, Partition, Report, Spec, Status
from fedbandit_jax.privacy import prefix_noise
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


class Clusters(NamedTuple):
    """Of whom: labels of seats."""

    local: Array  # (N,) int32 of every user
    group: Array  # (N,) int32 of every local cluster
    sharing: Array  # (N,) float32 of every global cluster: L', how many local clusters it has


class State(NamedTuple):
    """Everything between two rounds."""

    sums: Array  # (N, d, d + 1) of users
    count: Array  # (N,) float32
    linked: Array  # (L, P, P) bool
    clusters: Clusters
    local: Held
    shared: Held
    buffer: Buffer
    uploads: Array  # (N,) int32 by the local cluster's tree
    tree: Array  # int32: phase in which the trees in use were planted
    released: Array  # (N, d, d + 1) sums that local clusters showed when the phase began
    status: Array  # `Status` bits


class _Place(NamedTuple):
    """Where a user is served: rows of the tables."""

    own: Held  # of her local cluster
    common: Held  # of the global one
    pending: Buffer
    uploads: Array
    sent: Array  # now?
    failed: Array  # not positive definite?


@struct.pytree
class BoundFCLUB(ClusteringAlgorithm):
    """FCLUB for a known environment and horizon; private if std > 0."""

    width: Width
    regularization: struct.Number
    alpha_1: struct.Number
    alpha_2: struct.Number
    upload: struct.Number  # U, or its logarithm if by determinants
    download: struct.Number  # D, likewise
    std: struct.Number  # sigma
    rho: struct.Number
    vector: struct.Number  # bound on ||h||
    max_uploads: struct.Number
    seats: Seats = struct.static()
    counts: bool = struct.static()  # are rounds compared, and not determinants?
    shifts: bool = struct.static()  # by 3 rho I at every upload?
    private: bool = struct.static()

    def init(self, key: Array, spec: Spec) -> State:
        """Nothing seen; phase 1 begins before round 0."""
        del key
        n, d = self.seats.n_seats, spec.dim
        taken, nowhere, zeros = jnp.asarray(self.seats.taken), jnp.arange(n, dtype=jnp.int32), jnp.zeros(n)
        sums = jnp.zeros((n, d, d + 1))
        held = Held(sums, zeros, zeros, jnp.zeros((n, d, d)), jnp.zeros((n, d)), zeros)
        return State(
            sums=sums,
            count=zeros,
            linked=taken[:, :, None] & taken[:, None, :],
            clusters=Clusters(nowhere, nowhere, zeros),
            local=held,
            shared=held,
            buffer=Buffer(sums, zeros, zeros),
            uploads=jnp.zeros(n, jnp.int32),
            tree=jnp.int32(0),
            released=sums,
            status=jnp.int32(0),
        )

    def begin(self, key: Array, t: Array, state: State) -> tuple[State, Report]:
        """Algorithm 2, when a phase begins."""
        s = 31 - lax.clz(t + 2)
        quiet = state, jnp.int32(0), jnp.int32(0)
        state, up, down = lax.cond(
            _users.begins_phase(t), lambda quiet: self._detect(key, s, quiet[0]), lambda quiet: quiet, quiet
        )
        return state, self._report(up, down, state)

    def index(self, key: Array, t: Array, state: State, user: Array, contexts: Array) -> Array:
        """Algorithm 1, line 12, by S^l, which lacks the buffer."""
        del key, t
        slot = state.clusters.local[self.seats.seat(user)]
        local, sharing = state.local, state.clusters.sharing[state.clusters.group[slot]]
        if self.private:
            low = self.regularization + self.rho * (local.shift[slot] - sharing)
            high = self.regularization + self.rho * (local.shift[slot] + sharing)
            kappa = sharing * self.vector / jnp.sqrt(low)
        else:
            low, high, kappa = self.regularization, self.regularization, 0.0
        beta = self.width(local.count[slot], low, high, kappa)
        return _users.index(contexts, local.inverse[slot], local.theta[slot], beta)

    def serve(self, key: Array, t: Array, state: State, user: Array, x: Array, y: Array) -> tuple[State, Report]:
        """Line 13, and Algorithms 3 and 4. Branches return rows, which are written whatever they are: XLA:CPU copies a
        table that a branch reads and writes.
        """
        del t
        y = jnp.clip(jnp.nan_to_num(y), 0, 1) if self.private else y
        seat = self.seats.seat(user)
        slot, row = state.clusters.local[seat], _users.row(x, y)
        group = state.clusters.group[slot]
        own, common = Held(*(x[slot] for x in state.local)), Held(*(x[group] for x in state.shared))
        pending = Buffer(
            sums=state.buffer.sums[slot] + row,
            count=state.buffer.count[slot] + 1,
            trace=state.buffer.trace[slot] + jnp.matmul(own.inverse, x, precision="highest") @ x,
        )
        place = _Place(own, common, pending, state.uploads[slot], jnp.bool_(False), jnp.bool_(False))
        due = (place.uploads < self.max_uploads) & self._perhaps(own, pending)
        tree = self._tree(key, state.tree, slot)
        place = control.when_any(due, lambda place: self._upload(tree, place, due), place)
        state = state._replace(
            sums=state.sums.at[seat].add(row),
            count=state.count.at[seat].add(1),
            local=_put(state.local, slot, place.own),
            shared=_put(state.shared, group, place.common),
            buffer=_put(state.buffer, slot, place.pending),
            uploads=state.uploads.at[slot].set(place.uploads),
            status=state.status | jnp.where(place.failed, Status.NO_ESTIMATE, 0),
        )
        state, down = self._download(state, group, place.common, place.sent)
        return state, self._report(place.sent.astype(jnp.int32), down, state)

    def partition(self, state: State) -> Partition:
        """Local clusters, and global ones."""
        local = state.clusters.local
        return Partition(self.seats.of_users(local), self.seats.of_users(state.clusters.group[local]))

    def view(self, state: State) -> Any:
        """What the global server was shown: at the phase's beginning, since then, how often, and whose it is."""
        return state.released, state.shared.sums, state.uploads, state.clusters.local

    def _report(self, up: Array, down: Array, state: State) -> Report:
        floats = packed_size(state.sums.shape[1]) + 1
        return Report(
            rounds=up + down,
            floats=jnp.stack([up, down]) * floats,
            status=state.status,
            counts={"uploads": up, "downloads": down},
        )

    def _ridge(self, shift: Array) -> Array:
        """Multiple of I in what is solved."""
        return self.regularization + self.rho * shift if self.private else self.regularization

    def _held(self, sums: Array, count: Array, shift: Array) -> tuple[Held, Array]:
        """Of one cluster, and whether the estimate exists."""
        found = _users.estimate(sums, self._ridge(shift))
        return Held(sums, count, shift, found.inverse, found.theta, found.log_det), found.ok

    def _perhaps(self, own: Held, pending: Buffer) -> Array:
        """Is an upload due? By determinants, it can only be if the trace reaches ln U."""
        if self.counts:
            return (own.count + pending.count) / jnp.maximum(own.count, 1) >= self.upload
        return (pending.trace >= self.upload) | (self.upload == 0)

    def _upload(self, tree: Array, place: _Place, due: Array) -> _Place:
        """Algorithm 3, if it is due indeed; where it is not, nothing changes."""
        (own, ok), (common, also) = (self._received(held, place.pending) for held in (place.own, place.common))
        if not self.counts:  # not a number: not positive definite, which is reported
            due &= ~(own.log_det - place.own.log_det < self.upload) | (self.upload == 0)
        sent = due & ok & also
        noise = jnp.zeros_like(own.sums)
        if self.private:
            noise = self.std * prefix_noise.change(tree, place.uploads + 1, len(noise))
        pending = Buffer(noise, jnp.float32(0), self._trace(own.inverse, noise))
        new = _Place(own, common, pending, place.uploads + 1, sent, due & ~sent)
        kept = place._replace(failed=due & ~sent)
        return jax.tree.map(lambda new, old: jnp.where(sent, new, old), new, kept)

    def _received(self, held: Held, pending: Buffer) -> tuple[Held, Array]:
        """Statistics with what a buffer holds."""
        shift = held.shift + (3.0 if self.shifts else 0.0)
        return self._held(held.sums + pending.sums, held.count + pending.count, shift)

    def _trace(self, inverse: Array, sums: Array) -> Array:
        """tr(A^-1 dS), with the shift."""
        trace = (inverse * sums[..., :-1]).sum((-1, -2))
        if self.private and self.shifts:
            trace = trace + 3 * self.rho * jnp.trace(inverse, axis1=-1, axis2=-2)
        return trace

    def _download(self, state: State, group: Array, common: Held, sent: Array) -> tuple[State, Array]:
        """Algorithm 4, after an upload: local clusters that are behind, one after the other, for they are few."""
        own, n = jnp.arange(self.seats.n_seats), self.seats.n_seats

        def find(nobody: Array) -> Array:
            live = (state.clusters.local == own) & jnp.asarray(self.seats.taken).reshape(-1)
            missing = live & (state.clusters.group == group) & (common.count > state.local.count)
            if self.counts:
                behind = common.count / jnp.maximum(state.local.count, 1) >= self.download
            else:
                behind = (common.log_det - state.local.log_det >= self.download) | (self.download == 0)
            return nobody | (missing & behind & sent)

        def one(carry: tuple[Held, Array, Array]) -> tuple[Held, Array, Array]:
            local, trace, behind = carry
            slot = jnp.where(behind.any(), jnp.argmax(behind), n)
            pending = state.buffer.sums.at[slot].get(mode="fill", fill_value=0)
            trace = trace.at[slot].set(self._trace(common.inverse, pending), mode="drop")
            return _put(local, slot, common), trace, behind.at[slot].set(False, mode="drop")

        behind = control.when_any(sent, find, jnp.zeros(n, bool))
        down = behind.sum().astype(jnp.int32)
        start = state.local, state.buffer.trace, behind
        local, trace, _ = lax.while_loop(lambda carry: control.in_any_lane(carry[2].any()), one, start)
        return state._replace(local=local, buffer=state.buffer._replace(trace=trace)), down

    def _tree(self, key: Array, phase: Array, slot: Array) -> Array:
        """Key of the tree that a local cluster planted in a phase."""
        return jax.random.fold_in(jax.random.fold_in(random.stream(key, "trees"), phase), slot)

    def _detect(self, key: Array, s: Array, state: State) -> tuple[State, Array, Array]:
        """Algorithm 2, and how many upload and download."""
        n, own = self.seats.n_seats, jnp.arange(self.seats.n_seats, dtype=jnp.int32)
        taken = jnp.asarray(self.seats.taken).reshape(-1)
        linked, local = self._split(state)
        live = (local == own) & taken
        sums = jnp.zeros_like(state.sums).at[local].add(state.sums)
        count = jnp.zeros_like(state.count).at[local].add(state.count)
        if self.private:
            d = sums.shape[1]
            first = _each(live, lambda slot: prefix_noise.first(self._tree(key, s, slot), d), own)
            sums = sums + self.std * first
        held, ok = _each(live, self._held, sums, count, jnp.full(n, 2.0))
        group = self._join(held, live)
        sharing = jnp.zeros(n).at[group].add(live)
        clusters = Clusters(local, group, sharing)
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

    def _split(self, state: State) -> tuple[Array, Array]:
        """Lines 2-3, server by server: links, and local clusters as seats (N,)."""
        everybody = jnp.asarray(self.seats.taken).reshape(-1)
        theta = _each(everybody, lambda sums: _users.estimate(sums, self.regularization).theta, state.sums)
        shape = self.seats.taken.shape

        def of_server(args):
            linked, theta, count = args
            f = _users.spread(count)
            far = jax.vmap(lambda one: _users.distance(one, theta))(theta) > self.alpha_1 * (f[:, None] + f[None])
            linked = linked & ~far
            return linked, graph.components(graph.smallest_neighbour(linked), len(linked))

        servers = state.linked, theta.reshape(*shape, -1), state.count.reshape(shape)
        linked, place = lax.map(of_server, servers)
        return linked, self.seats.everywhere(place)

    def _join(self, held: Held, live: Array) -> Array:
        """Line 7: global clusters of local ones (N,); who is no local cluster is by itself."""
        n, own = self.seats.n_seats, jnp.arange(self.seats.n_seats, dtype=jnp.int32)
        server = own // self.seats.per_server
        f, order = _users.spread(held.count), jnp.argsort(~live)

        def near(i):
            close = _users.distance(held.theta[i], held.theta) < self.alpha_2 * (f + f[i])
            close |= jnp.isinf(self.alpha_2)  # also where there is no estimate
            return live[i] & live & (server != server[i]) & close

        def smallest(label):
            def see(j, seen):
                i = order[j]
                return seen.at[i].set(jnp.where(near(i), label, n).min())

            return lax.fori_loop(0, control.largest(live.sum()), see, jnp.full(n, n, jnp.int32))

        return graph.components(smallest, n)

    def _renew(self, key: Array, s: Array, state: State, clusters: Clusters, held: Held, live: Array) -> State:
        """Lines 8-19: every global cluster starts from what its local ones have just shown."""
        group, heads = clusters.group, clusters.sharing > 0

        def add_up(x: Array) -> Array:
            return jnp.zeros_like(x).at[group].add(x * live.reshape(-1, *(1,) * (x.ndim - 1)))

        shared, ok = _each(heads, self._held, *map(add_up, (held.sums, held.count, held.shift)))
        local = Held(*(x[group] for x in shared))
        noise = jnp.zeros_like(state.sums)
        if self.private:
            slots, d = jnp.arange(len(live)), noise.shape[1]
            change = _each(live, lambda slot: prefix_noise.change(self._tree(key, s, slot), jnp.int32(0), d), slots)
            noise = self.std * change
        return state._replace(
            clusters=clusters,
            local=local,
            shared=shared,
            buffer=Buffer(noise, jnp.zeros_like(state.count), self._trace(local.inverse, noise)),
            uploads=jnp.zeros_like(state.uploads),
            tree=s,
            status=state.status | jnp.where((ok | ~heads).all(), 0, Status.NO_ESTIMATE),
        )


def _put(table: Any, at: Array, row: Any) -> Any:
    """Rows of every array set, unless `at` is out of range."""
    return jax.tree.map(lambda x, one: x.at[at].set(one, mode="drop"), table, row)


def _each(which: Array, function: Any, *arrays: Array) -> Any:
    """Function of the rows (N, ...) that count, zeros for the others: on a CPU one after the other, for two batched
    LAPACK calls of two runs would wait for each other's threads for ever (jaxlib 0.10.2)."""

    def row(args):
        wanted, *rest = args
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *rest))
        return lax.cond(wanted, function, lambda *_: zeros, *rest)

    together = None if jax.default_backend() == "cpu" else len(which)
    return lax.map(row, (which, *arrays), batch_size=together)
