"""Dist-DP-SE of Chowdhury & Zhou (2023), Algorithm 1 with secure aggregation: radii of Lemma 2."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "arms":
        return None
    return fb.algos.DistDPSE(task.epsilon)
