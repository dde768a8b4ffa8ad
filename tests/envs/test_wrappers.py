"""Wrappers: users who return, a world that moves, silos that are away or get rewards late; and nothing else."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import arrivals

import fedbandit_jax as fb

M, K, D, N, T, L = 4, 4, 4, 4000, 4000, 5  # silos, arms, features, seeds, rounds, rounds until rewards arrive
ALIKE = fb.envs.sphere(M, K, D, rewards="bernoulli")
ARM = 2


class Seen(NamedTuple):
    """Of seeds and rounds, (n, T, ...)."""

    offered: fb.Round
    world: Any
    found: fb.Feedback  # of `ARM`


@jax.jit
def played(env, rounds, keys):
    def one(key):
        def step(world, t):
            key_t = jax.random.fold_in(key, t)
            offered, world = env.observe(key_t, world, t)
            found = env.pull(key_t, world, offered, jnp.full(env.spec.n_agents, ARM, jnp.int32))
            return world, Seen(offered, world, found)

        return jax.lax.scan(step, env.init(jax.random.fold_in(key, 2**30)), rounds)[1]

    return jax.vmap(one)(keys)


def seen(env, rounds, n=1):
    """What happens in `rounds`, which follow each other."""
    found = played(env, jnp.asarray(rounds, jnp.int32), jax.random.split(jax.random.key(1), n))
    return jax.tree.map(np.asarray, found)


def near(found, expected, std, n):
    """Within five standard errors."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=5 * np.max(std) / n**0.5)


CALM = {  # wrappers that change nothing yet, the world within, and how the spec differs
    "returning": (fb.envs.returning(ALIKE, 4), lambda w: w[0], dict(n_users=4)),
    "drift": (fb.envs.drift(ALIKE, (9,)), lambda w: w.now, {}),
    "dropout": (fb.envs.dropout(ALIKE, 0.3), lambda w: w, dict(drops=True)),
    "delay": (fb.envs.delay(ALIKE, 3, "geometric"), lambda w: w, dict(late=3)),
}


@pytest.mark.parametrize("name", CALM)
def test_all_else_is_the_environment_within(name):
    """Before the first change, if the world moves."""
    env, within, changes = CALM[name]
    assert env.spec == dataclasses.replace(ALIKE.spec, **changes)

    @jax.jit
    def step(key, t):
        (world, plain), arms = (e.init(key) for e in (env, ALIKE)), jnp.array([3, 0, 2, 1], jnp.int32)
        (offered, world), (its, plain) = (e.observe(key, w, t) for e, w in ((env, world), (ALIKE, plain)))
        its = its if name == "drift" else fb.Round(offered.contexts)  # a stream of its own
        mine, theirs = env.pull(key, world, offered, arms), ALIKE.pull(key, plain, its, arms)
        return (within(world), mine, offered.contexts), (plain, theirs, its.contexts)

    one, other = step(jax.random.key(3), 8)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


# Users who return.


@pytest.mark.parametrize("weights", ["uniform", [1, 2, 3, 10]])
def test_users_come_as_often_as_their_weights_say(weights):
    """To every silo, whoever comes to the others, came before, and whatever is offered."""
    offered = seen(fb.envs.returning(ALIKE, 4, weights), range(T)).offered
    users, first = offered.user[0], offered.contexts[0, ..., 0, :]
    p = np.full(4, 1 / 4) if weights == "uniform" else np.array(weights) / sum(weights)
    for silo in range(M):
        near(np.bincount(users[:, silo], minlength=4) / T, p, 0.5, T)
    for one, other in ((0, 1), (1, 2)):
        near(np.mean(users[:, one] == users[:, other]), (p**2).sum(), 0.5, T)
    near(np.mean(users[1:] == users[:-1]), (p**2).sum(), 0.5, M * T)
    near(first[users == 3].mean(0), first.mean((0, 1)), 2 * first.std(), M * T)


def test_users_stay_for_a_session():
    """Users who come for five rounds in a row, who are drawn anew then; what is offered is new in every round."""
    offered = seen(fb.envs.returning(ALIKE, 4, session=5), range(200)).offered
    held = offered.user[0].reshape(40, 5, M)
    assert (held == held[:, :1]).all()
    near(np.mean(held[1:, 0] == held[:-1, 0]), 1 / 4, 0.5, 39 * M)
    assert len(np.unique(offered.contexts[..., 0, 0])) == 200 * M


