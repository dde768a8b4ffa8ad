"""Cases of linear bandits: every trust model, release and adjacency, with release times, and your own claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.algos import (
    EpsilonGreedy,
    Federated,
    Forgetting,
    Gossip,
    Thompson,
    adac_oful,
    dp_dpe,
    private_fed_lin_ucb,
)
from fedbandit_jax.algos.loops.server import ServerLoop
from fedbandit_jax.audits.case import Case
from fedbandit_jax.audits.messages import by_message
from fedbandit_jax.audits.transcripts import Transcript, case_of, certified, neighbours, one_budget, spec_of
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Algorithm
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.packing import matrix_weights, packed_size
from fedbandit_jax.privacy.releases import RELEASES, Decaying, Discounted
from fedbandit_jax.privacy.statistic import Linear, Logistic, Statistic
from fedbandit_jax.privacy.users import Users
from fedbandit_jax.schedules import Every

BUDGET = Budget(1.0, 1e-5)  # of shipped cases
HALF = Linear(centred=True, gram_scale=0.5)
BATCHES, ROUNDS = 8, 12  # horizon of a case, in batches, or in rounds without a fixed batch


@dataclasses.dataclass(frozen=True)
class Opinion(Statistic):
    """A weighted statistic that attains its bounds; users with y = 0 have no weight."""

    responses = (-0.5, 0.5)

    def contribution(self, x: jax.Array, y: jax.Array, seen: Any) -> tuple[Any, Any]:
        """Returns the reward as weight, and its excess over 1/2."""
        return y, y - 0.5


def linear(
    algo: Federated | Gossip,
    *,
    n_agents: int,
    horizon: int | None = None,
    drops: bool = False,
    messages: bool = False,
    name: str | None = None,
) -> Case:
    """Builds a case of a certified linear algorithm: releases, their rounds, who asked, and arms.

    In the first pair of neighbours one user is replaced, or removed, and attains the sensitivity. Returning users come
    in all rounds to all the silos that they may, more often than the mechanism allows. If the schedule reads data of
    agents, the user is Alice or Tracy of `timing`. The claim is the certificate's exact epsilon. Trust models with
    integer noise ("secagg", "shuffle_vector_sum") have a nearly Gaussian view. Then the sharper of the two bounds is a
    heuristic.

    Args:
        algo: algorithm with one budget for all silos.
        n_agents: number M of silos.
        horizon: T; default: 8 batches, or 12 rounds without a fixed batch.
        drops: whether silos take turns to miss a batch.
        messages: whether every message of every silo is shown, see `by_message`.
        name: name of the case; default: trust model and release.

    Raises:
        TypeError: there is no single budget.
        ValueError: the algorithm is not certified, or nothing is released.
    """
    privacy, budget = one_budget(algo, (Federated, Gossip), "Federated")
    batch = algo.schedule.batch if isinstance(algo, Federated) and isinstance(algo.schedule, Every) else 0
    horizon = BATCHES * batch or ROUNDS if horizon is None else horizon
    horizon = validate.integer("horizon", horizon, at_least=1)
    returns = isinstance(privacy.unit, Users)
    silos = int(min(privacy.users.reach, validate.integer("n_agents", n_agents, at_least=1)))
    options: Any = dict(n_users=int(returns), silos=silos, drops=drops)
    spec = spec_of(n_agents, constant=privacy.statistic.centred, **options)
    bound = certified(algo, spec, horizon)
    bound = by_message(bound) if validate.boolean("messages", messages) else bound
    mechanism = bound.mechanism
    options = {}
    by_batch = type(bound) is ServerLoop and bound.schedule is None
    whole = batch if by_batch else 0  # other loops do not show one sum of all silos
    if whole and not mechanism.trust.on_grid:  # rounding to a grid does not cancel
        measure = _messages_moved(mechanism) if messages else prefixes_moved(mechanism, mechanism.per_silo)
        options = dict(sensitivity=mechanism.sensitivity, measure=measure)
    elif whole:  # slowness of integers, of users' bits, and of both message by message
        options = dict(slow=(12 if mechanism.trust.needs_users else 8) if messages else 4)
    shown = f"{privacy.trust} {privacy.release}{' messages' * messages}"
    options["name"] = shown if name is None else name
    options["mechanism"] = Transcript(algo=bound, spec=spec, horizon=horizon)
    return case_of(bound, budget, horizon, n_agents, horizon if returns else 1, silos, **options)


def _units(mechanism: Any) -> Any:
    """Returns each packed entry's noise, relative to the bias entries'."""
    return matrix_weights(packed_size(mechanism.statistic.dim)) if mechanism.trust.joint_matrix else 1.0


def claimed(
    algo: Algorithm,
    budget: Budget,
    *,
    n_agents: int = 1,
    horizon: int = ROUNDS,
    visits: int = 1,
    gaussian: bool = False,
    name: str | None = None,
) -> Case:
    """Builds a case of a linear algorithm against a claim of its author.

    It runs on the data of `linear`: M silos whose users have two arms and d = 2. One user differs in `visits` rounds,
    also with features and rewards out of range. The adversary sees `algo.view` at every synchronisation, their rounds,
    and the arms of all other users. So `view` must hold everything sent to parties that the author does not trust. The
    audit does not see what it omits.

    Args:
        algo: an `fb.Algorithm`, user-defined or not, certified or not; `bind` returns what runs.
        budget: the claim: epsilon, delta and the adjacency.
        n_agents: number M of silos.
        horizon: T, whole batches.
        visits: rounds of one user, all at one silo.
        gaussian: promise that the view is Gaussian, as in `fb.audits.audit`, or made of Gaussian parts.
        name: name of the case; default: the algorithm's.
    """
    validate.instance("algo", algo, Algorithm, "an fb.Algorithm")
    validate.instance("budget", budget, Budget, "an fb.privacy.Budget")
    n_agents = validate.integer("n_agents", n_agents, at_least=1)
    visits = validate.integer("visits", visits, at_least=1)
    horizon = validate.integer("horizon", horizon, at_least=visits)
    spec = spec_of(n_agents)
    return Case.of(
        neighbours(horizon, n_agents, budget.adjacency, visits),
        name=str(algo.name) if name is None else name,
        mechanism=Transcript(algo=algo.bind(spec, horizon), spec=spec, horizon=horizon),
        epsilon=budget.epsilon,
        delta=budget.delta,
        gaussian=validate.boolean("gaussian", gaussian),
    )


def _messages_moved(mechanism: Any) -> Callable[[Any, Any], float]:
    """Makes a function for the joint l2 distance of all messages (S, ..., D) of two views, in units of the noise."""
    return lambda view, other: float(np.linalg.norm((view[0].astype(float) - other[0]) / _units(mechanism)))


def prefixes_moved(mechanism: Any, by_silo: bool) -> Callable[[Any, Any], float]:
    """Makes `_messages_moved` for private prefix sums, (S, d, d + 1), or packed (S, M, D) if `by_silo`."""
    encoder, statistic, units = mechanism.release.encoder(), mechanism.statistic, _units(mechanism)

    def measure(view: Any, other: Any) -> float:
        moved = view[0] - other[0]
        moved = np.asarray(moved.sum(1) if by_silo else statistic.pack(jnp.asarray(moved)), float)
        return float(np.linalg.norm(encoder @ np.diff(moved / units, axis=0, prepend=0)))

    return measure


def shipped_linear() -> list[Case]:
    """Makes cases of every trust model, also message by message, every release, every adjacency, and other policies.

    If each silo adds its own noise and only sums are seen, there is one silo. A sum over M has the noise of all. It
    shows 1 / sqrt M as much as one silo's messages.
    """

    def case(n_agents: int = 1, batch: int = 2, budget: Budget = BUDGET, **options: Any) -> Case:
        asked: dict[str, Any] = {name: options.pop(name, None) for name in ("horizon", "name")}
        asked |= {name: options.pop(name, False) for name in ("drops", "messages")}
        return linear(private_fed_lin_ucb(Mechanism(budget, **options), schedule=batch), n_agents=n_agents, **asked)

    silo_local = [case(release=release) for release in RELEASES]
    removed = Budget(BUDGET.epsilon, BUDGET.delta, "zero_out")
    thompson = Federated(policy=Thompson(), schedule=2, privacy=Mechanism(BUDGET, release="blt", trust="central"))
    memory = Discounted(0.7)
    forgets = Federated(
        policy=Forgetting(policy=Thompson(), memory=memory), schedule=2, privacy=Mechanism(BUDGET, release=memory)
    )
    median = private_fed_lin_ucb(Mechanism(BUDGET, "blt"), schedule=2).replace(aggregate="median")
    half = Mechanism(BUDGET, "input_perturbation", statistic=Linear(centred=True, gram_scale=0.35))
    explores = Federated(policy=EpsilonGreedy(), schedule=2, privacy=Mechanism(BUDGET, "blt", "secagg"))
    others = {
        "DP-DPE": (dp_dpe(np.array([[-1.0, 0.0], [1.0, 0.0]]), half, schedule=2), 4),  # the arms of `neighbours`
        "AdaC-OFUL": (adac_oful(BUDGET, schedule=2), 1),
        "EpsilonGreedy secagg blt": (explores, 4),
    }
    small = Budget(8.0, BUDGET.delta)  # few bits in users' messages
    return [
        *silo_local,
        case(n_agents=2, release="tree", messages=True),
        case(std="theorem_5_1", name="silo_local tree theorem"),
        case(budget=removed, name="silo_local tree zero_out"),
        case(unit=Users(2), name="silo_local tree 2 visits"),
        case(unit=Users(3, per_batch=1, apart=2), release="blt", name="silo_local blt users"),
        case(n_agents=3, unit=Users(3, per_batch=1, apart=2), release="blt", trust="secagg", name="secagg blt users"),
        case(n_agents=2, unit=Users(2, per_batch=1, silos=2), release="blt", trust="central", name="central two silos"),
        case(n_agents=2, unit=Users(4, 2, silos="together"), release="blt", trust="central", name="central together"),
        case(statistic=Linear(centred=True), name="silo_local tree centred"),
        case(statistic=HALF, release=Decaying(1.5), name="silo_local decaying centred 1/2"),
        case(n_agents=2, statistic=HALF, trust="secagg", release="blt", name="secagg blt centred 1/2"),
        case(n_agents=2, statistic=HALF, messages=True, name="silo_local tree centred 1/2 messages"),
        case(statistic=Opinion(gram_scale=0.5), release="blt", name="silo_local blt weighted"),
        case(statistic=Logistic(), release="blt", name="silo_local blt logistic"),
        linear(median, n_agents=3, name="silo_local blt median"),
        case(trust="silo_local_matrix"),
        case(n_agents=2, trust="silo_local_matrix", messages=True),
        case(trust="shuffle_amplified"),
        case(n_agents=2, trust="shuffle_amplified", messages=True),
        case(n_agents=2, batch=1, horizon=2, budget=small, trust="shuffle_vector_sum"),
        case(n_agents=2, batch=1, horizon=1, budget=small, trust="shuffle_vector_sum", messages=True),
        case(n_agents=3, trust="secagg", release="tree"),
        case(n_agents=3, trust="secagg", release="blt"),
        case(n_agents=2, trust="secagg", release="blt", messages=True),
        case(n_agents=2, trust="secagg", release="input_perturbation", drops=True, dropouts=1, name="secagg dropouts"),
        case(n_agents=2, trust="central", release="input_perturbation", drops=True, name="central dropouts"),
        case(n_agents=3, trust="central", release="blt"),
        case(n_agents=2, trust="central", release="tree", messages=True),
        case(batch=1, trust="local", release="input_perturbation"),
        case(n_agents=2, batch=1, trust="local", release="input_perturbation", messages=True),
        linear(thompson, n_agents=3, name="Thompson central blt"),
        linear(forgets, n_agents=1, name="Forgetting silo_local discounted"),
        case(release=Discounted(0.7), n_agents=3, trust="secagg", name="secagg discounted"),
        *(
            dataclasses.replace(linear(algo, n_agents=2 if "secagg" in name else 1, name=name), slow=slow)
            for name, (algo, slow) in others.items()
        ),
    ]
