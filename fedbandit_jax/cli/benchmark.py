"""The command `fedbandit benchmark`: plays an entry, verifies a row, lists rows."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Command, Flag, Folder, Name, progress, quiet
from fedbandit_jax.core.validate import BadValue


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkCommand(Command):
    """Play your algorithm in tasks where only certified results count, and see its rank.

    An entry is a file with a function that takes a task and returns a recipe:

      import fedbandit_jax as fb

      def recipe(task):
          if task.family != "linear" or task.graph is not None:
              return None
          return fb.algos.private_fed_lin_ucb(task.mechanism(), schedule=task.batch)

    The score of a task is S = ln(R_uniform / R) / ln(R_uniform / R_0): 1 if privacy is free, 0 for uniform play. The
    bytes of the file decide the 16 seeds. A recipe counts as uniform play unless it is certified for the task's budget,
    trust model and limits. The command prints a table and writes a row after every task; a second call goes on from
    there.

    For example:
      fedbandit benchmark                                       list the tasks, and the scores so far
      fedbandit benchmark mine.py:recipe --develop              play on development seeds, as often as you like
      fedbandit benchmark mine.py:recipe                        play all tasks on your file's own seeds
      fedbandit benchmark mine.py --tasks ring drift            play some tasks
      fedbandit benchmark mine.py --track tuned --trials 60     60 development runs chose its numbers
      fedbandit benchmark verify rows/mine.npz                  run a row's code again on other seeds
    """

    resumes: ClassVar = "; the same command goes on after the finished tasks (not with --develop or verify)"

    # FILE.py or FILE.py:FUNCTION; or the word verify and the file of a row, whose code runs.
    what: tyro.conf.Positional[Annotated[tuple[str, ...], quiet(metavar="[ENTRY | verify ROW]")]] = ()
    tasks: Annotated[tuple[str, ...] | None, quiet(metavar="TASK ...")] = None  # names of tasks (default: all).
    # "one recipe" for all tasks, or "tuned" for each task on development seeds.
    track: Literal["one recipe", "tuned"] = "one recipe"
    trials: int = 0  # number of results on development seeds that you looked at, each of one recipe in one task.
    develop: Flag = False  # play on the development seeds, which everybody shares, and write no row.
    name: Name = None  # name of the row (default: name of the file).
    out: Folder = Path("rows")  # folder of your rows.

    @override
    def run(self) -> int:
        import fedbandit_jax as fb
        from fedbandit_jax.benchmark import TASKS, board

        got, entry = " ".join(self.what), bool(self.what) and self.what[0] != "verify"
        self.applies_to("an entry", entry, "track", "trials", "develop", "name")
        self.applies_to("an entry or verify", bool(self.what), "tasks")
        if not self.what:
            refused: list[str] = []
            found = board.rows(sorted(self.out.rglob("*.npz")), refused)
            for name, task in TASKS.items():
                print(textwrap.fill(task.about, 79, initial_indent=f"{name:<15} ", subsequent_indent=" " * 16))
            print("\nMean score over all tasks (1: privacy is free, 0: uniform play), also of your rows in --out:")
            for row in found:
                notes = row.track, f"{row.trials:,} trials" * (row.trials > 0), "verified" * bool(row.nonce)
                print(f"{board.over_all(row):6.3f}  {row.name:<22} {', '.join(filter(None, notes))}")
            print("\nPlay your own: fedbandit benchmark FILE.py, see --help")
            print("".join(f"fedbandit: {why}\n" for why in refused), end="", file=sys.stderr)
            return int(bool(refused))
        if len(self.what) != (1 if entry else 2):
            raise BadValue("entry", "must be one file, or verify and a row", got, got=got)
        options: dict[str, Any] = dict(tasks=self.tasks, out=None if self.develop else self.out, progress=progress())
        if not entry:
            found = fb.benchmark.verify(row := fb.benchmark.Row.load(self.what[1]), **options)
            print(board.summary(found.again, board.rows()))
            print(f"\n{found}\nwrote {self.out / row.name}.checked.npz")
            return int(bool(found.far))
        options |= {name: getattr(self, name) for name in ("track", "trials", "name", "develop")}
        row = fb.benchmark.run(self.what[0], **options)
        print(board.summary(row, board.rows()))
        print("development seeds: no row" if self.develop else f"wrote {self.out / row.name}.npz")
        return 0
