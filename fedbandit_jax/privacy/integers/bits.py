"""Randomised response: every user rounds their reward to one bit, and flips it by chance, so messages are bounded.

A reward x in [0, 1] becomes the bit B, which is 1 with probability x (mean-preserving). The user flips it with
probability q = 1 / (1 + e^epsilon) (Warner 1965), and sends it. The server adds up n bits to Y and reads (Y - n q) / (1
- 2 q), an unbiased sum of rewards. The ratio of probabilities of a message is at most (1 - q) / q. So each message is
epsilon-DP for any replacement of its reward (trust model: local). No user, honest or not, moves a sum that is read by
more than c = 1 / (1 - 2 q) = (e^epsilon + 1) / (e^epsilon - 1).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import random, struct, wide
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy.accounting.visits import PureDP
from fedbandit_jax.privacy.integers.noise import Asked, Noise, Parameters, SumProof
from fedbandit_jax.privacy.integers.ring import Decoded, Halves, RingSum, encode

CORRUPTED = "corrupted users, who replace their own message"
WORDS = 2.0**32  # values of a random word, which decides a flip


def stretch(q: Any) -> Any:
    """Returns c = 1 / (1 - 2 q), by which the server stretches a sum of bits that are flipped with probability q."""
    return 1 / (1 - 2 * q)


@struct.sealed
@struct.pytree
class FlippedBits(Noise):
    """Flips of users' bits, with probability `size`, as a share that is added modulo 2.

    A flip is drawn by comparing a 32-bit word with q 2^32, rounded up. The certificate reads this probability. q is
    2^-32 at least, since compiled programs take far smaller numbers for 0.
    """

    trust = "local: every user flips the bit of their own reward by chance; no other party is trusted"
    trusted = "nobody"
    assumes = ()
    per_user = True

    @override
    @classmethod
    def parameters(cls, asked: Asked, n: int) -> Parameters:
        """Returns the parameters. By Hoeffding flips and rounding change a sum by c sqrt(n / 2 ln(2/p)) at most."""
        q = max(1 / (1 + math.exp(asked.epsilon)), 1 / WORDS)
        s = stretch(q) * math.sqrt(n / 2) if q < 0.5 else math.inf
        return Parameters(n, steps=1, slack=0, size=q, s=s, h=0.0, wrapping=0.0)

    @override
    def share(self, key: Array, k: Array, n: Array, shape: tuple[int, ...]) -> Array:
        return (jax.random.bits(key, shape) < self.words(k)).astype(jnp.int32)

    def words(self, k: Any) -> Array:
        """Returns how many of all 2^32 words flip a bit in batch k."""
        return jnp.ceil(self._at(k) * jnp.float32(WORDS)).astype(jnp.uint32)

    def probability(self, k: int) -> float:
        """Returns the probability of a flip in batch k, as it is drawn; NaN if it may be drawn as 0."""
        q = super().width(k)
        return float(np.ceil(q * WORDS) / WORDS) if q >= 1 / WORDS else math.nan

    @override
    def width(self, k: int) -> float:
        q = self.probability(k)
        epsilon = abs(math.log((1 - q) / q)) if 0 < q < 1 else math.nan
        return 1 / epsilon if epsilon else math.inf

    @override
    def law(self, k: int, n: int) -> Any:
        raise BadValue("sums", "must have noise whose law is the same for all rewards", self, got="flipped bits")

    @override
    def missing(self, k: int, n: int, *, shares: bool) -> float:
        return 0.0

    @override
    def proof(self, k: int, n: int, shift: int, modulus: int) -> SumProof:
        if shift != 1:
            raise ValueError(f"a message is one bit, not one of {shift} steps")
        pure = 1 / self.width(k)
        return SumProof(pure, PureDP(pure).rdp, lambda delta: pure)

    @override
    def bits(self, n: int, modulus: int) -> int:
        return 1


@struct.sealed
@struct.pytree
class FlippedSum(RingSum):
    """Sums of bits that users flip; `noise` is `FlippedBits`, and no sum leaves its ring.

    If `cheats`, a user with an infinite reward is corrupted, and sends an unflipped bit. The certificate leaves out
    this user. Nobody can do more to a sum.
    """

    messages: bool = struct.static(default=True)
    cheats: bool = struct.static(default=False)

    @override
    def collect(self, rounding: Array, own: Array, k: Array, rewards: Halves, inside: Halves) -> Wide:
        x, there = jnp.concatenate(rewards), jnp.concatenate(inside)
        return wide.total(jnp.where(there, self._sent(rounding, own, k, x), 0).astype(jnp.uint32))

    @override
    def randomize(self, rounding: Array, own: Array, k: Array, x: Array) -> Wide:
        return wide.from_int32(self._sent(rounding, own, k, x))

    def _sent(self, rounding: Array, own: Array, k: Array, x: Array) -> Array:
        flips = self.noise.share(own, k, self._n(k), x.shape)
        if self.cheats:
            flips = jnp.where(jnp.isinf(x), 0, flips)
        return encode(x, random.uniform(rounding, x.shape), 1.0).astype(jnp.int32) ^ flips

    @override
    def proof(self, k: int) -> SumProof:
        if type(self.noise) is not FlippedBits:
            raise ValueError(f"{type(self.noise).__name__} flips no bits")
        return super().proof(k)

    @override
    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        q, n = self.noise._at(k), self._n(k).astype(jnp.float32)
        return Decoded((wide.to_float(collected) - n * q) * stretch(q), jnp.zeros(collected.low.shape, bool))

    @override
    def stds(self) -> np.ndarray:
        q = np.asarray(self.noise.size, np.float64)
        return np.sqrt(np.asarray(self.users) * q * (1 - q)) * stretch(q)

    @property
    @override
    def not_covered(self) -> tuple[str, ...]:
        return (*[CORRUPTED] * self.cheats, *super().not_covered)

    @override
    def failure(self, k: int) -> float:
        return 0.0
