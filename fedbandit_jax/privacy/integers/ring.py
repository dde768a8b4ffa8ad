"""Private sums of users' rewards: what users send, what aggregation keeps of it, what the server reads, what it proves.

P = (R, S, A) of Chowdhury & Zhou (2023), Algorithms 2-7. R: a user's x in [0, 1] becomes floor(x g) + Bernoulli(x g -
floor(x g)), plus integer noise, modulo m. S: the sum modulo m. A: residues above n g + tau are negative numbers, and
the sum of the x is their g-th part. All a simulation needs, unless somebody looks at the messages, is the sum of the
encoded rewards and the law of all noise together; one reduction modulo m at the end equals one after every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import control, random, struct, validate, wide
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy import noise as samplers
from fedbandit_jax.privacy.accounting.events import PureDP, Renyi, returning
from fedbandit_jax.privacy.accounting.relaxed import RelaxedSecAgg, relaxed_secagg
from fedbandit_jax.privacy.integers.noise import Noise, SumProof

FINE = 2**24  # steps per unit that lose nothing: float32 resolves no more
MAX_STEPS = 2**24  # g, the largest up to which float32 has every integer
MAX_MODULUS = 2**61
MAX_MESSAGE = 2**43  # m where users draw their shares: 2^19 blocks, each reduced modulo m, stay below 2^63
MAX_WIDTH = 2.0**25  # of integer noise, so that it fits in 32 bits
MAX_REAL = 1.001e9  # scale of real-valued noise, so that 2^24 of it fit in 64 bits

ORDERS = (2, 4, 8, 16, 32, 64)  # of the Renyi divergences listed
VISITS = (10, 100)
ROOM = 1e-9  # of epsilon: what float64 makes of a quotient
NOT_COVERED = (
    "how many users there are, and which arms they were given (that follows from earlier sums)",
    "what only a simulator sees: regret curves, checkpoints",
    "floating-point attacks: noise is pseudo-random; rounding, coins and rejection sampling use float32",
)
UNPROVED = (ValueError, ArithmeticError, IndexError)  # what the accountants raise at numbers that they do not take
SHARES = "users who drop out, collude with the server, or subtract their own share of the noise from the sum"


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

    users: Any  # (S,) int32: n_k; 0 for batches in which nobody may be asked
    bits: Any  # (S,) that a user sends in each batch

    def admits(self, k: Array, users: Array) -> Array:
        """May a batch of so many users be asked? The guarantee is for these batches, so the rest must learn nothing."""
        raise NotImplementedError(f"{type(self).__name__}.admits")

    def collect(self, key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Wide:
        """R and the sum of S, of a block of users: rewards in two halves (N / 2,), and who takes part."""
        raise NotImplementedError(f"{type(self).__name__}.collect")

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """S and A of the blocks' sums (K,)."""
        raise NotImplementedError(f"{type(self).__name__}.decode")

    def guarantee(self, epsilon: float, delta: float) -> Certificate:
        """What the batches that `admits` lets in prove, each user being in one of them: from the numbers that draw.

        Args:
            epsilon: asked for; the claim is lost if less is proved.
            delta: at which (epsilon, delta) is stated beside the notion of the noise.
        """
        raise NotImplementedError(f"{type(self).__name__}.guarantee")


def _collect_encoded(
    key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array], steps: Any
) -> Wide:
    coins = control.once(lambda: [random.unit(word) for word in random.bits(key, rewards[0].shape[-1])], k)
    halves = [jnp.where(i, encode(x, u, steps), 0) for x, u, i in zip(rewards, coins, inside)]
    return wide.total(halves[0] + halves[1])


