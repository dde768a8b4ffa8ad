"""What a wrapper does not change is that of the environment within, under the same key."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

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
