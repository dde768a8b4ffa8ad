"""Noise drawn before the loop is what the loop would have drawn, and one loop serves every mechanism."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BUDGET, deep, released

import fedbandit_jax as fb
from fedbandit_jax import privacy as P
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.prepare import Configuration, set_up
from fedbandit_jax.engine.runners import Synchronous, runner
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.noisy_sums import WithRows

S, M, D = 9, 3, 2
ENV = fb.envs.gap(3, 4, 5)  # no two arms are worth the same, so that rounding decides nothing
PLACES = (
    ("tree", "silo_local"),
    ("blt", "central"),
    ("tree", "silo_local_matrix"),
    ("sqrt_toeplitz", "secagg"),
    ("input_perturbation", "local"),
    (P.Decaying(1.5), "silo_local"),
    ("tree", "shuffle_amplified"),
)


def mechanism(release, trust):
    recipe = P.Mechanism(BUDGET, release, trust, std="dubey2020" if trust == "silo_local_matrix" else None)
    return recipe.bind(BoundStatistic(D), n_agents=M, n_syncs=S, batch=2)


def in_parts(source, key, n, sizes):
    """The noise (S, D) of releases that are drawn in parts of these sizes, in arrays for n."""
    draw, first, found = jax.jit(source.rows, static_argnums=4), 0, []
    state = jax.tree.map(lambda x: jnp.full_like(x, 7), source.release.init((source.row_size,)))  # as if of another run
    for size in sizes:
        (noise, sent), state = draw(key, state, first, size, n)
        at = (first + np.arange(size)) % n
        found.append((np.asarray(noise)[at], np.asarray(sent)[at]))
        first += size
    return [np.concatenate(part) for part in zip(*found)]


@pytest.mark.parametrize(("release", "trust"), deep(PLACES, keep={0, 1, 3, 5}))
def test_rows_are_the_noise_of_releases(release, trust, key):
    """And what is sent, by whichever parts they are drawn."""
    source, nobody = mechanism(release, trust), (np.zeros((2, D, M), np.float32), np.zeros((2, M), np.float32))
    noise, sent = in_parts(source, key, 4, (3, 4, 2))
    np.testing.assert_allclose(in_parts(source, key, 16, (9,))[0], noise, rtol=1e-6, atol=1e-6)
    step = jax.jit(lambda k, state: released(source, jax.random.fold_in(key, k), k + 1, state, *nobody))
    state = source.init(D)
    for k in range(S):
        statistics, state = step(k, state)
        np.testing.assert_allclose(source.statistic.unpack(noise[k]), statistics, rtol=1e-5, atol=2 * source.row_step)
        np.testing.assert_array_equal(sent[k], np.float32(jnp.stack(source.uplink(jnp.int32(k + 1), D))))


def configurations(schedule=5):
    """Every mechanism of a Gaussian trust model or secure aggregation, under one policy and schedule."""
    found = {
        f"{release} {trust}": fb.algos.private_fed_lin_ucb(P.Mechanism(BUDGET, release, trust), schedule=schedule)
        for release, trust in PLACES
        if trust not in ("silo_local_matrix", "shuffle_amplified")
    }
    return {label: Configuration(ENV, algo, {}) for label, algo in found.items()}


def test_one_loop_serves_every_mechanism(key):
    run = Run(horizon=20, key=key, seeds=2)
    every = configurations()
    assert set_up(every, run).groups == [list(every)]
    exact = {"exact": Configuration(ENV, fb.algos.fed_lin_ucb(schedule=5), {})}
    assert set_up(every | exact, run).groups == [list(every), ["exact"]]


def test_noise_of_an_unknown_source_is_not_certified(key):
    """Rows that somebody else hands over, be they the right ones, prove nothing."""
    bound = configurations()["tree silo_local"].algo.bind(ENV.spec, 40)
    assert certify(bound).claim == "certified"
    source = bound.mechanism
    rows = jax.jit(lambda: source.rows(key, source.release.init((source.row_size,)), 0, 8, 8)[0])()
    for forged in (rows, jax.tree.map(np.zeros_like, rows)):
        given = dataclasses.replace(bound, mechanism=bound.mechanism.given(forged))
        assert certify(given).claim == "none"
        assert "WithRows" in certify(given).reason
        assert given.source is None


def test_nothing_is_released_beyond_the_rows_that_are_paid_for(key):
    source = mechanism("tree", "silo_local")
    one = source.given((jnp.ones((16, source.row_size)), jnp.ones((16, 2))))
    assert type(one) is WithRows
    nobody = np.zeros((2, D, M), np.float32), np.zeros((2, M), np.float32)
    step = jax.jit(lambda k: released(one, key, k, one.init(D), *nobody)[0])
    assert np.isfinite(step(S)).all()
    assert np.isnan(step(S + 1)).all()


def test_the_rows_of_a_run_are_bounded():
    """Chunks are shorter where a release has many numbers, and memory is asked for."""
    env = fb.envs.sphere(2, 2, 100, rewards="bernoulli")
    bound = fb.algos.private_fed_lin_ucb(BUDGET, schedule=1).bind(env.spec, 10**5)
    wide = Synchronous(env=env, algo=bound, horizon=10**5)
    length, capacity = driver._chunk(wide, 1)
    assert length <= capacity == runner.ROWS // (100 * 103 // 2)
