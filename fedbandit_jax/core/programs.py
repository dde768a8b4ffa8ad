"""User-defined functions: their side effects in a trace, and what they return."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import batching

from fedbandit_jax.core import struct
from fedbandit_jax.core.backend import without_kernels
from fedbandit_jax.core.validate import BadType

ANSWERS = ("pure_callback", "io_callback", "ffi_call", "infeed")  # with results that the program does not determine
HOST = (*ANSWERS, "debug_callback", "pallas_call", "outfeed")
NUMBERS = (bool, int, float, complex, Array, np.ndarray, np.generic)
_JAX = os.path.dirname(jax.__file__)
_INSTALLED = os.path.dirname(_JAX)
_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def side_effect(function: Callable[..., Any], *arguments: Any, alone: bool = False) -> str:
    """Returns the first side effect of a function with its source line; "" if there is none.

    The function is traced once and not run. `jax.debug.print` is allowed, since nothing returns from it, and so are
    batching rules of JAX and this package. User-defined batching rules may mix the lanes of a batch. So may this
    package's, which are refused in a function called for each of several users `alone`.

    >>> side_effect(lambda x: jax.debug.print("{}", x), 1.0)
    ''
    >>> side_effect(lambda x: jax.pure_callback(abs, jax.ShapeDtypeStruct((), "float32"), x), 1.0).split(" in ")[0]
    'pure_callback'
    """
    with without_kernels():
        program = jax.make_jaxpr(function)(*arguments)
    found = [(one, outer) for outer in program.jaxpr.eqns for one in (outer, *_inner(outer))]
    for one, outer in found:
        name = one.primitive.name
        prints = type(one.params.get("fmt", "")) is not str  # by user code
        if name in HOST or prints or _has_own_batching(one) or (alone and _batches(one)):
            return f"{name}{_line(one) or _line(outer)}"
    if any(isinstance(const, Tracer) for const in program.consts):
        return "a value of an enclosing trace"
    strange = [one for one in program.effects if "DebugEffect" not in type(one).__name__]
    lines = [_line(one) or _line(outer) for one, outer in found if any(effect in strange for effect in one.effects)]
    return f"{strange[0]}{next(iter(lines), '')}" if strange else ""


def refusal(owner: Any, method: str, function: Callable[..., Any], *arguments: Any) -> BadType | None:
    """Returns the error by which a method of a policy or schedule is refused for a `side_effect`; None if it has none.

    `function` takes the owner and calls the method.
    """
    name = f"{type(owner).__name__}.{method}"
    with located_errors(owner, method, *arguments):
        found = side_effect(numeric(name, function), owner, *arguments)
    if not found:
        return None
    got = f"{found}: remove it, or write an fb.Algorithm, which has no privacy claim"
    return BadType(name, "must be a pure function of its arguments", found, got=got)


def call(owner: Any, method: str, *arguments: Any) -> Any:
    """Calls a method of a part, which must be a pure function of the part and the arguments, Python integers included.

    `side_effect` inspects a trace before the run. A user-defined part may behave differently in the run, so it is
    traced separately there as well.

    Raises:
        TypeError: it uses a value of the enclosing trace, such as another user's contexts.
    """
    if struct.is_sealed(owner):
        return getattr(owner, method)(*arguments)
    every = (owner, *arguments)
    fixed = [type(one) is int or (one is owner and jax.tree.leaves(one) == [one]) for one in every]  # not traced
    given = [one for one, stays in zip(every, fixed) if not stays]

    def alone(*given: Any) -> Any:
        rest = iter(given)
        owner, *arguments = [one if stays else next(rest) for one, stays in zip(every, fixed)]
        return getattr(owner, method)(*arguments)

    program, form = jax.make_jaxpr(alone, return_shape=True)(*given)
    if any(isinstance(const, Tracer) for const in program.consts):
        where = f"{type(owner).__name__}.{method}"
        raise BadType(where, "must be a pure function of its arguments", None, got="a value of an enclosing trace")
    return jax.tree.unflatten(jax.tree.structure(form), jaxpr_as_fun(program)(*jax.tree.leaves(given)))


@contextlib.contextmanager
def located_errors(owner: Any, method: str, *arguments: Any) -> Iterator[None]:
    """Adds the method and the shapes of its arguments to errors raised while it is traced."""
    where = f"{type(owner).__name__}.{method}"
    try:
        yield
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        error.add_note(f"{where} must be traceable by JAX: use jnp.where instead of if, and jnp instead of np")
        raise
    except (TypeError, ValueError) as error:
        shapes = ", ".join(str(jax.tree.map(jnp.shape, one)) for one in arguments)
        given = f", which was given arguments of shapes {shapes}" if arguments else ""
        error.add_note(f"This happened in {where}{given}")
        raise


def opaque_operations(jaxpr: Any) -> Iterator[str]:
    """Yields the opaque operations of a program with their lines: callbacks and user-defined batching rules."""
    for one in equations(jaxpr):
        if one.primitive.name in ANSWERS or _has_own_batching(one):
            yield f"{one.primitive.name}{_line(one)}"


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yields the operations of a program and of its inner programs."""
    for equation in jaxpr.eqns:
        yield equation
        yield from _inner(equation)


