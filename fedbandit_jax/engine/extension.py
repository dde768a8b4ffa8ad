"""`extend` adds seeds to a result, or runs all of it again for more rounds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.engine.grid import Configuration, Environments, expand
from fedbandit_jax.engine.provenance import nameless, versions
from fedbandit_jax.engine.setup import account, numbers
from fedbandit_jax.engine.simulation import raise_if_bad, run
from fedbandit_jax.interfaces import Algorithm
from fedbandit_jax.report.result import Result, concat, difference

ARGUMENTS = {"environments": "env", "algorithms": "algos", "coordinates": "grid"}  # where parts of `config` come from


def extend(
    result: Result,
    env: Environments,
    algos: Algorithm | Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    seeds: int | Sequence[int] | None = None,
    horizon: int | None = None,
    progress: bool | None = None,
    checkpoint: str | Path | None = None,
    throw: bool = True,
) -> Result:
    """Returns a result with more seeds, of which only the new ones are computed, or with more rounds.

    A result holds curves, and no environment or algorithm, so these are given again. That they are those of the result
    is checked by what it says about them: types, parameters, and digests of arrays, but not code of your own. The key
    and the recorded rounds (`stride`) are those of the result.

    Args:
        result: of `simulate`, `sweep`, or some algorithms of one.
        env, algos, grid: what it was computed with; for a result of `simulate`, `algos` is its algorithm.
        seeds: which seeds there shall be, as in `simulate`; those of the result stay, and come first. Default: no more.
        horizon: T, at least that of the result. If it is larger, *all seeds are computed anew, from the first round*.
            A result does not hold the states in which its learners ended, and where noise is calibrated to T (or where
            widths or batches depend on it) a run of more rounds is another algorithm from the first of them. Default:
            no more.
        progress, checkpoint, throw: as in `simulate`.

    Returns:
        A result like `result`, or `result` itself if nothing is missing. The new seeds meet the users and the noise
        that they would have met in one call for all seeds. What they do there may differ by rounding, and by what
        rounding decides, such as ties of arms: another number of seeds side by side is another program.

    Raises:
        ValueError, TypeError: an argument is wrong; seeds would be joined that were computed by other versions or on
            another kind of device; env, algos and grid are not those of the result. The message says which.
        SimulationError: as in `simulate`.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env, algo = fb.envs.gap(4, 5, 3), fb.algos.fed_lin_ucb()
        >>> result = fb.simulate(env, algo, horizon=100, key=jax.random.key(0), seeds=2)
        >>> fb.extend(result, env, algo, seeds=5).seeds
        array([0, 1, 2, 3, 4])
    """
    validate.instance("result", result, Result, "an fb.Result")
    validate.boolean("throw", throw)
    configurations = _configurations(result, env, algos, {} if grid is None else grid)
    if result.records:
        raise ValueError(
            f"result must have no records for seeds or rounds to be added, got {', '.join(result.records)}: run the "
            "other seeds with the same record=, and join the two by fb.concat"
        )
    before = result.config["horizon"]
    rounds = before if horizon is None else validate.integer("horizon", horizon, at_least=before)
    wanted = () if seeds is None else numbers(seeds, len(result.rounds)).tolist()
    lacking = np.setdiff1d(wanted, result.seeds)  # increasing
    new = np.array([seed for seed in wanted if seed in lacking], np.uint32)
    if rounds == before:
        if not len(new):
            return raise_if_bad(result, throw)
        _check_versions(result)
    key = jax.random.wrap_key_data(jnp.array(result.config["key"], jnp.uint32))
    which = new if rounds == before else np.concatenate([result.seeds, new])
    options = dict(horizon=rounds, key=key, seeds=which, stride=result.config["stride"])
    found = run(configurations, progress=progress, checkpoint=checkpoint, **options)
    if result.regret.ndim == 2:
        found = found[result.labels[0]]
    return raise_if_bad(concat([result, found]) if rounds == before else found, throw)


def _configurations(result: Result, env: Any, algos: Any, grid: Any) -> dict[str, Configuration]:
    expanded = expand(env, [algos] if isinstance(algos, Algorithm) else algos, grid)
    for label in result.labels:
        if label not in expanded:
            raise ValueError(f"algos and grid must make {label!r}, which the result has, got {', '.join(expanded)}")
    configurations = {label: expanded[label] for label in result.labels}
    for kind, said in account(configurations).items():
        for label, one in said.items():
            other = result.config[kind][label]
            if _text(one) != _text(other):
                where, given, there = difference(f"{kind}.{label}", one, other)
                raise ValueError(f"{ARGUMENTS[kind]} must be that of the result, got {where} = {given!r}, and the "
                                 f"result has {there!r}")  # fmt: skip
    return configurations


def _text(said: Any) -> str:
    return nameless(json.dumps(said, sort_keys=True))


def _check_versions(result: Result) -> None:
    """Raises a `ValueError` if seeds computed here would not be by the same code as those of the result."""
    here = {**versions(), "platform": jax.devices()[0].platform}
    for name, one in here.items():
        if result.provenance.get(name) != one:
            raise ValueError(
                f"result must be by the {name} that runs here, {one}, for seeds to be added to it, got one by "
                f"{result.provenance.get(name)}: compute all of it again"
            )
