"""Thompson sampling on noisy sums that are never forgotten. Ours."""

import fedbandit_jax as fb


def recipe(task):
    return fb.algos.PhasedThompson(fb.algos.DistDPSE(task.epsilon)) if task.family == "arms" else None
