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

`KnownNoise` (ours) uses what the server knows anyway: the law of N and n at synchronisation k, and the spectrum of what
was released, of which everything is post-processing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize_scalar

from fedbandit_jax.core import struct

CONFIDENCE = ("theory", "known_noise", "released")
REGULARIZERS = ("shift", "project")


class Width(NamedTuple):
    """beta_t = offset + slope * sqrt(log_term + dim * ln(1 + growth * t))."""

    offset: struct.Number
    slope: struct.Number
    log_term: struct.Number
    dim: struct.Number
    growth: struct.Number

    def __call__(self, t: struct.Number) -> Array:
        """Width before playing round t = 0, 1, ..., when every agent has played t rounds."""
        return self.offset + self.slope * jnp.sqrt(self.log_term + self.dim * jnp.log1p(self.growth * t))


class LogDetWidth(NamedTuple):
    """beta_i = offset + slope * sqrt(log_term + log det V_i), with log_term >= -log det V before the first round."""

    offset: struct.Number
    slope: struct.Number
    log_term: struct.Number
    log_det: struct.Number  # (M,) or ()

    def __call__(self, t: struct.Number) -> Array:
        """Width of every agent, whatever the round."""
        del t
        return self.offset + self.slope * jnp.sqrt(jnp.maximum(self.log_term + self.log_det, 0))


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
    server_stds: np.ndarray,
    alpha: float,
    subgaussian: float,
    theta_norm: float,
    exploration_scale: float,
    regularizer: str,
    least: float = 1.0,
) -> tuple[float, Width]:
    """(lambda, width) as derived in the module's docstring; `server_stds` (S,): of the noise of every prefix; lambda >=
    `least`."""
    bound_cov, bound_bias = noise_bounds(float(server_stds.max(initial=0)), dim, len(server_stds), alpha)
    if regularizer == "shift":
        lam = max(least, 2 * bound_cov)
        floor, spread, ceiling, ridge = lam - bound_cov, 1.0, lam + bound_cov, lam - bound_cov
    else:
        lam = max(least, bound_cov)
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


@struct.pytree
class KnownNoise:
    """lambda and the width after synchronisation k, from the eigenvalues e_1 <= ... <= e_d of the released W.

    Let p_i = max(-e_i, 0) when W is projected and 0 when it is shifted, c_i = e_i + p_i, V = lambda I + W + P with
    eigenvalues v_i = lambda + c_i. Then theta - theta* = V^-1 (eta + (n - N theta*) - (lambda I + P) theta*):

    - n - N theta* is Gaussian, covariance s_k^2 (I + (||theta*||^2 I + theta* theta*') / 2), s_k the standard deviation
      of prefix k: its norm is at most q_k, a Chernoff quantile, at all k with probability 1 - alpha/2; so its V^-1 norm
      is at most q_k / sqrt(v_1);
    - P and W commute: ||(lambda I + P) theta*||_{V^-1} <= S max_i (lambda + p_i) / sqrt(v_i);
    - G <= W + Sigma_k I <= C + Sigma_k I (probability 1 - alpha), hence V >= a (G + rho I) with a = min(1, v_1 / (c_1 +
      Sigma_k + rho)), and eta costs R / sqrt(a) times the self-normalised bound of ridge rho.

    Integer noise is treated as the Gaussian that it is close to. All three shrink as data come in, where "theory" pays
    for the first round's spectrum for ever. When W is projected, lambda = max(1, q_k / S + p_1 - 2 c_1) minimises (q_k
    + S (lambda + p_1)) / sqrt(lambda + c_1).
    """

    vector: struct.Number  # (S,) q_k
    matrix: struct.Number  # (S,) Sigma_k
    ridge: struct.Number  # rho
    theta_norm: struct.Number  # S
    subgaussian: struct.Number  # R
    log_term: struct.Number
    dim: struct.Number
    growth: struct.Number
    scale: struct.Number
    regularization: struct.Number  # of the shifted Gram matrix
    least: struct.Number  # lambda where no noise asks for more
    project: bool = struct.static()

    def __call__(self, k: Array, eigenvalues: Array) -> tuple[Array, Width]:
        """(lambda, width) after synchronisation k = 0, 1, ... (Python counting), from ascending eigenvalues (d,)."""
        vector, matrix = jnp.asarray(self.vector)[k], jnp.asarray(self.matrix)[k]
        kept = jnp.maximum(eigenvalues, 0) if self.project else eigenvalues
        moved = kept - eigenvalues
        lam = self.regularization
        if self.project:
            lam = jnp.maximum(self.least, vector / self.theta_norm + moved[0] - 2 * kept[0])
        spectrum = jnp.maximum(lam + kept, jnp.finfo(jnp.float32).tiny)
        bias = self.theta_norm * jnp.max((lam + moved) / jnp.sqrt(spectrum))
        share = jnp.minimum(1, spectrum[0] / (kept[0] + matrix + self.ridge))
        width = Width(
            offset=self.scale * (bias + vector / jnp.sqrt(spectrum[0])),
            slope=self.scale * self.subgaussian / jnp.sqrt(jnp.maximum(share, 1e-12)),
            log_term=self.log_term,
            dim=self.dim,
            growth=self.growth,
        )
        return lam, width


