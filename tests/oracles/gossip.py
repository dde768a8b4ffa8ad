"""Algorithm 3 of Dubey & Pentland (2020), decentralized FedUCB, message by message: float64, no cleverness.

A message born at the end of round t is with all agents at distance delta <= gamma at the start of round t + delta: who
receives it for the first time, before its time is over, forwards it to all neighbours in the same round. Estimator g is
used in rounds t = g, g + gamma, ... . A request born at use t is with the whole clique at the next use t + gamma, at
the end of which all members release their private totals; these are with the whole clique at the use t + 2 gamma.
"""

from collections import Counter
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from oracles.linear import argmax_ucb


class Message(NamedTuple):
    kind: str  # "request" or "data"
    sender: int
    g: int
    born: int
    release: Any = None  # (d, d + 1)


class Estimator:
    """What an agent keeps for one g."""

    def __init__(self, shared):
        self.shared = shared  # [W | U] last applied
        self.own = np.zeros_like(shared)  # raw, since the last snapshot
        self.total = np.zeros_like(shared)  # raw, all snapshots
        self.uses = self.k = 0  # uses since the last snapshot; snapshots


class Gossip(NamedTuple):
    regret: np.ndarray  # (T,) of all agents together
    syncs: np.ndarray  # (C, gamma)
    transmissions: Counter  # kind -> messages x hops, until the last message is dropped
    log: list  # (t, agent, g, kind) of every broadcast


class Mail:
    """The network: one hop a round."""

    def __init__(self, graph, gamma):
        self.graph, self.gamma = graph, gamma
        self.held = [{} for _ in graph]  # agent -> (kind, sender, g, born) -> message
        self.wire = []  # (from whom, message, time to live)
        self.transmissions = Counter()

    def send(self, i, message, ttl):
        self.transmissions[message.kind] += self.graph.degree(i)
        self.wire.append((i, message, ttl))

    def broadcast(self, i, message):
        self.held[i][message[:4]] = message
        self.send(i, message, self.gamma)

    def deliver(self):
        """Start of a round: what is on the wire arrives, and goes on the wire again."""
        wire, self.wire = self.wire, []
        for source, message, ttl in wire:
            for j in self.graph[source]:
                if message[:4] not in self.held[j]:
                    self.held[j][message[:4]] = message
                    if ttl > 1:
                        self.send(j, message, ttl - 1)

    def received(self, i, kind, g, born, senders):
        """Messages of this kind, estimator and round from these senders, in their order; others are ignored."""
        found = [self.held[i].get((kind, j, g, born)) for j in senders]
        return [message for message in found if message is not None]


def log_det(matrix):
    sign, value = np.linalg.slogdet(matrix)
    assert sign > 0
    return value


def gossip_fed_ucb(
    env, graph, clique, gamma, horizon, *, rho_min, rho_max, threshold, beta, noise=None, trigger="dp20"
):
    """Decentralized FedUCB on a script.

    `beta(i, growth)` with growth = log det V_i - d log(n_C rho_min). `noise(i, g, k, t)`, (d, d + 1), is the noise of
    the k-th prefix sum that agent i releases of estimator g, k = 1, 2, ..., in round t; a release is shifted by 2
    rho_min I, or by rho_min I without noise. `trigger="zc24"` leaves the term n_C (rho_max - rho_min) I out.
    """
    m, d = env.spec.n_agents, env.spec.dim
    eye = np.eye(d, d + 1)
    members = [[j for j in range(m) if clique[j] == clique[i]] for i in range(m)]
    estimators = [[Estimator(len(members[i]) * rho_min * eye) for _ in range(gamma)] for i in range(m)]
    mail, log, regret = Mail(graph, gamma), [], np.zeros(horizon)

    def broadcast(i, message):
        log.append((message.born, i, message.g, message.kind))
        mail.broadcast(i, message)

    for t in range(horizon):
        g = t % gamma
        mail.deliver()
        for i in range(m):  # lines 18-22: apply what was released at the last use
            data = mail.received(i, "data", g, t - gamma, members[i])
            if data:
                assert [message.sender for message in data] == members[i]
                estimators[i][g].shared = sum(message.release for message in data)
        for i in range(m):
            for j in members[i]:
                np.testing.assert_array_equal(estimators[i][g].shared, estimators[j][g].shared)

        for i in range(m):
            e, n = estimators[i][g], len(members[i])
            v = (e.shared + e.own)[:, :d]
            contexts = env.contexts[t, i].astype(float)
            width = beta(i, log_det(v) - d * np.log(n * rho_min))
            a = argmax_ucb(contexts, v, (e.shared + e.own)[:, d], width)  # lines 4-9 of Algorithm 1
            y = float(env.answers[t, i, a])
            y = min(max(y, 0.0), 1.0)
            regret[t] += env.means[t, i].max() - env.means[t, i, a]
            e.own = e.own + np.outer(contexts[a], np.append(contexts[a], y))
            e.uses += 1

            if mail.received(i, "request", g, t - gamma, members[i]):  # lines 13-17
                e.total = e.total + e.own
                e.k += 1
                e.own, e.uses = np.zeros_like(e.own), 0
                release = (
                    e.total + rho_min * eye if noise is None else e.total + noise(i, g, e.k, t) + 2 * rho_min * eye
                )
                broadcast(i, Message("data", i, g, t, release))
                continue
            grown = v + np.outer(contexts[a], contexts[a])
            if trigger == "dp20":
                grown = grown + n * (rho_max - rho_min) * np.eye(d)
            if log_det(grown) - log_det(e.shared[:, :d]) >= threshold / (e.uses * (1 + 1)):  # line 6, with L = 1
                broadcast(i, Message("request", i, g, t))  # lines 9-11
    while mail.wire:
        mail.deliver()

    syncs = np.zeros((max(clique) + 1, gamma), int)
    for i in range(m):
        for g in range(gamma):
            assert estimators[i][g].k == estimators[members[i][0]][g].k
            syncs[clique[i], g] = estimators[i][g].k
    return Gossip(regret, syncs, mail.transmissions, log)


def released_gossip(env, graph, gamma, horizon, rounds, regularization, beta, *, noise=None, response=float):
    """Regret (T,) of agents who act on what all silos within gamma hops released after these rounds, gamma rounds ago.

    `beta(i, t)` is the width of agent i, `regularization[i]` its lambda, and `noise(i, k)`, (d, d + 1), the noise of
    the k-th prefix sum that silo i releases, k = 1, 2, ....
    """
    m, d = env.spec.n_agents, env.spec.dim
    heard = [sorted(nx.single_source_shortest_path_length(graph, i, gamma)) for i in range(m)]
    exact, used, released, regret = np.zeros((m, d, d + 1)), np.zeros((m, d, d + 1)), {}, np.zeros(horizon)
    for t in range(horizon):
        if t - gamma in released:
            used = np.array([np.sum([released[t - gamma][j] for j in heard[i]], 0) for i in range(m)])
        for i in range(m):
            contexts, v = env.contexts[t, i].astype(float), used[i][:, :d] + regularization[i] * np.eye(d)
            a = argmax_ucb(contexts, v, used[i][:, d], beta(i, t))
            regret[t] += env.means[t, i].max() - env.means[t, i, a]
            exact[i] += np.outer(contexts[a], np.append(contexts[a], response(env.answers[t, i, a])))
        if t + 1 in rounds:
            released[t] = [exact[i] + (0 if noise is None else noise(i, len(released) + 1)) for i in range(m)]
    return regret
