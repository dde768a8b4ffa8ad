"""Keeps compiled programs across processes, in JAX's persistent cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

import jax

from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable
from fedbandit_jax.core.validate import BadValue

LEAST_SECONDS = 0.2  # faster compilations are not cached
MOST_BYTES = 2**30  # of a folder at the start of a process
PROGRAM = f"*-{'[0-9a-f]' * 64}-cache"  # names of JAX's files
_refused: list[ValueError] = []  # error of the default folder, printed once


def keep_programs(folder: str | Path | None = None) -> Path:
    """Keeps compiled programs in a folder from now on, so the next process need not compile them again.

    `fb.simulate`, `fb.sweep` and the command line call it, unless JAX's own cache is already on
    (`JAX_COMPILATION_CACHE_DIR`) or off (`JAX_ENABLE_COMPILATION_CACHE=0`). If programs exceed 1 GiB, the next process
    deletes the least recently used.

    Args:
        folder: created if it does not exist. None: the folder of JAX's cache if it is on, otherwise `fedbandit_jax` in
            the user's cache folder (`XDG_CACHE_HOME`, by default `~/.cache`). Each kind of processor has its own
            subfolder, since programs may not run on another.

    Returns:
        The folder.

    Raises:
        ValueError, TypeError: it is not a writable folder; the message names it.

    Example:
        >>> import tempfile, fedbandit_jax as fb
        >>> fb.keep_programs(tempfile.mkdtemp()).is_dir()
        True
    """
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder is None and before:
        return Path(before)
    chosen = default_folder() if folder is None else validate.path("folder", folder)
    new = not chosen.exists()
    check_writable("folder", chosen)
    if new:
        print(f"compiled programs are kept in {chosen}, at most {MOST_BYTES >> 30} GiB", file=sys.stderr)
    _make_room(chosen)
    jax.config.update("jax_compilation_cache_dir", str(chosen))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    return chosen


def keep_by_default() -> None:
    """Calls `keep_programs()` unless JAX's cache is disabled. Prints one line if the folder is not writable."""
    if jax.config.jax_enable_compilation_cache and not _refused:  # pyright: ignore[reportAttributeAccessIssue]
        try:
            keep_programs()
        except ValueError as error:
            _refused.append(error)
            print(f"compiled programs are not kept: {error}", file=sys.stderr)


def _make_room(folder: Path) -> None:
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
    """Returns the folder for programs of this kind of processor, in the user's cache folder.

    With a size limit JAX expects a timestamp file for every program, so such a cache has a separate folder.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # required by the XDG standard
        home = os.path.expanduser("~") if os.environ.get("HOME", "~") else ""
        base = Path(home) / ".cache"
    if not base.is_absolute():
        raise BadValue("folder", "must be given, or XDG_CACHE_HOME set, if there is no home", None)
    limited = b"" if jax.config.jax_compilation_cache_max_size < 0 else b"limited"  # pyright: ignore[reportAttributeAccessIssue]
    return base / "fedbandit_jax" / hashlib.sha256(_processor() + limited).hexdigest()[:12]


def _processor() -> bytes:
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        lines = []
    instructions = next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
    return instructions + platform.machine().encode() + platform.processor().encode()
