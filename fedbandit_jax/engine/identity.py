"""The salt of privacy noise: a digest of all that runs, so that no two configurations share their noise.

Configurations under one key see the same users, the same reward noise and the same random choices. If they drew the
same privacy noise too, the difference of what two of them release would show raw sums. So the streams of privacy noise
are set apart by two words that follow from the environment and the bound algorithm, i.e. from all numbers and programs
that a run depends on. The same configuration has the same words, and so the same noise, wherever it runs: alone, or
anywhere in a sweep. (Under two horizons the same bound algorithm draws the same noise, but one run is then the
beginning of the other, and releases the very same.)
"""

from __future__ import annotations

import dataclasses
import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.engine.provenance import nameless, written

PLAIN = (bool, int, float, complex, str, type(None))


def digest(part: Any) -> bytes:
    """Returns a digest of an environment or a bound algorithm, on the host, the same in every process.

    It covers every number as the device holds it, every static field and the names of all classes; of classes that are
    not the package's own also their code, since somebody may write another one under the same name.
    """
    found = hashlib.sha256()
    for piece in _pieces(part):
        found.update(len(piece).to_bytes(8, "big") + piece)
    for account in written(jax.tree.structure(part), own=True):
        found.update(account.encode())
    return found.digest()


def salt(env: bytes, algo: bytes) -> tuple[np.uint32, ...]:
    """Returns two words that differ for different digests, up to an accident of probability 2^-64."""
    words = hashlib.sha256(env + algo).digest()[:8]
    return tuple(np.frombuffer(words, ">u4").astype(np.uint32))


def _pieces(value: Any, static: bool = False) -> Iterator[bytes]:
    """Yields bytes that two values have in common only if they are of equal classes with equal contents.

    A number that is not `static` is taken in the precision of the device, so that the last digits of what was computed
    on the host do not matter.
    """
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield str(value.dtype).encode()
        value = jax.random.key_data(value)
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) or (isinstance(value, (float, complex)) and not static):
        value = np.asarray(value)
    cls = type(value)
    yield f"{cls.__module__}.{cls.__qualname__}".encode()
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, PLAIN):
        yield repr(value).encode()
    elif isinstance(value, (type, types.FunctionType)):
        yield f"{value.__module__}.{value.__qualname__}".encode()
    elif isinstance(value, np.ndarray):
        with np.errstate(over="ignore"):
            held = value if static else value.astype(jnp.result_type(value))
        yield f"{held.dtype} {held.shape}".encode()
        yield held.tobytes()
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield field.name.encode()
            yield from _pieces(getattr(value, field.name), static or bool(field.metadata.get("static")))
    elif isinstance(value, Mapping):
        for name in sorted(value, key=repr):
            yield from _pieces(name, True)
            yield from _pieces(value[name], static)
    elif isinstance(value, (set, frozenset)):
        yield from sorted(b"".join(_pieces(part, static)) for part in value)
    elif isinstance(value, (tuple, list)):
        yield str(len(value)).encode()
        for part in value:
            yield from _pieces(part, static)
    else:
        leaves, structure = jax.tree.flatten(value)
        if jax.tree_util.treedef_is_leaf(structure):
            yield nameless(repr(value)).encode()
        else:
            yield nameless(str(structure)).encode()
            yield from _pieces(leaves, static)
