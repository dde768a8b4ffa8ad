"""Common parts of all commands: types of flags, errors that name the flag, and files."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import tyro

from fedbandit_jax.cli._log import Roles
from fedbandit_jax.cli._options import Folder, Name
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable
from fedbandit_jax.core.validate import BadValue

PAGE = 100  # most characters of a line of --help


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command. Its fields are the flags, and its docstring is the text of --help."""

    resumes: ClassVar[str] = ""
    """Ends the message after an interruption."""
    flag_of: ClassVar[dict[str, str]] = {}
    """Maps arguments of the public API to flags of another name."""

    # flags that were typed, with underscores
    given: Annotated[frozenset[str], tyro.conf.Suppress] = dataclasses.field(default=frozenset(), repr=False)

    def run(self) -> int:
        """Runs the command and returns the exit code of the process."""
        raise NotImplementedError

    def knowing(self, args: Sequence[str]) -> Self:
        """Returns a copy that knows which flags were typed."""
        words = (word[2:].partition("=")[0].replace("-", "_") for word in args if word.startswith("--"))
        return dataclasses.replace(self, given=frozenset(words))

    def applies_to(self, what: str, here: bool, *flags: str) -> None:
        """Raises a `BadValue` if one of these flags was typed, unless `what` they apply to is `here`."""
        for flag in flags:
            if flag in self.given and not here:
                value = getattr(self, flag)
                raise BadValue(flag, f"applies only to {what}", value, got=_shown(value))

    def named(self, error: str) -> str:
        """Replaces the first word of an error, an argument of the public API, by its flag."""
        argument, space, rest = error.partition(" ")
        flag = self.flag_of.get(argument, argument.removeprefix("n_"))
        if rest.startswith(("must ", "applies ", "= ")) and flag in _flags(type(self)):
            dashes = "" if str(type(self).__annotations__.get(flag)).startswith("tyro.conf.Positional") else "--"
            return f"{dashes}{flag.replace('_', '-')}{space}{rest}"
        return error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """The place of the results.

    Args:
        out: folder for the results. A missing folder is made.
        name: name of the files, without an ending. Older files of this name are replaced. The default name ends in 8
            digits that stand for all options.
    """

    out: Folder = Path("results")
    name: Name = None

    def named(self, default: str, request: Any) -> str:
        """Checks the folder and returns the name of the files, by default `digest(default, request)`."""
        name = digest(default, request) if self.name is None else self.name
        check_writable("out", self.out)
        return validate.file_name("name", name)


Files = Annotated[Output, tyro.conf.arg(name="")]  # flags without a prefix


def digest(name: str, request: Any) -> str:
    """Returns a name with 8 hexadecimal digits that stand for a request."""
    from fedbandit_jax.engine import identity

    return f"{name}-{identity.digest(request).hex()[:8]}"


def progress() -> bool | None:
    """Returns whether to show progress; `entry` makes it sparse if stderr is no terminal."""
    return None if sys.stderr.isatty() else True


def check_values(name: str, values: Sequence[Any]) -> None:
    """Raises a `BadValue` unless there is at least one value and none occurs twice."""
    if not values or len(set(values)) < len(values):
        got = _shown(tuple(values)) or "none"
        raise BadValue(name, "must have at least one value, each only once", got, got=got)


def paragraphs(text: str) -> str:
    """Wraps a text without its Args to the terminal; only paragraphs and items of lists are wrapped."""
    width = min(PAGE, shutil.get_terminal_size().columns)
    parts = re.findall(r"(?:^\S.*\n)+|^.*\n", text.partition("\n\nArgs:")[0] + "\n", re.M)
    wrapped = []
    for part in parts:
        item = re.match(r" +(?:- |\d\. )", part)
        hanging = " " * len(item[0]) if item else ""
        whole = part.rstrip() if part.startswith(" ") and not item else None
        wrapped.append(textwrap.fill(part, width, subsequent_indent=hanging) if whole is None else whole)
    return "\n".join(wrapped)


def _flags(command: type[Command]) -> set[str]:
    names = {field.name for field in dataclasses.fields(command)}
    names |= {field.name for field in dataclasses.fields(Output) if "output" in names}
    return names | {field.name for field in dataclasses.fields(Roles) if "columns" in names}


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def part_of(part: str) -> tuple[int, int]:
    """Reads I and N of a flag --part I/N."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", part)
    if not match or int(match[1]) >= int(match[2]):
        raise BadValue("part", "must be I/N with integers 0 <= I < N", part, got=part)
    return int(match[1]), int(match[2])
