"""A sweep as a TOML file: every table with a `type` is a call of the function of that name, with the other keys.

horizon = 1000                    what `fb.sweep` takes: horizon, seeds, key, stride, grid
seeds = 8                         or { from = 100, to = 200 }, or a list
compare = ["ours"]                labels of the algorithms that are run; by default all
[environment]                     one environment, whose parameters the grid may name; or several by name:
type = "sphere"                   [environments.small], [environments.large]; "table" is `fb.data.table` of a log
[algorithms.ours]                 the algorithm that is labelled "ours"
type = "private_fed_lin_ucb"
policy.exploration_scale = 0.3    parameters of its parts, by paths as in `Algorithm.replace`
privacy = { type = "Budget", epsilon = 1, delta = 1e-3 }
[environment.returning]           users of an environment who come again: arguments of `fb.envs.returning`
n_users = 100                     and [algorithms.ours.privacy.unit] then says what is protected, "visit" or `Users`
[environment.drift]               likewise any of `fb.envs.WRAPPERS`; what stands later wraps what stands before
[slurm]                           only for the executor of that name, see `engine.executors`
"""

from __future__ import annotations

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
TABLES = ("environment", "environments", "algorithms", "compare", "slurm")
NEEDED = ("horizon", "seeds", "algorithms")
DATA = "data"  # key of an environment: a table that is a data set, whose arrays are arguments of the environment
TOP = "at the top"
TEXT = re.compile(r"[^\s\"'\[\]{}=#][^\n\"'\[\]{}=#]*")  # a value of --set that is a text without quotes
Types = Mapping[str, Callable[..., Any]]


class SweepFile(NamedTuple):
    """What a file asks for."""

    arguments: dict[str, Any]  # of `fb.sweep`
    slurm: dict[str, Any]
    world: functools.partial[Any] | None  # the call that makes the only environment
    record: dict[str, Any]  # the name and the text of the file and the changes to it, for the provenance

    def located(self, error: Exception) -> ConfigurationError:
        """The error of `fb.sweep` with the place in the file that it is about, if known."""
        word = re.split(r"\W", str(error), maxsplit=1)[0]
        places = {"slurm": "[slurm]", "unit": "[algorithms]"} | dict.fromkeys(OPTIONS, TOP)
        names = (end for name in self.arguments["grid"] for end in (name, name.rpartition(".")[2]))
        table = (places | dict.fromkeys((*names, "grid"), "[grid]")).get(word, "")
        return ConfigurationError(table, str(error), self.record["file"] if table else "")


class ConfigurationError(ValueError):
    """Says what is wrong with a file, and where; `key` is one that there is not."""

    def __init__(self, place: str, problem: str, file: str = "", key: str = ""):
        self.place, self.problem, self.key = place, problem, key
        about = ", ".join(part for part in (file, place) if part)
        super().__init__(f"{about}: {problem}" if about else problem)


