"""The candidates of a plan for multi-armed bandits: elimination, and one arm at a time, by noisy sums of rewards.

All variants with pure epsilon-DP have the same algorithms. So only the least trust model among those with the least
noise is simulated. Batches grow by the smallest factor that `max_syncs` allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fedbandit_jax.algos import (
    CDPSE,
    LDPSE,
    SE,
    AdaCUCB,
    DistDPSE,
    PhasedIMED,
    PhasedKLUCB,
    PhasedThompson,
    ShuffleDPSE,
)
from fedbandit_jax.planning.candidate import Candidate, considered, over
from fedbandit_jax.planning.demands import PARTIES, Demands, units
from fedbandit_jax.privacy import Users

SUMS = {  # the least noise first, and then the least trust
    "secagg": ("secagg", DistDPSE),
    "server": ("central", CDPSE),
    "shuffler": ("shuffle", ShuffleDPSE),
    "silo": ("local", LDPSE),
}
KINDS = {"IMED": PhasedIMED, "KL-UCB": PhasedKLUCB, "Thompson": PhasedThompson}
GROWTHS = 1.5, 2.0, 4.0, 16.0  # of phases, and without the first of batches


def candidates(demands: Demands) -> list[Candidate]:
    """Returns all candidates; an excluded trust model has only one."""
    allowed = [name for name in SUMS if name in demands.trusted]
    found = []
    for name, (trust, variant) in SUMS.items():
        why = "" if name in allowed else f"it needs trust in {PARTIES[name].words}"
        if name in allowed[1:]:
            why = f"{SUMS[allowed[0]][0]}, which is allowed, needs less noise or less trust"
        if why:
            found.append(Candidate(label=trust, group=trust, excluded=why))
            continue
        for unit in units(demands):
            at = f" of {unit.visits} visit{'s' * (unit.visits > 1)}" if isinstance(unit, Users) else ""
            found += _of(variant, unit if at else None, trust + at + demands.at, demands)
    return found


def _of(variant: Any, unit: Any, who: str, demands: Demands) -> Iterator[Candidate]:
    budget, growths = demands.budget, GROWTHS[1:]
    sums = variant(budget.epsilon, delta=budget.delta, unit=unit, radius="exact")
    yield _fitting(f"{who}, elimination", [sums.replace(growth=int(growth)) for growth in growths], demands)
    if unit is None:
        adac = [AdaCUCB(sums.replace(growth=int(growth))) for growth in growths]
        yield _fitting(f"{who}, AdaC-UCB", adac, demands)
        for name, kind in KINDS.items():
            yield _fitting(f"{who}, {name}", [kind(sums, growth=growth) for growth in GROWTHS], demands)


def _fitting(label: str, algos: list[Any], demands: Demands) -> Candidate:
    """Makes the candidate of the first recipe with few enough batches, or of the last."""
    for algo in algos[:-1]:
        one = considered(label, label, algo, demands)
        if one.syncs is None or not over(one.syncs, demands):
            return one
    return considered(label, label, algos[-1], demands)


def without_privacy(demands: Demands, among: Iterable[Candidate]) -> list[Candidate]:
    """Returns the same algorithms without privacy."""
    found = {}
    for one in among:
        label = f"not private, {one.label.split(', ', 1)[1]}"
        sums: Any = getattr(one.algo, "sums", one.algo)
        plain = SE(radius="exact", growth=sums.growth)
        algo = plain if sums is one.algo else one.algo.replace(sums=plain)  # pyright: ignore
        found[label] = considered(label, label, algo, demands)
    return list(found.values())
