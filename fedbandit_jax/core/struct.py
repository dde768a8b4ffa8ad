"""Frozen dataclasses that are JAX pytrees: numbers are leaves, `static()` fields are compile-time constants."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T", bound=type)
Number = Any  # the type of a numeric leaf: a tracer inside a run, a NumPy or Python number on the host


def static(**kwargs: Any) -> Any:
    """Declares a field that sets a shape or a Python branch and is part of the compiled program: it must be hashable.

    Keyword arguments are those of `dataclasses.field`, for instance `default`.
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: T) -> T:
    """Turns `cls` into a frozen keyword-only dataclass that is a JAX pytree.

    Changing a leaf re-uses the compiled program; changing a static field compiles again. Validate in a factory, not in
    `__post_init__`, because JAX rebuilds instances around tracers without calling it.

    >>> import jax
    >>> @pytree
    ... class Line:
    ...     slope: float
    ...     points: int = static(default=2)
    >>> jax.tree.leaves(Line(slope=3.0))
    [3.0]
    """
    cls = dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
    fields = dataclasses.fields(cls)
    meta = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if not f.metadata.get("static")]

    # `jax.tree_util.register_dataclass` will not do: with it (jax 0.10.2) two classes with the same fields have equal
    # tree structures, and `jit` runs the program of the one for the other. A test checks that ours differ.
    def flatten(x):
        return tuple(getattr(x, name) for name in data), tuple(getattr(x, name) for name in meta)

    def flatten_with_keys(x):
        leaves, aux = flatten(x)
        return tuple(zip(map(jax.tree_util.GetAttrKey, data), leaves)), aux

    def unflatten(aux, leaves):
        x = object.__new__(cls)
        for name, value in (*zip(meta, aux), *zip(data, leaves)):
            object.__setattr__(x, name, value)
        return x

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


_SEALED: set[type] = set()


def sealed(cls: T) -> T:
    """Marks a class whose privacy proof is about its code as it is written; a subclass is not sealed.

    A guarantee is read from sealed objects only. Whoever overrides a method, or wraps an object in another, has made
    something about which nothing is proved.

    >>> @sealed
    ... class Loop: ...
    >>> class Changed(Loop): ...
    >>> is_sealed(Loop()), is_sealed(Changed())
    (True, False)
    """
    _SEALED.add(cls)
    return cls


def is_sealed(value: Any) -> bool:
    """Returns whether this is an object of a sealed class itself, as opposed to one of a subclass."""
    return type(value) in _SEALED
