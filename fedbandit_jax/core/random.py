"""Random streams: named, independent, and functions of (key, round) only, so no result depends on chunking.

Bits come from Threefry-2x32 with 20 rounds, JAX's default generator, written as one unrolled elementwise expression
that uses both output words. In a loop on a CPU it is five times faster than `jax.random.bits`, their exclusive-or.

`normal` and `uniform` fill an array. `block_at` and functions of it (`direction`, `normal_at`, `uniform_at`) are
elementwise in key, arm and agent: each draw can be repeated wherever it is needed.
"""

import functools
import itertools
import math
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Int

from fedbandit_jax.core import control, validate
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.validate import BadType, BadValue

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
# Central and tail polynomials for float32 of M. Giles, "Approximating the erfinv function", 2010.
_CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
            -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
         -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def check_key(key: Any) -> Array:
    """Checks that `key` is a single typed Threefry key, as made by `jax.random.key(seed)`.

    Raises:
        TypeError: not a typed key.
        ValueError: an array of keys, or a key of another generator.

    >>> check_key(jax.random.PRNGKey(0))
    Traceback (most recent call last):
    fedbandit_jax.BadType: key must be a typed key such as jax.random.key(0), got a legacy uint32 array of shape (2,)
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        legacy = dtype == jnp.uint32
        got = f"a legacy uint32 array of shape {key.shape}" if legacy else validate.shown(key)
        raise BadType("key", "must be a typed key such as jax.random.key(0)", got, got=got)
    if key.shape != ():
        raise BadValue("key", "must be one key", key.shape, got=f"an array of keys of shape {key.shape}")
    if key.dtype != jax.random.key(0, impl="threefry2x32").dtype:
        impl = jax.random.key_impl(key)
        raise BadValue("key", "must use threefry2x32 (draws of others depend on batching)", impl, got=f"{impl}")
    return key


def of_seeds(key: Array, seeds: Int[np.ndarray, " S"]) -> Array:
    """Returns the keys `fold_in(key, i)` of seeds i, (S,), computed with NumPy, which compiles nothing."""
    low = seeds.astype(np.uint32)
    words = _threefry(tuple(np.asarray(jax.random.key_data(key))[:, None]), np.zeros_like(low), low)
    return jax.random.wrap_key_data(jax.device_put(np.stack(words, 1)), impl=jax.random.key_impl(key))


def stream(key: Array, name: str) -> Array:
    """Returns the key of a named stream, so the environment's draws do not depend on the algorithm's.

    Either fold a key or draw from it, never both: `fold_in(key, t)` has the words of `bits(key, ...)` at counter t.
    """
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def fold_in(key: Array, i: Array) -> Array:
    """Computes `jax.random.fold_in(key, i)`, unrolled like `bits`, which is faster in a loop on a CPU."""
    return jax.random.wrap_key_data(jnp.concatenate(bits(key, 1, i)))


@functools.partial(jax.jit, static_argnames="size")
def bits(key: Array, size: int, first: Array | int = 0) -> tuple[Array, Array]:
    """Returns both words of Threefry-2x32 at counters first .. first+size-1: two independent (size,) uint32 arrays."""
    counter = lax.iota(jnp.uint32, size) + jnp.uint32(first)
    return _threefry(key, jnp.zeros_like(counter), counter)


def _threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Computes both words of Threefry-2x32 at counters (high, low), broadcasting uint32 arrays of JAX or NumPy.

    The key is typed, or a tuple of its two words, which kernels accept.
    """
    k0, k1 = key if isinstance(key, tuple) else jax.random.key_data(key)
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = high + k0, low + k1
    for group in range(5):
        for r in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))
            x1 = x0 ^ x1
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def _unit(words: Array) -> Array:
    """Maps uint32 words to float32 uniform on the open interval (-1, 1), 2^23 values symmetric about 0.

    It adds one constant, since XLA would combine two first, and round.
    """
    steps = (words >> jnp.uint32(9)).astype(jnp.int32) - (1 << 22)
    return steps.astype(jnp.float32) * jnp.float32(2.0**-22) + jnp.float32(2.0**-23)


