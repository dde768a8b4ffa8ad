"""The size of memory, and refusals before more than that is taken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
import psutil

from fedbandit_jax.core.validate import BadValue

CGROUPS, MEMBER = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # limits of containers and jobs, on Linux
LARGEST = 2**63  # bytes
SHARE = 0.8  # of the memory that a run may take


def total() -> int:
    """The bytes of memory of the devices that runs share: of this machine, or of all its accelerators."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    if all("bytes_limit" in one for one in stats):
        return sum(one["bytes_limit"] for one in stats)
    return min(psutil.virtual_memory().total, *_limits())


def _limits() -> Iterator[int]:
    """The memory limits of the control groups (version 1 or 2) that this process is in, and of those around them."""
    yield LARGEST
    try:
        groups = [line.split(":", 2) for line in MEMBER.read_text().splitlines()]
    except OSError:
        groups = []
    for _, kinds, path in groups:
        if kinds in ("", "memory"):
            root, name = (CGROUPS / kinds, "memory.limit_in_bytes") if kinds else (CGROUPS, "memory.max")
            inner = root / path.lstrip("/")
            for folder in (inner, *inner.parents[: len(inner.parts) - len(root.parts)]):
                with contextlib.suppress(OSError, ValueError):  # a container sees its own alone; "max" is no limit
                    yield int((folder / name).read_text())


def limit() -> float:
    """The bytes that a run may take."""
    return SHARE * total()


def check(name: str, value: int, size: float, what: str) -> None:
    """Raises a ValueError, naming the argument and its value, unless so many bytes are there; `what` takes them."""
    if size > limit():
        raise BadValue(
            name,
            f"must be such that {what} fits into {shown(limit())} of memory",
            value,
            got=f"{value:,}, for which it takes {shown(size)}",
        )


def shown(size: float) -> str:
    """Bytes in words, such as '3 GiB'."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:,.3g} {name}" if size < 1000 * unit else f"{size / unit:,.0f} {name}"
    return f"{size / 2**10:,.3g} KiB"
