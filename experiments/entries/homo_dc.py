"""Homo-DC of Liu et al. (2022), which takes all users to be alike, with uploads after so many rounds."""

import fedbandit_jax as fb


def recipe(task):
    return fb.algos.homo_dc(task.budget, trigger="count") if task.family == "clusters" else None
