"""Private sums of users' rewards: what users send, what aggregation shows, what the server reads, and what is proved.

The protocol P = (R, S, A) of Chowdhury & Zhou (2023), Algorithms 2-7, for the n users of an arm in batch k:

* R: each user encodes a reward x in [0, 1] as floor(x g) + Bernoulli(x g - floor(x g)), where g is the number of steps
  per unit, adds integer noise, and sends the result modulo m.
* S: aggregation shows the server the sum of the messages modulo m.
* A: the server reads residues above n g + tau as negative numbers, tau being the noise that the ring has room for on
  either side, and divides by g.

Replacing one user's reward (adjacency) moves a sum by at most g steps; the privacy unit is one user, who is in one sum.
Certificates also state epsilon for a user who is in n different sums; visits that fall into one sum are not covered.
Unless somebody looks at single messages, a simulation needs only the sum of the encoded rewards and the law of all the
noise: one reduction modulo m at the end equals one after every step. In array shapes, S is the number of batches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import control, random, struct, validate, wide
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy.accounting import truncation
from fedbandit_jax.privacy.accounting.events import PureDP, Renyi
from fedbandit_jax.privacy.accounting.relaxed_secagg import RelaxedSecAgg, relaxed_secagg
from fedbandit_jax.privacy.integers.claims import NOT_COVERED, UNPROVED, certify, nothing_released, unproved
from fedbandit_jax.privacy.integers.shares import Noise, SumProof
from fedbandit_jax.privacy.samplers import integer as samplers

FINE = 2**24  # steps per unit of an exact sum: float32 rewards near 1 have no finer resolution
MAX_STEPS = 2**24  # largest g: float32 has every integer up to it
MAX_MODULUS = 2**61  # largest m, so that sums with their noise fit in 64 bits
MAX_MESSAGE = 2**42  # largest m if users draw shares: 2^21 blocks, each reduced modulo m, stay below 2^63
MAX_WIDTH = 2.0**25  # largest width of integer noise in steps, so that a draw fits in 32 bits
GRID_WIDTH = 2.0**12  # steps that the noise of a `GridSum` is wide, where 1 to 2^24 steps per unit allow that
SHARES = "users who drop out, collude with the server, or subtract their own share of the noise from the sum"


class Decoded(NamedTuple):
    """What the server reads from the sums of K arms."""

    sums: Array  # (K,) float32, noisy sums of rewards, in units of reward
    failed: Array  # (K,) bool: whether a sum wrapped or was lost; with single messages unknown, so False


def encode(x: Array, u: Array, steps: Array | float) -> Array:
    """Rounds rewards at random to integers in 0..g that are g times the reward in the mean (part of R).

    Args:
        x: rewards, of any shape; they are clipped to [0, 1], and NaN counts as 0.
        u: uniform numbers in (0, 1), which decide the rounding; their shape broadcasts against x.
        steps: g.

    Returns:
        uint32 integers of the broadcast shape.
    """
    z = jnp.where(x >= 0, jnp.minimum(x, 1), 0) * steps
    whole = jnp.floor(z)
    return (whole + (u < z - whole)).astype(jnp.uint32)


class SumProtocol:
    """How the users of an arm in a batch form a noisy sum of their rewards, and what that proves about each of them."""

    users: Any  # (S,) int32 number of users of an arm in each batch, 0 if nobody may be asked
    bits: Any  # (S,) bits that a user sends in each batch

    def admits(self, k: Array, users: Array) -> Array:
        """Returns whether batch k may ask so many users of an arm; the guarantee covers no batch of another size."""
        raise NotImplementedError(f"{type(self).__name__}.admits")

    def collect(
        self, rounding: Array, own: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]
    ) -> Wide:
        """Encodes and adds up the rewards of a block of N users of one arm (R, and the sum of S), a scalar.

        `rewards`, and `inside`, which says who takes part, come in two halves (N / 2,). The block has a key for
        `rounding`, and one for the users' `own` shares of the noise.
        """
        raise NotImplementedError(f"{type(self).__name__}.collect")

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """Reads noisy sums from the sums (K,) over all blocks: noise that users did not add, the rest of S, and A."""
        raise NotImplementedError(f"{type(self).__name__}.decode")

    def stds(self) -> np.ndarray:
        """Standard deviations (S,) of the noise on a sum, in units of reward; 0 in a batch that asks nobody."""
        raise NotImplementedError(f"{type(self).__name__}.stds")

    @property
    def missing(self) -> float:
        """Bounds the mass of the tails that are never drawn, in the noise of one sum that a user is in."""
        raise NotImplementedError(f"{type(self).__name__}.missing")

    def guarantee(self, epsilon: float, delta: float) -> Certificate:
        """Returns the certificate of all batches that `admits` lets in, where each user is in one of them.

        It is computed on the host, from the numbers that the noise is drawn with.

        Args:
            epsilon: what was asked for; the claim is `none` if the noise spends more.
            delta: at which (epsilon, delta) is stated beside the noise's own notion of privacy. The claim is `none` if
                the tails that are never drawn cost more, also for pure DP.
        """
        raise NotImplementedError(f"{type(self).__name__}.guarantee")


def _collect_encoded(
    key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array], steps: Any
) -> Wide:
    """Returns the sum of the encoded rewards of all users who are inside, with coins from `key`; k is any integer."""
    size = rewards[0].shape[-1]
    coins = control.once(lambda: [random.unit(word) for word in random.bits(key, size)], k, readers=steps)
    halves = [jnp.where(i, encode(x, u, steps), 0) for x, u, i in zip(rewards, coins, inside)]
    return wide.total(halves[0] + halves[1])


def grid(epsilon: float) -> int:
    """Returns g, the steps per unit of reward on which Laplace noise of scale 1 / epsilon is drawn, a power of two."""
    return 2 ** min(max(math.floor(math.log2(GRID_WIDTH * epsilon)), 0), 24)


@struct.sealed
@struct.pytree
class GridSum(SumProtocol):
    """Sums to which the server, which is trusted, adds Laplace noise of scale 1/epsilon on a grid, or no noise.

    Users round their rewards to integers in 0..g at random, so that replacing one user's reward moves a sum by at most
    g steps, whatever the coins. Sums are 64-bit integers, and so is the discrete Laplace noise of scale g/epsilon that
    is added: both neighbours' sums have the same support, which sums of float32 numbers with float32 noise do not have
    (Mironov 2012). What is read from a noisy sum, and how it is rounded then, is post-processing.
    """

    scale: struct.Number  # of the noise, in steps; 0 for no noise
    steps: struct.Number  # g, steps per unit of reward
    users: Any  # (S,) int32 largest number of users of an arm in each batch
    bits: Any  # (S,) bits that a user sends in each batch

    @override
    def admits(self, k: Array, users: Array) -> Array:
        return users <= jnp.asarray(self.users)[k]

    @override
    def collect(
        self, rounding: Array, own: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]
    ) -> Wide:
        return _collect_encoded(rounding, k, rewards, inside, jnp.asarray(self.steps, jnp.float32))

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """Adds independent noise to every sum in steps: float32 may move a large sum more than users do."""
        noise = samplers.discrete_laplace(key, self.scale, collected.low.shape)
        noisy = wide.add(collected, wide.from_int32(noise))  # the noise is added before float32 rounds the sum
        return Decoded(wide.to_float(noisy) / self.steps, jnp.zeros(noise.shape, bool))

    @override
    def stds(self) -> np.ndarray:
        scale, steps = (float(np.float32(number)) for number in (self.scale, self.steps))
        std = 1 / (math.sqrt(2) * math.sinh(1 / (2 * scale)) * steps) if scale > 0 else 0.0
        return np.where(np.asarray(self.users) > 0, std, 0.0)

    @property
    @override
    def missing(self) -> float:
        return samplers.LAPLACE_CUT

    def guarantee(self, epsilon: float, delta: float) -> Certificate:
        """Proves pure DP with epsilon = g / scale by the discrete Laplace mechanism, see `SumProtocol.guarantee`."""
        scale, steps = (float(np.float32(number)) for number in (self.scale, self.steps))
        releases = int(np.count_nonzero(self.users))
        if not 0 < scale <= MAX_WIDTH:
            return no_privacy("the algorithm adds no noise" if scale == 0 else f"noise of scale {scale:g} is not drawn")
        if not (1 <= steps <= MAX_STEPS and steps == int(steps)):
            return no_privacy(f"rewards are not rounded to {steps:g} steps per unit")
        if not releases:
            return nothing_released()
        try:
            std = float(self.stds().max())
            return certify(
                PureDP(steps / scale),
                at=delta,
                missing=self.missing,
                spent=steps / scale,
                trust="central: the server is trusted and adds the noise to every sum",
                notion="pure DP",
                epsilon=epsilon,
                delta=0.0,
                epsilon_exact=steps / scale,
                accountant="discrete Laplace mechanism",
                noise_std=std,
                noise_whose="of an arm's sum of rewards",
                server_noise_std=std,
                releases=releases,
                not_covered=NOT_COVERED,
            )
        except UNPROVED as error:
            return unproved(error)


@struct.sealed
@struct.pytree
class Aggregation:
    """How messages become their sum modulo m: exactly, or by a shuffler of bits that leaks a little (Theorem 3)."""

    epsilon: struct.Number = 0.0  # what bits spend in addition to the noise; 0 if only the sum is seen
    failure: struct.Number = 0.0  # bound on the probability that a sum is lost because a user sent random bits

    def lost(self, n: Array) -> Array:
        """Returns the probability that the sum of n users is lost, which is at most `failure`."""
        return -jnp.expm1(n * jnp.log1p(-self.failure / n))

    def relaxed(self, n: int, modulus: int) -> RelaxedSecAgg | None:
        """Returns how n users turn residues into bits, or None if they send the residues; on the host."""
        epsilon, failure = float(self.epsilon), float(self.failure)
        return relaxed_secagg(epsilon, failure, n, modulus) if epsilon > 0 else None

    def bits(self, n: int, modulus: int) -> int:
        """Returns the number of bits that one of n users sends, on the host."""
        relaxed = self.relaxed(n, modulus)
        return relaxed.bits if relaxed else (modulus - 1).bit_length()

    @property
    def trust(self) -> str:
        """Returns who adds the noise and who is trusted, if users add shares of it."""
        if self.epsilon > 0:
            return (
                "shuffle: each user adds a share of the noise and sends bits that a trusted shuffler mixes with all "
                "others'"
            )
        return "secure aggregation: each user adds a share of the noise, the server sees sums only and is not trusted"

    @property
    def assumes(self) -> tuple[str, ...]:
        """Returns what the guarantee does not cover because it assumes that it does not happen."""
        return (SHARES, "bits that bypass the shuffler") if self.epsilon > 0 else (SHARES,)

    def behind(self, noise: SumProof) -> SumProof:
        """Returns what remains of the proof for the noise if the server sees bits and not only the sum.

        Given the sum, the bits change any density by a factor of at most e^epsilon. The factor is raised to the power
        alpha in a Renyi divergence, and multiplies the delta of the noise.
        """
        bits = validate.non_negative("a shuffler's epsilon", float(self.epsilon))
        if bits == 0:
            return noise
        pure = noise.pure + bits
        least = PureDP(pure) if math.isfinite(pure) else None

        def renyi(alpha: float) -> float:
            shown = noise.renyi(alpha) + alpha / (alpha - 1) * bits
            return min(shown, least.rdp(alpha)) if least else shown

        return SumProof(pure, renyi, lambda delta: min(noise.at(delta * math.exp(-bits)) + bits, pure))


@struct.sealed
@struct.pytree
class RingSum(SumProtocol):
    """Sums of integers modulo m (up to 2^61), to which users or the server add integer noise, as `noise` says."""

    noise: Noise
    users: Any  # (S,) int32 number n of users of an arm in each batch, 0 if nobody may be asked
    steps: Any  # (S,) g, steps per unit of reward
    modulus: Wide  # (S,) the modulus m
    largest: Wide  # (S,) n g + tau: larger residues stand for negative numbers
    bits: Any  # (S,) bits that a user sends in each batch
    aggregation: Aggregation = Aggregation()
    messages: bool = struct.static(default=False)  # whether every user draws a share of the noise

    @override
    def admits(self, k: Array, users: Array) -> Array:
        return users == jnp.asarray(self.users)[k]

    @override
    def collect(
        self, rounding: Array, own: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]
    ) -> Wide:
        if not self.messages:
            return _collect_encoded(rounding, k, rewards, inside, jnp.asarray(self.steps)[k])
        x, there = jnp.concatenate(rewards), jnp.concatenate(inside)
        sent = self.randomize(rounding, own, k, x)
        return wide.mod(wide.add_up(wide.where(there, sent, wide.of(0))), self._modulus(k))

    def randomize(self, rounding: Array, own: Array, k: Array, x: Array) -> Wide:
        """Returns what every user sends (R), (N,) residues modulo m: encoded rewards x (N,) plus shares of the noise.

        The key `rounding` decides how rewards are rounded, and `own` draws the shares.
        """
        encoded = encode(x, random.uniform(rounding, x.shape), jnp.asarray(self.steps)[k]).astype(jnp.int32)
        noisy = wide.add(wide.from_int32(encoded), wide.from_int32(self.noise.share(own, k, self._n(k), x.shape)))
        return wide.mod(noisy, self._modulus(k))

    @override
    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        adding, coins, anywhere = jax.random.split(key, 3)
        shape, modulus, noisy = collected.low.shape, self._modulus(k), collected
        if self.noise.at_server or not self.messages:
            noisy = wide.add(collected, self.noise.total(adding, k, self._n(k), shape))
        shown = wide.mod(noisy, modulus)
        high, low = (jax.random.bits(word, shape) for word in jax.random.split(anywhere))
        anything = wide.mod(Wide(high >> 1, low), modulus)
        lost = jax.random.bits(coins, shape) < (self.aggregation.lost(self._n(k)) * 2.0**32).astype(jnp.uint32)
        shown = wide.where(lost, anything, shown)
        negative = wide.less(Wide(*(jnp.asarray(word)[k] for word in self.largest)), shown)
        read = wide.where(negative, wide.sub(shown, modulus), shown)
        failed = (read.high != noisy.high) | (read.low != noisy.low)
        return Decoded(wide.to_float(read) / jnp.asarray(self.steps)[k], failed & (not self.messages))

    def proof(self, k: int) -> SumProof:
        """Computes what is proved about one user's part in the sum of batch k, on the host.

        Raises:
            ValueError: this class cannot draw such noise, or the accountant cannot compute what it proves.
        """
        n, steps, modulus = self._sizes(k)
        wrong = misfit(self.noise, k, n, steps, modulus, messages=self.messages)
        if wrong:
            raise ValueError(wrong[1])
        return self.aggregation.behind(self.noise.proof(k, n, steps, modulus))

    @override
    def guarantee(self, epsilon: float, delta: float) -> Certificate:
        for part in (self.noise, self.aggregation):
            if not struct.is_sealed(part):
                return no_privacy(f"{type(part).__name__} is of the caller's own making, and nothing is proved of it")
        asked = np.flatnonzero(self.users).tolist()
        if not asked:
            return nothing_released()
        try:
            return self._guarantee(asked, epsilon, delta)
        except UNPROVED as error:
            return unproved(error)

    @property
    @override
    def missing(self) -> float:
        asked = [(k, self._sizes(k)[0]) for k in np.flatnonzero(self.users).tolist()]
        return max((self.noise.missing(k, n, shares=self.messages) for k, n in asked), default=0.0)

    @override
    def stds(self) -> np.ndarray:
        sizes = [self._sizes(k) for k in range(len(self.users))]
        laws = (self.noise.law(k, n) if n else None for k, (n, _, _) in enumerate(sizes))
        return np.array([math.sqrt(law.variance) / steps if law else 0.0 for law, (_, steps, _) in zip(laws, sizes)])

    def _guarantee(self, asked: Sequence[int], epsilon: float, delta: float) -> Certificate:
        noise, aggregation = self.noise, self.aggregation
        pure, shared = noise.notion == "pure DP", not (noise.at_server or noise.per_user)
        sizes, proofs = [self._sizes(k) for k in asked], [self.proof(k) for k in asked]
        laws = [noise.law(k, n) for k, (n, _, _) in zip(asked, sizes)]
        stds = self.stds()[asked].tolist()
        zcdp = max((proof.zcdp for proof in proofs if proof.zcdp), default=None)
        bits = [aggregation.bits(n, modulus) for n, _, modulus in sizes]
        return certify(
            Renyi(functools.cache(lambda alpha: max(proof.renyi(alpha) for proof in proofs))),  # asked at few orders
            at=delta,
            missing=self.missing,
            spent=max(steps / noise.width(k) for k, (_, steps, _) in zip(asked, sizes)) + float(aggregation.epsilon),
            trust=noise.trust or aggregation.trust,
            notion=noise.notion,
            epsilon=epsilon,
            delta=0.0 if pure else delta,
            epsilon_exact=max(
                proof.pure if pure else truncation.epsilon(proof.at, delta, 0.0, self.missing) for proof in proofs
            ),
            accountant=f"exact law of the noise{' modulo m' if pure else ', smallest of several bounds'}",
            noise_std=max(std / math.sqrt(n) if noise.per_user else std for std, (n, _, _) in zip(stds, sizes)),
            noise_whose="of a user's message" if noise.per_user else "of an arm's sum of rewards",
            server_noise_std=max(stds),
            releases=len(asked),
            zcdp=(zcdp.rho, zcdp.xi) if zcdp else None,
            bits_per_user=(float(min(bits)), float(max(bits))),
            wrap_probability=max(self._wrong(k, law) for k, law in zip(asked, laws)),
            not_covered=(*(aggregation.assumes if shared else ()), *NOT_COVERED),
        )

    def _wrong(self, k: int, law: Any) -> float:
        n, steps, modulus = self._sizes(k)
        largest = int(wide.to_int(self.largest)[k])
        above, below = largest - n * steps, modulus - 1 - largest  # room for noise; both are tau
        wraps = float(np.sum(law.tail([above, below]))) if min(above, below) >= 0 else 1.0
        return min(1.0, wraps * math.exp(self.noise.distortion(k, n)) + float(self.aggregation.failure))

    def _sizes(self, k: int) -> tuple[int, int, int]:
        steps = math.ceil(np.asarray(self.steps, np.float32)[k])
        return int(np.asarray(self.users)[k]), steps, int(wide.to_int(self.modulus)[k])

    def _n(self, k: Array) -> Array:
        return jnp.maximum(jnp.asarray(self.users)[k], 1)

    def _modulus(self, k: Array) -> Wide:
        return Wide(*(jnp.asarray(word)[k] for word in self.modulus))


def misfit(noise: Noise, k: int, n: int, steps: int, modulus: int, *, messages: bool) -> tuple[str, str] | None:
    """Returns what must change, and why, if integers of batch k do not fit in their machine words; None if all fit.

    The batch has n users, g = `steps` per unit of reward and m = `modulus`; with `messages` every user draws a share of
    the noise. Noise whose width is NaN never fits.
    """
    most = MAX_MESSAGE if messages else MAX_MODULUS
    if not 1 <= steps <= MAX_STEPS:
        return "epsilon, scale or horizon must be smaller", f"{steps:,} steps per unit of reward, at most 2^24"
    if not 2 <= modulus <= most:
        return "scale or horizon must be smaller", f"a ring of {modulus:,} integers, at most {most:,}"
    if not noise.width(k) <= MAX_WIDTH:
        return "epsilon must be larger", f"noise of scale {noise.width(k):,.0f} steps, at most 2^25"
    return None
