"""How much memory there is, and refusals before more than that is taken."""

from __future__ import annotations

from pathlib import Path

import jax
import psutil

LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container or a job, on Linux
SHARE = 0.8  # of the memory that a run may take


def total() -> int:
    """The bytes of memory of the devices that runs share: of this machine, or of all its accelerators."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    if all("bytes_limit" in one for one in stats):
        return sum(one["bytes_limit"] for one in stats)
    try:
        limit = int(LIMIT.read_text())
    except (OSError, ValueError):  # there is none
        limit = psutil.virtual_memory().total
    return min(limit, psutil.virtual_memory().total)


def free() -> float:
    """The bytes that a run may take."""
    return SHARE * total()


def check(name: str, value: int, size: float, what: str) -> None:
    """Raises a ValueError, naming the argument and its value, unless so many bytes are there; `what` takes them."""
    if size > free():
        raise ValueError(
            f"{name} must be such that {what} fits into {shown(free())} of memory, got {value:,}, for which it takes "
            f"{shown(size)}"
        )


def shown(size: float) -> str:
    """Bytes in words, such as '3 GiB'."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:,.3g} {name}" if size < 1000 * unit else f"{size / unit:,.0f} {name}"
    return f"{size / 2**10:,.3g} KiB"
