"""Users with a private stream each, in float64 and one user at a time: `Grouped`, and the mixture of linear models.

Everything random is given: the noise in every user's releases, and who is tried as the beginning of one more kind.
"""

import numpy as np


def misfit(gram, bias, theta, std, bias_std, subgaussian, theta_norm):
    """q of one user to one kind: the residual in the inverse of its covariance."""
    values, vectors = np.linalg.eigh(gram)
    noise = bias_std**2 + theta_norm**2 * std**2 / 2
    spread = np.maximum(subgaussian**2 * values.clip(0) + noise, 1e-2)
    covariance = vectors @ np.diag(spread) @ vectors.T
    rest = bias - gram @ theta
    return rest @ np.linalg.solve(covariance, rest)


def ridge(gram, bias, std, size):
    d = len(bias)
    return np.linalg.solve(gram + (1 + 2 * std * np.sqrt(size * d)) * np.eye(d), bias)


def fit(grams, biases, labels, std, n_kinds):
    """The estimate of every kind; that of a kind without users is zero."""
    of = [labels == c for c in range(n_kinds)]
    return np.array([ridge(grams[w].sum(0), biases[w].sum(0), std, w.sum()) for w in of])


def mixture(grams, biases, last, odd, *, std, bias_std, max_groups, subgaussian=0.5, theta_norm=1.0):
    """The kind of every user.

    `odd(c, misfits)` names the users who are tried as the c-th kind.
    """
    n, d = biases.shape
    alone = [ridge(gram, bias, std, 1) for gram, bias in zip(grams, biases)]

    def table(thetas):
        args = std, bias_std, subgaussian, theta_norm
        return np.array([[misfit(g, b, theta, *args) for theta in thetas] for g, b in zip(grams, biases)])

    def settle(thetas):
        q = table(thetas)
        for _ in range(12):
            thetas = fit(grams, biases, q.argmin(1), std, len(thetas))
            before, q = q.argmin(1), table(thetas)
            if (q.argmin(1) == before).all():
                break
        return thetas, q.argmin(1), q.min(1)

    thetas = fit(grams, biases, np.zeros(n, int), std, 1)
    best = thetas, np.zeros(n, int), table(thetas)[:, 0]
    found, bounds = [best], [0.0]
    chance = [2 / np.pi * (np.sqrt(n / c) + np.sqrt(d)) ** 2 for c in range(1, n)]
    for c in range(2, max_groups + 1):
        starts = [np.concatenate([best[0], [alone[u]]]) for u in odd(c, best[2])]
        starts = [fit(grams, biases, last, std, c) if last.max() + 1 == c else starts[0], *starts]
        tried = [settle(start) for start in starts]
        best = min(tried, key=lambda one: one[2].sum())
        found.append(best)
        bounds.append(sum(chance[: c - 1]))
    found.append((None, np.arange(n), table(alone).diagonal()))
    bounds.append(sum(chance))
    most = n * d + 2 * np.sqrt(2 * n * d)
    costs = [one[2].sum() + min(bound, most) for one, bound in zip(found, bounds)]
    return found[int(np.argmin(costs))][1]


def grouped(users, contexts, rewards, *, times, noise, stds, labels_at, estimate, dim, n_users, centre):
    """Arms of all rounds, and the sums that were released, (S, n, d, d + 1).

    `noise(k, u)` (d, d + 1) is on release k of user u, `labels_at(k, released)` groups the users, and `estimate(gram,
    bias, std)` is what the policy plays by.
    """
    sums = np.zeros((n_users, dim, dim + 1))
    theta, arms, shown = np.zeros((n_users, dim)), [], []
    for t, (user, offered, answers) in enumerate(zip(users, contexts.astype(float), rewards.astype(float))):
        arm = int(np.argmax(offered @ theta[user]))
        arms.append(arm)
        x, y = offered[arm], answers[arm].clip(0, 1) - centre
        sums[user] += np.column_stack([np.outer(x, x), x * y])
        if t + 1 in times:
            k = len(shown)
            released = sums + np.array([noise(k, u) for u in range(n_users)])
            labels = labels_at(k, released)
            for u in range(n_users):
                mine = labels == labels[u]
                total = released[mine].sum(0)
                theta[u] = estimate(total[:, :-1], total[:, -1], stds[k] * np.sqrt(mine.sum()))
            shown.append(released)
    return np.array(arms), np.array(shown)
