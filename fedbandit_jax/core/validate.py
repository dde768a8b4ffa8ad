"""Checks of arguments on the host. Every failure is one sentence that names the argument and the value.

Each check takes the argument's name and value and returns the value as a plain Python number, string or NumPy array. It
raises TypeError if the value is of a wrong type, and ValueError if it is out of range (`one_of`: in both cases).
"""

import math
import numbers
from collections.abc import Collection
from typing import Any

import numpy as np


def _number(name: str, value: Any, condition: str) -> float:
    """Returns the value as a float, after checking that it is a real number; `condition` ends the message."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number {condition}, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number {condition} that fits a float, got one beyond 1e308") from None


def integer(name: str, value: Any, *, at_least: int) -> int:
    """Checks that the value is an integer >= `at_least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer >= {at_least}, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be >= {at_least}, got {value}")
    return int(value)


def positive(name: str, value: Any) -> float:
    """Checks that the value is a finite number > 0."""
    number = _number(name, value, "> 0")
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be finite and > 0, got {value}")
    return number


def non_negative(name: str, value: Any) -> float:
    """Checks that the value is a finite number >= 0."""
    number = _number(name, value, ">= 0")
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be finite and >= 0, got {value}")
    return number


def within(name: str, value: Any, low: float, high: float) -> float:
    """Checks that the value is a number in [low, high]."""
    number = _number(name, value, f"in [{low:g}, {high:g}]")
    if not low <= number <= high:
        raise ValueError(f"{name} must be in [{low:g}, {high:g}], got {value}")
    return number


def probability(name: str, value: Any) -> float:
    """Checks that the value is a number strictly between 0 and 1."""
    number = _number(name, value, "in (0, 1)")
    if not 0 < number < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}")
    return number


def boolean(name: str, value: Any) -> bool:
    """Checks that the value is True or False; 0 and 1 are refused."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: Any, choices: Collection[str]) -> str:
    """Checks that the value is one of the strings in `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def finite_array(name: str, value: Any, *, ndim: int) -> np.ndarray:
    """Converts the value to a float32 array and checks that it has `ndim` dimensions and no NaN or infinity."""
    array = np.asarray(value, dtype=np.float32)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where} ({len(bad)} bad entries)")
    return array
