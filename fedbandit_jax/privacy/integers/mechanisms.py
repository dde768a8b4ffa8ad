"""The mechanisms of Chowdhury & Zhou (2023) for sums of users' rewards: parameters, noise, and what they prove.

Every user of a batch of n contributes a reward in [0, 1] as an integer 0..g, so that g is how far one user moves a sum.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedbandit_jax.core import wide
from fedbandit_jax.privacy.accounting import lattice
from fedbandit_jax.privacy.accounting.conversions import Curve, zcdp_epsilon
from fedbandit_jax.privacy.accounting.discrete import (
    SumPrivacy,
    discrete_gaussian_sum_zcdp,
    discrete_laplace_rdp,
    skellam_rdp,
    wrapped_discrete_laplace_epsilon,
)
from fedbandit_jax.privacy.accounting.events import PureDP
from fedbandit_jax.privacy.accounting.relaxed import RelaxedSecAgg, relaxed_secagg
from fedbandit_jax.privacy.integers import ring

MAX_SCALE = 2.0**25  # of integer noise, so that it fits in 32 bits
SECAGG = "secure aggregation: each user adds a share of the noise, the server sees sums only and is not trusted"
SECAGG_ASSUMES = "users who drop out, collude with the server, or subtract their own share of the noise from the sum"


@dataclasses.dataclass(frozen=True)
class Mechanism(abc.ABC):
    """Integer noise for sums of n users, for every n.

    Args:
        epsilon: its meaning depends on the mechanism, see `notion`.
        scale: s, finer steps for larger s.
        failure: p, how likely a sum may leave the ring.
        horizon: T.
    """

    epsilon: float
    scale: float
    failure: float
    horizon: int

    notion: ClassVar[str] = "pure DP"
    trust: ClassVar[str] = SECAGG
    per_user: ClassVar[bool] = False  # is every user's message private on its own?
    max_shares: ClassVar[float] = math.inf  # users whose shares of the noise can be drawn
    assumes: ClassVar[tuple[str, ...]] = (SECAGG_ASSUMES,)

    @property
    def noise_epsilon(self) -> float:
        """The part of epsilon that the noise spends."""
        return self.epsilon

    @property
    def wrapping(self) -> float:
        """p of tau."""
        return self.failure

    @abc.abstractmethod
    def steps(self, n: int) -> int:
        """g, steps per unit: how far one user moves a sum."""

    @abc.abstractmethod
    def slack(self, n: int) -> int:
        """tau: the noise of a sum is larger with probability at most p."""

    @abc.abstractmethod
    def law(self, n: int) -> lattice.LatticeLaw:
        """Of the noise of a sum, in steps."""

    @abc.abstractmethod
    def noise(self, users: Sequence[int]) -> ring.Noise:
        """Its sampler, for batches of `users`."""

    @abc.abstractmethod
    def tail_constants(self, n: np.ndarray) -> tuple[np.ndarray | float, np.ndarray | float]:
        """(s, h): noise and rounding of a sum are at most s sqrt(ln 2/p) + h ln 2/p, in units of a reward."""

    @abc.abstractmethod
    def renyi(self, n: int) -> Curve:
        """Bound on the Renyi divergence that one user's reward makes in the sum of a batch."""

    def pure_epsilon(self, n: int) -> float:
        """Largest log ratio; infinite if there is none."""
        del n
        return math.inf

    def epsilon_at(self, n: int, delta: float) -> float:
        """Smallest epsilon at delta."""
        return min(lattice.shift_epsilon(self.law(n), self.steps(n), delta), self.pure_epsilon(n))

    def modulus(self, n: int) -> int:
        """m, so that n rewards and noise within +-tau fit."""
        return n * self.steps(n) + 2 * self.slack(n) + 1

    def bits(self, n: int) -> int:
        """That a user sends."""
        return (self.modulus(n) - 1).bit_length()

    def lost(self, n: int) -> float:
        """Probability that aggregation loses a sum."""
        del n
        return 0.0

    def distortion(self, n: int) -> float:
        """xi: the noise of n users has `law` up to factors e^(+-xi)."""
        del n
        return 0.0

    def sums(self, users: Sequence[int], *, messages: bool) -> ring.RingSum:
        """The protocol that runs: tables by batch."""
        steps, slack = [self.steps(n) for n in users], [self.slack(n) for n in users]
        return ring.RingSum(
            noise=self.noise(users),
            steps=np.array(steps, np.float32),
            modulus=wide.of([self.modulus(n) for n in users]),
            largest=wide.of([n * g + tau for n, g, tau in zip(users, steps, slack)]),
            lost=np.array([self.lost(n) for n in users], np.float32),
            bits=np.array([self.bits(n) for n in users], np.float32),
            messages=messages,
        )


