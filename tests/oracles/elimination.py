"""Slow NumPy versions of successive elimination and of the shuffle protocol of Chowdhury & Zhou (2023)."""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy import optimize

TOP = 1 - 1e-6  # largest mean and index of an arm


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


def one_arm_at_a_time(means, horizon, size, index, reward, add_up, lots, *, forgets):
    """AdaC-UCB and its kin: regret of every user, and (arm, noisy sum) of every batch that fits.

    size(j) is that of an arm's j-th batch; index(asked, sums) scores the arms after `asked` batches of each; reward(b,
    arm, i) and add_up(b, arm, j, rewards) as above, with batches b = 1, 2, ... of any arm. Of several best arms the one
    with the smallest of the `lots` is next. A sum `forgets` the ones before, or adds to them.
    """
    asked, sums, regret, batches = [0] * len(means), [0.0] * len(means), [], []
    for b in itertools.count(1):
        bounds = index(asked, sums)
        arm = min(np.flatnonzero(np.equal(bounds, max(bounds))), key=lambda a: lots[a])
        users, played = size(asked[arm] + 1), sum(size(i + 1) for j in asked for i in range(j))
        regret += [max(means) - means[arm]] * min(users, horizon - len(regret))
        if played + users > horizon:
            return np.array(regret), batches
        asked[arm] += 1
        new = add_up(b, arm, asked[arm], [reward(b, arm, i) for i in range(users)])
        sums[arm] = new if forgets else sums[arm] + new
        batches.append((arm, new))
        if len(regret) == horizon:
            return np.array(regret), batches
    raise AssertionError("there is always a next batch")


def divergence(p, q, epsilon):
    """min over z in [p, q] of epsilon (z - p) + kl(z, q), by search; 0 if p >= q."""
    if p >= q:
        return 0.0

    def cost(z):
        kl = sum(a * math.log(a / b) for a, b in ((z, q), (1 - z, 1 - q)) if a > 0)
        return kl + (epsilon * (z - p) if z > p else 0.0)

    if math.isinf(epsilon):
        return cost(p)
    return min(cost(p), optimize.minimize_scalar(cost, bounds=(p, q), method="bounded", options=dict(xatol=1e-12)).fun)


def evidence(total, n, psi, rates, q):
    """The largest r (n - total) - n log(1 + (1 - q) (e^r - 1)) - psi(r) over rates r."""
    return max(r * (n - total) - n * math.log(1 + (1 - q) * math.expm1(r)) - p for r, p in zip(rates, psi))


def kl_index(total, n, psi, rates, played):
    """The largest q in [-100, 1] with evidence of at most log(played), by bisection."""
    low, high = -100.0, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        fits = evidence(total, n, psi, rates, middle) <= math.log(max(played, 2))
        low, high = (middle, high) if fits else (low, middle)
    return low


def truncation_radius(level, b, n, users, p, moment, order, share, noise, *, flips=None, after=False):
    """Half the width of a confidence interval for rewards clipped to +-level, part by part.

    noise(log) bounds the noise on a sum of rewards in [0, 1]; bits that are flipped with probability `flips` have none
    on the sum, and are sent by corrupted users themselves if `after`.
    """
    log, mean = math.log(4 * n * b**2 / p), moment ** (1 / order)
    bias = moment * level ** (1 - order) * (order - 1) ** (order - 1) / order**order
    c = 1 if flips is None else 1 / (1 - 2 * flips)
    lies = share * (mean + level * (c if after else 1))
    if flips is not None:
        return bias + lies + 2 * level * c * math.sqrt(log / (2 * users))
    square = min(level**2, mean**2 if order >= 2 else moment * level ** (2 - order)) + share * level**2
    sampling = math.sqrt(2 * square * log / users) + 2 * level * log / (3 * users)
    return bias + lies + sampling + 2 * level * noise(log - math.log(2)) / users


def best_truncation(radius):
    """The least of radius(level) over all levels."""
    found = optimize.minimize_scalar(lambda x: radius(math.exp(x)), bounds=(-8, 20), method="bounded")
    return found.fun


def randomize(x, u, g):
    """Line 3 of Algorithm 2, with u < fraction for the coin: the products and fractions of float32."""
    z = np.float32(x) * np.float32(g)
    return int(z) + bool(np.float32(u) < z - np.floor(z))


def analyze(y, n, g, tau):
    """Algorithm 3 for the sum y of messages before it is reduced; and did it leave the ring?"""
    m = n * g + 2 * tau + 1
    z = y % m - m if y % m > n * g + tau else y % m
    return z / g, z != y
