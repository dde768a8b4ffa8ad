"""A world that moves: when there is a new one, its law, and what stays the same."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

M, K, D, N = 3, 4, 4, 4000
SPHERE = fb.envs.sphere(M, K, D, rewards="bernoulli")


def played(env, rounds, n=1):
    """Offers, worlds, their numbers and gaps of the first arm in `rounds`, which follow each other, of n seeds."""

    def one(key):
        def step(world, t):
            offered, world = env.observe(jax.random.fold_in(key, t), world, t)
            gap = env.pull(key, world, offered, jnp.zeros(env.spec.n_agents, jnp.int32)).gap
            moving = world if isinstance(env, fb.envs.Drift) else world[0]
            return world, (offered, moving.now, moving.piece, gap)

        return jax.lax.scan(step, env.init(key), jnp.asarray(rounds))[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), n)))


def check_gaps(offered, now, gap):
    """Regret is to the best arm of the world of the round."""
    means = np.einsum("stmkd,std->stmk", offered.contexts, now.theta)
    np.testing.assert_allclose(gap, means.max(-1) - means[..., 0], atol=1e-6)


def test_there_is_a_new_world_in_these_rounds_only():
    for when, changes in ((5, [5, 10, 15]), ((3, 4, 11), [3, 4, 11])):
        offered, now, piece, gap = played(fb.envs.drift(SPHERE, when), range(18))
        theta = now.theta[0]
        assert [t for t in range(1, 18) if (theta[t] != theta[t - 1]).any()] == changes
        assert piece[0].tolist() == [sum(t >= change for change in changes) for t in range(18)]
        check_gaps(offered, now, gap)


MOVES = {
    "sphere, jump": (SPHERE, "jump", (1, 2), (0, 1, 2)),
    "gap, slide": (fb.envs.gap(M, K, D), "slide", 4, (0, 3, 8)),
    "arms, jump": (fb.envs.arms(5), "jump", 1, (0, 1, 2)),
}


@pytest.mark.parametrize("name", MOVES)
def test_every_world_has_the_law_of_the_first_and_whole_pieces_are_independent(name):
    """First and second moments of many seeds within five standard errors."""
    env, how, when, rounds = MOVES[name]
    now = played(fb.envs.drift(env, when, how), rounds, N)[1]
    theta = getattr(now, "theta", now)  # (N, 3, d)
    draw = jax.jit(jax.vmap(lambda key: jax.tree.leaves(env.init(key))[0]))
    first = np.asarray(draw(jax.random.split(jax.random.key(9), N)))
    for one in np.moveaxis(theta, 1, 0):
        for f in (lambda x: x, np.square):
            wide = np.hypot(f(one).std(0), f(first).std(0)) / N**0.5
            assert (abs(f(one).mean(0) - f(first).mean(0)) <= 5 * wide + 1e-6).all()
    centred = theta - theta.mean(0)
    scale = centred.std(0)
    # In round 8 the second of two steps of a slide is made: nothing is left of the first world. On the way much is.
    for i, j in itertools.combinations(range(3), 2) if how == "jump" else [(0, 2)]:
        products = centred[:, i] * centred[:, j]
        assert (abs(products.mean(0)) <= 5 * scale[i] * scale[j] / N**0.5 + 1e-6).all()
    if how == "slide":
        products = centred[:, 0] * centred[:, 1]
        assert (products.mean(0)[:-1] > 5 * products.std(0)[:-1] / N**0.5).all()


@pytest.mark.parametrize("when", [6, (6, 12)])
def test_a_sphere_slides_evenly(when):
    offered, now, _, gap = played(fb.envs.drift(SPHERE, when, "slide"), range(20), 5)
    check_gaps(offered, now, gap)
    theta = now.theta.astype(float)
    np.testing.assert_allclose((theta**2).sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(theta[..., -1], 0.5**0.5, atol=1e-6)
    angle = np.arccos(np.clip(2 * (theta[:, 1:, :-1] * theta[:, :-1, :-1]).sum(-1), -1, 1))  # of u
    for piece in (range(6), range(6, 12)):
        assert (abs(angle[:, piece] / angle[:, piece].mean(1, keepdims=True) - 1) < 1e-3).all()
        whole = np.arccos(np.clip(2 * (theta[:, piece[-1] + 1, :-1] * theta[:, piece[0], :-1]).sum(-1), -1, 1))
        np.testing.assert_allclose(angle[:, piece].sum(1), whole, rtol=1e-3)
    assert (angle[:, 12:] < 2e-3).all() == isinstance(when, tuple)


def test_contexts_that_are_fixed_belong_to_the_world():
    env = fb.envs.drift(fb.envs.sphere(M, K, D, contexts="fixed"), 2)
    assert not env.spec.fixed_contexts
    contexts = played(env, range(4))[0].contexts[0]
    assert [bool((a == b).all()) for a, b in itertools.pairwise(contexts)] == [True, False, True]


@pytest.mark.parametrize("stay", [1, 4])
def test_users_return_in_a_world_that_moves(stay):
    """Wrappers go around each other, in either order; users stay for a session around what drifts."""
    env = fb.envs.returning(fb.envs.drift(SPHERE, 3), 5, session=4)
    env = fb.envs.drift(fb.envs.returning(SPHERE, 5), 3) if stay == 1 else env
    assert env.spec.n_users == 5
    offered, _, piece, _ = played(env, range(8))
    assert piece[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    held = offered.user.reshape(8 // stay, stay, M)
    assert (held == held[:, :1]).all()
    assert (held[1:] != held[:-1]).any()
