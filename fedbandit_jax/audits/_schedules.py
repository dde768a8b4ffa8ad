"""Cases of schedules: what is learned from when silos synchronise, alone and beside what they release."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos import FedLinUCB, FedUCB, fed_ucb, private_fed_lin_ucb
from fedbandit_jax.algos._scheduled import BoundScheduled
from fedbandit_jax.audits._case import Case
from fedbandit_jax.audits._linear import neighbours, transcript
from fedbandit_jax.envs import Script, script
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.process import RoundProcess
from fedbandit_jax.schedules import Bound, Setting, geometric, private_logdet

BUDGET = Budget(1.0, 0.1)
QUERIES = 4  # before the last: enough for most of what AboveThreshold may lose


def scheduled(algo: FedLinUCB | FedUCB, *, n_agents: int, horizon: int = 12, name: str) -> Case:
    """Everything that a certified algorithm with a schedule shows: its releases, and after which rounds they come.

    If the schedule is adaptive, the first user of the first silo has x = (1, 0) and y = 1 or nothing, all others x =
    (0, 1) and y = 1, so that her share of the determinant is as large as it can be: attains what "add_remove" allows.
    """
    budget = algo.budget
    if not isinstance(budget, Budget):
        raise TypeError(f"algo must have one fb.privacy.Budget, got {budget!r}")
    one, other = neighbours(horizon, n_agents, budget.adjacency, 1, matrix=isinstance(algo, FedUCB))
    bound = algo.bind(one.spec, horizon)
    if not isinstance(bound, BoundScheduled):
        raise TypeError(f"algo must have a schedule, got {algo!r}; see fb.audits.linear")
    if bound.schedule.adaptive:
        one, other = _alone(horizon, n_agents, others=(0.0, 1.0))
    certificate = algo.certificate(one.spec, horizon)
    if certificate.claim != "certified":
        raise ValueError(
            f"algo must be certified for its claim to be audited, got {certificate.claim}: {certificate.reason}"
        )
    return Case(
        name=name,
        mechanism=transcript(bound, one, horizon),
        data=(one.contexts, one.answers),
        neighbour=(other.contexts, other.answers),
        epsilon=budget.epsilon,
        delta=budget.delta,
        fixed_control_flow=not bound.schedule.adaptive,
    )


def timing(algo: FedLinUCB | FedUCB, *, n_agents: int = 2, horizon: int = 4, name: str) -> Case:
    """Only after which rounds silos synchronise: Example 3.1 of Zhou & Chowdhury (2024).

    The first user of the first silo is Alice, x = (1, 0), or Tracy, x = 0; nobody else contributes anything. Whatever
    is claimed must hold for this, too.
    """
    budget = algo.budget
    if not isinstance(budget, Budget):
        raise TypeError(f"algo must have one fb.privacy.Budget, got {budget!r}")
    one, other = _alone(horizon, n_agents, others=(0.0, 0.0))
    bound = algo.bind(one.spec, horizon)

    def mechanism(key: Array, data: tuple[Array, Array]) -> Any:
        world = Script(contexts=data[0], answers=data[1], means=data[1], spec=one.spec)
        process = RoundProcess(env=world, algo=bound, horizon=horizon)

        def body(carry, k):
            world, state, metrics = process.step(key, carry[0], carry[1], k)
            return (world, state), metrics.report.rounds

        return lax.scan(body, process.init(key), jnp.arange(process.n_steps))[1]

    return Case(
        name=name,
        mechanism=mechanism,
        data=(one.contexts, one.answers),
        neighbour=(other.contexts, other.answers),
        epsilon=budget.epsilon,
        delta=budget.delta,
    )


def brink(algo: FedLinUCB | FedUCB, *, n_agents: int = 2, horizon: int = 4) -> float:
    """D with which Alice of `timing` alone makes her silo ask after round 1, and Tracy does not: half of her g_i."""
    one, _ = _alone(horizon, n_agents, others=(0.0, 0.0))
    bound = algo.bind(one.spec, horizon)
    if not isinstance(bound, BoundScheduled):
        raise TypeError(f"algo must have a schedule, got {algo!r}")
    return math.log1p(1 / float(bound.first_regularization)) / 2


def _alone(horizon: int, n_agents: int, others: tuple[float, float]) -> tuple[Script, Script]:
    """Scripts of one arm that differ in the first user of the first silo: x = (1, 0), or nothing."""
    contexts, answers = np.zeros((horizon, n_agents, 1, 2)), np.ones((horizon, n_agents, 1))
    contexts[:] = others
    one, other = contexts.copy(), contexts.copy()
    one[0, 0, 0], other[0, 0, 0] = (1, 0), (0, 0)
    return script(one, answers), script(other, answers)


def above_threshold(
    schedule: Any, *, epsilon: float, name: str, change: Callable[[Bound], Bound] = lambda x: x
) -> Case:
    """One epoch of one silo's requests, on the worst g_i that one user can move by ln 2 in all rounds (V = I).

    0, 0, ..., ln 2 against ln 2, ln 2, ..., 0, at a threshold near 0: nobody's data give both, so that the bound holds
    for any data. The claim is that of the schedule alone, `schedule.pure(epsilon)`.
    """
    budget = Budget(epsilon, BUDGET.delta)
    bound = change(schedule.bind(Setting(1, 1, QUERIES + 1, 1.0, 1.0, budget.epsilon)))

    def mechanism(key: Array, gained: Array) -> Array:
        start, *keys = jax.random.split(key, QUERIES + 2)
        memory = bound.start(start, jnp.float32(1))
        asked = [bound.requests(k, jnp.int32(t), memory, gained[t, None], jnp.int32(1)) for t, k in enumerate(keys)]
        asked = jnp.stack([jnp.any(one) for one in asked])
        return (jnp.cumsum(asked) * asked == 1).astype(jnp.float32)  # the first request

    low, high = np.zeros(QUERIES + 1, np.float32), np.full(QUERIES + 1, math.log(2), np.float32)
    low[-1], high[-1] = math.log(2), 0
    return Case(
        name=name, mechanism=mechanism, data=low, neighbour=high, epsilon=float(schedule.pure(epsilon)), delta=1e-6
    )


def shipped_schedules() -> list[Case]:
    """Every schedule that a certificate may speak of."""
    adaptive = private_logdet(1e-3, share=0.3, max_syncs=2)
    removed = dataclasses.replace(BUDGET, adjacency="add_remove")
    central = private_fed_lin_ucb(removed, batch=adaptive, trust="central")
    return [
        above_threshold(private_logdet(1e-3, share=0.5), epsilon=2.0, name="private_logdet tests alone"),
        scheduled(central, n_agents=8, horizon=4, name="central tree private_logdet"),
        scheduled(fed_ucb(removed, schedule=adaptive, lazy=True), n_agents=2, horizon=4, name="FedUCB private_logdet"),
        scheduled(
            private_fed_lin_ucb(BUDGET, batch=geometric(1.5), release="blt"),
            n_agents=1,
            name="silo_local blt geometric",
        ),
    ]
