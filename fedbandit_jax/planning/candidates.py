"""What a plan chooses from: every certified policy of the package, on the schedules and with the numbers that suit it.

For every trust model there is one release for fixed batches and one for batches that grow, those with the least noise.
Rewards are centred where features have a constant entry, and half of x x' is summed there, as docs/beyond.md explains.
What is left to choose, because it depends on the setting, is the policy, when it first acts on a release, and how
optimistic or cautious it is. Numbers of one policy differ in numbers only, so that its candidates run together.

If one user is protected in all her visits (`ONE_USER`), it is also left to choose how many of these enter the sums.
Fewer are less noise: if r of them enter, one to a batch, the noise of a sum grows nearly as r. Once everybody has been
let in sums grow no more, so that batches may double and all prefixes count alike, `Decaying(1.0)`. Of batches of one
length there are many, so that they may also be apart, and `MultiBlt` has the least noise for that.

Where silos drop out, every batch is in one message and secure aggregation has shares for those who are away. Where
silos lie, the server sees all messages apart and takes one of the two medians of them, which bear any attack.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.algos import (
    UCB,
    Alone,
    AsyncFederated,
    EpsilonGreedy,
    Federated,
    Greedy,
    Grouped,
    Mixture,
    PhasedElimination,
    Thompson,
)
from fedbandit_jax.algos.recipe import PolicyRecipe
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import padding
from fedbandit_jax.interfaces import Policy, certificate_of
from fedbandit_jax.planning.demands import ONE_USER, PARTIES, Demands, Party, units
from fedbandit_jax.planning.forecast import Forecast
from fedbandit_jax.privacy import Decaying, Liars, Mechanism, MultiBlt
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.statistic import Linear
from fedbandit_jax.privacy.trust import find
from fedbandit_jax.schedules import Every, Geometric, Schedule, as_schedule

SYNCS = 100  # synchronisations in fixed batches
GROWTH, DOUBLING = 1.5, 2.0  # of batches whose prefix sums are released, and of those that are released once
LATER = (1.0, 3.0)  # the first release comes after so many times the rounds of the rule of `Greedy`
SCALES = (1.0, 0.3, 0.1)  # values of `exploration_scale` of optimism
PHASES = (0.3, 0.15)  # and of elimination, whose proved widths drop hardly any arm
DRAWS = (1.0, 0.25)  # values of `scale` of Thompson sampling
COINS = (5.0, 0.5)  # values of `explore` of epsilon-greedy
RULES = ("geometric_median", "median")  # of the server, where silos lie
LYING = "collude"  # hardly an attack costs these rules more in experiments/beyond_liars.py
RIDGE = 12.0  # standard deviations of the noise, as in `Greedy`
STREAMS, OWN = (1.2, 300), (1.3, 1000)  # growth and 1 / share of T of the first release: of streams, and of uploads
NOT_CONSIDERED = (
    "Gossip and GossipFedUCB, which need a network in place of a server",
    "SuccessiveElimination and AdaCUCB, which ask users in batches about arms without features",
    "FCLUB, CLUB and SCLUB, of which nothing is certified with their own triggers, and Homo-DC",
    "LogDetUCB, whose widths are those of UCB but for the matrix norm of the noise",
    "LinUCB, for agents who never talk",
    "Forgetting, which is for a world that moves",
    "the grouping Together, which is Federated with more noise",
    "schedules that adapt (PrivateLogDet costs budget, LogDet leaks), and agents that learn in the batch",
    "trust model 'local', and 'shuffle_amplified' and 'silo_local_matrix', which have more noise than those above",
    "policies, releases and schedules of your own",
)  # what is never a candidate: tests/planning/test_candidates.py compares this list with the package


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A recipe that a plan has considered.

    Attributes:
        label: the trust model, the policy with its numbers, and the schedule.
        group: the trust model and the policy.
        algo: the recipe, which `fb.simulate` runs; None if its trust model is not allowed.
        syncs: number of synchronisations in T rounds; of agents who upload by themselves, the most of one agent.
        bits: what one silo sends and receives in T rounds, on average over silos; None if it synchronises too often.
        certificate: what a run of T rounds proves, read from what the recipe is bound to; None likewise.
        excluded: why it cannot be recommended; empty if it can.
        forecast: the regret that is predicted; None if nothing was simulated.
    """

    label: str
    group: str
    algo: PolicyRecipe | None = None
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
    """All candidates; of a trust model that is excluded there is one only."""
    found = []
    for name, party in PARTIES.items():
        if name in demands.trusted and demands.liars and party.trust != "silo_local":
            why = "its server sees no message of a single silo, and one liar may move a sum without bound"
            found.append(Candidate(label=party.trust, group=party.trust, excluded=why))
        elif name in demands.trusted:
            for unit in units(demands):
                found += _of(party, demands._replace(unit=unit), demands.unit == ONE_USER)
        else:
            why = f"it needs trust in {party.words}"
            found.append(Candidate(label=party.trust, group=party.trust, excluded=why))
    return found


