"""The tasks of suite v1, which never change: tests pin their digests, and a flaw would make a suite v1.1."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from jax import Array
from jaxtyping import Key
from typing_extensions import override

from fedbandit_jax import data, envs
from fedbandit_jax.algos import AdaCUCB, Federated, Forgetting, Gossip, Greedy, Grouped, Thompson
from fedbandit_jax.benchmark.task import Task
from fedbandit_jax.core import struct
from fedbandit_jax.envs.logged import Logged, Visits
from fedbandit_jax.interfaces import Algorithm, Environment
from fedbandit_jax.privacy import Discounted, Users
from fedbandit_jax.schedules import Geometric

SILOS, SECAGG = ("nobody", "silo"), ("nobody", "silo", "secagg")
GROWTHS = (1.05, 1.1, 1.2, 1.5, 2.0)
FADES = Discounted(0.8)  # of the reference in a drifting environment


def _often(task: Task) -> Geometric:
    """Makes batches that grow from the first round on, as slowly as the limit on synchronisations allows."""
    allowed = (Geometric(growth, first=1) for growth in GROWTHS)
    return next(one for one in allowed if one.n_syncs(task.horizon) <= (task.max_syncs or math.inf))


def _greedy(task: Task) -> Algorithm:
    return Federated(policy=Greedy(), schedule=_often(task))


def _thompson(task: Task) -> Algorithm:
    return Federated(policy=Thompson(scale=0.3), schedule=_often(task))


def _grouped(task: Task) -> Algorithm:
    return Grouped()


def _sphere(*sizes: int, contexts: str = "fresh") -> envs.Sphere:
    return envs.sphere(*sizes, contexts=contexts, rewards="bernoulli")


@struct.pytree
class Dealt(Logged):
    """A fitted log with effects that every seed permutes over the arms, so the good arm is unknown."""

    @override
    def init(self, key: Key[Array, ""]) -> Visits:
        theta, own = super().init(key).theta, len(self.arms)
        dealt = jax.random.permutation(key, theta[1:].reshape(own, -1))
        return Visits(jnp.append(theta[:1], dealt), jnp.asarray(self.starts))


def _insteval() -> Environment:
    env = data.insteval()
    basis = f"{env.spec.basis} Every seed deals these effects out to the arms anew."
    fields: dict[str, Any] = {field.name: getattr(env, field.name) for field in dataclasses.fields(env)}
    fields["spec"] = dataclasses.replace(env.spec, basis=basis)
    return Dealt(**fields)


def _task(name: str, make: Callable[..., Environment], *sizes: int, family: str = "linear", **options: Any) -> Task:
    """Makes a task whose environment is made with M, K and d."""
    linear = family == "linear"
    options = {"max_syncs": 100 if linear else None, "reference": _greedy if linear else _grouped, **options}
    return Task(name=name, family=family, sizes=sizes, make=lambda: make(*sizes), **options)  # pyright: ignore


_ALL = (
    _task(
        "sphere-silo", _sphere, 100, 100, 10, horizon=2000, epsilon=1.0, delta=1e-7, trusted=SILOS,
        about="The synthetic instance of Zhou & Chowdhury (2024) at a delta that means something; nobody but silos is "
        "trusted.",
    ),
    _task(
        "sphere-secagg", _sphere, 100, 100, 10, horizon=2000, epsilon=0.2, delta=1e-7, trusted=SECAGG, max_syncs=20,
        about="The same with secure aggregation, in twenty synchronisations.",
    ),
    _task(
        "sphere-shuffle", _sphere, 200, 10, 5, horizon=500, epsilon=0.5, delta=1e-8, trusted=(*SILOS, "shuffler"),
        about="Two hundred silos whose messages a trusted shuffler mixes.",
    ),
    _task(
        "sphere-local", _sphere, 1000, 10, 5, horizon=1000, epsilon=4.0, delta=1e-8, trusted=("nobody",),
        about="Nobody is trusted: every user adds the noise to their own report.",
    ),
    _task(
        "fixed-arms", functools.partial(_sphere, contexts="shared"), 50, 20, 6,
        horizon=2000, epsilon=2.0, delta=1e-7, trusted=SILOS, reference=_thompson,
        about="The same twenty arms for all users: nothing explores unless the algorithm does.",
    ),
    _task(
        "gap-worst", envs.gap, 100, 10, 10, horizon=2000, epsilon=2.0, delta=1e-7, trusted=SILOS,
        about="The instance of Dubey & Pentland (2020): one good arm of ten, and no intercept to centre rewards by.",
    ),
    _task(
        "returning", lambda *sizes: envs.returning(_sphere(*sizes), 125), 50, 20, 6,
        horizon=2000, epsilon=2.0, delta=1e-6, trusted=SECAGG, unit=Users(16, per_batch=1),
        about="A user comes sixteen times on average, and is protected in all visits together.",
    ),
    _task(
        "arms-hard", lambda _, n_arms, dim: envs.arms(n_arms, instance="hard", rewards="bernoulli"), 1, 10, 10,
        family="arms", horizon=1_000_000, epsilon=0.05, delta=0.0, trusted=SECAGG, reference=lambda task: AdaCUCB(),
        about="Ten arms whose means are within a tenth, pure differential privacy, secure aggregation.",
    ),
    _task(
        "async-zipf", lambda *_: envs.clustered(20, 1, 1, n_arms=10, dim=10, arrivals=1 / np.arange(1.0, 21.0)),
        1, 10, 10,
        family="clusters", horizon=20_000, epsilon=2.0, delta=1e-6, trusted=SILOS, unit="visit", max_syncs=2000,
        about="Twenty agents who come one at a time, some twenty times as often as others; a visit is protected.",
    ),
    _task(
        "ring", _sphere, 20, 20, 5, horizon=2000, epsilon=1.0, delta=1e-6, trusted=SILOS, graph=nx.cycle_graph(20),
        reference=lambda task: Gossip(policy=Greedy(), schedule=task.batch, graph=nx.cycle_graph(20), gamma=10),
        about="Twenty silos in a ring, without a server: each hears of the others through its neighbours.",
    ),
    _task(
        "clusters-4", lambda *_: envs.clustered(40, 5, 4), 1, 10, 10,
        family="clusters", horizon=100_000, epsilon=4.0, delta=1e-6, trusted=SILOS, unit="visit",
        about="Forty users on five servers who are of four kinds, nobody knows who of which; a visit is protected.",
    ),
    _task(
        "insteval", lambda *_: _insteval(), 14, 12, 25,
        horizon=2600, epsilon=1.0, delta=1e-6, trusted=SECAGG, unit="visit", reference=_thompson,
        about="Ratings of lectures by students of fourteen departments, a model of the real log whose arms "
        "every seed deals out anew; a visit is protected.",
    ),
    _task(
        "dropout", lambda *sizes: envs.dropout(_sphere(*sizes), 0.1), 50, 20, 6,
        horizon=1000, epsilon=1.0, delta=1e-6, trusted=SECAGG,
        about="A tenth of the silos miss each synchronisation, which secure aggregation must bear.",
    ),
    _task(
        "drift", lambda *sizes: envs.drift(_sphere(*sizes), (1000,)), 50, 20, 6,
        horizon=2000, epsilon=0.5, delta=1e-6, trusted=SECAGG,
        reference=lambda task: Federated(policy=Forgetting(policy=Greedy(), memory=FADES), schedule=task.batch),
        about="A new world half-way: what was learned before is wrong.",
    ),
)  # fmt: skip
TASKS: Mapping[str, Task] = types.MappingProxyType({task.name: task for task in _ALL})
