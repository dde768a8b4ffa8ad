"""Kinds of arguments: functions that say of a value if it may be given."""

import itertools
import math
import numbers
from pathlib import Path

import jax
import numpy as np

NAN, INF = math.nan, math.inf


def number(low=-INF, high=INF, inside=False):
    """A real number in [low, high], or inside if it must not be an end."""

    def legitimate(value):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        try:
            value = float(value)
        except OverflowError:
            return False
        return low <= value <= high and not (inside and value in (low, high))

    return legitimate


def count(low=1, high=2**31 - 1):
    return lambda value: isinstance(value, numbers.Integral) and number(low, high)(value)


def optional(kind):
    return lambda value: value is None or kind(value)


def either(*kinds):
    return lambda value: any(kind(value) for kind in kinds)


def one_of(*names):
    return lambda value: isinstance(value, str) and value in names


def a(*types):
    return lambda value: isinstance(value, types)


def array(ndim, letters="iuf"):
    """Finite numbers, that 32 bits hold, with so many axes."""

    def legitimate(value):
        try:
            found = np.asarray(value)
        except (TypeError, ValueError):  # a key, or rows of unequal lengths
            return False
        return found.ndim == ndim and found.dtype.kind in letters and bool((abs(found) < 3e38).all())

    return legitimate


def function(value):
    return callable(value) and not isinstance(value, type)


def single_key(value):
    return isinstance(value, jax.Array) and str(value.dtype) == "key<fry>"


def text(value):
    return isinstance(value, str) and value != ""


def path(value):
    return isinstance(value, (str, Path)) and "\0" not in str(value)


def pair(value):
    """The second of two."""
    return isinstance(value, np.ndarray) and value.tolist() == [1, 2]


def rows_that_may_be_nan(value):
    """As what is inside a program may be."""
    return np.shape(value) == (1, 1) if isinstance(value, np.ndarray) else False


def no_values(value):
    """A grid of no parameters."""
    return value is None or (isinstance(value, dict) and not value)


def scalar(value):
    """A floating-point number, as the other data set is, that 32 bits hold."""
    real = isinstance(value, (float, np.floating)) or (isinstance(value, jax.Array) and value.dtype == np.float32)
    return real and (not np.isfinite(value) or abs(float(value)) < 3e38)


def increasing(value):
    """Rounds, integers > 0 that increase."""
    if not isinstance(value, (tuple, list)) or not value or not all(isinstance(one, int) for one in value):
        return False
    return value[0] > 0 and all(a < b for a, b in itertools.pairwise(value))


def silos(value):
    """Numbers of silos, each of which is named once."""
    if not isinstance(value, (tuple, list)) or not all(count(0)(one) and not isinstance(one, bool) for one in value):
        return False
    return len(set(value)) == len(value)


def empty(value):
    """A sequence of no elements, out of those of the pool."""
    return (isinstance(value, (list, tuple)) and not value) or (
        isinstance(value, np.ndarray) and value.shape[:1] == (0,)
    )


def seeds(value):
    """Distinct integers, at least one."""
    known = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    whole = known and all(isinstance(one, numbers.Integral) and not isinstance(one, bool) for one in value)
    return whole and 0 < len(set(value)) == len(value) and 0 <= min(value) <= max(value) < 2**32


def titles(value):
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "U"


def nothing(value):
    """No value of the pool will do."""
    return False


positive, factor = number(1.2e-38, 3.4e38), number(1.2e-38)  # a factor may be infinite
non_negative, inside_unit, flag = either(positive, number(0, 0)), number(0, 1, inside=True), a(bool, np.bool_)
epsilon, delta, visits = number(1e-9, 1e6), inside_unit, count()
failure = number(1e-30, 1, inside=True)
calibrations, adjacencies = one_of("tight", "theorem", "authors"), one_of("replace", "zero_out")
label, rows, one = optional(text), array(2), np.ones((1, 1, 1, 1))
