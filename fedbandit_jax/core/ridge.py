"""Online ridge regression for many agents at once: a Cholesky solve, then Sherman-Morrison rank-one updates.

Letters: V (d, d), `gram`, is an agent's regularised sum of x x', with noise. Its noisy sum of x y is b (d,), `bias`. A
is M, or 1 if all agents share the same statistics (which then broadcast).

Layout: contexts arrive as (M, K, d). State between rounds has the agents *last*. On a CPU the last axis is the vector
lane. A sum over d unrolled in Python becomes one fused loop, ten times faster than a batched contraction. A
symmetric inverse is stored by its P = d (d + 1) / 2 entries on and below the diagonal, row by row, (P, A). Above
`UNROLL_DIM` features contractions are matrix products, and the inverses are (A, d, d) instead.

Every matrix product has `precision="highest"`, since a GPU would otherwise round its factors to 10 bits (TF32). A test
finds products without it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from fedbandit_jax.core import lapack
from fedbandit_jax.core.backend import UNROLL_DIM as UNROLL_DIM
from fedbandit_jax.core.backend import on_cpu, on_gpu
from fedbandit_jax.core.solve_kernel import solve_by_kernel

NOWHERE = 2**30  # an arm index that no environment has


class Posterior(NamedTuple):
    """Ridge estimates, one linear model for each agent."""

    inverse: Float[Array, "P A"] | Float[Array, "A d d"]  # V^-1, in the second layout if d > UNROLL_DIM
    theta: Float[Array, "d A"]  # estimate V^-1 b


class Solution(NamedTuple):
    """Ridge estimate of one model, with a full matrix."""

    inverse: Float[Array, "d d"]  # V^-1
    theta: Float[Array, " d"]  # V^-1 b
    log_det: Float[Array, ""]  # log det V
    ok: Bool[Array, ""]  # whether V is positive definite and all numbers are finite


def solve(
    gram: Float[Array, "A d d"], bias: Float[Array, "A d"]
) -> tuple[Posterior, Float[Array, " A"], Bool[Array, " A"]]:
    """Returns posterior, log det V, and for each agent whether V is positive definite and all numbers finite."""
    inverse, theta, log_det, ok = jax.vmap(solve_one)(gram, bias)
    if bias.shape[1] <= UNROLL_DIM:
        rows, columns = np.tril_indices(bias.shape[1])
        inverse = inverse[:, rows, columns].T
    return Posterior(inverse, theta.T), log_det, ok


def solve_one(gram: Float[Array, "d d"], bias: Float[Array, " d"]) -> Solution:
    """Computes the ridge estimate of one model."""
    if on_gpu() and len(bias) <= UNROLL_DIM:
        inverse, theta, log_det = solve_by_kernel(gram, bias)
        return Solution(inverse, theta, log_det, jnp.isfinite(log_det))
    factor, half = lapack.factor(gram)
    inverse = jnp.matmul(half.T, half, precision="highest")
    theta = jnp.matmul(inverse, bias, precision="highest")
    ok = jnp.isfinite(inverse).all() & jnp.isfinite(theta).all()
    return Solution(inverse, theta, 2 * jnp.log(jnp.diagonal(factor)).sum(), ok)


def matrices(posterior: Posterior) -> Float[Array, "A d d"]:
    """Returns the inverses V^-1 of every agent as full matrices."""
    if _wide(posterior.theta):
        return posterior.inverse
    return jnp.moveaxis(posterior.inverse[_places(len(posterior.theta))], 2, 0)


def _places(dim: int) -> np.ndarray:
    i, j = np.indices((dim, dim))
    i, j = np.maximum(i, j), np.minimum(i, j)
    return i * (i + 1) // 2 + j


def _wide(features_first: Array) -> bool:
    return features_first.shape[0] > UNROLL_DIM


def transposed(contexts: Array) -> Array:
    """Transposes contexts (M, K, d) to features first, (d, K, M), or back; the two cancel without a copy."""
    return jnp.moveaxis(contexts, (0, 1, 2), (2, 1, 0))


def dot(a: Sequence[Array] | Array, b: Sequence[Array] | Array) -> Array:
    """Sums a * b over the leading axis, unrolled on a CPU: XLA:CPU does not vectorise additions in a reduction.

    XLA:GPU would make a kernel of every slice of a large array. Lists of arrays are unrolled everywhere.
    """
    if isinstance(a, Array) and isinstance(b, Array) and not (on_cpu() and len(a) <= UNROLL_DIM):
        return (a * b).sum(0)
    total = a[0] * b[0]
    for i in range(1, len(a)):
        total = total + a[i] * b[i]
    return total


def inner(contexts: Float[Array, "M K d"], theta: Float[Array, "d A"]) -> Float[Array, "K M"]:
    """Returns <x, theta> of every arm."""
    if _wide(theta):
        theta = jnp.broadcast_to(theta, (len(theta), len(contexts)))
        return jnp.einsum("mkd,dm->km", contexts, theta, precision="highest")
    return dot(transposed(contexts), theta[:, None, :])


def width_sq(
    contexts: Float[Array, "M K d"], inverse: Float[Array, "P A"] | Float[Array, "A d d"]
) -> Float[Array, "K M"]:
    """Returns x' V^-1 x of every arm, from an inverse laid out as in `Posterior`."""
    d = contexts.shape[-1]
    if d > UNROLL_DIM:
        image = jnp.matmul(contexts, inverse[0] if len(inverse) == 1 else inverse, precision="highest")
        return (image * contexts).sum(-1).T
    return form(list(transposed(contexts)), inverse)