def left_out(demands: Demands) -> tuple[str, ...]:
    """What is no candidate under these demands."""
    found: list[str] = [*NOT_CONSIDERED]
    if demands.liars or demands.spec.drops or demands.spec.late:
        why = "which reads single batches, where silos lie or drop out, or rewards come late"
        found.insert(0, f"DP-DPE (PhasedElimination), {why}")
    elif demands.arms is None:
        found.insert(0, "DP-DPE (PhasedElimination), which needs rounds that offer the same arms to all users")
    if not demands.liars:
        found.append("rules for silos that lie, unless `liars` says that some do")
    if not demands.spec.n_users or not demands.alone:
        found.insert(
            0, "AsyncFederated, and Grouped with Mixture or Alone, for users who return, one to a server a round"
        )
    return tuple(found)


def without_privacy(demands: Demands, among: Iterable[Candidate]) -> list[Candidate]:
    """The same policies and schedules without privacy."""
    found = {}
    for one in among:
        assert one.algo is not None
        _, policy, *_ = one.label.split(", ", 1)
        label = f"not private, {policy}"
        found[label] = _candidate(label, "not private", one.algo.replace(privacy=None, name=label), demands)
    return [one for one in found.values() if not one.excluded]


def bits_per_silo(bound: Any) -> float:
    """The bits that one silo of a bound algorithm sends and receives in all synchronisations, on average over silos."""
    dim, syncs = bound.spec.dim, int(bound.n_syncs)
    if syncs == 0:
        return 0.0

    sent = _uplinks(bound.mechanism, np.arange(1, padding.room(syncs) + 1), dim)
    numbers, bits = (np.asarray(part[:syncs], float) for part in sent)
    return float((numbers * bits).sum()) / bound.mechanism.n_agents + 32 * syncs * packed_size(dim)


@functools.partial(jax.jit, static_argnums=2)  # mechanisms that differ in numbers share a program
def _uplinks(mechanism: Any, ks: Any, dim: int) -> tuple[Any, Any]:
    """The numbers that one silo sends at every synchronisation, and the bits of each."""

    def sent(k: Any) -> tuple[Any, Any]:
        numbers, bits = mechanism.uplink(k, dim)
        return jnp.asarray(numbers, jnp.float32), jnp.asarray(bits, jnp.float32)

    return jax.vmap(sent)(ks)


