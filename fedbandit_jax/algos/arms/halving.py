"""Best arm with a fixed budget: sequential halving, by one noisy sum per arm and round."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.arms.elimination import OfSums, check_arms, slots
from fedbandit_jax.algos.arms.loop import ALL, BoundElimination, EliminationState
from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Pulls, Spec


@struct.sealed
@struct.pytree
class BoundHalving(BoundElimination):
    """A bound `SequentialHalving`. Radii are not used."""

    spent: struct.Number = 0  # users of all rounds

    @override
    def pulls(self, state: EliminationState, k: Array) -> Pulls:
        pulls = super().pulls(state, k)
        return pulls._replace(users=jnp.where(state.active.sum() > 1, pulls.users, ALL))

    @override
    def kept(self, key: Array, active: Array, means: Array, radius: Array) -> Array:
        lot = random.uniform(random.stream(key, "ties"), means.shape)
        order = jnp.lexsort((lot, jnp.where(active, -means, jnp.inf)))
        return active & (jnp.argsort(order) < (active.sum() + 1) // 2)

    def recommend(self, state: EliminationState) -> tuple[Array, Array]:
        """Returns the last arm, and the round at which the rule stopped, -1 if it has not."""
        return state.active.argmax(), jnp.where(state.active.sum() == 1, self.spent, -1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequentialHalving(OfSums):
    """Finds the best arm with a fixed budget of users, then plays it: in each round the better half of the arms stays.

    There are R = ceil(log2 K) rounds. In each, the arms share budget / R new users equally, and the server learns one
    sum of rewards in [0, 1] per arm, by the protocol of `sums`. The arms with the largest noisy means stay. Everyone
    after the last round gets the last arm, and sends nothing.

    Unit, adjacency, sensitivity and guarantee are those of `sums`. Which arms stay depends on released sums only. With
    few rounds of communication, nothing is promised about the probability of a wrong arm. `TopTwo` promises it.

    Args:
        sums, name: as in `OfSums`; `radius` and `growth` are not used.
        budget: users of all rounds together, at most T, and two or more per arm and round. None: T.

    Raises:
        ValueError: as `sums`. When bound also if the budget is out of range.

    Reference: Karnin, Koren & Somekh (2013), "Almost optimal exploration in multi-armed bandits". DEVIATION karnin2013:
    sums are noisy, and ours. DP-BAI of Chen, Karthik, Chee & Tan (2024) has the same aim by another design.
    """

    budget: int | None = None
    name: str = "Sequential halving"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        if self.budget is not None:
            validate.integer("budget", self.budget, at_least=4)
        super().__post_init__()

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundHalving:
        check_arms(str(self.name), spec.n_arms, horizon)
        budget, arms = horizon if self.budget is None else self.budget, [spec.n_arms]
        while arms[-1] > 1:
            arms.append((arms[-1] + 1) // 2)
        n_rounds = len(arms) - 1
        least = 2 * n_rounds * spec.n_arms
        if not least <= budget <= horizon:
            must = f"must be in [{least}, {horizon}], from two users per arm and round to the horizon"
            raise BadValue("horizon" if self.budget is None else "budget", must, budget)
        sizes = np.array([budget // n_rounds // n for n in arms[:-1]])
        protocol = self.sums.protocol(self.sums.asked(sum(arms[:-1]), horizon), slots(sizes))
        users = np.tile(sizes[:, None], spec.n_arms + 1).astype(np.int32)
        more = dict(n_batches=n_rounds + 1, spent=int(np.sum(sizes * arms[:-1])))
        return BoundHalving(**self.sums.bound(spec, protocol, users, np.zeros(users.shape), **more))
