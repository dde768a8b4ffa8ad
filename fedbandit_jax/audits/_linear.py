"""Cases of the linear family: every trust model, every release and every adjacency.

Axes: S synchronisations, M silos, d features, D = d(d+1)/2 + d numbers of a packed statistic (x x', x y).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos import Federated, Thompson, private_fed_lin_ucb
from fedbandit_jax.audits._case import Case
from fedbandit_jax.core import validate
from fedbandit_jax.engine.process import RoundProcess
from fedbandit_jax.envs import Script, script
from fedbandit_jax.interfaces import Algorithm, certify
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.statistic import matrix_weights, pack
from fedbandit_jax.schedules import Every

N_SYNCS = 8  # S of a case
BUDGET = Budget(1.0, 1e-5)  # of shipped cases


def transcript(algo: Algorithm, env: Script, horizon: int) -> Callable[[Array, Any], Any]:
    """Returns a mechanism for `audit`, (key, (contexts, answers)) -> all that a run of a bound algorithm shows.

    That is its view after every step, and how often it has synchronised in that step. The data are those of a `Script`,
    contexts (T, M, K, d) and answers (T, M, K); `env` gives the spec.
    """

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
    """Builds two scripts of one arm that differ in the first silo's first `visits` users, as far as `adjacency` allows.

    Users with x = (1, 0) and y = 1 are replaced by x = (-1/2, sqrt 3 / 2) and y = 1 ("replace"), which moves (x x', x
    y) by sqrt 4.5 each, or by nothing ("add_remove"), which moves it by sqrt 2. With noise on the joint matrix of [x
    y]'[x y] (`matrix`) the farthest replacement is x = (-1, 0).
    """
    contexts, answers = np.zeros((horizon, n_agents, 1, 2)), np.ones((horizon, n_agents, 1))
    contexts[..., 0] = 1.0
    other = contexts.copy()
    farthest = (-1, 0) if matrix else (-0.5, 3**0.5 / 2)
    other[:visits, 0, 0] = farthest if adjacency == "replace" else (0, 0)
    return script(contexts, answers), script(other, answers)


def mechanism_of(algo: Federated) -> tuple[Mechanism, Budget]:
    """Returns the mechanism of an algorithm, and the one budget of all its silos.

    Raises:
        TypeError: there is no budget, or silos have different ones.
    """
    mechanism = algo.privacy
    budgets = mechanism.budgets if isinstance(mechanism, Mechanism) else ()
    if not isinstance(mechanism, Mechanism) or len(budgets) != 1:
        raise TypeError(f"algo must have one fb.privacy.Budget, got {mechanism!r}")
    return mechanism, budgets[0]


def certified(bound: Algorithm) -> None:
    """Checks that there is a claim to refute.

    Raises:
        ValueError: the bound algorithm is not certified.
    """
    certificate = certify(bound)
    if certificate.claim != "certified":
        raise ValueError(
            f"algo must be certified for its claim to be audited, got {certificate.claim}: {certificate.reason}"
        )


def linear(algo: Federated, *, n_agents: int, name: str | None = None) -> Case:
    """Builds a case of a certified linear algorithm with a fixed batch, over `N_SYNCS` batches.

    Its users have one arm each, so that only the release is tried; `transcript` takes any script. For trust models with
    integer noise ("secagg", "shuffle_vector_sum") the view is only close to Gaussian, and the sharper of the two bounds
    is a heuristic.

    Args:
        algo: algorithm with one budget for all silos.
        n_agents: M.
        name: name of the case; default: trust model and release.

    Raises:
        TypeError: the schedule is not `Every`, or there is no single budget.
        ValueError: the algorithm is not certified.
    """
    privacy, budget = mechanism_of(algo)
    validate.integer("n_agents", n_agents, at_least=1)
    if not isinstance(algo.schedule, Every):
        raise TypeError(f"algo must have a fixed batch, got {algo.schedule!r}; see fb.audits.scheduled")
    horizon, visits = N_SYNCS * algo.schedule.batch, privacy.together
    spec = neighbours(horizon, n_agents, budget.adjacency, visits)[0].spec
    bound = algo.bind(spec, horizon)
    certified(bound)
    mechanism: Any = bound.mechanism
    release, matrix = mechanism.release, mechanism.trust.joint_matrix
    one, other = neighbours(horizon, n_agents, budget.adjacency, visits, matrix=matrix)
    replay: dict[str, Any] = {}
    if not mechanism.trust.on_grid:  # on a grid rounding depends on the data, and does not cancel
        by_prefix = release.prefix_at_silo or not privacy.messages
        measure = _prefixes_moved(release, privacy.messages, matrix) if by_prefix else _messages_moved
        replay = dict(sensitivity=mechanism.sensitivity, measure=measure)
    return Case(
        name=name or " ".join((str(privacy.trust), str(privacy.release), *["messages"][: privacy.messages])),
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
    """Returns the joint l2 distance of all messages (S, ..., D) of two views, whose noise is equal."""
    return float(np.linalg.norm(view[0].astype(float) - other[0]))


def _prefixes_moved(release: Release, by_silo: bool, matrix: bool) -> Callable[[Any, Any], float]:
    """Returns a function like `_messages_moved` for private prefix sums, whose increments are the sums of the batches.

    Prefix sums are (S, d, d + 1), or packed (S, M, D) if `by_silo`. With `matrix` the distance is in units of each
    entry's noise relative to that of the bias.
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
    """Returns cases of every trust model, every release and every adjacency, and of a policy other than UCB."""

    def case(
        n_agents: int = 1, batch: int = 2, budget: Budget = BUDGET, name: str | None = None, **options: Any
    ) -> Case:
        algo = private_fed_lin_ucb(Mechanism(budget, **options), schedule=batch)
        return linear(algo, n_agents=n_agents, name=name)

    silo_local = [
        case(release=release)
        for release in ("tree", "prefix_tree", "honaker", "sqrt_toeplitz", "blt", "input_perturbation")
    ]
    removed = Budget(BUDGET.epsilon, BUDGET.delta, "add_remove")
    thompson = Federated(policy=Thompson(), schedule=2, privacy=Mechanism(BUDGET, release="blt", trust="central"))
    return [
        *silo_local,
        case(n_agents=2, release="tree", messages=True),
        case(n_agents=3, release="prefix_tree", messages=True),
        case(calibration="theorem", name="silo_local tree theorem"),
        case(budget=removed, name="silo_local tree add_remove"),
        case(visits=2, name="silo_local tree 2 visits"),
        case(trust="silo_local_matrix", release="prefix_tree"),
        case(n_agents=2, trust="silo_local_matrix", release="prefix_tree", messages=True),
        case(trust="shuffle_amplified"),
        case(n_agents=30, batch=10, trust="shuffle_vector_sum"),
        case(n_agents=3, trust="secagg", release="tree"),
        case(n_agents=3, trust="secagg", release="blt"),
        case(n_agents=3, trust="central", release="blt"),
        case(batch=1, trust="local", release="input_perturbation"),
        linear(thompson, n_agents=3, name="Thompson central blt"),
    ]
