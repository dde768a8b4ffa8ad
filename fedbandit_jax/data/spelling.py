"""Spellings of numbers and dates: thousands separators, decimal commas, currencies and per cent."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np

MISSING = frozenset(("", "NA", "N/A", "n/a", "null", "NULL", "<NA>", "NaT", "#N/A", "-", "?"))  # "None" may be an arm
NAN = re.compile(r"[+-]?nan", re.IGNORECASE)
ANSWERS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
UNIT = re.compile(  # sign, unit, digits, unit
    r"([+-]?)\s*([$€£]?)\s*(.*?)\s*([%$€£]?|(?<=[\d\s])[^\W\d_]{2,9}|(?<=\s)[^\W\d_])", re.DOTALL
)
DIGITS = {  # decimal mark -> pattern; thousands separators of a number are equal
    point: re.compile(
        rf"(?=[.,]?\d)(\d+|[1-9]\d{{0,2}}(?P<mark>[{other}'’ \u00a0\u202f])\d{{3}}((?P=mark)\d{{3}})*)?"
        rf"([{point}]\d*)?(e[+-]?\d+)?|inf(inity)?",
        re.IGNORECASE,
    )
    for point, other in ((".", ","), (",", "."))
}
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")
SOME_DATE = re.compile(DATE.pattern + r"|\d{1,2}([./])\d{1,2}\2\d{2,4}|\d{4}([./])\d{1,2}\3\d{1,2}")


def is_missing(text: str) -> bool:
    """Returns whether a text stands for a missing value.

    >>> [text for text in ("", "NA", "NAN", "-nan", "None", "n", "0") if is_missing(text)]
    ['', 'NA', 'NAN', '-nan']
    """
    return text in MISSING or NAN.fullmatch(text) is not None


def numbers(texts: Sequence[str], decimal: str | None = None, pointed: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Parses texts as numbers, NaN for others and for rare units; two readings if both decimal marks fit.

    A word is a unit, as in "84 kg", if it is the same after all numbers.

    Args:
        texts: the texts.
        decimal: "." or ",", or None to choose the one that parses more texts.
        pointed: whether texts without a comma have decimal points.

    >>> [read.tolist() for read in numbers(["1,000", "250"])]
    [[1000.0, 250.0], [1.0, 250.0]]
    >>> [numbers(texts)[0].tolist() for texts in (["12 %", "1,5 %"], ["$84", "much"])]
    [[0.12, 0.015], [84.0, nan]]
    """
    pointed = pointed and not any("," in text for text in texts)
    if decimal != "," and pointed and not any("_" in text for text in texts):
        try:
            return (found := np.array(texts, float)), found
        except ValueError:
            pass
    found = [_numbers(texts, point) for point in (decimal or ("." if pointed else ".,"))]
    counts = [int(np.isfinite(one).sum()) for one in found]
    found = [one for one, count in zip(found, counts) if count == max(counts)]
    return found[0], found[-1]


def _numbers(texts: Sequence[str], point: str) -> np.ndarray:
    values, units = np.full(len(texts), np.nan), np.full(len(texts), "", object)
    for i, text in enumerate(texts):
        sign, before, digits, after = UNIT.fullmatch(text).groups()  # pyright: ignore[reportOptionalMemberAccess]
        if (match := DIGITS[point].fullmatch(digits)) and not (before and after):
            plain = digits.replace(match["mark"] or "\0", "").replace(point, ".")
            values[i], units[i] = float(sign + plain) / (100 if after == "%" else 1), before or after
    counts = Counter(units[~np.isnan(values)])
    if len(counts) > 1:
        counts = Counter({unit: count for unit, count in counts.items() if not unit.isalpha()})
    common = counts.most_common(1)
    return np.where(units == (common[0][0] if common else None), values, np.nan)


def dates(texts: Sequence[str]) -> np.ndarray | None:
    """Parses ISO dates and times as days since 1970 in UTC. Returns None if a text is not one.

    >>> dates(["1970-01-02", "1970-01-02 12:00:00+02:00"]).tolist(), dates(["1970-01-02", "2.1.1970"])
    ([1.0, 1.4166666666666667], None)
    """
    if not all(map(DATE.fullmatch, texts)):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's warning about time zones
        try:
            return np.array(texts, "datetime64[ms]").astype(float) / 86_400_000
        except ValueError:
            return None


def ordered(levels: Sequence[str]) -> list[str]:
    """Sorts labels by number if all are numbers, otherwise alphabetically.

    >>> ordered(["10", "9"]), ordered(["b10", "b9"])
    (['9', '10'], ['b10', 'b9'])
    """
    try:
        return sorted(levels, key=float)
    except ValueError:
        return sorted(levels)
