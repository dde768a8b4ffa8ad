"""What an audit found: a lower bound of epsilon and a verdict, as text and as a table."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        name: of the mechanism.
        epsilon, delta: the claim.
        confidence: of all lower bounds together.
        epsilon_lower: the largest lower bound of epsilon shown, by `bound`.
        epsilon_cp: the one that holds for any mechanism.
        mu_lower: the lower bound of mu; None unless the mechanism is Gaussian.
        sensitivity, sensitivity_measured: declared, and largest difference under equal keys; None if not given.
        fixed_control_flow: is it part of the claim that integers of the view do not depend on the data?
        same_control_flow: under equal keys, no integer or boolean of the view depends on the data.
        deterministic: equal keys and data gave equal views.
        n_runs, seconds: per side; of everything, compilation included.
        threshold: a statistic above it is taken for the neighbour's; in standard deviations of the noise.
        edges, counts: (81,), (2, 80) histograms of the statistic of data and neighbour in the half that was tested.
    """

    name: str
    epsilon: float
    delta: float
    confidence: float
    epsilon_lower: float
    bound: str
    epsilon_cp: float
    mu_lower: float | None
    sensitivity: float | None
    sensitivity_measured: float | None
    fixed_control_flow: bool
    same_control_flow: bool
    deterministic: bool
    n_runs: int
    seconds: float
    threshold: float
    edges: np.ndarray
    counts: np.ndarray

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the audit failed; empty if it passed."""
        found = []
        if not self.epsilon_lower <= self.epsilon:
            shown = f"at least {self.epsilon_lower:.4g} with confidence {self.confidence:g}"
            found.append(f"epsilon is {shown}, claimed {self.epsilon:g}")
        if self.fixed_control_flow and not self.same_control_flow:
            found.append("the control flow depends on the data: with equal keys, an integer of the view differs")
        declared, measured = self.sensitivity, self.sensitivity_measured
        if declared is not None and measured is not None and not measured <= declared * (1 + 1e-3):  # float32 views
            found.append(f"the sensitivity is at least {measured:.6g}, declared {declared:g}")
        if not self.deterministic:
            found.append("equal keys and data gave different views: some randomness is not from the key")
        return tuple(found)

    @property
    def passed(self) -> bool:
        """Nothing contradicts the claim."""
        return not self.reasons

    def __str__(self) -> str:
        shown = f"epsilon >= {self.epsilon_lower:.4g} (confidence {self.confidence:g}; Clopper-Pearson "
        shown += f"{self.epsilon_cp:.4g}" + (")" if self.mu_lower is None else f", mu >= {self.mu_lower:.4g})")
        flow = "the same" if self.same_control_flow else "different"
        rows = [
            ("audit of", self.name),
            ("claim", f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"),
            ("shown", shown),
            ("equal keys", f"control flow {flow}; sensitivity measured / declared: {_sensitivities(self)}"),
            ("runs", f"{self.n_runs:,} per side, {self.seconds:.1f} s"),
            ("verdict", "pass" if self.passed else f"FAIL: {'; '.join(self.reasons)}"),
        ]
        return "\n".join(
            textwrap.fill(value, 100, initial_indent=f"{label:<11} ", subsequent_indent=" " * 12)
            for label, value in rows
        )


def table(audits: Sequence[Audit]) -> str:
    """One line per audit."""
    rows = [("mechanism", "epsilon, delta", "epsilon >=", "sensitivity", "verdict", "runs", "seconds")]
    for a in audits:
        claim, shown, verdict = f"{a.epsilon:g}, {a.delta:g}", f"{a.epsilon_lower:.3f}", "pass" if a.passed else "FAIL"
        rows.append((a.name, claim, shown, _sensitivities(a), verdict, f"{a.n_runs:,}", f"{a.seconds:.1f}"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:]))]) for row in rows
    )


def _sensitivities(a: Audit) -> str:
    return " / ".join("-" if s is None else f"{s:.5g}" for s in (a.sensitivity_measured, a.sensitivity))
