"""Cases of the linear family: every protocol, every release, every adjacency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos import FedLinUCB, private_fed_lin_ucb
from fedbandit_jax.audits._case import Case
from fedbandit_jax.core import validate
from fedbandit_jax.engine.process import RoundProcess
from fedbandit_jax.envs import Script, script
from fedbandit_jax.interfaces import Algorithm
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.statistic import pack
from fedbandit_jax.privacy.trust.protocols import matrix_weights

N_SYNCS = 8
BUDGET = Budget(1.0, 1e-5)


def transcript(algo: Algorithm, env: Script, horizon: int) -> Callable[[Array, Any], Any]:
    """(key, (contexts, answers)) -> all that a run of a bound algorithm shows: its views, and when it synchronised."""

    def mechanism(key: Array, data: tuple[Array, Array]) -> Any:
        contexts, answers = data
        world = Script(contexts=contexts, answers=answers, means=answers, spec=env.spec)
        process = RoundProcess(env=world, algo=algo, horizon=horizon)

        def body(carry, k):
            world, state, metrics = process.step(key, carry[0], carry[1], k)
            return (world, state), (algo.view(state), metrics.report.rounds)

        return lax.scan(body, process.init(key), jnp.arange(process.n_steps))[1]

    return mechanism


def neighbours(
    horizon: int, n_agents: int, adjacency: str, visits: int, *, matrix: bool = False
) -> tuple[Script, Script]:
    """Scripts of one arm in which the first silo's first `visits` users differ, as far as the adjacency lets them.

    x = (1, 0) and y = 1 against x = (-1/2, sqrt 3 / 2) and y = 1 is sqrt 4.5 apart, against nothing sqrt 2; with noise
    on the joint matrix the farthest is x = (-1, 0).
    """
    contexts, answers = np.zeros((horizon, n_agents, 1, 2)), np.ones((horizon, n_agents, 1))
    contexts[..., 0] = 1.0
    other = contexts.copy()
    farthest = (-1, 0) if matrix else (-0.5, 3**0.5 / 2)
    other[:visits, 0, 0] = farthest if adjacency == "replace" else (0, 0)
    return script(contexts, answers), script(other, answers)


def linear(algo: FedLinUCB, *, n_agents: int, name: str | None = None) -> Case:
    """A certified fixed-batch linear algorithm, over `N_SYNCS` batches of its size.

    Its users have one arm each, so that nothing but the release is tried; `transcript` takes any script.
    """
    budget = algo.budget
    if not isinstance(budget, Budget):
        raise TypeError(f"algo must have one fb.privacy.Budget, got {budget!r}")
    validate.integer("n_agents", n_agents, at_least=1)
    if not isinstance(algo.batch, int):
        raise TypeError(f"algo must have a fixed batch, got {algo.batch!r}; see fb.audits.scheduled")
    horizon, matrix = N_SYNCS * algo.batch, algo.trust == "silo_local_matrix"
    one, other = neighbours(horizon, n_agents, budget.adjacency, algo.visits, matrix=matrix)
    certificate = algo.certificate(one.spec, horizon)
    if certificate.claim != "certified":
        raise ValueError(
            f"algo must be certified for its claim to be audited, got {certificate.claim}: {certificate.reason}"
        )
    (noise,) = algo.calibrate(one.spec, horizon)
    bound = algo.bind(one.spec, horizon)
    replay: dict[str, Any] = {}
    if not noise.protocol.on_grid:  # else rounding depends on the data, and does not cancel
        release = bound.channel.release  # pyright: ignore[reportAttributeAccessIssue]
        replay["sensitivity"] = noise.sensitivity
        by_prefix = release.prefix_at_silo or not algo.messages
        replay["measure"] = _prefixes_moved(release, algo.messages, matrix) if by_prefix else _messages_moved
    return Case(
        name=name or " ".join((algo.trust, algo.release, *(("messages",) if algo.messages else ()))),
        mechanism=transcript(bound, one, horizon),
        data=(one.contexts, one.answers),
        neighbour=(other.contexts, other.answers),
        epsilon=budget.epsilon,
        delta=budget.delta,
        gaussian=True,
        fixed_control_flow=True,
        **replay,
    )


def _messages_moved(view: Any, other: Any) -> float:
    """Joint l2 distance of all messages (S, ..., D), their noise being equal."""
    return float(np.linalg.norm(view[0].astype(float) - other[0]))


def _prefixes_moved(release: Release, by_silo: bool, matrix: bool) -> Callable[[Any, Any], float]:
    """The same from private prefix sums, (S, d, d + 1), or packed `by_silo`, (S, M, D): increments are the batches'.

    In units of each entry's noise relative to the bias's.
    """
    encoder = release.encoder()

    def measure(view: Any, other: Any) -> float:
        moved = view[0] - other[0]
        moved = np.asarray(moved.sum(1) if by_silo else pack(jnp.asarray(moved)), float)
        if matrix:
            moved = moved / matrix_weights(moved.shape[-1])
        return float(np.linalg.norm(encoder @ np.diff(moved, axis=0, prepend=0)))

    return measure


def shipped_linear() -> list[Case]:
    """Every protocol, every release, every adjacency."""

    def case(
        n_agents: int = 1, batch: int = 2, budget: Budget = BUDGET, name: str | None = None, **options: Any
    ) -> Case:
        return linear(private_fed_lin_ucb(budget, batch=batch, **options), n_agents=n_agents, name=name)

    silo_local = [
        case(release=release)
        for release in ("tree", "prefix_tree", "honaker", "sqrt_toeplitz", "blt", "input_perturbation")
    ]
    removed = Budget(BUDGET.epsilon, BUDGET.delta, "add_remove")
    return [
        *silo_local,
        case(n_agents=2, release="tree", messages=True),
        case(n_agents=3, release="prefix_tree", messages=True),
        case(calibration="theorem", name="silo_local tree theorem"),
        case(budget=removed, name="silo_local tree add_remove"),
        case(visits=2, name="silo_local tree 2 visits"),
        case(trust="silo_local_matrix", release="prefix_tree"),
        case(trust="shuffle_amplified"),
        case(n_agents=30, batch=10, trust="shuffle_vector_sum"),
        case(n_agents=3, trust="secagg", release="tree"),
        case(n_agents=3, trust="secagg", release="blt"),
        case(n_agents=3, trust="central", release="blt"),
        case(batch=1, trust="local", release="input_perturbation"),
    ]
