"""The recommendation of a plan: a table, the code of the best candidate, and its certificate."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from fedbandit_jax.core.printed import Printed
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.planning.candidate import Candidate
from fedbandit_jax.report.tables import aligned

WIDTH = 100  # of a line of code, beyond which every argument has its own line
HEAD = ("candidate", "regret", "95 % interval", "x not private", "syncs", "kbit per silo", "simulated", "claim")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recommendation(Printed):
    """Ranked candidates from `fb.plan`. Printing it shows a table, and the best candidate's code and certificate.

    Attributes:
        candidates: all considered candidates, the best first and excluded ones last.
        best: the first of them, or None if nothing meets the demands.
        choices: the best candidate of each budget, the smallest epsilon first.
        reference: the policies and schedules of the finalists without privacy, the best first.
        spec: description of the environment.
        horizon: T.
        liars: share of silos that lie.
        seconds: duration of the plan.
    """

    candidates: tuple[Candidate, ...]
    best: Candidate | None
    choices: tuple[Candidate, ...]
    reference: tuple[Candidate, ...]
    spec: Spec
    horizon: int
    liars: float
    seconds: float

    def __repr__(self) -> str:
        best = "nothing meets the demands" if self.best is None else self.best.label
        return f"Recommendation({best}; {len(self.candidates)} candidates, T = {self.horizon:,}): print it for a table"

    def ratio(self, one: Candidate) -> float:
        """Returns the predicted regret over the least without privacy; NaN if this is 0 or unknown."""
        least = self.reference[0].regret if self.reference else math.nan
        return one.regret / least if least > 0 else math.nan

    def unmet(self) -> str:
        """Says that nothing meets the demands, and which candidate comes nearest to `at_most`."""
        said = "Nothing meets these demands."
        if not (self.choices and self.reference):
            return f"{said} Allow more communication, trust or epsilon."
        nearest = min(self.choices, key=self.ratio)
        least = f"The least regret is {self.ratio(nearest):.2f} times that without privacy, by {nearest.label}."
        return f"{said} {least} Allow a larger multiple, epsilon or horizon, or more trust."

    def trade_off(self) -> str:
        """Formats epsilon and the ratio of regret of each budget; empty for one budget."""
        rows = [(f"{one.epsilon:g}", f"{self.ratio(one):.2f}", one.label) for one in self.choices]
        return aligned([("epsilon", "x not private", "candidate"), *rows]) if len(rows) > 1 else ""

    def answer(self) -> str:
        """Formats the best candidate, its guarantee, predicted regret and communication, in a few lines."""
        best, text = self.best, [f"{self.trade_off()}\n"] if len(self.choices) > 1 else []
        if best is None:
            return "\n".join([*text, self.unmet()])
        text += [f"Use: {best.label}"]
        proof = best.certificate
        if proof is not None and proof.epsilon is not None:
            budget = f"epsilon = {proof.epsilon:g} at delta = {proof.delta:g}"
            text += [f"Privacy: {proof.claim}, {budget}. Trusted: {proof.trusted}."]
        if best.forecast is not None:
            regret, low, high, *_ = best.forecast
            interval = f"{regret:,.3g} (95 %: {low:,.3g} to {high:,.3g})"
            text += [f"Predicted regret after {self.horizon:,} rounds: {interval}."]
        if not math.isnan(self.ratio(best)):
            text += [f"This is {self.ratio(best):.2g} times the least regret without privacy."]
        if best.bits is not None:
            text += [f"Communication: {best.syncs:,} synchronisations, {best.bits / 1000:,.0f} kbit of a silo."]
        return "\n".join(text)

    def __str__(self) -> str:
        """Formats finalists, the best of each other group, exclusions, the answer, code and certificate."""
        spec = self.spec
        simulated = [one for one in self.candidates if one.forecast is not None]
        longest = max((one.forecast[-2:] for one in simulated if one.forecast), default=0)  # rounds and seeds
        best_of = {one.group: one for one in reversed(simulated)}
        simulated = [one for one in simulated if one.forecast[-2:] == longest or one is best_of[one.group]]  # pyright: ignore
        sizes = f"M = {spec.n_agents:,} silos, K = {spec.n_arms:,} arms, d = {spec.dim:,}"
        where = [f"{sizes}, T = {self.horizon:,} rounds"]
        where += ["silos drop out"] * spec.drops + [f"rewards come {spec.late:,} rounds late"] * (spec.late > 0)
        where += [f"{self.liars:.0%} of the silos lie"] * (self.liars > 0)
        text = ["; ".join(where), *([spec.basis] if spec.basis else [])]
        if simulated:
            rows = [_row(one, self.ratio(one), self.horizon) for one in (*simulated, *self.reference[:1])]
            text += [aligned([HEAD, *rows])]
            if not all(one.forecast.tried(self.horizon) for one in simulated if one.forecast):
                text += ["(?) so short a part of the horizon was simulated that such intervals have not been tested"]
        excluded = [one for one in self.candidates if one.excluded]
        text += ["", "excluded:", *(f"  {one.label}: {one.excluded}" for one in excluded)] if excluded else []
        text += ["", self.answer()]
        if self.best is not None:
            text += [f"algo = {code(self.best.algo)}", "", str(self.best.certificate)]
        return "\n".join([*text, "", f"The plan took {self.seconds:.0f} s."])


def _row(one: Candidate, ratio: float, horizon: int) -> tuple[str, ...]:
    assert one.forecast is not None
    assert one.bits is not None
    assert one.certificate is not None
    regret, low, high, rounds, _ = one.forecast
    doubt = "" if one.forecast.tried(horizon) else " (?)"
    return (
        one.label,
        f"{regret:,.0f}",
        f"{low:,.0f} to {high:,.0f}{doubt}",
        "-" if math.isnan(ratio) else f"{ratio:.2f}",
        f"{one.syncs:,}",
        f"{one.bits / 1000:,.0f}",
        f"{rounds / horizon:.0%} of T",
        one.certificate.claim,
    )


def code(value: Any, indent: str = "") -> str:
    """Formats a recipe, budget, schedule or plain value as an equal expression, without default arguments.

    Args:
        value: a dataclass of a public module of the package, with such dataclasses or plain values as parts.
        indent: indentation of its lines after the first.

    Example:
        >>> import fedbandit_jax as fb
        >>> code(fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt"))
        "fb.privacy.Mechanism(budget=fb.privacy.Budget(epsilon=1.0, delta=0.1), release='blt')"
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    kind = type(value)
    room = kind.__module__.split(".")[1]
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind) if field.init
             and (field.default is dataclasses.MISSING or field.default != getattr(value, field.name))}  # fmt: skip
    head, deeper = f"fb.{room}.{kind.__name__}(", indent + "    "
    parts = [f"{name}={code(part, deeper)}" for name, part in given.items()]
    line = f"{head}{', '.join(parts)})"
    if len(indent) + len(line) <= WIDTH:
        return line
    return "\n".join([head, *(f"{deeper}{part}," for part in parts), f"{indent})"])
