"""A sweep as a TOML file, of the format that docs/scaling.md explains.

A table with a `type` calls the function of this name, with the other keys as arguments. Keys of an algorithm that its
function does not take are parameters of its parts, by path. Tables of an environment that are named like a wrapper wrap
it, the later ones outside.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit_jax.cli._command import progress
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadArgument, BadType, BadValue

OPTIONS = ("horizon", "seeds", "key", "stride", "grid")  # arguments of `fb.sweep` at the top of a file
TABLES = ("environment", "environments", "algorithms", "compare", "slurm")
NEEDED = ("horizon", "seeds", "algorithms")
TEXT = re.compile(r"[^\s\"'\[\]{}=#][^\n\"'\[\]{}=#]*")  # a string without quotes in --set
Types = Mapping[str, Callable[..., Any]]


class SweepFile(NamedTuple):
    """Arguments read from a sweep file."""

    arguments: dict[str, Any]  # of `fb.sweep`
    slurm: dict[str, Any]
    record: dict[str, Any]  # file, text and changes, for the provenance

    def sweep(self, **options: Any) -> Any:
        """Runs the sweep, with more arguments of `fb.sweep`."""
        import fedbandit_jax as fb

        try:
            return fb.sweep(**self.arguments, **options, progress=progress(), throw=False)
        except BadArgument as error:
            error.add_note(Path(self.record["file"]).name)
            raise


@contextlib.contextmanager
def at(place: str) -> Iterator[None]:
    """Adds a place, a file or a table of the place around it, to the notes of an error."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        error.add_note(place)
        raise


