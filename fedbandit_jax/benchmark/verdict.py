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

    def _pairs(self) -> Iterator[tuple[str, Any, Any, float, str]]:
        """Yields names, both results, their distance in standard errors, and why only one counts."""
        shared = [name for name in self.row.cells if name in self.again.cells]
        rows = (dataclasses.replace(one, cells={n: one.cells[n] for n in shared}) for one in (self.row, self.again))
        for name, one, two in [*((n, self.row.cells[n], self.again.cells[n]) for n in shared), ("mean", *rows)]:
            error = math.hypot(one.error, two.error)
            same = 0.0 if one.score == two.score else math.inf
            refused = ("", "") if name == "mean" else (one.refused, two.refused)
            why = "" if all(refused) else "".join(refused)
            yield name, one, two, abs(one.score - two.score) / error if error else same, why

    @property
    def far(self) -> tuple[str, ...]:
        """Tasks, and "mean", whose scores differ by more than three standard errors, or with only one counted."""
        return tuple(name for name, _, _, apart, why in self._pairs() if not apart <= NEAR or why)

    def __str__(self) -> str:
        lines = [f"{'task':<15} {'row':>7} {'again':>7}"]
        for name, one, two, apart, why in self._pairs():
            lines.append(f"{name:<15} {one.score:7.3f} {two.score:7.3f}   {apart:5.1f} standard errors apart")
            lines += [f"{'':<15} refused: {why}"] * bool(why)
        lines.append(f"not repeated: {', '.join(self.far)}" if self.far else "repeated: all within 3 standard errors")
        return "\n".join(lines)


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
