"""Slow NumPy versions of the printed federated linear algorithms: float64, one agent at a time, no cleverness."""

import numpy as np


def argmax_ucb(contexts, v, u, beta):
    """Line 6 of Algorithm 1 for one agent: contexts (K, d)."""
    inverse = np.linalg.inv(v)
    scores = [x @ inverse @ u + beta * np.sqrt(x @ inverse @ x) for x in contexts]
    return int(np.argmax(scores))


def argmax_draw(contexts, v, u, z, scale):
    """Line 8 of Algorithm 1 of Agrawal & Goyal (2013) for one agent: a draw from N(V^-1 u, scale^2 V^-1), V = L L'."""
    theta = np.linalg.solve(v, u) + scale * np.linalg.solve(np.linalg.cholesky(v).T, z)
    return int(np.argmax(contexts @ theta))


class Tree:
    """Local randomizer R and analyzer A of Algorithms 2 and 4 of Zhou & Chowdhury (2024): noisy prefix sums."""

    def __init__(self):
        self.alpha, self.noisy = {}, {}

    def release(self, k, gamma, noise):
        i = next(j for j in range(64) if k >> j & 1)  # line 5: index of the first one
        self.alpha[i] = sum((self.alpha.pop(j, 0) for j in range(i)), start=gamma)  # lines 6-8
        for j in range(i):
            self.noisy.pop(j, None)
        self.noisy[i] = self.alpha[i] + noise  # line 9
        return sum((self.noisy[j] for j in range(64) if k >> j & 1), start=np.zeros(()))


class Batches:
    """Every batch sum is sent once, and the server adds up what it got, perhaps with less weight on what is old."""

    def __init__(self, decay=1.0):
        self.total, self.decay = 0.0, decay

    def release(self, k, gamma, noise):
        self.total = self.decay * self.total + gamma + noise
        return self.total


def project(matrix):
    """Nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return sum((max(value, 0) * np.outer(v, v) for value, v in zip(values, vectors.T)), start=np.zeros(()))


def plainly(x, y, k, statistics):
    return 1.0, y


def scheduled(env, horizon, choose, asks, *, first, later, learns, noise=None, psd=False, silo=None, most=10**9,
              counts=plainly):  # fmt: skip
    """Algorithm 1 of Dubey & Pentland (2020), or of Zhou & Chowdhury (2024), Algorithm 8 if agents do not learn.

    V = `first` I before a synchronisation, `later` I + W after it, W projected on the positive semidefinite cone if
    `psd`. `choose(t, i, contexts, v, u)` is the arm of agent i. `asks(t, v, own, x, since)` says who wants a
    synchronisation, from the sums of all agents and their last features. `noise(t, k)` is that of release k over all
    silos: the sums of the server are those of one silo that has all data and adds all noise. `counts(x, y, k,
    statistics)` are the weight and the response of a user, who knows release k. Of agents who learn and never ask it is
    LinUCB.

    Returns regret, rounds that ended with a synchronisation, the last (W | U), and the sums of agents since then.
    """
    m, d = env.spec.n_agents, env.spec.dim
    v, u, own, x = first * np.eye(d), np.zeros(d), np.zeros((m, d, d + 1)), np.zeros((m, d))
    silo, last, rounds, regret = silo or Tree(), -1, [], np.zeros(horizon)
    statistics = np.zeros((d, d + 1))
    for t in range(horizon):
        for i in range(m):
            v_i, u_i = (v + own[i, :, :d], u + own[i, :, d]) if learns else (v, u)
            contexts = env.contexts[t, i].astype(float)
            a = choose(t, i, contexts, v_i, u_i)
            x[i] = contexts[a]
            regret[t] += env.means[t, i].max() - env.means[t, i, a]
            weight, response = counts(x[i], env.answers[t, i, a], len(rounds), statistics)
            own[i] += np.outer(x[i], np.append(weight * x[i], response))
        if np.any(asks(t, v, own, x, t - last)) and len(rounds) < most:
            rounds.append(t)
            draw = np.zeros((d, d + 1)) if noise is None else noise(t, len(rounds))
            statistics = silo.release(len(rounds), own.sum(0), draw)
            v = later * np.eye(d) + (project(statistics[:, :d]) if psd else statistics[:, :d])
            u = statistics[:, d]
            own, last = np.zeros_like(own), t
    return regret, rounds, statistics, own


def design(arms, steps=100):
    """A G-optimal design by the multiplicative algorithm, in the coordinates that arms have, by pseudoinverses."""
    weights = np.full(len(arms), 1 / len(arms))
    for _ in range(steps):
        weights = weights * np.einsum("ad,de,ae->a", arms, np.linalg.pinv(arms.T * weights @ arms, 1e-5), arms)
        weights /= weights.sum()
    return weights


def phased(env, horizon, batch, arms, draw, *, failure, reward, stds, noise, scale=1.0):
    """DP-DPE with users who draw their arms: regret of every round, and the arms that are left.

    `draw(t, i, weights)` is the arm of agent i in round t, `noise(k)` that of release k of x y with x y's own share,
    and `stds[k]` its standard deviation; |y - c| <= `reward` for the c that is taken off rewards, 1 - `reward`.
    """
    m, n_phases = env.spec.n_agents, horizon // batch
    left, regret, u = list(range(len(arms))), [], 0
    log = np.log(2 * len(arms) * n_phases / failure)
    for t in range(horizon):
        if t % batch == 0:
            weights = np.zeros(len(arms))
            weights[left], u = design(arms[left]), np.zeros(arms.shape[1])
        gap = 0
        for i in range(m):
            a = draw(t, i, weights)
            gap += env.means[t, i].max() - env.means[t, i, a]
            u = u + arms[a] * (float(env.answers[t, i, a]) - (1 - reward))
        regret.append(gap)
        if (t + 1) % batch == 0:
            n, k = m * batch, t // batch
            inverse = np.linalg.pinv(arms.T * weights @ arms, 1e-5)
            low, high = [], []
            for a in left:
                g = inverse @ arms[a]
                mean = g @ (u + noise(k)) / n
                spread = np.sqrt(2 * log * (n * reward**2 * (g @ arms[a]) + stds[k] ** 2 * (g @ g)))
                width = scale * (spread + 2 * reward * log / 3 * max(abs(g @ arms[b]) for b in left)) / n
                low.append(mean - width)
                high.append(mean + width)
            left = [a for a, above in zip(left, high) if above >= max(low)]
    return np.array(regret), left