def unit(words: Array) -> Array:
    """Maps uint32 words to float32 uniform on the open interval (0, 1), 2^23 values."""
    return jnp.float32(0.5) * (_unit(words) + 1)


@jax.jit
def normal_pair(a: Array, b: Array) -> tuple[Array, Array]:
    """Maps two arrays of uint32 words to two independent standard normal draws of their shape (Box & Muller).

    They are accurate to about 4e-7, and meant for sums over many users.
    """
    radius = jnp.sqrt(-2 * jnp.log(unit(a)))
    cosine, sine = _circle(b)
    return radius * cosine, radius * sine


def _circle(words: Array) -> tuple[Array, Array]:
    """Maps uint32 words to points (cosine, sine) uniform on the unit circle.

    The two highest bits choose one of four arcs. The others choose the angle within it, by power series up to pi/4.
    """
    x = jnp.float32(math.pi / 4) * _unit(words << 2)
    square = x * x
    sine, cosine = x, jnp.ones_like(x)
    term = jnp.ones_like(x)
    for k in range(1, 5):
        term = term * (-square / (2 * k * (2 * k - 1)))
        cosine = cosine + term
        sine = sine + x * term / (2 * k + 1)
    quarter = (words >> 30) & 1 == 1
    return _signed(jnp.where(quarter, cosine, sine), words), _signed(jnp.where(quarter, sine, cosine), words)


def _signed(x: Array, words: Array) -> Array:
    changed = lax.bitcast_convert_type(x, jnp.uint32) ^ (words & jnp.uint32(1 << 31))
    return lax.bitcast_convert_type(changed, jnp.float32)


def erf_inv(x: Array) -> Array:
    """Computes the inverse error function on (-1, 1), float32, to about 3e-7 (Giles 2010); vectorised on a CPU."""
    w = -jnp.log((1 - x) * (1 + x))
    central, tail = jnp.float32(_CENTRAL[0]), jnp.float32(_TAIL[0])
    for a, b in zip(_CENTRAL[1:], _TAIL[1:]):
        central = jnp.float32(a) + central * (w - jnp.float32(2.5))
        tail = jnp.float32(b) + tail * (jnp.sqrt(w) - jnp.float32(3))
    return jnp.where(w < 5, central, tail) * x


@jax.jit
def block_at(key: Array | tuple[Array, Array], arm: Array, agent: Array, j: int | Array = 0) -> tuple[Array, Array]:
    """Returns two independent uint32 words for each (arm, agent), each below 2^24, and each j below 2^16."""
    j = jnp.asarray(j, jnp.uint32)
    return _threefry(key, arm + ((j & 255) << 24), agent + (j >> 8 << 24))


def uniform_at(key: Array | tuple[Array, Array], arm: Array, agent: Array, j: int = 0) -> Array:
    """Draws uniformly from (0, 1) for each (arm, agent), see `block_at`."""
    return unit(block_at(key, arm, agent, j)[0])


def normal_at(key: Array | tuple[Array, Array], arm: Array, agent: Array) -> Array:
    """Draws a standard normal for each (arm, agent), see `block_at`."""
    return jnp.float32(math.sqrt(2)) * erf_inv(_unit(block_at(key, arm, agent)[0]))


