"""Keys, bits and draws: the words are JAX's, and the laws are SciPy's."""

import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused
from scipy import special, stats
from scipy.stats import chisquare

from fedbandit_jax.core import lots, random
from fedbandit_jax.core.ridge import NOWHERE

N = 400_000
ALPHA = 1e-4  # chance that a correct generator fails a law test, over seeds; the seed is fixed


def test_keys_are_those_of_jax(key):
    """Though those of seeds are made on the host, some at a time."""
    seeds = np.array([*range(70), 2**32 - 1, 5], np.uint32)
    some = [0, 1, 63, 64, 69, 70, 71]
    expected = [jax.random.key_data(jax.random.fold_in(key, seeds[i])) for i in some]
    keys = random.of_seeds(key, seeds)
    assert keys.shape == (72,)
    np.testing.assert_array_equal(jax.random.key_data(keys)[np.array(some)], expected)
    for i in (0, 5, 2**31 - 1):
        found, expected = random.fold_in(key, np.int32(i)), jax.random.fold_in(key, i)
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))


def test_bits_are_jax_threefry(key):
    """JAX draws 32 bits as the exclusive-or of the two Threefry words at the same counter."""
    x0, x1 = jax.jit(random.bits, static_argnums=1)(key, 1001)
    np.testing.assert_array_equal(x0 ^ x1, jax.random.bits(key, (1001,)))


def test_erf_inv_is_accurate():
    x = np.concatenate([np.linspace(-0.999999, 0.999999, 100_001), 1 - 2.0 ** -np.arange(2, 24)]).astype(np.float32)
    exact = special.erfinv(x.astype(float))
    np.testing.assert_allclose(random.erf_inv(x), exact, rtol=1e-6, atol=1e-9)


def test_units_are_the_same_when_compiled():
    """All 2^23 of them: XLA may put constants together that are added one after the other, and round their sum to 0."""
    ends = np.asarray(random._unit(np.array([0, 2**31 - 1, 2**31, 2**32 - 1], np.uint32)))
    assert -1 < ends[0] < 0 < ends[2]  # open
    np.testing.assert_array_equal(ends, -ends[::-1])  # and symmetric
    words = np.arange(2**23, dtype=np.uint32) << 9
    exact = (2 * np.arange(2**23) + 1) / 2**23 - 1
    np.testing.assert_array_equal(jax.jit(random._unit)(words), exact)
    np.testing.assert_array_equal(jax.jit(random.unit)(words), (exact + 1) / 2)
    inverse = np.asarray(jax.jit(lambda words: random.erf_inv(random._unit(words)))(words))
    assert np.isfinite(inverse).all()
    assert (inverse != 0).all()


