"""Rewards have their law about their means in every environment, wrong laws are seen, and regret is about the means."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.envs.logged import FittedLaw

E = fb.envs
N = 2**19
CRITICAL = stats.kstwobign.isf(1e-4) / N**0.5
EDGES = [0.0, 0.02, 0.5, 0.93, 1.0]
ITEMS, KINDS = np.array([[0.9, 0.0], [0.0, 0.4], [0.5, 0.5]]), np.array([0, 1, 1, 2])


class Case(NamedTuple):
    env: Any
    law: Callable  # the distribution at z, the mean or what it is a function of; `by` is 1, or else it is wrong
    by: float = 1.02
    clipped: bool = False
    shapes: tuple = ()  # of every arm
    mean: Callable | None = None  # what regret is about; None: the law's mean


def normal(std):
    return lambda z, by=1.0: stats.norm(z, by * std)


def bernoulli(z, by=1.0):
    return stats.bernoulli(min(by * z, 1.0))


def pareto(z, by=1.0, shape=2.5):
    return stats.pareto(shape, scale=by * z * (1 - 1 / shape))


def click(z, by=1.0):
    return stats.bernoulli(by / (1 + math.exp(-6 * (z - 0.5))))


def within_unit(std):
    return lambda z: float(stats.norm(z, std).expect(lambda x: min(max(x, 0), 1)))


def sphere(rewards, **more):
    return E.sphere(2**8, 3, 4, rewards=rewards, **more)


CASES = {
    "arms": Case(E.arms(means=EDGES), normal(0.1), 1.05, True, mean=within_unit(0.1)),
    "loud arms": Case(E.arms(means=EDGES, noise_std=0.7), normal(0.7), 1.05, True, mean=within_unit(0.7)),
    "arms, bernoulli": Case(E.arms(means=EDGES, rewards="bernoulli"), bernoulli),
    "arms, pareto": Case(
        E.arms(means=[0.3, 1.0], rewards="pareto", shape=[1.5, 3.0]), pareto, shapes=(dict(shape=1.5), dict(shape=3.0))
    ),
    "gaussian": Case(sphere("gaussian", noise_std=0.3), normal(0.3)),
    "clipped": Case(sphere("clipped_gaussian", noise_std=0.5), normal(0.5), 1.05, True, mean=lambda z: z),
    "bernoulli": Case(sphere("bernoulli"), bernoulli),
    "student": Case(sphere("student_t", noise_std=0.4, shape=3.5), lambda z, by=1.0: stats.t(3.5, z, by * 0.4)),
    "pareto": Case(sphere("pareto", shape=2.5), pareto),
    "logistic": Case(sphere("logistic", shape=6.0), click),
    "clusters": Case(E.clustered(5, 2, 2, n_arms=3, dim=4), bernoulli),
    "community": Case(
        E.community(ITEMS, ITEMS[[0, 1, 1, 2]], np.array([0, 1, 1, 2]), n_servers=2, n_arms=3), bernoulli
    ),
}


@jax.jit
def drawn(env, key):
    """z (K,) and means of one offer to all agents, gaps (K,), and rewards (K, N), also of many users at once."""
    world = env.init(key)
    offered, world = env.observe(key, world, 0)
    x, everybody = offered.contexts[0], jnp.ones(env.spec.n_agents, jnp.int32)
    offered = offered._replace(contexts=jnp.broadcast_to(x, offered.contexts.shape))
    arms, keys = jnp.arange(env.spec.n_arms), jax.random.split(key, N // len(everybody))
    one = jax.lax.map(lambda a: jax.vmap(lambda k: env.pull(k, world, offered, a * everybody))(keys), arms)
    rewards = [one.reward.reshape(len(arms), -1)]
    if hasattr(env, "answers"):
        many = jax.lax.map(lambda a: jnp.concatenate(env.answers(jax.random.fold_in(key, a), world, a, N)), arms)
        rewards.append(many)
    theta = world.thetas[offered.user[0]] if hasattr(world, "thetas") else getattr(world, "theta", world)
    at = env.mean_at(world, [column[:, None] for column in x.T])[:, 0] if hasattr(env, "mean_at") else None
    return x @ theta, at, one.gap[:, 0, 0], rewards


@pytest.mark.parametrize("name", CASES)
def test_law(name, key):
    case = CASES[name]
    z, at, gap, rewards = jax.tree.map(lambda x: np.asarray(x, float), drawn(case.env, key))
    laws = [case.law(x, **more) for x, more in zip(z, case.shapes or [{}] * len(z))]
    means = np.array([case.mean(x) if case.mean else law.mean() for x, law in zip(z, laws)])
    np.testing.assert_allclose(gap, means.max() - means, atol=1e-4)
    if at is not None:
        np.testing.assert_allclose(at, means, atol=1e-5)
    unit = case.clipped or {*np.unique(rewards[0])} == {0, 1}
    assert case.env.spec.rewards_in_unit == unit
    assert ((z > 0.15) & (z < 0.95)).any()
    for arm, law in enumerate(laws):
        off = case.law(z[arm], case.by, **(case.shapes or [{}] * len(z))[arm])
        grid = np.linspace(0.001, 0.999, 99)  # beside the atoms of clipping
        grid = grid if unit else law.ppf(grid)
        for x in (each[arm] for each in rewards):
            share = np.searchsorted(np.sort(x), grid, side="right") / N
            assert np.abs(share - law.cdf(grid)).max() < CRITICAL
            assert np.abs(share - off.cdf(grid)).max() > CRITICAL or not 0.15 < z[arm] < 0.95
            assert not unit or 0 <= x.min() <= x.max() <= 1


def test_rewards_have_the_mean_and_the_deviation():
    """Of a model of a log, within 5 standard errors; no deviation is larger than the one of rewards 0 and 1."""
    n, means, stds = 20_000, *np.array([(0.5, 0.2), (0.9, 0.25), (0.03, 0.1), (0.3, 1.0), (0.0, 0.3), (1.0, 0.3)]).T

    def draw(mean, std):
        law = FittedLaw(noise_std=std, model="linear")
        return law.draw(jax.random.key(0), jnp.full(n, mean), jnp.arange(n))

    for mean, std, draws in zip(means, stds, np.asarray(jax.jit(jax.vmap(draw))(means, stds), float)):
        wanted = min(std, math.sqrt(mean * (1 - mean)))
        assert draws.min() >= 0
        assert draws.max() <= 1
        assert abs(draws.mean() - mean) <= 5 * wanted / math.sqrt(n) + 1e-6
        spread = np.abs(np.unique(draws) - mean)
        assert draws.std() == pytest.approx(wanted, abs=5 * wanted * (1 + spread.max()) / math.sqrt(n) + 1e-6)
        assert len(np.unique(draws)) == 1 + (wanted > 0)
