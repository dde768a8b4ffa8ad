"""Cases of the clustering family: what the global server sees of users who come again, alone and all together.

Its users are written down: who comes in which round, with what features and what reward.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos.clusters.fclub import FCLUB, homo_dc
from fedbandit_jax.algos.clusters.loop import BoundFCLUB
from fedbandit_jax.audits._case import Case
from fedbandit_jax.core import random, ridge, struct
from fedbandit_jax.envs.script import Script
from fedbandit_jax.interfaces import ClusteringAlgorithm, Round, Spec
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.statistic import matrix_weights, pack

BUDGET = Budget(1.0, 0.1)
DELTA = 1e-3  # of upload times: one round decides about them in fewer than a tenth of the runs


@struct.pytree
class ScriptedVisits(Script):
    """A script of one user a round who is told apart, (T,): `contexts` (T, 1, K, d), `answers` (T, 1, K)."""

    users: Any
    n_clusters: int = struct.static(default=1)

    def observe(self, key: Array, world: Array, t: Array) -> tuple[Round, Array]:
        """Round t of the script, and who comes."""
        offered, t = super().observe(key, world, t)
        return offered._replace(user=jnp.asarray(self.users, jnp.int32)[t, None]), t

    def clusters(self, world: Array) -> Array:
        """All are alike."""
        del world
        return jnp.zeros(self.spec.n_users, jnp.int32)


def visits(contexts: Any, answers: Any, users: Any, *, n_users: int, n_servers: int) -> ScriptedVisits:
    """Users (T,) who have one item each, with features (T, d) in the unit ball and rewards (T,) in [0, 1]."""
    x, y = np.asarray(contexts, np.float32)[:, None, None], np.asarray(answers, np.float32)[:, None, None]
    spec = Spec(
        n_agents=1,
        n_arms=1,
        dim=x.shape[-1],
        max_norm=1.0,
        rewards_in_unit=True,
        n_users=n_users,
        n_servers=n_servers,
    )
    return ScriptedVisits(contexts=x, answers=y, means=y, users=np.asarray(users, np.int32), spec=spec)


class Shown(NamedTuple):
    """All that the global server sees in S phases of T rounds, of N seats; what it adds up follows from it."""

    released: Array  # (S, N, D) sums that local clusters show when a phase begins, packed, as `_flat`
    messages: Array  # (T, D) what is uploaded after a round, or zeros
    uploaded: Array  # (T,) bool: is anything?
    labels: Array  # (S, N) int32 local clusters


def transcript_of_visits(algo: ClusteringAlgorithm, env: ScriptedVisits, horizon: int) -> Callable[..., Shown]:
    """(key, (contexts, answers)) -> all that a run of a bound algorithm shows, from its `view`."""
    starts = np.array([2**s - 2 for s in range(1, (horizon + 1).bit_length())])

    def mechanism(key: Array, data: tuple[Array, Array]) -> Shown:
        contexts, answers = data
        world = dataclasses.replace(env, contexts=contexts, answers=answers, means=answers)
        syncs = random.stream(key, "syncs")

        def play(carry, t):
            script, state = carry
            state, _ = algo.begin(syncs, t, state)
            _, shared, uploads, _ = algo.view(state)
            offered, script = world.observe(key, script, t)
            assert offered.user is not None
            user, items = offered.user[0], offered.contexts[0]
            arm = ridge.first_argmax(algo.index(key, t, state, user, items))
            answer = world.pull(key, script, offered, arm[None])
            state, _ = algo.serve(syncs, t, state, user, items[arm], answer.reward[0])
            released, now, counts, labels = algo.view(state)
            message = (now - shared).sum(0)  # to one of them
            return (script, state), (_flat(released), _flat(message), (counts != uploads).any(), labels)

        start = world.init(key), algo.init(random.stream(key, "learner"), env.spec)
        released, messages, uploaded, labels = lax.scan(play, start, jnp.arange(horizon))[1]
        return Shown(released[starts], messages, uploaded, labels[starts])

    return mechanism


def _flat(sums: Array) -> Array:
    """(..., d, d + 1) to (..., D), in units in which the noise of a node is iid."""
    packed = pack(sums)
    return packed / matrix_weights(packed.shape[-1])


def _moved(view: Shown, other: Shown) -> float:
    """Largest Euclidean distance of a sum or message, the noise being equal."""
    both = zip(view[:2], other[:2])
    return max(float(np.linalg.norm(one.astype(float) - two, axis=-1).max()) for one, two in both)


def clusters(
    algo: FCLUB,
    *,
    n_servers: int = 2,
    horizon: int = 6,
    name: str | None = None,
    change: Callable[[BoundFCLUB], ClusteringAlgorithm] = lambda bound: bound,
) -> Case:
    """Everything that a certified FCLUB shows: released sums, uploads, after which rounds, and local clusters.

    Every server has one user, of whom only the first comes. Her first rounds differ, as many as are protected
    together, as far as the adjacency lets them: x = (1, 0) and y = 1 against x = (-1, 0), or nothing. That attains
    the sensitivity of every sum. With a finite `alpha_2` global clusters, and so the trees in use, depend on the
    noise: nothing is Gaussian then, and runs with equal keys may differ in all that follows.
    """
    contexts = np.zeros((horizon, 2), np.float32)
    contexts[:, 0] = 1
    other, budget = contexts.copy(), _budget(algo)
    other[: algo.visits, 0] = -1 if budget.adjacency == "replace" else 0
    ones, first = np.ones(horizon), np.zeros(horizon)
    env, neighbour = (visits(x, ones, first, n_users=n_servers, n_servers=n_servers) for x in (contexts, other))
    certificate = algo.certificate(env.spec, horizon)
    if certificate.claim != "certified":
        raise ValueError(
            f"algo must be certified for its claim to be audited, got {certificate.claim}: {certificate.reason}"
        )
    replay: dict[str, Any] = {}
    if algo.alpha_2 == math.inf:
        moves = algo.visits * math.sqrt(budget.matrix_sensitivity_sq)
        replay = dict(gaussian=True, fixed_control_flow=True, sensitivity=moves, measure=_moved)
    return Case(
        name=name or f"{algo.name} {algo.trigger}",
        mechanism=transcript_of_visits(change(algo.bind(env.spec, horizon)), env, horizon),
        data=(env.contexts, env.answers),
        neighbour=(neighbour.contexts, neighbour.answers),
        epsilon=budget.epsilon,
        delta=budget.delta,
        **replay,
    )


def labels(algo: FCLUB, *, name: str) -> Case:
    """Only the local clusters, in the end; whatever is claimed must hold for them, too.

    Two users of the first server come in turn until a phase begins. The second's estimate is such that the last
    round of the first decides whether hers is too far from it: x = (1, 0) and y = 1 against x = (-1, 0), or
    nothing.
    """
    budget, lam, alpha_1 = _budget(algo), algo.regularization, algo.alpha_1 if algo.alpha_1 < math.inf else 1.5
    count = 3  # rounds of each: phases begin after 6, 14, 30, ... rounds
    while not 2 / (lam + count) < (far := 2 * alpha_1 * _spread(count)) < 1.9 * count / (lam + count):
        count = 2 * count + 1
    horizon, removed = 2 * count + 1, budget.adjacency == "add_remove"
    first = count / (lam + count)
    moved = first - ((count - 1) / (lam + count - 1) if removed else (count - 2) / (lam + count))
    second = first - far - min(moved / 2, far / 20)  # close by: links of earlier phases stay
    contexts, answers = np.zeros((horizon, 2), np.float32), np.ones(horizon, np.float32)
    contexts[:, 0] = 1
    contexts[1::2, 0], answers[1::2] = math.copysign(1, second), abs(second) / first
    other = contexts.copy()
    other[2 * count - 2, 0] = 0 if removed else -1
    users = np.arange(horizon) % 2 * 2  # of the first server, which has users 0 and 2
    env = visits(contexts, answers, users, n_users=3, n_servers=2)
    whole = transcript_of_visits(algo.bind(env.spec, horizon), env, horizon)
    return Case(
        name=name,
        mechanism=lambda key, data: whole(key, data).labels[-1],
        data=(env.contexts, env.answers),
        neighbour=(other[:, None, None], env.answers),
        epsilon=budget.epsilon,
        delta=budget.delta,
    )


def uploads(algo: FCLUB, *, name: str) -> Case:
    """Only after which rounds something is uploaded, at `DELTA`; the claim is what the noise is worth there.

    A user comes twice: with nothing, and then with x = 1, or nothing again. What is not worth uploading after the
    first round is not so after nothing more either, but after x = 1 it may be, for the noise that hides how much
    there is stays the same. With 3 rho I at "every" upload a U near 1 is always reached; then U is replaced by the
    one at which noise decides.
    """
    _budget(algo)
    env = visits([[0.0], [1.0]], [0.0, 1.0], [0, 0], n_users=1, n_servers=1)
    bound = algo.bind(env.spec, 2)
    if bound.shifts and not bound.counts:
        rho = float(bound.rho)
        bound = algo.replace(upload=1 + 3 * rho / (algo.regularization + 2 * rho)).bind(env.spec, 2)
    assert bound.noise is not None
    whole = transcript_of_visits(bound, env, 2)
    return Case(
        name=name,
        mechanism=lambda key, data: whole(key, data).uploaded,
        data=(env.contexts, env.answers),
        neighbour=(np.zeros_like(env.contexts), np.zeros_like(env.answers)),
        epsilon=dataclasses.replace(bound.noise, delta=DELTA).epsilon_exact,
        delta=DELTA,
    )


def _budget(algo: FCLUB) -> Budget:
    if not isinstance(algo.budget, Budget):
        raise TypeError(f"algo must have one fb.privacy.Budget, got {algo.budget!r}")
    return algo.budget


def _spread(count: int) -> float:
    """F(T)."""
    return math.sqrt((1 + math.log1p(count)) / (1 + count))


def shipped_clusters() -> list[Case]:
    """Trees that go on, trees that nearly every phase plants anew, and users who come again and are left out."""
    homo = homo_dc(BUDGET, trigger="count")
    again = homo.replace(adjacency="add_remove", visits=2)
    return [
        clusters(homo),
        clusters(FCLUB(BUDGET, alpha_1=math.inf, alpha_2=0.02, trigger="count"), n_servers=6),
        clusters(again, name="CDP-Homo-DC count add_remove 2 visits"),
    ]
