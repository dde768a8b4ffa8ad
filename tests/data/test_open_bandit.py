"""A campaign in the format of the Open Bandit Dataset."""

import numpy as np
from made_up import ITEMS, write_campaign

import fedbandit_jax as fb


def test_rows_items_and_positions_are_read(tmp_path):
    item, where, click = write_campaign(tmp_path)
    env = fb.data.open_bandit(tmp_path)
    assert (env.spec.n_agents, env.spec.n_arms, env.spec.dim) == (3, ITEMS, 1 + 1 + 1 + 3)
    assert env.spec.fixed_contexts
    row = env.log.row
    np.testing.assert_array_equal(env.log.arm, item[row])
    np.testing.assert_array_equal(env.log.reward, click[row])
    np.testing.assert_allclose(env.log.propensity, 0.2)
    np.testing.assert_array_equal(np.repeat([1, 2, 3], env.counts), where[row])
    assert fb.envs.rejection(env).spec.basis.startswith("Rewards are those of Open Bandit, of rows that showed")
    users = dict(silo="user_feature_1", features=["user_feature_0"], arm_features=None)
    spec = fb.data.open_bandit(tmp_path, **users).spec
    assert (spec.n_agents, spec.dim, spec.fixed_contexts) == (3, 1 + ITEMS * 4, False)
