"""Tables of a TOML file with a `type`: calls of the function of this name, with the other keys as arguments."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fedbandit_jax.core import validate

DATA = "data"  # key of an environment: a data set, with arrays that are arguments of the environment
Types = Mapping[str, Callable[..., Any]]


class ConfigurationError(ValueError):
    """A fault in a file, with its place; `key` is an unknown key."""

    def __init__(self, place: str, problem: str, file: str = "", key: str = ""):
        self.place, self.problem, self.key = place, problem, key
        about = ", ".join(part for part in (file, place) if part)
        super().__init__(f"{about}: {problem}" if about else problem)


def algorithm(where: str, table: Any) -> Any:
    """Makes an algorithm; keys that are no arguments are parameters of its parts, by path."""
    types = _algorithms()
    kind = types.get(str(as_table(where, table).get("type")))
    parameters = _parameters(kind) if kind else {}
    given = dict(dotted(table))
    inner = {name: given.pop(name) for name in list(given) if kind and name not in ("type", *parameters)}
    algo = made(where, _call(where, given, types))
    changes = {name: built(f"{where}.{name}", one) for name, one in inner.items()}
    return made(where, functools.partial(algo.replace, **changes)) if changes else algo


def world(where: str, table: Any, later: Collection[str] = ()) -> functools.partial[Any]:
    """Returns the call that makes an environment; parameters in `later` may be missing."""
    import fedbandit_jax as fb

    table, data = dict(as_table(where, table)), {}
    wrappers = [name for name in table if name in fb.envs.WRAPPERS]
    if wrappers:
        name = wrappers[-1]
        outer = {"type": name, **as_table(f"{where}.{name}", table.pop(name))}
        wrap = _call(f"{where}.{name}", outer, fb.envs.WRAPPERS, later=("env",))
        once = world(where, table, later)

        @functools.wraps(once.func)
        def wrapped(**arguments: Any) -> Any:
            return wrap(once.func(**arguments))

        return functools.partial(wrapped, **once.keywords)
    if DATA in table:
        found = built(f"{where}.{DATA}", as_table(f"{where}.{DATA}", table.pop(DATA)))
        if not isinstance(found, (fb.data.Queries, fb.data.Community)):
            raise ConfigurationError(f"[{where}]", f"{DATA} must be a data set, got {validate.shown(found)}")
        data = found.arguments()
    return _call(where, table, environments(), data, later)


def built(where: str, value: Any) -> Any:
    """Makes a value of a file, with parts from its tables."""
    if isinstance(value, list):
        return [built(where, one) for one in value]
    return made(where, _call(where, value, _parts())) if isinstance(value, dict) else value


def _call(
    where: str, table: Any, types: Types, more: Mapping[str, Any] = MappingProxyType({}), later: Collection[str] = ()
) -> functools.partial[Any]:
    """Returns the call of a table with additional arguments; those in `later` may be missing."""
    given = dict(as_table(where, table))
    kind = given.pop("type", None)
    if not isinstance(kind, str) or kind not in types:
        raise ConfigurationError(f"[{where}]", f"type must be one of {', '.join(types)}, got {validate.shown(kind)}"
                                 f"{validate.suggestion(kind, types)}")  # fmt: skip
    function = types[kind]
    parameters = _parameters(function)
    known(f"[{where}]", given, parameters, f"parameters of {kind}")
    arguments = {**more} | {name: built(f"{where}.{name}", value) for name, value in given.items()}
    needed = [one.name for one in parameters.values() if one.default is one.empty]
    if missing := [name for name in needed if name not in arguments and name not in later]:
        got = ", ".join(arguments) or "nothing"
        raise ConfigurationError(f"[{where}]", f"{' and '.join(missing)} must be given for {kind}, got {got}")
    return functools.partial(function, **arguments)


def made(where: str, call: Callable[[], Any]) -> Any:
    """Calls, and adds the place to errors."""
    try:
        return call()
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise ConfigurationError(f"[{where}]", str(error)) from error


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


def as_table(name: str, value: Any) -> dict[str, Any]:
    """Returns a value that must be a table."""
    if not isinstance(value, dict):
        raise ConfigurationError(f"[{name}]", f"it must be a table, got {validate.shown(value)}")
    return value


def known(where: str, given: Collection[str], there: Collection[str], what: str) -> None:
    """Raises a `ConfigurationError` for an unknown key."""
    for key in given:
        if key not in there:
            hint = validate.suggestion(key, there) or f", but they are {', '.join(sorted(there))}"
            raise ConfigurationError(where, f"keys must be {what}, got {key!r}{hint}", key=key)


def dotted(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields values of nested tables by dotted path, because TOML reads `a.b = 1` as a table a."""
    for name, value in table.items():
        if isinstance(value, dict) and value and "type" not in value:
            yield from ((f"{name}.{path}", one) for path, one in dotted(value))
        else:
            yield name, value
