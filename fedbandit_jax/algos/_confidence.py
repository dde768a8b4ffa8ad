"""Regulariser and confidence width of (private, federated) LinUCB: numbers found on the host.

The synchronised statistics are W = G + N and u = G theta* + eta + n, with G the Gram matrix of the rows played, eta the
reward noise, and N, n privacy noise; V = H + G with H = lambda I + N. At all synchronisations ||N|| <= Sigma_N with
probability 1 - alpha, ||n|| <= Sigma_n with probability 1 - alpha/2, and the self-normalised bound on eta holds with
probability 1 - alpha for each agent: its widths are valid with probability 1 - 2.5 alpha, as in the paper up to that
constant. All of it needs ||x|| <= 1 and E[y] = <x, theta*>.

"shift" (Zhou & Chowdhury 2024, Lemma C.4): lambda = max(1, 2 Sigma_N), so lambda_min = lambda - Sigma_N <= H <=
lambda + Sigma_N = lambda_max and ||theta - theta*||_V <= R sqrt(2 ln(1/alpha) + d ln(1 + n / (d lambda_min))) + S
sqrt(lambda_max) + Sigma_n / sqrt(lambda_min).

"project" (ours): W is first projected on the positive semidefinite cone, which G is in, so the projection moves W by
P with 0 <= P <= Sigma_N, and lambda = max(1, Sigma_N) is enough. H = lambda I + N + P >= 0 has norm <= lambda + 2
Sigma_N, and H V^-1 H <= H bounds the bias by S sqrt(lambda + 2 Sigma_N). V >= lambda I bounds the noise by Sigma_n /
sqrt(lambda).
For a in [0, 1], V >= a (G + (lambda - Sigma_N) I) + (1 - a) lambda I = a (G + (lambda/a - Sigma_N) I): with a = min(1,
lambda / (2 Sigma_N)) the self-normalised term is R / sqrt(a) times that of a ridge of lambda/a - Sigma_N.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax._core import struct

CONFIDENCE = ("theory", "released")
REGULARIZERS = ("shift", "project")


@struct.pytree
class Width:
    """beta_t = offset + slope * sqrt(log_term + dim * ln(1 + growth * t))."""

    offset: struct.Number
    slope: struct.Number
    log_term: struct.Number
    dim: struct.Number
    growth: struct.Number

    def __call__(self, t: struct.Number) -> Array:
        """Width before playing round t = 0, 1, ..., when every agent has played t rounds."""
        return self.offset + self.slope * jnp.sqrt(self.log_term + self.dim * jnp.log1p(self.growth * t))


def noise_bounds(server_std: float, dim: int, n_syncs: int, alpha: float) -> tuple[float, float]:
    """(Sigma_N, Sigma_n): bounds on ||(G + G')/2|| and ||g|| that hold for S draws, see the module's docstring.

    G (d, d) and g (d,) have iid N(0, server_std^2) entries. The largest eigenvalue of (G + G')/2 has mean at most
    server_std sqrt(2d) (Sudakov-Fernique), so has its negative; E ||g|| <= server_std sqrt d; all three are
    server_std-Lipschitz functions of Gaussians, so they exceed their mean by s server_std with probability e^(-s^2/2).
    """
    tail = math.sqrt(2 * math.log(2 * max(n_syncs, 1) / alpha))
    return server_std * (math.sqrt(2 * dim) + tail), server_std * (math.sqrt(dim) + tail)


def theory(
    *,
    n_agents: int,
    dim: int,
    n_syncs: int,
    server_std: float,
    alpha: float,
    subgaussian: float,
    theta_norm: float,
    exploration_scale: float,
    regularizer: str,
) -> tuple[float, Width]:
    """(lambda, width) as derived in the module's docstring; `server_std` bounds the noise of every prefix."""
    bound_cov, bound_bias = noise_bounds(server_std, dim, n_syncs, alpha)
    if regularizer == "shift":
        lam = max(1.0, 2 * bound_cov)
        floor, spread, ceiling, ridge = lam - bound_cov, 1.0, lam + bound_cov, lam - bound_cov
    else:
        lam = max(1.0, bound_cov)
        share = min(1.0, lam / (2 * bound_cov)) if bound_cov > 0 else 1.0
        floor, spread, ceiling, ridge = lam, share**-0.5, lam + 2 * bound_cov, lam / share - bound_cov
    return lam, _width(
        offset=theta_norm * math.sqrt(ceiling) + bound_bias / math.sqrt(floor),
        slope=subgaussian * spread,
        log_term=2 * math.log(1 / alpha),
        dim=dim,
        growth=n_agents / (dim * ridge),
        scale=exploration_scale,
    )


def released(
    *,
    n_agents: int,
    dim: int,
    levels: float,
    sigma: float,
    alpha: float,
    subgaussian: float,
    exploration_scale: float,
) -> tuple[float, Width]:
    """(lambda, width) of the authors' released code, with ||theta*|| bounded by sqrt d; sigma is one silo's noise."""
    lam = math.sqrt(n_agents)
    if sigma > 0:
        lam = math.sqrt(n_agents * levels) * sigma * (math.sqrt(levels + math.log(1 / alpha)) + math.sqrt(dim))
    return lam, _width(
        offset=math.sqrt(lam * dim),
        slope=subgaussian,
        log_term=math.log(1 / alpha),
        dim=dim,
        growth=n_agents / (dim * lam),
        scale=exploration_scale,
    )


def _width(*, offset, slope, log_term, dim, growth, scale) -> Width:
    number = np.float32
    if not max(scale * offset, scale * slope, growth) < float(np.finfo(number).max):
        raise ValueError(f"the confidence width must fit float32, got {scale * offset:g} at round 0")
    return Width(
        offset=number(scale * offset),
        slope=number(scale * slope),
        log_term=number(log_term),
        dim=number(dim),
        growth=number(growth),
    )
