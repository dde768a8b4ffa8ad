"""The adversary's view of a run on scripted users and data, and neighbours that are far apart.

Axes: T rounds, S synchronisations, M silos, K arms, d features. A packed statistic (x x', x y) has D = d(d+1)/2 + d
numbers. Users, offers and answers are data; only the algorithm draws at random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.audits.case import Case
from fedbandit_jax.audits.messages import Messages
from fedbandit_jax.core import random, ridge, struct, validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.engine.record import Recorder, arms
from fedbandit_jax.engine.runners import Synchronous
from fedbandit_jax.envs import Dropout, Script
from fedbandit_jax.interfaces import Algorithm, ArrivalAlgorithm, Spec, certify
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism

PARTS = 4  # of a shuffler's bits, to count ones in; without mixing the parts would differ
FARTHEST = np.array([-0.5, 3**0.5 / 2]), 1.0  # user (x, y) that replaces x = (1, 0), y = 1; see `farthest_user`


@struct.pytree
class Transcript:
    """A mechanism for `audit`: (key, (contexts, answers, seen)) -> the view of a run of a bound algorithm.

    It holds the algorithm's view after every step, and its synchronisations. If `seen` (T, M) bool is given, it holds
    these arms, which others see. Contexts (T, M, K, d) and answers (T, M, K) are as in `Script`. If users are
    identified, each silo has one in all rounds. If silos drop out, they take turns.
    """

    algo: Algorithm  # bound
    spec: Spec = struct.static()
    horizon: int = struct.static()  # T

    def __call__(self, key: Array, data: tuple[Array, ...]) -> Any:
        contexts, answers, *seen = data
        users = jnp.zeros(contexts.shape[:2], jnp.int32) if self.spec.n_users else None
        world: Any = Script(contexts=contexts, answers=answers, means=answers, users=users, spec=self.spec)
        if self.spec.drops:
            m = self.spec.n_agents
            turn = np.arange(self.horizon) // self.algo.batch % m
            world = Dropout(env=world, rate=np.zeros(m), away=turn[:, None] == np.arange(m), spec=self.spec)
        every = (np.arange(1, self.horizon + 1, dtype=np.int32),)
        played = Recorder(rounds=every, names=("arms",), functions=(arms,), final=(False,))
        runner = Synchronous(env=world, algo=self.algo, horizon=self.horizon, recorder=played)

        def body(carry, k):
            world, state, metrics = runner.step(key, carry[0], carry[1], k)
            return (world, state), (_counted(self.algo, self.algo.view(state.learner)), metrics.report.rounds)

        (_, state), (shown, rounds) = lax.scan(body, runner.init(key), jnp.arange(runner.n_steps))
        if not seen:
            return shown, rounds
        return shown, rounds, jnp.where(seen[0], state.values[0], 0).astype(jnp.float32)


def _counted(algo: Any, shown: Any) -> Any:
    """Counts ones in `PARTS` of mixed bits (D, N), -1 if not sent. Returns anything else unchanged."""
    mechanism = getattr(algo, "mechanism", None)
    if not isinstance(mechanism, Messages) or not mechanism.trust.needs_users:
        return shown
    ones = (shown == 1).astype(jnp.float32)
    return jnp.stack([part.sum(1) for part in jnp.array_split(ones, PARTS, axis=1)], 1)


def played(
    algo: ArrivalAlgorithm,
    spec: Spec,
    key: Array,
    users: Array,
    contexts: Array,
    answers: Array,
    show: Callable[[Any, Any, Array, Array, Any], Any],
) -> Any:
    """Plays T rounds of one user each, `users` (T,), with contexts (T, 1, K, d) and answers (T, 1, K).

    It stacks `show(view before the user is served, view after it, user, arm, report)` of all rounds.
    """
    syncs, choices = random.stream(key, "syncs"), random.stream(key, "choices")

    def play(state, row):
        t, user, items, rewards = row
        state, _ = algo.begin(syncs, t, state)
        before = algo.view(state)
        arm = ridge.first_argmax(algo.index(choices, t, state, user, items[0]))
        state, report = algo.serve(syncs, t, state, user, items[0, arm], rewards[0, arm])
        return state, show(before, algo.view(state), user, arm, report)

    rounds = jnp.arange(len(contexts), dtype=jnp.int32), *map(jnp.asarray, (users, contexts, answers))
    return lax.scan(play, algo.init(random.stream(key, "learner"), spec), rounds)[1]


def spec_of(n_agents: int, **options: Any) -> Spec:
    """Makes the spec of a script without bounds on rewards, which the mechanism must enforce."""
    return Spec(n_agents=n_agents, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=False, **options)


def one_budget(algo: Any, kind: type | tuple[type, ...], name: str) -> tuple[Mechanism, Budget]:
    """Returns the mechanism of an algorithm of this kind, and the one budget of all its silos."""
    mechanism = validate.instance("algo", algo, kind, f"an fb.algos.{name}").privacy
    budgets = mechanism.budgets if isinstance(mechanism, Mechanism) else ()
    if not isinstance(mechanism, Mechanism) or len(budgets) != 1:
        raise BadType("algo", "must have one fb.privacy.Budget", mechanism)
    return mechanism, budgets[0]


def certified(algo: Any, spec: Spec, horizon: int) -> Any:
    """Binds an algorithm, which must be certified and release something."""
    bound: Any = algo.bind(spec, horizon)
    certificate = certify(bound)
    if certificate.claim != "certified":
        got = f"{certificate.claim}: {certificate.reason}"
        yours = "(fb.audits.claimed audits a claim of your own)"
        raise BadValue("algo", f"must be certified for its claim to be audited {yours}", got, got=got)
    if hasattr(bound, "mechanism") and not isinstance(bound.mechanism, NoisyMechanism):
        raise BadValue("horizon", f"must allow a release by {algo.schedule!r}", horizon)
    return bound


def farthest_user(mechanism: Any) -> tuple[np.ndarray, float]:
    """Returns the user (x, y) whose replacement of x = (1, 0), y = 1 moves a bound mechanism's statistic most.

    See `sensitivity_sq`; noise on the joint matrix of (x, y) corresponds to s^2 = 1/2.
    """
    one, centred = mechanism.statistic.bounds, mechanism.statistic.rule.centred
    w = 0.5 if mechanism.trust.joint_matrix else (one.gram_scale * one.weight) ** 2
    v = one.response**2
    k = min(1.0, v / (2 * w))
    if one.weighted and w + 4 * v > 2 * v * (1 + k) + 2 * w * (1 - k * k):
        k = 1.0
    return np.array([k if centred else -k, (1 - k * k) ** 0.5]), 0.0 if centred else 1.0


def case_of(
    bound: Any, budget: Budget, horizon: int, n_agents: int, visits: int, silos: int = 1, **fields: Any
) -> Case:
    """Makes the case of a bound algorithm's claim, on its farthest `neighbours` in `visits` rounds of `silos`.

    If its schedule reads data, one user decides the time of a synchronisation in the first pair.
    """
    fixed = bound.schedule is None or bound.schedule.reads == "nothing"
    nothing = 0.5 if bound.mechanism.statistic.rule.centred else 0.0  # reward that adds nothing to x y
    worst = farthest_user(bound.mechanism) if fixed else FARTHEST
    pairs = neighbours(horizon, n_agents, budget.adjacency, visits, silos, farthest=worst, others=nothing)
    return Case.of(
        pairs if fixed else {"Alice or Tracy": alone(horizon, n_agents), **pairs},
        epsilon=certify(bound).epsilon_exact or budget.epsilon,
        delta=budget.delta,
        gaussian=fixed,
        scheduled=not fixed,
        fixed_control_flow=fixed,
        **fields,
    )


def neighbours(
    horizon: int,
    n_agents: int,
    adjacency: str,
    visits: int,
    silos: int = 1,
    *,
    farthest: tuple[np.ndarray, float] = FARTHEST,
    others: float = 0.0,
) -> dict[str, tuple[Any, Any]]:
    """Makes pairs of data for a `Transcript` with two arms. They differ in `visits` rounds of one user.

    The user comes to `silos` silos in each of these rounds, by default to one.

    The first pair attains the sensitivity. The user `farthest` replaces x = (1, 0) and y = 1. By default each round
    moves (x x', x y) by sqrt 4.5. Removal ("zero_out") moves it by sqrt 2.

    The user has equal features on both arms. All others choose between -e and e with e = (1, 0). They answer `others`:
    0, or 1/2 for centred rewards. Either choice contributes the same. The choice reveals the sign of the belief about
    e, however small. Their arms are seen, the user's are not.
    """
    away = np.array([1.0, 0.0])
    contexts = np.broadcast_to(np.stack([-away, away]), (horizon, n_agents, 2, 2)).astype(np.float32)
    silo, last, middle = n_agents - 1, horizon - visits, (horizon - visits) // 2

    def data(t: int, i: int, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        i, features = min(i, n_agents - silos), contexts.copy()
        at = slice(t, t + visits), slice(i, i + silos)
        answers = np.full((horizon, n_agents, 2), others, np.float32)
        seen = np.ones((horizon, n_agents), bool)
        features[at], answers[at], seen[at] = x, y, False
        return features, answers, seen

    replaced, one, none = adjacency == "replace", np.array([1.0, 0.0]), (np.zeros(2), 0.0)

    def pair(t: int, i: int, x: Any, y: float, *other: Any) -> tuple[Any, Any]:
        return data(t, i, x, y), data(t, i, *(other if replaced else none))

    return {
        "first user": pair(0, 0, one, 1.0, *farthest),
        "middle user": pair(middle, n_agents // 2, one, 1.0, *farthest),
        "last user": pair(last, silo, one, 1.0, *farthest),
        "other direction": pair(0, silo, one[::-1], 1.0, one, 1.0),
        "out of range": pair(0, 0, [3.0, 3.0], 50.0, [-3.0, 3.0], 50.0),
        "reward": pair(middle, 0, one, -50.0, one, 50.0),
    }


def alone(horizon: int, n_agents: int) -> tuple[Any, Any]:
    """Makes data of `Transcript`: the first user of the first silo has x = (1, 0), or x = 0 like all others."""
    contexts, answers = (np.zeros(shape, np.float32) for shape in ((horizon, n_agents, 2, 2), (horizon, n_agents, 2)))
    one, seen = contexts.copy(), np.ones((horizon, n_agents), bool)
    one[0, 0], seen[0, 0] = (1, 0), False
    return (one, answers + 1, seen), (contexts, answers + 1, seen)
