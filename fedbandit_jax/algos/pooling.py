"""Pooling in a group of users who may differ: each one's sums, shares of the others', and the group's estimate."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.algos.loops.streams import UserReleases
from fedbandit_jax.core import lapack
from fedbandit_jax.interfaces import Released
from fedbandit_jax.linalg import GaussianBelief

LEAST = 1e-2  # the least that is divided by: with less data or noise, nothing is known
CLEAR = 1.0  # standard deviations by which users must seem to differ
CAUTION = 3.0  # by how many they are then taken to differ more than it seems
HEED = 1.0  # noise of others, in terms of a user's own, that is let in before anything is known


class Differences(NamedTuple):
    """The heterogeneity of users within groups."""

    spread: Array  # (d, d) T, if that is clear
    clear: Array  # () bool
    alike: Array  # () log-likelihood ratio of the releases, T = 0 over T = S^2 / d I


def variance(subgaussian: float, values: Array, noise: Array) -> Array:
    """The variance R^2 p' G p + noise, at least `LEAST`, from R, estimates of p' G p, and the noise's variance."""
    return jnp.maximum(subgaussian**2 * jnp.maximum(values, 0) + noise, LEAST)


def fit(released: UserReleases, label: Array, n_groups: int) -> Array:
    """The ridge estimate of every group (C, d), from the sums of its users."""
    gram, bias, size = (
        jax.ops.segment_sum(x, label, n_groups) for x in (released.gram, released.bias, jnp.ones(len(label)))
    )
    return ridge(gram, bias, released.std, size)


def ridge(gram: Array, bias: Array, std: Array, size: Array) -> Array:
    """The estimates (W + lambda I)^-1 U of every W (n, d, d) and U (n, d) that are sums over `size` users.

    lambda = 1 + 2 s sqrt(size d) is more than the norm of the noise on W, but for a tail; where it is not, theta = 0.
    """
    d = bias.shape[-1]
    precision = gram + (1 + 2 * std * jnp.sqrt(size * d))[:, None, None] * jnp.eye(d)
    theta = jax.vmap(lambda precision, bias: GaussianBelief.solve(precision, bias).mean)(precision, bias)
    return jnp.where(jnp.isfinite(theta).all(-1, keepdims=True), theta, 0)


def pooled(released: UserReleases, label: Array, subgaussian: float, theta_norm: float) -> Released:
    """The sums by which every user is served, with leading axis n: hers, and shares of those of her group.

    Let U and W be the sums of x y and x x' that were released of some users, G that of x x' without noise, and z and Z
    the noise. If mean rewards are <x, theta>, then U - W theta = sum x eta + z - Z theta, where eta is R-sub-Gaussian.
    Along a unit vector p the variance of that is about R^2 p' G p + s_U^2 + s_W^2 (||theta||^2 + (p' theta)^2) / 2 for
    one user, with the standard deviations s_U of z and s_W of the diagonal of Z, which is symmetric and has half the
    variance beside its diagonal; the variance of the noise of m users is m times that.

    Users who are taken to be alike need not be the same. Say that theta_u = theta_c + delta_u for the users u of group
    c, where delta_u has mean 0 and covariance T, the same in all groups. Let U_u and W_u be the sums that were released
    of user u, theta the ridge estimate of her group, and v(p) the variance of the noise on p' (U_u - W_u theta).

    How large is T? Let q_i and g_i be the eigenvectors and eigenvalues of the sum of W_u over all users. If N_u of N
    rounds were user u's, and her features like those of others, then r_u = q_i' (U_u - W_u theta) has about the mean e
    b_c and the variance s^2 + e^2 tau_i^2, with e = g_i N_u / N, s^2 = R^2 e + v(q_i), tau_i^2 = q_i' T q_i, and b_c
    what the ridge took from theta. If T = 0, then Cochran's Q, i.e. the sum over users of (r_u - e b_c)^2 / s^2 with
    the best b_c for each of C groups, exceeds n - C by x_i, of mean 0 and variance about 2 n. If x_1 + ... + x_d >
    sqrt(2 n d), then it is clear that users differ, and T = sum_i tau_i^2 q_i q_i' with

        tau_i^2 = max(0, x_i + 3 sqrt(2 n)) / sum_c (sum w_u - sum w_u^2 / sum w_u),    w_u = (e / s)^2

    where the inner sums are over the users of group c. Without 3 sqrt(2 n) that is the estimate of DerSimonian & Laird
    (1986). Three standard deviations are added since it costs more to take different users for the same than the
    opposite. So users who are the same, but by chance do not seem so (one release in six), share little in that one. If
    R is more than it need be, then users must differ more to be seen to differ.

    What are the others worth? Let p_i and g_i now be the eigenvectors and eigenvalues of the sum of W over the m - 1
    others of a user's group. Along p_i the variance of their estimate is 1 / A = (R^2 g_i + (m - 1) v(p_i)) / g_i^2,
    and that of their mean p_i' T p_i / (m - 1), if all have as many rounds; and she differs from it by a variance of
    p_i' T p_i. So they know as much of her theta as the share w_i = 1 / (1 + A m / (m - 1) p_i' T p_i) of their data
    would if T were 0. These shares of their sums are added to hers.

    As long as it is not clear that they differ, they may be alike or not. Say that theta_u has mean 0 and the variance
    V = S^2 / d in every direction, and that it is the same for all with probability rho, and independent otherwise. By
    the best linear estimate from both sums, w_i = rho / (1 + A V (1 - rho) (rho + 1 / (m - 1))). The odds of rho are
    those of the releases, by the restricted likelihood of all r_u, times 1 to sqrt(m - 1) - 1 before anything is seen:
    the noise of the others is then no more than her own. The direction in which most was played is left out of the
    likelihood, since users differ least there: it is that of the mean of all features.

    `std` is the root mean square over the directions p_i, of which one may have more noise, up to that of the group.
    """
    n = len(label)
    others, gram, bias, count = (
        jax.ops.segment_sum(x, label, n)[label] - x for x in (jnp.ones(n), released.gram, released.bias, released.count)
    )
    theta = fit(released, label, n)[label]
    differ = _differences(released, label, theta, subgaussian, theta_norm)
    values, vectors = jax.vmap(lapack.eigh)(gram)
    spread = jnp.einsum("nji,jk,nki->ni", vectors, differ.spread, vectors, precision="highest")
    noise = others[:, None] * _noise(released, theta, vectors)
    worth = jnp.maximum(values, 0) ** 2 / variance(subgaussian, values, noise)
    few = 1 / jnp.maximum(others, 1)[:, None]
    before = jnp.minimum(HEED * jnp.sqrt(few), 0.5)
    rho = jax.nn.sigmoid(jnp.log(before / (1 - before)) + differ.alike)
    doubtful = rho / (1 + worth * theta_norm**2 / theta.shape[1] * (1 - rho) * (rho + few))
    share = jnp.where(differ.clear, 1 / (1 + worth * (1 + few) * spread), doubtful)  # (n, d)
    gram = jnp.einsum("nij,nj,nkj->nik", vectors, share * values, vectors, precision="highest")
    bias = jnp.einsum("nij,nj,nkj,nk->ni", vectors, share, vectors, bias, precision="highest")
    return Released(
        gram=released.gram + gram,
        bias=released.bias + bias,
        count=released.count + share.mean(-1) * count,
        std=released.std * jnp.sqrt(1 + (share**2).mean(-1) * others),
    )


