"""The finding of a privacy audit: a lower bound of epsilon and a verdict, as text, as a table and as a figure."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedbandit_jax.core import validate
from fedbandit_jax.report.tables import aligned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 2.4  # width of the bars of the figure, in inches


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """What an audit found out about one mechanism on one pair of neighbouring data sets."""

    name: str  # of the mechanism
    epsilon: float  # the claim
    delta: float
    confidence: float  # probability with which all lower bounds hold together
    epsilon_lower: float  # the largest lower bound of epsilon at delta that was shown
    bound: str  # how it was shown, "Clopper-Pearson" or "Gaussian DP"
    epsilon_cp: float  # the Clopper-Pearson lower bound of epsilon, which holds for any mechanism
    mu_lower: float | None  # lower bound of mu (Gaussian DP); None unless the mechanism is Gaussian
    which: str  # what differs between the two neighbours that were tested, out of all pairs
    statistic: str  # that was tested
    sensitivity: float | None  # the declared one; None if none was given
    sensitivity_measured: float | None  # largest difference of the two views under equal keys, if measured
    fixed_control_flow: bool  # whether the claim includes that no integer of the view depends on the data
    same_control_flow: bool  # whether, under equal keys, no integer or boolean of the view depended on the data
    deterministic: bool  # whether equal keys and data gave equal views
    n_runs: int  # per side
    seconds: float  # duration of the audit, compilation included
    noise: str = ""  # how the mechanism's noise differs from what it states, if that was measured

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for which the audit failed, a clause each; none if it passed."""
        found = []
        if not self.epsilon_lower <= self.epsilon:
            shown = f"at least {self.epsilon_lower:.4g} with confidence {self.confidence:g}"
            found.append(f"epsilon is {shown}, claimed {self.epsilon:g}")
        if self.fixed_control_flow and not self.same_control_flow:
            found.append("the control flow depends on the data: with equal keys, an integer of the view differs")
        declared, measured = self.sensitivity, self.sensitivity_measured
        if declared is not None and measured is not None and not measured <= declared * (1 + 1e-3):  # views are float32
            found.append(f"the sensitivity is at least {measured:.6g}, declared {declared:g}")
        if not self.deterministic:
            found.append("equal keys and data gave different views: some randomness is not from the key")
        return (*found, *[self.noise][: bool(self.noise)])

    @property
    def passed(self) -> bool:
        """True if nothing contradicts the claim."""
        return not self.reasons

    def __str__(self) -> str:
        mu = "" if self.mu_lower is None else f", mu >= {self.mu_lower:.4g}"
        bounds = f"(confidence {self.confidence:g}; Clopper-Pearson {self.epsilon_cp:.4g}{mu})"
        flow = "the same" if self.same_control_flow else "different"
        rows = [
            ("audit of", self.name),
            ("claim", f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"),
            ("shown", f"epsilon >= {self.epsilon_lower:.4g} {bounds}"),
            ("by", f"{self.statistic}; neighbours: {self.which}"),
            ("equal keys", f"control flow {flow}; sensitivity measured / declared: {_sensitivities(self)}"),
            ("runs", f"{self.n_runs:,} per side, {self.seconds:.1f} s"),
            ("verdict", "pass" if self.passed else f"FAIL: {'; '.join(self.reasons)}"),
        ]
        return "\n".join(
            textwrap.fill(value, 100, initial_indent=f"{label:<11} ", subsequent_indent=" " * 12)
            for label, value in rows
        )


def table(audits: Sequence[Audit]) -> str:
    """A table of text with one line per audit."""
    by = "sensitivity", "statistic", "neighbours"
    rows: list[tuple[str, ...]] = [("mechanism", "epsilon, delta", "epsilon >=", *by, "verdict", "runs", "seconds")]
    for a in audits:
        claim, shown, verdict = f"{a.epsilon:g}, {a.delta:g}", f"{a.epsilon_lower:.3f}", "pass" if a.passed else "FAIL"
        by = a.statistic, a.which
        rows.append((a.name, claim, shown, _sensitivities(a), *by, verdict, f"{a.n_runs:,}", f"{a.seconds:.1f}"))
    return aligned(rows)


def _sensitivities(a: Audit) -> str:
    return " / ".join("-" if s is None else f"{s:.5g}" for s in (a.sensitivity_measured, a.sensitivity))


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
    import matplotlib.pyplot as plt

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


def _rows(ax: Axes, title: str, rows: Sequence[Audit], words: tuple[str, str]) -> None:
    """Draws one block of `audits`; `words` are for a claim that is refuted, and for one that is not."""
    from fedbandit_jax.report.plotting.colours import BLACK, GREEN, VERMILLION

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
        ax.barh(i, min(ratio, widest), height=0.7, color=GREEN if fine else VERMILLION, alpha=0.8)
        if ratio > widest:
            ax.text(widest * 0.99, i, f"{ratio:.3g} →", ha="right", **style)
        for place, text in columns.values():
            ax.text(place / _BARS * widest, i, text(one), fontweight="normal" if fine else "bold", **style)
    ax.axvline(1, color=BLACK, linestyle="--", linewidth=1)
    ax.set(xlim=(0, widest), ylim=(len(rows) - 0.4, -1.6), yticks=[])
    confidence = ", ".join(f"{c:g}" for c in sorted({one.confidence for one in rows}))
    ax.set_xlabel(f"lower bound / claim (confidence {confidence} each)", fontsize="x-small")
    ax.tick_params(labelsize="x-small")
    ax.spines[["top", "right", "left"]].set_visible(False)
