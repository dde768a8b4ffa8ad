"""Silos that report false rewards: which ones, what they report, and that nothing else is touched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

M, N = 4, 2000
HONEST = fb.envs.sphere(M, 5, 3, rewards="bernoulli")


def pulled(env, rounds=N):
    """Features of the arms played and feedback of many rounds, (T, M, d) and (T, M)."""
    world = env.init(jax.random.key(1))

    def one(key):
        offered, _ = env.observe(key, world, jnp.int32(0))
        return offered.contexts[:, 2], env.pull(key, world, offered, jnp.full(M, 2, jnp.int32))

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), rounds)))


@pytest.mark.parametrize("attack", ["sign_flip", "random", "large", "collude"])
def test_liars_report_what_the_attack_says(attack):
    """Silos 1 and 3 lie; the law of random rewards is uniform within five standard errors."""
    x, true = pulled(HONEST)
    same, told = pulled(fb.envs.corrupt(HONEST, [1, 3], attack))
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(told.gap, true.gap)
    np.testing.assert_array_equal(told.reward[:, [0, 2]], true.reward[:, [0, 2]])
    lies, y = told.reward[:, [1, 3]], true.reward[:, [1, 3]]
    if attack == "random":
        assert lies.mean() == pytest.approx(1 / 2, abs=5 / (24 * N) ** 0.5)
        assert (lies**2).mean() == pytest.approx(1 / 3, abs=5 * (4 / 45 / 2 / N) ** 0.5)
        assert abs(np.corrcoef(lies.ravel(), y.ravel())[0, 1]) < 5 / (2 * N) ** 0.5
        assert abs(np.corrcoef(lies.T)[0, 1]) < 5 / N**0.5
    else:
        wanted = {"sign_flip": 1 - y, "large": -1000 * y, "collude": x[:, [1, 3], 0] >= 0}[attack]
        np.testing.assert_array_equal(lies, wanted)


def test_a_share_of_silos_are_the_first_ones_and_bounds_are_as_promised():
    for silos, lying in ((0.5, [1, 1, 0, 0]), (0.0, [0] * M), (0.3, [1, 0, 0, 0]), ([2], [0, 0, 1, 0])):
        assert fb.envs.corrupt(HONEST, silos).lying.tolist() == lying
    assert fb.envs.corrupt(HONEST).spec == HONEST.spec
    assert not fb.envs.corrupt(HONEST, attack="large").spec.rewards_in_unit
    assert not fb.envs.corrupt(fb.envs.sphere(M, 5, 3), attack="random").spec.rewards_in_unit
