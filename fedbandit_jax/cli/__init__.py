"""The command line: commands that call the public API, see `COMMANDS`."""

from __future__ import annotations

import functools
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import tyro
from tqdm import tqdm

import fedbandit_jax
from fedbandit_jax.cli._command import Command
from fedbandit_jax.cli.audit import AuditCommand
from fedbandit_jax.cli.benchmark import BenchmarkCommand
from fedbandit_jax.cli.calibrate import CalibrateCommand
from fedbandit_jax.cli.data import DataCommand
from fedbandit_jax.cli.plan import PlanCommand
from fedbandit_jax.cli.reproduce import ReproduceCommand
from fedbandit_jax.cli.show import ShowCommand
from fedbandit_jax.cli.simulate import SimulateCommand, SweepCommand

ABOUT = """Simulate differentially private federated bandits, and certify what a run proves about privacy.

Silos (agents) learn together from users who must stay private.

Commands, each with its own --help:"""
COMMANDS: dict[str, type[Command]] = {
    kind.__name__.removesuffix("Command").lower(): kind
    for kind in (
        *(SimulateCommand, SweepCommand, PlanCommand, CalibrateCommand, AuditCommand),
        *(BenchmarkCommand, ShowCommand, DataCommand, ReproduceCommand),
    )
}
INTERRUPTED, CLOSED, TERMINATED = 130, 141, 143  # exit codes: 128 + SIGINT, a closed pipe (SIGPIPE), SIGTERM


def parse(args: Sequence[str]) -> Command:
    """Returns the command of the words after `fedbandit`.

    Raises:
        SystemExit: code 2 for wrong words, code 0 after --help.
    """
    name, words = next(iter(args), ""), list(args[1:])
    helps = bool({"-h", "--help"} & {*args})
    if name in COMMANDS:
        if helps:  # tyro would join the lines of paragraphs
            print(COMMANDS[name].about(words), end="\n\n")
        config = (tyro.conf.DisallowNone,)  # None is a default, not a word
        return tyro.cli(COMMANDS[name], prog=f"fedbandit {name}", description="", args=words, config=config)
    if helps:
        lines = [f"  fedbandit {one:<10} {kind.about([]).partition('.')[0]}" for one, kind in COMMANDS.items()]
        print(ABOUT, *lines, sep="\n")
        raise SystemExit(0)
    print(f"fedbandit: COMMAND must be one of {', '.join(COMMANDS)}, got {name or 'none'}", file=sys.stderr)
    raise SystemExit(2)


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command of these words, by default of this process, and returns the exit code.

    The code is 0 after success and 2 after an error, one sentence on stderr that names the flag. It is 1 if an audit
    fails, nothing meets the demands of a plan, or a file is refused. It is 130 after Ctrl-C, 141 after a closed pipe,
    and 143 after SIGTERM.
    """
    args = sys.argv[1:] if args is None else args
    if list(args) == ["--version"]:
        print(f"fedbandit {fedbandit_jax.__version__}")
        return 0
    command = parse(args)
    try:
        return command.run()
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, ImportError, OSError) as error:
        said = command.named(error)
    except (MemoryError, OverflowError) as error:
        said = f"a number is too large for this machine: {error}"
    except RuntimeError as error:
        platforms = os.environ.get("JAX_PLATFORMS")
        if not platforms or "backend" not in str(error):
            raise
        said = f"JAX_PLATFORMS must name a device of this machine, got {platforms!r}"
    except KeyboardInterrupt as stop:
        print(f"\nfedbandit: stopped{command.resumes}", file=sys.stderr)
        return stop.args[0] if stop.args else INTERRUPTED
    print(f"fedbandit: {said}", file=sys.stderr)
    return 2


def entry() -> None:
    """Runs `fedbandit` and ends the process.

    After a signal the process ends without the interpreter's clean-up, because another thread may still compute. After
    a second signal it ends at once. Files are complete at any time.
    """
    stopping = []

    def stop(number: int, *_: Any) -> None:
        if stopping:
            os.write(sys.stderr.fileno(), b"\nfedbandit: stopped at once\n")
            os._exit(128 + number)
        stopping.append(number)
        raise KeyboardInterrupt(128 + number)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    os.environ.setdefault("MPLBACKEND", "Agg")  # pictures go to files, no window opens
    gc.set_threshold(100_000, 50, 50)  # tracing makes many small objects
    if isinstance(sys.stdout, io.TextIOWrapper):  # a console may lack letters of a name
        sys.stdout.reconfigure(errors="backslashreplace")
    if not sys.stderr.isatty():  # a line now and then
        sparse: Any = functools.partialmethod(tqdm.__init__, mininterval=30.0, maxinterval=60.0, ascii=True)
        tqdm.__init__ = sparse
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # a reader such as `head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CLOSED
    except KeyboardInterrupt:  # before the command began
        code = INTERRUPTED
    sys.stderr.flush()
    if code in (INTERRUPTED, TERMINATED):
        os._exit(code)
    sys.exit(code)
