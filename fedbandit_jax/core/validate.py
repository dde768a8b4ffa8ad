"""Checks of arguments on the host: each returns the value as a plain Python number, string or NumPy array.

Every failure is one sentence with argument and value. A wrong type is a TypeError, a value out of range a ValueError;
`one_of` raises a ValueError for both.
"""

import difflib
import inspect
import math
import numbers
import os
import pickle
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LARGEST = 2**31 - 1  # largest int32, for counters and indices
LEAST_FLOAT, LARGEST_FLOAT = (float(getattr(np.finfo(np.float32), name)) for name in ("tiny", "max"))
LONGEST_NAME = 200  # bytes of a file name, with room for an ending
LONGEST_PART = 255  # bytes of a name in a path
_DIGITS = 12  # most characters of a float in a message
_SHOWN = 80  # most characters of a value in a message


def shown(value: Any) -> str:
    """Formats a value for an error message, on one line and shortened if it is long.

    >>> shown([1, 2]), shown(0.5), shown(list(range(1000)))[-10:]
    ('[1, 2]', '0.5', ' 20, 21...')
    """
    try:
        text = " ".join((str(value) if isinstance(value, numbers.Number) else repr(value)).split())
        if isinstance(value, (float, np.floating)) and len(text) > _DIGITS:
            text = f"{value:.6g}"
    except Exception:  # an integer of more than 4,300 digits, or a user-defined `repr`
        text = f"a value of {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


class BadArgument(Exception):
    """A refused argument, as data. The message is `argument condition, got value`, on one line.

    Raised as a `BadValue` or, for a wrong type, as a `BadType`.

    Args:
        argument: its name, or the names of several that conflict.
        condition: the requirement, such as "must be > 0".
        value: the given value, or its wrong part.
        got: text of the value, if not by `shown`. If empty, the message ends with the condition.
        others: names of further arguments in the condition.

    >>> error = BadValue("epsilon", "must be > 0", -1.0)
    >>> str(error), error.argument, error.value
    ('epsilon must be > 0, got -1.0', 'epsilon', -1.0)
    """

    def __init__(
        self,
        argument: str | tuple[str, ...],
        condition: str,
        value: Any,
        *,
        got: str | None = None,
        others: tuple[str, ...] = (),
    ):
        names = (argument,) if isinstance(argument, str) else argument
        self.argument, self.value, self.others = names[0], value, (*names[1:], *others)
        got = shown(value) if got is None else got
        super().__init__(f"{' and '.join(names)} {condition}{got and f', got {got}'}")

    def __reduce__(self) -> tuple[Any, ...]:
        fields = vars(self)
        try:
            pickle.dumps(self.value)
        except Exception:  # a local function or a tracer: its text replaces it
            fields = fields | {"value": shown(self.value)}
        return _again, (type(self), str(self), fields)


class BadValue(BadArgument, ValueError):
    """An argument with an invalid value."""


class BadType(BadArgument, TypeError):
    """An argument with a value of a wrong type."""


for _error in (BadArgument, BadValue, BadType):
    _error.__module__ = "fedbandit_jax"  # the public path, shown in tracebacks


def _again(kind: type[BadArgument], message: str, fields: dict[str, Any]) -> BadArgument:
    """Rebuilds a pickled error, for instance of a worker."""
    error = kind.__new__(kind, message)
    vars(error).update(fields)
    return error


def _number(name: str, value: Any, condition: str, fits: Callable[[float], bool]) -> float:
    """Checks that the value is a real number that `fits`; `condition` ends the message."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise BadType(name, f"must be a number, {condition}", value)
    try:
        number = float(value)
    except OverflowError:
        raise BadValue(
            name, f"must be a number, {condition}, that fits a float", None, got="one beyond 1e308"
        ) from None
    if not fits(number):
        raise BadValue(name, f"must be {condition}", value)
    return number


def integer(name: str, value: Any, *, at_least: int, at_most: float = LARGEST) -> int:
    """Checks that the value is an integer in [`at_least`, `at_most`]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise BadType(name, f"must be an integer >= {at_least}", value)
    number = int(value)
    if number < at_least:
        raise BadValue(name, f"must be >= {at_least}", value)
    if number > at_most:
        raise BadValue(name, f"must be <= {at_most}", value)
    return number


def count(name: str, value: Any, at_most: float, *, at_least: int = 1) -> int:
    """Checks that the value is an integer in [`at_least`, `at_most`], possibly beyond 32 bits."""
    number = integer(name, value, at_least=at_least, at_most=math.inf)
    within(name, number, at_least, at_most)
    return number


def positive(name: str, value: Any) -> float:
    """Checks that the value is a finite number > 0."""
    return _number(name, value, "finite and > 0", lambda number: 0 < number < math.inf)


def non_negative(name: str, value: Any) -> float:
    """Checks that the value is a finite number >= 0."""
    return _number(name, value, "finite and >= 0", lambda number: 0 <= number < math.inf)


def single(name: str, number: float) -> float:
    """Checks that a number >= 0 fits float32."""
    if number and not LEAST_FLOAT <= number <= LARGEST_FLOAT:
        raise BadValue(name, f"must be in [{LEAST_FLOAT:.2g}, {LARGEST_FLOAT:.2g}] to fit 32 bits", number)
    return number


