"""Return values of the methods of parts, by tracing them: nothing is compiled, and errors say what must be returned."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import validate
from fedbandit_jax.core.programs import noted
from fedbandit_jax.core.validate import BadType


def returned(owner: Any, method: str, *arguments: Any) -> Any:
    """The return value of a method for arguments like these, with shapes and dtypes in place of numbers.

    >>> returned([], "count", 1)
    ShapeDtypeStruct(shape=(), dtype=int32)
    """
    found = []
    with noted(owner, method, *arguments):
        jax.eval_shape(lambda *given: found.append(getattr(owner, method)(*given)), *arguments)

    def form(x: Any) -> Any:
        number = isinstance(x, (bool, int, float, complex, Array, np.ndarray, np.generic))
        return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) if number else x

    return jax.tree.map(form, found[0])


def need(method: str, condition: bool, what: str, got: Any) -> None:
    """Raises TypeError, saying what the method must return and what it returned, unless the condition holds."""
    if not condition:
        told = f"{got.dtype} of shape {got.shape}" if hasattr(got, "dtype") else validate.shown(got)
        raise BadType(method, f"must return {what}", told, got=told)


def need_same(method: str, what: str, before: Any, after: Any) -> None:
    """Raises TypeError unless both trees have the same structure, and leaves of the same shapes and dtypes."""

    def form(x: Any) -> Any:
        return (x.shape, str(x.dtype)) if hasattr(x, "dtype") else x

    shapes = [jax.tree.map(form, tree) for tree in (before, after)]
    need(method, shapes[0] == shapes[1], f"{what} of unchanged structure {shapes[0]}", shapes[1])


def is_array(value: Any, shape: tuple[int, ...], kind: Any) -> bool:
    """Whether the value is an array of this shape whose dtype is of this kind."""
    return getattr(value, "shape", None) == shape and jnp.issubdtype(value.dtype, kind)