def read(path: Path, changes: Sequence[str] = (), environment: str | None = None) -> SweepFile:
    """Reads a file that says what a sweep runs, or raises a `ConfigurationError` that says where it is wrong.

    Args:
        path: the file.
        changes: KEY=VALUE in TOML, such as "horizon=1000" or "grid.epsilon=[1, 5]", which replace what the file says. A
            key that the file cannot have is a parameter: of the environment, or else of all algorithms that have it.
        environment: the one of [environments.NAME] that stands for [environment]; "" is the first; None: they stay.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError("", f"it cannot be read: {error.strerror}", str(path)) from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigurationError("", f"it must be TOML: {error}", str(path)) from error
    if environment is not None and "environments" in document:
        several = document.pop("environments")
        document["environment"] = several[validate.one_of("env", environment or next(iter(several)), several)]
    before = dict(_dotted(document.get("grid", {}))) if isinstance(document.get("grid", {}), dict) else {}
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
            value = tomllib.loads(change)
        except tomllib.TOMLDecodeError:
            if not TEXT.fullmatch(text.strip()):
                raise
            value = tomllib.loads(f'{key}="{text.strip()}"')
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{wanted}: {error}") from error
    for name in keys:
        if not equals or not isinstance(value, dict) or list(value) != [name]:
            raise ValueError(wanted)
        value = value[name]
    if keys[0] not in (*OPTIONS, *TABLES):
        keys, value = _parameter(document, ".".join(keys), value)
    *tables, last = keys
    for i, name in enumerate(tables):
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise ValueError(f"set must name a key of a table, got {validate.shown(change)}: "
                             f"{'.'.join(tables[: i + 1])} is {validate.shown(document)}")  # fmt: skip
    document[last] = value


def _parameter(document: Mapping[str, Any], path: str, value: Any) -> tuple[list[str], Any]:
    """The place of a parameter, by its path, in a file, and what stands there."""
    world, bare = document.get("environment"), path.removeprefix("env.")
    make = _environments().get(world.get("type", "")) if isinstance(world, dict) else None
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
    """The arguments of `fb.sweep`, the options of SLURM, and the call that makes the only environment.

    A parameter in the grid of the file, `before` changes, may be of algorithms that are not compared.
    """
    import jax

    _known(TOP, document, (*OPTIONS, *TABLES), "keys of a sweep")
    missing = [name for name in NEEDED if name not in document]
    if missing:
        raise ConfigurationError(TOP, f"{' and '.join(missing)} must be given, got {', '.join(document) or 'nothing'}")
    if ("environment" in document) == ("environments" in document):
        got = "both" if "environment" in document else "neither"
        raise ConfigurationError(TOP, f"one of [environment] and [environments.NAME] must be given, got {got}")
    grid = dict(_dotted(_table("grid", document.get("grid", {}))))
    tables = _table("algorithms", document["algorithms"])
    if "" in tables:
        raise ConfigurationError("[algorithms]", "labels must have at least one character, got ''")
    every = {label: _algorithm(f"algorithms.{label}", table) for label, table in tables.items()}
    algos = {label: every[label] for label in _compared(tables, document.get("compare"))}
    make = _world("environment", document["environment"], grid) if "environment" in document else None
    parameters = inspect.signature(make).parameters if make else {}
    whose = "parameters of [environment] or of an algorithm"
    _check_grid(grid, parameters, every, whose)
    idle = {name: listed for name, listed in grid.items() if not _taken(name, parameters, algos)}
    if asked := [name for name, listed in idle.items() if before.get(name) is not listed]:
        raise ConfigurationError("[grid]", f"keys must be {whose} that is compared, got {asked[0]!r}", key=asked[0])
    for name, listed in grid.items():
        if name not in idle and not (isinstance(listed, list) and listed):
            got = validate.shown(listed)
            raise ConfigurationError("[grid]", f"{name} must be a list of at least one value, got {got}")
    values = {name: _value(f"grid.{name}", listed) for name, listed in grid.items() if name not in idle}
    if make:
        first = {name.removeprefix("env."): listed[0] for name, listed in values.items()}
        first = {name: value for name, value in first.items() if name in parameters}
        single = _made("environment", functools.partial(make, **first))  # in any case, to see that it can be made
        env = make if first else single
    else:
        worlds = {f"environments.{name}": one for name, one in _table("environments", document["environments"]).items()}
        env = {name.partition(".")[2]: _made(name, _world(name, one)) for name, one in worlds.items()}
    try:
        key = validate.integer("key", document.get("key", 0), at_least=0, at_most=2**32 - 1)
        seeds = _seeds(document["seeds"])
    except (TypeError, ValueError) as error:
        raise ConfigurationError(TOP, str(error)) from error
    options = {name: document[name] for name in ("horizon", "stride") if name in document}
    arguments = dict(env=env, algos=algos, grid=values, key=jax.random.key(key), seeds=seeds, **options)
    return arguments, _table("slurm", document.get("slurm", {})), make


def _check_grid(grid: Collection[str], parameters: Collection[str], algos: Mapping[str, Any], whose: str) -> None:
    paths = dict.fromkeys(path for algo in algos.values() for path in algo.parameters())
    ends = {path.rpartition(".")[2] for path in paths}
    unknown = [name for name in grid if not _taken(name, parameters, algos)]
    _known("[grid]", unknown, (*parameters, *paths), whose, (*ends, *OPTIONS, *TABLES))


def _taken(name: str, parameters: Collection[str], algos: Mapping[str, Any]) -> bool:
    """Whether a name in the grid is a parameter of the environment or of one of these algorithms."""
    if name.removeprefix("env.") in parameters:
        return True
    try:
        return any(algo.takes(name.removeprefix("algo.")) for algo in algos.values())
    except TypeError as error:  # a parameter of several parts
        raise ConfigurationError("[grid]", str(error)) from error


def _compared(tables: Collection[str], labels: Any) -> Sequence[str]:
    """Labels of the algorithms that are compared, by default all."""
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


def _algorithm(where: str, table: Any) -> Any:
    """An algorithm; keys that are no arguments are parameters of its parts, by path."""
    types = _algorithms()
    kind = types.get(str(_table(where, table).get("type")))
    parameters = _parameters(kind) if kind else {}
    needed = {name for name, one in parameters.items() if one.default is one.empty}
    given = {name: one for name, one in table.items() if name in needed}
    given |= dict(_dotted({name: one for name, one in table.items() if name not in needed}))
    inner = {name: given.pop(name) for name in list(given) if kind and name not in ("type", *parameters)}
    algo = _made(where, _call(where, given, types))
    try:
        unknown = [name for name in inner if not algo.takes(name)]
    except TypeError as error:  # a parameter of several parts
        raise ConfigurationError(f"[{where}]", str(error)) from error
    _known(f"[{where}]", unknown, (*parameters, *algo.parameters()), f"parameters of {given['type']}")
    changes = {name: _value(f"{where}.{name}", one) for name, one in inner.items()}
    return _made(where, functools.partial(algo.replace, **changes)) if changes else algo


def _dotted(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the values of nested tables by dotted path: TOML reads `a.b = 1` as a table a."""
    for name, value in table.items():
        if isinstance(value, dict) and value and "type" not in value:
            yield from ((f"{name}.{path}", one) for path, one in _dotted(value))
        else:
            yield name, value