def read(path: Path, changes: Sequence[str] = (), environment: str | None = None) -> SweepFile:
    """Reads the file of a sweep.

    Args:
        path: the file.
        changes: KEY=VALUE in TOML, such as "horizon=1000" or "grid.epsilon=[1, 5]", which replace values of the file.
            Other keys are parameters of the environment, or else of all algorithms that have them.
        environment: name of the [environments.NAME] to use as [environment]; "" is the first; None keeps all.

    Raises:
        ValueError, TypeError, OSError, ImportError: the file is wrong; the notes name the place.
    """
    with at(path.name):
        try:
            text = path.read_text(encoding="utf-8-sig")
            document = tomllib.loads(text)
        except OSError as error:
            raise OSError(f"it cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or deeply nested
            raise ValueError(f"it must be TOML: {error}") from error
        if environment is not None and "environments" in document:
            several = document.pop("environments")
            document["environment"] = several[validate.one_of("env", environment or next(iter(several)), several)]
        before = _dotted(document["grid"]) if isinstance(document.get("grid"), dict) else {}
        for change in changes:
            _change(document, change)
        record = {"file": str(path), "text": text, "set": list(changes)}
        return SweepFile(_arguments(document, before), _table("slurm", document.get("slurm", {})), record)


def _change(document: dict[str, Any], change: str) -> None:
    """Makes one change of a file. A string needs no quotes."""
    key, _, text = change.partition("=")
    try:
        nested, keys = tomllib.loads(f"{key}=0"), []
        while isinstance(nested, dict):
            (name, nested), *_ = nested.items()
            keys.append(name)
        try:
            value = tomllib.loads(f"value={text}")["value"]
        except tomllib.TOMLDecodeError:
            if not TEXT.fullmatch(text.strip()):
                raise
            value = text.strip()
        if "\n" in text:
            raise ValueError("it has two lines")
    except (ValueError, RecursionError) as error:
        got = f"{validate.shown(change)}: {error}"
        raise BadValue("set", "must be KEY=VALUE with a value of TOML", change, got=got) from error
    if keys[0] not in (*OPTIONS, *TABLES):  # a parameter of the environment, or else of algorithms
        path, world = ".".join(keys), document.get("environment")
        kind = environments().get(str(world.get("type"))) if isinstance(world, dict) else None
        ours = kind and (path.startswith("env.") or path in inspect.signature(kind).parameters)
        keys, value = (["environment", path.removeprefix("env.")], value) if ours else (["grid", path], [value])
    *tables, last = keys
    for name in tables:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise BadValue("set", "must name a key of a table", change)
    document[last] = value


def _arguments(document: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `fb.sweep`.

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
    every = {}
    for label, table in _table("algorithms", document["algorithms"]).items():
        with at(f"algorithms.{validate.text('algorithms', label)}"):
            every[label] = _algorithm(_table(label, table))
    labels = document.get("compare", list(every))
    if not isinstance(labels, list) or not labels or len({*map(str, labels)}) < len(labels):
        raise BadValue("compare", "must be a list of at least one label, each only once", labels)
    algos = {validate.one_of("compare", label, every): every[label] for label in labels}
    grid = _dotted(_table("grid", document.get("grid", {})))
    env, ours = {}, set()
    for name, table in _table("environments", document.get("environments", {})).items():
        with at(f"environments.{name}"):
            env[name] = _world(_table(name, table))()
    if "environment" in document:
        with at("environment"):
            env = _world(_table("environment", document["environment"]))
            ours = {name for name in grid if name.removeprefix("env.") in inspect.signature(env).parameters}
            env = env if ours else env()  # a function lets the grid vary its parameters
    for name in [*grid]:
        takes = {label for label, algo in every.items() if algo.takes(name.removeprefix("algo."))}
        if name not in ours and takes and not takes & {*algos} and before.get(name) is grid[name]:
            del grid[name]
    with at("grid"):
        grid = {name: _made(name, values) for name, values in grid.items()}
        expand(env, algos, grid)
    seeds = document["seeds"]
    if isinstance(seeds, dict):
        if set(seeds) != {"from", "to"}:
            raise BadValue("seeds", "must be a number, a list, or a table of from and to", seeds)
        ends = [validate.integer(f"seeds.{end}", seeds[end], at_least=0, at_most=2**32) for end in ("from", "to")]
        seeds = range(*ends)
    key = jax.random.key(validate.integer("key", document.get("key", 0), at_least=0, at_most=2**32 - 1))
    options = {name: document[name] for name in ("horizon", "stride") if name in document}
    return dict(env=env, algos=algos, grid=grid, key=key, seeds=seeds, **options)


def _algorithm(table: Mapping[str, Any]) -> Any:
    """Makes an algorithm; keys that are no arguments are parameters of its parts, by path."""
    given, types = _dotted(table), algorithms()
    kind = types.get(str(given.get("type")))
    inner = [name for name in given if kind and name not in ("type", *inspect.signature(kind).parameters)]
    changes = {name: _made(name, given.pop(name)) for name in inner}
    algo = _complete(_call(given, types))
    return algo.replace(**changes) if changes else algo


def _world(table: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns the function that makes an environment, with the values of its table as defaults."""
    import fedbandit_jax as fb

    given, arrays = dict(table), {}
    wrappers = {name: given.pop(name) for name in table if name in fb.envs.WRAPPERS}
    if "data" in given:  # a data set, whose arrays are arguments of the environment
        found = _made("data", given.pop("data"))
        arrays = validate.instance("data", found, (fb.data.Queries, fb.data.Community), "a data set").arguments()
    call = _call(given, environments())

    @functools.wraps(call.func)  # whose parameters a grid may name
    def make(**arguments: Any) -> Any:
        env = _complete(functools.partial(call.func, **arguments))
        for name, options in wrappers.items():
            with at(name):
                env = _complete(_call({**_table(name, options), "type": name, "env": env}, fb.envs.WRAPPERS))
        return env

    return functools.partial(make, **arrays, **call.keywords)


def _made(name: str, value: Any) -> Any:
    """Makes a value of a file, with parts from its tables."""
    if isinstance(value, list):
        return [_made(name, one) for one in value]
    if not isinstance(value, dict):
        return value
    with at(name):
        return _complete(_call(value, parts()))


def _call(table: Mapping[str, Any], types: Types) -> functools.partial[Any]:
    """Returns the call that a table stands for."""
    given = dict(table)
    kind = given.pop("type", None)
    if not isinstance(kind, str) or kind not in types:
        got = f"{validate.shown(kind)}{validate.suggestion(kind, types)}"
        raise BadValue("type", f"must be one of {', '.join(types)}", kind, got=got)
    _known(given, inspect.signature(types[kind]).parameters, kind)
    return functools.partial(types[kind], **{name: _made(name, value) for name, value in given.items()})


def _complete(call: functools.partial[Any]) -> Any:
    """Makes a call, unless an argument is missing."""
    needed = inspect.signature(call).parameters.values()
    if missing := [one.name for one in needed if one.default is one.empty and one.kind is not one.VAR_KEYWORD]:
        raise BadValue(tuple(missing), "must be given", None, got=", ".join(call.keywords) or "nothing")
    return call()


def environments() -> Types:
    """Returns the functions for `type` of an environment."""
    from fedbandit_jax.data import EXAMPLES, table
    from fedbandit_jax.envs import ENVIRONMENTS

    return {**ENVIRONMENTS, "table": table, **EXAMPLES}


def algorithms() -> Types:
    """Returns the functions for `type` of an algorithm."""
    from fedbandit_jax.algos import ALGORITHMS

    return dict(ALGORITHMS)


def parts() -> Types:
    """Returns the functions for `type` of all other tables."""
    from fedbandit_jax import algos, data, networks, privacy, schedules

    rooms = [one for room in (algos, schedules, privacy) for one in vars(room).values()]
    kinds = [one for one in rooms if isinstance(one, type) and dataclasses.is_dataclass(one)]
    loaders = (data.classification, data.mslr, data.mslr_arms, data.movielens)
    graphs = {name: functools.partial(networks.make, name) for name in networks.GRAPHS}
    return {part.__name__: part for part in (*kinds, *loaders)} | graphs


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadType(name, "must be a table", value)
    return value


def _known(given: Collection[str], there: Collection[str], what: str) -> None:
    for key in given:
        if key not in there:
            hint = validate.suggestion(key, there) or f", but they are {', '.join(sorted(there))}"
            raise BadValue("keys", f"must be parameters of {what}", key, got=f"{key!r}{hint}")


def _dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values of nested tables by dotted path, because TOML reads `a.b = 1` as a table a."""
    found = {}
    for name, value in table.items():
        nested = isinstance(value, dict) and value and "type" not in value
        found |= {f"{name}.{path}": one for path, one in _dotted(value).items()} if nested else {name: value}
    return found
