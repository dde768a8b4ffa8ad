"""The command line: `fedbandit simulate FAMILY`, `sweep` and others (see `COMMANDS`), which call the public API."""

from __future__ import annotations

import functools
import gc
import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union

import tyro
from tqdm import tqdm

import fedbandit_jax
from fedbandit_jax.cli._command import WORDS, Command
from fedbandit_jax.cli.audit import AuditCommand
from fedbandit_jax.cli.benchmark import BenchmarkCommand
from fedbandit_jax.cli.calibrate import CalibrateCommand
from fedbandit_jax.cli.data import DataCommand
from fedbandit_jax.cli.files import ReportCommand, ShowCommand
from fedbandit_jax.cli.plan import PlanCommand
from fedbandit_jax.cli.simulate import SimulateCommand
from fedbandit_jax.cli.sweep import SweepCommand

ABOUT = """Simulate differentially private federated bandits, and certify what a run proves about privacy.

Silos (agents) learn together from users, each of whom must stay private. Results are tables, figures and files.

For example:
  fedbandit simulate                    compare private and non-private federated linear bandits
  fedbandit simulate schedules          when should silos synchronise?
  fedbandit sweep CONFIG.toml           run what a file asks for, here or on many machines
  fedbandit plan --trusted secagg       which algorithm, under whose trust, how often to communicate?
  fedbandit calibrate --release blt     how much noise does a budget need?
  fedbandit audit                       try to refute every claim of privacy
  fedbandit benchmark mine.py:recipe    where does an algorithm of your own stand?
  fedbandit show FILE                   print a saved result again
  fedbandit report results              one page with figures, tables and certificates
  fedbandit data log.csv                what is in a table of your own, and what it can answer
  fedbandit --version

Every command has a --help of its own."""
SIMULATE = """Compare algorithms of one family on the same users, and print and draw their regrets.

A family is a kind of comparison: see the list below. Without the name of a family it is `linear`, so that
`fedbandit simulate --seeds 2` means `fedbandit simulate linear --seeds 2`.

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
INTERRUPTED, CLOSED, TERMINATED = 130, 141, 143  # exit codes after SIGINT, of a closed pipe (SIGPIPE), after SIGTERM


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, so that a job which its scheduler stops ends in the same way as after Ctrl-C."""


def parse(args: Sequence[str]) -> Command:
    """The command that the words after `fedbandit` ask for; `simulate` means `simulate linear`.

    Raises:
        SystemExit: with code 2 if the words are wrong, and with code 0 after --help.
    """
    args = list(args)
    flags = "".join(args[1:2])[:1] in ("", "-") and args[1:2] not in ([""], ["-h"], ["--help"])
    if args[:1] == ["simulate"] and flags:
        args.insert(1, "linear")
    words, asked, about, prog = list(args), COMMANDS, ABOUT, "fedbandit"
    while isinstance(asked, dict) and words[:1] and words[0] in asked:
        prog, asked = f"{prog} {words[0]}", asked[words.pop(0)]
        about, asked = asked if isinstance(asked, tuple) else (None, asked)
    options: dict[str, Any] = {}
    if isinstance(asked, dict):
        asked = _listed(asked)
    elif isinstance(asked, SimulateCommand):
        about, options = asked.about({"-h", "--help"} & {*words} != set()), {"default": asked}
        asked = SimulateCommand
    config = (tyro.conf.DisallowNone,)  # None is a default, and no word
    with WORDS:
        command: Any = tyro.cli(asked, prog=prog, description=about, args=words, config=config, **options)
    return command.knowing(args)


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command that these words ask for, and returns the exit code.

    The code is 0 if all went well; 1 if an audit found something that is not as it should be, or if nothing meets the
    demands of a plan; 2 after an error, which is one sentence on stderr that names the flag; 130 after Ctrl-C; 141 if
    nobody reads what is printed any more; 143 after SIGTERM. By default the words are those of this process.
    """
    args = sys.argv[1:] if args is None else args
    if list(args) == ["--version"]:
        print(f"fedbandit {fedbandit_jax.__version__}")
        return 0
    try:
        return _run(parse(args))
    except BrokenPipeError:  # who reads, as `head` does, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED


def _run(command: Command) -> int:
    """The exit code of a command, but for a closed pipe."""
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
    """Whether JAX finds a device."""
    import jax

    try:
        return bool(jax.devices())
    except Exception:  # of several kinds
        return False


def entry() -> None:
    """Runs `fedbandit` and ends the process.

    After a signal the process ends without the interpreter's clean-up, because a computation may still be running in
    another thread, which must not see the interpreter go. After a second one it ends at once, unless it is just writing
    a checkpoint: every file is whole at any time, and the lock of a process that is gone is not respected.
    """
    stop = _Stop()
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    gc.set_threshold(100_000, 50, 50)  # tracing makes many small objects that live
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of silos may have letters that a console has not
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
    """A handler of signals: the first one raises an exception, and after the second one there is no time for that."""

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
    """Commands of which none was named, as tyro lists them with the first lines of what they do: a union of types."""
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
