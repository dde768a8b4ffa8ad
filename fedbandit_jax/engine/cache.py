"""Compiled programs that outlive the process, in JAX's own persistent cache."""

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

LEAST_SECONDS = 0.2  # programs that compile faster are not worth a file
MOST_BYTES = 2**30  # of a folder when a process begins
PROGRAM = f"*-{'[0-9a-f]' * 64}-cache"  # a file that JAX has written
_refused: list[ValueError] = []  # what was wrong with the default folder


def keep_programs(folder: str | Path | None = None) -> Path:
    """Keeps compiled programs in a folder from now on, so that the next process need not compile them again.

    `fb.simulate`, `fb.sweep` and the command line do this by themselves, unless JAX's own cache is on already
    (`JAX_COMPILATION_CACHE_DIR`) or off (`JAX_ENABLE_COMPILATION_CACHE=0`). Programs beyond 1 GiB, those that were read
    least recently, are deleted when the next process begins.

    Args:
        folder: where; it is made if it does not exist. None: where JAX's own cache is, if it is on; otherwise
            `fedbandit_jax` in the user's cache folder (`XDG_CACHE_HOME`, by default `~/.cache`), apart for every kind
            of processor, since programs for one may not run on another.

    Returns:
        The folder.

    Raises:
        ValueError, TypeError: it is no folder that can be written to; the message names it.

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
    """Does what `keep_programs()` does, unless JAX is to keep none; where nothing can be written, it says so once."""
    if jax.config.jax_enable_compilation_cache and not _refused:  # pyright: ignore[reportAttributeAccessIssue]
        try:
            keep_programs()
        except ValueError as error:
            _refused.append(error)
            print(f"compiled programs are not kept: {error}", file=sys.stderr)


def _make_room(folder: Path) -> None:
    found = []
    for path in folder.glob(PROGRAM):
        with contextlib.suppress(FileNotFoundError):  # another process deletes it as well
            found.append((path.stat().st_atime, path.stat().st_size, path))
    room = MOST_BYTES
    for _, size, path in sorted(found, reverse=True):
        room -= size
        if room < 0:
            with contextlib.suppress(OSError):  # that of another user, in a folder that many use
                path.unlink()


def default_folder() -> Path:
    """The folder for programs of this kind of processor, in the user's cache folder.

    If JAX's cache has a size limit, it gets a separate folder: JAX then expects a timestamp file beside every program.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # as the standard asks
        home = os.path.expanduser("~") if os.environ.get("HOME", "~") else ""
        base = Path(home) / ".cache"
    if not base.is_absolute():
        raise BadValue("folder", "must be given, or XDG_CACHE_HOME, where nobody has a home", None)
    limited = b"" if jax.config.jax_compilation_cache_max_size < 0 else b"limited"  # pyright: ignore[reportAttributeAccessIssue]
    return base / "fedbandit_jax" / hashlib.sha256(_processor() + limited).hexdigest()[:12]


def _processor() -> bytes:
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        lines = []
    instructions = next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
    return instructions + platform.machine().encode() + platform.processor().encode()
