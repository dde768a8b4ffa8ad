"""Encoding and modular sums are the integers of Algorithms 2-7, and messages add up to the noise drawn at once."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.core import wide
from fedbandit_jax.privacy.integers import ring
from fedbandit_jax.privacy.integers.mechanisms import MECHANISMS
from fedbandit_jax.privacy.integers.protocol import FINE, GridSum, encode
from fedbandit_jax.privacy.integers.shares import Noise, PolyaNoise, ServerNoise

ALPHA = 1e-4


@pytest.mark.parametrize("steps", [1, 3, 1000, 2**24 - 1, 2**24])
def test_encoding_keeps_the_mean(steps):
    """Over equally spaced u the mean is x g up to their spacing, and every value is beside it."""
    x = np.append(np.random.default_rng(0).random(200), [0, 1, 0.5, 2.0**-24, 1 - 2.0**-24]).astype(np.float32)
    u = ((np.arange(1000) + 0.5) / 1000).astype(np.float32)
    found = np.asarray(encode(x[:, None], u, np.float32(steps))).astype(np.int64)
    exact = x * np.float32(steps)
    assert found.max() <= steps
    assert (np.abs(found - exact[:, None]) < 1).all()
    np.testing.assert_allclose(found.mean(1), exact, rtol=1e-6, atol=1.1e-3)


def test_encoding_of_what_is_no_reward():
    """Clipped to [0, 1]; NaN is 0, so that one user moves a sum by g at most."""
    x = np.array([-1, -np.inf, np.nan, -0.0, 1, 1.5, 1e30, np.inf], np.float32)
    for u in (1e-7, 0.5, 1 - 1e-7):
        for steps in (7, 2**24):
            found = encode(x, np.float32(u), np.float32(steps))
            assert found.tolist() == [0] * 4 + [steps] * 4


def test_finest_encoding_loses_nothing():
    x = np.random.default_rng(0).integers(0, 2**24, 1000, endpoint=True)
    for u in (1e-7, 1 - 1e-7):
        assert encode((x / 2**24).astype(np.float32), np.float32(u), FINE).tolist() == x.tolist()


COLLECT = jax.jit(lambda protocol, *args: protocol.collect(*args))
RANDOMIZE = jax.jit(lambda protocol, *args: protocol.randomize(*args))
DECODE = jax.jit(lambda protocol, *args: protocol.decode(*args))


@fb.pytree
class Written(Noise):
    """Noise that is given."""

    value: wide.Wide

    def total(self, key, k, n, shape):
        return self.value

    def share(self, key, k, n, shape):
        return self.value.low.astype(jnp.int32)


def a_ring(n, g, tau, noise, *, lost=0.0, messages=False):
    """Of one batch."""
    return ring.RingSum(
        noise=noise,
        users=np.array([min(n, 2**31 - 1)], np.int32),
        steps=np.array([g], np.float32),
        modulus=wide.of([n * g + 2 * tau + 1]),
        largest=wide.of([n * g + tau]),
        bits=np.array([1.0], np.float32),
        aggregation=ring.Aggregation(failure=n * (1 - (1 - lost) ** (1 / n))),
        messages=messages,
    )


@pytest.mark.parametrize(
    ("n", "g", "tau"), [(2, 1, 3), (256, 16, 200), (2**20, 1000, 10**9), (2**36, 2**24, 2**50), (2**30, 3, 2**59)]
)
def test_decoding_is_python_s(key, n, g, tau):
    """At both ends of the ring, and beyond: the failure is flagged when, and only when, the noisy sum has left it."""
    m = n * g + 2 * tau + 1
    noisy = [edge + d for edge in (-tau, 0, n * g, n * g + tau, m, -m) for d in (-2, -1, 0, 1, 2)]
    noisy += [3 * m + 1, -3 * m - 1] if 4 * m < 2**63 else []
    sums = [min(max(v, 0), n * g) for v in noisy]  # and the rest is noise
    protocol = a_ring(n, g, tau, Written(value=wide.of([v - s for v, s in zip(noisy, sums)])))
    decoded = DECODE(protocol, key, 0, (wide.of(sums)))
    read = [v % m if v % m <= n * g + tau else v % m - m for v in noisy]
    np.testing.assert_allclose(decoded.sums, np.array(read, float) / g, rtol=1e-6)
    assert decoded.failed.tolist() == [not -tau <= v <= n * g + tau for v in noisy]


def test_lost_sums(key):
    """As often as said, and uniform on the ring: found nowhere else, a lost sum is a failure to decode."""
    n, g, tau, size = 10, 1, 7, 100_000
    m = n * g + 2 * tau + 1
    protocol = a_ring(n, g, tau, Written(value=wide.of([0] * size)), lost=0.25)
    decoded = DECODE(protocol, key, 0, (wide.of([4] * size)))
    counts = np.bincount(np.asarray(decoded.sums).astype(int) + tau, minlength=m)
    expected = np.full(m, 0.25 * size / m)
    expected[4 + tau] += 0.75 * size
    assert stats.chisquare(counts, expected).pvalue > ALPHA
    np.testing.assert_array_equal(decoded.failed, decoded.sums != 4)


@pytest.mark.parametrize(("g", "tau"), [(5, 3), (2**24, 2**43)])
def test_messages_add_up_to_the_aggregate(key, g, tau):
    """In Z_m, over two blocks, from those who are there; with messages as large as they may be."""
    n, size = 300, 256
    rng = np.random.default_rng(0)
    shares = rng.integers(-(2**31), 2**31, size)
    protocol = a_ring(n, g, tau, Written(value=wide.of(shares)), messages=True)
    m = n * g + 2 * tau + 1
    total, collected = 0, wide.of(0)
    for block, there in enumerate((np.arange(size) >= 0, np.arange(size) < n - size)):
        x = rng.random(size).astype(np.float32)
        own = jax.random.fold_in(key, block)
        halves = [tuple(np.split(v, 2)) for v in (x, there)]
        rounding, drawing = jax.random.split(own)
        collected = jax.jit(wide.add)(collected, COLLECT(protocol, rounding, drawing, 0, *halves))
        sent = wide.to_int(RANDOMIZE(protocol, rounding, drawing, 0, x))
        assert 0 <= min(sent) <= max(sent) < m
        assert all(-1 < (s - v) % m - xg < 1 for s, v, xg in zip(sent, shares.tolist(), x * np.float32(g)))
        total += sum(sent[there])
    one = jax.tree.map(lambda word: np.asarray(word)[None], collected)
    decoded = DECODE(protocol, key, 0, one)
    read = total % m if total % m <= n * g + tau else total % m - m
    np.testing.assert_allclose(decoded.sums, [read / g], rtol=1e-6)
    assert not decoded.failed.any()  # nobody knows


def test_full_blocks_of_the_largest_messages():
    """2^16 users who all send the largest residue of the largest ring for messages."""
    m = ring.MAX_MESSAGE
    most = jax.tree.map(lambda word: np.full(2**16, word), wide.of(m - 1))
    total = jax.jit(lambda x: wide.mod(wide.add_up(x), wide.of(m)))(most)
    assert wide.to_int(total) == (m - 1) * 2**16 % m


def test_central_noise_is_the_server_s(key):
    """Users send what they have; the server's noise is drawn once."""
    protocol = a_ring(8, 4, 50, ServerNoise(scale=np.array([5.0])), messages=True)
    x = np.array([0, 0.25, 0.5, 1], np.float32)
    assert wide.to_int(RANDOMIZE(protocol, key, key, 0, x)).tolist() == [0, 1, 2, 4]
    sums = wide.of([16] * 20_000)
    spread = np.asarray(DECODE(protocol, key, 0, sums).sums) * 4 - 16
    assert spread.std() == pytest.approx(stats.dlaplace(1 / 5).std(), rel=0.03)


