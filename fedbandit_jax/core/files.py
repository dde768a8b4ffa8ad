"""Atomic writes, archives of arrays with a text, and locks between processes.

An archive is an npz file, readable by `np.load`, with one more part, KIND.json. Zip's checksums protect every part
against accidents, not against people.
"""

import contextlib
import glob
import io
import json
import math
import os
import platform
import secrets
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedbandit_jax.core.validate import BadType, BadValue

WORDS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}  # floats that JSON lacks
_MOST, _DENSEST = 1 << 30, 100  # refuse archives that unpack to more bytes, and to more times their size


def check_writable(name: str, folder: Path) -> None:
    """Creates `folder` if it is missing, and checks that it is writable.

    Raises:
        ValueError: it is not; the message calls the folder `name`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadValue(name, "must be a writable folder", folder, got=f"{str(folder)!r}: {error.strerror}") from error


def write_atomic(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a file next to `path` and moves it there. A crash or a full disk leaves the old file or none.

    Several processes and machines may write one path. The last file stays, and is complete.

    Args:
        path: the file, in an existing folder; an old one is replaced.
        write: writes the content to an open binary file.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # unique across machines
    try:
        with open(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # the error names no file, or the temporary one
        raise


def remove_unfinished(path: Path) -> None:
    """Removes temporary files of `path` left by killed processes; nobody may be writing it now."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        temporary.unlink(missing_ok=True)


def write_archive(
    path: Path,
    kind: str,
    about: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    compress: bool = True,
) -> None:
    """Writes an archive, complete or not at all.

    Args:
        path: the file, in an existing folder; an old one is replaced.
        kind: one word for `read_archive` to check.
        about: JSON data, or NumPy numbers, written to `kind`.json in the archive.
        arrays: name -> array, without Python objects.
        compress: whether to trade time for size.
    """
    text = json.dumps(in_json(about), indent=1, allow_nan=False).encode()

    def content(file: IO[bytes]) -> None:
        def entry(name: str) -> zipfile.ZipInfo:  # without a time, so that equal contents are equal bytes
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            return info

        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(entry(f"{name}.npy"), "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)
            archive.writestr(entry(f"{kind}.json"), text)
            if archive.namelist() != [*(f"{name}.npy" for name in arrays), f"{kind}.json"]:
                raise BadValue("names of arrays", "must be valid in a zip archive", list(arrays))

    write_atomic(path, content)


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the parsed text and the arrays of an archive, after checking its checksums.

    Raises:
        OSError: the file does not exist, or is unreadable.
        ValueError: it is of another kind, or is damaged. The message is a clause; the caller names the file.
    """
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                size, whole = os.fstat(file.fileno()).st_size, sum(part.file_size for part in archive.infolist())
                if whole > max(_MOST, _DENSEST * size):
                    raise ValueError(f"{size:,} bytes would become {whole:,}")
                parts = {name: archive.read(name) for name in archive.namelist()}
            about = from_json(json.loads(parts.pop(f"{kind}.json")))
            if not isinstance(about, dict):
                raise ValueError("its text is no dictionary")
            return about, {
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(part), allow_pickle=False)
                for name, part in parts.items()
            }
        except Exception as error:  # a file may hold anything, and its unpacking raises OSError, too
            raise ValueError(f"it is damaged, or is no {kind} of fedbandit_jax ({error})") from error


def in_json(value: Any) -> Any:
    """Converts a value to JSON data: floats that JSON lacks become `WORDS`, and such strings get a backslash."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {key: in_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if _is_word(value):
        return f"\\{value}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise BadType("what is saved", "must be numbers, texts, lists and dictionaries", value)


def from_json(value: Any) -> Any:
    """Inverts `in_json`, except that tuples become lists."""
    if isinstance(value, Mapping):
        return {key: from_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [from_json(one) for one in value]
    if not _is_word(value):
        return value
    return WORDS[value] if value in WORDS else value[1:]


def _is_word(value: Any) -> bool:
    """Returns whether a string is one of `WORDS`, or one escaped by `in_json`."""
    return isinstance(value, str) and value.lstrip("\\") in WORDS


@contextlib.contextmanager
def locked(path: Path, name: str, value: str) -> Iterator[None]:
    """Holds the lock `path`.fedbandit-lock during the block, against other processes and threads.

    It ends with its process. File systems without locks let everybody in.

    Raises:
        ValueError: another run holds it; the message names the argument `name`, its value, and the process.
    """
    import fcntl  # which Windows lacks

    path = path.with_name(f"{path.name}.fedbandit-lock")
    with contextlib.ExitStack() as stack:
        while True:
            file = stack.enter_context(open(path, "a+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    break
            except FileNotFoundError:  # its owner removed it after the opening
                continue
            except BlockingIOError:
                file.seek(0)
                got = f"{value!r}, held by {file.read() or 'another process'}: wait until it ends"
                raise BadValue(name, "must be that of one run at a time", value, got=got) from None
            except OSError:  # no locks
                break
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
