"""Final regret against privacy and communication, with the Pareto front of points that no other dominates."""

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
from fedbandit_jax.report.plotting.colours import GREY
from fedbandit_jax.report.plotting.curves import Family, ended, families, final, varied, words
from fedbandit_jax.report.plotting.figure import INSIDE, checked, scale
from fedbandit_jax.report.result import Result

FRONT = "on the Pareto front (filled)"


def privacy_frontier(
    result: Result,
    *,
    names: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws final group regret against the proved epsilon of the noise, and marks the Pareto front.

    Epsilon is `Certificate.epsilon_exact`, at the certificate's delta, which the axis names. A point on the front is
    filled: it is certified, and no other certified one dominates it in mean regret, epsilon (to three digits) and
    delta. Only points with the same environment and adjacency are compared. The epsilon of a weaker claim is not what
    the run provides. Algorithms without privacy, and uniform play with epsilon = 0, are horizontal lines. So are those
    without a finite proved epsilon, and the legend says so.

    Args:
        result, names, colours, ax: as in `against`.

    Raises:
        ValueError, TypeError: no algorithm has a finite epsilon, or an argument is invalid.
    """
    axes = checked(result, ax, names)
    proved = {
        label: one.epsilon_exact
        for label, one in result.certificates.items()
        if one.epsilon_exact and math.isfinite(one.epsilon_exact)
    }
    if not proved:
        raise BadValue("result", "must have an algorithm with a finite proved epsilon", result)
    deltas = sorted({result.certificates[label].delta or 0.0 for label in proved})
    certified = [label for label in proved if result.certificates[label].claim == "certified"]
    best = pareto(
        [
            (final(result, label)[0], float(f"{proved[label]:.3g}"), result.certificates[label].delta or 0.0)
            for label in certified
        ],
        [(result.config["environments"][label], result.certificates[label].neighbours) for label in certified],
    )
    on = set(itertools.compress(certified, best))
    members = families(result, names, colours, along=("epsilon", "delta"))
    beside = {label: "no ε is proved" for label, one in result.certificates.items() if one.epsilon}
    _draw(result, members, proved, on, axes, beside, stairs=len(deltas) == 1 and _same_world(result), joined=True)
    listed = ", ".join(f"{delta:g}" for delta in deltas)
    at = f"at $\\delta$ = {listed}" if len(deltas) == 1 else f"each at its $\\delta$: {listed}"
    axes.set_xlabel(f"$\\varepsilon$ given by the certificate, {at}")
    return ended(result, axes, ours=ax is None)


def communication_frontier(
    result: Result,
    *,
    names: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws final group regret against the bits sent and received by all agents, and marks the Pareto front.

    A point on the front is filled: no other one in the same environment dominates it in mean regret and mean bits.
    Privacy does not count. To compare at one budget, select it: `communication_frontier(result.sel(epsilon=1.0))`.
    Algorithms of your own that report rounds only are horizontal lines.

    Args:
        result, names, colours, ax: as in `against`.
    """
    axes = checked(result, ax, names)
    sent = {label: result[label].communication for label in result}
    bits = {label: float(one["bits"][:, -1].mean()) for label, one in sent.items()}
    silent = {label for label in bits if not bits[label] and sent[label]["rounds"].any()}
    bits = {label: bits[label] for label in bits if label not in silent or len(silent) == len(bits)}
    worlds = result.config["environments"]
    best = pareto([(final(result, label)[0], sent) for label, sent in bits.items()], [worlds[label] for label in bits])
    members = families(result, names, colours, along=[name for name in varied(result) if not _of_worlds(result, name)])
    beside = dict.fromkeys(silent, "its bits are not counted")
    _draw(result, members, bits, {*itertools.compress(bits, best)}, axes, beside, stairs=_same_world(result))
    axes.set_xlabel("bits sent and received by all agents")
    return ended(result, axes, ours=ax is None)


def _same_world(result: Result) -> bool:
    first, *others = result.config["environments"].values()
    return all(world == first for world in others)


def _of_worlds(result: Result, name: str) -> bool:
    """Returns whether another value of a coordinate is another environment."""
    texts, worlds = words(result, name), result.config["environments"]
    return all(worlds[a] != worlds[b] for a, b in itertools.combinations(texts, 2) if texts[a] != texts[b])


def pareto(costs: Sequence[Sequence[float]], settings: Sequence[Any]) -> list[bool]:
    """Marks which of n points with costs (n, m) no other point in the same setting dominates.

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
    ax: Axes,
    beside: Mapping[str, str],
    *,
    stairs: bool,
    joined: bool = False,
) -> None:
    """Draws points at their x, filled if they are `on` the front, and all others as horizontal lines.

    `beside` gives the legend's reason for a missing x. Families are lines if `joined`, the front is with `stairs`.
    """
    values = np.array(list(x.values()))
    if values.min() <= 0 < values.max():  # includes algorithms that send nothing
        ax.set_xscale("symlog", linthresh=float(values[values > 0].min()))
    else:
        scale(ax, "x", values)
    for family in members:
        for i, label in enumerate(one for one in family.labels if one not in x):
            why = beside.get(label)
            name = f"{family.name}: {why}" if why else family.text
            look: dict[str, Any] = dict(color=family.colour, marker=family.at_ends, label=None if i else name)
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
        least = [end for end, kept in zip(ends, pareto(ends, [0] * len(ends))) if kept]  # for any claim
        ax.step(*zip(*least), where="post", color=GREY, linewidth=6, alpha=0.3, zorder=0)
    ax.add_line(Line2D([], [], color=GREY, marker="o", linewidth=6 if stairs else 0, alpha=0.6, label=FRONT))
