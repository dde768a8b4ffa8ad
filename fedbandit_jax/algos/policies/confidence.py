"""Regulariser and confidence width of LinUCB, private and federated, computed on the host.

Letters: R is the sub-Gaussian constant of the reward noise, and S bounds ||theta*||. (In the axis (S,) it is the number
of synchronisations.) A bound fails with probability `failure`. The number of served users is tau. Norms of matrices are
spectral.

The synchronised statistics are W = G + N and u = G theta* + eta + n. G is the Gram matrix of the rows played. The sum
of x times reward noise is eta. N and n are privacy noise. The ridge estimate is theta = V^-1 u with V = H + G and H =
lambda I + N. At all synchronisations ||N|| <= Sigma_N with probability 1 - failure, and ||n|| <= Sigma_n with
probability 1 - failure/2. The self-normalised bound on eta holds with probability 1 - failure for each agent. Hence an
agent's widths hold with probability 1 - 2.5 failure. Without learning inside the batch (`learns_in_batch=False`) all
agents share V and eta, so this holds for all agents at once. With it each agent's rows are a process of their own. The
proof then goes agent by agent. (The paper claims 1 - 2 failure for all agents of Algorithm 1 at once.) All of it needs
||x|| <= 1 and E[y] = <x, theta*>.

"shift" (Zhou & Chowdhury 2024, Lemma C.4): let lambda = max(1, 2 Sigma_N). Then lambda_min = lambda - Sigma_N <= H <=
lambda + Sigma_N = lambda_max. The error ||theta - theta*||_V is at most R sqrt(2 ln(1/failure) + d ln(1 + tau / (d
lambda_min))) + S sqrt(lambda_max) + Sigma_n / sqrt(lambda_min).

"project" (ours): W is first projected on the positive semidefinite cone. G is in this cone. So the projection moves W
by a matrix P with 0 <= P <= Sigma_N, and lambda = max(1, Sigma_N) is enough. Now H = lambda I + N + P >= 0 has norm <=
lambda + 2 Sigma_N. So H V^-1 H <= H bounds the bias by S sqrt(lambda + 2 Sigma_N). V >= lambda I bounds the noise by
Sigma_n / sqrt(lambda). For a in [0, 1], V >= a (G + (lambda - Sigma_N) I) + (1 - a) lambda I = a (G + (lambda/a -
Sigma_N) I). With a = min(1, lambda / (2 Sigma_N)) the self-normalised term is R / sqrt(a) times that of a ridge of
lambda/a - Sigma_N.

In both, `Exploration.regularization` replaces the 1 in lambda, if it is given. `KnownNoise` (ours) is post-processing.
It uses the public distribution of N and n at synchronisation k, and the spectrum of the release.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize_scalar

from fedbandit_jax.algos.policies.widths import Exploration, Width, check_width
from fedbandit_jax.core import struct
from fedbandit_jax.interfaces import NoiseLaw

CONFIDENCE = ("theory", "known_noise")
REGULARIZERS = ("shift", "project")


def noise_bounds(server_std: float, dim: int, n_syncs: int, failure: float) -> tuple[float, float]:
    """Returns bounds (Sigma_N, Sigma_n) on ||(G + G')/2|| and ||g|| for S draws, with the factor `server_std`.

    Here G (d, d) and g (d,) have iid N(0, server_std^2) entries. The largest eigenvalue of (G + G')/2 has mean at most
    server_std sqrt(2d) (Sudakov-Fernique). So has the largest eigenvalue of its negative. E ||g|| <= server_std sqrt d.
    All three are server_std-Lipschitz functions of iid N(0, 1). So each exceeds its mean by s server_std with
    probability at most e^(-s^2/2). Sigma_N fails in any draw with probability at most `failure`, Sigma_n with failure /
    2.
    """
    tail = math.sqrt(2 * math.log(2 * max(n_syncs, 1) / failure))
    return server_std * (math.sqrt(2 * dim) + tail), server_std * (math.sqrt(dim) + tail)


def theory(of: Exploration, regularizer: str, law: NoiseLaw) -> tuple[float, Width]:
    """Returns lambda and the width of `confidence="theory"`, as derived in the module's docstring.

    Raises:
        ValueError: if the width does not fit float32.
    """
    bound_cov, bound_bias = noise_bounds(float(law.stds.max(initial=0)), law.dim, len(law.stds), of.failure)
    bound_bias *= law.bias_scale
    if regularizer == "shift":
        lam = max(of.least, 2 * bound_cov)
        floor, spread, ceiling, ridge = lam - bound_cov, 1.0, lam + bound_cov, lam - bound_cov
    else:
        lam = max(of.least, bound_cov)
        share = min(1.0, lam / (2 * bound_cov)) if bound_cov > 0 else 1.0
        floor, spread, ceiling, ridge = lam, share**-0.5, lam + 2 * bound_cov, lam / share - bound_cov
    offset = of.theta_norm * math.sqrt(ceiling) + bound_bias / math.sqrt(floor)
    return lam, _width(of, law, offset, spread, 2 * math.log(1 / of.failure), ridge)


@struct.sealed
@struct.pytree
class KnownNoise:
    """The rule for lambda and the width after synchronisation k, from the spectrum of the released W.

    Let e_1 <= ... <= e_d be the eigenvalues of W. If W is projected, p_i = max(-e_i, 0). If it is shifted, p_i = 0. Let
    c_i = e_i + p_i. P and C have the eigenvalues p_i and c_i, and the eigenvectors of W. So V = lambda I + W + P has
    eigenvalues v_i = lambda + c_i. Then theta - theta* = V^-1 (eta + (n - N theta*) - (lambda I + P) theta*):

    - n - N theta* is Gaussian with covariance at most s_k^2 (c^2 I + (||theta*||^2 I + theta* theta*') / 2). Prefix k
      has the standard deviation s_k on W, and at most c s_k on U. With probability 1 - failure/2 the norm is at most
      q_k, a Chernoff quantile, at all k. So its V^-1 norm is at most q_k / sqrt(v_1);
    - P and W commute: ||(lambda I + P) theta*||_{V^-1} <= S max_i (lambda + p_i) / sqrt(v_i);
    - G <= W + Sigma_k I <= C + Sigma_k I with probability 1 - failure. Sigma_k is Sigma_N of prefix k. Hence V >= a (G
      + rho I) with a = min(1, v_1 / (c_1 + Sigma_k + rho)). So eta costs R / sqrt(a) times the self-normalised bound of
      ridge rho.

    Integer noise is treated as its Gaussian approximation. All three terms shrink as data arrive. "theory" keeps the
    first round's spectrum. If W is projected, lambda = max(least, q_k / S + p_1 - 2 c_1) minimises (q_k + S (lambda +
    p_1)) / sqrt(lambda + c_1).
    """

    vector: struct.Number  # q_k / s_k, where q_k bounds ||n - N theta*||
    matrix: struct.Number  # Sigma_k / s_k, where Sigma_k bounds ||N||
    ridge: struct.Number  # rho, the ridge of the self-normalised bound
    theta_norm: struct.Number  # S
    scale: struct.Number  # exploration_scale, a factor on the width
    before: Width  # before the first release, with the self-normalised bound of ridge rho
    regularization: struct.Number  # lambda of the shifted Gram matrix
    least: struct.Number  # smallest lambda of the projected Gram matrix
    project: bool = struct.static()  # whether W is projected or shifted

    def __call__(self, std: Array, eigenvalues: Array) -> tuple[Array, Width]:
        """Returns lambda and the width of a release, from s_k and the ascending eigenvalues of W, (d,)."""
        vector, matrix = self.vector * std, self.matrix * std
        kept = jnp.maximum(eigenvalues, 0) if self.project else eigenvalues
        moved = kept - eigenvalues
        lam = self.regularization
        if self.project:
            lam = jnp.maximum(self.least, vector / self.theta_norm + moved[0] - 2 * kept[0])
        spectrum = jnp.maximum(lam + kept, jnp.finfo(jnp.float32).tiny)
        bias = self.theta_norm * jnp.max((lam + moved) / jnp.sqrt(spectrum))
        share = jnp.minimum(1, spectrum[0] / (kept[0] + matrix + self.ridge))
        offset = self.scale * (bias + vector / jnp.sqrt(spectrum[0]))
        return lam, self.before._replace(offset=offset, slope=self.before.slope / jnp.sqrt(jnp.maximum(share, 1e-12)))


def known_noise(of: Exploration, regularizer: str, law: NoiseLaw) -> tuple[float, Width, KnownNoise]:
    """Returns lambda and the width before the first synchronisation, and the rule after it; raises as `theory`."""
    _, d, stds, _ = law
    norm, _ = noise_bounds(1.0, d, len(stds), of.failure)
    weights = np.full(d, law.bias_scale**2 + of.theta_norm**2 / 2)
    weights[0] = law.bias_scale**2 + of.theta_norm**2
    worst = float(norm * stds.max(initial=0))
    ridge = max(of.least, worst)
    # lambda >= rho, so that the bound of ridge rho on eta also holds before the first synchronisation
    lam = max(of.least, 2 * worst) if regularizer == "shift" else ridge
    numbers = dict(
        vector=math.sqrt(chi_square_quantile(weights, of.failure / (2 * max(len(stds), 1)))),
        matrix=norm,
        ridge=ridge,
        theta_norm=of.theta_norm,
        scale=of.exploration_scale,
        regularization=lam,
        least=of.least,
    )
    before = _width(of, law, of.theta_norm * math.sqrt(lam), 1.0, 2 * math.log(1 / of.failure), ridge)
    project, rounded = regularizer == "project", {name: np.float32(x) for name, x in numbers.items()}
    return lam, before, KnownNoise(**rounded, before=before, project=project)


def chi_square_quantile(weights: np.ndarray, probability: float) -> float:
    """Returns q with P(sum_i w_i z_i^2 > q) <= probability for z iid N(0, 1), by Chernoff's bound at its best exponent.

    The weights w are (d,) and positive.
    """
    top = 1 / (2 * weights.max())

    def bound(share: float) -> float:
        x = share * top
        return (math.log(1 / probability) - 0.5 * np.log1p(-2 * x * weights).sum()) / x

    found: Any = minimize_scalar(bound, bounds=(1e-6, 1 - 1e-9), method="bounded")
    return float(found.fun)


def _width(of: Exploration, law: NoiseLaw, offset: float, spread: float, log_term: float, ridge: float) -> Width:
    scale, slope, growth = of.exploration_scale, of.subgaussian * spread, law.n_agents / (law.dim * ridge)
    check_width(scale * offset, scale * slope, growth)
    return Width(*map(np.float32, (scale * offset, scale * slope, log_term, law.dim, growth)))
