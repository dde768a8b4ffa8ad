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


def test_one_of():
    with pytest.raises(ValueError, match="mode must be one of 'a', 'b', got 'c'"):
        validate.one_of("mode", "c", ("a", "b"))


def test_finite_array_names_the_entry():
    with pytest.raises(ValueError, match=r"x must be finite, got nan at index \(1, 0\) \(1 bad entries\)"):
        validate.finite_array("x", [[1, 2], [NAN, 3]], ndim=2)
    with pytest.raises(ValueError, match=r"x must have 2 dimensions, got shape \(3,\)"):
        validate.finite_array("x", [1, 2, 3], ndim=2)
