"""The batch cascade: replacing one user changes later actions of the batch, if agents learn in it."""

import dataclasses

import jax
import numpy as np
import pytest
from helpers import silent, stepped

import fedbandit_jax as fb
from fedbandit_jax.engine.runners import Synchronous
from fedbandit_jax.privacy.admission import BoundStatistic


def sums(state, metrics):
    """[W | U] after a batch, and the arms' gaps."""
    return state.ledger.mechanism.view, metrics.gap


@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_batch_of_one_round_has_no_cascade(key, script, batch):
    """Learning in it changes no arm: what a user did is dropped before the next one comes. In two rounds it does."""
    greedy = fb.algos.UCB(exploration_scale=0.0)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=batch, policy=greedy)
    plain, runs = algo.replace(privacy=None).bind(script.spec, 20).policy, {}
    for learns in (False, True):
        bound = algo.replace(learns_in_batch=learns).bind(script.spec, 20)
        assert bound.guarantee().claim == ("as_printed" if learns and batch == 2 else "certified")
        bound = dataclasses.replace(silent(bound), policy=plain)  # without noise, which would hide what was learned
        runner = Synchronous(env=script, algo=bound, horizon=20)
        runs[learns] = stepped(sums, runner, np.arange(runner.n_steps), key)[1]
    moved = max(float(np.abs(a - b).max()) for a, b in zip(runs[False], runs[True]))
    assert (moved < 1e-4) == (batch == 1)


def test_batches_of_one_round_cannot_be_forged(script):
    """A run in longer batches keeps its door, and a mechanism is bound to batches of one size."""
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=1, learns_in_batch=True)
    bound = algo.replace(schedule=2).bind(script.spec, 20)
    assert dataclasses.replace(bound, batch=1).guarantee().claim == "none"
    own = type("Own", (type(bound.policy),), {})
    mine = dataclasses.replace(algo.bind(script.spec, 20), policy=fb.pytree(own)(**vars(bound.policy)))
    assert mine.guarantee().claim == "none"  # a policy of one's own may score all users at once when it prepares


def test_both_bounds_are_enforced_where_data_enter():
    """Whatever is handed to it: vectors are scaled, rewards clipped, and who broke a promise is told."""
    long, x, nothing = np.array([30.0, 40.0]), np.array([0.6, 0.8]), np.zeros(2)
    bad = np.array([np.nan, 1.0])
    users = [(x, 1.0, x, 1.0, 0), (long, 0.3, x, 0.3, 1), (x, 50.0, x, 1.0, 1), (x, -50.0, x, 0.0, 1)]
    users += [(x, np.inf, x, 1.0, 1), (x, -np.inf, x, 0.0, 1), (x, np.nan, x, 0.0, 1), (bad, 1.0, nothing, 1.0, 1)]
    users += [(long * np.inf, 1.0, nothing, 1.0, 1), (x * 1e25, 1.0, nothing, 1.0, 1), (nothing, 0.5, nothing, 0.5, 0)]
    given = np.stack([user[0] for user in users], 1), np.array([user[1] for user in users])
    for unit in (True, False):
        features, rewards, broken, _ = jax.jit(BoundStatistic(2, unit_rewards=unit).admit)(*map(np.float32, given))
        np.testing.assert_allclose(features, np.stack([user[2] for user in users], 1), rtol=1e-6)
        np.testing.assert_allclose(rewards, [user[3] for user in users])
        too_long = [user[0] is not x and user[0] is not nothing for user in users]
        assert broken.tolist() == ([bool(user[4]) for user in users] if unit else too_long)
