"""Algorithms for users who are not federated agents: multi-armed ones, and users who return and may be alike."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array
from jaxtyping import Bool, Float, Int, Key

from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces.algorithm import Algorithm, Report


class Plan(NamedTuple):
    """Whom a multi-armed algorithm asks in a batch."""

    active: Bool[Array, " K"]  # which arms are pulled
    users: Int[Array, ""]  # how many users pull each of these arms
    asked: Bool[Array, ""]  # whether rewards are collected and the batch concluded; if not, users are only served
    row: Int[Array, ""] | None = None  # what `collect` is told in place of the batch's number k, if not None


class ArmAlgorithm(Algorithm):
    """A multi-armed algorithm that pulls all active arms equally often in a batch, and learns from sums of rewards.

    Subclass it, decorate with `@fb.pytree`, define `n_batches`, `init`, `plan`, `collect` and `conclude`. A batch that
    would reach past the horizon is played as far as it goes, and nothing is learned from it.
    """

    n_batches: int = 0  # S; must suffice to reach the horizon even with a single active arm
    round_robin: bool = False  # whether arms get one user each in turn, or all their users one arm after another

    def plan(self, state: Any, k: Int[Array, ""]) -> Plan:
        """Returns whom to ask in batch k."""
        raise NotImplementedError(f"{type(self).__name__}.plan")

    def collect(
        self,
        rounding: Key[Array, ""],
        own: Key[Array, ""],
        k: Int[Array, ""],
        rewards: tuple[Float[Array, " half"], Float[Array, " half"]],
        inside: tuple[Bool[Array, " half"], Bool[Array, " half"]],
    ) -> Wide:
        """Returns the sum, a 64-bit integer, of a block of N users' messages about one arm, in batch k.

        If the plan of that batch has a `row`, k is that row, which says what kind of batch it is. Rewards come in two
        halves, and so do the flags `inside`, which say who belongs to the batch. `rounding` is the same for all
        algorithms of a sweep, so that users round alike; `own` is this one's alone, for privacy noise.
        """
        raise NotImplementedError(f"{type(self).__name__}.collect")

    def conclude(self, key: Key[Array, ""], k: Int[Array, ""], state: Any, sums: Wide) -> tuple[Any, Report]:
        """Ends batch k with the sums (K,) of what was collected from every arm; returns the new state and the cost."""
        raise NotImplementedError(f"{type(self).__name__}.conclude")


class Partition(NamedTuple):
    """Which users an algorithm takes to be alike: those with equal labels in 0 ... n - 1."""

    local: Int[Array, " n"]  # labels found at each server, which are not compared between servers
    shared: Int[Array, " n"]  # labels found over all servers


class ClusteringAlgorithm(Algorithm):
    """An algorithm for users who come one at a time, return, and may be alike.

    Subclass it, decorate with `@fb.pytree`, define `init`, `index`, `serve` and `partition`. All rounds are given the
    same key: fold t into it. On a CPU every seed runs on its own, so a `lax.cond` on data costs nothing while it is
    false. Rounds t and users are int32 scalars, users in 0 ... n - 1, and rewards y are float32 scalars.
    """

    def begin(self, key: Key[Array, ""], t: Int[Array, ""], state: Any) -> tuple[Any, Report]:
        """Returns the state before anybody comes in round t, and what reaching it cost."""
        del key, t
        return state, Report()

    def index(
        self,
        key: Key[Array, ""],
        t: Int[Array, ""],
        state: Any,
        user: Int[Array, ""],
        contexts: Float[Array, "K d"],
    ) -> Float[Array, " K"]:
        """Returns the worth of every arm to this user, from the arms' features; the first largest is played."""
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
        """Learns from the reward y of the features x; returns the new state and the cost."""
        raise NotImplementedError(f"{type(self).__name__}.serve")

    def partition(self, state: Any) -> Partition:
        """Returns the clusters found so far."""
        raise NotImplementedError(f"{type(self).__name__}.partition")
