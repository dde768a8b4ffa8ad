"""Prepares a sweep: expands it into configurations, binds and checks them, and estimates their memory."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core import memory, struct, validate
from fedbandit_jax.core.memory import shown
from fedbandit_jax.core.programs import need_numbers
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.engine.identity import code, describe, digest, program, salt, versions
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.record import Recorder, Recording
from fedbandit_jax.engine.runners import Runner, make_runner, signature
from fedbandit_jax.interfaces import Algorithm, Environment, Spec, certify
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.compatibility import tagged
from fedbandit_jax.report.measured import OF_LABELS, spans

Environments = Environment | Mapping[str, Environment] | Callable[..., Environment]
OURS, THEIRS = "env.", "algo."  # prefixes of ambiguous grid parameters
OTHERS = ("algorithm", "label", "regret", "round", "seed", "status")  # columns and dimensions of every result
METHODS = ("init", "observe", "pull")  # of an environment
OF_SUMS = ("init", "means", "answers")  # of one that multi-armed algorithms play
ENVIRONMENT = "environment"  # coordinate of environments given by name
FLOAT = 4  # bytes
TOGETHER = 256  # most configurations of a program, whose compilation takes longer than in proportion to them
CURVES = 6  # curves of a run: regret, three of communication, and others
_CHECKED: set[Any] = set()  # signatures of runners with checked shapes, since tracing is slow


class Configuration(NamedTuple):
    """An algorithm and an environment, with their coordinates in the sweep."""

    env: Environment
    algo: Algorithm
    coordinates: dict[str, Any]  # "algorithm": label without grid parameters; then the value of each parameter


class Axis(NamedTuple):
    """A parameter of the grid."""

    ours: bool  # whether the environment has it, or else some algorithms
    path: str  # without prefix
    values: list[Any]


def expand(
    env: Environments, algos: Mapping[str, Algorithm] | Sequence[Algorithm], grid: Mapping[str, Iterable[Any]]
) -> dict[str, Configuration]:
    """Returns the configurations of a sweep by label. A label is the algorithm's, with the grid parameters that vary.

    Raises:
        ValueError, TypeError: an argument is invalid, or two configurations would have the same label.
    """
    named, (make, parameters, environments) = _named(algos), _worlds(env)
    axes = {ENVIRONMENT: Axis(True, ENVIRONMENT, environments)} if environments else {}
    axes |= _axes(grid, parameters, named)
    made: dict[Any, Environment] = {}
    found: dict[str, Configuration] = {}
    for label, algo in named.items():
        mine = {name: axis for name, axis in axes.items() if axis.ours or algo.takes(axis.path)}
        for one in itertools.product(*(axis.values for axis in mine.values())):
            point = dict(zip(mine, one))
            varied = ", ".join(f"{name}={value}" for name, value in point.items() if len(mine[name].values) > 1)
            name = f"{label}({varied})" if varied else label
            if name in found:
                raise BadValue("algos", "must have one label for every configuration", name, got=f"two of {name!r}")
            own, changes = (
                {mine[name].path: value for name, value in point.items() if mine[name].ours == ours}
                for ours in (True, False)
            )
            place = tuple(map(repr, own.values()))
            if place not in made:
                made[place] = make(**own)
            variant = algo.replace(**changes) if changes else algo
            found[name] = Configuration(made[place], variant, {"algorithm": label, **point})
    return found


def as_environment(name: str, env: Any) -> Any:
    """Returns `env` if it is an environment, and raises `TypeError` otherwise."""
    if not isinstance(getattr(env, "spec", None), Spec):
        raise BadType(name, "must be an environment such as fb.envs.sphere(...)", env)
    methods = OF_SUMS if callable(getattr(env, "answers", None)) else METHODS
    if missing := [method for method in methods if not callable(getattr(env, method, None))]:
        got = f"{type(env).__name__} without {' and '.join(missing)}"
        raise BadType(name, f"must have the methods {', '.join(methods)}", env, got=got)
    return env


def _worlds(env: Any) -> tuple[Callable[..., Environment], Collection[str], list[str]]:
    """Returns a function that makes environments, its parameters for a grid, and the names of given environments."""
    if isinstance(env, Mapping):
        if not env:
            raise BadValue("env", "must name at least one environment", None, got="none")
        for name, one in env.items():
            validate.text("a name in env", name)
            as_environment(f"env[{name!r}]", one)
        return lambda environment: env[environment], (), list(env)
    if not callable(env) or isinstance(env, type) or hasattr(env, "spec"):
        single = as_environment("env", env)
        return lambda: single, (), []
    given = inspect.signature(env).parameters.values()
    takes = [one.name for one in given if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]

    def make(**point: Any) -> Environment:
        missing = [
            one.name for one in given if one.name in takes and one.name not in point and one.default is one.empty
        ]
        if missing:
            needs, got = ", ".join(missing), ", ".join(point) or "none"
            raise BadValue("env", f"must be given {needs}, by the grid or functools.partial", got, got=got)
        return as_environment("what env returns", env(**point))

    return make, takes, []


def _named(algos: Mapping[str, Algorithm] | Sequence[Algorithm]) -> Mapping[str, Algorithm]:
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


def _axes(
    grid: Mapping[str, Iterable[Any]], parameters: Collection[str], algos: Mapping[str, Algorithm]
) -> dict[str, Axis]:
    if not isinstance(grid, Mapping):
        raise BadType("grid", "must map parameters to values", grid)
    found: dict[str, Axis] = {}
    for name, values in grid.items():
        validate.text("a parameter in grid", name)
        ours = name.removeprefix(OURS) in parameters
        theirs = not name.startswith(OURS) and any(algo.takes(name.removeprefix(THEIRS)) for algo in algos.values())
        path = name.removeprefix(OURS if ours else THEIRS)
        if not (ours or theirs):
            there = (path.rpartition(".")[2] for algo in algos.values() for path in algo.parameters())
            hint = validate.suggestion(name, (*parameters, *there))
            hint = hint or ("" if parameters else "; pass a function such as fb.envs.sphere as env to vary its own")
            got = f"{validate.shown(name)}{hint}; see algo.parameters()"
            raise BadValue("grid", "must name parameters of env or of an algorithm", name, got=got)
        if name in OTHERS:
            prefix = OURS if ours else THEIRS
            raise BadValue("grid", f"must write {prefix}{name}", name, got=f"{name!r}, a column of every result")
        if ours and theirs:
            which = f"give {OURS}{name} or {THEIRS}{name}"
            raise BadValue("grid", "must not be ambiguous", name, got=f"{name!r}, a parameter of both: {which}")
        if any(axis[:2] == (ours, path) for axis in found.values()):
            raise BadValue("grid", "must name every parameter once", name, got=f"{name!r}, an alias of {path!r}")
        listed = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else []
        if not listed:
            raise BadValue(f"grid[{name!r}]", "must be a sequence of at least one value", values)
        if any(np.ndim(value) for value in listed if hasattr(value, "item")):
            raise BadValue(f"grid[{name!r}]", "must be a sequence of single values", values)
        listed = [_plain(value) for value in listed]
        if any(a == b for a, b in itertools.combinations(listed, 2)):
            raise BadValue(f"grid[{name!r}]", "must have distinct values", listed, got=f"{listed}")
        found[name] = Axis(ours, path, listed)
    return found


def _plain(value: Any) -> Any:
    """Converts a NumPy or JAX scalar to a Python number with its shortest digits: 0.2 for float32(0.2)."""
    item = value.item() if hasattr(value, "item") else value
    return float(str(np.asarray(value)[()])) if isinstance(item, float) and item is not value else item


class Setup(NamedTuple):
    """A sweep with bound algorithms."""

    runners: dict[str, Runner]  # by label
    digests: dict[str, bytes]  # label -> digest of the configuration
    config: dict[str, Any]  # of the result
    record_rounds: dict[str, np.ndarray]  # name of a record -> its rounds

    def fingerprint(self) -> str:
        """Returns the digest of configuration and code; runs with equal fingerprints give equal numbers."""
        recorder = next(iter(self.runners.values())).recorder
        digests = {label: each.hex() for label, each in self.digests.items()}
        return digest(self.config, digests, recorder, versions(), code()).hex()

    def config_of(self, label: str) -> dict[str, Any]:
        """Returns the result's `config` for one label."""
        return self.config | {kind: {label: self.config[kind][label]} for kind in OF_LABELS}

    @property
    def groups(self) -> list[list[str]]:
        """Labels of configurations that share a compiled program and a world, at most `TOGETHER`, in even groups."""
        found: dict[Any, list[str]] = {}
        for label, runner in self.runners.items():
            found.setdefault((id(runner.env), signature(runner.played), runner.algo.source is None), []).append(label)
        groups = []
        for labels in found.values():
            size = math.ceil(len(labels) / math.ceil(len(labels) / TOGETHER))
            groups += [labels[first : first + size] for first in range(0, len(labels), size)]
        return groups


