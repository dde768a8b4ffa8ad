"""Bounds on the spectrum of a silo's tree noise: rho_min, rho_max and kappa of Dubey & Pentland (2020), Definition 2.

A silo's private prefix sum is [U + N + 2 Lambda I | u + h]. The sums U = sum x x' and u = sum x y are exact. A tree
adds the noise N (d, d) and h (d,). Lambda bounds the spectral norm ||N||. So all eigenvalues of H = N + 2 Lambda I are
between rho_min = Lambda and rho_max = 3 Lambda. The number kappa bounds ||h||_{H^-1}. At most m tree nodes are in a
prefix sum. Each adds an independent (G + G') / sqrt 2 to N, and N(0, sigma_N^2 I) to h. Entries of G are iid N(0,
sigma_N^2).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

SPECTRAL = ("theory", "quantile")
DRAWS, BODY = 20_000, 1e-3  # number of Monte-Carlo draws, and the tail probability of their quantile


class Spectral(NamedTuple):
    """Bounds on the tree noise of one silo: rho in units of x x', kappa in units of y."""

    rho_min: float  # lower bound on the eigenvalues of H
    rho_max: float  # upper bound on the eigenvalues of H
    kappa: float  # upper bound on ||h||_{H^-1}


def bounds(
    method: str, *, sigma: float, nodes: float, dim: int, n_syncs: int, n_agents: int, failure: float, delta: float
) -> Spectral:
    """Computes bounds that hold at every synchronisation of every silo with probability 1 - failure / 2.

    Args:
        method: how Lambda is found. With "theory" it is sqrt(32) m (L^2 + 1) ln(4/delta) (4 sqrt d + 2 ln(2nM/failure))
            / epsilon. Section 4.3 prints it, with L = 1 (the bound on ||x||). It is computed from sigma_N. With
            "quantile" it is an upper bound on the quantile of ||N|| from its law. It is a fifth to a seventh of the
            printed one.
        sigma: sigma_N, standard deviation of a tree node's noise on the bias.
        nodes: m, the number of nodes in the worst prefix: variance of a prefix sum's noise over one node's.
        dim: d.
        n_syncs: n, the largest number of synchronisations.
        n_agents: M.
        failure: twice the probability that any of the bounds fails.
        delta: delta of the privacy budget, which the printed Lambda depends on.

    DEVIATION dubey2020 Prop. 4: kappa as printed does not depend on delta, and is too small if delta is small. Here it
    is the quantile of ||h||, a chi variable, divided by sqrt(rho_min).

    Reference: Dubey & Pentland (2020), Section 4.3, Definition 2 and Proposition 4.
    """
    tail = failure / (2 * n_syncs * n_agents)
    std = math.sqrt(nodes) * sigma
    if method == "theory":
        logs = math.log(4 / delta) / math.log(2 / delta)
        norm = math.sqrt(2) * std * logs * (4 * math.sqrt(dim) + 2 * math.log(1 / tail))
    else:
        norm = std * norm_quantile(dim, tail / 2)
    vector = std * float(stats.chi(dim).isf(tail / 2))
    return Spectral(norm, 3 * norm, vector / math.sqrt(norm))


def norm_quantile(dim: int, tail: float) -> float:
    """Returns a q with P(||(G + G') / sqrt 2|| > q) <= tail, for a G (d, d) with iid N(0, 1) entries.

    The spectral norm is a sqrt 2-Lipschitz function of G. Let Phi be the normal distribution function. Then the
    Phi(z)-quantile of the norm grows by at most sqrt 2 per unit of z (Gaussian isoperimetry, Borell 1975). So the
    estimate of the quantile at 1 - `BODY`, an upper bound with probability 1 - 1e-6, extends to any smaller tail.
    """
    start = _quantile(dim)
    return start + math.sqrt(2) * max(0.0, float(stats.norm.isf(tail)) - float(stats.norm.isf(BODY)))


@functools.cache
def _quantile(dim: int) -> float:
    """Returns an order statistic that is above the norm's 1 - `BODY` quantile with probability 1 - 1e-6."""
    rng = np.random.default_rng(20201120)
    norms = []
    for _ in range(0, DRAWS, 1000):
        g = rng.standard_normal((1000, dim, dim))
        values = np.linalg.eigvalsh((g + g.transpose(0, 2, 1)) / math.sqrt(2))
        norms.append(np.abs(values).max(1))
    above = int(stats.binom(DRAWS, BODY).ppf(1e-6))  # at least this many draws are above the quantile
    return float(np.sort(np.concatenate(norms))[-above])