def within(name: str, value: Any, low: float, high: float) -> float:
    """Checks that the value is a number in [low, high]."""
    ends = ", ".join(
        f"{end:.0f}" if 2**53 > abs(end) >= 10**5 and end == int(end) else f"{end:g}" for end in (low, high)
    )
    return _number(name, value, f"in [{ends}]", lambda number: low <= number <= high)


def probability(name: str, value: Any) -> float:
    """Checks that the value is a number strictly between 0 and 1."""
    return _number(name, value, "in (0, 1)", lambda number: 0 < number < 1)


def boolean(name: str, value: Any) -> bool:
    """Checks that the value is True or False; 0 and 1 are refused."""
    if not isinstance(value, (bool, np.bool_)):
        raise BadType(name, "must be True or False", value)
    return bool(value)


def one_of(name: str, value: Any, choices: Collection[str]) -> str:
    """Checks that the value is one of the strings in `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise BadValue(name, f"must be one of {', '.join(map(repr, choices))}", value)
    return value


def suggestion(name: Any, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Ends a sentence with a question about the nearest name; empty if none is near.

    >>> suggestion("horizn", ["seeds", "horizon"])
    ": did you mean 'horizon'?"
    """
    near = difflib.get_close_matches(name, [*names], 1, cutoff) if isinstance(name, str) else []
    return f": did you mean {near[0]!r}?" if near else ""


def text(name: str, value: Any) -> str:
    """Checks that the value is a non-empty string, such as a label."""
    if not isinstance(value, str) or not value:
        raise BadType(name, "must be a string of at least one character", value)
    return value


def file_name(name: str, value: Any) -> str:
    """Checks that the value is a valid file name in any folder, also with suffixes."""
    if not isinstance(value, str):
        raise BadType(name, "must be a name for a file", value)
    if not value or value != Path(value).name or value.startswith(".") or "\0" in value:
        raise BadValue(name, "must be a name for a file, without a folder", value)
    if len(value.encode(errors="replace")) > LONGEST_NAME:
        raise BadValue(name, f"must have at most {LONGEST_NAME} bytes", value)
    return value


def path(name: str, value: Any) -> Path:
    """Checks that the value is a path, existing or not."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str) or "\0" in os.fspath(value):
        raise BadType(name, "must be a str or a Path", value)
    if not os.fspath(value):
        raise BadValue(name, "must name a file or folder", "")
    if any(len(os.fsencode(part)) > LONGEST_PART for part in Path(value).parts):
        raise BadValue(name, f"must have names of at most {LONGEST_PART} bytes", os.fspath(value))
    return Path(value)


def file(name: str, value: Any) -> Path:
    """Checks that the value is the path of a file."""
    found = path(name, value)
    if not found.is_file():
        there = "a folder" if found.is_dir() else "no such file"
        raise BadValue(name, "must be a file", there, got=f"{there} at {shown(str(found))}")
    return found


def instance(name: str, value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    """Checks that the value is of one of these classes; `what` names them, such as "an fb.Policy"."""
    if not isinstance(value, kind):
        maker = (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ != "builtins"
        hint = f": call it, as in {value.__name__}(...)" if maker and value.__name__.isidentifier() else ""
        raise BadType(name, f"must be {what}", value, got=f"{shown(value)}{hint}")
    return value


def sequence(name: str, value: Any, what: str) -> list[Any]:
    """Checks that the value is a list, a tuple or a vector, and returns its elements; `what` names them."""
    vector = isinstance(value, np.ndarray) and value.ndim > 0
    if not (vector or isinstance(value, Sequence)) or isinstance(value, (str, bytes)):
        raise BadType(name, f"must be a sequence of {what}", value)
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
        got = f"{given[where]} at index {where} ({len(bad)} bad entries)"
        raise BadValue(name, f"must be finite{fits}", given[where], got=got)
    return array


def integer_array(name: str, value: Any, ndim: int = 1) -> np.ndarray:
    """Converts the value to an int64 array with `ndim` dimensions, after checking that it holds integers."""
    array = _array(name, value, "integers", ndim, np.int64)
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise BadValue(name, f"must be <= {np.iinfo(np.int64).max}", array.max())
    return array.astype(np.int64, copy=False)


def bool_array(name: str, value: Any, *, ndim: int) -> np.ndarray:
    """Checks that the value is an array of bools with `ndim` dimensions."""
    return _array(name, value, "bools", ndim, bool)


def _array(name: str, value: Any, what: str, ndim: int, kind: type) -> np.ndarray:
    axes = f"{ndim} dimension{'s' * (ndim > 1)}"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):  # ragged rows, a JAX key, a tracer
        array = np.asarray(None)
    if not np.can_cast(array.dtype, kind, "same_kind") or (kind is np.int64 and array.dtype == bool):
        raise BadType(name, f"must be an array of {what} with {axes}", value)
    if array.ndim != ndim:
        raise BadValue(name, f"must have {axes}", array.shape, got=f"shape {array.shape}")
    return array


def stride(value: Any) -> Any:
    """Checks that a stride is an integer >= 1 or "log"."""
    if isinstance(value, str) and value != "log":
        raise BadType("stride", "must be an integer >= 1 or 'log'", value)
    return value if isinstance(value, str) else integer("stride", value, at_least=1)
