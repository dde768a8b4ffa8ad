"""The command `fedbandit benchmark`: play an entry, check a row, draw the board."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Command, progress
from fedbandit_jax.core.files import check_free, check_writable
from fedbandit_jax.core.validate import BadValue

CHECK = "verify"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkCommand(Command):
    """Play an algorithm of yours in tasks in which a certificate decides whether it counts, and see where it stands.

    An entry is a file with a function that is given a task, and returns a recipe:

      import fedbandit_jax as fb

      def recipe(task):
          if task.family != "linear" or task.graph is not None:
              return None
          return fb.algos.private_fed_lin_ucb(task.mechanism(), schedule=task.batch)

    Its score in a task is S = ln(R_uniform / R) / ln(R_uniform / R_0), 1 if privacy is free and 0 for uniform play,
    under 16 seeds that the bytes of the file decide. What is not certified for the task's budget, trust model and
    limits counts as uniform play. The command prints every task as it ends, and a table, and writes a sealed row after
    every task, from which a second call goes on.

    For example:
      fedbandit benchmark                                       what the tasks are
      fedbandit benchmark mine.py:recipe --develop              play on development seeds, as often as you like
      fedbandit benchmark mine.py:recipe                        all tasks, on seeds of your file's own
      fedbandit benchmark mine.py --tasks ring drift            some tasks
      fedbandit benchmark mine.py --track tuned --trials 60     60 runs on development seeds chose its numbers
      fedbandit benchmark verify rows/mine.npz                  run the code of a row again, on other seeds
      fedbandit benchmark --page rows                           the board of all rows, and of those in a folder

    Args:
        what: FILE.py or FILE.py:FUNCTION; or the word verify and a file of a row, whose code is run.
        tasks: names of tasks; by default all.
        track: "one recipe" for all tasks, or "tuned" for each on development seeds.
        trials: results on development seeds that were looked at, of one recipe in one task each.
        develop: play on the development seeds, which are the same for everybody; no row is written.
        name: name of the row; by default that of the file.
        out: folder for the row.
        page: draw the board, of rows that come with the package and those in these files and folders.
        board: the file that --page writes.
    """

    resumes: ClassVar = "; the same command goes on after the tasks that are in the row (none with --develop or verify)"

    what: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="[ENTRY | verify ROW]")]] = ()
    tasks: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="TASK ...")] = None
    track: Literal["one recipe", "tuned"] = "one recipe"
    trials: int = 0
    develop: bool = False
    name: str | None = None
    out: Path = Path("rows")
    page: Annotated[tuple[Path, ...] | None, tyro.conf.arg(metavar="[PATH ...]")] = None
    board: Path = Path("board.html")

    @override
    def run(self) -> int:
        self.applies_to("an entry", bool(self.what) and self.what[0] != CHECK, "track", "trials", "develop", "name")
        self.applies_to("an entry or verify", bool(self.what), "tasks", "out")
        self.applies_to("--page", self.page is not None, "board")
        if self.page is not None:
            return self._page(self.page)
        if not self.what:
            return self._list()
        if self.what[0] == CHECK:
            return self._verify()
        if len(self.what) > 1:
            raise BadValue(
                "entry", "must be one file, or verify and a row", " ".join(self.what), got=" ".join(self.what)
            )
        return self._run()

    def _page(self, paths: tuple[Path, ...]) -> int:
        import matplotlib

        matplotlib.use("Agg")
        from fedbandit_jax.benchmark import board

        if self.what:
            raise BadValue("page", "must be given without an entry", " ".join(self.what), got=" ".join(self.what))
        check_writable("board", self.board.parent)
        check_free("board", self.board)
        refused: list[tuple[Path, str]] = []
        found = board.rows(paths, refused)
        for _, why in refused:
            print(f"fedbandit: {why}", file=sys.stderr)
        left = f", {len(refused)} files refused" if refused else ""
        print(f"wrote {board.write(found, self.board)}: {len(found)} rows{left}")
        return 1 if refused else 0

    def _list(self) -> int:
        from fedbandit_jax.benchmark import TASKS, board

        print("\n".join(f"{name:<15} {task.about}" for name, task in TASKS.items()))
        print("\nmean of S over all tasks:")
        print("\n".join(f"{board.over_all(row):6.3f}  {row.name}" for row in board.rows()))
        print("\nfedbandit benchmark FILE.py plays an entry; see --help for what that is")
        return 0

    def _run(self) -> int:
        import fedbandit_jax as fb
        from fedbandit_jax.benchmark import board

        fb.keep_programs()
        row = fb.benchmark.run(
            self.what[0],
            tasks=self.tasks,
            track=self.track,
            trials=self.trials,
            name=self.name,
            out=None if self.develop else self.out,
            develop=self.develop,
            progress=progress(),
        )
        print(board.summary(row, board.rows()))
        print("development seeds: no row" if self.develop else f"wrote {self.out / row.name}.npz")
        return 0

    def _verify(self) -> int:
        import fedbandit_jax as fb
        from fedbandit_jax.benchmark import board

        if len(self.what) != 2:
            raise BadValue(
                "verify", "must be followed by one file of a row", " ".join(self.what), got=" ".join(self.what)
            )
        fb.keep_programs()
        row = fb.benchmark.Row.load(self.what[1])
        found = fb.benchmark.verify(row, tasks=self.tasks, out=self.out, progress=progress())
        print(board.summary(found.again, board.rows()))
        print(f"\n{found}\nwrote {self.out / row.name}.checked.npz")
        return int(bool(found.far))
