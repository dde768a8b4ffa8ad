"""Atomic writes, archives sealed by a digest, and locks between processes.

A sealed archive is an npz file, readable by `np.load`. Its zip comment names its kind and ends with the SHA-256 digest
of all bytes before. So `head -c -64 FILE | sha256sum` prints `tail -c 64 FILE`. This protects against accidents, not
against people, who can seal their changes.
"""

import contextlib
import glob
import hashlib
import json
import math
import os
import platform
import secrets
import struct
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedbandit_jax.core.validate import BadType, BadValue

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

WORDS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}  # floats that JSON lacks
_DIGITS = 64  # hexadecimal digits of SHA-256
MARK = "made by fedbandit_jax"  # near the beginning or the end of every file of this package
_SEALED = "; SHA-256 of all before: "
_NEAR, _FAR = 1 << 11, 1 << 16  # bytes at the beginning and the end searched for the mark
_EXTRA = struct.pack("<HH", 0xFEDB, len(MARK)) + MARK.encode()  # a zip field that other readers skip
_MOST, _DENSEST = 1 << 30, 100  # refuse archives that unpack to more bytes, and to more times their size
LOCK = ".fedbandit-lock"  # suffix of lock files
_OWNER = b'{"process": '  # prefix of a lock's text


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


def check_free(name: str, *paths: Path) -> None:
    """Checks that each path is free, or holds a file of this package.

    Raises:
        ValueError: there is a file of another tool, a folder or a symbolic link.
    """
    for path in paths:
        if not os.path.lexists(path) or is_ours(path):
            continue
        kinds = {"a symbolic link": path.is_symlink, "a folder": path.is_dir, "a file of another tool": path.is_file}
        what = next((words for words, fits in kinds.items() if fits()), "a device or a pipe")
        raise BadValue(name, "must be free, or an older file of fedbandit_jax", path, got=f"{str(path)!r}, {what}")


def is_ours(path: Path) -> bool:
    """Returns whether this is an empty file, or one that bears this package's mark in its own place.

    A page or an archive of another tool that contains one of our files is not ours.
    """
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(_NEAR)
        file.seek(-min(_FAR, file.seek(0, os.SEEK_END)), os.SEEK_END)
        end = file.read()
    if start[:4] == b"PK\3\4":  # the mark in the first entry survives truncation
        name, extra = struct.unpack("<HH", start[26:30].ljust(4, b"\0"))
        return _EXTRA in start[30 + name :][:extra] or _SEALED.encode() in end[-2 * _DIGITS :]
    return not start or MARK.encode() in (start + end if start[:4] == b"%PDF" else start)


def write_atomic(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a file next to `path` and moves it there. A crash or a full disk leaves the old file or none.

    Several processes and machines may write one path. The last file stays, and is complete.

    Args:
        path: the file, in an existing folder.
        write: writes the content to an open binary file, which it may also read. The content must have `MARK` near
            its beginning or its end, which identifies our files.

    Raises:
        ValueError: `path` holds something else than a file of this package.
    """
    check_free("path", path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # unique across machines
    try:
        with open(temporary, "x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        check_free("path", path)  # it may have appeared meanwhile
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # the error names no file, or the temporary one
        raise


def remove_unfinished(path: Path) -> None:
    """Removes temporary files of `path` left by killed processes; nobody may be writing it now."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        if is_ours(temporary):
            temporary.unlink(missing_ok=True)


def write_archive(
    path: Path,
    kind: str,
    about: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    compress: bool = True,
) -> None:
    """Writes a sealed archive, complete or not at all.

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
            for i, (name, array) in enumerate(arrays.items()):
                info = entry(f"{name}.npy")
                info.extra = _EXTRA if i == 0 else b""  # marks truncated files too
                with archive.open(info, "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)
            archive.writestr(entry(f"{kind}.json"), text)
            if archive.namelist() != [*(f"{name}.npy" for name in arrays), f"{kind}.json"]:
                raise BadValue("names of arrays", "must be valid in a zip archive", list(arrays))
            archive.comment = _seal(kind) + b"0" * _DIGITS
        digest = _digest(file)
        file.seek(-_DIGITS, os.SEEK_END)
        file.write(digest)

    write_atomic(path, content)


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the parsed text and the arrays of a sealed archive, after checking its seal.

    Raises:
        OSError: the file does not exist, or is unreadable.
        ValueError: it is not a sealed file of this kind, or is damaged. The message is a clause such as "it is empty".
            The caller adds the file and a remedy.
    """
    seal = _seal(kind)
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(seal) - _DIGITS))
        if not size:
            raise ValueError("it is empty")
        if file.read(len(seal)) != seal:
            raise ValueError(f"it does not end like a {kind} of fedbandit_jax: cut short, damaged, or another file")
        if file.read() != _digest(file):
            raise ValueError("it was damaged after it was written, as its SHA-256 digest shows")
        try:
            with zipfile.ZipFile(file) as archive:
                whole = sum(part.file_size for part in archive.infolist())
                if whole > max(_MOST, _DENSEST * size):
                    raise ValueError(f"{size:,} bytes would become {whole:,}")
                about = from_json(json.loads(archive.read(f"{kind}.json")))
                if not isinstance(about, dict):
                    raise ValueError("its text is no dictionary")
                arrays = {}
                for name in archive.namelist():
                    if name == f"{kind}.json":
                        continue
                    with archive.open(name) as part:
                        arrays[name.removesuffix(".npy")] = np.lib.format.read_array(part, allow_pickle=False)
        except Exception as error:  # a sealed file may hold anything
            raise ValueError(f"it is sealed, but is no archive of arrays and {kind}.json ({error})") from error
    return about, arrays


