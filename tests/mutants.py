"""One-line mistakes in the package, and whether the default tests find them.

    python tests/mutants.py                    every mistake of tests/mistakes, each on the tests nearest to it
    python tests/mutants.py trust gaussian     those whose layer, anchor or description contains one of these words
    python tests/mutants.py --jobs 2           in two processes
    python tests/mutants.py --random 60        as many that a machine makes, and others with another --seed
    python tests/mutants.py --full             survivors are also run on the whole default suite

For every mistake a fresh process imports a copy of the package in which one line is changed, and runs tests until one
fails. The mistake *dies* if one does, and *lives* otherwise: no test sees it. The end lists who died by which test, who
lives, and shares by layer. Ctrl-C ends the run, and shows what was found so far.

A layer of the package is a text file in tests/mistakes, and a mistake is a paragraph in it:

    solve_one: half of log det                    the name of a function, and what is wrong in it
      B * A -> A                                  what is written there, and what replaces it: see tests/patterns.py
      > core/test_ridge.py::test_update           tests that should see it, the cheapest ones that do

Leave out mistakes that change nothing. The exit code is 1 if one of the list lives, and 3 if too few random ones die:
so few that chance explains it in one case of 1,000 where 60 % would. Random ones are slips of the hand: operators,
bounds, constants, keywords and calls (tests/random_mistakes.py). They are run on the tests that are named after the
file, those of its room, and the contract; read the ones that live, as some change nothing.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from patterns import Place, Source, anchors, read
from quick import compile_quickly
from random_mistakes import random_mistakes
from scipy import stats
from tqdm import tqdm

TESTS = Path(__file__).resolve().parent
PACKAGE = "fedbandit_jax"
LEAST_AT_RANDOM, LEVEL = 0.6, 1e-3  # share of random mistakes that must die, and the chance of an alarm where it does
TOO_FEW = 3  # exit code
MINUTES = 5, 60  # after which nearest tests, and the whole suite, count as failed: some mistakes make loops endless
LIBRARIES = ("jax.numpy", "scipy.stats", "optax", "networkx", "matplotlib.pyplot", "tyro", "jaxtyping", "pytest",
             "hypothesis", "mpmath", "dp_accounting", "sklearn.linear_model", "xarray", "beartype")  # fmt: skip


class Mistake(NamedTuple):
    layer: str  # name of the text file
    anchor: str  # function of the package
    what: str
    change: str  # a pattern and its replacement
    tests: tuple[str, ...]  # ids of tests

    @property
    def place(self) -> Place:
        """Where it is in the package."""
        return Place(self.anchor, self.change)


def mistakes() -> Iterator[Mistake]:
    """The mistakes of tests/mistakes.

    Raises:
        ValueError: a paragraph is not in the format above.
    """
    for text in sorted((TESTS / "mistakes").glob("*.txt")):
        for paragraph in text.read_text().strip().split("\n\n"):
            title, *more = (line.strip() for line in paragraph.split("\n"))
            if ": " not in title or len(more) != 2 or more[1][:2] != "> ":
                raise ValueError(f"{text.name}: a mistake must have a title, a change and > tests, got {title}")
            yield Mistake(text.stem, *title.split(": ", 1), more[0], tuple(more[1][2:].split()))


def first_failure(copy: Path, tests: Sequence[str], seconds: float) -> str | None:
    """Runs tests on a copy of the repository in a process of its own: the name of the first that fails, or None."""
    output = copy / "output.txt"
    process = multiprocessing.get_context("fork").Process(target=_pytest, args=(copy, tests, output))
    process.start()
    try:
        process.join(seconds)
        if process.is_alive():
            return f"{seconds:g} seconds are over"
    finally:
        process.kill()
        process.join()
    if process.exitcode in (0, 5):  # 5: nothing was collected
        return None
    named = re.search(r"^(?:FAILED|ERROR) (?:tests/)?([^\s\[]+)", output.read_text(errors="replace"), re.MULTILINE)
    return named[1] if named else "the package does not import"


def _pytest(copy: Path, tests: Sequence[str], output: Path) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path.insert(0, str(copy))
    import pytest

    options = ["-x", "-q", "-rfE", "--tb=line", "-m", "not slow", "-p", "no:xdist", "-p", "no:cacheprovider"]
    code = pytest.main([*options, "--strict-markers", "--override-ini", "addopts=", *tests])
    sys.stdout.flush()
    os._exit(int(code))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command."""
    first, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only mistakes with one of these in layer, anchor or description")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random mistakes instead")
    parser.add_argument("--seed", type=int, default=0, help="of random mistakes (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="run survivors on all default tests (10 minutes each)")
    parser.add_argument("--passing", action="store_true", help="their tests are known to pass without them")
    asked = parser.parse_args(arguments)
    sources = read(TESTS.parent / PACKAGE)
    if asked.random:
        chosen = at_random(sources, asked.random, asked.seed)
    else:
        known = anchors(sources)
        listed = [one for one in mistakes() if not asked.words or any(w in " ".join(one[:3]) for w in asked.words)]
        chosen = {one: one.place.mutated(known) for one in listed}
    if not chosen:
        parser.error(f"words must name a layer, a function or a part of a description, got {' '.join(asked.words)}")
    os.environ.setdefault("FEDBANDIT_TEST_CACHE", str(TESTS.parent / ".jax_cache"))
    os.environ.setdefault("MPLBACKEND", "Agg")
    compile_quickly()
    for library in LIBRARIES:  # processes inherit what is imported, so that each starts in a second
        importlib.import_module(library)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # bytecode is told apart by its second only
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / str(i) for i in range(asked.jobs)]
        hidden = shutil.ignore_patterns(".git", ".venv", "*_cache", "__pycache__", "*.egg-info", "results")
        for copy in copies:
            shutil.copytree(TESTS.parent, copy, ignore=hidden)
        if not asked.passing:
            nearest = sorted({f"tests/{test}" for one in chosen for test in one.tests})
            print(f"{len(chosen)} mistakes; their tests must pass without them ...", flush=True)
            if broken := first_failure(copies[0], nearest, 60 * MINUTES[1]):
                print(f"{broken} fails without any mistake", file=sys.stderr)
                return 2
        found: dict[Mistake, str | None] = {}
        fork, todo = multiprocessing.get_context("fork"), list(chosen.items())
        told = fork.SimpleQueue()
        workers = [
            fork.Process(target=_work, args=(copy, todo[i :: asked.jobs], asked.full, told))
            for i, copy in enumerate(copies)
        ]
        for worker in workers:
            worker.start()
        try:
            for _ in tqdm(todo, unit=" mistakes", smoothing=0):
                one, fate = told.get()
                if isinstance(fate, Exception):
                    raise fate
                found[one] = fate
                tqdm.write(f"{'lives' if fate is None else 'dies '}  {one.anchor}: {one.what}  [{fate}]")
        except KeyboardInterrupt:
            print("stopped")
        finally:
            for worker in workers:
                worker.terminate()
    return report(found, at_random=bool(asked.random))


