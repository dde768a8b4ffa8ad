"""Files that are complete or absent, archives sealed by a digest, and locks between processes.

A sealed archive is an npz file, which `np.load` opens too, whose zip comment says what it is and has the SHA-256 digest
of all bytes before the digest: `head -c -64 FILE | sha256sum` prints what `tail -c 64 FILE` must be. That guards
against accidents, not against people, who can seal what they have changed.
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
except ImportError:  # Windows has other locks
    fcntl = None

WORDS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}  # for what JSON has no numbers
_DIGITS = 64  # of a SHA-256 digest, in hexadecimal
MARK = "made by fedbandit_jax"  # near the beginning or the end of every file that this package writes
_SEALED = "; SHA-256 of all before: "
_NEAR, _FAR = 1 << 11, 1 << 16  # bytes at the beginning and at the end of a file where the mark may be
_EXTRA = struct.pack("<HH", 0xFEDB, len(MARK)) + MARK.encode()  # a field of a zip archive that other readers skip
_MOST, _DENSEST = 1 << 30, 100  # refuse archives that unpack to more bytes, and to more times their size
LOCK = ".fedbandit-lock"  # the ending of locks
_OWNER = b'{"process": '  # how the text of a lock begins


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
        raise BadValue(
            name, "must be a folder that can be written to", folder, got=f"{str(folder)!r}: {error.strerror}"
        ) from error


def check_free(name: str, *paths: Path) -> None:
    """Checks that files can be written at these paths: nothing is there, or a file that this package has written.

    Raises:
        ValueError: a file of another tool, a folder or a symbolic link is there.
    """
    for path in paths:
        if not os.path.lexists(path) or is_ours(path):
            continue
        kinds = {"a symbolic link": path.is_symlink, "a folder": path.is_dir, "a file of another tool": path.is_file}
        what = next((words for words, fits in kinds.items() if fits()), "a device or a pipe")
        raise BadValue(name, "must be free, or an older file of fedbandit_jax", path, got=f"{str(path)!r}, {what}")


def is_ours(path: Path) -> bool:
    """Whether this is a file that this package has written, which then says so at its own place, or an empty file.

    A page or an archive of somebody else's in which one of ours stands is not ours.
    """
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(_NEAR)
        file.seek(-min(_FAR, file.seek(0, os.SEEK_END)), os.SEEK_END)
        end = file.read()
    if start[:4] == b"PK\3\4":  # the first entry of an archive has the mark, also if the end is missing
        name, extra = struct.unpack("<HH", start[26:30].ljust(4, b"\0"))
        return _EXTRA in start[30 + name :][:extra] or _SEALED.encode() in end[-2 * _DIGITS :]
    if start[:4] == b"%PDF":
        return MARK.encode() in start + end
    return not start or MARK.encode() in start or _SEALED.encode() in end[-2 * _DIGITS :]


def write_atomic(path: Path, write: Callable[[IO[bytes]], object], *, before: Path | None = None) -> None:
    """Writes a file beside `path`, then moves it into place: a crash or a full disk leaves the old file or none.

    Several processes, on several machines, may write one path: the file of the last one stays, and is whole.

    Args:
        path: the file, in a folder that exists.
        write: writes the content to an open binary file, which it may also read. The content must have `MARK`
            near its beginning or its end, by which the file is known to be ours.
        before: where the file at `path` is moved until the new one is whole; None: it is lost. After a crash between
            the two moves it is there, and none is at `path`.

    Raises:
        ValueError: something that this package has not written is at one of these paths.
    """
    check_free("path", path, *([] if before is None else [before]))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # process ids occur on many machines
    try:
        with open(temporary, "x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if before is not None and path.exists():
            os.replace(path, before)
        try:
            os.link(temporary, path)  # fails where there is a file by now
        except OSError:  # or where there are no links
            check_free("path", path)
            os.replace(temporary, path)
        else:
            temporary.unlink()
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # a full disk does not say which file it is about, a folder names a hidden one
        raise


def remove_unfinished(path: Path) -> None:
    """Removes unfinished copies of `path` by killed processes; nobody may be writing it now."""
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
    before: Path | None = None,
) -> None:
    """Writes a sealed archive, complete or not at all.

    Args:
        path: the file, in a folder that exists; one that is there already is replaced.
        kind: of the file, in one word, which `read_archive` must be told.
        about: what JSON can hold, or NumPy numbers; it becomes the text `kind`.json in the archive.
        arrays: name -> array, none of which holds Python objects.
        compress: whether the file is to be small rather than quickly written.
        before: as in `write_atomic`.
    """
    text = json.dumps(in_json(about), indent=1, allow_nan=False).encode()

    def content(file: IO[bytes]) -> None:
        def entry(name: str) -> zipfile.ZipInfo:  # without the time of day, so that equal contents are equal bytes
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            return info

        with zipfile.ZipFile(file, "w") as archive:
            for i, (name, array) in enumerate(arrays.items()):
                info = entry(f"{name}.npy")
                info.extra = _EXTRA if i == 0 else b""  # so that one that is cut short is ours, too
                with archive.open(info, "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)
            archive.writestr(entry(f"{kind}.json"), text)
            if archive.namelist() != [*(f"{name}.npy" for name in arrays), f"{kind}.json"]:
                raise BadValue("names of arrays", "must be such as a zip archive can hold", list(arrays))
            archive.comment = _seal(kind) + b"0" * _DIGITS
        digest = _digest(file)
        file.seek(-_DIGITS, os.SEEK_END)
        file.write(digest)

    write_atomic(path, content, before=before)


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The parsed text and the arrays of a sealed archive, once its seal was found intact.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is not sealed as a file of this kind, or has changed since; the message is a clause such as "it
            is empty", to which the caller adds which file, and what to do.
    """
    seal = _seal(kind)
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(seal) - _DIGITS))
        if not size:
            raise ValueError("it is empty")
        if file.read(len(seal)) != seal:
            raise ValueError(f"it does not end as a {kind} ends that fedbandit_jax has written: it was cut short or "
                             "damaged, or is something else")  # fmt: skip
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
        except Exception as error:  # whoever sealed this may have sealed anything
            raise ValueError(f"it is sealed, but is no archive of arrays and {kind}.json ({error})") from error
    return about, arrays


