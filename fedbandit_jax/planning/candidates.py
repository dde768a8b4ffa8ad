"""The candidates of a plan: every certified policy of the package, with suitable schedules and numbers.

Every trust model has one release for fixed batches and one for growing batches, both with the least noise. The
remaining choices depend on the setting: the policy, its first release, and its optimism. Variants of a policy differ in
numbers only, so they run together.

If the unit is "user", the contribution bound is a choice too. With r contributions, one to a batch, the noise of a sum
grows almost as r. Once all users have contributed sums stop growing, so batches may double and all prefixes count
alike, `Decaying(1.0)`. Fixed batches are many, so contributions may be far apart, with least noise by `BandMF`.
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
from fedbandit_jax.planning import arms
from fedbandit_jax.planning.candidate import Candidate, considered, fitting, growing
from fedbandit_jax.planning.demands import PARTIES, Demands, Party, quietest, units
from fedbandit_jax.privacy import BandMF, Decaying, Liars, Mechanism, Users
from fedbandit_jax.schedules import Every, Geometric

SYNCS = 100  # synchronisations in fixed batches
GROWTH, DOUBLING = 1.5, 2.0  # of batches with prefix sums, and of batches that are released once
LATER = (1.0, 3.0)  # multiples of the first round by the rule of `Greedy`
SCALES = (1.0, 0.3, 0.1)  # values of `exploration_scale` for optimism
PHASES = (0.3, 0.15)  # and for elimination, whose proved widths drop hardly any arm
DRAWS = (1.0, 0.25)  # values of `scale` for Thompson sampling
COINS = (5.0, 0.5)  # values of `explore` for epsilon-greedy
RULES = ("geometric_median", "median")  # of a server with liars
LYING = "collude"  # among the worst attacks on these rules in beyond_liars of experiments
RIDGE = 12.0  # standard deviations of the noise, as in `Greedy`
STREAMS, OWN = (1.2, 300), (1.3, 1000)  # growth and T / first release, for streams and for uploads


def candidates(demands: Demands) -> list[Candidate]:
    """Returns all candidates; an excluded trust model has only one."""
    if demands.sums:
        return arms.candidates(demands)
    found = []
    for name, party in PARTIES.items():
        if name in demands.trusted and demands.liars and party.trust != "silo_local":
            why = "its server sees no single messages, and one liar may move a sum without bound"
            found.append(Candidate(label=party.trust, group=party.trust, excluded=why))
        elif name in demands.trusted:
            for unit in units(demands):
                found += _of(party, demands._replace(unit=unit))
        else:
            why = f"it needs trust in {party.words}"
            found.append(Candidate(label=party.trust, group=party.trust, excluded=why))
    return found


def without_privacy(demands: Demands, among: Iterable[Candidate]) -> list[Candidate]:
    """Returns the same policies and schedules without privacy."""
    if demands.sums:
        return arms.without_privacy(demands, among)
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
    make: Callable[[Policy, int | None], Federated]  # with this many synchronisations, None for any number
    syncs: int | None = None  # tried first


def _of(party: Party, demands: Demands) -> list[Candidate]:
    """Returns the candidates under one trust model and unit."""
    spec, unit = demands.spec, demands.unit
    free = isinstance(unit, Users) and unit.most == 1 and spec.n_users > 0  # releases may use that visits are apart
    visits = unit.visits if free else 0
    found: dict[str, Candidate] = {}
    who = party.trust + (f" of {visits} visit{'s' * (visits > 1)}" if free else "") + demands.at
    if spec.n_users and demands.alone and party.trust == "silo_local":
        found |= {one.label: one for one in _by_themselves(party, demands, who)}
        if spec.n_servers > 1:  # no server has the data of all users
            return list(found.values())
    for play in (*_in_fixed_batches(party, demands, free), *_in_growing_batches(party, demands, free)):
        for one in _by_every_rule(play, demands, who):
            found.setdefault(one.label, one)
    return list(found.values())


def _by_every_rule(play: Play, demands: Demands, who: str) -> Iterator[Candidate]:
    """Yields a play under every aggregation rule of the server."""
    for rule in RULES if demands.liars else ("sum",):
        by = "" if rule == "sum" else f" by {rule}"

        def ruled(syncs: int | None, rule: str = rule) -> Federated:
            liars = Liars(demands.liars, LYING) if demands.liars else None
            return play.make(play.policy, syncs).replace(aggregate=rule, liars=liars)

        yield fitting(ruled, f"{who}, {play.family}{by}", play.numbers, play.syncs, demands)


def _in_fixed_batches(party: Party, demands: Demands, free: bool) -> Iterator[Play]:
    """Yields optimism, and all policies if batches may not grow."""

    def fixed(policy: Policy, syncs: int | None) -> Federated:
        assert syncs is not None
        release, bounds = party.release, demands.unit
        if free and party.grows and bounds.visits > 1:
            bounds = dataclasses.replace(bounds, apart=max(bounds.apart, syncs // (2 * bounds.visits)))
            release = BandMF(syncs, bounds)
        privacy = _mechanism(party, release, demands._replace(unit=bounds))
        return Federated(policy=policy, schedule=Every(demands.horizon // (syncs + 1) + 1), privacy=privacy)

    for scale in SCALES:
        yield Play("UCB", f"width x {scale:g}", _optimism(scale), fixed, SYNCS)
    if not party.grows:
        for family, numbers, policy in _others(_loudest(fixed(Greedy(), SYNCS), demands)):
            yield Play(family, numbers, policy, fixed, SYNCS)


def _in_growing_batches(party: Party, demands: Demands, free: bool) -> Iterator[Play]:
    """Yields all policies, each with several first releases, if batches may grow."""
    if not party.grows:
        return
    spec, horizon = demands.spec, demands.horizon
    growth, decay = (DOUBLING, 1.0) if free else (DOUBLING if spec.drops else GROWTH, None)
    early, most = _first(party, demands, growth, decay or growth), max(1, (horizon - spec.late) // 4)
    early = max(1, early - spec.late)

    def of(first: int, usual: float, release: Callable[[float], Any]) -> Callable[[Policy, int | None], Federated]:
        def make(policy: Policy, syncs: int | None) -> Federated:
            grown = usual if syncs is None else growing(horizon, first, syncs)
            privacy = _mechanism(party, release(grown), demands)
            return Federated(policy=policy, schedule=Geometric(grown, first=first), privacy=privacy)

        return make

    for first in dict.fromkeys(min(math.ceil(later * early), most) + spec.late for later in LATER):
        grows = of(first, growth, lambda grown: Decaying(min(decay or grown, 100.0)))
        once = of(first, DOUBLING, lambda _: "input_perturbation")
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
    """Returns candidates for returning users who trust only the server with their own data."""
    horizon, found = demands.horizon, []
    privacy = _mechanism(party, party.release, demands)
    radius = 0.5**0.5 if demands.spec.constant else 1.0
    kinds: list[tuple[str, str, tuple[float, int], Any]] = [
        ("Mixture", "greedy", STREAMS, Grouped(grouping=Mixture(theta_norm=radius), privacy=privacy)),
        ("Alone", "greedy", STREAMS, Grouped(grouping=Alone(), privacy=privacy)),
        ("Async", "greedy", OWN, AsyncFederated(policy=Greedy(), privacy=privacy)),
        ("Async", "width x 0.1", OWN, AsyncFederated(policy=_optimism(0.1), privacy=privacy)),
    ]
    for family, numbers, (growth, share), algo in kinds:
        first = math.ceil(horizon / share)

        def later(syncs: int | None, growth=growth, first=first, algo=algo) -> Any:
            grown = growth if syncs is None else growing(horizon, first, syncs)
            return dataclasses.replace(algo, schedule=Geometric(grown, first=first))

        found.append(fitting(later, f"{who}, {family}", numbers, None, demands))
    return found


def _others(noise: float) -> list[tuple[str, str, Policy]]:
    """Returns policies without widths, with a ridge for noise of this standard deviation."""
    ridge = float(f"{max(1.0, RIDGE * noise):.2g}")
    found: list[tuple[str, str, Policy]] = [("Greedy", "", Greedy())]
    found += [("Thompson", f"scale {scale:g}", Thompson(regularization=ridge, scale=scale)) for scale in DRAWS]
    found += [("EpsilonGreedy", f"explore {c:g}", EpsilonGreedy(explore=c, shrinkage=3.0)) for c in COINS]
    return found


def _optimism(scale: float) -> UCB:
    return UCB(confidence="known_noise", regularizer="project", exploration_scale=scale)


def _mechanism(party: Party, release: Any, demands: Demands) -> Mechanism:
    statistic = quietest(demands.spec, party.trust)
    if demands.spec.drops:  # a message must not hold parts of other batches
        release = "input_perturbation"
    away = demands.away if party.trust == "secagg" else 0
    return Mechanism(demands.budget, release, party.trust, unit=demands.unit, statistic=statistic, dropouts=away)


def _loudest(algo: Federated, demands: Demands) -> float:
    """Returns the largest standard deviation of the noise on a release; 0 if uncalibrated."""
    try:
        return float(np.max(algo.bind(demands.spec, demands.horizon).stds, initial=0))
    except ValueError:
        return 0.0


def _first(party: Party, demands: Demands, growth: float, decay: float) -> int:
    """Returns the rounds before the first release by the rule of `Greedy`, or the most possible."""
    privacy = _mechanism(party, Decaying(decay), demands)
    algo = Federated(policy=Greedy(), schedule=Geometric(growth, first=1), privacy=privacy)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about short horizons
            schedule = algo.patient(demands.spec, demands.horizon).schedule
    except ValueError:
        return 1
    assert isinstance(schedule, Geometric)
    return schedule.first
