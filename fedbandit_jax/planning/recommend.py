"""`plan` recommends a private algorithm: candidates are simulated briefly, and the best of them at length."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

from jax import Array
from typing_extensions import override

from fedbandit_jax.algos import Federated
from fedbandit_jax.core import random, validate
from fedbandit_jax.engine.grid import check_environment
from fedbandit_jax.engine.simulation import sweep
from fedbandit_jax.interfaces import Algorithm, Environment, Recipe, Spec
from fedbandit_jax.planning.candidates import PARTIES, Candidate, Demands, candidates, without_privacy
from fedbandit_jax.planning.forecast import TRIED, forecast
from fedbandit_jax.planning.table import table
from fedbandit_jax.privacy import Budget
from fedbandit_jax.privacy.mechanism import check_norms

USERS = 1_000_000  # of a run that is simulated by default, unless they are less than 1 / TRIED of all
SCREENING = 8  # the part of it through which all candidates go
FINALISTS = 2  # groups of candidates that go further
LEAST_ROUNDS = 8  # growth is compared between the quarters and halves of a run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun(Recipe):
    """A recipe that is bound for `full` rounds, however many of them are run: its noise and schedule are those of T."""

    recipe: Federated
    full: int

    @override
    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        del horizon
        return self.recipe.bind(spec, self.full)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What `fb.plan` found. `print(recommendation)` shows a table, the code of the best candidate and its certificate.

    Attributes:
        candidates: all that were considered, the best first and those that are excluded last.
        best: the first of them, or None if nothing meets the demands.
        reference: UCB without privacy, the best first.
        spec: description of the environment.
        horizon: T.
        seconds: how long the plan took.
    """

    candidates: tuple[Candidate, ...]
    best: Candidate | None
    reference: tuple[Candidate, ...]
    spec: Spec
    horizon: int
    seconds: float

    def __str__(self) -> str:
        return table(self)