def _seal(kind: str) -> bytes:
    return f"fedbandit_jax {kind}{_SEALED}".encode()


def _digest(file: IO[bytes]) -> bytes:
    """The digest of all but the last 64 bytes, in hexadecimal digits."""
    left = file.seek(0, os.SEEK_END) - _DIGITS
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(min(left, 1 << 20)):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest().encode()


def in_json(value: Any) -> Any:
    """A value as JSON can hold it: numbers that it lacks become `WORDS`, and a text that is one gets a backslash."""
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
    """The inverse of `in_json`, but that tuples become lists."""
    if isinstance(value, Mapping):
        return {key: from_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [from_json(one) for one in value]
    if not _is_word(value):
        return value
    return WORDS[value] if value in WORDS else value[1:]


def _is_word(value: Any) -> bool:
    """Whether a text is one of `WORDS`, or such a text as `in_json` writes it."""
    return isinstance(value, str) and value.lstrip("\\") in WORDS


@contextlib.contextmanager
def locked(path: Path, what: str, *, otherwise: str) -> Iterator[None]:
    """Holds the lock file `path` while the block runs; nobody else gets in, in another process or another thread.

    The file names its owner, and the kernel holds it as long as the owner lives, after whose death the lock is taken
    over. Only where that cannot be known (the owner is on another machine, or the file system has no locks) the file
    must be deleted by hand. A file of another tool is left as it is. Where the file system has no locks, two that
    begin at the same moment may both get in.

    Args:
        path: the file, which ends in `LOCK`, in a folder that can be written to; it is removed in the end.
        what: the beginning of the error message, for instance "checkpoint must be free, got 'run'".
        otherwise: what to do instead of waiting, the end of that message.

    Raises:
        ValueError: the lock is held; the message says by which process, on which host, and since when. Or no lock is
            at `path`, but a link, a folder or the file of another tool.
    """
    while True:
        with _opened(path, what, otherwise) as file:
            if not _take(path, file, what, otherwise):
                continue  # its owner removed it after it was opened here
            try:
                yield
            finally:
                file.truncate(0)
                with contextlib.suppress(OSError):  # some systems do not remove open files
                    path.unlink()
            return


def _opened(path: Path, what: str, otherwise: str) -> IO[str]:
    """Opens a lock file, or makes an empty one, but follows no symbolic link."""
    in_the_way = ValueError(f"{what}, and {str(path)!r} is no lock of fedbandit_jax: move it, or {otherwise}")
    if path.is_symlink():  # where the system cannot refuse one
        raise in_the_way
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(path, flags, 0o666), "r+")
    except OSError as error:
        if path.is_symlink() or path.is_dir():
            raise in_the_way from error
        raise
    start = os.read(file.fileno(), len(_OWNER)) if path.is_file() else b"no file"
    if start != _OWNER[: len(start)]:
        file.close()
        raise in_the_way
    return file


def _take(path: Path, file: IO[str], what: str, otherwise: str) -> bool:
    """Takes an open lock file, if it is still the one at `path`."""
    held, here = _held_by_another(file), platform.node()
    file.seek(0)
    owner = _parsed(file.read())
    if held or (owner and (held is None or owner["host"] != here)):
        who = "process {process} on {host}, since {since}".format(**owner) if owner else "another process"
        wait = "wait until it ends" if held else f"make sure that it has ended and delete {str(path)!r}"
        raise ValueError(f"{what}, which is being written by {who}: {wait}, or {otherwise}")
    try:
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return False
    except FileNotFoundError:
        return False
    file.truncate(0)
    text = json.dumps({"process": os.getpid(), "host": here, "since": time.strftime("%Y-%m-%d %H:%M:%S")})
    with contextlib.suppress(OSError):  # a full disk: then the lock has no name on it
        os.write(file.fileno(), text.encode())
    return True


def _held_by_another(file: IO[str]) -> bool | None:
    """Locks a file unless somebody else has; None if the system cannot tell."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system has no locks
        return None
    return False


def _parsed(text: str) -> dict[str, Any]:
    """The "process", "host" and "since" of a lock's owner; nothing if the file is empty or torn."""
    try:
        found = json.loads(text)
        return {name: found[name] for name in ("process", "host", "since")}
    except (ValueError, TypeError, KeyError):
        return {}
