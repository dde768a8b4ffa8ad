"""`run` plays an entry in the tasks of the benchmark, `verify` does it again under seeds that nobody could choose."""

from __future__ import annotations

import dataclasses
import math
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from fedbandit_jax.benchmark.chance import NAME, uniform
from fedbandit_jax.benchmark.entry import TRACKS, Entry
from fedbandit_jax.benchmark.row import Cell, Row
from fedbandit_jax.benchmark.suite import TASKS
from fedbandit_jax.benchmark.task import SEEDS, Task
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable
from fedbandit_jax.engine import identity
from fedbandit_jax.engine.simulation import sweep
from fedbandit_jax.interfaces import Algorithm

DEVELOPMENT = "development"  # the nonce and the entry of seeds on which anything may be tried
REFERENCE = "reference"
FAR = "not repeated"  # how a report ends that says so
NEAR = 3.0  # standard errors within which a second run is expected


def run(
    entry: Any,
    *,
    tasks: Iterable[str] | None = None,
    track: str = "one recipe",
    trials: int = 0,
    name: str | None = None,
    out: str | Path | None = None,
    develop: bool = False,
    nonce: str = "",
    progress: bool | None = None,
) -> Row:
    """Plays an entry in the tasks of the benchmark, beside uniform play and the reference, under 16 seeds each.

    The key of a task is the SHA-256 digest of the suite, the task and the entry's code: nobody knows the users of the
    test before the code is final, and every edit draws others.

    Args:
        entry: a function that is given a `Task` and returns a recipe, or None where it has none; or the path of a file
            with the name of the function in it, "mine.py:recipe".
        tasks: names of tasks; None: all.
        track: "one recipe", for all tasks, or "tuned", if numbers were chosen for each task on development seeds.
        trials: runs on development seeds that were looked at, to be declared.
        name: of the row; None: that of the file, or of the function.
        out: a folder where NAME.npz is written after every task; a second call goes on from there. None: nothing is
            written.
        develop: play on the development seeds, which are the same for all entries, and on which anything may be tried.
            Nothing is written.
        nonce: what else decides the seeds, see `verify`.
        progress: whether to show a progress bar on stderr. Default: only on a terminal.

    Returns:
        A `Row`, with the cells of these tasks.

    Raises:
        ValueError, TypeError: an argument is wrong; or the entry returns no recipe. An error that the recipe raises
            when it is made or bound is in `Cell.refused`.
        ImportError: a task needs data that are not installed.

    Example:
        >>> import fedbandit_jax as fb
        >>> def recipe(task):
        ...     return None
        >>> row = fb.benchmark.run(fb.benchmark.Entry("nothing", "recipe", "", recipe), tasks=["arms-hard"])
        >>> row.score, row.cells["arms-hard"].refused
        (0.0, 'it has no recipe for this task')
    """
    chosen, entry = _chosen(tasks), Entry.of(entry, name)
    validate.one_of("track", track, TRACKS)
    trials = validate.integer("trials", trials, at_least=0)
    validate.boolean("develop", develop)
    if track == "tuned" and not trials and not develop:
        raise ValueError(f"trials must be > 0 in the track 'tuned', got {trials}")
    if develop and out is not None:
        raise ValueError(f"out must be None on development seeds, of which no row is kept, got {str(out)!r}")
    row = Row(
        name=entry.name,
        about=entry.about,
        function=entry.function,
        source=entry.source,
        digest=entry.digest,
        track=track,
        trials=trials,
        nonce=DEVELOPMENT if develop else nonce,
    )
    path = None
    if out is not None:
        check_writable("out", Path(out))
        path = Path(out) / f"{entry.name}{'.checked' if nonce else ''}.npz"
        row = dataclasses.replace(row, cells=_done(path, row))
    with tqdm(chosen, unit=" tasks", disable=None if progress is None else not progress) as bar:
        for task in bar:
            bar.set_description(task.name)
            if task.name not in row.cells:
                key = task.key(DEVELOPMENT if develop else entry.digest, row.nonce)
                row = dataclasses.replace(row, cells={**row.cells, task.name: played(task, entry, key)})
                if path is not None:
                    row.save(path)
    return dataclasses.replace(row, cells={task.name: row.cells[task.name] for task in chosen})


