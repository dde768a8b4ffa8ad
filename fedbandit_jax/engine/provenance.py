"""Provenance of a result for human readers; no digest covers it."""

from __future__ import annotations

import functools
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from fedbandit_jax.engine.identity import versions


def provenance() -> dict[str, Any]:
    """Returns versions, git commit, device, dtype, date and command of this process."""
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


@functools.cache
def _git_commit() -> str | None:
    """Returns the commit of the package's checkout, with `+` for uncommitted changes; None if installed."""
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