# A world that moves.


def check_gaps(found):
    """Regret is to the best arm of the world of the round."""
    means = np.einsum("stmkd,std->stmk", found.offered.contexts, found.world.now.theta)
    np.testing.assert_allclose(found.found.gap, means.max(-1) - means[..., ARM], atol=1e-6)


def test_there_is_a_new_world_in_these_rounds_only():
    for when, changes in ((5, [5, 10, 15]), ((3, 4, 11), [3, 4, 11])):
        found = seen(fb.envs.drift(ALIKE, when), range(18))
        theta, piece = found.world.now.theta[0], found.world.piece[0]
        assert [t for t in range(1, 18) if (theta[t] != theta[t - 1]).any()] == changes
        assert piece.tolist() == [sum(t >= change for change in changes) for t in range(18)]
        check_gaps(found)


MOVES = {
    "sphere, jump": (ALIKE, "jump", (1, 2), (0, 1, 2)),
    "gap, slide": (fb.envs.gap(M, K, D), "slide", 4, (0, 3, 8)),
    "arms, jump": (fb.envs.arms(5), "jump", 1, (0, 1, 2)),
}


@pytest.mark.parametrize("name", MOVES)
def test_every_world_has_the_law_of_the_first_and_whole_pieces_are_independent(name):
    """First and second moments of many seeds within five standard errors."""
    env, how, when, rounds = MOVES[name]
    now = seen(fb.envs.drift(env, when, how), rounds, N).world.now
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
    found = seen(fb.envs.drift(ALIKE, when, "slide"), range(20), 5)
    check_gaps(found)
    theta = found.world.now.theta.astype(float)
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
    contexts = seen(env, range(4)).offered.contexts[0]
    assert [bool((a == b).all()) for a, b in itertools.pairwise(contexts)] == [True, False, True]


@pytest.mark.parametrize("stay", [1, 4])
def test_users_return_in_a_world_that_moves(stay):
    """Wrappers go around each other, in either order; users stay for a session around what drifts."""
    env = fb.envs.returning(fb.envs.drift(ALIKE, 3), 5, session=4)
    env = fb.envs.drift(fb.envs.returning(ALIKE, 5), 3) if stay == 1 else env
    assert env.spec.n_users == 5
    found = seen(env, range(8))
    moving = found.world if stay == 1 else found.world[0]
    assert moving.piece[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    held = found.offered.user.reshape(8 // stay, stay, M)
    assert (held == held[:, :1]).all()
    assert (held[1:] != held[:-1]).any()


# Silos that are away, and whose rewards come late.


def test_who_is_away():
    """As often as the rate says, whoever else is; by the schedule where there is one, whose last row goes on."""
    rates = [0.0, 0.2, 0.2, 0.7]
    away = seen(fb.envs.dropout(ALIKE, rates), range(T)).offered.away[0]
    near(away.mean(0), rates, 0.5, T)
    near((away[:, 1] & away[:, 2]).mean(), 0.04, 0.2, T)
    listed = seen(fb.envs.dropout(ALIKE, schedule=np.eye(M, dtype=bool)), [0, 2, 3, 9]).offered.away[0]
    np.testing.assert_array_equal(listed, np.eye(M, dtype=bool)[[0, 2, 3, 3]])


def test_laws_of_delays():
    """All after L rounds; or after 1, 2, ... with the geometric law, silo by silo."""

    def waits(env, rounds):
        which = arrivals(places := seen(env, range(rounds)).offered.arrives[0])
        return (np.arange(rounds)[:, None] - which)[which >= 0], places

    assert set(waits(fb.envs.delay(ALIKE, L), 40)[0]) == {L}
    found, places = waits(fb.envs.delay(ALIKE, L, "geometric"), T)
    for k in (1, 2, 5):
        p = (1 - 1 / L) ** (k - 1) / L
        near(np.mean(found == k), p, p**0.5, len(found))
    near(found.mean(), L, L, len(found))
    near(np.mean(places[:, 0] == places[:, 1]), 1 / L, (1 / L) ** 0.5, T)
