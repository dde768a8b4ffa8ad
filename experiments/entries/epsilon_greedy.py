"""Epsilon-greedy play on a binary tree, in batches that grow by half."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "linear" or task.graph is not None:
        return None
    policy = fb.algos.EpsilonGreedy(explore=5.0, shrinkage=3.0)
    schedule = fb.schedules.Geometric(1.5, first=20) if task.grows else task.batch
    return fb.algos.Federated(policy=policy, schedule=schedule, privacy=task.mechanism("tree"))
