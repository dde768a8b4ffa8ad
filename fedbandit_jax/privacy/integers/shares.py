"""Integer noise on a sum of encoded rewards: its draws, at once or in shares of the users, and its proofs.

Every table (S,) has one entry for each batch k = 0, 1, ..., S - 1. A batch has n users, and replacing the reward of one
of them moves the sum by at most `shift` = g steps. Proofs are computed on the host in float64, from the float32 numbers
that the noise is drawn with. Theorems and lemmas: Chowdhury & Zhou (2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
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


class SumProof(NamedTuple):
    """The proof for one user's part in one sum or, if every message is private by itself, in that message."""

    pure: float  # epsilon of pure DP, infinite if the noise gives none
    renyi: Curve  # order alpha -> bound on the Renyi divergence
    at: Callable[[float], float]  # delta -> smallest epsilon that is proved
    zcdp: SumPrivacy | None = None  # of discrete Gaussian noise only


class Noise:
    """Integer noise on every sum of rewards, in steps of 1/g.

    Only the sealed classes below prove anything. With any other subclass, the claim of a certificate is `none`.
    """

    notion: ClassVar[str] = "pure DP"  # the notion of epsilon in the paper's theorem
    trust: ClassVar[str] = ""  # the trust model; empty if users add shares, since that depends on the aggregation
    trusted: ClassVar[str] = ""  # the party that users must trust; empty as above
    at_server: ClassVar[bool] = False  # the server adds all noise and users add none
    per_user: ClassVar[bool] = False  # every user's message is private on its own

    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        """Draws the noise in steps of whole sums, each an entry of `shape`, at once: the share of a single user."""
        return wide.from_int32(self.share(key, k, jnp.ones((), jnp.int32), shape))

    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        """Draws the noise in steps of single users, int32 of `shape`; n of these sum to `law`, up to `distortion`."""
        raise NotImplementedError(f"{type(self).__name__}.share")

    def width(self, k: int) -> float:
        """Returns the width of the noise of batch k in steps: a move of the sum by it spends epsilon = 1."""
        raise NotImplementedError(f"{type(self).__name__}.width")

    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        """Returns the law of `total` in batch k; the sum of n shares has it up to factors e^(+-distortion)."""
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


@struct.sealed
@struct.pytree
class PolyaNoise(Noise):
    """Shares that are differences of two Polya(1/n, e^(-1/scale)) and sum to discrete Laplace noise (Theorem 1).

    The proof is pure DP of one discrete Laplace variable modulo m, for all shifts up to `shift`. The Renyi curve is for
    the noise before reduction modulo m.
    """

    scale: Any  # (S,) scale of the discrete Laplace noise of a sum, in steps

    @override
    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        return wide.from_int32(samplers.discrete_laplace(key, jnp.asarray(self.scale)[k], shape))

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        r, scale = 1 / n.astype(jnp.float32), jnp.asarray(self.scale)[k]
        plus, minus = jax.vmap(lambda half: samplers.polya(half, r, scale, shape))(jax.random.split(key))
        return plus - minus

    @override
    def width(self, k: int) -> float:
        return _drawn(self.scale, k)

    @override
    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        return lattice.DiscreteLaplace(self.width(k))

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        return 4 * n * samplers.CUT if shares else samplers.LAPLACE_CUT

    @override
    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        scale = self.width(k)
        pure = wrapped_discrete_laplace_epsilon(min(shift, modulus // 2), scale, modulus)
        law = lattice.DiscreteLaplace(scale)  # of one variable, also if every user adds one
        return SumProof(
            pure, discrete_laplace_rdp(shift, scale), lambda delta: min(lattice.shift_epsilon(law, shift, delta), pure)
        )


@struct.sealed
@struct.pytree
class ServerNoise(PolyaNoise):
    """Discrete Laplace noise that the server adds to every sum; users add none (Theorem 5)."""

    trust = "central: users and the server are trusted, and the server adds the noise to every sum"
    trusted = "server"
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
    """Discrete Laplace noise that every user adds to their own reward (Theorem 6).

    The proof counts only this one variable, as nobody else is trusted. (A sum drawn at once lacks at most 62
    `samplers.CUT`.)
    """

    trust = "local: every user adds the noise to their own reward, nobody else is trusted"
    trusted = "nobody"
    per_user = True

    @override
    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        return samplers.discrete_laplace_sum(key, jnp.asarray(self.scale)[k], n, shape)

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        return samplers.discrete_laplace(key, jnp.asarray(self.scale)[k], shape)

    @override
    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        return lattice.DiscreteLaplace(self.width(k), n)

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        return samplers.LAPLACE_CUT


@struct.sealed
@struct.pytree
class SkellamNoise(Noise):
    """Shares of Skellam noise, differences of two Poisson variables, which sum to Skellam noise (Theorem 2).

    Lemma 3 gives the Renyi curve. epsilon is for the law before reduction modulo m.
    """

    notion = "Renyi DP"

    variance: Any  # (S,) variance of the noise of all users together, in squared steps

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        return samplers.skellam(key, jnp.asarray(self.variance)[k] / n.astype(jnp.float32), shape)

    @override
    def width(self, k: int) -> float:
        return math.sqrt(max(_drawn(self.variance, k), 0.0))

    @override
    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        return lattice.Skellam(_drawn(self.variance, k))

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        n = n if shares else 1  # a variance from 64 on is drawn like a discrete Gaussian
        return n * (samplers.GAUSSIAN_CUT if _drawn(self.variance, k) / n >= 64 else 2 * samplers.CUT)

    @override
    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        law = self.law(k, n)
        curve = skellam_rdp(shift, law.variance)
        return SumProof(math.inf, curve, lambda delta: lattice.shift_epsilon(law, shift, delta))


@struct.sealed
@struct.pytree
class GaussianNoise(Noise):
    """Discrete Gaussian shares with a nearly discrete Gaussian sum (Theorem 4).

    The probabilities of the sum equal a discrete Gaussian's up to factors e^(+-xi), xi as in Lemma 4. They cost 2 xi in
    epsilon and a factor e^xi in delta. epsilon is the smaller one by Lemma 4 (zCDP) and by that law.
    """

    notion = "zCDP"

    sigma: Any  # (S,) parameter of the noise of all users together, in steps

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        sigma = jnp.asarray(self.sigma)[k] / jnp.sqrt(n.astype(jnp.float32))
        return samplers.discrete_gaussian(key, sigma, shape)

    @override
    def width(self, k: int) -> float:
        return _drawn(self.sigma, k)

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


def _drawn(table: Any, k: int) -> float:  # as the samplers read it
    return float(np.asarray(table, np.float32)[k])
