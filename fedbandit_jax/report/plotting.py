"""Draws results as figures, without JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import write_atomic
from fedbandit_jax.report.audit import Audit
from fedbandit_jax.report.results import Result

# The palette of Okabe & Ito (2008), which readers with any colour vision can tell apart.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
CLAIMS = {  # a certificate's claim -> style of the line, words in the legend
    "certified": ("-", "certified"),
    "as_printed": ("--", "weaker than stated"),
    "none": (":", "no privacy claim"),
}


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
    `none`. Algorithms that do not claim privacy are solid.

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
    axes = _checked(result, band, title, ax)
    _curves(result, lambda one: one.time_average if time_average else one.regret, band, axes)
    n_seeds = result.status.shape[-1]
    whose = _whose(result)
    axes.set_xlabel("round $t$")
    axes.set_ylabel(f"time-average {whose} Reg$(t)/t$" if time_average else f"cumulative {whose} Reg$(t)$")
    if title is None:
        title = "; ".join(dict.fromkeys(map(_where, result.config["environments"].values())))
    of = {"error": "1 s.e.", "deviation": "1 standard deviation"}[band]
    axes.set_title(f"{title}\nmean of {n_seeds} seeds ± {of}" if n_seeds > 1 else title, fontsize="medium")
    return _finish(result, axes)


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
            chance; default: from 0 on.
        title: title of the axes; default: none.
        ax: axes to draw on; default: those of a new figure.

    Returns:
        The figure.

    Raises:
        ValueError, TypeError: `result` has no gauge of this name, or another argument is not one of these.
    """
    validate.one_of("name", name, validate.instance("result", result, Result, "a fb.Result").gauges)
    if limits is not None:
        ends = validate.finite_array("limits", limits, ndim=1)
        if len(ends) != 2 or ends[0] == ends[1]:
            raise ValueError(f"limits must be two different numbers, got {validate.shown(limits)}")
    axes = _checked(result, band, title, ax)
    _curves(result, lambda one: one.gauges[name], band, axes)
    axes.set_xlabel("round $t$")
    axes.set_ylabel(name)
    if title is not None:
        axes.set_title(title, fontsize="medium")
    figure = _finish(result, axes)
    if limits is not None:
        axes.set_ylim(limits)
    return figure


