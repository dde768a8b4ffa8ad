"""A Top Two rule, which finds the best arm with fixed confidence and then plays it. Ours."""

import fedbandit_jax as fb


def recipe(task):
    return fb.algos.TopTwo(fb.algos.DistDPSE(task.epsilon)) if task.family == "arms" else None
