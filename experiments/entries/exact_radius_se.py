"""Dist-DP-SE of Chowdhury & Zhou (2023) with confidence radii from the exact law of its noise."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "arms":
        return None
    return fb.algos.DistDPSE(task.epsilon, radius="exact")
