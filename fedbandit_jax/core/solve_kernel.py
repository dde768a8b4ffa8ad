"""A ridge estimate on a GPU by one kernel; the oracle is the LAPACK solve in `core.ridge`."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from fedbandit_jax.core.backend import on_cpu


def solve_by_kernel(
    gram: Float[Array, "d d"], bias: Float[Array, " d"]
) -> tuple[Float[Array, "d d"], Float[Array, " d"], Float[Array, ""]]:
    """Computes V^-1, V^-1 b and log det V on a GPU, by one kernel, also under `jax.vmap`.

    Libraries launch a kernel for every step and some between them. Launches cost more than the arithmetic of small
    matrices. Here one warp holds a matrix of up to 32 features in its registers. Step k of a Cholesky factorisation V =
    L L' finds column k of L. Forward substitution gives row k of L^-1. Its outer product with itself is a term of V^-1
    = L^-T L^-1. On a CPU Pallas' interpreter runs the kernel, so a test compares it to LAPACK.

    log det V is NaN unless V is positive definite and all numbers are finite.
    """
    from jax.experimental import pallas as pl  # imported late: only GPUs need Triton
    from jax.experimental.pallas import triton

    d = len(bias)
    n = 1 << (d - 1).bit_length()

    def kernel(gram, bias, inverse, theta, log_det):
        row, column = (lax.broadcasted_iota(jnp.int32, (n, n), axis) for axis in (0, 1))
        inside, entry = (row < d) & (column < d), lax.iota(jnp.int32, n) < d

        def eliminate(k, carry):
            rest, half, inverse, log_det = carry
            pivot = jnp.where((row == k) & (column == k), rest, 0).sum()
            root = jnp.sqrt(pivot)
            lower = jnp.where(column == k, rest, 0).sum(1) / root  # L[:, k], 0 above the diagonal
            across = jnp.where(row == k, rest, 0).sum(0) / root  # along the other axis
            new = jnp.where(row == k, half, 0).sum(0) / root  # (L^-1)[k]
            down = jnp.where(row == column, new[None], 0).sum(1)  # along the other axis
            rest = jnp.where((row > k) & (column > k), rest - lower[:, None] * across[None], 0)
            half = jnp.where(row > k, half - lower[:, None] * new[None], half)
            return rest, half, inverse + down[:, None] * new[None], log_det + jnp.log(pivot)

        v, b = triton.load(gram, mask=inside, other=0), triton.load(bias, mask=entry, other=0)
        start = v, (row == column).astype(jnp.float32), jnp.zeros((n, n), jnp.float32), jnp.float32(0)
        *_, found, total = lax.fori_loop(0, d, eliminate, start)
        estimate = (found * b[None]).sum(1)
        off = jnp.abs(found).sum() + jnp.abs(estimate).sum()
        triton.store(inverse, found, mask=inside)
        triton.store(theta, estimate, mask=entry)
        log_det[...] = jnp.full((1,), jnp.where(off < jnp.inf, total, jnp.nan))

    matrix, vector = pl.BlockSpec((n, n), lambda: (0, 0)), pl.BlockSpec((n,), lambda: (0,))
    inverse, theta, log_det = pl.pallas_call(
        kernel,
        [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((d, d), (d,), (1,))],
        in_specs=[matrix, vector],
        out_specs=[matrix, vector, pl.BlockSpec((1,), lambda: (0,))],
        interpret=on_cpu(),
        name="solve",
        compiler_params=None if on_cpu() else triton.CompilerParams(num_warps=1, num_stages=1),
    )(gram, bias)
    return inverse, theta, log_det[0]
