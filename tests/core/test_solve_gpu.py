"""The kernel that solves, run by Pallas' interpreter, against NumPy in 64 bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.core.solve_kernel import solve_by_kernel


def posed(d, n=3, ridge=0.1):
    """Some positive definite matrices with condition numbers of about 100, and vectors."""
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(n, 2 * d, d)) / np.sqrt(2 * d)
    gram = np.einsum("nki,nkj->nij", rows, rows) + ridge * np.eye(d)
    return gram.astype(np.float32), rng.normal(size=(n, d)).astype(np.float32)


@pytest.mark.parametrize("d", [1, 3, 16, 32])
def test_solve(d):
    gram, bias = posed(d)
    inverse, theta, log_det = jax.jit(jax.vmap(solve_by_kernel))(gram, bias)
    exact = np.linalg.inv(gram.astype(float))
    np.testing.assert_allclose(inverse, exact, atol=1e-4)
    np.testing.assert_allclose(theta, np.einsum("nij,nj->ni", exact, bias), atol=2e-4)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(gram.astype(float))[1], atol=1e-4)


@pytest.mark.parametrize(("pivot", "entry"), [(-1e-3, 1), (0.0, 1), (np.nan, 1), (1.0, np.inf), (1e-39, 1e20)])
def test_where_there_is_no_estimate_there_is_no_determinant(pivot, entry):
    assert np.isnan(solve_by_kernel(jnp.diag(jnp.array([1.0, pivot, 2.0])), jnp.full(3, entry))[2])
