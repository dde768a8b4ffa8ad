"""Slow NumPy versions of successive elimination and of the shuffle protocol of Chowdhury & Zhou (2023)."""

import itertools
from typing import NamedTuple

import numpy as np


class Batch(NamedTuple):
    """What a whole batch of successive elimination did."""

    end: int  # users so far
    size: int  # of each arm
    asked: list[int]
    sums: dict[int, float]
    left: list[int]


def successive_elimination(means, horizon, batch_size, radius, reward, add_up, turns, *, round_robin=False):
    """Algorithm 1 of Chowdhury & Zhou (2023), or the order of Sajed & Sheffet (2019): regret of every user, batches.

    batch_size(b, n) and radius(b, n) of batch b = 1, 2, ... with n arms; reward(b, arm, i) of user i = 0, 1, ...;
    add_up(b, arm, rewards) is what the analyzer makes of them, and arms take `turns` in this order.
    """
    active, regret, batches = list(turns), [], []
    for b in itertools.count(1):
        users = range(batch_size(b, len(active)))
        order = [(a, i) for i in users for a in active] if round_robin else [(a, i) for a in active for i in users]
        rewards = {a: [] for a in active}
        for a, i in order:  # lines 5-10
            rewards[a].append(reward(b, a, i))
            regret.append(max(means) - means[a])
            if len(regret) == horizon:
                return np.array(regret), batches
        sums = {a: add_up(b, a, rewards[a]) for a in active}  # lines 11-12
        middle, beta = {a: sums[a] / len(users) for a in active}, radius(b, len(active))  # lines 13-14
        left = [a for a in active if middle[a] + beta >= max(middle[c] - beta for c in active)]  # line 16
        batches.append(Batch(len(regret), len(users), active, sums, left))
        active = left
    raise AssertionError("there is always a next batch")


def adac_ucb(means, horizon, radius, reward, add_up, lots):
    """AdaC-UCB in batches of 2^j users: regret of every user, and (arm, noisy sum) of every batch that fits.

    radius(j) is that of an arm's j-th batch; reward(b, arm, i) and add_up(b, arm, j, rewards) as above, with batches b
    = 1, 2, ... of any arm. Of several best arms the one with the smallest of the `lots` is next.
    """
    asked, sums, regret, batches = [0] * len(means), [0.0] * len(means), [], []
    for b in itertools.count(1):
        bounds = [s / 2**j + radius(j) if j else np.inf for j, s in zip(asked, sums)]
        arm = min(np.flatnonzero(np.equal(bounds, max(bounds))), key=lambda a: lots[a])
        size = 2 ** (asked[arm] + 1)
        regret += [max(means) - means[arm]] * min(size, horizon - len(regret))
        if len(regret) == horizon and sum(2 ** (j + 1) - 2 for j in asked) + size > horizon:
            return np.array(regret), batches
        asked[arm] += 1
        sums[arm] = add_up(b, arm, asked[arm], [reward(b, arm, i) for i in range(size)])
        batches.append((arm, sums[arm]))
        if len(regret) == horizon:
            return np.array(regret), batches
    raise AssertionError("there is always a next batch")


def randomize(x, u, g):
    """Line 3 of Algorithm 2, with u < fraction for the coin: the products and fractions of float32."""
    z = np.float32(x) * np.float32(g)
    return int(z) + bool(np.float32(u) < z - np.floor(z))


def analyze(y, n, g, tau):
    """Algorithm 3 for the sum y of messages before it is reduced; and did it leave the ring?"""
    m = n * g + 2 * tau + 1
    z = y % m - m if y % m > n * g + tau else y % m
    return z / g, z != y
