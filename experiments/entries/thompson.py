"""Thompson sampling with a ridge of twelve standard deviations of the noise, in batches that double."""

import fedbandit_jax as fb

POLICY = fb.algos.Thompson(scale=0.3, shrinkage=12.0)


def recipe(task):
    if task.family != "linear" or task.graph is not None:
        return None
    if not task.grows:
        return fb.algos.Federated(policy=POLICY, schedule=task.batch, privacy=task.mechanism())
    doubling, privacy = fb.schedules.Geometric(2.0, first=1), task.mechanism(fb.privacy.Decaying(1.0))
    return fb.algos.Federated(policy=POLICY, schedule=doubling, privacy=privacy).patient(task.spec, task.horizon)
