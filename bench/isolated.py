"""Plays workloads in processes of their own: with several host devices, on one core, or with a peak of memory.

    with Worker(devices=2) as worker:
        worker.play("FedUCB", seed=0)

starts Python with this file, which reads one line of JSON for every run and answers with one. The compilation cache of
such a process is empty, and nobody else's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self


class Played(NamedTuple):
    """The measurements of a run in another process."""

    wall: float  # seconds
    processors: float  # seconds of all processors together
    compiled: int  # programs that were compiled
    peak: float  # largest resident memory of the process so far, in MB
    resident: float  # resident memory after the run, in MB
    process: float  # seconds of all processors since the process began, with its imports
    regret: float  # mean over seeds


def environment(cache: str, devices: int = 1) -> dict[str, str]:
    """Returns the variables of a process with so many host devices, whose caches are in this folder."""
    own = {"JAX_NUM_CPU_DEVICES": str(devices), "XDG_CACHE_HOME": cache, "JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return {**kept, **own}


class Worker:
    """A process that plays workloads, one at a time."""

    def __init__(self, *, devices: int = 1, cores: int | None = None):
        self._cache = tempfile.TemporaryDirectory(prefix="bench")
        self._process = subprocess.Popen(
            [sys.executable, __file__, *([str(cores)] if cores else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(self._cache.name, devices),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.communicate()  # ends its input
        self._cache.cleanup()

    def play(self, family: str, seed: int, **options: Any) -> Played:
        """Runs a family once; options are those of `workloads.play`."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps({"family": family, "seed": seed, **options}) + "\n")
        asked.flush()
        answer = answers.readline()
        if not answer:
            raise RuntimeError(f"the process that played {family} ended with exit code {self._process.wait()}")
        return Played(**json.loads(answer))


def resident() -> tuple[float, float]:
    """Returns the resident memory of this process, its peak and at present, in MB; NaN where Linux does not say it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines)
             if name in ("VmHWM", "VmRSS")}  # fmt: skip
    return found.get("VmHWM", float("nan")), found.get("VmRSS", float("nan"))


def main() -> None:
    """Answers the lines of standard input until it ends."""
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
    answers, sys.stdout = sys.stdout, sys.stderr  # so that nothing else is taken for an answer
    import measure  # after the affinity is set, since JAX counts the cores
    import workloads

    compilations = measure.Compilations()
    for line in sys.stdin:
        options = json.loads(line)
        size = workloads.Size(**options.pop("size", {}))
        before = compilations.count
        (wall, processors), regret = measure.timed(lambda o=options, size=size: workloads.play(**o, size=size))
        played = Played(
            wall=float(wall),
            processors=float(processors),
            compiled=compilations.count - before,
            peak=resident()[0],
            resident=resident()[1],
            process=time.process_time(),
            regret=float(regret.mean()),
        )
        print(json.dumps(played._asdict()), file=answers, flush=True)


if __name__ == "__main__":
    main()