def played(task: Task, entry: Entry, key: Any) -> Cell:
    """What an entry does in a task under the seeds of this key."""
    started, cell = time.monotonic(), Cell(task=task.name, digest=task.digest)
    try:
        algo = entry.recipe(task)
        if algo is None:
            return dataclasses.replace(cell, refused="it has no recipe for this task")
        if isinstance(algo, Algorithm):
            algo.bind(task.spec, task.horizon)
    except (ValueError, TypeError) as error:
        return dataclasses.replace(cell, refused=f"its recipe was refused: {error}")
    if not isinstance(algo, Algorithm):
        raise TypeError(f"entry must return an fb.Algorithm or None, got {validate.shown(algo)} for {task.name}")
    label = algo.name if algo.name not in (NAME, REFERENCE) else "entry"
    every = {label: algo, NAME: uniform(task.env), REFERENCE: task.reference(task)}
    found = sweep(
        task.env,
        every,
        horizon=task.horizon,
        key=key,
        seeds=SEEDS,
        stride=task.horizon,
        progress=False,
        throw=False,
    )
    own = found[label]
    syncs, bits = (own.communication[part][:, -1].astype(float) for part in ("rounds", "bits"))
    regret, chance, reference = (found[one].regret[:, -1].astype(float) for one in every)
    status = int(np.bitwise_or.reduce(own.status, axis=None))
    return dataclasses.replace(
        cell,
        refused=task.refusal(own.certificate, syncs.max(), status),
        regret=regret,
        uniform=chance,
        reference=reference,
        syncs=syncs,
        bits=bits / task.spec.n_agents,
        certificate=own.certificate,
        algorithm=own.config["algorithms"][label],
        provenance={
            **{part: own.provenance[part] for part in (*identity.versions(), "device", "date")},
            "code": identity.code(),
            "seconds": round(time.monotonic() - started, 1),
        },
    )


def verify(
    row: Row, *, tasks: Iterable[str] | None = None, out: str | Path | None = None, progress: bool | None = None
) -> tuple[Row, str]:
    """Runs the code of a row again, under seeds that depend on a random nonce, too.

    Whoever edits a comment until the seeds are kind gains nothing here, and the second run is what counts.

    Args:
        row: a row whose code is trusted to be run.
        tasks: names of tasks; None: those of the row.
        out, progress: as in `run`; the file is NAME.checked.npz.

    Returns:
        The second row, and a report that says of each task, and of the mean, whether both are within three standard
        errors of their difference.
    """
    entry = Entry.read(row.source, row.function, row.name)
    again = run(
        entry,
        tasks=list(row.cells) if tasks is None else tasks,
        track=row.track,
        trials=row.trials,
        out=out,
        nonce=secrets.token_hex(8),
        progress=progress,
    )
    return again, compared(row, again)


def compared(row: Row, again: Row) -> str:
    """The report of `verify`."""
    lines, far = [], []
    shared = [name for name in row.cells if name in again.cells]
    row, again = (dataclasses.replace(one, cells={name: one.cells[name] for name in shared}) for one in (row, again))
    pairs = [(name, row.cells[name], again.cells[name]) for name in shared]
    for name, one, two in (*pairs, ("mean", row, again)):
        error = math.hypot(one.error, two.error)
        apart = abs(one.score - two.score) / error if error else 0.0 if one.score == two.score else math.inf
        lines.append(f"{name:<15} {one.score:7.3f} {two.score:7.3f}   {apart:5.1f} standard errors apart")
        if apart > NEAR:
            far.append(name)
        if isinstance(one, Cell) and isinstance(two, Cell) and bool(one.refused) != bool(two.refused):
            lines.append(f"{'':<15} refused: {one.refused or two.refused}")
            far.append(name)
    verdict = f"{FAR}: {', '.join(dict.fromkeys(far))}" if far else "repeated: all within 3 standard errors"
    return "\n".join([f"{'task':<15} {'row':>7} {'again':>7}", *lines, verdict])


def _chosen(tasks: Any) -> list[Task]:
    names = list(TASKS) if tasks is None else validate.sequence("tasks", tasks, "names of tasks")
    if not names:
        raise ValueError("tasks must name at least one task, got none")
    found = [TASKS[validate.one_of("tasks", name, TASKS)] for name in dict.fromkeys(names)]
    for task in found:
        try:
            _ = task.env
        except ImportError as error:
            raise ImportError(f"tasks must be those whose data are installed, got {task.name!r}: {error}") from error
    return found


def _done(path: Path, row: Row) -> dict[str, Cell]:
    """The cells that are in the file already, of the same entry under the same seeds, tasks and code."""
    try:
        there = Row.load(path)
    except ValueError:
        return {}
    same = all(getattr(there, part) == getattr(row, part) for part in ("digest", "nonce", "track", "trials"))
    cells = there.cells if same else {}
    code = identity.code()
    return {
        name: cell
        for name, cell in cells.items()
        if name in TASKS and cell.digest == TASKS[name].digest and cell.provenance.get("code", code) == code
    }
