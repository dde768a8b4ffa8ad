"""FedUCB of Dubey & Pentland (2020) as printed, with a controller or on a network: raw data decide when it talks."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "linear" or task.unit is not None:
        return None
    if task.graph is not None:
        return fb.algos.GossipFedUCB(graph=task.graph, privacy=task.budget)
    return fb.algos.fed_ucb(task.budget)
