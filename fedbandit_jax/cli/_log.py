"""Flags for the roles of a log's columns: arguments of `fb.data.table`, for the commands that simulate on one."""

from __future__ import annotations

import csv
import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

if TYPE_CHECKING:
    from fedbandit_jax.envs import Logged

LISTS = ("features", "arm_features", "missing")  # whose values are texts with commas between them
NEEDED = ("silo", "arm", "reward")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roles:
    """Roles of the columns of a log.

    Args:
        silo: column that says where.
        arm: column that says what was shown.
        reward: column that says what happened, a number.
        user: column that says who came, if users return.
        features: columns that are known of a user beforehand, with commas between them; a name that has a comma of its
            own is in double quotes.
        arm_features: columns that describe the arm, with commas between them.
        propensity: column of probabilities with which arms were shown; they are checked here, and used by
            `fb.off_policy` in Python.
        min_rows: leave out silos and arms with fewer rows, 1 by default.
        time: column of numbers or dates, of which the earliest fit the model; by default they are drawn.
        decimal: "." or ",", the decimal mark of numbers, where it cannot be found by looking.
        missing: texts that stand for missing values, such as NA,-999 with commas between them: rows with one in a named
            column are left out; "" reads all texts as they are.
        fit_share: share of the rows that fit the model of the reward, 0.5 by default; the others are replayed.
        model: linear (the default) or logistic.
    """

    silo: str | None = None
    arm: str | None = None
    reward: str | None = None
    user: str | None = None
    features: str | None = None
    arm_features: str | None = None
    propensity: str | None = None
    min_rows: int | None = None
    time: str | None = None
    decimal: Literal[".", ","] | None = None
    missing: str | None = None
    fit_share: float | None = None
    model: Literal["linear", "logistic"] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `fb.data.table` that were given, without the source."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        found = {name: value for name, value in found.items() if value is not None}
        rows = {name: next(csv.reader([found[name]], skipinitialspace=True)) for name in LISTS if name in found}
        return {**found, **{name: [one.strip() for one in row] for name, row in rows.items()}}

    def check(self, source: str | None) -> None:
        """Raises a ValueError if a table is given without its columns, columns without a table, or a wrong share."""
        given = self.given
        if source is None:
            for name in given:
                raise BadValue(name, "applies only to a table of one's own, with --data", getattr(self, name))
        else:
            for name in NEEDED:
                if name not in given:
                    raise BadValue(
                        name, f"must name a column of {source}", None, got="none: `fedbandit data` lists them"
                    )
            if self.fit_share is not None:
                validate.probability("fit_share", self.fit_share)  # a TOML file cannot hold all that it may be

    def table(self, source: str) -> Logged:
        """The environment of a log."""
        import fedbandit_jax as fb

        self.check(source)
        return fb.data.table(source, **self.given)

    def code(self, source: str) -> str:
        """The call that makes it."""
        arguments = [repr(source), *(f"{name}={value!r}" for name, value in self.given.items())]
        return f"fb.data.table({', '.join(arguments)})"

    def toml(self, source: str) -> str:
        """The environment as a table of a sweep's file."""
        values = {"type": "table", "source": source, **self.given}
        listed = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
        return f"{{ {', '.join(listed)} }}"


Columns = Annotated[Roles, tyro.conf.arg(name="")]  # flags without a prefix
