"""Files of arrays and a JSON text that are read back as they were written, or not at all.

Such a file is an npz archive, which `np.load` opens too. It ends in a seal, which is the comment of the archive: what
the file is, and the SHA-256 digest of all bytes before the digest. `head -c -64 FILE | sha256sum` prints what
`tail -c 64 FILE` must be. A flipped bit, a missing end or an added byte is found before anything else is read. That is
a guard against accidents, not against people, who can seal what they have changed.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedbandit_jax.core.files.atomic import write_atomic

_DIGITS = 64  # of a SHA-256 digest, in hexadecimal


def write(
    path: Path,
    kind: str,
    about: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    compress: bool = True,
    before: Path | None = None,
) -> None:
    """Writes a sealed file, complete or not at all.

    Args:
        path: the file, in a folder that exists; one that is there already is replaced.
        kind: what the file is, in one word, which `read` must be told.
        about: what JSON can hold, or NumPy numbers; it becomes the text `kind`.json in the archive.
        arrays: name -> array, none of which holds Python objects.
        compress: whether the file is to be small rather than quickly written.
        before: where the file goes that is there already; None: nowhere.
    """
    text = json.dumps(about, indent=1, default=_plain).encode()  # Infinity and NaN are written as such

    def content(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)
            with archive.open(f"{kind}.json", "w") as part:
                part.write(text)
            if archive.namelist() != [*(f"{name}.npy" for name in arrays), f"{kind}.json"]:
                raise ValueError(f"names of arrays must be such as a zip archive can hold, got {list(arrays)}")
            archive.comment = _seal(kind) + b"0" * _DIGITS
        digest = _digest(file)
        file.seek(-_DIGITS, os.SEEK_END)
        file.write(digest)

    write_atomic(path, content, before=before)


def read(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The text of a file, parsed, and its arrays, after its seal was found intact.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is not sealed as a file of this kind, or has changed since it was written; the message is a
            clause such as "it is empty", to which the caller adds which file, and what to do.
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
        file.seek(0)
        return _contents(file, kind)


def _contents(file: IO[bytes], kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        arrays = {}
        with zipfile.ZipFile(file) as archive:
            about = json.loads(archive.read(f"{kind}.json"))
            if not isinstance(about, dict):
                raise ValueError("its text is no dictionary")
            names = archive.namelist()
            names.remove(f"{kind}.json")
            for name in names:
                with archive.open(name) as part:
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(part, allow_pickle=False)
    except Exception as error:  # whoever sealed this did not use `write`, and may have sealed anything
        raise ValueError(f"it is sealed, but is no archive of arrays and {kind}.json ({error})") from error
    return about, arrays


def _seal(kind: str) -> bytes:
    return f"fedbandit_jax {kind}; SHA-256 of all before: ".encode()


def _digest(file: IO[bytes]) -> bytes:
    """Returns the digest of all but the last 64 bytes, in hexadecimal digits."""
    left = file.seek(0, os.SEEK_END) - _DIGITS
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(min(left, 1 << 20)):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest().encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"what is saved must be numbers, texts, lists and dictionaries, got {value!r}")
