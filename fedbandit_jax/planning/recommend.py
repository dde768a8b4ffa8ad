"""`plan` recommends a private algorithm: candidates are simulated briefly, and the best of them at length."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

from jax import Array
from typing_extensions import override

from fedbandit_jax import envs
from fedbandit_jax.algos import Federated
from fedbandit_jax.algos.recipe import PolicyRecipe
from fedbandit_jax.core import random, validate
from fedbandit_jax.engine.grid import as_environment
from fedbandit_jax.engine.simulation import sweep
from fedbandit_jax.interfaces import Algorithm, Environment, Recipe, Spec
from fedbandit_jax.planning.candidates import Candidate, candidates, left_out, without_privacy
from fedbandit_jax.planning.demands import ONE_USER, PARTIES, Demands, fixed_arms, silos_away
from fedbandit_jax.planning.forecast import TRIED, forecast
from fedbandit_jax.privacy import Budget
from fedbandit_jax.privacy.mechanism import Mechanism, check_norms
from fedbandit_jax.report.tables import aligned

USERS = 1_000_000  # of a run that is simulated by default, unless they are less than 1 / TRIED of all
SCREENED = 100_000  # users of a run in which all candidates are compared,
SCREENING = 8  # unless they are less than a part of that by default
FINALISTS, ALIKE = 8, 3  # candidates that go further, and how many of these may be of one group,
MORE_SEEDS = 4  # with so many times as many seeds
LEAST_ROUNDS = 8  # growth is compared between the quarters and halves of a run
WIDTH = 100  # of a line of code, beyond which every argument has a line of its own
HEAD = ("candidate", "regret", "95 % interval", "x not private", "syncs", "kbit per silo", "simulated", "claim")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun(Recipe):
    """A recipe that is bound for `full` rounds, however many of them are run: its noise and schedule are those of T."""

    recipe: PolicyRecipe
    full: int

    @override
    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        return self.recipe.bind(spec, self.full)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What `fb.plan` found. `print(recommendation)` shows a table, the code of the best candidate and its certificate.

    Attributes:
        candidates: all that were considered, the best first and those that are excluded last.
        best: the first of them, or None if nothing meets the demands.
        reference: the policies and schedules of the finalists without privacy, the best first.
        spec: description of the environment.
        horizon: T.
        liars: share of silos that lie.
        seconds: how long the plan took.
        not_considered: what else there is, and is no candidate, in words.
    """

    candidates: tuple[Candidate, ...]
    best: Candidate | None
    reference: tuple[Candidate, ...]
    spec: Spec
    horizon: int
    liars: float
    seconds: float
    not_considered: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The table, with only the best of each group that went no further; what is excluded; code and certificate."""
        spec = self.spec
        simulated = [one for one in self.candidates if one.forecast is not None]
        longest = max((one.forecast[-2:] for one in simulated if one.forecast), default=0)  # rounds and seeds
        best_of = {one.group: one for one in reversed(simulated)}
        simulated = [one for one in simulated if one.forecast[-2:] == longest or one is best_of[one.group]]  # pyright: ignore
        base = self.reference[0].regret if self.reference else float("nan")
        sizes = f"M = {spec.n_agents:,} silos, K = {spec.n_arms:,} arms, d = {spec.dim:,}"
        where = [f"{sizes}, T = {self.horizon:,} rounds"]
        where += ["silos drop out"] * spec.drops + [f"rewards come {spec.late:,} rounds late"] * (spec.late > 0)
        where += [f"{self.liars:.0%} of the silos lie"] * (self.liars > 0)
        text = ["; ".join(where), *([spec.basis] if spec.basis else [])]
        if simulated:
            rows = [_row(one, base, self.horizon) for one in (*simulated, *self.reference[:1])]
            text += [aligned([HEAD, *rows])]
            if not all(one.forecast.tried(self.horizon) for one in simulated if one.forecast):
                text += ["(?) so short a part of the horizon was simulated that such intervals have not been tested"]
        excluded = [one for one in self.candidates if one.excluded]
        text += ["", "excluded:", *(f"  {one.label}: {one.excluded}" for one in excluded)] if excluded else []
        text += ["", "not considered:", *(f"  {one}" for one in self.not_considered)] if self.not_considered else []
        best = self.best
        if best is None:
            return "\n".join([*text, "", "Nothing meets these demands."])
        text += ["", f"recommended: {best.label}", f"algo = {code(best.algo)}", "", str(best.certificate)]
        return "\n".join([*text, "", f"The plan took {self.seconds:.0f} s."])


def plan(
    env: Environment,
    budget: Budget,
    *,
    horizon: int,
    key: Array,
    trusted: str | Sequence[str] = ("silo",),
    unit: Any = None,
    dropouts: float = 0.0,
    liars: float = 0.0,
    delay: int = 0,
    max_syncs: int | None = None,
    max_bits: float | None = None,
    seeds: int = 4,
    rounds: int | None = None,
    progress: bool | None = None,
) -> Recommendation:
    """Recommends a trust model, release, schedule and policy for private federated linear bandits.

    Considered are UCB, AdaC-OFUL, greedy play, epsilon-greedy and Thompson sampling under the trust model that has the
    least noise of those allowed; DP-DPE, if every round offers the same arms to all; and private streams of users
    (`Grouped`) and agents who upload by themselves (`AsyncFederated`), if users return. All are certified for the
    budget, and none learns from raw data inside a batch. `Recommendation.not_considered` says what is left out.

    What candidates send and prove is exact, as it is read from what they are bound to for T rounds. What they lose is
    predicted. All are simulated for an eighth of `rounds`, or for as many as 10^5 users need if that is more; then the
    best eight, of which three may be of one policy, and what these lose without privacy, for `rounds`, under four times
    as many other seeds; and beyond that, growth is extrapolated. Noise and schedule are those of the whole horizon all
    the time, so that a simulated round is a round of the real run.

    An interval is for mean regret, over all that can be drawn. Those of the last eight are meant to contain it all at
    once with probability 95 %, so that the one of the best does so although it was chosen as the best; other intervals
    one by one. `tests/planning/test_plan_intervals.py` compares intervals with full runs, and `experiments/planning.py`
    what is recommended with all candidates.

    Args:
        env: the environment, as like that of the users to be served as can be: the best schedule and width, and of
            course regret, depend on it.
        budget: `fb.privacy.Budget(epsilon, delta)`; it protects one user, or what `unit` says.
        horizon: T, the number of rounds.
        key: typed PRNG key; seed i of the best candidates uses `fold_in(key, i)`, as in `fb.simulate`.
        trusted: whom users trust beside their own silos, which see their data anyway: "silo" (nobody else), "shuffler",
            "secagg" (an aggregator who sees sums over silos only) or "server", or several of these.
        unit: what is protected where users return, as in `fb.privacy.Mechanism`; or "user": one user in all her
            visits, and how many of these are let in, and when, is chosen with all else.
        dropouts: probability that a silo misses a synchronisation, as in `fb.envs.dropout`. Secure aggregation has
            shares of noise for as many silos as are away on average, and three standard deviations more; also if the
            environment itself says who is away.
        liars: share of silos that send false sums, in [0, 1/2). The server then takes a median of single messages, and
            the liars collude, as in `fb.privacy.Liars`, because hardly an attack does more harm to medians.
        delay: rounds by which rewards come late, as in `fb.envs.delay`.
        max_syncs: the most synchronisations in T rounds; None: any number.
        max_bits: the most bits that a silo may send and receive in T rounds together; None: any number.
        seeds: simulations of each candidate, at least 2; the best have four times as many.
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
    env = _under(as_environment("env", env), dropouts, delay)
    spec = env.spec
    horizon = validate.integer("horizon", horizon, at_least=LEAST_ROUNDS)
    if spec.late >= horizon:
        raise ValueError(f"delay must be below the horizon of {horizon:,} rounds, got {spec.late:,}")
    random.check_key("key", key)
    seeds = validate.integer("seeds", seeds, at_least=2, at_most=2**20)
    demands = _demands(spec, budget, horizon, trusted, unit, max_syncs, max_bits)
    demands = demands._replace(
        arms=fixed_arms(env),
        alone=callable(getattr(env, "clusters", None)),
        away=silos_away(env),
        liars=_lying(liars, spec),
    )
    if rounds is None:
        rounds = min(horizon, max(USERS // spec.n_agents, math.ceil(horizon / TRIED), LEAST_ROUNDS))
    rounds = validate.integer("rounds", rounds, at_least=LEAST_ROUNDS, at_most=horizon)
    if progress is not None:
        validate.boolean("progress", progress)
    found = candidates(demands)
    able, last = _quietest([one for one in found if not one.excluded])
    last += [one for one in found if one.excluded]

    def recommendation(ranked: list[Candidate], reference: list[Candidate]) -> Recommendation:
        return Recommendation(
            candidates=tuple(ranked),
            best=ranked[0] if not ranked[0].excluded else None,
            reference=tuple(reference),
            spec=spec,
            horizon=horizon,
            liars=demands.liars,
            seconds=time.monotonic() - started,
            not_considered=left_out(demands),
        )

    if not able:
        return recommendation(last, [])
    most = spec.n_agents * horizon if spec.rewards_in_unit else math.inf  # what regret cannot exceed

    def simulated(some: list[Candidate], length: int, key: Array, seeds: int, of: int) -> list[Candidate]:
        """Candidates with forecasts, the best first; those that failed are moved to `last`."""
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
                done.append(dataclasses.replace(one, forecast=forecast(its.rounds, its.regret, horizon, most, of)))
        return sorted(done, key=lambda one: one.regret)

    if len(able) > FINALISTS:
        length = max(min(rounds, SCREENED // spec.n_agents), rounds // SCREENING, LEAST_ROUNDS)
        able = simulated(able, length, random.stream(key, "screening"), seeds, 1)
    further = _best(able)
    others = [one for one in able if one not in further]
    reference = without_privacy(demands, further)
    names = {one.label for one in reference}
    longest = simulated(further + reference, rounds, key, MORE_SEEDS * seeds, len(further))
    best = [one for one in longest if one.label not in names]
    return recommendation([*best, *others, *last], [one for one in longest if one.label in names])


def _best(ranked: list[Candidate]) -> list[Candidate]:
    """Those of candidates, the best first, that go further."""
    found: list[Candidate] = []
    for one in ranked:
        if len(found) < FINALISTS and sum(other.group == one.group for other in found) < ALIKE:
            found.append(one)
    return found


def _quietest(able: list[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates under the trust model with the least noise, and the others, excluded.

    All trust models have the same policies, and no policy gains by noise. (Noise of users' own streams is another.)
    """
    noise: dict[str, float] = {}
    for one in able:
        if one.certificate is not None and isinstance(one.algo, Federated):
            trust, std = str(one.algo.privacy.trust), one.certificate.server_noise_std  # pyright: ignore
            noise[trust] = min(noise.get(trust, math.inf), math.inf if std is None else std)
    if len(noise) < 2:
        return able, []
    least = min(noise, key=lambda trust: noise[trust])
    kept, louder = [], {}
    for one in able:
        trust = str(one.algo.privacy.trust) if isinstance(one.algo, Federated) else least  # pyright: ignore
        if trust == least:
            kept.append(one)
        else:
            why = f"its noise is {noise[trust] / noise[least]:.3g} times that of {least}, which is allowed"
            louder[trust] = Candidate(label=trust, group=trust, excluded=why)
    return kept, list(louder.values())


def _demands(spec: Spec, budget: Any, horizon: int, trusted: Any, unit: Any, max_syncs: Any, max_bits: Any) -> Demands:
    check_norms("plan", spec.max_norm)
    validate.instance("budget", budget, Budget, "an fb.privacy.Budget")
    names = [trusted] if isinstance(trusted, str) else validate.sequence("trusted", trusted, "names")
    for name in names:
        validate.one_of("trusted", name, PARTIES)
    if unit is None and spec.n_users:
        raise ValueError(f"unit must say what of the {spec.n_users:,} users is protected, got None")
    if isinstance(unit, str) and unit == ONE_USER:
        if not spec.n_users:
            raise ValueError(f"unit must be fb.privacy.Users(...) or None where users are not told apart, got {unit!r}")
    else:
        Mechanism(budget, unit=unit)  # checks it
    if max_syncs is not None:
        validate.integer("max_syncs", max_syncs, at_least=1)
    if max_bits is not None:
        validate.positive("max_bits", max_bits)
    return Demands(spec, horizon, budget, ("silo", *names), unit, max_syncs, max_bits)


def _under(env: Environment, dropouts: Any, delay: Any) -> Environment:
    """The environment under these conditions."""
    if validate.within("dropouts", dropouts, 0, 1) == 1:
        raise ValueError(f"dropouts must be below 1, got {dropouts}")
    validate.integer("delay", delay, at_least=0, at_most=10**4)
    env = envs.dropout(env, dropouts) if dropouts else env
    return envs.delay(env, delay) if delay else env


def _lying(liars: Any, spec: Spec) -> float:
    """The share of silos that lie, checked."""
    share = validate.within("liars", liars, 0, 0.5)
    if share == 0:
        return 0.0
    lying = round(share * spec.n_agents)
    if not 0 < 2 * lying < spec.n_agents:
        raise ValueError(f"liars must be at least one and fewer than half of {spec.n_agents} silos, or 0, got {liars}")
    if spec.drops:
        raise ValueError(f"liars must be 0 where silos drop out, as a median needs all of them, got {liars}")
    return share


def _row(one: Candidate, base: float, horizon: int) -> tuple[str, ...]:
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


def code(value: Any, indent: str = "") -> str:
    """An expression that makes an equal recipe, budget, schedule or plain value, without its default arguments.

    Args:
        value: a dataclass of a public room of the package, whose parts are such dataclasses or plain values.
        indent: what its lines after the first begin with.

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
