"""Draws every figure again, by the commands that the numbers beside the pictures begin with.

Without flags everything is measured again, except commands that need a folder of data (DIR). Figures are drawn one
after the other in a process, and share compiled programs.
"""

import contextlib
import io
import multiprocessing
import re
import runpy
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import tyro
from draw import experiments, head
from options import FIGURES, HERE

SCRIPTS = ("benchmark.py", "planning.py")  # which draw no picture


def commands(smoke: bool) -> list[str]:
    """Returns script and options of every command; with --smoke of every figure and script, also --as authors."""
    kept = [head(path)[0].removeprefix("python experiments/") for path in sorted(FIGURES.glob("*.csv"))]
    if not smoke:
        return kept
    authors = {f"draw.py {one.split()[1]} --as authors" for one in kept if "--as authors" in one}
    return sorted({f"draw.py {name}" for name in experiments()} | authors | {*SCRIPTS})


def run(command: str, flags: list[str]) -> tuple[str, float, str]:
    """Runs a command in this process; returns it, its seconds, and what it wrote if it failed."""
    import matplotlib.pyplot as plt

    script, *options = command.split()
    started, written, failed = time.monotonic(), io.StringIO(), False
    sys.argv = [script, *options, *flags]
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        try:
            runpy.run_path(str(HERE / script), run_name="__main__")
        except (Exception, SystemExit):
            failed = True
            traceback.print_exc()
    plt.close("all")
    return command, time.monotonic() - started, written.getvalue() if failed else ""


def main(
    smoke: bool = False,
    redraw: bool = False,
    only: str = "",
    jobs: int = 1,
    out: tyro.conf.DisallowNone[Path | None] = None,
    commit: bool = False,
) -> None:
    """Draw every figure.

    Args:
        smoke: run a few rounds only, to see that everything works.
        redraw: run nothing, and draw from the numbers (CSV) beside the pictures, or else in experiments/figures.
        only: regular expression; commands in which it is not found are left out.
        jobs: number of processes.
        out: folder for the pictures; by default results, or with --commit experiments/figures.
        commit: replace the committed pictures and their numbers.
    """
    flags = ["--smoke"] * smoke + ["--redraw"] * redraw + (["--out", str(out)] if out else []) + ["--commit"] * commit
    failures, todo = [], []
    for one in (one for one in commands(smoke) if re.search(only, one)):
        if "DIR" in one.split() and not redraw:
            print(f"left out, as it needs data: {one}")
        else:
            todo.append(one)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, one, flags) for one in todo]):
            command, seconds, error = done.result()
            print(f"{seconds:6.1f} s  {command}{'  FAILED' if error else ''}\n{error}", end="", flush=True)
            failures += [command] * bool(error)
    if failures:
        raise SystemExit("failed: " + ", ".join(failures))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
