"""Integer noise of a sum: how it is drawn, at once or in shares of the users, and what it proves.

Every table is by batch k = 0, 1, ...; a batch has n users, and one of them moves the sum by at most `shift` steps.
What is proved is computed on the host, in float64, from the float32 numbers that draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import struct, wide
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy import noise as samplers
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
    """What is proved about one user's part in one sum."""

    pure: float  # largest log ratio, infinite if there is none
    renyi: Curve
    at: Callable[[float], float]  # delta -> smallest epsilon
    zcdp: SumPrivacy | None = None


class Noise:
    """Integer noise. Only the package's own sealed classes prove anything: one of the user's own has no certificate."""

    notion: ClassVar[str] = "pure DP"
    """Of privacy: what a paper's epsilon means."""
    trust: ClassVar[str] = ""
    """Who adds the noise, and who is not trusted; empty where users add shares, which depends on the aggregation."""
    at_server: ClassVar[bool] = False
    """Does the server add the noise, and do users add nothing?"""
    per_user: ClassVar[bool] = False
    """Is every user's message private on its own?"""
    max_shares: ClassVar[float] = math.inf
    """Users whose shares can be drawn."""

    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        """Of n users, drawn at once in their law."""
        raise NotImplementedError(f"{type(self).__name__}.total")

    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        """Of one user, int32; n of them add up to `total`."""
        raise NotImplementedError(f"{type(self).__name__}.share")

    def width(self, k: int) -> float:
        """The parameter in steps: a user who moves the sum by as much spends epsilon = 1. On the host."""
        raise NotImplementedError(f"{type(self).__name__}.width")

    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        """Of `total`, and of n shares up to factors e^(+-distortion). On the host."""
        raise NotImplementedError(f"{type(self).__name__}.law")

    def distortion(self, k: int, n: int) -> float:
        """See `law`."""
        del k, n
        return 0.0

    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        """What n shares prove, on the host.

        Raises:
            ValueError: the noise is too small or too large for the accountant.
        """
        raise NotImplementedError(f"{type(self).__name__}.proof")


@struct.sealed
@struct.pytree
class PolyaNoise(Noise):
    """Shares Polya(1/n, e^(-1/scale)) - Polya(1/n, e^(-1/scale)) add up to discrete Laplace (Theorem 1)."""

    max_shares = 4096  # float32 gamma variables of smaller shape than 1 / 4096 are biased

    scale: Any  # (S,)

    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        """Discrete Laplace."""
        del n
        return wide.from_int32(samplers.discrete_laplace(key, jnp.asarray(self.scale)[k], shape))

    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        """Difference of two Polya variables."""
        r, scale = 1 / n.astype(jnp.float32), jnp.asarray(self.scale)[k]
        plus, minus = (samplers.polya(half, r, scale, shape) for half in jax.random.split(key))
        return plus - minus

    def width(self, k: int) -> float:
        """The scale."""
        return _drawn(self.scale, k)

    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        """Discrete Laplace."""
        del n
        return lattice.DiscreteLaplace(self.width(k))

    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        """Of one discrete Laplace variable: pure DP modulo m over all shifts, and the Renyi curve before it wraps."""
        del n
        scale = self.width(k)
        pure = wrapped_discrete_laplace_epsilon(min(shift, modulus // 2), scale, modulus)
        law = lattice.DiscreteLaplace(scale)
        return SumProof(
            pure, discrete_laplace_rdp(shift, scale), lambda delta: min(lattice.shift_epsilon(law, shift, delta), pure)
        )


@struct.sealed
@struct.pytree
class ServerNoise(PolyaNoise):
    """The server adds discrete Laplace, users nothing (Theorem 5)."""

    trust = "central: users and the server are trusted, and the server adds the noise to every sum"
    at_server = True
    max_shares = math.inf

    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        """Nothing."""
        del key, k, n
        return jnp.zeros(shape, jnp.int32)


@struct.sealed
@struct.pytree
class LocalNoise(PolyaNoise):
    """Every user adds a discrete Laplace variable (Theorem 6), which is all that her privacy counts on."""

    trust = "local: every user adds the noise to her own reward, nobody else is trusted"
    per_user = True
    max_shares = math.inf

    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        """The sum of n of them."""
        return samplers.discrete_laplace_sum(key, jnp.asarray(self.scale)[k], n, shape)

    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        """One."""
        del n
        return samplers.discrete_laplace(key, jnp.asarray(self.scale)[k], shape)

    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        """The sum of n."""
        return lattice.DiscreteLaplace(self.width(k), n)


@struct.sealed
@struct.pytree
class SkellamNoise(Noise):
    """Skellam shares add up to Skellam (Theorem 2)."""

    notion = "Renyi DP"

    variance: Any  # (S,) of all users together

    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        """Skellam."""
        del n
        return wide.from_int32(samplers.skellam(key, jnp.asarray(self.variance)[k], shape))

    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        """Skellam with 1/n of the variance."""
        return samplers.skellam(key, jnp.asarray(self.variance)[k] / n.astype(jnp.float32), shape)

    def width(self, k: int) -> float:
        """The standard deviation."""
        return math.sqrt(max(_drawn(self.variance, k), 0.0))

    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        """Skellam."""
        del n
        return lattice.Skellam(_drawn(self.variance, k))

    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        """Lemma 3."""
        del modulus
        law = self.law(k, n)
        curve = skellam_rdp(shift, law.variance)
        return SumProof(math.inf, curve, lambda delta: lattice.shift_epsilon(law, shift, delta))


@struct.sealed
@struct.pytree
class GaussianNoise(Noise):
    """Discrete Gaussian shares add up to nearly one, within factors e^(+-xi) of its probabilities (Theorem 4)."""

    notion = "zCDP"

    sigma: Any  # (S,) of all users together

    def total(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Wide:
        """One discrete Gaussian."""
        del n
        return wide.from_int32(samplers.discrete_gaussian(key, jnp.asarray(self.sigma)[k], shape))

    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        """Parameter sigma / sqrt n."""
        sigma = jnp.asarray(self.sigma)[k] / jnp.sqrt(n.astype(jnp.float32))
        return samplers.discrete_gaussian(key, sigma, shape)

    def width(self, k: int) -> float:
        """The parameter sigma."""
        return _drawn(self.sigma, k)

    def law(self, k: int, n: int) -> lattice.LatticeLaw:
        """One discrete Gaussian."""
        del n
        return lattice.DiscreteGaussian(self.width(k))

    def distortion(self, k: int, n: int) -> float:
        """Lemma 4."""
        return discrete_gaussian_sum_zcdp(1, self.width(k) / math.sqrt(n), n).xi

    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        """Lemma 4; factors e^(+-xi) on both sides cost 2 xi in epsilon and e^xi in delta."""
        del modulus
        law = self.law(k, n)
        zcdp = discrete_gaussian_sum_zcdp(shift, self.width(k) / math.sqrt(n), n)

        def at(delta: float) -> float:
            near = 2 * zcdp.xi + lattice.shift_epsilon(law, shift, delta * math.exp(-zcdp.xi))
            return min(near, zcdp_epsilon(zcdp.rho, delta))

        return SumProof(math.inf, lambda alpha: zcdp.rho * alpha, at, zcdp)


def rounded_up(values: Any) -> np.ndarray:
    """float32, none smaller: noise may be more than certified, never less."""
    nearest = np.asarray(values, np.float32)
    return np.where(nearest < np.asarray(values), np.nextafter(nearest, np.float32(np.inf)), nearest)


def _drawn(table: Any, k: int) -> float:
    """An entry as it draws, in float32."""
    return float(np.asarray(table, np.float32)[k])
