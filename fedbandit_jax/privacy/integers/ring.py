"""Private sums of users' rewards: what users send, what aggregation keeps of it, and what the server reads.

P = (R, S, A) of Chowdhury & Zhou (2023), Algorithms 2-7. R: a user's x in [0, 1] becomes floor(x g) + Bernoulli(x g -
floor(x g)), plus integer noise, modulo m. S: the sum modulo m. A: residues above n g + tau are negative numbers, and
the sum of the x is their g-th part. All a simulation needs, unless somebody looks at the messages, is the sum of the
encoded rewards and the law of all noise together; one reduction modulo m at the end equals one after every step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core import control, random, struct, wide
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy import noise as samplers

FINE = 2**24  # steps per unit that lose nothing: float32 resolves no more
MAX_STEPS = 2**24  # g, the largest up to which float32 has every integer
MAX_MODULUS = 2**61
MAX_MESSAGE = 2**43  # m where users draw their shares: 2^19 blocks, each reduced modulo m, stay below 2^63


class Decoded(NamedTuple):
    """What the server makes of the sums of K arms."""

    sums: Array  # (K,) float32, noisy sums of rewards
    failed: Array  # (K,) bool: did the noise wrap around the ring? Unknown, so False, for single messages


def encode(x: Array, u: Array, steps: Array | float) -> Array:
    """Rewards to integers 0..g, rounded at random with uniform u in (0, 1); outside [0, 1] clipped, NaN to 0."""
    z = jnp.where(x >= 0, jnp.minimum(x, 1), 0) * steps
    whole = jnp.floor(z)
    return (whole + (u < z - whole)).astype(jnp.uint32)


class SumProtocol:
    """How n_k users of an arm make up a noisy sum in batch k."""

    bits: Any  # (S,) that a user sends in each batch

    def collect(self, key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Wide:
        """R and the sum of S, of a block of users: rewards in two halves (N / 2,), and who takes part."""
        raise NotImplementedError(f"{type(self).__name__}.collect")

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """S and A of the blocks' sums (K,)."""
        raise NotImplementedError(f"{type(self).__name__}.decode")


def _collect_encoded(
    key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array], steps: Any
) -> Wide:
    coins = control.once(lambda: [random.unit(word) for word in random.bits(key, rewards[0].shape[-1])], k)
    halves = [jnp.where(i, encode(x, u, steps), 0) for x, u, i in zip(rewards, coins, inside)]
    return wide.total(halves[0] + halves[1])


