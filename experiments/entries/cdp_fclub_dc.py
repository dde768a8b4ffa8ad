"""CDP-FCLUB-DC of Liu et al. (2022) as printed: clusters are found from raw estimates, and seen."""

import fedbandit_jax as fb


def recipe(task):
    return fb.algos.FCLUB(task.budget) if task.family == "clusters" else None
