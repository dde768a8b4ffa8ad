"""AdaC-UCB equals its pseudo-code user by user, forgets what it should, and is certified."""

import dataclasses

import jax
import numpy as np
import pytest
from four_arms import ARMS, HORIZON, play
from helpers import deep, refused
from oracles import elimination as oracles
from test_elimination import drawn, printed, syncs

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify

SECAGG = fb.algos.DistDPSE(1.0, radius="exact")


@pytest.mark.parametrize("private", deep([True, False], keep={0}))
def test_adac_ucb(key, private):
    """One arm at a time, batches of 2, 4, 8, ... users, sums of the last batch with noise of its own."""
    runner, found, counters, states = play(fb.algos.AdaCUCB(SECAGG) if private else fb.algos.AdaCUCB(), key)
    rewards, uniforms = drawn(runner, key)
    bound, names = runner.algo, syncs(runner, key)
    times, k = bound.times, runner.env.spec.n_arms
    assert runner.n_steps == times * k
    law = [printed("Dist-DP-SE", 2 ** (j + 1), 1.0, k * times) for j in range(times)]
    noise = jax.jit(lambda sync, scale: law[0].sampler(jax.random.split(sync, 3)[0], scale, (k,)))

    def add_up(b, arm, j, x):
        if not private:
            return sum(oracles.randomize(y, u, 2**24) for y, u in zip(x, uniforms[b - 1, arm])) / 2**24
        one = law[j - 1]
        draw = noise(names[b - 1], np.float32(one.parameters[0]))
        total = sum(oracles.randomize(y, u, one.g) for y, u in zip(x, uniforms[b - 1, arm]))
        return oracles.analyze(total + int(draw[arm]), len(x), one.g, one.tau)[0]

    regret, batches = oracles.adac_ucb(
        jax.jit(runner.env.means)(runner.env.fixed).tolist(),
        HORIZON,
        lambda j: float(bound.radius[j - 1]),
        lambda b, a, i: rewards[b - 1, a, i],
        add_up,
        np.asarray(states[0].lot),
    )
    np.testing.assert_allclose(found, np.cumsum(regret), atol=1e-3)
    for state, (arm, total) in zip(states, batches):
        assert np.flatnonzero(state.pulled).tolist() == [arm]
        np.testing.assert_allclose(state.sums[arm], total, rtol=1e-5)
    assert len({arm for arm, _ in batches}) == k
    assert counters["rounds"][-1] == counters["decodings"][-1] == len(batches)
    certificate = certify(bound)
    assert certificate.claim == ("certified" if private else "none")
    if private:
        assert certificate.epsilon_exact == pytest.approx(1.0, abs=0.01)
        noise = dataclasses.replace(bound.protocol.noise, scale=np.asarray(bound.protocol.noise.scale) / 2)
        half = dataclasses.replace(bound, protocol=dataclasses.replace(bound.protocol, noise=noise))
        assert certify(half).claim == "none"


def test_radii_are_those_of_elimination():
    """All intervals of K arms together hold with probability 1 - 3 p, as the exact ones of elimination with K arms."""
    bound = fb.algos.AdaCUCB(SECAGG).bind(ARMS.spec, HORIZON)
    other = SECAGG.bind(ARMS.spec, HORIZON)
    np.testing.assert_allclose(bound.radius, other.radius[:, -1])
    np.testing.assert_array_equal(bound.users, other.users[:, -1])


@pytest.mark.slow
def test_privacy_becomes_free(key):
    """Azize & Basu: what privacy costs does not grow with T. At epsilon = 1 its median is less than the regret's.

    A few seeds lose the best arm for long, so that cost is shown by its sign, which chance alone makes in 1 of 1,000.
    """
    env, run = fb.envs.arms(5), dict(horizon=200_000, key=key, seeds=20, stride=200_000)
    free = fb.simulate(env, fb.algos.AdaCUCB(), **run).regret[:, -1]
    costs = fb.sweep(env, [fb.algos.AdaCUCB(SECAGG)], grid={"epsilon": [0.05, 1.0]}, **run).regret[:, :, -1] - free
    assert (costs[0] > 0).sum() >= 17
    assert np.median(costs[1]) < np.median(free)


def test_refusals():
    """DP-SE has epochs of its own."""
    for wrong in (fb.algos.DPSE(1.0), 1.0, None):
        with refused("sums", wrong):
            fb.algos.AdaCUCB(wrong)
    with refused("horizon", 3):
        fb.algos.AdaCUCB(SECAGG).bind(ARMS.spec, 3)
