"""Records where a result comes from: what was configured, by which code, on which device."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import re
import shlex
import subprocess
import sys
import time
import types
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np


def describe(value: Any) -> Any:
    """A JSON-serialisable account of a configuration, in which arrays appear by shape and digest, as a device has them.

    Classes and functions are named without their modules.
    """
    if isinstance(value, (type, types.FunctionType)):
        return value.__qualname__
    if dataclasses.is_dataclass(value):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
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
