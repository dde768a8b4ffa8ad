"""How an honest case is broken: what runs is damaged after binding, and the claim stays."""

import functools
from dataclasses import fields, replace

import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.audits import BUDGET, arms, clusters, linear

SMALL = dict(budget=fb.privacy.Budget(8.0, 1e-5), batch=1, n_agents=2, trust="shuffle_vector_sum")  # of a vector sum


def turned(kind, value, **changes):
    """The same fields in another class, or other fields."""
    return kind(**{field.name: getattr(value, field.name) for field in fields(value) if field.init} | changes)


def override(value, **changes):
    """The same fields in a subclass; a method is given as a function of the honest one, self and the arguments."""
    kind = type(value)

    def method(name, change):
        return lambda self, *given, **named: change(functools.partial(getattr(kind, name), self), self, *given, **named)

    body = {name: method(name, change) if callable(change) else change for name, change in changes.items()}
    return turned(fb.pytree(type(f"Damaged{kind.__name__}", (kind,), body)), value)


def resized(part, **factors):
    return replace(part, **{name: getattr(part, name) * np.float32(factor) for name, factor in factors.items()})


def private(*, batch=2, budget=BUDGET, **options):
    return fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(budget, **options), schedule=batch)


def honest(*, n_agents=1, n_syncs=8, drops=False, messages=False, **options):
    algo = private(**options)
    horizon = n_syncs * algo.schedule.batch
    return linear(algo, n_agents=n_agents, horizon=horizon, drops=drops, messages=messages)


def changed(case, name, change):
    """A case run with `change(bound algorithm)` in place of its algorithm."""
    return replace(case, name=name, mechanism=replace(case.mechanism, algo=change(case.mechanism.algo)))


def weaker(case, name, change):
    """A case run with `change(mechanism)` in place of the mechanism of its algorithm."""
    return changed(case, name, lambda bound: replace(bound, mechanism=change(bound.mechanism)))


def damaged(name, change, **options):
    """The honest case of these options, run with `change(mechanism)` in place of its mechanism."""
    return weaker(honest(**options), name, change)


def all_damaged(changes, **common):
    """Such cases, by name: of (change, options)."""
    return [damaged(name, change, **common, **options) for name, (change, options) in changes.items()]


def trusting(change):
    return lambda mechanism: replace(mechanism, trust=change(mechanism.trust))


def noisy(**methods):
    return trusting(lambda trust: override(trust, **methods))


def scaled(**factors):
    """A trust model with other numbers, such as Gaussian noise of the wrong size."""
    return trusting(lambda trust: resized(trust, **factors))


def stepping(step, **methods):
    return lambda mechanism: override(mechanism, step=step, **methods)


def honest_sum(*, kind=fb.algos.DistDPSE, messages=False):
    """The case of successive elimination under a mechanism for sums."""
    growth = {} if kind is fb.algos.DPSE else {"growth": 4}
    return arms(kind(1.0, delta=1e-2, **growth), messages=messages)


def protocolled(case, name, change):
    """A case run with `change(protocol)` in place of the protocol for sums, of an algorithm or of users' messages."""
    run = case.mechanism
    if hasattr(run, "protocol"):
        return replace(case, name=name, mechanism=replace(run, protocol=change(run.protocol)))
    return changed(case, name, lambda bound: replace(bound, protocol=change(bound.protocol)))


def damaged_sum(name, change, **options):
    """The honest case of a mechanism for sums, run with `change(noise)` in place of its noise."""
    return protocolled(honest_sum(**options), name, lambda protocol: replace(protocol, noise=change(protocol.noise)))


def damaged_clusters(name, change, *, horizon=6, **options):
    """The honest case of federated clusters, run with `change(noise)` in place of its trees."""
    algo = fb.algos.homo_dc(fb.privacy.Budget(1.0, 0.1), trigger="count", **options)
    return changed(
        clusters(algo, horizon=horizon), name, lambda bound: bound.replace(noise=change(bound.exchange.noise))
    )
