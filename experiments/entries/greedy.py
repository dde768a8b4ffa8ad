"""Greedy play, patient: batches grow by half, and the first release is as late as its noise asks for."""

import fedbandit_jax as fb

POLICY = fb.algos.Greedy()


def recipe(task):
    if task.family != "linear":
        return None
    if task.graph is not None:
        privacy, grows = task.mechanism(fb.privacy.Decaying(1.5)), fb.schedules.Geometric(1.5, first=20)
        return fb.algos.Gossip(policy=POLICY, schedule=grows, privacy=privacy, graph=task.graph, gamma=10)
    if not task.grows:
        return fb.algos.Federated(policy=POLICY, schedule=task.batch, privacy=task.mechanism())
    grows, privacy = fb.schedules.Geometric(1.5, first=1), task.mechanism(fb.privacy.Decaying(1.5))
    return fb.algos.Federated(policy=POLICY, schedule=grows, privacy=privacy).patient(task.spec, task.horizon)
