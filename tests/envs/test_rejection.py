"""A log replayed by rejection: the rows that count, their rewards, and what is left out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BUDGET

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.envs._wrapper import Wrapper

SHARES = np.array([0.5, 0.3, 0.2])  # of the arms at the first silo; in reverse order at the others


def made(n=12_000, seed=0, n_silos=3, uniform=False):
    """A log of a known model: place, arm, context, reward and the propensity of the arm, and the mean of every arm."""
    rng = np.random.default_rng(seed)
    place, z = np.sort(rng.integers(0, n_silos, n)), rng.uniform(-1, 1, n)
    shares = np.where(place[:, None] == 0, SHARES, SHARES[::-1])
    if uniform:
        shares = np.full((n, 3), 1 / 3)
    arm = (rng.random(n)[:, None] > shares.cumsum(1)).sum(1)
    means = np.stack([0.4 + 0.3 * z, np.full(n, 0.5), 0.45 - 0.3 * z], 1)
    seen = (rng.random(n) < means[np.arange(n), arm]).astype(float)
    return dict(place=place, arm=arm, z=z, seen=seen, p=shares[np.arange(n), arm]), means


def logged(log, **options):
    names = dict(silo="place", arm="arm", reward="seen", features=["z"], propensity="p", fit_share=0.1)
    return fb.data.table(log, **names | options)


class Always(fb.Algorithm):
    """Plays one arm, or in every round one at random."""

    def init(self, key, spec):
        return jnp.zeros(())

    def act(self, key, t, local, offered):
        n = offered.contexts.shape[0]
        return jnp.full(n, self.arm) if self.arm is not None else jax.random.randint(key, (n,), 0, 3)

    def learn(self, t, local, offered, arms, rewards):
        return local, ()


@fb.pytree
class One(Always):
    arm: int | None = fb.static()


def test_against_a_walk_through_the_rows(key):
    """An oracle that goes through each silo's rows, one at a time, from the same draws."""
    env, arm = fb.envs.rejection(logged(made(900)[0])), 2
    record = {"row": lambda moment: env._row(moment.world), "reward": fb.record.rewards}
    found = jax.jit(lambda key: fb.rollout(env, One(arm=arm), key, horizon=20, record=record).records)(key)
    order, answers = np.asarray(env.init(random.stream(key, "world")).order), random.stream(key, "answers")
    log, starts, used = env.env.log, env.env.starts, [0, 0, 0]
    least = [log.propensity[start : start + count].min() for start, count in zip(starts, env.env.counts)]
    for t in range(20):
        waiting, i = {0, 1, 2}, 0
        while waiting:
            u = random.uniform(jax.random.fold_in(jax.random.fold_in(answers, t), i), (3,))
            for silo in sorted(waiting):
                row = order[starts[silo] + used[silo]]
                used[silo] += 1
                if log.arm[row] == arm and u[silo] < least[silo] / log.propensity[row]:
                    waiting.remove(silo)
                    assert found["row"][t, silo] == row
                    assert found["reward"][t, silo] == log.reward[row]
            i += 1
    assert max(used) > 60  # some were left out


@pytest.mark.parametrize("arm", [0, 1, 2, None])
def test_rewards_are_unbiased(arm, key):
    """Rewards of an arm, or of random ones, are those of the world: without c / p random ones would be 0.02 off."""
    log, means = made(24_000)
    result = fb.simulate(
        fb.envs.rejection(logged(log)), One(arm=arm), horizon=400, stride=400, key=key, seeds=32, progress=False
    )
    shares = np.bincount(log["place"]) / len(log["place"])
    at = np.array([means[log["place"] == silo].mean(0) for silo in range(3)])
    assert shares.min() > 0.3
    truth = (at.mean(0)[arm] if arm is not None else at.mean()).item()
    value = 1 - result.regret[:, -1] / 1200
    rows = 3 * 7200 * 0.2  # that can count for one arm; seeds share them
    assert abs(value.mean() - truth) < 3.5 * np.sqrt(0.25 / rows)