@pytest.mark.parametrize(
    ("draw", "law"), [(random.normal, stats.norm), (random.uniform, stats.uniform)], ids=["normal", "uniform"]
)
def test_law(key, draw, law):
    sample = np.asarray(draw(key, (N + 1,)), float)
    assert sample.shape == (N + 1,)
    assert stats.kstest(sample, law.cdf).pvalue > ALPHA
    assert stats.kstest(sample * 1.03, law.cdf).pvalue < ALPHA  # the test has the power to see 3 %
    for a, b in ((sample[:-1:2], sample[1::2]), (sample[: N // 2], sample[N // 2 : N])):  # words of a block, halves
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(N / 2)
    assert len(np.unique(sample)) > 0.9 * N


@pytest.mark.parametrize("n", [1, 2, 9, 10])
def test_directions_are_uniform(key, n):
    """Of length 1, and every coordinate's square is Beta(1/2, (n - 1)/2); both samplers."""
    numbers = np.arange(20_000, dtype=np.uint32)
    short = np.stack(jax.jit(random.direction, static_argnums=3)(key, numbers, np.uint32(5), n, 0)).astype(float)
    arms, agents = numbers[:100], numbers[:200]
    long = jax.jit(random.long_direction, static_argnums=3)(key, arms, agents, n, 0)
    for x in (short, np.asarray(long, float).reshape(-1, n).T):
        np.testing.assert_allclose((x * x).sum(0), 1, atol=2e-6)
        assert abs(np.sign(x).sum(1)).max() < 5 * np.sqrt(x.shape[1])
        if n > 1:
            assert np.abs(n * np.cov(x) - np.eye(n)).max() < 6 * np.sqrt(2 / x.shape[1])
            assert min(stats.kstest(row**2, stats.beta(0.5, (n - 1) / 2).cdf).pvalue for row in x) > ALPHA / n


@pytest.mark.parametrize("n", [2, 9])
def test_one_direction_for_each_agent_is_that_among_all_arms(key, n):
    """Its words are stored, under vmap too."""
    arms, agents = np.array([3, 0, 3, 2], np.uint32), np.arange(4, dtype=np.uint32)
    direction = jax.jit(jax.vmap(random.direction, (0, None, None, None, None)), static_argnums=3)
    keys = jax.random.split(key, 2)
    among = np.stack(direction(keys, np.arange(5, dtype=np.uint32)[:, None], agents[None], n, 0))
    one = jax.jit(jax.vmap(lambda key: jnp.stack(random.direction(key, arms, agents, n, 0))))(keys)
    np.testing.assert_allclose(one, np.moveaxis(among[:, :, arms, agents], 0, 1), atol=1e-6)


def test_draws_of_arms_and_agents(key):
    arms, agents = np.arange(50, dtype=np.uint32)[:, None], np.arange(40, dtype=np.uint32)[None]
    uniform_at = jax.jit(random.uniform_at, static_argnums=3)
    drawn = [uniform_at(key, arms, agents, j) for j in (0, 1, 256)]
    assert len(np.unique(drawn)) > 0.99 * 3 * 50 * 40
    np.testing.assert_array_equal(drawn[1][7, 9], uniform_at(key, np.uint32(7), np.uint32(9), 1))
    np.testing.assert_array_equal(drawn[0], uniform_at(tuple(jax.random.key_data(key)), arms, agents, 0))
    numbers = np.arange(200, dtype=np.uint32)
    normal = np.asarray(jax.jit(random.normal_at)(key, numbers[:, None], numbers))
    assert stats.kstest(normal.ravel(), "norm").pvalue > ALPHA


def test_sorting_networks():
    """They sort if they sort all zeros and ones (Knuth, 5.3.4, theorem Z)."""
    for n in range(1, 8):
        inputs = np.array(list(itertools.product([0.0, 1.0], repeat=n)), np.float32).T
        np.testing.assert_array_equal(np.stack(jax.jit(random._sorted)(list(inputs))), np.sort(inputs, 0))


def test_streams_are_independent(key):
    a, b = (np.asarray(random.normal(random.stream(key, name), (N,))) for name in ("users", "answers"))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(N)
    np.testing.assert_array_equal(a, random.normal(random.stream(key, "users"), (N,)))
    code = "".join(path.read_text() for path in Path(random.__file__).parents[1].rglob("*.py"))
    names = set(re.findall(r'(?:stream|salted)\(\w+, "(\w+)"', code)) | {"users", "answers", "choices"}
    words = {tuple(jax.random.key_data(random.stream(key, name)).tolist()) for name in names}
    assert len(words) == len(names) > 15


def test_bad_keys():
    for bad in (jax.random.PRNGKey(0), jax.random.key(0, impl="rbg"), jax.random.split(jax.random.key(0), 3)):
        with refused("key"):
            random.check_key(bad)


ROUNDS, AGENTS = 400, 25


def chosen(scores):
    """The arms (ROUNDS, AGENTS) that are played by these scores (K,)."""
    table = jnp.broadcast_to(jnp.asarray(scores, jnp.float32)[:, None], (len(scores), AGENTS))
    keys = jax.random.split(jax.random.key(0), ROUNDS)
    return np.asarray(jax.jit(jax.vmap(lambda key: lots.best(key, table)))(keys))


TIES = {
    "nothing known": np.zeros(7),
    "infinite": np.full(7, np.inf),
    "some": [3.0, 1.0, 3.0, 3.0, 2.0],
    "rounded": [1.0, 1.0 - 1e-7, 1.0, 0.9999],
    "not offered": [-2.0, -2.0, -np.inf],
    "all of a power of two": np.zeros(8),
}


@pytest.mark.parametrize("scores", TIES.values(), ids=TIES)
def test_the_best_are_equally_likely(scores):
    arms, best = chosen(scores), np.flatnonzero(np.isclose(scores, np.max(scores), rtol=1e-6))
    counts = np.bincount(arms.ravel(), minlength=len(scores))
    assert set(np.flatnonzero(counts)) == set(best)
    assert chisquare(counts[best]).pvalue > 1e-4
    for one, other in ((arms[:, 1:], arms[:, :-1]), (arms[1:], arms[:-1])):  # neighbours agree no more than by chance
        pairs = np.bincount((one * len(scores) + other).ravel(), minlength=len(scores) ** 2)
        pairs = pairs.reshape(len(scores), -1)[np.ix_(best, best)]
        assert chisquare(pairs.ravel()).pvalue > 1e-4


@pytest.mark.parametrize("cpu", [True, False])
def test_one_best_arm_is_played(cpu, monkeypatch):
    """On every machine; nothing where a score is not a number."""
    monkeypatch.setattr(lots, "on_cpu", lambda: cpu)
    scores = np.random.default_rng(0).normal(size=(100, 300)).astype(np.float32)
    scores[4, 7] = np.nan
    expected = np.where(np.isnan(scores).any(0), NOWHERE, scores.argmax(0))
    np.testing.assert_array_equal(jax.jit(lambda *x: lots.best(*x))(jax.random.key(1), scores), expected)


@pytest.mark.parametrize("n_arms", [1, 2, 256, 257, 2**15, 2**15 + 1])
def test_ties_are_seen_at_every_size(n_arms):
    """One best arm at each end, two neighbours, and all arms: counts and indices share a word of 32 bits."""
    scores = np.full((n_arms, 4), -1.0, np.float32)
    scores[0, 0] = scores[-1, 1] = scores[-2:, 2] = scores[:, 3] = 0
    keys = jax.random.split(jax.random.key(2), 20)
    arms = np.asarray(jax.jit(jax.vmap(lambda key: lots.best(key, jnp.asarray(scores))))(keys))
    assert set(arms[:, 0]) == {0}
    assert set(arms[:, 1]) == {n_arms - 1}
    assert set(arms[:, 2]) == set(range(max(n_arms - 2, 0), n_arms))
    assert len(set(arms[:, 3])) >= min(n_arms, 2)
    assert arms.max() < n_arms