@pytest.mark.slow
def test_sums_without_noise(key):
    """Exact to 2^-24 for each reward."""
    x = np.random.default_rng(0).random(2**16).astype(np.float32)
    there = np.arange(2**16) < 50_001
    exact = x[there].sum(dtype=np.float64)
    plain = GridSum(scale=0.0, steps=2.0**24, users=np.array([2**16]), bits=np.array([32.0]))
    collected = COLLECT(plain, key, key, 0, jnp.split(x, 2), jnp.split(there, 2))
    np.testing.assert_allclose(wide.to_int(collected).item() / 2**24, exact, atol=50_001 * 2.0**-24)
    many = jax.tree.map(lambda word: jnp.full(20_000, word), collected)
    np.testing.assert_allclose(DECODE(plain, key, 0, many).sums, exact, rtol=1e-6)


def shown(protocol, key, total, size=200_000):
    """What the server shows of a sum, many times, in steps."""
    many = jax.tree.map(lambda word: np.full(size, word), wide.of(total))
    return np.asarray(DECODE(protocol, key, 0, many).sums, float) * protocol.steps


def on_grid(x, scale):
    """The pmf of discrete Laplace noise, as its definition has it."""
    b = math.exp(-1 / scale)
    return (1 - b) / (1 + b) * b ** np.abs(x)


