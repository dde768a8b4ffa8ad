"""The rounds of FCLUB: Algorithms 1, 3 and 4 of Liu et al. (2022), and what a run of them proves about privacy.

What a local cluster recommends by, what it uploads and what it downloads; letters are those of `phases`, which has
Algorithm 2. Noise is drawn by the `Replanted` trees, which also say how often a local cluster may upload.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos.clusters import users
from fedbandit_jax.algos.clusters.phases import Buffer, FCLUBState, Held, Phases
from fedbandit_jax.algos.clusters.users import UserWidth
from fedbandit_jax.certificate import Certificate, Raw, no_privacy
from fedbandit_jax.core import control, rows, struct
from fedbandit_jax.interfaces import Report, Status
from fedbandit_jax.privacy.replanted import Replanted

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
STOPPED = 2**30  # uploads of a tree that makes no more


class Place(NamedTuple):
    """Where a user is served: rows of the tables."""

    own: Held  # of her local cluster
    common: Held  # of the global one
    pending: Buffer
    uploads: Array
    sent: Array  # now?
    failed: Array  # not positive definite?


@struct.sealed
@struct.pytree
class BoundFCLUB(Phases):
    """FCLUB for a known environment and horizon; private if it has noise."""

    width: UserWidth
    upload: struct.Number  # U, or its logarithm if by determinants
    download: struct.Number  # D, likewise
    vector: struct.Number  # bound on ||h||
    max_uploads: struct.Number
    counts: bool = struct.static()  # are rounds compared, and not determinants?

    def index(self, key: Array, t: Array, state: FCLUBState, user: Array, contexts: Array) -> Array:
        """Algorithm 1, line 12, by S^l, which lacks the buffer."""
        del key, t
        slot = state.clusters.local[self.seats.seat(user)]
        local, sharing = state.local, state.clusters.sharing[state.clusters.group[slot]]
        if self.noise is None:
            low, high, kappa = self.regularization, self.regularization, 0.0
        else:
            low = self.regularization + self.rho * (local.shift[slot] - sharing)
            high = self.regularization + self.rho * (local.shift[slot] + sharing)
            kappa = sharing * self.vector / jnp.sqrt(low)
        beta = self.width(local.count[slot], low, high, kappa)
        return users.index(contexts, local.inverse[slot], local.theta[slot], beta)

    def serve(
        self, key: Array, t: Array, state: FCLUBState, user: Array, x: Array, y: Array
    ) -> tuple[FCLUBState, Report]:
        """Line 13, and Algorithms 3 and 4. The branch returns rows, see `rows`."""
        if self.noise is not None:
            x, y = self.noise.admit(x, y)
        n, seat = self.seats.n_seats, self.seats.seat(user)
        slot, row = state.clusters.local.at[seat].get(mode="fill", fill_value=n), users.row(x, y)
        group = state.clusters.group.at[slot].get(mode="fill", fill_value=n)
        own, common = rows.take(state.local, slot), rows.take(state.shared, group)
        pending = Buffer(
            sums=state.buffer.sums[slot] + row,
            count=state.buffer.count[slot] + 1,
            trace=state.buffer.trace[slot] + _form(own.inverse, x),
        )
        place = Place(own, common, pending, state.uploads[slot], jnp.bool_(False), jnp.bool_(False))
        due = (slot < n) & (place.uploads < self._room(state.tree, t)) & self._perhaps(own, pending)
        place = control.when_any(due, lambda place: self._upload(key, state.tree, slot, place, due), place)
        state = state._replace(
            sums=state.sums.at[seat].add(row),
            count=state.count.at[seat].add(1),
            local=rows.put(state.local, slot, place.own),
            shared=rows.put(state.shared, group, place.common),
            buffer=rows.put(state.buffer, slot, place.pending),
            uploads=state.uploads.at[slot].set(place.uploads),
            status=state.status | jnp.where(place.failed, Status.NO_ESTIMATE, 0),
        )
        state, down = self._download(state, group, place.common, place.sent)
        return state, self._report(place.sent.astype(jnp.int32), down, state)

    def view(self, state: FCLUBState) -> Any:
        """What the global server was shown: at the phase's beginning, since then, how often, and whose it is."""
        return state.released, state.shared.sums, state.uploads, state.clusters.local

    @property
    def raw(self) -> tuple[Raw, ...]:
        """Local clusters are fixed only if no link is ever cut, uploads do not depend on data if rounds are counted."""
        fixed = bool(np.all(np.asarray(self.alpha_1) == np.inf))
        return (*(() if fixed else (RAW_CLUSTERS,)), *(() if self.counts else (RAW_UPLOADS,)))

    def guarantee(self) -> Certificate:
        """What the trees prove, through the doors that are open."""
        if self.noise is None:
            return no_privacy("not a private algorithm: no noise is added")
        if not struct.is_sealed(self.noise):
            return no_privacy(f"nothing is known of the noise that {type(self.noise).__name__} draws")
        servers = self.seats.n_servers
        trees = self.seats.n_users if RAW_CLUSTERS in self.raw else servers
        return Replanted.guarantee(self.noise, servers, trees).through(self.raw)

    def _room(self, tree: Array, t: Array) -> Array:
        """How many uploads the trees in use may have made by now."""
        if self.noise is None:
            return self.max_uploads
        return jnp.minimum(self.max_uploads, self.noise.room(tree, users.phase(t)))

    def _perhaps(self, own: Held, pending: Buffer) -> Array:
        """Is an upload due? By determinants, it can only be if the trace reaches ln U."""
        if self.counts:
            return (own.count + pending.count) / jnp.maximum(own.count, 1) >= self.upload
        return (pending.trace >= self.upload) | (self.upload == 0)

    def _upload(self, key: Array, tree: Array, slot: Array, place: Place, due: Array) -> Place:
        """Algorithm 3, if it is due indeed; where it is not, nothing changes.

        Where a matrix is not positive definite, nothing is sent, and the tree makes no more uploads: that tells no more
        than the upload itself would have told.
        """
        (own, ok), (common, also) = (self._received(held, place.pending) for held in (place.own, place.common))
        if not self.counts:  # not a number: not positive definite, which is reported
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
        """Statistics with what a buffer holds."""
        shift = held.shift + (3.0 if self.shifts else 0.0)
        return self._held(held.sums + pending.sums, held.count + pending.count, shift)

    def _download(self, state: FCLUBState, group: Array, common: Held, sent: Array) -> tuple[FCLUBState, Array]:
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
            return rows.put(local, slot, common), trace, behind.at[slot].set(False, mode="drop")

        behind = control.when_any(sent, find, jnp.zeros(n, bool))
        down = behind.sum().astype(jnp.int32)
        start = state.local, state.buffer.trace, behind
        local, trace, _ = lax.while_loop(lambda carry: control.in_any_lane(carry[2].any()), one, start)
        return state._replace(local=local, buffer=state.buffer._replace(trace=trace)), down


def _form(inverse: Array, x: Array) -> Array:
    """x' A^-1 x."""
    return jnp.matmul(jnp.matmul(inverse, x, precision="highest"), x, precision="highest")
