"""LinUCB for users who are told apart and come again: one model for each user."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.clusters import seats as users
from fedbandit_jax.algos.clusters.seats import Seats, UserSums, UserWidth
from fedbandit_jax.core import struct
from fedbandit_jax.interfaces import ArrivalAlgorithm, Partition, Report, Spec


@struct.sealed
@struct.pytree
class BoundUserLinUCB(ArrivalAlgorithm):
    """LinUCB for users who come again: the bound form of `LinUCB` for such an environment. Not private."""

    width: UserWidth
    regularization: struct.Number
    seats: Seats = struct.static()

    def init(self, key: Array, spec: Spec) -> UserSums:
        """Returns the state before the first round: V = lambda I and b = 0 for every user."""
        del key
        return users.nothing(self.seats.n_seats, spec.dim, self.regularization)

    @override
    def index(self, key: Array, t: Array, state: UserSums, user: Array, contexts: Array) -> Array:
        del key, t
        seat = self.seats.seat(user)
        beta = self.width(state.counts[seat].astype(jnp.float32), self.regularization, self.regularization)
        return users.index(contexts, state.inverse[seat], state.theta[seat], beta)

    @override
    def serve(self, key: Array, t: Array, state: UserSums, user: Array, x: Array, y: Array) -> tuple[UserSums, Report]:
        del key, t
        return users.learn(state, self.seats.seat(user), x, y, self.regularization), Report()

    @override
    def partition(self, state: UserSums) -> Partition:
        del state
        alone = jnp.arange(self.seats.n_users, dtype=jnp.int32)
        return Partition(alone, alone)