def _inner(equation: Any) -> Iterator[Any]:
    for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        inner = getattr(part, "jaxpr", part)
        if hasattr(inner, "eqns"):
            yield from equations(inner)


def _has_own_batching(equation: Any) -> bool:
    if equation.primitive.name != "custom_vmap_call":
        return False
    rule = equation.params["rule"]
    written = getattr(getattr(rule, "rule", rule), "__module__", "")
    return written.partition(".")[0] not in ("jax", __name__.partition(".")[0])


def _batches(equation: Any) -> bool:
    """Returns whether an operation is batched by a rule outside of JAX."""
    rule = batching.fancy_primitive_batchers.get(equation.primitive)
    within = [cell.cell_contents for cell in getattr(rule, "__closure__", None) or ()]
    written = [getattr(part, "__module__", None) for part in (rule, getattr(rule, "func", None), *within)]
    own = any(name and name.partition(".")[0] not in ("jax", "functools", "builtins") for name in written)
    return own or equation.primitive.name == "custom_vmap_call"


def _line(equation: Any) -> str:
    """Returns the source line of the innermost frame in user code, among those that the package called."""
    trace = equation.source_info.traceback
    frames = list(traceback.extract_tb(trace.as_python_traceback())) if trace is not None else []
    ours = max((i for i, one in enumerate(frames) if one.filename.startswith(_PACKAGE)), default=-1)
    called = [one for one in frames[ours + 1 :] if not one.filename.startswith(_JAX)]
    own = [one for one in called if not one.filename.startswith(_INSTALLED)][-1:] or called[:1]
    return "".join(f" in {one.filename}, line {one.lineno} ({one.line})" for one in own)


def returned(owner: Any, method: str, *arguments: Any) -> Any:
    """Evaluates a method abstractly; returns its value with shapes and dtypes instead of numbers.

    >>> returned([], "count", 1)
    ShapeDtypeStruct(shape=(), dtype=int32)
    """
    found = []
    with located_errors(owner, method, *arguments):
        jax.eval_shape(lambda *given: found.append(getattr(owner, method)(*given)), *arguments)

    def form(x: Any) -> Any:
        return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) if isinstance(x, NUMBERS) else x

    return jax.tree.map(form, found[0])


def numeric(method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with a check that it returns numbers; a trace alone would name an inner function."""

    def checked(*arguments: Any) -> Any:
        value = function(*arguments)
        for leaf in jax.tree.leaves(value):
            need(method, isinstance(leaf, NUMBERS), "arrays or numbers, also in tuples", leaf)
        return value

    return checked


def need_numbers(argument: str, part: Any) -> None:
    """Raises `TypeError` unless a user-defined part is a pytree of numbers."""
    for leaf in jax.tree.leaves(part):
        if not isinstance(leaf, (bool, int, float, Array, np.ndarray, np.generic)):
            must = "must be a pytree of numbers: decorate its class with @fb.pytree, and other fields with fb.static()"
            raise BadType(argument, must, leaf, got=f"{leaf!r} in {type(part).__name__}")


def need(method: str, condition: bool, what: str, got: Any) -> None:
    """Raises `TypeError` with the expected and the actual return value, unless the condition holds."""
    if not condition:
        found = in_words(got)
        raise BadType(method, f"must return {what}", found, got=found if hasattr(got, "dtype") else None)


def in_words(tree: Any) -> Any:
    """Replaces the arrays of a tree by words for messages.

    >>> in_words((np.zeros(3), None))
    ('float64 of shape (3,)', None)
    """
    return jax.tree.map(lambda x: f"{x.dtype} of shape {x.shape}" if hasattr(x, "dtype") else x, tree)


def need_same(method: str, what: str, before: Any, after: Any) -> None:
    """Raises `TypeError` unless both trees have equal structures, shapes and dtypes."""

    def form(x: Any) -> Any:
        return (x.shape, str(x.dtype)) if hasattr(x, "dtype") else x

    shapes = [jax.tree.map(form, tree) for tree in (before, after)]
    need(method, shapes[0] == shapes[1], f"{what} of unchanged structure {shapes[0]}", shapes[1])


def is_array(value: Any, shape: tuple[int, ...], kind: Any) -> bool:
    """Returns whether the value is an array of this shape and kind of dtype."""
    return getattr(value, "shape", None) == shape and jnp.issubdtype(value.dtype, kind)
