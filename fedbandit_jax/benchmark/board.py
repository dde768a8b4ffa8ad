"""The leaderboard: a page in Markdown that compares rows, and a table with the place of one row."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fedbandit_jax.benchmark.row import Cell, Row
from fedbandit_jax.benchmark.suite import TASKS
from fedbandit_jax.benchmark.task import SEEDS, SUITE, Task
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import write_atomic
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy import Users
from fedbandit_jax.report.tables import aligned

SHIPPED = Path(__file__).with_name("rows")
ABOUT = f"""S = ln(R_uniform / R) / ln(R_uniform / R_0), of group regrets R at T: 1 if privacy is free, 0 at random.
R_0 is the regret of a reference without privacy. There are {SEEDS} seeds, which the code of an entry decides. In tasks
with * they are of a nonce that nobody could choose. A score counts only if the certificate of the run says that the
budget of the task is kept, under its trust model. One in brackets counts as 0, and the reason is below. Errors of two
rows are independent, as each has users of its own."""
NUMBERS = ("S", "+-", "R / R_0", "syncs", "kbit")  # of a cell
UNITS = {"visit": "one visit", None: "one user with one visit"}


def rows(paths: Iterable[str | Path] = (), refused: list[tuple[Path, str]] | None = None) -> list[Row]:
    """Loads the rows of the package, and of these files and folders, the best mean first.

    If an entry has several rows with different seeds, the one of `fb.benchmark.verify` counts, in its tasks.

    A cell of a file does not count if its task has changed, or if its certificate does not keep the budget. Tests hold
    the shipped rows to the same.

    Args:
        paths: files and folders.
        refused: a list for (file, reason) of files that are no rows; None: the first is an error.

    Raises:
        ValueError: a path does not exist, a folder has no rows, or a file is not a row.
    """
    files, given = sorted(SHIPPED.glob("*.npz")), []
    for path in (validate.path("rows", one) for one in paths):
        inside = sorted(path.rglob("*.npz")) if path.is_dir() else [path]
        if not path.exists() or not inside:
            raise BadValue("rows", "must be files or folders of rows", str(path))
        given += inside
    loaded: list[Row] = []
    for path in files + given:
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
            refused.append((path, str(error)))
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


def write(found: Sequence[Row], path: str | Path) -> Path:
    """Writes the board as a page in Markdown, and returns its path."""
    path = validate.path("page", path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join([f"# Private federated bandits: the board, suite {SUITE}", ABOUT, _board(found), *_rest(found)])
    write_atomic(path, lambda file: file.write(f"{text}\n".encode()))
    return path


def _rest(found: Sequence[Row]) -> list[str]:
    """Returns the table of tasks, and the numbers of every row."""
    parts = ["## Tasks", _tasks(found)]
    for row in found:
        trials = f"{row.trials:,} trials on development seeds" if row.track == "tuned" else "no trials"
        about = f"{row.about} Track: {row.track}, {trials}. Digest of function and code: {row.digest}"
        parts += [f"## {_safe(row.name)}", _safe(about), f"```text\n{summary(row, found)}\n```"]
    return parts


def _board(found: Sequence[Row]) -> str:
    lines = [("entry", "mean S", "95 % interval", "track", *TASKS)]
    for row in found:
        low, high = (end * len(row.cells) / len(TASKS) for end in row.interval)
        head = row.name, _number(over_all(row)), f"{_number(low)} to {_number(high)}", row.track
        lines.append((*head, *(_cell(row.cells.get(name)) for name in TASKS)))
    return _markdown(lines)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "not run"
    return _numbers(cell)[0] + "*" * bool(cell.provenance.get("nonce") and len(cell.regret))


def _tasks(found: Sequence[Row]) -> str:
    head = "task", "M", "K", "d", "T", "epsilon", "delta", "trusted", "protected", "syncs"
    lines: list[tuple[str, ...]] = [(*head, "uniform R", "R_0", "best entry", "best S", "about")]
    for name, task in TASKS.items():
        cells = [(row.cells[name], row.name) for row in found if name in row.cells and len(row.cells[name].regret)]
        best = max((pair for pair in cells if not pair[0].refused), key=lambda pair: pair[0].score, default=None)
        means = [[getattr(cell, part).mean() for cell, _ in cells] for part in ("uniform", "reference")]
        ends = (f"{np.mean(one):,.0f}" if one else "-" for one in means)
        who = (best[1], _number(best[0].score)) if best else ("-", "-")
        unit = "one user, all visits" if isinstance(task.unit, Users) else UNITS[task.unit]
        syncs = "any" if task.max_syncs is None else f"{task.max_syncs:,}"
        sizes = (f"{size:,}" for size in (*task.sizes, task.horizon))
        asked = f"{task.epsilon:g}", f"{task.delta:g}", task.trusted[-1], unit, syncs
        lines.append((name, *sizes, *asked, *ends, *who, task.about))
    return _markdown(lines)


def _markdown(lines: Sequence[tuple[str, ...]]) -> str:
    head, *body = ("| " + " | ".join(map(_safe, line)) + " |" for line in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *body])


def _safe(text: str) -> str:
    """Escapes what Markdown would take for markup."""
    return html.escape(" ".join(text.split())).replace("|", "\\|")


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 3) + 0.0:.3f}"  # + 0.0 turns -0 into 0
