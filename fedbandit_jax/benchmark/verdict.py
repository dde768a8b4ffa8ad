"""`verify` plays the entry of a row again, with seeds that nobody could choose."""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedbandit_jax.benchmark.entry import Entry
from fedbandit_jax.benchmark.play import play, tasks_of
from fedbandit_jax.benchmark.row import Row
from fedbandit_jax.core import validate
from fedbandit_jax.core.printed import Printed
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.tables import aligned

NEAR = 3.0  # standard errors within which runs agree


@dataclasses.dataclass(frozen=True)
class Verdict(Printed):
    """Result of `verify`. `print(verdict)` compares both runs, task by task.

    Attributes:
        row: the original run.
        again: the same code on seeds that nobody could choose, which counts.
    """

    row: Row
    again: Row

    def _compared(self) -> Iterator[tuple[str, Any, Any, str]]:
        """Yields names, both results of the shared tasks and of their mean, and how they differ, if they do."""
        shared = [name for name in self.row.cells if name in self.again.cells]
        rows = (dataclasses.replace(one, cells={n: one.cells[n] for n in shared}) for one in (self.row, self.again))
        for name, one, two in [*((n, self.row.cells[n], self.again.cells[n]) for n in shared), ("mean", *rows)]:
            one_counts, two_counts = (not getattr(each, "refused", "") for each in (one, two))
            far = abs(one.score - two.score) > NEAR * math.hypot(one.error, two.error)
            why = f"refused: {one.refused or two.refused}" if one_counts != two_counts else "too far" * far
            yield name, one, two, why

    @property
    def far(self) -> tuple[str, ...]:
        """Tasks, and "mean", whose scores differ by more than three standard errors, or with only one counted."""
        return tuple(name for name, _, _, why in self._compared() if why)

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [("task", "row", "+-", "again", "+-", "")]
        for name, one, two, why in self._compared():
            lines.append((name, *(f"{x:.3f}" for each in (one, two) for x in (each.score, each.error)), why))
        end = f"not repeated: {', '.join(self.far)}" if self.far else "repeated: all within 3 standard errors"
        return f"{aligned(lines)}\n{end}"


def verify(
    row: Row, *, tasks: Iterable[str] | None = None, out: str | Path | None = None, progress: bool | None = None
) -> Verdict:
    """Runs the code of a row again, with seeds that also depend on a random nonce.

    So editing a comment until the seeds are favourable gains nothing. The second run counts.

    Args:
        row: a row with trusted code.
        tasks: names of tasks of the row; None: all of them.
        out, progress: as in `fb.benchmark.run`; the file is NAME.checked.npz, and a second call starts anew.

    Returns:
        A `Verdict`: both rows, and the tasks in which they differ.

    Raises:
        ValueError, TypeError: `row` is not a row, or lacks a task; or what its code raises.
    """
    validate.instance("row", row, Row, "an fb.benchmark.Row, such as `Row.load` returns")
    chosen = tasks_of(list(row.cells) if tasks is None else tasks)
    for task in chosen:
        if task.name not in row.cells:
            raise BadValue("tasks", f"must be some of the row's, {', '.join(row.cells)}", task.name)
    entry = Entry.read(row.source, row.function, row.name)
    return Verdict(row, play(entry, chosen, row.track, row.trials, out, secrets.token_hex(8), progress))
