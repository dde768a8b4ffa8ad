"""Draws figures: a script says what its picture shows (`Picture`, `Panel`), and the style of all is here."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from curves import CHANCE, Curve, the
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    Locator,
    LogFormatter,
    LogFormatterMathtext,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    ScalarFormatter,
)
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import name_ends, tick

WIDTH = 7.0  # inches, two columns of a journal
STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.linewidth": 0.6,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.titlesize": "large",
    "figure.titleweight": "bold",
    "font.size": 8,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}
plt.rcParams.update(STYLE)
# Lines that no algorithm has, such as uniform play.
REFERENCE: dict[str, Any] = dict(color="#999999", linestyle="-.", linewidth=0.9)
ROW = "number of a row"
LOGS: dict[str, Any] = dict(xscale="log", yscale="log")


@dataclasses.dataclass
class Panel:
    """What one pair of axes shows.

    Kinds are points with error bars that are joined; lines in a band of errors, with some markers, as points without
    markers are; bars side by side; or rows: a point for each curve, at its first value, beside its name.
    """

    curves: Sequence[Curve]  # their style has colour, line and marker; without a line it is solid
    title: str = ""  # before which a picture of several panels puts a letter
    xlabel: str = ""
    ylabel: str = ""
    _: dataclasses.KW_ONLY
    kind: Literal["points", "lines", "bars", "rows"] = "points"
    label: str = "{label}"  # of the legend, by `label`, `note` and `promise`, what the note promises; empty: none
    numbers: str = "{mean:,.0f} ± {error:,.0f}"  # format of the text above the point of a row
    band: float | None = 1.0  # how many standard errors are drawn; None: 95 % intervals
    open: Callable[[Curve], bool] = lambda one: False  # whether the markers of a curve are not filled
    spread: float = 0.0  # distance of neighbours, which keeps errors visible; a share on a log axis
    xticks: Iterable[float] | Mapping[float, str] | None = None  # places, maybe with words; none between them
    yticks: Iterable[float] | Mapping[float, str] | None = None
    xscale: str = "linear"
    yscale: str = "linear"
    xlim: Any = None
    ylim: Any = None
    places: bool = False  # draw points at 0, 1, ..., and write x there
    level: Mapping[str, float] = dataclasses.field(default_factory=dict)  # lines: words -> height, or place among rows
    ends: bool = False  # name curves at their right ends, not in the legend
    inside: bool = False  # put the legend into the panel
    also: Callable[[Axes], Any] = lambda ax: None  # draws what only this panel has
    look: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # more arguments of `Axes.errorbar`

    def words(self, one: Curve) -> str:
        """Returns the words of the legend for a curve."""
        words = self.label.format(label=one.label, note=one.note, promise=promised(one.note))
        return spaced(words.removesuffix(": ")) or "_"

    def aside(self, i: int, x: Any) -> Any:
        """Returns where points x of curve i are drawn, a little aside of it."""
        by = i - (len(self.curves) - 1) / 2
        return x * (1 + self.spread) ** by if self.xscale == "log" else x + self.spread * by


@dataclasses.dataclass(frozen=True)
class Picture:
    """What a figure shows."""

    panels: Sequence[Panel]  # row by row
    title: str  # the message, in at most ten words
    setting: str  # sizes, seeds and what lines mean, for the caption
    height: float | None = None  # inches; by default they are by the rows of panels, and of names in a panel
    shape: tuple[int, int] | None = None  # rows and columns; by default one row
    mosaic: str = ""  # places of the panels by their letters, as for `plt.subplot_mosaic`, in place of a shape
    ncols: int = 5  # columns of the legend, if they fit into the width
    ylabel: str = ""  # words at the axes of the first column
    grid: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # more arguments of `plt.subplots`

    def figure(self) -> Figure:
        """Draws it."""
        names = max(len(panel.curves) if panel.kind == "rows" else 8 for panel in self.panels)
        height = self.height or (2.95 * self.shape[0] if self.shape else 1.2 + 0.3 * names)
        size: Any = dict(figsize=(WIDTH, height), **self.grid)
        if self.mosaic:
            figure, places = plt.subplot_mosaic(self.mosaic, **size)
            axes = [places[letter] for letter in sorted(places)]
        else:
            figure, grid = plt.subplots(*self.shape or (1, len(self.panels)), squeeze=False, **size)
            axes = list(grid.flat)
        for panel in self.panels[:: self.shape[1] if self.shape else len(self.panels)] if self.ylabel else ():
            panel.ylabel = self.ylabel
        for letter, panel, ax in zip("abcdefghijkl", self.panels, axes):
            ax.set_title(spaced(f"({letter}) {panel.title}" if panel.title and len(self.panels) > 1 else panel.title))
            render(panel, ax)
        for ax in axes[len(self.panels) :]:
            ax.axis("off")
        ended = [ax for panel, ax in zip(self.panels, axes) if panel.ends]
        own = [ax for panel, ax in zip(self.panels, axes) if panel.inside]
        for ax in own:
            ax.legend(fontsize="x-small", frameon=False, handlelength=1.5, borderaxespad=0.2, labelspacing=0.2)
        legend(figure, [ax for ax in figure.axes if ax not in ended + own], self.ncols)
        figure.suptitle(self.title)
        tidy(figure)
        fit(figure)
        for ax in ended:
            name_ends(ax)
        return figure


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A figure of a table `FIGURES`: `python experiments/draw.py NAME`."""

    measure: Callable[[Any], list[Curve]]  # the numbers, for options; its docstring is the text of --help
    picture: Callable[[list[Curve]], Picture]
    options: type[Size] = Size  # of the command line


