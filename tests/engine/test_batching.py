"""Runs that branch on data go one by one on a CPU; wherever they go, they are the same."""

import jax
import pytest
from helpers import ENV, refused, same_runs

import fedbandit_jax as fb
from fedbandit_jax.engine.runners import Sequential
from fedbandit_jax.envs._wrapper import Wrapper

USERS = fb.envs.clustered(7, 2, 2, n_arms=3, dim=3)
PRIVATE = fb.algos.FCLUB(budget=fb.privacy.Budget(50.0, 0.1), trigger="count", upload=1.5)


def play():
    options = dict(horizon=70, key=jax.random.key(3), seeds=3, stride=1, progress=False)
    return fb.sweep(USERS, [PRIVATE], grid=dict(exploration_scale=[0.1, 1.0]), **options)


@pytest.mark.slow
def test_one_by_one_and_side_by_side_agree(monkeypatch):
    alone = play()
    monkeypatch.setattr(Sequential, "hints", Sequential.hints._replace(branches=False))
    same_runs(play(), alone, atol=1e-4)


@fb.pytree
class Moving(Wrapper):
    n_clusters = 2

    def observe(self, key, world, t):
        return self.env.observe(key, world, t)[0], world._replace(thetas=world.thetas + 0.0)

    def clusters(self, world):
        return world.cluster


@pytest.mark.parametrize(
    ("env", "algo", "horizon", "argument"),
    [
        (Moving(env=USERS, spec=USERS.spec), fb.algos.CLUB(), 5, "env.observe"),
        (ENV, fb.algos.CLUB(), 5, "env"),
        (USERS, fb.algos.LinUCB(policy=fb.algos.UCB(confidence="known_noise")), 5, "confidence"),
        (USERS, fb.algos.FCLUB(), 2**24 + 1, "horizon"),  # arrivals are counted in float32
    ],
)
def test_misfits_are_named(env, algo, horizon, argument):
    with refused(argument):
        fb.simulate(env, algo, horizon=horizon, key=jax.random.key(0), seeds=1)
