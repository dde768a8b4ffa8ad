"""The command `fedbandit reproduce`: lists the committed figures, and runs one again."""

from __future__ import annotations

import csv
import dataclasses
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Command, Folder, quiet
from fedbandit_jax.core.files import check_writable
from fedbandit_jax.core.validate import BadValue

FIGURES, PAGES = Path("experiments", "figures"), Path("docs", "reproduction")  # in a clone


def first_clone(*places: Path) -> Path:
    """Returns the first of these places that has committed figures, or else the first place."""
    return next((one.resolve() for one in places if (one / FIGURES).is_dir()), places[0])


CLONE = first_clone(Path(__file__).parents[2], Path())  # of an editable install, or where the command is typed
PAPERS = ("zhou2024", "dubey2020", "chowdhury2023", "liu2022", "beyond")  # the last stands for figures of no paper
LEVEL = 0.01  # probability that equal laws are found to differ anywhere in a figure
ROUNDED = 1e-3  # relative difference of numbers without an error
Numbers = dict[tuple[str, str, str], np.ndarray]  # panel, label and point -> values of all seeds (S,)
KINDS = """
Endings of names tell how algorithms run: "ours" certified, "authors" with constants of the authors' code,
"theory" with printed radii, "exact" with exact radii. To try a figure, type its command with --smoke.
Settings and claims: fedbandit reproduce PAPER. Run one: fedbandit reproduce PAPER FIGURE"""


class Figure(NamedTuple):
    """A committed figure, as the first lines of its CSV describe it."""

    paper: str  # of `PAPERS`
    name: str  # within the paper
    path: Path
    command: str
    setting: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproduceCommand(Command):
    """List the figures and claims of the four papers and of our pages, or run one of them again.

    Without FIGURE the command lists figures with their command. With PAPER it adds their settings, and the claims of
    the paper with what was seen, as its page says. With both it draws the figure again, writes the picture and its
    numbers to OUT, and compares the numbers with the committed ones. The exit code is 1 if a mean differs by more than
    the errors of both runs explain. Type it in a clone of the repository.

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
        every = list(figures())
        if not every:
            raise FileNotFoundError("reproduce needs the scripts of a clone: type it in the folder of one")
        if self.paper not in (None, *PAPERS):
            raise BadValue("paper", f"must be one of {', '.join(PAPERS)}", self.paper, got=self.paper)
        found = {one.name: one for one in every if one.paper == self.paper}
        if self.figure is None:
            self.applies_to("a figure", False, "data")
            print("\n".join(listed(list(found.values()) or every, settings=bool(found))))
            print("\n".join(filled(one, "  ") for one in claims(self.paper)))
            return 0
        if self.figure not in found:
            raise BadValue("figure", f"must be one of {', '.join(found)}", self.figure, got=self.figure)
        figure = found[self.figure]
        words = figure.command.split()
        if self.data is None and "DIR" in words:
            raise BadValue("data", f"must be the folder for DIR in `{figure.command}`", None, got="none")
        self.applies_to("commands with DIR", "DIR" in words, "data")
        check_writable("out", self.out)
        again = self.out.resolve() / figure.path.name
        words = [str(self.data.resolve()) if word == "DIR" and self.data else word for word in words[1:]]
        print(f"{figure.command}\n", flush=True)
        command = [sys.executable, *words, "--out", str(again.parent)]
        if code := subprocess.run(command, cwd=CLONE, env=os.environ | {"MPLBACKEND": "Agg"}).returncode:
            raise ChildProcessError(f"the script of the figure ended with code {code}")
        differ, lost, n = compared(numbers(figure.path), numbers(again))
        print(f"\nSaved {again.with_suffix('.png')} and {again.name}")
        print(f"{n - len(differ) - len(lost):,} of {n:,} committed means agree within the errors of both runs")
        for word, some in (("differs", differ), ("is missing", lost)):
            print("".join(f"  {word}: {', '.join(place)}\n" for place in some[:5]), end="")
        return 1 if differ or lost else 0


def figures() -> Iterator[Figure]:
    """Yields the committed figures, those of papers first; none outside a clone."""
    found = []
    for path in sorted((CLONE / FIGURES).glob("*.csv")):
        head = [line[2:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
        if head and head[0].startswith("python experiments/"):
            paper = next((one for one in PAPERS if path.stem.startswith(one)), PAPERS[-1])
            command, name = head[0].rpartition(" | ")[0], path.stem.removeprefix(f"{paper}_")
            setting = head[1].removeprefix("Setting: ") if head[1:] else ""
            found.append(Figure(paper, name, path, command, setting))
    yield from sorted(found, key=lambda one: PAPERS.index(one.paper))


def claims(paper: str | None) -> Iterator[str]:
    """Yields the claims of a paper, the sections of its page, each with the paragraph that has our verdict."""
    page = CLONE / PAGES / f"{paper}.md"
    for section in page.read_text(encoding="utf-8").split("\n### ")[1:] if page.exists() else ():
        title, verdict = section.split("\n\n")[:2]
        yield " ".join(f"{title}. {verdict}".replace("*", "").split())


def listed(found: list[Figure], settings: bool) -> Iterator[str]:
    """Yields lines about figures, with their settings if asked for."""
    width = max(len(one.name) for one in found)
    yield f"{'paper':<13}  {'figure':<{width}}  command"
    for one in found:
        yield f"{one.paper:<13}  {one.name:<{width}}  {one.command}"
        if settings:
            yield filled(f"Here: {one.setting}", "    ")
    yield KINDS


def filled(text: str, indent: str) -> str:
    """Returns a text in lines of a terminal."""
    return textwrap.fill(text, 110, initial_indent=indent, subsequent_indent=f"{indent}  ")


def numbers(path: Path) -> Numbers:
    """Returns the numbers of a CSV."""
    rows = csv.DictReader(re.sub(r"\A(#.*\n)+", "", path.read_text(encoding="utf-8")).splitlines(keepends=True))
    return {(row["panel"], row["label"], row["x"]): np.array(row["y"].split(), float) for row in rows}


def compared(there: Numbers, here: Numbers) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]], int]:
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
