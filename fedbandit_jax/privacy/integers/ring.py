"""Private sums of users' rewards modulo m: the messages, and their decoding; the certificate is in `proof`.

The protocol P = (R, S, A) of Chowdhury & Zhou (2023), Algorithms 2-7, for the n users of an arm in batch k:

* R: each user encodes a reward x in [0, 1] as floor(x g) + Bernoulli(x g - floor(x g)), for g steps per unit. The user
  adds integer noise, and sends the result modulo m.
* S: aggregation shows the server the sum of the messages modulo m.
* A: the server reads residues above n g + tau as negative numbers. Then it divides by g. The room for noise on either
  side is tau.

Unless somebody looks at single messages, the sum of encoded rewards and the law of all noise are enough for a
simulation. One reduction modulo m at the end equals one after every step. Replacing one user's reward (adjacency) moves
a sum by at most g steps. The privacy unit is one user, in one sum. In array shapes, S is the number of batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.certificate import BEYOND
from fedbandit_jax.core import control, random, struct, wide
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy.integers.noise import Asked, Noise, ServerNoise, SumProof

FINE = 2**24  # steps per unit of an exact sum, the resolution of float32 rewards near 1
MAX_STEPS = 2**24  # largest g: float32 has every integer up to it
MAX_WIDTH = 2.0**25  # largest width of integer noise in steps: a draw fits in 32 bits
MAX_MODULUS = 2**61  # largest m: sums with their noise fit in 64 bits
MAX_MESSAGE = 2**42  # largest m if users draw shares: 2^21 blocks, each reduced modulo m, stay below 2^63
NOT_COVERED = (
    "the number of users, and their arms, which follow from earlier sums",
    *BEYOND,
    "floating-point attacks: rounding, coins and rejection sampling use float32",
)

Halves = tuple[Array, Array]  # of the users of a block


class Decoded(NamedTuple):
    """The server's decoded sums of K arms."""

    sums: Array  # (K,) float32, noisy sums of rewards, in units of reward
    failed: Array  # (K,) bool, whether a sum wrapped or was lost; False (unknown) with single messages


def encode(x: Array, u: Array, steps: Array | float) -> Array:
    """Returns integers in 0..g, uint32, with mean g times the reward (part of R).

    Args:
        x: rewards, of any shape; they are clipped to [0, 1], and NaN counts as 0.
        u: uniform numbers in (0, 1), which decide the rounding; their shape broadcasts against x.
        steps: g.
    """
    z = jnp.where(x >= 0, jnp.minimum(x, 1), 0) * steps
    whole = jnp.floor(z)
    return (whole + (u < z - whole)).astype(jnp.uint32)


def sum_encoded(rounding: Array, k: Array, steps: Array, rewards: Halves, inside: Halves) -> Wide:
    """Returns the sum of the encoded rewards of a block of users who are `inside`, a scalar, for g = `steps`."""
    size = rewards[0].shape[-1]

    def draw() -> list[Array]:
        return [random.unit(word) for word in random.bits(rounding, size)]

    coins = control.materialize_pair(draw, k, readers=steps)
    first, second = (jnp.where(i, encode(x, u, steps), 0) for x, u, i in zip(rewards, coins, inside))
    return wide.total(first + second)


