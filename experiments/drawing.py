"""The drawing of figures: curves with their errors, legends, ticks, captions of a paper's claims, and the files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import curves as kept
import numpy as np
from curves import Curve
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import Locator, LogFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter
from matplotlib.transforms import ScaledTranslation
from options import FIGURES, Size

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import in_words, tick

BELOW = 0.5  # inches from the axes to a legend below: ticks and their label lie between


def draw(curves: Sequence[Curve], ax: Axes, *, average: bool = False, band: float = 1.0, hidden: bool = True) -> None:
    """Draws curves with a band of so many standard errors, or none; `average` divides by the round.

    Later curves are thinner and dashes of equal ones are set apart. Of a curve that is `hidden` under a later one all
    the same, the legend says so.
    """
    for i, one in enumerate(curves):
        colour, line, *marker = one.style.split() or [fb.plotting.COLOURS[i % 7], "-"]
        by = one.x if average else 1.0
        width = 2.6 - 1.4 * i / max(1, len(curves) - 1)
        above = curves[i + 1 :] if hidden else ()
        look: dict[str, Any] = dict(color=colour, marker=marker[0] if marker else "", markersize=5, markevery=(i, 8))
        ax.plot(one.x, one.mean / by, line, linewidth=width, label=named(one, above), **look)
        if band and one.n_seeds > 1:
            low, high = (one.mean - band * one.error) / by, (one.mean + band * one.error) / by
            ax.fill_between(one.x, low, high, color=colour, alpha=0.15, linewidth=0)


def spaced(text: str) -> str:
    """Returns a text with spaces around the = of a letter and its number: M=100 is M = 100."""
    return re.sub(r"(?<=[A-Za-zεδ])=(?=[\d$])", " = ", text)


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


def slope(ax: Axes, power: float, x: Sequence[float] | np.ndarray, y: float, text: str) -> None:
    """Draws a grey line of slope `power` in logarithms through the first of the points x at y, as a reference."""
    ends = np.array([x[0], x[-1]], float)
    ax.plot(ends, y * (ends / ends[0]) ** power, color="#999999", linestyle="-.", linewidth=1, label=text)


def promised(note: str) -> str:
    """Returns the words for a certificate's claim, or a note that is none."""
    return fb.plotting.CLAIMS[note][1] if note in fb.plotting.CLAIMS else note


def legend_below(ax: Axes, **style: Any) -> None:
    """Writes the legend below the axes, where it hides nothing, and draws a grid."""
    ax.grid(alpha=0.3)
    figure = ax.get_figure(root=True)
    assert figure is not None
    place = ax.transAxes + ScaledTranslation(0, -BELOW, figure.dpi_scale_trans)
    below: dict[str, Any] = dict(loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=place, borderaxespad=0)
    ax.legend(**{**below, "frameon": False, "fontsize": "small", **style})


def legend_of_all(figure: Figure, *, ncols: int = 3, **style: Any) -> None:
    """Writes one legend for all panels below them, with every name once."""
    found: dict[str, Any] = {}
    for ax in figure.axes:
        handles, names = ax.get_legend_handles_labels()
        found |= {name: handle for handle, name in zip(handles, names) if name not in found}
    place: dict[str, Any] = dict(loc="outside lower center", ncols=ncols, frameon=False, fontsize="small")
    figure.legend(found.values(), found.keys(), **{**place, **style})


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


def caption(figure: Figure | SubFigure, paper: str, *says: Says) -> None:
    """Labels a figure with what the paper claims, at which size, and what was seen: `save` keeps it."""
    text = [f"{paper}, {one.where}: {one.claim}. Size: {one.size}. Seen here: {one.seen}." for one in says]
    root = figure.get_figure(root=True)
    assert root is not None
    root.set_label("\n".join(text))


def remark(figure: Figure, text: str) -> None:
    """Labels a figure that goes beyond the papers with what was seen, at which size: `save` keeps it."""
    figure.set_label(text)


def tidy(figure: Figure) -> None:
    """Writes ticks as plain numbers with commas, at least three of them on a log axis, where powers of ten may be few.

    Places and words that a script has set itself stay.
    """
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatter):
                if isinstance(axis.get_major_locator(), LogLocator):
                    axis.set_major_locator(_log_ticks(*sorted(axis.get_view_interval())))
                axis.set_major_formatter(lambda x, _: f"{x:,g}" if 1e-3 <= x < 1e6 else tick(x))
                axis.set_minor_formatter(NullFormatter())
            elif type(axis.get_major_formatter()) is ScalarFormatter:
                axis.set_major_formatter("{x:,.10g}")


def _log_ticks(low: float, high: float) -> Locator:
    """Returns the first of three ways to place ticks that has at least three of them in an interval, or even steps."""
    for subs in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)):
        places = np.asarray(LogLocator(subs=subs).tick_values(low, high))
        if ((low <= places) & (places <= high)).sum() >= 3:
            return LogLocator(subs=subs)
    return MaxNLocator(5)


def save(name: str, options: Size, figure: Figure, curves: Sequence[Curve] | None = None) -> None:
    """Writes the picture as PNG and PDF, the numbers behind it as CSV, and prints where they are."""
    tidy(figure)
    if options.smoke:
        figure.text(0.5, 0.5, "smoke run: smaller than captions say", color="#d62728", ha="center", fontsize="xx-large")
    if options.folder == FIGURES:  # older pictures do not say that they are ours
        for ending in ("png", "pdf"):
            (FIGURES / f"{name}.{ending}").unlink(missing_ok=True)
    paths = fb.plotting.save(figure, options.folder / name)
    if curves is not None:
        paths = (*paths, kept.keep(paths[0], curves, caption=str(figure.get_label())))
        print(figure.get_label())
    print(f"\nwrote {' and '.join(map(str, paths))}")
