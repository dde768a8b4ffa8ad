"""A figure of audits: lower bounds on epsilon relative to the claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.findings import Audit
from fedbandit_jax.report.plotting.colours import BLACK, GREEN, VERMILLION, drawn
from fedbandit_jax.report.plotting.figure import once

BARS = 2.4  # width of the bars in inches


def audits(audits: Sequence[Audit], controls: Sequence[Audit] = ()) -> Figure:
    """Draws a row for every mechanism: its claim, and the share of it that an audit could show.

    A bar goes from 0 to the lower bound on epsilon, relative to the claim. A bar across the line at 1 refutes the
    claim. Text gives the claim, the lower bound, and the pair of neighbours and the statistic that showed most.

    Args:
        audits: results of `fb.audits.audit`.
        controls: audits of mechanisms with known flaws, in a separate block: caught or missed.

    Returns:
        The figure.
    """
    for name, found in (("audits", audits), ("controls", controls)):
        for audit in validate.sequence(name, found, "audits"):
            validate.instance(name, audit, Audit, "a sequence of results of fb.audits.audit")
    if not len(audits) + len(controls):
        raise BadValue("audits", "must hold at least one audit", None, got="none")
    blocks = [(title, rows) for title, rows in (("mechanisms", audits), ("controls (flawed)", controls)) if len(rows)]
    width, top, line = 11.5, 0.0, 0.18  # inches, like all positions here
    height = line * sum(len(rows) + 5 for _, rows in blocks)
    figure = plt.figure(figsize=(width, height))
    for title, rows in blocks:
        tall = line * (len(rows) + 2)
        place = 4.4 / width, 1 - (top + tall + line) / height, BARS / width, tall / height
        _rows(figure.add_axes(place), title, rows, ("caught", "MISSED") if rows is controls else ("FAIL", "pass"))
        top += tall + 3 * line
    return once(figure)


def _rows(ax: Axes, title: str, rows: Sequence[Audit], words: tuple[str, str]) -> None:
    """Draws one block of `audits`; `words` describe a refuted claim, and one that is not."""
    columns = {  # title -> distance from the left end of the bars, and text
        title: (-4.3, lambda a: a.name),
        "claim: ε": (-1.4, lambda a: f"{a.epsilon:.3g}"),
        "ε ≥": (-0.7, lambda a: f"{a.epsilon_lower:.3g}"),
        "neighbours": (BARS + 0.1, lambda a: a.which),
        "statistic (bound)": (BARS + 1.3, lambda a: f"{a.statistic} ({a.bound})"),
        "verdict": (BARS + 4.0, lambda a: words[0] if not a.passed else words[1]),
    }
    style: dict[str, Any] = dict(va="center", fontsize="x-small")
    widest = 2.0
    for label, (place, _) in columns.items():
        ax.text(place / BARS * widest, -1, label, fontweight="bold", **style)
    for i, one in enumerate(rows):
        fine = one.passed == (words[1] == "pass")
        ratio = one.epsilon_lower / one.epsilon
        ax.barh(i, min(ratio, widest), height=0.7, color=GREEN if fine else VERMILLION, alpha=0.8)
        if ratio > widest:
            ax.text(widest * 0.99, i, f"{ratio:.3g} →", ha="right", **style)
        for place, text in columns.values():
            ax.text(place / BARS * widest, i, text(one), fontweight="normal" if fine else "bold", **style)
    ax.axvline(1, color=drawn(BLACK), linestyle="--", linewidth=1)
    ax.set(xlim=(0, widest), ylim=(len(rows) - 0.4, -1.6), yticks=[])
    confidence = ", ".join(f"{c:g}" for c in sorted({one.confidence for one in rows}))
    ax.set_xlabel(f"lower bound / claim (confidence {confidence} each)", fontsize="x-small")
    ax.tick_params(labelsize="x-small")
    ax.spines[["top", "right", "left"]].set_visible(False)
