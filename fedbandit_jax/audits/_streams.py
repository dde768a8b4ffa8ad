"""Cases of users with a private stream each: what is released of all of them, who is taken to be alike, what they play.

Axes: T rounds, S releases, n users, d features.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos import Alone, Grouped, Mixture
from fedbandit_jax.audits._case import Case
from fedbandit_jax.audits._clusters import ScriptedVisits
from fedbandit_jax.audits._linear import answer, certified, farthest_user, neighbours, prefixes_moved
from fedbandit_jax.core import random, ridge, struct, validate
from fedbandit_jax.interfaces import ArrivalAlgorithm, Spec
from fedbandit_jax.privacy.bound import BoundMechanism
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.releases import Decaying
from fedbandit_jax.schedules import Geometric

N_USERS = 3  # n of a case
BUDGET = Budget(1.0, 1e-5)  # of shipped cases


@struct.pytree
class TranscriptOfStreams:
    """A mechanism for `audit`: (key, (contexts, answers, seen)) -> all that a run of a bound `Grouped` shows.

    That is what was released of every user, (T, n, d, d + 1), and her group, (T, n), both after every round, and
    every arm that is `seen`, (T, 1) bool, by others than the user who is recommended it.
    """

    algo: ArrivalAlgorithm  # bound
    env: ScriptedVisits
    horizon: int = struct.static()  # T

    def __call__(self, key: Array, data: tuple[Array, ...]) -> Any:
        contexts, answers, seen = data
        algo, world = self.algo, dataclasses.replace(self.env, contexts=contexts, answers=answers, means=answers)
        syncs = random.stream(key, "syncs")

        def play(carry, t):
            script, state = carry
            offered, script = world.observe(key, script, t)
            assert offered.user is not None
            user, items = offered.user[0], offered.contexts[0]
            arm = ridge.first_argmax(algo.index(key, t, state, user, items))
            given = world.pull(key, script, offered, arm[None])
            state, _ = algo.serve(syncs, t, state, user, items[arm], given.reward[0])
            released, label, _ = algo.view(state)
            return (script, state), (released, label.astype(jnp.float32), jnp.where(seen[t, 0], arm, 0))

        start = world.init(key), algo.init(random.stream(key, "learner"), self.env.spec)
        released, label, arms = lax.scan(play, start, jnp.arange(self.horizon))[1]
        return released, label, arms.astype(jnp.float32)


def streams(algo: Grouped, *, horizon: int = 8, name: str | None = None) -> Case:
    """Builds a case of a certified `Grouped`, on the pairs of `neighbours`; users come in turns.

    The claim is what the certificate says that the noise really gives, which is at most what was asked for.

    Args:
        algo: algorithm with a mechanism.
        horizon: T.
        name: name of the case; default: that of the algorithm.

    Raises:
        TypeError: there is no single budget.
        ValueError: the algorithm is not certified, or nothing is released.
    """
    privacy = validate.instance("algo", algo, Grouped, "an fb.algos.Grouped").privacy
    if not isinstance(privacy, Mechanism) or len(privacy.budgets) != 1:
        raise TypeError(f"algo must have one fb.privacy.Budget, got {validate.shown(privacy)}")
    visits, budget = privacy.together, privacy.budgets[0]
    horizon = validate.integer("horizon", horizon, at_least=visits)
    spec = Spec(
        n_agents=1, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=False, constant=privacy.centred, n_users=N_USERS
    )
    bound = algo.bind(spec, horizon)
    certificate, mechanism = certified(bound), bound.mechanism
    if not isinstance(mechanism, BoundMechanism):
        raise ValueError(f"horizon must allow a release by {algo.schedule!r}, got {horizon}")
    worst: dict[str, Any] = dict(farthest=farthest_user(mechanism), others=answer(mechanism))
    pairs = neighbours(horizon, 1, budget.adjacency, visits, **worst)
    users = (np.arange(horizon) // visits % N_USERS).astype(np.int32)
    blank = np.zeros((horizon, 1, 2, 2), np.float32), np.zeros((horizon, 1, 2), np.float32)
    env = ScriptedVisits(contexts=blank[0], answers=blank[1], means=blank[1], users=users, spec=spec)
    clock: Any = bound.schedule  # which is fixed
    ends = [t for t in range(horizon) if clock.requests(None, t, (), None, 1)]
    moved = prefixes_moved(mechanism, by_silo=False)

    def measure(view: Any, other: Any) -> float:
        both = [np.asarray(one[0])[ends] for one in (view, other)]
        return float(np.linalg.norm([moved((both[0][:, u],), (both[1][:, u],)) for u in range(N_USERS)]))

    return Case.of(
        pairs,
        name=str(algo.name) if name is None else name,
        mechanism=TranscriptOfStreams(algo=bound, env=env, horizon=horizon),
        epsilon=certificate.epsilon_exact or budget.epsilon,
        delta=budget.delta,
        gaussian=True,
        fixed_control_flow=True,
        sensitivity=mechanism.sensitivity,
        measure=measure,
    )


def shipped_streams() -> list[Case]:
    """Returns cases of groups found by a mixture, of users alone, and of two visits that are removed."""
    half: dict[str, Any] = dict(centred=True, gram_scale=0.5)
    mixture = Mixture(max_groups=2, tries=1)
    geometric = Geometric(1.5, first=2)

    def case(name: str, budget: Budget = BUDGET, grouping: Any = mixture, schedule: Any = geometric, **options: Any):
        mechanism = Mechanism(budget, **{"release": "blt", "visits": 1, **options})
        return streams(Grouped(grouping=grouping, schedule=schedule, privacy=mechanism), name=name)

    return [
        case("mixture blt"),
        case("mixture decaying centred 1/2", release=Decaying(1.5), **half),
        case("alone tree", grouping=Alone(), schedule=2, release="tree"),
        case("mixture 2 visits removed", Budget(BUDGET.epsilon, BUDGET.delta, "add_remove"), visits=2),
    ]
