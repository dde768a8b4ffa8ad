"""Asynchronous FedLinUCB of He et al. (2022) with noise of every agent, uploads at rounds that are fixed beforehand."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "clusters":
        return None
    return fb.algos.AsyncFederated(privacy=task.mechanism(), schedule=fb.schedules.Geometric(1.3, first=20))