def test_all_arms_are_accepted_alike(key):
    """Where arms are drawn at random, rows of all three count equally often, though they were shown unequally."""
    env = fb.envs.rejection(logged(made(24_000)[0]))
    record = {"arm": fb.record.arms}
    result = fb.simulate(env, One(arm=None), horizon=400, key=key, seeds=8, record=record, progress=False)
    counts = np.bincount(result.records["arm"].ravel(), minlength=3)
    assert (abs(counts / counts.sum() - 1 / 3) < 4 * np.sqrt(2 / 9 / counts.sum())).all(), counts


@pytest.mark.parametrize("private", [False, True])
def test_learning_is_as_in_the_world(private, key):
    """Rewards of an algorithm that learns agree with those it finds where the true model answers."""
    log, means = made(60_000, uniform=True)
    env = logged(log)
    x = fb.envs.logged.joint(np.asarray(env.rows), np.asarray(env.arms), env.intercept)
    theta = np.linalg.lstsq(x.reshape(-1, env.spec.dim), means[env.log.row].ravel())[0]
    assert abs(x @ theta - means[env.log.row]).max() < 1e-4
    true = dataclasses.replace(env, theta=theta.astype(np.float32))
    algo = fb.algos.fed_lin_ucb(schedule=20)
    if private:
        algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(20.0, 1e-3), schedule=20)
    options = dict(horizon=600, stride=600, key=key, seeds=24, progress=False)
    replayed = 1 - fb.simulate(fb.envs.rejection(env), algo, **options).regret[:, -1] / 1800
    paid = fb.simulate(true, algo, record={"paid": fb.record.rewards}, **options | dict(stride=1))
    world = paid.records["paid"].mean((1, 2))
    error = np.sqrt(replayed.var() / 24 + world.var() / 24 + 0.25 / 54_000)
    assert abs(replayed.mean() - world.mean()) < 3.5 * error
    assert replayed.mean() > 0.5 or private


def test_each_row_counts_once(key):
    env = fb.envs.rejection(logged(made(900)[0]))
    record = {"row": lambda moment: env._row(moment.world)}
    result = fb.simulate(env, One(arm=None), horizon=30, key=key, seeds=4, record=record, progress=False)
    for rows in result.records["row"].reshape(4, -1):
        assert len(set(rows.tolist())) == 90


def test_a_log_that_is_too_short(key):
    """A silo that has offered all its rows is told by status, and so is an environment that hides `accepts`."""
    env = fb.envs.rejection(logged(made(300)[0]))
    with pytest.raises(fb.SimulationError, match="had no rows of its log left"):
        fb.simulate(env, One(arm=0), horizon=200, key=key, seeds=1, progress=False)
    with pytest.raises(fb.SimulationError, match="OUTSIDE_SPEC"):
        fb.simulate(
            Wrapper(env=env, spec=env.spec),
            fb.algos.Federated(schedule=5),
            horizon=20,
            key=key,
            seeds=1,
            progress=False,
        )


def test_certificates_are_those_of_the_simulation(key):
    env = logged(made(3000)[0])
    algo = fb.algos.private_fed_lin_ucb(BUDGET, schedule=10)
    one, other = (algo.certificate(e.spec, 50) for e in (env, fb.envs.rejection(env)))
    assert one.claim == other.claim == "certified"
    assert (one.epsilon, one.delta) == (other.epsilon, other.delta)
    result = fb.simulate(fb.envs.rejection(env), algo, horizon=50, key=key, seeds=1, progress=False)
    assert "there is no model" in result.summary()


def test_a_log_without_propensities_is_refused():
    log = made(300)[0]
    with pytest.raises(ValueError, match="env must have propensities, got a table without"):
        fb.envs.rejection(logged(log, propensity=None))
    with pytest.raises(TypeError, match=r"env must be an environment of fb\.data\.table, got"):
        fb.envs.rejection(fb.envs.sphere(2, 3, 4))


@pytest.mark.parametrize("wrap", [e for name, e in fb.envs.WRAPPERS.items() if name != "rejection"])
def test_nothing_goes_around_rejection(wrap):
    """A wrapper would hide `accepts`, and rows would be used up whose arms nobody was asked about."""
    env = fb.envs.rejection(logged(made(300)[0]))
    with pytest.raises(ValueError, match="env must answer every arm, got Rejection: fb.envs.rejection goes around a"):
        wrap(env, 2)
