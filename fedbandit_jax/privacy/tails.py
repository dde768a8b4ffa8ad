"""Normal and exponential noise with far tails, and the cost of tails that are never drawn.

*Draws.* A float32 draw of 23 bits, as by `jax.random.normal`, ends at 5.4 standard deviations. A move of a sum by one
standard deviation is then exposed with probability 5e-6, for every epsilon and delta. Here a draw has 128 bits. It is
the point with the mass U beyond it (U / 2 for a normal). Here U = (k + 1/2) / 2^127 for a random k = 0, ..., 2^127 - 1.
Both U and 1 - U have a relative error of 2^-23. So draws are as fine as float32 from near 0 to the end. With ideal
random bits, a draw has the continuous law, rounded, without the part beyond the last value. The probability of an event
is wrong by at most `CUT`.

*Cost.* Let P and P' be the laws of all releases of a mechanism from two neighbouring data sets, for ideal noise. Let Q
and Q' be the laws for noise as it is drawn. Let a sampler leave out a mass c_i of draw i. It then changes the
probability of an event by at most `missing`, the sum of c_i over all draws that depend on the user. If P(A) <=
e^epsilon P'(A) + delta for every event A, then

    Q(A) <= P(A) + missing <= e^epsilon P'(A) + delta + missing <= e^epsilon Q'(A) + delta + (1 + e^epsilon) missing.

The factor e^epsilon is needed. Nothing else bounds an event that only one of the two data sets can release.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core.random import bits
from fedbandit_jax.core.validate import BadValue

CUT = 2.0**-127  # twice the mass of the law beyond the last value of a draw, for a normal both sides together
_LN2 = math.log(2)
_STEP, _TURNS = 1e-6, 100  # relative step, and most steps, of the search in `epsilon`

# Algorithm AS 241, PPND7, of Wichura (1988): numerator and denominator, highest power first; right to 1e-7.
_CENTRAL = ((59.10937472, 159.29113202, 50.434271938, 3.3871327179), (67.1875636, 78.757757664, 17.895169469, 1.0))
_MIDDLE = ((0.17023821103, 1.3067284816, 2.75681539, 1.4234372777), (0.12021132975, 0.7370016425, 1.0))
_FAR = ((0.017337203997, 0.42868294337, 3.081226386, 6.657905115), (0.012258202635, 0.24197894225, 1.0))


@functools.partial(jax.jit, static_argnames="shape")
def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws standard normal float32 noise, right to a relative error of 5e-7 up to the last value, 13.1."""
    return _draw(key, shape, normal_of)


@functools.partial(jax.jit, static_argnames="shape")
def exponential(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws float32 noise of density e^-x, x > 0, right to a relative error of 4e-7 up to the last value, 128 ln 2."""
    return _draw(key, shape, exponential_of)


def normal_of(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Maps four arrays of uint32 words to standard normal draws. The last bit of d is the sign."""
    q = 0.5 * 2.0**-64 * _scaled(~a, ~b, ~c, ~d)  # 1/2 - p, with the mass p = U / 2 beyond the draw
    r = jnp.sqrt(_minus_log(a, b, c, d) + jnp.float32(_LN2))
    beyond = jnp.where(r <= 5, _ratio(_MIDDLE, r - 1.6), _ratio(_FAR, r - 5))
    size = jnp.where(q <= 0.425, q * _ratio(_CENTRAL, 0.180625 - q * q), beyond)
    return jnp.where(d & 1 == 1, size, -size)


def exponential_of(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Maps four arrays of uint32 words to exponential draws, -ln U."""
    near = -jnp.log1p(-(2.0**-64) * _scaled(~a, ~b, ~c, ~d))
    return jnp.where(a >> 31 == 1, near, _minus_log(a, b, c, d))


def _scaled(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Returns 2^64 U in float32. The 127 bits of U are a, b, c and all but the last of d."""
    low = (_float(c) + (_float(d >> 1) + 0.5) * 2.0**-31) * 2.0**-32
    return _float(a) * 2.0**32 + _float(b) + low


def _float(word: Array) -> Array:
    return word.astype(jnp.float32)


def _minus_log(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Returns -ln U, to a relative error of 2^-22 for U < 1/2."""
    tiny = a == 0  # U itself may be too small for float32
    return jnp.where(tiny, jnp.float32(64 * _LN2), 0) - jnp.log(_scaled(a, b, c, d) * jnp.where(tiny, 1, 2.0**-64))


def _ratio(polynomials: tuple[tuple[float, ...], ...], x: Array) -> Array:
    values = []
    for coefficients in polynomials:
        value = jnp.full_like(x, coefficients[0])
        for coefficient in coefficients[1:]:
            value = value * x + jnp.float32(coefficient)
        values.append(value)
    return values[0] / values[1]


def _draw(key: Array, shape: tuple[int, ...], transform: Callable[..., Array]) -> Array:
    """Draws an array from four arrays of uint32 words. Its two halves make a CPU store it, see `core.random`."""
    size = math.prod(shape)
    half = (size + 1) // 2
    first, second, third, fourth = (bits(key, half, block * half) for block in range(4))
    return jnp.concatenate([transform(*first, *second), transform(*third, *fourth)])[:size].reshape(shape)


def smallest_delta(epsilon: float, missing: float) -> float:
    """Returns the smallest delta that any noise of that sampler gives at `epsilon`: (1 + e^epsilon) missing, or 1.

    >>> f"{smallest_delta(1.0, 1e-30):.3g}", smallest_delta(800.0, 1e-30)
    ('3.72e-30', 1.0)
    """
    if missing <= 0:
        return 0.0
    return math.exp(min(0.0, max(0.0, epsilon) + math.log1p(math.exp(-max(0.0, epsilon))) + math.log(missing)))


def check_delta(delta: float, missing: float) -> None:
    """Raises a ValueError if noise with tails that lack a mass of `missing` gives `delta` at no epsilon.

    >>> check_delta(1e-40, 1e-36)
    Traceback (most recent call last):
    fedbandit_jax.BadValue: delta must be larger than 2e-36, because the far tails of the noise are never drawn, \
got 1e-40
    """
    least = smallest_delta(0.0, missing)
    if not delta > least:
        why = "because the far tails of the noise are never drawn"
        raise BadValue("delta", f"must be larger than {least:.3g}, {why}", delta)


def sentence(smallest: float, epsilon: float, delta: float) -> str:
    """Returns the reason why nothing is certified if `delta` is not above the smallest delta at that epsilon."""
    if math.isinf(epsilon):
        return f"the far tails of the noise are never drawn, which costs more than delta = {delta:g}"
    return (
        f"the far tails of the noise are never drawn; so at epsilon = {epsilon:g} it gives no delta below "
        f"{smallest:.3g}, and {delta:g} was asked for"
    )


def epsilon(at: Callable[[float], float], delta: float, asked: float, missing: float) -> float:
    """Returns an epsilon that noise with missing tails gives at `delta`. It is infinite if there is none.

    Args:
        at: delta -> the smallest epsilon that is proved for the ideal law.
        delta: in (0, 1).
        asked: the epsilon that was asked for. If it is proved, tails are charged at it. Then the result is `at` for the
            rest of delta.
        missing: mass of the tails that are never drawn, over all draws.
    """
    charged = asked
    for _ in range(_TURNS):
        left = delta - smallest_delta(charged, missing)
        if not left > 0:
            return math.inf
        found = at(left)
        if not found > charged:
            return found
        charged = found * (1 + _STEP)
    return math.inf