def known_noise(
    *,
    n_agents: int,
    dim: int,
    server_stds: np.ndarray,
    alpha: float,
    subgaussian: float,
    theta_norm: float,
    exploration_scale: float,
    regularizer: str,
    least: float = 1.0,
) -> tuple[float, Width, KnownNoise]:
    """lambda and width before the first synchronisation, and the rule after it; `server_stds` (S,) is s_k."""
    n_syncs = len(server_stds)
    norm, _ = noise_bounds(1.0, dim, n_syncs, alpha)
    weights = np.full(dim, 1 + theta_norm**2 / 2)
    weights[0] = 1 + theta_norm**2
    quantile = math.sqrt(chi_square_quantile(weights, alpha / (2 * max(n_syncs, 1))))
    matrix = norm * server_stds
    worst = float(matrix.max(initial=0))
    ridge = max(least, worst)
    lam = (
        max(least, 2 * worst) if regularizer == "shift" else ridge
    )  # >= rho, so that eta costs no more before the first
    number = np.float32
    rule = KnownNoise(
        vector=(quantile * server_stds).astype(number),
        matrix=matrix.astype(number),
        ridge=number(ridge),
        theta_norm=number(theta_norm),
        subgaussian=number(subgaussian),
        log_term=number(2 * math.log(1 / alpha)),
        dim=number(dim),
        growth=number(n_agents / (dim * ridge)),
        scale=number(exploration_scale),
        regularization=number(lam),
        least=number(least),
        project=regularizer == "project",
    )
    first = _width(
        offset=theta_norm * math.sqrt(lam),
        slope=subgaussian,
        log_term=2 * math.log(1 / alpha),
        dim=dim,
        growth=n_agents / (dim * ridge),
        scale=exploration_scale,
    )
    return lam, first, rule


def chi_square_quantile(weights: np.ndarray, probability: float) -> float:
    """q with P(sum_i w_i z_i^2 > q) <= probability for z iid N(0, 1), by Chernoff's bound at its best exponent."""
    top = 1 / (2 * weights.max())

    def bound(share: float) -> float:
        x = share * top
        return (math.log(1 / probability) - 0.5 * np.log1p(-2 * x * weights).sum()) / x

    return float(bound(minimize_scalar(bound, bounds=(1e-6, 1 - 1e-9), method="bounded").x))


def released(
    *,
    n_agents: int,
    dim: int,
    levels: float,
    message_std: float,
    alpha: float,
    subgaussian: float,
    exploration_scale: float,
) -> tuple[float, Width]:
    """(lambda, width) of the authors' code, S = sqrt d; `message_std` is of the noise of a release over all silos."""
    lam = math.sqrt(n_agents)
    if message_std > 0:
        lam = math.sqrt(levels) * message_std * (math.sqrt(levels + math.log(1 / alpha)) + math.sqrt(dim))
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
