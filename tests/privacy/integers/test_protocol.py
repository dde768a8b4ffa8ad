"""Encoding and modular sums are the integers of Algorithms 2-7, and noise has its law: whole, or in shares of users."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import RINGS, VARIANTS
from helpers import p_value
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.core import wide
from fedbandit_jax.privacy.accounting.lattice import DiscreteLaplace
from fedbandit_jax.privacy.integers import ring
from fedbandit_jax.privacy.integers.noise import Asked, Noise, ServerNoise, SkellamNoise
from fedbandit_jax.privacy.integers.proof import certificate_of_sums
from fedbandit_jax.privacy.integers.ring import FINE, encode, on_grid

USERS, RUNS, ALPHA, CELLS = (4, 16), 2000, 1e-4, 12


@pytest.mark.parametrize("steps", [1, 1000, 2**24 - 1])
def test_encoding_keeps_the_mean(steps):
    """Over equally spaced u the mean is x g up to their spacing, and every value is beside it."""
    x = np.append(np.random.default_rng(0).random(200), [0, 1, 0.5, 2.0**-24, 1 - 2.0**-24]).astype(np.float32)
    u = ((np.arange(1000) + 0.5) / 1000).astype(np.float32)
    found = np.asarray(encode(x[:, None], u, np.float32(steps))).astype(np.int64)
    exact = x * np.float32(steps)
    assert found.max() <= steps
    assert (np.abs(found - exact[:, None]) < 1).all()
    np.testing.assert_allclose(found.mean(1), exact, rtol=1e-6, atol=1.1e-3)


def test_ends_of_encoding():
    """Clipped to [0, 1], and NaN is 0, so that one user moves a sum by g at most; the finest steps lose nothing."""
    x = np.array([-1, -np.inf, np.nan, -0.0, 1, 1.5, 1e30, np.inf], np.float32)
    fine = np.random.default_rng(0).integers(0, 2**24, 1000, endpoint=True)
    for u in map(np.float32, (1e-7, 0.5, 1 - 1e-7)):
        for steps in (7, 2**24):
            assert encode(x, u, np.float32(steps)).tolist() == [0] * 4 + [steps] * 4
        assert encode((fine / 2**24).astype(np.float32), u, FINE).tolist() == fine.tolist()


COLLECT = jax.jit(lambda protocol, *args: protocol.collect(*args))
RANDOMIZE = jax.jit(lambda protocol, *args: protocol.randomize(*args))
DECODE = jax.jit(lambda protocol, *args: protocol.decode(*args))


@fb.pytree
class Written(Noise):
    """Noise that is given."""

    value: wide.Wide
    bits_failure: float = 0.0
    size: tuple = ()

    def total(self, key, k, n, shape):
        return self.value

    def share(self, key, k, n, shape):
        return self.value.low.astype(jnp.int32)


def a_ring(n, g, tau, noise, *, messages=False):
    """Of one batch."""
    return ring.RingSum(
        noise=noise,
        users=np.array([min(n, 2**31 - 1)], np.int32),
        steps=np.array([g], np.float32),
        modulus=wide.of([n * g + 2 * tau + 1]),
        largest=wide.of([n * g + tau]),
        bits=np.array([1.0], np.float32),
        messages=messages,
    )


@pytest.mark.parametrize(("n", "g", "tau"), [(2, 1, 3), (2**36, 2**24, 2**50), (2**30, 3, 2**59)])
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
    lost = Written(value=wide.of([0] * size), bits_failure=n * (1 - (1 - 0.25) ** (1 / n)))
    protocol = a_ring(n, g, tau, lost)
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


def test_users_send_what_they_have_where_the_server_adds_noise(key):
    protocol = a_ring(8, 4, 50, ServerNoise(size=np.array([5.0])), messages=True)
    x = np.array([0, 0.25, 0.5, 1], np.float32)
    assert wide.to_int(RANDOMIZE(protocol, key, key, 0, x)).tolist() == [0, 1, 2, 4]


@jax.jit
def drawn(noise, key, k, n):
    """Noise of sums with two keys (2, RUNS), and shares of users (RUNS, 16)."""
    first, second, third = jax.random.split(key, 3)
    sums = jax.lax.map(lambda one: wide.to_float(noise.total(one, k, n, (RUNS,))), jnp.stack([first, second]))
    return sums, noise.share(third, k, n, (RUNS, USERS[1]))


def correlation(a, b):
    return abs(np.corrcoef(a, b)[0, 1]) * len(a) ** 0.5  # in standard errors


@pytest.mark.parametrize("name", [name for name in RINGS if name != "Shuffle-DP-SE"])
def test_noise_is_of_its_law_fresh_and_not_a_fifth_off(key, name):
    """Sums, and shares that add up to one, have the law proved; a fifth more or less is refuted; draws differ."""
    noise = VARIANTS[name].law.made(Asked(1.0, 4.0, 1e-3, 10**5), USERS)
    power = 2 if isinstance(noise, SkellamNoise) else 1  # which has a variance
    others = [type(noise)(size=np.float32(noise.size * factor**power)) for factor in (0.8, 1.2)]
    for k, n in enumerate(USERS):
        sums, shares = (np.asarray(x, float) for x in drawn(noise, key, jnp.int32(k), jnp.int32(n)))
        one, two = sums
        kinds = [one, two] if noise.at_server else [one, two, shares[:, :n].sum(1)]
        assert all(p_value(x, noise.law(k, n), CELLS) > ALPHA for x in kinds)
        assert not any(p_value(x, other.law(k, n), CELLS) > ALPHA for x in kinds for other in others)
        assert correlation(one, two) < 5
        assert correlation(one[::2], one[1::2]) < 5
        assert noise.at_server or correlation(shares[:, 0], shares[:, 1]) < 5


def test_sums_on_a_grid(key):
    """The sum is exact and the noise has the law of its scale; 4 % more or less noise is rejected."""
    protocol = on_grid(np.array([4]), 4.0, 20.0)
    many = jax.tree.map(lambda word: np.full(200_000, word), wide.of(10))
    noise = np.asarray(DECODE(protocol, key, 0, many).sums, float) * 4 - 10
    assert (noise == np.round(noise)).all()
    assert p_value(noise, DiscreteLaplace(20.0)) > ALPHA
    assert p_value(noise, DiscreteLaplace(20.8)) < ALPHA > p_value(noise, DiscreteLaplace(19.2))
    assert noise.std() / 4 == pytest.approx(certificate_of_sums(protocol, 0.2, 1e-6).noise_std, rel=0.01)


def test_the_grid_of_a_budget():
    """A power of 2 on which the noise gives epsilon, is wide, and fits in the sampler's range."""
    for epsilon in (1e-7, 1e-4, 0.01, 0.3, 1.0, 7.0, 500.0):
        algo = fb.algos.DPSE(epsilon)
        protocol = algo.bind(fb.envs.arms(n_arms=2).spec, 10**6).protocol
        g, scale = protocol.steps[0], protocol.noise.size[0]
        assert math.log2(g) == int(math.log2(g)) >= 0
        assert epsilon * (1 - 1e-6) < g / scale <= epsilon
        assert scale <= 2**25
        assert 2048 < scale <= 4097 or g in (1, 2**24)


def test_server_noise_is_added_before_float32_rounds(key):
    """Rounding sums of 2^24 and more first would move neighbours by 2 and more: twice the epsilon."""
    protocol = on_grid(np.array([2**25]), 2.0**10, 2.0**10)
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
