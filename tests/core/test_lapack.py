"""Matrices are factorised one by one on a CPU, to the same numbers, and no program of the package does otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BUDGET

import fedbandit_jax as fb
from fedbandit_jax.core import lapack, programs
from fedbandit_jax.engine import batching
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.setup import bind

Z = np.random.default_rng(0).normal(size=(2, 3, 4, 9)).astype(np.float32)
GRAM = Z @ Z.swapaxes(-1, -2)  # (2, 3) matrices


def test_lanes_are_those_of_numpy():
    """What is not positive definite has no finite factors, alone."""
    run = jax.jit(jax.vmap(jax.vmap(lambda gram: (*lapack.factor(gram), *lapack.eigh(gram)))))
    lower, inverse, values, vectors = run(GRAM)
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


@fb.pytree
class Ridge(fb.Policy):
    """A policy of one's own that inverts a matrix by itself."""

    def update(self, k, belief, released):
        return jnp.linalg.inv(released.gram + jnp.eye(released.dim)) @ released.bias

    def index(self, key, t, belief, contexts):
        return contexts @ belief


SPHERE = fb.envs.sphere(3, 4, 3, rewards="bernoulli")
PROJECT = fb.algos.UCB(regularizer="project")
FAMILIES = {
    "fed_lin_ucb": (SPHERE, fb.algos.private_fed_lin_ucb(BUDGET, schedule=2)),
    "project": (SPHERE, fb.algos.private_fed_lin_ucb(BUDGET, schedule=2, policy=PROJECT)),
    "fed_ucb": (SPHERE, fb.algos.fed_ucb(BUDGET)),
    "gossip": (SPHERE, fb.algos.GossipFedUCB(graph=fb.networks.make("ring", 3), gamma=1)),
    "neighbours": (SPHERE, fb.algos.Gossip(graph=fb.networks.make("ring", 3), schedule=2)),
    "alone": (SPHERE, fb.algos.LinUCB()),
    "thompson": (SPHERE, fb.algos.Federated(policy=fb.algos.Thompson())),
    "clusters": (fb.envs.clustered(4, 2, 2, n_arms=3, dim=3), fb.algos.SCLUB()),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_package_factorises_one_by_one(family):
    """For two seeds, or configurations, side by side, as in the pieces of `engine.layout`."""
    env, algo = FAMILIES[family]
    process = bind(family, Configuration(env, algo, {}), 10)[0]
    keys = jax.random.split(jax.random.key(0), 2)
    worlds, states = jax.eval_shape(jax.vmap(process.init), keys)
    assert not several(jax.vmap(process.step, (0, 0, 0, None)), keys, worlds, states, jnp.int32(0))


def test_a_policy_that_does_not_keeps_programs_apart(monkeypatch):
    process = bind("own", Configuration(SPHERE, fb.algos.Federated(policy=Ridge()), {}), 4)[0]
    play = batching.Pieces([process], jax.random.split(jax.random.key(0), 4))
    assert play.workers == batching._cores()
    play.compile(4)
    assert play.workers == 1
