"""The digest of a run, which separates privacy noise and identifies checkpoints and stores, and its provenance.

The digest covers the names and values of classes and parameters, so draws survive refactoring. Parameters do not
determine what user-defined parts compute. Their digest also covers the traced program with its constants, and all
bound numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import platform
import re
import shlex
import subprocess
import sys
import time
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
    """Returns the digest of everything that `describe` accounts for. Then 1 and 1.0 are equal."""
    text = json.dumps(list(map(describe, parts)), sort_keys=True)
    numbers = json.loads(text, parse_int=lambda digits: float(digits) if len(digits) < 16 else digits)
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).digest()


def salt(config_digest: bytes) -> tuple[np.uint32, ...]:
    """Returns two words that separate streams of privacy noise, equal wherever a configuration runs.

    If two configurations shared noise, the difference of their releases would reveal raw sums.
    """
    return tuple(np.frombuffer(config_digest[:8], ">u4").astype(np.uint32))


def program(runner: Any, *, private: bool = False) -> bytes:
    """Returns the digest of the traced `init` and `step` of a runner, their constants and the shapes of its numbers.

    Raises:
        TypeError: a `private` run calls the host or has user-defined batching rules, which a program does not show.
    """
    leaves, treedef = jax.tree.flatten(runner)

    def method(name: str):
        return lambda leaves, *arguments: getattr(jax.tree.unflatten(treedef, leaves), name)(*arguments)

    key = jax.random.key(0)
    first, state = jax.make_jaxpr(method("init"), return_shape=True)(leaves, key)
    step = jax.make_jaxpr(method("step"))(leaves, key, *state, 0)
    found = hashlib.sha256()
    for one in (first, step):
        if private and (strange := next(programs.opaque_operations(one.jaxpr), "")):
            must = (
                "must not call the host in a private run, nor define batching rules: no digest that separates "
                "privacy noise covers them. Hold the data as arrays"
            )
            raise BadType(("env", "algorithm"), must, strange, got=f"{strange}")
        found.update(without_addresses(str(one)).encode())
        for constant in _constants(one):
            found.update(json.dumps(describe(constant)).encode())
    return found.digest()


def _constants(closed: Any) -> Iterator[Any]:
    """Yields the constants of a program and its inner programs, and arrays that are not printed."""
    yield from map(array_of, closed.consts)
    for equation in programs.equations(closed.jaxpr):
        parts = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns"))
        yield from (array_of(x) for part in parts for x in getattr(part, "consts", ()))
        yield from (part for part in parts if isinstance(part, (np.ndarray, jax.Array)))
        yield from (array_of(value.val) for value in equation.invars if hasattr(value, "val"))


def array_of(constant: Any) -> Any:
    """Returns a constant of a program as an array, of NumPy if it holds no keys, so that nothing is compiled."""
    if isinstance(constant, jax.core.Tracer):
        return str(constant.aval)
    is_key = jnp.issubdtype(jnp.result_type(constant), jax.dtypes.prng_key)
    return jnp.atleast_1d(constant) if is_key else np.atleast_1d(np.asarray(constant))


@functools.cache
def code() -> str:
    """Returns the digest of the package's files, since only the same code may continue checkpoints and stores."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def describe(value: Any) -> Any:
    """Describes a configuration as JSON-serialisable data; arrays by shape and digest in device precision."""
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
    return value if value is None or isinstance(value, (bool, int, float, str)) else without_addresses(repr(value))


def without_addresses(text: str) -> str:
    """Removes memory addresses from a text."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def versions() -> dict[str, str]:
    """Returns the versions of the packages that determine the numbers."""
    return {name: import_module(name).__version__ for name in ("fedbandit_jax", "jax", "jaxlib", "numpy")}


def provenance() -> dict[str, Any]:
    """Returns versions, git commit, device, dtype, date and command of this process, for readers. No digest has it."""
    device, started = jax.devices()[0], Path(sys.argv[0])
    ours = started.name == "__main__.py" and started.parent.name == "fedbandit_jax"
    command = "fedbandit" if ours else started.name or "python"
    return {
        **versions(),
        "python": platform.python_version(),
        "git_commit": _git_commit(),
        "device": device.device_kind,
        "platform": device.platform,
        "dtype": str(jnp.result_type(float)),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": shlex.join([command, *sys.argv[1:]]),
    }


@functools.cache
def _git_commit() -> str | None:
    """Returns the commit of the package's checkout, with `+` for uncommitted changes. It is None if installed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head, dirty = (
            subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if dirty else "")
