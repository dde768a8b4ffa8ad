"""Commands about files that are there: print a result (`show`), make a page of many (`report`)."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from typing_extensions import override

from fedbandit_jax.cli._answer import answer, details, overview
from fedbandit_jax.cli._command import Command
from fedbandit_jax.core.files import check_free, check_writable
from fedbandit_jax.core.validate import BadValue


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowCommand(Command):
    """Print a saved result as `fedbandit simulate` does, and draw its figure again if asked to.

    For example:
      fedbandit show results/linear-1a2b3c4d.npz
      fedbandit show results/linear-1a2b3c4d.npz --certificates
      fedbandit show results/linear-1a2b3c4d.npz --picture again.png

    Args:
        result: .npz file that `fedbandit simulate` or `Result.save` has written; one that has changed since is refused.
        picture: a file to draw regret into, which ends in .png, .pdf or .svg; without an ending it is a PNG and a PDF.
            Default: no picture is drawn.
        certificates: print certificates, paired differences and communication, too.
    """

    result: tyro.conf.Positional[Path]
    picture: Path | None = None
    certificates: bool = False

    @override
    def run(self) -> int:
        import fedbandit_jax as fb

        if self.result.is_dir():
            raise BadValue(
                "the result",
                "must be a file",
                self.result,
                got=f"the folder {str(self.result)!r}; see `fedbandit report`",
            )
        loaded = fb.Result.load(self.result)
        print(answer(loaded))
        if self.certificates:
            print(f"\n{details(loaded)}")
        if self.picture is not None:
            drawn = fb.plotting.save(overview(loaded), self.picture)
            print(f"\nwrote {' and '.join(map(str, drawn))}")
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportCommand(Command):
    """Write one HTML page about results: figures, tables, certificates, and what made them.

    The page is one file that needs no network and no other file. For every result it has
      - cumulative and time-average regret, and regret against every parameter of the sweep
      - who is on the Pareto front of regret and epsilon (which certificates give), and of regret and communication
      - tables, sorted by a click on the head of a column: regret, communication, claims, differences paired by seed
      - all certificates in full
      - the command, the configuration, versions and the date

    All files of a folder that end in .npz are looked at, and those in the folders in it. What the store of a sweep
    keeps of its pieces is put together, so that a sweep that is still running can be looked at, too. A file that is not
    a result as it was saved is refused: the page and the command name it with the reason, and the exit code is 1.

    For example:
      fedbandit report results
      fedbandit report runs --out sweep.html --title "Budgets and batches"
      fedbandit report results/linear-1a2b3c4d.npz results/arms-5e6f7a8b.npz

    Args:
        paths: folders, or .npz files that `fedbandit simulate`, `Result.save` or a store has written.
        out: the page, which replaces an older page; its folder is made if it is missing.
        title: title of the page.
    """

    flag_of: ClassVar = {"path": "paths"}

    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH ...")]]
    out: Path = Path("report.html")
    title: str = "Federated bandits: results"

    @override
    def run(self) -> int:
        from fedbandit_jax.report import folders, page

        if self.out.is_dir() or not self.out.name:
            raise BadValue("out", "must name a file", str(self.out))
        check_writable("out", self.out.parent)
        check_free("out", self.out)
        import matplotlib

        matplotlib.use("Agg")  # no window opens
        results = folders.find(self.paths)
        for path, why in results.refused:
            print(f"fedbandit: refused {path}: {why}", file=sys.stderr)
        if not results.sections:
            files = f"{len(results.refused)} files, all of which were refused"
            raise BadValue("paths", "must hold a saved result", files)
        page.write(results, self.out, title=self.title)
        runs = sum(one.result.status.size for one in results.sections)
        print(f"wrote {self.out}: {len(results.sections)} results, {runs:,} runs, {len(results.refused)} files refused")
        return 1 if results.refused else 0
