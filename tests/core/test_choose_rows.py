"""Tiles of the rows that agents are offered: the same arms, rewards and regret as with padded contexts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from test_choose import FAMILIES, clock, play

import fedbandit_jax as fb
from fedbandit_jax.core import choose
from fedbandit_jax.core.ridge import NOWHERE, Posterior
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.engine.clocks import RoundClock

SIZES = np.array([1, 2, 16, 1, 3, 5, 4, 2, 1])


def table(dim):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(SIZES.sum(), dim)).astype(np.float32)
    theta = rng.normal(size=dim).astype(np.float32)
    x, theta = x / np.linalg.norm(x, axis=1, keepdims=True), theta / np.linalg.norm(theta)
    return fb.envs.replay(x, SIZES, theta, n_agents=5)


@pytest.mark.parametrize("dim", deep([4, 23], keep=(0,)))
@pytest.mark.parametrize("family", deep(list(FAMILIES), keep=(0,)))
def test_listed_and_padded_agree(family, dim, key, monkeypatch):
    monkeypatch.setattr(choose, "ROWS", 2)
    env = table(dim)
    process = clock(env, family, 40)
    padded = dataclasses.replace(process, env=dataclasses.replace(env, ragged=False))
    assert (process.lists, padded.lists) == (True, False)
    listed, _ = play(process, key)
    assert listed.sum() > 0
    np.testing.assert_allclose(listed, play(padded, key)[0], atol=1e-5)


def test_tiles_of_a_wide_table_in_several_lanes(monkeypatch):
    """Above `UNROLL_DIM` features a tile is a matrix product. Lanes have queues of unequal lengths, an agent a NaN."""
    monkeypatch.setattr(choose, "ROWS", 4)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(23, 50)).astype(np.float32)
    theta = rng.normal(size=(2, 23, 3)).astype(np.float32)
    theta[1, 0, 2] = np.nan
    half = rng.normal(size=(2, 3, 23, 23)).astype(np.float32)
    inverse = half @ half.transpose(0, 1, 3, 2)
    first, count = np.array([[0, 5, 20], [3, 0, 9]]), np.array([[5, 15, 1], [4, 2, 16]])

    def lane(inverse, theta, first, count):
        scorer = Scorer(Posterior(inverse, theta), jnp.arange(3.0))
        return choose.choose_rows(rows, scorer, lambda x: -x[0], 16, first, count)

    def rows(first, size):
        return jax.lax.dynamic_slice(jnp.asarray(x), (0, first), (23, size))

    arms, best = jax.jit(jax.vmap(lane))(inverse, theta, first, count)
    for s in range(2):
        for agent in range(3):
            offered = x[:, first[s, agent] :][:, : count[s, agent]]
            width_sq = np.einsum("dk,de,ek->k", offered, inverse[s, agent], offered)
            worth = theta[s, :, agent] @ offered + agent * np.sqrt(width_sq)
            assert arms[s, agent] == (NOWHERE if np.isnan(worth).any() else worth.argmax())
            assert best[s, agent] == -offered[0].min()


def test_tiles_are_used_where_padding_would_be_most_of_the_work():
    assert choose.tiles_save(np.array([64, 64, 64, 400]))
    assert not choose.tiles_save(np.array([64, 64, 64, 100]))  # five tiles of 64 rows, or four queries of 100
    assert not choose.tiles_save(np.array([10, 10, 10, 20]))


def test_own_environments(key):
    """What an environment redefines is what is played, and tiles have no more rows than it has arms."""
    env = dataclasses.replace(table(4), ragged=True)
    kind = type(env)

    class Fewer(kind):
        def observe(self, key, world, t):
            offered, world = super().observe(key, world, t)
            return offered._replace(mask=offered.mask & (jnp.arange(self.spec.n_arms) < 1)), world

    class Silent(kind):
        def pull(self, key, world, offered, arms):
            return super().pull(key, world, offered, arms)._replace(reward=jnp.zeros(self.spec.n_agents))

    class Rows(Silent):
        def observe(self, key, world, t):
            return super().observe(key, world, t)

        def listed(self, key, world, t):
            return super().listed(key, world, t)

        def rows_at(self, first, size):
            assert size <= self.spec.n_arms
            return super().rows_at(first, size)

    class Whole(Rows):
        def mean_at(self, world, x):
            return super().mean_at(world, x)

        def reward_at(self, key, mean, agent):
            return super().reward_at(key, mean, agent)

    algo = FAMILIES["FedLinUCB"].bind(env.spec, 8)
    fields = {field.name: getattr(env, field.name) for field in dataclasses.fields(env)}
    kinds = (kind, Fewer, Silent, Rows, Whole)
    clocks = [RoundClock(env=cls(**fields), algo=algo, horizon=8) for cls in kinds]
    assert [one.lists for one in clocks] == [True, False, False, False, True]
    jax.eval_shape(clocks[-1].step, key, *jax.eval_shape(clocks[-1].init, key), 0)
