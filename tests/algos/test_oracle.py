"""Every algorithm equals its printed pseudo-code, round by round, on the same draws."""

import jax
import numpy as np
import oracles
import pytest

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.core.ridge import with_spectrum
from fedbandit_jax.engine.process import RoundProcess
from fedbandit_jax.privacy.statistic import unpack

BUDGET = fb.privacy.Budget(20.0, 0.1)  # little enough noise that V stays definite with a small lambda


def run(env, algo, horizon, key, **changes):
    """Regret of every round, the bound algorithm, its final state, and the noise of release k."""
    process = RoundProcess(env=env, algo=algo.bind(env.spec, horizon).replace(**changes), horizon=horizon)
    world, state = process.init(key)
    regret = []
    step = jax.jit(process.step)
    for k in range(process.n_steps):
        world, state, metrics = step(key, world, state, k)
        regret.extend(np.asarray(metrics.regret)[: len(process.rounds_at(k))])

    def noise(k):
        x, y = np.zeros((1, env.spec.dim, env.spec.n_agents)), np.zeros((1, env.spec.n_agents))
        syncs = jax.random.fold_in(random.stream(key, "syncs"), k - 1)
        draw, _ = process.algo.channel.protocol.noise(syncs, k, (), x, y)
        return np.asarray(unpack(draw, env.spec.dim), float)

    return np.array(regret), process.algo, state, noise


@pytest.mark.parametrize("horizon", [60, 57])
def test_lin_ucb(script, key, horizon):
    regret, algo, state, _ = run(script, fb.algos.lin_ucb(), horizon, key, batch=20)
    expected, v, b = oracles.lin_ucb(script, horizon, float(algo.regularization), lambda t: float(algo.width(t)))
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    if horizon % 20 == 0:
        np.testing.assert_allclose(state.sums[..., :-1], v - algo.regularization * np.eye(4), atol=1e-4)
        np.testing.assert_allclose(state.sums[..., -1], b, atol=1e-4)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(("horizon", "batch"), [(60, 5), (58, 5), (60, 1), (3, 5)])
def test_fed_lin_ucb(script, key, lazy, horizon, batch):
    regret, algo, state, _ = run(script, fb.algos.fed_lin_ucb(batch=batch, lazy=lazy), horizon, key)
    expected, synced = oracles.fed_lin_ucb(
        script, horizon, batch, float(algo.regularization), lambda t: float(algo.width(t)), lazy=lazy
    )
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    if horizon % batch == 0:
        np.testing.assert_allclose(state.channel.sums.high, synced, atol=2e-4)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("release", ["tree", "prefix_tree"])
@pytest.mark.parametrize("fixed", [False, True])
def test_private_fed_lin_ucb(script, key, lazy, release, fixed):
    if fixed:
        once = np.broadcast_to(script.contexts[0], script.contexts.shape)
        script = fb.envs.script(
            once, script.answers, np.broadcast_to(script.means[0], script.means.shape), fixed_contexts=True
        )
    algo = fb.algos.private_fed_lin_ucb(BUDGET, batch=5, lazy=lazy, release=release)
    regret, bound, state, noise = run(script, algo, 58, key)
    lam = float(bound.regularization)
    expected, synced = oracles.fed_lin_ucb(
        script,
        58,
        5,
        lam,
        lambda t: float(bound.width(t)),
        lazy=lazy,
        noise=noise,
        prefix=release == "prefix_tree",
    )
    assert bound.channel.protocol.sum_std() > 0
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    # One more (unused) synchronisation runs after the horizon's last, incomplete batch: compare the one before it.
    regret, bound, state, noise = run(script, algo, 55, key)
    _, synced = oracles.fed_lin_ucb(
        script,
        55,
        5,
        lam,
        lambda t: float(bound.width(t)),
        lazy=lazy,
        noise=noise,
        prefix=release == "prefix_tree",
    )
    inverse = np.linalg.inv(lam * np.eye(4) + synced[:, :4])
    np.testing.assert_allclose(state.estimate.posterior.inverse[..., 0], inverse, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(state.estimate.posterior.theta[..., 0], inverse @ synced[:, 4], rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("lazy", [False, True])
def test_projected_regularizer(script, key, lazy):
    """Noise that a small lambda could not bear: the projected run stays definite and equals the oracle."""
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(2.0, 0.1), batch=5, lazy=lazy, regularizer="project")
    regret, bound, state, noise = run(script, algo, 55, key, regularization=np.float32(1.0))
    expected, _ = oracles.fed_lin_ucb(
        script, 55, 5, 1.0, lambda t: float(bound.width(t)), lazy=lazy, noise=noise, psd=True
    )
    assert state.status == 0
    shifted = run(script, algo.replace(regularizer="shift"), 55, key, regularization=np.float32(1.0))[2]
    assert shifted.status != 0
    np.testing.assert_allclose(regret, expected, atol=2e-5)


def test_long_sums_do_not_lose_the_small_terms(key):
    """Compensated summation: 20,000 synchronisations of 0.01 on top of 2^17, where float32 would round each away."""
    env = fb.envs.script(np.full((1, 1, 1, 1), 0.1), np.ones((1, 1, 1)))
    bound = fb.algos.fed_lin_ucb(batch=1).bind(env.spec, 20_000)
    process = RoundProcess(env=env, algo=bound, horizon=20_000)
    world, state = process.init(key)
    sums = state.channel.sums
    state = state._replace(channel=state.channel._replace(sums=sums._replace(high=sums.high + 2.0**17)))

    def body(carry, k):
        return process.step(key, *carry, k)[:2], None

    (_, state), _ = jax.jit(lambda c: jax.lax.scan(body, c, np.arange(20_000)))((world, state))
    np.testing.assert_allclose(state.channel.sums.high - 2.0**17, [[200.0, 2000.0]], rtol=1e-3)


def test_projection_is_the_nearest_psd_matrix(key):
    matrix = np.asarray(unpack(jax.random.normal(key, (27,)), 6)[:, :6])
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(
        with_spectrum(values.clip(0), vectors), (vectors * values.clip(0)) @ vectors.T, atol=1e-5
    )


def test_released_constants():
    """The authors' lambda and beta, by hand, at M=100, S=400 (kappa=9), d=10, alpha=0.01, R=0.5."""
    spec = fb.Spec(n_agents=100, n_arms=100, dim=10, max_norm=1.0)
    budget = fb.privacy.Budget(1.0, 0.1)
    algo = fb.algos.private_fed_lin_ucb(budget, calibration="released", confidence="released", lazy=False)
    bound = algo.bind(spec, 10_000)
    sigma = np.sqrt(9 * (np.log(10) + 1))
    lam = np.sqrt(900) * sigma * (np.sqrt(9 + np.log(100)) + np.sqrt(10))
    np.testing.assert_allclose(bound.channel.protocol.sum_std(), 10 * sigma, rtol=1e-5)
    np.testing.assert_allclose(bound.regularization, lam, rtol=1e-5)
    beta = np.sqrt(lam * 10) + 0.5 * np.sqrt(10 * np.log(1 + 100 * 1234 / (10 * lam)) + np.log(100))
    np.testing.assert_allclose(bound.width(1234), beta, rtol=1e-5)
    plain = fb.algos.fed_lin_ucb(confidence="released").bind(spec, 10_000)
    np.testing.assert_allclose(plain.regularization, 10.0, rtol=1e-6)
