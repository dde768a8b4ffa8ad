"""Expands a sweep: every algorithm at every point of the grid, with a label and coordinates for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Algorithm


class Configuration(NamedTuple):
    """One algorithm of a sweep, with its place in the sweep."""

    algo: Algorithm
    coordinates: dict[str, Any]  # "algorithm": its label before the grid; then the value of each of its grid parameters


def expand(
    algos: Mapping[str, Algorithm] | Sequence[Algorithm], grid: Mapping[str, Iterable[Any]]
) -> dict[str, Configuration]:
    """Returns the configurations of a sweep by label.

    A label is that of the algorithm, followed by its values of those grid parameters that have several values.

    Args:
        algos: label -> algorithm, or algorithms with distinct names.
        grid: parameter -> distinct values; an algorithm ignores parameters that it does not have.

    Raises:
        ValueError, TypeError: an argument is wrong, or two configurations would have one label; the message says which.
    """
    named = _named(algos)
    values = _values(named, grid)
    found: dict[str, Configuration] = {}
    for label, algo in named.items():
        for name, one in _points(label, algo, values):
            if name in found:
                raise ValueError(f"two configurations would both be labelled {name!r}: rename one in algos")
            found[name] = one
    return found


def _named(algos: Mapping[str, Algorithm] | Sequence[Algorithm]) -> Mapping[str, Algorithm]:
    """Checks the algorithms and returns them by label."""
    if isinstance(algos, Algorithm):
        raise TypeError(f"algos must be several algorithms, got one: {validate.shown(algos)}; `simulate` runs one")
    if not isinstance(algos, Mapping):
        several = validate.sequence("algos", algos, "algorithms")
        names = [validate.instance("algos", algo, Algorithm, "a sequence of fb.Algorithm").name for algo in several]
        if len(set(names)) < len(names):
            raise ValueError(f"algos must have distinct names, got {names}: give a dict of label -> algorithm")
        algos = dict(zip(names, several))
    if not algos:
        raise ValueError("algos must name at least one algorithm, got none")
    for label, algo in algos.items():
        if not isinstance(label, str):
            raise TypeError(f"algos must have strings for labels, got {validate.shown(label)}")
        validate.instance(f"algos[{label!r}]", algo, Algorithm, "an fb.Algorithm")
    return algos


def _values(algos: Mapping[str, Algorithm], grid: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Checks the grid and returns the values of every parameter as Python objects."""
    if not isinstance(grid, Mapping):
        raise TypeError(f"grid must map parameters to values, got {validate.shown(grid)}")
    checked = {}
    for name, values in grid.items():
        if not any(algo.takes(name) for algo in algos.values()):
            raise ValueError(f"grid must name parameters of an algorithm here, got {validate.shown(name)}")
        listed = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else []
        if not listed:
            raise ValueError(f"grid[{name!r}] must be a sequence of at least one value, got {validate.shown(values)}")
        if any(np.ndim(value) for value in listed if hasattr(value, "item")):
            raise ValueError(f"grid[{name!r}] must be a sequence of single values, got {validate.shown(values)}")
        listed = [value.item() if hasattr(value, "item") else value for value in listed]
        if any(a == b for a, b in itertools.combinations(listed, 2)):
            raise ValueError(f"grid[{name!r}] must have distinct values, got {listed}")
        checked[name] = listed
    return checked


def _points(label: str, algo: Algorithm, grid: Mapping[str, list[Any]]) -> Iterator[tuple[str, Configuration]]:
    """Yields label and configuration for all combinations of the grid parameters that this algorithm has."""
    mine = {name: values for name, values in grid.items() if algo.takes(name)}
    for values in itertools.product(*mine.values()):
        point = dict(zip(mine, values))
        varied = ", ".join(f"{name}={value}" for name, value in point.items() if len(mine[name]) > 1)
        variant = algo.replace(**point) if point else algo
        yield f"{label}({varied})" if varied else label, Configuration(variant, {"algorithm": label, **point})
