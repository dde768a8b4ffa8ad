"""The command `fedbandit reproduce`: lists the committed figures, and runs one again."""

from __future__ import annotations

import csv
import dataclasses
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Command, Folder, quiet
from fedbandit_jax.core.files import check_writable
from fedbandit_jax.core.validate import BadValue

FIGURES = Path("experiments", "figures")  # in a clone


def first_clone(*places: Path) -> Path:
    """Returns the first of these places that has committed figures, or else the first place."""
    return next((one.resolve() for one in places if (one / FIGURES).is_dir()), places[0])


CLONE = first_clone(Path(__file__).parents[2], Path())  # of an editable install, or where the command is typed
PAPERS = ("zhou2024", "dubey2020", "chowdhury2023", "liu2022")
BEYOND = "beyond"  # stands for figures of no paper
LEVEL = 0.01  # probability that equal laws are found to differ anywhere in a figure
ROUNDED = 1e-3  # relative difference of numbers without an error
HORIZON = re.compile(r"\bT ?= ?(\$?10\^\{?\d+|\d[\d,]*\b)")
KINDS = """
T, seeds: size here, where a caption states T. Endings of names tell how algorithms run: "ours" certified,
"authors" with constants of the authors' code, "theory" with printed radii, "exact" with exact radii.
A running script shows the time that remains. To try one, type its command with --smoke."""


class Figure(NamedTuple):
    """A committed figure, as the first lines of its CSV describe it."""

    paper: str  # or `BEYOND`
    name: str  # within the paper
    path: Path
    command: str
    setting: str  # here
    horizons: str  # T of its panels, as far as the caption states it
    seeds: int  # most at one point
    claims: tuple[str, ...]  # of the paper, with its size and what was seen here


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproduceCommand(Command):
    """List the figures and claims of the four papers and of our pages, or run one of them again.

    Without FIGURE the command lists figures with their size and command. With PAPER it adds the setting, and each claim
    with the paper's size and what was seen. With both it runs the script of the figure, writes the picture and its
    numbers to OUT, and compares them with the committed numbers. The exit code is 1 if a mean differs by more than the
    errors of both runs explain. Type it in a clone of the repository.

    For example:
      fedbandit reproduce
      fedbandit reproduce zhou2024
      fedbandit reproduce zhou2024 fig2a_ours
      fedbandit reproduce liu2022 fig2b_user_40_1 --data ml-latest-small
    """

    # zhou2024, dubey2020, chowdhury2023 or liu2022; or beyond, for figures of no paper.
    paper: tyro.conf.Positional[Annotated[str | None, quiet(metavar="[PAPER]")]] = None
    # name of a figure of the list.
    figure: tyro.conf.Positional[Annotated[str | None, quiet(metavar="[FIGURE]")]] = None
    # folder of your copy of a data set, for commands with DIR.
    data: Annotated[Path | None, quiet(metavar="FOLDER")] = None
    out: Folder = Path("results/reproduced")  # folder for the picture and its numbers.

    @override
    def run(self) -> int:
        found = {(one.paper, one.name): one for one in figures()}
        if not found:
            raise FileNotFoundError("reproduce needs the scripts of a clone: type it in the folder of one")
        papers = dict.fromkeys(paper for paper, _ in found)
        if self.paper is not None and self.paper not in papers:
            raise BadValue("paper", f"must be one of {', '.join(papers)}", self.paper, got=self.paper)
        if self.figure is None:
            some = [one for one in found.values() if self.paper in (None, one.paper)]
            print("\n".join(listed(some, claims=self.paper is not None)))
            return 0
        if (str(self.paper), self.figure) not in found:
            names = ", ".join(name for paper, name in found if paper == self.paper)
            raise BadValue("figure", f"must be one of {names}", self.figure, got=self.figure)
        return self._again(found[str(self.paper), self.figure])

    def _again(self, figure: Figure) -> int:
        """Runs the script of a figure, and compares its numbers with the committed ones."""
        if self.data is None and "DIR" in figure.command:
            raise BadValue("data", f"must be the folder for DIR in `{figure.command}`", None, got="none")
        self.applies_to("commands with DIR", "DIR" in figure.command, "data")
        check_writable("out", self.out)
        again = self.out.resolve() / figure.path.name
        words = [str(self.data.resolve()) if word == "DIR" and self.data else word for word in figure.command.split()]
        print(f"{figure.command}\n", flush=True)
        started = time.monotonic()
        environment = os.environ | {"MPLBACKEND": "Agg"}
        command = [sys.executable, *words[1:], "--out", str(again.parent)]
        if code := subprocess.run(command, cwd=CLONE, env=environment).returncode:
            raise ChildProcessError(f"the script of the figure ended with code {code}")
        differ, lost, n = compared(numbers(figure.path), numbers(again))
        print(f"\nSaved {again.with_suffix('.png')} and {again.name} in {time.monotonic() - started:,.0f} s")
        print(f"{n - len(differ) - len(lost):,} of {n:,} committed means agree within the errors of both runs")
        for word, some in (("differs", differ), ("is missing", lost)):
            print("".join(f"  {word}: {', '.join(place)}\n" for place in some[:5]), end="")
        return 1 if differ or lost else 0


