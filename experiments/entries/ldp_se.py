"""LDP-SE of Chowdhury & Zhou (2023), where nobody is trusted: radii of Lemma 2."""

import fedbandit_jax as fb


def recipe(task):
    if task.family != "arms":
        return None
    return fb.algos.LDPSE(task.epsilon)
