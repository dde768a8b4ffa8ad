"""UCB on the least noise (a buffered linear Toeplitz matrix), with a tenth of the width of the known noise."""

import fedbandit_jax as fb

POLICY = fb.algos.UCB(regularizer="project", confidence="known_noise", exploration_scale=0.1)


def recipe(task):
    if task.family != "linear":
        return None
    if task.graph is not None:
        return fb.algos.Gossip(policy=POLICY, schedule=task.batch, privacy=task.mechanism(), graph=task.graph, gamma=10)
    return fb.algos.Federated(policy=POLICY, schedule=task.batch, privacy=task.mechanism())
