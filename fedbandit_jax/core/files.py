"""Writes files that are either complete or absent."""

import os
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


def write_atomic(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a file beside `path`, then moves it into place: a crash or a full disk leaves the old file or none.

    The folder of `path` must exist; `write` writes the content to the open binary file that it is given, which it may
    also read.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file it is about
        raise
