"""Cases of schedules: the rounds of synchronisations as a view, alone and with the releases."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax import networks
from fedbandit_jax.algos import Federated, Gossip, Greedy, fed_ucb, private_fed_lin_ucb
from fedbandit_jax.audits.case import Case
from fedbandit_jax.audits.linear import HALF, linear
from fedbandit_jax.audits.transcripts import Transcript, alone, one_budget, spec_of
from fedbandit_jax.core import struct
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.schedules import UNITS, BoundSchedule, Geometric, PrivateLogDet, Setting, as_schedule

ROUNDS = 4  # of cases with an adaptive schedule
QUERIES = 4  # rounds before the last, for most of the loss of AboveThreshold
EPOCHS = 8  # of private tests: if noise on the threshold were kept, later ones would reveal it


def timing(algo: Federated, *, name: str) -> Case:
    """Builds a case of the rounds of synchronisations alone: Example 3.1 of Zhou & Chowdhury (2024).

    The first user of the first silo is Alice with x = (1, 0), or Tracy with x = 0. Nobody else contributes anything.
    Any claim must hold for this too. There are two silos, and any schedule.
    """
    _, budget = one_budget(algo, Federated, "Federated")
    spec = spec_of(2)
    whole = Transcript(algo=algo.bind(spec, ROUNDS), spec=spec, horizon=ROUNDS)
    (*data, _), (*neighbour, _) = alone(ROUNDS, 2)

    def mechanism(key: Array, data: tuple[Array, Array]) -> Any:
        shown, rounds = whole(key, data)
        return rounds, shown[2] if isinstance(shown, tuple) else ()  # who asked; empty with a fixed batch

    pure = float(as_schedule(algo.schedule).pure(budget.epsilon))
    return Case(
        name=name,
        mechanism=mechanism,
        data=tuple(data),
        neighbour=tuple(neighbour),
        which="Alice or Tracy",
        epsilon=pure or budget.epsilon,
        delta=1e-6 if pure else budget.delta,
    )


def brink(algo: Federated, *, n_agents: int = 2) -> float:
    """Returns the threshold D at which only Alice of `timing` makes her silo ask after round 1.

    It is half of Alice's g_i = ln(1 + 1 / lambda), her increase of the silo's log-determinant.
    """
    policy: Any = algo.bind(spec_of(n_agents), ROUNDS).policy
    return math.log1p(1 / float(policy.first_regularization)) / 2


@struct.pytree
class Requests:
    """A mechanism for `audit`: (key, gained (QUERIES + 1,)) -> a silo's first request in each epoch, (E, QUERIES).

    `gained` are its sums after every round but the first, in units of 1 / `UNITS` of a largest term. In later epochs
    nobody adds anything.
    """

    schedule: BoundSchedule
    epochs: int = struct.static(default=1)  # E

    def starts(self, key: Array) -> Array:
        """Returns the keys of the noise on the threshold, one for every epoch."""
        return jax.random.split(key, self.epochs)

    def __call__(self, key: Array, gained: Array) -> Array:
        bound: Any = self.schedule
        start, queries = jax.random.split(key)

        def epoch(start: Array, key: Array, gained: Array) -> Array:
            keys, memory = jax.random.split(key, QUERIES + 1), bound.start(start, jnp.float32(1))
            asked = [bound.requests(k, jnp.int32(t), memory, gained[t, None], jnp.int32(1)) for t, k in enumerate(keys)]
            asked = jnp.stack([jnp.any(one) for one in asked])
            return (jnp.cumsum(asked) * asked == 1).astype(jnp.float32)

        later = jnp.zeros((self.epochs - 1, *gained.shape), gained.dtype)
        sums = jnp.concatenate([gained[None], later])
        return jax.vmap(epoch)(self.starts(start), jax.random.split(queries, self.epochs), sums)


def above_threshold(schedule: PrivateLogDet, *, epsilon: float, epochs: int = 1, name: str) -> Case:
    """Builds a case of one silo's requests in some epochs, on the worst sums that one user can move in the first.

    The user comes first, and nobody else adds anything. The sums are 0, 0, ... against 64, 64, ..., in units of a 64th
    of the largest term. The threshold is near 0. Silence is then nearly e^epsilon times as likely on the former. In
    another pair the user comes last. The claim is `schedule.pure(epsilon)` of the whole budget's epsilon.
    """
    bound = schedule.bind(Setting(1, 1, QUERIES + 1, 1.0, 1.0, epsilon))
    low, high = np.zeros(QUERIES + 1, np.int32), np.full(QUERIES + 1, UNITS, np.int32)
    last = low.copy()
    last[-1] = UNITS
    return Case(
        name=name,
        mechanism=Requests(schedule=bound, epochs=epochs),
        data=low,
        neighbour=high,
        which="first user",
        others={"last user": (low, last)},
        epsilon=float(schedule.pure(epsilon)),
        delta=1e-6,
    )


def shipped_schedules() -> list[Case]:
    """Makes cases of every schedule of certified algorithms."""
    budget, removed = Budget(1.0, 0.1), Budget(4.0, 0.1, "zero_out")
    adaptive = PrivateLogDet(share=0.5, max_syncs=2)
    fed = fed_ucb(removed, schedule=PrivateLogDet(share=0.5, max_syncs=1), learns_in_batch=False)
    fed = fed.replace(threshold=brink(fed))
    alone, central = (
        private_fed_lin_ucb(Mechanism(removed, trust=trust), schedule=adaptive) for trust in ("silo_local", "central")
    )
    alone, central = (algo.replace(threshold=brink(algo, n_agents=1)) for algo in (alone, central))
    fixed = private_fed_lin_ucb(Mechanism(budget, release="blt"), schedule=Geometric(1.5, first=1))
    growing = fixed.replace(trust="secagg", statistic=HALF)
    network: dict[str, Any] = dict(graph=networks.make("line", 3), policy=Greedy(), schedule=Geometric(1.5, first=1))
    gossip = Gossip(**network, privacy=Mechanism(budget, release="blt", statistic=HALF))
    return [
        above_threshold(PrivateLogDet(1e-3, share=0.5), epsilon=2.0, name="private_logdet tests alone"),
        above_threshold(PrivateLogDet(1e-3, share=0.5), epsilon=2.0, epochs=EPOCHS, name="private_logdet epochs"),
        timing(fed, name="FedUCB private_logdet timing"),
        linear(central, n_agents=1, horizon=ROUNDS, name="central tree private_logdet"),
        linear(alone, n_agents=1, horizon=ROUNDS, name="silo_local tree private_logdet"),
        linear(fed, n_agents=2, horizon=ROUNDS, name="FedUCB private_logdet"),  # a sum with two silos' noise
        linear(fixed, n_agents=1, name="blt geometric"),
        linear(growing, n_agents=2, name="secagg blt geometric"),
        linear(gossip, n_agents=3, name="gossip blt geometric"),
    ]
