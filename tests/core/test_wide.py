"""64-bit arithmetic in two words is Python's, modulo 2^64."""

import itertools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.core import wide

_EDGES = [0, 1, 2, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**60, 2**62, 2**63 - 1]
_RANDOM = np.random.default_rng(0).integers(-(2**63), 2**63, 12) >> np.arange(0, 60, 5)
VALUES = [*_EDGES, *(-v for v in _EDGES), -(2**63), *map(int, _RANDOM)]
LEFT, RIGHT = zip(*itertools.product(VALUES, VALUES))
A, B = wide.of(LEFT), wide.of(RIGHT)


def unsigned(x):
    return x % 2**64


def signed(x):
    return (x + 2**63) % 2**64 - 2**63


def test_there_and_back():
    assert wide.to_int(A).tolist() == list(LEFT)
    assert (wide.to_int(A) % 2**64).tolist() == list(map(unsigned, LEFT))
    assert (wide.to_int(wide.of([[2**64 - 1, 5]])) % 2**64).tolist() == [[2**64 - 1, 5]]


@pytest.mark.parametrize("value", [0, -1, -3, 2**60 + 1, -(2**60) - 1, -(2**63)])
def test_scalars(value):
    assert wide.to_int(wide.of(value)).item() == value
    assert wide.to_int(wide.of(value)).item() % 2**64 == unsigned(value)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, [0, 1, 2**70], 1.5, np.array([[3, -(2**80)]], object)])
def test_numbers_that_do_not_fit_are_refused(value):
    with pytest.raises(ValueError, match=r"a 64-bit integer must be a whole number in \[-2\^63, 2\^64\), got"):
        wide.of(value)


def test_sums_of_too_many_numbers_are_refused():
    with pytest.raises(ValueError, match=r"fewer than 2\^22 numbers to add up, got 4,194,304"):
        jax.eval_shape(wide.total, jax.ShapeDtypeStruct((2, 2**22), jnp.uint32))
    with pytest.raises(ValueError, match=r"bits must be in \[0, 32\), got 32"):
        wide.shift_left(A, 32)


@pytest.mark.parametrize(("ours", "theirs"), [(wide.add, operator.add), (wide.sub, operator.sub)])
def test_sums(ours, theirs):
    assert wide.to_int(jax.jit(ours)(A, B)).tolist() == [signed(theirs(a, b)) for a, b in zip(LEFT, RIGHT)]


def test_neg():
    assert wide.to_int(wide.neg(A)).tolist() == [signed(-a) for a in LEFT]


def test_comparisons():
    assert wide.less(A, B).tolist() == [unsigned(a) < unsigned(b) for a, b in zip(LEFT, RIGHT)]
    assert wide.negative(A).tolist() == [a < 0 for a in LEFT]
    smaller = wide.where(wide.less(A, B), A, B)
    assert (wide.to_int(smaller) % 2**64).tolist() == [min(map(unsigned, pair)) for pair in zip(LEFT, RIGHT)]


@pytest.mark.parametrize("bits", [0, 1, 17, 31])
def test_shift_left(bits):
    assert wide.to_int(wide.shift_left(A, bits)).tolist() == [signed(a << bits) for a in LEFT]


def test_mod():
    moduli = [max(1, abs(b) % (2**62 + 1)) for b in RIGHT]
    assert {1, 2, 2**32 + 1, 2**62} <= set(moduli)
    found = jax.jit(wide.mod)(A, wide.of(moduli))
    assert wide.to_int(found).tolist() == [a % m for a, m in zip(LEFT, moduli)]
    assert wide.to_int(wide.mod(wide.of([-1]), wide.of([2**62]))) == 2**62 - 1
    assert wide.to_int(wide.mod(wide.of([-(2**63), 7]), wide.of(7))).tolist() == [-(2**63) % 7, 0]  # broadcasts


def test_from_int32():
    values = np.array([0, 1, -1, 2**31 - 1, -(2**31), 12345, -12345], np.int32)
    assert wide.to_int(wide.from_int32(jax.numpy.asarray(values))).tolist() == values.tolist()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 5000])
def test_total(size):
    x = np.random.default_rng(size).integers(0, 2**25 + 1, (3, size)).astype(np.uint32)
    x[0] = 2**25
    assert wide.to_int(jax.jit(wide.total)(x)).tolist() == [sum(row) for row in x.tolist()]


def test_total_of_the_most():
    """As many numbers as there may be, each as large as it may be; and one less, all of whose low bits are set."""
    n = 2**22 - 1
    for largest in (2**25, 2**25 - 1):
        assert wide.to_int(wide.total(np.full((1, n), largest, np.uint32))) == largest * n


@pytest.mark.parametrize("value", [-1, 2**63 - 1, 2**48 + 2**31 + 7])
def test_add_up(value):
    """2^16 numbers; and all pairs of values."""
    most = jax.tree.map(lambda word: np.broadcast_to(word, (1, 2**16)), wide.of([value]))
    assert wide.to_int(wide.add_up(most)).tolist() == [signed(value * 2**16)]
    rows = jax.tree.map(lambda word: word.reshape(len(VALUES), -1), B)
    assert wide.to_int(wide.add_up(rows)).tolist() == [signed(sum(VALUES))] * len(VALUES)


def test_add_up_many():
    """As many silos as there may be."""
    rows = wide.Wide(*(jnp.broadcast_to(word, (2, 2**16 + 5)) for word in wide.of(-3)))
    assert wide.to_int(wide.add_up(rows)).tolist() == [-3 * (2**16 + 5)] * 2


def test_to_float():
    found, exact = np.asarray(wide.to_float(A), float), np.array(LEFT, float)
    assert (np.abs(found - exact) <= 2.0**-23 * np.abs(exact)).all()
    small = np.arange(-(2**24), 2**24, 12345)
    assert wide.to_float(wide.of(small)).tolist() == small.tolist()


def test_from_float():
    values = [0.0, 0.4, -0.6, 1.0, -1.0, 2.0**24 + 2, -(2.0**40) - 2.0**20, 2.0**62, -(2.0**62)]
    array = np.array(values, np.float32)
    assert wide.to_int(wide.from_float(jnp.asarray(array))).tolist() == [round(float(x)) for x in array]
