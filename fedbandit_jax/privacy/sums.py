"""Sums over users: exact, in whole steps or as two floats, and when float32 alone is too coarse for them."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import wide
from fedbandit_jax.privacy.budget import MAX_NORM

ROUNDINGS = 1000  # how many partial sums that a user is in are rounded, unless fewer are known to be
ROUNDING = 2.0**-6  # the largest unit in the last place of so many partial sums, in standard deviations of the noise
SHARE = 2.0**-5  # that unit in terms of how far a user moves a sum
USERS = 2**18  # whose sum has a unit in the last place of 2^-5 at most: more are added up in parts where that can be


def too_coarse(users: int, std: float, move: float, roundings: int = ROUNDINGS) -> str:
    """The objection to a float32 sum over so many users with noise of that standard deviation, or "".

    A user moves a sum by her row, and by how partial sums are rounded: by up to a unit in the last place of each. With
    rows of norm 1 that unit is at most `ROUNDING` std here. Rounding errors of data that nobody chose for them are as
    good as independent. A thousand of them, in partial sums that grow evenly, then move the sum by about 0.12 std: they
    add 0.014 to mu^2, the squared distance in units of the noise, which is 1 for a user who moves the sum by std. With
    another number of `roundings` the unit may be such that they add as much.

    Much noise does not help a user whose move is itself rounded. As long as a sum stays below a power of two, whoever
    comes later leaves her move as it is, and beyond it her move is rounded to twice the unit. With a unit of at most
    `SHARE` of the move, errors in every entry that are as good as independent and at most one unit change its square by
    some 3 %, up or down. None of this is charged to epsilon.

    Args:
        users: how many rows are added up.
        std: standard deviation of the noise in the sum.
        move: the distance for which this noise is meant, i.e. that one user moves the sum by, times how much more noise
            is in the sum than her guarantee counts on.
        roundings: see above.
    """
    last = float(np.spacing(np.float32(users)))
    if last <= min(ROUNDING * math.sqrt(ROUNDINGS / roundings) * std, SHARE * move):
        return ""
    return (
        f"float32 rounds a sum over {users:,} users to multiples of {last:g}, too coarse for noise of standard "
        f"deviation {std:.3g} and users who move it by {move:.3g}"
    )


def step_of(users: int) -> float:
    """The step 2^-j to which entries of users' summands are rounded, so that int32 adds up so many users exactly.

    It is no smaller than 2^-21, so that entries in steps are below `whole.LIMIT`.

    >>> -math.log2(step_of(10)), -math.log2(step_of(2_500)), -math.log2(step_of(2**19))
    (21.0, 19.0, 11.0)
    """
    return 2.0 ** -min(21, math.floor(math.log2((2**31 - 1) / (users * MAX_NORM**2))))


class Steps(NamedTuple):
    """The sum of all batches so far in whole steps, a 64-bit integer: exact, in whatever order rows are added.

    A user's row is rounded by itself. So she moves the sum by her rounded row and by nothing else; and as the sum
    of whole steps and of noise that is rounded to them is their sum rounded, a release is post-processing of sum plus
    noise.
    """

    whole: wide.Wide  # (d, d + 1)
    step: Array  # () float32, a power of two

    def add(self, batch: Array | wide.Wide) -> Steps:
        """The sum with one more batch sum (d, d + 1) added: in steps, or float32, which is rounded to steps."""
        if isinstance(batch, wide.Wide):
            return self._replace(whole=wide.add(self.whole, batch))
        if jnp.issubdtype(batch.dtype, jnp.integer):
            return self._replace(whole=wide.add(self.whole, wide.from_int32(batch)))
        return self._replace(whole=wide.add(self.whole, wide.from_float(batch / self.step)))

    def noisy(self, noise: Array) -> Array:
        """The sum with noise, which is rounded to steps, in float32."""
        return self.add(noise).high

    @property
    def high(self) -> Array:
        """The sum [W | U], rounded to float32."""
        return wide.to_float(self.whole) * jnp.expand_dims(self.step, (-2, -1))


class Sums(NamedTuple):
    """The sum of all batches so far, as the difference of two floats; it is right to 2^-47 of its size a batch."""

    high: Array  # (d, d + 1) the sum [W | U], rounded to float32
    low: Array  # (d, d + 1) the rounding error by which `high` exceeds the sum

    def add(self, batch: Array) -> Sums:
        """The sum with one more batch sum (d, d + 1) added (Knuth's exact addition, and Dekker's)."""
        total = self.high + batch
        part = total - self.high
        low = self.low - ((self.high - (total - part)) + (batch - part))
        high = total - low
        return Sums(high, low - (total - high))

    def noisy(self, noise: Array) -> Array:
        """The sum with noise, rounded to float32 when both are added up.

        `high` alone would tell users apart by how it is rounded: they move it by up to two units in its last place more
        than the sum, whatever the noise.
        """
        return self.high + (noise - self.low)