def _seeds(seeds: Any) -> Any:
    if not isinstance(seeds, dict):
        return seeds
    if set(seeds) != {"from", "to"}:
        raise ValueError(f"seeds must be a number, a list, or a table of from and to, got {validate.shown(seeds)}")
    first = validate.integer("seeds.from", seeds["from"], at_least=0, at_most=2**32 - 1)
    return range(first, validate.integer("seeds.to", seeds["to"], at_least=first + 1, at_most=2**32))


def _world(where: str, table: Any, later: Collection[str] = ()) -> functools.partial[Any]:
    """The call that makes an environment; parameters in `later` need not be given yet."""
    import fedbandit_jax as fb

    table, data = dict(_table(where, table)), {}
    wrappers = [name for name in table if name in fb.envs.WRAPPERS]
    if wrappers:
        name = wrappers[-1]
        outer = {"type": name, **_table(f"{where}.{name}", table.pop(name))}
        wrap = _call(f"{where}.{name}", outer, fb.envs.WRAPPERS, later=("env",))
        once = _world(where, table, later)

        @functools.wraps(once.func)
        def wrapped(**arguments: Any) -> Any:
            return wrap(once.func(**arguments))

        return functools.partial(wrapped, **once.keywords)
    if DATA in table:
        found = _value(f"{where}.{DATA}", _table(f"{where}.{DATA}", table.pop(DATA)))
        if not isinstance(found, (fb.data.Table, fb.data.Community)):
            raise ConfigurationError(f"[{where}]", f"{DATA} must be a data set, got {validate.shown(found)}")
        data = found.replay_arguments() if isinstance(found, fb.data.Table) else found.arguments()
    return _call(where, table, _environments(), data, later)


