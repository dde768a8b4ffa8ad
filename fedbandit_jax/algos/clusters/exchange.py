"""Exchange of statistics between local and global clusters of FCLUB: Algorithms 3 and 4 of Liu et al. (2022).

Letters: S, u and T are a sum of x x', a sum of x y and a count of rounds. A local cluster recommends by S^l, u^l, T^l
(`local`). Its users have dS, du, dT since its last upload (`buffer`). A global cluster has S^g, u^g, T^g (`shared`).
Tables have a row for each of N seats, see `detection`. Sums hold data and noise, which the `Replanted` trees draw.
Multiples of rho I keep them positive definite. `shift` counts these. Uses of a matrix add lambda I (`regularization`).

The paper's download buffer dS^- holds what others have uploaded since a local cluster's last download. Then S^g = S^l +
dS^- holds at all times, as renewal, upload and download each preserve it. To receive the buffer is therefore to take
S^g. The buffer need not be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.algos.clusters.phase_trees import Replanted
from fedbandit_jax.algos.clusters.seats import estimate, phase
from fedbandit_jax.core import control, struct, tables

STOPPED = 2**30  # number of uploads of a tree that makes no more, since a matrix was not positive definite


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


class Exchanged(NamedTuple):
    """All clusters' statistics since the last renewal."""

    local: Held  # statistics by which every local cluster recommends
    shared: Held  # statistics of every global cluster
    buffer: Buffer  # upload buffer of every local cluster
    uploads: Array  # (N,) int32, uploads that every local cluster's tree has made
    tree: Array  # () int32, the phase in which the current trees began

    def at(self, slot: Array, group: Array, row: Array) -> Place:
        """Returns the rows of a local cluster and its global one, after one more round in the buffer (Algorithm 3,
        line 1).
        """
        own, common = tables.take(self.local, slot), tables.take(self.shared, group)
        pending = Buffer(self.buffer.sums[slot] + row, self.buffer.count[slot] + 1)
        return Place(own, common, pending, self.uploads[slot], jnp.bool_(False))

    def put(self, slot: Array, group: Array, place: Place) -> Exchanged:
        """Replaces the rows of a local cluster and its global one."""
        old, new = (self.local, self.buffer, self.uploads), (place.own, place.pending, place.uploads)
        local, buffer, uploads = tables.put(old, slot, new)
        return Exchanged(local, tables.put(self.shared, group, place.common), buffer, uploads, self.tree)


class Place(NamedTuple):
    """Rows of one user's clusters, without the axis N."""

    own: Held  # statistics of the user's local cluster
    common: Held  # statistics of its global cluster
    pending: Buffer  # the local cluster's upload buffer
    uploads: Array  # () int32, uploads of the local cluster's tree
    sent: Array  # () bool, whether it uploads in this round


