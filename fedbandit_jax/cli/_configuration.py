"""A sweep as a TOML file: every table with a `type` is a call of the function of that name, with the other keys.

horizon = 1000                    what `fb.sweep` takes: horizon, seeds, key, stride, grid
seeds = 8                         or { from = 100, to = 200 }, or a list
[environment]                     one environment, whose parameters the grid may name; or several by name:
type = "sphere"                   [environments.small], [environments.large]
[algorithms.ours]                 the algorithm that is labelled "ours"
type = "private_fed_lin_ucb"
privacy = { type = "Budget", epsilon = 1, delta = 1e-3 }
[slurm]                           only for the executor of that name, see `engine.executors`
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import tomllib
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedbandit_jax.core import validate

OPTIONS = ("horizon", "seeds", "key", "stride", "grid")  # of `fb.sweep` that stand at the top of a file
TABLES = ("environment", "environments", "algorithms", "slurm")
NEEDED = ("horizon", "seeds", "algorithms")
DATA = "data"  # key of an environment: a table that is a data set, whose arrays are arguments of the environment
Types = Mapping[str, Callable[..., Any]]


class SweepFile(NamedTuple):
    """What a file asks for."""

    arguments: dict[str, Any]  # of `fb.sweep`
    slurm: dict[str, Any]
    record: dict[str, Any]  # the name and the text of the file and the changes to it, for the provenance

    def located(self, error: Exception) -> str:
        """Returns the message of an error of `fb.sweep`, with the place in the file that it is about, if known."""
        word = re.split(r"\W", str(error), maxsplit=1)[0]
        places = {"slurm": "[slurm]"} | dict.fromkeys(OPTIONS, "at the top")
        table = (places | dict.fromkeys((*self.arguments["grid"], "grid"), "[grid]")).get(word)
        return f"{self.record['file']}, {table}: {error}" if table else str(error)


def read(path: Path, changes: Sequence[str] = ()) -> SweepFile:
    """Reads a file that says what a sweep runs.

    Args:
        path: the file.
        changes: KEY=VALUE in TOML, such as "horizon=1000" or "grid.epsilon=[1, 5]", which replace what the file says.

    Raises:
        ValueError: the file, or a change, is not TOML, or asks for something that there is not; the message names the
            file, the table and the key, and the nearest name that there is.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise ValueError(f"{path}: it cannot be read: {error.strerror}") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ValueError(f"{path}: it must be TOML: {error}") from error
    for change in changes:
        _change(document, change)
    try:
        arguments, slurm = _arguments(document)
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from error
    return SweepFile(arguments, slurm, {"file": str(path), "text": text, "set": list(changes)})


def _change(document: dict[str, Any], change: str) -> None:
    wanted = f"set must be KEY=VALUE with a value of TOML (a text in quotes), got {validate.shown(change)}"
    key, equals, _ = change.partition("=")
    try:
        keys, value = list(_keys(tomllib.loads(f"{key}=0"))), tomllib.loads(change)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{wanted}: {error}") from error
    for name in keys:
        if not equals or not isinstance(value, dict) or list(value) != [name]:
            raise ValueError(wanted)
        value = value[name]
    *tables, last = keys
    for i, name in enumerate(tables):
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise ValueError(f"set must name a key of a table, got {validate.shown(change)}: "
                             f"{'.'.join(tables[: i + 1])} is {validate.shown(document)}")  # fmt: skip
    document[last] = value


def _keys(nested: Any) -> Iterator[str]:
    while isinstance(nested, dict) and nested:
        (name, nested), *_ = nested.items()
        yield name


