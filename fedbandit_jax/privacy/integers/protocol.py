"""Private sums of users' rewards: the messages, their decoding, the certificate, and sums on a grid.

The protocol P = (R, S, A) of Chowdhury & Zhou (2023), Algorithms 2-7, for the n users of an arm in batch k:

* R: each user encodes a reward x in [0, 1] as floor(x g) + Bernoulli(x g - floor(x g)), for g steps per unit, adds
  integer noise, and sends the result modulo m.
* S: aggregation shows the server the sum of the messages modulo m.
* A: the server reads residues above n g + tau as negative numbers, and divides by g. The room for noise on either side
is tau.

Replacing one user's reward (adjacency) moves a sum by at most g steps. The privacy unit is one user, in one sum.
Certificates also state epsilon for a user in n different sums; visits to the same sum are not covered. In array shapes,
S is the number of batches. Sums modulo m are in `ring.py`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.certificate import BEYOND, Certificate, no_privacy
from fedbandit_jax.core import control, random, struct, wide
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy import samplers, tails
from fedbandit_jax.privacy.accounting import events
from fedbandit_jax.privacy.accounting.events import PureDP, Renyi

FINE = 2**24  # steps per unit of an exact sum, the resolution of float32 rewards near 1
MAX_STEPS = 2**24  # largest g: float32 has every integer up to it
MAX_WIDTH = 2.0**25  # largest width of integer noise in steps: a draw fits in 32 bits
GRID_WIDTH = 2.0**12  # width of the noise of a `GridSum` in steps, if 1 to 2^24 steps per unit allow it
ORDERS = (2, 4, 8, 16, 32, 64)  # orders alpha at which a certificate lists the Renyi divergence
VISITS = (10, 100)  # numbers of visits, each in another sum, for which a certificate states epsilon
ROOM = 1e-9  # relative excess of epsilon by rounding in float64
NOT_COVERED = (
    "how many users there are, and which arms they were given (that follows from earlier sums)",
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


class SumProtocol:
    """A protocol for a noisy sum of the rewards of an arm's users in a batch, and its certificate for each user."""

    users: Any  # (S,) int32 number of users of an arm in each batch, 0 if nobody may be asked
    bits: Any  # (S,) bits that a user sends in each batch

    def admits(self, k: Array, users: Array) -> Array:
        """Returns whether batch k may ask `users` users of an arm; the guarantee covers no other size."""
        raise NotImplementedError(f"{type(self).__name__}.admits")

    def collect(self, rounding: Array, own: Array, k: Array, rewards: Halves, inside: Halves) -> Wide:
        """Encodes and adds up the rewards of a block of N users of one arm (R, and the sum of S), a scalar.

        `rewards`, and the mask `inside` of participants, come in two halves (N / 2,). The block has a key for
        `rounding`, and one for the users' `own` shares of the noise.
        """
        raise NotImplementedError(f"{type(self).__name__}.collect")

    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        """Reads noisy sums from the sums (K,) over all blocks: noise that users did not add, the rest of S, and A."""
        raise NotImplementedError(f"{type(self).__name__}.decode")

    def stds(self) -> np.ndarray:
        """Returns standard deviations (S,) of the noise on a sum, in units of reward; 0 in a batch that asks nobody."""
        raise NotImplementedError(f"{type(self).__name__}.stds")

    @property
    def missing(self) -> float:
        """Bound on the mass of the tails that are never drawn, in the noise of one sum that a user is in."""
        raise NotImplementedError(f"{type(self).__name__}.missing")

    def guarantee(self, epsilon: float, delta: float, visits: tuple[int, ...] = VISITS) -> Certificate:
        """Returns the certificate of all batches that `admits` lets in, with each user in one of them, on the host.

        It is computed from the numbers that the noise is drawn with.

        Args:
            epsilon: the epsilon asked for; the claim is `none` if the noise spends more.
            delta: states (epsilon, delta) in addition to the noise's own notion of privacy. The claim is `none` if the
                tails that are never drawn cost more, also for pure DP.
            visits: numbers of different sums of one user; the certificate lists what each proves.
        """
        if fault := self._fault():
            return no_privacy(fault)
        asked = np.flatnonzero(self.users).tolist()
        if not asked:
            reason = "nothing is released: the horizon is reached before the first batch of all arms ends"
            return Certificate(claim="certified", reason=reason, not_covered=NOT_COVERED)
        try:
            return self._guarantee(asked, epsilon, delta, visits)
        except (ValueError, ArithmeticError, IndexError) as error:  # the accountants refuse its numbers
            return no_privacy(f"nothing is proved of this noise: {error}")

    def _fault(self) -> str:
        """Returns the objection to any claim, for any batches, or ""."""
        raise NotImplementedError(f"{type(self).__name__}._fault")

    def _guarantee(self, asked: list[int], epsilon: float, delta: float, visits: tuple[int, ...]) -> Certificate:
        """Returns the certificate of the batches `asked`, see `guarantee`."""
        raise NotImplementedError(f"{type(self).__name__}._guarantee")


