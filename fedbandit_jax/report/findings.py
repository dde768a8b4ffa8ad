"""The finding of a privacy audit: a lower bound of epsilon and a verdict, as text and as a table."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence

from fedbandit_jax.report.tables import aligned


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """The finding of an audit of one mechanism on one pair of neighbouring data sets."""

    name: str  # of the mechanism
    epsilon: float  # the claim
    delta: float
    confidence: float  # probability with which all lower bounds hold together
    epsilon_lower: float  # the largest lower bound of epsilon at delta that was shown
    bound: str  # how: "Clopper-Pearson", "Gaussian DP" or "schedule + Gaussian DP"
    epsilon_cp: float  # the Clopper-Pearson lower bound of epsilon, which holds for any mechanism
    mu_lower: float | None  # lower bound of mu; None unless all, or all given the schedule, is Gaussian
    which: str  # what differs between the two neighbours that were tested, out of all pairs
    statistic: str  # that was tested
    sensitivity: float | None  # the declared one; None if none was given
    sensitivity_measured: float | None  # under equal keys, if asked for; NaN: nothing could be measured
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
            shown = f"at least {self.epsilon_lower:.4g} with confidence {self.confidence:g}{self._promised}"
            found.append(f"epsilon is {shown}, claimed {self.epsilon:g}")
        if self.fixed_control_flow and not self.same_control_flow:
            found.append("the control flow depends on the data: with equal keys, an integer of the view differs")
        declared, measured = self.sensitivity, self.sensitivity_measured
        if measured is not None and math.isnan(measured):
            found.append("the sensitivity could not be measured: it is NaN, or all runs differ in control flow")
        elif declared is not None and measured is not None and measured > declared * (1 + 1e-3):  # views are float32
            found.append(f"the sensitivity is at least {measured:.6g}, declared {declared:g}")
        if not self.deterministic:
            found.append("equal keys and data gave different views: some randomness is not from the key")
        return (*found, *[self.noise][: bool(self.noise)])

    @property
    def _promised(self) -> str:
        """The condition of the confidence, if the bound has one; integer noise meets it nearly."""
        return " if views are Gaussian, as promised" if "Gaussian" in self.bound else ""

    @property
    def passed(self) -> bool:
        """True if nothing contradicts the claim."""
        return not self.reasons

    def __str__(self) -> str:
        mu = "" if self.mu_lower is None else f", mu >= {self.mu_lower:.4g}"
        sure = f"confidence {self.confidence:g}{self._promised}"
        bounds = f"({sure}; Clopper-Pearson {self.epsilon_cp:.4g}{mu})"
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
