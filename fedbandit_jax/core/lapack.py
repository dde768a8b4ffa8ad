"""Matrix factorisations, which a CPU computes one matrix at a time, also under `jax.vmap`.

Two programs that hand several matrices to the threads of XLA:CPU at the same time may wait for each other for ever
(jaxlib 0.10.2, two cores). One after the other takes about as long. Elsewhere a library factorises all at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from fedbandit_jax.core.backend import on_cpu

_FACTORISATIONS = frozenset(x for name, x in vars(lax.linalg).items() if name.endswith("_p"))


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    mapped = jax.custom_batching.custom_vmap(function)

    def over_lanes(axis_size: int, in_batched: list[bool], *arguments: Array) -> tuple[Any, Any]:
        lanes = [x for x, batched in zip(arguments, in_batched) if batched]

        def of_lane(lane: list[Array]) -> Any:
            own = iter(lane)
            return mapped(*(next(own) if batched else x for x, batched in zip(arguments, in_batched)))

        results = lax.map(of_lane, lanes)
        return results, jax.tree.map(lambda _: True, results)

    mapped.def_vmap(over_lanes)
    return functools.wraps(function)(lambda *arguments: (mapped if on_cpu() else function)(*arguments))


def factorises_several(equation: Any) -> bool:
    """Whether an operation of a program factorises, or solves with, several matrices at once."""
    return equation.primitive in _FACTORISATIONS and max(x.aval.ndim for x in equation.invars) > 2


@_one_by_one
def cholesky(gram: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The lower triangular L with L L' = V; it is not finite if V is not positive definite."""
    return jnp.linalg.cholesky(gram)


@_one_by_one
def factor(gram: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
    """`cholesky(gram)` and its inverse, so that V^-1 = L^-T L^-1."""
    lower = jnp.linalg.cholesky(gram)
    eye = jnp.eye(len(gram), dtype=gram.dtype)
    return lower, lax.linalg.triangular_solve(lower, eye, left_side=True, lower=True)


@_one_by_one
def solve_lower(factor: Float[Array, "d d"], right: Float[Array, "d n"]) -> Float[Array, "d n"]:
    """L^-1 B for a lower triangular L."""
    return lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)


@_one_by_one
def solve_upper(factor: Float[Array, "d d"], right: Float[Array, "d n"]) -> Float[Array, "d n"]:
    """(L')^-1 B for a lower triangular L."""
    return lax.linalg.triangular_solve(factor, right, left_side=True, lower=True, transpose_a=True)


@_one_by_one
def eigh(gram: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """The eigenvalues of a symmetric matrix, ascending, and its eigenvectors as columns."""
    values, vectors = jnp.linalg.eigh(gram)
    return values, vectors
