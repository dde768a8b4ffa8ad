"""Users who return to their silos: who comes, how often, and independently of what."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

M, N, T = 3, 4, 4000
ALIKE = fb.envs.sphere(M, 5, 4, rewards="bernoulli")


def came(env, rounds=T):
    """Who comes in every round, and what is offered, (T, M) and (T, M, K, d)."""
    world = env.init(jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), rounds)
    offered, _ = jax.jit(jax.vmap(env.observe, (0, None, None)))(keys, world, jnp.int32(0))
    return np.asarray(offered.user), np.asarray(offered.contexts)


@pytest.mark.parametrize("weights", ["uniform", [1, 2, 3, 10]])
def test_users_come_as_often_as_their_weights_say(weights):
    """To every silo, whoever comes to the others; an error of five standard errors would be 0.04."""
    users, _ = came(fb.envs.returning(ALIKE, N, weights))
    p = np.full(N, 1 / N) if weights == "uniform" else np.array(weights) / sum(weights)
    for silo in range(M):
        np.testing.assert_allclose(np.bincount(users[:, silo], minlength=N) / T, p, atol=5 * 0.5 / T**0.5)
    for one, other in ((0, 1), (1, 2)):
        together = np.mean(users[:, one] == users[:, other])
        assert together == pytest.approx((p**2).sum(), abs=5 * 0.5 / T**0.5)
    later = np.mean(users[1:] == users[:-1])  # nor whoever came before
    assert later == pytest.approx((p**2).sum(), abs=5 * 0.5 / (M * T) ** 0.5)


def test_who_comes_has_nothing_to_do_with_what_is_offered():
    """Means of features over the rounds of a user are those of all, within five standard errors."""
    users, contexts = came(fb.envs.returning(ALIKE, 2))
    first = contexts[..., 0, :]
    means = np.stack([first[users == user].mean(0) for user in range(2)])
    np.testing.assert_allclose(means[0], means[1], atol=5 * first.std() * 2 / (M * T) ** 0.5)


def test_users_stay_for_a_session():
    """Users who come for five rounds in a row, who are drawn anew then; what is offered is new in every round."""
    env, keys = fb.envs.returning(ALIKE, N, session=5), jax.random.split(jax.random.key(2), 200)

    def observe(world, given):
        offered, world = env.observe(*given[:1], world, given[1])
        return world, (offered.user, offered.contexts[:, 0, 0])

    _, (users, features) = jax.jit(jax.lax.scan, static_argnums=0)(
        observe, env.init(jax.random.key(1)), (keys, jnp.arange(200))
    )
    held = np.asarray(users).reshape(40, 5, M)
    assert (held == held[:, :1]).all()
    again = np.mean(held[1:, 0] == held[:-1, 0])
    assert again == pytest.approx(1 / N, abs=5 * 0.5 / (39 * M) ** 0.5)
    assert len(np.unique(features)) == 200 * M


SPHERE = fb.envs.sphere(3, 5, 4, rewards="logistic")
WRAPPED = {  # an environment, its world within, and how its spec differs
    "returning": (fb.envs.returning(SPHERE, 4), lambda w: w[0], dict(n_users=4)),
    "drift": (fb.envs.drift(SPHERE, (9,)), lambda w: w.now, {}),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_all_else_is_the_environment_within(name):
    """Before the first change, if the world moves."""
    env, within, changes = WRAPPED[name]
    assert env.spec == dataclasses.replace(SPHERE.spec, **changes)

    @jax.jit
    def step(key, t):
        (world, plain), arms = (e.init(key) for e in (env, SPHERE)), jnp.array([4, 0, 2], jnp.int32)
        (offered, world), (its, plain) = (e.observe(key, w, t) for e, w in ((env, world), (SPHERE, plain)))
        its = fb.Round(offered.contexts) if name == "returning" else its  # a stream of its own
        mine, theirs = env.pull(key, world, offered, arms), SPHERE.pull(key, plain, its, arms)
        return (within(world), mine, offered.contexts), (plain, theirs, its.contexts)

    one, other = step(jax.random.key(3), 8)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
