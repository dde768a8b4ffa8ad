"""The linear algebra of the hot loop against plain NumPy, on both sides of UNROLL_DIM and for A = 1 and A = M."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep

from fedbandit_jax.core import ridge

M, K = 5, 6


def instance(d, agents, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((agents, 3 * d, d))
    gram = np.einsum("ari,arj->aij", rows, rows) / d + np.eye(d)
    bias = rng.standard_normal((agents, d))
    contexts = rng.standard_normal((M, K, d)) / np.sqrt(d)
    return gram, bias, contexts


def anew(function):
    """Compiles once more what was, perhaps, compiled for another machine."""
    return jax.jit(lambda *arguments: function(*arguments))


def matrices(posterior):
    """(A, d, d), whatever the layout."""
    return np.asarray(ridge.matrices(posterior))


@pytest.mark.parametrize(("d", "agents"), deep(itertools.product([1, 3, 20, 21, 40], [1, M]), keep={3, 5, 7}))
def test_scores_and_update(d, agents):
    gram, bias, contexts = instance(d, agents)
    posterior, _, ok = jax.jit(ridge.solve)(jnp.asarray(gram, jnp.float32), jnp.asarray(bias, jnp.float32))
    assert bool(ok.all())
    inverse = np.linalg.inv(gram)
    theta = np.einsum("aij,aj->ai", inverse, bias)
    np.testing.assert_allclose(matrices(posterior), inverse, rtol=1e-3, atol=1e-5)

    x = jnp.asarray(contexts, jnp.float32)
    wide = np.broadcast_to(inverse, (M, d, d))
    np.testing.assert_allclose(
        jax.jit(ridge.width_sq)(x, posterior.inverse),
        np.einsum("mki,mij,mkj->km", contexts, wide, contexts),
        rtol=1e-3,
    )
    np.testing.assert_allclose(
        jax.jit(ridge.inner)(x, posterior.theta),
        np.einsum("mki,mi->km", contexts, np.broadcast_to(theta, (M, d))),
        atol=1e-4,
    )
    arms = np.array([0, 5, 2, 2, 1])
    taken = np.asarray(jax.jit(ridge.take)(x, arms))
    np.testing.assert_array_equal(taken, np.asarray(x)[np.arange(M), arms].T)

    posterior = ridge.tile(posterior, M)
    y = jnp.arange(M, dtype=jnp.float32)
    posterior = jax.jit(lambda p, x: ridge.update(p, ridge.gain(p, x, y)))(posterior, jnp.asarray(taken))
    new_gram = np.broadcast_to(gram, (M, d, d)) + np.einsum("im,jm->mij", taken, taken)
    new_bias = np.broadcast_to(bias, (M, d)) + (taken * np.arange(M)).T
    np.testing.assert_allclose(matrices(posterior), np.linalg.inv(new_gram), rtol=2e-3, atol=1e-5)
    solved = np.linalg.solve(new_gram, new_bias[..., None])[..., 0].T
    np.testing.assert_allclose(posterior.theta, solved, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("d", [3, 21])
def test_where_keeps_the_old_estimate_of_the_others(d):
    new, old = (ridge.Posterior(*(jnp.full(a.shape, v) for a in p)) for v, p in ((1.0, zero(d)), (2.0, zero(d))))
    kept = jax.jit(ridge.where)(jnp.array([True, False, True, True, False]), new, old)
    expected = np.array([1.0, 2.0, 1.0, 1.0, 2.0])
    np.testing.assert_array_equal(kept.theta, np.broadcast_to(expected, (d, M)))
    np.testing.assert_array_equal(matrices(kept), np.broadcast_to(expected[:, None, None], (M, d, d)))


def zero(d):
    return jax.jit(lambda *sums: ridge.tile(ridge.solve(*sums)[0], M))(np.eye(d)[None], np.zeros((1, d)))


def test_solve_says_which_matrix_is_not_definite():
    gram = np.stack([np.eye(3), np.diag([1.0, -1e-3, 1.0])])
    *_, ok = jax.jit(ridge.solve)(gram, np.zeros((2, 3)))
    np.testing.assert_array_equal(ok, [True, False])


def test_the_kernel_of_a_gpu_solves_the_same(monkeypatch):
    """Of three matrices the last is not positive definite."""
    rows = np.random.default_rng(0).normal(size=(3, 8, 4))
    gram = np.einsum("nki,nkj->nij", rows, rows).astype(np.float32) * np.array([1, 1, -1], np.float32)[:, None, None]
    bias = np.float32(rows[:, 0])
    plain = jax.jit(ridge.solve)(gram, bias)
    asked = []
    monkeypatch.setattr(ridge, "on_gpu", lambda: asked.append(True) or True)
    (inverse, theta), log_det, ok = anew(ridge.solve)(gram, bias)
    assert asked
    np.testing.assert_array_equal(ok, [True, True, False])
    np.testing.assert_array_equal(ok, plain[2])
    for found, expected in zip((inverse, theta, log_det), (*plain[0], plain[1])):
        np.testing.assert_allclose(found[..., :2], expected[..., :2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("d", [3, ridge.UNROLL_DIM + 1])
@pytest.mark.parametrize("cpu", [True, False], ids=["unrolled", "reduced"])
def test_dot(cpu, d, monkeypatch):
    monkeypatch.setattr(ridge, "on_cpu", lambda: cpu)
    a, b = np.random.default_rng(0).normal(size=(2, d, 4)).astype(np.float32)
    for left, right in ((jnp.asarray(a), jnp.asarray(b)), (list(a), list(b))):
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
    alone, together = (
        anew(ridge.first_argmax)(scores),
        anew(jax.vmap(ridge.first_argmax))(np.stack([scores, scores])),
    )
    assert alone.dtype == np.int32
    np.testing.assert_array_equal(alone, expected)
    np.testing.assert_array_equal(together, [expected, expected])
    rng = np.random.default_rng(0)
    ties = np.float32(rng.integers(0, 4, (17, 500)))
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
    got = ridge.width_sq(jnp.asarray(contexts, jnp.float32), posterior.inverse)
    assert np.abs(got / expected - 1).max() < 1e-4
