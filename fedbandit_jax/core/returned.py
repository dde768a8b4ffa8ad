"""Checks the return values of user-defined methods, by abstract evaluation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import validate
from fedbandit_jax.core.programs import located_errors
from fedbandit_jax.core.validate import BadType


def returned(owner: Any, method: str, *arguments: Any) -> Any:
    """Evaluates a method abstractly; returns its value with shapes and dtypes instead of numbers.

    >>> returned([], "count", 1)
    ShapeDtypeStruct(shape=(), dtype=int32)
    """
    found = []
    with located_errors(owner, method, *arguments):
        jax.eval_shape(lambda *given: found.append(getattr(owner, method)(*given)), *arguments)

    def form(x: Any) -> Any:
        number = isinstance(x, (bool, int, float, complex, Array, np.ndarray, np.generic))
        return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) if number else x

    return jax.tree.map(form, found[0])


def need(method: str, condition: bool, what: str, got: Any) -> None:
    """Raises `TypeError` with the expected and the actual return value, unless the condition holds."""
    if not condition:
        found = f"{got.dtype} of shape {got.shape}" if hasattr(got, "dtype") else validate.shown(got)
        raise BadType(method, f"must return {what}", found, got=found)


def need_same(method: str, what: str, before: Any, after: Any) -> None:
    """Raises `TypeError` unless both trees have equal structures, shapes and dtypes."""

    def form(x: Any) -> Any:
        return (x.shape, str(x.dtype)) if hasattr(x, "dtype") else x

    shapes = [jax.tree.map(form, tree) for tree in (before, after)]
    need(method, shapes[0] == shapes[1], f"{what} of unchanged structure {shapes[0]}", shapes[1])


def is_array(value: Any, shape: tuple[int, ...], kind: Any) -> bool:
    """Returns whether the value is an array of this shape and kind of dtype."""
    return getattr(value, "shape", None) == shape and jnp.issubdtype(value.dtype, kind)
