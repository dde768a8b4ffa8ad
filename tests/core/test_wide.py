"""64-bit arithmetic in two words is Python's, modulo 2^64, and whole numbers are rounded and added up as by NumPy."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fedbandit_jax.core import wide
from fedbandit_jax.core.whole import LIMIT, add_up, nearest

N = 64  # numbers that are tried side by side
EDGES = [0, 1, 2, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**60, 2**62, 2**63 - 1]
EDGES += [-(2**63), *(-value for value in EDGES[1:])]
words = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**33), 2**33))
lists = st.lists(words, min_size=N, max_size=N)


def unsigned(x):
    return x % 2**64


def signed(x):
    return (x + 2**63) % 2**64 - 2**63


@jax.jit
def computed(a, b, modulus):
    shifted = [wide.shift_left(a, bits) for bits in (0, 1, 17, 31)]
    return dict(add=wide.add(a, b), sub=wide.sub(a, b), neg=wide.neg(a), less=wide.less(a, b), mod=wide.mod(a, modulus),
                negative=wide.negative(a), smaller=wide.where(wide.less(a, b), a, b), shifted=shifted,
                total=wide.add_up(jax.tree.map(lambda word: word[None], a)), rounded=wide.to_float(a))  # fmt: skip


@settings(max_examples=20, deadline=None, phases=[Phase.generate])  # shrinking so many numbers takes minutes
@given(lists, lists)
def test_arithmetic(left, right):
    moduli = [max(1, abs(b) % (2**62 + 1)) for b in right]
    found = computed(wide.of(left), wide.of(right), wide.of(moduli))
    pairs = list(zip(left, right))
    for name in ("add", "sub"):
        assert wide.to_int(found[name]).tolist() == [signed(getattr(operator, name)(a, b)) for a, b in pairs]
    assert wide.to_int(found["neg"]).tolist() == [signed(-a) for a in left]
    assert found["less"].tolist() == [unsigned(a) < unsigned(b) for a, b in pairs]
    assert found["negative"].tolist() == [a < 0 for a in left]
    assert wide.to_int(found["smaller"]).tolist() == [signed(min(map(unsigned, pair))) for pair in pairs]
    assert wide.to_int(found["mod"]).tolist() == [a % m for a, m in zip(left, moduli)]
    for bits, shifted in zip((0, 1, 17, 31), found["shifted"]):
        assert wide.to_int(shifted).tolist() == [signed(a << bits) for a in left]
    assert wide.to_int(found["total"]).tolist() == [signed(sum(left))]
    exact = np.array(left, float)
    assert (np.abs(np.asarray(found["rounded"], float) - exact) <= 2.0**-23 * np.abs(exact)).all()


def test_there_and_back():
    assert wide.to_int(wide.of(EDGES)).tolist() == EDGES
    assert (wide.to_int(wide.of([[2**64 - 1, 5]])) % 2**64).tolist() == [[2**64 - 1, 5]]
    assert wide.to_int(wide.of(EDGES[-1])).item() == EDGES[-1]
    values = np.array([0, 1, -1, 2**31 - 1, -(2**31), 12345, -12345], np.int32)
    assert wide.to_int(jax.jit(wide.from_int32)(values)).tolist() == values.tolist()
    floats = [0.0, 0.4, -0.6, 1.0, -1.0, 2.0**24 + 2, -(2.0**40) - 2.0**20, 2.0**62, -(2.0**62)]
    rounded = jax.jit(wide.from_float)(np.float32(floats))
    assert wide.to_int(rounded).tolist() == [round(float(np.float32(x))) for x in floats]
    one_modulus = jax.jit(wide.mod)(wide.of([-1, 2**62, 7]), wide.of(2**62))
    assert wide.to_int(one_modulus).tolist() == [2**62 - 1, 0, 7]


def test_numbers_that_do_not_fit_are_refused():
    for value in (2**64, -(2**63) - 1, [0, 1, 2**70], 1.5):
        with refused("a 64-bit integer"):
            wide.of(value)
    with refused("x", 2**22):
        jax.eval_shape(wide.total, jax.ShapeDtypeStruct((2, 2**22), jnp.uint32))
    with refused("bits", 32):
        wide.shift_left(wide.of(1), 32)


@pytest.mark.parametrize("size", [0, 1, 64, 65, 5000, 2**22 - 1])
def test_total(size):
    """Up to as many numbers as there may be; the largest ones, others with all of their low bits set, and any."""
    x = np.random.default_rng(size).integers(0, 2**25 + 1, (3, size)).astype(np.uint32)
    x[:2] = [[2**25], [2**25 - 1]]
    assert wide.to_int(jax.jit(wide.total)(x)).tolist() == x.sum(1, np.uint64).tolist()


@pytest.mark.parametrize("n", [2**16, 2**16 + 5])
def test_add_up(n):
    values = [-1, 2**63 - 1, 2**48 + 2**31 + 7, -3]
    rows = jax.tree.map(lambda words: np.repeat(words[:, None], n, 1), wide.of(values))
    assert wide.to_int(jax.jit(wide.add_up)(rows)).tolist() == [signed(value * n) for value in values]


def test_nearest(key):
    x = np.float32(LIMIT - 1) * np.asarray(jax.random.uniform(key, (10_000,), minval=-1))
    x = np.concatenate([x, [0, -0.0, 0.5, 1.5, -2.5, LIMIT - 1, 1 - LIMIT]]).astype(np.float32)
    np.testing.assert_array_equal(jax.jit(nearest)(x), np.round(x))


def test_whole_numbers_are_added_up(key):
    x = np.asarray(jax.random.randint(key, (3, 5, 2, 4, 7), -(2**20), 2**20))
    np.testing.assert_array_equal(jax.jit(jax.vmap(add_up))(x), x.sum((1, -1)))


def test_products_that_are_fused(key):
    """With the addition, or not: they are within half a step of the product, and what float32 rounds."""
    x, y = np.asarray(jax.random.uniform(key, (2, 10_000), minval=-1))
    found = jax.jit(lambda x, y: nearest(x * jnp.float32(2**19) * y))(x, y)
    assert abs(found - 2.0**19 * x.astype(float) * y).max() <= 0.5 + 2.0**-5
