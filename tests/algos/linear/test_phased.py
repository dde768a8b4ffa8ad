"""Elimination in phases: its design, its widths, the printed algorithm on the same draws, and what it is for."""

import dataclasses
import math

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from oracles import linear as oracles

import fedbandit_jax as fb
from fedbandit_jax.algos.policies.phased_elimination import g_optimal
from fedbandit_jax.core import random
from fedbandit_jax.interfaces import NoiseLaw, Released
from fedbandit_jax.privacy.packing import packed_size, unpack

BUDGET = fb.privacy.Budget(5.0, 0.1)


def some_arms(n, dim, seed=0):
    """Unit vectors with a constant entry, as those of the sphere."""
    u = np.random.default_rng(seed).standard_normal((n, dim - 1))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    return (np.hstack([u, np.ones((n, 1))]) / math.sqrt(2)).astype(np.float32)


def test_the_design_is_g_optimal():
    """x' V^-1 x <= r for arms that are left, within 5 %; none has less, as it is r in the mean (Kiefer-Wolfowitz)."""
    arms = some_arms(30, 5)
    for left in (np.ones(30, bool), np.arange(30) < 7, np.arange(30) == 3, np.isin(np.arange(30), [4, 9])):
        weights, chart, inverse = (np.asarray(x, float) for x in jax.jit(g_optimal)(arms, left))
        v = arms.T * weights @ arms
        leverage = np.einsum("ad,de,ae->a", arms, np.linalg.pinv(v, 1e-5), arms)[left]
        rank = np.linalg.matrix_rank(v, 1e-5)
        assert rank == min(left.sum(), 5)
        assert rank - 1e-4 <= leverage.max() <= 1.05 * rank
        assert weights[~left].sum() == 0
        assert weights.sum() == pytest.approx(1, abs=1e-5)
        z = arms[left] @ chart
        np.testing.assert_allclose(np.einsum("ad,de,ae->a", z, inverse, z), leverage, rtol=1e-3)
        np.testing.assert_allclose(weights[left], oracles.design(arms[left].astype(float)), atol=1e-4)


@pytest.mark.parametrize(("centred", "release"), deep([(True, "input_perturbation"), (False, "tree")], keep={1}))
def test_dp_dpe(centred, release):
    """The pseudo-code, on the same draws; the noise of a batch alone is that of a release less the one before."""
    arms, m, horizon, means = some_arms(6, 3), 4, 110, np.linspace(0.1, 0.9, 6)
    shape, key = (horizon, m, len(arms)), jax.random.fold_in(ex.KEY, 0)
    answers, contexts = np.random.default_rng(1).random(shape) < means, np.broadcast_to(arms, (*shape, 3))
    script = fb.envs.script(contexts, answers, np.broadcast_to(means, shape), fixed_contexts=True)
    env = dataclasses.replace(script, spec=dataclasses.replace(script.spec, constant=True))
    mechanism = fb.privacy.Mechanism(BUDGET, release, statistic=fb.privacy.Linear(centred=centred, gram_scale=0.5))
    algo = fb.algos.dp_dpe(arms, mechanism, schedule=20, exploration_scale=0.2)
    bound, run = algo.bind(env.spec, horizon), ex.simulate(env, algo, horizon=horizon, seeds=1)

    @jax.jit
    @jax.vmap
    def fresh(k):
        one = jax.random.fold_in(random.stream(key, "syncs"), k)
        return unpack(bound.mechanism.trust.noise(one, packed_size(3)), 3)[:, 3]

    decoder = {"input_perturbation": np.tril(np.ones((5, 5))), "tree": TREE}[release]
    alone = np.diff(decoder, axis=0, prepend=0)
    one, drawn = bound.mechanism.trust.sum_std(), np.asarray(fresh(np.arange(5)), float)
    np.testing.assert_allclose(bound.policy.stds[: len(alone)], one * np.sqrt((alone**2).sum(1)), rtol=1e-6)

    def draw(t, i, weights):
        own = jax.random.split(jax.random.fold_in(random.stream(key, "choices"), t), m)[i]
        with np.errstate(divide="ignore"):
            return int(np.argmax(np.log(weights) + np.asarray(jax.random.gumbel(own, weights.shape))))

    expected, left = oracles.phased(
        script, horizon, 20, arms.astype(float), draw,
        failure=0.05, reward=0.5 if centred else 1.0, scale=0.2, stds=bound.policy.stds,
        noise=lambda k: alone[k] @ drawn,
    )  # fmt: skip
    np.testing.assert_allclose(np.diff(run.regret[0], prepend=0), expected, atol=2e-5)
    assert np.flatnonzero(run.records["state.belief.active"][0, 0]).tolist() == left
    assert 1 <= len(left) < 6


