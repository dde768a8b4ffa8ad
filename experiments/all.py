"""Draws every figure again, by the commands that the numbers beside the pictures begin with.

python experiments/all.py [--smoke | --redraw] [--only PATTERN] [--jobs N] [--out DIR | --commit]

Without flags everything is measured again, but for commands that need a folder of data (DIR). Scripts run one after the
other in a process, and share compiled programs.
"""

import contextlib
import io
import multiprocessing
import re
import runpy
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import tyro
from gallery import OF_COMMANDS

from fedbandit_jax.core.files import write_atomic

HERE = Path(__file__).parent
# Modules that draw nothing
SHARED = (
    "all",
    "arms",
    "authors",
    "authors_arms",
    "clusters",
    "curves",
    "drawing",
    "gallery",
    "options",
    "recipes",
    "silos",
)


def commands(smoke: bool) -> list[str]:
    """Returns script and options of every command; with --smoke those of every script, and its --as authors."""
    heads = [path.open(encoding="utf-8").readline() for path in sorted((HERE / "figures").glob("*.csv"))]
    kept = [found[1] for head in heads if (found := re.match(r"# python experiments/(.*?) \|", head))]
    if not smoke:
        return kept + [command for command, *_ in OF_COMMANDS.values()]
    plain = [path.name for path in sorted(HERE.glob("*.py")) if path.stem not in SHARED]
    return sorted({*plain, *(f"{one.split()[0]} --as authors" for one in kept if "--as authors" in one)})


def run(command: str) -> tuple[str, float, str]:
    """Runs a command in this process; returns it, its seconds, and what it wrote if it failed."""
    import matplotlib.pyplot as plt

    script, *options = command.split()
    started, written, failed = time.monotonic(), io.StringIO(), False
    sys.argv = [script, *options]
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        try:
            if script == "fedbandit":
                of_command(options)
            else:
                runpy.run_path(str(HERE / script), run_name="__main__")
        except (Exception, SystemExit):
            failed = True
            traceback.print_exc()
    plt.close("all")
    return command, time.monotonic() - started, written.getvalue() if failed else ""


def of_command(words: list[str]) -> None:
    """Runs `fedbandit` with these words, and keeps its picture; the last may be --out FOLDER or --commit."""
    from fedbandit_jax import cli

    folder = Path("results")
    if words[-1] == "--commit":
        words, folder = words[:-1], HERE / "figures"
    elif words[-2:-1] == ["--out"]:
        words, folder = words[:-2], Path(words[-1])
    folder.mkdir(parents=True, exist_ok=True)
    (name,) = [name for name, (command, *_) in OF_COMMANDS.items() if command.split()[1:] == words]
    with tempfile.TemporaryDirectory() as made:
        if cli.main([*words, "--out", made, "--name", name]):
            raise RuntimeError(f"fedbandit {' '.join(words)} failed")
        made, kept = Path(made) / f"{name}.png", folder / f"{name}.png"
        if folder == HERE / "figures":  # older pictures do not say that they are ours
            kept.unlink(missing_ok=True)
        write_atomic(kept, lambda file: file.write(made.read_bytes()))


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
    words = ["--smoke"] * smoke + ["--redraw"] * redraw + (["--out", str(out)] if out else []) + ["--commit"] * commit
    todo = [" ".join([one, *words]) for one in commands(smoke) if re.search(only, one)]
    if redraw:
        todo = [one for one in todo if not one.startswith("fedbandit")]  # whose numbers are not kept
    needing = [] if redraw else [one for one in todo if "DIR" in one.split()]
    todo = [one for one in todo if one not in needing]
    for one in needing:
        print(f"left out, as it needs data: {one}")
    failures = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, one) for one in todo]):
            command, seconds, error = done.result()
            print(f"{seconds:6.1f} s  {command}{'  FAILED' if error else ''}\n{error}", end="", flush=True)
            failures += [command] * bool(error)
    if failures:
        raise SystemExit("failed: " + ", ".join(failures))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
