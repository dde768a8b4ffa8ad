"""Command line: `fedbandit simulate FAMILY`, `calibrate`, `audit`, `show`, `data`. All of it calls the public API."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union

import tyro

import fedbandit_jax
from fedbandit_jax.cli._run import Command
from fedbandit_jax.cli.arms import ArmsSimulation
from fedbandit_jax.cli.audit import AuditCommand
from fedbandit_jax.cli.calibrate import CalibrateCommand
from fedbandit_jax.cli.clusters import ClustersSimulation
from fedbandit_jax.cli.data import DataCommand
from fedbandit_jax.cli.linear import LinearSimulation
from fedbandit_jax.cli.schedules import SchedulesSimulation
from fedbandit_jax.cli.show import ShowCommand

ABOUT = """Simulate differentially private federated bandits, with certificates you can trust.

For example:
  fedbandit simulate                    compare private and non-private federated linear bandits
  fedbandit simulate schedules          when should silos synchronise?
  fedbandit calibrate --release blt     how much noise does a budget need?
  fedbandit audit                       try to refute every claim of privacy
  fedbandit --version

Every command has a --help of its own."""
SIMULATE = """Compare algorithms of one family on the same users: regrets, certificates, figures.

Without the name of a family it is `linear`: `fedbandit simulate --seeds 2` is `fedbandit simulate linear --seeds 2`.

For example:
  fedbandit simulate
  fedbandit simulate --env digits
  fedbandit simulate arms --epsilon 0.1 0.5 1
  fedbandit simulate schedules --help   the options of a family"""
FAMILIES = {
    "linear": LinearSimulation,
    "schedules": SchedulesSimulation,
    "arms": ArmsSimulation,
    "clusters": ClustersSimulation,
}
COMMANDS = {
    "simulate": (SIMULATE, FAMILIES),
    "calibrate": CalibrateCommand,
    "audit": AuditCommand,
    "show": ShowCommand,
    "data": DataCommand,
}
INTERRUPTED, TERMINATED = 130, 143  # exit codes after SIGINT and SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM: what Ctrl-C is to a terminal, a scheduler's signal is to a job."""


def parse(args: Sequence[str]) -> Command:
    """The command that these words ask for. Wrong words end the process with code 2, --help with 0."""
    args = list(args)
    if args[:1] == ["simulate"] and (args[1:] or ["--"])[0][0] == "-" and not {"-h", "--help"} & set(args[1:2]):
        args.insert(1, "linear")
    command: Any = tyro.cli(_tree(COMMANDS, args[:2]), prog="fedbandit", description=ABOUT, args=args)
    return command.knowing(args)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command. An error is one sentence on stderr that names the flag, and the exit code is 2."""
    args = sys.argv[1:] if args is None else args
    if list(args) == ["--version"]:
        print(f"fedbandit {fedbandit_jax.__version__}")
        return 0
    command = parse(args)
    try:
        return command.run()
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"fedbandit: {command.named(str(error))}", file=sys.stderr)
        return 2
    except (MemoryError, OverflowError) as error:
        print(f"fedbandit: a number is too large for this machine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"\nfedbandit: stopped{command.resumes}", file=sys.stderr)
        return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def entry() -> None:
    """`fedbandit`. After a signal a computation may still run, which must not see the interpreter go."""
    signal.signal(signal.SIGTERM, _terminate)
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code in (INTERRUPTED, TERMINATED):
        os._exit(code)
    sys.exit(code)


def _terminate(*_: Any) -> None:
    raise Terminated


def _tree(commands: Mapping[str, Any], named: Sequence[str]) -> Any:
    """Nested subcommands as tyro reads them: a union of annotated types. Those not named are listed by one sentence."""
    union = []
    for name, command in commands.items():
        about, kind = (None, command) if isinstance(command, type) else (command[0], _tree(command[1], named))
        if name not in named:
            about = (about or command.__doc__ or "").partition("\n\n")[0]
        union.append(Annotated[kind, tyro.conf.subcommand(name, description=about)])
    return Union[tuple(union)]  # noqa: UP007 - made from a tuple
