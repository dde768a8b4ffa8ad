"""Dist-DP-SE of Chowdhury & Zhou (2023) with confidence radii from the exact law of its noise."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "arms":
        return None
    mechanism, trust = fb.algos.ELIMINATION["Dist-DP-SE"]
    return fb.algos.SuccessiveElimination(epsilon=task.epsilon, mechanism=mechanism, trust=trust, radius="exact")
