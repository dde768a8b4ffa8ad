"""Greedy play on sums in which a batch counts nine tenths of the next one, for a world that moves."""

import fedbandit_jax as fb

MEMORY = fb.privacy.Discounted(0.9)


def recipe(task):
    if task.family != "linear" or task.graph is not None:
        return None
    policy = fb.algos.Forgetting(policy=fb.algos.Greedy(), memory=MEMORY)
    return fb.algos.Federated(policy=policy, schedule=task.batch, privacy=task.mechanism(MEMORY))
