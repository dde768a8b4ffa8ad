"""Matrices are factorised one by one on a CPU, to the same numbers, and no program of the package does otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import EXAMPLES, T
from helpers import ENV, Ridge, deep

import fedbandit_jax as fb
from fedbandit_jax.core import lapack, programs
from fedbandit_jax.engine import batching
from fedbandit_jax.engine.prepare import Configuration, bind

Z = np.random.default_rng(0).normal(size=(2, 3, 4, 9)).astype(np.float32)
GRAM, Z0 = Z @ Z.swapaxes(-1, -2), Z[0, 0, :, 0]  # (2, 3) matrices, and a vector


def test_lanes_are_those_of_numpy():
    """What is not positive definite has no finite factors, alone."""
    run = jax.jit(jax.vmap(jax.vmap(lambda gram: (*lapack.factor(gram), *lapack.eigh(gram), lapack.solve(gram, Z0)))))
    lower, inverse, values, vectors, solution = run(GRAM)
    np.testing.assert_allclose(GRAM @ solution[..., None], np.broadcast_to(Z0[:, None], (2, 3, 4, 1)), atol=1e-4)
    exact = np.linalg.cholesky(GRAM.astype(float))
    np.testing.assert_allclose(lower, exact, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(inverse, np.linalg.inv(exact), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(GRAM), rtol=1e-4)
    np.testing.assert_allclose(vectors * values[..., None, :] @ vectors.swapaxes(-1, -2), GRAM, rtol=1e-4, atol=1e-4)
    for factor in jax.jit(jax.vmap(lapack.factor))(np.stack([np.eye(4), -np.eye(4)])):
        np.testing.assert_array_equal(np.isfinite(factor).all((1, 2)), [True, False])


def several(function, *arguments):
    """Whether the program of a function factorises several matrices at once."""
    operations = programs.equations(jax.make_jaxpr(function)(*arguments).jaxpr)
    return any(lapack.factorises_several(operation) for operation in operations)


@pytest.mark.parametrize(
    "function", [jnp.linalg.cholesky, jnp.linalg.inv, jnp.linalg.qr, jnp.linalg.svd, jnp.linalg.eigh]
)
def test_several_are_noticed(function):
    assert several(jax.vmap(function), GRAM[0])
    assert not several(function, GRAM[0, 0])


ROWS = list(EXAMPLES.values())


@pytest.mark.parametrize(
    "row", deep(ROWS, keep={i for i, row in enumerate(ROWS) if row.name == "Logistic"}), ids=lambda row: row.name
)
def test_the_package_factorises_one_by_one(row):
    """For two seeds, or configurations, side by side, as in the pieces of `engine.layout`."""
    process = bind(row.name, Configuration(row.env, row.algo, {}), T)[0]
    keys = jax.random.split(jax.random.key(0), 2)
    worlds, states = jax.eval_shape(jax.vmap(process.init), keys)
    assert not several(jax.vmap(process.step, (0, 0, 0, None)), keys, worlds, states, jnp.int32(0))


def test_a_policy_that_does_not_keeps_programs_apart(monkeypatch):
    process = bind("own", Configuration(ENV, fb.algos.Federated(policy=Ridge()), {}), 4)[0]
    play = batching.Pieces([process], jax.random.split(jax.random.key(0), 4))
    assert play.workers == batching._cores()
    play.compile(4)
    assert play.workers == 1
