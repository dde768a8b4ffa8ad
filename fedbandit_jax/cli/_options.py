"""Types of flags: what --help calls their values, and how words become numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tyro

T = TypeVar("T")
_QUIET = tyro.conf.arg(help_behavior_hint="")  # no (default: None)
Option = Annotated[T | None, _QUIET]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff, _QUIET]
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
Name = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
Part = Annotated[str | None, tyro.conf.arg(metavar="I/N", help_behavior_hint="")]
Column = Annotated[str | None, tyro.conf.arg(metavar="COLUMN", help_behavior_hint="")]
Columns = Annotated[str | None, tyro.conf.arg(metavar="COLUMN,...", help_behavior_hint="")]
Texts = Annotated[str | None, tyro.conf.arg(metavar="TEXT,...", help_behavior_hint="")]
Table = Annotated[str | None, tyro.conf.arg(metavar="TABLE", help_behavior_hint="")]
Words = Annotated[tuple[str, ...], tyro.conf.arg(metavar="WORD ...", help_behavior_hint="")]
Folder = Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
Set = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="PATH=VALUE", help_behavior_hint="")]
Adjacency = Literal["replace", "zero_out"]

WORDS = tyro.constructors.ConstructorRegistry()  # how words of a command become numbers


@WORDS.primitive_rule
def _whole(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    """Reads whole numbers, also in the form 1e4."""
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
