"""Parameters of nested dataclasses by dotted path, such as "policy.theta_norm"; the end of a path does if it is unique.

>>> import dataclasses
>>> @dataclasses.dataclass(frozen=True)
... class Part:
...     scale: float = 1.0
>>> @dataclasses.dataclass(frozen=True)
... class Whole:
...     first: Part = Part()
...     second: Part = Part()
>>> paths(Whole())
('first', 'first.scale', 'second', 'second.scale')
>>> matches("scale", paths(Whole())), matches("second.scale", paths(Whole()))
(('first.scale', 'second.scale'), ('second.scale',))
>>> replace(Whole(), "second.scale", 2.0).second
Part(scale=2.0)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any


def paths(value: Any) -> tuple[str, ...]:
    """Returns the paths of all parameters of a dataclass and of its parts, whose own names (labels) are left out."""
    return tuple(_paths(value, "")) if dataclasses.is_dataclass(value) else ()


def _paths(value: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if field.name != "name" or not prefix:
            yield prefix + field.name
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            yield from _paths(part, f"{prefix}{field.name}.")


def matches(name: str, among: Collection[str]) -> tuple[str, ...]:
    """Returns the path that `name` is, or else all of these paths that end in it."""
    return (name,) if name in among else tuple(path for path in among if path.endswith(f".{name}"))


def shared(name: str, among: Collection[str]) -> bool:
    """Returns whether several parts have a parameter of this name, the whole included."""
    return sum(f".{path}".endswith(f".{name}") for path in among) > 1


def replace(value: Any, path: str, new: Any) -> Any:
    """Returns a copy of nested dataclasses in which the parameter at `path` is `new`; all of them check themselves."""
    first, _, rest = path.partition(".")
    return dataclasses.replace(value, **{first: replace(getattr(value, first), rest, new) if rest else new})
