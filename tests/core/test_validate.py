"""Checks return what they are given, or name the argument and its value on one line."""

import pickle
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import refused

from fedbandit_jax.core import validate

NAN, INF = float("nan"), float("inf")


def test_values_and_types_are_told_apart():
    """tests/test_arguments.py has the values of every check."""
    for value, error in ((0, validate.BadValue), ("1", validate.BadType)):
        with refused("rate", value) as found:
            validate.positive("rate", value)
        assert type(found.value) is error
        assert str(found.value).startswith("rate must ")
        assert str(found.value).endswith(f", got {value!r}")


def test_what_is_returned():
    assert validate.integer("n", np.int64(3), at_least=1, at_most=3) == 3
    assert [validate.single("x", value) for value in (0.0, 1.2e-38, 3.4e38)] == [0.0, 1.2e-38, 3.4e38]
    assert validate.one_of("x", "a", {"a": 1, "b": 2}) == "a"
    assert (validate.text("x", "x"), validate.path("x", "a/b")) == ("x", Path("a/b"))
    assert validate.sequence("many", np.array([3, 4]), "numbers") == [3, 4]
    for value in ([True, False], np.array([1, 0], np.uint8), np.array([1, 0], ml_dtypes.bfloat16), jnp.array([1.0, 0])):
        found = validate.finite_array("x", value, ndim=1)
        assert (found.tolist(), found.dtype) == ([1, 0], np.float32)
    assert validate.integer_array("x", (3, 4)).tolist() == [3, 4]
    assert (-validate.integer_array("x", np.array([1], np.uint16))).tolist() == [-1]


def test_arrays_say_where():
    for value in ([[1, 2], [NAN, 3]], [[1, 2], [1e39, 3]]):
        with refused("x") as found:
            validate.finite_array("x", value, ndim=2)
        assert "at index (1, 0)" in str(found.value)
    with refused("x"):
        validate.finite_array("x", [[1.0]], ndim=1)
    with refused("x"):
        validate.integer_array("x", np.array([2**64 - 1], np.uint64))


def test_long_values_are_shortened():
    """And are on one line, and are shown even where they have no `repr`."""
    assert validate.shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    assert validate.shown("a" * 1000) == "'" + 76 * "a" + "..."
    assert validate.shown(10**5000) == "a value of int"
    assert validate.shown(10**400) == "1" + 76 * "0" + "..."


@pytest.mark.parametrize(("value", "back"), [(-1.0, -1.0), (lambda: 0, "<function")])
def test_errors_are_pickled_whatever_their_value(value, back):
    error = validate.BadValue("epsilon", "must be > 0", value, others=("delta",))
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.argument, found.others) == (type(error), str(error), "epsilon", ("delta",))
    assert str(found.value).startswith(str(back))