def chi_square(sample, scale):
    """p-value of integers in cells around 0, and the two tails, against the pmf."""
    edge = int(3 * scale)
    cells = np.clip(sample.astype(int), -edge, edge) + edge
    expected = on_grid(np.arange(-edge, edge + 1), scale)
    expected[[0, -1]] = (1 - expected[1:-1].sum()) / 2
    return stats.chisquare(np.bincount(cells, minlength=2 * edge + 1), expected * len(sample)).pvalue


def test_sums_on_a_grid(key):
    """The sum is exact and the noise has the pmf of its scale; 4 % more or less noise is rejected."""
    protocol = GridSum(scale=20.0, steps=4.0, users=np.array([4]), bits=np.array([32.0]))
    spread = shown(protocol, key, 10) - 10
    assert (spread == np.round(spread)).all()
    assert chi_square(spread, 20.0) > ALPHA
    assert chi_square(spread, 20.8) < ALPHA > chi_square(spread, 19.2)
    assert spread.std() / 4 == pytest.approx(protocol.guarantee(0.2, 1e-6).noise_std, rel=0.01)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-4, 0.01, 0.3, 1.0, 7.0, 500.0])
def test_the_grid_of_a_budget(epsilon):
    """A power of 2 on which the noise gives epsilon, is wide, and fits in the sampler's range."""
    protocol = (
        fb.algos.SuccessiveElimination(epsilon=epsilon, mechanism="laplace", trust="central")
        .bind(fb.envs.arms(n_arms=2).spec, 10**6)
        .protocol
    )
    g, scale = protocol.steps, protocol.scale
    assert math.log2(g) == int(math.log2(g)) >= 0
    assert epsilon * (1 - 1e-6) < g / scale <= epsilon
    assert scale <= 2**25
    assert 2048 < scale <= 4097 or g in (1, 2**24)
    x = np.array([0, g // 2, g])  # seen with one user at 0, or at g: the same sign, across 0, and the other sign
    ratio = np.log(on_grid(x, scale)) - np.log(on_grid(x - g, scale))
    assert np.abs(ratio).max() == pytest.approx(g / scale, rel=1e-6)


def test_epsilon_too_small_for_the_grid():
    algo = fb.algos.SuccessiveElimination(epsilon=1e-9, mechanism="laplace", trust="central")
    with pytest.raises(ValueError, match=r"epsilon must be at least 2\^-25 for integer noise of 32 bits, got 1e-09"):
        algo.bind(fb.envs.arms(n_arms=2).spec, 10**6)


@pytest.mark.slow
def test_low_digits_do_not_tell_neighbours_apart(key):
    """Float32 noise on a float32 sum is an odd multiple of 2^-24 with probability .0040 or .0079, at epsilon .01.

    Here all that is shown is on the grid, where the law says how often it is odd: nearly always a half.
    """
    epsilon = 0.01
    algo = fb.algos.SuccessiveElimination(epsilon=epsilon, mechanism="laplace", trust="central")
    protocol = algo.bind(fb.envs.arms(n_arms=2).spec, 10**6).protocol
    g, scale = int(protocol.steps), float(protocol.scale)
    x = np.arange(-60 * int(scale), 60 * int(scale) + 1)
    often = []
    for moved in (0, 1, g // 2 - 1, g):  # the sum over users, one of whom is replaced
        views = shown(protocol, key, moved)
        assert (views == np.round(views)).all()
        odd = on_grid(x, scale)[(x + moved) % 2 == 1].sum()
        assert stats.binomtest(int((views % 2 == 1).sum()), len(views), odd).pvalue > ALPHA
        often.append(odd)
    assert np.abs(np.log(np.divide.outer(often, often))).max() <= epsilon
    assert protocol.guarantee(epsilon, 1e-6).epsilon_exact <= epsilon


# Messages of all users against the noise drawn at once: half of the users of a block take part in a batch.

USERS = (2, 16, 256)
RUNS = 2000


@jax.jit
def decoded_sums(protocol, keys, k, x, there):
    def one(key):
        rounding, own, decoding = jax.random.split(key, 3)
        collected = protocol.collect(rounding, own, k, jnp.split(x, 2), jnp.split(there, 2))
        return protocol.decode(decoding, k, jax.tree.map(lambda word: word[None], collected)).sums[0]

    return jax.lax.map(one, keys, batch_size=500)


def sums(protocol, key, k, *, part=1):
    """Of as many runs; of the users who should take part, one in `part` does."""
    n = USERS[k]
    size = 2 * max(n, USERS[1])  # one program for few users and for more
    x = np.random.default_rng(n).random(size).astype(np.float32)
    order = np.arange(size)
    there = order < n
    x[there & (order % part > 0)] = 0
    return np.asarray(decoded_sums(protocol, jax.random.split(key, RUNS), k, x, there & (order % part == 0)), float)


def same_law(a, b):
    """p-value of a two-sample chi-square test on cells that hold a twentieth of both together."""
    edges = np.unique(np.quantile(np.concatenate([a, b]), np.arange(1, 20) / 20))
    counts = np.array([np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (a, b)])
    return stats.chi2_contingency(counts[:, counts.sum(0) > 0]).pvalue


def made(pair, *, messages):
    return MECHANISMS[pair](1.0, 4.0, 1e-3, 10**5).sums(USERS, messages=messages)


FEW_AND_MANY = deep([0, 1, 2], keep={1})


SLOW = {p for p in MECHANISMS if p[1] != "secagg" or p[0] in ("skellam", "discrete_laplace")}
SOME = [pytest.param(p, marks=[pytest.mark.slow] * (p in SLOW), id=" ".join(p)) for p in MECHANISMS]


@pytest.mark.parametrize("k", FEW_AND_MANY)
@pytest.mark.parametrize("pair", SOME)
def test_messages_equal_aggregated_in_law(key, pair, k):
    one, other = (made(pair, messages=messages) for messages in (True, False))
    assert same_law(sums(one, key, k), sums(other, jax.random.fold_in(key, 1), k)) > ALPHA


@fb.pytree
class Inverted(PolyaNoise):
    """Rates of Gamma(r) with scale (1 - beta) / beta in place of beta / (1 - beta), as in released code."""

    def share(self, key, k, n, shape):
        scale = -1 / jnp.log(-jnp.expm1(-1 / jnp.asarray(self.scale)[k]))
        return PolyaNoise(scale=jnp.full(len(USERS), scale)).share(key, k, n, shape)


@pytest.mark.slow
@pytest.mark.parametrize("k", FEW_AND_MANY)
def test_inverted_polya_is_rejected(key, k):
    right = made(("discrete_laplace", "secagg"), messages=True)
    wrong = replace(right, noise=Inverted(scale=right.noise.scale))
    assert same_law(sums(right, key, k), sums(wrong, jax.random.fold_in(key, 1), k)) < 1e-6


@pytest.mark.parametrize("k", FEW_AND_MANY)
@pytest.mark.slow
@pytest.mark.parametrize("pair", [("discrete_laplace", "secagg"), ("skellam", "secagg")])
def test_missing_users_are_rejected(key, pair, k):
    """With half of the users half of the noise is missing; nothing else is, as the others have reward 0 or are 0."""
    few, n = made(pair, messages=True), USERS[k]
    present = np.random.default_rng(n).random(n).astype(np.float32)
    few, all_ = sums(few, key, k, part=2), sums(made(pair, messages=False), jax.random.fold_in(key, 1), k)
    assert same_law(few - present[::2].sum(), all_ - present.sum()) < 1e-6


def test_server_noise_is_added_before_float32_rounds(key):
    """Rounding sums of 2^24 and more first would move neighbours by 2 and more: twice the epsilon."""
    protocol = GridSum(scale=2.0**10, steps=2.0**10, users=np.array([2**25]), bits=np.full(1, 32.0))
    keys = jax.random.split(key, 200_000)
    decode = jax.jit(jax.vmap(lambda key, sums: protocol.decode(key, jnp.int32(0), sums).sums[0], (0, None)))
    views = [np.asarray(decode(keys, wide.of([(2**24 + 1 + moved) * 2**10]))) for moved in (0, 1)]
    values, counts = zip(*(np.unique(view, return_counts=True) for view in views))
    shared = np.intersect1d(*values)
    ratios = [count[np.isin(value, shared)] for value, count in zip(values, counts)]
    often = np.minimum(*ratios) > 2000
    assert np.abs(np.log(ratios[0] / ratios[1]))[often].max() < 1 + 4 * np.sqrt(2 / 2000)
    rounded = [np.round(np.float32(2**24 + 1 + moved)) for moved in (0, 1)]
    assert rounded[1] - rounded[0] == 2  # what would have been shown
