"""Schedules that tell when, and releases under a schedule with the wrong noise."""

from dataclasses import replace

import jax.numpy as jnp
from _damage import changed, override, resized, scaled

import fedbandit_jax as fb
from fedbandit_jax.audits import BUDGET, linear
from fedbandit_jax.audits.schedules import EPOCHS, above_threshold, brink, timing
from fedbandit_jax.schedules import UNITS


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
    alone = replace(case.mechanism, algo=AdaptiveSchedule())
    silent = dict(gaussian=False, sensitivity=None, measure=None)
    return replace(case, name="adaptive schedule", mechanism=alone, fixed_control_flow=True, **silent)


def broken_fed_ucb():
    """Algorithm 1 of Dubey & Pentland (2020) as printed: Example 3.1 of Zhou & Chowdhury (2024)."""
    algo = fb.algos.fed_ucb(BUDGET)
    return timing(algo.replace(schedule=fb.schedules.LogDet(brink(algo))), name="FedUCB, timing")


def known_threshold(honest, self, key, t, memory, gained, since):
    return honest(key, t, memory._replace(shift=0 * memory.shift), gained, since)


def no_noise(honest, self, key, t, memory, gained, since):
    return memory.cap * gained / UNITS >= self.threshold / since


def broken_tests():
    """Private tests alone: a known threshold, a fifth of the noise, and a threshold that later epochs tell, too."""
    schedule = fb.schedules.PrivateLogDet(1e-3, share=0.5)
    one, epochs = (above_threshold(schedule, epsilon=2.0, epochs=n, name="honest") for n in (1, EPOCHS))

    def tested(name, change):
        return replace(one, name=name, mechanism=replace(one.mechanism, schedule=change(one.mechanism.schedule)))

    kept = override(epochs.mechanism, starts=lambda honest, self, key: jnp.stack([key] * self.epochs))
    return [
        tested("threshold without noise", lambda bound: override(bound, requests=known_threshold)),
        tested("tests with too little noise", lambda bound: resized(bound, epsilon=5)),
        replace(epochs, name="threshold noise not refreshed", mechanism=kept),
    ]


def broken_runs():
    """Certified runs whose releases have too little noise, or whose tests have none."""

    def decided_by_one_user(max_syncs):
        schedule = fb.schedules.PrivateLogDet(share=0.5, max_syncs=max_syncs)
        budget = fb.privacy.Budget(2.0, 0.1, "zero_out")
        algo = fb.algos.fed_ucb(budget, schedule=schedule, learns_in_batch=False)
        return linear(algo.replace(threshold=brink(algo)), n_agents=2, horizon=4)

    def without_noise(bound):
        return replace(bound, schedule=override(bound.schedule, requests=no_noise))

    def little(part=0.2):
        return lambda bound: replace(bound, mechanism=scaled(std=part)(bound.mechanism))

    once, twice = decided_by_one_user(1), decided_by_one_user(2)
    blt = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt")
    rarer = linear(fb.algos.private_fed_lin_ucb(blt, schedule=fb.schedules.Geometric(1.5, first=1)), n_agents=1)
    shipped = {case.name: case for case in fb.audits.shipped("schedules")}
    return [
        changed(twice, "private_logdet without noise", without_noise),
        changed(twice, "private_logdet, little noise in releases", little()),
        changed(once, "private_logdet, a third of the noise in releases", little(1 / 3)),
        changed(rarer, "geometric, little noise", little()),
        changed(shipped["asynchronous blt geometric"], "asynchronous, little noise", little()),
        changed(
            shipped["asynchronous tree private_logdet"], "asynchronous private_logdet without noise", without_noise
        ),
    ]