def _seal(kind: str) -> bytes:
    return f"fedbandit_jax {kind}{_SEALED}".encode()


def _digest(file: IO[bytes]) -> bytes:
    """Returns the hexadecimal digest of all but the last 64 bytes."""
    left = file.seek(0, os.SEEK_END) - _DIGITS
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(min(left, 1 << 20)):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest().encode()


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
def locked(path: Path, what: str, *, otherwise: str) -> Iterator[None]:
    """Holds the lock file `path` during the block, against other processes and threads.

    The file names its owner. The kernel holds the lock while the owner lives, and afterwards it is taken over. If the
    owner is on another machine, or the file system has no locks, the file must be deleted by hand. Without locks, two
    processes that start at the same moment may both enter. Files of other tools are left alone.

    Args:
        path: the file, which ends in `LOCK`, in a writable folder; it is removed at the end.
        what: beginning of the error message, for instance "checkpoint must be free, got 'run'".
        otherwise: end of the message, what to do instead of waiting.

    Raises:
        ValueError: the lock is held; the message names process, host and start. Or `path` is a link, a folder or a
            file of another tool.
    """
    while True:
        with _opened(path, what, otherwise) as file:
            _check_owner(path, file, what, otherwise)
            try:
                if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    continue
            except FileNotFoundError:  # its owner removed it after the opening
                continue
            file.truncate(0)
            owner = {"process": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            with contextlib.suppress(OSError):  # on a full disk the lock stays anonymous
                os.write(file.fileno(), json.dumps(owner).encode())
            try:
                yield
            finally:
                file.truncate(0)
                with contextlib.suppress(OSError):  # Windows does not remove open files
                    path.unlink()
            return


def _opened(path: Path, what: str, otherwise: str) -> IO[str]:
    """Opens or creates a lock file without following symbolic links."""
    try:
        if path.is_symlink():  # for systems without O_NOFOLLOW
            raise FileExistsError
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(path, flags, 0o666), "r+")
        start = os.read(file.fileno(), len(_OWNER)) if path.is_file() else b"no file"
        if start == _OWNER[: len(start)]:
            return file
        file.close()
    except OSError:
        if not (path.is_symlink() or path.is_dir()):
            raise
    raise ValueError(f"{what}, and {str(path)!r} is no lock of fedbandit_jax: move it, or {otherwise}")


def _check_owner(path: Path, file: IO[str], what: str, otherwise: str) -> None:
    """Locks an open file; raises `ValueError` if another process holds it, or may hold it."""
    held = None  # unknown, without locks
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = False
        except BlockingIOError:
            held = True
        except OSError:  # the file system has no locks
            pass
    file.seek(0)
    try:
        owner = json.loads(file.read())
    except ValueError:  # empty or torn
        owner = None
    if held or (owner and (held is None or owner["host"] != platform.node())):
        who = "process {process} on {host}, since {since}".format(**owner) if owner else "another process"
        wait = "wait until it ends" if held else f"make sure that it has ended and delete {str(path)!r}"
        raise ValueError(f"{what}, which is being written by {who}: {wait}, or {otherwise}")
