"""Runs by hand: what is counted, what is shared, what does not depend on pieces, what ends with a status; rollouts."""

import dataclasses
import importlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ENV, PLAIN, PRIVATE, Ridge, refused, simulate

import fedbandit_jax as fb
from fedbandit_jax.core.bars import bar
from fedbandit_jax.engine import batching, driver
from fedbandit_jax.engine.prepare import Configuration, bind
from fedbandit_jax.engine.runners import Synchronous

KEY, T, GAP = jax.random.key(5), 37, fb.envs.gap(3, 4, 5)


@pytest.fixture(scope="module")
def whole():
    return simulate()


def test_curves_by_hand(whole):
    np.testing.assert_array_equal(whole.rounds, np.arange(1, 41))
    np.testing.assert_array_equal(whole.time_average, whole.regret / whole.rounds)
    np.testing.assert_array_equal(whole.communication["rounds"][0, :12], [0] * 4 + [1] * 5 + [2] * 3)
    floats = 2 * 3 * (5 * 6 // 2 + 5)  # up and down, M = 3 silos, d(d+1)/2 + d numbers
    np.testing.assert_array_equal(whole.communication["floats"][0, [4, 9]], [floats, 2 * floats])
    np.testing.assert_array_equal(whole.communication["bits"], 32 * whole.communication["floats"])
    coarse = simulate(stride=10)
    np.testing.assert_array_equal(coarse.rounds, [10, 20, 30, 40])
    np.testing.assert_array_equal(coarse.regret, whole.regret[:, 9::10])
    np.testing.assert_array_equal(coarse.communication["floats"], whole.communication["floats"][:, 9::10])


def test_seeds_do_not_know_of_each_other(monkeypatch, tmp_path, whole):
    """Whether they run side by side, in groups, or later as memory does not hold all."""
    many = simulate(seeds=8)
    assert len(np.unique(many.regret[:, -1])) == 8
    np.testing.assert_allclose(many.regret[:3], whole.regret, atol=1e-5)
    monkeypatch.setattr(batching, "_cores", lambda: 1)
    usual: Any = Synchronous.hints.fget
    monkeypatch.setattr(Synchronous, "hints", property(lambda runner: usual(runner)._replace(seeds=4)))
    np.testing.assert_allclose(simulate(seeds=8).regret, many.regret, atol=1e-4)
    monkeypatch.setattr(driver, "seeds_together", lambda *_: 2)
    parts = simulate(checkpoint=tmp_path / "run")
    assert [one.provenance["seeds_together"] for one in (whole, parts)] == [3, 2]
    np.testing.assert_allclose(parts.regret, whole.regret, atol=1e-4)
    np.testing.assert_array_equal(parts.status, whole.status)
    assert {path.name for path in tmp_path.iterdir()} == {"run.0", "run.1"}


def test_a_sweep_is_its_runs_and_compiles_once(monkeypatch):
    """Stacked configurations, shared users: the same numbers as one at a time, and numbers compile nothing anew."""
    # One program for both; on a sphere all arms are worth the same before the first release, and rounding would decide.
    envs = {"near": fb.envs.gap(3, 4, 5), "far": fb.envs.gap(3, 4, 5, gap=0.3)}
    private = PRIVATE.replace(schedule=8)  # of a batch that no other test has compiled
    bound, traced = type(private.bind(ENV.spec, 40)), []
    act = bound.download
    monkeypatch.setattr(bound, "download", lambda self, *given: (traced.append(self), act(self, *given))[1])
    path = "privacy.budget.epsilon"
    options = dict(horizon=40, key=jax.random.key(0), seeds=3)
    result = fb.sweep(envs, [private], grid={path: [1.0, 5.0]}, **options)
    assert result.regret.shape == (4, 3, 40)
    counts = [len(traced)]
    for name, env in envs.items():
        for epsilon in (1.0, 5.0):
            one, algo = result.sel(environment=name, **{path: epsilon}), private.replace(epsilon=epsilon)
            np.testing.assert_allclose(one.regret[0], simulate(env=env, algo=algo).regret, atol=1e-4)
            assert one.certificate == algo.certificate(env.spec, 40)
            counts.append(len(traced))
    for change in ({"delta": 0.01}, {"exploration_scale": 0.3}, {"failure": 0.2}):
        simulate(env=env, algo=private.replace(**change), key=jax.random.key(7))
    assert counts[0] in (1, 2)  # both environments may be traced before the program of one is there
    assert {*counts[1:], len(traced)} == {counts[0] + 1}  # and a run alone


def test_not_definite_is_a_status_not_a_nan():
    """Noise far beyond the regulariser: the run goes on with the last good estimate, flagged, and raises at the end."""
    broken = PRIVATE.replace(std="theorem_5_1", epsilon=0.01).bind(ENV.spec, 40)
    broken = broken.replace(regularization=np.float32(1e-3))
    with pytest.raises(fb.SimulationError, match="NO_ESTIMATE in .*seeds 0, 1, 2") as caught:
        simulate(algo=broken)
    assert np.isfinite(caught.value.result.regret).all()
    result = simulate(algo=broken, throw=False)
    assert (result.status == fb.Status.NO_ESTIMATE).all()
    assert "(!)" in result.summary()
    np.testing.assert_array_equal(result.regret, caught.value.result.regret)


@pytest.mark.slow
def test_status_ignores_the_synchronisation_that_never_happens(same_noise):
    """Only releases that somebody acts on count: T = 12 has the two synchronisations of T = 10, and their status."""
    env = fb.envs.sphere(3, 4, 5, rewards="bernoulli")
    flagged = []
    for regularization in (15.0, 25.0):
        bound = [PRIVATE.bind(env.spec, h).replace(regularization=np.float32(regularization)) for h in (10, 12)]
        two, tail = (simulate(env, a, horizon=h, seeds=300, throw=False) for a, h in zip(bound, (10, 12)))
        np.testing.assert_array_equal(two.status, tail.status)
        flagged.append(int((two.status != 0).sum()))
    assert flagged[0] > flagged[1]  # the comparison had something to see


@pytest.mark.parametrize(
    ("progress", "terminal", "notebook", "shown"),
    [(None, False, False, False), (None, True, False, True), (None, False, True, True), (False, True, True, False)],
)
def test_a_bar_is_shown_where_somebody_looks_on(monkeypatch, progress, terminal, notebook, shown):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert bar(progress, range(2)).disable != shown


# A rollout is a seed of `simulate`, inside of `jit` and `vmap`: `test_contract.py` asks it of every family, and
# docs/cookbook.md traces a number of a bound algorithm.


def test_a_rollout_has_the_noise_of_simulate(monkeypatch):
    simulation = importlib.import_module("fedbandit_jax.engine.simulation")
    monkeypatch.setattr(simulation, "_play", lambda runner, key, horizon: runner.salt)
    expected = bind("x", Configuration(ENV, PRIVATE, {}), 40)[0].salt
    assert len(expected) == 2
    assert jax.jit(lambda key: fb.rollout(ENV, PRIVATE, key, horizon=40))(KEY) == expected


def test_numbers_of_policies_of_one_s_own_may_be_traced():
    def played(c):
        algo = fb.algos.Federated(policy=Ridge(c=c), schedule=5)
        return fb.rollout(ENV, algo, KEY, horizon=20, record={"arms": fb.record.arms}).records["arms"]

    assert jax.eval_shape(played, 2.0).shape == (20, 3)


@pytest.mark.slow
def test_a_rollout_that_ends_early_has_a_status():
    """Of one batch, which asks too few users to reach the horizon."""
    arms = fb.envs.arms(means=[0.9, 0.5, 0.3])
    bound = dataclasses.replace(fb.algos.SE().bind(arms.spec, 300), n_batches=1)
    found = fb.rollout(arms, bound, KEY, horizon=300)
    assert found.status == fb.Status.NOT_FINITE
    assert 0 < np.isfinite(found.regret).sum() < 300


def test_a_gradient_is_refused():
    """Reverse mode ended in words about while loops, forward mode in 0."""
    bound = PLAIN.bind(GAP.spec, T)

    def regret(factor):
        scaled = jax.tree.map(lambda x: x * factor if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x, bound)
        return fb.rollout(GAP, scaled, KEY, horizon=T).regret[-1]

    for differentiate in (jax.grad(regret), lambda x: jax.jvp(regret, (x,), (1.0,)), jax.jit(jax.grad(regret))):
        with refused("fb.rollout"):
            differentiate(1.0)
