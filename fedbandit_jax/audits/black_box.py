"""A black-box audit: runs a mechanism on neighbouring data sets many times and tries to tell them apart.

Some runs choose what to look at, the others show a lower bound of epsilon. A bound above the claim refutes it at the
stated confidence, for each mechanism separately: with n mechanisms a false alarm has probability up to
n (1 - confidence). A bound below the claim proves nothing.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.audits.statistics import (
    NAMES,
    Event,
    Panel,
    Scheduled,
    choose,
    epsilon_bound,
    mean_bound,
    middle,
    mu_bound,
    show,
)
from fedbandit_jax.core import backend, random, validate
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.report.findings import Audit

MAX_COORDINATES = 1000  # most numbers in a view, whose covariance is factorised on the host
EXACT = 2**24  # up to which float32 has all integers
SIDES = ("data", "neighbour")
_CHUNK, _CHUNK_NUMBERS = 1024, 2**20  # most runs at a time, and most numbers in their data and views, to save memory
_BRIEF = 10_000  # runs for which a program need not be fast
_CHOOSING = 2**16  # most runs per side that choose what is tested
_LENIENT = 0.1  # level of the bounds that a pair and a statistic are chosen by
_CLEARLY = 1.1  # by what factor a later pair or statistic must show more than the best so far, lest chance prefer it
_REPLAYS = 8  # fewest pairs of runs with equal keys whose difference is measured
_GROUPS = 8  # of these runs, by which the error of their mean is known


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

    Some runs choose the pair that shows most, others the statistic of `statistics.NAMES` and a threshold, and half of
    them or more show a bound. So however many pairs and statistics there are, one event is tested, on runs that had no
    part in choosing it.

    Args:
        mechanism: `(key, data) -> view`, where the view is everything that the adversary sees. Floating-point leaves
            are taken for numbers of 32 bits, integer and boolean leaves for control flow, such as when it synchronised.
            Integers must be within 2^24 of 0. All randomness must come from the key. A mechanism that is a pytree
            shares its program with others like it.
        data, neighbour: the two data sets, pytrees of equal shapes.
        epsilon, delta: the claim; delta = 0 is pure DP.
        key: randomness of the audit.
        which: what differs between `data` and `neighbour`, in words, for reports.
        others: further pairs of neighbours of the same shapes, by what differs.
        n_runs: number of runs per side.
        confidence: a true claim passes with at least this probability.
        gaussian: promise that the view is Gaussian with a covariance that does not depend on the data; mu is then
            bounded as well.
        scheduled: promise that the claim composes a pure DP control flow and numbers that are Gaussian given it, as
            `fb.privacy.gaussian_epsilon` with `pure` does; both are then bounded apart as well, and composed.
        fixed_control_flow: the claim includes that no integer or boolean of the view depends on the data.
        sensitivity: the declared sensitivity, to be compared with what `measure` finds; it needs a `measure`.
        measure: `(view, other) -> float`, the size of the difference of two views, in the units of `sensitivity`. It is
            given means of many runs with equal keys, lest what rounds a noisy release look like more sensitivity.
        name: name of the mechanism in reports.

    Returns:
        An `Audit`; print it, or several as a `table`, or draw them with `fb.plotting.audits`.

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it and its value.

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
    confidence, key = validate.probability("confidence", confidence), random.check_key("key", key)
    if validate.boolean("gaussian", gaussian) | validate.boolean("scheduled", scheduled):
        validate.probability("delta", delta)
    if gaussian and scheduled:
        raise ValueError("gaussian and scheduled must not both be promised, got True and True")
    choosing = min(validate.integer("n_runs", n_runs, at_least=1000) // 2, _CHOOSING)
    testing = n_runs - choosing
    fixed_control_flow = validate.boolean("fixed_control_flow", fixed_control_flow)
    if not callable(mechanism) or not (measure is None or callable(measure)):
        both = f"{validate.shown(mechanism)} and {validate.shown(measure)}"
        raise TypeError(f"mechanism and measure must be functions, got {both}")
    if sensitivity is not None:
        sensitivity = validate.positive("sensitivity", sensitivity)
        if measure is None:
            raise ValueError(f"sensitivity must come with a measure, got {sensitivity:g} and none")
    pairs = _pairs(data, neighbour, which, others)
    shapes = jax.eval_shape(lambda: pairs[which][0])
    numbers = _n_coordinates(mechanism, key, pairs[which][0]) + sum(leaf.size for leaf in jax.tree.leaves(shapes))
    few = max(choosing // len(pairs), 2 * _REPLAYS)  # runs that a pair is chosen by
    chunk = min(max(_CHUNK_NUMBERS // numbers, _REPLAYS), _CHUNK, 2 ** (few.bit_length() - 1))  # few programs
    run = _program(n_runs <= _BRIEF)
    program = mechanism if not jax.tree_util.all_leaves([mechanism]) else jax.tree_util.Partial(mechanism)

    def runs(stream: str, label: str, side: int, n: int) -> Iterator[Any]:
        for first in range(0, n, chunk):
            yield run(program, chunk, random.stream(key, stream), pairs[label][side], np.uint32(first))

    def views(stream: str, label: str, side: int, n: int) -> np.ndarray:
        return np.concatenate([_flatten(view, SIDES[side]) for view in runs(stream, label, side, n)])[:n]

    # Both sides of a pair have the same keys here, so that their difference is what one user moves.
    replays = {label: [_host(next(runs("choose", label, side, 1))) for side in (0, 1)] for label in pairs}
    again = _host(next(runs("choose", which, 0, 1)))
    flow = _control_flow(again)
    best, label = 0.0, which
    for candidate in pairs:
        x, y = (views("choose", candidate, side, few) for side in (0, 1))
        shown, *_ = _compare(x, y, flow, delta, gaussian, scheduled)
        if shown > _CLEARLY * best:
            best, label = shown, candidate
    x, y = (views("fit", label, side, choosing // 2) for side in (0, 1))
    _, panel, statistic, event, schedule = _compare(x, y, flow, delta, gaussian, scheduled)
    linear_x, linear_y = panel("linear", x), panel("linear", y)
    by_mu = _mu_by_rates(linear_x, linear_y, _LENIENT) > mean_bound(linear_x, linear_y, _LENIENT)
    centre = middle(linear_x, linear_y)

    def tests(side: int) -> list[np.ndarray]:
        rows = (_flatten(view, SIDES[side]) for view in runs("test", label, side, testing))
        beside = schedule.columns if schedule else lambda block: [panel("linear", block)]
        found = [[panel(statistic, block), *beside(block)] for block in rows]
        return [np.concatenate(one)[:testing] for one in zip(*found)]

    (x, *beside_x), (y, *beside_y) = map(tests, (0, 1))
    alpha = (1 - confidence) / (6 if schedule else 4 if gaussian else 2)  # Bonferroni: two rates for each of the bounds
    epsilon_cp, mu_lower = show(epsilon_bound(delta), x, y, event, alpha), None
    epsilon_lower, by = epsilon_cp, "Clopper-Pearson"
    if schedule:
        pure, mu_lower = schedule.shown(beside_x, beside_y, alpha)
        together = gaussian_epsilon(mu_lower, delta, pure) if mu_lower > 0 else pure
        if together > epsilon_cp:
            epsilon_lower, by, statistic = together, "schedule + Gaussian DP", "control flow"
    if gaussian:
        mu_lower = mean_bound(beside_x[0], beside_y[0], 2 * alpha)
        if by_mu:
            mu_lower = show(mu_bound, beside_x[0], beside_y[0], centre, alpha)
        if gaussian_epsilon(mu_lower, delta) > epsilon_cp:
            epsilon_lower, by, statistic = gaussian_epsilon(mu_lower, delta), "Gaussian DP", "linear"
    same = [[_same(*leaves) for leaves in zip(*map(jax.tree.leaves, pair))] for pair in replays.values()]
    return Audit(
        name=name,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        epsilon_lower=epsilon_lower,
        bound=by,
        epsilon_cp=epsilon_cp,
        mu_lower=mu_lower,
        which=label,
        statistic=statistic,
        sensitivity=sensitivity,
        sensitivity_measured=None if measure is None else max(_moved(measure, *pair) for pair in replays.values()),
        fixed_control_flow=fixed_control_flow,
        same_control_flow=all(map(all, same)),
        deterministic=jax.tree.all(jax.tree.map(np.array_equal, replays[which][0], again)),
        n_runs=n_runs,
        seconds=time.perf_counter() - start,
    )


def _pairs(data: Any, neighbour: Any, which: str, others: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    validate.text("which", which)
    validate.instance("others", others, Mapping, "a mapping from what differs to a pair of data sets")
    pairs = {which: (_arrays("data", data), _arrays("neighbour", neighbour))}
    for label, pair in others.items():
        if not isinstance(label, str) or label == which or not isinstance(pair, (tuple, list)) or len(pair) != 2:
            got = f"{validate.shown(label)}: {validate.shown(pair)}"
            raise ValueError(f"others must map labels other than {which!r} to pairs of data sets, got {got}")
        pairs[label] = tuple(_arrays(f"others[{label!r}]", side) for side in pair)
    shapes = jax.eval_shape(lambda: pairs[which][0])
    for label, pair in jax.eval_shape(lambda: pairs).items():
        for side, found in zip(SIDES, pair):
            if found != shapes:
                name = "data and neighbour" if label == which else f"{side} of others[{label!r}]"
                raise ValueError(f"{name} must have the shapes {validate.shown(shapes)}, got {validate.shown(found)}")
    return pairs


def _arrays(name: str, tree: Any) -> Any:
    """A pytree of numbers as arrays of the device; Python numbers become float32 and int32."""

    def array(leaf: Any) -> Array:
        with np.errstate(over="ignore"):
            found = jnp.array(leaf, jnp.result_type(leaf))
        if (np.isinf(found) & np.isfinite(np.asarray(leaf))).any():
            raise OverflowError
        return found

    try:
        return jax.tree.map(array, tree)
    except Exception:  # what JAX and NumPy say of a wrong type, a number that is too large, or keys that do not compare
        got = validate.shown(tree)
        raise TypeError(f"{name} must be a pytree of numbers that the device can hold, got {got}") from None


def _compare(
    x: np.ndarray, y: np.ndarray, flow: np.ndarray, delta: float, gaussian: bool, scheduled: bool
) -> tuple[float, Panel, str, Event, Scheduled | None]:
    """Fits statistics to half of the views, and by the other half finds the best: what it shows, its name and event."""
    panel = Panel(x[::2], y[::2], flow)
    given, others = panel.all(x[1::2]), panel.all(y[1::2])
    found = {name: choose(epsilon_bound(delta), given[name], others[name], _LENIENT) for name in NAMES}
    best = NAMES[0]
    for name in NAMES:
        if found[name][0] > _CLEARLY * found[best][0]:
            best = name
    shown, event = found[best]
    if gaussian:
        linear = given["linear"], others["linear"]
        mu = max(_mu_by_rates(*linear, _LENIENT), mean_bound(*linear, _LENIENT))
        shown = max(shown, gaussian_epsilon(mu, delta))
    schedule = Scheduled.choose(panel.flow, x[1::2], y[1::2], _LENIENT) if scheduled else None
    if schedule:
        pure, mu = schedule.shown(schedule.columns(x[1::2]), schedule.columns(y[1::2]), _LENIENT)
        shown = max(shown, gaussian_epsilon(mu, delta, pure) if mu > 0 else pure)
    return shown, panel, best, event, schedule


def _mu_by_rates(x: np.ndarray, y: np.ndarray, alpha: float) -> float:
    return show(mu_bound, x, y, middle(x, y), alpha / 2)


@functools.cache
def _program(brief: bool) -> Callable[..., Any]:
    """The compiled runs of a mechanism, so brief that compiling quickly matters more."""

    def run(mechanism: Any, chunk: int, key: Array, data: Any, first: Array) -> Any:
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(first + jnp.arange(chunk, dtype=jnp.uint32))
        return jax.vmap(mechanism, (0, None))(keys, data)

    return jax.jit(run, static_argnums=1, compiler_options=backend.quick_options(0 if brief else 1))


def _host(view: Any) -> Any:
    return jax.tree.map(np.asarray, view)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return jnp.issubdtype(one.dtype, jnp.floating) or np.array_equal(one, other)


def _control_flow(views: Any) -> np.ndarray:
    """Which columns of `_flatten` are integers or booleans, (d,) bool."""
    leaves = jax.tree.leaves(views)
    return np.concatenate([np.full(leaf[0].size, not jnp.issubdtype(leaf.dtype, jnp.floating)) for leaf in leaves])


def _moved(measure: Callable[[Any, Any], Any], views: Any, others: Any) -> float:
    """A lower bound of the size of the difference of mean views, from runs in which the control flow is the same.

    Where both runs have the same noise, it is that of any two. What rounds after the noise moves single runs by more,
    but not their mean: five standard errors, and what they add to the size, are taken off. Both are 0 if all differ
    alike. Means of groups of runs have this excess `_GROUPS` times.
    """
    pairs = [*zip(*map(jax.tree.leaves, (views, others)))]
    same = [(a == b).reshape(len(a), -1).all(1) for a, b in pairs if not jnp.issubdtype(a.dtype, jnp.floating)]
    alike = np.flatnonzero(np.logical_and.reduce(same)) if same else np.arange(len(pairs[0][0]))
    if not len(alike):
        return 0.0

    def size(runs: np.ndarray) -> float:
        def mean(leaf: np.ndarray) -> np.ndarray:
            floating = jnp.issubdtype(leaf.dtype, jnp.floating)
            return leaf[runs].mean(0, dtype=float) if floating else leaf[runs[0]]

        return float(measure(*jax.tree.map(mean, (views, others))))

    whole = size(alike)
    if len(alike) < 2 * _GROUPS:
        return whole
    groups = np.array([size(runs) for runs in np.array_split(alike, _GROUPS)])
    excess = max(groups.mean() - whole, 0.0) / (_GROUPS - 1)
    return max(whole - excess - 5 * groups.std() / math.sqrt(_GROUPS - 1), 0.0)


def _n_coordinates(mechanism: Callable, key: Array, data: Any) -> int:
    try:
        leaves = jax.tree.leaves(jax.eval_shape(mechanism, key, data))
    except Exception as error:
        why = validate.shown(f"{type(error).__name__}: {error}")
        raise TypeError(f"mechanism must be a function of a key and data, got {why} from it") from error
    for leaf in leaves:
        if not any(jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            raise ValueError(f"mechanism must return floating-point numbers, integers or booleans, got {leaf.dtype}")
    size = sum(leaf.size for leaf in leaves)
    if not 1 <= size <= MAX_COORDINATES:
        raise ValueError(f"mechanism must return 1 to {MAX_COORDINATES} numbers per run, got {size}")
    return size


def _flatten(view: Any, side: str) -> np.ndarray:
    """The views of several runs as float32 rows, which must be finite, and tell all integers apart."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(view)]
    for leaf in leaves:
        if jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.size and (far := max(leaf.max(), -int(leaf.min()))) > EXACT:
            raise ValueError(
                f"mechanism must return integers within 2^24 of 0, such as v >> 16 and v & 0xffff for a larger v, got "
                f"one of size {far} on {side}"
            )
    rows = np.concatenate([leaf.astype(np.float32).reshape(len(leaf), -1) for leaf in leaves], 1)
    if not np.isfinite(rows).all():
        bad = tuple(np.argwhere(~np.isfinite(rows))[0])
        raise ValueError(f"mechanism must return finite numbers, got {rows[bad]} at coordinate {bad[1]} on {side}")
    return rows
