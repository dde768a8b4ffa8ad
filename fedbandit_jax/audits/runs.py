"""Runs of a mechanism on pairs of neighbouring data sets, by one program in chunks. Views become rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import backend, random, validate
from fedbandit_jax.core.validate import BadType, BadValue

MAX_COORDINATES = 1000  # most numbers in a view, for the factorisation of their covariance
EXACT = 2**24  # float32 holds all integers up to it
SIDES = ("data", "neighbour")
REPLAYS = 8  # fewest runs in a chunk
_CHUNK, _CHUNK_NUMBERS = 1024, 2**20  # most runs at a time, and most numbers in their data and views
_BRIEF = 10_000  # most runs for quick compilation

Pairs = dict[str, tuple[Any, Any]]  # difference -> the two data sets, pytrees of equal shapes


class Runs(NamedTuple):
    """Runs of a mechanism, in chunks. Under one stream name, both sides of a pair have equal keys, run by run."""

    mechanism: Any  # (key, data) -> view, a pytree
    pairs: Pairs
    key: Array
    chunk: int  # runs at a time
    program: Callable[..., Any]

    @classmethod
    def of(cls, mechanism: Callable, pairs: Pairs, key: Array, *, n_runs: int, few: int) -> Runs:
        """Prepares n_runs for a side of a pair, requested at least `few` at a time."""
        data = next(iter(pairs.values()))[0]
        numbers = _n_coordinates(mechanism, key, data) + sum(leaf.size for leaf in jax.tree.leaves(data))
        chunk = min(max(_CHUNK_NUMBERS // numbers, REPLAYS), _CHUNK, 2 ** (few.bit_length() - 1))  # for few programs
        part = mechanism if not jax.tree_util.all_leaves([mechanism]) else jax.tree_util.Partial(mechanism)
        return cls(part, pairs, key, chunk, _program(n_runs <= _BRIEF))

    def chunks(self, stream: str, label: str, side: int, n: int) -> Iterator[Any]:
        """Yields views of n runs or a few more, in chunks."""
        key, data = random.stream(self.key, stream), self.pairs[label][side]
        for first in range(0, n, self.chunk):
            yield self.program(self.mechanism, self.chunk, key, data, np.uint32(first))

    def rows(self, stream: str, label: str, side: int, n: int) -> Iterator[np.ndarray]:
        """Flattens `chunks` to rows."""
        return (flatten(views, SIDES[side]) for views in self.chunks(stream, label, side, n))

    def views(self, stream: str, label: str, side: int, n: int) -> np.ndarray:
        """Returns views of n runs, (n, d) float32."""
        return np.concatenate([*self.rows(stream, label, side, n)])[:n]

    def replay(self, label: str, side: int) -> Any:
        """Returns the first chunk of the runs that choose a pair, unflattened."""
        return jax.tree.map(np.asarray, next(self.chunks("choose", label, side, 1)))


def pairs_of(data: Any, neighbour: Any, which: str, others: Mapping[str, tuple[Any, Any]]) -> Pairs:
    """Converts the pairs of arguments of `audit` to device arrays; an error names the invalid one."""
    validate.text("which", which)
    validate.instance("others", others, Mapping, "a mapping from what differs to a pair of data sets")
    pairs = {which: (_arrays("data", data), _arrays("neighbour", neighbour))}
    for label, pair in others.items():
        if not isinstance(label, str) or label == which or not isinstance(pair, (tuple, list)) or len(pair) != 2:
            got = f"{validate.shown(label)}: {validate.shown(pair)}"
            raise BadValue("others", f"must map labels other than {which!r} to pairs of data sets", got, got=got)
        pairs[label] = tuple(_arrays(f"others[{label!r}]", side) for side in pair)
    shapes = jax.eval_shape(lambda: pairs[which][0])
    for label, pair in jax.eval_shape(lambda: pairs).items():
        for side, found in zip(SIDES, pair):
            if found != shapes:
                name, got = SIDES if label == which else f"{side} of others[{label!r}]", _forms(found)
                raise BadValue(name, f"must have the shapes and dtypes {_forms(shapes)}", got, got=got)
    return pairs


def _forms(tree: Any) -> str:
    return validate.shown(jax.tree.map(lambda leaf: f"{leaf.dtype} {leaf.shape}", tree))


def _arrays(name: str, tree: Any) -> Any:
    """Converts a pytree of numbers to device arrays; Python numbers become float32 and int32."""

    def array(leaf: Any) -> Array:
        with np.errstate(over="ignore"):
            found = jnp.array(leaf, jnp.result_type(leaf))
        if (np.isinf(found) & np.isfinite(np.asarray(leaf))).any():
            raise OverflowError
        return found

    try:
        return jax.tree.map(array, tree)
    except Exception:  # wrong types, overflow, or incomparable keys
        got = validate.shown(tree)
        raise BadType(name, "must be a pytree of numbers that the device can hold", got, got=got) from None


@functools.cache
def _program(brief: bool) -> Callable[..., Any]:
    def run(mechanism: Any, chunk: int, key: Array, data: Any, first: Array) -> Any:
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(first + jnp.arange(chunk, dtype=jnp.uint32))
        return jax.vmap(mechanism, (0, None))(keys, data)

    return jax.jit(run, static_argnums=1, compiler_options=backend.quick_options(0 if brief else 1))


def control_flow(views: Any) -> np.ndarray:
    """Returns which columns of `flatten` are integers or booleans, (d,) bool."""
    leaves = jax.tree.leaves(views)
    return np.concatenate([np.full(leaf[0].size, not jnp.issubdtype(leaf.dtype, jnp.floating)) for leaf in leaves])


def _n_coordinates(mechanism: Callable, key: Array, data: Any) -> int:
    try:
        leaves = jax.tree.leaves(jax.eval_shape(mechanism, key, data))
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadType("mechanism", "must be a JAX function of a key and data", why, got=f"from it {why}") from error
    for leaf in leaves:
        if not any(jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            raise BadValue("mechanism", "must return floating-point numbers, integers or booleans", leaf.dtype)
    size = sum(leaf.size for leaf in leaves)
    if not 1 <= size <= MAX_COORDINATES:
        raise BadValue("mechanism", f"must return 1 to {MAX_COORDINATES} numbers per run", size)
    return size


def flatten(view: Any, side: str) -> np.ndarray:
    """Flattens the views of several runs to finite float32 rows with distinct integers."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(view)]
    for leaf in leaves:
        if jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.size and (far := max(leaf.max(), -int(leaf.min()))) > EXACT:
            must = "must return integers within 2^24 of 0, such as v >> 16 and v & 0xffff for a larger v"
            raise BadValue("mechanism", must, far, got=f"one of size {far} on {side}")
    rows = np.concatenate([leaf.astype(np.float32).reshape(len(leaf), -1) for leaf in leaves], 1)
    if not np.isfinite(rows).all():
        bad = tuple(np.argwhere(~np.isfinite(rows))[0])
        got = f"{rows[bad]} at coordinate {bad[1]} on {side}"
        raise BadValue("mechanism", "must return finite numbers", rows[bad], got=got)
    return rows
