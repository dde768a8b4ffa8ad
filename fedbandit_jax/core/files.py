"""Files that are either complete or absent."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def check_writable(name: str, folder: Path) -> None:
    """Make `folder` and prove that a file can be written there, before anything expensive starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{name} must be a folder that can be written to, got {str(folder)!r}: {error.strerror}"
        ) from error


def write_atomic(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write beside `path`, then move into place: a crash or a full disk leaves the old file or none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