def plan(
    env: Environment,
    budget: Budget,
    *,
    horizon: int,
    key: Array,
    trusted: str | Sequence[str] = ("silo",),
    visits: int | None = None,
    max_syncs: int | None = None,
    max_bits: float | None = None,
    seeds: int = 4,
    rounds: int | None = None,
    progress: bool | None = None,
) -> Recommendation:
    """Recommends a trust model, release, schedule and policy for private federated linear bandits.

    All candidates are compositions of `fb.algos.Federated` that are certified for the budget, and none learns from raw
    data inside a batch. What they send and prove is exact, as it is read from what they are bound to for T rounds.
    What they lose is predicted: all are simulated for the first eighth of `rounds`; the two best mechanisms with a
    schedule, and UCB without privacy, for `rounds`; and beyond that, growth is extrapolated. Noise and
    schedule are those of the whole horizon all the time, so that a simulated round is a round of the real run.

    An interval is for mean regret, over all that can be drawn, and meant to contain it with probability 95 %. In
    `tests/planning/test_plan_intervals.py` 95 % of 960 intervals, of 4 seeds each, contained the mean of full runs;
    these were on spheres and at a worst gap, for M from 10 to 100 and T from 1,600 to 4,000, with T / 8 rounds or more.
    The choice of the best of several makes its prediction a little too good.

    Args:
        env: the environment, as like that of the users to be served as can be: the best schedule and width, and of
            course regret, depend on it.
        budget: `fb.privacy.Budget(epsilon, delta)`; one user's visits together are protected by it.
        horizon: T, the number of rounds.
        key: typed PRNG key; seed i uses `fold_in(key, i)`, as in `fb.simulate`.
        trusted: whom users trust beside their own silos, which see their data anyway: "silo" (nobody else), "shuffler",
            "secagg" (an aggregator who sees sums over silos only) or "server", or several of these.
        visits: how often one user may come to her silo, as in `fb.privacy.Mechanism`.
        max_syncs: the most synchronisations in T rounds; None: any number.
        max_bits: the most bits that a silo may send and receive in T rounds together; None: any number.
        seeds: simulations of each candidate, at least 2.
        rounds: how many rounds are simulated at most. Default: all, or so many that 10^6 users come, but not less than
            T / 8.
        progress: whether to show a progress bar on stderr. Default: only on a terminal.

    Returns:
        A `Recommendation`, whose `best` is None if nothing meets the demands; excluded candidates say why.

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it and its value.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=5, n_arms=4, dim=3, rewards="bernoulli")
        >>> found = fb.plan(
        ...     env, fb.privacy.Budget(1.0, 1e-4), horizon=200, key=jax.random.key(0), max_syncs=10, seeds=2
        ... )
        >>> found.best.certificate.claim, found.best.syncs <= 10
        ('certified', True)
        >>> [one.label for one in found.candidates if "trust" in one.excluded]
        ['shuffle_vector_sum', 'secagg', 'central']
    """
    started = time.monotonic()
    spec = check_environment("env", env).spec
    horizon = validate.integer("horizon", horizon, at_least=LEAST_ROUNDS)
    random.check_key("key", key)
    seeds = validate.integer("seeds", seeds, at_least=2, at_most=2**20)
    demands = _demands(spec, budget, horizon, trusted, visits, max_syncs, max_bits)
    if rounds is None:
        rounds = min(horizon, max(USERS // spec.n_agents, math.ceil(horizon / TRIED), LEAST_ROUNDS))
    rounds = validate.integer("rounds", rounds, at_least=LEAST_ROUNDS, at_most=horizon)
    if progress is not None:
        validate.boolean("progress", progress)
    found = candidates(demands)
    able = [one for one in found if not one.excluded]
    last = [one for one in found if one.excluded]
    if not able:
        return Recommendation(
            candidates=tuple(last),
            best=None,
            reference=(),
            spec=spec,
            horizon=horizon,
            seconds=time.monotonic() - started,
        )

    most = spec.n_agents * horizon if spec.rewards_in_unit else math.inf  # what regret cannot exceed

    def simulated(some: list[Candidate], length: int) -> list[Candidate]:
        """Returns candidates with forecasts, the best first; those that failed are moved to `last`."""
        result = sweep(
            env,
            {one.label: Begun(recipe=one.algo, full=horizon) for one in some if one.algo is not None},
            horizon=length,
            key=key,
            seeds=seeds,
            progress=progress,
            throw=False,
        )
        done = []
        for one in some:
            its = result[one.label]
            if its.status.any():
                last.append(dataclasses.replace(one, excluded=f"{int((its.status > 0).sum())} of its runs failed"))
            else:
                done.append(dataclasses.replace(one, forecast=forecast(its.rounds, its.regret, horizon, most)))
        return sorted(done, key=lambda one: one.regret)

    reference = without_privacy(demands, able)
    groups = dict.fromkeys(one.group for one in able)
    if len(groups) > FINALISTS:
        able = simulated(able, max(rounds // SCREENING, LEAST_ROUNDS))
        groups = dict.fromkeys(one.group for one in able)  # the best first
    further = list(groups)[:FINALISTS]
    others = [one for one in able if one.group not in further]
    names = {one.label for one in reference}
    longest = simulated([one for one in able if one.group in further] + reference, rounds)
    best = [one for one in longest if one.label not in names]
    ranked = (*best, *others, *last)
    return Recommendation(
        candidates=ranked,
        best=ranked[0] if not ranked[0].excluded else None,
        reference=tuple(one for one in longest if one.label in names),
        spec=spec,
        horizon=horizon,
        seconds=time.monotonic() - started,
    )


def _demands(
    spec: Spec, budget: Any, horizon: int, trusted: Any, visits: Any, max_syncs: Any, max_bits: Any
) -> Demands:
    check_norms("plan", spec.max_norm)
    validate.instance("budget", budget, Budget, "an fb.privacy.Budget")
    names = [trusted] if isinstance(trusted, str) else validate.sequence("trusted", trusted, "names")
    for name in names:
        validate.one_of("trusted", name, PARTIES)
    if visits is not None:
        validate.integer("visits", visits, at_least=1)
    elif spec.n_users:
        raise ValueError(f"visits must say how often one of the {spec.n_users:,} users may come, got None")
    if max_syncs is not None:
        validate.integer("max_syncs", max_syncs, at_least=1)
    if max_bits is not None:
        validate.positive("max_bits", max_bits)
    return Demands(spec, horizon, budget, ("silo", *names), visits, max_syncs, max_bits)
