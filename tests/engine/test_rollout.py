"""A rollout is a seed of `simulate`, inside of `jit` and `vmap`."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ENV, PLAIN, PRIVATE, Ridge, refused

import fedbandit_jax as fb
from fedbandit_jax.core import wide
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.setup import bind

simulation = importlib.import_module("fedbandit_jax.engine.simulation")

KEY, T = jax.random.key(5), 37
GAP = fb.envs.gap(3, 4, 5)
ARMS = fb.envs.arms(means=[0.9, 0.5, 0.3])


def test_it_has_the_noise_of_simulate(monkeypatch):
    """Whose salt it shares. That it is a seed of every family then, `test_contract.py` asks."""
    monkeypatch.setattr(simulation, "_play", lambda clock, key, horizon: clock.salt)
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


@fb.pytree
class Nobody(fb.ArmAlgorithm):
    """Asks too few users to reach any horizon."""

    n_batches = 1

    def init(self, key, spec):
        return jnp.zeros(spec.n_arms)

    def pulls(self, state, k):
        return fb.Pulls(jnp.ones(len(state), bool), jnp.int32(1), jnp.bool_(True))

    def collect(self, rounding, own, k, rewards, inside):
        return wide.of(0)

    def conclude(self, key, k, state, sums):
        return state, fb.Report()


@pytest.mark.slow
def test_a_run_that_ends_early_has_a_status():
    found = fb.rollout(ARMS, Nobody(), KEY, horizon=10)
    assert found.status == fb.Status.NOT_FINITE
    assert np.isfinite(found.regret).sum() == 3


def test_misfits_are_named():
    with refused("env"):
        fb.rollout(GAP, fb.algos.SuccessiveElimination(), KEY, horizon=5)
    bound = fb.algos.SuccessiveElimination().bind(ARMS.spec, 300)
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
