"""The command line: commands that call the public API, see `COMMANDS`."""

from __future__ import annotations

import functools
import gc
import inspect
import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union

import tyro
from tqdm import tqdm

import fedbandit_jax
from fedbandit_jax.cli._command import Command, paragraphs
from fedbandit_jax.cli._options import WORDS
from fedbandit_jax.cli.audit import AuditCommand
from fedbandit_jax.cli.benchmark import BenchmarkCommand
from fedbandit_jax.cli.calibrate import CalibrateCommand
from fedbandit_jax.cli.data import DataCommand
from fedbandit_jax.cli.files import ReportCommand, ShowCommand
from fedbandit_jax.cli.plan import PlanCommand
from fedbandit_jax.cli.simulate import SimulateCommand
from fedbandit_jax.cli.sweep import SweepCommand

ABOUT = """Simulate differentially private federated bandits, and certify what a run proves about privacy.

Silos (agents) learn together from users who must stay private.

For example:
  fedbandit simulate                    compare private and non-private federated linear bandits
  fedbandit simulate schedules          when should silos synchronise?
  fedbandit sweep CONFIG.toml           run a file's sweep, here or on many machines
  fedbandit plan --trusted secagg       which algorithm should I use?
  fedbandit calibrate --release blt     how much noise does a budget need?
  fedbandit audit                       try to refute every claim of privacy
  fedbandit benchmark mine.py:recipe    where does my algorithm stand?
  fedbandit show FILE                   print a saved result again
  fedbandit report results              write one page with figures, tables and certificates
  fedbandit data log.csv                what can my table answer?
  fedbandit --version

Every command has its own --help."""
SIMULATE = """Compare algorithms of one family on the same users.

The default family is linear: `fedbandit simulate --seeds 2` means `fedbandit simulate linear --seeds 2`.

For example:
  fedbandit simulate
  fedbandit simulate --env digits
  fedbandit simulate arms --epsilon 0.1 0.5 1
  fedbandit simulate schedules --help   explain a family and its parameters"""
FAMILIES = {name: SimulateCommand(family=name) for name in ("linear", "schedules", "arms", "clusters")}
COMMANDS = {  # name -> command, or a description and the commands below it
    "simulate": (SIMULATE, FAMILIES),
    "sweep": SweepCommand,
    "plan": PlanCommand,
    "calibrate": CalibrateCommand,
    "audit": AuditCommand,
    "benchmark": BenchmarkCommand,
    "show": ShowCommand,
    "report": ReportCommand,
    "data": DataCommand,
}
INTERRUPTED, CLOSED, TERMINATED = 130, 141, 143  # exit codes: SIGINT, closed pipe (SIGPIPE), SIGTERM


class Terminated(KeyboardInterrupt):
    """An interruption by SIGTERM, which ends a job like Ctrl-C."""


def parse(args: Sequence[str]) -> Command:
    """Returns the command of the words after `fedbandit`; `simulate` means `simulate linear`.

    Raises:
        SystemExit: code 2 for wrong words, code 0 after --help.
    """
    args = list(args)
    flags = "".join(args[1:2])[:1] in ("", "-") and args[1:2] not in ([""], ["-h"], ["--help"])
    if args[:1] == ["simulate"] and flags:
        args.insert(1, "linear")
    words, asked, about, prog, helps = list(args), COMMANDS, ABOUT, "fedbandit", bool({"-h", "--help"} & {*args})
    while isinstance(asked, dict) and words[:1] and words[0] in asked:
        prog, asked = f"{prog} {words[0]}", asked[words.pop(0)]
        about, asked = asked if isinstance(asked, tuple) else (None, asked)
    options: dict[str, Any] = {}
    if isinstance(asked, dict):
        asked = _listed(asked)
    elif isinstance(asked, SimulateCommand):
        about, options = asked.about(helps), {"default": asked}
        asked = SimulateCommand
    if helps:  # tyro would join the lines of paragraphs
        print(paragraphs(about or inspect.getdoc(asked) or ""), end="\n\n")
    config = (tyro.conf.DisallowNone,)  # None is a default, not a word
    with WORDS:
        command: Any = tyro.cli(asked, prog=prog, description="", args=words, config=config, **options)
    return command.knowing(args)


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
    try:
        return _run(parse(args))
    except BrokenPipeError:  # a reader such as `head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED


def _run(command: Command) -> int:
    """Runs a command and returns its exit code, except for a closed pipe."""
    try:
        return command.run()
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"fedbandit: {command.named(str(error))}", file=sys.stderr)
        return 2
    except (MemoryError, OverflowError) as error:
        print(f"fedbandit: a number is too large for this machine: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, AssertionError):  # as JAX raises them
        platforms = os.environ.get("JAX_PLATFORMS")
        if not platforms or _has_device():
            raise
        print(f"fedbandit: JAX_PLATFORMS must name a device of this machine, got {platforms!r}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"\nfedbandit: stopped{command.resumes}", file=sys.stderr)
        return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def _has_device() -> bool:
    """Returns whether JAX finds a device."""
    import jax

    try:
        return bool(jax.devices())
    except Exception:  # of several kinds
        return False


def entry() -> None:
    """Runs `fedbandit` and ends the process.

    After a signal the process ends without the interpreter's clean-up, because another thread may still compute. After
    a second signal it ends at once, unless it is writing a checkpoint. Files are complete at any time, and a lock ends
    with its process.
    """
    stop = _Stop()
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    gc.set_threshold(100_000, 50, 50)  # tracing makes many small objects
    if isinstance(sys.stdout, io.TextIOWrapper):  # a console may lack letters of a name
        sys.stdout.reconfigure(errors="backslashreplace")
    if not sys.stderr.isatty():  # a line now and then
        sparse: Any = functools.partialmethod(tqdm.__init__, mininterval=30.0, maxinterval=60.0, ascii=True)
        tqdm.__init__ = sparse
    try:
        code = main()
    except KeyboardInterrupt:  # before the command began
        code = INTERRUPTED
    sys.stdout.flush()
    sys.stderr.flush()
    if code in (INTERRUPTED, TERMINATED):
        os._exit(code)
    sys.exit(code)


class _Stop:
    """A handler of signals. The first one raises an exception, and the second one ends the process."""

    def __init__(self):
        self._stopping = False

    def __call__(self, number: int, *_: Any) -> None:
        terminated = number == signal.SIGTERM
        if self._stopping:
            os.write(sys.stderr.fileno(), b"\nfedbandit: stopped at once\n")
            os._exit(TERMINATED if terminated else INTERRUPTED)
        self._stopping = True
        raise Terminated if terminated else KeyboardInterrupt


def _listed(commands: Mapping[str, Any]) -> Any:
    """Returns a union of commands, which tyro lists with the first lines of their texts."""
    union = []
    for name, command in commands.items():
        if isinstance(command, tuple):
            about, kind = command[0], _listed(command[1])
        elif isinstance(command, SimulateCommand):
            about, kind = command.about(), SimulateCommand
        else:
            about, kind = command.__doc__, command
        union.append(Annotated[kind, tyro.conf.subcommand(name, description=(about or "").partition("\n\n")[0])])
    return Union[tuple(union)]  # noqa: UP007 - made from a tuple
