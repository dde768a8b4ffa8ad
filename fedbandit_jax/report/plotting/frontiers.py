"""Draws final regret against privacy and communication, with the Pareto front: the points that no other dominates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.plotting.curves import Family, ended, families, final, varied, words
from fedbandit_jax.report.plotting.figure import INSIDE, checked, scale
from fedbandit_jax.report.result import Result

GREY = "#666666"
FRONT = "on the Pareto front (filled)"


def privacy_frontier(
    result: Result,
    *,
    title: str | None = None,
    lines: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws final group regret against the epsilon that the noise is proved to give, and marks the Pareto front.

    Epsilon is `Certificate.epsilon_exact`, at the certificate's delta; the axis says which delta. A point is on the
    front, and filled, if it is certified and no other one that is, in the same environment and under the same
    adjacency, is at least as good in all of mean regret, epsilon (to three digits) and delta, and better in one. The
    epsilon of a weaker claim is not that of what ran. Algorithms that ask for no privacy, and uniform play, which has
    epsilon = 0, are horizontal lines; so are those of which no finite epsilon is proved, and the legend says so.

    Args:
        result, title, lines, ax: as in `against`.

    Raises:
        ValueError, TypeError: no algorithm has a finite epsilon, or an argument is not one of these.
    """
    axes = checked(result, title, ax, lines)
    proved = {
        label: one.epsilon_exact
        for label, one in result.certificates.items()
        if one.epsilon_exact and math.isfinite(one.epsilon_exact)
    }
    if not proved:
        raise BadValue("result", "must have an algorithm of which a finite epsilon is proved", result)
    asked = [label for label, one in result.certificates.items() if one.epsilon]
    beside = {label: "no ε is proved" for label in asked if label not in proved}
    deltas = sorted({result.certificates[label].delta or 0.0 for label in proved})
    certified = [label for label in proved if result.certificates[label].claim == "certified"]
    best = pareto(
        [
            (final(result, label)[0], float(f"{proved[label]:.3g}"), result.certificates[label].delta or 0.0)
            for label in certified
        ],
        [_setting(result, label) for label in certified],
    )
    on = set(itertools.compress(certified, best))
    members = families(result, lines, along=("epsilon", "delta"))
    stairs = len(deltas) == 1 and _same_world(result)
    _draw(result, members, proved, on, beside, axes, joined=True, stairs=stairs)
    listed = ", ".join(f"{delta:g}" for delta in deltas)
    at = f"at $\\delta$ = {listed}" if len(deltas) == 1 else f"each at its $\\delta$: {listed}"
    axes.set_xlabel(f"$\\varepsilon$ given by the certificate, {at}")
    return ended(result, axes, np.array([final(result, label)[0] for label in result]), title, ours=ax is None)


