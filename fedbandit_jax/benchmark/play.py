"""`run` plays an entry in the tasks of the benchmark."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedbandit_jax.benchmark.entry import TRACKS, Entry
from fedbandit_jax.benchmark.row import Cell, Row
from fedbandit_jax.benchmark.suite import TASKS
from fedbandit_jax.benchmark.task import SEEDS, Task
from fedbandit_jax.core import bars, struct, validate
from fedbandit_jax.core.files import check_writable, locked
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.engine import identity
from fedbandit_jax.engine.simulation import sweep
from fedbandit_jax.interfaces import Algorithm, ArrivalAlgorithm

DEVELOPMENT = "development"  # nonce and entry of the development seeds
ENTRY, CHANCE, REFERENCE = "entry", "uniform play", "reference"
ARRIVALS = "use fb.algos.Grouped or AsyncFederated"
MACHINE = (MemoryError, jax.errors.JaxRuntimeError)  # not the entry's errors, so no row keeps them


def run(
    entry: Any,
    *,
    tasks: Iterable[str] | None = None,
    track: str = "one recipe",
    trials: int = 0,
    name: str | None = None,
    out: str | Path | None = None,
    develop: bool = False,
    progress: bool | None = None,
) -> Row:
    """Plays an entry in the tasks of the benchmark, next to uniform play and the reference, with 16 seeds each.

    The key of a task is the SHA-256 digest of the suite, the task and the entry's code. So the users of the test are
    unknown before the code is final, and every edit draws others.

    Args:
        entry: the path of a file with the name of its function, "mine.py:recipe", or an `Entry`. The function takes a
            `Task`, and returns a recipe, or None if it has none.
        tasks: names of tasks; None: all.
        track: "one recipe", for all tasks, or "tuned", if numbers were chosen for each task on development seeds.
        trials: number of results seen on development seeds, of one recipe in one task each, to be declared.
        name: name of the row; by default the file's name.
        out: a folder where NAME.npz is written after every task; a second call continues from there. A row of other
            code is refused. None: nothing is written.
        develop: play on the development seeds, equal for all entries, for any experiment. Nothing is written.
        progress: whether to show a progress bar on stderr. Default: only on a terminal.

    Returns:
        A `Row`, with the cells of these tasks.

    Raises:
        ValueError, TypeError: an argument is invalid; or the entry does not return a recipe. Errors of the recipe are
            in `Cell.refused`, with its line in the entry, and other tasks continue.
        ImportError: a task needs data that are not installed.

    Example:
        >>> import fedbandit_jax as fb
        >>> def recipe(task):
        ...     return None
        >>> row = fb.benchmark.run(fb.benchmark.Entry("nothing", "recipe", "", recipe), tasks=["arms-hard"])
        >>> row.score, row.cells["arms-hard"].refused
        (0.0, 'it has no recipe for this task')
    """
    chosen = tasks_of(tasks)  # before the code of the entry runs
    entry = Entry.of(entry, name)
    validate.one_of("track", track, TRACKS)
    trials = validate.integer("trials", trials, at_least=0)
    validate.boolean("develop", develop)
    if track == "tuned" and not trials and not develop:
        raise BadValue("trials", "must be > 0 in the track 'tuned'", trials)
    if develop and out is not None:
        raise BadValue("out", "must be None on development seeds", str(out))
    return play(entry, chosen, track, trials, out, DEVELOPMENT if develop else "", progress)


def play(entry: Entry, tasks: list[Task], track: str, trials: int, out: Any, nonce: str, progress: bool | None) -> Row:
    """Implements `run`; the nonce determines the seeds too."""
    need_data(tasks)
    validate.file_name("name", entry.name)
    parts = {part: getattr(entry, part) for part in ("name", "about", "function", "source", "digest")}
    row = Row(**parts, track=track, trials=trials, nonce=nonce)
    if out is None:
        return _play(row, entry, tasks, None, progress)
    folder = validate.path("out", out)
    check_writable("out", folder)
    path = folder / f"{entry.name}{'.checked' if nonce else ''}.npz"
    with locked(path.with_name(f".{path.stem}"), "name", entry.name):
        if not nonce and path.exists():
            row = dataclasses.replace(row, cells=_done(path, row))
            row.save(path)  # with the present declarations
        return _play(row, entry, tasks, path, progress)


def _play(row: Row, entry: Entry, tasks: list[Task], path: Path | None, progress: bool | None) -> Row:
    with bars.bar(progress, total=len(tasks), unit=" tasks") as bar:
        bar.set_description("making all recipes")
        found = {task.name: _recipe(task, entry) for task in tasks if task.name not in row.cells}
        for task in sorted(tasks, key=lambda task: not isinstance(found.get(task.name), str)):  # refusals first
            bar.set_description(task.name)
            if task.name in found:
                cell = played(task, found[task.name], entry, row.nonce)
                row = dataclasses.replace(row, cells={**row.cells, task.name: cell})
                if path is not None:
                    row.save(path)
                if not bar.disable:
                    bar.write(f"{task.name:<15} {cell}", file=sys.stderr)
            bar.update()
    return dataclasses.replace(row, cells={task.name: row.cells[task.name] for task in tasks})


def _recipe(task: Task, entry: Entry) -> Algorithm | str:
    """Returns the recipe of an entry for a task, which can be bound, or the reason why there is none."""
    try:
        algo = entry.recipe(task.shown)
        if isinstance(algo, Algorithm):
            if not struct.is_ours(algo):  # it could bind differently when it is played
                return f"its recipe is of a class of its own, {type(algo).__name__}: own parts go into one of fb.algos"
            if task.graph is not None:
                if identity.describe(getattr(algo, "graph", None)) != identity.describe(task.graph):
                    return "its graph is not the task's: use fb.algos.Gossip(graph=task.graph, ...)"
                algo = algo.replace(graph=task.graph)
            bound = algo.bind(task.spec, task.horizon)
            if task.family == "clusters" and not isinstance(bound, ArrivalAlgorithm):
                return f"it has one silo of all users, which is a trusted server: {ARRIVALS}"
    except MACHINE:
        raise
    except (Exception, SystemExit) as error:
        return f"its recipe was refused: {entry.where(error)}"
    if algo is None:
        return "it has no recipe for this task"
    if not isinstance(algo, Algorithm):
        got = f"{validate.shown(algo)} for {task.name}"
        raise BadType("entry", "must return an fb.Algorithm or None", algo, got=got)
    return algo


def played(task: Task, algo: Algorithm | str, entry: Entry, nonce: str = "") -> Cell:
    """Plays the recipe of an entry in a task; a string is the reason why there is none."""
    started, cell = time.monotonic(), Cell(task=task.name, digest=task.digest)
    if isinstance(algo, str):
        return dataclasses.replace(cell, refused=algo)
    every = {ENTRY: algo, CHANCE: task.uniform, REFERENCE: task.reference(task)}
    key = task.key(DEVELOPMENT if nonce == DEVELOPMENT else entry.digest, nonce)
    options: dict[str, Any] = {"horizon": task.horizon, "stride": task.horizon, "key": key, "seeds": SEEDS}
    try:
        found = sweep(task.env, every, **options, progress=False, throw=False)
    except MACHINE:
        raise
    except (Exception, SystemExit) as error:
        return dataclasses.replace(cell, refused=f"it failed: {entry.where(error)}")
    own = found[ENTRY]
    syncs, bits = (own.communication[part][:, -1].astype(float) for part in ("rounds", "bits"))
    regret, chance, reference = (found[one].regret[:, -1].astype(float) for one in every)
    status = int(np.bitwise_or.reduce(own.status, axis=None))
    knows = "" if regret.mean() > 0 else f"its regret is {regret.mean():g}, as if it knew the world"
    return dataclasses.replace(
        cell,
        refused=task.refusal(own.certificate, syncs.max(), status) or knows,
        regret=regret,
        uniform=chance,
        reference=reference,
        syncs=syncs,
        bits=bits / task.spec.n_agents,
        certificate=own.certificate,
        algorithm=own.config["algorithms"][ENTRY],
        provenance={
            **{part: own.provenance[part] for part in (*identity.versions(), "device", "date")},
            "code": identity.code(),
            "nonce": nonce,
            "seconds": round(time.monotonic() - started, 1),
        },
    )


def tasks_of(tasks: Any) -> list[Task]:
    """Returns the tasks of these names, None for all."""
    names = list(TASKS) if tasks is None else validate.sequence("tasks", tasks, "names of tasks")
    if not names:
        raise BadValue("tasks", "must name at least one task", None, got="none")
    return [TASKS[validate.one_of("tasks", name, TASKS)] for name in dict.fromkeys(names)]


def need_data(tasks: list[Task]) -> None:
    """Checks that the data of these tasks are installed."""
    lacks: dict[str, ImportError] = {}
    for task in tasks:
        try:
            _ = task.env
        except ImportError as error:
            lacks[task.name] = error
    if lacks:
        name, error = next(iter(lacks.items()))
        others = " ".join(task.name for task in tasks if task.name not in lacks)
        whole = f"; all others are {others}" if len(tasks) == len(TASKS) else ""
        raise ImportError(f"tasks must have installed data, got {name!r}: {error}{whole}") from error


def _done(path: Path, row: Row) -> Mapping[str, Cell]:
    """Returns the cells of the file, which must have the same entry, tasks and package code."""
    there, code = Row.load(path), identity.code()
    known = {name: cell for name, cell in there.cells.items() if name in TASKS}
    if there.digest != row.digest:
        differs = "another text of the entry"
    elif any(cell.digest != TASKS[name].digest for name, cell in known.items()):
        differs = "other tasks"
    elif any(cell.provenance.get("code", code) != code for cell in known.values()):
        differs = "other code of the package"
    else:
        return known
    raise BadValue("out", "must have no other row of this name: move it away", str(path), got=f"{path} of {differs}")
