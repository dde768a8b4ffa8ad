"""Shuffle-DP-SE of Chowdhury & Zhou (2023), with a shuffler, which the task does not trust: radii of Lemma 2."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "arms":
        return None
    return fb.algos.ShuffleDPSE(task.epsilon)
