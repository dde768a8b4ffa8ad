"""Sums over users: exact, in whole steps or as two floats, and a test whether float32 alone is too coarse."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import wide
from fedbandit_jax.privacy.budget import MAX_NORM

ROUNDINGS = 1000  # rounded partial sums that a user is in, by default
ROUNDING = 2.0**-6  # the largest unit in the last place of these sums, in standard deviations of the noise
SHARE = 2.0**-5  # the same, in units of a user's move of a sum
USERS = 2**18  # added up at a time if possible; their sum has a unit in the last place of at most 2^-5


def too_coarse(users: int, std: float, move: float, roundings: int = ROUNDINGS) -> str:
    """Returns the objection to a float32 sum over `users` with noise of this standard deviation, or "".

    A user moves a sum by the row, and by the rounding of partial sums. Each adds up to a unit in the last place. For
    rows of norm 1 that unit is at most `ROUNDING` std here. Rounding errors of data that were not chosen for them are
    nearly independent. A thousand of them, in partial sums that grow evenly, then move the sum by about 0.12 std. They
    add 0.014 to mu^2, the squared distance in units of the noise. It is 1 for a move of the sum by std. For another
    number of `roundings` the unit is scaled to add the same.

    Much noise does not help if the user's own move is rounded. While a sum stays below a power of two, later rows leave
    that move unchanged. Beyond it the move is rounded to twice the unit. Suppose that the unit is at most `SHARE` of
    the move. Let errors in every entry be nearly independent and at most one unit. Then they change the square of the
    move by some 3 %, up or down. None of this is charged to epsilon.

    Args:
        users: the number of rows.
        std: standard deviation of the noise in the sum.
        move: distance for this noise. It is one user's move of the sum, times the excess of the noise over what the
            guarantee counts on.
        roundings: the number of rounded partial sums that a user is in.
    """
    last = float(np.spacing(np.float32(users)))
    if last <= min(ROUNDING * math.sqrt(ROUNDINGS / roundings) * std, SHARE * move):
        return ""
    return (
        f"float32 rounds a sum over {users:,} users to multiples of {last:g}, too coarse for noise of standard "
        f"deviation {std:.3g} and moves of {move:.3g} by one user"
    )


def step_of(users: int) -> float:
    """Returns the step 2^-j of rounded entries of summands. An int32 then adds up `users` exactly.

    It is no smaller than 2^-21, which keeps entries in steps below `whole.LIMIT`.

    >>> -math.log2(step_of(10)), -math.log2(step_of(2_500)), -math.log2(step_of(2**19))
    (21.0, 19.0, 11.0)
    """
    return 2.0 ** -min(21, math.floor(math.log2((2**31 - 1) / (users * MAX_NORM**2))))


class Steps(NamedTuple):
    """Sum of all batches so far in whole steps, a 64-bit integer. It is exact in any order of rows.

    A user's row is rounded by itself, and moves the sum by the rounded row only. The sum of whole steps and rounded
    noise is their sum, rounded. So a release is post-processing of sum plus noise.
    """

    whole: wide.Wide  # (d, d + 1)
    step: Array  # () float32, a power of two

    def add(self, batch: Array | wide.Wide) -> Steps:
        """Returns the sum with one more batch sum (d, d + 1), in steps, or in float32, which is rounded to steps."""
        if isinstance(batch, wide.Wide):
            return self._replace(whole=wide.add(self.whole, batch))
        if jnp.issubdtype(batch.dtype, jnp.integer):
            return self._replace(whole=wide.add(self.whole, wide.from_int32(batch)))
        return self._replace(whole=wide.add(self.whole, wide.from_float(batch / self.step)))

    def noisy(self, noise: Array) -> Array:
        """Returns the sum with noise, which is rounded to steps, in float32."""
        return self.add(noise).high

    @property
    def high(self) -> Array:
        """The sum [W | U], rounded to float32."""
        return wide.to_float(self.whole) * jnp.expand_dims(self.step, (-2, -1))


class Sums(NamedTuple):
    """Sum of all batches so far, as the difference of two floats, right to 2^-47 of its size a batch."""

    high: Array  # (d, d + 1) the sum [W | U], rounded to float32
    low: Array  # (d, d + 1) the rounding error of `high`: its excess over the sum

    def add(self, batch: Array) -> Sums:
        """Returns the sum with one more batch sum (d, d + 1) (Knuth's exact addition, and Dekker's)."""
        total = self.high + batch
        part = total - self.high
        low = self.low - ((self.high - (total - part)) + (batch - part))
        high = total - low
        return Sums(high, low - (total - high))

    def noisy(self, noise: Array) -> Array:
        """Returns the sum with noise, rounded to float32 after both are added.

        The rounding of `high` alone would reveal users. They move it by up to two units in its last place more than the
        sum.
        """
        return self.high + (noise - self.low)
