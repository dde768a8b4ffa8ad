"""Private sums of users' rewards modulo m: the messages, their decoding, and the certificate.

The protocol P = (R, S, A) of Chowdhury & Zhou (2023), Algorithms 2-7, for the n users of an arm in batch k:

* R: each user encodes a reward x in [0, 1] as floor(x g) + Bernoulli(x g - floor(x g)), for g steps per unit. The user
  adds integer noise, and sends the result modulo m.
* S: aggregation shows the server the sum of the messages modulo m.
* A: the server reads residues above n g + tau as negative numbers. Then it divides by g. The room for noise on either
  side is tau.

Unless somebody looks at single messages, the sum of encoded rewards and the law of all noise are enough for a
simulation. One reduction modulo m at the end equals one after every step. Replacing one user's reward (adjacency) moves
a sum by at most g steps. The privacy unit is one user, in one sum. Certificates also state epsilon for a user in n
different sums. Visits to the same sum are not covered. In array shapes, S is the number of batches.
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

from fedbandit_jax.certificate import BEYOND, Certificate, no_privacy
from fedbandit_jax.core import control, random, struct, wide
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting.visits import PureDP, Renyi, returning
from fedbandit_jax.privacy.bound import VISIT_TIMES
from fedbandit_jax.privacy.integers.noise import Asked, Noise, ServerNoise, SumProof
from fedbandit_jax.privacy.users import ONCE, Users, objection_to

FINE = 2**24  # steps per unit of an exact sum, the resolution of float32 rewards near 1
MAX_STEPS = 2**24  # largest g: float32 has every integer up to it
MAX_WIDTH = 2.0**25  # largest width of integer noise in steps: a draw fits in 32 bits
MAX_MODULUS = 2**61  # largest m: sums with their noise fit in 64 bits
MAX_MESSAGE = 2**42  # largest m if users draw shares: 2^21 blocks, each reduced modulo m, stay below 2^63
ORDERS = (2, 4, 8, 16, 32, 64)  # orders alpha at which a certificate lists the Renyi divergence
VISITS = (10, 100)  # numbers of visits, each in another sum, for which a certificate states epsilon
ROOM = 1e-9  # relative excess of epsilon by rounding in float64
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
    """Sums of integers modulo m (up to 2^61) with integer noise by users or the server, and its certificate.

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
        n, steps, modulus = self._sizes(k)
        if wrong := misfit(self.noise, k, steps, modulus, messages=self.messages):
            raise ValueError(wrong[2])
        return self.noise.proof(k, n, steps, modulus)

    @property
    def missing(self) -> float:
        """Bounds the mass of the never drawn tails, in the noise of one sum that a user is in."""
        asked = [(k, self._sizes(k)[0]) for k in np.flatnonzero(self.users).tolist()]
        return max((self.noise.missing(k, n, shares=self.messages) for k, n in asked), default=0.0)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the certificate does not cover."""
        return (*self.noise.assumes, *NOT_COVERED)

    def stds(self) -> np.ndarray:
        """Returns standard deviations (S,) of the noise on a sum, in units of reward; 0 in a batch without users."""
        sizes = [self._sizes(k) for k in range(len(self.users))]
        laws = (self.noise.law(k, n) if n and self.noise.width(k) else None for k, (n, _, _) in enumerate(sizes))
        return np.array([math.sqrt(law.variance) / steps if law else 0.0 for law, (_, steps, _) in zip(laws, sizes)])

    def guarantee(self, epsilon: float, delta: float, unit: Users | None = None, again: bool = False) -> Certificate:
        """Returns the certificate of all batches that `admits` lets in, on the host.

        Args:
            epsilon: the epsilon asked for; the claim is `none` if the noise spends more.
            delta: states (epsilon, delta) in addition to the noise's own notion of privacy. The claim is `none` if the
                tails that are never drawn cost more, also for pure DP.
            unit: bounds on the sums that one user is in, of different batches, which share epsilon. None: one sum, and
                the certificate lists what more of them prove.
            again: whether the environment's users return.
        """
        if not struct.is_sealed(self.noise):
            own = type(self.noise).__name__
            return no_privacy(f"nothing is proved of {own}, a user-defined noise")
        if unit is not None and (wrong := objection_to(unit)):
            return no_privacy(wrong)
        if unit is not None and (unit.most > 1 or unit.counts > 1):
            return no_privacy(f"sums of arms have no proof for users who contribute {unit.sentence}")
        if not any(self.noise.width(k) for k in range(len(self.users))):
            return no_privacy("the algorithm adds no noise")
        asked = np.flatnonzero(self.users).tolist()
        if not asked:
            reason = "nothing is released, because the horizon ends before the first batch of all arms"
            return Certificate(claim="certified", reason=reason, not_covered=NOT_COVERED)
        try:
            return self._guarantee(asked, epsilon, delta, unit, again)
        except (ValueError, ArithmeticError, IndexError) as error:  # the accountants refuse its numbers
            return no_privacy(f"nothing is proved of this noise: {error}")

    def _guarantee(
        self, asked: list[int], epsilon: float, delta: float, unit: Users | None, again: bool
    ) -> Certificate:
        noise, shuffled = self.noise, float(self.noise.bits_epsilon)
        pure, r = noise.notion == "pure DP", 1 if unit is None else unit.visits
        of_sum, missing = epsilon_of_each(epsilon, r, pure), r * self.missing
        sizes, proofs = [self._sizes(k) for k in asked], [self.proof(k) for k in asked]
        stds, bits = self.stds()[asked].tolist(), np.asarray(self.bits)[asked]
        zcdp = max((proof.zcdp for proof in proofs if proof.zcdp), default=None)
        spent = max(steps / noise.width(k) for k, (_, steps, _) in zip(asked, sizes)) + shuffled
        exact = max(proof.pure if pure else tails.epsilon(proof.at, delta, 0.0, self.missing) for proof in proofs)
        curve = Renyi(functools.cache(lambda alpha: max(proof.renyi(alpha) for proof in proofs)))  # asked at few orders
        known = [curve, PureDP(exact)] if pure else [curve]
        if unit is not None:
            exact = r * exact if pure else of_visits(known, r, delta, self.missing)[2]
        smallest, reason = tails.smallest_delta(exact, missing), ""
        if not spent <= of_sum * (1 + ROOM):
            reason = f"the noise is for {noise.notion} with epsilon = {spent:g}, more than the {of_sum:g} asked for"
        elif not smallest < delta:
            ideal = exact if math.isfinite(exact) else min(returning(curve, delta, r))
            reason = tails.sentence(tails.smallest_delta(ideal, missing), ideal, delta)
        sums = "one sum" if unit is None else f"{r} sums at most"
        proved = f"every sum that leaves the protocol has noise of a known distribution, and each user is in {sums}"
        return Certificate(
            claim="none" if reason else "certified",
            reason=reason or proved,
            adjacency="replace (one user's reward replaced by any other in [0, 1])",
            neighbours="replace",
            unit=(unit or ONCE).unit(enforced=again and unit is not None, returning=again)
            + "; the line visits covers more" * (unit is None),
            whole_user=unit is not None or not again,
            trust=noise.trust,
            trusted=noise.trusted,
            notion=noise.notion,
            epsilon=epsilon,
            delta=0.0 if pure else delta,
            epsilon_exact=exact,
            smallest_delta=smallest,
            accountant=f"exact distribution of the noise{' modulo m' if pure else ', smallest of several bounds'}"
            + (f"; {shuffled:g} of epsilon is for the shuffled bits" if shuffled else ""),
            noise_std=max(std / math.sqrt(n) if noise.per_user else std for std, (n, _, _) in zip(stds, sizes)),
            noise_whose="of a user's message" if noise.per_user else "of an arm's sum of rewards",
            server_noise_std=max(stds),
            releases=len(asked),
            releases_per_user=float(r),
            renyi=tuple((float(alpha), r * curve.curve(alpha)) for alpha in ORDERS),
            zcdp=(r * zcdp.rho, r * zcdp.xi) if zcdp else None,
            visits=tuple(of_visits(known, n, delta, self.missing) for n in VISITS) if unit is None else (),
            bits_per_user=(float(bits.min()), float(bits.max())),
            wrap_probability=max(map(self._wrong, asked)),
            not_covered=(*[VISIT_TIMES] * (unit is not None and again), *self.not_covered),
        )

    def _wrong(self, k: int) -> float:
        """Bounds the probability that the sum of batch k wraps or is lost."""
        n, steps, modulus = self._sizes(k)
        largest = int(wide.to_int(self.largest)[k])
        above, below = largest - n * steps, modulus - 1 - largest  # room for noise; both are tau
        wraps = float(np.sum(self.noise.law(k, n).tail([above, below]))) if min(above, below) >= 0 else 1.0
        return min(1.0, wraps * math.exp(self.noise.distortion(k, n)) + float(self.noise.bits_failure))

    def _sizes(self, k: int) -> tuple[int, int, int]:
        steps = math.ceil(np.asarray(self.steps, np.float32)[k])
        return int(np.asarray(self.users)[k]), steps, int(wide.to_int(self.modulus)[k])

    def _n(self, k: Array) -> Array:
        return jnp.maximum(jnp.asarray(self.users)[k], 1)

    def _modulus(self, k: Array) -> Wide:
        return Wide(*(jnp.asarray(word)[k] for word in self.modulus))


def epsilon_of_each(epsilon: float, visits: int, pure: bool) -> float:
    """Returns the epsilon of one of r = `visits` sums that share epsilon: epsilon / r for pure DP.

    Renyi divergences of alpha epsilon^2 / 2, and rho = epsilon^2 / 2, add up to the values for sqrt(r) epsilon.
    """
    return epsilon / (visits if pure else math.sqrt(visits))


def of_visits(
    proofs: Sequence[PureDP | Renyi], n: int, delta: float, missing: float
) -> tuple[int, float, float, float]:
    """Returns n, delta, and the epsilon that any of these proofs of one sum gives for n sums, by both rules.

    The rules are as in `returning`. `missing` is the mass of the tails that are never drawn, for one sum. It
    costs more delta for a larger epsilon.
    """

    @functools.cache  # tails may cost less than a digit
    def known(delta: float) -> tuple[float, float]:
        together, advanced = zip(*(returning(proof, delta, n) for proof in proofs))
        return min(together), min(advanced)

    def least(rule: int) -> float:
        return tails.epsilon(lambda delta: known(delta)[rule], delta, 0.0, n * missing)

    return n, delta, least(0), least(1)


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
