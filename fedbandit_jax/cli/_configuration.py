"""A sweep as a TOML file. Its tables with a `type` are calls, see `_calls`.

horizon = 1000                    what `fb.sweep` takes: horizon, seeds, key, stride, grid
seeds = 8                         or { from = 100, to = 200 }, or a list
compare = ["ours"]                labels of the algorithms to run (default: all)
[environment]                     one environment, with parameters that the grid may name; or several:
type = "sphere"                   [environments.small], [environments.large]; "table" is `fb.data.table` of a log
[algorithms.ours]                 the algorithm with the label "ours"
type = "private_fed_lin_ucb"
policy.exploration_scale = 0.3    parameters of its parts, by paths as in `Algorithm.replace`
privacy = { type = "Budget", epsilon = 1, delta = 1e-3 }
[environment.returning]           returning users: arguments of `fb.envs.returning`
n_users = 100                     [algorithms.ours.privacy.unit] then is the privacy unit, "visit" or `Users`
[environment.drift]               likewise any of `fb.envs.WRAPPERS`; later ones wrap earlier ones
[slurm]                           only for the executor of that name, see `engine.executors`
"""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit_jax.cli import _calls
from fedbandit_jax.cli._calls import ConfigurationError
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

OPTIONS = ("horizon", "seeds", "key", "stride", "grid")  # arguments of `fb.sweep` at the top of a file
TABLES = ("environment", "environments", "algorithms", "compare", "slurm")
NEEDED = ("horizon", "seeds", "algorithms")
TOP = "at the top"
TEXT = re.compile(r"[^\s\"'\[\]{}=#][^\n\"'\[\]{}=#]*")  # a string without quotes in --set


class SweepFile(NamedTuple):
    """Arguments read from a sweep file."""

    arguments: dict[str, Any]  # of `fb.sweep`
    slurm: dict[str, Any]
    world: functools.partial[Any] | None  # makes the only environment
    record: dict[str, Any]  # file, text and changes, for the provenance

    def located(self, error: Exception) -> ConfigurationError:
        """Returns an error of `fb.sweep` with its place in the file, if known."""
        return _located(error, self.arguments["grid"], self.record["file"])