def _of(party: Party, demands: Demands, free: bool = False) -> list[Candidate]:
    """The candidates under one trust model and unit, which was chosen here if it is `free`."""
    spec, horizon, unit = demands.spec, demands.horizon, demands.unit
    found: dict[str, Candidate] = {}
    who = f"{party.trust} of {unit.visits} visit{'s' * (unit.visits > 1)}" if free else party.trust
    growth, decay = (DOUBLING, 1.0) if free else (DOUBLING if spec.drops else GROWTH, None)
    if spec.n_users and demands.alone and party.trust == "silo_local":
        found |= {one.label: one for one in _by_themselves(party, demands, who)}
        if spec.n_servers > 1:  # what all users did together is then with none of the servers
            return list(found.values())

    def consider(family: str, numbers: str, policy: Policy, make: Callable[..., Federated], syncs: int | None) -> None:
        """Adds the candidate with so many synchronisations, or as many as meet the demands, by every rule."""
        for rule in RULES if demands.liars else ("sum",):
            by = "" if rule == "sum" else f" by {rule}"

            def ruled(syncs: int | None, rule: str = rule) -> Federated:
                liars = Liars(demands.liars, LYING) if demands.liars else None
                return make(policy, syncs).replace(aggregate=rule, liars=liars)

            for one in _fitting(ruled, f"{who}, {family}{by}", numbers, syncs, demands):
                found.setdefault(one.label, one)

    def fixed(policy: Policy, syncs: int | None) -> Federated:
        assert syncs is not None
        schedule, release, bounds = Every(horizon // (syncs + 1) + 1), party.release, unit
        if free and party.grows and unit.visits > 1:
            bounds = dataclasses.replace(unit, apart=max(1, syncs // (2 * unit.visits)))
            release = MultiBlt(bounds)
        privacy = _mechanism(party, release, demands._replace(unit=bounds))
        return Federated(policy=policy, schedule=schedule, privacy=privacy)

    for scale in SCALES:
        consider("UCB", f"width x {scale:g}", _optimism(scale), fixed, SYNCS)
    if not party.grows:
        for family, numbers, policy in _others(_loudest(fixed(Greedy(), SYNCS), demands)):
            consider(family, numbers, policy, fixed, SYNCS)
        return list(found.values())
    early, most = _first(party, demands, growth, decay or growth), max(1, (horizon - spec.late) // 4)
    early = max(1, early - spec.late)
    firsts = dict.fromkeys(min(math.ceil(later * early), most) + spec.late for later in LATER)
    for first in firsts:

        def grows(policy: Policy, syncs: int | None, first=first) -> Federated:
            grown = growth if syncs is None else _growing(horizon, first, syncs)
            privacy = _mechanism(party, Decaying(min(decay or grown, 100.0)), demands)
            return Federated(policy=policy, schedule=Geometric(grown, first=first), privacy=privacy)

        def once(policy: Policy, syncs: int | None, first=first) -> Federated:
            grown = DOUBLING if syncs is None else _growing(horizon, first, syncs)
            privacy = _mechanism(party, "input_perturbation", demands)
            return Federated(policy=policy, schedule=Geometric(grown, first=first), privacy=privacy)

        for scale in SCALES:
            consider("UCB", f"width x {scale:g}", _optimism(scale), grows, None)
        for family, numbers, policy in _others(_loudest(grows(Greedy(), None), demands)):
            consider(family, numbers, policy, grows, None)
        for scale in SCALES[1:]:
            consider("AdaC-OFUL", f"width x {scale:g}", _optimism(scale), once, None)
        phased = demands.arms is not None and not (demands.liars or spec.drops or spec.late)
        for scale in PHASES if phased else ():
            policy = PhasedElimination(arms=demands.arms, exploration_scale=scale)
            consider("DP-DPE", f"width x {scale:g}", policy, once, None)
    return list(found.values())


def _by_themselves(party: Party, demands: Demands, who: str) -> list[Candidate]:
    """Users who return and trust nobody beyond the server that keeps their own data."""
    horizon, found = demands.horizon, []
    privacy = _mechanism(party, party.release, demands)
    growth, share = STREAMS
    schedule = Geometric(growth, first=math.ceil(horizon / share))
    radius = 0.5**0.5 if demands.spec.constant else 1.0
    for family, grouping in (("Mixture", Mixture(theta_norm=radius)), ("Alone", Alone())):

        def streams(syncs: int | None, grouping=grouping) -> Grouped:
            times = schedule
            if syncs is not None:
                times = Geometric(_growing(horizon, schedule.first, syncs), first=schedule.first)
            return Grouped(grouping=grouping, schedule=times, privacy=privacy)

        found += _fitting(streams, f"{who}, {family}", "greedy", None, demands)
    growth, share = OWN
    for numbers, policy in (("greedy", Greedy()), ("width x 0.1", _optimism(0.1))):

        def uploads(syncs: int | None, policy=policy) -> AsyncFederated:
            first = math.ceil(horizon / share)
            times = Geometric(growth if syncs is None else _growing(horizon, first, syncs), first=first)
            return AsyncFederated(policy=policy, schedule=times, privacy=privacy)

        found += _fitting(uploads, f"{who}, Async", numbers, None, demands)
    return found


def _others(noise: float) -> list[tuple[str, str, Policy]]:
    """Policies without widths, with a ridge for noise of this standard deviation."""
    ridge = float(f"{max(1.0, RIDGE * noise):.2g}")
    found: list[tuple[str, str, Policy]] = [("Greedy", "", Greedy())]
    found += [("Thompson", f"scale {scale:g}", Thompson(regularization=ridge, scale=scale)) for scale in DRAWS]
    found += [("EpsilonGreedy", f"explore {c:g}", EpsilonGreedy(explore=c, shrinkage=3.0)) for c in COINS]
    return found


def _optimism(scale: float) -> UCB:
    return UCB(confidence="known_noise", regularizer="project", exploration_scale=scale)


def _mechanism(party: Party, release: Any, demands: Demands) -> Mechanism:
    centred, scale = demands.spec.constant, 0.5 if demands.spec.constant else 0.5**0.5
    if find(party.trust).needs_users:  # whose noise is for (x y, x x') as they are
        centred, scale = False, 1.0
    statistic = Linear(centred=centred, gram_scale=scale)
    if demands.spec.drops:  # a message that a silo misses must not hold parts of other batches
        release = "input_perturbation"
    away = demands.away if party.trust == "secagg" else 0
    return Mechanism(demands.budget, release, party.trust, unit=demands.unit, statistic=statistic, dropouts=away)


def _loudest(algo: Federated, demands: Demands) -> float:
    """The largest standard deviation of the noise on a release; 0 if it cannot be calibrated."""
    try:
        return float(np.max(algo.bind(demands.spec, demands.horizon).stds, initial=0))
    except ValueError:
        return 0.0


def _first(party: Party, demands: Demands, growth: float, decay: float) -> int:
    """The rounds before the first release by the rule of `Greedy`, or of as many as there can be."""
    privacy = _mechanism(party, Decaying(decay), demands)
    algo = Federated(policy=Greedy(), schedule=Geometric(growth, first=1), privacy=privacy)
    try:
        schedule = algo.patient(demands.spec, demands.horizon).schedule
    except ValueError:
        return 1
    assert isinstance(schedule, Geometric)
    return schedule.first


def _fitting(
    make: Callable[[int | None], PolicyRecipe], group: str, numbers: str, syncs: int | None, demands: Demands
) -> list[Candidate]:
    """The candidate with so many synchronisations, or else with as many as the demands allow."""

    def tried(syncs: int | None) -> Candidate:
        algo = make(syncs)
        label = ", ".join(part for part in (group, numbers, _words(algo.schedule)) if part)
        return _candidate(label, group, algo.replace(name=label), demands)

    one = tried(syncs)
    if one.excluded and one.bits is None and one.syncs and demands.max_syncs is not None:
        one = tried(demands.max_syncs)
    if one.bits and one.syncs and demands.max_bits is not None and demands.too_much(one.bits):
        fewer = math.floor(demands.max_bits * one.syncs / one.bits)
        one = tried(fewer) if fewer else one
    return [one]


def _candidate(label: str, group: str, algo: PolicyRecipe, demands: Demands) -> Candidate:
    syncs = as_schedule(algo.schedule).n_syncs(demands.horizon)
    one = Candidate(label=label, group=group, algo=algo, syncs=syncs, excluded=demands.too_often(syncs))
    if one.excluded:
        return one
    try:
        bound = algo.bind(demands.spec, demands.horizon)
    except ValueError as refused:  # its noise cannot be calibrated, or not be drawn
        return dataclasses.replace(one, excluded=str(refused))
    bits, proved = bits_per_silo(bound), certificate_of(bound, demands.spec, demands.horizon)
    why = demands.too_much(bits)
    if algo.privacy is not None and proved.claim != "certified":
        why = why or f"nothing is certified: {proved.reason}"
    return dataclasses.replace(one, bits=bits, certificate=proved, excluded=why)


def _growing(horizon: int, first: int, syncs: int) -> float:
    """A growth of batches, the first of `first` rounds, that makes so many synchronisations at most, or the largest."""
    return min(max(math.ceil(1000 * ((horizon + 1) / first) ** (1 / syncs)) / 1000, 1.001), 1e6)


def _words(schedule: Schedule | int) -> str:
    if isinstance(schedule, Geometric):
        return f"from round {schedule.first:,} by {schedule.growth:g}"
    assert isinstance(schedule, Every)
    return f"every {schedule.batch:,} rounds" if schedule.batch > 1 else "every round"
