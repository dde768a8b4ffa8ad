"""Integer noise on sums of users' rewards: its parameters for a budget, its draws, and its proofs.

Each of the n users of a batch contributes a reward in [0, 1] as an integer in 0..g. Replacing one user's reward moves a
sum by at most g. (Adjacency: replace. Privacy unit: one user, in one sum.) For every n, a class chooses

* g, the steps per unit of reward, which is also the sensitivity of a sum;
* tau, the slack: the noise of a sum is larger than tau with probability at most p;
* the size of the noise, in steps.

Tables (S,) have one entry for each batch k = 0, 1, ..., S - 1. Proofs are computed on the host in float64, from the
float32 numbers that the noise is drawn with. Theorems, lemmas and appendices: Chowdhury & Zhou (2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct, wide
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy import samplers
from fedbandit_jax.privacy.accounting import lattice
from fedbandit_jax.privacy.accounting.conversions import Curve, zcdp_epsilon
from fedbandit_jax.privacy.accounting.discrete import (
    SumPrivacy,
    discrete_gaussian_sum_zcdp,
    discrete_laplace_rdp,
    skellam_rdp,
    wrapped_discrete_laplace_epsilon,
)
from fedbandit_jax.privacy.accounting.shuffling import RelaxedSecAgg, relaxed_secagg
from fedbandit_jax.privacy.accounting.visits import PureDP

ROOT = math.sqrt(2)
SHARES = "users who drop out, collude with the server, or subtract their own share of the noise from the sum"


class Asked(NamedTuple):
    """What integer noise is made for."""

    epsilon: float  # in the notion of `Noise.notion`
    scale: float  # s >= 1 of Skellam and discrete Gaussian noise, which have about s epsilon sqrt(n) steps per unit
    failure: float  # p, the largest probability that the noise of one sum wraps around the ring
    horizon: int  # T rounds, on which only `ShuffledNoise` depends


class Parameters(NamedTuple):
    """The parameters for a batch of n users.

    For every p, noise and rounding change a sum of rewards by at most s sqrt(ln(2/p)) + h ln(2/p) with probability 1 -
    2 p. Lemma 2 needs this, in units of reward. (This s is not `scale`.)
    """

    n: int
    steps: int  # g, steps per unit of reward, and the largest move of a sum by one user
    slack: int  # tau: the noise of a sum is larger with probability at most `wrapping`
    size: float  # of the noise, see its class
    s: float
    h: float
    wrapping: float  # the probability of wrapping around the ring that the slack is chosen for

    @property
    def largest(self) -> int:
        """n g + tau: larger residues stand for negative numbers."""
        return self.n * self.steps + self.slack

    @property
    def modulus(self) -> int:
        """m = n g + 2 tau + 1; n rewards and noise within +-tau fit into the ring."""
        return self.largest + self.slack + 1


class SumProof(NamedTuple):
    """The proof for one user's part in one sum or, if every message is private by itself, in that message."""

    pure: float  # epsilon of pure DP, infinite if the noise gives none
    renyi: Curve  # order alpha -> bound on the Renyi divergence
    at: Callable[[float], float]  # delta -> smallest epsilon that is proved
    zcdp: SumPrivacy | None = None  # of discrete Gaussian noise only


