"""Slow NumPy versions of the printed algorithms, float64, one agent at a time, no cleverness."""

import numpy as np


def argmax_ucb(contexts, v, u, beta):
    """Line 6 of Algorithm 1 for one agent: contexts (K, d)."""
    inverse = np.linalg.inv(v)
    scores = [x @ inverse @ u + beta * np.sqrt(x @ inverse @ x) for x in contexts]
    return int(np.argmax(scores))


def lin_ucb(env, horizon, lam, beta):
    """M independent LinUCB agents; returns group regret per round, and (V, b) of every agent."""
    m, d = env.spec.n_agents, env.spec.dim
    v, b = np.stack([lam * np.eye(d)] * m), np.zeros((m, d))
    regret = np.zeros(horizon)
    for t in range(horizon):
        for i in range(m):
            contexts = env.contexts[t, i].astype(float)
            a = argmax_ucb(contexts, v[i], b[i], beta(t))
            regret[t] += env.means[t, i].max() - env.means[t, i, a]
            v[i] += np.outer(contexts[a], contexts[a])
            b[i] += contexts[a] * env.answers[t, i, a]
    return regret, v, b


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
            return sum(self.noisy[j] for j in range(64) if k >> j & 1)
        return self.noisy[i]


class TreeServer:
    """Analyzer A of Algorithm 2 (adds up the nodes at the one-bits of k) or of Algorithm 4 (adds up the silos)."""

    def __init__(self, prefix):
        self.nodes, self.prefix = {}, prefix

    def analyze(self, k, messages):
        total = sum(messages)
        if self.prefix:
            return total
        self.nodes[next(j for j in range(64) if k >> j & 1)] = total
        return sum(self.nodes[j] for j in range(64) if k >> j & 1)


def project(matrix):
    """Nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return sum(max(value, 0) * np.outer(v, v) for value, v in zip(values, vectors.T))


def fed_lin_ucb(env, horizon, batch, lam, beta, *, lazy, noise=None, prefix=False, psd=False):
    """Algorithm 1 (or 8 if lazy) of Zhou & Chowdhury; `noise(k)` is the sum over silos of the noise of release k.

    One silo adds all of `noise(k)`, the others none: the server's sums are the same. `psd` projects the server's Gram
    matrix on the positive semidefinite cone.
    """
    m, d = env.spec.n_agents, env.spec.dim
    synced = np.zeros((d, d + 1))
    local = np.zeros((m, d, d + 1))
    silos, server = [TreeSilo(prefix) for _ in range(m)], TreeServer(prefix)
    regret = np.zeros(horizon)
    for t in range(horizon):
        for i in range(m):
            shared = np.c_[project(synced[:, :d]), synced[:, d]] if psd else synced
            used = shared if lazy else shared + local[i]
            contexts = env.contexts[t, i].astype(float)
            a = argmax_ucb(contexts, lam * np.eye(d) + used[:, :d], used[:, d], beta(t))
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
    return regret, synced
