"""Matrix factorisations, one matrix at a time on a CPU, also under `jax.vmap`.

If two programs pass several matrices to the threads of XLA:CPU at once, they may deadlock (jaxlib 0.10.2, two cores).
One matrix after the other takes about as long. Elsewhere a library factorises all at once.
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

    @mapped.def_vmap
    def _(axis_size: int, in_batched: list[bool], *given: Array) -> tuple[Any, Any]:
        lanes = [x if own else jnp.broadcast_to(x, (axis_size, *x.shape)) for x, own in zip(given, in_batched)]
        results = lax.map(lambda lane: mapped(*lane), lanes)
        return results, jax.tree.map(lambda _: True, results)

    return functools.wraps(function)(lambda *given: (mapped if on_cpu() else function)(*given))


def factorises_several(equation: Any) -> bool:
    """Returns whether an operation of a program factorises, or solves with, several matrices at once."""
    return equation.primitive in _FACTORISATIONS and max(x.aval.ndim for x in equation.invars) > 2


@_one_by_one
def factor(gram: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
    """Returns the lower triangular L with L L' = V, and its inverse; not finite if V is not positive definite."""
    lower = jnp.linalg.cholesky(gram)
    eye = jnp.eye(len(gram), dtype=gram.dtype)
    return lower, lax.linalg.triangular_solve(lower, eye, left_side=True, lower=True)


@_one_by_one
def eigh(gram: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Returns the eigenvalues of a symmetric matrix, ascending, and its eigenvectors as columns."""
    values, vectors = jnp.linalg.eigh(gram)
    return values, vectors


@_one_by_one
def solve(matrix: Float[Array, "d d"], bias: Float[Array, " d"]) -> Float[Array, " d"]:
    """Solves a linear system with any regular matrix."""
    return jnp.linalg.solve(matrix, bias)
