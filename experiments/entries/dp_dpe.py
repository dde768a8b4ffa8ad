"""DP-DPE of Li, Zhou & Ji (2022): elimination in phases that double, where all users have the same arms."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "linear" or task.arms is None:
        return None
    return fb.algos.dp_dpe(task.arms, task.mechanism("input_perturbation", statistic=fb.privacy.Linear()))
