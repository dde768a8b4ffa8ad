"""A sweep as a TOML file. A table with a `type` calls the function of this name, with the other keys as arguments.

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

import contextlib
import dataclasses
import functools
import inspect
import re
import tomllib
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue

OPTIONS = ("horizon", "seeds", "key", "stride", "grid")  # arguments of `fb.sweep` at the top of a file
TABLES = ("environment", "environments", "algorithms", "compare", "slurm")
NEEDED = ("horizon", "seeds", "algorithms")
DATA = "data"  # key of an environment: a data set, with arrays that are arguments of the environment
TEXT = re.compile(r"[^\s\"'\[\]{}=#][^\n\"'\[\]{}=#]*")  # a string without quotes in --set
Types = Mapping[str, Callable[..., Any]]


class ConfigurationError(ValueError):
    """A fault in a file, with its place."""


class SweepFile(NamedTuple):
    """Arguments read from a sweep file."""

    arguments: dict[str, Any]  # of `fb.sweep`
    slurm: dict[str, Any]
    record: dict[str, Any]  # file, text and changes, for the provenance


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
        raise ConfigurationError(f"{path.name}: it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or deeply nested
        raise ConfigurationError(f"{path.name}: it must be TOML: {error}") from error
    if environment is not None and "environments" in document:
        several = document.pop("environments")
        document["environment"] = several[validate.one_of("env", environment or next(iter(several)), several)]
    before = dict(_dotted(document.get("grid", {}))) if isinstance(document.get("grid", {}), dict) else {}
    for change in changes:
        _change(document, change)
    try:
        arguments, slurm = _arguments(document, before)
    except (ValueError, TypeError) as error:
        place = ", " if isinstance(error, ConfigurationError) else ": "
        raise ConfigurationError(f"{path.name}{place}{error}") from error
    return SweepFile(arguments, slurm, {"file": str(path), "text": text, "set": list(changes)})


def _change(document: dict[str, Any], change: str) -> None:
    wanted = f"set must be KEY=VALUE with a value of TOML, got {validate.shown(change)}"
    key, equals, text = change.partition("=")
    try:
        nested, keys = tomllib.loads(f"{key}=0"), []
        while isinstance(nested, dict) and nested:
            (name, nested), *_ = nested.items()
            keys.append(name)
        try:
            value = tomllib.loads(f"value={text}")["value"]
        except tomllib.TOMLDecodeError:
            if not TEXT.fullmatch(text.strip()):
                raise
            value = text.strip()
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{wanted}: {error}") from error
    if not equals or "\n" in text:
        raise ValueError(wanted)
    if keys[0] not in (*OPTIONS, *TABLES):  # a parameter of the environment, or else of algorithms
        path, world = ".".join(keys), document.get("environment")
        bare = path.removeprefix("env.")
        make = environments().get(world.get("type", "")) if isinstance(world, dict) else None
        ours = make and (bare != path or bare in inspect.signature(make).parameters)
        keys, value = (["environment", bare], value) if ours else (["grid", path], [value])
    *tables, last = keys
    for name in tables:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise BadValue("set", "must name a key of a table", change)
    document[last] = value


def _arguments(document: Mapping[str, Any], before: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns arguments of `fb.sweep`, and options of SLURM.

    The grid `before` changes may name parameters of algorithms that are not compared.
    """
    import jax

    from fedbandit_jax.engine.prepare import expand

    _known(document, (*OPTIONS, *TABLES), "a sweep")
    if missing := [name for name in NEEDED if name not in document]:
        raise ValueError(f"{' and '.join(missing)} must be given, got {', '.join(document) or 'nothing'}")
    if ("environment" in document) == ("environments" in document):
        got = "both" if "environment" in document else "neither"
        raise ValueError(f"one of [environment] and [environments.NAME] must be given, got {got}")
    grid = dict(_dotted(_table("grid", document.get("grid", {}))))
    tables = _table("algorithms", document["algorithms"])
    every = {validate.text("algorithms", label): _algorithm(label, table) for label, table in tables.items()}
    labels = document.get("compare", list(every))
    if not isinstance(labels, list) or not labels or len({*map(str, labels)}) < len(labels):
        raise BadValue("compare", "must be a list of at least one label, each only once", labels)
    algos = {validate.one_of("compare", label, every): every[label] for label in labels}
    make = _world("environment", document["environment"], grid) if "environment" in document else None
    parameters = inspect.signature(make).parameters if make else {}

    def taken(name: str, some: Mapping[str, Any]) -> bool:
        there = name.removeprefix("env.") in parameters
        return there or any(algo.takes(name.removeprefix("algo.")) for algo in some.values())

    with _at("grid"):
        idle = {name for name in grid if not taken(name, algos) and taken(name, every)}
        values = {name: _made(f"grid.{name}", listed) for name, listed in grid.items()
                  if name not in idle or before.get(name) is not listed}  # fmt: skip
    env: Any = {}
    if make is None:
        for name, one in _table("environments", document["environments"]).items():
            with _at(f"environments.{name}"):
                env[name] = _world(f"environments.{name}", one)()
    elif any(name.removeprefix("env.") in parameters for name in values):
        env = make
    else:
        with _at("environment"):
            env = make()
    with _at("grid"):
        expand(env, algos, values)
    key = jax.random.key(validate.integer("key", document.get("key", 0), at_least=0, at_most=2**32 - 1))
    options = {name: document[name] for name in ("horizon", "stride") if name in document}
    arguments = dict(env=env, algos=algos, grid=values, key=key, seeds=_seeds(document["seeds"]), **options)
    return arguments, _table("slurm", document.get("slurm", {}))


