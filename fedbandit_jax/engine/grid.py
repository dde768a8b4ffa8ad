"""Expands a sweep: every algorithm at every point of the grid, with a label and coordinates for each."""

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
OURS, THEIRS = "env.", "algo."  # a parameter in the grid begins with one of these if both could be meant
OTHERS = ("algorithm", "label", "regret", "round", "seed", "status")  # columns and dimensions of every result
ENVIRONMENT = "environment"  # the coordinate that says which one, if several are given by name


class Configuration(NamedTuple):
    """One algorithm of a sweep in one environment, with its place in the sweep."""

    env: Environment
    algo: Algorithm
    coordinates: dict[str, Any]  # "algorithm": its label before the grid; then the value of each of its grid parameters


class Worlds(NamedTuple):
    """The environments of a sweep."""

    make: Callable[..., Environment]  # takes a value of every parameter of the grid that is in `takes`
    takes: frozenset[str]  # the parameters that it may be given
    named: tuple[str, ...]  # names of the environments, if they are given by name: values of `ENVIRONMENT`

    def parameter(self, name: str) -> str:
        """The parameter that a name in the grid means here; empty if it means none."""
        bare = name.removeprefix(OURS)
        return bare if bare in self.takes else ""


def expand(
    env: Environments, algos: Mapping[str, Algorithm] | Sequence[Algorithm], grid: Mapping[str, Iterable[Any]]
) -> dict[str, Configuration]:
    """The configurations of a sweep by label: the algorithm's, followed by grid parameters that have several values.

    Raises:
        ValueError, TypeError: an argument is wrong, or two configurations would have one label; the message says which.
    """
    named, worlds = _named(algos), _worlds(env)
    values = _values(worlds, named, grid)
    made: dict[Any, Environment] = {}
    found: dict[str, Configuration] = {}
    for label, algo in named.items():
        for name, point in _points(label, algo, worlds, values):
            if name in found:
                raise BadValue(
                    "algos", "must have one label for every configuration", name, got=f"two labelled {name!r}"
                )
            own = {worlds.parameter(name): value for name, value in point.items() if worlds.parameter(name)}
            place = tuple(map(repr, own.values()))
            if place not in made:
                made[place] = worlds.make(**own)
            changes = {_path(name): value for name, value in point.items() if not worlds.parameter(name)}
            variant = algo.replace(**changes) if changes else algo
            found[name] = Configuration(made[place], variant, {"algorithm": label, **point})
    return found


def as_environment(name: str, env: Any) -> Any:
    """The environment as it is, if it is one; a TypeError otherwise."""
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
        raise BadType(
            "algos", "must be several algorithms", algos, got=f"one: {validate.shown(algos)}; `simulate` runs one"
        )
    if not isinstance(algos, Mapping):
        several = validate.sequence("algos", algos, "algorithms")
        names = [validate.instance("algos", algo, Algorithm, "a sequence of fb.Algorithm").name for algo in several]
        if len(set(names)) < len(names):
            raise BadValue(
                "algos", "must have distinct names", names, got=f"{names}: give a dict of label -> algorithm"
            )
        algos = dict(zip(names, several))
    if not algos:
        raise BadValue("algos", "must name at least one algorithm", None, got="none")
    for label, algo in algos.items():
        if not isinstance(label, str):
            raise BadType("algos", "must have strings for labels", label)
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
            hint = hint or ("" if worlds.takes else "; env has some if it makes environments, as fb.envs.sphere does")
            raise BadValue(
                "grid", "must name parameters of env or of an algorithm", name, got=f"{validate.shown(name)}{hint}"
            )
        if name in OTHERS:
            prefix = OURS if ours else THEIRS
            raise BadValue(
                "grid", f"must write {prefix}{name}", name, got=f"{name!r}, which every result has a column of"
            )
        if ours and theirs:
            which = f"give {OURS}{name} or {THEIRS}{name}"
            raise BadValue("grid", "must say whose parameter is meant", name, got=f"{name!r}, which both have: {which}")
        if ours and ours in map(worlds.parameter, checked):
            raise BadValue(
                "grid", "must name every parameter once", name, got=f"{name!r}, which is another name of {ours!r}"
            )
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
    """A Python number for a scalar of NumPy or JAX: the shortest that has its digits, 0.2 for float32(0.2)."""
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
    """The path in an algorithm that a name in the grid means."""
    return name.removeprefix(THEIRS)
