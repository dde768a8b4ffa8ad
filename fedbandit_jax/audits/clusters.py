"""Cases of clustering algorithms: the global server's view of returning users, in parts and as a whole.

Users, features and rewards of all rounds are scripted. Axes: T rounds, S phases of FCLUB, N seats (one for every user
of every server). A packed statistic (x x', x y) has D = d(d+1)/2 + d numbers.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.algos.clusters.fclub import FCLUB
from fedbandit_jax.algos.papers import homo_dc
from fedbandit_jax.audits.case import Case
from fedbandit_jax.audits.transcripts import certified, played
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces import ArrivalAlgorithm, Spec
from fedbandit_jax.privacy.budget import Budget, matrix_sensitivity_sq
from fedbandit_jax.privacy.packing import matrix_weights, pack

BUDGET = Budget(1.0, 0.1)
# Delta of audits of upload times: small, since the differing round decides an upload in less than a tenth of runs.
DELTA = 1e-3


def spec_of_visits(n_users: int, n_servers: int, *, n_arms: int = 1, dim: int = 2) -> Spec:
    """Makes the spec of returning users with rewards in [0, 1]."""
    sizes: dict[str, Any] = dict(n_arms=n_arms, dim=dim, n_users=n_users, n_servers=n_servers)
    return Spec(n_agents=1, max_norm=1.0, rewards_in_unit=True, **sizes)


def one_item(contexts: Any, answers: Any, users: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Makes data of `TranscriptOfVisits` with one item a round: features (T, d), rewards (T,) and users (T,)."""
    x, y = (np.asarray(numbers, np.float32) for numbers in (contexts, answers))
    return x[:, None, None], y[:, None, None], np.asarray(users, np.int32)


class Shown(NamedTuple):
    """The global server's view of a run of T rounds in S phases. It determines the server's own sums."""

    released: Array  # (S, N, D), sums of local clusters at the start of a phase, packed by `_flat`
    messages: Array  # (T, D), the upload after each round, or zeros
    uploaded: Array  # (T,) bool, whether there is an upload after this round
    labels: Array  # (S, N) int32, local clusters at the start of a phase


@struct.pytree
class TranscriptOfVisits:
    """A mechanism for `audit`: (key, (contexts, answers, users)) -> the view of a run of a bound algorithm.

    Data are as in `played`. The arms of users of all servers but the first are shown as well, (T,).
    """

    algo: ArrivalAlgorithm  # bound
    spec: Spec = struct.static()

    def __call__(self, key: Array, data: tuple[Array, Array, Array]) -> tuple[Shown, Array]:
        contexts, answers, users = data
        servers = self.spec.n_servers

        def show(before: Any, after: Any, user: Array, arm: Array, report: Any) -> Any:
            _, shared, uploads, _ = before
            released, now, counts, labels = after
            message = (now - shared).sum(0)  # only one cluster uploads
            uploaded = (counts != uploads).any()
            return (_flat(released), _flat(message), uploaded, labels), jnp.where(user % servers, arm, 0)

        shown, arms = played(self.algo, self.spec, key, users, contexts, answers, show)
        released, messages, uploaded, labels = shown
        starts = np.array([2**s - 2 for s in range(1, (len(contexts) + 1).bit_length())])
        return Shown(released[starts], messages, uploaded, labels[starts]), arms.astype(jnp.float32)


def _flat(sums: Array) -> Array:
    """Packs sums (..., d, d + 1) to (..., D), scaled so the noise of a tree node is iid."""
    packed = pack(sums)
    return packed / matrix_weights(packed.shape[-1])


def _moved(view: tuple[Shown, Array], other: tuple[Shown, Array]) -> float:
    both = zip(view[0][:2], other[0][:2])
    return max(float(np.linalg.norm(one.astype(float) - two, axis=-1).max()) for one, two in both)


def clusters(algo: FCLUB, *, n_servers: int = 2, horizon: int = 6, name: str | None = None) -> Case:
    """Builds a case of a certified FCLUB: released sums, uploads and their rounds, local clusters.

    Every server has one user. In the first pair only the first user arrives. As many first rounds differ as are
    protected together. There x = (1, 0) and y = 1 becomes x = (-1, 0) with the same y ("replace"), or is removed
    ("zero_out"). This attains the sensitivity of every sum. In "seen by others" the second server's user arrives in all
    later rounds. The contribution does not depend on the arm, x = (1, 0) or (-1, 0), which is seen. With a finite
    `alpha_2` the global clusters, and so the trees, depend on the noise. Then nothing is Gaussian, and runs with equal
    keys may diverge.

    Raises:
        TypeError: the algorithm has no single budget.
        ValueError: the algorithm is not certified, or the horizon is shorter than the differing visits.
    """
    budget = _budget(algo)
    validate.integer("n_servers", n_servers, at_least=1)
    horizon = validate.integer("horizon", horizon, at_least=algo.visits)
    pairs = _neighbours(horizon, budget.adjacency, algo.visits)
    spec = spec_of_visits(n_servers, n_servers, n_arms=2)
    bound = certified(algo, spec, horizon)
    replay: dict[str, Any] = {}
    if algo.alpha_2 == math.inf:
        moves = algo.visits * math.sqrt(matrix_sensitivity_sq(budget.adjacency))
        replay = dict(gaussian=True, fixed_control_flow=True, sensitivity=moves, measure=_moved)
    return Case.of(
        pairs,
        name=f"{algo.name} {algo.trigger}" if name is None else name,
        mechanism=TranscriptOfVisits(algo=bound, spec=spec),
        epsilon=budget.epsilon,
        delta=budget.delta,
        slow=2,
        **replay,
    )