class Polya(Mechanism):
    """Shares of Polya noise add up to discrete Laplace of scale g / epsilon (Theorem 1)."""

    max_shares = 4096  # float32 gamma variables of smaller shape than 1 / 4096 are biased

    def steps(self, n: int) -> int:
        """Theorem 1."""
        return math.ceil(self.noise_epsilon * math.sqrt(n))

    def slack(self, n: int) -> int:
        """Theorem 1."""
        return math.ceil(self.steps(n) / self.noise_epsilon * math.log(2 / self.wrapping))

    def law(self, n: int) -> lattice.LatticeLaw:
        """Discrete Laplace."""
        return lattice.DiscreteLaplace(self.steps(n) / self.noise_epsilon)

    def noise(self, users: Sequence[int]) -> ring.Noise:
        """Polya shares."""
        return ring.PolyaNoise(scale=self._scales(users), users=np.array(users, np.float32))

    def tail_constants(self, n: np.ndarray) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Appendix C.1."""
        del n
        return math.sqrt(2) / self.noise_epsilon, 1 / self.noise_epsilon

    def renyi(self, n: int) -> Curve:
        """Exact for the sum before it wraps."""
        return discrete_laplace_rdp(self.steps(n), self.steps(n) / self.noise_epsilon)

    def pure_epsilon(self, n: int) -> float:
        """Exact, modulo m, over all shifts up to g."""
        g, m = self.steps(n), self.modulus(n)
        return wrapped_discrete_laplace_epsilon(min(g, m // 2), g / self.noise_epsilon, m)

    def _scales(self, users: Sequence[int]) -> np.ndarray:
        return _rounded_up([self.steps(n) / self.noise_epsilon for n in users])


class ServerLaplace(Polya):
    """The server adds discrete Laplace noise (Theorem 5)."""

    trust = "central: users and the server are trusted, and the server adds the noise to every sum"
    max_shares = math.inf
    assumes = ()

    def noise(self, users: Sequence[int]) -> ring.Noise:
        """The server's."""
        return ring.ServerNoise(scale=self._scales(users), users=np.array(users, np.float32))


class LocalLaplace(Polya):
    """Every user adds discrete Laplace noise of scale g / epsilon; nobody is trusted (Theorem 6)."""

    trust = "local: every user adds the noise to her own reward, nobody else is trusted"
    per_user = True
    max_shares = math.inf
    assumes = ()

    def slack(self, n: int) -> int:
        """From `local_constants` without the rounding, whose sum is bounded by n g."""
        log, scale = math.log(2 / self.failure), self.steps(n) / self.epsilon
        return math.ceil(scale * (2 * math.sqrt(n * log) + log))

    def law(self, n: int) -> lattice.LatticeLaw:
        """The sum of n."""
        return lattice.DiscreteLaplace(self.steps(n) / self.epsilon, n)

    def noise(self, users: Sequence[int]) -> ring.Noise:
        """Every user's."""
        return ring.LocalNoise(scale=self._scales(users), users=np.array(users, np.float32))

    def tail_constants(self, n: np.ndarray) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Sub-gamma constants in place of the unnamed ones of Lemma 5."""
        return (2 * np.sqrt(n) + math.sqrt(2)) / self.epsilon, 1 / self.epsilon

    def epsilon_at(self, n: int, delta: float) -> float:
        """Of one user's message."""
        one = lattice.DiscreteLaplace(self.steps(n) / self.epsilon)
        return min(lattice.shift_epsilon(one, self.steps(n), delta), self.pure_epsilon(n))


class ShuffledPolya(Polya):
    """A shuffler of bits takes the place of secure aggregation (Theorem 3): epsilon is half noise's, half bits'."""

    trust = "shuffle: each user adds a share of the noise and sends bits that a trusted shuffler mixes with all others'"
    assumes = (SECAGG_ASSUMES, "bits that bypass the shuffler")

    @property
    def noise_epsilon(self) -> float:
        """Theorem 3."""
        return self.epsilon / 2

    @property
    def wrapping(self) -> float:
        """Theorem 3."""
        return 1 / (2 * self.horizon)

    def relaxed(self, n: int) -> RelaxedSecAgg:
        """How users turn residues modulo m into bits."""
        return relaxed_secagg(self.epsilon / 2, self.wrapping, n, self.modulus(n))

    def renyi(self, n: int) -> Curve:
        """Given the sum, the bits change any density by a factor e^bits at most, which is raised to alpha."""
        noise, bits, pure = super().renyi(n), self.epsilon / 2, PureDP(self.pure_epsilon(n))
        return lambda alpha: min(noise(alpha) + alpha / (alpha - 1) * bits, pure.rdp(alpha))

    def pure_epsilon(self, n: int) -> float:
        """Of noise and bits."""
        return super().pure_epsilon(n) + self.epsilon / 2

    def epsilon_at(self, n: int, delta: float) -> float:
        """The same factor multiplies the noise's delta."""
        bits = self.epsilon / 2
        noise = lattice.shift_epsilon(self.law(n), self.steps(n), delta * math.exp(-bits))
        return min(noise + bits, self.pure_epsilon(n))

    def bits(self, n: int) -> int:
        """Many more than log m."""
        return self.relaxed(n).bits

    def lost(self, n: int) -> float:
        """Somebody sent random bits."""
        return -math.expm1(n * math.log1p(-self.relaxed(n).omega))


