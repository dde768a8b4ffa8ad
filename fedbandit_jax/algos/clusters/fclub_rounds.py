"""The rounds of FCLUB: Algorithms 1, 3 and 4 of Liu et al. (2022), and the certificate of a run.

This file has recommendations, uploads and downloads. Algorithm 2 and the letters are in `fclub_phases`. The `Replanted`
trees draw the noise, and limit the uploads of a local cluster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.algos.clusters import seats
from fedbandit_jax.algos.clusters.fclub_phases import Buffer, FCLUBState, Held, Phases
from fedbandit_jax.algos.clusters.phase_trees import Replanted
from fedbandit_jax.certificate import Certificate, Raw, no_privacy
from fedbandit_jax.core import control, struct, tables
from fedbandit_jax.interfaces import Report, Spec, Status

RAW_CLUSTERS = Raw(
    claim="none",
    why="which users are in one local cluster is found from raw estimates, and seen",
    seen="which users are in one local cluster, which the server finds from raw estimates",
)
RAW_UPLOADS = Raw(
    claim="none",
    why="when a local cluster uploads depends on the determinant of raw statistics",
    seen="when a local cluster uploads, which depends on the determinant of raw statistics",
)
STOPPED = 2**30  # number of uploads of a tree that may make no more


class Place(NamedTuple):
    """The rows of the tables for the served user's clusters, without the axis N."""

    own: Held  # statistics of the user's local cluster
    common: Held  # statistics of its global cluster
    pending: Buffer  # the local cluster's upload buffer
    uploads: Array  # () int32, uploads of the local cluster's tree
    sent: Array  # () bool, whether it uploads in this round
    failed: Array  # () bool, whether an upload was due but a matrix was not positive definite


@struct.sealed
@struct.pytree
class BoundFCLUB(Phases):
    """FCLUB for a known environment and horizon, which is private if it has noise.

    Every server is trusted with its own users and adds the noise to the uploads of its local clusters; see `FCLUB`.
    """

    upload: struct.Number  # U if counts are compared, ln U if determinants are
    download: struct.Number  # D or ln D, likewise
    vector: struct.Number  # bound on ||h||, the noise of one local cluster on sum x y
    max_uploads: struct.Number  # largest number of uploads of a tree
    spec: Spec = struct.static()  # of the environment that it is bound to
    counts: bool = struct.static()  # whether uploads and downloads compare counts of rounds, not determinants

    @override
    def index(self, key: Array, t: Array, state: FCLUBState, user: Array, contexts: Array) -> Array:
        slot = state.clusters.local[self.seats.seat(user)]
        local, sharing = state.local, state.clusters.sharing[state.clusters.group[slot]]
        if self.noise is None:
            low, high, kappa = self.regularization, self.regularization, 0.0
        else:
            low = self.regularization + self.rho * (local.shift[slot] - sharing)
            high = self.regularization + self.rho * (local.shift[slot] + sharing)
            kappa = sharing * self.vector / jnp.sqrt(low)
        beta = self.width(local.count[slot], low, high, kappa)
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
        pending = Buffer(
            sums=state.buffer.sums[slot] + row,
            count=state.buffer.count[slot] + 1,
            trace=state.buffer.trace[slot] + _form(own.inverse, x),
        )
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

    def view(self, state: FCLUBState) -> Any:
        """The global server's view: first releases of the phase, global sums since, uploads, and local clusters."""
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

    def _room(self, tree: Array, t: Array) -> Array:
        if self.noise is None:
            return self.max_uploads
        return jnp.minimum(self.max_uploads, self.noise.room(tree, seats.phase(t)))

    def _perhaps(self, own: Held, pending: Buffer) -> Array:
        # For determinants only necessary: the trace bounds the growth of the log determinant.
        if self.counts:
            return (own.count + pending.count) / jnp.maximum(own.count, 1) >= self.upload
        return (pending.trace >= self.upload) | (self.upload == 0)

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
        pending = Buffer(noise, jnp.float32(0), self._trace(own.inverse, noise))
        new = Place(own, common, pending, place.uploads + 1, sent, due & ~sent)
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

        def one(carry: tuple[Held, Array, Array]) -> tuple[Held, Array, Array]:
            local, trace, behind = carry
            slot = jnp.where(behind, own, n).min()  # n if nobody is behind
            pending = state.buffer.sums.at[slot].get(mode="fill", fill_value=0)
            trace = tables.put(trace, slot, self._trace(common.inverse, pending))
            return tables.put(local, slot, common), trace, tables.put(behind, slot, jnp.bool_(False))

        behind = control.cond_any(sent, find, jnp.zeros(n, bool))
        down = behind.sum().astype(jnp.int32)
        start = state.local, state.buffer.trace, behind
        local, trace, _ = lax.while_loop(lambda carry: control.any_over_lanes(carry[2].any()), one, start)
        return state._replace(local=local, buffer=state.buffer._replace(trace=trace)), down


def _form(inverse: Array, x: Array) -> Array:
    return jnp.matmul(jnp.matmul(inverse, x, precision="highest"), x, precision="highest")
