"""Available memory, and errors before a run exceeds it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
import psutil

from fedbandit_jax.core.validate import BadValue

CGROUPS, MEMBER = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # limits of containers and jobs on Linux
SHARE = 0.8  # share of the memory that a run may use


def total() -> int:
    """Returns the bytes of memory of this machine, or of all its accelerators."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    if all("bytes_limit" in one for one in stats):
        return sum(one["bytes_limit"] for one in stats)
    return min([psutil.virtual_memory().total, *_limits()])


def _limits() -> Iterator[int]:
    """Yields the memory limits of this process's control groups (version 1 or 2), including outer ones."""
    try:
        groups = [line.split(":", 2) for line in MEMBER.read_text().splitlines()]
    except OSError:
        groups = []
    for _, kinds, path in groups:
        if kinds in ("", "memory"):
            root, name = (CGROUPS / kinds, "memory.limit_in_bytes") if kinds else (CGROUPS, "memory.max")
            inner = root / path.lstrip("/")
            for folder in (inner, *inner.parents[: len(inner.parts) - len(root.parts)]):
                with contextlib.suppress(OSError, ValueError):  # outer groups may be hidden; "max" is no limit
                    yield int((folder / name).read_text())


def limit() -> float:
    """Returns the bytes that a run may use."""
    return SHARE * total()


def check(name: str, value: int, size: float, what: str) -> None:
    """Raises `ValueError` if `size` bytes, needed for `what`, exceed the memory limit."""
    if size > limit():
        must = f"must be such that {what} fits into {shown(limit())} of memory"
        raise BadValue(name, must, value, got=f"{value:,}, which needs {shown(size)}")


def shown(size: float) -> str:
    """Formats bytes, such as '3 GiB'."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:,.3g} {name}" if size < 1000 * unit else f"{size / unit:,.0f} {name}"
    return f"{size / 2**10:,.3g} KiB"
