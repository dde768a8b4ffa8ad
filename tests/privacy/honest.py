"""Honest algorithms that are certified, from which the tests of forgeries start, and tools to change them."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from helpers import Prefixes

import fedbandit_jax as fb
from fedbandit_jax.privacy import GaussianTrust
from fedbandit_jax.schedules import BoundSchedule, Schedule

SPEC = fb.Spec(n_agents=4, n_arms=3, dim=2, max_norm=1.0, rewards_in_unit=True)
UNBOUNDED = dataclasses.replace(SPEC, rewards_in_unit=False)
MANY = dataclasses.replace(SPEC, n_agents=10**5)
BUDGET = fb.privacy.Budget(1.0, 0.1)
HORIZON, BATCH = 40, 5  # S = 8


THOMPSON = fb.algos.Thompson()


def federated(policy=THOMPSON, budget=BUDGET, schedule=BATCH, learns_in_batch=False, **mechanism):
    privacy = fb.privacy.Mechanism(budget, **mechanism)
    return fb.algos.Federated(policy=policy, privacy=privacy, schedule=schedule, learns_in_batch=learns_in_batch)


PAIRS = GaussianTrust("pairs of silos trust each other", sources=lambda sizes: (sizes.n_agents + 1) // 2)


@fb.pytree
class BoundOffice(BoundSchedule):
    """An honest schedule of one's own: nothing is handed to it."""

    def requests(self, key, t, memory, gained, since):
        return (t + 1) % 5 == 0


OFFICE = BoundOffice()


@dataclasses.dataclass(frozen=True)
class Office(Schedule):
    bound: BoundSchedule = OFFICE

    def n_syncs(self, horizon):
        return horizon // 5

    def bind(self, setting):
        return self.bound


HONEST = {
    "tree": (federated(), SPEC),
    "unbounded": (federated(), UNBOUNDED),
    "silos": (federated(budget=(BUDGET,) * 4), SPEC),
    "secagg": (federated(trust="secagg", release="blt"), SPEC),
    "vector sum": (federated(trust="shuffle_vector_sum"), SPEC),
    "amplified": (federated(budget=fb.privacy.Budget(0.1, 1e-6), trust="shuffle_amplified", schedule=1), MANY),
    "banded": (federated(release=fb.privacy.Discounted(0.8)), SPEC),
    "local": (federated(trust="local", release="input_perturbation"), SPEC),
    "messages": (federated(messages=True), SPEC),
    "own release": (federated(release=Prefixes), SPEC),
    "own trust": (federated(trust=PAIRS), SPEC),
    "own schedule": (federated(schedule=Office()), SPEC),
    "secagg geometric": (federated(trust="secagg", release="blt", schedule=fb.schedules.Geometric(1.5, first=5)), SPEC),
    "geometric": (federated(schedule=fb.schedules.Geometric(1.5, first=5)), SPEC),
    "tested": (federated(policy=fb.algos.UCB(), schedule=fb.schedules.PrivateLogDet(3.0, max_syncs=8)), SPEC),
}


@functools.cache
def honest(name):
    algo, spec = HONEST[name]
    return algo.bind(spec, 3 if name == "amplified" else HORIZON)


def changed(value, path, **fields):
    """A copy with other fields in the part that `path` leads to."""
    first, _, rest = path.partition(".")
    return dataclasses.replace(
        value, **(fields if not path else {first: changed(getattr(value, first), rest, **fields)})
    )


def quiet(part, by):
    """The same trust model with its noise divided."""
    return dataclasses.replace(part, std=part.std / np.float32(by))


def of(cls, value, **fields):
    """An object of another class with the fields of this one."""
    mine = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return cls(**{**mine, **fields})


def subclass(parent, **methods):
    """What overrides these methods."""
    return fb.pytree(type(f"Own{parent.__name__}", (parent,), methods))


def nosy(**more):
    """A schedule that asks when a user has come who teaches much."""
    return subclass(
        BoundSchedule,
        count=lambda self, memory, leverage: (leverage > 0.5).astype(jnp.int32),
        requests=lambda self, key, t, memory, gained, since: gained > 0,
        **more,
    )()
