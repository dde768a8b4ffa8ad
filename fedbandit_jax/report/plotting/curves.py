"""Curves of regret and gauges over the rounds with bands, and final regret against a coordinate of a sweep."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbandit_jax.certificate import CLAIMS as ORDER
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.plotting.colours import MARKERS, Style, entry, promise, styles, told_apart
from fedbandit_jax.report.plotting.figure import (
    INSIDE,
    SPREAD,
    SYMBOLS,
    budgets,
    checked,
    equation,
    finish,
    in_words,
    places,
    scale,
    tick,
    tick_words,
    whose,
)
from fedbandit_jax.report.result import Result
from fedbandit_jax.report.tables import mean_error

NEAR = 0.02  # relative difference of curves that coincide
POINTS = 200  # most of a curve; more make large files
EPSILON, BITS = "certificate_epsilon", "communication_bits"  # coordinates that are results
AXES = {"epsilon": "ε asked for", EPSILON: "ε given by the certificate", BITS: "bits sent and received by all agents"}
DECADES = 3  # shown on a logarithmic axis of rounds; all algorithms explore before


def regret(
    result: Result,
    *,
    time_average: bool = True,
    names: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Figure:
    """Draws the mean group regret of every algorithm over seeds, with a band of one standard error.

    Lines are solid if the certificate says `certified`, dashed for `as_printed` and dotted for `none`. Algorithms
    without privacy are solid, and the legend says so if others are private. Colours are from `colour`, and a curve
    under a later one is wider. The vertical axis is logarithmic if final time averages differ by more than a factor of
    8. With `stride="log"` the axis of rounds is logarithmic too, from T / 1,000 on.

    Args:
        result: result of `fb.simulate`, `fb.sweep` or `Result.load`.
        time_average: draw Reg(t) / t, as in the papers' figures; False draws cumulative regret Reg(t).
        names, colours: label, or algorithm of a sweep -> your name or colour; default: the label, and `colour`.
        legend: False names curves at their right ends in place of a legend.
        ax: axes to draw on; default: a new figure.
    """
    validate.boolean("time_average", time_average)
    validate.boolean("legend", legend)
    axes = checked(result, ax, names)
    looks = styles(result, colours)
    _draw(result, looks, names or {}, lambda one: one.time_average if time_average else one.regret, axes, legend)
    ends = np.array([result[label].time_average[:, -1].mean() for label in result])
    if time_average and ends.min() > 0 and ends.max() > SPREAD * ends.min():
        scale(axes, "y", ends)
        axes.set_ylim(bottom=0.7 * ends.min())
    its = whose(result)
    axes.set_ylabel(f"time-average {its} Reg$(t)/t$" if time_average else f"cumulative {its} Reg$(t)$")
    return finish(result, axes, f"{places(result)}{budgets(result)}", ours=ax is None, legend=legend)


def gauge(
    result: Result,
    name: str,
    *,
    names: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws the mean of a gauge over seeds at every recorded round, with a band of one standard error.

    A gauge is a value at each round, such as the "adjusted Rand index" of the found clusters.

    Args:
        result, names, colours, ax: as in `regret`.
        name: a key of `result.gauges`.
    """
    if not validate.instance("result", result, Result, "an fb.Result").gauges:
        raise BadValue("result", "must have gauges, as clustering has", name, got=f"none, and name = {name!r}")
    validate.one_of("name", name, result.gauges)
    axes = checked(result, ax, names)
    _draw(result, styles(result, colours), names or {}, lambda one: one.gauges[name], axes)
    axes.set_ylabel(name)
    return finish(result, axes, "", ours=ax is None)


