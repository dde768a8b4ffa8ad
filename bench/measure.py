"""Common parts of all benchmarks: timing in turns, counting compilations, verdicts, and one shape of output.

Every script prints JSON of one shape if it is asked to, {"machine": {...}, "rows": [...], "ratios": {...}}. `machine`
says when and on what it was measured. A row is one measured thing: a flat object of names and numbers. `ratios` maps a
name to what `verdict` returns: a value, the target that it is held against, and whether the target is met.

Implementations that are compared take turns, so that drift of the machine affects all of them. Compilation is timed
apart, and a timed run that compiles is an error.
"""

from __future__ import annotations

import datetime
import json as json_format
import os
import resource
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import jax
import numpy as np
import tyro

Row = dict[str, Any]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]  # an option without a value, such as --json
Name = TypeVar("Name", bound=Hashable)

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MAX_Z = 4.5  # most standard errors between the regret of two implementations
TINY = 1e-3  # numbers below it are printed with an exponent


class Compilations:
    """Counts the programs that XLA compiles in this process."""

    def __init__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"


class Times(NamedTuple):
    """The seconds of the timed runs of one thing, by turn, and their results."""

    wall: np.ndarray  # (turns,) by the wall-clock
    processors: np.ndarray  # (turns,) of all processors together, with those of child processes
    compiling: float  # by how much the first run, which is not timed, took longer than the median
    results: list[Any]

    @property
    def cores(self) -> float:
        """The number of busy cores; the implementation's own doing, unless something else was running."""
        return float(self.processors.sum() / self.wall.sum())

    def each(self, work: float) -> Times:
        """Returns the times of one of `work` equal pieces of a run."""
        return self._replace(wall=self.wall / work, processors=self.processors / work)


def clock() -> np.ndarray:
    """Returns seconds by the wall-clock and of all processors, for differences, (2,)."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return np.array([time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in used)])


def timed(run: Callable[[], Any]) -> tuple[np.ndarray, Any]:
    """Runs once; returns the seconds by the wall-clock and of all processors, (2,), and the result."""
    started = clock()
    result = jax.block_until_ready(run())
    return clock() - started, result


def in_turns(
    runs: Mapping[Name, Callable[[int], Any]], turns: int | Mapping[Name, int], compilations: Compilations
) -> dict[Name, Times]:
    """Calls every `run(0)` once, to compile, and then `run(1)`, `run(2)`, ... of all of them in turns.

    Args:
        runs: name -> what is timed, given the number of the turn.
        turns: how many timed runs all of them have, or each of them.
        compilations: a counter, to see that nothing is compiled in a timed run.

    Raises:
        RuntimeError: a program was compiled in a timed run.
    """
    asked = turns if isinstance(turns, Mapping) else dict.fromkeys(runs, turns)
    first = {name: timed(lambda run=run: run(0))[0][0] for name, run in runs.items()}
    before = compilations.count
    done: dict[Name, list[tuple[np.ndarray, Any]]] = {name: [] for name in runs}
    for turn in range(1, 1 + max(asked.values())):
        for name, run in runs.items():
            if turn <= asked[name]:
                done[name].append(timed(lambda run=run, turn=turn: run(turn)))
    if compilations.count > before:
        raise RuntimeError(f"{compilations.count - before} programs were compiled in timed runs")
    times = {}
    for name, found in done.items():
        wall, processors = np.array([seconds for seconds, _ in found]).T
        times[name] = Times(wall, processors, float(first[name] - np.median(wall)), [result for _, result in found])
    return times


def speed_over(ours: Times, theirs: Times) -> float:
    """Returns the speed of ours over theirs, the median of the ratios within a turn."""
    return float(np.median(theirs.wall / ours.wall))


def verdict(value: float | None, *, least: float | None = None, most: float | None = None, judged: bool = True) -> Row:
    """Returns a number beside the target it is held against.

    Args:
        value: what was measured, or None if that was not possible here.
        least, most: the target, a lower or an upper limit; neither if there is none.
        judged: False for numbers that mean nothing, as those of smoke runs.

    Returns:
        "value", "least", "most", and "met": None where there is no target or no value, or nothing is judged.
    """
    if value is None or not judged or (least is None and most is None):
        met = None
    else:
        met = (least is None or value >= least) and (most is None or value <= most)
    return {"value": value, "least": least, "most": most, "met": met}


def check_laws(rows: Sequence[Row]) -> None:
    """Ends the program unless all implementations play the same game, i.e. no `z` of a row is above `MAX_Z`."""
    if any(abs(row.get("z") or 0.0) > MAX_Z for row in rows):
        sys.exit("the implementations do not play the same game: see regret and z")


def machine() -> Row:
    """Returns the date, the machine, its load, and versions of packages."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "processor": _processor(),
        "cores": CORES,
        "load": round(os.getloadavg()[0], 1),
        **{package: version(package) for package in ("jax", "jaxlib", "numpy")},
    }