def certify(
    event: PureDP | Renyi, *, at: float, missing: float, spent: float, visits: tuple[int, ...] = VISITS, **fields: Any
) -> Certificate:
    """Returns the certificate of `event`, one visit: no claim if `spent` exceeds the epsilon asked for, or tails `at`.

    `missing` is the mass of the tails that are never drawn. It costs more delta for a larger epsilon.
    """
    asked, notion, exact = fields["epsilon"], fields["notion"], fields["epsilon_exact"]
    smallest = tails.smallest_delta(exact, missing)
    reason = ""
    if not spent <= asked * (1 + ROOM):
        reason = f"the noise is that of {notion} with epsilon = {spent:g}, more than the {asked:g} asked for"
    elif not smallest < at:
        ideal = exact if math.isfinite(exact) else min(events.returning(event, at, 1))
        reason = tails.sentence(tails.smallest_delta(ideal, missing), ideal, at)

    def together(n: int) -> tuple[int, float, float, float]:
        known = functools.cache(lambda delta: events.returning(event, delta, n))  # tails may cost less than a digit

        def least(bound: int) -> float:
            return tails.epsilon(lambda delta: known(delta)[bound], at, 0.0, n * missing)

        return n, at, least(0), least(1)

    return Certificate(
        claim="none" if reason else "certified",
        reason=reason or "noise of known law is on every sum that leaves the protocol, and each user is in one sum",
        adjacency="replace (one user's reward replaced by any other in [0, 1])",
        neighbours="replace",
        unit="one user, who comes once; for more see visits",
        whole_user=True,
        releases_per_user=1.0,
        smallest_delta=smallest,
        renyi=tuple((float(alpha), event.rdp(alpha)) for alpha in ORDERS),
        visits=tuple(together(n) for n in visits),
        **fields,
    )


def collect_encoded(key: Array, k: Array, rewards: Halves, inside: Halves, steps: Any) -> Wide:
    """Returns the sum of the encoded rewards of all users inside, with coins from `key`; k is any integer."""
    size = rewards[0].shape[-1]
    coins = control.materialize_pair(lambda: [random.unit(word) for word in random.bits(key, size)], k, readers=steps)
    halves = [jnp.where(i, encode(x, u, steps), 0) for x, u, i in zip(rewards, coins, inside)]
    return wide.total(halves[0] + halves[1])


def grid(epsilon: float) -> int:
    """Returns g, a power of two: the steps per unit of reward for Laplace noise of scale 1 / epsilon."""
    return 2 ** min(max(math.floor(math.log2(GRID_WIDTH * epsilon)), 0), 24)


@struct.sealed
@struct.pytree
class GridSum(SumProtocol):
    """Sums with Laplace noise of scale 1/epsilon on a grid by the trusted server, or without noise.

    Users round their rewards to integers in 0..g at random. So replacing one user's reward moves a sum by at most g
    steps, for any coins. Sums are 64-bit integers, as is the added discrete Laplace noise of scale g/epsilon. Both
    neighbours' sums then have the same support. Sums of float32 numbers with float32 noise do not (Mironov 2012).
    Reading and rounding a noisy sum is post-processing.
    """

    scale: struct.Number  # of the noise, in steps; 0 for no noise
    steps: struct.Number  # g, steps per unit of reward
    users: Any  # (S,) int32 largest number of users of an arm in each batch
    bits: Any  # (S,) bits that a user sends in each batch

    @override
    def admits(self, k: Array, users: Array) -> Array:
        return users <= jnp.asarray(self.users)[k]

    @override
    def collect(self, rounding: Array, own: Array, k: Array, rewards: Halves, inside: Halves) -> Wide:
        return collect_encoded(rounding, k, rewards, inside, jnp.asarray(self.steps, jnp.float32))

    @override
    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        return self._decode(collected, samplers.discrete_laplace(key, self.scale, collected.low.shape))

    def _decode(self, collected: Wide, noise: Array) -> Decoded:
        noisy = wide.add(collected, wide.from_int32(noise))  # float32 may move a large sum more than users do
        return Decoded(wide.to_float(noisy) / self.steps, jnp.zeros(noise.shape, bool))

    @override
    def stds(self) -> np.ndarray:
        scale, steps = self._drawn()
        std = 1 / (math.sqrt(2) * math.sinh(1 / (2 * scale)) * steps) if scale > 0 else 0.0
        return np.where(np.asarray(self.users) > 0, std, 0.0)

    @property
    @override
    def missing(self) -> float:
        return samplers.LAPLACE_CUT

    def _drawn(self) -> tuple[float, float]:  # scale and steps as the sampler reads them
        return float(np.float32(self.scale)), float(np.float32(self.steps))

    @override
    def _fault(self) -> str:
        scale, steps = self._drawn()
        if not 0 < scale <= MAX_WIDTH:
            return "the algorithm adds no noise" if scale == 0 else f"noise of scale {scale:g} is not drawn"
        whole = 1 <= steps <= MAX_STEPS and steps == int(steps)
        return "" if whole else f"rewards are not rounded to {steps:g} steps per unit"

    @override
    def _guarantee(self, asked: list[int], epsilon: float, delta: float, visits: tuple[int, ...]) -> Certificate:
        scale, steps = self._drawn()
        std = float(self.stds().max())
        return certify(
            PureDP(steps / scale),
            at=delta,
            missing=self.missing,
            spent=steps / scale,
            visits=visits,
            trust="central: the server is trusted and adds the noise to every sum",
            trusted="server",
            notion="pure DP",
            epsilon=epsilon,
            delta=0.0,
            epsilon_exact=steps / scale,
            accountant="discrete Laplace mechanism",
            noise_std=std,
            noise_whose="of an arm's sum of rewards",
            server_noise_std=std,
            releases=len(asked),
            not_covered=NOT_COVERED,
        )
