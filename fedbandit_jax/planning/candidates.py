"""The candidates of a plan: every certified policy of the package, on the schedules and with the numbers that suit it.

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
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

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
from fedbandit_jax.interfaces import Policy
from fedbandit_jax.planning.candidate import Candidate, considered, fitting, growing
from fedbandit_jax.planning.demands import ONE_USER, PARTIES, Demands, Party, quietest, units
from fedbandit_jax.privacy import Decaying, Liars, Mechanism, MultiBlt
from fedbandit_jax.schedules import Every, Geometric

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
    "LinUCB, for agents who never talk, and Uniform and UniformArms, which learn nothing",
    "Forgetting, which is for a world that moves",
    "the grouping Together, which is Federated with more noise",
    "schedules that adapt (PrivateLogDet costs budget, LogDet leaks), and agents that learn in the batch",
    "trust model 'local', and 'shuffle_amplified' and 'silo_local_matrix', which have more noise than those above",
    "policies, releases and schedules of your own",
)  # what is never a candidate: tests/planning/test_candidates.py compares this list with the package


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
    """Options that are no candidates under these demands, in words."""
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
        found[label] = considered(label, "not private", one.algo.replace(privacy=None, name=label), demands)
    return [one for one in found.values() if not one.excluded]


class Play(NamedTuple):
    """A policy on one kind of schedule."""

    family: str
    numbers: str
    policy: Policy
    make: Callable[[Policy, int | None], Federated]  # with so many synchronisations, or as many as there are
    syncs: int | None = None  # that are tried first


def _of(party: Party, demands: Demands, free: bool = False) -> list[Candidate]:
    """The candidates under one trust model and unit, which was chosen here if it is `free`."""
    spec, visits = demands.spec, demands.unit.visits if free else 0
    found: dict[str, Candidate] = {}
    who = f"{party.trust} of {visits} visit{'s' * (visits > 1)}" if free else party.trust
    if spec.n_users and demands.alone and party.trust == "silo_local":
        found |= {one.label: one for one in _by_themselves(party, demands, who)}
        if spec.n_servers > 1:  # what all users did together is then with none of the servers
            return list(found.values())
    for play in (*_in_fixed_batches(party, demands, free), *_in_growing_batches(party, demands, free)):
        for one in _by_every_rule(play, demands, who):
            found.setdefault(one.label, one)
    return list(found.values())


def _by_every_rule(play: Play, demands: Demands, who: str) -> Iterator[Candidate]:
    """A play by every rule that the server may add up by."""
    for rule in RULES if demands.liars else ("sum",):
        by = "" if rule == "sum" else f" by {rule}"

        def ruled(syncs: int | None, rule: str = rule) -> Federated:
            liars = Liars(demands.liars, LYING) if demands.liars else None
            return play.make(play.policy, syncs).replace(aggregate=rule, liars=liars)

        yield fitting(ruled, f"{who}, {play.family}{by}", play.numbers, play.syncs, demands)


def _in_fixed_batches(party: Party, demands: Demands, free: bool) -> Iterator[Play]:
    """Optimism, and all policies where batches may not grow."""

    def fixed(policy: Policy, syncs: int | None) -> Federated:
        assert syncs is not None
        release, bounds = party.release, demands.unit
        if free and party.grows and bounds.visits > 1:
            bounds = dataclasses.replace(bounds, apart=max(1, syncs // (2 * bounds.visits)))
            release = MultiBlt(bounds)
        privacy = _mechanism(party, release, demands._replace(unit=bounds))
        return Federated(policy=policy, schedule=Every(demands.horizon // (syncs + 1) + 1), privacy=privacy)

    for scale in SCALES:
        yield Play("UCB", f"width x {scale:g}", _optimism(scale), fixed, SYNCS)
    if not party.grows:
        for family, numbers, policy in _others(_loudest(fixed(Greedy(), SYNCS), demands)):
            yield Play(family, numbers, policy, fixed, SYNCS)


def _in_growing_batches(party: Party, demands: Demands, free: bool) -> Iterator[Play]:
    """All policies, from each of several first releases on, where batches may grow."""
    if not party.grows:
        return
    spec, horizon = demands.spec, demands.horizon
    growth, decay = (DOUBLING, 1.0) if free else (DOUBLING if spec.drops else GROWTH, None)
    early, most = _first(party, demands, growth, decay or growth), max(1, (horizon - spec.late) // 4)
    early = max(1, early - spec.late)
    for first in dict.fromkeys(min(math.ceil(later * early), most) + spec.late for later in LATER):

        def grows(policy: Policy, syncs: int | None, first=first) -> Federated:
            grown = growth if syncs is None else growing(horizon, first, syncs)
            privacy = _mechanism(party, Decaying(min(decay or grown, 100.0)), demands)
            return Federated(policy=policy, schedule=Geometric(grown, first=first), privacy=privacy)

        def once(policy: Policy, syncs: int | None, first=first) -> Federated:
            grown = DOUBLING if syncs is None else growing(horizon, first, syncs)
            privacy = _mechanism(party, "input_perturbation", demands)
            return Federated(policy=policy, schedule=Geometric(grown, first=first), privacy=privacy)

        for scale in SCALES:
            yield Play("UCB", f"width x {scale:g}", _optimism(scale), grows)
        for family, numbers, policy in _others(_loudest(grows(Greedy(), None), demands)):
            yield Play(family, numbers, policy, grows)
        for scale in SCALES[1:]:
            yield Play("AdaC-OFUL", f"width x {scale:g}", _optimism(scale), once)
        phased = demands.arms is not None and not (demands.liars or spec.drops or spec.late)
        for scale in PHASES if phased else ():
            policy = PhasedElimination(arms=demands.arms, exploration_scale=scale)
            yield Play("DP-DPE", f"width x {scale:g}", policy, once)


def _by_themselves(party: Party, demands: Demands, who: str) -> list[Candidate]:
    """The candidates for users who return and trust nobody beyond the server that keeps their own data."""
    horizon, found = demands.horizon, []
    privacy = _mechanism(party, party.release, demands)
    growth, share = STREAMS
    schedule = Geometric(growth, first=math.ceil(horizon / share))
    radius = 0.5**0.5 if demands.spec.constant else 1.0
    for family, grouping in (("Mixture", Mixture(theta_norm=radius)), ("Alone", Alone())):

        def streams(syncs: int | None, grouping=grouping) -> Grouped:
            times = schedule
            if syncs is not None:
                times = Geometric(growing(horizon, schedule.first, syncs), first=schedule.first)
            return Grouped(grouping=grouping, schedule=times, privacy=privacy)

        found.append(fitting(streams, f"{who}, {family}", "greedy", None, demands))
    growth, share = OWN
    for numbers, policy in (("greedy", Greedy()), ("width x 0.1", _optimism(0.1))):

        def uploads(syncs: int | None, policy=policy) -> AsyncFederated:
            first = math.ceil(horizon / share)
            times = Geometric(growth if syncs is None else growing(horizon, first, syncs), first=first)
            return AsyncFederated(policy=policy, schedule=times, privacy=privacy)

        found.append(fitting(uploads, f"{who}, Async", numbers, None, demands))
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
    statistic = quietest(demands.spec, party.trust)
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of horizons that are too short for it
            schedule = algo.patient(demands.spec, demands.horizon).schedule
    except ValueError:
        return 1
    assert isinstance(schedule, Geometric)
    return schedule.first