def read(path: Path, changes: Sequence[str] = (), environment: str | None = None) -> SweepFile:
    """Reads the file of a sweep.

    Args:
        path: the file.
        changes: KEY=VALUE in TOML, such as "horizon=1000" or "grid.epsilon=[1, 5]", which replace values of the file.
            Other keys are parameters of the environment, or else of all algorithms that have them.
        environment: name of the [environments.NAME] to use as [environment]; "" is the first; None keeps all.

    Raises:
        ConfigurationError: the file is wrong; the message names the place.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError("", f"it cannot be read: {error.strerror}", str(path)) from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or deeply nested
        raise ConfigurationError("", f"it must be TOML: {error}", str(path)) from error
    if environment is not None and "environments" in document:
        several = document.pop("environments")
        document["environment"] = several[validate.one_of("env", environment or next(iter(several)), several)]
    before = dict(_calls.dotted(document.get("grid", {}))) if isinstance(document.get("grid", {}), dict) else {}
    for change in changes:
        _change(document, change)
    try:
        arguments, slurm, world = _arguments(document, before)
    except ConfigurationError as error:
        raise ConfigurationError(error.place, error.problem, str(path), error.key) from error
    return SweepFile(arguments, slurm, world, {"file": str(path), "text": text, "set": list(changes)})


def _change(document: dict[str, Any], change: str) -> None:
    wanted = f"set must be KEY=VALUE with a value of TOML, got {validate.shown(change)}"
    key, equals, text = change.partition("=")
    try:
        keys = list(_keys(tomllib.loads(f"{key}=0")))
        try:
            found = tomllib.loads(f"value={text}")
        except tomllib.TOMLDecodeError:
            if not TEXT.fullmatch(text.strip()):
                raise
            found = {"value": text.strip()}
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{wanted}: {error}") from error
    if not equals or len(found) > 1:
        raise ValueError(wanted)
    value = found["value"]
    if keys[0] not in (*OPTIONS, *TABLES):
        keys, value = _parameter(document, ".".join(keys), value)
    *tables, last = keys
    for i, name in enumerate(tables):
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            table = f"{'.'.join(tables[: i + 1])} is {validate.shown(document)}"
            raise BadValue("set", "must name a key of a table", change, got=f"{validate.shown(change)}: {table}")
    document[last] = value


def _parameter(document: Mapping[str, Any], path: str, value: Any) -> tuple[list[str], Any]:
    """Returns the place in a file of a parameter, and the value to write there."""
    world, bare = document.get("environment"), path.removeprefix("env.")
    make = _calls.environments().get(world.get("type", "")) if isinstance(world, dict) else None
    if make and (bare != path or bare in inspect.signature(make).parameters):
        return ["environment", bare], value
    return ["grid", path], [value]


def _keys(nested: Any) -> Iterator[str]:
    while isinstance(nested, dict) and nested:
        (name, nested), *_ = nested.items()
        yield name


def _arguments(
    document: Mapping[str, Any], before: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], functools.partial[Any] | None]:
    """Returns arguments of `fb.sweep`, options of SLURM, and the call that makes the only environment.

    The grid `before` changes may name parameters of algorithms that are not compared.
    """
    import jax

    from fedbandit_jax.engine.prepare import expand

    _calls.known(TOP, document, (*OPTIONS, *TABLES), "keys of a sweep")
    missing = [name for name in NEEDED if name not in document]
    if missing:
        raise ConfigurationError(TOP, f"{' and '.join(missing)} must be given, got {', '.join(document) or 'nothing'}")
    if ("environment" in document) == ("environments" in document):
        got = "both" if "environment" in document else "neither"
        raise ConfigurationError(TOP, f"one of [environment] and [environments.NAME] must be given, got {got}")
    grid = dict(_calls.dotted(_calls.as_table("grid", document.get("grid", {}))))
    tables = _calls.as_table("algorithms", document["algorithms"])
    if "" in tables:
        raise ConfigurationError("[algorithms]", "labels must have at least one character, got ''")
    every = {label: _calls.algorithm(f"algorithms.{label}", table) for label, table in tables.items()}
    algos = {label: every[label] for label in _compared(tables, document.get("compare"))}
    make = _calls.world("environment", document["environment"], grid) if "environment" in document else None
    parameters = inspect.signature(make).parameters if make else {}
    values = {}
    for name, listed in grid.items():
        idle = not _taken(name, parameters, algos) and _taken(name, parameters, every)
        if not (idle and before.get(name) is listed):
            values[name] = _calls.built(f"grid.{name}", listed)
    if make:
        varied = any(name.removeprefix("env.") in parameters for name in values)
        env = make if varied else _calls.made("environment", make)
    else:
        env = {}
        for name, one in _calls.as_table("environments", document["environments"]).items():
            env[name] = _calls.made(f"environments.{name}", _calls.world(f"environments.{name}", one))
    try:
        expand(env, algos, values)
        key = validate.integer("key", document.get("key", 0), at_least=0, at_most=2**32 - 1)
        seeds = _seeds(document["seeds"])
    except (TypeError, ValueError) as error:
        raise _located(error, values) from error
    options = {name: document[name] for name in ("horizon", "stride") if name in document}
    arguments = dict(env=env, algos=algos, grid=values, key=jax.random.key(key), seeds=seeds, **options)
    return arguments, _calls.as_table("slurm", document.get("slurm", {})), make


def _located(error: Exception, grid: Collection[str], file: str = "") -> ConfigurationError:
    word = re.split(r"\W", str(error), maxsplit=1)[0]
    places = {"slurm": "[slurm]", "unit": "[algorithms]"} | dict.fromkeys(OPTIONS, TOP)
    places |= dict.fromkeys((*(end for name in grid for end in (name, name.rpartition(".")[2])), "grid"), "[grid]")
    table, value = places.get(word, ""), getattr(error, "value", None)
    key = value if word == "grid" and isinstance(value, str) else ""
    return ConfigurationError(table, str(error), file if table else "", key)


def _taken(name: str, parameters: Collection[str], algos: Mapping[str, Any]) -> bool:
    """Returns whether the environment or one of these algorithms has a parameter of the grid."""
    try:
        return name.removeprefix("env.") in parameters or any(
            algo.takes(name.removeprefix("algo.")) for algo in algos.values()
        )
    except TypeError as error:  # a parameter of several parts
        raise ConfigurationError("[grid]", str(error)) from error


def _compared(tables: Collection[str], labels: Any) -> Sequence[str]:
    """Returns labels of the compared algorithms, by default all."""
    labels = list(tables) if labels is None else labels
    if not isinstance(labels, list) or not labels or len({*map(str, labels)}) < len(labels):
        got = validate.shown(labels)
        raise ConfigurationError(TOP, f"compare must be a list of at least one label, each only once, got {got}")
    for label in labels:
        if label not in tables:
            there = "; ".join(filter(None, tables))
            got = f"{validate.shown(label)}{validate.suggestion(label, tables)}"
            raise ConfigurationError(TOP, f"compare must name some of {there}, got {got}")
    return labels


def _seeds(seeds: Any) -> Any:
    if not isinstance(seeds, dict):
        return seeds
    if set(seeds) != {"from", "to"}:
        raise BadValue("seeds", "must be a number, a list, or a table of from and to", seeds)
    first = validate.integer("seeds.from", seeds["from"], at_least=0, at_most=2**32 - 1)
    return range(first, validate.integer("seeds.to", seeds["to"], at_least=first + 1, at_most=2**32))
