"""Interfaces of multi-armed bandits with exchangeable users."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from jax import Array
from jaxtyping import Bool, Float, Int, Key

from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces.algorithm import Algorithm, Report
from fedbandit_jax.interfaces.environment import Environment


class ArmEnvironment(Environment, Protocol):
    """An environment of exchangeable users. A reward depends on the arm only, so many users are asked at once.

    If its users return, `comers(key, size)` draws the next users, (size,) int32 in 0 ... n - 1.
    """

    def means(self, world: Any) -> Float[Array, " K"]:
        """Returns the mean reward of every arm."""
        ...

    def answers(
        self, key: Key[Array, ""], world: Any, arm: Int[Array, ""], size: int
    ) -> tuple[Float[Array, " {size}//2"], Float[Array, " {size}//2"]]:
        """Draws the rewards of `size` (static, even) users who pull one arm, as two halves."""
        ...


class Pulls(NamedTuple):
    """The arms and users of a batch of a multi-armed algorithm.

    Attributes:
        active: which arms are pulled.
        users: how many users pull each of these arms.
        asked: whether rewards are collected and the batch concluded.
        row: replaces the batch's number k in `collect`, if not None.
    """

    active: Bool[Array, " K"]
    users: Int[Array, ""]
    asked: Bool[Array, ""]
    row: Int[Array, ""] | None = None


class ArmAlgorithm(Algorithm):
    """A multi-armed algorithm that pulls all active arms equally often in a batch, and learns from sums of rewards.

    Subclass it, decorate with `@fb.pytree`, define `n_batches`, `init`, `pulls`, `collect` and `conclude`. A batch that
    reaches past the horizon is cut, and nothing is learned from it.
    """

    n_batches: int = 0  # S; must suffice to reach the horizon even with a single active arm
    unit: Any = None  # `fb.privacy.Users` with one contribution to a batch; others enter sums as 0
    round_robin: bool = False  # whether arms take turns user by user, or with all their users, in a random order

    def pulls(self, state: Any, k: Int[Array, ""]) -> Pulls:
        """Returns the arms and users of batch k."""
        raise NotImplementedError(f"{type(self).__name__}.pulls")

    def collect(
        self,
        rounding: Key[Array, ""],
        own: Key[Array, ""],
        k: Int[Array, ""],
        rewards: tuple[Float[Array, " half"], Float[Array, " half"]],
        inside: tuple[Bool[Array, " half"], Bool[Array, " half"]],
    ) -> Wide:
        """Returns the sum, a 64-bit integer, of a block of N users' messages about one arm, in batch k.

        If the pulls of that batch have a `row`, it replaces k. Rewards are in two halves, and so are the flags
        `inside` of the batch's users. All algorithms of a sweep share `rounding`, so users round alike;
        `own` is for this algorithm's privacy noise.
        """
        raise NotImplementedError(f"{type(self).__name__}.collect")

    def conclude(
        self, key: Key[Array, ""], k: Int[Array, ""], state: Any, sums: Wide, entered: Int[Array, " K"] | None = None
    ) -> tuple[Any, Report]:
        """Returns the state after batch k, and its cost, from the collected sums (K,) of every arm.

        If users return and there is a `unit`, `entered` (K,) counts the rewards of every arm that enter.
        """
        raise NotImplementedError(f"{type(self).__name__}.conclude")
