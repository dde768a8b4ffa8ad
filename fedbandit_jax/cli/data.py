"""The command `fedbandit data`: an overview and the precision of a table; and the roles of its columns as flags."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Command, Flag, Option, quiet
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

Table = Annotated[str | None, quiet(metavar="TABLE")]
Column = Annotated[str | None, quiet(metavar="COLUMN")]
Columns = Annotated[tuple[str, ...] | None, quiet(metavar="COLUMN ...")]
NEEDED = ("silo", "arm", "reward")
WIDTH = 79  # characters of a line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roles:
    """Roles of the columns of a log."""

    silo: Column = None  # column with the silo, such as a hospital.
    arm: Column = None  # column with the arm that was shown.
    reward: Column = None  # column with the reward, a number.
    user: Column = None  # column with the user, if users return.
    features: Columns = None  # columns with facts about a user that are known before the arm is chosen.
    arm_features: Columns = None  # columns that describe the arm.
    # column with the probability of the arm that was shown. `fb.off_policy` uses it in Python.
    propensity: Column = None
    # column of numbers or dates. The earliest rows fit the model; by default they are drawn at random.
    time: Column = None
    # decimal mark of numbers in a text file, "." or "," (default: "."; needed with semicolons).
    decimal: Annotated[Literal[".", ","] | None, quiet(metavar="MARK")] = None
    # texts that stand for missing values, such as NA -999. Rows with one of them, or an empty cell, in a named column
    # are left out. No text reads all as they are.
    missing: Annotated[tuple[str, ...] | None, quiet(metavar="TEXT ...")] = None
    model: Option[Literal["linear", "logistic"]] = None  # model of rewards, linear or logistic (default: linear).

    @property
    def given(self) -> dict[str, Any]:
        """Returns the given arguments of `fb.data.table`, without the source."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def of(self, source: str | None) -> dict[str, Any]:
        """Returns the arguments of `fb.data.table` for a source; none for no source.

        Raises:
            ValueError: columns or the table lack.
        """
        given = self.given
        if source is None:
            for name, value in given.items():
                raise BadValue(name, "applies only to your own table, with --data", value)
            return {}
        validate.file("source", source)
        for name in NEEDED:
            if name not in given:
                got = f"none: `fedbandit data {source}` lists them"
                raise BadValue(name, f"must name a column of {source}", None, got=got)
        return {"source": source, **given}


Log = Annotated[Roles, tyro.conf.arg(name="")]  # flags without a prefix


def toml(values: dict[str, Any]) -> str:
    """Returns a table of a sweep's file."""
    return f"{{ {', '.join(f'{name} = {json.dumps(one, ensure_ascii=False)}' for name, one in values.items())} }}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataCommand(Command):
    """Show what your table holds and can answer.

    The command describes columns. With --silo, --arm and --reward it fits a model of rewards. It then compares the gain
    of the best arms with the noise of privacy. --details adds the accuracy of the model.

    For example:
      fedbandit data log.csv
      fedbandit data log.csv --silo hospital --arm drug --reward cured --features age sex
    """

    flag_of: ClassVar = {"source": "dataset"}

    # text table, such as a .csv, or .parquet.
    dataset: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TABLE")]
    details: Flag = False  # print the fit of the model and the encoding of the features, too.
    columns: Log = dataclasses.field(default_factory=Roles)

    @override
    def run(self) -> int:
        import fedbandit_jax as fb
        from fedbandit_jax.data.columns import opened
        from fedbandit_jax.planning.price import price

        given = self.columns.given
        if not {*given} - {"decimal", "missing"}:
            frame = opened(self.dataset, **given).frame
            for name in frame.columns[frame.dtypes == "object"]:  # lists in a .parquet are described as texts
                frame[name] = frame[name].map(lambda cell: cell if isinstance(cell, Hashable) else str(cell))
            with np.errstate(all="ignore"):  # of squares, which are not shown
                about = frame.describe(include="all").T.assign(missing=frame.isna().sum(), distinct=frame.nunique())
            rows = about.reindex(columns=["distinct", "missing", "top", "min", "mean", "max"]).infer_objects()
            print(f"{Path(self.dataset).name}: {len(frame):,} rows, {len(rows)} columns\n")
            print(rows.to_string(na_rep="-", float_format="{:.4g}".format))
            names = ", ".join(f"--{name}" for name in NEEDED)
            print(f"\nWhat it can answer: the same with {names} and other columns")
            return 0
        env = fb.data.table(**self.columns.of(self.dataset))
        print("\n".join(textwrap.fill(line, WIDTH) for text in price(env) for line in text.split("\n")))
        if self.details:
            print(f"\n{env.fit}\n\n{env.encoding}")
        else:
            print("\nThe fit of the model:   the same with --details")
            print(f"Which algorithm to use: fedbandit plan --data {self.dataset}, with the same flags and --epsilon")
        return 0
