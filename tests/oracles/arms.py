"""Slow NumPy versions of algorithms for arms: one loop plays all of them, and a rule says who is asked next.

A rule is a generator. It yields the arms that are asked and the users of each, and is sent their noisy sums. It returns
the arm that it recommends, if it stops.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy.special import logsumexp

TOP = 1 - 1e-6  # largest mean and index of an arm


class Batch(NamedTuple):
    end: int  # users so far
    arms: list[int]
    users: int  # of each arm
    sums: dict[int, float]
    left: list[int]  # arms of the next batch


def play(means, horizon, rule, add_up, turns, *, round_robin=False):
    """Regret of every user, and all batches that fit into the horizon.

    `add_up(b, arm, j, n)` is what the server learns of n users in batch b = 1, 2, ..., the j-th one of this arm. Arms
    take `turns` in this order, user by user if `round_robin`. An arm that is recommended has all later users.
    """
    asked, regret, batches = [0] * len(means), [], []
    arms, users = next(rule)
    while True:
        order = [a for a in turns if a in arms]
        order = order * users if round_robin else [a for a in order for _ in range(users)]
        fits = len(regret) + len(order) <= horizon
        regret += [max(means) - means[a] for a in order[: horizon - len(regret)]]
        if not fits:
            return np.array(regret), batches
        for a in arms:
            asked[a] += 1
        sums = {a: add_up(len(batches) + 1, a, asked[a], users) for a in sorted(arms)}
        try:
            left, then = rule.send(sums)
        except StopIteration as stop:
            left, then = [stop.value], horizon
        batches.append(Batch(len(regret), arms, users, sums, left))
        arms, users = left, then


def elimination(active, size, radius, entered):
    """Algorithm 1 of Chowdhury & Zhou (2023), lines 4-16, with batches of size(b, n) users of each of n arms.

    Of these the rewards of entered[b, arm] are in the sum. The interval is as much wider as they are fewer.
    """
    for b in itertools.count(1):
        n, beta = size(b, len(active)), radius(b, len(active))
        sums = yield active, n
        counts = {a: entered[b, a] for a in active}
        means = {a: sums[a] / max(m, 1) for a, m in counts.items()}
        width = {a: beta * n / m if m else math.inf for a, m in counts.items()}
        best = max(means[a] - width[a] for a in active)
        active = [a for a in active if means[a] + width[a] >= best]
        if len(active) == 1:
            return active[0]
    raise AssertionError("there is always a next batch")


def one_arm_at_a_time(index, size, lots, *, forgets=False):
    """AdaC-UCB and its kin: the arm with the best index(asked, sums), and the least of the `lots` of several.

    size(j) is that of an arm's j-th batch. A sum `forgets` the ones before, or adds to them.
    """
    asked, sums = [0] * len(lots), [0.0] * len(lots)
    while True:
        found = index(asked, sums)
        arm = min(np.flatnonzero(np.equal(found, max(found))).tolist(), key=lambda a: lots[a])
        new = yield [arm], size(asked[arm] + 1)
        asked[arm] += 1
        sums[arm] = new[arm] + (0 if forgets else sums[arm])


def top_two(size, psi, rates, threshold, lots):
    """Leader against challenger until the evidence for the leader is enough; psi(j) of an arm's first j batches."""
    arms = range(len(lots))
    asked, users, sums = ([0] * len(lots) for _ in range(3))
    while True:
        new = [a for a in arms if not users[a]]
        middle = [s / n if n else -math.inf for s, n in zip(sums, users)]
        leader = min((a for a in arms if middle[a] == max(middle)), key=lambda a: lots[a])
        facts = [(sums[a], users[a], psi(asked[a])) for a in arms]
        against = {a: better(facts[leader], facts[a], rates) for a in arms if a != leader}
        if not new and min(against.values()) >= threshold:
            return leader
        if new:
            arm = min(new, key=lambda a: lots[a])
        else:
            challenger = min(against, key=lambda a: (against[a] + math.log(users[a]), lots[a]))
            arm = leader if users[leader] <= users[challenger] else challenger
        n = size(asked[arm] + 1)
        found = yield [arm], n
        asked[arm], users[arm], sums[arm] = asked[arm] + 1, users[arm] + n, sums[arm] + found[arm]


def halving(n_arms, budget):
    """Sequential halving of Karnin et al. (2013)."""
    rounds, left = math.ceil(math.log2(n_arms)), list(range(n_arms))
    for _ in range(rounds):
        sums = yield left, budget // rounds // len(left)
        left = sorted(sorted(left, key=lambda a: -sums[a])[: math.ceil(len(left) / 2)])
    return left[0]


# Evidence, indices and radii.


def log_moment(scale, rate):
    """log E e^(rate X) of discrete Laplace noise of this scale, by its probabilities."""
    x = np.arange(-math.ceil(80 / (1 / scale - rate)), math.ceil(80 / (1 / scale - rate)) + 1)
    return logsumexp(rate * x - np.abs(x) / scale) - logsumexp(-np.abs(x) / scale)


def mean_evidence(total, n, psi, rates, q):
    """The logarithm of the mean over rates r of e^(r total - psi(r)) / (1 - q + q e^r)^n."""
    each = [r * total - n * math.log(1 - q + q * math.exp(r)) - p for r, p in zip(rates, psi)]
    return float(logsumexp(each) - math.log(len(rates)))


def better(one, other, rates):
    """The evidence that an arm beats another: (sum, users, psi) of both; its minimum over q in [0, 1]."""

    def both(q):
        total, n, psi = other
        return mean_evidence(*one, rates, q) + mean_evidence(n - total, n, psi, rates, 1 - q)

    return optimize.minimize_scalar(both, bounds=(0, 1), method="bounded", options=dict(xatol=1e-9)).fun


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
