"""Private-FedLinUCB of Zhou & Chowdhury (2024), Algorithm 8: binary trees, widths as in the theorems."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "linear" or task.graph is not None:
        return None
    privacy = task.mechanism("tree", statistic=fb.privacy.Linear())
    return fb.algos.private_fed_lin_ucb(privacy, schedule=max(25, task.batch))
