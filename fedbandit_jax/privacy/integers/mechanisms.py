"""The mechanisms of Chowdhury & Zhou (2023) for sums of users' rewards: which grid, ring and noise a budget needs.

Every user of a batch of n contributes a reward in [0, 1] as an integer 0..g, so that g is how far one user moves a sum.
What a mechanism makes is a `RingSum`, which draws the noise, and proves from its own numbers what that gives.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedbandit_jax.core import wide
from fedbandit_jax.privacy.integers import ring
from fedbandit_jax.privacy.integers.noise import (
    GaussianNoise,
    LocalNoise,
    Noise,
    PolyaNoise,
    ServerNoise,
    SkellamNoise,
    rounded_up,
)

Tail = tuple[np.ndarray | float, np.ndarray | float]


@dataclasses.dataclass(frozen=True)
class IntegerMechanism(abc.ABC):
    """Integer noise for sums of n users, for every n.

    Args:
        epsilon: its meaning depends on the mechanism, see `Noise.notion`.
        scale: s, finer steps for larger s.
        failure: p, how likely a sum may leave the ring.
        horizon: T.
    """

    epsilon: float
    scale: float
    failure: float
    horizon: int

    @property
    def noise_epsilon(self) -> float:
        """The part of epsilon that the noise spends."""
        return self.epsilon

    @property
    def wrapping(self) -> float:
        """p of tau."""
        return self.failure

    @property
    def aggregation(self) -> ring.Aggregation:
        """How messages become their sum."""
        return ring.Aggregation()

    @abc.abstractmethod
    def steps(self, n: int) -> int:
        """g, steps per unit: how far one user moves a sum."""

    @abc.abstractmethod
    def slack(self, n: int) -> int:
        """tau: the noise of a sum is larger with probability at most p."""

    @abc.abstractmethod
    def noise(self, users: Sequence[int]) -> Noise:
        """For batches of so many users."""

    @abc.abstractmethod
    def tail_constants(self, n: np.ndarray) -> Tail:
        """(s, h): noise and rounding of a sum are at most s sqrt(ln 2/p) + h ln 2/p, in units of a reward."""

    def modulus(self, n: int) -> int:
        """m, so that n rewards and noise within +-tau fit."""
        return n * self.steps(n) + 2 * self.slack(n) + 1

    def sums(self, users: Sequence[int], *, messages: bool = False) -> ring.RingSum:
        """The protocol that runs: tables by batch, for n users in each, or 0 where nobody may be asked.

        Raises:
            ValueError: an integer would not fit its machine word.
        """
        longest = max(*users, 2)
        sizes = [n or longest for n in users]
        noise = self.noise(sizes)
        for n, k in sorted(((n, k) for k, n in enumerate(sizes)), reverse=True):
            if wrong := ring.misfit(noise, k, n, self.steps(n), self.modulus(n), messages=messages):
                got = f"got epsilon = {self.epsilon:g}, scale = {self.scale:g} and batches of up to {longest:,} users"
                raise ValueError(f"{': '.join(wrong)}; {got}")
        return ring.RingSum(
            noise=noise,
            users=np.array(users, np.int32),
            steps=np.array([self.steps(n) for n in sizes], np.float32),
            modulus=wide.of([self.modulus(n) for n in sizes]),
            largest=wide.of([n * self.steps(n) + self.slack(n) for n in sizes]),
            bits=np.array([self.aggregation.bits(n, self.modulus(n)) for n in sizes], np.float32),
            aggregation=self.aggregation,
            messages=messages,
        )


class Polya(IntegerMechanism):
    """Shares of Polya noise add up to discrete Laplace of scale g / epsilon (Theorem 1)."""

    noise_class: ClassVar[type[PolyaNoise]] = PolyaNoise

    def steps(self, n: int) -> int:
        """Theorem 1."""
        return math.ceil(self.noise_epsilon * math.sqrt(n))

    def slack(self, n: int) -> int:
        """Theorem 1."""
        return math.ceil(self.steps(n) / self.noise_epsilon * math.log(2 / self.wrapping))

    def noise(self, users: Sequence[int]) -> Noise:
        """Of scale g / epsilon."""
        return self.noise_class(scale=rounded_up([self.steps(n) / self.noise_epsilon for n in users]))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """Appendix C.1."""
        del n
        return math.sqrt(2) / self.noise_epsilon, 1 / self.noise_epsilon


class ServerLaplace(Polya):
    """The server adds discrete Laplace noise (Theorem 5)."""

    noise_class = ServerNoise


class LocalLaplace(Polya):
    """Every user adds discrete Laplace noise of scale g / epsilon; nobody is trusted (Theorem 6)."""

    noise_class = LocalNoise

    def slack(self, n: int) -> int:
        """From `tail_constants` without the rounding, whose sum is bounded by n g."""
        log, scale = math.log(2 / self.failure), self.steps(n) / self.epsilon
        return math.ceil(scale * (2 * math.sqrt(n * log) + log))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """Sub-gamma constants in place of the unnamed ones of Lemma 5.

        The sum N of n discrete Laplace variables of scale a has cumulants K(t) = -n ln(1 - r^2), r = sinh(t/2) /
        sinh(1/2a). As sinh is convex r <= a t for 0 <= t <= 1/a, so K(t) <= -n ln(1 - (a t)^2) <= (2 n a^2) t^2 /
        (2 (1 - a t)): N is sub-gamma of variance factor 2 n a^2 and scale a (Boucheron, Lugosi & Massart 2013, section
        2.4), hence |N| <= a (2 sqrt(n ln(2/p)) + ln(2/p)) with probability 1 - p. The paper allows sqrt(2 ln(2/p)) /
        epsilon for encoding.
        """
        return (2 * np.sqrt(n) + math.sqrt(2)) / self.epsilon, 1 / self.epsilon


class ShuffledPolya(Polya):
    """A shuffler of bits takes the place of secure aggregation (Theorem 3): epsilon is half noise's, half bits'."""

    @property
    def noise_epsilon(self) -> float:
        """Theorem 3."""
        return self.epsilon / 2

    @property
    def wrapping(self) -> float:
        """Theorem 3."""
        return 1 / (2 * self.horizon)

    @property
    def aggregation(self) -> ring.Aggregation:
        """Bits lose a sum as often as its noise wraps."""
        return ring.Aggregation(epsilon=self.epsilon / 2, failure=self.wrapping)


class SkellamShares(IntegerMechanism):
    """Skellam shares add up to Skellam noise of variance g^2 / epsilon^2 (Theorem 2)."""

    def steps(self, n: int) -> int:
        """Theorem 2."""
        return math.ceil(self.scale * self.epsilon * math.sqrt(n))

    def slack(self, n: int) -> int:
        """Theorem 2."""
        log = math.log(2 / self.failure)
        return math.ceil(2 * self.steps(n) / self.epsilon * math.sqrt(log) + math.sqrt(2) * log)

    def noise(self, users: Sequence[int]) -> Noise:
        """Theorem 2."""
        return SkellamNoise(variance=rounded_up([(self.steps(n) / self.epsilon) ** 2 for n in users]))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """Proposition 1, and the rounding."""
        steps = np.array([self.steps(int(size)) for size in n])
        return (2 + math.sqrt(2) / self.scale) / self.epsilon, math.sqrt(2) / steps


class GaussianShares(IntegerMechanism):
    """Discrete Gaussian shares of parameter g / (epsilon sqrt n) (Theorem 4)."""

    steps = SkellamShares.steps

    def slack(self, n: int) -> int:
        """Theorem 4."""
        return math.ceil(self.steps(n) / self.epsilon * math.sqrt(2 * math.log(2 / self.failure)))

    def noise(self, users: Sequence[int]) -> Noise:
        """Theorem 4."""
        return GaussianNoise(sigma=rounded_up([self.steps(n) / self.epsilon for n in users]))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """Appendix E."""
        del n
        return (math.sqrt(2) + math.sqrt(2) / self.scale) / self.epsilon, 0.0


MECHANISMS: dict[tuple[str, str], type[IntegerMechanism]] = {
    ("discrete_laplace", "central"): ServerLaplace,
    ("discrete_laplace", "local"): LocalLaplace,
    ("discrete_laplace", "secagg"): Polya,
    ("discrete_laplace", "shuffle"): ShuffledPolya,
    ("skellam", "secagg"): SkellamShares,
    ("discrete_gaussian", "secagg"): GaussianShares,
}
