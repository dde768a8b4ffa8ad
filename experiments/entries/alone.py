"""A private stream of sums for every user, who is served by her own alone."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "clusters":
        return None
    schedule = fb.schedules.Geometric(1.2, first=task.horizon // 300)
    return fb.algos.Grouped(grouping=fb.algos.Alone(), schedule=schedule, privacy=task.mechanism())
