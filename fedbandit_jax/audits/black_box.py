"""A black-box audit: runs a mechanism on two neighbours many times and tries to tell them apart.

One half of the runs chooses a linear statistic of the view and a threshold, the other half shows a lower bound of
epsilon. A bound above the claim refutes it at the stated confidence, for each mechanism separately: with n mechanisms
a false alarm has probability up to n (1 - confidence). A bound below the claim proves nothing.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.audits._distinguish import discriminant, epsilon_bound, mu_bound
from fedbandit_jax.core import random, validate
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.report.audit import Audit

MAX_COORDINATES = 1000  # most numbers in a view, whose covariance is factorised on the host
_CHUNK, _CHUNK_NUMBERS = 4096, 2**20  # most runs at a time, and most numbers in their data and views, to save memory
_REPLAYS = 8  # pairs of runs with equal keys whose difference is measured


def audit(
    mechanism: Callable[[Array, Any], Any],
    data: Any,
    neighbour: Any,
    *,
    epsilon: float,
    delta: float,
    key: Array,
    n_runs: int = 100_000,
    confidence: float = 0.95,
    gaussian: bool = False,
    fixed_control_flow: bool = False,
    sensitivity: float | None = None,
    measure: Callable[[Any, Any], Any] | None = None,
    name: str = "mechanism",
) -> Audit:
    """Tries to refute that `mechanism` is (epsilon, delta)-DP on a pair of neighbouring data sets.

    Args:
        mechanism: `(key, data) -> view`, where the view is everything that the adversary sees. Floating-point leaves
            are taken for numbers, integer and boolean leaves for control flow, such as when it synchronised. All
            randomness must come from the key.
        data, neighbour: the two data sets, pytrees of equal shapes.
        epsilon, delta: the claim; delta = 0 is pure DP.
        key: randomness of the audit.
        n_runs: number of runs per side.
        confidence: a true claim passes with at least this probability.
        gaussian: promise that the view is Gaussian with a covariance that does not depend on the data; mu is then
            bounded as well.
        fixed_control_flow: the claim includes that no integer or boolean of the view depends on the data.
        sensitivity: the declared sensitivity, to be compared with what `measure` finds; it needs a `measure`.
        measure: `(view, other) -> float`, the size of the difference of two views under equal keys, in the units of
            `sensitivity`.
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
    epsilon, delta = validate.positive("epsilon", epsilon), validate.within("delta", delta, 0, 1)
    confidence, key = validate.probability("confidence", confidence), random.check_key("key", key)
    if validate.boolean("gaussian", gaussian):
        validate.probability("delta", delta)
    half = validate.integer("n_runs", n_runs, at_least=1000) // 2
    if not callable(mechanism) or not (measure is None or callable(measure)):
        raise TypeError(f"mechanism and measure must be functions, got {mechanism!r} and {measure!r}")
    if sensitivity is not None:
        sensitivity = validate.positive("sensitivity", sensitivity)
        if measure is None:
            raise ValueError(f"sensitivity must come with a measure, got {sensitivity:g} and none")
    both = {"data": data, "neighbour": neighbour}
    sides = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.result_type(leaf)), both)  # Python numbers: float32, int32
    shapes, others = jax.eval_shape(lambda: sides).values()
    if shapes != others:
        raise ValueError(f"neighbour must have the shapes of data, {shapes}, got {others}")
    numbers = _n_coordinates(mechanism, key, sides["data"]) + sum(leaf.size for leaf in jax.tree.leaves(shapes))
    chunk = min(max(_CHUNK_NUMBERS // numbers, _REPLAYS), _CHUNK, half)

    def replay(side: str) -> Any:
        stream = random.stream(key, "replay")
        return jax.tree.map(np.asarray, _run(mechanism, chunk, stream, sides[side], np.uint32(0)))

    def runs(side: str, first: int) -> Iterator[np.ndarray]:
        for done in range(0, half, chunk):
            view = _run(mechanism, chunk, random.stream(key, side), sides[side], np.uint32(first + done))
            yield _flatten(view, side)[: half - done]

    one, again, other = map(replay, ("data", "data", "neighbour"))
    same = jax.tree.map(lambda a, b: jnp.issubdtype(a.dtype, jnp.floating) or np.array_equal(a, b), one, other)
    pairs = [jax.tree.map(lambda leaf, i=i: leaf[i], (one, other)) for i in range(_REPLAYS)]
    measured = None if measure is None else float(np.max([float(measure(*pair)) for pair in pairs]))

    views = [np.concatenate(list(runs(side, 0))) for side in sides]
    origin, weights = discriminant(*views)

    def statistic(blocks: Iterable[np.ndarray]) -> np.ndarray:  # rounded, so that equal views stay equal
        return np.concatenate([((block - origin) @ weights).astype(np.float32) for block in blocks])

    chosen = [statistic(np.array_split(v, -(-half // chunk))) for v in views]
    tested = [statistic(runs(side, half)) for side in sides]
    alpha = (1 - confidence) / (4 if gaussian else 2)  # Bonferroni: two rates at each threshold
    epsilon_cp, threshold = epsilon_bound(chosen, tested, alpha, delta)
    epsilon_lower, bound, mu_lower = epsilon_cp, "Clopper-Pearson", None
    if gaussian:
        mu_lower, its_threshold = mu_bound(chosen, tested, alpha)
        if gaussian_epsilon(mu_lower, delta) > epsilon_cp:
            epsilon_lower, bound, threshold = gaussian_epsilon(mu_lower, delta), "Gaussian DP", its_threshold
    low, high = np.quantile(np.stack(tested), (0.0005, 0.9995))
    edges = np.linspace(min(low, threshold) - 0.1, max(high, threshold) + 0.1, 81)
    return Audit(
        name=name,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        epsilon_lower=epsilon_lower,
        bound=bound,
        epsilon_cp=epsilon_cp,
        mu_lower=mu_lower,
        sensitivity=sensitivity,
        sensitivity_measured=measured,
        fixed_control_flow=validate.boolean("fixed_control_flow", fixed_control_flow),
        same_control_flow=jax.tree.all(same),
        deterministic=jax.tree.all(jax.tree.map(np.array_equal, one, again)),
        n_runs=2 * half,
        seconds=time.perf_counter() - start,
        threshold=threshold,
        edges=edges,
        counts=np.stack([np.histogram(np.clip(t, edges[0], edges[-1]), edges)[0] for t in tested]),
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(mechanism: Callable, chunk: int, key: Array, data: Any, first: Array) -> Any:
    """Returns the views of runs first .. first + chunk - 1; data is an argument, so neighbours share the program."""
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(first + jnp.arange(chunk, dtype=jnp.uint32))
    return jax.vmap(mechanism, (0, None))(keys, data)


def _n_coordinates(mechanism: Callable, key: Array, data: Any) -> int:
    """Returns how many numbers a view has, after checking that it can be audited."""
    leaves = jax.tree.leaves(jax.eval_shape(mechanism, key, data))
    for leaf in leaves:
        if not any(jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            raise ValueError(f"mechanism must return floating-point numbers, integers or booleans, got {leaf.dtype}")
    size = sum(leaf.size for leaf in leaves)
    if not 1 <= size <= MAX_COORDINATES:
        raise ValueError(f"mechanism must return 1 to {MAX_COORDINATES} numbers per run, got {size}")
    return size


def _flatten(view: Any, side: str) -> np.ndarray:
    """Returns the views of several runs as float32 rows, after checking that they are finite."""
    leaves = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(view)]
    rows = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1)
    if not np.isfinite(rows).all():
        bad = tuple(np.argwhere(~np.isfinite(rows))[0])
        raise ValueError(f"mechanism must return finite numbers, got {rows[bad]} at coordinate {bad[1]} on {side}")
    return rows
