"""Draws every figure again, by the commands that the numbers beside the pictures begin with.

Without flags everything is measured again, except commands that need a folder of data (DIR). Scripts run one after the
other in a process, and share compiled programs.
"""

import contextlib
import io
import multiprocessing
import re
import runpy
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import tyro
from curves import head
from gallery import OF_COMMANDS
from options import Size

HERE = Path(__file__).parent


def commands(smoke: bool) -> list[str]:
    """Returns script and options of every command; with --smoke of every script, also --as authors."""
    kept = [head(path)[0].removeprefix("python experiments/") for path in sorted((HERE / "figures").glob("*.csv"))]
    if not smoke:
        return kept + [command for command, *_ in OF_COMMANDS.values()]
    plain = {path.name for path in HERE.glob("*.py") if '"__main__":\n' in path.read_text(encoding="utf-8")}
    authors = {f"{one.split()[0]} --as authors" for one in kept if "--as authors" in one}
    return sorted(plain - {"all.py", "gallery.py"} | authors)


def run(command: str, flags: list[str], folder: Path) -> tuple[str, float, str]:
    """Runs a command in this process; returns it, its seconds, and what it wrote if it failed."""
    import matplotlib.pyplot as plt

    script, *options = command.split()
    started, written, failed = time.monotonic(), io.StringIO(), False
    sys.argv = [script, *options, *flags]
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        try:
            if script == "fedbandit":
                of_command(command, folder)
            else:
                runpy.run_path(str(HERE / script), run_name="__main__")
        except (Exception, SystemExit):
            failed = True
            traceback.print_exc()
    plt.close("all")
    return command, time.monotonic() - started, written.getvalue() if failed else ""


def of_command(command: str, folder: Path) -> None:
    """Runs `fedbandit`, and keeps its picture in a folder."""
    from fedbandit_jax import cli

    (name,) = [name for name, (one, *_) in OF_COMMANDS.items() if one == command]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        if cli.main([*command.split()[1:], "--out", made, "--name", name]):
            raise RuntimeError(f"{command} failed")
        shutil.copyfile(Path(made) / f"{name}.png", folder / f"{name}.png")


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
    folder, failures, todo = Size(out=out, commit=commit).folder, [], []
    for one in (one for one in commands(smoke) if re.search(only, one)):
        if "DIR" in one.split() and not redraw:
            print(f"left out, as it needs data: {one}")
        elif not (redraw and one.startswith("fedbandit")):  # whose numbers are not kept
            todo.append(one)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, one, flags, folder) for one in todo]):
            command, seconds, error = done.result()
            print(f"{seconds:6.1f} s  {command}{'  FAILED' if error else ''}\n{error}", end="", flush=True)
            failures += [command] * bool(error)
    if failures:
        raise SystemExit("failed: " + ", ".join(failures))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
