"""`verify` plays the entry of a row again, under seeds that nobody could choose."""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedbandit_jax.benchmark.entry import Entry
from fedbandit_jax.benchmark.play import play, tasks_of
from fedbandit_jax.benchmark.row import Cell, Row
from fedbandit_jax.core import validate
from fedbandit_jax.core.printed import Printed
from fedbandit_jax.core.validate import BadValue

NEAR = 3.0  # standard errors within which a second run is expected


@dataclasses.dataclass(frozen=True)
class Verdict(Printed):
    """The finding of `verify`. `print(verdict)` compares both runs, task by task.

    Attributes:
        row: what was run.
        again: the same code on seeds that nobody could choose, which counts.
    """

    row: Row
    again: Row

    def _pairs(self) -> list[tuple[str, Any, Any]]:
        shared = [name for name in self.row.cells if name in self.again.cells]
        both = [
            dataclasses.replace(one, cells={name: one.cells[name] for name in shared}) for one in (self.row, self.again)
        ]
        return [*((name, self.row.cells[name], self.again.cells[name]) for name in shared), ("mean", both[0], both[1])]

    @property
    def far(self) -> tuple[str, ...]:
        """The tasks, and "mean", in which the two are more than three standard errors of their difference apart.

        Also those in which only one of them counts.
        """
        differ = (
            name for name, one, two in self._pairs() if not _apart(one, two) <= NEAR or _refused(one) != _refused(two)
        )
        return tuple(differ)

    def __str__(self) -> str:
        lines = [f"{'task':<15} {'row':>7} {'again':>7}"]
        for name, one, two in self._pairs():
            apart = _apart(one, two)
            lines.append(f"{name:<15} {one.score:7.3f} {two.score:7.3f}   {apart:5.1f} standard errors apart")
            if _refused(one) != _refused(two):
                lines.append(f"{'':<15} refused: {one.refused or two.refused}")
        lines.append(f"not repeated: {', '.join(self.far)}" if self.far else "repeated: all within 3 standard errors")
        return "\n".join(lines)


def _apart(one: Row | Cell, two: Row | Cell) -> float:
    """The difference of two scores in standard errors of it."""
    error = math.hypot(one.error, two.error)
    return abs(one.score - two.score) / error if error else 0.0 if one.score == two.score else math.inf


def _refused(one: Row | Cell) -> bool:
    return isinstance(one, Cell) and bool(one.refused)


def verify(
    row: Row, *, tasks: Iterable[str] | None = None, out: str | Path | None = None, progress: bool | None = None
) -> Verdict:
    """Runs the code of a row again, under seeds that depend on a random nonce, too.

    Whoever edits a comment until the seeds are kind gains nothing here, and the second run is what counts.

    Args:
        row: a row whose code is trusted to be run.
        tasks: names of tasks of the row; None: all of them.
        out, progress: as in `fb.benchmark.run`; the file is NAME.checked.npz, and a second call begins anew.

    Returns:
        A `Verdict`: both rows, and the tasks in which they differ.

    Raises:
        ValueError, TypeError: `row` is no row, or has none of these tasks; or what its code raises.
    """
    validate.instance("row", row, Row, "an fb.benchmark.Row, as `Row.load` returns it")
    chosen = tasks_of(list(row.cells) if tasks is None else tasks)
    for task in chosen:
        if task.name not in row.cells:
            raise BadValue("tasks", f"must be some of the row's, {', '.join(row.cells)}", task.name)
    entry = Entry.read(row.source, row.function, row.name)
    return Verdict(row, play(entry, chosen, row.track, row.trials, out, secrets.token_hex(8), progress))
