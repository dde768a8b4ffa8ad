"""Flags for the roles of a log's columns, which are arguments of `fb.data.table`."""

from __future__ import annotations

import csv
import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from fedbandit_jax.cli._command import Option, quiet
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

if TYPE_CHECKING:
    from fedbandit_jax.envs import Logged

Table = Annotated[str | None, quiet(metavar="TABLE")]
Column = Annotated[str | None, quiet(metavar="COLUMN")]
Columns = Annotated[str | None, quiet(metavar="COLUMN,...")]
Texts = Annotated[str | None, quiet(metavar="TEXT,...")]
LISTS = ("features", "arm_features", "missing")  # values with commas between them
NEEDED = ("silo", "arm", "reward")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roles:
    """Roles of the columns of a log."""

    silo: Column = None  # column with the silo, such as a hospital.
    arm: Column = None  # column with the arm that was shown.
    reward: Column = None  # column with the reward, a number.
    user: Column = None  # column with the user, if users return.
    # columns with facts about a user that are known before the arm is chosen. Quote a name that has a comma.
    features: Columns = None
    arm_features: Columns = None  # columns that describe the arm.
    # column with the probability of the arm that was shown. `fb.off_policy` uses it in Python.
    propensity: Column = None
    # column of numbers or dates. The earliest rows fit the model; by default they are drawn at random.
    time: Column = None
    # decimal mark of numbers in a text file, "." or "," (default: "."; needed with semicolons).
    decimal: Annotated[Literal[".", ","] | None, quiet(metavar="MARK")] = None
    # texts that stand for missing values, such as NA,-999. Rows with one of them, or an empty cell, in a named column
    # are left out. "" reads all texts as they are.
    missing: Texts = None
    # share of the rows that fit the model of rewards; the others are replayed (default: 0.5).
    fit_share: Option[float] = None
    model: Option[Literal["linear", "logistic"]] = None  # model of rewards, linear or logistic (default: linear).

    @property
    def given(self) -> dict[str, Any]:
        """Returns the given arguments of `fb.data.table`, without the source."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        for name in {*LISTS} & {*found}:
            found[name] = [one.strip() for one in next(csv.reader([found[name]], skipinitialspace=True))]
        return found

    def check(self, source: str | None) -> None:
        """Raises a `BadValue` for a table without columns, columns without a table, or a wrong share."""
        given = self.given
        if source is None:
            for name in given:
                raise BadValue(name, "applies only to your own table, with --data", given[name])
        elif missing := [name for name in NEEDED if name not in given]:
            got = f"none: `fedbandit data {source}` lists them"
            raise BadValue(missing[0], f"must name a column of {source}", None, got=got)
        if self.fit_share is not None:
            validate.probability("fit_share", self.fit_share)  # TOML cannot hold every value

    def table(self, source: str) -> Logged:
        """Returns the environment of a log."""
        import fedbandit_jax as fb

        self.check(source)
        return fb.data.table(source, **self.given)

    def code(self, source: str) -> str:
        """Returns the Python call that makes it."""
        arguments = [repr(source), *(f"{name}={value!r}" for name, value in self.given.items())]
        return f"fb.data.table({', '.join(arguments)})"

    def toml(self, source: str) -> str:
        """Returns the environment as a table of a sweep's file."""
        values = {"type": "table", "source": source, **self.given}
        listed = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
        return f"{{ {', '.join(listed)} }}"


Log = Annotated[Roles, tyro.conf.arg(name="")]  # flags without a prefix
