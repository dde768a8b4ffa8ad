"""The mechanisms of Chowdhury & Zhou (2023) for sums of users' rewards: the grid, ring and noise for a budget.

Each of the n users of a batch contributes a reward in [0, 1] as an integer in 0..g. Replacing one user's reward moves a
sum by at most g (adjacency: replace; privacy unit: one user, who is in one sum). For every n, a mechanism chooses

* g, the steps per unit of reward, which is also the sensitivity of a sum;
* tau, the slack: the noise of a sum is larger than tau with probability at most p;
* m = n g + 2 tau + 1, the modulus of the ring of integers in which messages are added;
* the law of the noise.

`IntegerMechanism.sums` has these as tables over S batches in a `RingSum`, which draws the noise and proves from its own
numbers what the noise gives. Theorems, lemmas and appendices are those of the paper.
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
        """g for batches of n users: the steps per unit of reward, by which one user moves a sum at most."""

    @abc.abstractmethod
    def slack(self, n: int) -> int:
        """tau for n users: the noise of a sum is larger with probability at most `wrapping`."""

    @abc.abstractmethod
    def noise(self, users: Sequence[int]) -> Noise:
        """The noise of S batches, of which batch k has `users[k]` users."""

    @abc.abstractmethod
    def tail_constants(self, n: np.ndarray) -> Tail:
        """(s, h), each a number or (S,), for batches of n users (S,), as Lemma 2 needs them.

        With probability 1 - 2 p, for every p, the error of a sum of rewards by noise and rounding is at most
        s sqrt(ln(2/p)) + h ln(2/p), in units of reward. (This s is not `scale`.)
        """

    def modulus(self, n: int) -> int:
        """m = n g + 2 tau + 1, so that n rewards and noise within +-tau fit into the ring."""
        return n * self.steps(n) + 2 * self.slack(n) + 1

    def sums(self, users: Sequence[int], *, messages: bool = False) -> RingSum:
        """The protocol that runs, with tables over S batches.

        Args:
            users: S numbers n of users in each batch, or 0 for a batch in which nobody may be asked.
            messages: whether every user draws a share of the noise; if not, all noise of a sum is drawn at once.

        Raises:
            ValueError: an integer would not fit its machine word; the message says which argument must change.
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
    """Users add shares of Polya noise, which sum to discrete Laplace noise of scale g / epsilon (Theorem 1).

    Secure aggregation is trusted and the server is not. The guarantee is pure epsilon-DP of the sum modulo m.
    """

    noise_class: ClassVar[type[PolyaNoise]] = PolyaNoise

    def steps(self, n: int) -> int:
        """g = ceil(epsilon sqrt(n)), where epsilon is `noise_epsilon` (Theorem 1)."""
        return math.ceil(self.noise_epsilon * math.sqrt(n))

    def slack(self, n: int) -> int:
        """tau = ceil(g / epsilon ln(2/p)), where epsilon is `noise_epsilon` (Theorem 1)."""
        return math.ceil(self.steps(n) / self.noise_epsilon * math.log(2 / self.wrapping))

    @override
    def noise(self, users: Sequence[int]) -> Noise:
        return self.noise_class(scale=rounded_up([self.steps(n) / self.noise_epsilon for n in users]))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """The constants of Appendix C.1."""
        return math.sqrt(2) / self.noise_epsilon, 1 / self.noise_epsilon


class ServerLaplace(Polya):
    """The server, which users trust, adds discrete Laplace noise of scale g / epsilon to every sum (Theorem 5)."""

    noise_class = ServerNoise


class LocalLaplace(Polya):
    """Every user adds discrete Laplace noise of scale g / epsilon to the own message and trusts nobody (Theorem 6)."""

    noise_class = LocalNoise

    @override
    def slack(self, n: int) -> int:
        log, scale = math.log(2 / self.failure), self.steps(n) / self.epsilon
        return math.ceil(scale * (2 * math.sqrt(n * log) + log))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """Sub-gamma constants in place of those of Lemma 5, which gives no numbers.

        The sum N of n discrete Laplace variables of scale a has cumulants K(t) = -n ln(1 - r^2), r = sinh(t/2) /
        sinh(1/2a). As sinh is convex r <= a t for 0 <= t <= 1/a, so K(t) <= -n ln(1 - (a t)^2) <= (2 n a^2) t^2 /
        (2 (1 - a t)): N is sub-gamma of variance factor 2 n a^2 and scale a (Boucheron, Lugosi & Massart 2013, section
        2.4), hence |N| <= a (2 sqrt(n ln(2/p)) + ln(2/p)) with probability 1 - p. The term of
        sqrt(2) / epsilon is the paper's, for the rounding of rewards.
        """
        return (2 * np.sqrt(n) + math.sqrt(2)) / self.epsilon, 1 / self.epsilon


