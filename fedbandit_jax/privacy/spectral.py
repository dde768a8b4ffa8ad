"""Bounds on the spectrum of a silo's tree noise: rho_min, rho_max and kappa of Dubey & Pentland (2020), Definition 2.

A silo's private prefix sum is [U + N + 2 Lambda I | u + h] with ||N|| <= Lambda, so that H = N + 2 Lambda I has all its
eigenvalues between rho_min = Lambda and rho_max = 3 Lambda, and ||h||_{H^-1} <= kappa. N is a sum of at most m
independent (G + G') / sqrt 2, G iid N(0, sigma_N^2), and h of as many N(0, sigma_N^2 I).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

SPECTRAL = ("theory", "quantile")
DRAWS, BODY = 20_000, 1e-3  # Monte-Carlo draws, and the tail that they estimate


class Spectral(NamedTuple):
    """Of one silo, in units of x x' and x y."""

    rho_min: float
    rho_max: float
    kappa: float


def bounds(
    method: str, *, sigma: float, nodes: float, dim: int, n_syncs: int, n_agents: int, alpha: float, delta: float
) -> Spectral:
    """That hold at every synchronisation of every silo with probability 1 - alpha / 2.

    Args:
        method: "theory", Lambda as printed (Section 4.3), sqrt 32 m (L^2 + 1) ln(4/delta) (4 sqrt d + 2 ln(2nM/alpha))
            / epsilon, written in sigma_N; "quantile", that of ||N|| from its law, a seventh of it.
        sigma: sigma_N.
        nodes: of the tree in the worst prefix, m in the theory.
        n_syncs: n, most synchronisations.
        delta: of the budget, which the printed Lambda depends on.

    DEVIATION dubey2020 Prop. 4: kappa as printed has no delta, and is too small where delta is small; it is the
    quantile of ||h||, a chi variable, divided by sqrt(rho_min).
    """
    tail = alpha / (2 * n_syncs * n_agents)
    std = math.sqrt(nodes) * sigma
    if method == "theory":
        logs = math.log(4 / delta) / math.log(2 / delta)
        norm = math.sqrt(2) * std * logs * (4 * math.sqrt(dim) + 2 * math.log(1 / tail))
    else:
        norm = std * norm_quantile(dim, tail / 2)
    vector = std * float(stats.chi(dim).isf(tail / 2))
    return Spectral(norm, 3 * norm, vector / math.sqrt(norm))


def norm_quantile(dim: int, tail: float) -> float:
    """q with P(||(G + G') / sqrt 2|| > q) <= tail, G (d, d) iid N(0, 1).

    The norm is a sqrt 2-Lipschitz function of G, so its quantile at Phi(z) grows by at most sqrt 2 per unit of z
    (Gaussian isoperimetry, Borell 1975): from an estimate at 1 - `BODY`, of confidence 1 - 1e-6, to any tail.
    """
    start = _quantile(dim)
    return start + math.sqrt(2) * max(0.0, float(stats.norm.isf(tail)) - float(stats.norm.isf(BODY)))


@functools.cache
def _quantile(dim: int) -> float:
    """An order statistic that is above the 1 - `BODY` quantile with probability 1 - 1e-6."""
    rng = np.random.default_rng(20201120)
    norms = []
    for _ in range(0, DRAWS, 1000):
        g = rng.standard_normal((1000, dim, dim))
        values = np.linalg.eigvalsh((g + g.transpose(0, 2, 1)) / math.sqrt(2))
        norms.append(np.abs(values).max(1))
    above = int(stats.binom(DRAWS, BODY).ppf(1e-6))  # so many, or more, of the draws are above the quantile
    return float(np.sort(np.concatenate(norms))[-above])
