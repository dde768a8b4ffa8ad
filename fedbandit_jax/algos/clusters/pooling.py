"""Partitions of users, and pooling: a user's own sums, shares of the group's, and the group's estimate."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key

from fedbandit_jax.core import lapack
from fedbandit_jax.interfaces import Released, Spec
from fedbandit_jax.linalg import GaussianBelief

LEAST = 1e-2  # smallest denominator
CLEAR = 1.0  # standard deviations of a clear difference
CAUTION = 3.0  # standard deviations added to clear differences
HEED = 1.0  # prior bound on others' noise, relative to a user's own


class UserReleases(NamedTuple):
    """Input of a grouping at a release: noisy sums of every user, and noise standard deviations."""

    gram: Float[Array, "n d d"]  # W of each user, plus noise
    bias: Float[Array, "n d"]  # U of each user, plus noise
    count: Float[Array, " n"]  # rounds in these sums  # pyright: ignore[reportIncompatibleMethodOverride]
    std: Float[Array, ""]  # standard deviation of the noise on the diagonal of `gram`
    bias_std: Float[Array, ""]  # standard deviation of the noise on `bias`


class Grouping:
    """Base class of partitions of users into groups: `Mixture`, `Alone` and `Together`.

    A grouping is a function of released sums, of the groups after the last release, and of a key. So by post-processing
    a run is as private as its mechanism.
    """

    def bind(self, spec: Spec) -> Grouping:
        """Returns the grouping that runs, with checked parameters."""
        return self

    def group(self, key: Key[Array, ""], released: UserReleases, last: Int[Array, " n"]) -> Int[Array, " n"]:
        """Returns the group of every user, in 0 ... n - 1. `last` are those before, 0 before the first release."""
        raise NotImplementedError(f"{type(self).__name__}.group")

    def pool(self, released: UserReleases, label: Int[Array, " n"]) -> Released:
        """Returns the sums that serve each user, with leading axis n; by default the sums of the user's group."""
        n = len(label)
        gram, bias, count, size = (
            jax.ops.segment_sum(x, label, n)[label] for x in (released.gram, released.bias, released.count, jnp.ones(n))
        )
        return Released(gram, bias, count, released.std * jnp.sqrt(size))  # noise of m users


class Differences(NamedTuple):
    """Heterogeneity of users within groups."""

    spread: Array  # (d, d) T, if that is clear
    clear: Array  # () bool
    alike: Array  # () log-likelihood ratio of the releases, T = 0 over T = S^2 / d I


def variance(subgaussian: float, values: Array, noise: Array) -> Array:
    """Returns R^2 p' G p + noise, at least `LEAST`, from R, estimates of p' G p, and the noise's variance."""
    return jnp.maximum(subgaussian**2 * jnp.maximum(values, 0) + noise, LEAST)


def fit(released: UserReleases, label: Array, n_groups: int) -> Array:
    """Returns the ridge estimate of every group (C, d), from the sums of its users."""
    gram, bias, size = (
        jax.ops.segment_sum(x, label, n_groups) for x in (released.gram, released.bias, jnp.ones(len(label)))
    )
    return ridge(gram, bias, released.std, size)


def ridge(gram: Array, bias: Array, std: Array, size: Array) -> Array:
    """Returns the estimates (W + lambda I)^-1 U of every W (n, d, d) and U (n, d) that are sums over `size` users.

    lambda = 1 + 2 s sqrt(size d) exceeds the norm of the noise on W with high probability. Otherwise theta = 0.
    """
    d = bias.shape[-1]
    precision = gram + (1 + 2 * std * jnp.sqrt(size * d))[:, None, None] * jnp.eye(d)
    theta = jax.vmap(lambda precision, bias: GaussianBelief.solve(precision, bias).mean)(precision, bias)
    return jnp.where(jnp.isfinite(theta).all(-1, keepdims=True), theta, 0)


def pooled(released: UserReleases, label: Array, subgaussian: float, theta_norm: float) -> Released:
    """Returns the sums that serve every user, with leading axis n: the user's own, and shares of the group's.

    Let U and W be released sums of x y and x x' of some users, with noise z and Z. G is the sum of x x' without noise.
    If mean rewards are <x, theta>, then U - W theta = sum x eta + z - Z theta, with R-sub-Gaussian eta. Let s_U and s_W
    be the standard deviations of z and of the diagonal of Z. The matrix Z is symmetric, with half the variance off the
    diagonal. Along a unit vector p the variance is about R^2 p' G p + s_U^2 + s_W^2 (||theta||^2 + (p' theta)^2) / 2
    for one user. Noise of m users has m times the variance.

    Users of a group need not be equal. Let theta_u = theta_c + delta_u for the users u of group c, with delta_u of mean
    0 and covariance T, the same in all groups. Let U_u and W_u be user u's released sums, and theta the group's ridge
    estimate. The noise on p' (U_u - W_u theta) has the variance v(p).

    Estimate of T. Let q_i and g_i be the eigenvectors and eigenvalues of the sum of W_u over all users. Suppose N_u of
    N rounds are user u's, with features like those of others. Let e = g_i N_u / N, s^2 = R^2 e + v(q_i), tau_i^2 = q_i'
    T q_i, and let b_c be the ridge's bias. Then r_u = q_i' (U_u - W_u theta) has about the mean e b_c and the variance
    s^2 + e^2 tau_i^2. Cochran's Q is the sum over users of (r_u - e b_c)^2 / s^2 with the best b_c for each of C
    groups. If T = 0, it exceeds n - C by x_i, of mean 0 and variance about 2 n. If x_1 + ... + x_d > sqrt(2 n d), users
    clearly differ, and T = sum_i tau_i^2 q_i q_i' with

        tau_i^2 = max(0, x_i + 3 sqrt(2 n)) / sum_c (sum w_u - sum w_u^2 / sum w_u),    w_u = (e / s)^2

    with inner sums over the users of group c. Without 3 sqrt(2 n) this is the estimate of DerSimonian & Laird (1986).
    The three standard deviations are for caution. Pooling different users costs more than separating equal ones. So
    equal users that seem different by chance (one release in six) share little in that release. If R is too large,
    users must differ more to be separated.

    Value of other users. Let p_i and g_i now be the eigenvectors and eigenvalues of the sum of W over the m - 1 others
    of a user's group. Along p_i the variance of their estimate is 1 / A = (R^2 g_i + (m - 1) v(p_i)) / g_i^2. For equal
    numbers of rounds their mean has the variance p_i' T p_i / (m - 1). The user differs from it by a variance of p_i' T
    p_i. So their data are worth a share w_i = 1 / (1 + A m / (m - 1) p_i' T p_i) of data with T = 0. These shares of
    their sums are added to the user's own.

    If users do not clearly differ, they may be equal or not. Suppose that theta_u has mean 0 and the variance V = S^2 /
    d in every direction. With probability rho all users have the same theta_u. Otherwise these are independent. The
    best linear estimate from both sums has w_i = rho / (1 + A V (1 - rho) (rho + 1 / (m - 1))). The odds of rho come
    from the restricted likelihood of all r_u, times prior odds of 1 to sqrt(m - 1) - 1. With the prior alone, the
    others' noise is at most the user's own. The likelihood leaves out the direction of most data, i.e. of the mean
    feature. Users differ least there.

    `std` is the root mean square over the directions p_i. One direction may have more noise, up to the group's.
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
    """Returns the restricted log-likelihood of all r_u except along the last direction, for T = `spread` I."""
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
