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

from fedbandit_jax._core import control, graph, random, struct
from fedbandit_jax.algos import _users
from fedbandit_jax.algos._users import Seats, Width
from fedbandit_jax.interfaces import ClusteringAlgorithm, Partition, Report, Spec, Status
from fedbandit_jax.privacy import prefix_noise
from fedbandit_jax.privacy.encoding import packed_size


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
        nothing = jnp.int32(0), jnp.int32(0)
        starts = _users.begins_phase(t)
        detect = lambda args: self._detect(key, s, args[0])  # noqa: E731
        state, (up, down) = lax.cond(starts, detect, lambda args: args, (state, nothing))
        return state, self._report(up, down, state)

    def index(self, state: State, user: Array, contexts: Array) -> Array:
        """Algorithm 1, line 12, by S^l, which lacks the buffer."""
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
        """Line 13, and Algorithms 3 and 4."""
        del t
        y = jnp.clip(jnp.nan_to_num(y), 0, 1) if self.private else y
        seat = self.seats.seat(user)
        slot, row = state.clusters.local[seat], _users.row(x, y)
        image = jnp.matmul(state.local.inverse[slot], x, precision="highest")
        buffer = Buffer(
            sums=state.buffer.sums.at[slot].add(row),
            count=state.buffer.count.at[slot].add(1),
            trace=state.buffer.trace.at[slot].add(image @ x),
        )
        state = state._replace(sums=state.sums.at[seat].add(row), count=state.count.at[seat].add(1), buffer=buffer)
        due = (state.uploads[slot] < self.max_uploads) & self._perhaps(state, slot)
        args = state, (jnp.int32(0), jnp.int32(0))
        state, (up, down) = control.when_any(due, lambda args: self._exchange(key, args[0], slot, due), args)
        return state, self._report(up, down, state)

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

    def _perhaps(self, state: State, slot: Array) -> Array:
        """Is an upload due? By determinants, it can only be if the trace reaches ln U."""
        if self.counts:
            have = state.local.count[slot]
            return (have + state.buffer.count[slot]) / jnp.maximum(have, 1) >= self.upload
        return (state.buffer.trace[slot] >= self.upload) | (self.upload == 0)

    def _exchange(self, key: Array, state: State, slot: Array, due: Array) -> tuple[State, tuple[Array, Array]]:
        """Algorithm 3, if it is due indeed, and then Algorithm 4. Where it is not, nothing is written."""
        group = state.clusters.group[slot]
        new, ok = zip(*(self._received(held, at, state.buffer, slot) for held, at in
                        ((state.local, slot), (state.shared, group))))  # fmt: skip
        local, shared = new
        if not self.counts:  # not a number: not positive definite, which is reported
            grown = local.log_det - state.local.log_det[slot]
            due &= ~(grown < self.upload) | (self.upload == 0)
        sent = due & ok[0] & ok[1]
        here, there = (jnp.where(sent, at, self.seats.n_seats) for at in (slot, group))
        noise = jnp.zeros_like(local.sums)
        if self.private:
            tree = self._tree(key, state.tree, slot)
            noise = self.std * prefix_noise.change(tree, state.uploads[slot] + 1, len(noise))
        state = state._replace(
            local=_put(state.local, here, local),
            shared=_put(state.shared, there, shared),
            buffer=_put(state.buffer, here, Buffer(noise, jnp.float32(0), self._trace(local.inverse, noise))),
            uploads=state.uploads.at[here].add(1, mode="drop"),
            status=state.status | jnp.where(due & ~sent, Status.NO_ESTIMATE, 0),
        )
        behind = self._behind(state, group, shared) & sent
        state = self._download(state, group, behind)
        return state, (sent.astype(jnp.int32), behind.sum().astype(jnp.int32))

    def _received(self, held: Held, at: Array, buffer: Buffer, slot: Array) -> tuple[Held, Array]:
        """Statistics with what a buffer holds."""
        shift = held.shift[at] + (3.0 if self.shifts else 0.0)
        return self._held(held.sums[at] + buffer.sums[slot], held.count[at] + buffer.count[slot], shift)

    def _trace(self, inverse: Array, sums: Array) -> Array:
        """tr(A^-1 dS), with the shift."""
        trace = (inverse * sums[..., :-1]).sum((-1, -2))
        if self.private and self.shifts:
            trace = trace + 3 * self.rho * jnp.trace(inverse, axis1=-1, axis2=-2)
        return trace

    def _behind(self, state: State, group: Array, shared: Held) -> Array:
        """Which local clusters of a global one have something to download, and enough, (N,) bool."""
        own = jnp.arange(self.seats.n_seats)
        live = (state.clusters.local == own) & jnp.asarray(self.seats.taken).reshape(-1)
        missing = live & (state.clusters.group == group) & (shared.count > state.local.count)
        if self.counts:
            return missing & (shared.count / jnp.maximum(state.local.count, 1) >= self.download)
        return missing & ((shared.log_det - state.local.log_det >= self.download) | (self.download == 0))

    def _download(self, state: State, group: Array, behind: Array) -> State:
        """One after the other: they are few."""

        def one(carry: tuple[State, Array]) -> tuple[State, Array]:
            state, behind = carry
            slot = jnp.where(behind.any(), jnp.argmax(behind), self.seats.n_seats)
            shared = Held(*(x[group] for x in state.shared))
            pending = state.buffer.sums.at[slot].get(mode="fill", fill_value=0)
            trace = state.buffer.trace.at[slot].set(self._trace(shared.inverse, pending), mode="drop")
            state = state._replace(local=_put(state.local, slot, shared), buffer=state.buffer._replace(trace=trace))
            return state, behind.at[slot].set(False, mode="drop")

        return lax.while_loop(lambda carry: control.in_any_lane(carry[1].any()), one, (state, behind))[0]

    def _tree(self, key: Array, phase: Array, slot: Array) -> Array:
        """Key of the tree that a local cluster planted in a phase."""
        return jax.random.fold_in(jax.random.fold_in(random.stream(key, "trees"), phase), slot)

    def _detect(self, key: Array, s: Array, state: State) -> tuple[State, tuple[Array, Array]]:
        """Algorithm 2."""
        n, own = self.seats.n_seats, jnp.arange(self.seats.n_seats, dtype=jnp.int32)
        taken = jnp.asarray(self.seats.taken).reshape(-1)
        linked, local = self._split(state)
        live = (local == own) & taken
        sums = jnp.zeros_like(state.sums).at[local].add(state.sums)
        count = jnp.zeros_like(state.count).at[local].add(state.count)
        if self.private:
            first = jax.vmap(lambda slot: prefix_noise.first(self._tree(key, s, slot), sums.shape[1]))(own)
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
        renew = lambda state: self._renew(key, s, state, clusters, held, live)  # noqa: E731
        state = control.cond_any(renewed, renew, state)
        up = live.sum().astype(jnp.int32)
        return state, (up, jnp.where(renewed, up, 0))

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
            return live & (server != server[i]) & close

        def smallest(label):
            def see(j, seen):
                i = order[j]
                return seen.at[i].set(jnp.where(near(i), label, n).min())

            return lax.fori_loop(0, control.largest(live.sum()), see, jnp.full(n, n, jnp.int32))

        return graph.components(smallest, n)

    def _renew(self, key: Array, s: Array, state: State, clusters: Clusters, held: Held, live: Array) -> State:
        """Lines 8-19: every global cluster starts from what its local ones have just shown."""
        group = clusters.group
        add_up = lambda x: jnp.zeros_like(x).at[group].add(x * live.reshape(-1, *(1,) * (x.ndim - 1)))  # noqa: E731
        heads = clusters.sharing > 0
        shared, ok = _each(heads, self._held, *map(add_up, (held.sums, held.count, held.shift)))
        local = Held(*(x[group] for x in shared))
        noise = jnp.zeros_like(state.sums)
        if self.private:
            slots, d = jnp.arange(len(live)), noise.shape[1]
            noise = self.std * jax.vmap(lambda i: prefix_noise.change(self._tree(key, s, i), jnp.int32(0), d))(slots)
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
        shapes = jax.eval_shape(function, *rest)
        nothing = lambda *_: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)  # noqa: E731
        return lax.cond(wanted, function, nothing, *rest)

    together = None if jax.default_backend() == "cpu" else len(which)
    return lax.map(row, (which, *arrays), batch_size=together)
