"""64-bit integers as two 32-bit words, since JAX has only 32-bit integers unless a global switch is set.

The representation is two's complement. `Wide(high, low)` is high 2^32 + low modulo 2^64. Functions are elementwise.
They work inside `jit` unless they say "on the host". Python integers are checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.core.validate import BadValue

_ROW = 64  # numbers that `total` adds in one word: 64 of at most 2^25 sum to less than 2^32


class Wide(NamedTuple):
    """An array of 64-bit integers, signed or unsigned depending on the function."""

    high: Array  # uint32, upper 32 bits
    low: Array  # uint32, lower 32 bits, same shape


def of(value: Any) -> Wide:
    """Converts a Python integer, or an array or nested sequence of them, in [-2^63, 2^64), on the host.

    >>> of(2**32 + 7)
    Wide(high=array(1, dtype=uint32), low=array(7, dtype=uint32))
    """
    array = np.asarray(value, dtype=object)
    for v in array.flat:
        if int(v) != v or not -(2**63) <= v < 2**64:
            raise BadValue("a 64-bit integer", "must be a whole number in [-2^63, 2^64)", v)
    words = [[(int(v) >> shift) & 0xFFFFFFFF for v in array.flat] for shift in (32, 0)]
    return Wide(*(np.array(word, np.uint32).reshape(array.shape) for word in words))  # pyright: ignore[reportArgumentType]


def to_int(x: Wide) -> np.ndarray:
    """Converts two's complement numbers to an object array of Python integers, on the host."""
    high = np.asarray(x.high).astype(np.int32).astype(object)
    return np.asarray(high * 2**32 + np.asarray(x.low).astype(object), object)


def from_int32(x: Array) -> Wide:
    """Converts int32 numbers by extending their sign."""
    return Wide((x >> 31).astype(jnp.uint32), x.astype(jnp.uint32))


def add(a: Wide, b: Wide) -> Wide:
    """Adds modulo 2^64."""
    low = a.low + b.low
    return Wide(a.high + b.high + (low < a.low).astype(jnp.uint32), low)


def neg(a: Wide) -> Wide:
    """Negates modulo 2^64."""
    return add(Wide(~a.high, ~a.low), Wide(jnp.zeros_like(a.high), jnp.ones_like(a.low)))


def sub(a: Wide, b: Wide) -> Wide:
    """Subtracts modulo 2^64."""
    return add(a, neg(b))


def less(a: Wide, b: Wide) -> Array:
    """Compares unsigned numbers, a < b."""
    return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low))


def negative(a: Wide) -> Array:
    """Returns whether a two's complement number is negative."""
    return (a.high >> 31).astype(bool)


def where(condition: Array, a: Wide, b: Wide) -> Wide:
    """Selects a where the condition holds and b elsewhere."""
    return Wide(jnp.where(condition, a.high, b.high), jnp.where(condition, a.low, b.low))


def shift_left(a: Wide, bits: int) -> Wide:
    """Multiplies by 2^bits modulo 2^64, for a static 0 <= bits < 32."""
    if not 0 <= bits < 32:
        raise BadValue("bits", "must be in [0, 32)", bits)
    if bits == 0:
        return a
    return Wide((a.high << bits) | (a.low >> (32 - bits)), a.low << bits)


def mod(a: Wide, modulus: Wide) -> Wide:
    """Computes a modulo m in [0, m) by long division, for a two's complement a and 1 <= m <= 2^62."""
    minus = negative(a)
    magnitude = where(minus, neg(a), a)

    def step(carry, _):
        rest, todo = carry
        rest = shift_left(rest, 1)
        rest = Wide(rest.high, rest.low | (todo.high >> 31))
        rest = where(less(rest, modulus), rest, sub(rest, modulus))
        return (rest, shift_left(todo, 1)), None

    shape = jnp.broadcast_shapes(jnp.shape(a.low), jnp.shape(modulus.low))
    zero = jnp.zeros(shape, jnp.uint32)
    todo = Wide(*(jnp.broadcast_to(word, shape) for word in magnitude))
    (rest, _), _ = lax.scan(step, (Wide(zero, zero), todo), None, length=64)
    flipped = minus & ((rest.high | rest.low) != 0)
    return where(flipped, sub(modulus, rest), rest)


def total(x: Array) -> Wide:
    """Sums fewer than 2^22 uint32 numbers over the last axis, each at most 2^25 (not checked)."""
    if x.shape[-1] >= 2**22:
        raise BadValue("x", "must have fewer than 2^22 numbers to add up", x.shape[-1], got=f"{x.shape[-1]:,}")
    short = -x.shape[-1] % _ROW
    rows = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, short)]) if short else x
    rows = rows.reshape(*x.shape[:-1], -1, _ROW).sum(-1, dtype=jnp.uint32)
    halves = (rows >> 16).sum(-1, dtype=jnp.uint32), (rows & 0xFFFF).sum(-1, dtype=jnp.uint32)
    high, low = (Wide(jnp.zeros_like(half), half) for half in halves)
    return add(shift_left(high, 16), low)


def add_up(x: Wide) -> Wide:
    """Sums modulo 2^64 over the last axis, more than 2^16 numbers by sums of 2^16."""
    if (n := x.low.shape[-1]) > 2**16:
        pad = [(0, 0)] * (x.low.ndim - 1) + [(0, -n % 2**16)]
        return add_up(add_up(Wide(*(jnp.pad(word, pad).reshape(*word.shape[:-1], -1, 2**16) for word in x))))
    limbs = [half.sum(-1, dtype=jnp.uint32) for word in (x.low, x.high) for half in (word & 0xFFFF, word >> 16)]
    result = Wide(jnp.zeros_like(limbs[0]), limbs[0])
    for place, limb in enumerate(limbs[1:], 1):
        wide = shift_left(Wide(jnp.zeros_like(limb), limb), 16)
        result = add(result, wide if place == 1 else Wide(limb if place == 2 else wide.low, jnp.zeros_like(limb)))
    return result


def from_float(x: Array) -> Wide:
    """Rounds float32 numbers of size below 2^63 to the nearest integers."""
    size = jnp.abs(jnp.round(x))
    high = jnp.floor(size * jnp.float32(2.0**-32))
    magnitude = Wide(high.astype(jnp.uint32), (size - high * jnp.float32(2.0**32)).astype(jnp.uint32))
    return where(x < 0, neg(magnitude), magnitude)


def to_float(a: Wide) -> Array:
    """Converts two's complement numbers to float32, to a relative error of 2^-23."""
    minus = negative(a)
    magnitude = where(minus, neg(a), a)
    value = magnitude.high.astype(jnp.float32) * jnp.float32(2.0**32) + magnitude.low.astype(jnp.float32)
    return jnp.where(minus, -value, value)