def at_random(sources: list[Source], n: int, seed: int) -> dict[Mistake, tuple[str, str]]:
    """Random mistakes, with the files that have them, and their texts.

    Their tests are those named after the file, then those of its room, then the contract.
    """
    found = {}
    for made in random_mistakes(sources, n, seed):
        room, stem = Path(made.file).parent, Path(made.file).stem.strip("_")
        tests = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob(f"test_{stem}*.py"))
        while not (TESTS / room).is_dir():
            room = room.parent
        tests += [room.as_posix()] * (room != Path()) + ["test_contract.py"]
        one = Mistake("random", f"{made.file}:{made.line}", made.what, "", tuple(tests))
        found[one] = made.file, made.text
    return found


def _work(copy: Path, todo: list[Any], full: bool, told: Any) -> None:
    for one, (file, wrong) in todo:
        try:
            told.put((one, _fate(one, file, wrong, copy, full)))
        except Exception as error:
            told.put((one, error))


def _fate(one: Mistake, file: str, wrong: str, copy: Path, full: bool) -> str | None:
    path = copy / PACKAGE / file
    compile(wrong, one.what, "exec")  # a mistake that is no Python would always die
    honest = path.read_text()
    for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        old.unlink()
    path.write_text(wrong)
    try:
        fate = first_failure(copy, [f"tests/{test}" for test in one.tests], 60 * MINUTES[0])
        if fate is None and full:
            fate = first_failure(copy, ["tests"], 60 * MINUTES[1])
    finally:
        path.write_text(honest)
    return fate


def report(found: dict[Mistake, str | None], *, at_random: bool) -> int:
    """Prints who lives, and shares by layer; returns the exit code."""
    lives = [one for one, fate in found.items() if fate is None]
    tried, alive = (collections.Counter(one.layer for one in some) for some in (found, lives))
    print(f"\n{'layer':<14} mistakes  died")
    for layer, n in tried.items():
        print(f"{layer:<14} {n:>8} {1 - alive[layer] / n:>5.0%}")
    died = len(found) - len(lives)
    print(f"{'all':<14} {len(found):>8} {died / max(len(found), 1):>5.1%}")
    for one in lives:
        print(f"lives: {one.anchor}: {one.what} ")
    if at_random:
        return TOO_FEW * int(stats.binom.cdf(died, len(found), LEAST_AT_RANDOM) < LEVEL)
    return int(bool(lives))


if __name__ == "__main__":
    sys.exit(main())
