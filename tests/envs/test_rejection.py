"""A log replayed by rejection: the rows that count, their rewards, and what is left out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import PRIVATE, One, refused

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.privacy.certification import OF_A_TABLE

SHARES = np.array([0.5, 0.3, 0.2])  # of the arms at the first silo; in reverse order at the others
SEEDS, ROUNDS = 8, 400


def made(n):
    """A log of a known model: place, arm, context, reward and the propensity of the arm, and the mean of every arm."""
    rng = np.random.default_rng(0)
    place, z = np.sort(rng.integers(0, 3, n)), rng.uniform(-1, 1, n)
    shares = np.where(place[:, None] == 0, SHARES, SHARES[::-1])
    arm = (rng.random(n)[:, None] > shares.cumsum(1)).sum(1)
    means = np.stack([0.4 + 0.3 * z, np.full(n, 0.5), 0.45 - 0.3 * z], 1)
    seen = (rng.random(n) < means[np.arange(n), arm]).astype(float)
    return dict(place=place, arm=arm, z=z, seen=seen, p=shares[np.arange(n), arm]), means


def logged(log):
    return fb.data.table(log, silo="place", arm="arm", reward="seen", features=["z"], propensity="p", fit_share=0.1)


@pytest.fixture(scope="module")
def played():
    """An environment, its log and means, keys of seeds, and what policies find: arms 0, 1, 2, and random arms."""
    log, means = made(24_000)
    env, keys = fb.envs.rejection(logged(log)), jax.random.split(jax.random.key(20261120), SEEDS)
    record = {
        "row": lambda moment: env._row(moment.world),
        "reward": lambda moment: moment.rewards,
        "arm": fb.record.arms,
    }

    def run(arm, key):
        return fb.rollout(env, One(arm=arm), key, horizon=ROUNDS, record=record).records

    found = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(jnp.array([0, 1, 2, -1]), keys)
    return env, log, means, keys, jax.tree.map(np.asarray, found)  # (4, SEEDS, ROUNDS, M)


def test_against_a_walk_through_the_rows(played):
    """An oracle that goes through each silo's rows, one at a time, from the same draws."""
    env, _, _, keys, found = played
    key, arm = keys[0], 2
    order = np.asarray(jax.jit(env.init)(random.stream(key, "world")).order)
    draw = jax.jit(
        lambda t, i: random.uniform(jax.random.fold_in(jax.random.fold_in(random.stream(key, "answers"), t), i), (3,))
    )
    log, starts, used = env.env.log, env.env.starts, [0, 0, 0]
    least = [log.propensity[start : start + count].min() for start, count in zip(starts, env.env.counts)]
    for t in range(20):
        waiting, i = {0, 1, 2}, 0
        while waiting:
            u = np.asarray(draw(t, i))
            for silo in sorted(waiting):
                row = order[starts[silo] + used[silo]]
                used[silo] += 1
                if log.arm[row] == arm and u[silo] < least[silo] / log.propensity[row]:
                    waiting.remove(silo)
                    assert found["row"][arm, 0, t, silo] == row
                    assert found["reward"][arm, 0, t, silo] == log.reward[row]
            i += 1
    assert max(used) > 60  # some were left out


def test_rewards_are_unbiased(played):
    """Within 3.5 standard errors those of the world; without c / p random arms would be 0.02 off."""
    _, log, means, _, found = played
    at = np.array([means[log["place"] == silo].mean(0) for silo in range(3)])
    rows = 3 * 7200 * 0.2  # that can count for one arm; seeds share them
    for truth, rewards in zip([*at.mean(0), at.mean()], found["reward"]):
        assert abs(rewards.mean() - truth) < 3.5 * np.sqrt(0.25 / rows)


def test_all_arms_are_accepted_alike(played):
    """Random arms count equally often, though they were shown unequally, and every row once."""
    counts = np.bincount(played[-1]["arm"][3].ravel(), minlength=3)
    assert (abs(counts / counts.sum() - 1 / 3) < 4 * np.sqrt(2 / 9 / counts.sum())).all(), counts
    for rows in played[-1]["row"].reshape(4 * SEEDS, -1):
        assert len(np.unique(rows)) == 3 * ROUNDS


def test_a_log_that_is_too_short(key):
    """A silo that has offered all its rows is told by status, and rewards are missing where `accepts` is not asked."""
    env = fb.envs.rejection(logged(made(300)[0]))
    with pytest.raises(fb.SimulationError, match="no rows of its log left"):
        fb.simulate(env, One(arm=0), horizon=200, key=key, seeds=1, progress=False)
    hidden = Wrapper(env=env, spec=env.spec)

    @jax.jit
    def reward(key):
        offered, world = hidden.observe(key, hidden.init(key), 0)
        return hidden.pull(key, world, offered, jnp.zeros(3, int)).reward

    assert np.isnan(reward(key)).all()


def test_what_data_decide_is_not_covered(key):
    """A log that rejects says that it has rows, whatever its words are, and is certified as the model of the log."""
    model = logged(made(900)[0])
    env = fb.envs.rejection(model)
    one, other = (PRIVATE.certificate(e.spec, 50) for e in (model, env))
    assert (one.claim, one.epsilon, one.delta) == (other.claim, other.epsilon, other.delta)
    assert model.fit.source in env.spec.basis != model.spec.basis
    silent = dataclasses.replace(env, spec=dataclasses.replace(env.spec, basis=""))
    for found in (one, other, PRIVATE.certificate(silent.spec, 50)):
        assert found.claim == "certified"
        assert OF_A_TABLE in found.not_covered
    hidden = dataclasses.replace(env, spec=dataclasses.replace(env.spec, rejects=False))
    with refused("env"):
        fb.simulate(hidden, PRIVATE, horizon=10, key=key, seeds=2)


def test_configurations_have_worlds_of_their_own(key):
    """Which rows are left depends on what was played."""
    env = fb.envs.rejection(logged(made(900)[0]))
    run = dict(horizon=20, key=key, seeds=2, progress=False)
    swept = fb.sweep(env, {"a": One(arm=0), "b": One(arm=2)}, **run)
    for label, arm in (("a", 0), ("b", 2)):
        np.testing.assert_array_equal(swept[label].regret, fb.simulate(env, One(arm=arm), **run).regret)