def set_up(configurations: Mapping[str, Configuration], run: Run) -> Setup:
    """Binds all algorithms, and checks that they fit their environments."""
    run.check_files()
    recorder, cache = run.recorder(run.at), {}
    bound = {label: bind(label, one, run.horizon, recorder, cache) for label, one in configurations.items()}
    runners = {label: runner for label, (runner, _) in bound.items()}
    digests = {label: each for label, (_, each) in bound.items()}
    for one in configurations.values():
        if not dataclasses.is_dataclass(one.env):
            raise BadType("env", "must be of a class decorated with @fb.pytree", one.env, got=type(one.env).__name__)
    config = {
        **describe_sweep(configurations),
        "horizon": run.horizon,
        "seeds": spans(run.seeds),
        "stride": run.stride,
        "key": [int(word) for word in np.asarray(jax.random.key_data(run.key))],
    }
    return Setup(runners, digests, config, _record_rounds(runners))


def describe_sweep(configurations: Mapping[str, Configuration]) -> dict[str, dict[str, Any]]:
    """Describes the configurations for a result's `config`, see `Result`."""
    return {
        "environments": {  # `spec` may be a class attribute
            label: {**describe(one.env), "spec": describe(one.env.spec)} for label, one in configurations.items()
        },
        "algorithms": {label: describe(one.algo) for label, one in configurations.items()},
        "coordinates": {label: describe(one.coordinates) for label, one in configurations.items()},
    }