@struct.sealed
@struct.pytree
class RingSum:
    """Sums of integers modulo m (up to 2^61) with integer noise by users or the server.

    Sums are 64-bit integers, as is the noise. Both neighbours' sums then have the same support. Sums of float32 numbers
    with float32 noise do not (Mironov 2012). Reading and rounding a noisy sum is post-processing.
    """

    noise: Noise
    users: Any  # (S,) int32 number n of users of an arm in each batch, 0 if the batch asks no users
    steps: Any  # (S,) g, steps per unit of reward
    modulus: Wide  # (S,) the modulus m
    largest: Wide  # (S,) n g + tau: larger residues stand for negative numbers
    bits: Any  # (S,) bits that a user sends in each batch
    messages: bool = struct.static(default=False)  # whether every user draws a share of the noise

    @classmethod
    def of(cls, law: type[Noise], asked: Asked, users: Sequence[int]) -> RingSum:
        """Returns the sums of S batches of `users`, or 0 for a batch that asks no users, with noise of this class.

        Raises:
            ValueError: if an integer would not fit its machine word. The message says which argument must change.
        """
        longest = max(*users, 2)
        rows = [law.parameters(asked, n or longest) for n in users]
        noise = law.made(asked, [row.n for row in rows])
        for row, k in sorted(zip(rows, range(len(rows))), reverse=True):
            if wrong := misfit(noise, k, row.steps, row.modulus, messages=False):
                names, condition, why = wrong
                got = f"epsilon = {asked.epsilon:g}, scale = {asked.scale:g} and batches of up to {longest:,} users"
                raise BadValue(names, f"{condition}: {why}", (asked.epsilon, asked.scale, longest), got=got)
        return cls(
            noise=noise,
            users=np.array(users, np.int32),
            steps=np.array([row.steps for row in rows], np.float32),
            modulus=wide.of([row.modulus for row in rows]),
            largest=wide.of([row.largest for row in rows]),
            bits=np.array([noise.bits(row.n, row.modulus) for row in rows], np.float32),
        )

    def admits(self, k: Array, users: Array) -> Array:
        """Returns whether batch k may ask `users` users of an arm. The guarantee covers no other size."""
        most = jnp.asarray(self.users)[k]
        return users <= most if self.noise.at_server else users == most

    def collect(self, rounding: Array, own: Array, k: Array, rewards: Halves, inside: Halves) -> Wide:
        """Encodes and adds up the rewards of a block of N users of one arm (R, and the sum of S), a scalar.

        `rewards`, and the mask `inside` of participants, come in two halves (N / 2,). The block has a key for
        `rounding`, and one for the users' `own` shares of the noise.
        """
        if not self.messages:
            return sum_encoded(rounding, k, jnp.asarray(self.steps)[k], rewards, inside)
        x, there = jnp.concatenate(rewards), jnp.concatenate(inside)
        sent = self.randomize(rounding, own, k, x)
        return wide.mod(wide.add_up(wide.where(there, sent, wide.of(0))), self._modulus(k))

    def randomize(self, rounding: Array, own: Array, k: Array, x: Array) -> Wide:
        """Returns the users' messages (R), (N,) residues modulo m: encoded rewards x (N,) plus shares of the noise.

        The key `rounding` decides how rewards are rounded, and `own` draws the shares.
        """
        encoded = encode(x, random.uniform(rounding, x.shape), jnp.asarray(self.steps)[k]).astype(jnp.int32)
        noisy = wide.add(wide.from_int32(encoded), wide.from_int32(self.noise.share(own, k, self._n(k), x.shape)))
        return wide.mod(noisy, self._modulus(k))

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """Reads noisy sums from the sums (K,) over all blocks: noise that users did not add, the rest of S, and A."""
        adding, coins, anywhere = jax.random.split(key, 3)
        shape, modulus, noisy = collected.low.shape, self._modulus(k), collected
        if self.noise.at_server or not self.messages:
            noisy = wide.add(collected, self.noise.total(adding, k, self._n(k), shape))
        shown = wide.mod(noisy, modulus)
        high, low = (jax.random.bits(word, shape) for word in jax.random.split(anywhere))
        anything = wide.mod(Wide(high >> 1, low), modulus)
        lost = jax.random.bits(coins, shape) < (self.noise.lost(self._n(k)) * 2.0**32).astype(jnp.uint32)
        shown = wide.where(lost, anything, shown)
        negative = wide.less(Wide(*(jnp.asarray(word)[k] for word in self.largest)), shown)
        read = wide.where(negative, wide.sub(shown, modulus), shown)
        failed = (read.high != noisy.high) | (read.low != noisy.low)
        return Decoded(wide.to_float(read) / jnp.asarray(self.steps)[k], failed & (not self.messages))

    def proof(self, k: int) -> SumProof:
        """Proves one user's part in the sum of batch k, on the host.

        Raises:
            ValueError: if this class cannot draw such noise, or the accountant cannot compute its proof.
        """
        n, steps, modulus = self.sizes(k)
        if wrong := misfit(self.noise, k, steps, modulus, messages=self.messages):
            raise ValueError(wrong[2])
        return self.noise.proof(k, n, steps, modulus)

    @property
    def missing(self) -> float:
        """Bounds the mass of the never drawn tails, in the noise of one sum that a user is in."""
        asked = [(k, self.sizes(k)[0]) for k in np.flatnonzero(self.users).tolist()]
        return max((self.noise.missing(k, n, shares=self.messages) for k, n in asked), default=0.0)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the certificate does not cover."""
        return (*self.noise.assumes, *NOT_COVERED)

    def stds(self) -> np.ndarray:
        """Returns standard deviations (S,) of the noise on a sum, in units of reward; 0 in a batch without users."""
        sizes = [self.sizes(k) for k in range(len(self.users))]
        laws = (self.noise.law(k, n) if n and self.noise.width(k) else None for k, (n, _, _) in enumerate(sizes))
        return np.array([math.sqrt(law.variance) / steps if law else 0.0 for law, (_, steps, _) in zip(laws, sizes)])

    def failure(self, k: int) -> float:
        """Bounds the probability that the sum of batch k wraps or is lost."""
        n, steps, modulus = self.sizes(k)
        largest = int(wide.to_int(self.largest)[k])
        above, below = largest - n * steps, modulus - 1 - largest  # room for noise; both are tau
        wraps = float(np.sum(self.noise.law(k, n).tail([above, below]))) if min(above, below) >= 0 else 1.0
        return min(1.0, wraps * math.exp(self.noise.distortion(k, n)) + float(self.noise.bits_failure))

    def sizes(self, k: int) -> tuple[int, int, int]:
        """Returns the users n of batch k, g and m, on the host."""
        steps = math.ceil(np.asarray(self.steps, np.float32)[k])
        return int(np.asarray(self.users)[k]), steps, int(wide.to_int(self.modulus)[k])

    def _n(self, k: Array) -> Array:
        return jnp.maximum(jnp.asarray(self.users)[k], 1)

    def _modulus(self, k: Array) -> Wide:
        return Wide(*(jnp.asarray(word)[k] for word in self.modulus))


def on_grid(users: np.ndarray, steps: float, scale: float) -> RingSum:
    """Returns sums of rewards with Laplace noise on a grid by the trusted server, which hardly ever leave the ring.

    Args:
        users: the largest number of users of an arm in each batch, (S,).
        steps: g, the steps per unit of reward.
        scale: of the noise, in steps; 0 for no noise.
    """
    ones, room = np.ones(len(users), np.float32), wide.of([MAX_MODULUS // 2] * len(users))
    return RingSum(
        noise=ServerNoise(size=scale * ones),
        users=users,
        steps=steps * ones,
        modulus=wide.of([MAX_MODULUS] * len(users)),
        largest=room,
        bits=32 * ones,
    )


def misfit(
    noise: Noise, k: int, steps: int, modulus: int, *, messages: bool
) -> tuple[tuple[str, ...], str, str] | None:
    """Returns arguments, change and reason if integers of batch k do not fit their machine words, or None.

    The batch has g = `steps` per unit of reward and m = `modulus`. With `messages` every user draws a share of the
    noise. Noise with a width of NaN never fits.
    """
    most = MAX_MESSAGE if messages else MAX_MODULUS
    if not 1 <= steps <= MAX_STEPS:
        return ("epsilon", "scale", "horizon"), "must be smaller", f"{steps:,} steps per unit of reward, at most 2^24"
    if not 2 <= modulus <= most:
        return ("scale", "horizon"), "must be smaller", f"a ring of {modulus:,} integers, at most {most:,}"
    if not noise.width(k) <= MAX_WIDTH:
        return ("epsilon",), "must be larger", f"noise of scale {noise.width(k):,.0f} steps, at most 2^25"
    return None
