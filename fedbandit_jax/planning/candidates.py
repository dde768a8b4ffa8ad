"""What a plan chooses from: private federated LinUCB under trust models, schedules and widths of confidence.

For every trust model there is one release, that with the least noise among those which go with it, and one regulariser
and rule for widths, "project" and "known_noise": docs/linear.md shows what each of these contributes. What is left to
choose, because it depends on the setting, is when to synchronise, and how optimistic to be. Where batches may grow and
contexts change, greedy play on what docs/beyond.md puts together is a candidate, too.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.algos import UCB, Federated, Greedy
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.interfaces import Spec, certify
from fedbandit_jax.planning.forecast import Forecast
from fedbandit_jax.privacy import Budget, Decaying, Mechanism
from fedbandit_jax.privacy.statistic import packed_size
from fedbandit_jax.schedules import Every, Geometric, Schedule, as_schedule

SYNCS = (2000, 400, 80)  # synchronisations in fixed batches,
GROWING = (100, 30)  # and in growing ones, of which the first has 1 / SHARE of the horizon
SHARE = 1000
SCALES = (1.0, 0.3, 0.1)  # values of `exploration_scale`
GREEDY_SHARES = (800, 200, 50)  # greedy agents synchronise first after one of these shares of the horizon,
GREEDY_GROWTH = 1.5  # and then when they have seen so many times as many users


class Party(NamedTuple):
    """Somebody whom users may trust beside their own silos, or these alone."""

    trust: str  # the trust model that needs no more
    release: str  # the release that has the least noise there
    grows: bool  # whether batches may grow there
    words: str


PARTIES = {
    "silo": Party("silo_local", "blt", True, "silos"),
    "shuffler": Party("shuffle_vector_sum", "tree", False, "a shuffler"),
    "secagg": Party("secagg", "blt", True, "secure aggregation"),
    "server": Party("central", "blt", True, "the server"),
}


class Demands(NamedTuple):
    """What a recommendation must meet."""

    spec: Spec
    horizon: int  # T
    budget: Budget
    trusted: tuple[str, ...]  # keys of `PARTIES`
    visits: int | None  # as in `Mechanism`
    max_syncs: int | None
    max_bits: float | None  # that a silo sends and receives in T rounds

    def too_often(self, syncs: int) -> str:
        """Excess of synchronisations in words; empty if there is none."""
        most = math.inf if self.max_syncs is None else self.max_syncs
        return f"{syncs:,} synchronisations are more than {most:,}" if syncs > most else ""

    def too_much(self, bits: float) -> str:
        """Excess of communication in words; empty if there is none."""
        most = math.inf if self.max_bits is None else self.max_bits
        return f"{bits:,.0f} bits of a silo are more than {most:,.0f}" if bits > most else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A recipe that a plan has considered.

    Attributes:
        label: the trust model, the schedule and, if it was simulated, `exploration_scale`.
        group: label without the scale; candidates of a group differ only in numbers and run together.
        algo: the recipe, which `fb.simulate` runs; None if its trust model is not allowed.
        syncs: number of synchronisations in T rounds.
        bits: what one silo sends and receives in T rounds, on average over silos; None if it synchronises too often.
        certificate: what a run of T rounds proves, read from what the recipe is bound to; None likewise.
        excluded: why it cannot be recommended; empty if it can.
        forecast: the regret that is predicted; None if nothing was simulated.
    """

    label: str
    group: str
    algo: Federated | None = None
    syncs: int | None = None
    bits: float | None = None
    certificate: Certificate | None = None
    excluded: str = ""
    forecast: Forecast | None = None

    @property
    def regret(self) -> float:
        """The regret that is predicted; NaN if nothing was simulated."""
        return math.nan if self.forecast is None else self.forecast.regret


def candidates(demands: Demands) -> list[Candidate]:
    """All candidates: of an excluded group, or trust model, there is one only."""
    found = []
    for name, party in PARTIES.items():
        if name in demands.trusted:
            found += _of(party, demands)
        else:
            why = f"it needs trust in {party.words}"
            found.append(Candidate(label=party.trust, group=party.trust, excluded=why))
    return found


def without_privacy(demands: Demands, among: list[Candidate]) -> list[Candidate]:
    """UCB without privacy at that schedule of these candidates that synchronises most often, a fixed batch if any."""
    schedules = [one.algo.schedule for one in among if one.algo is not None]
    often = max(schedules, key=lambda one: (isinstance(one, Every), as_schedule(one).n_syncs(demands.horizon)))
    return _scaled(_candidate("not private", _recipe(None, often), demands))


