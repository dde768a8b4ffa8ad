"""Asynchronous FedLinUCB (Algorithm 1 of He, Wang, Min & Gu, 2022) and its private form, one agent, one buffer a time.

Float64, no cleverness: everything random is given. Without noise buffers are kept as printed, and sent; with noise an
agent sends the k-th noisy sum over all its rounds, and the server adds up the last ones. Statistics are (d, d + 1)
arrays [sum of x x' | sum of x y] without the regulariser.
"""

import numpy as np
from oracles.clustering import Trace


def async_fed_lin_ucb(draws, n_agents, *, beta, ridge, trigger, noise=None, project=False):
    """Plays all rounds; the trace also has the server's sum after every round, and the rounds in it, `counts`.

    Args:
        draws: who comes, what is offered, what every arm pays.
        n_agents: M.
        beta: a function of t = 0, 1, ..., the width.
        ridge: lambda.
        trigger: a function of (t, agent, own rounds, rounds since, V, buffer, leverage): asks?, how close was it?
        noise: a function of (agent, k, t), the noise of the agent's k-th sum, drawn after round t; None: none.
        project: whether negative eigenvalues of a downloaded matrix are set to 0.
    """
    horizon, _, d = draws.contexts.shape
    nothing = np.zeros((d, d + 1))
    server, known = nothing.copy(), [nothing] * n_agents  # known[m]: downloaded by agent m (without lambda I)
    buffers, totals, shown = ([nothing] * n_agents for _ in range(3))
    own, sent, k = np.zeros((3, n_agents), int)
    trace = Trace(horizon, n_agents)
    trace.server, trace.counts = np.zeros((horizon, d, d + 1)), np.zeros(horizon)
    for t, (m, contexts, rewards) in enumerate(zip(draws.users, draws.contexts.astype(float), draws.rewards)):
        gram, bias = known[m][:, :d], known[m][:, d]
        if project:
            values, vectors = np.linalg.eigh(gram)
            gram = (vectors * np.maximum(values, 0)) @ vectors.T
        v = ridge * np.eye(d) + gram
        inverse = np.linalg.inv(v)
        index = [x @ inverse @ bias + beta(t) * np.sqrt(x @ inverse @ x) for x in contexts]  # line 5
        arm = int(np.argmax(index))
        x, y = contexts[arm], float(rewards[arm])
        if noise is not None:
            y = min(max(y, 0.0), 1.0)
        row = np.outer(x, np.append(x, y))
        buffers[m], totals[m] = buffers[m] + row, totals[m] + row  # line 7
        own[m] += 1
        asks, gap = trigger(t, m, own[m], own[m] - sent[m], v, buffers[m][:, :d], x @ inverse @ x)
        if asks:
            k[m] += 1
            if noise is None:
                server = server + buffers[m]  # line 10
            else:
                message = totals[m] + noise(m, k[m], t)
                server, shown[m] = server - shown[m] + message, message
            buffers[m], sent[m], known[m] = nothing, own[m], server  # lines 11-13
        ranked = sorted(index, reverse=True)
        trace.arms[t], trace.margins[t], trace.uploads[t], trace.gaps[t] = arm, ranked[0] - ranked[1], asks, gap
        trace.server[t], trace.counts[t] = server, sent.sum()
    return trace


def by_determinant(growth):
    """Line 8: det(V + U) > (1 + alpha) det V, with `growth` = 1 + alpha."""

    def trigger(t, m, own, since, v, buffer, leverage):
        grown = np.linalg.slogdet(v + buffer)[1] - np.linalg.slogdet(v)[1]
        return grown > np.log(growth), abs(grown - np.log(growth))

    return trigger


def by_rounds(rounds):
    """After these numbers of an agent's own rounds."""
    return lambda t, m, own, since, v, buffer, leverage: (own in rounds, np.inf)
