"""The runs that are timed in several ways: one environment and algorithm of every family, of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(1.0, 0.1)
SEEDS = 24  # seeds of a run, unless something else is said


class Size(NamedTuple):
    """The sizes of a run; a family reads those that it has."""

    n_agents: int = 100  # M, in families of silos
    n_arms: int = 100  # K; of offered items, users who return have a tenth
    dim: int = 10  # d
    n_users: int = 1000  # n, of users who return


class Workload(NamedTuple):
    """One run of `fb.simulate`."""

    env: Any
    algo: fb.Algorithm
    unit: str  # what is counted: agent-rounds, users or steps


def _silos(algo: fb.Algorithm, contexts: str = "fresh") -> Callable[[Size], Workload]:
    def made(size: Size) -> Workload:
        shape = size.n_agents, size.n_arms, size.dim
        return Workload(fb.envs.sphere(*shape, contexts=contexts, rewards="bernoulli"), algo, "agent-rounds")

    return made


def _gossip(size: Size) -> Workload:
    graph = fb.networks.make("ring", size.n_agents)
    algo = fb.algos.GossipFedUCB(graph=graph, gamma=2, schedule=fb.schedules.LogDet(30.0))
    return _silos(algo)(size)


def _arms(size: Size) -> Workload:
    algo = fb.algos.DistDPSE(0.5)
    return Workload(fb.envs.arms(max(2, size.n_arms // 10), instance="hard"), algo, "users")


def _clusters(algo: fb.Algorithm) -> Callable[[Size], Workload]:
    def made(size: Size) -> Workload:
        env = fb.envs.clustered(size.n_users, 5, 2, n_arms=max(2, size.n_arms // 10), dim=size.dim)
        return Workload(env, algo, "steps")

    return made


BEST = fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(BUDGET, release="blt", trust="secagg")).replace(
    regularizer="project", confidence="known_noise"
)
FAMILIES: dict[str, tuple[Callable[[Size], Workload], int]] = {  # name -> run, T of a run that takes about a second
    "FedLinUCB, mode A": (_silos(fb.algos.fed_lin_ucb()), 500),
    "FedLinUCB, mode B": (_silos(fb.algos.fed_lin_ucb(), "fixed"), 1000),
    "Private-FedLinUCB, BLT": (_silos(BEST), 500),
    "FedUCB": (_silos(fb.algos.fed_ucb(schedule=fb.schedules.LogDet(30.0))), 400),
    "gossip": (_gossip, 200),
    "arms": (_arms, 10**7),
    "LinUCB, users": (_clusters(fb.algos.LinUCB()), 10_000),
    "CLUB": (_clusters(fb.algos.CLUB()), 5000),
    "CDP-FCLUB-DC": (_clusters(fb.algos.FCLUB(BUDGET)), 5000),
}


def play(
    family: str, seed: int, *, horizon: int | None = None, seeds: int = SEEDS, size: Size | None = None
) -> np.ndarray:
    """Runs a family once, by `fb.simulate`; returns the final regret of every seed."""
    made, usual = FAMILIES[family]
    env, algo, _ = made(size or Size())
    horizon = horizon or usual
    # Final regret only: a curve of T numbers would be a part of the memory that grows with T.
    options: dict[str, Any] = dict(horizon=horizon, seeds=seeds, stride=horizon, progress=False)
    return fb.simulate(env, algo, key=jax.random.key(seed), **options).regret[:, -1]


def work(family: str, *, horizon: int | None = None, seeds: int = SEEDS, size: Size | None = None) -> int:
    """Returns the number of agent-rounds, users or steps of a run."""
    made, usual = FAMILIES[family]
    size = size or Size()
    agents = size.n_agents if made(size).unit == "agent-rounds" else 1
    return agents * (horizon or usual) * seeds
