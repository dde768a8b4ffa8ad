"""`plan` recommends a private algorithm: it simulates all candidates briefly, and the best at length."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Sequence
from typing import Any

from jax import Array
from typing_extensions import override

from fedbandit_jax.algos import Federated
from fedbandit_jax.core import random, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine.prepare import as_environment
from fedbandit_jax.engine.simulation import sweep
from fedbandit_jax.interfaces import Algorithm, Environment, Recipe, Spec
from fedbandit_jax.planning.candidate import Candidate
from fedbandit_jax.planning.candidates import candidates, without_privacy
from fedbandit_jax.planning.demands import demanded
from fedbandit_jax.planning.forecast import TRIED, forecast
from fedbandit_jax.planning.recommendation import Recommendation
from fedbandit_jax.privacy import Budget

USERS = 1_000_000  # users of a simulated run by default, or 1 / TRIED of all if that is more
SCREENED = 100_000  # users of a run that compares all candidates,
SCREENING = 8  # or this fraction of the default if that is more
FINALISTS, ALIKE = 8, 3  # candidates that go further, and the most of one group
MORE_SEEDS = 4  # factor of seeds for finalists
LEAST_ROUNDS = 8  # to compare growth between quarters and halves


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun(Recipe):
    """A recipe bound for `full` rounds but run for fewer, with the noise and schedule of the full horizon."""

    recipe: Recipe
    full: int

    @override
    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        return self.recipe.bind(spec, self.full)


def plan(
    env: Environment,
    budget: Budget | Sequence[Budget],
    *,
    horizon: int,
    key: Array,
    at_most: float | None = None,
    trusted: str | Sequence[str] = ("silo",),
    unit: Any = None,
    liars: float = 0.0,
    max_syncs: int | None = None,
    seeds: int = 4,
    rounds: int | None = None,
    progress: bool | None = None,
) -> Recommendation:
    """Recommends a trust model, release, schedule and policy for private federated bandits.

    docs/planning.md lists the candidates. All are certified for the budget, under the allowed trust model with the
    least noise, and none learns from raw data inside a batch. Their communication and guarantees are exact, read from
    candidates bound for T rounds. Regret is predicted. All candidates are simulated for an eighth of `rounds`, or for
    10^5 users if that is more. The best eight, and the same policies without privacy, are then simulated for `rounds`
    with four times as many new seeds. Beyond that, growth is extrapolated. Noise and schedule always belong to the
    whole horizon.

    An interval is for mean regret, over all random draws. Those of the last eight should hold jointly with probability
    95 %, so the best one is valid although it was selected.

    Args:
        env: an environment as similar as possible to the real users, since the best schedule, width and regret depend
            on it. With `fb.envs.dropout`, secure aggregation has shares of noise for the mean number of absent silos
            plus three standard deviations. With `fb.envs.delay`, growing batches begin later.
        budget: `fb.privacy.Budget(epsilon, delta)`; it protects one user, or the `unit`. With `at_most` you may
            give several budgets. All meet the same simulated users, and at least two candidates of each are simulated
            at length. The plan recommends the smallest epsilon within `at_most`.
        horizon: number of rounds T.
        key: typed PRNG key; seed i of the best candidates uses `fold_in(key, i)`, as in `fb.simulate`.
        at_most: most predicted regret, as a multiple >= 1 of the least regret of the same policies without privacy.
        trusted: parties that users trust besides their own silo, which sees their data anyway: "silo" (nobody else),
            "shuffler", "secagg" or "server", or several of these. A "secagg" aggregator sees only sums over silos.
        unit: the protected unit of returning users, as in `fb.privacy.Mechanism`; or "user": all visits of a user, with
            a contribution bound chosen by the plan.
        liars: share of silos that send false sums, in [0, 1/2). The server then takes a median of single messages, and
            the liars collude, as in `fb.privacy.Liars`, among the worst attacks on medians.
        max_syncs: most synchronisations in T rounds; None: any number.
        seeds: simulations of each candidate, at least 2; the best have four times as many.
        rounds: most simulated rounds. Default: all, or enough for 10^6 users, but at least T / 8.
        progress: whether to show a progress bar on stderr. Default: only on a terminal.

    Returns:
        A `Recommendation`; its `best` is None if nothing meets the demands, and excluded candidates say why.

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
    env = as_environment("env", env)
    spec = env.spec
    horizon = validate.integer("horizon", horizon, at_least=LEAST_ROUNDS)
    if spec.late >= horizon:
        raise BadValue("env", f"must have a delay below the horizon {horizon:,}", spec.late, got=f"{spec.late:,}")
    random.check_key(key)
    seeds = validate.integer("seeds", seeds, at_least=2, at_most=2**20)
    options: dict[str, Any] = dict(at_most=at_most, trusted=trusted, unit=unit, liars=liars, max_syncs=max_syncs)
    asked = demanded(env, budget, horizon, **options)
    if rounds is None:
        rounds = min(horizon, max(USERS // spec.n_agents, math.ceil(horizon / TRIED), LEAST_ROUNDS))
    rounds = validate.integer("rounds", rounds, at_least=LEAST_ROUNDS, at_most=horizon)
    if progress is not None:
        validate.boolean("progress", progress)
    able: list[Candidate] = []
    left: dict[str, Candidate] = {}  # once for all budgets
    for demands in asked:
        found = candidates(demands)
        quiet, louder = _quietest([one for one in found if not one.excluded])
        able += quiet
        left |= {one.label: one for one in (*louder, *found) if one.excluded}
    last = list(left.values())
    simulated = functools.partial(_simulated, env, horizon, progress)
    if len(able) > FINALISTS:
        length = max(min(rounds, SCREENED // spec.n_agents), rounds // SCREENING, LEAST_ROUNDS)
        able, failed = simulated(able, length, random.stream(key, "screening"), seeds, 1)
        last += failed
    best, reference = _best(able, max(2, FINALISTS // len(asked))), []
    others = [one for one in able if one not in best]
    if best:
        without = without_privacy(asked[0], best)
        longest, failed = simulated(best + without, rounds, key, MORE_SEEDS * seeds, len(best))
        last += failed
        names = {one.label for one in without}
        best, reference = ([one for one in longest if (one.label in names) == plain] for plain in (False, True))
    leading = {one.epsilon: one for one in reversed((*best, *others))}
    choices = [leading[one.budget.epsilon] for one in asked if one.budget.epsilon in leading]
    most = math.inf if at_most is None else at_most * reference[0].regret if reference else -math.inf
    first = next((one for one in choices if not one.regret > most), None)
    ranked = [one for one in (*best, *others) if one is not first]
    return Recommendation(
        candidates=(*([first] if first else []), *ranked, *last),
        best=first,
        choices=tuple(choices),
        reference=tuple(reference),
        spec=spec,
        horizon=horizon,
        liars=asked[0].liars,
        seconds=time.monotonic() - started,
    )


def _simulated(
    env: Environment,
    horizon: int,
    progress: bool | None,
    some: list[Candidate],
    length: int,
    key: Array,
    seeds: int,
    of: int,
) -> tuple[list[Candidate], list[Candidate]]:
    """Simulates candidates; returns those with `of` joint forecasts, the best first, and those with failed runs."""
    spec, done, failed = env.spec, [], []
    most = spec.n_agents * horizon if spec.rewards_in_unit else math.inf  # upper bound on regret
    begun = {one.label: Begun(recipe=one.algo, full=horizon) for one in some if one.algo is not None}
    result = sweep(env, begun, horizon=length, key=key, seeds=seeds, progress=progress, throw=False)
    for one in some:
        its = result[one.label]
        if its.status.any():
            why = f"{int((its.status > 0).sum())} of its runs failed"
            failed.append(dataclasses.replace(one, excluded=why))
        else:
            regret = forecast(its.rounds, its.regret, horizon, most, of)
            done.append(dataclasses.replace(one, forecast=regret))
    return sorted(done, key=lambda one: one.regret), failed


def _best(ranked: list[Candidate], most: int) -> list[Candidate]:
    """Selects the candidates that go further, from ranked ones: at most `most` of each budget."""
    found: list[Candidate] = []
    for one in ranked:
        of_budget = sum(other.epsilon == one.epsilon for other in found)
        if of_budget < most and sum(other.group == one.group for other in found) < ALIKE:
            found.append(one)
    return found


def _quietest(able: list[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """Keeps the candidates under the trust model with the least noise, and excludes the others.

    All trust models have the same policies, and noise is taken to help none. (Users' own streams have other noise.)
    """
    noise: dict[str, float] = {}
    for one in able:
        if (trust := _trust(one)) and one.certificate is not None:
            std = one.certificate.server_noise_std
            noise[trust] = min(noise.get(trust, math.inf), math.inf if std is None else std)
    least = min(noise, key=lambda trust: noise[trust], default="")
    why = {name: f"its noise is {std / noise[least]:.3g} times that of {least}, which is allowed"
           for name, std in noise.items() if name != least}  # fmt: skip
    louder = [Candidate(label=name, group=name, excluded=reason) for name, reason in why.items()]
    return [one for one in able if _trust(one) not in why], louder


def _trust(one: Candidate) -> str:
    """Returns the trust model; empty for users' own streams."""
    return str(one.algo.privacy.trust) if isinstance(one.algo, Federated) else ""  # pyright: ignore
