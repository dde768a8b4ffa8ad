"""A rollout is a seed of `simulate`, inside of `jit` and `vmap`."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ENV, PLAIN, PRIVATE, Ridge, refused

import fedbandit_jax as fb
from fedbandit_jax.engine.prepare import Configuration, bind

simulation = importlib.import_module("fedbandit_jax.engine.simulation")

KEY, T = jax.random.key(5), 37
GAP = fb.envs.gap(3, 4, 5)
ARMS = fb.envs.arms(means=[0.9, 0.5, 0.3])


def test_it_has_the_noise_of_simulate(monkeypatch):
    """Whose salt it shares. That it is a seed of every family then, `test_contract.py` asks."""
    monkeypatch.setattr(simulation, "_play", lambda runner, key, horizon: runner.salt)
    expected = bind("x", Configuration(ENV, PRIVATE, {}), 40)[0].salt
    assert len(expected) == 2
    assert jax.jit(lambda key: fb.rollout(ENV, PRIVATE, key, horizon=40))(KEY) == expected


@pytest.mark.slow
def test_parameters_may_be_traced():
    bound = PLAIN.bind(GAP.spec, T)
    traces = []

    @jax.jit
    def last(scale, key):
        traces.append(1)
        algo = bound.replace(width=jax.tree.map(lambda x: scale * x, bound.policy.width))
        found = fb.rollout(GAP, algo, key, horizon=T, record={"arms": fb.record.every(fb.record.arms, 37)})
        return found.regret[-1], found.records["arms"]

    key = jax.random.fold_in(KEY, 0)
    (regret, arms), (greedy, _) = last(1.0, key), last(0.0, key)
    assert len(traces) == 1
    assert regret != greedy
    assert arms.shape == (1, 3)
    whole = fb.simulate(GAP, PLAIN, horizon=T, key=KEY, seeds=1)
    np.testing.assert_allclose(regret, whole.regret[0, -1], rtol=1e-4)


@pytest.mark.slow
def test_a_run_that_ends_early_has_a_status():
    """Of one batch, which asks too few users to reach the horizon."""
    bound = dataclasses.replace(fb.algos.SE().bind(ARMS.spec, 300), n_batches=1)
    found = fb.rollout(ARMS, bound, KEY, horizon=300)
    assert found.status == fb.Status.NOT_FINITE
    assert 0 < np.isfinite(found.regret).sum() < 300


def test_misfits_are_named():
    with refused("env"):
        fb.rollout(GAP, fb.algos.SE(), KEY, horizon=5)
    bound = fb.algos.SE().bind(ARMS.spec, 300)
    with refused("algo"):
        jax.eval_shape(lambda algo: fb.rollout(ARMS, algo, KEY, horizon=300), bound)


def test_a_gradient_is_refused():
    """Reverse mode ended in words about while loops, forward mode in 0."""
    bound = PLAIN.bind(GAP.spec, T)

    def regret(factor):
        scaled = jax.tree.map(lambda x: x * factor if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x, bound)
        return fb.rollout(GAP, scaled, KEY, horizon=T).regret[-1]

    for differentiate in (jax.grad(regret), lambda x: jax.jvp(regret, (x,), (1.0,)), jax.jit(jax.grad(regret))):
        with refused("fb.rollout"):
            differentiate(1.0)


def test_numbers_of_policies_of_one_s_own_may_be_traced():
    record = {"twice": lambda moment: 2 * moment.arms}

    def played(c):
        algo = fb.algos.Federated(policy=Ridge(c=c), schedule=5)
        return fb.rollout(ENV, algo, KEY, horizon=20, record=record).records["twice"]

    np.testing.assert_array_equal(jax.jit(played)(2.0), played(2.0))
