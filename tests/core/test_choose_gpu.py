"""The kernel that draws, scores and picks, run by Pallas' interpreter, against the same functions on whole arrays."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep

from fedbandit_jax.core import random
from fedbandit_jax.core.choose_kernel import FEW, LARGE, MANY, TILE, choose_by_kernel
from fedbandit_jax.core.ridge import NOWHERE
from fedbandit_jax.core.scoring import Offer

D = 3
PACKED = [(i, j) for i in range(D) for j in range(i + 1)]  # of the inverse


def words(key, counter):
    """A few rounds of xor, shift and multiply: enough for numbers that look unlike each other."""
    x = counter * jnp.uint32(2654435761) ^ key[0]
    for shift in (15, 13, 16):
        x = (x ^ (x >> jnp.uint32(shift))) * jnp.uint32(2246822519) + key[1]
    return x


def draw(shared, arm, agent):
    """Three uniform numbers on (0, 1)."""
    first = (arm * jnp.uint32(10007) + agent) * jnp.uint32(D)
    return tuple(random.unit(words(shared[0], first + jnp.uint32(i))) for i in range(D))


class Model(NamedTuple):
    """A scorer: inverse, theta and beta of one model, or of one for each agent."""

    inverse: Any
    theta: Any
    beta: Any

    def worth(self, x):
        inverse, theta, beta = self
        form = sum((1 if i == j else 2) * inverse[n] * x[i] * x[j] for n, (i, j) in enumerate(PACKED))
        return sum(theta[i] * x[i] for i in range(D)) + beta * jnp.sqrt(jnp.maximum(form, 0))


def mean(shared, x):
    return sum(shared[1][i] * x[i] for i in range(D))


def known(n_agents, n_models, seed=0):
    """What all agents share: key words and theta*; and one model, or one for each."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(D, D, n_models))
    inverse = np.einsum("ika,jka->ija", factor, factor) / D
    shared = jnp.asarray(rng.integers(0, 2**32, 2), jnp.uint32), jnp.asarray(rng.normal(size=D), jnp.float32)
    packed = jnp.asarray([inverse[i, j] for i, j in PACKED], jnp.float32)
    own = Model(packed, jnp.asarray(rng.normal(size=(D, n_models)), jnp.float32), 0.7)
    return shared, own, jnp.arange(n_agents, dtype=jnp.uint32)


@functools.partial(jax.jit, static_argnums=(0, 1, 4))
def choose(draw, mean, shared, own, n_arms, agents):
    return choose_by_kernel(Offer(draw, mean, shared), own, n_arms, agents)


@functools.partial(jax.jit, static_argnums=(0, 1, 4))
def listed(draw, mean, shared, own, n_arms, agents):
    """The index of all arms for all agents, and their means."""
    x = draw(shared, jnp.arange(n_arms, dtype=jnp.uint32)[:, None], agents[None])
    return own.worth(x), mean(shared, x)


def stored(draw, mean, shared, own, n_arms, agents):
    """The same, from arrays of all arms and agents."""
    index, means = (
        np.broadcast_to(one, (n_arms, len(agents))) for one in listed(draw, mean, shared, own, n_arms, agents)
    )
    arms = np.where(np.isnan(index).any(0), NOWHERE, np.argmax(index, 0))
    return arms, means.max(0)


def assert_same(found, expected):
    """The same arms, and means up to the order in which compilers round products and sums."""
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-5)
    assert (found[0].dtype, found[1].dtype) == (jnp.int32, jnp.float32)