def render(panel: Panel, ax: Axes) -> None:
    """Draws a panel, and prints its numbers."""
    ax.set(xscale=panel.xscale, yscale=panel.yscale)
    rows, n = panel.kind == "rows", len(panel.curves)
    for label, value in panel.level.items():
        several = len(panel.level) > 1
        (ax.axvline if rows else ax.axhline)(value, label="_" if several else label, **REFERENCE)
        if several:
            look: dict[str, Any] = dict(fontsize="x-small", color="#777777", ha="right", annotation_clip=True)
            look |= dict(va="top") if value == min(panel.level.values()) else dict(va="bottom")
            ax.annotate(label, (0.99, value), (0, 0), ax.get_yaxis_transform(), "offset points", **look)
    for i, one in enumerate(panel.curves):
        mean, error = one.mean, one.half if panel.band is None else panel.band * one.error
        shown = ", ".join(f"{x:g}: {number(y)} ± {number(e)}" for x, y, e in zip(one.x, mean, error))
        print(f"{ax.get_title()}, {one.label}: {shown}; {one.note}")
        colour, line, marker = styled(one, i)
        look = dict(color=colour, capsize=1.5, markersize=4)
        look |= dict(mfc="white") if panel.open(one) else {}
        look |= panel.look
        at = np.arange(len(one.x)) if panel.places else one.x
        at = panel.aside(i, at) if marker or panel.kind == "bars" else at
        if rows:
            ax.errorbar(mean[0], n - 1 - i, xerr=error[0], fmt=marker or "o", **look)
            clear: Any = dict(facecolor="white", edgecolor="none", pad=0.5)
            place: Any = dict(textcoords="offset points", ha="center", fontsize="small", bbox=clear)
            words = panel.numbers.format(mean=mean[0], error=error[0])
            ax.annotate(words, (mean[0], n - 1 - i), (0, 5), gid=ROW, **place)
        elif panel.kind == "bars":
            ax.bar(at, mean, 0.93 * panel.spread, yerr=error, color=colour, capsize=2, label=panel.words(one))
        elif panel.kind == "lines" or not marker:
            some: Any = dict(marker=marker, markersize=4, markevery=(i, 8))
            ax.plot(at, mean, line, color=colour, label=panel.words(one), **some)
            ax.fill_between(at, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        else:
            look = dict(linestyle=line, marker=marker, label=panel.words(one)) | look
            ax.errorbar(at, mean, error, **look)
    if panel.places and panel.xticks is None:
        ticks(ax.xaxis, {i: f"{x:g}" for i, x in enumerate(panel.curves[0].x)})
    if rows and panel.curves:
        ax.grid(False, axis="y")
        names = [panel.words(one).removeprefix("_") for one in reversed(panel.curves)]
        ax.set_yticks(range(n), names, fontsize="small")
        ax.margins(y=0.1)
    for axis, places in ((ax.xaxis, panel.xticks), (ax.yaxis, panel.yticks)):
        if places is not None:
            ticks(axis, places)
    panel.also(ax)
    limits = {name: limit for name, limit in (("xlim", panel.xlim), ("ylim", panel.ylim)) if limit is not None}
    ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel, **limits)


def uncertified(one: Curve) -> bool:
    """Returns whether the note of a curve is no certificate, for `Panel.open`."""
    return one.note != "certified"


def level(curves: Sequence[Curve], panel: str | None = None) -> dict[str, float]:
    """Returns the line of uniform play, for `Panel.level`."""
    return {CHANCE: the(curves, panel, CHANCE).mean[0]}


def ticks(axis: Any, places: Iterable[float] | Mapping[float, str]) -> None:
    """Sets ticks with their words, or with plain numbers, and none between them."""
    words = places if isinstance(places, Mapping) else {place: f"{place:,g}" for place in places}
    axis.set_ticks(list(words), list(words.values()))
    axis.set_ticks([], minor=True)


def number(value: float) -> str:
    """Returns a number with four digits, or all of a larger one."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def write(ax: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Writes a small text at a point of the axes, whose sides are 1 long."""
    ax.text(x, y, text, transform=ax.transAxes, **{"fontsize": "small", **look})


