"""Draws figures: a script says what its picture shows (`Picture`, `Panel`), and the style of all is here."""

from __future__ import annotations

import dataclasses
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

import curves as kept
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve
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
from options import FIGURES, Size

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import tick

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
CHANCE = "uniform play"
Options = TypeVar("Options", bound=Size)


class Panel:
    """What one pair of axes shows.

    Args:
        curves: the curves, whose style has colour, line and marker. Without a line it is solid.
        title: the title, before which a picture of several panels puts a letter.
        xlabel, ylabel: words at the axes.
        kind: points with error bars that are joined; lines in a band of errors, with some markers, as points without
            markers are; bars side by side; or rows: a point for each curve, at its first value, beside its name.
        label: words of the legend, by `label`, `note` and `promise`, what the note promises; empty: none.
        numbers: format of what is written above the point of a row, by `mean` and `error`.
        band: how many standard errors are drawn.
        open: whether the markers of a curve are not filled.
        over: values (S,) or (n, S) of the seeds, in whose unit y is: means over their mean, errors of the paired ratio.
        spread: by how much neighbours are set apart, so that errors do not hide each other: a share on a log axis.
        xticks, yticks: places, maybe with words for them; there are no ticks between them.
        places: draw points at 0, 1, ..., and write x there.
        level: words -> height of a line for comparison (in rows: its place on the x axis).
        also: draws what only this panel has.
        look: more arguments of `Axes.errorbar`.
        axes: arguments of `Axes.set`.
    """

    def __init__(
        self,
        curves: Sequence[Curve],
        title: str = "",
        xlabel: str = "",
        ylabel: str = "",
        *,
        kind: Literal["points", "lines", "bars", "rows"] = "points",
        label: str = "{label}",
        numbers: str = "",
        band: float = 1.0,
        open: Callable[[Curve], bool] = lambda one: False,
        over: np.ndarray | None = None,
        spread: float = 0.0,
        xticks: Iterable[float] | Mapping[float, str] | None = None,
        yticks: Iterable[float] | Mapping[float, str] | None = None,
        places: bool = False,
        level: Mapping[str, float] | None = None,
        also: Callable[[Axes], Any] | None = None,
        look: Mapping[str, Any] | None = None,
        **axes: Any,
    ):
        self.curves, self.title, self.kind, self.label, self.numbers = curves, title, kind, label, numbers
        self.open: Callable[[Curve], bool] = open
        self.band, self.over, self.spread, self.places = band, over, spread, places
        self.xticks, self.yticks = xticks, yticks
        self.also: Callable[[Axes], Any] | None = also
        self.level: Mapping[str, float] = level or {}
        self.look: Mapping[str, Any] = look or {}
        self.axes: dict[str, Any] = dict(xlabel=xlabel, ylabel=ylabel, **axes)

    def words(self, one: Curve) -> str:
        """Returns the words of the legend for a curve."""
        words = self.label.format(label=one.label, note=one.note, promise=promised(one.note))
        return spaced(words.removesuffix(": ")) or "_"

    def heights(self, one: Curve) -> tuple[np.ndarray, np.ndarray]:
        """Returns means and half of the bars of errors of a curve, in the unit of the panel."""
        if self.over is None:
            return one.mean, self.band * one.error
        unit = np.broadcast_to(self.over, one.y.shape)
        mean, error = np.transpose([kept.quotient(*both) for both in zip(one.y, unit)])
        return mean, self.band * error

    def aside(self, i: int, x: Any) -> Any:
        """Returns where points x of curve i are drawn, a little aside of it."""
        by = i - (len(self.curves) - 1) / 2
        return x * (1 + self.spread) ** by if self.axes.get("xscale") == "log" else x + self.spread * by


@dataclasses.dataclass(frozen=True)
class Says:
    """One claim of a paper, for the caption of a picture.

    Args:
        where: the figure or theorem.
        claim: what it says.
        size: the paper's size, and ours if it is another.
        seen: whether it was seen here, with the number.
    """

    where: str
    claim: str
    size: str
    seen: str


