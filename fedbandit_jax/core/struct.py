"""Frozen dataclasses that are JAX pytrees, sealed classes with proofs, and parameters by dotted path.

Numbers are leaves of a pytree, and `static()` fields are compile-time constants.
"""

import abc
import dataclasses
import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar, dataclass_transform

import jax
import jax.core
import networkx as nx
import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType

T = TypeVar("T", bound=type)
Number = Any  # a numeric leaf: a tracer inside a run, a NumPy or Python number on the host
SHOWN = 5  # most numbers of an array in a repr
PLAIN = bool, int, float, complex, str, bytes, type(None), np.ndarray, nx.Graph, *np.sctypeDict.values()


def static(*, later: bool = False, **kwargs: Any) -> Any:
    """Declares a hashable field that sets a shape or a Python branch, and is part of the compiled program.

    Args:
        later: whether a release added the field. Digests then omit its default, so older draws stay.
        kwargs: arguments of `dataclasses.field`, such as `default`.
    """
    return dataclasses.field(metadata={"static": True, "later": later}, **kwargs)


def part(**kwargs: Any) -> Any:
    """Declares a field of a sealed class that may hold a user-defined part, such as a policy."""
    return dataclasses.field(metadata={"part": True}, **kwargs)


def later(default: Any) -> Any:
    """Declares a field added after a release. Digests omit its default, so older checkpoints stay valid."""
    return dataclasses.field(default=default, metadata={"later": True})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(static, part, dataclasses.field))
def pytree(cls: T) -> T:
    """Turns `cls` into a frozen keyword-only dataclass that is a JAX pytree.

    Do not validate in `__post_init__`, since `dataclasses.replace` calls it, perhaps with tracers. Equality is
    identity.

    >>> import jax
    >>> @pytree
    ... class Line:
    ...     slope: float
    ...     points: int = static(default=2)
    >>> jax.tree.leaves(Line(slope=3.0))
    [3.0]
    """
    validate.instance("cls", cls, type, "a class, as @fb.pytree decorates one")
    made = dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
    if "__repr__" not in vars(cls):
        made.__repr__ = _repr  # pyright: ignore[reportAttributeAccessIssue]
    return node(made)


def _repr(self: Any) -> str:
    parts = (f"{field.name}={brief(getattr(self, field.name))}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def brief(value: Any) -> str:
    """Returns the repr of a value, or type and shape of an array of more than five numbers.

    >>> brief(np.zeros(3)), brief(np.zeros((20, 3)))
    ('array([0., 0., 0.])', 'float64[20,3]')
    """
    if isinstance(value, (np.ndarray, jax.Array)) and value.size > SHOWN:
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = (f"{name}={brief(one)}" for name, one in zip(value._fields, value))  # pyright: ignore
        return f"{type(value).__name__}({', '.join(parts)})"
    return repr(value)


def node(cls: T) -> T:
    """Registers a dataclass as a JAX pytree with `static()` fields as compile-time constants."""
    fields = dataclasses.fields(cls)
    meta = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if not f.metadata.get("static")]

    # `jax.tree_util.register_dataclass` (jax 0.10.2) gives two classes with the same fields equal tree structures, so
    # `jit` runs the program of one for the other. A test checks that ours differ.
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
    """A static field. Two are equal only if their types and all attributes of their values are.

    JAX shares one compiled program between equal static fields. So no dataclass field may be ignored (`compare=False`),
    and 1 must not equal True.
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
    mine, others = _attributes(a), _attributes(b)
    return mine.keys() == others.keys() and all(_alike(mine[name], others[name]) for name in mine)


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", {}))
    if hasattr(type(value), "__slots__"):
        for cls in type(value).__mro__:
            slots = vars(cls).get("__slots__", ())
            names = (slots,) if isinstance(slots, str) else slots
            found |= {name: getattr(value, name) for name in names if hasattr(value, name)}
    return found


_SEALED: dict[int, type] = {}  # by id, since a metaclass may redefine equality


def sealed(cls: T) -> T:
    """Marks a class with a privacy proof of its own code; subclasses have none.

    >>> from fedbandit_jax.privacy import Users
    >>> class Changed(Users): ...
    >>> is_sealed(Users()), is_sealed(Changed())
    (True, False)
    """
    if cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
        raise BadType("sealed", "must decorate the package's own classes, with proved code, only", cls.__name__)
    _SEALED[id(cls)] = cls
    return cls


def is_sealed(value: Any) -> bool:
    """Returns whether this is an object of a sealed class, not of a subclass, without attributes besides its fields."""
    return id(type(value)) in _SEALED and is_ours(value)


def is_ours(value: Any) -> bool:
    """Returns whether this is an object of a class of this package, without attributes besides its fields."""
    fields = getattr(type(value), "__dataclass_fields__", {})
    return _ours(type(value)) and getattr(value, "__dict__", {}).keys() <= fields.keys()


def shipped(value: Any) -> bool:
    """Returns whether `value` consists of this package's classes and functions only, so its fields determine it."""
    if isinstance(value, (tuple, list, set, frozenset)) and (type(value).__module__ == "builtins"):
        return all(map(shipped, value))
    if isinstance(value, Mapping):
        return all(map(shipped, value.values()))
    if _exact(value):
        return True
    named = value if isinstance(value, (type, types.FunctionType)) else type(value)
    if not _ours(named):
        return False
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    within = value if isinstance(value, tuple) else [getattr(value, field.name) for field in fields]
    return named is value or all(map(shipped, within))