def _curves(result: Result, curves_of: Callable[[Result], np.ndarray], band: str, ax: Axes) -> None:
    """Draws the mean over seeds of every algorithm's (n_seeds, n_records) curves, and a band around it."""
    for i, label in enumerate(result.labels):
        one = result[label]
        curves = curves_of(one)
        mean = curves.mean(0)
        style, claim = CLAIMS[one.certificate.claim]
        if one.certificate.epsilon is None:  # claims no privacy
            style, claim = "-", ""
        elif one.certificate.notion != Certificate.notion:
            claim += f", {one.certificate.notion}"
        colour = COLOURS[i % len(COLOURS)]
        marker = ("", "o", "s", "^", "v")[i // len(COLOURS) % 5]  # tells curves of one colour apart
        name = f"{label}: {claim}" if claim else label
        ax.plot(one.rounds, mean, style, color=colour, marker=marker, markevery=0.1, label=name)
        if len(curves) > 1:
            width = curves.std(0, ddof=1) / (np.sqrt(len(curves)) if band == "error" else 1)
            ax.fill_between(one.rounds, mean - width, mean + width, color=colour, alpha=0.2, linewidth=0)


def _checked(result: Any, band: Any, title: Any, ax: Any) -> Axes:
    """Checks what all curves are drawn from, and returns the axes to draw on, by default those of a new figure."""
    validate.instance("result", result, Result, "a fb.Result")
    validate.one_of("band", band, ("error", "deviation"))
    validate.instance("title", title, (str, type(None)), "a string or None")
    validate.instance("ax", ax, (Axes, type(None)), "matplotlib's Axes or None")
    return plt.subplots(figsize=(6.4, 4.8), layout="constrained")[1] if ax is None else ax


def _finish(result: Result, ax: Axes) -> Figure:
    """Sets limits, grid and legend, and returns the figure."""
    if result.config.get("stride") == "log":
        ax.set_xscale("log")
    ax.set_xlim(result.rounds[0] if ax.get_xscale() == "log" else 0, result.rounds[-1])
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False, fontsize="small")  # below, hides no curve
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def against_epsilon(
    result: Result, *, title: str, ax: Axes, proved: bool = False, lines: Mapping[str, str] | None = None
) -> None:
    """Draws final group regret against the epsilon asked for, as mean and one standard error over seeds.

    Every algorithm of the sweep is one line, whatever the grid made of it; algorithms that are not private are
    horizontal lines. Solid, dashed and dotted lines are as in `regret`.

    Args:
        result: result of `fb.sweep` with a grid over epsilon.
        title: title of the axes.
        ax: axes to draw on.
        proved: draw against the epsilon that the noise gives at the certificate's delta, instead of the one asked for.
        lines: label -> name of the line of which it is a point; labels that are missing are lines of their own.
            Default: one line for every algorithm in `Result.coordinates`.

    Raises:
        TypeError: an argument is not one of these; the message names it and its value.
    """
    validate.instance("result", result, Result, "a fb.Result")
    validate.instance("title", title, str, "a string")
    validate.instance("ax", ax, Axes, "matplotlib's Axes")
    validate.boolean("proved", proved)
    validate.instance("lines", lines, (Mapping, type(None)), "a mapping of labels to names, or None")
    which = "epsilon_exact" if proved else "epsilon"
    families: dict[str, list[Result]] = {}
    for label, point in result.coordinates.items():
        name = point["algorithm"] if lines is None else lines.get(label, label)
        families.setdefault(name, []).append(result[label])
    for (name, members), colour in zip(families.items(), COLOURS * len(families)):
        finals = np.stack([one.regret[:, -1] for one in members])
        mean, error = finals.mean(1), finals.std(1, ddof=1) / np.sqrt(finals.shape[1]) if finals.shape[1] > 1 else None
        if members[0].certificate.epsilon is None:
            ax.axhline(mean[0], color=colour, label=name)
            continue
        style, claim = CLAIMS[members[0].certificate.claim]
        epsilons = [getattr(one.certificate, which) or math.nan for one in members]
        ax.errorbar(epsilons, mean, error, fmt=f"o{style}", markersize=4, color=colour, label=f"{name}: {claim}")
    private = [one for one in result.certificates.values() if one.epsilon is not None]
    asked = sorted({float(f"{getattr(one, which):.3g}") for one in private})
    ax.set(xscale="log", yscale="log", xlabel=f"$\\varepsilon$ {'proved' if proved else 'asked for'}")
    ax.set_xticks(asked, [f"{epsilon:g}" for epsilon in asked])
    ax.set_xticks([], minor=True)
    ax.set_title(title, fontsize="medium")
    ax.set_ylabel(f"{_whose(result)} after {result.rounds[-1]:,} rounds")
    ax.grid(alpha=0.3, which="both")
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False, fontsize="small")


def audits(audits: Sequence[Audit], controls: Sequence[Audit] = ()) -> Figure:
    """Draws a table with a row for every mechanism: what it claims, and how much of that an audit could show.

    A bar goes from 0 to the lower bound of epsilon, in units of the claim; one that crosses the line at 1 refutes the
    claim. Beside it stand the claim, the lower bound, and the pair of neighbours and the statistic that showed most.

    Args:
        audits: results of `fb.audits.audit`.
        controls: those of mechanisms with known flaws, which are in a block of their own: caught, or missed.

    Returns:
        The figure.

    Raises:
        ValueError, TypeError: there is no audit, or something else among them.
    """
    for name, found in (("audits", audits), ("controls", controls)):
        for audit in validate.sequence(name, found, "audits"):
            validate.instance(name, audit, Audit, "a sequence of results of fb.audits.audit")
    if not len(audits) + len(controls):
        raise ValueError("audits must hold at least one audit, got none")
    blocks = [(title, rows) for title, rows in (("mechanisms", audits), ("controls (flawed)", controls)) if len(rows)]
    width, top, line = 11.5, 0.0, 0.18  # in inches, as all places here
    height = line * sum(len(rows) + 5 for _, rows in blocks)
    figure = plt.figure(figsize=(width, height))
    for title, rows in blocks:
        tall = line * (len(rows) + 2)
        place = 4.4 / width, 1 - (top + tall + line) / height, _BARS / width, tall / height
        _rows(figure.add_axes(place), title, rows, ("caught", "MISSED") if rows is controls else ("FAIL", "pass"))
        top += tall + 3 * line
    return figure


