"""Compiles and runs `reference.c`, the hand-written vectors of one agent-round, where there is a C compiler."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from measure import CORES

SOURCE = Path(__file__).with_name("reference.c")
COMPILERS = ("gcc", "clang", "cc")
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-Wno-psabi")


class Shape(NamedTuple):
    """The sizes for which the program is compiled."""

    n_agents: int  # M
    n_arms: int  # K
    dim: int  # d


@functools.cache
def compiled(shape: Shape) -> Path | None:
    """Returns the program for this shape, which is compiled once, or None if there is no compiler that can."""
    folder = Path(tempfile.mkdtemp(prefix="reference"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sizes = [f"-D{name.upper()}={size}" for name, size in shape._asdict().items()]
    for compiler in filter(shutil.which, COMPILERS):
        target = folder / "reference"
        command = [compiler, *sizes, *FLAGS, str(SOURCE), "-o", str(target), "-lm"]
        if subprocess.run(command, capture_output=True).returncode == 0:
            return target
    return None


def missing(shape: Shape) -> str:
    """Returns the sentence that says why nothing is compared with C, or nothing if the program is there."""
    if compiled(shape) is not None:
        return ""
    return f"The C reference was skipped: none of {', '.join(COMPILERS)} is there and compiles it."


def run(shape: Shape, mode: str, agent_rounds: int, seed: int, *, processes: int = CORES) -> list[dict[str, Any]]:
    """Plays so many agent-rounds, divided among processes that run at the same time; returns what each printed."""
    program = compiled(shape)
    if program is None:
        raise RuntimeError(missing(shape))
    share = str(max(1, agent_rounds // processes))
    commands = [[str(program), mode, share, str(seed * processes + i)] for i in range(processes)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"the C reference failed with exit codes {[process.returncode for process in started]}")
    return [json.loads(line) for line in printed]
