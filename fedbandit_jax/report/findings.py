"""The finding of a privacy audit: a lower bound on epsilon and a verdict, as text and as a table."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence

from fedbandit_jax.core.printed import Printed
from fedbandit_jax.report.tables import aligned


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Audit(Printed):
    """Finding from an audit of one mechanism on one pair of neighbouring data sets."""

    name: str  # of the mechanism
    epsilon: float  # claimed
    delta: float
    confidence: float  # probability that all lower bounds hold together
    epsilon_lower: float  # largest lower bound on epsilon at delta
    bound: str  # method: "Clopper-Pearson", "Gaussian DP" or "schedule + Gaussian DP"
    epsilon_cp: float  # Clopper-Pearson lower bound on epsilon, valid for any mechanism
    mu_lower: float | None  # lower bound on mu; None unless all views, perhaps given the schedule, are Gaussian
    which: str  # difference between the tested neighbours
    statistic: str  # tested
    sensitivity: float | None  # declared; None if not given
    sensitivity_measured: float | None  # under equal keys, if requested; NaN if unmeasurable
    fixed_control_flow: bool  # whether the claim says that no integer of the view depends on the data
    same_control_flow: bool  # whether, under equal keys, no integer or boolean of the view depended on the data
    deterministic: bool  # whether equal keys and data gave equal views
    n_runs: int  # for each neighbour
    seconds: float  # of the audit, with compilation
    noise: str = ""  # difference between measured and stated noise, if measured

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the audit failed, a clause each; empty if it passed."""
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
        """Condition of the confidence, if the bound has one; integer noise nearly satisfies it."""
        return " if views are Gaussian, as promised" if "Gaussian" in self.bound else ""

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the claim."""
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
    """Formats audits as a table, one line each."""
    by = "sensitivity", "statistic", "neighbours"
    rows: list[tuple[str, ...]] = [("mechanism", "epsilon, delta", "epsilon >=", *by, "verdict", "runs", "seconds")]
    for a in audits:
        claim, shown, verdict = f"{a.epsilon:g}, {a.delta:g}", f"{a.epsilon_lower:.3f}", "pass" if a.passed else "FAIL"
        by = a.statistic, a.which
        rows.append((a.name, claim, shown, _sensitivities(a), *by, verdict, f"{a.n_runs:,}", f"{a.seconds:.1f}"))
    return aligned(rows)


def _sensitivities(a: Audit) -> str:
    return " / ".join("-" if s is None else f"{s:.5g}" for s in (a.sensitivity_measured, a.sensitivity))