def figures() -> Iterator[Figure]:
    """Yields the committed figures, those of papers first; none outside a clone."""
    order = (*PAPERS, BEYOND)
    found = []
    for path in sorted((CLONE / FIGURES).glob("*.csv")):
        head = [line[2:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
        if head and head[0].startswith("python experiments/"):
            paper = next((one for one in PAPERS if path.stem.startswith(one)), BEYOND)
            name, command = path.stem.removeprefix(f"{paper}_"), head[0].rpartition(" | ")[0]
            setting, *claims = [line.removeprefix("Setting: ") for line in head[1:] if line] or [""]
            rows = numbers(path)
            words = " ".join([setting, *dict.fromkeys(panel for panel, *_ in rows)])
            horizons = ", ".join(dict.fromkeys(re.sub("[${]", "", one) for one in HORIZON.findall(words)))
            seeds = max(len(row) for row in rows.values())
            found.append(Figure(paper, name, path, command, setting, horizons or "-", seeds, tuple(claims)))
    yield from sorted(found, key=lambda one: order.index(one.paper))


def listed(found: list[Figure], claims: bool) -> Iterator[str]:
    """Yields lines about figures, with settings and claims if asked for."""
    rows = [(one.paper, one.name, one.horizons, f"{one.seeds}", one.command) for one in found]
    widths = [max(map(len, column)) for column in zip(("paper", "figure", "T", "seeds", ""), *rows)]
    head, *lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths))
        for row in (("paper", "figure", "T", "seeds", "command"), *rows)
    )
    yield head.rstrip()
    for one, line in zip(found, lines):
        yield line.rstrip()
        for text in (f"Here: {one.setting}", *one.claims) if claims else ():
            yield from textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent="      ")
    yield KINDS
    yield "Settings and claims: fedbandit reproduce PAPER. Run one: fedbandit reproduce PAPER FIGURE"


def numbers(path: Path) -> dict[tuple[str, str, str], np.ndarray]:
    """Returns the values of all seeds (S,) of a CSV, by panel, label and point."""
    rows = csv.DictReader(re.sub(r"\A(#.*\n)+", "", path.read_text(encoding="utf-8")).splitlines(keepends=True))
    return {(row["panel"], row["label"], row["x"]): np.array(row["y"].split(), float) for row in rows}


def compared(
    there: dict[tuple[str, str, str], np.ndarray], here: dict[tuple[str, str, str], np.ndarray]
) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]], int]:
    """Returns the points whose means differ, those that are missing, and the number of all.

    Means over seeds are compared by Welch's t-test, at `LEVEL` over the number of points. Equal numbers always agree.
    """
    from scipy import stats

    differ, lost = [], [place for place in there if place not in here]
    for place in there.keys() & here.keys():
        one, other = there[place], here[place]
        if np.allclose(one.mean(), other.mean(), rtol=ROUNDED, equal_nan=True):
            continue
        several = min(len(one), len(other)) > 1
        test: Any = stats.ttest_ind(one, other, equal_var=False) if several else None
        if test is None or not test.pvalue >= LEVEL / len(there):
            differ.append(place)
    return sorted(differ), lost, len(there)