def _ours(named: Any) -> bool:
    """Returns whether a class or function is defined in this package, whatever its `__module__` claims."""
    name = named.__globals__["__name__"] if isinstance(named, types.FunctionType) else named.__module__
    module = sys.modules.get(name)
    if module is None or name.partition(".")[0] != __name__.partition(".")[0]:
        return False
    if isinstance(named, types.FunctionType):
        return named.__globals__ is vars(module)
    found: Any = module
    for one in named.__qualname__.split("."):
        found = getattr(found, one, None)
    return found is named


def strange(value: Any) -> str:
    """Returns the first field, also of inner parts, that may give different answers when read again; "" if none.

    The host reads numbers and strings of a sealed part, and a program gets them as well. Plain numbers, strings,
    arrays and objects of this package are the same for both; subclasses need not be. A field declared by `part` may be
    user-defined, if its methods are those of its class.

    >>> strange(1.0), strange(type("Own", (float,), {})(1.0))
    ('', 'Own')
    """
    if _exact(value):
        return ""
    kind = type(value)
    if kind is dict:
        named = enumerate(value.values())
    elif kind is tuple or kind is list or (isinstance(value, tuple) and _ours(kind)):
        named = enumerate(value)
    elif dataclasses.is_dataclass(value) and _ours(kind):
        if not is_ours(value):
            return f"{kind.__name__} with attributes that are not fields"
        named = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
    else:
        return "" if _ours(value if isinstance(value, (type, types.FunctionType)) else kind) else kind.__qualname__
    for name, one in named:
        part = isinstance(name, dataclasses.Field) and name.metadata.get("part")
        if found := _hides(one) if part and not (_exact(one) or _ours(type(one))) else strange(one):
            return found if isinstance(name, int) else f"{found} in {name.name}"
    return ""


def _exact(value: Any) -> bool:
    """Returns whether this is a plain number, string, array or graph, not of a subclass."""
    return id(type(value)) in _plain() or isinstance(value, jax.core.Tracer)


@functools.cache
def _plain() -> frozenset[int]:
    return frozenset(map(id, (*PLAIN, type(jax.device_put(False)), type(jax.random.key(0)))))


def _hides(part: Any) -> str:
    """Returns the class of a user-defined part with unusual attribute look-up or shadowed methods; else ""."""
    kind, found = type(part), f"{type(part).__qualname__}, whose methods are not those of its class,"
    if not any(type(kind) is one for one in (type, abc.ABCMeta, type(Protocol))):
        return found
    for words in map(vars, kind.__mro__[:-1]):
        usual = isinstance(words.get("__dict__", vars(type)["__dict__"]), types.GetSetDescriptorType)
        if not usual or {"__getattribute__", "__getattr__"} & words.keys():
            return found
    return found if any(callable(getattr(kind, name, None)) for name in getattr(part, "__dict__", ())) else ""


def user_defined(value: Any) -> Iterator[str]:
    """Yields user-defined parts within a part, as "field: class", and those with words of the user (`of_user`)."""
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        kind = part if isinstance(part, types.FunctionType) else type(part)
        if name := getattr(part, "of_user", ""):
            yield f"{field.name}: {name}"
        elif (dataclasses.is_dataclass(part) or kind is part) and not _ours(kind):
            yield f"{field.name}: {kind.__qualname__}"
        elif dataclasses.is_dataclass(part):
            yield from user_defined(part)


def paths(value: Any) -> tuple[str, ...]:
    """Returns dotted paths of all parameters of a dataclass and its parts, without the names (labels) of parts.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Part:
    ...     scale: float = 1.0
    >>> @dataclasses.dataclass(frozen=True)
    ... class Whole:
    ...     first: Part = Part()
    ...     second: Part = Part()
    >>> paths(Whole())
    ('first', 'first.scale', 'second', 'second.scale')
    >>> replace(Whole(), "second.scale", 2.0).second
    Part(scale=2.0)
    """
    return tuple(_paths(value, "")) if dataclasses.is_dataclass(value) else ()


def _paths(value: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if field.name != "name" or not prefix:
            yield prefix + field.name
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            yield from _paths(part, f"{prefix}{field.name}.")


def replace(value: Any, path: str, new: Any) -> Any:
    """Returns a copy of nested dataclasses with `new` at `path`; all of them validate themselves."""
    first, _, rest = path.partition(".")
    return dataclasses.replace(value, **{first: replace(getattr(value, first), rest, new) if rest else new})
