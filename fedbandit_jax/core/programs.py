"""Pure functions: what a traced function does besides computing its results, and how to run it so that it cannot.

JAX traces Python, and Python can do much while it is traced: call the host, look at the other elements of a batch, or
use values of the traces around it. A function is pure if, traced by itself on abstract values, it is a program of
JAX's own operations (those of `jax.extend.core.primitives`) without effects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend import core
from jax.extend.core import primitives

from fedbandit_jax.core import lapack, struct
from fedbandit_jax.core.backend import without_kernels

BETWEEN = ("psum", "pmax", "pmin", "ppermute", "all_gather", "all_to_all", "ragged_all_to_all", "axis_index")


@functools.cache
def pure_primitives() -> frozenset[core.Primitive]:
    """Returns JAX's own operations that compute their results from their arguments alone."""
    listed = {value for value in vars(primitives).values() if isinstance(value, core.Primitive)}
    keys = jax.make_jaxpr(lambda seed: jax.random.wrap_key_data(jax.random.key_data(jax.random.key(seed))))(0)
    stacks = jax.make_jaxpr(lambda x: jax.numpy.stack([x, x]))(0.0)
    found = listed | {one.primitive for left_out in (keys, stacks) for one in equations(left_out.jaxpr)}
    return frozenset(one for one in found if one.name not in BETWEEN)


def call(owner: Any, method: str, *arguments: Any, static: tuple[Any, ...] = ()) -> Any:
    """Calls a method of a policy or schedule, `owner`: one's own is `isolated` unless its class says `pure = False`.

    Args:
        owner: a pytree.
        method: name of the method.
        arguments: pytrees of arrays.
        static: arguments after these that are no arrays.
    """

    def run(owner: Any, *arguments: Any) -> Any:
        return getattr(type(owner), method)(owner, *arguments, *static)

    if struct.is_sealed(owner) or type(owner).pure is not True:
        return run(owner, *arguments)
    return isolated(run, owner, *arguments, name=f"{type(owner).__name__}.{method}")


def isolated(function: Callable[..., Any], *arguments: Any, name: str) -> Any:
    """Calls a function as the program that it is by itself, for arguments of these shapes, if it is pure.

    Args:
        function: a function of pytrees of arrays.
        arguments: what to call it with.
        name: what to call it in an error.

    Raises:
        TypeError: if it is not pure; the message says what it does.

    >>> isolated(lambda x: 2 * x, jnp.float32(1.5), name="double").item()
    3.0
    >>> isolated(lambda x: jax.debug.print("{}", x), 1.0, name="Mine.index")
    Traceback (most recent call last):
    TypeError: Mine.index must be a pure function of its arguments (or its class say `pure = False`), got debug_print
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.asarray(leaf).dtype) for leaf in leaves]
    trace = jax.make_jaxpr(lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), return_shape=True)
    with without_kernels():
        program, results = trace(*shapes)
    used = [one.primitive for one in equations(program.jaxpr) if not lapack.is_mapped(one)]
    found = {primitive.name for primitive in used if primitive not in pure_primitives()}
    found |= {"a value from outside" for const in program.consts if isinstance(const, Tracer)}
    if found or program.effects:
        raise TypeError(
            f"{name} must be a pure function of its arguments (or its class say `pure = False`), got "
            f"{', '.join(sorted(found or map(str, program.effects)))}"
        )
    return jax.tree.unflatten(jax.tree.structure(results), core.jaxpr_as_fun(program)(*map(jnp.asarray, leaves)))


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yields the operations in a program, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield equation
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from equations(inner)