@struct.sealed
@struct.pytree
class Exchange:
    """What clusters know of each other: releases, uploads and downloads, private if there is noise."""

    regularization: struct.Number  # lambda
    rho: struct.Number  # bound on the norm of the noise of a prefix sum, 0 without noise
    noise: Replanted | None  # the trees that draw the noise, None without privacy
    shifts: bool = struct.static()  # whether every upload adds 3 rho I
    upload: struct.Number  # U if counts are compared, ln U if determinants are
    download: struct.Number  # D or ln D, likewise
    max_uploads: struct.Number  # largest number of uploads of a tree
    counts: bool = struct.static()  # whether uploads and downloads compare counts of rounds, not determinants

    def held(self, sums: Array, count: Array, shift: Array) -> tuple[Held, Array]:
        """Returns statistics with their estimate, and whether the regularised matrix is positive definite."""
        found = estimate(sums, self.regularization + self.rho * shift)
        return Held(sums, count, shift, found.inverse, found.theta, found.log_det), found.ok

    def released(self, key: Array, s: Array, live: Array, sums: Array) -> Array:
        """Returns the private sums (N, d, d + 1) of the local clusters, with new trees (Algorithm 2, line 5)."""
        if self.noise is None:
            return sums
        noise, slots, d = self.noise, jnp.arange(len(live), dtype=jnp.int32), sums.shape[1]
        return sums + tables.each(live, lambda slot: noise.first(key, s, slot, d), slots)

    def renewed(
        self, key: Array, s: Array, group: Array, heads: Array, held: Held, live: Array
    ) -> tuple[Exchanged, Array]:
        """Restarts all clusters from local releases, and returns whether all have estimates (Algorithm 2, lines 9-18).

        Their global clusters `group` (N,) have the seats `heads` (N,) bool.
        """
        pooled = tables.segment_sum(live, group, (held.sums, held.count, held.shift))
        shared, ok = tables.each(heads, self.held, *pooled)
        local, zeros = tables.each(live, lambda group: tables.take(shared, group), group), jnp.zeros(len(live))
        sums = jnp.zeros_like(held.sums)
        if self.noise is not None:
            noise, slots, d = self.noise, jnp.arange(len(live)), sums.shape[1]
            sums = tables.each(live, lambda slot: noise.change(key, s, slot, jnp.int32(0), d), slots)
        uploads = jnp.zeros(len(live), jnp.int32)
        return Exchanged(local, shared, Buffer(sums, zeros), uploads, s), (ok | ~heads).all()

    def grown(self, new: Held, old: Held, factor: struct.Number) -> Array:
        """Returns whether statistics have grown by U or D. A matrix that is not positive definite counts as grown."""
        if self.counts:
            return new.count / jnp.maximum(old.count, 1) >= factor
        return ~(new.log_det - old.log_det < factor) | (factor == 0)

    def may_upload(self, t: Array, tree: Array, place: Place) -> Array:
        """Returns whether an upload may be due, by numbers that cost less than a determinant.

        With A = lambda I + S^l, tr(A^-1 dS) >= log det(A + dS) - log det A. So this is necessary for determinants, and
        exact for counts.
        """
        own, pending, most = place.own, place.pending, self.max_uploads
        if self.noise is not None:
            most = jnp.minimum(most, self.noise.room(tree, phase(t)))
        if self.counts:
            grown = (own.count + pending.count) / jnp.maximum(own.count, 1) >= self.upload
        else:
            trace = (own.inverse * pending.sums[:, :-1]).sum()
            if self.shifts:
                trace = trace + 3 * self.rho * jnp.trace(own.inverse)
            grown = (trace >= self.upload) | (self.upload == 0)
        return (place.uploads < most) & grown

    def uploaded(self, key: Array, tree: Array, slot: Array, place: Place, due: Array) -> Place:
        """Returns the place after Algorithm 3, lines 2-10, unchanged if no upload is due.

        If a matrix is not positive definite, nothing is sent and the tree makes no more uploads. This reveals no more
        than the upload would.
        """
        pending, shift = place.pending, 3.0 if self.shifts else 0.0

        def received(held: Held) -> tuple[Held, Array]:
            return self.held(held.sums + pending.sums, held.count + pending.count, held.shift + shift)

        (own, ok), (common, also) = received(place.own), received(place.common)
        due &= self.grown(own, place.own, self.upload)
        sent, noise = due & ok & also, jnp.zeros_like(own.sums)
        if self.noise is not None:
            noise = self.noise.change(key, tree, slot, place.uploads + 1, len(noise))
        new = Place(own, common, Buffer(noise, jnp.float32(0)), place.uploads + 1, sent)
        kept = place._replace(uploads=jnp.where(due, STOPPED, place.uploads))
        return jax.tree.map(lambda new, old: jnp.where(sent, new, old), new, kept)

    def downloaded(self, state: Exchanged, members: Callable[[], Array], place: Place) -> tuple[Exchanged, Array]:
        """Returns the state after an upload's downloads, and their number (Algorithm 4).

        `members` returns the local clusters (N,) of the global cluster.
        """
        own, common, n = jnp.arange(len(state.uploads)), place.common, len(state.uploads)

        def find(nobody: Array) -> Array:
            missing = members() & (common.count > state.local.count)
            return nobody | (missing & self.grown(common, state.local, self.download) & place.sent)

        def one(carry: tuple[Held, Array]) -> tuple[Held, Array]:
            local, behind = carry
            slot = jnp.where(behind, own, n).min()  # n if nobody is behind
            return tables.put(local, slot, common), tables.put(behind, slot, jnp.bool_(False))

        behind = control.cond_any(place.sent, find, jnp.zeros(n, bool))
        start = state.local, behind
        local, _ = lax.while_loop(lambda carry: control.any_over_lanes(carry[1].any()), one, start)
        return state._replace(local=local), behind.sum().astype(jnp.int32)
