"""Slow NumPy versions of the two searches for the best arm."""

import itertools
import math

import numpy as np
from scipy import optimize
from scipy.special import logsumexp


def log_moment(scale, rate):
    """log E e^(rate X) of discrete Laplace noise of this scale, by its probabilities."""
    x = np.arange(-math.ceil(80 / (1 / scale - rate)), math.ceil(80 / (1 / scale - rate)) + 1)
    return logsumexp(rate * x - np.abs(x) / scale) - logsumexp(-np.abs(x) / scale)


def evidence(total, n, psi, rates, q):
    """The logarithm of the mean over rates r of e^(r total - psi(r)) / (1 - q + q e^r)^n."""
    each = [r * total - n * math.log(1 - q + q * math.exp(r)) - p for r, p in zip(rates, psi)]
    return float(logsumexp(each) - math.log(len(rates)))


def better(one, other, rates):
    """The evidence that an arm beats another: (sum, users, psi) of both; its minimum over q in [0, 1]."""

    def both(q):
        total, n, psi = other
        return evidence(*one, rates, q) + evidence(n - total, n, psi, rates, 1 - q)

    return optimize.minimize_scalar(both, bounds=(0, 1), method="bounded", options=dict(xatol=1e-9)).fun


def top_two(means, horizon, size, psi, rates, threshold, reward, add_up, lots):
    """Regret of every user, (arm, noisy sum) of every batch, the last leader, and when it stopped, -1 for never.

    size(j) of an arm's j-th phase, psi(j) of its first j phases; reward and add_up as in `one_arm_at_a_time`.
    """
    arms, regret, batches = range(len(means)), [], []
    asked, users, sums = ([0] * len(means) for _ in range(3))
    for b in itertools.count(1):
        new = [a for a in arms if not users[a]]
        middle = [s / n if n else -math.inf for s, n in zip(sums, users)]
        leader = min((a for a in arms if middle[a] == max(middle)), key=lambda a: lots[a])
        facts = [(sums[a], users[a], psi(asked[a])) for a in arms]
        against = {a: better(facts[leader], facts[a], rates) for a in arms if a != leader}
        if not new and min(against.values()) >= threshold:
            rest = [max(means) - means[leader]] * (horizon - len(regret))
            return np.array(regret + rest), batches, leader, len(regret)
        if new:
            arm = min(new, key=lambda a: lots[a])
        else:
            challenger = min(against, key=lambda a: (against[a] + math.log(users[a]), lots[a]))
            arm = leader if users[leader] <= users[challenger] else challenger
        n = size(asked[arm] + 1)
        fits = len(regret) + n <= horizon
        regret += [max(means) - means[arm]] * min(n, horizon - len(regret))
        if not fits:
            return np.array(regret), batches, leader, -1
        asked[arm], users[arm] = asked[arm] + 1, users[arm] + n
        more = add_up(b, arm, asked[arm], [reward(b, arm, i) for i in range(n)])
        sums[arm] += more
        batches.append((arm, more))
    raise AssertionError("there is always a next batch")


def halving(n_arms, budget, mean_of):
    """Sequential halving of Karnin et al. (2013): arms left after each round, from mean_of(round, arm, users)."""
    rounds, left, found = math.ceil(math.log2(n_arms)), list(range(n_arms)), []
    for r in range(rounds):
        users = budget // rounds // len(left)
        middle = {a: mean_of(r, a, users) for a in left}
        left = sorted(sorted(left, key=lambda a: -middle[a])[: math.ceil(len(left) / 2)])
        found.append((users, left))
    return found