@dataclasses.dataclass(frozen=True)
class Picture:
    """What a figure shows.

    Args:
        panels: its panels, row by row.
        title: the message, in at most ten words.
        setting: sizes, seeds and what lines mean, which the caption begins with.
        caption: what was seen, or what a paper claims, line by line.
        height: inches.
        shape: rows and columns; by default one row.
        mosaic: places of the panels in the order of their letters, as for `plt.subplot_mosaic`, in place of a shape.
        ncols: columns of the legend.
        grid: more arguments of `plt.subplots`.
    """

    panels: Sequence[Panel]
    title: str
    setting: str
    caption: str | Sequence[Says]
    height: float = 3.7
    shape: tuple[int, int] | None = None
    mosaic: str = ""
    ncols: int = 3
    grid: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    size: Any = None  # OLD
    paper: str = ""  # OLD

    def figure(self) -> Figure:
        """Draws it."""
        high = self.size[1] * 1.08 * min(WIDTH / self.size[0], 0.66) if self.size else self.height  # OLD
        size: Any = dict(figsize=(WIDTH, high), **self.grid)
        if self.mosaic:
            figure, places = plt.subplot_mosaic(self.mosaic, **size)
            axes = [places[letter] for letter in sorted(places)]
        else:
            figure, grid = plt.subplots(*self.shape or (1, len(self.panels)), squeeze=False, **size)
            axes = list(grid.flat)
        for letter, panel, ax in zip("abcdefghijkl", self.panels, axes):
            ax.set_title(spaced(f"({letter}) {panel.title}" if panel.title and len(self.panels) > 1 else panel.title))
            render(panel, ax)
        for ax in axes[len(self.panels) :]:
            ax.axis("off")
        legend(figure, self.ncols)
        figure.suptitle(self.title)
        tidy(figure)
        fit(figure)
        return figure

    def words(self, paper: str) -> str:
        """Returns the caption, whose claims are those of a paper."""
        seen = self.caption
        if not isinstance(seen, str):
            text = "{}, {}: {}. Size: {}. Seen here: {}."
            seen = "\n".join(text.format(paper, one.where, one.claim, one.size, one.seen) for one in seen)
        return f"Setting: {' '.join(self.setting.split())}.\n{seen}"


def main(
    measure: Callable[[Options], list[Curve]],
    picture: Callable[[list[Curve]], Picture],
    doc: str | None,
    options: type[Options] = Size,
    name: str = "",  # OLD
) -> None:
    """Runs a script with the options of the command line, as `show` does.

    Args:
        measure: returns the numbers, for the options of the command line.
        picture: returns what is drawn of them.
        doc: the text of --help.
        options: type of the options.
    """
    asked = tyro.cli(options, description=doc)
    show(asked, lambda: measure(asked), picture)


def show(asked: Size, measure: Callable[[], list[Curve]], picture: Callable[[list[Curve]], Picture]) -> None:
    """Measures numbers, or reads them again, and writes picture (PNG and PDF), numbers and caption (CSV)."""
    script = Path(sys.argv[0]).stem
    name = "_".join(filter(None, (script, asked.variant)))
    curves = asked.numbers(name, measure)
    drawn = picture(curves)
    figure, words = drawn.figure(), drawn.words(kept.paper(script))
    if asked.smoke:
        figure.text(0.5, 0.5, "smoke run: smaller than captions say", color="#d62728", ha="center", fontsize="xx-large")
    if asked.folder == FIGURES:  # older pictures do not say that they are ours
        for ending in ("png", "pdf"):
            (FIGURES / f"{name}.{ending}").unlink(missing_ok=True)
    paths = fb.plotting.save(figure, asked.folder / name)
    paths = (*paths, kept.keep(paths[0], curves, caption=words))
    print(f"{words}\n\nwrote {' and '.join(map(str, paths))}")