@struct.pytree
class Noise:
    """Integer noise on every sum of rewards, in steps of 1/g. By default users add it in shares.

    Only the sealed classes below prove anything. With any other subclass, the claim of a certificate is `none`.
    """

    notion: ClassVar[str] = "pure DP"  # the notion of epsilon in the paper's theorem
    trust: ClassVar[str] = (
        "secure aggregation: each user adds a share of the noise; the server sees only sums, and is not trusted"
    )
    trusted: ClassVar[str] = "secagg"  # the party that users must trust
    assumes: ClassVar[tuple[str, ...]] = (SHARES,)  # attacks that the guarantee leaves out
    at_server: ClassVar[bool] = False  # the server adds all noise and users add none
    per_user: ClassVar[bool] = False  # every user's message is private on its own
    bits_epsilon = 0.0  # spent by shuffled bits in addition to the noise
    bits_failure = 0.0  # bound on the probability that a sum is lost because a user sent random bits

    size: Any  # (S,) float32 parameter of the law of a sum's noise

    @classmethod
    def parameters(cls, asked: Asked, n: int) -> Parameters:
        """Returns the parameters for a batch of n users."""
        raise NotImplementedError(f"{cls.__name__}.parameters")

    @classmethod
    def made(cls, asked: Asked, users: Sequence[int]) -> Noise:
        """Returns the noise of S batches; batch k has `users[k]` users."""
        return cls(size=rounded_up([cls.parameters(asked, n).size for n in users]))

    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        """Draws the noise in steps of whole sums, each an entry of `shape`, at once: the share of a single user."""
        return wide.from_int32(self.share(key, k, jnp.ones((), jnp.int32), shape))

    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        """Draws the noise in steps of single users, int32 of `shape`; n of these sum to `law`, up to `distortion`."""
        raise NotImplementedError(f"{type(self).__name__}.share")

    def width(self, k: int) -> float:
        """Returns the width of the noise of batch k in steps. A move of the sum by it spends epsilon = 1."""
        return float(np.asarray(self.size, np.float32)[k])

    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        """Returns the law of `total` in batch k. The sum of n shares has it up to factors e^(+-distortion)."""
        raise NotImplementedError(f"{type(self).__name__}.law")

    def distortion(self, k: int, n: int) -> float:
        """Bounds the difference in log probability between n shares together and `law`."""
        return 0.0

    def missing(self, k: int, n: int, *, shares: bool) -> float:
        """Bounds the mass of never drawn tails, in the noise of a sum of batch k or in n users' shares."""
        raise NotImplementedError(f"{type(self).__name__}.missing")

    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        """Proves the noise of batch k for one of n users, with moves of a sum modulo m by at most `shift` = g steps.

        Raises:
            ValueError: if the noise is too small or too large for the accountant.
        """
        raise NotImplementedError(f"{type(self).__name__}.proof")

    def bits(self, n: int, modulus: int) -> int:
        """Returns the number of bits that one of n users sends, on the host."""
        return (modulus - 1).bit_length()

    def lost(self, n: Array) -> Array:
        """Returns the probability that the sum of n users is lost, at most `bits_failure`."""
        return -jnp.expm1(n * jnp.log1p(-self.bits_failure / n))

    def _at(self, k: Array) -> Array:
        return jnp.asarray(self.size)[k]


