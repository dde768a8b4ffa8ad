"""The loop of FCLUB: Algorithm 1 of Liu et al. (2022), and the certificate of a run.

`detection` is Algorithm 2, and `exchange` Algorithms 3 and 4, where the letters are. `phase_trees` is Algorithm 5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.clusters import seats
from fedbandit_jax.algos.clusters.detection import Clusters, Detection, Profiles
from fedbandit_jax.algos.clusters.exchange import STOPPED, Buffer, Exchange, Exchanged, Held
from fedbandit_jax.algos.clusters.phase_trees import Replanted
from fedbandit_jax.algos.clusters.seats import Seats
from fedbandit_jax.algos.policies.widths import UserWidth
from fedbandit_jax.certificate import Certificate, Raw, no_privacy
from fedbandit_jax.core import control, struct, tables
from fedbandit_jax.interfaces import ArrivalAlgorithm, Report, Spec, Status
from fedbandit_jax.privacy.packing import packed_size

RAW_CLUSTERS = Raw(
    why="which users are in one local cluster is found from raw estimates, and seen",
    seen="which users are in one local cluster, which the server finds from raw estimates",
)
RAW_UPLOADS = Raw(
    why="when a local cluster uploads depends on the determinant of raw statistics",
    seen="when a local cluster uploads, which depends on the determinant of raw statistics",
)


class FCLUBState(NamedTuple):
    """Servers between two rounds."""

    users: Profiles
    clusters: Clusters


@struct.sealed
@struct.pytree
class BoundFCLUB(ArrivalAlgorithm):
    """FCLUB for a known environment and horizon, which is private if it has noise; see `FCLUB`."""

    width: UserWidth
    seats: Seats = struct.static()
    alpha_1: struct.Number  # factor of the distance above which links are cut
    alpha_2: struct.Number  # factor of the distance below which local clusters merge
    exchange: Exchange
    vector: struct.Number  # bound on ||h||, the noise of one local cluster on sum x y, 0 without noise
    spec: Spec = struct.static()  # of the environment that it is bound to

    @override
    def init(self, key: Array, spec: Spec) -> FCLUBState:
        n, d = self.seats.n_seats, spec.dim
        own, zeros, sums = jnp.arange(n, dtype=jnp.int32), jnp.zeros(n), jnp.zeros((n, d, d + 1))
        held = Held(sums, zeros, zeros, jnp.zeros((n, d, d)), jnp.zeros((n, d)), zeros)
        nothing = Exchanged(held, held, Buffer(sums, zeros), jnp.zeros(n, jnp.int32), jnp.int32(0))
        start = seats.complete(self.seats), zeros > 0, own, own, zeros, sums, nothing, jnp.int32(0)
        return FCLUBState(Profiles(sums, zeros), Clusters(*start))

    def begin(self, key: Array, t: Array, state: FCLUBState) -> tuple[FCLUBState, Report]:
        """Adjusts clusters if a calibrated phase begins just before round t (Algorithm 2)."""
        s, due = seats.phase(t), seats.begins_phase(t)
        if self.exchange.noise is not None:
            due &= s <= self.exchange.noise.n_phases

        def adjusted(before: tuple[Clusters, Array, Array]) -> tuple[Clusters, Array, Array]:
            detection = Detection(self.seats, self.alpha_1, self.alpha_2, self.exchange)
            return detection.detect(key, s, state.users, before[0])

        clusters, up, down = control.when_any(due, adjusted, (state.clusters, jnp.int32(0), jnp.int32(0)))
        state = state._replace(clusters=clusters)
        return state, _cost(up, down, state)

    @override
    def index(self, key: Array, t: Array, state: FCLUBState, user: Array, contexts: Array) -> Array:
        clusters, of = state.clusters, self.exchange
        slot, known = clusters.local[self.seats.seat(user)], clusters.exchanged.local
        sharing = clusters.sharing[clusters.group[slot]]
        low = of.regularization + of.rho * (known.shift[slot] - sharing)
        high = of.regularization + of.rho * (known.shift[slot] + sharing)
        beta = self.width(known.count[slot], low, high, sharing * self.vector / jnp.sqrt(low))
        return seats.upper_bounds(contexts, known.inverse[slot], known.theta[slot], beta)

    @override
    def serve(
        self, key: Array, t: Array, state: FCLUBState, user: Array, x: Array, y: Array
    ) -> tuple[FCLUBState, Report]:
        # Algorithm 1, line 13, and Algorithms 3 and 4. A branch has rows of tables, not tables: see `core.tables`.
        exchange, clusters, n = self.exchange, state.clusters, self.seats.n_seats
        if exchange.noise is not None:
            x, y = exchange.noise.admit(x, y)
        seat, row, known = self.seats.seat(user), seats.row(x, y), clusters.exchanged
        slot = clusters.local.at[seat].get(mode="fill", fill_value=n)
        group = clusters.group.at[slot].get(mode="fill", fill_value=n)
        place = known.at(slot, group, row)
        due = (slot < n) & exchange.may_upload(t, known.tree, place)
        place = control.when_any(due, lambda place: exchange.uploaded(key, known.tree, slot, place, due), place)

        def members() -> Array:
            return self.seats.heads(clusters.local) & (clusters.group == group)

        known, down = exchange.downloaded(known.put(slot, group, place), members, place)
        clusters = clusters._replace(
            moved=tables.put(clusters.moved, seat, jnp.bool_(True)),
            exchanged=known,
            status=clusters.status | jnp.where(place.uploads == STOPPED, Status.NO_ESTIMATE, 0),
        )
        state = FCLUBState(tables.add(state.users, seat, Profiles(row, jnp.float32(1))), clusters)
        return state, _cost(place.sent.astype(jnp.int32), down, state)

    @override
    def partition(self, state: FCLUBState) -> Array:
        return self.seats.of_users(state.clusters.group[state.clusters.local])

    def view(self, state: FCLUBState) -> Any:
        """Returns the global server's view: the phase's first releases, global sums since, uploads, and local
        clusters."""
        clusters, known = state.clusters, state.clusters.exchanged
        return clusters.released, known.shared.sums, known.uploads, clusters.local

    @property
    def raw(self) -> tuple[Raw, ...]:
        """The accesses to raw data: estimates cut links, unless alpha_1 = inf, and determinants trigger uploads."""
        fixed = bool(np.all(np.asarray(self.alpha_1) == np.inf))
        return (*(() if fixed else (RAW_CLUSTERS,)), *(() if self.exchange.counts else (RAW_UPLOADS,)))

    @override
    def guarantee(self) -> Certificate:
        noise, servers = self.exchange.noise, self.seats.n_servers
        if noise is None:
            return no_privacy("not a private algorithm: no noise is added")
        if not struct.is_sealed(noise):
            return no_privacy(f"nothing is known of the noise that {type(noise).__name__} draws")
        if (self.seats.n_users, servers) != (self.spec.n_users, self.spec.n_servers):
            return no_privacy(f"the trees are those of {self.seats}, and the environment's users are {self.spec}")
        trees = self.seats.n_users if RAW_CLUSTERS in self.raw else servers
        return Replanted.guarantee(noise, servers, trees).through(self.raw)


def _cost(up: Array, down: Array, state: FCLUBState) -> Report:
    floats, status = jnp.stack([up, down]) * (packed_size(state.users.sums.shape[1]) + 1), state.clusters.status
    return Report(rounds=up + down, floats=floats, status=status, counts={"uploads": up, "downloads": down})
