"""Where a result comes from: what was configured, by which code, on which device."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from fedbandit_jax.engine.process import Process


def describe(value: Any) -> Any:
    """A JSON-serialisable account of a configuration; arrays appear by shape and digest."""
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


def fingerprint(config: Mapping[str, Any], processes: Iterable[Process]) -> str:
    """Equal for runs that must give the same numbers: same configuration, versions and traced program."""
    digest = hashlib.sha256(json.dumps([config, versions()], sort_keys=True).encode())
    for process in processes:
        key = jax.random.key(0)
        jaxpr = str(jax.make_jaxpr(process.step)(key, *process.init(key), 0))
        digest.update(re.sub(r" at 0x[0-9a-f]+", "", jaxpr).encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    return {name: version(name) for name in ("fedbandit_jax", "jax", "jaxlib", "numpy")}


def provenance() -> dict[str, Any]:
    """Versions, git commit, device, dtype, date."""
    device = jax.devices()[0]
    return {
        **versions(),
        "python": platform.python_version(),
        "git_commit": _git_commit(),
        "device": device.device_kind,
        "platform": device.platform,
        "dtype": str(jnp.zeros(()).dtype),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _git_commit() -> str | None:
    """Commit of this package's own checkout, with `+` if it has uncommitted changes; None when it was installed."""
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