def _seeds(seeds: Any) -> Any:
    if not isinstance(seeds, dict):
        return seeds
    if set(seeds) != {"from", "to"}:
        raise BadValue("seeds", "must be a number, a list, or a table of from and to", seeds)
    first = validate.integer("seeds.from", seeds["from"], at_least=0, at_most=2**32 - 1)
    return range(first, validate.integer("seeds.to", seeds["to"], at_least=first + 1, at_most=2**32))


def _algorithm(label: str, table: Any) -> Any:
    """Makes an algorithm; keys that are no arguments are parameters of its parts, by path."""
    where, types = f"algorithms.{label}", _algorithms()
    given = dict(_dotted(_table(where, table)))
    kind = types.get(str(given.get("type")))
    inner = [name for name in given if kind and name not in ("type", *_parameters(kind))]
    changes = {name: _made(f"{where}.{name}", given.pop(name)) for name in inner}
    with _at(where):
        algo = _call(where, given, types)()
        return algo.replace(**changes) if changes else algo


def _world(where: str, table: Any, later: Collection[str] = ()) -> functools.partial[Any]:
    """Returns the call that makes an environment; parameters in `later` may be missing."""
    import fedbandit_jax as fb

    table, data = dict(_table(where, table)), {}
    if wrappers := [name for name in table if name in fb.envs.WRAPPERS]:
        name = wrappers[-1]
        outer = {"type": name, **_table(f"{where}.{name}", table.pop(name))}
        wrap = _call(f"{where}.{name}", outer, fb.envs.WRAPPERS, later=("env",))
        once = _world(where, table, later)

        @functools.wraps(once.func)
        def wrapped(**arguments: Any) -> Any:
            return wrap(once.func(**arguments))

        return functools.partial(wrapped, **once.keywords)
    if DATA in table:
        found = _made(f"{where}.{DATA}", _table(f"{where}.{DATA}", table.pop(DATA)))
        with _at(where):
            data = validate.instance(DATA, found, (fb.data.Queries, fb.data.Community), "a data set").arguments()
    return _call(where, table, environments(), data, later)


def _made(where: str, value: Any) -> Any:
    """Makes a value of a file, with parts from its tables."""
    if isinstance(value, list):
        return [_made(where, one) for one in value]
    if not isinstance(value, dict):
        return value
    with _at(where):
        return _call(where, value, _parts())()


def _call(
    where: str,
    table: Mapping[str, Any],
    types: Types,
    more: Mapping[str, Any] | None = None,
    later: Collection[str] = (),
) -> functools.partial[Any]:
    """Returns the call of a table with additional arguments; those in `later` may be missing."""
    given = dict(table)
    kind = given.pop("type", None)
    with _at(where):
        if not isinstance(kind, str) or kind not in types:
            raise BadValue("type", f"must be one of {', '.join(types)}", kind,
                           got=f"{validate.shown(kind)}{validate.suggestion(kind, types)}")  # fmt: skip
        parameters = _parameters(types[kind])
        _known(given, parameters, kind)
        arguments = {**(more or {})} | {name: _made(f"{where}.{name}", value) for name, value in given.items()}
        needed = [one.name for one in parameters.values() if one.default is one.empty]
        if missing := [name for name in needed if name not in arguments and name not in later]:
            raise BadValue(tuple(missing), f"must be given for {kind}", None, got=", ".join(arguments) or "nothing")
    return functools.partial(types[kind], **arguments)


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """Adds the name of the innermost table to errors."""
    try:
        yield
    except ConfigurationError:
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise ConfigurationError(f"[{where}]: {error}") from error


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns parameters of a function by name; **keywords are parameters of its return type."""
    found = dict(inspect.signature(function).parameters)
    if any(one.kind is one.VAR_KEYWORD for one in found.values()):
        found |= inspect.signature(typing.get_type_hints(function)["return"]).parameters
    return {name: one for name, one in found.items() if one.kind is not one.VAR_KEYWORD}


def environments() -> Types:
    """Returns the functions for `type` of an environment."""
    from fedbandit_jax.data import EXAMPLES, table
    from fedbandit_jax.envs import ENVIRONMENTS

    return {**ENVIRONMENTS, "table": table, **EXAMPLES}


def _algorithms() -> Types:
    from fedbandit_jax.algos import ALGORITHMS

    return {make.__name__: make for make in ALGORITHMS.values()}


def _parts() -> Types:
    from fedbandit_jax import algos, data, networks, privacy, schedules

    rooms = [one for room in (algos, schedules, privacy) for one in vars(room).values()]
    kinds = [one for one in rooms if isinstance(one, type) and dataclasses.is_dataclass(one)]
    loaders = (data.classification, data.mslr, data.mslr_arms, data.movielens)
    graphs = {name: functools.partial(networks.make, name) for name in networks.GRAPHS}
    return {part.__name__: part for part in (*kinds, *loaders)} | graphs


def _table(where: str, value: Any) -> dict[str, Any]:
    with _at(where):
        if not isinstance(value, dict):
            raise BadType(where, "must be a table", value)
    return value


def _known(given: Collection[str], there: Collection[str], what: str) -> None:
    for key in given:
        if key not in there:
            hint = validate.suggestion(key, there) or f", but they are {', '.join(sorted(there))}"
            raise BadValue("keys", f"must be parameters of {what}", key, got=f"{key!r}{hint}")


def _dotted(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields values of nested tables by dotted path, because TOML reads `a.b = 1` as a table a."""
    for name, value in table.items():
        if isinstance(value, dict) and value and "type" not in value:
            yield from ((f"{name}.{path}", one) for path, one in _dotted(value))
        else:
            yield name, value
