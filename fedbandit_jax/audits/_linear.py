"""Cases of the linear family: every trust model, every release and every adjacency.

Axes: S synchronisations, M silos, d features, D = d(d+1)/2 + d numbers of a packed statistic (x x', x y).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.algos import EpsilonGreedy, Federated, Gossip, Thompson, adac_oful, dp_dpe, private_fed_lin_ucb
from fedbandit_jax.audits._case import Case
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import struct, validate
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.envs import Script
from fedbandit_jax.interfaces import Algorithm, Recipe, Round, Spec, certify
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.messages import Messages
from fedbandit_jax.privacy.releases import Decaying
from fedbandit_jax.privacy.statistic import matrix_weights
from fedbandit_jax.schedules import Every

N_SYNCS = 8  # S of a case
BUDGET = Budget(1.0, 1e-5)  # of shipped cases
BLOCKS = (
    4  # parts of the bits that a shuffler shows, whose ones are counted: were they not mixed, the parts would differ
)


# How long a run takes, relative to others, by: is the noise of integers, are users' bits counted, message by message?
_SLOW = {(True, False, False): 4, (True, False, True): 8, (True, True, False): 4, (True, True, True): 12}


@struct.pytree
class Watched(Algorithm):
    """An algorithm that also remembers the arms of the last batch."""

    algo: Algorithm

    @property
    def batch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number B of rounds in a step."""
        return self.algo.batch

    @override
    def init(self, key: Array, spec: Spec) -> Any:
        return self.algo.init(key, spec), jnp.zeros((self.batch, spec.n_agents), jnp.int32)

    @override
    def download(self, state: Any, offered: Round) -> Any:
        return self.algo.download(state[0], offered)

    @override
    def act(self, key: Array, t: Array, local: Any, offered: Round) -> Array:
        return self.algo.act(key, t, local, offered)

    @override
    def learn(self, t: Array, local: Any, offered: Round, arms: Array, rewards: Array) -> tuple[Any, Any]:
        local, record = self.algo.learn(t, local, offered, arms, rewards)
        return local, (record, arms)

    @override
    def sync(self, key: Array, k: Array, state: Any, local: Any, records: Any) -> tuple[Any, Any]:
        state, report = self.algo.sync(key, k, state[0], local, self.algo.gather(records[0]))
        return (state, records[1].astype(jnp.int32)), report

    @override
    def view(self, state: Any) -> Any:
        return self.algo.view(state[0]), state[1]


@struct.pytree
class Transcript:
    """A mechanism for `audit`: (key, (contexts, answers, seen)) -> all that a run of a bound algorithm shows.

    That is its view after every step, how often it has synchronised in that step, and every user's arm that is `seen`,
    (T, M) bool, by others than herself. Contexts (T, M, K, d) and answers (T, M, K) are those of a `Script`. Without
    `seen`, arms are not shown.
    """

    algo: Algorithm  # bound
    spec: Spec = struct.static()
    horizon: int = struct.static()  # T

    def __call__(self, key: Array, data: tuple[Array, ...]) -> Any:
        contexts, answers, *seen = data
        world = Script(contexts=contexts, answers=answers, means=answers, spec=self.spec)
        process = RoundClock(env=world, algo=Watched(algo=self.algo), horizon=self.horizon)

        def body(carry, k):
            world, state, metrics = process.step(key, carry[0], carry[1], k)
            shown, arms = process.algo.view(state)
            return (world, state), (_counted(self.algo, shown), metrics.report.rounds, arms)

        shown, rounds, arms = lax.scan(body, process.init(key), jnp.arange(process.n_steps))[1]
        if not seen:
            return shown, rounds
        arms = arms.reshape(-1, self.spec.n_agents)[: self.horizon]
        return shown, rounds, jnp.where(seen[0], arms, 0).astype(jnp.float32)


