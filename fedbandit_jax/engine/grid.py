"""Expands a sweep into configurations: every algorithm at every point of the grid."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.interfaces import Algorithm, Environment, Spec

Environments = Environment | Mapping[str, Environment] | Callable[..., Environment]
OURS, THEIRS = "env.", "algo."  # prefixes of ambiguous grid parameters
OTHERS = ("algorithm", "label", "regret", "round", "seed", "status")  # columns and dimensions of every result
ENVIRONMENT = "environment"  # coordinate of environments given by name


class Configuration(NamedTuple):
    """An algorithm and an environment, with their coordinates in the sweep."""

    env: Environment
    algo: Algorithm
    coordinates: dict[str, Any]  # "algorithm": label without grid parameters; then the value of each parameter


class Worlds(NamedTuple):
    """The environments of a sweep."""

    make: Callable[..., Environment]  # takes the grid parameters in `takes`
    takes: frozenset[str]  # names of its parameters
    named: tuple[str, ...]  # names of the environments, the values of `ENVIRONMENT`; empty without names

    def parameter(self, name: str) -> str:
        """Returns the environment parameter that a grid name denotes, or ""."""
        bare = name.removeprefix(OURS)
        return bare if bare in self.takes else ""


def expand(
    env: Environments, algos: Mapping[str, Algorithm] | Sequence[Algorithm], grid: Mapping[str, Iterable[Any]]
) -> dict[str, Configuration]:
    """Returns the configurations of a sweep by label: the algorithm's, with the grid parameters that vary.

    Raises:
        ValueError, TypeError: an argument is invalid, or two configurations would have the same label.
    """
    named, worlds = _named(algos), _worlds(env)
    values = _values(worlds, named, grid)
    made: dict[Any, Environment] = {}
    found: dict[str, Configuration] = {}
    for label, algo in named.items():
        for name, point in _points(label, algo, worlds, values):
            if name in found:
                raise BadValue("algos", "must have one label for every configuration", name, got=f"two of {name!r}")
            own = {worlds.parameter(name): value for name, value in point.items() if worlds.parameter(name)}
            place = tuple(map(repr, own.values()))
            if place not in made:
                made[place] = worlds.make(**own)
            changes = {_path(name): value for name, value in point.items() if not worlds.parameter(name)}
            variant = algo.replace(**changes) if changes else algo
            found[name] = Configuration(made[place], variant, {"algorithm": label, **point})
    return found


def as_environment(name: str, env: Any) -> Any:
    """Returns `env` if it is an environment, and raises `TypeError` otherwise."""
    if not isinstance(getattr(env, "spec", None), Spec):
        raise BadType(name, "must be an environment such as fb.envs.sphere(...)", env)
    return env


def _worlds(env: Any) -> Worlds:
    if isinstance(env, Mapping):
        if not env:
            raise BadValue("env", "must name at least one environment", None, got="none")
        for name, one in env.items():
            validate.text("a name in env", name)
            as_environment(f"env[{name!r}]", one)
        return Worlds(lambda environment: env[environment], frozenset({ENVIRONMENT}), tuple(env))
    if callable(env) and not (isinstance(env, type) or hasattr(env, "spec")):
        given = inspect.signature(env).parameters.values()
        takes = frozenset(one.name for one in given if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))

        def make(**point: Any) -> Environment:
            missing = [one.name for one in given if one.name in takes - set(point) and one.default is one.empty]
            if missing:
                needs, got = ", ".join(missing), ", ".join(point) or "none"
                raise BadValue("env", f"must be given {needs} by the grid", got, got=got)
            return as_environment("what env returns", env(**point))

        return Worlds(make, takes, ())
    single = as_environment("env", env)
    return Worlds(lambda: single, frozenset(), ())


def _named(algos: Mapping[str, Algorithm] | Sequence[Algorithm]) -> Mapping[str, Algorithm]:
    if isinstance(algos, Algorithm):
        raise BadType("algos", "must be several algorithms", algos, got=f"one: {validate.shown(algos)}; use `simulate`")
    if not isinstance(algos, Mapping):
        several = validate.sequence("algos", algos, "algorithms")
        names = [validate.instance("algos", algo, Algorithm, "a sequence of fb.Algorithm").name for algo in several]
        if len(set(names)) < len(names):
            got = f"{names}: give a dict of label -> algorithm"
            raise BadValue("algos", "must have distinct names", names, got=got)
        algos = dict(zip(names, several))
    if not algos:
        raise BadValue("algos", "must name at least one algorithm", None, got="none")
    for label, algo in algos.items():
        if not isinstance(label, str):
            raise BadType("algos", "must have string labels", label)
        validate.instance(f"algos[{label!r}]", algo, Algorithm, "an fb.Algorithm")
    return algos


def _values(worlds: Worlds, algos: Mapping[str, Algorithm], grid: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    if not isinstance(grid, Mapping):
        raise BadType("grid", "must map parameters to values", grid)
    checked: dict[str, list[Any]] = {ENVIRONMENT: list(worlds.named)} if worlds.named else {}
    for name, values in grid.items():
        validate.text("a parameter in grid", name)
        ours = "" if worlds.named else worlds.parameter(name)
        theirs = not name.startswith(OURS) and any(algo.takes(_path(name)) for algo in algos.values())
        if not (ours or theirs):
            there = (path.rpartition(".")[2] for algo in algos.values() for path in algo.parameters())
            hint = validate.suggestion(name, (*worlds.takes, *there))
            hint = hint or ("" if worlds.takes else "; pass a function such as fb.envs.sphere as env to vary its own")
            got = f"{validate.shown(name)}{hint}"
            raise BadValue("grid", "must name parameters of env or of an algorithm", name, got=got)
        if name in OTHERS:
            prefix = OURS if ours else THEIRS
            raise BadValue("grid", f"must write {prefix}{name}", name, got=f"{name!r}, a column of every result")
        if ours and theirs:
            which = f"give {OURS}{name} or {THEIRS}{name}"
            raise BadValue("grid", "must not be ambiguous", name, got=f"{name!r}, a parameter of both: {which}")
        if ours and ours in map(worlds.parameter, checked):
            raise BadValue("grid", "must name every parameter once", name, got=f"{name!r}, an alias of {ours!r}")
        listed = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else []
        if not listed:
            raise BadValue(f"grid[{name!r}]", "must be a sequence of at least one value", values)
        if any(np.ndim(value) for value in listed if hasattr(value, "item")):
            raise BadValue(f"grid[{name!r}]", "must be a sequence of single values", values)
        listed = [_plain(value) for value in listed]
        if any(a == b for a, b in itertools.combinations(listed, 2)):
            raise BadValue(f"grid[{name!r}]", "must have distinct values", listed, got=f"{listed}")
        checked[name] = listed
    return checked


def _plain(value: Any) -> Any:
    """Converts a NumPy or JAX scalar to a Python number with its shortest digits: 0.2 for float32(0.2)."""
    item = value.item() if hasattr(value, "item") else value
    return float(str(np.asarray(value)[()])) if isinstance(item, float) and item is not value else item


def _points(
    label: str, algo: Algorithm, worlds: Worlds, grid: Mapping[str, list[Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    mine = {name: values for name, values in grid.items() if worlds.parameter(name) or algo.takes(_path(name))}
    for values in itertools.product(*mine.values()):
        point = dict(zip(mine, values))
        varied = ", ".join(f"{name}={value}" for name, value in point.items() if len(mine[name]) > 1)
        yield f"{label}({varied})" if varied else label, point


def _path(name: str) -> str:
    """Returns the parameter path in an algorithm that a grid name denotes."""
    return name.removeprefix(THEIRS)
