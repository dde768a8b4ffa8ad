"""Common parts of all commands: flags that must apply, errors that name the flag, files, and printed results."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import tyro

from fedbandit_jax.cli._log import Roles
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable
from fedbandit_jax.core.validate import BadValue

Adjacency = Literal["replace", "zero_out"]

WORDS = tyro.constructors.ConstructorRegistry()  # how words of a command become numbers


@WORDS.primitive_rule
def _whole(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    """Whole numbers, which may also be written as 1e4."""
    if info.type is not int:
        return None

    def of(words: list[str]) -> int:
        (word,) = words
        if re.fullmatch(r"[+-]?\d+(_\d+)*", word):
            return int(word)
        if not (re.fullmatch(r"[+-]?[\d.]+e\+?\d+", word) and float(word).is_integer()):
            raise ValueError(f"must be a whole number, such as 10000 or 1e4, got {word!r}")
        return int(float(word))

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=of,
        is_instance=lambda value: type(value) is int,
        str_from_instance=lambda value: [str(value)],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Base class of the commands, whose fields are the flags and whose docstring is the text of --help."""

    resumes: ClassVar[str] = ""
    """The end of the message after an interruption."""
    flag_of: ClassVar[dict[str, str]] = {}
    """Maps an argument of the public API to its flag, where the two have different names."""

    # names of the flags that were typed, with underscores
    given: Annotated[frozenset[str], tyro.conf.Suppress] = dataclasses.field(default=frozenset(), repr=False)

    def run(self) -> int:
        """Runs the command, and returns the exit code of the process."""
        raise NotImplementedError

    def knowing(self, args: Sequence[str]) -> Self:
        """A copy that knows which flags were typed."""
        words = (word[2:].partition("=")[0].replace("-", "_") for word in args if word.startswith("--"))
        return dataclasses.replace(self, given=frozenset(words))

    def applies_to(self, what: str, here: bool, *flags: str) -> None:
        """Raises a `ValueError` if one of these flags was typed but is for `what` only, which is not `here`."""
        for flag in flags:
            if flag in self.given and not here:
                value = getattr(self, flag)
                raise BadValue(flag, f"applies only to {what}", value, got=_shown(value))

    def named(self, error: str) -> str:
        """The error message, whose first word, an argument of the public API, is replaced by the flag."""
        argument, space, rest = error.partition(" ")
        flag = self.flag_of.get(argument, argument.removeprefix("n_"))
        if rest.startswith(("must ", "applies ", "= ")) and flag in _flags(type(self)):
            dashes = "" if str(type(self).__annotations__.get(flag)).startswith("tyro.conf.Positional") else "--"
            return f"{dashes}{flag.replace('_', '-')}{space}{rest}"
        return error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Where results are written.

    Args:
        out: folder for the results, which is made if it is missing.
        name: name of the files, without an ending; they replace older ones of that name. By default it is the family,
            the environment or the configuration, followed by 8 digits that stand for all options, so that different
            runs have different files.
    """

    out: Path = Path("results")
    name: str | None = None

    def named(self, default: str, request: Any) -> str:
        """The name of the files, checked as the folder is: by default `digest(default, request)`."""
        name = digest(default, request) if self.name is None else self.name
        check_writable("out", self.out)
        return validate.file_name("name", name)


Files = Annotated[Output, tyro.conf.arg(name="")]  # flags without a prefix


def digest(name: str, request: Any) -> str:
    """A name with 8 hexadecimal digits that stand for a request."""
    from fedbandit_jax.engine import identity

    return f"{name}-{identity.digest(request).hex()[:8]}"


def progress() -> bool | None:
    """Whether to show progress: also where stderr is no terminal, if `entry` has made that sparse."""
    return None if sys.stderr.isatty() else True


def check_values(name: str, values: Sequence[Any]) -> None:
    """Raises a `ValueError` unless there is at least one value, and none occurs twice."""
    if not values or len(set(values)) < len(values):
        raise BadValue(
            name,
            "must have at least one value, each only once",
            _shown(tuple(values)) or "none",
            got=_shown(tuple(values)) or "none",
        )


def _flags(command: type[Command]) -> set[str]:
    names = {field.name for field in dataclasses.fields(command)}
    names |= {field.name for field in dataclasses.fields(Output) if "output" in names}
    return names | {field.name for field in dataclasses.fields(Roles) if "columns" in names}


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def part_of(part: str) -> tuple[int, int]:
    """I and N of a flag --part I/N, where 0 <= I < N."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", part)
    if not match or int(match[1]) >= int(match[2]):
        raise BadValue("part", "must be I/N with integers 0 <= I < N", part, got=part)
    return int(match[1]), int(match[2])
