"""What a recommendation says in words: a table of the candidates, and the code and the certificate of the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbandit_jax.planning.candidates import Candidate
from fedbandit_jax.planning.code import code
from fedbandit_jax.report.tables import aligned

if TYPE_CHECKING:
    from fedbandit_jax.planning.recommend import Recommendation

HEAD = ("candidate", "regret", "95 % interval", "x not private", "syncs", "kbit per silo", "simulated", "claim")


def table(found: Recommendation) -> str:
    """Returns the text of `print(recommendation)`, with only the best of each group that went no further."""
    spec = found.spec
    simulated = [one for one in found.candidates if one.forecast is not None]
    longest = max((one.forecast.rounds for one in simulated if one.forecast), default=0)
    best_of = {one.group: one for one in reversed(simulated)}
    simulated = [one for one in simulated if one.forecast.rounds == longest or one is best_of[one.group]]  # pyright: ignore
    base = found.reference[0].regret if found.reference else float("nan")
    text = [f"M = {spec.n_agents:,} silos, K = {spec.n_arms:,} arms, d = {spec.dim:,}, T = {found.horizon:,} rounds"]
    if simulated:
        rows = [_row(one, base, found.horizon) for one in (*simulated, *found.reference[:1])]
        text += [aligned([HEAD, *rows])]
        if not all(one.forecast.tried(found.horizon) for one in simulated if one.forecast):
            text += ["(?) so short a part of the horizon was simulated that such intervals have not been tested"]
    excluded = [one for one in found.candidates if one.excluded]
    text += ["", "excluded:", *(f"  {one.label}: {one.excluded}" for one in excluded)] if excluded else []
    best = found.best
    if best is None:
        return "\n".join([*text, "", "Nothing meets these demands."])
    text += ["", f"recommended: {best.label}", f"algo = {code(best.algo)}", "", str(best.certificate)]
    return "\n".join([*text, "", f"The plan took {found.seconds:.0f} s."])


def _row(one: Candidate, base: float, horizon: int) -> tuple[str, ...]:
    """Returns a row of the table; `base` is the regret without privacy."""
    assert one.forecast is not None
    assert one.bits is not None
    assert one.certificate is not None
    regret, low, high, rounds, _ = one.forecast
    doubt = "" if one.forecast.tried(horizon) else " (?)"
    return (
        one.label,
        f"{regret:,.0f}",
        f"{low:,.0f} to {high:,.0f}{doubt}",
        f"{regret / base:.2f}" if base > 0 else "-",
        f"{one.syncs:,}",
        f"{one.bits / 1000:,.0f}",
        f"{rounds / horizon:.0%} of T",
        one.certificate.claim,
    )