@jax.jit
def form(x: Sequence[Array] | Array, inverse: Float[Array, "P A"] | Array) -> Array:
    """Returns x' V^-1 x from the d features of vectors, which broadcast with the entries of the inverse.

    Above `UNROLL_DIM` features x is one array (d, n), and the inverse has one agent, (1, d, d).
    """
    if len(x) > UNROLL_DIM:
        features = jnp.asarray(x)
        return (jnp.matmul(inverse[0], features, precision="highest") * features).sum(0)
    total = jnp.zeros((), x[0].dtype)
    for i, x_i in enumerate(x):
        first = i * (i + 1) // 2
        row = x_i * inverse[first + i]
        for j in range(i):
            row = row + (2 * inverse[first + j]) * x[j]
        total = total + row * x_i
    return total


def take(contexts: Float[Array, "M K d"], arms: Int[Array, " M"]) -> Float[Array, "d M"]:
    """Returns the feature vectors of the chosen arms."""
    if contexts.shape[1] == 1:
        return contexts[:, 0].T
    if contexts.shape[-1] > UNROLL_DIM:
        return jnp.take_along_axis(contexts, arms[:, None, None], axis=1)[:, 0].T
    return jnp.take_along_axis(transposed(contexts), arms[None, None, :], axis=1)[:, 0]


def first_argmax(scores: Float[Array, " K *M"]) -> Int[Array, "*M"]:
    """Returns the argmax over the leading axis, the first on ties; `NOWHERE` if any score is NaN.

    On a CPU two vectorised reductions are ten times faster than `jnp.argmax`. XLA:GPU would take them for a softmax. It
    would not finish fusing the expressions before them.
    """
    if on_cpu():
        index = lax.broadcasted_iota(jnp.int32, scores.shape, 0)
        return jnp.where(scores == scores.max(0), index, jnp.int32(NOWHERE)).min(0)
    index = jnp.argmax(scores, 0).astype(jnp.int32)  # index of the first NaN, if any
    largest = jnp.take_along_axis(scores, index[None], 0)[0]
    return jnp.where(jnp.isnan(largest), jnp.int32(NOWHERE), index)


class Gain(NamedTuple):
    """Terms of the rank-one update of each agent's posterior by one new row (x, y)."""

    image: Float[Array, "d M"]  # V^-1 x
    leverage: Float[Array, " M"]  # x' V^-1 x; log det V grows by log(1 + leverage)
    scale: Float[Array, " M"]  # 1 / (1 + leverage)
    residual: Float[Array, " M"]  # scale (y - <x, theta>)


def gain(posterior: Posterior, x: Float[Array, "d M"], y: Float[Array, " M"]) -> Gain:
    """Computes the Sherman-Morrison terms of one new feature vector x and reward y for each agent.

    `residual` is a reduction instead of `dot`, since XLA:CPU stores a reduction. It would fuse an unrolled sum into
    every reader, and compute it again for each of K arms.
    """
    if _wide(x):
        image = jnp.einsum("mde,em->dm", posterior.inverse, x, precision="highest")
    else:
        image = dot(posterior.inverse[_places(len(x))], x[:, None, :])
    leverage = dot(image, x)
    scale = 1 / (1 + leverage)
    return Gain(image, leverage, scale, scale * (y - (posterior.theta * x).sum(0)))


def update(posterior: Posterior, gain: Gain) -> Posterior:
    """Adds x x' to V and x y to b, given the `gain` of (x, y)."""
    left, right = gain.image, gain.image * gain.scale
    if _wide(left):
        outer = left.T[:, :, None] * right.T[:, None, :]
    else:
        rows, columns = np.tril_indices(len(left))
        outer = left[rows] * right[columns]
    return Posterior(posterior.inverse - outer, posterior.theta + gain.image * gain.residual)


def with_spectrum(values: Float[Array, "*n d"], vectors: Float[Array, "*n d d"]) -> Float[Array, "*n d d"]:
    """Returns symmetric matrices with these eigenvalues, and the columns of `vectors` as eigenvectors."""
    return jnp.matmul(vectors * values[..., None, :], jnp.swapaxes(vectors, -1, -2), precision="highest")


def where(ok: Bool[Array, " A"], new: Posterior, old: Posterior) -> Posterior:
    """Selects `new` for agents with `ok`, and `old` for the others."""
    agents = ok[:, None, None] if _wide(new.theta) else ok
    return Posterior(jnp.where(agents, new.inverse, old.inverse), jnp.where(ok, new.theta, old.theta))


def agents(posterior: Posterior, which: slice | Int[Array | np.ndarray, " M"]) -> Posterior:
    """Restricts the posterior to some agents."""
    inverse = posterior.inverse[which] if _wide(posterior.theta) else posterior.inverse[..., which]
    return Posterior(inverse, posterior.theta[:, which])


def one(posterior: Posterior, agent: Int[Array, ""]) -> Posterior:
    """Returns the posterior of one agent, or the shared one."""
    return posterior if posterior.theta.shape[1] == 1 else agents(posterior, agent[None])


def join(posterior: Posterior) -> Posterior:
    """Joins n stacked posteriors, each with A = 1, into one with A = n."""
    theta = posterior.theta[..., 0].T
    return Posterior(posterior.inverse[:, 0] if _wide(theta) else posterior.inverse[..., 0].T, theta)


def tile(posterior: Posterior, n_agents: int) -> Posterior:
    """Copies a shared posterior for every agent, A = 1 -> A = n_agents."""
    d = len(posterior.theta)
    shape = (n_agents, d, d) if _wide(posterior.theta) else (len(posterior.inverse), n_agents)
    return Posterior(jnp.broadcast_to(posterior.inverse, shape), jnp.broadcast_to(posterior.theta, (d, n_agents)))
