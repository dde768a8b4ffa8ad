"""Checks of arguments on the host: each returns the value as a plain Python number, string or NumPy array.

Every failure is one sentence that names the argument and the value: a TypeError if the value is of a wrong type, and a
ValueError if it is out of range (`one_of`: in both cases).
"""

import difflib
import math
import numbers
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LARGEST = 2**31 - 1  # the largest integer of 32 bits: runs count, and index arrays, by such integers
LEAST_FLOAT, LARGEST_FLOAT = (float(getattr(np.finfo(np.float32), name)) for name in ("tiny", "max"))  # runs hold these
LONGEST_NAME = 200  # bytes of the name of a file
_SHOWN = 80  # most characters of a value in a message


def shown(value: Any) -> str:
    """A value in an error message: on one line, and shortened if it is long.

    >>> shown([1, 2]), shown(0.5), shown(list(range(1000)))[-10:]
    ('[1, 2]', '0.5', ' 20, 21...')
    """
    try:
        text = " ".join((str(value) if isinstance(value, numbers.Number) else repr(value)).split())
    except Exception:  # an integer of more than 4,300 digits, or whatever a `repr` of somebody's own does
        text = f"a value of {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _number(name: str, value: Any, condition: str) -> float:
    """Checks that the value is a real number; `condition` ends the message."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number {condition}, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number {condition} that fits a float, got one beyond 1e308") from None


def integer(name: str, value: Any, *, at_least: int, at_most: float = LARGEST) -> int:
    """Checks that the value is an integer in [`at_least`, `at_most`]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer >= {at_least}, got {shown(value)}")
    number = int(value)
    if number < at_least:
        raise ValueError(f"{name} must be >= {at_least}, got {shown(value)}")
    if number > at_most:
        raise ValueError(f"{name} must be <= {at_most}, got {shown(value)}")
    return number


def count(name: str, value: Any, at_most: float, *, at_least: int = 1) -> int:
    """Checks that the value is an integer in [`at_least`, `at_most`], which may be beyond 32 bits."""
    number = integer(name, value, at_least=at_least, at_most=math.inf)
    within(name, number, at_least, at_most)
    return number


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


def single(name: str, number: float) -> float:
    """Checks that a number, already known to be >= 0, fits float32, in which runs hold numbers."""
    if number and not LEAST_FLOAT <= number <= LARGEST_FLOAT:
        raise ValueError(f"{name} must be in [{LEAST_FLOAT:.2g}, {LARGEST_FLOAT:.2g}] to fit 32 bits, got {number:g}")
    return number


def within(name: str, value: Any, low: float, high: float) -> float:
    """Checks that the value is a number in [low, high]."""
    ends = ", ".join(
        f"{end:.0f}" if 2**53 > abs(end) >= 10**5 and end == int(end) else f"{end:g}" for end in (low, high)
    )
    number = _number(name, value, f"in [{ends}]")
    if not low <= number <= high:
        raise ValueError(f"{name} must be in [{ends}], got {value}")
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
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def one_of(name: str, value: Any, choices: Collection[str]) -> str:
    """Checks that the value is one of the strings in `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}")
    return value


def suggestion(name: Any, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a sentence that asks whether the nearest name was meant; empty if none is near.

    >>> suggestion("horizn", ["seeds", "horizon"])
    ": did you mean 'horizon'?"
    """
    near = difflib.get_close_matches(name, [*names], 1, cutoff) if isinstance(name, str) else []
    return f": did you mean {near[0]!r}?" if near else ""


def text(name: str, value: Any) -> str:
    """Checks that the value is a string that is not empty, such as a label."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be a string of at least one character, got {shown(value)}")
    return value


def file_name(name: str, value: Any) -> str:
    """Checks that the value is a name for a file in any folder, to which endings may be added."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a name for a file, got {shown(value)}")
    if not value or value != Path(value).name or value.startswith(".") or "\0" in value:
        raise ValueError(f"{name} must be a name for a file, without a folder, got {shown(value)}")
    if len(value.encode(errors="replace")) > LONGEST_NAME:
        raise ValueError(f"{name} must have at most {LONGEST_NAME} bytes, got {shown(value)}")
    return value


def path(name: str, value: Any) -> Path:
    """Checks that the value is a path, which need not exist."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str) or "\0" in os.fspath(value):
        raise TypeError(f"{name} must be a str or a Path, got {shown(value)}")
    if not os.fspath(value):
        raise ValueError(f"{name} must name a file or folder, got ''")
    return Path(value)


def instance(name: str, value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    """Checks that the value is of a class, or of one of several; `what` says that in words, such as "an fb.Policy"."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {what}, got {shown(value)}")
    return value


def sequence(name: str, value: Any, what: str) -> list[Any]:
    """Checks that the value is a list, a tuple or a vector, and returns its elements; `what` says which, in words."""
    vector = isinstance(value, np.ndarray) and value.ndim > 0
    if not (vector or isinstance(value, Sequence)) or isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be a sequence of {what}, got {shown(value)}")
    return list(value)


def finite_array(name: str, value: Any, *, ndim: int) -> np.ndarray:
    """Converts the value to a float32 array and checks that it has `ndim` dimensions and no NaN or infinity."""
    given = _array(name, value, "numbers", ndim, float)
    with np.errstate(over="ignore"):
        array = given.astype(np.float32, copy=False)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        fits = " in 32 bits" if np.isfinite(given[where]) else ""
        raise ValueError(f"{name} must be finite{fits}, got {given[where]} at index {where} ({len(bad)} bad entries)")
    return array


def integer_array(name: str, value: Any, ndim: int = 1) -> np.ndarray:
    """Converts the value to an int64 array with so many dimensions, after checking that it holds integers."""
    array = _array(name, value, "integers", ndim, np.int64)
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be <= {np.iinfo(np.int64).max}, got {array.max()}")
    return array.astype(np.int64, copy=False)


def bool_array(name: str, value: Any, *, ndim: int) -> np.ndarray:
    """Converts the value to an array of bools with so many dimensions, after checking that it is one."""
    return _array(name, value, "bools", ndim, bool)


def _array(name: str, value: Any, what: str, ndim: int, kind: type) -> np.ndarray:
    axes = f"{ndim} dimension{'s' * (ndim > 1)}"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):  # rows of unequal lengths, a JAX key, a tracer
        array = np.asarray(None)
    if not np.can_cast(array.dtype, kind, "same_kind") or (kind is np.int64 and array.dtype == bool):
        raise TypeError(f"{name} must be an array of {what} with {axes}, got {shown(value)}")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {axes}, got shape {array.shape}")
    return array


def stride(value: Any) -> Any:
    """Checks that the distance of recorded rounds is an integer >= 1 or "log"."""
    if isinstance(value, str) and value != "log":
        raise TypeError(f"stride must be an integer >= 1 or 'log', got {shown(value)}")
    return value if isinstance(value, str) else integer("stride", value, at_least=1)
