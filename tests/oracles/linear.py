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


class TreeSilo:
    """Local randomizer R of Algorithm 2, or of Algorithm 4 if `prefix`: a stream of p-sums or of prefix sums."""

    def __init__(self, prefix):
        self.alpha, self.noisy, self.prefix = {}, {}, prefix

    def randomize(self, k, gamma, noise):
        i = next(j for j in range(64) if k >> j & 1)  # line 5: index of the first one
        self.alpha[i] = sum((self.alpha.pop(j, 0) for j in range(i)), start=gamma)  # lines 6-8
        for j in range(i):
            self.noisy.pop(j, None)
        self.noisy[i] = self.alpha[i] + noise  # line 9
        if self.prefix:
            return sum((self.noisy[j] for j in range(64) if k >> j & 1), start=np.zeros(()))
        return self.noisy[i]


class TreeServer:
    """Analyzer A of Algorithm 2 (adds up the nodes at the one-bits of k) or of Algorithm 4 (adds up the silos)."""

    def __init__(self, prefix):
        self.nodes, self.prefix = {}, prefix

    def analyze(self, k, messages):
        total = sum(messages, start=np.zeros(()))
        if self.prefix:
            return total
        self.nodes[next(j for j in range(64) if k >> j & 1)] = total
        return sum((self.nodes[j] for j in range(64) if k >> j & 1), start=np.zeros(()))


class Batches:
    """Every batch sum is sent once, and the server adds up what it got."""

    def __init__(self):
        self.total = 0.0

    def randomize(self, k, gamma, noise):
        return gamma + noise

    def analyze(self, k, messages):
        self.total = self.total + sum(messages, start=np.zeros(()))
        return self.total


def project(matrix):
    """Nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return sum((max(value, 0) * np.outer(v, v) for value, v in zip(values, vectors.T)), start=np.zeros(()))


def federated(env, horizon, batch, lam, choose, *, learns=False, noise=None, prefix=False, psd=False):
    """Algorithm 8 (or 1 if agents learn in the batch) of Zhou & Chowdhury (2024).

    Returns the regret of every round, the last sums that were sent, and those of every agent since then. Of agents who
    learn and never send it is LinUCB.

    `choose(t, i, contexts, v, u)` is the arm of agent i in round t. `noise(k)` is the sum over silos of the noise of
    release k: one silo adds all of it, the others none, and the server's sums are the same. `psd` projects the
    server's Gram matrix on the positive semidefinite cone.
    """
    m, d = env.spec.n_agents, env.spec.dim
    synced = np.zeros((d, d + 1))
    local = np.zeros((m, d, d + 1))
    silos, server = [TreeSilo(prefix) for _ in range(m)], TreeServer(prefix)
    if prefix == "batches":
        silos, server = [Batches()] * m, Batches()
    regret = np.zeros(horizon)
    for t in range(horizon):
        for i in range(m):
            shared = np.c_[project(synced[:, :d]), synced[:, d]] if psd else synced
            used = shared + local[i] if learns else shared
            contexts = env.contexts[t, i].astype(float)
            a = choose(t, i, contexts, lam * np.eye(d) + used[:, :d], used[:, d])
            x, y = contexts[a], env.answers[t, i, a]
            regret[t] += env.means[t, i].max() - env.means[t, i, a]
            local[i] += np.outer(x, np.append(x, y))
        if (t + 1) % batch == 0:
            k = (t + 1) // batch
            draws = [np.zeros((d, d + 1)) for _ in range(m)]
            if noise is not None:
                draws[m // 2] = noise(k)
            messages = [silo.randomize(k, gamma, z) for silo, gamma, z in zip(silos, local.copy(), draws)]
            synced = server.analyze(k, messages)
            local[:] = 0
    return regret, synced, local


def scheduled(env, horizon, first, later, choose, asks, start, *, shift, learns, noise, most, psd=False):
    """Algorithm 1 of Dubey & Pentland: regret, rounds that ended with a synchronisation, and the last (W | U).

    V = `first` I before a synchronisation, `later` I + W after it, W projected if `psd`. `choose` is that of
    `federated`. `asks(t, gained, leverage, since)` says who wants one, from all g_i and the last x' V^-1 x, `start(t,
    V)` begins an epoch (t = None: the first), `noise(t, k)` is the noise of release k over all silos.
    """
    m, d = env.spec.n_agents, env.spec.dim
    v, u, own = first * np.eye(d), np.zeros(d), np.zeros((m, d, d + 1))
    silo, last, rounds, regret = TreeSilo(prefix=True), -1, [], np.zeros(horizon)
    statistics = np.zeros((d, d + 1))
    start(None, v)

    def log_det(matrix):
        return np.linalg.slogdet(matrix)[1]

    for t in range(horizon):
        leverage = np.zeros(m)
        for i in range(m):
            v_i, u_i = (v + own[i, :, :d], u + own[i, :, d]) if learns else (v, u)
            contexts = env.contexts[t, i].astype(float)
            a = choose(t, i, contexts, v_i, u_i)
            regret[t] += env.means[t, i].max() - env.means[t, i, a]
            own[i] += np.outer(contexts[a], np.append(contexts[a], env.answers[t, i, a]))
            leverage[i] = contexts[a] @ np.linalg.solve(v, contexts[a])
        gained = np.array([log_det(v + own[i, :, :d] + shift * np.eye(d)) - log_det(v) for i in range(m)])
        if np.any(asks(t, gained, leverage, t - last)) and len(rounds) < most:
            rounds.append(t)
            draw = noise(t, len(rounds))
            statistics = silo.randomize(len(rounds), own.sum(0), np.zeros((d, d + 1)) if draw is None else draw)
            v = later * np.eye(d) + (project(statistics[:, :d]) if psd else statistics[:, :d])
            u = statistics[:, d]
            own[:], last = 0, t
            start(t, v)
    return regret, rounds, statistics


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
