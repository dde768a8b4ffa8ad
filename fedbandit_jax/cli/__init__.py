"""Command line: `fedbandit simulate`, `calibrate`, `audit`, `show`, `data`. All of it calls the public API."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import tyro

from fedbandit_jax.cli import arms, clustered, fed_ucb, linear
from fedbandit_jax.cli.files import data, show
from fedbandit_jax.cli.privacy import audit, calibrate
from fedbandit_jax.core import validate

# of `simulate`, each with options of its own
FAMILIES = {
    "linear": linear.simulate,
    "fed_ucb": fed_ucb.simulate,
    "arms": arms.simulate,
    "clustered": clustered.simulate,
}
INTERRUPTED = 130  # exit code of Ctrl-C
COMMANDS = {"calibrate": calibrate, "audit": audit, "show": show, "data": data}


def main(args: Annotated[list[str] | None, tyro.conf.Suppress] = None) -> int:
    """Entry point: errors are one sentence on stderr, exit code 2."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"simulate": FAMILIES[_family(sys.argv[1:] if args is None else args)], **COMMANDS},
            prog="fedbandit",
            description="Simulate differentially private federated bandits, with certificates you can trust.",
            args=args,
        )
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"fedbandit: {error}", file=sys.stderr)
        return 2
    except (MemoryError, OverflowError) as error:
        print(f"fedbandit: a number is too large for this machine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        resumes = (sys.argv[1:] if args is None else args)[:1] == ["simulate"]
        again = "; the same command continues where it was" if resumes else ""
        print(f"\nfedbandit: stopped{again}", file=sys.stderr)
        return INTERRUPTED
    return 0


def entry() -> None:
    """`fedbandit`. After Ctrl-C a computation may still run, which must not see the interpreter go."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code == INTERRUPTED:
        os._exit(code)
    sys.exit(code)


def _family(args: list[str]) -> str:
    """What `--family` says to `simulate`."""
    for word, value in zip(args, [*args[1:], ""]):
        if args[0] == "simulate" and word.split("=")[0] == "--family":
            return validate.one_of("family", word.partition("=")[2] or value, FAMILIES)
    return "linear"
