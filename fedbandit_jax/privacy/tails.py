"""Normal and exponential noise from 128 random bits a draw, so that its tails do not end where privacy could see it.

A float32 draw made of 23 bits, such as that of `jax.random.normal`, ends 5.4 standard deviations from 0. A user who
moves a sum by one standard deviation then shows herself with probability 5e-6, whatever epsilon and delta say. Here a
draw is the point beyond which a law has the mass U (for a normal, U / 2), U = (k + 1/2) / 2^127 for a random k = 0,
..., 2^127 - 1. U and 1 - U are computed to a relative error of 2^-23 each, so that a draw is as fine as float32 from
next to 0 to the last of it. With ideal random bits, a draw is therefore one of the continuous law, rounded, except that
what lies beyond the last value is missing: an event has at most the probability `CUT` more or less.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core.random import bits

CUT = 2.0**-127  # twice the mass of the law beyond the last value of a draw, for a normal both sides together
NORMAL_REACH = 13.10863  # the largest |normal|: the standard normal law has mass 2^-129 on either side beyond it
EXPONENTIAL_REACH = 88.7228  # the largest exponential, 128 ln 2
_LN2 = math.log(2)

# Algorithm AS 241, PPND7, of Wichura (1988): numerator and denominator, highest power first; right to 1e-7.
_CENTRAL = ((59.10937472, 159.29113202, 50.434271938, 3.3871327179), (67.1875636, 78.757757664, 17.895169469, 1.0))
_MIDDLE = ((0.17023821103, 1.3067284816, 2.75681539, 1.4234372777), (0.12021132975, 0.7370016425, 1.0))
_FAR = ((0.017337203997, 0.42868294337, 3.081226386, 6.657905115), (0.012258202635, 0.24197894225, 1.0))


@functools.partial(jax.jit, static_argnames="shape")
def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws standard normal float32 noise, right to a relative error of 5e-7 up to `NORMAL_REACH`.

    Args:
        key: a typed key, used once.
        shape: of the draws.
    """
    return _draw(key, shape, normal_of)


@functools.partial(jax.jit, static_argnames="shape")
def exponential(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws float32 noise of density e^-x, x > 0, right to a relative error of 4e-7 up to `EXPONENTIAL_REACH`.

    Args:
        key: a typed key, used once.
        shape: of the draws.
    """
    return _draw(key, shape, exponential_of)


def normal_of(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Maps four arrays of uint32 words to standard normal draws; the last bit of d is the sign."""
    q = 0.5 * 2.0**-64 * _scaled(~a, ~b, ~c, ~d)  # 1/2 - p, where p = U / 2 is the mass beyond the draw
    r = jnp.sqrt(_minus_log(a, b, c, d) + jnp.float32(_LN2))
    beyond = jnp.where(r <= 5, _ratio(_MIDDLE, r - 1.6), _ratio(_FAR, r - 5))
    size = jnp.where(q <= 0.425, q * _ratio(_CENTRAL, 0.180625 - q * q), beyond)
    return jnp.where(d & 1 == 1, size, -size)


def exponential_of(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Maps four arrays of uint32 words to exponential draws, -ln U."""
    near = -jnp.log1p(-(2.0**-64) * _scaled(~a, ~b, ~c, ~d))
    return jnp.where(a >> 31 == 1, near, _minus_log(a, b, c, d))


def _scaled(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Computes 2^64 U in float32, where the 127 bits of U are a, b, c and all but the last of d."""
    low = (_float(c) + (_float(d >> 1) + 0.5) * 2.0**-31) * 2.0**-32
    return _float(a) * 2.0**32 + _float(b) + low


def _float(word: Array) -> Array:
    return word.astype(jnp.float32)


def _minus_log(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Computes -ln U, to a relative error of 2^-22 where U < 1/2."""
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
    """Draws an array of this shape; `transform` maps four arrays of uint32 words to numbers, elementwise.

    The draws are joined from two halves, which makes a CPU store them (see `fedbandit_jax.core.random`).
    """
    size = math.prod(shape)
    half = (size + 1) // 2
    first, second, third, fourth = (bits(key, half, block * half) for block in range(4))
    return jnp.concatenate([transform(*first, *second), transform(*third, *fourth)])[:size].reshape(shape)
