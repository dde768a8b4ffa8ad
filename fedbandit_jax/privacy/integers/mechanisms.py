"""The mechanisms of Chowdhury & Zhou (2023) for sums of users' rewards: the grid, ring and noise for a budget.

Each of the n users of a batch contributes a reward in [0, 1] as an integer in 0..g. Replacing one user's reward moves a
sum by at most g (adjacency: replace; privacy unit: one user, in one sum). For every n, a mechanism chooses

* g, the steps per unit of reward, which is also the sensitivity of a sum;
* tau, the slack: the noise of a sum is larger than tau with probability at most p;
* m = n g + 2 tau + 1, the modulus of the ring of messages;
* the law of the noise.

`IntegerMechanism.sums` tabulates these over S batches in a `RingSum`, which draws the noise and proves its privacy.
Theorems, lemmas and appendices are the paper's.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from typing_extensions import override

from fedbandit_jax.core import wide
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.integers.ring import Aggregation, RingSum, misfit
from fedbandit_jax.privacy.integers.shares import (
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
    """Integer noise for the sum of n users' rewards, for every n."""

    epsilon: float  # the privacy asked for, in the notion of `Noise.notion`
    scale: float  # s >= 1 of Skellam and discrete Gaussian noise, which have about s epsilon sqrt(n) steps per unit
    failure: float  # p, the largest probability that the noise of one sum wraps around the ring
    horizon: int  # T rounds, on which only `ShuffledPolya` depends

    @property
    def noise_epsilon(self) -> float:
        """The part of epsilon that the noise spends; the aggregation spends the rest."""
        return self.epsilon

    @property
    def wrapping(self) -> float:
        """p, the probability of wrapping around the ring that the slack tau is chosen for."""
        return self.failure

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation of messages to their sum."""
        return Aggregation()

    @abc.abstractmethod
    def steps(self, n: int) -> int:
        """Returns g for batches of n users: the steps per unit of reward, and the largest move of a sum by one user."""

    @abc.abstractmethod
    def slack(self, n: int) -> int:
        """Returns tau for n users: the noise of a sum is larger with probability at most `wrapping`."""

    @abc.abstractmethod
    def noise(self, users: Sequence[int]) -> Noise:
        """Returns the noise of S batches; batch k has `users[k]` users."""

    @abc.abstractmethod
    def tail_constants(self, n: np.ndarray) -> Tail:
        """Returns (s, h), each a number or (S,), for batches of n users (S,), as Lemma 2 needs them.

        With probability 1 - 2 p, for every p, the error of a sum of rewards by noise and rounding is at most s
        sqrt(ln(2/p)) + h ln(2/p), in units of reward. (This s is not `scale`.)
        """

    def modulus(self, n: int) -> int:
        """Returns m = n g + 2 tau + 1; n rewards and noise within +-tau fit into the ring."""
        return n * self.steps(n) + 2 * self.slack(n) + 1

    def sums(self, users: Sequence[int], *, messages: bool = False) -> RingSum:
        """Returns the protocol that runs, with tables over S batches.

        Args:
            users: S numbers n of users in each batch, or 0 for a batch that asks nobody.
            messages: whether every user draws a share of the noise; if not, all noise of a sum is drawn at once.

        Raises:
            ValueError: if an integer would not fit its machine word; the message says which argument must change.
        """
        longest = max(*users, 2)
        sizes = [n or longest for n in users]
        noise = self.noise(sizes)
        for n, k in sorted(((n, k) for k, n in enumerate(sizes)), reverse=True):
            if wrong := misfit(noise, k, self.steps(n), self.modulus(n), messages=messages):
                names, condition, why = wrong
                got = f"epsilon = {self.epsilon:g}, scale = {self.scale:g} and batches of up to {longest:,} users"
                raise BadValue(names, f"{condition}: {why}", (self.epsilon, self.scale, longest), got=got)
        return RingSum(
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
    """Shares of Polya noise, which sum to discrete Laplace noise of scale g / epsilon (Theorem 1).

    Users add the shares. Secure aggregation is trusted and the server is not. The guarantee is pure epsilon-DP of the
    sum modulo m. g = ceil(epsilon sqrt(n)) and tau = ceil(g / epsilon ln(2/p)), with `noise_epsilon` as epsilon. Tails:
    Appendix C.1.
    """

    noise_class: ClassVar[type[PolyaNoise]] = PolyaNoise

    @override
    def steps(self, n: int) -> int:
        return math.ceil(self.noise_epsilon * math.sqrt(n))

    @override
    def slack(self, n: int) -> int:
        return math.ceil(self.steps(n) / self.noise_epsilon * math.log(2 / self.wrapping))

    @override
    def noise(self, users: Sequence[int]) -> Noise:
        return self.noise_class(scale=rounded_up([self.steps(n) / self.noise_epsilon for n in users]))

    @override
    def tail_constants(self, n: np.ndarray) -> Tail:
        return math.sqrt(2) / self.noise_epsilon, 1 / self.noise_epsilon


class ServerLaplace(Polya):
    """The trusted server adds discrete Laplace noise of scale g / epsilon to every sum (Theorem 5)."""

    noise_class = ServerNoise


class LocalLaplace(Polya):
    """Every user adds discrete Laplace noise of scale g / epsilon to their message and trusts nobody (Theorem 6)."""

    noise_class = LocalNoise

    @override
    def slack(self, n: int) -> int:
        log, scale = math.log(2 / self.failure), self.steps(n) / self.epsilon
        return math.ceil(scale * (2 * math.sqrt(n * log) + log))

    @override
    def tail_constants(self, n: np.ndarray) -> Tail:
        """Returns sub-gamma constants in place of Lemma 5, which gives no numbers.

        The sum N of n discrete Laplace variables of scale a has cumulants K(t) = -n ln(1 - r^2), r = sinh(t/2) /
        sinh(1/2a). As sinh is convex, r <= a t for 0 <= t <= 1/a, and K(t) <= -n ln(1 - (a t)^2) <= (2 n a^2) t^2 / (2
        (1 - a t)). So N is sub-gamma of variance factor 2 n a^2 and scale a (Boucheron, Lugosi & Massart 2013, section
        2.4). Hence |N| <= a (2 sqrt(n ln(2/p)) + ln(2/p)) with probability 1 - p. The term sqrt(2) / epsilon is the
        paper's, for the rounding of rewards.
        """
        return (2 * np.sqrt(n) + math.sqrt(2)) / self.epsilon, 1 / self.epsilon


class ShuffledPolya(Polya):
    """Users add shares of Polya noise, and a trusted shuffler of bits replaces secure aggregation (Theorem 3).

    The noise spends half of epsilon. The bits, which reveal a little more than the sum, spend the other half. The ring
    wraps with probability 1 / (2 T), for any `failure`.
    """

    @property
    @override
    def noise_epsilon(self) -> float:
        return self.epsilon / 2

    @property
    @override
    def wrapping(self) -> float:
        return 1 / (2 * self.horizon)

    @property
    @override
    def aggregation(self) -> Aggregation:
        return Aggregation(epsilon=self.epsilon / 2, failure=self.wrapping)


class SkellamShares(IntegerMechanism):
    """Shares of Skellam noise, which sum to Skellam noise of variance g^2 / epsilon^2 in squared steps (Theorem 2).

    Users add the shares. Secure aggregation is trusted and the server is not. The guarantee is Renyi DP of the sum.
    With s = `scale`, g = ceil(s epsilon sqrt(n)) and tau = ceil(2 g / epsilon sqrt(ln(2/p)) + sqrt(2) ln(2/p)). Tails:
    Proposition 1, with sqrt(2) / (s epsilon) added to the first for the rounding.
    """

    @override
    def steps(self, n: int) -> int:
        return math.ceil(self.scale * self.epsilon * math.sqrt(n))

    @override
    def slack(self, n: int) -> int:
        log = math.log(2 / self.failure)
        return math.ceil(2 * self.steps(n) / self.epsilon * math.sqrt(log) + math.sqrt(2) * log)

    @override
    def noise(self, users: Sequence[int]) -> Noise:
        return SkellamNoise(variance=rounded_up([(self.steps(n) / self.epsilon) ** 2 for n in users]))

    @override
    def tail_constants(self, n: np.ndarray) -> Tail:
        steps = np.array([self.steps(int(size)) for size in n])
        return (2 + math.sqrt(2) / self.scale) / self.epsilon, math.sqrt(2) / steps


class GaussianShares(IntegerMechanism):
    """Discrete Gaussian shares of parameter g / (epsilon sqrt(n)), added by users (Theorem 4).

    Secure aggregation is trusted and the server is not. The guarantee is zCDP of the sum, with nearly discrete Gaussian
    noise of parameter g / epsilon. tau = ceil(g / epsilon sqrt(2 ln(2/p))). Tails: Appendix E, with h = 0 because the
    noise is sub-Gaussian.
    """

    steps = SkellamShares.steps

    @override
    def slack(self, n: int) -> int:
        return math.ceil(self.steps(n) / self.epsilon * math.sqrt(2 * math.log(2 / self.failure)))

    @override
    def noise(self, users: Sequence[int]) -> Noise:
        return GaussianNoise(sigma=rounded_up([self.steps(n) / self.epsilon for n in users]))

    @override
    def tail_constants(self, n: np.ndarray) -> Tail:
        return (math.sqrt(2) + math.sqrt(2) / self.scale) / self.epsilon, 0.0
