from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from fedbandit_jax.core import validate

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [0, -1.0, NAN, INF, -INF])
def test_positive(value):
    with pytest.raises(ValueError, match=rf"^rate must be finite and > 0, got {value}$"):
        validate.positive("rate", value)


@pytest.mark.parametrize("value", ["1", None, True, 1j, [1.0]])
def test_numbers_only(value):
    for check in (validate.positive, validate.non_negative, validate.probability):
        with pytest.raises(TypeError, match="rate must be a number"):
            check("rate", value)


@pytest.mark.parametrize("value", [0, 1, 1.0, -0.1, 1.5, NAN])
def test_probability(value):
    with pytest.raises(ValueError, match=r"^delta must be in \(0, 1\), got "):
        validate.probability("delta", value)


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-3, ValueError), (2.0, TypeError), (True, TypeError)])
def test_integer(value, error):
    with pytest.raises(error, match=f"n must be .*>= 1.*got {value}"):
        validate.integer("n", value, at_least=1)
    assert validate.integer("n", np.int64(3), at_least=1) == 3
    assert validate.integer("n", 3, at_least=3, at_most=3) == 3


def test_one_of():
    with pytest.raises(ValueError, match="mode must be one of 'a', 'b', got 'c'"):
        validate.one_of("mode", "c", ("a", "b"))
    with pytest.raises(ValueError, match=r"mode must be one of 'a', 'b', got \['a'\]"):
        validate.one_of("mode", ["a"], {"a": 1, "b": 2})


def test_finite_array_names_the_entry():
    with pytest.raises(ValueError, match=r"x must be finite, got nan at index \(1, 0\) \(1 bad entries\)"):
        validate.finite_array("x", [[1, 2], [NAN, 3]], ndim=2)
    with pytest.raises(ValueError, match=r"x must have 2 dimensions, got shape \(3,\)"):
        validate.finite_array("x", [1, 2, 3], ndim=2)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("abc", TypeError, "x must be an array of numbers with 1 dimension, got 'abc'"),
        ([1 + 2j], TypeError, r"x must be an array of numbers with 1 dimension, got \[\(1\+2j\)\]"),
        ([[1], [2, 3]], TypeError, r"x must be an array of numbers .* got \[\[1\], \[2, 3\]\]"),
        ([10**400], TypeError, r"x must be an array of numbers .* got \[1000.*\.\.\.$"),
        ([b"x"], TypeError, "x must be an array of numbers"),
        ([0.5, 1e39], ValueError, r"x must be finite in 32 bits, got 1e\+39 at index \(1,\)"),
        ([[1.0]], ValueError, r"x must have 1 dimension, got shape \(1, 1\)"),
    ],
)
def test_what_is_no_array(value, error, words):
    with pytest.raises(error, match=words):
        validate.finite_array("x", value, ndim=1)


def test_arrays_of_other_types():
    """All are numbers; integers stay what they are."""
    given = [[True, False], np.array([1, 0], np.uint8), np.array([1, 0], ml_dtypes.bfloat16), jnp.array([1.0, 0.0])]
    for value in given:
        found = validate.finite_array("x", value, ndim=1)
        assert found.tolist() == [1, 0]
        assert found.dtype == np.float32
    assert validate.integer_array("x", (3, 4)).tolist() == [3, 4]
    assert (-validate.integer_array("x", np.array([1], np.uint16))).tolist() == [-1]
    with pytest.raises(ValueError, match="x must be <= 9223372036854775807, got 18446744073709551615"):
        validate.integer_array("x", np.array([2**64 - 1], np.uint64))
    for value in ([1.0], [True], [], "12", None):
        with pytest.raises(TypeError, match="x must be an array of integers with 1 dimension, got"):
            validate.integer_array("x", value)


def test_long_values_are_shortened():
    """And are on one line, and are shown even where they have no `repr`."""
    assert validate.shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    assert validate.shown("a" * 1000) == "'" + 76 * "a" + "..."
    assert validate.shown(10**5000) == "a value of int"
    with pytest.raises(ValueError, match=r"^n must be <= 2147483647, got 10{76}\.\.\.$"):
        validate.integer("n", 10**400, at_least=1)


def test_numbers_that_32_bits_hold():
    for value in (0.0, 1.2e-38, 3.4e38):
        assert validate.single("x", value) == value
    for value in (1e-39, 1e39):
        with pytest.raises(ValueError, match=r"^x must be in \[1.2e-38, 3.4e\+38\] to fit 32 bits, got 1e.39$"):
            validate.single("x", value)


@pytest.mark.parametrize("value", ["", 5, None, b"x", ["x"]])
def test_text(value):
    with pytest.raises(TypeError, match="name must be a string of at least one character, got"):
        validate.text("name", value)
    assert validate.text("name", "x") == "x"


@pytest.mark.parametrize("value", [5, None, b"x", "a\0b", True])
def test_path(value):
    with pytest.raises(TypeError, match="file must be a str or a Path, got"):
        validate.path("file", value)
    assert validate.path("file", "a/b") == Path("a/b")


@pytest.mark.parametrize("value", ["ab", b"ab", 5, None, {"a": 1}, np.array(3)])
def test_sequence(value):
    with pytest.raises(TypeError, match="many must be a sequence of numbers, got"):
        validate.sequence("many", value, "numbers")
    assert validate.sequence("many", np.array([3, 4]), "numbers") == [3, 4]