@struct.sealed
@struct.pytree
class RealSum(SumProtocol):
    """The server is trusted and adds real-valued Laplace noise of scale 1/epsilon to every sum, or none.

    Rewards are counted on a grid that float32 does not resolve, so that sums of any size are exact.
    """

    scale: struct.Number
    users: Any  # (S,) int32: at most so many
    bits: Any  # (S,)

    def admits(self, k: Array, users: Array) -> Array:
        """No more than calibrated; the noise is that of any number."""
        return users <= jnp.asarray(self.users)[k]

    def collect(self, key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Wide:
        """Sum of the rewards in units of 2^-24."""
        return _collect_encoded(key, k, rewards, inside, jnp.float32(FINE))

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """Independent noise for every arm, in units of 2^-24: float32 would move large sums further than users do."""
        del k
        noise = samplers.laplace(key, self.scale, collected.low.shape)
        noisy = wide.add(collected, wide.from_float(noise * FINE))  # before float32 rounds the sum
        return Decoded(wide.to_float(noisy) / FINE, jnp.zeros(noise.shape, bool))

    def guarantee(self, epsilon: float, delta: float) -> Certificate:
        """See `SumProtocol`."""
        scale, releases = float(np.float32(self.scale)), int(np.count_nonzero(self.users))
        if not 0 < scale <= MAX_REAL:
            return no_privacy("the algorithm adds no noise" if scale == 0 else f"noise of scale {scale:g} is not drawn")
        if not releases:
            return _nothing_released()
        std = math.sqrt(2) * scale
        try:
            return _certificate(
                PureDP(1 / scale),
                at=delta,
                spent=1 / scale,
                trust="central: the server is trusted and adds the noise to every sum",
                notion="pure DP",
                epsilon=epsilon,
                delta=0.0,
                epsilon_exact=1 / scale,
                accountant="Laplace mechanism",
                noise_std=std,
                noise_whose="of an arm's sum of rewards",
                server_noise_std=std,
                releases=releases,
                not_covered=NOT_COVERED,
            )
        except UNPROVED as error:
            return _unproved(error)


@struct.sealed
@struct.pytree
class Aggregation:
    """How messages become their sum modulo m: exactly, or by a shuffler of bits that leaks a little (Theorem 3)."""

    epsilon: struct.Number = 0.0  # that the bits spend beside the noise; 0: nothing but the sum is seen
    failure: struct.Number = 0.0  # bound on the probability that a sum is lost, as somebody sent random bits

    def lost(self, n: Array) -> Array:
        """Probability that the sum of n users is lost."""
        return -jnp.expm1(n * jnp.log1p(-self.failure / n))

    def relaxed(self, n: int, modulus: int) -> RelaxedSecAgg | None:
        """How users turn residues into bits, on the host; None: they send residues."""
        epsilon, failure = float(self.epsilon), float(self.failure)
        return relaxed_secagg(epsilon, failure, n, modulus) if epsilon > 0 else None

    def bits(self, n: int, modulus: int) -> int:
        """That a user sends, on the host."""
        relaxed = self.relaxed(n, modulus)
        return relaxed.bits if relaxed else (modulus - 1).bit_length()

    @property
    def trust(self) -> str:
        """Who is trusted, where users add shares of the noise."""
        if self.epsilon > 0:
            return (
                "shuffle: each user adds a share of the noise and sends bits that a trusted shuffler mixes with all "
                "others'"
            )
        return "secure aggregation: each user adds a share of the noise, the server sees sums only and is not trusted"

    @property
    def assumes(self) -> tuple[str, ...]:
        """What is taken for granted of those who are trusted, and of all users."""
        return (SHARES, "bits that bypass the shuffler") if self.epsilon > 0 else (SHARES,)

    def behind(self, noise: SumProof) -> SumProof:
        """What is left of a proof: given the sum, the bits change any density by a factor e^epsilon at most.

        It is raised to alpha in a Renyi divergence, and multiplies the noise's delta.
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
    """Integers modulo m, which may exceed a machine word: see `wide`."""

    noise: Noise
    users: Any  # (S,) int32: n, exactly so many
    steps: Any  # (S,) g, steps per unit
    modulus: Wide  # (S,) m
    largest: Wide  # (S,) n g + tau: larger residues are negative numbers
    bits: Any  # (S,)
    aggregation: Aggregation = Aggregation()
    messages: bool = struct.static(default=False)  # does every user draw a share?

    def admits(self, k: Array, users: Array) -> Array:
        """As many as the noise is for: fewer would bring fewer shares of it."""
        return users == jnp.asarray(self.users)[k]

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
        noisy = wide.add(wide.from_int32(encoded), wide.from_int32(self.noise.share(own, k, self._n(k), x.shape)))
        return wide.mod(noisy, self._modulus(k))

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """See `SumProtocol`."""
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
        """What a user's part in the sum of batch k is proved to be, on the host.

        Raises:
            ValueError: not what this class can draw, or its accountant compute.
        """
        n, steps, modulus = self._sizes(k)
        wrong = misfit(self.noise, k, n, steps, modulus, messages=self.messages)
        if wrong:
            raise ValueError(wrong[1])
        return self.aggregation.behind(self.noise.proof(k, n, steps, modulus))

    def guarantee(self, epsilon: float, delta: float) -> Certificate:
        """See `SumProtocol`."""
        for part in (self.noise, self.aggregation):
            if not struct.is_sealed(part):
                return no_privacy(f"{type(part).__name__} is of the user's own making, and nothing is proved of it")
        asked = np.flatnonzero(self.users).tolist()
        if not asked:
            return _nothing_released()
        try:
            return self._guarantee(asked, epsilon, delta)
        except UNPROVED as error:
            return _unproved(error)

    def _guarantee(self, asked: Sequence[int], epsilon: float, delta: float) -> Certificate:
        noise, aggregation = self.noise, self.aggregation
        pure, shared = noise.notion == "pure DP", not (noise.at_server or noise.per_user)
        sizes, proofs = [self._sizes(k) for k in asked], [self.proof(k) for k in asked]
        laws = [noise.law(k, n) for k, (n, _, _) in zip(asked, sizes)]
        stds = [math.sqrt(law.variance) / steps for law, (_, steps, _) in zip(laws, sizes)]
        zcdp = max((proof.zcdp for proof in proofs if proof.zcdp), default=None)
        bits = [aggregation.bits(n, modulus) for n, _, modulus in sizes]
        return _certificate(
            Renyi(lambda alpha: max(proof.renyi(alpha) for proof in proofs)),
            at=delta,
            spent=max(steps / noise.width(k) for k, (_, steps, _) in zip(asked, sizes)) + float(aggregation.epsilon),
            trust=noise.trust or aggregation.trust,
            notion=noise.notion,
            epsilon=epsilon,
            delta=0.0 if pure else delta,
            epsilon_exact=max(proof.pure if pure else proof.at(delta) for proof in proofs),
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
        """How likely the noise of a sum wraps around the ring, or the sum is lost."""
        n, steps, modulus = self._sizes(k)
        largest = int(wide.to_int(self.largest)[k])
        above, below = largest - n * steps, modulus - 1 - largest  # tau on both sides
        wraps = float(np.sum(law.tail([above, below]))) if min(above, below) >= 0 else 1.0
        return min(1.0, wraps * math.exp(self.noise.distortion(k, n)) + float(self.aggregation.failure))

    def _sizes(self, k: int) -> tuple[int, int, int]:
        """n, g and m on the host."""
        steps = math.ceil(np.asarray(self.steps, np.float32)[k])
        return int(np.asarray(self.users)[k]), steps, int(wide.to_int(self.modulus)[k])

    def _n(self, k: Array) -> Array:
        return jnp.maximum(jnp.asarray(self.users)[k], 1)

    def _modulus(self, k: Array) -> Wide:
        return Wide(*(jnp.asarray(word)[k] for word in self.modulus))


def misfit(noise: Noise, k: int, n: int, steps: int, modulus: int, *, messages: bool) -> tuple[str, str] | None:
    """What must change, and why, where the integers of batch k would not fit in their machine words.

    A width that is not a number fits nowhere.
    """
    most = MAX_MESSAGE if messages else MAX_MODULUS
    if not 1 <= steps <= MAX_STEPS:
        return "epsilon, scale or horizon must be smaller", f"{steps:,} steps a reward, at most 2^24"
    if not 2 <= modulus <= most:
        return "scale or horizon must be smaller", f"a ring of {modulus:,} integers, at most {most:,}"
    if messages and n > noise.max_shares:
        return "horizon must be shorter with messages=True", f"{noise.max_shares:,.0f} users share noise at most"
    if not noise.width(k) <= MAX_WIDTH:
        return "epsilon must be larger", f"noise of scale {noise.width(k):,.0f} steps, at most 2^25"
    return None


def _certificate(event: PureDP | Renyi, *, at: float, spent: float, **fields: Any) -> Certificate:
    asked, notion = fields["epsilon"], fields["notion"]
    enough = spent <= asked * (1 + ROOM)
    return Certificate(
        claim="certified" if enough else "none",
        reason="noise of known law is on every sum that leaves the protocol, and each user is in one sum"
        if enough
        else f"the noise is that of {notion} with epsilon = {spent:g}, more than the {asked:g} asked for",
        adjacency="replace (one user's reward replaced by any other in [0, 1])",
        unit="one user, who comes once; for more see visits",
        releases_per_user=1.0,
        renyi=tuple((float(alpha), event.rdp(alpha)) for alpha in ORDERS),
        visits=tuple((n, at, *returning(event, at, n)) for n in VISITS),
        **fields,
    )


def _nothing_released() -> Certificate:
    reason = "nothing is released: the horizon is reached before the first batch of all arms ends"
    return Certificate(claim="certified", reason=reason, not_covered=NOT_COVERED)


def _unproved(error: Exception) -> Certificate:
    return no_privacy(f"nothing is proved of this noise: {error}")