def _neighbours(horizon: int, adjacency: str, often: int) -> dict[str, tuple[Any, Any]]:
    """Makes pairs of data that differ in `often` rounds of user 0, with equal features on both arms.

    In the user's other rounds x = (1, 0) and y = 1.
    """
    one, none = np.array([1.0, 0.0], np.float32), (np.zeros(2), 0.0)

    def data(first: int, user: int, x: Any, y: Any) -> Any:
        contexts = np.tile(one, (horizon, 1, 2, 1))
        answers, users = np.ones((horizon, 1, 2), np.float32), np.zeros(horizon, np.int32)
        later = slice(first + often, horizon)
        if user:
            contexts[later, 0, 0], answers[later], users[later] = -one, 0, user
        contexts[first : first + often], answers[first : first + often] = x, y
        return contexts, answers, users

    def pair(first: int, user: int, x: Any, y: float, *other: Any) -> tuple[Any, Any]:
        return data(first, user, x, y), data(first, user, *(other if adjacency == "replace" else none))

    return {
        "first rounds": pair(0, 0, one, 1, -one, 1),
        "last rounds": pair(horizon - often, 0, one, 1, -one, 1),
        "other direction": pair(0, 0, one[::-1], 1, one, 1),
        "out of range": pair(0, 0, 3 * one, 50, -3 * one, 50),
        "reward": pair(0, 0, one, -50, one, 50),
        "seen by others": pair(0, 1, one, 1, -one, 1),
    }


def labels(algo: FCLUB, *, name: str) -> Case:
    """Builds a case of the final local clusters alone, for which any claim must hold too.

    Two users of the first server take turns until a phase begins. Whether their estimates are then too far apart
    depends on the first user's last round. In that round x = (1, 0) and y = 1 becomes x = (-1, 0) with the same y, or
    is removed, according to the adjacency.
    """
    budget, lam, alpha_1 = _budget(algo), algo.regularization, algo.alpha_1 if algo.alpha_1 < math.inf else 1.5
    count = 3  # rounds of each user; phases begin after 6, 14, 30, ... rounds
    while not 2 / (lam + count) < (far := 2 * alpha_1 * _spread(count)) < 1.9 * count / (lam + count):
        count = 2 * count + 1
    horizon, removed = 2 * count + 1, budget.adjacency == "zero_out"
    first = count / (lam + count)
    moved = first - ((count - 1) / (lam + count - 1) if removed else (count - 2) / (lam + count))
    second = first - far - min(moved / 2, far / 20)  # close enough to keep links of earlier phases
    contexts, answers = np.zeros((horizon, 2), np.float32), np.ones(horizon, np.float32)
    contexts[:, 0] = 1
    contexts[1::2, 0], answers[1::2] = math.copysign(1, second), abs(second) / first
    other = contexts.copy()
    other[2 * count - 2, 0] = 0 if removed else -1
    users = np.arange(horizon) % 2 * 2  # the first server has users 0 and 2
    spec = spec_of_visits(3, 2)
    whole = TranscriptOfVisits(algo=algo.bind(spec, horizon), spec=spec)
    return Case(
        name=name,
        mechanism=lambda key, data: whole(key, data)[0].labels[-1],
        data=one_item(contexts, answers, users),
        neighbour=one_item(other, answers, users),
        epsilon=budget.epsilon,
        delta=budget.delta,
    )


def uploads(algo: FCLUB, *, name: str) -> Case:
    """Builds a case of upload times alone, the rounds after which there is an upload. The claim is epsilon at `DELTA`.

    A user comes twice, with x = 0 and then with x = 1. For the neighbour it is x = 0 again. Without an upload after the
    first round, there is none after a second x = 0 either. After x = 1 there may be one. The noise on the pending
    amount stays the same. With 3 rho I added at "every" upload, a factor U near 1 is always reached. U is then replaced
    by the factor at which the noise decides.
    """
    _budget(algo)
    spec = spec_of_visits(1, 1, dim=1)
    bound = algo.bind(spec, 2)
    if bound.exchange.shifts and not bound.exchange.counts:
        rho = float(bound.exchange.rho)
        bound = algo.replace(upload=1 + 3 * rho / (algo.regularization + 2 * rho)).bind(spec, 2)
    assert bound.exchange.noise is not None
    whole = TranscriptOfVisits(algo=bound, spec=spec)
    return Case(
        name=name,
        mechanism=lambda key, data: whole(key, data)[0].uploaded,
        data=one_item([[0.0], [1.0]], [0.0, 1.0], [0, 0]),
        neighbour=one_item([[0.0], [0.0]], [0.0, 0.0], [0, 0]),
        epsilon=dataclasses.replace(bound.exchange.noise, delta=DELTA).epsilon_exact,
        delta=DELTA,
    )


def _budget(algo: FCLUB) -> Budget:
    validate.instance("algo", algo, FCLUB, "an fb.algos.FCLUB")
    if not isinstance(algo.budget, Budget):
        raise BadType("algo", "must have one fb.privacy.Budget", algo.budget)
    return algo.budget


def _spread(count: int) -> float:
    return math.sqrt((1 + math.log1p(count)) / (1 + count))


def shipped_clusters() -> list[Case]:
    """Makes cases of persistent trees, of trees that most phases replace, and of two removed visits."""
    homo = homo_dc(BUDGET, trigger="count")
    again = homo.replace(adjacency="zero_out", visits=2)
    return [
        clusters(homo),
        clusters(FCLUB(BUDGET, alpha_1=math.inf, alpha_2=0.02, trigger="count"), n_servers=6),
        clusters(again, name="CDP-Homo-DC count zero_out 2 visits"),
    ]
