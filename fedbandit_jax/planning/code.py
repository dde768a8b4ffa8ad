"""Writes a recipe as the Python code that makes it."""

from __future__ import annotations

import dataclasses
from typing import Any

WIDTH = 100  # of a line, from which on every argument has one of its own


def code(value: Any, indent: str = "") -> str:
    """Returns an expression that makes an equal recipe, budget, schedule or plain value, without its default arguments.

    Args:
        value: a dataclass of a public room of the package, whose parts are such dataclasses or plain values.
        indent: what its lines after the first begin with.

    Example:
        >>> import fedbandit_jax as fb
        >>> code(fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt"))
        "fb.privacy.Mechanism(budget=fb.privacy.Budget(epsilon=1.0, delta=0.1), release='blt')"
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    kind = type(value)
    room = kind.__module__.split(".")[1]
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind) if field.init
             and (field.default is dataclasses.MISSING or field.default != getattr(value, field.name))}  # fmt: skip
    head, deeper = f"fb.{room}.{kind.__name__}(", indent + "    "
    parts = [f"{name}={code(part, deeper)}" for name, part in given.items()]
    line = f"{head}{', '.join(parts)})"
    if len(indent) + len(line) <= WIDTH:
        return line
    return "\n".join([head, *(f"{deeper}{part}," for part in parts), f"{indent})"])