def _differences(
    released: UserReleases, label: Array, theta: Array, subgaussian: float, theta_norm: float
) -> Differences:
    n, d = released.bias.shape
    values, vectors = lapack.eigh(released.gram.sum(0))
    rest = released.bias - jnp.einsum("nij,nj->ni", released.gram, theta, precision="highest")
    rest = jnp.matmul(rest, vectors, precision="highest")
    seen = jnp.maximum(values, 0) * (released.count / jnp.maximum(released.count.sum(), 1))[:, None]  # (n, d) e
    expected = variance(subgaussian, seen, _noise(released, theta, vectors))
    size, weight, squares, slope = (
        jax.ops.segment_sum(x, label, n)
        for x in (jnp.ones(n), seen**2 / expected, (seen**2 / expected) ** 2, seen * rest / expected)
    )  # of every group
    best = slope / jnp.maximum(weight, LEAST)
    excess = ((rest - seen * best[label]) ** 2 / expected).sum(0) - (n - (size > 0).sum())
    information = weight.sum(0) - (squares / jnp.maximum(weight, LEAST)).sum(0)
    tau_squared = (excess + CAUTION * math.sqrt(2 * n)) / jnp.maximum(information, LEAST)
    clear = excess.sum() > CLEAR * math.sqrt(2 * n * len(excess))
    spread = jnp.matmul(vectors * jnp.maximum(tau_squared, 0), vectors.T, precision="highest")
    given = label, seen, rest, expected
    alike = _likelihood(0.0, *given) - _likelihood(theta_norm**2 / d, *given)
    return Differences(spread, clear, alike)


def _likelihood(spread: Any, label: Array, seen: Array, rest: Array, expected: Array) -> Array:
    """The restricted log-likelihood of all r_u but those along the last direction, if T = `spread` I."""
    n, d = rest.shape
    total = expected + seen**2 * spread
    size, known, slope = (jax.ops.segment_sum(x, label, n) for x in (jnp.ones(n), seen**2 / total, seen * rest / total))
    known = jnp.maximum(known, LEAST)
    squares = (rest - seen * (slope / known)[label]) ** 2 / total
    used = (squares + jnp.log(total)).sum(0) + jnp.where(size[:, None] > 0, jnp.log(known), 0).sum(0)
    return -used[: max(d - 1, 1)].sum() / 2


def _noise(released: UserReleases, theta: Array, vectors: Array) -> Array:
    along = jnp.matmul(theta[:, None], vectors, precision="highest")[:, 0]
    return released.bias_std**2 + released.std**2 * ((theta**2).sum(-1, keepdims=True) + along**2) / 2
