"""A lock between processes: a file that names its owner, and that the kernel holds as long as the owner lives."""

import contextlib
import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has other locks
    fcntl = None


@contextlib.contextmanager
def locked(path: Path, what: str, *, otherwise: str) -> Iterator[None]:
    """Holds the lock file `path` while the block runs; nobody else gets in, in another process or another thread.

    When the owner has died, its lock is taken over. Only where that cannot be known, for it was on another machine, or
    the file system has no locks, the file must be deleted by hand.

    Args:
        path: the file, in a folder that can be written to; it is removed in the end.
        what: the beginning of the error message, for instance "checkpoint must be free, got 'run'".
        otherwise: what to do instead of waiting, the end of that message.

    Raises:
        ValueError: the lock is held; the message says by which process, on which host, and since when.
    """
    file = _take(path, what, otherwise)
    try:
        yield
    finally:
        file.truncate(0)
        with contextlib.suppress(OSError):  # some systems do not remove open files
            path.unlink()
        file.close()  # frees the lock


def _take(path: Path, what: str, otherwise: str) -> IO[str]:
    here = platform.node()
    while True:
        file = open(path, "a+")  # noqa: SIM115 - it stays open
        try:
            held = _held_by_another(file)
            file.seek(0)
            owner = _parsed(file.read())
            if held or (owner and (held is None or owner["host"] != here)):
                who = "process {process} on {host}, since {since}".format(**owner) if owner else "another process"
                wait = "wait until it ends" if held else f"make sure that it has ended and delete {str(path)!r}"
                raise ValueError(f"{what}, which is being written by {who}: {wait}, or {otherwise}")
            if _is_at(path, file):
                file.truncate(0)
                since = time.strftime("%Y-%m-%d %H:%M:%S")
                text = json.dumps({"process": os.getpid(), "host": here, "since": since})
                with contextlib.suppress(OSError):  # a full disk: then the lock has no name on it
                    os.write(file.fileno(), text.encode())
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # its owner removed it after it was opened here


def _held_by_another(file: IO[str]) -> bool | None:
    """Locks a file if nobody else has locked it, and returns whether somebody has; None if the system cannot tell."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system has no locks
        return None
    return False


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _parsed(text: str) -> dict[str, Any]:
    """The owner of a lock file: "process", "host" and "since"; nothing if it is empty or torn."""
    try:
        found = json.loads(text)
        return {name: found[name] for name in ("process", "host", "since")}
    except (ValueError, TypeError, KeyError):
        return {}
