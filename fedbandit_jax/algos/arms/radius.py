"""Confidence radii of batched elimination, as tables, computed on the host in float64.

In batch b, l users pull each of the |Phi| active arms. The mean of an arm is estimated by (sum x + N) / l. Here x in
[0, 1] is a user's encoded reward divided by the granularity g (integers per unit of reward). This is unbiased. N is
the total integer noise divided by g. A radius beta is half the width of a confidence interval.

*Theory* (Chowdhury & Zhou 2023, Lemma 2): for all p let |N|, with the error of encoding, be at most s sqrt(ln(2/p)) + h
ln(2/p) with probability 1 - 2 p. Then the lemma takes

    beta = sqrt(ln(4 |Phi| b^2 / p) / (2 l)) + s sqrt(ln(2 |Phi| b^2 / p)) / l + h ln(2 |Phi| b^2 / p) / l.

For every arm and batch its proof fails with probability p / (2 |Phi| b^2) for the rewards, and 2 p / (|Phi| b^2) for
the noise. These add up to (1/2 + 2) p pi^2 / 6 = 4.11 p, and not to the lemma's 3 p.

*Exact* (ours): with beta, P(some arm of some batch is outside its interval) <= 3 p. Each arm of batch b has the share q
= 3 p (6 / pi^2) / (b^2 |Phi|), half on either side. Rounding is part of x and costs nothing. Define U by P(U > u) =
e^(-2 u^2 / l). By Hoeffding P(sum (x - E x) > u) <= P(U > u). N is independent with a known distribution. So P(sum (x -
E x) + N > y) <= P(U + N > y). The right-hand side is summed over bins of N, each rounded up. At y = l beta it is set
equal to q/2. The rounding makes y at most 0.5 % too large.

*Epochs* (Sajed & Sheffet 2019) have their own sizes and radii.

*Truncated* (ours): rewards are any numbers with E|X|^k <= u. Let m = u^(1/k) >= E|X|. A user's reward is clipped to
[-M, M], and then mapped to [0, 1]. Sum up four parts:

* The bias is E(|X| - M)_+ <= u M^(1-k) (k-1)^(k-1) / k^k. Indeed (x - M)_+ <= C x^k with this C, tight at x = k M /
  (k-1).
* A share a of corrupted users moves the expected mean by at most a (m + M). If they choose bits of randomised response
  after its flips, it is a (m + c M), c = (e^epsilon + 1) / (e^epsilon - 1).
* The sampling error is sqrt(2 V L / l) + 2 M L / (3 l) by Bernstein, with L = ln(4 |Phi| b^2 / p). V bounds the second
  moment: u^(2/k) for k >= 2, u M^(2-k) for k < 2, never above M^2, and a M^2 more for corrupted users. Bits have
  Hoeffding's 2 M c sqrt(L / (2 l)) instead, with their flips.
* The noise of *Theory* is stretched by the range, 2 M.

The union bound is as in *Theory*. M minimises the sum for K arms, over a grid. Without corruption it grows with l.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedbandit_jax.privacy.accounting.lattice import LatticeLaw

_N_BINS = 400  # bins for N > 0, and as many for N < 0
LEVELS = np.geomspace(0.25, 1e6, 2001)  # truncation levels in units of u^(1/k)
_STDS = np.concatenate([[0], np.geomspace(0.05, 1e3, 120)])  # standard deviations; the last has tail 0 in float64


def theory(batch_sizes: ArrayLike, s: ArrayLike, h: ArrayLike, *, n_arms: int, p: float) -> np.ndarray:
    """Returns the radii (S, K + 1) of Lemma 2, in units of reward.

    Rows are batches, and columns are numbers of active arms (infinite for 0). `batch_sizes` are l, (S,), and `n_arms`
    is K. `s` and `h`, scalars or (S,), are in units of reward. p is in (0, 1).

    >>> theory([2.0, 4.0], 0.0, 0.0, n_arms=2, p=0.1).round(3)
    array([[  inf, 0.96 , 1.047],
           [  inf, 0.796, 0.849]])
    """
    size, s, h = (np.broadcast_to(np.asarray(x, float), np.shape(batch_sizes))[:, None] for x in (batch_sizes, s, h))
    log = np.log(2 / p * np.arange(1, len(size) + 1)[:, None] ** 2 * np.arange(1, n_arms + 1))
    radius = np.sqrt((log + math.log(2)) / (2 * size)) + (s * np.sqrt(log) + h * log) / size
    return np.pad(radius, ((0, 0), (1, 0)), constant_values=np.inf)


def exact(
    batch_sizes: ArrayLike, laws: Sequence[LatticeLaw | None], granularity: ArrayLike, *, n_arms: int, p: float
) -> np.ndarray:
    """Returns the radii (S, K + 1) from the distribution of the noise, as `theory` lays them out.

    `laws` are S laws of the total integer noise of an arm, None without noise. `granularity` is g, a scalar or (S,).
    3 p is the probability that any arm of any batch is outside its interval, and p is below 1/3.

    >>> exact([2.0, 4.0], [None, None], 1.0, n_arms=2, p=0.1).round(3)
    array([[  inf, 0.774, 0.879],
           [  inf, 0.687, 0.748]])
    """
    sizes, arms = np.asarray(batch_sizes, float), np.arange(1, n_arms + 1)
    table = np.full((len(sizes), n_arms + 1), np.inf)
    for b, (size, law, g) in enumerate(zip(sizes, laws, np.broadcast_to(granularity, sizes.shape), strict=True)):
        level = 9 * p / (math.pi * (b + 1)) ** 2 / arms  # q / 2 of the module docstring
        hoeffding = np.sqrt(size / 2 * np.log(1 / level))
        table[b, 1:] = (hoeffding if law is None else _quantile(law, float(g), size, level)) / size
    return table


def epochs(epsilon: float, p: float, n_arms: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the epochs of Sajed & Sheffet (2019), Algorithm 2, by epoch and by the number of active arms.

    There are as many epochs S as one arm needs to reach the horizon without noise. So tables have one shape for every
    epsilon. The noise of a sum is Laplace of scale 1 / epsilon. The failure probability is p in (0, 1).

    Returns:
        Users of each active arm, (S, K + 1), and the confidence radii in units of reward, (S, K + 1).
    """
    arms = np.maximum(np.arange(n_arms + 1), 1)
    sizes, radii, reached = [], [], 0.0
    while reached < horizon:
        epoch = len(sizes) + 1
        gap, sampling, noise = 2.0**-epoch, np.log(8 * arms * epoch**2 / p), np.log(4 * arms * epoch**2 / p)
        without_noise = 32 * sampling / gap**2
        size = np.floor(np.maximum(without_noise, 8 * noise / (epsilon * gap))) + 1
        reached += without_noise[1]
        sizes.append(size)
        radii.append(np.sqrt(sampling / (2 * size)) + noise / (epsilon * size))
    return np.array(sizes), np.array(radii)


