"""Draws what grows or stands over the rounds: regret and gauges, as means over seeds with bands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbandit_jax.core import validate
from fedbandit_jax.report.plotting.axes import checked, finish, places, whose
from fedbandit_jax.report.plotting.colours import styles
from fedbandit_jax.report.result import Result

BANDS = {"error": "1 s.e.", "deviation": "1 standard deviation"}  # half-width of a band -> words


def regret(
    result: Result,
    *,
    time_average: bool = True,
    band: str = "error",
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws the mean over seeds of the group regret of every algorithm, with a band around it.

    Private algorithms are drawn solid if their certificate says `certified`, dashed if `as_printed` and dotted if
    `none`. Algorithms that do not claim privacy are solid. Colours are those of `colour`.

    Args:
        result: result of `fb.simulate`, `fb.sweep` or `Result.load`.
        time_average: draw Reg(t) / t, as in the papers' figures; False draws cumulative regret Reg(t).
        band: half-width of the band, one standard "error" of the mean or one standard "deviation" over seeds.
        title: title of the axes; default: the environment and the number of seeds.
        ax: axes to draw on; default: those of a new figure.

    Returns:
        The figure.

    Raises:
        ValueError, TypeError: an argument is not one of these; the message names it and its value.
    """
    validate.boolean("time_average", time_average)
    validate.one_of("band", band, BANDS)
    axes = checked(result, title, ax)
    _draw(result, lambda one: one.time_average if time_average else one.regret, band, axes)
    n_seeds = result.status.shape[-1]
    axes.set_ylabel(
        f"time-average {whose(result)} Reg$(t)/t$" if time_average else f"cumulative {whose(result)} Reg$(t)$"
    )
    if title is None:
        title = places(result)
    if n_seeds > 1:
        title = f"{title}\nmean of {n_seeds} seeds ± {BANDS[band]}"
    return finish(axes, title, ours=ax is None)


def gauge(
    result: Result,
    name: str,
    *,
    band: str = "error",
    limits: tuple[float, float] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws the mean over seeds of a gauge at every recorded round, with a band around it.

    A gauge is a number that stands at each round, such as the "adjusted Rand index" of the clusters found.

    Args:
        result: result of one or several algorithms.
        name: a key of `result.gauges`.
        band: as in `regret`.
        limits: ends of the vertical axis, such as (-0.05, 1.05) for an index that is 1 where it is right and 0 by
            chance; default: from 0 on, or from the least value.
        title: title of the axes; default: none.
        ax: axes to draw on; default: those of a new figure.

    Returns:
        The figure.

    Raises:
        ValueError, TypeError: `result` has no gauge of this name, or another argument is not one of these.
    """
    if not validate.instance("result", result, Result, "an fb.Result").gauges:
        raise ValueError(f"result must have gauges, as those of clustering have, got none, and name = {name!r}")
    validate.one_of("name", name, result.gauges)
    validate.one_of("band", band, BANDS)
    if limits is not None:
        ends = validate.finite_array("limits", limits, ndim=1)
        if len(ends) != 2 or ends[0] == ends[1]:
            raise ValueError(f"limits must be two different numbers, got {validate.shown(limits)}")
    axes = checked(result, title, ax)
    _draw(result, lambda one: one.gauges[name], band, axes)
    axes.set_ylabel(name)
    if limits is not None:
        axes.set_ylim(limits)
    return finish(axes, title, ours=ax is None)


def _draw(result: Result, curves_of: Callable[[Result], np.ndarray], band: str, ax: Axes) -> None:
    lowest = 0.0
    for label, style in styles(result).items():
        one = result[label]
        curves = curves_of(one)
        mean = curves.mean(0)
        if not np.isfinite(mean).any():  # it has no such gauge
            continue
        lowest = min(lowest, float(np.nanmin(mean)))
        name = f"{label}: {style.claim}" if style.claim else label
        look: dict[str, Any] = dict(color=style.colour, marker=style.marker, markersize=5)
        ax.plot(one.rounds, mean, style.line, markevery=0.1, label=name, **look)
        if len(curves) > 1:
            width = curves.std(0, ddof=1) / (np.sqrt(len(curves)) if band == "error" else 1)
            ax.fill_between(one.rounds, mean - width, mean + width, color=style.colour, alpha=0.2, linewidth=0)
    if result.config.get("stride") == "log":
        ax.set_xscale("log")
    ax.set_xlim(result.rounds[0] if ax.get_xscale() == "log" else 0, result.rounds[-1])
    ax.set_ylim(bottom=1.05 * lowest)
    ax.set_xlabel("round $t$")
