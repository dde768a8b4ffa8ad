"""Writes files that are either complete or absent."""

import glob
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def check_writable(name: str, folder: Path) -> None:
    """Creates `folder` if it is missing, and checks that a file can be written there before anything expensive starts.

    Raises:
        ValueError: that is impossible; the message calls the folder `name`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{name} must be a folder that can be written to, got {str(folder)!r}: {error.strerror}"
        ) from error


def write_atomic(path: Path, write: Callable[[IO[bytes]], object], *, before: Path | None = None) -> None:
    """Writes a file beside `path`, then moves it into place: a crash or a full disk leaves the old file or none.

    Several processes, on several machines, may write one path: the file of the last one stays, and is whole.

    Args:
        path: the file, in a folder that exists.
        write: writes the content to the open binary file that it is given, which it may also read.
        before: where the file goes that was at `path` until the new one is whole; None: it is lost. After a crash
            between the two moves it is there, and none is at `path`.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # process ids occur on many machines
    try:
        with open(temporary, "x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if before is not None and path.exists():
            os.replace(path, before)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file it is about
        raise


def remove_unfinished(path: Path) -> None:
    """Removes what killed processes have left of writing `path`, which nobody may be writing now."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        temporary.unlink(missing_ok=True)
