"""The best recipe for each task that we found on development seeds."""

import fedbandit_jax as fb

A, P, S = fb.algos, fb.privacy, fb.schedules


def growing(task, policy, growth):
    schedule, privacy = S.Geometric(growth, first=1), task.mechanism(P.Decaying(1.0 if growth == 2 else growth))
    return A.Federated(policy=policy, schedule=schedule, privacy=privacy).patient(task.spec, task.horizon)


def recipe(task):
    name, sampled = task.name, A.Thompson(scale=0.3, shrinkage=12.0)
    if name == "arms-hard":
        return A.AdaCUCB(A.DistDPSE(task.epsilon, radius="exact"))
    if task.family == "clusters":
        grouping = A.Together() if name == "async-zipf" else A.Mixture(theta_norm=0.5**0.5)
        schedule = S.Geometric(1.2, first=task.horizon // 300)
        return A.Grouped(grouping=grouping, schedule=schedule, privacy=task.mechanism())
    if name == "ring":
        privacy, schedule = task.mechanism(P.Decaying(1.0)), S.Geometric(2.0, first=20)
        return A.Gossip(policy=sampled, schedule=schedule, privacy=privacy, graph=task.graph, gamma=10)
    if name == "drift":
        memory = P.Discounted(0.9)
        policy = A.Forgetting(policy=A.Greedy(), memory=memory)
        return A.Federated(policy=policy, schedule=task.batch, privacy=task.mechanism(memory))
    if name == "fixed-arms":
        policy = A.UCB(regularizer="project", confidence="known_noise", exploration_scale=0.1)
        return A.Federated(policy=policy, schedule=task.batch, privacy=task.mechanism())
    if name in ("sphere-shuffle", "sphere-local", "gap-worst"):
        policy = sampled if name == "sphere-local" else A.Greedy()
        return A.Federated(policy=policy, schedule=task.batch, privacy=task.mechanism())
    return growing(task, A.Greedy(), 2.0 if name in ("returning", "dropout") else 1.5)
