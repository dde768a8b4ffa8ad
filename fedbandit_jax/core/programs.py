"""What a traced function can do besides computing its results from its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

MIXING = {"custom_vmap_call"}  # lets one element of a batch depend on the others


def side_channels(function: Callable[..., Any], *arguments: Any) -> tuple[bool, bool]:
    """Traces a function, and returns whether it can exchange data with the host, and whether it can mix a batch.

    Data are exchanged by callbacks, prints, infeeds, foreign functions, and by reading or writing a mutable array. A
    batch is mixed by a batching rule of the function's own, which `jax.vmap` calls.

    Args:
        function: a function of pytrees of arrays.
        arguments: arrays, or `jax.ShapeDtypeStruct` in place of them.

    >>> side_channels(lambda x: 2 * x, 1.0), side_channels(lambda x: jax.debug.print("{}", x), 1.0)
    ((False, False), (True, False))
    """
    program = jax.make_jaxpr(function)(*arguments)
    names = set(_primitives(program.jaxpr))
    outside = any("callback" in name or "print" in name or "feed" in name or "ffi" in name for name in names)
    return outside or bool(program.effects), bool(MIXING & names)


def _primitives(jaxpr: Any) -> Iterator[str]:
    """Yields the names of the operations in a program, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _primitives(inner)
