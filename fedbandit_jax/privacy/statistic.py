"""The linear statistic (x x', x y): what one user adds to a message, how far she can move it, and how that is enforced.

A statistic is a pair of a symmetric matrix W (d, d) and a vector U (d,), held as the array [W | U] of shape (d, d + 1).
Its packed form is the vector of the D = d(d+1)/2 + d entries W_ii and sqrt 2 W_ij for i < j, row by row, times a scale
s, and U_i. Its squared Euclidean norm is s^2 ||W||_F^2 + ||U||_2^2: in that norm the joint sensitivity is measured.
Noise of standard deviation sigma on every packed entry becomes, unpacked, the symmetric matrix (sigma/s) (G + G') / 2,
where the entries of G are iid N(0, 1); its variance is (sigma/s)^2 on the diagonal and half of that off the diagonal.

What is summed may be x (y - 1/2) instead of x y, which moves by less. If all x have the same constant entry, y - 1/2 is
linear in x as y is, and arms are in the same order.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from fedbandit_jax.core import struct, wide
from fedbandit_jax.privacy.budget import MAX_NORM, sensitivity_sq

TOLERANCE = 1e-4  # excess of a norm over 1 that is not reported: float32 adds squares of 100 features to within this
ROUNDINGS = 1000  # how many partial sums that a user is in are rounded, unless fewer are known to be
ROUNDING = 2.0**-6  # the largest unit in the last place of so many partial sums, in standard deviations of the noise
SHARE = 2.0**-5  # that unit in terms of how far a user moves a sum
USERS = 2**18  # whose sum has a unit in the last place of 2^-5 at most: more are added up in parts where that can be


@struct.sealed
@dataclasses.dataclass(frozen=True)  # a NamedTuple would equal one of another class, and share its compiled program
class LinearStatistic:
    """The bounds of one user's (x x', x y): what the environment promises, and what is enforced where data enter.

    It is hashable, because it is part of the compiled program.
    """

    dim: int  # d
    unit_rewards: bool = True  # does the environment promise rewards in [0, 1]?
    clips: bool = True  # are rewards clipped to [0, 1], whatever is promised?
    fixed_contexts: bool = False  # are the features of every silo fixed and public?
    n_users: int = 0  # number of users who return and are told apart; 0 if every user is new
    constant: bool = False  # have all feature vectors the same constant entry?
    centred: bool = False  # is x (y - 1/2) summed, and not x y?
    gram_scale: float = 1.0  # s, factor on x x' in the packed form, in (0, 1]

    @classmethod
    def of(cls, spec: Any) -> LinearStatistic:
        """The statistic of the users of an environment with this `fb.Spec`."""
        return cls(
            dim=spec.dim,
            unit_rewards=spec.rewards_in_unit,
            fixed_contexts=spec.fixed_contexts,
            n_users=spec.n_users,
            constant=spec.constant,
        )

    def sensitivity_sq(self, adjacency: str) -> float:
        """The squared sensitivity of the packed form to one user, see `budget.sensitivity_sq`."""
        return sensitivity_sq(adjacency, self.centred, self.gram_scale)

    def rounding(self, users: int) -> float:
        """How much further one visit moves a packed sum than her exact row, if so many users are added up in steps.

        Products are float32, and rounded to the nearest step: an entry moves by a step and 2^-24 more at most.
        """
        return (step_of(users) + 2.0**-24) * math.sqrt(self.dim * (self.dim + 1)) if self.bounded else 0.0

    @property
    def bounded(self) -> bool:
        """Whether one user can move a sum by no more than the sensitivity, because rewards are in [0, 1]."""
        return self.clips or self.unit_rewards

    def admit(
        self, x: Float[Array, "d M"], y: Float[Array, " M"]
    ) -> tuple[Float[Array, "d M"], Float[Array, " M"], Bool[Array, " M"]]:
        """Scales features to norm <= 1, clips rewards to [0, 1], and reports which users broke a promise.

        Args:
            x: features, one column per silo's user.
            y: rewards, which are left as they are if they are neither promised nor clipped to be in [0, 1].

        Returns:
            The features, zero where they were not finite, the rewards, less 1/2 if `centred`, and whether the
            environment's promise (features of norm <= 1, rewards in [0, 1] if promised) was broken.
        """
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)  # sums of shorter floats move by more than one user
        square = (x * x).sum(0)
        finite = jnp.isfinite(square)
        x = jnp.where(finite, x * jnp.where(square > MAX_NORM**2, 1 / jnp.sqrt(square), 1), 0)
        broken = ~(square <= (1 + TOLERANCE) ** 2)
        centre = 0.5 if self.centred else 0.0
        if not self.bounded:
            return x, y - centre, broken
        if self.unit_rewards:
            broken |= ~((y >= 0) & (y <= 1))
        return x, jnp.clip(jnp.nan_to_num(y), 0, 1) - centre, broken

    def pack(self, statistics: Float[Array, "*n d d+1"]) -> Float[Array, "*n D"]:
        """Packs statistics [W | U] into vectors."""
        return pack(self._scaled(statistics, self.gram_scale))

    def unpack(self, vector: Float[Array, "*n D"]) -> Float[Array, "*n d d+1"]:
        """Unpacks vectors into statistics [W | U]; the inverse of `pack`."""
        return self._scaled(unpack(vector, self.dim), 1 / self.gram_scale)

    def _scaled(self, statistics: Array, scale: float) -> Array:
        if scale == 1:
            return statistics
        return statistics * np.append(np.full(self.dim, np.float32(scale)), np.float32(1))


def packed_size(dim: int) -> int:
    """D = d(d+1)/2 + d, the length of a packed statistic for d = `dim` features."""
    return dim * (dim + 3) // 2


def matrix_weights(size: int) -> Float[np.ndarray, " {size}"]:
    """The standard deviations of unit noise on the joint matrix of (x, y), in packed form, D = `size`.

    They are sqrt 2 on the d (d + 1) / 2 entries of the covariance, and 1 on the d entries of the bias.
    """
    dim = (math.isqrt(8 * size + 9) - 3) // 2
    return np.where(np.arange(size) < size - dim, np.float32(math.sqrt(2)), np.float32(1))


@functools.cache
def _layout(dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    row, column = np.triu_indices(dim)
    scale = np.where(row == column, 1, math.sqrt(2)).astype(np.float32)
    place = np.zeros((dim, dim), int)
    place[row, column] = place[column, row] = np.arange(len(row))
    for table in (row, column, scale, place):
        table.flags.writeable = False
    return row, column, scale, place


def pack(statistics: Float[Array, "*n d d+1"]) -> Float[Array, "*n D"]:
    """Packs statistics [W | U] into vectors."""
    dim = statistics.shape[-2]
    row, column, scale, _ = _layout(dim)
    return jnp.concatenate([statistics[..., row, column] * scale, statistics[..., dim]], axis=-1)


def unpack(vector: Float[Array, "*n D"], dim: int) -> Float[Array, "*n {dim} {dim}+1"]:
    """Unpacks vectors into statistics [W | U] with d = `dim`; the inverse of `pack`."""
    _, _, scale, place = _layout(dim)
    matrix = (vector[..., : len(scale)] / scale)[..., place]
    return jnp.concatenate([matrix, vector[..., len(scale) :, None]], axis=-1)


def pack_users(x: Float[Array, "*n d M"], y: Float[Array, "*n M"]) -> Float[Array, "*n D M"]:
    """Every user's packed [x x' | x y] from features x and rewards y."""
    row, column, scale, _ = _layout(x.shape[-2])
    outer = x[..., row, :] * x[..., column, :] * scale[:, None]
    return jnp.concatenate([outer, x * y[..., None, :]], axis=-2)


def added(x: Float[Array, "*n d M"], y: Float[Array, "*n M"], step: float = 1.0) -> Float[Array, "*n d d+1 M"]:
    """The summands [x x' | x y] of features x and rewards y, in units of a power of two."""
    return (x / step)[..., :, None, :] * jnp.concatenate([x, y[..., None, :]], -2)[..., None, :, :]


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
    """The step 2^-j to which the products in a user's row are rounded, so that int32 adds up so many users exactly.

    It is no smaller than 2^-21, so that products in steps are below `whole.LIMIT`.

    >>> -math.log2(step_of(10)), -math.log2(step_of(2_500)), -math.log2(step_of(2**19))
    (21.0, 19.0, 11.0)
    """
    return 2.0 ** -min(21, math.floor(math.log2((2**31 - 1) / (users * MAX_NORM**2))))


class Steps(NamedTuple):
    """The sum of all batches so far in whole steps, a 64-bit integer: exact, in whatever order rows are added.

    What a user adds is rounded by itself. So she moves the sum by her rounded row and by nothing else; and as the sum
    of whole steps and of noise that is rounded to them is their sum rounded, a release is post-processing of sum plus
    noise.
    """

    whole: wide.Wide  # (d, d + 1)
    step: Array  # () float32, a power of two

    def add(self, batch: Array) -> Steps:
        """The sum with one more batch sum (d, d + 1) added: int32 in steps, or float32, which is rounded to steps."""
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
