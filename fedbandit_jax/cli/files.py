"""Commands for saved results: `show` prints one, `report` makes a page of many."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from typing_extensions import override

from fedbandit_jax.cli._answer import answer, details, overview
from fedbandit_jax.cli._command import Command, File, Flag, quiet
from fedbandit_jax.core.files import check_writable, write_atomic
from fedbandit_jax.core.validate import BadValue

FORMATS = {".md": "markdown", ".html": "html", ".tex": "latex"}  # of a privacy report


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowCommand(Command):
    """Print a saved result as `fedbandit simulate` does, and draw its figure again.

    For example:
      fedbandit show results/linear-1a2b3c4d.npz
      fedbandit show results/linear-1a2b3c4d.npz --certificates
      fedbandit show results/linear-1a2b3c4d.npz --picture again.png
      fedbandit show results/linear-1a2b3c4d.npz --report privacy.md
    """

    # .npz file of `fedbandit simulate` or `Result.save`. A file that has changed since is refused.
    result: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    # file for the figure, which ends in .png, .pdf or .svg. Without an ending it is a PNG and a PDF.
    picture: File = None
    report: File = None  # file for a privacy report to reviewers, which ends in .md, .html or .tex.
    certificates: Flag = False  # print certificates, paired differences and communication, too.

    @override
    def run(self) -> int:
        import fedbandit_jax as fb

        if self.result.is_dir():
            got = f"the folder {str(self.result)!r}; see `fedbandit report`"
            raise BadValue("the result", "must be a file", self.result, got=got)
        if self.report is not None and self.report.suffix not in FORMATS:
            raise BadValue("report", f"must end in {', '.join(FORMATS)}", str(self.report))
        loaded = fb.Result.load(self.result)
        print(answer(loaded))
        if self.certificates:
            print(f"\n{details(loaded)}")
        if self.picture is not None:
            drawn = fb.plotting.save(overview(loaded), self.picture)
            print(f"\nSaved {', '.join(map(str, drawn))}")
        if self.report is not None:
            text = loaded.report(FORMATS[self.report.suffix]).encode()
            write_atomic(self.report, lambda file: file.write(text))
            print(f"\nSaved {self.report}")
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportCommand(Command):
    """Write one HTML page about results: figures, tables, certificates and provenance.

    The page is one file that needs no network. For every result it has
      - cumulative and time-average regret, and regret against every parameter of the sweep
      - the Pareto fronts of regret with epsilon, and of regret with communication
      - sortable tables: regret, communication, claims, paired differences
      - all certificates in full
      - the command, the configuration, versions and the date

    The command reads all .npz files of a folder and of its subfolders, without the pieces of a store, which
    `fedbandit sweep` gathers. It names each file that is not a result, with the reason, and the exit code is then 1.

    For example:
      fedbandit report results
      fedbandit report runs --out sweep.html --title "Budgets and batches"
      fedbandit report results/linear-1a2b3c4d.npz results/arms-5e6f7a8b.npz
    """

    flag_of: ClassVar = {"path": "paths"}

    # folders, or .npz files of `fedbandit simulate` or `Result.save`.
    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], quiet(metavar="PATH ...")]]
    # file of the page, which replaces an older page. A missing folder is made.
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("report.html")
    title: Annotated[str, tyro.conf.arg(metavar="TEXT")] = "Federated bandits: results"  # title of the page.

    @override
    def run(self) -> int:
        from fedbandit_jax.report import folders, page

        if self.out.is_dir() or not self.out.name:
            raise BadValue("out", "must name a file", str(self.out))
        check_writable("out", self.out.parent)
        results = folders.find(self.paths)
        for path, why in results.refused:
            print(f"fedbandit: refused {path}: {why}", file=sys.stderr)
        if not results.sections:
            files = f"{len(results.refused)} files, all of which were refused"
            raise BadValue("paths", "must hold a saved result", files)
        page.write(results, self.out, title=self.title)
        runs = sum(one.result.status.size for one in results.sections)
        print(f"Saved {self.out}: {len(results.sections)} results, {runs:,} runs, {len(results.refused)} files refused")
        return 1 if results.refused else 0
