"""An overview of a table before its columns have roles: kinds, gaps, and the roles that each column suits."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.columns import is_missing, is_number, text_of
from fedbandit_jax.data.sources import opened

COUNTED = 10_000  # distinct values that are counted, beyond which there are "many"
ARMS, LEVELS = 50, 20  # most distinct values of what is listed as an arm, or as a feature that is a text


class Summary(NamedTuple):
    """A column in short."""

    name: str
    rows: int
    missing: int
    numbers: bool  # whether all values that are given are numbers
    distinct: int  # up to `COUNTED`
    low: float
    high: float
    examples: tuple[str, ...]

    @property
    def can_be(self) -> tuple[str, ...]:
        """The arguments of `fb.data.table` that this column suits."""
        if self.missing:
            return ()
        varies = self.distinct > 1
        tests = {
            "silo": varies and self.distinct <= self.rows // 2,
            "arm": varies and self.distinct <= min(ARMS, self.rows // 2),
            "reward": varies and self.numbers,
            "user": self.distinct > 2,
            "features": varies and (self.numbers or self.distinct <= LEVELS),
            "propensity": self.numbers and self.low > 0 and self.high <= 1,
        }
        return tuple(name for name, suits in tests.items() if suits)

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of a table of text."""
        count = f"over {COUNTED - 1:,}" if self.distinct == COUNTED else f"{self.distinct:,}"
        values = f"{self.low:g} to {self.high:g}" if self.numbers and self.distinct else ", ".join(self.examples)
        kind = "number" if self.numbers and self.distinct else "text"
        fits = ", ".join(self.can_be) or (
            "nothing before it is filled" if self.missing else "nothing: it does not vary"
        )
        return self.name, kind, count, f"{self.missing:,}", textwrap.shorten(values, 40, placeholder=" ..."), fits


HEAD = ("column", "kind", "distinct", "missing", "values", "can be")


def overview(source: Any) -> list[Summary]:
    """Summaries of all columns of a table, which may have gaps.

    Raises:
        ValueError, TypeError: the source cannot be read; the message says where.
    """
    table = opened(source)
    names = list(table.names)
    kept = {name: _Kept() for name in names}
    for chunk in table.chunks(names):
        for name, values in chunk.items():
            kept[name].add(values)
    if not kept[names[0]].rows:
        raise BadValue(
            "source", "must have at least one row below its header", table.title, got=f"none in {table.title}"
        )
    return [one.summary(name) for name, one in kept.items()]


class _Kept:
    """The running summary of a column that is being read."""

    def __init__(self):
        self.rows = self.missing = 0
        self.numbers = True
        self.low, self.high = math.inf, -math.inf
        self.levels: dict[str, None] = {}

    def add(self, values: Sequence[Any]) -> None:
        if getattr(getattr(values, "dtype", None), "kind", "") == "b":  # as `table` reads them: 0 and 1
            values = values.astype(int)  # pyright: ignore[reportAttributeAccessIssue]
        values = values.tolist() if hasattr(values, "tolist") else values  # pyright: ignore[reportAttributeAccessIssue]
        counts = Counter(map(text_of, values))
        given = [text for text in counts if not is_missing(text)]
        self.rows += len(values)
        self.missing += len(values) - sum(counts[text] for text in given)
        if self.numbers and all(map(is_number, given)) and given:
            numbers = list(map(float, given))
            self.low, self.high = min(self.low, *numbers), max(self.high, *numbers)
        else:
            self.numbers = self.numbers and not given
        for text in given:
            if len(self.levels) == COUNTED:
                break
            self.levels[text] = None

    def summary(self, name: str) -> Summary:
        examples = tuple(sorted(self.levels)[:4])
        return Summary(name, self.rows, self.missing, self.numbers, len(self.levels), self.low, self.high, examples)