def transcript(algo: Algorithm, spec: Spec, horizon: int) -> Transcript:
    """Returns the `Transcript` of an algorithm that is bound to this spec and horizon T."""
    validate.instance("algo", algo, Algorithm, "an fb.Algorithm")
    if isinstance(algo, Recipe):
        raise TypeError(f"algo must be bound, as algo.bind(spec, horizon) is, got {validate.shown(algo)}")
    validate.instance("spec", spec, Spec, "an fb.Spec, as env.spec is")
    return Transcript(algo=algo, spec=spec, horizon=validate.integer("horizon", horizon, at_least=1))


def _counted(algo: Any, shown: Any) -> Any:
    """Returns what an algorithm shows, with bits (D, N) that were mixed as the counts of ones in parts (D, `BLOCKS`).

    Bits that are -1 were not sent. For bits in random order one count per entry tells all there is to know.
    """
    mechanism = getattr(algo, "mechanism", None)
    if not isinstance(mechanism, Messages) or not mechanism.trust.needs_users:
        return shown
    ones = (shown == 1).astype(jnp.float32)
    return jnp.stack([part.sum(1) for part in jnp.array_split(ones, BLOCKS, axis=1)], 1)


def farthest_user(mechanism: Any) -> tuple[np.ndarray, float]:
    """Returns the user (x, y) by whom replacing x = (1, 0), y = 1 moves a bound mechanism's statistic most.

    See `sensitivity_sq`; noise on the joint matrix of (x, y) is that of s^2 = 1/2.
    """
    one = mechanism.statistic
    square = 0.5 if mechanism.trust.joint_matrix else one.gram_scale**2
    k = min(1.0, (0.125 if one.centred else 0.5) / square)
    return np.array([k if one.centred else -k, (1 - k * k) ** 0.5]), 0.0 if one.centred else 1.0


def answer(mechanism: Any) -> float:
    """Returns the reward with which a user adds nothing to the sum of x y, or of x (y - 1/2)."""
    return 0.5 if mechanism.statistic.centred else 0.0


FARTHEST = np.array([-0.5, 3**0.5 / 2]), 1.0  # of x y and x x' as they are