def _record_rounds(runners: dict[str, Runner]) -> dict[str, np.ndarray]:
    recorder = next(iter(runners.values())).recorder
    if recorder is None:
        return {}
    alike = {signature(runner): (label, runner) for label, runner in runners.items()}
    found: dict[str, tuple[str, int, Any]] = {}  # name -> label, index of its record, shape and dtype
    for label, runner in alike.values():
        for name, i, leaf in recorder.named(jax.eval_shape(_init, runner.played, jax.random.key(0))[1]):
            first, _, other = found.setdefault(name, (label, i, leaf))
            if (leaf.shape, leaf.dtype) != (other.shape, other.dtype):
                one, two = (f"{x.dtype} {x.shape} for {y!r}" for x, y in ((other, first), (leaf, label)))
                must = f"must return {name!r} of one shape for all algorithms"
                raise BadValue("record", must, one, got=f"{one}, {two}")
    return {name: np.asarray(recorder.rounds[i], int) for name, (_, i, _) in found.items()}


def bind(
    label: str,
    one: Configuration,
    horizon: int,
    recorder: Recorder | None = None,
    cache: dict[Any, bytes] | None = None,
) -> tuple[Runner, bytes]:
    """Binds an algorithm and returns its runner with their digest; b"" and no salt if traced.

    The configurations of a sweep share a `cache` of digests: by the id of an environment, or the signature of a runner
    and whether it is private.
    """
    env = one.env
    bound = one.algo.bind(env.spec, horizon)
    bound = jax.tree.map(lambda leaf: np.array(leaf) if type(leaf) is np.ndarray else leaf, bound)  # no part aliases
    if not isinstance(bound, Algorithm):
        raise BadType(f"algorithm {label!r}'s bind", "must return an fb.Algorithm", bound)
    if getattr(bound, "spec", env.spec) != env.spec:
        was = f"with {bound.spec}, not {env.spec}: pass the unbound algorithm"  # pyright: ignore
        must = f"{label!r} must not be bound to another environment, {was}"
        raise BadValue("algo", must, bound, got="", others=("env",))
    validate.integer(f"algorithm {label!r}'s batch", bound.batch, at_least=1)
    bears = {
        "algorithm that needs rewards at once": not bound.supports_delay,
        "algorithm that waits for all silos": not bound.supports_dropouts,
    }
    compatibility.check(BoundStatistic.of(env.spec).tags | tagged("algo", label, bears))
    for name, value in (("env", env), (f"algorithm {label!r}", bound)):
        need_numbers(name, value)
    runner = make_runner(env, bound, horizon, recorder)
    form = signature(runner)
    if not struct.shipped(runner) and form not in _CHECKED:  # tests check the package's own parts
        runner.check(label)
        _CHECKED.add(form)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(runner)):
        return runner, b""
    return _identified(runner, one, horizon, {} if cache is None else cache)


