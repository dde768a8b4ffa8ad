"""The linear algebra of the hot loop against NumPy, on both sides of UNROLL_DIM; the kernel that solves; tables."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep

from fedbandit_jax.core import ridge, tables
from fedbandit_jax.core.solve_kernel import solve_by_kernel

M, K = 5, 6


def anew(function):
    """Compiles once more what was, perhaps, compiled for another machine."""
    return jax.jit(lambda *arguments: function(*arguments))


def matrices(posterior):
    """(A, d, d), whatever the layout."""
    return np.asarray(ridge.matrices(posterior))


@pytest.mark.parametrize(("d", "agents"), deep(itertools.product([1, 3, 20, 21, 40], [1, M]), keep={3, 5, 7}))
def test_scores_and_update(d, agents):
    rng = np.random.default_rng(0)
    rows, bias = rng.standard_normal((agents, 3 * d, d)), rng.standard_normal((agents, d))
    gram = np.einsum("ari,arj->aij", rows, rows) / d + np.eye(d)
    x = (rng.standard_normal((M, K, d)) / np.sqrt(d)).astype(np.float32)
    arms, y = np.array([0, 5, 2, 2, 1]), np.arange(M, dtype=np.float32)

    @jax.jit
    def run(gram, bias, x, arms):
        posterior, _, ok = ridge.solve(gram, bias)
        taken, own = ridge.take(x, arms), ridge.tile(posterior, M)
        new = ridge.update(own, ridge.gain(own, taken, y))
        scores = ridge.width_sq(x, posterior.inverse), ridge.inner(x, posterior.theta)
        return ok, ridge.matrices(posterior), *scores, taken, ridge.matrices(new), new.theta

    ok, found, widths, scores, taken, updated, theta = map(np.asarray, run(np.float32(gram), np.float32(bias), x, arms))
    assert ok.all()
    inverse = np.linalg.inv(gram)
    np.testing.assert_allclose(found, inverse, rtol=1e-3, atol=1e-5)
    exact = np.einsum("mki,mij,mkj->km", x, np.broadcast_to(inverse, (M, d, d)), x)
    np.testing.assert_allclose(widths, exact, rtol=1e-3)
    means = np.broadcast_to(np.einsum("aij,aj->ai", inverse, bias), (M, d))
    np.testing.assert_allclose(scores, np.einsum("mki,mi->km", x, means), atol=1e-4)
    np.testing.assert_array_equal(taken, x[np.arange(M), arms].T)
    gram = np.broadcast_to(gram, (M, d, d)) + np.einsum("im,jm->mij", taken, taken)
    bias = np.broadcast_to(bias, (M, d)) + (taken * y).T
    np.testing.assert_allclose(updated, np.linalg.inv(gram), rtol=2e-3, atol=1e-5)
    solved = np.linalg.solve(gram, bias[..., None])[..., 0].T
    np.testing.assert_allclose(theta, solved, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("d", [3, 21])
def test_where_keeps_the_old_estimate_of_the_others(d):
    zero = jax.jit(lambda *sums: ridge.tile(ridge.solve(*sums)[0], M))(np.eye(d)[None], np.zeros((1, d)))
    new, old = (ridge.Posterior(*(np.full(array.shape, value, np.float32) for array in zero)) for value in (1, 2))
    kept = jax.jit(ridge.where)(jnp.array([True, False, True, True, False]), new, old)
    expected = np.array([1.0, 2.0, 1.0, 1.0, 2.0])
    np.testing.assert_array_equal(kept.theta, np.broadcast_to(expected, (d, M)))
    np.testing.assert_array_equal(matrices(kept), np.broadcast_to(expected[:, None, None], (M, d, d)))


@pytest.mark.parametrize("d", [3, ridge.UNROLL_DIM + 1])
@pytest.mark.parametrize("cpu", [True, False], ids=["unrolled", "reduced"])
def test_dot(cpu, d, monkeypatch):
    monkeypatch.setattr(ridge, "on_cpu", lambda: cpu)
    a, b = np.random.default_rng(0).normal(size=(2, d, 4)).astype(np.float32)
    for left, right in ((a, b), (list(a), list(b))):
        np.testing.assert_allclose(anew(ridge.dot)(left, right), np.einsum("da,da->a", a.astype(float), b), rtol=1e-5)


@pytest.mark.parametrize("cpu", [True, False], ids=["reductions", "argmax"])
def test_first_argmax(cpu, monkeypatch):
    """On every machine: the first of equals, infinities included; nothing where a score is not a number."""
    monkeypatch.setattr(ridge, "on_cpu", lambda: cpu)
    nan, inf = np.nan, np.inf
    scores = np.array([
        [1.0, 3.0, 2.0, -inf, inf, nan, nan, -0.0],
        [1.0, 3.0, 5.0, -inf, 1.0, nan, 7.0, 0.0],
        [0.0, 3.0, 5.0, -inf, inf, nan, 1.0, -0.0],
        [-inf, 2.0, 4.0, -inf, nan, nan, inf, -1.0],
    ], np.float32)  # fmt: skip
    expected = [0, 0, 1, 0, ridge.NOWHERE, ridge.NOWHERE, ridge.NOWHERE, 0]
    alone, together = anew(ridge.first_argmax)(scores), anew(jax.vmap(ridge.first_argmax))(np.stack([scores, scores]))
    assert alone.dtype == np.int32
    np.testing.assert_array_equal(alone, expected)
    np.testing.assert_array_equal(together, [expected, expected])
    ties = np.float32(np.random.default_rng(0).integers(0, 4, (17, 500)))
    np.testing.assert_array_equal(anew(ridge.first_argmax)(ties), np.argmax(ties, 0))


def test_float32_drift_within_the_refresh_interval():
    """design rule: bonus^2 is right to 1e-4 after the 1,000 rank-one updates that algorithms allow themselves."""
    d, steps = 10, 1000
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((steps, d, M))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    posterior, *_ = jax.jit(ridge.solve)(np.broadcast_to(np.eye(d), (M, d, d)), np.zeros((M, d)))

    def step(p, x):
        return ridge.update(p, ridge.gain(p, x, x[0])), None

    posterior, _ = jax.lax.scan(step, posterior, jnp.asarray(rows, jnp.float32))
    contexts = rng.standard_normal((M, K, d))
    exact = np.linalg.inv(np.eye(d) + np.einsum("sim,sjm->mij", rows, rows))
    expected = np.einsum("mki,mij,mkj->km", contexts, exact, contexts)
    got = jax.jit(ridge.width_sq)(np.float32(contexts), posterior.inverse)
    assert np.abs(got / expected - 1).max() < 1e-4


# The kernel that solves, run by Pallas' interpreter, against NumPy in 64 bits.


solved = jax.jit(solve_by_kernel)


@pytest.mark.parametrize(("pivot", "entry"), [(-1e-3, 1), (0.0, 1), (np.nan, 1), (1.0, np.inf), (1e-39, 1e20)])
def test_where_there_is_no_estimate_there_is_no_determinant(pivot, entry):
    assert np.isnan(solved(np.diag(np.float32([1, pivot, 2])), np.full(3, entry, np.float32))[2])


@pytest.mark.parametrize("d", [1, 4, ridge.UNROLL_DIM])
def test_the_kernel_of_a_gpu_solves_the_same(d, monkeypatch):
    """Of three matrices the last is not positive definite; an estimate of zero is one."""
    rows = np.random.default_rng(d).normal(size=(3, 2 * d, d)) / np.sqrt(2 * d)
    gram = np.einsum("nki,nkj->nij", rows, rows) + 0.1 * np.eye(d)  # of condition numbers of about 100
    gram = (gram * np.reshape([1, 1, -1], (3, 1, 1))).astype(np.float32)
    bias = (rows[:, 0] * [[0], [1], [1]]).astype(np.float32)
    asked = []
    monkeypatch.setattr(ridge, "on_gpu", lambda: asked.append(True) or True)
    found, log_det, ok = anew(ridge.solve)(gram, bias)
    assert asked
    assert ok.tolist() == [True, True, False]
    exact = np.linalg.inv(gram[:2].astype(float))
    np.testing.assert_allclose(matrices(found)[:2], exact, atol=1e-4)
    np.testing.assert_allclose(found.theta.T[:2], np.einsum("nij,nj->ni", exact, bias[:2]), atol=2e-4)
    np.testing.assert_allclose(log_det[:2], np.linalg.slogdet(gram[:2].astype(float))[1], atol=1e-4)


@pytest.mark.parametrize(("cpu", "small"), [(True, 0), (False, 0), (False, 100)], ids=["cpu", "large", "small"])
@pytest.mark.parametrize("at", [4, 5])
def test_rows_of_tables(at, cpu, small, monkeypatch):
    """They are put and added alike everywhere. The last number is that of nobody, for whom nothing is written."""
    monkeypatch.setattr(tables, "on_cpu", lambda: cpu)
    monkeypatch.setattr(tables, "SMALL", small)
    monkeypatch.setattr(tables, "FEW", 0)
    rng = np.random.default_rng(at)
    table = {"x": rng.normal(size=(2, 5, 3)).astype(np.float32), "n": np.arange(10).reshape(2, 5)}
    row = {"x": rng.normal(size=(2, 3)).astype(np.float32), "n": np.array([50, 60])}
    put, add = (anew(jax.vmap(one, (0, None, 0)))(table, np.int32(at), row) for one in (tables.put, tables.add))
    for name, array in table.items():
        expected, more = array.copy(), array.copy()
        expected[:, at : at + 1], more[:, at : at + 1] = row[name][:, None], array[:, at : at + 1] + row[name][:, None]
        np.testing.assert_array_equal(put[name], expected)
        np.testing.assert_array_equal(add[name], more)
