"""One-line mistakes in the package, and whether the default tests find them.

    python tests/mutants.py                    every mistake of tests/mistakes, each on the tests nearest to it
    python tests/mutants.py trust gaussian     those whose layer, anchor or description contains one of these words
    python tests/mutants.py --jobs 2           in two processes
    python tests/mutants.py --sample 40        as many of them, and others with another --seed

For every mistake a fresh process imports a copy of the package in which one line is changed, and runs tests until one
fails. The mistake *dies* if one does, and *lives* otherwise: no test sees it. The end lists who lives. Ctrl-C ends the
run, and shows what was found so far.

A layer of the package is a text file in tests/mistakes, and a mistake is a paragraph in it:

    solve_one: half of log det                    the name of a function, and what is wrong in it
      B * A -> A                                  what is written there, and what replaces it: see tests/patterns.py
      > core/test_ridge.py::test_update           tests that should see it, the cheapest ones that do

Leave out mistakes that change nothing. The exit code is 1 if one lives.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from patterns import anchors, mutated, read
from quick import compile_quickly
from tqdm import tqdm

TESTS = Path(__file__).resolve().parent
PACKAGE = "fedbandit_jax"
MINUTES = 5, 60  # after which the tests of a mistake, and of all, count as failed: some mistakes make loops endless
PIPED: dict[str, Any] = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


class Mistake(NamedTuple):
    layer: str  # name of the text file
    anchor: str  # function of the package
    what: str
    change: str  # a pattern and its replacement, see tests/patterns.py
    tests: tuple[str, ...]  # ids of tests


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


def first_failure(copy: Path, tests: Sequence[str], minutes: float) -> str | None:
    """Runs tests on a copy of the repository in a process of its own: the name of the first that fails, or None."""
    options = ["-x", "-q", "-rfE", "--tb=line", "-m", "not slow", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "--strict-markers", "--override-ini", "addopts=", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    try:
        run = subprocess.run(command, cwd=copy, env=environment, **PIPED, timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        return f"{minutes:g} minutes are over"
    if run.returncode in (0, 5):  # 5: nothing was collected
        return None
    named = re.search(r"^(?:FAILED|ERROR) (?:tests/)?([^\s\[]+)", run.stdout, re.MULTILINE)
    return named[1] if named else "the package does not import"


def fate(one: Mistake, file: str, wrong: str, copies: queue.Queue[Path]) -> str | None:
    """Puts a mistake into a free copy of the package, and returns the first of its tests that fails, or None."""
    copy = copies.get()
    path = copy / PACKAGE / file
    honest = path.read_text()
    try:
        compile(wrong, one.what, "exec")  # a mistake that is no Python would always die
        path.write_text(wrong)
        return first_failure(copy, [f"tests/{test}" for test in one.tests], MINUTES[0])
    finally:
        path.write_text(honest)
        copies.put(copy)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command."""
    first, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only mistakes with one of these in layer, anchor or description")
    parser.add_argument("--sample", type=int, metavar="N", help="at most N mistakes, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--passing", action="store_true", help="their tests are known to pass without them")
    asked = parser.parse_args(arguments)
    known = anchors(read(TESTS.parent / PACKAGE))
    listed = [one for one in mistakes() if not asked.words or any(w in " ".join(one[:3]) for w in asked.words)]
    drawn = random.Random(asked.seed).sample(listed, min(len(listed), asked.sample or len(listed)))
    chosen = {one: mutated(one.anchor, one.change, known) for one in drawn}
    if not chosen:
        parser.error(f"words must name a layer, a function or a part of a description, got {' '.join(asked.words)}")
    os.environ.setdefault("FEDBANDIT_TEST_CACHE", str(TESTS.parent / ".jax_cache"))
    os.environ.setdefault("MPLBACKEND", "Agg")
    compile_quickly()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # bytecode is told apart by its second only
    copies: queue.Queue[Path] = queue.Queue()
    found: dict[Mistake, str | None] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        hidden = shutil.ignore_patterns(".git", ".venv", "*_cache", "__pycache__", "*.egg-info", "results")
        for i in range(asked.jobs):
            copies.put(Path(shutil.copytree(TESTS.parent, Path(folder) / str(i), ignore=hidden)))
        if not asked.passing:
            nearest = sorted({f"tests/{test}" for one in chosen for test in one.tests})
            print(f"{len(chosen)} mistakes; their tests must pass without them ...", flush=True)
            if broken := first_failure(copies.queue[0], nearest, MINUTES[1]):
                print(f"{broken} fails without any mistake", file=sys.stderr)
                return 2
        tried = {pool.submit(fate, one, *place, copies): one for one, place in chosen.items()}
        try:
            for done in tqdm(as_completed(tried), total=len(tried), unit=" mistakes", smoothing=0):
                one = tried[done]
                found[one] = done.result()
                tqdm.write(f"{'lives' if found[one] is None else 'dies '}  {one.anchor}: {one.what}  [{found[one]}]")
        except KeyboardInterrupt:
            print("stopped")
        finally:
            pool.shutdown(cancel_futures=True)
    return report(found)


def report(found: dict[Mistake, str | None]) -> int:
    """Prints who lives, and how many died; returns the exit code."""
    lives = [one for one, fate in found.items() if fate is None]
    for one in lives:
        print(f"lives: {one.layer}, {one.anchor}: {one.what}")
    print(f"{len(found) - len(lives)} of {len(found)} mistakes died")
    return int(bool(lives))


if __name__ == "__main__":
    sys.exit(main())