def truncated(
    batch_sizes: ArrayLike,
    s: ArrayLike,
    h: ArrayLike,
    *,
    n_arms: int,
    p: float,
    moment: float,
    order: float,
    share: float = 0.0,
    level: float | None = None,
    stretch: float | None = None,
    reach: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns truncation levels M (S,), float32, and the radii (S, K + 1), both in units of reward.

    `batch_sizes`, `s`, `h`, `n_arms` and p are as in `theory`, for rewards in [0, 1]. `moment` is u, `order` is k > 1,
    and `share` is a. `level` is one M for all batches; None: the best for each. `stretch` is c of randomised response;
    None for noise on sums. `reach`, 1 or c, is the factor of M in the effect of a corrupted user.
    """
    size, s, h = (np.broadcast_to(np.asarray(x, float), np.shape(batch_sizes))[:, None] for x in (batch_sizes, s, h))
    typical, b = moment ** (1 / order), np.arange(1, len(size) + 1)[:, None]
    beyond = moment * (order - 1) ** (order - 1) / order**order

    def radius(m: np.ndarray, arms: Any) -> np.ndarray:
        log = np.log(2 / p * b**2 * arms)
        fine = log + math.log(2)
        square = np.minimum(typical**2 if order >= 2 else moment * m ** (2 - order), m**2) + share * m**2
        error = np.sqrt(2 * square * fine / size) + 2 * m * (fine / 3 + s * np.sqrt(log) + h * log) / size
        if stretch is not None:
            error = 2 * m * stretch * np.sqrt(fine / (2 * size))
        return beyond * m ** (1 - order) + share * (typical + reach * m) + error

    levels = typical * LEVELS if level is None else np.array([level])
    chosen = levels[np.argmin(radius(levels, n_arms), 1)].astype(np.float32)
    table = radius(chosen[:, None].astype(float), np.arange(1, n_arms + 1))
    return chosen, np.pad(table, ((0, 0), (1, 0)), constant_values=np.inf)


def _quantile(law: LatticeLaw, g: float, size: float, levels: np.ndarray) -> np.ndarray:
    """Returns numbers y with P(U + N > y) <= level, for decreasing levels; `size` is l."""
    lattice = _STDS * max(math.sqrt(law.variance), 1)
    noise = lattice[np.argmax(law.tail(lattice) <= levels[-1] / 2)] / g
    high = math.sqrt(size / 2 * math.log(2 / levels[-1])) + noise  # P(U + N > high) <= levels[-1]
    grid = np.linspace(0, high, _N_BINS + 1)
    tail = law.tail(grid * g)
    fall = -np.diff(tail)
    value = np.concatenate([-grid[:0:-1], grid])
    mass = np.concatenate([tail[-1:], fall[:0:-1], [1 - tail[0] - tail[1]], fall])

    def outside(y: np.ndarray) -> np.ndarray:
        return np.exp(-2 / size * np.maximum(y[:, None] - value, 0) ** 2) @ mass + tail[-1]

    low, high = np.zeros(len(levels)), np.full(len(levels), high + grid[1])
    for _ in range(30):
        middle = (low + high) / 2
        inside = outside(middle) <= levels
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    return high