_BARS = 2.4  # width of the bars


def _rows(ax: Axes, title: str, rows: Sequence[Audit], words: tuple[str, str]) -> None:
    """Draws one block of `audits`; `words` say what a claim that is refuted, or is not, is called."""
    columns = {  # title -> distance from the left end of the bars; and text
        title: (-4.3, lambda a: a.name),
        "claim: ε": (-1.4, lambda a: f"{a.epsilon:.3g}"),
        "ε ≥": (-0.7, lambda a: f"{a.epsilon_lower:.3g}"),
        "neighbours": (_BARS + 0.1, lambda a: a.which),
        "statistic (bound)": (_BARS + 1.3, lambda a: f"{a.statistic} ({a.bound})"),
        "verdict": (_BARS + 4.0, lambda a: words[0] if not a.passed else words[1]),
    }
    style: dict[str, Any] = dict(va="center", fontsize="x-small")
    widest = 2.0
    for label, (place, _) in columns.items():
        ax.text(place / _BARS * widest, -1, label, fontweight="bold", **style)
    for i, one in enumerate(rows):
        fine = one.passed == (words[1] == "pass")
        ratio = one.epsilon_lower / one.epsilon
        ax.barh(i, min(ratio, widest), height=0.7, color=COLOURS[3 if fine else 2], alpha=0.8)
        if ratio > widest:
            ax.text(widest * 0.99, i, f"{ratio:.3g} →", ha="right", **style)
        for place, text in columns.values():
            ax.text(place / _BARS * widest, i, text(one), fontweight="normal" if fine else "bold", **style)
    ax.axvline(1, color=COLOURS[0], linestyle="--", linewidth=1)
    ax.set(xlim=(0, widest), ylim=(len(rows) - 0.4, -1.6), yticks=[])
    confidence = ", ".join(f"{c:g}" for c in sorted({one.confidence for one in rows}))
    ax.set_xlabel(f"lower bound / claim (confidence {confidence} each)", fontsize="x-small")
    ax.tick_params(labelsize="x-small")
    ax.spines[["top", "right", "left"]].set_visible(False)


def _whose(result: Result) -> str:
    """Returns what the regret of this result is called."""
    worlds = result.config["environments"].values()
    return "group regret" if any(world["spec"]["n_agents"] > 1 for world in worlds) else "regret"


def _where(world: Mapping[str, Any]) -> str:
    """Returns the environment and its sizes, for titles."""
    spec = world["spec"]
    who = f"n={spec['n_users']}, L={spec['n_servers']}" if spec.get("n_users") else f"M={spec['n_agents']}"
    return f"{world['type']}: {who}, K={spec['n_arms']}, d={spec['dim']}"


def save_png(figure: Figure, path: str | Path) -> Path:
    """Writes a figure as PNG, complete or not at all, closes it, and returns the path."""
    validate.instance("figure", figure, Figure, "a matplotlib Figure")
    path = validate.path("path", path)
    if not path.name:
        raise ValueError(f"path must name a file, got {str(path)!r}")
    write_atomic(
        path, lambda file: figure.savefig(file, format="png", dpi=120, bbox_inches="tight", metadata={"Software": None})
    )
    plt.close(figure)
    return path
