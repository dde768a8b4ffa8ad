"""One recipe for everything: patient greedy play of silos, AdaC-UCB for arms, a mixture for users who return."""

import fedbandit_jax as fb

A, P, S = fb.algos, fb.privacy, fb.schedules


def recipe(task):
    if task.family == "arms":
        return A.AdaCUCB(A.DistDPSE(task.epsilon, radius="exact"))
    if task.family == "clusters":
        schedule = S.Geometric(1.2, first=task.horizon // 300)
        return A.Grouped(grouping=A.Mixture(theta_norm=0.5**0.5), schedule=schedule, privacy=task.mechanism())
    if not task.grows:
        return A.Federated(policy=A.Greedy(), schedule=task.batch, privacy=task.mechanism())
    privacy = task.mechanism(P.Decaying(1.5))
    if task.graph is not None:
        grows = S.Geometric(1.5, first=20)
        return A.Gossip(policy=A.Greedy(), schedule=grows, privacy=privacy, graph=task.graph, gamma=10)
    grows = S.Geometric(1.5, first=1)
    return A.Federated(policy=A.Greedy(), schedule=grows, privacy=privacy).patient(task.spec, task.horizon)
