"""The board: all rows, the best first, and a table with the place of one row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedbandit_jax.benchmark.row import Cell, Row
from fedbandit_jax.benchmark.suite import TASKS
from fedbandit_jax.benchmark.task import SUITE, Task
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.tables import aligned

SHIPPED = Path(__file__).with_name("rows")
NUMBERS = ("S", "+-", "R / R_0", "syncs", "kbit")  # of a cell


def rows(paths: Iterable[Path] = (), refused: list[str] | None = None) -> list[Row]:
    """Loads the rows of the package, and of these files, the best mean first.

    If an entry has several rows with different seeds, the one of `fb.benchmark.verify` counts, in its tasks.

    A cell of a file does not count if its task has changed, or if its certificate does not keep the budget. Tests hold
    the shipped rows to the same.

    Args:
        paths: files.
        refused: a list for the reasons why files are no rows; None: the first is an error.

    Raises:
        ValueError: a file is not a row.
    """
    given, loaded = list(paths), []
    for path in [*sorted(SHIPPED.glob("*.npz")), *given]:
        try:
            row = Row.load(path)
            if unknown := sorted(set(row.cells) - set(TASKS)):
                got = f"{unknown} in {str(path)!r}"
                raise BadValue("rows", f"must have tasks of the suite {SUITE}", unknown, got=got)
            cells = {name: _of_suite(cell, TASKS[name]) for name, cell in row.cells.items() if path in given}
            loaded.append(dataclasses.replace(row, cells={**row.cells, **cells}))
        except ValueError as error:
            if refused is None:
                raise
            refused.append(str(error))
    found: dict[str, Row] = {}
    for one in sorted(loaded, key=lambda row: bool(row.nonce)):  # checked rows replace others
        known = found.get(one.digest)
        if known is None or one.nonce:
            before = {} if known is None else known.cells
            found[one.digest] = dataclasses.replace(one, cells={**before, **one.cells})
        elif len(one.cells) >= len(known.cells):
            found[one.digest] = one
    return sorted(found.values(), key=lambda row: -over_all(row))


def _of_suite(cell: Cell, task: Task) -> Cell:
    """Refuses a cell that does not fit the suite."""
    if cell.refused:
        return cell
    try:
        same = cell.digest == task.digest
    except ImportError as error:  # the environment of this task needs data
        return dataclasses.replace(cell, refused=f"its task cannot be compared with the suite's: {error}")
    if not same:
        why = f"its task is not the suite's: its digest is {cell.digest[:8]}..., not {task.digest[:8]}..."
    elif cell.certificate is None:
        why = "it has no certificate"
    elif task.max_syncs is not None and cell.syncs.max() > task.max_syncs:
        why = f"it communicates {cell.syncs.max():,.0f} times, the task allows {task.max_syncs:,}"
    else:
        why = task.overspent(cell.certificate)
    return dataclasses.replace(cell, refused=why)


def over_all(row: Row) -> float:
    """Returns the mean of S over all tasks of the suite, 0 for tasks not run."""
    return sum(cell.score for cell in row.cells.values()) / len(TASKS)


def summary(row: Row, others: Sequence[Row] = ()) -> str:
    """Formats the results of an entry in every task, and its place among other rows."""
    lines: list[tuple[str, ...]] = [("task", *NUMBERS, "best S")]
    for name, cell in row.cells.items():
        best = max((one.cells[name].score for one in others if name in one.cells), default=math.nan)
        lines.append((name, *_numbers(cell), _number(best)))
    text = [aligned(lines)]
    text += [f"{name} counts as uniform play: {cell.refused}" for name, cell in row.cells.items() if cell.refused]
    low, high = row.interval
    n, s = len(row.cells), "s" * (len(row.cells) > 1)
    text += ["", f"{row.name}: mean of S over {n} task{s} {row.score:.3f}, 95 % interval {low:.3f} to {high:.3f}"]
    if n == len(TASKS) and others:
        rivals = [one for one in others if one.digest != row.digest]
        better = sum(over_all(one) > row.score for one in rivals)
        best = f"; the best other is {rivals[0].name} with {over_all(rivals[0]):.3f}" if rivals else ""
        text.append(f"place {better + 1} of {1 + len(rivals)}{best}")
    return "\n".join(text)


def _numbers(cell: Cell) -> tuple[str, ...]:
    """Formats the `NUMBERS` of a cell; S is in brackets if it counts as 0."""
    if not len(cell.regret):
        return ("-",) * len(NUMBERS)
    shown = f"({_number(cell.unchecked)})" if cell.refused else _number(cell.score)
    ratio, sent = cell.regret.mean() / cell.reference.mean(), cell.bits.mean() / 1e3
    return shown, _number(cell.unchecked_error), f"{ratio:.3g}", f"{cell.syncs.mean():g}", f"{sent:,.0f}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 3) + 0.0:.3f}"  # + 0.0 turns -0 into 0
