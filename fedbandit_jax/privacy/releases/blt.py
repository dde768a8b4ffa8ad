"""The buffered linear Toeplitz (BLT) release, and the search for its coefficients."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import expit, logit
from typing_extensions import override

from fedbandit_jax.core import struct, validate
from fedbandit_jax.privacy.releases.toeplitz import Toeplitz

# Maps S to the (theta, omega) of `optimise(S, 3)`: a common S gives the same digits with every version of scipy.
TABLE = {
    100: ((0.9926128, 0.9045852, 0.5199155), (0.113512, 0.175603, 0.209133)),
    400: ((0.9977048, 0.9606237, 0.6659565), (0.06517, 0.143685, 0.280411)),
    1_000: ((0.9989518, 0.978231, 0.741556), (0.044871, 0.121107, 0.310793)),
    4_000: ((0.9996756, 0.9908721, 0.8252117), (0.025768, 0.091402, 0.331415)),
    10_000: ((0.9998487, 0.9947172, 0.8643046), (0.018054, 0.07554, 0.332156)),
    65_536: ((0.9999684, 0.9982109, 0.9187797), (0.008759, 0.050557, 0.313733)),
}


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class Blt(Toeplitz):
    """The buffered linear Toeplitz (BLT) release: c_0 = 1 and c_j = sum_i omega_i theta_i^(j-1) for j >= 1.

    The inverse of C has the same form. The silo keeps one buffer E_i for every i, (n_buffers, *shape) in all. The
    server keeps as many buffers F_i, and the prefix sum (*shape). The silo makes the message m from the batch sum
    gamma. The server recovers the noisy batch sum g from the noisy m:

        m = gamma + sum_i omega_i E_i,   E_i <- theta_i E_i + gamma
        g = m - sum_i omega_i F_i,       F_i <- theta_i F_i + g,      prefix <- prefix + g

    theta and omega minimise the largest prefix variance times the squared sensitivity. With three buffers that is
    within 0.2 % of `SqrtToeplitz` at S = 400, and within 5 % at S = 65,536.

    Args:
        n_syncs: S, the number of synchronisations.
        n_buffers: number of buffers, the degree of the rational generating function of c.

    Reference: McMahan, Xu & Zhang (2024); Dvijotham, McMahan, Pillutla, Steinke & Thakurta (2024).
    """

    n_buffers: int = struct.static(default=3)
    theta: Any = dataclasses.field(init=False, repr=False, compare=False)  # (n_buffers,) float32, decays in (0, 1)
    omega: Any = dataclasses.field(init=False, repr=False, compare=False)  # (n_buffers,) float32, weights > 0

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "n_buffers", validate.integer("n_buffers", self.n_buffers, at_least=1))
        for name, numbers in zip(("theta", "omega"), coefficients(self.n_syncs, self.n_buffers)):
            object.__setattr__(self, name, np.array(numbers, np.float32))

    @override
    def column(self) -> Float[np.ndarray, " S"]:
        return blt_column(*self._exact, int(self.n_syncs))

    @override
    def response(self) -> Float[np.ndarray, " S"]:
        decays, weights = blt_inverse(*self._exact)
        return np.cumsum(blt_column(decays, -weights, int(self.n_syncs)))

    @property
    def _exact(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.theta, float), np.asarray(self.omega, float)

    @override
    def encode_init(self, shape: tuple[int, ...]) -> Float[Array, " n_buffers *shape"]:
        return jnp.zeros((self.n_buffers, *shape))

    @override
    def tail(self, buffers: Array) -> Array:
        # Accelerators round matrix products. On two CPU cores jaxlib 0.10.2 reads uninitialised memory if one program
        # reduces the buffers of silos and server. So the sum is written out.
        return sum((self.omega[i] * buffer for i, buffer in enumerate(buffers)), start=jnp.zeros(()))

    @override
    def push(self, buffers: Array, new: Array) -> Array:
        theta = jnp.asarray(self.theta, buffers.dtype).reshape(-1, *(1,) * (buffers.ndim - 1))
        return theta * buffers + new


def blt_column(theta: np.ndarray, omega: np.ndarray, n: int) -> np.ndarray:
    """Returns the first column of C, (n,): 1, sum_i omega_i, sum_i omega_i theta_i, sum_i omega_i theta_i^2, ..."""
    powers = np.arange(n - 1)
    return np.concatenate([[1.0], sum(w * t**powers for t, w in zip(theta, omega))])


def blt_inverse(theta: np.ndarray, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (theta_hat, omega_hat) with C(theta, omega)^-1 = C(theta_hat, -omega_hat) and omega_hat > 0.

    The buffers of C^-1 move by diag(theta) - 1 omega^T. This is similar to the symmetric diag(theta) - r r^T with r_i =
    sqrt(omega_i). Its eigenvalues are theta_hat, and omega_hat_i = (v_i . r)^2 for its unit eigenvectors v_i.
    """
    root = np.sqrt(omega)
    values, vectors = np.linalg.eigh(np.diag(theta) - np.outer(root, root))
    return values, (root @ vectors) ** 2