def _draw(
    result: Result,
    looks: Mapping[str, Style],
    names: Mapping[str, str],
    curves_of: Callable[[Result], np.ndarray],
    ax: Axes,
    legend: bool = True,
) -> None:
    lowest = 0.0
    private = any(style.claim for style in looks.values())  # otherwise the legend omits privacy
    shown = np.unique(np.linspace(0, len(result.rounds) - 1, POINTS).round().astype(int))  # for small files
    rounds, drawn = result.rounds[shown], [curves_of(result[label])[:, shown] for label in looks]
    means = [curves.mean(0) for curves in drawn]
    for i, (label, style) in enumerate(looks.items()):
        curves, mean = drawn[i], means[i]
        if not np.isfinite(mean).any():  # without this gauge
            continue
        lowest = min(lowest, float(np.nanmin(mean)))
        algorithm = str(result.coordinates[label]["algorithm"])
        renamed = names[algorithm] + label.removeprefix(algorithm) if algorithm in names else label
        name = names.get(label, in_words(renamed))
        name = entry(name, style.claim) if private and legend else name
        over = sum(np.isclose(mean, other, NEAR).mean() > 0.9 for other in means[i + 1 :])
        wide = 1.5 + 2.5 * min(over, 3)  # visible on both sides of the curves above it
        if style.line == "-.":  # uniform play
            wide = 0.9
        marker = style.marker if legend else ""  # names tell curves apart
        look: dict[str, Any] = dict(color=style.colour, marker=marker, markersize=5, linewidth=wide)
        ax.plot(rounds, mean, style.line, markevery=0.1, label=name, **look)
        if len(curves) > 1:
            width = curves.std(0, ddof=1) / np.sqrt(len(curves))
            ax.fill_between(rounds, mean - width, mean + width, color=style.colour, alpha=0.2, linewidth=0)
    if result.config.get("stride") == "log":
        ax.set_xscale("log")
    first, last = result.rounds[0], result.rounds[-1]
    ax.set_xlim(max(first, last / 10**DECADES) if ax.get_xscale() == "log" else 0, last)
    ax.set_ylim(bottom=1.05 * lowest)
    ax.set_xlabel("round $t$")


class Family(NamedTuple):
    """Configurations on one line of a figure."""

    name: str
    labels: list[str]
    colour: str
    line: str  # solid, dashed or dotted, by the weakest claim
    claim: str  # words for the legend
    marker: str

    @property
    def at_ends(self) -> str:
        """Marker of a horizontal line: none for the first of a colour."""
        return "" if self.marker == MARKERS[0] else self.marker

    @property
    def text(self) -> str:
        """Entry in the legend."""
        return entry(self.name, self.claim)


