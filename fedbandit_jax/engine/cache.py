"""Compiled programs that outlive the process, in JAX's own persistent cache."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable

LEAST_SECONDS = 0.2  # programs that compile faster are not worth a file


def keep_programs(folder: str | Path | None = None) -> Path:
    """Keeps compiled programs in a folder from now on, so that the next process need not compile them again.

    The command line does this by itself; in a notebook or script call it before the first simulation. Files are never
    deleted: delete the folder when it has grown too large. If JAX's own cache is on already
    (`JAX_COMPILATION_CACHE_DIR`) and no folder is given, nothing changes.

    Args:
        folder: where; it is made if it does not exist. None: `fedbandit_jax` in the user's cache folder
            (`XDG_CACHE_HOME`, by default `~/.cache`), apart for every kind of processor, since programs for one may
            not run on another.

    Returns:
        The folder.

    Raises:
        ValueError, TypeError: it is no folder that can be written to; the message names it.

    Example:
        >>> import tempfile, fedbandit_jax as fb
        >>> fb.keep_programs(tempfile.mkdtemp()).is_dir()
        True
    """
    import jax  # the command line asks for `default_folder` only, and begins without JAX

    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder is None and before:
        return Path(before)
    chosen = default_folder() if folder is None else validate.path("folder", folder)
    check_writable("folder", chosen)
    jax.config.update("jax_compilation_cache_dir", str(chosen))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    return chosen


def default_folder() -> Path:
    """The folder for programs of this kind of processor, in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fedbandit_jax" / hashlib.sha256(_processor()).hexdigest()[:12]


def _processor() -> bytes:
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        lines = []
    instructions = next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
    return instructions + platform.machine().encode() + platform.processor().encode()
