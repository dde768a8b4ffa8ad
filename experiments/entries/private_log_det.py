"""FedUCB of Dubey & Pentland (2020), mended: private tests decide when to talk, agents wait for releases."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "linear" or task.unit is not None or task.graph is not None:
        return None
    schedule = fb.schedules.PrivateLogDet(max_syncs=task.max_syncs)
    return fb.algos.fed_ucb(task.budget, schedule=schedule, learns_in_batch=False)