def _processor() -> str:
    """Returns the operating system's name of the processor, or "unknown"."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def output(title: str, rows: Sequence[Row], ratios: Mapping[str, Row], *, json: bool) -> None:
    """Prints measurements: as JSON only, or as a `report`."""
    found = {"machine": machine(), "rows": rows, "ratios": ratios}
    print(json_format.dumps(found, indent=1) if json else report(title, rows, ratios))


def report(title: str, rows: Sequence[Row], ratios: Mapping[str, Row]) -> str:
    """The title, the machine, tables and ratios, for a reader."""
    found = ", ".join(f"{name} {value}" for name, value in machine().items())
    return "\n\n".join(part for part in (f"{title}\n{found}", *tables(rows), verdicts(ratios)) if part)


def tables(rows: Sequence[Row]) -> list[str]:
    """Returns a table for every stretch of rows with the same columns."""
    tables: list[list[Row]] = []
    for row in rows:
        if not tables or list(tables[-1][0]) != list(row):
            tables.append([])
        tables[-1].append(row)
    return [table(part) for part in tables]


def table(rows: Sequence[Row]) -> str:
    """Returns rows with the same columns as text; columns of words are aligned to the left, others to the right."""
    columns = list(zip(*[[name.replace("_", " "), *map(shown, (row[name] for row in rows))] for name in rows[0]]))
    widths = [max(map(len, column)) for column in zip(*columns)]
    words = [any(isinstance(row[name], str) for row in rows) for name in rows[0]]
    place = [str.ljust if word else str.rjust for word in words]
    lines = ("  ".join(put(cell, width) for put, cell, width in zip(place, line, widths)) for line in columns)
    return "\n".join(line.rstrip() for line in lines)


def shown(value: Any) -> str:
    """Returns a cell of a table: numbers with three digits at least, and "-" for what there is not."""
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2g}" if 0 < abs(value) < TINY else f"{value:.{max(0, 2 - _digits(value))}f}"


def _digits(value: float) -> int:
    """Returns the decimal exponent of a number, which is 0 for 3.14 and for 0."""
    return int(np.floor(np.log10(abs(value)))) if value else 0


def verdicts(ratios: Mapping[str, Row]) -> str:
    """Returns the ratios as lines: value, target, whether it is met, and the cause of a miss if one is known."""
    width = max(map(len, ratios), default=0)
    lines = []
    for name, one in ratios.items():
        target = "" if one["least"] is None else f">= {one['least']:g}"
        target = target if one["most"] is None else f"<= {one['most']:g}"
        word = {None: "", True: "met", False: "NOT MET"}[one["met"]]
        why = f"{one['cause']}" if one.get("cause") else ""
        lines.append(f"{name:{width}}  {shown(one['value']):>9}  {target:>8}  {word:7}  {why}".rstrip())
    return "\n".join(lines)
