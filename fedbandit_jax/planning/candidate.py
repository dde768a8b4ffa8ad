"""A candidate of a plan: a recipe with its communication and certificate for T rounds, or why it is excluded."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import padding
from fedbandit_jax.interfaces import Recipe, certificate_of
from fedbandit_jax.planning.demands import Demands
from fedbandit_jax.planning.forecast import Forecast
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.schedules import Every, Geometric, Schedule, as_schedule

SHOWN = 3  # rounds of growing batches in a label


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A recipe considered by a plan.

    Attributes:
        label: the trust model, the policy with its numbers, and the schedule.
        group: the trust model and the policy.
        algo: the recipe, which `fb.simulate` runs; None if its trust model is not allowed.
        syncs: number of synchronisations in T rounds; for agents that upload by themselves, the most of one agent; for
            multi-armed bandits, the most batches.
        bits: bits that one silo sends and receives in T rounds, on average over silos; None if it exceeds `max_syncs`.
            For multi-armed bandits, the most bits that one user sends.
        certificate: what a run of T rounds proves, from the bound recipe; None likewise.
        excluded: why it cannot be recommended; empty if it can.
        forecast: predicted regret; None if nothing was simulated.
    """

    label: str
    group: str
    algo: Recipe | None = None
    syncs: int | None = None
    bits: float | None = None
    certificate: Certificate | None = None
    excluded: str = ""
    forecast: Forecast | None = None

    def __repr__(self) -> str:
        return f"Candidate({self.label!r}, {self.excluded or f'regret {self.regret:,.0f}'})"

    @property
    def regret(self) -> float:
        """Predicted regret; NaN if nothing was simulated."""
        return math.nan if self.forecast is None else self.forecast.regret

    @property
    def epsilon(self) -> float | None:
        """Returns the epsilon of its budget; None without one."""
        return None if self.certificate is None else self.certificate.epsilon


def considered(label: str, group: str, algo: Any, demands: Demands) -> Candidate:
    """Makes the candidate of a recipe, with its communication and certificate if it can be bound."""
    one = Candidate(label=label, group=group, algo=algo.replace(name=label))
    if not demands.sums:
        syncs = as_schedule(algo.schedule).n_syncs(demands.horizon)
        one = dataclasses.replace(one, syncs=syncs, excluded=over(syncs, demands))
    if one.excluded:
        return one
    try:
        bound: Any = algo.bind(demands.spec, demands.horizon)
    except ValueError as refused:  # uncalibrated noise, for instance
        return dataclasses.replace(one, excluded=str(refused))
    proved = certificate_of(bound, demands.spec, demands.horizon)
    if demands.sums:
        one = dataclasses.replace(one, syncs=int(bound.n_batches), excluded=over(int(bound.n_batches), demands))
    bits = float(max(proved.bits_per_user or (0,))) if demands.sums else bits_per_silo(bound)
    private = proved.epsilon is not None and proved.claim != "certified"
    why = one.excluded or f"nothing is certified: {proved.reason}" * private
    return dataclasses.replace(one, bits=bits, certificate=proved, excluded=why)


def over(syncs: int, demands: Demands) -> str:
    """Returns why these are too many synchronisations, or ""."""
    most = demands.max_syncs
    return "" if most is None or syncs <= most else f"{syncs:,} synchronisations are more than {most:,}"


def fitting(
    make: Callable[[int | None], Any], group: str, numbers: str, syncs: int | None, demands: Demands
) -> Candidate:
    """Makes the candidate with this many synchronisations, or with the most that the demands allow."""

    def tried(syncs: int | None) -> Candidate:
        algo = make(syncs)
        label = ", ".join(part for part in (group, numbers, _words(algo.schedule, demands.horizon)) if part)
        return considered(label, group, algo, demands)

    one = tried(syncs)
    return tried(demands.max_syncs) if one.syncs and over(one.syncs, demands) else one


def growing(horizon: int, first: int, syncs: int) -> float:
    """Returns a growth of batches, from `first` rounds on, with at most `syncs` synchronisations if possible."""
    return min(max(math.ceil(1000 * ((horizon + 1) / first) ** (1 / syncs)) / 1000, 1.001), 1e6)


def _words(schedule: Schedule | int, horizon: int) -> str:
    """Says when silos synchronise, such as "after rounds 12, 18, 27, ..."."""
    if isinstance(schedule, Geometric):
        first, more = schedule.rounds(horizon)[:SHOWN], schedule.n_syncs(horizon) > SHOWN
        return f"after round{'s' * (len(first) > 1)} {', '.join(map(str, first))}{', ...' * more}"
    assert isinstance(schedule, Every)
    return f"every {schedule.batch:,} rounds" if schedule.batch > 1 else "every round"


def bits_per_silo(bound: Any) -> float:
    """Returns the bits that one silo sends and receives in all synchronisations, on average over silos."""
    dim, syncs = bound.spec.dim, int(bound.n_syncs)
    if syncs == 0:
        return 0.0

    sent = _uplinks(bound.mechanism, np.arange(1, padding.room(syncs) + 1), dim)
    numbers, bits = (np.asarray(part, float)[:syncs] for part in sent)
    return float((numbers * bits).sum()) / bound.mechanism.n_agents + 32 * syncs * packed_size(dim)


@functools.partial(jax.jit, static_argnums=2)  # mechanisms that differ in numbers share a program
def _uplinks(mechanism: Any, ks: Any, dim: int) -> tuple[Any, Any]:
    """Returns how many numbers one silo sends at every synchronisation, and the bits of each."""

    def sent(k: Any) -> tuple[Any, Any]:
        numbers, bits = mechanism.uplink(k, dim)
        return jnp.asarray(numbers, jnp.float32), jnp.asarray(bits, jnp.float32)

    return jax.vmap(sent)(ks)