def _value(where: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(where, one) for one in value]
    return _made(where, _call(where, value, _parts())) if isinstance(value, dict) else value


def _call(
    where: str, table: Any, types: Types, more: Mapping[str, Any] = MappingProxyType({}), later: Collection[str] = ()
) -> functools.partial[Any]:
    """The call that a table is, with more arguments than it says; those in `later` need not be given yet."""
    given = dict(_table(where, table))
    kind = given.pop("type", None)
    if not isinstance(kind, str) or kind not in types:
        raise ConfigurationError(f"[{where}]", f"type must be one of {', '.join(types)}, got {validate.shown(kind)}"
                                 f"{validate.suggestion(kind, types)}")  # fmt: skip
    function = types[kind]
    parameters = _parameters(function)
    _known(f"[{where}]", given, parameters, f"parameters of {kind}")
    arguments = {**more} | {name: _value(f"{where}.{name}", value) for name, value in given.items()}
    needed = [one.name for one in parameters.values() if one.default is one.empty]
    if missing := [name for name in needed if name not in arguments and name not in later]:
        got = ", ".join(arguments) or "nothing"
        raise ConfigurationError(f"[{where}]", f"{' and '.join(missing)} must be given for {kind}, got {got}")
    return functools.partial(function, **arguments)


def _made(where: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise ConfigurationError(f"[{where}]", str(error)) from error


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Parameters of a function by name; if it takes any others, they are those of what it returns."""
    found = dict(inspect.signature(function).parameters)
    if any(one.kind is one.VAR_KEYWORD for one in found.values()):
        found |= inspect.signature(typing.get_type_hints(function)["return"]).parameters
    return {name: one for name, one in found.items() if one.kind is not one.VAR_KEYWORD}


def _environments() -> Types:
    from fedbandit_jax.data import EXAMPLES, open_bandit, table
    from fedbandit_jax.envs import ENVIRONMENTS

    return {**ENVIRONMENTS, "table": table, **EXAMPLES, "open_bandit": open_bandit}


def _algorithms() -> Types:
    from fedbandit_jax.algos import ALGORITHMS

    return {make.__name__: make for make in ALGORITHMS.values()}


def _parts() -> Types:
    from fedbandit_jax import algos, data, networks, privacy, schedules
    from fedbandit_jax.interfaces import Policy

    rooms = (*vars(algos).values(), *vars(schedules).values())
    kinds = [one for one in rooms if isinstance(one, type) and issubclass(one, (Policy, schedules.Schedule))]
    parts = (
        *(privacy.Budget, privacy.Mechanism, privacy.Users, privacy.Liars, algos.Mixture),
        *(privacy.Decaying, privacy.Banded, privacy.BandMF, privacy.MultiBlt, privacy.Discounted, privacy.Window),
        *(privacy.Linear, privacy.Logistic),
        *(kind for kind in kinds if kind not in (schedules.Schedule, schedules.Fixed)),  # bases of one's own
        *(data.classification, data.mslr, data.mslr_arms, data.movielens),
    )
    graphs = {name: functools.partial(networks.make, name) for name in networks.GRAPHS}
    return {part.__name__: part for part in parts} | graphs


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"[{name}]", f"it must be a table, got {validate.shown(value)}")
    return value


def _known(where: str, given: Collection[str], known: Collection[str], what: str, also: Sequence[str] = ()) -> None:
    for key in given:
        if key not in known:
            hint = validate.suggestion(key, (*known, *also)) or f", but they are {', '.join(sorted(known))}"
            raise ConfigurationError(where, f"keys must be {what}, got {key!r}{hint}", key=key)
