"""Users with a private stream each, in float64 and one user at a time: `Grouped`, and the mixture of linear models.

Everything random is given: the noise in every user's releases, and who is tried as the beginning of one more kind.
"""

import numpy as np


def misfit(gram, bias, theta, std, bias_std, subgaussian, theta_norm, spread=0.0):
    """q of one user to one kind: the residual in the inverse of its covariance.

    If users of a kind differ by the variance `spread`, its log determinant, relative to that without it, is added.
    """
    values, vectors = np.linalg.eigh(gram)
    noise = bias_std**2 + theta_norm**2 * std**2 / 2
    within = np.maximum(subgaussian**2 * values.clip(0) + noise, 1e-2)
    total = within + values.clip(0) ** 2 * spread
    rest = (bias - gram @ theta) @ vectors
    return (rest**2 / total).sum() + np.log(total / within).sum()


def by_chance(n, d):
    """What dealing users who are alike out to 1, 2, ..., n kinds explains of their misfit."""
    return np.cumsum([0.0, *(2 / np.pi * (np.sqrt(n / c) + np.sqrt(d)) ** 2 for c in range(1, n))])


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
    found = [best]
    for c in range(2, max_groups + 1):
        starts = [np.concatenate([best[0], [alone[u]]]) for u in odd(c, best[2])]
        starts = [fit(grams, biases, last, std, c) if last.max() + 1 == c else starts[0], *starts]
        tried = [settle(start) for start in starts]
        best = min(tried, key=lambda one: one[2].sum())
        found.append(best)

    def one_kind(share):
        args = std, bias_std, subgaussian, theta_norm, share * theta_norm**2 / d
        return sum(misfit(g, b, found[0][0][0], *args) for g, b in zip(grams, biases))

    least, share = min((one_kind(share), share) for share in (0, 1 / 16, 1 / 4, 1, 4))
    bounds = np.minimum(by_chance(n, d), n * d + 2 * np.sqrt(2 * n * d))
    margin = 1.5 if share else 1.0
    costs = [one[2].sum() + margin * bound for one, bound in zip(found, bounds)]
    costs = [least, *costs[1:], table(alone).diagonal().sum() + margin * bounds[-1]]
    return [*(one[1] for one in found), np.arange(n)][int(np.argmin(costs))]


def noise_along(p, theta, std, bias_std):
    """The variance of p' (z - Z theta) for symmetric Z, whose entries off the diagonal have half the variance."""
    covariance = np.outer(p, p) * theta.dot(theta) + p.dot(p) * np.outer(theta, theta)
    return bias_std**2 + std**2 * (p @ covariance @ p) / 2


def differences(grams, biases, counts, labels, *, std, bias_std, subgaussian, theta_norm):
    """T, direction by direction, by Cochran's Q of every group; None if it is not clear that users differ; and a ratio.

    That is the logarithm of the restricted likelihoods if users of a group are alike and if they are independent.
    """
    n, d = biases.shape
    thetas, kinds = fit(grams, biases, labels, std, n), np.unique(labels)
    excess, terms, ratio = 0.0, [], 0.0
    for i, (g, q) in enumerate(zip(*(x.T for x in np.linalg.eigh(grams.sum(0))))):
        over, information = len(kinds) - n, 0.0
        for c in kinds:
            mine = labels == c
            e = max(g, 0) * counts[mine] / counts.sum()
            variance = np.maximum(subgaussian**2 * e + noise_along(q, thetas[c], std, bias_std), 1e-2)
            rest = (biases[mine] - grams[mine] @ thetas[c]) @ q
            weight = e**2 / variance
            best = np.sum(e * rest / variance) / max(weight.sum(), 1e-2)
            over += np.sum((rest - e * best) ** 2 / variance)
            information += weight.sum() - np.sum(weight**2) / max(weight.sum(), 1e-2)
            for sign, spread in ((-1, 0.0), (1, theta_norm**2 / d)) if i < max(d - 1, 1) else ():
                total = variance + e**2 * spread
                known = max(np.sum(e**2 / total), 1e-2)
                squares = np.sum((rest - e * np.sum(e * rest / total) / known) ** 2 / total)
                ratio += sign * (squares + np.log(total).sum() + np.log(known)) / 2
        excess += over
        terms.append(max(over + 3 * np.sqrt(2 * n), 0) / max(information, 1e-2) * np.outer(q, q))
    return sum(terms) if excess > np.sqrt(2 * n * d) else None, ratio


def pooled(grams, biases, counts, labels, *, std, bias_std, subgaussian, theta_norm=1.0):
    """What serves every user: W, U and the root mean square of the noise, user by user and direction by direction."""
    law = dict(std=std, bias_std=bias_std, subgaussian=subgaussian, theta_norm=theta_norm)
    (t, ratio), thetas = differences(grams, biases, counts, labels, **law), fit(grams, biases, labels, std, len(labels))
    found = []
    for u, (gram, bias) in enumerate(zip(grams, biases)):
        others = (labels == labels[u]) & (np.arange(len(labels)) != u)
        m, shares = others.sum(), []
        for g, p in zip(*(x.T for x in np.linalg.eigh(grams[others].sum(0)))) if m else ():
            noise = m * noise_along(p, thetas[labels[u]], std, bias_std)
            uncertain = max(subgaussian**2 * max(g, 0) + noise, 1e-2) / max(g, 1e-12) ** 2
            if t is None:
                before = min(1 / np.sqrt(m), 0.5)
                rho = 1 / (1 + (1 - before) / before * np.exp(-ratio))
                share = rho * uncertain / (uncertain + theta_norm**2 / len(p) * (1 - rho) * (rho + 1 / m))
            else:
                share = uncertain / (uncertain + p @ t @ p * (1 + 1 / m))
            gram, bias = gram + share * g * np.outer(p, p), bias + share * p * (p @ biases[others].sum(0))
            shares.append(share)
        found.append((gram, bias, std * np.sqrt(1 + m * np.mean(np.square(shares or [0])))))
    return found


def in_groups(grams, biases, labels, std):
    """The sums of her group, for every user."""
    of = [labels == label for label in labels]
    return [(grams[w].sum(0), biases[w].sum(0), std * np.sqrt(w.sum())) for w in of]


def grouped(users, contexts, rewards, *, times, noise, stds, labels_at, pool_at, estimate, dim, n_users, centre):
    """Arms of all rounds, and the sums that were released, (S, n, d, d + 1).

    `noise(k, u)` (d, d + 1) is on release k of user u, `labels_at(k, released)` groups the users,
    `pool_at(k, released, counts, labels)` says what serves each, and `estimate(gram, bias, std)` is what she plays by.
    """
    sums = np.zeros((n_users, dim, dim + 1))
    counts = np.zeros(n_users)
    theta, arms, shown = np.zeros((n_users, dim)), [], []
    for t, (user, offered, answers) in enumerate(zip(users, contexts.astype(float), rewards.astype(float))):
        arm = int(np.argmax(offered @ theta[user]))
        arms.append(arm)
        x, y = offered[arm], answers[arm].clip(0, 1) - centre
        sums[user] += np.column_stack([np.outer(x, x), x * y])
        counts[user] += 1
        if t + 1 in times:
            k = len(shown)
            released = sums + np.array([noise(k, u) for u in range(n_users)])
            labels = labels_at(k, released)
            theta = np.array([estimate(*one) for one in pool_at(k, released, counts, labels)])
            shown.append(released)
    return np.array(arms), np.array(shown)