@functools.partial(jax.jit, static_argnames="n")
def direction(key: Array | tuple[Array, Array], arm: Array, agent: Array, n: int, t: Array) -> list[Array]:
    """Draws a uniform point of the unit sphere of R^n for each (arm, agent), as n coordinates.

    A uniform point of R^2p is p points of the plane with uniform angles. Their squared lengths are gaps between p - 1
    sorted uniform numbers in (0, 1). That needs no logarithm or division. An odd n drops one coordinate and scales the
    others to length 1. Everything is elementwise and unrolled.

    It uses the blocks j < (n + 1) // 2, see `block_at`. With one arm for each agent, a CPU stores their words, by any
    traced integer t (see `control.materialize`). It would otherwise draw them again for every coordinate.
    """
    p = (n + 1) // 2
    if on_cpu() and arm.ndim == 1:
        both = control.materialize(lambda: jnp.stack(block_at(key, arm, agent, jnp.arange(p)[:, None]), 1), t)
        drawn = list(both.reshape(2 * p, -1))
    else:
        drawn = [word for j in range(p) for word in block_at(key, arm, agent, j)]
    points = [_circle(word) for word in drawn[:p]]
    cuts = [jnp.float32(0), *_sorted([unit(word) for word in drawn[p : 2 * p - 1]]), jnp.float32(1)]
    squares = [high - low for low, high in itertools.pairwise(cuts)]
    scale = jnp.float32(1)
    if n % 2:  # squared length without the last coordinate
        scale = lax.rsqrt(cuts[-2] + squares[-1] * points[-1][0] * points[-1][0])
    lengths = [jnp.sqrt(square) * scale for square in squares]
    return [length * x for length, point in zip(lengths, points) for x in point][:n]


def long_direction(key: Array | tuple[Array, Array], arm: Array, agent: Array, n: int, t: Array) -> Array:
    """Draws points (M, K, n) with the law of `direction` for arms (K,) and agents (M,), for a large n.

    The squared lengths of the points of the plane are exponential draws, scaled to length 1 (Box & Muller). By any
    traced integer t, a CPU makes both coordinates of a point in one pass, see `control.materialize_pair`.
    """
    p = (n + 1) // 2
    arms, pairs = jnp.repeat(arm, p), jnp.tile(jnp.arange(p), len(arm))  # one long last axis, for vectorisation

    def points() -> tuple[Array, Array]:
        first, second = block_at(key, arms, agent[:, None], pairs)
        length = jnp.sqrt(-jnp.log(unit(first)))
        cosine, sine = _circle(second)
        return length * cosine, length * sine

    x = jnp.concatenate([x.reshape(len(agent), len(arm), p) for x in control.materialize_pair(points, t)], -1)[..., :n]
    return x * lax.rsqrt((x * x).sum(-1, keepdims=True))


def _sorted(values: list[Array]) -> list[Array]:
    """Sorts arrays elementwise, by the comparisons of Batcher's odd-even merge sort (Knuth, 5.2.2 M)."""
    values, n = list(values), len(values)
    p = top = 1 << max(0, (n - 1).bit_length() - 1)
    while p:
        q, rest, distance = top, 0, p
        while distance:
            for i in range(n - distance):
                if i & p == rest:
                    a, b = values[i], values[i + distance]
                    values[i], values[i + distance] = jnp.minimum(a, b), jnp.maximum(a, b)
            distance, q, rest = q - p, q // 2, p
        p //= 2
    return values


def _draw(key: Array, shape: tuple[int, ...], transform: Callable[[Array], Array]) -> Array:
    """Draws an array by an elementwise `transform` of uint32 words.

    The two words of a Threefry block are adjacent. So a CPU computes the block once for both. Joining two halves makes
    XLA:CPU store the draws. Every reader would compute them again otherwise.
    """
    size = math.prod(shape)
    blocks = -(-size // 4)
    halves = [transform(jnp.stack(bits(key, blocks, first), axis=-1)) for first in (0, blocks)]
    return jnp.concatenate(halves).reshape(-1)[:size].reshape(shape)


@functools.partial(jax.jit, static_argnames="shape")
def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws standard normal float32 for simulated data (privacy noise is `privacy.tails.normal`)."""
    return _draw(key, shape, lambda words: jnp.float32(math.sqrt(2)) * erf_inv(_unit(words)))


@functools.partial(jax.jit, static_argnames="shape")
def uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws float32 uniform on the open interval (0, 1)."""
    return _draw(key, shape, unit)
