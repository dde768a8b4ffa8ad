"""Samplers of the noise distributions that JAX does not have, or not for large parameters.

Parameters may be traced, and broadcast against `shape`, the shape of the result. A sampler is called exact if it has
only two errors. Float32 arithmetic moves the logarithm of a probability by up to 1e-4. Far values of mass less than
`CUT` are never drawn. Nothing is calibrated here. Callers choose the parameters and state who adds the noise and what
it proves.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.core import wide
from fedbandit_jax.core.random import bits
from fedbandit_jax.privacy.tails import exponential, normal

# Bounds on the mass missing from a draw: discrete Laplace, discrete Gaussian, any sampler here but normal limits.
LAPLACE_CUT, GAUSSIAN_CUT, CUT = 2.0**-87, 2.0**-120, 2.0**-72
NORMAL_LIMIT = 1e6  # least variance of a centred binomial that is drawn as a rounded Gaussian
_DEBYE = 64.0  # least variance for the asymptotic expansion of a Skellam law
_TINY = 1e-30  # least probability and rate, for finite logarithms
_LN2 = 0.6931472

Shape = tuple[int, ...]


def discrete_laplace(key: Array, scale: Array | float, shape: Shape) -> Array:
    """Draws int32 integers with P(x) proportional to exp(-|x| / scale), for 0 <= scale <= 2^25, exactly.

    No rejection is needed. The result is 1 + a geometric variable with P(k) ~ e^(-k / scale), or minus that. It is 0
    with P(0) = tanh(1 / (2 scale)). Binary digit j of a geometric variable is 1 with probability 1 / (1 + e^(2^j /
    scale)), independently of the other digits. The digits with 2^j < scale are drawn from 32 bits each. Their
    probabilities are above 1/4. The rest, in units of the next power of two, is geometric, too, and as small as an
    exponential variable rounded down. It is drawn from 128 bits, up to 88 scales, or 61 near the end of 32 bits.
    """
    sides, lows, highs = jax.random.split(key, 3)
    scale = jnp.broadcast_to(jnp.asarray(scale, jnp.float32), shape)
    size = math.prod(shape)
    power = _powers(25, shape)
    words = jnp.concatenate(bits(lows, 13 * size)).reshape(-1, *shape)[:25]
    tilt = jnp.tanh(power / scale / 2) / 2  # P(digit = 0) - 1/2
    ones = (power < scale) & (words < jnp.uint32(2**31) - jnp.round(tilt * 2.0**32).astype(jnp.uint32))
    unit = jnp.where(power < scale, 2 * power, 1).max(0)
    count = jnp.minimum(jnp.floor(exponential(highs, shape) * (scale / unit)), 2.0**31 / unit - 2)
    low = (ones.astype(jnp.int32) << _column(25, len(shape))).sum(0)
    magnitude = 1 + low + count.astype(jnp.int32) * unit.astype(jnp.int32)
    plus, minus = _side(wide.Wide(*(word.reshape(shape) for word in bits(sides, size))), scale)
    return jnp.where(plus, magnitude, jnp.where(minus, -magnitude, 0))


def _side(words: wide.Wide, scale: Array) -> tuple[Array, Array]:  # positive, negative
    zero = wide.from_float(jnp.tanh(0.5 / scale) * 2.0**63)  # P(0), which 1 - 2 P(x > 0) would lose
    side = wide.sub(wide.Wide(jnp.full_like(words.high, 2**31), jnp.zeros_like(words.low)), zero)
    return wide.less(words, side), wide.less(wide.Wide(~words.high, ~words.low), side)


def discrete_laplace_sum(key: Array, scale: Array | float, n: Array | int, shape: Shape) -> wide.Wide:
    """Draws the sum of n independent discrete Laplace variables, exactly, for 1 <= n <= 2^30 in time independent of n.

    Each is the difference of two geometric variables. So digit by digit the sum is a difference of two binomials.
    """
    ones = 1 / (1 + jnp.exp(_powers(31, shape) / jnp.asarray(scale, jnp.float32)))  # P(digit = 1), lowest first
    counts = binomial(key, n, ones, (2, 31, *shape))

    def shift_add(total: wide.Wide, digit: Array) -> tuple[wide.Wide, None]:
        return wide.add(wide.shift_left(total, 1), wide.from_int32(digit)), None

    zero = jnp.zeros(shape, jnp.uint32)
    return lax.scan(shift_add, wide.Wide(zero, zero), counts[0] - counts[1], reverse=True)[0]


def discrete_gaussian(key: Array, sigma: Array | float, shape: Shape) -> Array:
    """Draws int32 integers with P(x) proportional to exp(-x^2 / (2 sigma^2)), for 1/2 <= sigma <= 2^25, exactly.

    Reference: Canonne, Kamath & Steinke (2020); their discrete Laplace proposal is replaced by a staircase.
    """
    sigma = jnp.asarray(sigma, jnp.float32)
    return _rejection(key, lambda x: -((x.astype(jnp.float32) / sigma) ** 2) / 2, sigma, shape)


def binomial(key: Array, n: Array | int, p: Array | float, shape: Shape) -> Array:
    """Draws Bin(n, p) as int32, exactly, for 0 <= n <= 2^30 and any p in [0, 1]."""
    n, p = jnp.asarray(n, jnp.int32), jnp.asarray(p, jnp.float32)
    q = jnp.clip(jnp.minimum(p, 1 - p), _TINY)
    mode, centre = _exact_product(n + 1, q)
    failures = (n - mode).astype(jnp.float32) + 0.5
    tilt = jnp.log1p(centre / (failures * q))  # ln of (mode + 1/2) / failures divided by q / (1 - q)

    def log_ratio(x: Array) -> Array:
        inside = (mode + x >= 0) & (mode + x <= n)
        return jnp.where(inside, -_factorial_ratio(mode, x) - _factorial_ratio(n - mode, -x) - x * tilt, -jnp.inf)

    k = mode + _rejection(key, log_ratio, jnp.sqrt(n * q * (1 - q)), shape, start=mode)
    return jnp.where(p > 0.5, n - k, k)


def poisson(key: Array, rate: Array | float, shape: Shape) -> Array:
    """Draws Poisson(rate) as int32, exactly, for 0 <= rate <= 1.8e9. Larger rates are cut to that."""
    rate = jnp.clip(jnp.asarray(rate, jnp.float32), _TINY, 1.8e9)
    mode = rate.astype(jnp.int32)
    tilt = jnp.log1p((0.5 - (rate - jnp.floor(rate))) / rate)

    def log_ratio(x: Array) -> Array:
        return jnp.where(mode + x >= 0, -_factorial_ratio(mode, x) - x * tilt, -jnp.inf)

    return mode + _rejection(key, log_ratio, jnp.sqrt(rate), shape, start=mode)


def skellam(key: Array, variance: Array | float, shape: Shape) -> Array:
    """Draws the difference of two independent Poisson(v / 2) as int32, exactly, for variances 0 <= v <= 2^52.

    From v = 64 on it uses rejection. P(x) / P(0) = I_x(v) / I_0(v), the modified Bessel functions, is computed by
    Debye's expansion with one correction (DLMF 10.41.3). The next correction would be below 2e-5.
    """
    few_key, many_key = jax.random.split(key)
    variance = jnp.asarray(variance, jnp.float32)
    few = poisson(few_key, jnp.minimum(variance, _DEBYE) / 2, (2, *shape))
    v = jnp.maximum(variance, _DEBYE)

    def log_ratio(x: Array) -> Array:
        z = x / v
        root = jnp.sqrt(1 + z**2)
        exponent = v * (z**2 / (1 + root) - z * jnp.arcsinh(z))
        correction = jnp.log1p((3 - 5 * (z / root) ** 2) / (24 * v * root)) - jnp.log1p(1 / (8 * v))
        return exponent - jnp.log1p(z**2) / 4 + correction

    return jnp.where(variance < _DEBYE, few[0] - few[1], _rejection(many_key, log_ratio, jnp.sqrt(v), shape))


def polya(key: Array, r: Array | float, scale: Array | float, shape: Shape) -> Array:
    """Draws Polya(r, beta) as int32: P(k) ~ Gamma(k + r) / k! beta^k with beta = e^(-1 / scale), 0 < r <= 1.

    The difference of two such draws is one user's share of noise. The sum over n users with r = 1 / n has the law of
    `discrete_laplace(scale)`, for scale <= 2^25. A draw is Poisson with a Gamma(r) rate of *scale* beta / (1 - beta).

    Reference: Chowdhury & Zhou (2023); their code uses the inverse of that scale.
    """
    gamma_key, poisson_key = jax.random.split(key)
    return poisson(poisson_key, gamma(gamma_key, r, shape) / jnp.expm1(1 / jnp.asarray(scale, jnp.float32)), shape)


def gamma(key: Array, r: Array | float, shape: Shape) -> Array:
    """Draws float32 Gamma(r) noise, x^(r-1) e^-x / Gamma(r), for 0 < r <= 1, with the tails of `tails.exponential`.

    It is an exponential variable times one of Beta(r, 1 - r). The latter is u / (u + v) given u + v <= 1 (Joehnk 1964).
    Here u = U^(1/r) and v = V^(1/(1-r)) with uniform U and V. At least 3/4 of all proposals are accepted.
    """
    beta_key, scale_key = jax.random.split(key)
    r = jnp.broadcast_to(jnp.asarray(r, jnp.float32), shape)

    def attempt(carry):
        i, kept, done = carry
        u, v = (exponential(half, shape) for half in jax.random.split(jax.random.fold_in(beta_key, i)))
        u, v = u / r, v / (1 - r)  # minus logarithms
        reject = jnp.exp(-u) + jnp.exp(-v) > 1
        return i + 1, jnp.where(done, kept, 1 / (1 + jnp.exp(u - v))), done | ~reject

    init = (jnp.int32(0), jnp.zeros(shape), jnp.zeros(shape, bool))
    return exponential(scale_key, shape) * lax.while_loop(lambda carry: ~carry[2].all(), attempt, init)[1]


def centred_binomial(key: Array, n: Array, shape: Shape, *, exact: bool) -> Array:
    """Draws Bin(n, 1/2) - n/2 as float32, as a rounded Gaussian if the variance n/4 is at least `NORMAL_LIMIT`.

    With `exact=False` the caller promises that the variance is that large everywhere. This saves the exact sampler.
    """
    normals, binomials = jax.random.split(key)
    limit = jnp.round(jnp.sqrt(n) / 2 * normal(normals, shape))
    if not exact:
        return limit
    few = jnp.minimum(n, 4 * NORMAL_LIMIT)
    return jnp.where(n < 4 * NORMAL_LIMIT, binomial(binomials, few.astype(jnp.int32), 0.5, shape) - few / 2, limit)


def _rejection(
    key: Array, log_ratio: Callable[[Array], Array], std: Array, shape: Shape, start: Array | int = 1
) -> Array:
    """Draws int32 integers x by rejection. Here ln P(x) is `log_ratio(x)` + a constant, concave with its maximum at 0.

    A proposal of law Q has three parts. A number h <= 31 of leading zeros has P(h) = 2^(-h-1). A place lies in cell h,
    the interval [h width, (h+1) width). The last part is a side of -1/2. All of these are integers from the bits of two
    words. A coin of 128 bits accepts or rejects. The width is a power of two, and at least 0.58 std. So by concavity P
    / Q is largest at the inner edge of a cell h <= 4 (tested). A third to a half of all proposals are accepted. Values
    beyond 32 cells are missing.

    `log_ratio` of an int32 array is -inf outside the support. `std` is about P's standard deviation. Negative x are not
    proposed if `start` is 0.
    """
    width = jnp.int32(1) << jnp.clip(jnp.floor(jnp.log2(1.17 * std)), 0).astype(jnp.int32)
    cells = _column(5, max(width.ndim, jnp.ndim(start)))
    edges = cells * width
    peak = (jnp.maximum(log_ratio(edges), log_ratio(~edges)) + _LN2 * cells).max(0)

    def attempt(carry):
        i, kept, done = carry
        places, coins = jax.random.split(jax.random.fold_in(key, i))
        first, second = (words.reshape(shape) for words in bits(places, math.prod(shape)))
        zeros = lax.clz(first | 1).astype(jnp.int32)
        place = (second & (width - 1).astype(jnp.uint32)).astype(jnp.int32)
        side = -((second >> 31) & (start > 0)).astype(jnp.int32)
        x = (zeros * width + place) ^ side
        reject = -exponential(coins, shape) > log_ratio(x) + _LN2 * zeros - peak  # NaN is kept: the loop ends
        return i + 1, jnp.where(done, kept, x), done | ~reject

    init = (jnp.int32(0), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool))
    return lax.while_loop(lambda carry: ~carry[2].all(), attempt, init)[1]


def _factorial_ratio(a: Array, x: Array) -> Array:
    """Returns ln((a + x)! / a!) - x ln(a + 1/2) without cancellation of large terms.

    It uses ln a! = y ln y - y + ln sqrt(2 pi) - e(y). Here y = a + 1/2, and e is from `_stirling`. For x < -a the value
    has no meaning, and nothing is raised.

    Reference: Loader (2000), with an expansion about a instead of a + 1/2.
    """
    y = a.astype(jnp.float32) + 0.5
    t = x / y
    v = t / (2 + t)
    series = t * v + 2 * (1 + t) * v**3 * (1 / 3 + v**2 * (1 / 5 + v**2 * (1 / 7 + v**2 / 9)))
    deviance = jnp.where(jnp.abs(t) < 0.25, series, (1 + t) * jnp.log1p(t) - t)
    return y * deviance + _stirling(y) - _stirling((a + x).astype(jnp.float32) + 0.5)


def _stirling(y: Array) -> Array:
    """Returns e(y) = y ln y - y + ln sqrt(2 pi) - ln Gamma(y + 1/2) to 1e-6, for y >= 1/2."""
    s = y**2
    return y / (24 * (s + 7 / 120 - 0.015049 / (s + 0.486)))


def _exact_product(n: Array, p: Array) -> tuple[Array, Array]:
    """Returns k = floor(n p) and k + 1/2 - n p for n <= 2^30 + 1, from pieces of the product that float32 holds."""
    high = lax.reduce_precision(p, 8, 11)
    pieces = [piece * part for piece in (n >> 20 << 20, n & 0xFFC00, n & 0x3FF) for part in (high, p - high)]
    whole = [jnp.floor(piece) for piece in pieces]
    rest = sum(piece - below for piece, below in zip(pieces, whole))
    k = sum(below.astype(jnp.int32) for below in whole) + jnp.floor(rest).astype(jnp.int32)
    return k, 0.5 - (rest - jnp.floor(rest))


def _powers(length: int, shape: Shape) -> np.ndarray:  # 1, 2, 4, ...; `jnp.exp2` is not exact
    return 2.0 ** np.arange(length, dtype=np.float32).reshape(length, *[1] * len(shape))


def _column(length: int, ndim: int) -> Array:  # 0, 1, ..., length - 1
    return jnp.arange(length).reshape(length, *[1] * ndim)


def stochastic_round(key: Array, x: Array) -> Array:
    """Rounds x at random to one of the two integers around it, with mean x, as floats of the shape of x."""
    return jnp.floor(x + jax.random.uniform(key, x.shape))
