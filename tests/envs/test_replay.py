import jax
import numpy as np

import fedbandit_jax as fb

SIZES = np.array([2, 1, 3, 1, 2])


def table():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.1, 1, (9, 3)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True), np.array([0.5, 0.2, 0.1], np.float32)


def test_agents_draw_their_own_queries(key):
    features, theta = table()
    env = fb.envs.replay(features, SIZES, theta, n_agents=2)
    assert (env.spec.n_arms, env.spec.dim) == (3, 3)
    world = jax.jit(env.init)(key)
    offers, _ = jax.jit(jax.vmap(lambda k: env.observe(k, world, 0)))(jax.random.split(key, 500))
    starts = np.cumsum(SIZES) - SIZES
    seen = [set(), set()]
    for contexts, mask in zip(np.asarray(offers.contexts), np.asarray(offers.mask)):
        for agent in range(2):
            (query,) = [q for q, s in enumerate(starts) if np.array_equal(features[s], contexts[agent, 0])]
            assert mask[agent].sum() == SIZES[query]
            np.testing.assert_array_equal(contexts[agent][mask[agent]], features[starts[query] :][: SIZES[query]])
            seen[agent].add(query)
    assert seen == [{0, 1}, {2, 3, 4}]  # contiguous blocks, every query turns up


def test_blocks_of_many_queries_of_many_agents(key):
    """The ends of blocks are quotients by M of numbers up to M Q, which need not fit 32 bits."""
    n = 50_000
    env = fb.envs.replay(np.full((n, 1), 0.5), np.ones(n, int), [0.5], n_agents=n)
    np.testing.assert_array_equal(jax.jit(lambda: env.listed(key, env.init(key), 0)[0])(), np.arange(n))


def test_a_constant_column_is_found():
    """Centred rewards need one; a column of zeros is none."""
    features, theta = table()
    for column, constant in ((np.full(9, 0.5), True), (np.zeros(9), False), (np.arange(9.0), False)):
        rows = np.c_[features[:, :2] / 2, column]
        assert fb.envs.replay(rows, SIZES, theta, n_agents=2).spec.constant is constant
    assert fb.envs.script(np.zeros((3, 1, 2, 1)), np.zeros((3, 1, 2)), fixed_contexts=True).spec.fixed_contexts


def test_arms_that_repeat_are_found(key):
    """`Spec.fixed_contexts` says that all rounds offer the same: one query for each agent, or copies of one."""
    features, theta = table()
    five = fb.envs.replay(features, SIZES, theta, n_agents=5)
    assert five.spec.fixed_contexts
    offers, _ = jax.jit(jax.vmap(lambda key: five.observe(key, five.init(key), 0)))(jax.random.split(key, 20))
    for seen in (offers.contexts, offers.mask):
        np.testing.assert_array_equal(seen, np.broadcast_to(seen[:1], seen.shape))
    assert not fb.envs.replay(features, SIZES, theta, n_agents=2).spec.fixed_contexts
    assert not fb.envs.replay(features, SIZES, theta, n_agents=4).spec.fixed_contexts, "one of four has two"
    copies = np.concatenate([np.tile(features[:2], (3, 1)), np.tile(features[2:5], (2, 1))])
    sizes = [2, 2, 2, 3, 3]
    assert fb.envs.replay(copies[:6], sizes[:3], theta, n_agents=1).spec.fixed_contexts
    assert not fb.envs.replay(copies, sizes, theta, n_agents=1).spec.fixed_contexts
    assert fb.envs.replay(copies, sizes, theta, n_agents=4).spec.fixed_contexts, "the last of four has a copy"
    copies[-1] *= 0.5
    assert not fb.envs.replay(copies, sizes, theta, n_agents=4).spec.fixed_contexts


def test_the_best_arm_is_one_that_is_offered(key):
    """A row of zeros behind a query, or the next query's, is neither played nor compared with."""
    env = fb.envs.replay(np.eye(3, dtype=np.float32), np.array([2, 1]), np.array([-0.5, -0.3, 0.9]), n_agents=1)
    offered = fb.Round(np.eye(3, dtype=np.float32)[None], np.array([[True, True, False]]))
    feedback = jax.jit(lambda key: env.pull(key, env.init(key), offered, np.array([0])))(key)
    np.testing.assert_allclose(feedback.gap, [0.2], rtol=1e-6)
