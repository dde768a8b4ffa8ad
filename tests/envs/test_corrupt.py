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


@pytest.mark.slow
def test_any_algorithm_meets_them_and_bounds_are_enforced(key):
    """Lies of 10^3 are clipped where there is privacy, whatever the trust model, and the claim stays."""
    env = fb.envs.corrupt(fb.envs.returning(HONEST, 3), 0.5, "large")
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), "blt", "secagg", unit="visit")
    algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=5, privacy=mechanism)
    run = fb.simulate(env, algo, horizon=20, seeds=2, key=key)
    assert run.certificate.claim == "certified"
    assert np.isfinite(run.regret).all()
    assert env.spec.n_users == 3


def test_refusals():
    for wrong, error, words in (
        (lambda: fb.envs.corrupt("sphere"), TypeError, "an environment, which has an fb.Spec `spec`"),
        (
            lambda: fb.envs.corrupt(fb.envs.arms(3)),
            ValueError,
            "env must have silos, of which some are honest, got one",
        ),
        (lambda: fb.envs.corrupt(HONEST, 0.95), ValueError, "silos must leave one of 4 that is honest, got 0.95"),
        (
            lambda: fb.envs.corrupt(HONEST, 0.1),
            ValueError,
            "silos must be 0, or a share that is at least one of 4 silo",
        ),
        (lambda: fb.envs.corrupt(HONEST, [4]), ValueError, r"silos must be below the 4 of the environment, got \[4\]"),
        (lambda: fb.envs.corrupt(HONEST, 0.2, "lie"), ValueError, "attack must be one of 'random', 'sign_flip', "),
    ):
        with pytest.raises(error, match=words):
            wrong()