@struct.sealed
@struct.pytree
class PolyaNoise(Noise):
    """Shares that are differences of two Polya(1/n, e^(-1/size)) and sum to discrete Laplace noise (Theorem 1).

    The guarantee is pure epsilon-DP of the sum modulo m. Here g = ceil(epsilon sqrt(n)) and tau = ceil(g / epsilon
    ln(2/p)). The scale g / epsilon is `size`. Tails: Appendix C.1. The proof is for one discrete Laplace variable
    modulo m, for all shifts up to `shift`. The Renyi curve is for the noise before reduction modulo m.
    """

    @override
    @classmethod
    def parameters(cls, asked: Asked, n: int) -> Parameters:
        epsilon, p = asked.epsilon, asked.failure
        g = math.ceil(epsilon * math.sqrt(n))
        return Parameters(n, g, math.ceil(g / epsilon * math.log(2 / p)), g / epsilon, ROOT / epsilon, 1 / epsilon, p)

    @override
    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        return wide.from_int32(samplers.discrete_laplace(key, self._at(k), shape))

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        r, scale = 1 / n.astype(jnp.float32), self._at(k)
        plus, minus = jax.vmap(lambda half: samplers.polya(half, r, scale, shape))(jax.random.split(key))
        return plus - minus

    @override
    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        return lattice.DiscreteLaplace(self.width(k))

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        return 4 * n * samplers.CUT if shares else samplers.LAPLACE_CUT

    @override
    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        scale = self.width(k)  # of one variable, also if every user adds one
        pure = wrapped_discrete_laplace_epsilon(min(shift, modulus // 2), scale, modulus)
        return SumProof(pure, discrete_laplace_rdp(shift, scale), lambda delta: pure)


@struct.sealed
@struct.pytree
class ServerNoise(PolyaNoise):
    """Discrete Laplace noise that the server adds to every sum; users add none (Theorem 5)."""

    trust = "central: users and the server are trusted, and the server adds the noise to every sum"
    trusted = "server"
    assumes = ()
    at_server = True

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        return jnp.zeros(shape, jnp.int32)

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        return super().missing(k, n, shares=False)


@struct.sealed
@struct.pytree
class LocalNoise(PolyaNoise):
    """Discrete Laplace noise of scale g / epsilon that every user adds to their own reward (Theorem 6).

    The proof counts only this one variable, as no other party is trusted. (A sum drawn at once lacks at most 62
    `samplers.CUT`.)
    """

    trust = "local: every user adds the noise to their own reward; no other party is trusted"
    trusted = "nobody"
    assumes = ()
    per_user = True

    @override
    @classmethod
    def parameters(cls, asked: Asked, n: int) -> Parameters:
        """Returns sub-gamma constants in place of Lemma 5, which gives no numbers.

        Let N be the sum of n discrete Laplace variables of scale a. Its cumulants are K(t) = -n ln(1 - r^2) with r =
        sinh(t/2) / sinh(1/2a). As sinh is convex, r <= a t for 0 <= t <= 1/a. Hence K(t) <= -n ln(1 - (a t)^2) <= (2 n
        a^2) t^2 / (2 (1 - a t)). So N is sub-gamma of variance factor 2 n a^2 and scale a (Boucheron, Lugosi & Massart
        2013, section 2.4). Hence |N| <= a (2 sqrt(n ln(2/p)) + ln(2/p)) with probability 1 - p. The term sqrt(2) /
        epsilon is the paper's, for the rounding of rewards.
        """
        one, log = super().parameters(asked, n), math.log(2 / asked.failure)
        slack = math.ceil(one.size * (2 * math.sqrt(n * log) + log))
        return one._replace(slack=slack, s=(2 * math.sqrt(n) + ROOT) / asked.epsilon)

    @override
    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        return samplers.discrete_laplace_sum(key, self._at(k), n, shape)

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        return samplers.discrete_laplace(key, self._at(k), shape)

    @override
    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        return lattice.DiscreteLaplace(self.width(k), n)

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        return samplers.LAPLACE_CUT


@struct.sealed
@struct.pytree
class ShuffledNoise(PolyaNoise):
    """Shares of Polya noise, with a trusted shuffler of bits in place of secure aggregation (Theorem 3).

    The noise spends half of epsilon. The bits reveal a little more than the sum, and spend the other half. The ring
    wraps with probability 1 / (2 T), for any `failure`.
    """

    trust = (
        "shuffle: each user adds a share of the noise, and sends bits; a trusted shuffler mixes the bits of all users"
    )
    trusted = "shuffler"
    assumes = (SHARES, "bits that bypass the shuffler")

    bits_epsilon: struct.Number
    bits_failure: struct.Number

    @override
    @classmethod
    def parameters(cls, asked: Asked, n: int) -> Parameters:
        return super().parameters(asked._replace(epsilon=asked.epsilon / 2, failure=1 / (2 * asked.horizon)), n)

    @override
    @classmethod
    def made(cls, asked: Asked, users: Sequence[int]) -> Noise:
        rows = [cls.parameters(asked, n) for n in users]
        size = rounded_up([row.size for row in rows])
        return cls(size=size, bits_epsilon=asked.epsilon / 2, bits_failure=rows[0].wrapping)

    def relaxed(self, n: int, modulus: int) -> RelaxedSecAgg:
        """Returns the encoding of n users' residues as bits, on the host."""
        return relaxed_secagg(float(self.bits_epsilon), float(self.bits_failure), n, modulus)

    @override
    def bits(self, n: int, modulus: int) -> int:
        return self.relaxed(n, modulus).bits

    @override
    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        self.relaxed(n, modulus)  # refuses numbers that no bits have
        return with_bits(super().proof(k, n, shift, modulus), float(self.bits_epsilon))


def with_bits(noise: SumProof, epsilon: float) -> SumProof:
    """Returns the proof of the noise, weakened for a server that sees bits and not only the sum.

    Given the sum, the bits are (epsilon, 0)-DP. So their Renyi divergence is at most randomised response's. It is
    added, and so is epsilon.
    """
    pure, shuffler = noise.pure + epsilon, PureDP(epsilon)
    return SumProof(pure, lambda alpha: noise.renyi(alpha) + shuffler.rdp(alpha), lambda delta: pure)


@struct.sealed
@struct.pytree
class SkellamNoise(Noise):
    """Shares of Skellam noise, differences of two Poisson variables, which sum to Skellam noise (Theorem 2).

    With s = `scale`, g = ceil(s epsilon sqrt(n)) and tau = ceil(2 g / epsilon sqrt(ln(2/p)) + sqrt(2) ln(2/p)). The
    variance g^2 / epsilon^2, in squared steps, is `size`. Tails: Proposition 1, with sqrt(2) / (s epsilon) added to the
    first for the rounding. Lemma 3 gives the Renyi curve. epsilon is for the law before reduction modulo m.
    """

    notion = "Renyi DP"

    @override
    @classmethod
    def parameters(cls, asked: Asked, n: int) -> Parameters:
        epsilon, scale, p, log = asked.epsilon, asked.scale, asked.failure, math.log(2 / asked.failure)
        g = math.ceil(scale * epsilon * math.sqrt(n))
        slack = math.ceil(2 * g / epsilon * math.sqrt(log) + ROOT * log)
        return Parameters(n, g, slack, (g / epsilon) ** 2, (2 + ROOT / scale) / epsilon, ROOT / g, p)

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        return samplers.skellam(key, self._at(k) / n.astype(jnp.float32), shape)

    @override
    def width(self, k: int) -> float:
        return math.sqrt(max(super().width(k), 0.0))

    @override
    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        return lattice.Skellam(super().width(k))

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        n = n if shares else 1  # a variance from 64 on is drawn like a discrete Gaussian
        return n * (samplers.GAUSSIAN_CUT if super().width(k) / n >= 64 else 2 * samplers.CUT)

    @override
    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        law = self.law(k, n)
        curve = skellam_rdp(shift, law.variance)
        return SumProof(math.inf, curve, lambda delta: lattice.shift_epsilon(law, shift, delta))


@struct.sealed
@struct.pytree
class GaussianNoise(Noise):
    """Discrete Gaussian shares of parameter size / sqrt(n), with a nearly discrete Gaussian sum (Theorem 4).

    Here g is as in `SkellamNoise`, tau = ceil(g / epsilon sqrt(2 ln(2/p))), and `size` is sigma = g / epsilon. Tails:
    Appendix E, with h = 0 because the noise is sub-Gaussian. The probabilities of the sum equal a discrete Gaussian's
    up to factors e^(+-xi), xi as in Lemma 4. They cost 2 xi in epsilon and a factor e^xi in delta. Then epsilon is the
    smaller one by Lemma 4 (zCDP) and by that law.
    """

    notion = "zCDP"

    @override
    @classmethod
    def parameters(cls, asked: Asked, n: int) -> Parameters:
        one = SkellamNoise.parameters(asked, n)
        size = one.steps / asked.epsilon
        slack = math.ceil(size * math.sqrt(2 * math.log(2 / asked.failure)))
        return one._replace(slack=slack, size=size, s=(ROOT + ROOT / asked.scale) / asked.epsilon, h=0.0)

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        return samplers.discrete_gaussian(key, self._at(k) / jnp.sqrt(n.astype(jnp.float32)), shape)

    @override
    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        return lattice.DiscreteGaussian(self.width(k))

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        return samplers.GAUSSIAN_CUT * (n if shares else 1)

    @override
    def distortion(self, k: int, n: int) -> float:
        return discrete_gaussian_sum_zcdp(1, self.width(k) / math.sqrt(n), n).xi

    @override
    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        law = self.law(k, n)
        zcdp = discrete_gaussian_sum_zcdp(shift, self.width(k) / math.sqrt(n), n)

        def at(delta: float) -> float:
            near = 2 * zcdp.xi + lattice.shift_epsilon(law, shift, delta * math.exp(-zcdp.xi))
            return min(near, zcdp_epsilon(zcdp.rho, delta))

        return SumProof(math.inf, lambda alpha: zcdp.rho * alpha, at, zcdp)


def rounded_up(values: Any) -> np.ndarray:
    """Rounds to float32, never down: noise may exceed the certified scale but not fall short."""
    nearest = np.asarray(values, np.float32)
    return np.where(nearest < np.asarray(values), np.nextafter(nearest, np.float32(np.inf)), nearest)
