"""Interfaces for returning users, one at a time."""

from __future__ import annotations

from typing import Any, Protocol

from jax import Array
from jaxtyping import Float, Int, Key

from fedbandit_jax.interfaces.algorithm import Algorithm, Report
from fedbandit_jax.interfaces.environment import Environment


class ArrivalEnvironment(Environment, Protocol):
    """An environment with one agent and returning users in clusters, one user a round.

    `observe` must return the world unchanged, because many rounds are drawn at once.
    """

    def clusters(self, world: Any) -> Int[Array, " n"]:
        """Returns the true cluster of every user, int32 in 0 ... n_clusters - 1, hidden from algorithms."""
        ...

    @property
    def n_clusters(self) -> int:
        """Returns the number of true clusters."""
        ...


class ArrivalAlgorithm(Algorithm):
    """An algorithm for returning users, one at a time, in clusters of similar users.

    Subclass it, decorate with `@fb.pytree`, define `init`, `index`, `serve` and `partition`. All rounds get the same
    key: fold t into it. On a CPU every seed runs on its own, so a `lax.cond` on data costs nothing while it is false.
    Rounds t and users are int32 scalars, users in 0 ... n - 1, and rewards y are float32 scalars.
    """

    def begin(self, key: Key[Array, ""], t: Int[Array, ""], state: Any) -> tuple[Any, Report]:
        """Returns the state before the user of round t, and the cost of reaching it."""
        return state, Report()

    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], state: Any, user: Int[Array, ""], contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        """Returns the worth of every arm to this user, from the arms' features; one of the largest is played."""
        raise NotImplementedError(f"{type(self).__name__}.index")

    def serve(
        self,
        key: Key[Array, ""],
        t: Int[Array, ""],
        state: Any,
        user: Int[Array, ""],
        x: Float[Array, " d"],
        y: Float[Array, ""],
    ) -> tuple[Any, Report]:
        """Returns the state after reward y of features x, and the cost."""
        raise NotImplementedError(f"{type(self).__name__}.serve")

    def partition(self, state: Any) -> Int[Array, " n"]:
        """Returns the cluster of every user, as found so far over all servers, by labels in 0 ... n - 1."""
        raise NotImplementedError(f"{type(self).__name__}.partition")