def styled(one: Curve, i: int = 0) -> tuple[str, str, str]:
    """Returns colour, line and marker of a curve's style."""
    colour, *rest = one.style.split() or [fb.plotting.COLOURS[i % 7]]
    line = re.search(r"--|-\.|-|:", "".join(rest))
    line = "-." if one.label == CHANCE else line[0] if line else "-"
    return colour, line, re.sub(r"--|-\.|-|:", "", "".join(rest))


def dressed(curves: Sequence[Curve], looks: Mapping[str, str]) -> list[Curve]:
    """Returns curves in the style of their label, where `looks` has it."""
    return [one.but(style=looks.get(one.label, one.style)) for one in curves]


def spaced(text: str) -> str:
    """Returns a text with spaces around the = of a letter and its number: M=100 is M = 100."""
    return re.sub(r"(?<=[A-Za-zεδ])=(?=[\d$])", " = ", text)


def slope(ax: Axes, power: float, x: Sequence[float] | np.ndarray, y: float, text: str) -> None:
    """Draws a grey line of slope `power` in logarithms through the first of the points x at y, as a reference."""
    ends = np.array([x[0], x[-1]], float)
    ax.plot(ends, y * (ends / ends[0]) ** power, color="#BBBBBB", linewidth=1, label=text)


def promised(note: str) -> str:
    """Returns the words for a certificate's claim, or a note that is none."""
    return fb.plotting.CLAIMS[note][1] if note in fb.plotting.CLAIMS else note


def legend(figure: Figure, axes: Sequence[Axes], ncols: int) -> None:
    """Writes one legend for these axes below all, with every name once, in as many columns as fit into the width."""
    found: dict[str, Any] = {}
    for ax in axes:
        handles, names = ax.get_legend_handles_labels()
        found |= {name: handle for handle, name in zip(handles, names) if name not in found}
    place: dict[str, Any] = dict(loc="outside lower center", frameon=False, fontsize="small")
    for columns in range(ncols if found else 0, 0, -1):
        below = figure.legend(found.values(), found.keys(), ncols=columns, **place)
        figure.draw_without_rendering()
        if columns == 1 or below.get_window_extent().width <= figure.bbox.width:
            break
        below.remove()


def fit(figure: Figure) -> None:
    """Breaks long titles of panels into even lines, thins ticks that overlap, and keeps numbers of rows inside."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        room = 1.15 * ax.get_window_extent().width / max(1.0, ax.title.get_window_extent().width)
        if room < 1:
            whole = re.sub(r"\$.*?\$| ± | = ", lambda part: part[0].replace(" ", "~"), ax.get_title())
            size = max(12, int(room * max(map(len, whole.split("\n")))))
            ax.title.set_text("\n".join(even(line, size) for line in whole.split("\n")).replace("~", " "))
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
        boxes = sorted((box.x0, box.x1) for box in boxes if box.width)
        if any(a[1] + 3 > b[0] for a, b in pairwise(boxes)):
            if isinstance(ax.xaxis.get_major_locator(), LogLocator):
                ax.xaxis.set_major_formatter(LogFormatterMathtext())
            elif isinstance(ax.xaxis.get_major_locator(), MaxNLocator):
                ax.xaxis.set_major_locator(MaxNLocator(3))
        for text in (text for text in ax.texts if text.get_gid() == ROW):
            box, room = text.get_window_extent(), ax.get_window_extent()
            aside = max(0, room.x0 + 4 - box.x0) + min(0, room.x1 - 4 - box.x1)
            text.set(x=aside * 72 / figure.dpi)


def even(text: str, width: int) -> str:
    """Returns a text in as few lines as the width allows, as equally long as words are."""
    n = len(textwrap.wrap(text, width))
    for size in range(len(text) // n, width):
        if len(lines := textwrap.wrap(text, size, break_long_words=False)) == n:
            return "\n".join(lines)
    return textwrap.fill(text, width)


def tidy(figure: Figure) -> None:
    """Writes ticks as plain numbers with commas, at least two or three of them on a log axis.

    Places and words that a script has set itself stay.
    """
    for ax in figure.axes:
        for axis, least in ((ax.xaxis, 2), (ax.yaxis, 3)):
            if isinstance(axis.get_major_formatter(), LogFormatter):
                if isinstance(axis.get_major_locator(), LogLocator):
                    low, high = sorted(axis.get_view_interval())
                    axis.set_major_locator(_log_ticks(low, high, least))
                axis.set_major_formatter(lambda x, _: f"{x:,g}" if 1e-3 <= x < 1e6 else tick(x))
                axis.set_minor_formatter(NullFormatter())
            elif type(axis.get_major_formatter()) is ScalarFormatter:
                axis.set_major_formatter("{x:,.10g}")


def _log_ticks(low: float, high: float, least: int) -> Locator:
    """Returns ticks at powers or simple multiples, at least `least` of them, or even steps."""
    for subs in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)):
        places = np.asarray(LogLocator(subs=subs).tick_values(low, high))
        if ((low <= places) & (places <= high)).sum() >= least:
            return LogLocator(subs=subs)
    return MaxNLocator(5)