def _energy(weights: np.ndarray, decays: np.ndarray, n: int) -> float:  # sum_{k < n} (sum_i weights_i decays_i^k)^2
    product = np.outer(decays, decays)
    one = product == 1
    return weights @ ((1 - product**n) / (1 - product + one) + n * one) @ weights


def blt_loss(theta: np.ndarray, omega: np.ndarray, n_syncs: int) -> float:
    """Computes the largest prefix variance times the squared sensitivity: sum_{k < S} r_k^2 sum_{k < S} c_k^2.

    c is the first column of C. The first column r of the decoder R is the cumulative sum of the first column of C^-1.
    With a_i = omega_hat_i / (1 - theta_hat_i), r_k = 1 - sum_i a_i + sum_i a_i theta_hat_i^k.
    """
    decays, weights = blt_inverse(theta, omega)
    a = weights / (1 - decays)
    variance = _energy(np.append(a, 1 - a.sum()), np.append(decays, 1.0), n_syncs)
    return variance * (1 + _energy(omega, theta, n_syncs - 1))


def optimise(n_syncs: int, n_buffers: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the (theta, omega) of least `blt_loss`, with 0 < theta < 1 and omega > 0.

    The search starts from the square root of the prefix-sum matrix. Its coefficients are binom(2k, k) / 4^k = integral
    over q in (0, 1) of (1 - q)^k / (pi sqrt(q (1 - q))). The integral is cut at q = S^(-i/n), i = 0, ..., n =
    n_buffers. Every piece gives one buffer.
    """
    cuts = max(n_syncs, 2.0) ** (-np.arange(2 * n_buffers + 1) / (2 * n_buffers))
    theta, omega = 1 - cuts[1::2], 2 / np.pi * -np.diff(np.sqrt(cuts[::2]))

    def log_loss(x: np.ndarray) -> float:
        return np.log(blt_loss(expit(x[:n_buffers]), np.exp(x[n_buffers:]), n_syncs))

    start = np.concatenate([logit(theta), np.log(omega)])
    x = minimize(log_loss, start, method="BFGS", jac="3-point", options={"gtol": 1e-7}).x
    best = np.argsort(-x[:n_buffers])
    return expit(x[:n_buffers])[best], np.exp(x[n_buffers:])[best]


@functools.lru_cache
def coefficients(n_syncs: int, n_buffers: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns theta (decreasing) and omega, tabulated or optimised, rounded to the float32 of messages."""
    tabulated = TABLE.get(n_syncs) if n_buffers == 3 else None
    theta, omega = tabulated or optimise(n_syncs, n_buffers)
    return tuple(float(np.float32(t)) for t in theta), tuple(float(np.float32(w)) for w in omega)