SIZES = [(100, 37, 37), (100, 37, 1), (1, 1, 1), (32, 8, 8), (2 * TILE // MANY + 1, LARGE + 3, 1)]


@pytest.mark.parametrize(("n_arms", "n_agents", "n_models"), deep(SIZES, keep={1}))
def test_equals_stored_contexts(n_arms, n_agents, n_models):
    """Whether the last tile is full or not, and whose model it is. Some agents alone draw as they do among all."""
    shared, own, agents = known(n_agents, n_models)
    arms, means = expected = stored(draw, mean, shared, own, n_arms, agents)
    assert_same(choose(draw, mean, shared, own, n_arms, agents), expected)
    assert len(set(arms)) >= min(n_agents, 4), "the case says little"
    if n_models == 1:
        half = n_agents // 2
        assert_same(choose(draw, mean, shared, own, n_arms, agents[half:]), (arms[half:], means[half:]))


def test_blocks_take_many_agents_of_all_runs_together():
    """The shape of a block, read from the kernel that is traced, not run."""
    shared, own, agents = known(LARGE // 8, 1)

    def one(word):
        return choose(draw, mean, ((shared[0] + word), shared[1]), own, 20, agents)

    for seeds, wide in ((7, FEW), (8, MANY)):
        program = str(jax.make_jaxpr(jax.vmap(one))(jnp.arange(seeds, dtype=jnp.uint32)))
        grid = f"grid=({seeds}, {len(agents) // wide})"
        assert grid in program, grid


@pytest.mark.slow
def test_seeds():
    """Under vmap, with key, theta* and models of its own, every seed chooses as it does alone."""
    seeds = [known(11, 11, seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(one) for one in x]), *[case[:2] for case in seeds])
    agents = seeds[0][2]

    def one(shared, own):
        return choose(draw, mean, shared, own, 20, agents)

    found, alike = jax.vmap(one)(*stacked), jax.vmap(one, (None, 0))(seeds[0][0], stacked[1])
    for s, (shared, own, _) in enumerate(seeds):
        assert_same([x[s] for x in found], stored(draw, mean, shared, own, 20, agents))
        assert_same([x[s] for x in alike], stored(draw, mean, seeds[0][0], own, 20, agents))


class Table(NamedTuple):
    """A scorer of arms whose only feature is their number, and whose index is in a table, plus a number."""

    table: Any
    plus: Any

    def worth(self, x):
        found = jnp.zeros(x[0].shape)
        for k in range(len(self.table)):
            found = jnp.where(x[0] == k, self.table[k], found)
        return found + self.plus


def numbered(shared, arm, agent):
    return (arm + 0 * agent,)


def number(shared, x):
    return x[0] * jnp.float32(1)


TIED = [0] * 40 + [5] + [0] * 20 + [5]  # in different tiles and rows
TABLES = [(TIED, 40), ([1, -np.inf, np.inf, np.inf], 2), ([1, np.nan, 2], NOWHERE), ([np.nan] + [1] * 40, NOWHERE)]


@pytest.mark.parametrize(("values", "arm"), TABLES)
def test_ties_and_what_is_no_number(values, arm):
    """The first of equal arms; none for an agent who has an index that is NaN, as `ridge.first_argmax`."""
    index = jnp.full((len(TIED), 1), -1.0).at[: len(values), 0].set(jnp.array(values))
    own = Table(index, jnp.zeros(FEW + 1).at[FEW].set(jnp.nan))
    arms, means = choose(numbered, number, (), own, len(TIED), jnp.arange(FEW + 1, dtype=jnp.uint32))
    assert arms.tolist() == [arm] * FEW + [NOWHERE]
    assert means.tolist() == [len(TIED) - 1] * (FEW + 1)


def lost(shared, x):
    """The mean, but for one that is not a number."""
    found = mean(shared, x)
    return jnp.where(jnp.abs(found - shared[2]) < 1e-6, jnp.nan, found)


def test_a_mean_that_is_not_a_number_is_told():
    """A later arm does not cover it up, though the largest of PTX would drop it."""
    shared, own, agents = known(3, 1)
    n_arms = 2 * TILE // FEW + 1
    expected = np.asarray(mean(shared, draw(shared, jnp.arange(n_arms, dtype=jnp.uint32)[:, None], agents[None])))
    for arm in (0, n_arms - 1):
        found = choose(draw, lost, (*shared, expected[arm, 1]), own, n_arms, agents)[1]
        np.testing.assert_array_equal(np.isnan(found), [False, True, False])
