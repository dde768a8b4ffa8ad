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
from fedbandit_jax.engine.clocks import Clock, RoundClock, make_clock, mesh, signature
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.identity import code, describe, digest, program, salt, versions
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.recorder import Recorder
from fedbandit_jax.engine.sizes import check_records
from fedbandit_jax.interfaces import Algorithm, certify
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.compatibility import tagged
from fedbandit_jax.report.measured import OF_LABELS, spans

_CHECKED: set[Any] = set()  # signatures of clocks with checked shapes, since tracing is slow


class Setup(NamedTuple):
    """A sweep with bound algorithms."""

    clocks: dict[str, Clock]  # by label
    digests: dict[str, bytes]  # label -> digest of the configuration
    config: dict[str, Any]  # of the result
    record_rounds: dict[str, np.ndarray]  # name of a record -> its rounds

    def fingerprint(self) -> str:
        """Returns the digest of configuration and code; runs with equal fingerprints give equal numbers."""
        recorder = next(iter(self.clocks.values())).recorder
        digests = {label: each.hex() for label, each in self.digests.items()}
        spread = [clock.mesh.size for clock in self.clocks.values() if clock.mesh]
        return digest(self.config, digests, recorder, versions(), code(), spread).hex()

    def config_of(self, label: str) -> dict[str, Any]:
        """Returns the result's `config` for one label."""
        return self.config | {kind: {label: self.config[kind][label]} for kind in OF_LABELS}

    @property
    def groups(self) -> list[list[str]]:
        """Labels of configurations that share a compiled program and a world."""
        found: dict[Any, list[str]] = {}
        for label, clock in self.clocks.items():
            found.setdefault((id(clock.env), signature(clock.played), clock.source is None), []).append(label)
        return list(found.values())


def set_up(configurations: Mapping[str, Configuration], run: Run) -> Setup:
    """Binds all algorithms, and checks that they fit their environments."""
    run.check_files()
    recorder, cache = run.recorder(run.at), DigestCache({}, {})
    bound = {label: bind(label, one, run.horizon, recorder, cache) for label, one in configurations.items()}
    clocks = {label: clock for label, (clock, _) in bound.items()}
    digests = {label: each for label, (_, each) in bound.items()}
    if run.devices == "agents":
        clocks = {label: _spread(label, clock) for label, clock in clocks.items()}
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
    return Setup(clocks, digests, config, _record_rounds(clocks, len(run.seeds)))


def describe_sweep(configurations: Mapping[str, Configuration]) -> dict[str, dict[str, Any]]:
    """Describes the configurations for a result's `config`, see `Result`."""
    return {
        "environments": {  # `spec` may be a class attribute
            label: {**describe(one.env), "spec": describe(one.env.spec)} for label, one in configurations.items()
        },
        "algorithms": {label: describe(one.algo) for label, one in configurations.items()},
        "coordinates": {label: describe(one.coordinates) for label, one in configurations.items()},
    }


def _spread(label: str, clock: Clock) -> Clock:
    if not isinstance(clock, RoundClock):
        raise BadValue("devices", f"must be 'runs' for {label!r}, which serves one user at a time", "agents")
    over, m = mesh(), clock.env.spec.n_agents
    if m % over.size:
        raise BadValue("devices", f"must be 'runs' unless their number {over.size} divides n_agents = {m}", "agents")
    return dataclasses.replace(clock, mesh=over)


def _record_rounds(clocks: dict[str, Clock], n_seeds: int) -> dict[str, np.ndarray]:
    recorder = next(iter(clocks.values())).recorder
    if recorder is None:
        return {}
    alike = {signature(clock): (label, clock) for label, clock in clocks.items()}
    found: dict[str, tuple[str, int, Any]] = {}  # name -> label, index of its record, shape and dtype
    for label, clock in alike.values():
        for name, i, leaf in recorder.named(jax.eval_shape(clock.init, jax.random.key(0))[1]):
            first, _, other = found.setdefault(name, (label, i, leaf))
            if (leaf.shape, leaf.dtype) != (other.shape, other.dtype):
                one, two = (f"{x.dtype} {x.shape} for {y!r}" for x, y in ((other, first), (leaf, label)))
                must = f"must return {name!r} of one shape for all algorithms"
                raise BadValue("record", must, one, got=f"{one}, {two}")
    check_records({name: leaf for name, (_, _, leaf) in found.items()}, n_seeds * len(clocks))
    return {name: np.asarray(recorder.rounds[i], int) for name, (_, i, _) in found.items()}


class DigestCache(NamedTuple):
    """Digests shared by the configurations of a sweep."""

    worlds: dict[int, bytes]  # id of the environment -> digest
    programs: dict[Any, bytes]  # (signature of the clock, whether it is private) -> digest


def bind(
    label: str, one: Configuration, horizon: int, recorder: Recorder | None = None, cache: DigestCache | None = None
) -> tuple[Clock, bytes]:
    """Binds an algorithm and returns its clock with their digest; b"" and no salt if traced."""
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
    clock = make_clock(env, bound, horizon, recorder)
    form = signature(clock)
    if not struct.shipped(clock) and form not in _CHECKED:  # tests check the package's own parts
        clock.check(label)
        _CHECKED.add(form)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(clock)):
        return clock, b""
    return _identified(clock, one, horizon, DigestCache({}, {}) if cache is None else cache)


def _identified(clock: Clock, one: Configuration, horizon: int, cache: DigestCache) -> tuple[Clock, bytes]:
    env, plain = one.env, dataclasses.replace(clock, recorder=None)
    if id(env) not in cache.worlds:
        cache.worlds[id(env)] = digest(env, env.spec)
    algo = describe(one.algo)
    if isinstance(algo, dict):
        algo.pop("name", None)  # a display name
    config_digest = digest(cache.worlds[id(env)].hex(), algo, horizon)

    def traced(clock: Clock) -> bytes:
        private = certify(clock.algo).claim != "none"
        form = signature(clock), private
        if form not in cache.programs:
            cache.programs[form] = program(clock, private=private)
        return cache.programs[form]

    if not struct.shipped((plain, one.algo)):
        config_digest = digest(config_digest.hex(), traced(plain).hex(), jax.tree.leaves(plain))
    words = salt(config_digest)
    if not struct.shipped(clock):
        config_digest = digest(config_digest.hex(), traced(clock).hex())
        clock = dataclasses.replace(clock, program=traced(clock).hex())
    return dataclasses.replace(clock, salt=words), config_digest