class Skellam(Mechanism):
    """Skellam shares add up to Skellam noise of variance g^2 / epsilon^2 (Theorem 2)."""

    notion = "Renyi DP"

    def steps(self, n: int) -> int:
        """Theorem 2."""
        return math.ceil(self.scale * self.epsilon * math.sqrt(n))

    def slack(self, n: int) -> int:
        """Theorem 2."""
        log = math.log(2 / self.failure)
        return math.ceil(2 * self.steps(n) / self.epsilon * math.sqrt(log) + math.sqrt(2) * log)

    def law(self, n: int) -> lattice.LatticeLaw:
        """Skellam."""
        return lattice.Skellam(self._variance(n))

    def noise(self, users: Sequence[int]) -> ring.Noise:
        """Skellam shares."""
        variance = _rounded_up([self._variance(n) for n in users])
        return ring.SkellamNoise(variance=variance, users=np.array(users, np.float32))

    def tail_constants(self, n: np.ndarray) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Proposition 1, and the rounding."""
        steps = np.array([self.steps(int(size)) for size in n])
        return (2 + math.sqrt(2) / self.scale) / self.epsilon, math.sqrt(2) / steps

    def renyi(self, n: int) -> Curve:
        """Lemma 3."""
        return skellam_rdp(self.steps(n), self._variance(n))

    def _variance(self, n: int) -> float:
        return (self.steps(n) / self.epsilon) ** 2


class DiscreteGaussian(Mechanism):
    """Discrete Gaussian shares of parameter g / (epsilon sqrt n) (Theorem 4)."""

    notion = "zCDP"
    steps = Skellam.steps

    def slack(self, n: int) -> int:
        """Theorem 4."""
        return math.ceil(self.steps(n) / self.epsilon * math.sqrt(2 * math.log(2 / self.failure)))

    def law(self, n: int) -> lattice.LatticeLaw:
        """One discrete Gaussian, which the sum of shares nearly is."""
        return lattice.DiscreteGaussian(self.steps(n) / self.epsilon)

    def noise(self, users: Sequence[int]) -> ring.Noise:
        """Discrete Gaussian shares."""
        sigma = _rounded_up([self.steps(n) / self.epsilon for n in users])
        return ring.GaussianNoise(sigma=sigma, users=np.array(users, np.float32))

    def tail_constants(self, n: np.ndarray) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Appendix E."""
        del n
        return (math.sqrt(2) + math.sqrt(2) / self.scale) / self.epsilon, 0.0

    def zcdp(self, n: int) -> SumPrivacy:
        """Lemma 4."""
        return discrete_gaussian_sum_zcdp(self.steps(n), self.steps(n) / (self.epsilon * math.sqrt(n)), n)

    def distortion(self, n: int) -> float:
        """Lemma 4."""
        return self.zcdp(n).xi

    def renyi(self, n: int) -> Curve:
        """rho alpha."""
        rho = self.zcdp(n).rho
        return lambda alpha: rho * alpha

    def epsilon_at(self, n: int, delta: float) -> float:
        """Of the sum of shares: factors e^(+-xi) on both sides cost 2 xi in epsilon and e^xi in delta."""
        xi, rho = self.zcdp(n).xi, self.zcdp(n).rho
        near = 2 * xi + lattice.shift_epsilon(self.law(n), self.steps(n), delta * math.exp(-xi))
        return min(near, zcdp_epsilon(rho, delta))


def _rounded_up(values: Sequence[float]) -> np.ndarray:
    """float32, none smaller: noise may be more than certified, never less."""
    nearest = np.array(values, np.float32)
    return np.where(nearest < values, np.nextafter(nearest, np.float32(np.inf)), nearest)


MECHANISMS: dict[tuple[str, str], type[Mechanism]] = {
    ("discrete_laplace", "central"): ServerLaplace,
    ("discrete_laplace", "local"): LocalLaplace,
    ("discrete_laplace", "secagg"): Polya,
    ("discrete_laplace", "shuffle"): ShuffledPolya,
    ("skellam", "secagg"): Skellam,
    ("discrete_gaussian", "secagg"): DiscreteGaussian,
}
