"""Asynchronous agents with noise of their own who play greedily, and upload when their own rounds have grown by 1.3."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "clusters":
        return None
    policy, schedule = fb.algos.Greedy(regularization=100.0), fb.schedules.Geometric(1.3, first=20)
    return fb.algos.AsyncFederated(policy=policy, schedule=schedule, privacy=task.mechanism())