def communication_frontier(
    result: Result,
    *,
    title: str | None = None,
    lines: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws final group regret against the bits that all agents sent and received, and marks the Pareto front.

    A point is on the front, and filled, unless another one in the same environment has at most its mean regret and its
    mean bits, and less of one. Privacy does not count here: to compare at one budget, select it,
    `communication_frontier(result.sel(epsilon=1.0))`.

    Args:
        result, title, lines, ax: as in `against`.

    Raises:
        ValueError, TypeError: an argument is not one of these; the message names it and its value.
    """
    axes = checked(result, title, ax, lines)
    sent = {label: result[label].communication for label in result}
    bits = {label: float(one["bits"][:, -1].mean()) for label, one in sent.items()}
    silent = {label: "its bits are not counted" for label in bits if not bits[label] and sent[label]["rounds"].any()}
    if len(silent) < len(bits):  # algorithms of one's own that report rounds alone
        bits = {label: bits[label] for label in bits if label not in silent}
    front = pareto(
        [(final(result, label)[0], sent) for label, sent in bits.items()],
        [result.config["environments"][label] for label in bits],
    )
    inner = [name for name in varied(result) if not _of_worlds(result, name)]
    members = families(result, lines, along=[name for name in inner if name != "algorithm"])
    on = set(itertools.compress(bits, front))
    _draw(result, members, bits, on, silent, axes, joined=False, stairs=_same_world(result))
    axes.set_xlabel("bits sent and received by all agents")
    return ended(result, axes, np.array([final(result, label)[0] for label in result]), title, ours=ax is None)


def pareto(costs: Sequence[Sequence[float]], settings: Sequence[Any]) -> list[bool]:
    """Marks those of n points with costs (n, m) on the Pareto front: of all in its setting, nobody is better.

    >>> pareto([(1, 5), (2, 3), (2, 4), (9, 9)], ["here", "here", "here", "there"])
    [True, True, False, True]
    """
    table = np.asarray(costs, float)
    found = []
    for mine, setting in zip(table, settings):
        others = table[[other == setting for other in settings]]
        found.append(not ((others <= mine).all(1) & (others < mine).any(1)).any())
    return found


def _draw(
    result: Result,
    members: Sequence[Family],
    x: Mapping[str, float],
    on: Collection[str],
    beside: Mapping[str, str],
    ax: Axes,
    *,
    joined: bool,
    stairs: bool,
) -> None:
    """Draws points at their x, filled if they are `on` the front, and all others as horizontal lines.

    `beside` says in the legend why one has no x; families are lines if `joined`, and the front is one with `stairs`.
    """
    values = np.array(list(x.values()))
    if values.min() <= 0 < values.max():  # who sends nothing has a place, too
        ax.set_xscale("symlog", linthresh=float(values[values > 0].min()))
    else:
        scale(ax, "x", values)
    for family in members:
        for i, label in enumerate(one for one in family.labels if one not in x):
            why = f": {beside[label]}" if label in beside else ""
            name = None if i else f"{family.name}{why}" if why else family.text
            look: dict[str, Any] = dict(color=family.colour, marker=family.at_ends, label=name)
            ax.axhline(final(result, label)[0], *INSIDE, linestyle=":" if why else "-", **look)
        inside = sorted((label for label in family.labels if label in x), key=lambda label: x[label])
        if not inside:
            continue
        look = dict(color=family.colour, linewidth=1)
        where, (mean, error) = [x[label] for label in inside], zip(*(final(result, label) for label in inside))
        if joined:
            ax.plot(where, mean, family.line, **look)
        ax.errorbar(where, mean, None if np.isnan(error).all() else error, fmt="none", capsize=2, **look)
        for label, a, b in zip(inside, where, mean):
            filled = family.colour if label in on else plt.rcParams["axes.facecolor"]
            ax.plot(a, b, family.marker, markerfacecolor=filled, markersize=6, zorder=3, **look)
        ax.plot([], [], family.marker + family.line, label=family.text, **look)
    if stairs and on:
        ends = sorted((x[label], final(result, label)[0]) for label in on)
        least = [end for end, kept in zip(ends, pareto(ends, [0] * len(ends))) if kept]  # whatever is claimed
        ax.step(*zip(*least), where="post", color=GREY, linewidth=6, alpha=0.3, zorder=0)
    ax.add_line(Line2D([], [], color=GREY, marker="o", linewidth=6 if stairs else 0, alpha=0.6, label=FRONT))


def _setting(result: Result, label: str) -> tuple[Any, str]:
    return result.config["environments"][label], result.certificates[label].neighbours


def _same_world(result: Result) -> bool:
    first, *others = result.config["environments"].values()
    return all(world == first for world in others)


def _of_worlds(result: Result, name: str) -> bool:
    found: dict[str, list[Any]] = {}
    for label, text in words(result, name).items():
        found.setdefault(text, []).append(result.config["environments"][label])
    groups = list(found.values())
    return all(world not in other for i, group in enumerate(groups) for world in group for other in groups[:i])
