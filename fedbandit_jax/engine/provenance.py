"""Records where a result comes from: what was configured, by which code, on which device."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import platform
import re
import shlex
import subprocess
import sys
import time
import types
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from fedbandit_jax.core import struct
from fedbandit_jax.engine.clocks import Clock


def describe(value: Any) -> Any:
    """Returns a JSON-serialisable account of a configuration, in which arrays appear by shape and digest."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if isinstance(value, nx.Graph):
        edges = sorted(sorted(edge) for edge in value.edges)
        return {"type": type(value).__name__, "nodes": len(value), "edges": describe(np.array(edges).reshape(-1, 2))}
    if isinstance(value, (np.ndarray, jax.Array)) and value.ndim:
        array = np.asarray(value)
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest}
    if isinstance(value, (np.ndarray, jax.Array, np.generic)):
        return value.item()
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def fingerprint(config: Mapping[str, Any], processes: Iterable[Clock]) -> str:
    """Returns a digest that is equal for runs that must give the same numbers under the same code.

    It covers the configuration, the versions, the traced program, every number that is bound into it, and the code of
    all classes that the process is made of, wherever they are defined. That includes code which only runs on the host,
    such as what a certificate is computed by.

    Args:
        config: JSON-serialisable, as made by `describe`.
        processes: all processes of the run.
    """
    digest = hashlib.sha256(json.dumps([config, versions()], sort_keys=True).encode())
    for process in processes:
        key = jax.random.key(0)
        program = jax.make_jaxpr(process.step)(key, *jax.eval_shape(process.init, key), 0)
        leaves, structure = jax.tree.flatten(process)
        account = [nameless(str(program)), *map(_number, (*program.consts, *leaves)), *written(structure)]
        digest.update("\n".join(account).encode())
    return digest.hexdigest()


def nameless(text: str) -> str:
    """Returns the text without addresses in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _number(leaf: Any) -> str:
    keys = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return repr(describe(np.atleast_1d(np.asarray(jax.random.key_data(leaf) if keys else leaf))))


def written(structure: Any, *, own: bool = False) -> list[str]:
    """Returns the code of the classes, with base classes, of all nodes of a tree and what their static fields hold.

    With `own` only that of classes and functions which are not this package's.
    """
    found: dict[str, str] = {}
    package = __name__.partition(".")[0]

    def looked_into(module: str) -> bool:
        return module not in _TRUSTED and not (own and module.partition(".")[0] == package)

    def add(value: Any) -> None:
        if isinstance(value, struct.Static):
            value = value.value
        if isinstance(value, types.FunctionType) and looked_into(value.__module__):
            found[f"{value.__module__}.{value.__qualname__} {len(found)}"] = repr(_code(value))  # lambdas share a name
        for cls in (value if isinstance(value, type) else type(value)).__mro__:
            if looked_into(cls.__module__):
                found[f"{cls.__module__}.{cls.__qualname__}"] = repr(_code(vars(cls)))
        if isinstance(value, Mapping):
            value = list(value.values())
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = [getattr(value, field.name) for field in dataclasses.fields(value)]
        for part in value if isinstance(value, (tuple, list, set, frozenset)) else ():
            add(part)

    def walk(node: Any) -> None:
        if node.node_data() is not None:  # it is not a leaf
            for value in node.node_data():  # node_data has its class and its static fields
                add(value)
            for child in node.children():
                walk(child)

    walk(structure)
    return [f"{name} {code}" for name, code in sorted(found.items())]


# Modules whose classes are not looked into, and attributes that do not say what a class does.
_TRUSTED = ("builtins", "typing", "enum", "numpy", "abc", "collections")
_INCIDENTAL = ("__dict__", "__weakref__", "__doc__", "__annotations__", "__firstlineno__", "__static_attributes__")


def _code(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((str(name), repr(_code(part))) for name, part in value.items() if name not in _INCIDENTAL)
    if isinstance(value, (tuple, list)):
        return [_code(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted(repr(_code(part)) for part in value)
    if isinstance(value, types.CodeType):
        return value.co_code.hex(), value.co_names, value.co_varnames, _code(value.co_consts)
    if isinstance(value, property):
        return [_code(part) for part in (value.fget, value.fset, value.fdel)]
    function = inspect.unwrap(getattr(value, "__func__", getattr(value, "func", value)))
    if isinstance(function, types.FunctionType):
        cells = [_code(getattr(part, "__code__", part)) for part in _closed(function)]
        return _code(function.__code__), _code(function.__defaults__), _code(function.__kwdefaults__), cells
    if isinstance(value, (np.ndarray, jax.Array)) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return nameless(repr(describe(value)))
    return repr(value) if isinstance(value, (bool, int, float, complex, str, bytes, type(None))) else str(type(value))


def _closed(function: types.FunctionType) -> list[Any]:
    return [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]


def versions() -> dict[str, str]:
    """Returns the versions of the packages that decide the numbers."""
    return {name: version(name) for name in ("fedbandit_jax", "jax", "jaxlib", "numpy")}


def provenance() -> dict[str, Any]:
    """Returns the versions, git commit, device, dtype, date and command of this process, for the result."""
    device = jax.devices()[0]
    return {
        **versions(),
        "python": platform.python_version(),
        "git_commit": _git_commit(),
        "device": device.device_kind,
        "platform": device.platform,
        "dtype": str(jnp.zeros(()).dtype),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": _command(),
    }


def _command() -> str:
    program = Path(sys.argv[0])
    name = "fedbandit" if program.name == "__main__.py" and program.parent.name == "fedbandit_jax" else program.name
    return shlex.join([name or "python", *sys.argv[1:]])


def _git_commit() -> str | None:
    """Returns the commit of this package's own checkout, with `+` for uncommitted changes; None if it was installed."""
    here = Path(__file__).resolve().parent
    if not (here.parent / ".git").exists():
        return None
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