def against(
    result: Result,
    coordinate: str,
    *,
    names: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Figure:
    """Draws final group regret against a coordinate of the sweep, as mean and one standard error over seeds.

    Every algorithm is a line, one for each value of the other parameters that vary. An algorithm without this
    coordinate is a horizontal line. Numbers are to scale, logarithmic if they differ by much. Other values are side by
    side, in the order of the sweep. Line styles are as in `regret`, by the weakest claim along a line.

    Args:
        result: result of `fb.sweep`, with a grid.
        coordinate: a parameter of the sweep, such as "epsilon" (as requested), "n_agents" or "environment". Or a column
            of `Result.to_pandas`: "certificate_epsilon", the proved epsilon, with a line over all budgets, or
            "communication_bits", the bits sent by all agents, with a line over the parameters of an algorithm but its
            budget.
        names, colours: label, or algorithm of the sweep -> your name or colour. Labels with one name are one line.
        legend, ax: as in `regret`.
    """
    validate.boolean("legend", legend)
    axes = checked(result, ax, names)
    parameters = dict.fromkeys(name for point in result.coordinates.values() for name in point)
    validate.one_of("coordinate", coordinate, [*parameters, EPSILON, BITS])
    along, there = _measured(result, coordinate)
    if not there:
        raise BadValue("coordinate", "must have a positive value for at least one algorithm", coordinate)
    numbers = all(map(_number, there.values()))
    texts = words(there)
    shown = list(dict.fromkeys(texts.values()))
    for family in families(result, names, colours, along=along):
        inside = [label for label in family.labels if label in there]
        outside = [label for label in family.labels if label not in inside]
        for i, label in enumerate(outside):
            name = family.text if legend else family.name
            style: dict[str, Any] = dict(color=family.colour, label=None if inside or i else name)
            level = float(final(result, label)[0])
            axes.axhline(level, *INSIDE, linestyle=family.line, marker=family.at_ends, **style)
        if not inside:
            continue
        x = np.array([there[one] if numbers else shown.index(texts[one]) for one in inside], float)
        order = np.argsort(x, kind="stable")
        mean, error = (np.array(one)[order] for one in zip(*(final(result, label) for label in inside)))
        look: dict[str, Any] = dict(fmt=f"{family.marker}{family.line}", markersize=5, capsize=2, color=family.colour)
        name = family.text if legend else family.name
        axes.errorbar(x[order], mean, None if np.isnan(error).all() else error, label=name, **look)
    below = 0.0
    if numbers:
        ticks = sorted(set(map(float, there.values())))
        scale(axes, "x", np.array(ticks))
        if len(ticks) <= 8 and coordinate in parameters:
            axes.set_xticks(ticks, list(map(tick, ticks)))
            axes.set_xticks([], minor=True)
    else:
        below = tick_words(axes, shown)
    deltas = {result.certificates[label].delta or 0.0 for label in there} if coordinate == EPSILON else ()
    at = f", at δ = {', '.join(f'{one:g}' for one in sorted(deltas))}" if deltas else ""
    axes.set_xlabel(AXES.get(coordinate, SYMBOLS.get(coordinate, coordinate)) + at)
    scale(axes, "y", np.array([final(result, label)[0] for label in result]))
    axes.set_ylabel(f"{whose(result)} after {result.rounds[-1]:,} rounds")
    return finish(result, axes, places(result), ours=ax is None, below=below, legend=legend)


def _measured(result: Result, coordinate: str) -> tuple[Collection[str], dict[str, Any]]:
    """Returns the parameters that vary along a line of `against`, and the values of its coordinate by label."""
    if coordinate == EPSILON:
        found = {label: one.epsilon_exact or 0.0 for label, one in result.certificates.items()}
        return ("epsilon", "delta"), {label: epsilon for label, epsilon in found.items() if 0 < epsilon < math.inf}
    if coordinate == BITS:
        sent = {label: float(result[label].communication["bits"][:, -1].mean()) for label in result}
        beside = {"environment", "epsilon", "delta"}.union(*result.config["environments"].values())
        return {*varied(result)} - beside, {label: bits for label, bits in sent.items() if bits}
    return (coordinate,), _at(result, coordinate)


def families(
    result: Result, names: Mapping[str, str] | None, colours: Mapping[str, str] | None, *, along: Collection[str]
) -> list[Family]:
    """Groups configurations into lines along these coordinates, by your names where there are some."""
    points = result.coordinates
    beside = {name: words(_at(result, name)) for name in varied(result) if name not in (*along, "algorithm")}
    found: dict[str, list[str]] = {}
    names = names or {}
    for label, point in points.items():
        here = (equation(name, texts[label]) for name, texts in beside.items() if label in texts)
        algorithm = str(point["algorithm"])
        own = ", ".join([names.get(algorithm, algorithm), *here])
        found.setdefault(names.get(label, own), []).append(label)
    looks = styles(result, colours)
    chosen = [looks[labels[0]].colour for labels in found.values()]
    made = []
    for (name, labels), its, marker in zip(found.items(), chosen, told_apart(chosen, MARKERS)):
        line, claim = weakest([result.certificates[label] for label in labels])
        line = "-." if looks[labels[0]].line == "-." else line
        made.append(Family(name, labels, its, line, claim, marker))
    return made


def varied(result: Result) -> list[str]:
    """Returns the coordinates with several values."""
    names = dict.fromkeys(name for point in result.coordinates.values() for name in point)
    return [name for name in names if len(set(words(_at(result, name)).values())) > 1]


def _at(result: Result, coordinate: str) -> dict[str, Any]:
    return {label: point[coordinate] for label, point in result.coordinates.items() if coordinate in point}


def words(there: Mapping[str, Any]) -> dict[str, str]:
    """Formats the values of a coordinate, by label; objects with all parts if class and numbers do not differ."""
    short, whole = ({label: word(value, whole) for label, value in there.items()} for whole in (False, True))
    return short if len(set(short.values())) == len(set(whole.values())) else whole


def weakest(certificates: Sequence[Certificate]) -> tuple[str, str]:
    """Returns line and words of the weakest claim among private algorithms, if any."""
    private = [one for one in certificates if one.epsilon is not None] or certificates
    return promise(min(private, key=lambda one: ORDER.index(one.claim)))


def final(result: Result, label: str) -> tuple[float, float]:
    """Returns the mean of final regret over seeds and its standard error, NaN for one seed."""
    return mean_error(result[label].regret[:, -1])


def word(value: Any, whole: bool = False) -> str:
    """Formats a value of a coordinate; an object by its class and numbers, or all parts.

    >>> word(0.5), word({"type": "Every", "batch": 25}), word(None)
    ('0.5', 'Every(batch=25)', 'null')
    >>> word({"type": "LogDet", "trigger": "he22", "threshold": 1.0}, whole=True)
    'LogDet(trigger=he22, threshold=1)'
    """
    if isinstance(value, Mapping):
        parts = {name: part for name, part in value.items() if name != "type" and part is not None}
        texts = (f"{name}={word(part, whole)}" for name, part in parts.items() if whole or _number(part))
        return f"{value.get('type', '')}({', '.join(texts)})"
    if _number(value):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
