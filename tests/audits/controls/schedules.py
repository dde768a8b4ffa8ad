"""Schedules that tell when, and releases under a schedule with the wrong noise."""

from dataclasses import replace

import jax.numpy as jnp
from _damage import changed, override, resized, scaled, weaker

import fedbandit_jax as fb
from fedbandit_jax.audits import BUDGET, linear
from fedbandit_jax.audits.schedules import EPOCHS, above_threshold, brink, timing
from fedbandit_jax.schedules import UNITS


def broken_fed_ucb():
    """Algorithm 1 of Dubey & Pentland (2020) as printed: Example 3.1 of Zhou & Chowdhury (2024)."""
    algo = fb.algos.fed_ucb(BUDGET)
    case = timing(algo.replace(schedule=fb.schedules.LogDet(brink(algo))), name="FedUCB, timing")
    return replace(case, fixed_control_flow=True)


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
    schedule = fb.schedules.PrivateLogDet(share=0.5, max_syncs=2)
    budget = fb.privacy.Budget(2.0, 0.1, "zero_out")
    algo = fb.algos.fed_ucb(budget, schedule=schedule, learns_in_batch=False)
    twice = linear(algo.replace(threshold=brink(algo)), n_agents=2, horizon=4)  # one user decides
    shipped = {case.name: case for case in fb.audits.shipped("schedules")}
    alone = shipped["asynchronous tree private_logdet"]

    def without_noise(bound):
        return replace(bound, schedule=override(bound.schedule, requests=no_noise))

    return [
        changed(twice, "private_logdet without noise", without_noise),
        weaker(twice, "private_logdet, little noise in releases", scaled(std=0.2)),
        changed(alone, "asynchronous private_logdet without noise", without_noise),
    ]