TREE = np.array(  # prefixes of 5 batches from the nodes of Algorithm 2: 1, 1-2, 3, 1-4, 5
    [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]
)


def bound_to(arms, std):
    """A bound policy of one phase, whose noise on x y has this standard deviation."""
    spec = fb.Spec(n_agents=2, n_arms=len(arms), dim=arms.shape[1], max_norm=1.0, rewards_in_unit=True, constant=True)
    mechanism = fb.privacy.Mechanism(BUDGET, "input_perturbation", statistic=fb.privacy.Linear(centred=True))
    law = fb.algos.Federated(privacy=mechanism, schedule=5).bind(spec, 5).mechanism
    policy = fb.algos.PhasedElimination(arms=arms).bind(NoiseLaw(2, spec.dim, np.ones(1), law))
    return dataclasses.replace(policy, stds=np.full(1, std, np.float32))


def test_widths_have_the_scale_of_the_error(key):
    """Errors of means by Monte Carlo, without the Bernstein term: rewards of 0 or 1 at random, users' draws, and noise.

    Of rewards of mean 1/2 all second moments are as large as assumed, so that the error's variance is the width's: the
    ratio is 1 within 5 standard errors, and one of half the noise, or no users' draws, would be far from it.
    """
    arms, n, reps, rng = some_arms(8, 4), 400, 4000, np.random.default_rng(0)
    for std in (0.0, 12.0):
        policy = bound_to(arms, std)
        start = jax.jit(policy.start, static_argnums=0)(4)
        weights = np.asarray(start.design.weights, float)
        counts = rng.multinomial(n, weights / weights.sum(), reps)
        ones = rng.binomial(counts, 0.5)
        bias = (ones - 0.5 * counts) @ arms + std * rng.standard_normal((reps, 4))

        def interval(u, policy=policy, start=start):
            return policy.intervals(jnp.int32(0), start, Released(jnp.eye(4), u, jnp.float32(n), jnp.float32(1)))

        mean, width = jax.jit(jax.vmap(interval))(jnp.asarray(bias, jnp.float32))
        log = float(policy.log_term)
        assert log == pytest.approx(math.log(2 * 8 / 0.05))
        z = arms @ np.asarray(start.design.chart)
        g = z @ np.asarray(start.design.inverse)
        spread = np.asarray(width)[0] - 2 * 0.5 * log / 3 * np.abs(g @ z.T).max(1) / n
        ratio = (np.asarray(mean, float) ** 2).mean(0) / (spread**2 / (2 * log))  # the true means are 1/2 - 1/2
        assert (abs(ratio - 1) < 5 * math.sqrt(2 / reps)).all(), ratio


def test_of_nobody_nothing_is_known(key):
    """A phase whose users all come too often to be let in says nothing about any arm."""
    policy = bound_to(some_arms(8, 4), 12.0)
    start = jax.jit(policy.start, static_argnums=0)(4)
    noise = Released(jnp.eye(4), 12 * jax.random.normal(key, 4), start.users, jnp.float32(1))
    after = jax.jit(policy.update)(jnp.int32(0), start, noise)
    assert after.active.all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


def test_a_direction_of_one_arm_counts():
    """Of 2,000 arms one has a second feature, which the mean of x x' hardly shows."""
    arms = np.tile(np.array([1.0, 0.0], np.float32), (2000, 1))
    arms[-1] = 0.9, 0.1
    design = jax.jit(g_optimal)(arms, np.ones(2000, bool))
    z = arms @ np.asarray(design.chart)
    leverage = np.einsum("kd,de,ke->k", z, np.asarray(design.inverse), z)
    assert design.weights[-1] > 0.1
    assert leverage.max() < 2.5