@struct.pytree
class RealSum(SumProtocol):
    """The server is trusted and adds real-valued Laplace noise of scale 1/epsilon to every sum, or none.

    Rewards are counted on a grid that float32 does not resolve, so that sums of any size are exact.
    """

    scale: struct.Number
    bits: Any  # (S,)

    def collect(self, key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Wide:
        """Sum of the rewards in units of 2^-24."""
        return _collect_encoded(key, k, rewards, inside, jnp.float32(FINE))

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """Independent noise for every arm, in units of 2^-24: float32 would move large sums further than users do."""
        del k
        noise = samplers.laplace(key, self.scale, collected.low.shape)
        noisy = wide.add(collected, wide.from_float(noise * FINE))  # before float32 rounds the sum
        return Decoded(wide.to_float(noisy) / FINE, jnp.zeros(noise.shape, bool))


class Noise:
    """Integer noise, by batch k = 0, 1, ...: that of all users together, and one user's part of it."""

    def total(self, key: Array, k: Array, shape: tuple[int, ...]) -> Wide:
        """Of n_k users, drawn at once in their law."""
        raise NotImplementedError(f"{type(self).__name__}.total")

    def share(self, key: Array, k: Array, shape: tuple[int, ...]) -> Array:
        """Of one user, int32; n_k of them add up to `total`."""
        raise NotImplementedError(f"{type(self).__name__}.share")


@struct.pytree
class PolyaNoise(Noise):
    """Shares Polya(1/n, e^(-1/scale)) - Polya(1/n, e^(-1/scale)) add up to discrete Laplace (Theorem 1)."""

    scale: Any  # (S,)
    users: Any  # (S,) n

    def total(self, key: Array, k: Array, shape: tuple[int, ...]) -> Wide:
        """Discrete Laplace."""
        return wide.from_int32(samplers.discrete_laplace(key, jnp.asarray(self.scale)[k], shape))

    def share(self, key: Array, k: Array, shape: tuple[int, ...]) -> Array:
        """Difference of two Polya variables."""
        r, scale = 1 / jnp.asarray(self.users)[k], jnp.asarray(self.scale)[k]
        plus, minus = (samplers.polya(half, r, scale, shape) for half in jax.random.split(key))
        return plus - minus


@struct.pytree
class ServerNoise(PolyaNoise):
    """The server adds discrete Laplace, users nothing (Theorem 5)."""

    def share(self, key: Array, k: Array, shape: tuple[int, ...]) -> Array:
        """Nothing."""
        del key, k
        return jnp.zeros(shape, jnp.int32)


@struct.pytree
class LocalNoise(PolyaNoise):
    """Every user adds a discrete Laplace variable (Theorem 6)."""

    def total(self, key: Array, k: Array, shape: tuple[int, ...]) -> Wide:
        """The sum of n of them."""
        n = jnp.asarray(self.users)[k].astype(jnp.int32)
        return samplers.discrete_laplace_sum(key, jnp.asarray(self.scale)[k], n, shape)

    def share(self, key: Array, k: Array, shape: tuple[int, ...]) -> Array:
        """One."""
        return samplers.discrete_laplace(key, jnp.asarray(self.scale)[k], shape)


@struct.pytree
class SkellamNoise(Noise):
    """Skellam shares add up to Skellam (Theorem 2)."""

    variance: Any  # (S,) of all users together
    users: Any  # (S,) n

    def total(self, key: Array, k: Array, shape: tuple[int, ...]) -> Wide:
        """Skellam."""
        return wide.from_int32(samplers.skellam(key, jnp.asarray(self.variance)[k], shape))

    def share(self, key: Array, k: Array, shape: tuple[int, ...]) -> Array:
        """Skellam with 1/n of the variance."""
        return samplers.skellam(key, jnp.asarray(self.variance)[k] / jnp.asarray(self.users)[k], shape)


@struct.pytree
class GaussianNoise(Noise):
    """Discrete Gaussian shares add up to nearly one, within factors e^(+-xi) of its probabilities (Theorem 4)."""

    sigma: Any  # (S,) of all users together
    users: Any  # (S,) n

    def total(self, key: Array, k: Array, shape: tuple[int, ...]) -> Wide:
        """One discrete Gaussian."""
        return wide.from_int32(samplers.discrete_gaussian(key, jnp.asarray(self.sigma)[k], shape))

    def share(self, key: Array, k: Array, shape: tuple[int, ...]) -> Array:
        """Parameter sigma / sqrt n."""
        sigma = jnp.asarray(self.sigma)[k] / jnp.sqrt(jnp.asarray(self.users)[k])
        return samplers.discrete_gaussian(key, sigma, shape)


@struct.pytree
class RingSum(SumProtocol):
    """Integers modulo m, which may exceed a machine word: see `wide`."""

    noise: Noise
    steps: Any  # (S,) g, steps per unit
    modulus: Wide  # (S,) m
    largest: Wide  # (S,) n g + tau: larger residues are negative numbers
    lost: Any  # (S,) probability that a shuffler's substitute for aggregation loses the sum
    bits: Any  # (S,)
    messages: bool = struct.static(default=False)  # does every user draw a share?

    def collect(self, key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Wide:
        """Sum of the encoded rewards, or of the users' messages modulo m."""
        if not self.messages:
            return _collect_encoded(key, k, rewards, inside, jnp.asarray(self.steps)[k])
        rounding, own = jax.random.split(key)
        x, there = jnp.concatenate(rewards), jnp.concatenate(inside)
        sent = self.randomize(rounding, own, k, x)
        return wide.mod(wide.add_up(wide.where(there, sent, wide.of(0))), self._modulus(k))

    def randomize(self, rounding: Array, own: Array, k: Array, x: Array) -> Wide:
        """R: what every user sends, (N,) residues modulo m."""
        encoded = encode(x, random.uniform(rounding, x.shape), jnp.asarray(self.steps)[k]).astype(jnp.int32)
        noisy = wide.add(wide.from_int32(encoded), wide.from_int32(self.noise.share(own, k, x.shape)))
        return wide.mod(noisy, self._modulus(k))

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """See `SumProtocol`."""
        adding, coins, anywhere = jax.random.split(key, 3)
        shape, modulus = collected.low.shape, self._modulus(k)
        at_server = isinstance(self.noise, ServerNoise)
        noisy = wide.add(collected, self.noise.total(adding, k, shape)) if at_server or not self.messages else collected
        shown = wide.mod(noisy, modulus)
        high, low = (jax.random.bits(word, shape) for word in jax.random.split(anywhere))
        anything = wide.mod(Wide(high >> 1, low), modulus)
        lost = jax.random.bits(coins, shape) < (jnp.asarray(self.lost)[k] * 2.0**32).astype(jnp.uint32)
        shown = wide.where(lost, anything, shown)
        negative = wide.less(Wide(*(jnp.asarray(word)[k] for word in self.largest)), shown)
        read = wide.where(negative, wide.sub(shown, modulus), shown)
        failed = (read.high != noisy.high) | (read.low != noisy.low)
        return Decoded(wide.to_float(read) / jnp.asarray(self.steps)[k], failed & (not self.messages))

    def _modulus(self, k: Array) -> Wide:
        return Wide(*(jnp.asarray(word)[k] for word in self.modulus))
