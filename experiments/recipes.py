"""Recipes that several scripts play: noise on what a policy sums, sharp widths, and arms that stay the same."""

from typing import Any

import numpy as np

import fedbandit_jax as fb

HALF = fb.privacy.Linear(centred=True, gram_scale=0.5)  # sums x (y - 1/2) and half of x x'
GREEDY = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=fb.schedules.Geometric(1.5))
KNOWN = fb.algos.UCB(regularizer="project", confidence="known_noise")  # widths from the law of the noise
BUDGET = fb.privacy.Budget(1.0, 0.1)


def sharp(budget: Any = BUDGET, **options: Any) -> fb.algos.Federated:
    """Returns Private-FedLinUCB with BLT noise, a projected Gram matrix and widths from the law of the noise."""
    return fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(budget, "blt", **options), policy=KNOWN)


def with_noise(
    algo: fb.algos.Federated,
    env: Any,
    horizon: int,
    epsilon: float | None,
    release: Any,
    trust: str = "silo_local",
    delta: float | None = None,
    statistic: fb.privacy.Statistic = HALF,
    **more: Any,
) -> fb.algos.Federated:
    """Returns a recipe with noise, whose first release is as late as that asks for; unchanged if epsilon is None.

    Args:
        algo: the recipe, without privacy.
        env: the environment.
        horizon: T.
        epsilon: epsilon; delta is 1 / (10 M T) if it is not given.
        release, trust, statistic, more: arguments of `fb.privacy.Mechanism`.
        delta: delta.
    """
    if epsilon is None:
        return algo
    budget = fb.privacy.Budget(epsilon, delta or 1 / (10 * env.spec.n_agents * horizon))
    privacy = fb.privacy.Mechanism(budget, release, trust, statistic=statistic, **more)
    return algo.replace(privacy=privacy).patient(env.spec, horizon)


def instance(n_arms: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns arms (K, d) and theta*, vectors (u, 1) / sqrt 2 with u uniform on a sphere, as in `fb.envs.sphere`."""
    u = np.random.default_rng(seed).standard_normal((n_arms + 1, dim - 1))
    x = np.hstack([u / np.linalg.norm(u, axis=1, keepdims=True), np.ones((n_arms + 1, 1))]) / np.sqrt(2)
    return x[:n_arms].astype(np.float32), x[n_arms].astype(np.float32)


def table(n_agents: int, arms: np.ndarray, theta: np.ndarray) -> fb.Environment:
    """Returns arms that are the same in every round and for every user."""
    rows, sizes = np.tile(arms, (n_agents, 1)), np.full(n_agents, len(arms))
    return fb.envs.replay(rows, sizes, theta, n_agents=n_agents, rewards="bernoulli")