def render(panel: Panel, ax: Axes) -> None:
    """Draws a panel, and prints its numbers."""
    scales = {key: value for key, value in panel.axes.items() if key.endswith("scale")}
    ax.set(**scales)
    rows, n = panel.kind == "rows", len(panel.curves)
    for label, value in panel.level.items():
        (ax.axvline if rows else ax.axhline)(value, label=label, **REFERENCE)
    for i, one in enumerate(panel.curves):
        mean, error = panel.heights(one)
        shown = ", ".join(f"{x:g}: {number(y)} ± {number(e)}" for x, y, e in zip(one.x, mean, error))
        print(f"{ax.get_title()}, {one.label}: {shown}; {one.note}")
        colour, line, marker = styled(one, i)
        look: dict[str, Any] = dict(color=colour, capsize=1.5, markersize=4)
        look |= dict(mfc="white") if panel.open(one) else {}
        look |= panel.look
        at = np.arange(len(one.x)) if panel.places else one.x
        at = panel.aside(i, at) if marker or panel.kind == "bars" else at
        if rows:
            ax.errorbar(mean[0], n - 1 - i, xerr=error[0], fmt=marker or "o", **look)
            clear: Any = dict(facecolor="white", edgecolor="none", pad=0.5)
            place: Any = dict(textcoords="offset points", ha="center", fontsize="small", bbox=clear)
            ax.annotate(panel.numbers.format(mean=mean[0], error=error[0]), (mean[0], n - 1 - i), (0, 5), **place)
        elif panel.kind == "bars":
            ax.bar(at, mean, 0.93 * panel.spread, yerr=error, color=colour, capsize=2, label=panel.words(one))
        elif panel.kind == "lines" or not marker:
            width = 2.0 - i / max(1, n - 1) if panel.kind == "lines" else None  # so that equal ones are seen
            some: Any = dict(marker=marker, markersize=4, markevery=(i, 8), linewidth=width)
            ax.plot(at, mean, line, color=colour, label=panel.words(one), **some)
            ax.fill_between(at, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        else:
            look = dict(linestyle=line, marker=marker, label=panel.words(one)) | look
            ax.errorbar(at, mean, error, **look)
    if panel.places and panel.xticks is None:
        ticks(ax.xaxis, {i: f"{x:g}" for i, x in enumerate(panel.curves[0].x)})
    if rows and panel.curves:
        ax.grid(False, axis="y")
        ax.set_yticks(range(n), [panel.words(one) for one in reversed(panel.curves)], fontsize="small")
        ax.margins(y=0.1)
    for axis, places in ((ax.xaxis, panel.xticks), (ax.yaxis, panel.yticks)):
        if places is not None:
            ticks(axis, places)
    if panel.also:
        panel.also(ax)
    ax.set(**{key: value for key, value in panel.axes.items() if key not in scales})


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
    return [dataclasses.replace(one, style=looks.get(one.label, one.style)) for one in curves]


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


def legend(figure: Figure, ncols: int) -> None:
    """Writes one legend for all panels below them, with every name once."""
    found: dict[str, Any] = {}
    for ax in figure.axes:
        handles, names = ax.get_legend_handles_labels()
        found |= {name: handle for handle, name in zip(handles, names) if name not in found}
    if found:
        place: Any = dict(loc="outside lower center", ncols=ncols, frameon=False, fontsize="small")
        figure.legend(found.values(), found.keys(), **place)


def fit(figure: Figure) -> None:
    """Breaks titles of panels that are longer than the panel is wide, and shortens numbers of ticks that overlap."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        room = 1.15 * ax.get_window_extent().width / max(1.0, ax.title.get_window_extent().width)
        if room < 1:
            whole = re.sub(r"\$.*?\$| ± | = ", lambda part: part[0].replace(" ", "~"), ax.get_title())
            size = max(12, int(room * max(map(len, whole.split("\n")))))
            lines = [textwrap.fill(line, size) for line in whole.split("\n")]
            ax.title.set_text("\n".join(lines).replace("~", " "))
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
        boxes = sorted((box.x0, box.x1) for box in boxes if box.width)
        if isinstance(ax.xaxis.get_major_locator(), LogLocator) and any(a[1] > b[0] for a, b in pairwise(boxes)):
            ax.xaxis.set_major_formatter(LogFormatterMathtext())


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
    """Returns the first of three ways to place at least so many ticks in an interval, or even steps."""
    for subs in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)):
        places = np.asarray(LogLocator(subs=subs).tick_values(low, high))
        if ((low <= places) & (places <= high)).sum() >= least:
            return LogLocator(subs=subs)
    return MaxNLocator(5)


# OLD FROM HERE
from weakref import WeakKeyDictionary

from matplotlib.figure import SubFigure
from matplotlib.transforms import ScaledTranslation

from fedbandit_jax.report.plotting.figure import in_words

BELOW = 0.42
SETTINGS: Any = WeakKeyDictionary()


def draw(curves: Sequence[Curve], ax: Axes, *, average: bool = False, band: float = 1.0, hidden: bool = True) -> None:
    """Draws curves with a band of so many standard errors, or none; `average` divides by the round.

    Later curves are thinner and dashes of equal ones are set apart. Of a curve that is `hidden` under a later one all
    the same, the legend says so.
    """
    for i, one in enumerate(curves):
        colour, line, marker = styled(one, i)
        by = one.x if average else 1.0
        width = 2.0 - 1.0 * i / max(1, len(curves) - 1)
        above = curves[i + 1 :] if hidden else ()
        look: dict[str, Any] = dict(color=colour, marker=marker, markersize=4, markevery=(i, 8))
        ax.plot(one.x, one.mean / by, line, linewidth=width, label=named(one, above), **look)
        if band and one.n_seeds > 1:
            low, high = (one.mean - band * one.error) / by, (one.mean + band * one.error) / by
            ax.fill_between(one.x, low, high, color=colour, alpha=0.15, linewidth=0)


def named(one: Curve, above: Sequence[Curve] = ()) -> str:
    """Returns the name of a curve in the legend, with its note, and the curve `above` that hides it, if one does."""
    name = in_words(one.label)
    over = [in_words(other.label) for other in above if hides(other, one)]
    name = f"{name} (under {over[-1]})" if over else name
    return f"{name}: {one.note}" if one.note else name


def hides(above: Curve, below: Curve) -> bool:
    """Returns whether a curve lies on another one: within one part in a hundred at all points but one in thirty."""
    if not np.array_equal(above.x, below.x):
        return False
    near = np.abs(above.mean - below.mean) <= 0.01 * np.maximum(np.abs(above.mean), np.abs(below.mean))
    return bool(near.mean() > 29 / 30)


def legend_below(ax: Axes, **style: Any) -> None:
    """Writes the legend below the axes, where it hides nothing."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    place = ax.transAxes + ScaledTranslation(0, -BELOW, figure.dpi_scale_trans)
    below: dict[str, Any] = dict(loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=place, borderaxespad=0)
    ax.legend(**{**below, "frameon": False, "fontsize": "small", **style})


def caption(figure: Figure | SubFigure, paper: str, *says: Says) -> None:
    """Labels a figure with what the paper claims, at which size, and what was seen: `save` keeps it."""
    text = [f"{paper}, {one.where}: {one.claim}. Size: {one.size}. Seen here: {one.seen}." for one in says]
    root = figure.get_figure(root=True)
    assert root is not None
    root.set_label("\n".join(text))


def remark(figure: Figure, text: str) -> None:
    """Labels a figure that goes beyond the papers with what was seen, at which size: `save` keeps it."""
    figure.set_label(text)


def headline(figure: Figure, message: str, setting: str) -> None:
    """Writes the message of a figure, of at most ten words, above it; `save` puts the setting into its caption."""
    figure.suptitle(message)
    SETTINGS[figure] = " ".join(setting.split())


def save(name: str, options: Size, figure: Figure, curves: Sequence[Curve] | None = None) -> None:
    """Writes the picture as PNG and PDF, the numbers behind it as CSV, and prints where they are."""
    tidy(figure)
    width, height = figure.get_size_inches()
    smaller = min(WIDTH, 0.66 * width) / width
    figure.set_size_inches(width * smaller, 1.08 * height * smaller)  # words take more of a smaller figure
    fit(figure)
    words = str(figure.get_label())
    if setting := SETTINGS.get(figure):
        words = f"Setting: {setting}.\n{words}"
    if options.smoke:
        figure.text(0.5, 0.5, "smoke run: smaller than captions say", color="#d62728", ha="center", fontsize="xx-large")
    if options.folder == FIGURES:  # older pictures do not say that they are ours
        for ending in ("png", "pdf"):
            (FIGURES / f"{name}.{ending}").unlink(missing_ok=True)
    paths = fb.plotting.save(figure, options.folder / name)
    if curves is not None:
        paths = (*paths, kept.keep(paths[0], curves, caption=words))
        print(words)
    print(f"\nwrote {' and '.join(map(str, paths))}")


def legend_of_all(figure: Figure, *, ncols: int = 3, **style: Any) -> None:
    """Writes one legend for all panels below them, with every name once."""
    found: dict[str, Any] = {}
    for ax in figure.axes:
        handles, names = ax.get_legend_handles_labels()
        found |= {name: handle for handle, name in zip(handles, names) if name not in found}
    place: dict[str, Any] = dict(loc="outside lower center", ncols=ncols, frameon=False, fontsize="small")
    if found:
        figure.legend(found.values(), found.keys(), **{**place, **style})
