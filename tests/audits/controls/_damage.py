"""How an honest case is broken: what runs is damaged after binding, and the claim stays."""

from dataclasses import fields, replace

import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.audits import BUDGET, arms, clusters, linear

SMALL = dict(budget=fb.privacy.Budget(8.0, 1e-5), batch=1, n_agents=2, trust="shuffle_vector_sum")  # of a vector sum


def turned(kind, value, **changes):
    """The same fields in another class, or other fields."""
    return kind(**{field.name: getattr(value, field.name) for field in fields(value) if field.init} | changes)


def private(*, batch=2, budget=BUDGET, **options):
    """Private-FedLinUCB under a mechanism with these options."""
    return fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(budget, **options), schedule=batch)


def honest(*, n_agents=1, n_syncs=8, drops=False, **options):
    """The case of that algorithm."""
    algo = private(**options)
    return linear(algo, n_agents=n_agents, horizon=n_syncs * algo.schedule.batch, drops=drops)


def changed(case, name, change):
    """A case run with `change(bound algorithm)` in place of its algorithm."""
    return replace(case, name=name, mechanism=replace(case.mechanism, algo=change(case.mechanism.algo)))


def damaged(name, change, **options):
    """The honest case of these options, run with `change(mechanism)` in place of its mechanism."""
    return changed(honest(**options), name, lambda bound: replace(bound, mechanism=change(bound.mechanism)))


def trusting(change):
    """A change of the trust model alone."""
    return lambda mechanism: replace(mechanism, trust=change(mechanism.trust))


def noisy(kind, **changes):
    """Another class of trust model with the same numbers."""
    return trusting(lambda trust: turned(kind, trust, **changes))


def damaged_sum(name, noise_class, *, mechanism="discrete_laplace", messages=False, trust="secagg", **changes):
    """The honest case of a mechanism for sums, run with other noise; `noise_class` has the fields of the honest one."""
    growth = 16 if messages else 4
    algo = fb.algos.SuccessiveElimination(
        epsilon=1.0, mechanism=mechanism, trust=trust, growth=growth, delta=1e-2, messages=messages
    )

    def change(bound):
        noise = turned(noise_class, bound.protocol.noise, **changes)
        return replace(bound, protocol=replace(bound.protocol, noise=noise))

    return changed(arms(algo), name, change)


def damaged_clusters(name, change, *, horizon=6, **options):
    """The honest case of federated clusters, run with `change(noise)` in place of its trees."""
    algo = fb.algos.homo_dc(fb.privacy.Budget(1.0, 0.1), trigger="count", **options)
    return changed(clusters(algo, horizon=horizon), name, lambda bound: replace(bound, noise=change(bound.noise)))


def scaled(name, factor, **options):
    """Gaussian noise of the wrong size."""
    return damaged(name, trusting(lambda trust: replace(trust, std=trust.std * np.float32(factor))), **options)