def _identified(runner: Runner, one: Configuration, horizon: int, cache: dict[Any, bytes]) -> tuple[Runner, bytes]:
    env, plain = one.env, dataclasses.replace(runner, recorder=None)
    if id(env) not in cache:
        cache[id(env)] = digest(env, env.spec)
    algo = describe(one.algo)
    if isinstance(algo, dict):
        algo.pop("name", None)  # a display name
    config_digest = digest(cache[id(env)].hex(), algo, horizon)

    def traced(runner: Runner) -> bytes:
        private = certify(runner.algo).claim != "none"
        form = signature(runner), private
        if form not in cache:
            cache[form] = program(runner, private=private)
        return cache[form]

    if not struct.shipped((plain, one.algo)):
        config_digest = digest(config_digest.hex(), traced(plain).hex(), jax.tree.leaves(plain))
    words = salt(config_digest)
    if not struct.shipped(runner):
        config_digest = digest(config_digest.hex(), traced(runner).hex())
        runner = dataclasses.replace(runner, program=traced(runner).hex())
    return dataclasses.replace(runner, salt=words), config_digest


def seeds_together(runner: Runner, n_configs: int, n_runs: int, n_records: int, n_rows: int) -> int:
    """Returns the number of seeds that fit into memory together, for `n_configs` runners that share a program.

    Counts the curves and records of all `n_runs` runs of the sweep and, for each seed, the world, two copies of every
    learner's state (before and after a chunk), of stored contexts, and of the `n_rows` rows of noise.

    Raises:
        ValueError: not even one seed fits.
    """
    world, state = jax.eval_shape(_init, runner.played, jax.random.key(0))
    spec = runner.env.spec
    contexts = spec.n_agents * spec.n_arms * spec.dim * FLOAT * (runner.hints.contexts == "stored")
    one = _bytes(world) + 2 * contexts
    drawn = 0 if runner.algo.source is None else FLOAT * n_rows * runner.algo.source.row_size
    one += 2 * n_configs * (_bytes(state) + drawn)
    kept, most = n_runs * n_records * CURVES * 2 * FLOAT, memory.limit()
    if isinstance(state, Recording):
        kept += 2 * n_runs * _bytes(state.values)
    if kept + one > most:
        got = f"{shown(one)} for the state of one seed of {n_configs:,} configurations, {shown(kept)} for what is kept"
        needs = ("env", "algorithms", "seeds", "record")
        raise BadValue(needs, f"must fit into {shown(most)} of memory", one, got=got)
    return int((most - kept) // max(one, 1))


def _init(runner: Runner, key: jax.Array) -> tuple[Any, Any]:
    return runner.init(key)  # a function, so that JAX traces it once for runners of equal structure


def _bytes(tree: Any) -> int:
    """Returns the bytes of arrays with these shapes and dtypes."""

    def of(array: Any) -> int:
        size = 8 if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else np.dtype(array.dtype).itemsize
        return math.prod(array.shape) * size

    return sum(map(of, jax.tree.leaves(tree)))
