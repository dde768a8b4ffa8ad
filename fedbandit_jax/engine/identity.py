"""The one digest of what runs, which sets privacy noise apart and tells checkpoints and stores what they belong to.

It covers the names of classes and parameters, and their values, so that draws survive this package's refactoring. What
somebody else's part computes is not said by its parameters: where there is one, the digest also covers the traced
program with its constants, and all numbers that were bound (`program`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import types
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import networkx as nx
import numpy as np

from fedbandit_jax.core import programs
from fedbandit_jax.core.validate import BadType


def digest(*parts: Any) -> bytes:
    """The digest of configurations and of what else `describe` accounts for; 1 and 1.0 are the same number."""
    text = json.dumps(list(map(describe, parts)), sort_keys=True)
    numbers = json.loads(text, parse_int=lambda digits: float(digits) if len(digits) < 16 else digits)
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).digest()


def salt(mark: bytes) -> tuple[np.uint32, ...]:
    """Two words that set streams of privacy noise apart, the same wherever a configuration runs.

    If two configurations shared them, the difference of what they release would show raw sums.
    """
    return tuple(np.frombuffer(mark[:8], ">u4").astype(np.uint32))


def program(clock: Any, *, private: bool = False) -> bytes:
    """The digest of the traced programs of a clock's `init` and `step`, their constants and the shapes of its numbers.

    Raises:
        TypeError: a `private` run asks the host, or has a batching rule of the caller's own: of what these answer a
            program says nothing.
    """
    leaves, treedef = jax.tree.flatten(clock)

    def method(name: str):
        return lambda leaves, *arguments: getattr(jax.tree.unflatten(treedef, leaves), name)(*arguments)

    key = jax.random.key(0)
    first, state = jax.make_jaxpr(method("init"), return_shape=True)(leaves, key)
    step = jax.make_jaxpr(method("step"))(leaves, key, *state, 0)
    found = hashlib.sha256()
    for one in (first, step):
        if private and (strange := next(programs.unsaid(one.jaxpr), "")):
            raise BadType(
                ("env", "algorithm"),
                "must not ask the host in a private run, nor have batching rules of their own, for what these "
                "answer is in no digest that keeps privacy noise apart: hold the data as arrays",
                strange,
                got=f"{strange}",
            )
        found.update(nameless(str(one)).encode())
        for constant in _constants(one):
            found.update(json.dumps(describe(constant)).encode())
    return found.digest()


def _constants(closed: Any) -> Iterator[Any]:
    """Constants of a program, those of inner programs included, and arrays that stand in it without being printed."""
    yield from map(_number, closed.consts)
    for equation in programs.equations(closed.jaxpr):
        parts = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns"))
        yield from (_number(x) for part in parts for x in getattr(part, "consts", ()))
        yield from (part for part in parts if isinstance(part, (np.ndarray, jax.Array)))
        yield from (_number(value.val) for value in equation.invars if hasattr(value, "val"))


def _number(constant: Any) -> Any:
    if isinstance(constant, jax.core.Tracer):
        return str(constant.aval)
    is_key = jnp.issubdtype(jnp.result_type(constant), jax.dtypes.prng_key)
    return jnp.atleast_1d(constant) if is_key else np.atleast_1d(np.asarray(constant))  # the host compiles nothing


@functools.cache
def code() -> str:
    """The digest of this package's files, for what must not be continued by other code: checkpoints and stores."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def describe(value: Any) -> Any:
    """A JSON-serialisable account of a configuration, with arrays by shape and digest, as a device has them."""
    if isinstance(value, (type, types.FunctionType)):
        return value.__qualname__
    if dataclasses.is_dataclass(value):
        fields = {
            f.name: describe(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if not (f.metadata.get("later") and getattr(value, f.name) == f.default)
        }
        return {"type": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((describe(v) for v in value), key=repr)
    if isinstance(value, nx.Graph):
        edges = sorted(sorted(edge) for edge in value.edges)
        return {"type": type(value).__name__, "nodes": len(value), "edges": describe(np.array(edges).reshape(-1, 2))}
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return {"type": str(value.dtype), "words": describe(jax.random.key_data(value))}
    if isinstance(value, (np.ndarray, jax.Array)) and value.ndim:
        with np.errstate(over="ignore"):
            array = np.asarray(value).astype(jnp.result_type(value))
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest}
    if isinstance(value, (np.ndarray, jax.Array, np.generic)):
        return value.item()
    return value if value is None or isinstance(value, (bool, int, float, str)) else nameless(repr(value))


def nameless(text: str) -> str:
    """The text without addresses in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def versions() -> dict[str, str]:
    """The versions of the packages that decide the numbers."""
    return {name: import_module(name).__version__ for name in ("fedbandit_jax", "jax", "jaxlib", "numpy")}