def bits_per_silo(bound: Any) -> float:
    """The bits that one silo of a bound algorithm sends and receives in all synchronisations, on average over silos."""
    dim, m, syncs = bound.spec.dim, bound.spec.n_agents, int(bound.n_syncs)

    def sent(k: Any) -> tuple[Any, Any]:
        numbers, bits = bound.mechanism.uplink(k, dim)
        return jnp.asarray(numbers, jnp.float32), jnp.asarray(bits, jnp.float32)

    numbers, bits = (np.asarray(part, float) for part in jax.jit(jax.vmap(sent))(np.arange(1, syncs + 1)))
    return float((numbers * bits).sum()) / m + 32 * syncs * packed_size(dim)


def _of(party: Party, demands: Demands) -> list[Candidate]:
    mechanism = Mechanism(demands.budget, party.release, party.trust, visits=demands.visits)
    found: dict[str, Candidate] = {}
    for schedule_of, numbers in ((_every, SYNCS), *([(_growing, GROWING)] if party.grows else [])):

        def consider(syncs: int, schedule_of=schedule_of) -> Candidate:
            schedule = schedule_of(demands.horizon, syncs)
            one = _candidate(party.trust, _recipe(mechanism, schedule), demands)
            return found.setdefault(one.group, one)

        tried = [consider(syncs) for syncs in numbers]
        if demands.max_syncs is not None and demands.too_often(tried[0].syncs or 0):
            tried.append(consider(demands.max_syncs))
        sent = [(one.syncs, one.bits) for one in tried if one.syncs and one.bits]
        if demands.max_bits is not None and sent and demands.too_much(max(sent)[1]):
            syncs, bits = max(sent)
            if demands.max_bits * syncs >= bits:
                consider(math.floor(demands.max_bits * syncs / bits))
    scaled = [scaled for one in found.values() for scaled in ([one] if one.excluded else _scaled(one))]
    return [*scaled, *_greedy(party, demands)]


def _greedy(party: Party, demands: Demands) -> list[Candidate]:
    spec, found = demands.spec, {}
    if not party.grows or spec.fixed_contexts:
        return []
    mechanism = Mechanism(
        demands.budget,
        Decaying(GREEDY_GROWTH),
        party.trust,
        visits=demands.visits,
        centred=spec.constant,
        gram_scale=0.5 if spec.constant else 0.5**0.5,
    )
    for share in GREEDY_SHARES:
        schedule = Geometric(GREEDY_GROWTH, first=math.ceil(demands.horizon / share))
        algo = Federated(policy=Greedy(), schedule=schedule, privacy=mechanism)
        one = _candidate(f"{party.trust}, greedy", algo, demands)
        found[one.group] = dataclasses.replace(one, algo=algo.replace(name=one.label))
    return list(found.values())


def _candidate(who: str, algo: Federated, demands: Demands) -> Candidate:
    label = f"{who}, {_words(algo.schedule)}"
    syncs = as_schedule(algo.schedule).n_syncs(demands.horizon)
    one = Candidate(label=label, group=label, algo=algo, syncs=syncs, excluded=demands.too_often(syncs))
    if one.excluded:
        return one
    try:
        bound = algo.bind(demands.spec, demands.horizon)
    except ValueError as refused:  # its noise cannot be calibrated, or not be drawn
        return dataclasses.replace(one, excluded=str(refused))
    bits, proved = bits_per_silo(bound), certify(bound).among(demands.spec.visits(demands.horizon))
    why = demands.too_much(bits)
    if algo.privacy is not None and proved.claim != "certified":
        why = why or f"nothing is certified: {proved.reason}"
    return dataclasses.replace(one, bits=bits, certificate=proved, excluded=why)


def _scaled(one: Candidate) -> list[Candidate]:
    assert one.algo is not None
    found = []
    for scale in SCALES:
        label = f"{one.group}, width x {scale:g}"
        algo = one.algo.replace(exploration_scale=scale, name=label)
        found.append(dataclasses.replace(one, label=label, algo=algo))
    return found


def _recipe(mechanism: Mechanism | None, schedule: Schedule | int) -> Federated:
    policy = UCB(confidence="known_noise", regularizer="project")
    return Federated(policy=policy, schedule=schedule, privacy=mechanism)


def _every(horizon: int, syncs: int) -> Every:
    return Every(horizon // (syncs + 1) + 1)


def _growing(horizon: int, syncs: int) -> Geometric:
    first = math.ceil(horizon / SHARE)
    growth = math.ceil(1000 * ((horizon + 1) / first) ** (1 / syncs)) / 1000
    return Geometric(max(growth, 1.001), first=first)


def _words(schedule: Schedule | int) -> str:
    if isinstance(schedule, Geometric):
        return f"from round {schedule.first:,} by {schedule.growth:g}"
    assert isinstance(schedule, Every)
    return f"every {schedule.batch:,} rounds" if schedule.batch > 1 else "every round"
