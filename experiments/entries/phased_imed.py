"""IMED in phases, after Azize et al. (2025): sums that are never forgotten."""

import fedbandit_jax as fb


def recipe(task):
    return fb.algos.PhasedIMED(fb.algos.DistDPSE(task.epsilon)) if task.family == "arms" else None
