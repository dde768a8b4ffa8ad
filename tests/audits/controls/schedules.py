"""Schedules that tell when, and releases under a schedule with the wrong noise."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from _damage import changed, turned

import fedbandit_jax as fb
from fedbandit_jax.audits import BUDGET, Case, above_threshold, brink, linear, timing, transcript
from fedbandit_jax.audits.schedules import EPOCHS, Requests
from fedbandit_jax.schedules import UNITS, BoundPrivateLogDet


@fb.pytree
class AdaptiveSchedule(fb.Algorithm):
    """Synchronises when the raw Gram matrix has grown (Dubey & Pentland 2020); shows nothing but when."""

    batch: int = fb.static(default=1)

    def init(self, key, spec):
        return jnp.eye(2), jnp.eye(2), jnp.bool_(False)

    def act(self, key, t, local, offered):
        return jnp.zeros(1, jnp.int32)

    def learn(self, t, local, offered, arms, rewards):
        gram, synced, _ = local
        x = offered.contexts[0, 0]
        gram = gram + jnp.outer(x, x)
        due = jnp.linalg.det(gram) > 2.8 * jnp.linalg.det(synced)
        return (gram, jnp.where(due, gram, synced), due), None

    def sync(self, key, k, state, local, records):
        return local, fb.Report()

    def view(self, state):
        return state[2]


def broken_adaptive_schedule():
    """The schedule alone leaks: one user more or less in a direction moves the first synchronisation."""
    case = linear(fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(BUDGET), schedule=1), n_agents=1)
    return Case(
        name="adaptive schedule",
        mechanism=transcript(AdaptiveSchedule(), case.mechanism.spec, case.mechanism.horizon),
        data=case.data,
        neighbour=case.neighbour,
        which=case.which,
        others=case.others,
        epsilon=BUDGET.epsilon,
        delta=BUDGET.delta,
        fixed_control_flow=True,
    )


def broken_fed_ucb():
    """Algorithm 1 of Dubey & Pentland (2020) as printed: Example 3.1 of Zhou & Chowdhury (2024)."""
    algo = fb.algos.fed_ucb(BUDGET)
    algo = algo.replace(schedule=fb.schedules.LogDet(brink(algo)))
    return timing(algo, name="FedUCB, timing")


@fb.pytree
class Quiet(BoundPrivateLogDet):
    """AboveThreshold whose threshold is known."""

    def start(self, key, floor):
        memory = super().start(key, floor)
        return memory._replace(shift=jnp.zeros_like(memory.shift))


@fb.pytree
class Silent(Quiet):
    """No noise on the answers either."""

    def requests(self, key, t, memory, gained, since):
        return memory.cap * gained / UNITS >= self.threshold / since


def damaged_tests(name, change):
    """The honest case of private tests alone, run with `change(bound schedule)`."""
    case = above_threshold(fb.schedules.PrivateLogDet(1e-3, share=0.5), epsilon=2.0, name="honest")
    return replace(case, name=name, mechanism=replace(case.mechanism, schedule=change(case.mechanism.schedule)))


def broken_threshold():
    """Sparse vector without noise on the threshold: every round tells a little more."""
    return damaged_tests("threshold without noise", lambda bound: turned(Quiet, bound))


def broken_floor():
    """Sparse vector with the sensitivity of a larger V: a fifth of the noise."""
    return damaged_tests("tests with too little noise", lambda bound: replace(bound, epsilon=5 * bound.epsilon))


def tested(*, max_syncs):
    """A certified run with private tests, at a threshold that one user decides about."""
    budget = fb.privacy.Budget(2.0, 0.1, "zero_out")
    schedule = fb.schedules.PrivateLogDet(share=0.5, max_syncs=max_syncs)
    algo = fb.algos.fed_ucb(budget, schedule=schedule, learns_in_batch=False)
    return algo.replace(threshold=brink(algo))


def broken_tests():
    """A certified run whose tests forget their noise: it is not hidden behind that of the releases."""
    case = linear(tested(max_syncs=2), n_agents=2, horizon=4)
    change = lambda bound: replace(bound, schedule=turned(Silent, bound.schedule))  # noqa: E731
    return changed(case, "private_logdet without noise", change)


def broken_releases():
    """A certified run whose tests are right, and whose releases have a fifth of their noise."""
    case = linear(tested(max_syncs=2), n_agents=2, horizon=4)
    return changed(case, "private_logdet, little noise in releases", little)


def broken_half_of_the_releases():
    """A certified run whose tests are right, and whose releases have half of their noise."""
    case = linear(tested(max_syncs=1), n_agents=2, horizon=4)
    return changed(case, "private_logdet, half the noise in releases", lambda bound: little(bound, 2))


@fb.pytree
class Kept(Requests):
    """Tests whose threshold keeps its noise in all epochs, so that later ones tell what it is."""

    def starts(self, key):
        return jnp.stack([key] * self.epochs)


def broken_epochs():
    """Noise on the threshold that is not drawn anew when an epoch begins."""
    case = above_threshold(fb.schedules.PrivateLogDet(1e-3, share=0.5), epsilon=2.0, epochs=EPOCHS, name="honest")
    return replace(case, name="threshold noise not refreshed", mechanism=turned(Kept, case.mechanism))


def broken_geometric():
    """Ever rarer releases with a third of the noise."""
    algo = fb.algos.private_fed_lin_ucb(
        fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt"), schedule=fb.schedules.Geometric(1.5, first=1)
    )
    return changed(linear(algo, n_agents=1), "geometric, little noise", little)


def broken_asynchronous():
    """Agents who come one at a time, with a fifth of the noise."""
    case = next(case for case in fb.audits.shipped("schedules") if case.name == "asynchronous blt geometric")
    return changed(case, "asynchronous, little noise", little)


def broken_asynchronous_tests():
    """Agents whose tests forget their noise."""
    case = next(case for case in fb.audits.shipped("schedules") if case.name == "asynchronous tree private_logdet")
    change = lambda bound: replace(bound, schedule=turned(Silent, bound.schedule))  # noqa: E731
    return changed(case, "asynchronous private_logdet without noise", change)


def little(bound, by=5):
    """A loop with a fifth of the noise."""
    trust = bound.mechanism.trust
    return replace(bound, mechanism=replace(bound.mechanism, trust=replace(trust, std=trust.std / np.float32(by))))
