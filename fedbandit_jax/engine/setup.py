"""Prepares a sweep: binds algorithms, checks that they fit their environments, and derives digests and salts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.identity import code, describe, digest, program, salt, versions
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.recorder import Recorder
from fedbandit_jax.engine.runners import Runner, Synchronous, make_runner, mesh, signature
from fedbandit_jax.engine.sizes import check_records
from fedbandit_jax.interfaces import Algorithm, certify
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.compatibility import tagged
from fedbandit_jax.report.measured import OF_LABELS, spans

_CHECKED: set[Any] = set()  # signatures of runners with checked shapes, since tracing is slow


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
        spread = [runner.mesh.size for runner in self.runners.values() if runner.mesh]
        return digest(self.config, digests, recorder, versions(), code(), spread).hex()

    def config_of(self, label: str) -> dict[str, Any]:
        """Returns the result's `config` for one label."""
        return self.config | {kind: {label: self.config[kind][label]} for kind in OF_LABELS}

    @property
    def groups(self) -> list[list[str]]:
        """Labels of configurations that share a compiled program and a world."""
        found: dict[Any, list[str]] = {}
        for label, runner in self.runners.items():
            found.setdefault((id(runner.env), signature(runner.played), runner.source is None), []).append(label)
        return list(found.values())


def set_up(configurations: Mapping[str, Configuration], run: Run) -> Setup:
    """Binds all algorithms, and checks that they fit their environments."""
    run.check_files()
    recorder, cache = run.recorder(run.at), DigestCache({}, {})
    bound = {label: bind(label, one, run.horizon, recorder, cache) for label, one in configurations.items()}
    runners = {label: runner for label, (runner, _) in bound.items()}
    digests = {label: each for label, (_, each) in bound.items()}
    if run.devices == "agents":
        runners = {label: _spread(label, runner) for label, runner in runners.items()}
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
    return Setup(runners, digests, config, _record_rounds(runners, len(run.seeds)))


def describe_sweep(configurations: Mapping[str, Configuration]) -> dict[str, dict[str, Any]]:
    """Describes the configurations for a result's `config`, see `Result`."""
    return {
        "environments": {  # `spec` may be a class attribute
            label: {**describe(one.env), "spec": describe(one.env.spec)} for label, one in configurations.items()
        },
        "algorithms": {label: describe(one.algo) for label, one in configurations.items()},
        "coordinates": {label: describe(one.coordinates) for label, one in configurations.items()},
    }


def _spread(label: str, runner: Runner) -> Runner:
    if not isinstance(runner, Synchronous):
        raise BadValue("devices", f"must be 'runs' for {label!r}, which serves one user at a time", "agents")
    over, m = mesh(), runner.env.spec.n_agents
    if m % over.size:
        raise BadValue("devices", f"must be 'runs' unless their number {over.size} divides n_agents = {m}", "agents")
    return dataclasses.replace(runner, mesh=over)


def _record_rounds(runners: dict[str, Runner], n_seeds: int) -> dict[str, np.ndarray]:
    recorder = next(iter(runners.values())).recorder
    if recorder is None:
        return {}
    alike = {signature(runner): (label, runner) for label, runner in runners.items()}
    found: dict[str, tuple[str, int, Any]] = {}  # name -> label, index of its record, shape and dtype
    for label, runner in alike.values():
        for name, i, leaf in recorder.named(jax.eval_shape(runner.init, jax.random.key(0))[1]):
            first, _, other = found.setdefault(name, (label, i, leaf))
            if (leaf.shape, leaf.dtype) != (other.shape, other.dtype):
                one, two = (f"{x.dtype} {x.shape} for {y!r}" for x, y in ((other, first), (leaf, label)))
                must = f"must return {name!r} of one shape for all algorithms"
                raise BadValue("record", must, one, got=f"{one}, {two}")
    check_records({name: leaf for name, (_, _, leaf) in found.items()}, n_seeds * len(runners))
    return {name: np.asarray(recorder.rounds[i], int) for name, (_, i, _) in found.items()}


class DigestCache(NamedTuple):
    """Digests shared by the configurations of a sweep."""

    worlds: dict[int, bytes]  # id of the environment -> digest
    programs: dict[Any, bytes]  # (signature of the runner, whether it is private) -> digest


def bind(
    label: str, one: Configuration, horizon: int, recorder: Recorder | None = None, cache: DigestCache | None = None
) -> tuple[Runner, bytes]:
    """Binds an algorithm and returns its runner with their digest; b"" and no salt if traced."""
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
        "algorithm that needs rewards at once": not bound.bears_delay,
        "algorithm that waits for all silos": not bound.bears_dropouts,
    }
    compatibility.check(BoundStatistic.of(env.spec).tags | tagged("algo", label, bears))
    for name, value in (("env", env), (f"algorithm {label!r}", bound)):
        for leaf in jax.tree.leaves(value):
            if not (hasattr(leaf, "dtype") or isinstance(leaf, (int, float, complex))):
                must = (
                    "must be a pytree of numbers: decorate its class with @fb.pytree, and other fields with fb.static()"
                )
                raise BadType(name, must, leaf)
    runner = make_runner(env, bound, horizon, recorder)
    form = signature(runner)
    if not struct.shipped(runner) and form not in _CHECKED:  # tests check the package's own parts
        runner.check(label)
        _CHECKED.add(form)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(runner)):
        return runner, b""
    return _identified(runner, one, horizon, DigestCache({}, {}) if cache is None else cache)


def _identified(runner: Runner, one: Configuration, horizon: int, cache: DigestCache) -> tuple[Runner, bytes]:
    env, plain = one.env, dataclasses.replace(runner, recorder=None)
    if id(env) not in cache.worlds:
        cache.worlds[id(env)] = digest(env, env.spec)
    algo = describe(one.algo)
    if isinstance(algo, dict):
        algo.pop("name", None)  # a display name
    config_digest = digest(cache.worlds[id(env)].hex(), algo, horizon)

    def traced(runner: Runner) -> bytes:
        private = certify(runner.algo).claim != "none"
        form = signature(runner), private
        if form not in cache.programs:
            cache.programs[form] = program(runner, private=private)
        return cache.programs[form]

    if not struct.shipped((plain, one.algo)):
        config_digest = digest(config_digest.hex(), traced(plain).hex(), jax.tree.leaves(plain))
    words = salt(config_digest)
    if not struct.shipped(runner):
        config_digest = digest(config_digest.hex(), traced(runner).hex())
        runner = dataclasses.replace(runner, program=traced(runner).hex())
    return dataclasses.replace(runner, salt=words), config_digest
