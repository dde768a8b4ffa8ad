"""Bound examples: honest, certified algorithms, from which tests of forgeries start, and tools to change them."""

import dataclasses
import functools
import math

import jax.numpy as jnp
import networkx as nx
import numpy as np
from four_arms import algorithm
from helpers import ByMessage, prefixes

import fedbandit_jax as fb
from fedbandit_jax.privacy import GaussianTrust
from fedbandit_jax.schedules import BoundSchedule, Schedule

A, P, S = fb.algos, fb.privacy, fb.schedules
SPEC = fb.Spec(n_agents=4, n_arms=3, dim=2, max_norm=1.0, rewards_in_unit=True)
UNBOUNDED = dataclasses.replace(SPEC, rewards_in_unit=False)
MANY = dataclasses.replace(SPEC, n_agents=10**5)
MISSING = dataclasses.replace(SPEC, drops=True)
REGULARS = dataclasses.replace(SPEC, n_users=6)
EVERYWHERE = dataclasses.replace(REGULARS, silos=4)
ONE_BY_ONE = fb.Spec(n_agents=1, n_arms=3, dim=2, max_norm=1.0, n_users=6, n_servers=2, rewards_in_unit=True)
ARMS = fb.Spec(n_agents=1, n_arms=3, dim=3, max_norm=1.0, rewards_in_unit=True)
BUDGET = P.Budget(1.0, 0.1)
HORIZON, BATCH = 40, 5  # S = 8


def federated(policy=A.Greedy(), budget=BUDGET, schedule=BATCH, learns_in_batch=False, **mechanism):  # noqa: B008
    privacy = P.Mechanism(budget, **mechanism)
    return A.Federated(policy=policy, privacy=privacy, schedule=schedule, learns_in_batch=learns_in_batch)


PAIRS = GaussianTrust("pairs of silos trust each other", sources=2)


@fb.pytree
class BoundOffice(BoundSchedule):
    """An honest user-defined schedule: nothing is handed to it."""

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


GROWING = S.Geometric(1.5, first=5)
VISIT, THRICE = P.Mechanism(BUDGET, unit="visit"), P.Users(3, per_batch=1)


def elimination(label):
    return algorithm(label, 2.0 if label == "DP-SE" else 1.0)


LABELS = "DP-SE", "Dist-CDP-SE", "Shuffle-DP-SE"
HONEST = {  # a recipe, its users, and perhaps its horizon: every trust model, release and loop that is certified
    "tree": (federated(), SPEC),
    "own policy": (federated(A.Thompson()), UNBOUNDED),
    "silos": (federated(budget=(BUDGET,) * 4, release="blt"), SPEC),
    "secagg": (federated(trust="secagg", release="blt"), SPEC),
    "secagg geometric": (federated(trust="secagg", release="blt", schedule=GROWING), SPEC),
    "missing": (federated(trust="secagg", release="input_perturbation", dropouts=1), MISSING),
    "vector sum": (federated(trust="shuffle_vector_sum"), SPEC),
    "amplified": (federated(budget=P.Budget(0.1, 1e-6), trust="shuffle_amplified", schedule=1), MANY, 3),
    "banded": (federated(release=P.Discounted(0.8)), SPEC),
    "local": (federated(trust="local", release="input_perturbation"), SPEC),
    "matrix": (federated(trust="silo_local_matrix", release="tree"), SPEC),
    "central": (federated(trust="central", release="sqrt_toeplitz", schedule=GROWING), SPEC),
    "messages": (ByMessage(**vars(federated())), SPEC),
    "statistic": (federated(statistic=P.Logistic(), release="blt"), SPEC),
    "own release": (federated(release=prefixes), SPEC),
    "own trust": (federated(trust=PAIRS), SPEC),
    "own schedule": (federated(schedule=Office()), SPEC),
    "tested": (federated(A.UCB(), schedule=S.PrivateLogDet(3.0, max_syncs=8)), SPEC),
    "regulars": (federated(unit=THRICE), REGULARS),
    "at four silos": (federated(unit=P.Users(2, per_batch=1, silos=4), trust="central"), EVERYWHERE),
    "together": (federated(unit=P.Users(4, per_batch=2, silos="together"), trust="central"), EVERYWHERE),
    "gossip": (A.Gossip(graph=nx.path_graph(4), policy=A.Greedy(), schedule=5, privacy=BUDGET), SPEC),
    "async": (A.AsyncFederated(policy=A.Greedy(), schedule=GROWING, privacy=VISIT), ONE_BY_ONE),
    "grouped": (A.Grouped(grouping=A.Together(), privacy=VISIT, schedule=5), ONE_BY_ONE),
    "fclub": (A.FCLUB(P.Budget(1.0, 0.01), alpha_1=math.inf, trigger="count", upload=1.2, alpha_2=0.3), ONE_BY_ONE),
    "KL-UCB": (A.PhasedKLUCB(A.DistDPSE(1.0)), ARMS, 60),
    "samples of sums": (A.PhasedThompson(A.CDPSE(1.0), first=2), ARMS, 60),
    "samples": (A.ThompsonArms(1.0, delta=0.1, first=2), ARMS, 40),
    "top two": (A.TopTwo(A.DistDPSE(1.0)), ARMS, 60),
    "truncated": (A.TruncatedSE(A.CDPSE(1.0)), ARMS, 60),
    "flipped bits": (A.TruncatedSE(A.RRSE(1.0, corrupted="messages"), corruption=0.1), ARMS, 60),
    "halving": (A.SequentialHalving(A.DistCDPSE(1.0)), ARMS, 500),
    **{label: (elimination(label), ARMS, 5000 if label == "DP-SE" else 100) for label in LABELS},
}  # fmt: skip


@functools.cache
def honest(name):
    algo, spec, *horizon = HONEST[name]
    return algo.bind(spec, *horizon or (HORIZON,))


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
