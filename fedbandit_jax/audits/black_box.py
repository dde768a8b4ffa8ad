"""A black-box audit, which tries to tell neighbouring data sets apart by many runs of a mechanism.

Some runs choose a test, the others give a lower bound on epsilon. A bound above the claim refutes it at the stated
confidence. This holds for each mechanism separately. With n of them a false alarm has probability up to n (1 -
confidence). A bound below the claim proves nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.audits.bounds import Event, Scheduled, choose, epsilon_bound, mean_bound, middle, mu_bound, show
from fedbandit_jax.audits.runs import REPLAYS, SIDES, Runs, control_flow, flatten, pairs_of
from fedbandit_jax.audits.statistics import NAMES, Panel
from fedbandit_jax.core import random, validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.report.findings import Audit

CHOOSING = 2**16  # most runs per side that choose the test
LENIENT = 0.1  # level of the bounds that choose a pair and a statistic
CLEARLY = 1.1  # factor by which a later pair or statistic must exceed the best so far, against chance
GROUPS = 8  # of replayed runs, for the error of their mean


class Examined(NamedTuple):
    """The chosen test, and the epsilon that it showed on the runs that chose it."""

    shown: float
    panel: Panel
    statistic: str
    event: Event
    centre: Event | None  # the event that bounds mu of Gaussian views better than their means; None: the means do
    schedule: Scheduled | None

    def columns(self, rows: np.ndarray) -> list[np.ndarray]:
        """Returns columns (n,) of views (n, d): the statistic, then control flow and discriminant, if scheduled."""
        beside = self.schedule.columns(rows) if self.schedule else [self.panel("linear", rows)]
        return [self.panel(self.statistic, rows), *beside]


def audit(
    mechanism: Callable[[Array, Any], Any],
    data: Any,
    neighbour: Any,
    *,
    epsilon: float,
    delta: float,
    key: Array,
    which: str = "as given",
    others: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
    n_runs: int = 100_000,
    confidence: float = 0.95,
    gaussian: bool = False,
    scheduled: bool = False,
    fixed_control_flow: bool = False,
    sensitivity: float | None = None,
    measure: Callable[[Any, Any], Any] | None = None,
    name: str = "mechanism",
) -> Audit:
    """Tries to refute that `mechanism` is (epsilon, delta)-DP on pairs of neighbouring data sets.

    Some runs choose the best pair, others the statistic of `statistics.NAMES` and a threshold. At least half of all
    runs test it. So for any number of pairs and statistics, one event is tested. Its runs are independent of its
    choice.

    Args:
        mechanism: `(key, data) -> view`, where the view is everything that the adversary sees. Floating-point leaves
            are read as 32-bit numbers, integer and boolean leaves as control flow, such as synchronisation times.
            Integers must be within 2^24 of 0. All randomness must come from the key. Mechanisms that are pytrees of one
            structure share a program.
        data, neighbour: the two data sets, pytrees of equal shapes.
        epsilon, delta: the claim; delta = 0 is pure DP.
        key: randomness of the audit.
        which: difference between `data` and `neighbour` in words, for reports.
        others: further pairs of neighbours of the same shapes, by their difference.
        n_runs: number of runs per side.
        confidence: a true claim passes with at least this probability.
        gaussian: promise that the view is Gaussian with a covariance independent of the data. Then mu is bounded too.
        scheduled: promise that the claim composes a pure DP control flow and numbers that are Gaussian given it, as
            `fb.privacy.gaussian_epsilon` with `pure` does. Both are then bounded separately too, and composed.
        fixed_control_flow: the claim includes that no integer or boolean of the view depends on the data.
        sensitivity: the declared sensitivity, compared with the result of `measure`, which it requires.
        measure: `(view, other) -> float`, the size of the difference of two views, in the units of `sensitivity`. It
            gets means of many runs with equal keys. So rounding after the noise does not look like sensitivity.
        name: name of the mechanism in reports.

    Returns:
        An `Audit`; print it, or several as a `report.findings.table`.

    Example:
        >>> def laplace(key, data):  # 1-DP if neighbours differ by 1
        ...     return data + jax.random.laplace(key)
        >>> claims = [{"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 0.5, "delta": 1e-6}]
        >>> [audit(laplace, 0.0, 1.0, key=jax.random.key(0), n_runs=20_000, **claim).passed for claim in claims]
        [True, False]

    Reference: Jagielski, Ullman & Oprea (2020); Nasr et al. (2023) for the Gaussian bound.
    """
    start = time.perf_counter()
    validate.text("name", name)
    epsilon, delta = validate.positive("epsilon", epsilon), validate.within("delta", delta, 0, 1)
    confidence, key = validate.probability("confidence", confidence), random.check_key(key)
    if validate.boolean("gaussian", gaussian) | validate.boolean("scheduled", scheduled):
        validate.probability("delta", delta)
    if gaussian and scheduled:
        raise BadValue(("gaussian", "scheduled"), "must not both be promised", None, got="True and True")
    choosing = min(validate.integer("n_runs", n_runs, at_least=1000) // 2, CHOOSING)
    fixed_control_flow = validate.boolean("fixed_control_flow", fixed_control_flow)
    if not callable(mechanism) or not (measure is None or callable(measure)):
        both = f"{validate.shown(mechanism)} and {validate.shown(measure)}"
        raise BadType(("mechanism", "measure"), "must be functions", both, got=both)
    if sensitivity is not None:
        sensitivity = validate.positive("sensitivity", sensitivity)
        if measure is None:
            raise BadValue("sensitivity", "must come with a measure", sensitivity, got=f"{sensitivity:g} and none")
    pairs = pairs_of(data, neighbour, which, others)
    few = max(choosing // len(pairs), 2 * REPLAYS)  # runs for the choice of a pair
    runs = Runs.of(mechanism, pairs, key, n_runs=n_runs, few=few)
    # Both sides of a pair have equal keys here. So their difference is due to the differing user.
    replays = {label: [runs.replay(label, side) for side in (0, 1)] for label in pairs}
    again, claim = runs.replay(which, 0), (delta, gaussian, scheduled)
    flow = control_flow(again)
    alike = {}  # which runs of a pair have equal control flow
    for label, pair in replays.items():
        one, other = (flatten(view, side)[:, flow] for view, side in zip(pair, SIDES))
        alike[label] = (one == other).all(1)
    best, label = 0.0, which
    for candidate in pairs:
        x, y = (runs.views("choose", candidate, side, few) for side in (0, 1))
        shown = _choice(x, y, flow, *claim).shown
        if shown > CLEARLY * best:
            best, label = shown, candidate
    x, y = (runs.views("fit", label, side, choosing // 2) for side in (0, 1))
    choice = _choice(x, y, flow, *claim)

    def tested(side: int) -> list[np.ndarray]:
        found = map(choice.columns, runs.rows("test", label, side, n_runs - choosing))
        return [np.concatenate(column)[: n_runs - choosing] for column in zip(*found)]

    measured = [label for label in pairs if measure is not None and alike[label].any()]
    moved = [_moved(measure, replays[label], np.flatnonzero(alike[label])) for label in measured]
    return Audit(
        name=name,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        **_bounds(choice, tested(0), tested(1), delta, gaussian, 1 - confidence),
        which=label,
        sensitivity=sensitivity,
        sensitivity_measured=None if measure is None else float(np.max(moved)) if moved else math.nan,
        fixed_control_flow=fixed_control_flow,
        same_control_flow=all(one.all() for one in alike.values()),
        deterministic=jax.tree.all(jax.tree.map(np.array_equal, replays[which][0], again)),
        n_runs=n_runs,
        seconds=time.perf_counter() - start,
    )


def _choice(x: np.ndarray, y: np.ndarray, flow: np.ndarray, delta: float, gaussian: bool, scheduled: bool) -> Examined:
    """Fits statistics to half of the views, and finds the best one and its event by the other half."""
    panel = Panel(x[::2], y[::2], flow)
    given, others = panel.all(x[1::2]), panel.all(y[1::2])
    found = {name: choose(epsilon_bound(delta), given[name], others[name], LENIENT) for name in NAMES}
    best = NAMES[0]
    for name in NAMES:
        if found[name][0] > CLEARLY * found[best][0]:
            best = name
    (shown, event), centre = found[best], None
    if gaussian:
        linear = given["linear"], others["linear"]
        by_rates, by_means = show(mu_bound, *linear, middle(*linear), LENIENT / 2), mean_bound(*linear, LENIENT)
        centre = middle(*linear) if by_rates > by_means else None
        shown = max(shown, gaussian_epsilon(max(by_rates, by_means), delta))
    schedule = Scheduled.choose(panel.flow, x[1::2], y[1::2], LENIENT) if scheduled else None
    if schedule:
        pure, mu = schedule.shown(schedule.columns(x[1::2]), schedule.columns(y[1::2]), LENIENT)
        shown = max(shown, gaussian_epsilon(mu, delta, pure) if mu > 0 else pure)
    return Examined(shown, panel, best, event, centre, schedule)


def _bounds(
    choice: Examined, x: list[np.ndarray], y: list[np.ndarray], delta: float, gaussian: bool, alpha: float
) -> dict[str, Any]:
    """Computes the lower bounds of an `Audit` from `Examined.columns` of both sides; they fail with `alpha`."""
    centre, schedule, statistic = choice.centre, choice.schedule, choice.statistic
    alpha = alpha / (6 if schedule else 4 if gaussian else 2)  # Bonferroni: two rates for each bound
    epsilon_cp, mu_lower = show(epsilon_bound(delta), x[0], y[0], choice.event, alpha), None
    epsilon_lower, by = epsilon_cp, "Clopper-Pearson"
    if schedule:
        pure, mu_lower = schedule.shown(x[1:], y[1:], alpha)
        together = gaussian_epsilon(mu_lower, delta, pure) if mu_lower > 0 else pure
        if together > epsilon_cp:
            epsilon_lower, by, statistic = together, "schedule + Gaussian DP", "control flow"
    if gaussian:
        mu_lower = show(mu_bound, x[1], y[1], centre, alpha) if centre else mean_bound(x[1], y[1], 2 * alpha)
        if gaussian_epsilon(mu_lower, delta) > epsilon_cp:
            epsilon_lower, by, statistic = gaussian_epsilon(mu_lower, delta), "Gaussian DP", "linear"
    return dict(epsilon_lower=epsilon_lower, bound=by, epsilon_cp=epsilon_cp, mu_lower=mu_lower, statistic=statistic)


def _moved(measure: Any, pair: Any, alike: np.ndarray) -> float:
    """Lower-bounds the size of the difference of a pair's mean views, from the runs `alike` in control flow.

    Equal noise cancels. Rounding after the noise moves single runs by more, but not their mean. So five standard
    errors, and the upward bias of the size, are subtracted. Both are 0 if all runs differ alike. Means of groups of
    runs have `GROUPS` times this bias.
    """

    def size(runs: np.ndarray) -> float:
        def mean(leaf: np.ndarray) -> np.ndarray:
            floating = jnp.issubdtype(leaf.dtype, jnp.floating)
            return leaf[runs].mean(0, dtype=float) if floating else leaf[runs[0]]

        return float(measure(*jax.tree.map(mean, pair)))

    whole = size(alike)
    if len(alike) < 2 * GROUPS:
        return whole
    groups = np.array([size(runs) for runs in np.array_split(alike, GROUPS)])
    excess = max(groups.mean() - whole, 0.0) / (GROUPS - 1)
    return max(whole - excess - 5 * groups.std() / math.sqrt(GROUPS - 1), 0.0)
