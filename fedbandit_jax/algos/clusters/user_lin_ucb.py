"""LinUCB for users who are told apart and come again: one model for each user."""

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
    """LinUCB for users who come again: the bound form of `LinUCB` for such an environment. Not private."""

    width: UserWidth
    regularization: struct.Number
    seats: Seats = struct.static()

    def init(self, key: Array, spec: Spec) -> UserSums:
        """Returns the state before the first round: V = lambda I and b = 0 for every user."""
        del key
        return users.nothing(self.seats.n_seats, spec.dim, self.regularization)

    def index(self, key: Array, t: Array, state: UserSums, user: Array, contexts: Array) -> Array:
        """Returns the upper confidence bounds of the arms (K,), from the user's own sums."""
        del key, t
        seat = self.seats.seat(user)
        beta = self.width(state.counts[seat].astype(jnp.float32), self.regularization, self.regularization)
        return users.index(contexts, state.inverse[seat], state.theta[seat], beta)

    def serve(self, key: Array, t: Array, state: UserSums, user: Array, x: Array, y: Array) -> tuple[UserSums, Report]:
        """Adds the round to the user's own sums, by a rank-one update of her estimate."""
        del key, t
        return users.learn(state, self.seats.seat(user), x, y, self.regularization), Report()

    def partition(self, state: UserSums) -> Partition:
        """Returns a partition in which every user is a cluster by herself."""
        del state
        alone = jnp.arange(self.seats.n_users, dtype=jnp.int32)
        return Partition(alone, alone)
