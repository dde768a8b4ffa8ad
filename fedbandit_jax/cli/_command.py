"""Common parts of all commands: types of flags, errors that name the flag, and files."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import tyro

from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable
from fedbandit_jax.core.validate import BadArgument, BadValue

# Types of flags: what --help calls their values.
T = TypeVar("T")
quiet = functools.partial(tyro.conf.arg, help_behavior_hint="")  # no (default: None)
Option = Annotated[T | None, quiet()]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff, quiet()]
File = Annotated[Path | None, quiet(metavar="FILE")]
Name = Annotated[str | None, quiet(metavar="NAME")]
Words = Annotated[tuple[str, ...], quiet(metavar="WORD ...")]
Folder = Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
Set = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, quiet(metavar="PATH=VALUE")]
Adjacency = Literal["replace", "zero_out"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command. Its fields are the flags, and its docstring is the text of --help."""

    resumes: ClassVar[str] = ""
    """Ends the message after an interruption."""
    flag_of: ClassVar[dict[str, str]] = {}
    """Maps arguments of the public API to flags of another name."""

    def run(self) -> int:
        """Runs the command and returns the exit code of the process."""
        raise NotImplementedError

    @classmethod
    def about(cls, words: Sequence[str]) -> str:
        """Returns the text of --help above the flags, for these words of the command."""
        return inspect.getdoc(cls) or ""

    def applies_to(self, what: str, here: bool, *flags: str) -> None:
        """Raises a `BadValue` if one of these flags has another value than its default, unless `here` is true."""
        given = _given(self)
        for flag in flags:
            if given[flag] and not here:
                value = getattr(self, flag)
                got = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
                raise BadValue(flag, f"applies only to {what}", value, got=got)

    def named(self, error: Exception) -> str:
        """Returns an error in one sentence that names the flag, or else the place in a file."""
        *tables, file = getattr(error, "__notes__", [""])  # the innermost table first
        known = isinstance(error, BadArgument)
        argument, value, others = (error.argument, error.value, error.others) if known else ("", None, ())
        flag, given = self.flag_of.get(argument, argument.removeprefix("n_")), _given(self)
        if argument == "grid" and any(change.startswith(f"{value}=") for change in getattr(self, "set", ())):
            return str(error).partition(";")[0].replace("grid", "--set", 1)  # without advice for Python
        if flag in given and (given[flag] or not tables):
            told = str(error).replace(argument, self._shown(flag), 1)
            for other in set(others) & {*given} - {flag}:
                word = f"`{other}`" if f"`{other}`" in told else rf"(?<![\w-]){other}\b"
                told = re.sub(word, self._shown(other), told, count=1)
            return told
        place = ".".join(reversed(tables))
        return f"{file}{place and f', [{place}]'}{file and ': '}{error}"

    @classmethod
    def _shown(cls, flag: str) -> str:
        """Returns a flag as --help shows it: with dashes, or the word for a positional argument."""
        kind = str(cls.__annotations__.get(flag))
        word = re.search(r"metavar=.\[?(\w+)", kind)
        return (word[1] if word else flag) if "Positional" in kind else f"--{flag.replace('_', '-')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Place for the results."""

    out: Folder = Path("results")  # folder for the results. A missing folder is made.
    # name of the files, without an ending. Older files of this name are replaced. The default name ends in 8 digits
    # that stand for all options.
    name: Name = None

    def named(self, default: str, request: Any) -> str:
        """Checks the folder and returns the name of the files, by default with 8 digits that stand for a request."""
        from fedbandit_jax.engine import identity

        check_writable("out", self.out)
        name = f"{default}-{identity.digest(request).hex()[:8]}" if self.name is None else self.name
        return validate.file_name("name", name)


Files = Annotated[Output, tyro.conf.arg(name="")]  # flags without a prefix


def progress() -> bool | None:
    """Returns whether to show progress; `entry` makes it sparse if stderr is no terminal."""
    return None if sys.stderr.isatty() else True


def _given(part: Any) -> dict[str, bool]:
    """Returns flags, also those of parts such as `Output`, and whether they have another value than their default."""
    found = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        found |= _given(value) if dataclasses.is_dataclass(value) else {field.name: value != field.default}
    return found
