"""Frozen dataclasses that are JAX pytrees: numbers are leaves, `static()` fields are compile-time constants."""

import dataclasses
import sys
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

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

    Changing a leaf re-uses the compiled program; changing a static field compiles again. Do not validate in
    `__post_init__`: `dataclasses.replace` calls it, perhaps with tracers. Instances are equal only to themselves.

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
        return tuple(getattr(x, name) for name in data), tuple(Static(getattr(x, name)) for name in meta)

    def flatten_with_keys(x):
        leaves, aux = flatten(x)
        return tuple(zip(map(jax.tree_util.GetAttrKey, data), leaves)), aux

    def unflatten(aux, leaves):
        x = object.__new__(cls)
        for name, fixed in zip(meta, aux):
            object.__setattr__(x, name, fixed.value)
        for name, value in zip(data, leaves):
            object.__setattr__(x, name, value)
        return x

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


class Static:
    """A static field. It equals another only if the types are the same, and every attribute of the values is.

    JAX runs one compiled program for all objects whose static fields are equal, so a dataclass must not leave out some
    of its fields (`compare=False`), nor a string of a class of its own pass for another string.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and _alike(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


def _alike(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b) or a != b:
        return False
    if isinstance(a, tuple) and not all(map(_alike, a, b)):
        return False
    mine, others = getattr(a, "__dict__", {}), getattr(b, "__dict__", {})
    return mine.keys() == others.keys() and all(_alike(mine[name], others[name]) for name in mine)


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
    if cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
        raise TypeError(f"sealed must be left to the package's own classes, whose code is proved, got {cls.__name__}")
    _SEALED.add(cls)
    return cls


def is_sealed(value: Any) -> bool:
    """Returns whether this is an object of a sealed class itself, as opposed to one of a subclass."""
    return type(value) in _SEALED


PLAIN = (bool, int, float, str, bytes, type(None))
NUMBERS = (bool, int, float, np.ndarray, jax.Array, np.generic)


def counterfeit(value: Any, path: str = "") -> str:
    """Returns where a sealed object holds what its class does not say, or an empty string.

    Leaves must be numbers that keep their value on a device; static fields must be plain values, or sealed themselves.
    Neither the object nor its parts may carry attributes that are no fields, such as a method of their own. Parts that
    are not sealed, for instance a policy, are not looked into: whoever reads a proof from them asks for the seal.
    """
    for field in dataclasses.fields(value):
        name, part = f"{path}.{field.name}".lstrip("."), getattr(value, field.name)
        known = _static_fault(part, name) if field.metadata.get("static") else _fault(part, name)
        if known:
            return known
    extra = set(vars(value)) - {field.name for field in dataclasses.fields(value)}
    return f"{path or type(value).__name__} has {', '.join(sorted(extra))} of its own" if extra else ""


def _fault(part: Any, name: str) -> str:
    if is_sealed(part):
        return counterfeit(part, name)
    if part is None or isinstance(part, tuple):
        ours = part is None or type(part) is tuple or is_sealed(part) or _in_package(type(part))
        wrong = (_fault(each, f"{name}[{i}]") for i, each in enumerate(part or ()))
        return next(filter(None, wrong), "") if ours else f"{name} is of a class of its own, {type(part).__name__}"
    if dataclasses.is_dataclass(part):
        return ""  # of a class that is not sealed, see above
    if not (type(part) in NUMBERS or isinstance(part, (np.generic, jax.Array))):
        return f"{name} is no number, but of {type(part).__name__}"
    host = np.asarray(part)
    if host.dtype.kind in "iu" and (host != host.astype(f"{host.dtype.kind}4")).any():
        return f"{name} is an integer that has no place in 32 bits"
    if host.dtype.kind == "V" or (host.dtype.kind == "f" and host.dtype.itemsize < 4):
        return f"{name} is of {host.dtype}, in which a device would calculate"
    if host.dtype.kind == "f":
        with np.errstate(all="ignore"):
            device = host.astype(np.float32)
        if ((np.isinf(device) != np.isinf(host)) | ((np.abs(device) < np.finfo(np.float32).tiny) & (host != 0))).any():
            return f"{name} is a number that float32 does not hold"
    return ""


def _static_fault(part: Any, name: str) -> str:
    if type(part) in PLAIN:
        return ""
    if is_sealed(part) and dataclasses.is_dataclass(part):
        fields = dataclasses.fields(part)
        extra = set(vars(part)) - {field.name for field in fields}
        if extra:
            return f"{name} has {', '.join(sorted(extra))} of its own"
        wrong = (_static_fault(getattr(part, field.name), f"{name}.{field.name}") for field in fields)
        return next(filter(None, wrong), "")
    if isinstance(part, tuple) and (type(part) is tuple or _in_package(type(part))):
        wrong = (_static_fault(each, f"{name}[{i}]") for i, each in enumerate(part))
        return next(filter(None, wrong), "")
    return f"{name} is of a class of its own, {type(part).__name__}"


def shipped(value: Any) -> bool:
    """Returns whether all dataclasses in `value` are of classes of this package."""
    if isinstance(value, tuple):
        return all(map(shipped, value))
    if not dataclasses.is_dataclass(value):
        return True
    return _in_package(type(value)) and all(shipped(getattr(value, field.name)) for field in dataclasses.fields(value))


def _in_package(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0] and getattr(module, cls.__name__, None) is cls
