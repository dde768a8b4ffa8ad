"""AdaC-OFUL and AdaC-UCB of Azize & Basu (2024): batches that double, each released once."""

import fedbandit_jax as fb


def recipe(task):
    if task.family == "arms":
        return fb.algos.AdaCUCB(fb.algos.DistDPSE(task.epsilon, radius="exact"))
    if task.family != "linear" or task.graph is not None:
        return None
    return fb.algos.adac_oful(task.mechanism("input_perturbation", statistic=fb.privacy.Linear()))
