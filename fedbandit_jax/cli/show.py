"""The command `fedbandit show`, which prints a saved result."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Command, File, Flag
from fedbandit_jax.core.files import check_writable, write_atomic
from fedbandit_jax.core.validate import BadArgument, BadValue
from fedbandit_jax.report.answer import answer, details, overview

FORMATS = {".md": "markdown", ".html": "html"}  # of a privacy report


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowCommand(Command):
    """Print a saved result as `fedbandit simulate` does, and draw its figure again.

    For example:
      fedbandit show results/linear-1a2b3c4d.npz
      fedbandit show results/linear-1a2b3c4d.npz --certificates
      fedbandit show results/linear-1a2b3c4d.npz --picture again.png
      fedbandit show results/linear-1a2b3c4d.npz --report privacy.md
    """

    flag_of: ClassVar = {"path": "result"}

    # .npz file of `fedbandit simulate` or `Result.save`. A damaged file is refused.
    result: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    # file for the figure, which ends in .png, .pdf or .svg. Without an ending it is a PNG and a PDF.
    picture: File = None
    report: File = None  # file for a privacy report to reviewers, which ends in .md or .html.
    certificates: Flag = False  # print certificates, paired differences and communication, too.

    @override
    def run(self) -> int:
        import fedbandit_jax as fb

        if self.result.is_dir():
            raise BadValue("result", "must be a file", self.result, got=f"the folder {str(self.result)!r}")
        if self.report is not None and self.report.suffix not in FORMATS:
            raise BadValue("report", "must end in .md or .html", str(self.report))
        for flag, path in (("picture", self.picture), ("report", self.report)):
            if path is not None:
                check_writable(flag, path.parent)
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

    @override
    def named(self, error: Exception) -> str:
        if isinstance(error, BadArgument) and error.argument == "path" and error.value == str(self.picture):
            return str(error).replace("path", "--picture", 1)
        return super().named(error)
