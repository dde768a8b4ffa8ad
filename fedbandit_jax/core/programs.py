"""Side effects of traced functions: callbacks, effects, and values of traces around them."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import batching

from fedbandit_jax.core import struct
from fedbandit_jax.core.backend import without_kernels
from fedbandit_jax.core.validate import BadType

ANSWERS = ("pure_callback", "io_callback", "ffi_call", "infeed")  # from where the program does not say what comes
HOST = (*ANSWERS, "debug_callback", "pallas_call", "outfeed")
_JAX = os.path.dirname(jax.__file__)
_INSTALLED = os.path.dirname(_JAX)
_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def leak(function: Callable[..., Any], *arguments: Any, alone: bool = False) -> str:
    """The first side effect of a function, and its line; "" if there is none.

    The function is traced once and not run. `jax.debug.print` is let through, as nothing comes back from it, and so are
    batching rules of JAX and this package; one of the caller's own may mix the lanes of a batch, and so may this
    package's, which are refused in a function that is called for each of several users `alone`.

    >>> leak(lambda x: jax.debug.print("{}", x), 1.0)
    ''
    >>> leak(lambda x: jax.pure_callback(abs, jax.ShapeDtypeStruct((), "float32"), x), 1.0).split(" in ")[0]
    'pure_callback'
    """
    with without_kernels():
        program = jax.make_jaxpr(function)(*arguments)
    found = [(one, outer) for outer in program.jaxpr.eqns for one in (outer, *_inner(outer))]
    for one, outer in found:
        name = one.primitive.name
        if name in HOST or _prints(one) or _mixes(one) or (alone and _batches(one)):
            return f"{name}{_line(one) or _line(outer)}"
    if any(isinstance(const, Tracer) for const in program.consts):
        return "a value of a trace around it"
    strange = [one for one in program.effects if "DebugEffect" not in type(one).__name__]
    lines = [_line(one) or _line(outer) for one, outer in found if any(effect in strange for effect in one.effects)]
    return f"{strange[0]}{next(iter(lines), '')}" if strange else ""


def refusal(owner: Any, method: str, function: Callable[..., Any], *arguments: Any) -> str:
    """The refusal of a method of a policy, schedule or grouping for what `leak` finds in it; "" if it finds nothing.

    The function is given the owner, and calls the method. An error says in which method it was.
    """
    with noted(owner, method, *arguments):
        found = leak(function, owner, *arguments)
    return found and (
        f"{type(owner).__name__}.{method} must compute its result from its arguments and do no more, got {found}: "
        "leave it out, or let the class say `calls_host = True`, and nothing is claimed of it"
    )


def call(owner: Any, method: str, *arguments: Any) -> Any:
    """The result of a method of a part, which must follow from the part and the arguments, Python integers included.

    `leak` looks at a trace before the run. A part of the caller's own may behave otherwise in the run, so that there it
    is traced by itself as well.

    Raises:
        TypeError: it uses a value of the trace around it, such as what another user was offered.
    """
    if struct.is_sealed(owner):
        return getattr(owner, method)(*arguments)
    every = (owner, *arguments)
    fixed = [type(one) is int or (one is owner and jax.tree.leaves(one) == [one]) for one in every]  # no numbers of JAX
    given = [one for one, stays in zip(every, fixed) if not stays]

    def alone(*given: Any) -> Any:
        rest = iter(given)
        owner, *arguments = [one if stays else next(rest) for one, stays in zip(every, fixed)]
        return getattr(owner, method)(*arguments)

    program, form = jax.make_jaxpr(alone, return_shape=True)(*given)
    if any(isinstance(const, Tracer) for const in program.consts):
        where = f"{type(owner).__name__}.{method}"
        raise BadType(where, "must compute its result from its arguments", None, got="a value of a trace around it")
    return jax.tree.unflatten(jax.tree.structure(form), jaxpr_as_fun(program)(*jax.tree.leaves(given)))


@contextlib.contextmanager
def noted(owner: Any, method: str, *arguments: Any) -> Iterator[None]:
    """Lets an error of a method that is traced say where it was, and of which shapes its arguments were."""
    where = f"{type(owner).__name__}.{method}"
    try:
        yield
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        error.add_note(f"{where} must be a program of JAX: jnp.where in place of if, and jnp in place of np")
        raise
    except (TypeError, ValueError) as error:
        shapes = ", ".join(str(jax.tree.map(jnp.shape, one)) for one in arguments)
        error.add_note(f"This happened in {where}, which was given arguments of shapes {shapes}")
        raise


def unsaid(jaxpr: Any) -> Iterator[str]:
    """The opaque operations of a program, and their lines: answers, and batching rules of the caller's own."""
    for one in equations(jaxpr):
        if one.primitive.name in ANSWERS or _mixes(one):
            yield f"{one.primitive.name}{_line(one)}"


def equations(jaxpr: Any) -> Iterator[Any]:
    """The operations of a program and of its inner programs."""
    for equation in jaxpr.eqns:
        yield equation
        yield from _inner(equation)


def _inner(equation: Any) -> Iterator[Any]:
    for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        inner = getattr(part, "jaxpr", part)
        if hasattr(inner, "eqns"):
            yield from equations(inner)


def _prints(equation: Any) -> bool:
    """Whether this prints by code of the caller's own: a text whose `format` is not that of texts."""
    return type(equation.params.get("fmt", "")) is not str


def _mixes(equation: Any) -> bool:
    """Whether this is a batching rule of the caller's own."""
    if equation.primitive.name != "custom_vmap_call":
        return False
    rule = equation.params["rule"]
    written = getattr(getattr(rule, "rule", rule), "__module__", "")
    return written.partition(".")[0] not in ("jax", __name__.partition(".")[0])


def _batches(equation: Any) -> bool:
    """Whether an operation is batched by a rule that is not JAX's."""
    rule = batching.fancy_primitive_batchers.get(equation.primitive)
    within = [cell.cell_contents for cell in getattr(rule, "__closure__", None) or ()]
    written = [getattr(part, "__module__", None) for part in (rule, getattr(rule, "func", None), *within)]
    own = any(name and name.partition(".")[0] not in ("jax", "functools", "builtins") for name in written)
    return own or equation.primitive.name == "custom_vmap_call"


def _line(equation: Any) -> str:
    """The line of the caller's code: the last one that is in no installed package, of those that we called."""
    trace = equation.source_info.traceback
    frames = list(traceback.extract_tb(trace.as_python_traceback())) if trace is not None else []
    ours = max((i for i, one in enumerate(frames) if one.filename.startswith(_PACKAGE)), default=-1)
    called = [one for one in frames[ours + 1 :] if not one.filename.startswith(_JAX)]
    own = [one for one in called if not one.filename.startswith(_INSTALLED)][-1:] or called[:1]
    return "".join(f" in {one.filename}, line {one.lineno} ({one.line})" for one in own)
