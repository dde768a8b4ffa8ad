"""Dist-RDP-SE of Chowdhury & Zhou (2023), Skellam noise, which is not pure differential privacy."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "arms":
        return None
    return fb.algos.DistRDPSE(task.epsilon)