def neighbours(
    horizon: int,
    n_agents: int,
    adjacency: str,
    visits: int,
    *,
    farthest: tuple[np.ndarray, float] = FARTHEST,
    others: float = 0.0,
) -> dict[str, tuple[Any, Any]]:
    """Builds pairs of data for a `Transcript` with two arms, that differ in `visits` rounds of one user of one silo.

    The first pair attains the sensitivity: x = (1, 0) and y = 1 are replaced by the user `farthest`, by default x =
    (-1/2, sqrt 3 / 2) and y = 1 ("replace"), which moves (x x', x y) by sqrt 4.5 each, or by nothing ("add_remove"),
    which moves it by sqrt 2. With noise on the joint matrix of [x y]'[x y] the farthest replacement is x = (-1, 0),
    where x x' is the same; it differs in the pair "other direction". In "out of range" and "reward" the user's features
    are too long and her rewards far outside [0, 1].

    That user has the same features on both arms. All others choose between -e and e with e = (1, 0), and answer
    `others`, which is 0 or, if rewards are centred, 1/2: what
    they add is the same whichever they choose, and their choice is the sign of what is believed about e, however small
    that is. Their arms are seen, hers are not.
    """
    away = np.array([1.0, 0.0])
    contexts = np.broadcast_to(np.stack([-away, away]), (horizon, n_agents, 2, 2)).astype(np.float32)
    silo, last, middle = n_agents - 1, horizon - visits, (horizon - visits) // 2

    def data(t: int, i: int, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rounds, features, answers = (
            slice(t, t + visits),
            contexts.copy(),
            np.full((horizon, n_agents, 2), others, np.float32),
        )
        seen = np.ones((horizon, n_agents), bool)
        features[rounds, i], answers[rounds, i], seen[rounds, i] = x, y, False
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


def mechanism_of(algo: Federated | Gossip) -> tuple[Mechanism, Budget]:
    """Returns the mechanism of an algorithm, and the one budget of all its silos.

    Raises:
        TypeError: it is not `Federated` or `Gossip`, there is no budget, or silos have different ones.
    """
    mechanism = validate.instance("algo", algo, (Federated, Gossip), "an fb.algos.Federated").privacy
    budgets = mechanism.budgets if isinstance(mechanism, Mechanism) else ()
    if not isinstance(mechanism, Mechanism) or len(budgets) != 1:
        raise TypeError(f"algo must have one fb.privacy.Budget, got {validate.shown(mechanism)}")
    return mechanism, budgets[0]


def certified(bound: Algorithm) -> Certificate:
    """Returns the certificate of a bound algorithm, whose claim is to be refuted.

    Raises:
        ValueError: the bound algorithm is not certified.
    """
    certificate = certify(bound)
    if certificate.claim != "certified":
        raise ValueError(
            f"algo must be certified for its claim to be audited, got {certificate.claim}: {certificate.reason}"
        )
    return certificate


def linear(algo: Federated, *, n_agents: int, name: str | None = None, n_syncs: int = N_SYNCS) -> Case:
    """Builds a case of a certified linear algorithm with a fixed batch, on the pairs of `neighbours`.

    The claim is what the certificate says that the noise really gives, which is at most what was asked for.

    For trust models with integer noise ("secagg", "shuffle_vector_sum") the view is only close to Gaussian, and the
    sharper of the two bounds is a heuristic.

    Args:
        algo: algorithm with one budget for all silos.
        n_agents: M.
        name: name of the case; default: trust model and release.
        n_syncs: S, the number of batches.

    Raises:
        TypeError: the schedule is not `Every`, or there is no single budget.
        ValueError: the algorithm is not certified.
    """
    privacy, budget = mechanism_of(algo)
    if not isinstance(algo.schedule, Every):
        raise TypeError(f"algo must have a fixed batch, got {algo.schedule!r}; see fb.audits.scheduled")
    spec, visits = spec_of(n_agents, constant=privacy.centred), privacy.together
    horizon = validate.integer("n_syncs", n_syncs, at_least=1) * algo.schedule.batch
    bound = algo.bind(spec, horizon)
    certificate = certified(bound)
    mechanism: Any = bound.mechanism
    worst: dict[str, Any] = dict(farthest=farthest_user(mechanism), others=answer(mechanism))
    pairs = neighbours(horizon, n_agents, budget.adjacency, visits, **worst)
    replay: dict[str, Any] = {}
    if not mechanism.trust.on_grid:  # on a grid rounding depends on the data, and does not cancel
        by_prefix = mechanism.release.prefix_at_silo or not privacy.messages
        measure = prefixes_moved(mechanism, privacy.messages) if by_prefix else _messages_moved
        replay = dict(sensitivity=mechanism.sensitivity, measure=measure)
    return Case.of(
        pairs,
        name=" ".join((str(privacy.trust), str(privacy.release), *["messages"][: privacy.messages]))
        if name is None
        else name,
        mechanism=Transcript(algo=bound, spec=spec, horizon=horizon),
        epsilon=certificate.epsilon_exact or budget.epsilon,
        delta=budget.delta,
        gaussian=True,
        fixed_control_flow=True,
        slow=_SLOW.get((mechanism.trust.on_grid, mechanism.trust.needs_users, privacy.messages), 1),
        **replay,
    )


def spec_of(n_agents: int, n_arms: int = 2, constant: bool = False) -> Spec:
    """Returns the spec of a script that promises nothing about rewards, so that the mechanism must bound them."""
    return Spec(n_agents=n_agents, n_arms=n_arms, dim=2, max_norm=1.0, rewards_in_unit=False, constant=constant)


def _messages_moved(view: Any, other: Any) -> float:
    """Returns the joint l2 distance of all messages (S, ..., D) of two views, whose noise is equal."""
    return float(np.linalg.norm(view[0].astype(float) - other[0]))


def prefixes_moved(mechanism: Any, by_silo: bool) -> Callable[[Any, Any], float]:
    """Returns a function like `_messages_moved` for private prefix sums, whose increments are the sums of the batches.

    Prefix sums are (S, d, d + 1), or packed (S, M, D) if `by_silo`. With noise on the joint matrix of (x, y) the
    distance is in units of each entry's noise relative to that of the bias.
    """
    encoder, statistic = mechanism.release.encoder(), mechanism.statistic

    def measure(view: Any, other: Any) -> float:
        moved = view[0] - other[0]
        moved = np.asarray(moved.sum(1) if by_silo else statistic.pack(jnp.asarray(moved)), float)
        if mechanism.trust.joint_matrix:
            moved = moved / matrix_weights(moved.shape[-1])
        return float(np.linalg.norm(encoder @ np.diff(moved, axis=0, prepend=0)))

    return measure


def shipped_linear() -> list[Case]:
    """Returns cases of every trust model, every release, every adjacency, and policies other than UCB.

    Every trust model is also run message by message.
    """

    def case(
        n_agents: int = 1,
        batch: int = 2,
        budget: Budget = BUDGET,
        name: str | None = None,
        n_syncs: int = N_SYNCS,
        **options: Any,
    ) -> Case:
        algo = private_fed_lin_ucb(Mechanism(budget, **options), schedule=batch)
        return linear(algo, n_agents=n_agents, name=name, n_syncs=n_syncs)

    silo_local = [
        case(release=release, messages=release == "honaker")  # its prefix sums do not show all of its messages
        for release in ("tree", "prefix_tree", "honaker", "sqrt_toeplitz", "blt", "input_perturbation")
    ]
    removed = Budget(BUDGET.epsilon, BUDGET.delta, "add_remove")
    thompson = Federated(policy=Thompson(), schedule=2, privacy=Mechanism(BUDGET, release="blt", trust="central"))
    half = Mechanism(BUDGET, "input_perturbation", centred=True, gram_scale=0.35)
    explores = Federated(policy=EpsilonGreedy(), schedule=2, privacy=Mechanism(BUDGET, "blt", "secagg"))
    others = {
        "DP-DPE": (dp_dpe(np.array([[-1.0, 0.0], [1.0, 0.0]]), half, schedule=2), 4),  # the arms of `neighbours`
        "AdaC-OFUL": (adac_oful(BUDGET, schedule=2), 1),
        "EpsilonGreedy secagg blt": (explores, 4),
    }
    small = Budget(8.0, BUDGET.delta)  # so that users' messages have few bits
    return [
        *silo_local,
        case(n_agents=2, release="tree", messages=True),
        case(n_agents=3, release="prefix_tree", messages=True),
        case(calibration="theorem", name="silo_local tree theorem"),
        case(budget=removed, name="silo_local tree add_remove"),
        case(visits=2, name="silo_local tree 2 visits"),
        case(centred=True, name="silo_local tree centred"),
        case(n_agents=2, centred=True, gram_scale=0.5, release=Decaying(1.5), name="silo_local decaying centred 1/2"),
        case(n_agents=2, centred=True, gram_scale=0.5, trust="secagg", release="blt", name="secagg blt centred 1/2"),
        case(n_agents=2, centred=True, gram_scale=0.5, messages=True, name="silo_local tree centred 1/2 messages"),
        case(trust="silo_local_matrix", release="prefix_tree"),
        case(n_agents=2, trust="silo_local_matrix", release="prefix_tree", messages=True),
        case(trust="shuffle_amplified"),
        case(n_agents=2, trust="shuffle_amplified", messages=True),
        case(n_agents=2, batch=1, n_syncs=2, budget=small, trust="shuffle_vector_sum"),
        case(n_agents=2, batch=1, n_syncs=1, budget=small, trust="shuffle_vector_sum", messages=True),
        case(n_agents=3, trust="secagg", release="tree"),
        case(n_agents=3, trust="secagg", release="blt"),
        case(n_agents=2, trust="secagg", release="blt", messages=True),
        case(n_agents=3, trust="central", release="blt"),
        case(n_agents=2, trust="central", release="tree", messages=True),
        case(batch=1, trust="local", release="input_perturbation"),
        case(n_agents=2, batch=1, trust="local", release="input_perturbation", messages=True),
        linear(thompson, n_agents=3, name="Thompson central blt"),
        *(replace(linear(algo, n_agents=2, name=name), slow=slow) for name, (algo, slow) in others.items()),
    ]
