"""Cases of agents who come one at a time, each of whom releases prefix sums over its own rounds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.algos import AsyncFederated, Thompson
from fedbandit_jax.audits._case import Case
from fedbandit_jax.audits._linear import FARTHEST, answer, certified, farthest_user, neighbours, spec_of
from fedbandit_jax.audits._schedules import BUDGET, alone
from fedbandit_jax.core import random, ridge, struct, validate
from fedbandit_jax.interfaces import ArrivalAlgorithm, Spec
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.schedules import Geometric, PrivateLogDet

AGENTS = 2  # who take turns


@struct.pytree
class TranscriptOfAgents:
    """A mechanism for `audit`: (key, (contexts, answers, seen)) -> all that the server and other agents see of a run.

    That is, after every round, the last release of the agent who came, whether it uploaded, and its arm if it is
    `seen`. Contexts (T, 1, K, d), answers (T, 1, K) and `seen` (T, 1) are those of `Transcript` with one silo.
    """

    algo: ArrivalAlgorithm  # bound
    spec: Spec = struct.static()

    def __call__(self, key: Array, data: tuple[Array, Array, Array]) -> Any:
        algo, syncs, choices = self.algo, random.stream(key, "syncs"), random.stream(key, "choices")

        def play(state, row):
            t, contexts, answers, seen = row
            agent = t % AGENTS
            arm = ridge.first_argmax(algo.index(choices, t, state, agent, contexts[0]))
            state, report = algo.serve(syncs, t, state, agent, contexts[0, arm], answers[0, arm])
            shown = algo.view(state)[0][agent]
            return state, (shown, report.rounds, jnp.where(seen[0], arm, 0).astype(jnp.float32))

        rounds = jnp.arange(len(data[0]), dtype=jnp.int32), *map(jnp.asarray, data)
        return lax.scan(play, algo.init(random.stream(key, "learner"), self.spec), rounds)[1]


def asynchronous(algo: AsyncFederated, *, horizon: int = 12, name: str) -> Case:
    """Builds a case of all that certified agents who take turns show: releases, their rounds, and what they recommend.

    The pairs are those of `neighbours`, which differ in one round of one agent. If the schedule reads what agents have
    learned, in another pair the first round is Alice's or Tracy's of `timing`, and no other round contributes anything.

    Args:
        algo: algorithm with a budget, which protects single interactions.
        horizon: T; agents 0 and 1 take turns.
        name: name of the case.

    Raises:
        TypeError: the algorithm has no budget.
        ValueError: the algorithm is not certified, or protects several visits together.
    """
    privacy = validate.instance("algo", algo, AsyncFederated, "an fb.algos.AsyncFederated").privacy
    if not isinstance(privacy, Mechanism):
        raise TypeError(f"algo must have one fb.privacy.Budget, got {validate.shown(privacy)}")
    if privacy.together != 1:
        raise ValueError(f"algo must have visits=1 for its claim to be audited, got {privacy.visits}")
    horizon = validate.integer("horizon", horizon, at_least=1)
    spec = dataclasses.replace(spec_of(1, constant=privacy.centred), n_users=AGENTS)
    bound: Any = algo.bind(spec, horizon)
    certified(bound)
    (budget,) = privacy.budgets
    fixed = bound.schedule.reads == "nothing"
    worst = farthest_user(bound.mechanism) if fixed else FARTHEST
    pairs = neighbours(horizon, 1, budget.adjacency, 1, farthest=worst, others=answer(bound.mechanism))
    if not fixed:
        pairs = {"Alice or Tracy": alone(horizon, 1), **pairs}
    return Case.of(
        pairs,
        name=name,
        mechanism=TranscriptOfAgents(algo=bound, spec=spec),
        epsilon=budget.epsilon,
        delta=budget.delta,
        gaussian=fixed,
        fixed_control_flow=fixed,
    )


def shipped_asynchronous() -> list[Case]:
    """Returns cases of counts of rounds, and of private tests at a threshold that one round decides about."""
    fixed = AsyncFederated(
        policy=Thompson(),
        schedule=Geometric(1.5, first=1),
        privacy=Mechanism(BUDGET, "blt", visits=1, centred=True, gram_scale=0.5),
    )
    tested = AsyncFederated(
        schedule=PrivateLogDet(share=0.5, max_syncs=2, trigger="he22"),
        privacy=Mechanism(Budget(4.0, 0.1, "add_remove"), visits=1),
    )
    policy: Any = tested.bind(dataclasses.replace(spec_of(1), n_users=AGENTS), 8).policy
    tested = tested.replace(threshold=math.log1p(1 / float(policy.first_regularization)) / 2)
    return [
        asynchronous(fixed, name="asynchronous blt geometric"),
        asynchronous(tested, horizon=8, name="asynchronous tree private_logdet"),
    ]