class ShuffledPolya(Polya):
    """Users add shares of Polya noise, and a trusted shuffler of bits replaces secure aggregation (Theorem 3).

    The noise spends half of epsilon, and the bits, which tell a little more than the sum, spend the other half.
    """

    @property
    @override
    def noise_epsilon(self) -> float:
        return self.epsilon / 2

    @property
    def wrapping(self) -> float:
        """1 / (2 T), whatever `failure` is."""
        return 1 / (2 * self.horizon)

    @property
    @override
    def aggregation(self) -> Aggregation:
        return Aggregation(epsilon=self.epsilon / 2, failure=self.wrapping)


class SkellamShares(IntegerMechanism):
    """Users add shares of Skellam noise, which sum to Skellam noise of variance g^2 / epsilon^2 (Theorem 2).

    Secure aggregation is trusted and the server is not. The guarantee is Renyi DP of the sum.
    """

    def steps(self, n: int) -> int:
        """g = ceil(s epsilon sqrt(n)), where s is `scale` (Theorem 2)."""
        return math.ceil(self.scale * self.epsilon * math.sqrt(n))

    def slack(self, n: int) -> int:
        """tau = ceil(2 g / epsilon sqrt(ln(2/p)) + sqrt(2) ln(2/p)) (Theorem 2)."""
        log = math.log(2 / self.failure)
        return math.ceil(2 * self.steps(n) / self.epsilon * math.sqrt(log) + math.sqrt(2) * log)

    def noise(self, users: Sequence[int]) -> Noise:
        """Noise of variance (g / epsilon)^2, in squared steps (Theorem 2)."""
        return SkellamNoise(variance=rounded_up([(self.steps(n) / self.epsilon) ** 2 for n in users]))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """The constants of Proposition 1, with sqrt(2) / (s epsilon) added to the first for the rounding."""
        steps = np.array([self.steps(int(size)) for size in n])
        return (2 + math.sqrt(2) / self.scale) / self.epsilon, math.sqrt(2) / steps


class GaussianShares(IntegerMechanism):
    """Users add discrete Gaussian shares of parameter g / (epsilon sqrt(n)) to their messages (Theorem 4).

    Secure aggregation is trusted and the server is not. The guarantee is zCDP of the sum, whose noise is nearly
    discrete Gaussian of parameter g / epsilon.
    """

    steps = SkellamShares.steps

    def slack(self, n: int) -> int:
        """tau = ceil(g / epsilon sqrt(2 ln(2/p))) (Theorem 4)."""
        return math.ceil(self.steps(n) / self.epsilon * math.sqrt(2 * math.log(2 / self.failure)))

    def noise(self, users: Sequence[int]) -> Noise:
        """Noise of parameter sigma = g / epsilon for the sum, in steps (Theorem 4)."""
        return GaussianNoise(sigma=rounded_up([self.steps(n) / self.epsilon for n in users]))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """The constants of Appendix E, where h = 0 because the noise is sub-Gaussian."""
        return (math.sqrt(2) + math.sqrt(2) / self.scale) / self.epsilon, 0.0


class ReleasedPolya(Polya):
    """Shares of Polya noise as in the released code, whose Gamma variables have the inverse of their scale.

    The scale should be beta / (1 - beta) with beta = e^(-epsilon / g), and is (1 - beta) / beta. These are Polya
    variables with 1 - beta in place of beta, so the noise of a sum is discrete Laplace of scale -1 / ln(1 - beta),
    which falls with n as 2 / ln n. To one of n users it gives an epsilon of about epsilon sqrt(n) ln(n) / 2.
    """

    @override
    def noise(self, users: Sequence[int]) -> Noise:
        rates = [self.noise_epsilon / self.steps(n) for n in users]
        return self.noise_class(scale=rounded_up([-1 / math.log(-math.expm1(-rate)) for rate in rates]))


class ReleasedSkellam(SkellamShares):
    """Shares of Skellam noise as in Theorem 2, with the ring and radii of the released code, a little wider."""

    def slack(self, n: int) -> int:
        """tau = ceil(2 g / epsilon ln(2/p) + sqrt(2) ln(2/p)), without the square root of Theorem 2."""
        return math.ceil((2 * self.steps(n) / self.epsilon + math.sqrt(2)) * math.log(2 / self.failure))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """The constants of Theorem 2, with h = 1 / (s epsilon) in place of sqrt(2) / g."""
        return super().tail_constants(n)[0], 1 / (self.scale * self.epsilon)


# (law of the noise, trust model) -> mechanism; the names are those of the parameters of `SuccessiveElimination`
MECHANISMS: dict[tuple[str, str], type[IntegerMechanism]] = {
    ("discrete_laplace", "central"): ServerLaplace,
    ("discrete_laplace", "local"): LocalLaplace,
    ("discrete_laplace", "secagg"): Polya,
    ("discrete_laplace", "shuffle"): ShuffledPolya,
    ("skellam", "secagg"): SkellamShares,
    ("discrete_gaussian", "secagg"): GaussianShares,
}

# (law of the noise, trust model) -> mechanism of the released code, with batches of 4^b users and a ring that a sum may
# leave with probability p, whatever the number of sums; certificates say what its noise is worth
AUTHORS: dict[tuple[str, str], type[IntegerMechanism]] = {
    ("discrete_laplace", "secagg"): ReleasedPolya,
    ("skellam", "secagg"): ReleasedSkellam,
}
