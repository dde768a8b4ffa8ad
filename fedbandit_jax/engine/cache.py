"""Keeps compiled programs across processes, in JAX's persistent cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

import jax

from fedbandit_jax.core.files import check_writable
from fedbandit_jax.core.validate import BadValue

LEAST_SECONDS = 0.2  # faster compilations are not cached
MOST_BYTES = 2**30  # of a folder at the start of a process
PROGRAM = f"*-{'[0-9a-f]' * 64}-cache"  # names of JAX's files
_refused: list[ValueError] = []  # error of the folder, printed once


def keep_programs() -> None:
    """Keeps compiled programs in the user's cache folder from now on, so the next process need not compile them again.

    It does nothing if JAX's own cache is on (`JAX_COMPILATION_CACHE_DIR`) or off (`JAX_ENABLE_COMPILATION_CACHE=0`). If
    programs exceed 1 GiB, the next process deletes the least recently used. Prints one line if the folder is new, or is
    not writable.
    """
    config = jax.config
    if not config.jax_enable_compilation_cache or config.jax_compilation_cache_dir or _refused:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        folder = default_folder()
        new = not folder.exists()
        check_writable("XDG_CACHE_HOME", folder)
    except ValueError as error:
        _refused.append(error)
        print(f"compiled programs are not kept: {error}", file=sys.stderr)
        return
    if new:
        print(f"compiled programs are kept in {folder}, at most {MOST_BYTES >> 30} GiB", file=sys.stderr)
    make_room(folder)
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


def make_room(folder: Path) -> None:
    """Deletes the least recently used programs until the others have at most `MOST_BYTES`."""
    found = []
    for path in folder.glob(PROGRAM):
        with contextlib.suppress(FileNotFoundError):  # deleted by another process
            found.append((path.stat().st_atime, path.stat().st_size, path))
    room = MOST_BYTES
    for _, size, path in sorted(found, reverse=True):
        room -= size
        if room < 0:
            with contextlib.suppress(OSError):  # another user's file in a shared folder
                path.unlink()


def default_folder() -> Path:
    """Returns the folder in the user's cache folder for programs of this kind of processor: others may not run them."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # required by the XDG standard
        home = os.path.expanduser("~") if os.environ.get("HOME", "~") else ""
        base = Path(home) / ".cache"
    if not base.is_absolute():
        raise BadValue("XDG_CACHE_HOME", "must be a folder, since there is no home", None)
    return base / "fedbandit_jax" / hashlib.sha256(_processor()).hexdigest()[:12]


def _processor() -> bytes:
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        lines = []
    instructions = next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
    return instructions + platform.machine().encode() + platform.processor().encode()
