"""An overview of a table before its columns have roles: kinds, gaps, and the roles that each column suits."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.columns import DAYS, GAPS, Table, Wanted, column, opened

ARMS, LEVELS = 50, 20  # most distinct values of an arm, or of a text feature
HEAD = ("column", "kind", "distinct", "missing", "values", "can be")
FILL = "nothing before gaps are filled, or left out by --missing"


class Summary(NamedTuple):
    """Summary of a column."""

    name: str
    rows: int
    missing: int
    kind: str  # "number", "date" or "text"; "unclear" is refused as a feature
    distinct: int
    low: float  # of numbers, otherwise NaN
    high: float
    examples: tuple[str, ...]
    why: str  # reason why it is unclear

    @property
    def can_be(self) -> tuple[str, ...]:
        """Arguments of `fb.data.table` that this column suits."""
        if self.missing or not self.distinct:
            return ()
        varies, number = self.distinct > 1, self.kind == "number"
        tests = {
            "silo": varies and self.distinct <= self.rows // 2,
            "arm": varies and self.distinct <= min(ARMS, self.rows // 2),
            "reward": varies and number,
            "user": self.distinct > 2,
            "features": varies and self.kind != "unclear" and (self.kind != "text" or self.distinct <= LEVELS),
            "propensity": number and self.low > 0 and self.high <= 1,
            "time": self.kind == "date",
        }
        return tuple(name for name, suits in tests.items() if suits)

    @property
    def cells(self) -> tuple[str, ...]:
        """Row of a text table."""
        values = f"{self.low:g} to {self.high:g}" if self.kind == "number" else ", ".join(self.examples)
        fits = ", ".join(self.can_be) or (FILL if self.missing else "nothing: it does not vary")
        counts = f"{self.distinct:,}", f"{self.missing:,}"
        return self.name, self.kind, *counts, textwrap.shorten(values, 40, placeholder=" ..."), fits


def overview(source: Any, decimal: str | None = None, missing: Sequence[str] | None = None) -> list[Summary]:
    """Summarises all columns of a table, which may have gaps; arguments are as in `fb.data.table`.

    Raises:
        ValueError, TypeError: the source is unreadable; the message says where.
    """
    table = opened(source, decimal, missing)
    return [_summary(name, table, missing) for name in table.frame.columns]


def _summary(name: str, table: Table, missing: Sequence[str] | None) -> Summary:
    series = table.frame[name]
    given = series[~(series.isna() | series.isin(GAPS))]
    kind, low, high, why = "text", np.nan, np.nan, ""
    if len(given):
        try:
            rows = table._replace(frame=table.frame.loc[given.index])
            one = column(Wanted(name, "features", "either"), rows, missing)
            kind = "text" if one.levels else "date" if one.unit == DAYS else "number"
            low, high = (one.values.min(), one.values.max()) if kind == "number" else (low, high)
        except BadValue as error:
            kind, why = "unclear", str(error)
    n, examples = len(series), tuple(sorted(map(str, given.unique()))[:4])
    return Summary(name, n, n - len(given), kind, given.nunique(), float(low), float(high), examples, why)