def _arguments(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments of `fb.sweep`, and the options of SLURM."""
    import jax

    top = "at the top"
    _known(top, document, (*OPTIONS, *TABLES), "keys of a sweep")
    missing = [name for name in NEEDED if name not in document]
    if missing:
        raise ValueError(f"{top}: {' and '.join(missing)} must be given, got {', '.join(document) or 'nothing'}")
    if ("environment" in document) == ("environments" in document):
        raise ValueError(f"{top}: one of [environment] and [environments.NAME] must be given, got "
                         f"{'both' if 'environment' in document else 'neither'}")  # fmt: skip
    grid = dict(_dotted(_table("grid", document.get("grid", {}))))
    algos = {
        name: _made(f"algorithms.{name}", _call(f"algorithms.{name}", table, _algorithms()))
        for name, table in _table("algorithms", document["algorithms"]).items()
    }
    make = _world("environment", document["environment"], grid) if "environment" in document else None
    parameters = inspect.signature(make).parameters if make else {}
    paths = [path for algo in algos.values() for path in algo.parameters()]
    known = {".".join(path.split(".")[i:]) for path in paths for i in range(path.count(".") + 1)} | {*parameters}
    known |= {f"env.{name}" for name in parameters} | {f"algo.{path}" for path in paths}
    _known("[grid]", grid, known, "parameters of [environment] or of an algorithm")
    values = {
        name: [_value(f"grid.{name}", one) for one in _list("grid", name, listed)] for name, listed in grid.items()
    }
    if make:
        first = {name: listed[0] for name, listed in values.items() if name in parameters}
        single = _made("environment", functools.partial(make, **first))  # in any case, to see that it can be made
        env = make if first else single
    else:
        worlds = {f"environments.{name}": one for name, one in _table("environments", document["environments"]).items()}
        env = {name.partition(".")[2]: _made(name, _world(name, one)) for name, one in worlds.items()}
    try:
        key = int(validate.within("key", document.get("key", 0), 0, 2**32 - 1))
        seeds = _seeds(document["seeds"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{top}: {error}") from error
    options = {name: document[name] for name in ("horizon", "stride") if name in document}
    arguments = dict(env=env, algos=algos, grid=values, key=jax.random.key(key), seeds=seeds, **options)
    return arguments, _table("slurm", document.get("slurm", {}))


def _dotted(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the values of nested tables by dotted path: TOML reads `a.b = 1` as a table a."""
    for name, value in table.items():
        if isinstance(value, dict) and value and "type" not in value:
            yield from ((f"{name}.{path}", one) for path, one in _dotted(value))
        else:
            yield name, value


def _seeds(seeds: Any) -> Any:
    """Returns the seeds in the way that `fb.sweep` takes them."""
    if not isinstance(seeds, dict):
        return seeds
    if set(seeds) != {"from", "to"}:
        raise ValueError(f"seeds must be a number, a list, or a table of from and to, got {validate.shown(seeds)}")
    first = validate.integer("seeds.from", seeds["from"], at_least=0, at_most=2**32 - 1)
    return range(first, validate.integer("seeds.to", seeds["to"], at_least=first + 1, at_most=2**32))


def _world(where: str, table: Any, later: Collection[str] = ()) -> functools.partial[Any]:
    """Returns the call that makes an environment; parameters in `later` need not be given yet."""
    import fedbandit_jax as fb

    table, data = dict(_table(where, table)), {}
    if DATA in table:
        found = _value(f"{where}.{DATA}", _table(f"{where}.{DATA}", table.pop(DATA)))
        if not isinstance(found, (fb.data.Table, fb.data.Community)):
            raise ValueError(f"[{where}]: {DATA} must be a data set, got {validate.shown(found)}")
        data = found.replay_arguments() if isinstance(found, fb.data.Table) else found.arguments()
    return _call(where, table, fb.envs.ENVIRONMENTS, data, later)


def _value(where: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(where, one) for one in value]
    return _made(where, _call(where, value, _parts())) if isinstance(value, dict) else value


def _call(
    where: str, table: Any, types: Types, more: Mapping[str, Any] = MappingProxyType({}), later: Collection[str] = ()
) -> functools.partial[Any]:
    """Returns the call that a table is, with more arguments than it says; those in `later` need not be given yet."""
    given = dict(_table(where, table))
    kind = given.pop("type", None)
    if not isinstance(kind, str) or kind not in types:
        raise ValueError(f"[{where}]: type must be one of {', '.join(types)}, got {validate.shown(kind)}"
                         f"{_near(kind, types)}")  # fmt: skip
    function = types[kind]
    parameters = _parameters(function)
    _known(f"[{where}]", given, parameters, f"parameters of {kind}")
    arguments = {**more} | {name: _value(f"{where}.{name}", value) for name, value in given.items()}
    needed = [one.name for one in parameters.values() if one.default is one.empty]
    if missing := [name for name in needed if name not in arguments and name not in later]:
        got = ", ".join(arguments) or "nothing"
        raise ValueError(f"[{where}]: {' and '.join(missing)} must be given for {kind}, got {got}")
    return functools.partial(function, **arguments)


def _made(where: str, call: Callable[[], Any]) -> Any:
    """Returns what a table makes; an error says which table."""
    try:
        return call()
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise ValueError(f"[{where}]: {error}") from error


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a function by name; if it takes any others, they are those of what it returns."""
    found = dict(inspect.signature(function).parameters)
    if any(one.kind is one.VAR_KEYWORD for one in found.values()):
        found |= inspect.signature(typing.get_type_hints(function)["return"]).parameters
    return {name: one for name, one in found.items() if one.kind is not one.VAR_KEYWORD}


def _algorithms() -> Types:
    from fedbandit_jax.algos import ALGORITHMS

    return {make.__name__: make for make in ALGORITHMS.values()}


def _parts() -> Types:
    from fedbandit_jax import algos, data, networks, privacy, schedules

    parts = (
        *(privacy.Budget, privacy.Mechanism, algos.UCB, algos.LogDetUCB, algos.Thompson, algos.Greedy),
        *(algos.EpsilonGreedy, algos.PhasedElimination),
        privacy.Decaying,
        *(schedules.Every, schedules.Geometric, schedules.LogDet, schedules.PrivateLogDet),
        *(data.classification, data.mslr, data.mslr_arms, data.movielens),
    )
    graphs = {name: functools.partial(networks.make, name) for name in networks.GRAPHS}
    return {part.__name__: part for part in parts} | graphs


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"[{name}]: it must be a table, got {validate.shown(value)}")
    return value


def _list(table: str, name: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"[{table}]: {name} must be a list of at least one value, got {validate.shown(value)}")
    return value


def _known(where: str, given: Collection[str], known: Collection[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{where}: keys must be {what}, got {key!r}"
                             f"{_near(key, known) or ', but they are ' + ', '.join(sorted(known))}")  # fmt: skip


def _near(name: Any, names: Collection[str]) -> str:
    """Returns the end of a sentence that asks whether the nearest name was meant; empty if none is near."""
    near = difflib.get_close_matches(name, names, 1) if isinstance(name, str) else []
    return f": did you mean {near[0]!r}?" if near else ""
