"""LinUCB for users who are told apart: one model each."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from fedbandit_jax.algos.clusters import users
from fedbandit_jax.algos.clusters.users import Seats, UserSums, UserWidth
from fedbandit_jax.core import struct
from fedbandit_jax.interfaces import ClusteringAlgorithm, Partition, Report, Spec


@struct.sealed
@struct.pytree
class BoundUserLinUCB(ClusteringAlgorithm):
    """LinUCB for a known environment whose users come again."""

    width: UserWidth
    regularization: struct.Number
    seats: Seats = struct.static()

    def init(self, key: Array, spec: Spec) -> UserSums:
        """V = lambda I, b = 0, of every user."""
        del key
        return users.nothing(self.seats.n_seats, spec.dim, self.regularization)

    def index(self, key: Array, t: Array, state: UserSums, user: Array, contexts: Array) -> Array:
        """By the user's own sums."""
        del key, t
        seat = self.seats.seat(user)
        beta = self.width(state.counts[seat].astype(jnp.float32), self.regularization, self.regularization)
        return users.index(contexts, state.inverse[seat], state.theta[seat], beta)

    def serve(self, key: Array, t: Array, state: UserSums, user: Array, x: Array, y: Array) -> tuple[UserSums, Report]:
        """Rank-one update."""
        del key, t
        return users.learn(state, self.seats.seat(user), x, y, self.regularization), Report()

    def partition(self, state: UserSums) -> Partition:
        """Nobody is alike."""
        del state
        alone = jnp.arange(self.seats.n_users, dtype=jnp.int32)
        return Partition(alone, alone)
