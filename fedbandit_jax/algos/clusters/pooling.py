"""Partial pooling: how much the users of a group differ, and so what the others' sums are worth to each of them.

Users who are taken to be alike need not be the same. Say that theta_u = theta_c + delta_u for the users u of group c,
where delta_u has mean 0 and covariance T, the same in all groups. Let U_u and W_u be the sums that were released of
user u, and v(p) the variance of the noise on p' (U_u - W_u theta_c), which `models` has.

How large is T? Let q_i and g_i be the eigenvectors and eigenvalues of the sum of W_u over all users. If N_u of N rounds
were user u's, then q_i' (U_u - W_u theta_c) has a variance of about R^2 e + v(q_i) + e^2 tau_i^2, with e = g_i N_u / N
and tau_i^2 = q_i' T q_i. So, with C groups that have users, the excess of their squares is

    x_i = sum_u (q_i' (U_u - W_u theta_c))^2 / (R^2 e + v(q_i)) - (n - C)

As long as sum_i x_i <= sqrt(2 n d), which is one standard deviation of it if T = 0, all T is taken to be 0. After that

    tau_i^2 = max(0, x_i + 3 sqrt(2 n)) / sum_u e^2 / (R^2 e + v(q_i))

which is the estimate of DerSimonian & Laird (1986) in every direction, plus three standard deviations of x_i: once
it is clear that users differ, it costs more to take different ones for the same than the opposite.

What are the others worth? Let p_i and g_i now be the eigenvectors and eigenvalues of the sum of W over the m - 1 others
of a user's group. Along p_i the variance of their estimate is 1 / A = (R^2 g_i + (m - 1) v(p_i)) / g_i^2, and that of
their mean p_i' T p_i / (m - 1); and she differs from it by a variance of p_i' T p_i. So they tell her theta like the
share w_i = 1 / (1 + A m / (m - 1) p_i' T p_i) of their sums would if T were 0. These shares are added to her sums.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.algos.clusters.models import LEAST, fit, variance
from fedbandit_jax.algos.clusters.streams import UserReleases
from fedbandit_jax.core import lapack
from fedbandit_jax.interfaces import Released

CLEAR = 1.0  # standard deviations by which users must seem to differ; 0, 1 and 2 were tried
CAUTION = 3.0  # by how many they are then taken to differ more than it seems; 0, 1, 2, 3 and 5 were tried


def pooled(released: UserReleases, label: Array, subgaussian: float) -> Released:
    """Returns by what sums every user is served, with leading axis n.

    `std` is the root mean square, over all directions, of the standard deviation of the noise on W.
    """
    n = len(label)
    others, gram, bias, count = (
        jax.ops.segment_sum(x, label, n)[label] - x for x in (jnp.ones(n), released.gram, released.bias, released.count)
    )
    theta = fit(released, label, n)[label]
    n_groups = (jax.ops.segment_sum(jnp.ones(n), label, n) > 0).sum()
    differ = _differences(released, theta, n - n_groups, subgaussian)
    values, vectors = jax.vmap(lapack.eigh)(gram)
    differ = jnp.einsum("nji,jk,nki->ni", vectors, differ, vectors, precision="highest")
    noise = others[:, None] * _noise(released, theta, vectors)
    worth = jnp.maximum(values, 0) ** 2 / variance(subgaussian, values, noise)
    share = 1 / (1 + worth * (1 + 1 / jnp.maximum(others, 1))[:, None] * differ)  # (n, d)
    gram = jnp.einsum("nij,nj,nkj->nik", vectors, share * values, vectors, precision="highest")
    bias = jnp.einsum("nij,nj,nkj,nk->ni", vectors, share, vectors, bias, precision="highest")
    return Released(
        gram=released.gram + gram,
        bias=released.bias + bias,
        count=released.count + share.mean(-1) * count,
        std=released.std * jnp.sqrt(1 + (share**2).mean(-1) * others),
    )


def _differences(released: UserReleases, theta: Array, freedom: Array, subgaussian: float) -> Array:
    """Returns T (d, d), from the estimates of every user's group, and the number n - C of users less that of groups."""
    n = len(theta)
    values, vectors = lapack.eigh(released.gram.sum(0))
    rest = released.bias - jnp.einsum("nij,nj->ni", released.gram, theta, precision="highest")
    rest = jnp.matmul(rest, vectors, precision="highest")
    seen = jnp.maximum(values, 0) * (released.count / jnp.maximum(released.count.sum(), 1))[:, None]  # (n, d)
    expected = variance(subgaussian, seen, _noise(released, theta, vectors))
    excess = (rest**2 / expected).sum(0) - freedom
    tau_squared = jnp.maximum(excess + CAUTION * math.sqrt(2 * n), 0) / jnp.maximum((seen**2 / expected).sum(0), LEAST)
    clear = excess.sum() > CLEAR * math.sqrt(2 * n * len(excess))
    return jnp.where(clear, jnp.matmul(vectors * tau_squared, vectors.T, precision="highest"), 0)


def _noise(released: UserReleases, theta: Array, vectors: Array) -> Array:
    """Returns the variance of the noise on p' (U - W theta) of one user (n, d), for columns p (d, d) or (n, d, d)."""
    along = jnp.matmul(theta[:, None], vectors, precision="highest")[:, 0]
    return released.bias_std**2 + released.std**2 * ((theta**2).sum(-1, keepdims=True) + along**2) / 2
