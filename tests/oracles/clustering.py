"""LinUCB per user, CLUB, SCLUB and FCLUB (Algorithms 1-5 of Liu et al., 2022), one user, server, cluster at a time.

Float64, no cleverness: user u lives on server u % L, everything random is given. Sums are (d, d + 1) arrays [V | b]
without the regulariser. Upload and download buffers are kept as printed, and so never telescoped.
"""

import functools
import itertools
from dataclasses import dataclass

import networkx as nx
import numpy as np

FAILURE, LAMBDA = 0.01, 1.0


def beta(subgaussian, count, n_users, dim, low=LAMBDA, high=LAMBDA, kappa=0.0):
    spread = 2 * np.log(n_users / FAILURE) + dim * np.log(high / low + count / (dim * low))
    return subgaussian * np.sqrt(spread) + np.sqrt(high) + kappa


class Trace:
    """What happened; a phase that begins before round t belongs to round t."""

    def __init__(self, horizon, n_users):
        self.arms, self.uploads, self.downloads = np.zeros((3, horizon), int)
        self.margins = np.full(horizon, np.inf)  # best index minus second best
        self.gaps = np.full(horizon, np.inf)  # how close the closest test of a threshold was, inf without one
        # Smallest user of the local and of the global cluster when round t is served; at the end in the last row.
        self.labels, self.groups = np.zeros((2, horizon + 1, n_users), int)
        self.renewed, self.failures = [], []  # rounds; those in which an upload failed: matrix not positive definite
        self.final = {}

    def look(self, t, excess):
        """Notes how close a comparison was."""
        self.gaps[t] = min(self.gaps[t], abs(excess))
        return excess

    def safe(self, tol=1e-4):
        """First round with a near tie, or T: `arms[:safe]`, `labels[:safe]`, `uploads[:safe]` are beyond doubt."""
        close = np.flatnonzero((self.margins < tol) | (self.gaps < tol))
        return int(close[0]) if len(close) else len(self.arms)


def f(x):
    return np.sqrt((1 + np.log(1 + x)) / (1 + x))


def phase_at(t):
    """The phase that begins before round t = 2^s - 2, if one does."""
    return next((s for s in range(1, 64) if 2**s - 2 == t), None)


def over(a, b):
    """Relative distance, positive if a > b. Two zeros and infinities are far apart."""
    if np.isinf(a) or np.isinf(b) or a == b == 0:
        return np.inf if a > b else -np.inf
    return (a - b) / max(abs(a), abs(b))


def labels_of(clusters, n_users):
    row = np.full(n_users, -1)
    for cluster in clusters:
        row[list(cluster)] = min(cluster)
    assert (row >= 0).all()
    assert sum(len(cluster) for cluster in clusters) == n_users
    return row


def servers_of(n_users, n_servers):
    return [[u for u in range(n_users) if u % n_servers == server] for server in range(n_servers)]


def components(graph):
    return sorted((frozenset(c) for c in nx.connected_components(graph)), key=min)


def complete(groups):
    return nx.Graph([(u, v) for group in groups for u in group for v in group])  # loops keep lonely users


def regularized(sums):
    return LAMBDA * np.eye(len(sums)) + sums[:, :-1]


def positive(sums):
    return bool(np.linalg.eigvalsh(regularized(sums)).min() > 0)


def estimate(sums):
    assert positive(sums), "no estimate: the noise is too large for its shift"
    return np.linalg.inv(regularized(sums)) @ sums[:, -1]


def distance(one, two):
    return np.linalg.norm(estimate(one) - estimate(two))


def choose(contexts, sums, width):
    """First best arm, and by how much."""
    inverse, theta = np.linalg.inv(regularized(sums)), estimate(sums)
    index = [x @ theta + width * np.sqrt(x @ inverse @ x) for x in contexts.astype(float)]
    ranked = sorted(index, reverse=True)
    return int(np.argmax(index)), ranked[0] - ranked[1] if len(ranked) > 1 else np.inf


class Users:
    """Profiles (V | b, T) of all users."""

    def __init__(self, n_users, dim):
        self.sums, self.counts = np.zeros((n_users, dim, dim + 1)), np.zeros(n_users, int)

    def total(self, cluster):
        return sum(self.sums[j] for j in sorted(cluster)), sum(int(self.counts[j]) for j in cluster)

    def update(self, i, x, y):
        self.sums[i] += np.outer(x, np.append(x, y))
        self.counts[i] += 1


def serve(trace, profile, t, i, cluster, contexts, rewards, subgaussian):
    """A round without messages: serve user i by all that its cluster knows."""
    sums, count = profile.total(cluster)
    width = beta(subgaussian, count, *profile.sums.shape[:2])
    trace.arms[t], trace.margins[t] = choose(contexts[t], sums, width)
    profile.update(i, contexts[t, trace.arms[t]].astype(float), float(rewards[t, trace.arms[t]]))


def finish(trace, profile, clusters):
    trace.labels[-1] = labels_of(clusters, len(profile.counts))
    trace.groups, trace.final = trace.labels, {"users": profile.sums, "counts": profile.counts}
    return trace


def club(users, contexts, rewards, *, n_users, n_servers, alpha_edge=np.inf, subgaussian=0.5):
    """LinUCB is this with one user on a server."""
    trace, profile = Trace(len(users), n_users), Users(n_users, contexts.shape[2])
    graph = complete(servers_of(n_users, n_servers))
    for t, i in enumerate(map(int, users)):
        trace.labels[t] = labels_of(components(graph), n_users)
        serve(trace, profile, t, i, nx.node_connected_component(graph, i), contexts, rewards, subgaussian)
        for j in sorted(set(graph[i]) - {i}):
            bound = alpha_edge * (f(profile.counts[i]) + f(profile.counts[j]))
            if trace.look(t, over(distance(profile.sums[i], profile.sums[j]), bound)) > 0:
                graph.remove_edge(i, j)
    return finish(trace, profile, components(graph))


def sclub(users, contexts, rewards, *, n_users, n_servers, alpha_theta, alpha_p, subgaussian=0.5):
    trace, profile = Trace(len(users), n_users), Users(n_users, contexts.shape[2])
    clusters = [[set(group)] if group else [] for group in servers_of(n_users, n_servers)]  # of each server
    clock, noted, checked = [0] * n_servers, {}, {}

    def known(cluster):
        sums, count = profile.total(cluster)
        return estimate(sums), count

    for t, i in enumerate(map(int, users)):
        server = i % n_servers
        trace.labels[t] = labels_of([c for local in clusters for c in local], n_users)
        if phase_at(clock[server]) is not None:
            for cluster in clusters[server]:
                for j in cluster:
                    noted[j], checked[j] = known(cluster), False
        mine = next(c for c in clusters[server] if i in c)
        serve(trace, profile, t, i, mine, contexts, rewards, subgaussian)
        clock[server] += 1
        now = clock[server]

        if len(mine) > 1:  # split
            theta, count = known({i})
            old_theta, old_count = noted[i]
            excess = [over(np.linalg.norm(theta - old_theta), alpha_theta * (f(count) + f(old_count)))]
            for j in mine - {i}:
                excess.append(over(abs(count - int(profile.counts[j])) / now, 2 * alpha_p * f(now)))
            if trace.look(t, max(excess)) > 0:
                mine.remove(i)
                mine = {i}
                clusters[server].append(mine)
                noted[i] = theta, count
        checked[i] = True

        while all(checked[j] for j in mine):  # merge
            near = []
            for other in clusters[server]:
                if other is mine or not all(checked[j] for j in other):
                    continue
                (theta, count), (other_theta, other_count) = known(mine), known(other)
                bound = alpha_theta / 2 * (f(count) + f(other_count))
                apart = abs(count / len(mine) - other_count / len(other)) / now
                close = over(bound, np.linalg.norm(theta - other_theta)), over(alpha_p * f(now), apart)
                if trace.look(t, min(close)) > 0:
                    near.append(other)
            if not near:
                break
            joining = min(near, key=min)
            clusters[server].remove(joining)
            mine |= joining
            for j in mine:
                noted[j] = known(mine)
    return finish(trace, profile, [c for local in clusters for c in local])


@dataclass
class Shared:
    """(S | u, T) and how many rho I of S are shift."""

    sums: np.ndarray
    count: int
    shift: int

    def __add__(self, other):
        return Shared(self.sums + other.sums, self.count + other.count, self.shift + other.shift)


@dataclass
class Local:
    """A local cluster (l, j) since the last renewal."""

    server: int
    users: frozenset
    tree: int  # phase in which its tree was planted
    shown: Shared  # when the phase began
    synced: Shared | None = None  # S^l
    up: Shared | None = None  # upload buffer
    down: Shared | None = None  # download buffer
    k: int = 0  # uploads
    stopped: bool = False  # an upload failed: no more of this tree


@dataclass
class Global:
    users: frozenset
    members: list
    shared: Shared


def fclub(
    users, contexts, rewards, *, n_users, n_servers, alpha_1, alpha_2, upload, download, trigger, shift, max_uploads,
    subgaussian=0.5, rho=0.0, vector=0.0, noise=None, private=False,
):  # fmt: skip
    """`noise(s, slot_user, k)`: [H_k | h_k] of the tree planted in phase s. No k > max_uploads is asked for."""
    assert private or (rho == 0 and vector == 0 and noise is None)
    d = contexts.shape[2]
    trace, profile = Trace(len(users), n_users), Users(n_users, d)
    graph, clusters = complete(servers_of(n_users, n_servers)), []  # global clusters
    partition = None  # local and global, of the phase before

    @functools.cache
    def prefix(tree, slot, k):
        """What should be in the first k + 1 releases of a tree besides data."""
        if max_uploads is not None:
            k = min(k, max_uploads)
        times = 2 + 3 * k if shift == "every" else 2
        sums = np.zeros((d, d + 1)) if noise is None else np.asarray(noise(tree, slot, k), float)
        return Shared(sums + times * rho * np.eye(d, d + 1), 0, times)

    def fresh(local):
        """Alg. 2 line 15, Alg. 3 line 10: [3 rho I +] H_{k+1} - H_k, and no data."""
        new, old = (prefix(local.tree, min(local.users), k) for k in (local.k + 1, local.k))
        return Shared(new.sums - old.sums, 0, new.shift - old.shift)

    def nothing():
        return Shared(np.zeros((d, d + 1)), 0, 0)

    def begin(t, s):
        """Alg. 2."""
        nonlocal clusters, partition
        for i, j in list(graph.edges):  # line 3
            bound = alpha_1 * (f(profile.counts[i]) + f(profile.counts[j]))
            if i != j and trace.look(t, over(distance(profile.sums[i], profile.sums[j]), bound)) > 0:
                graph.remove_edge(i, j)
        new = []
        for cluster in components(graph):  # lines 4-5
            (server,) = {j % n_servers for j in cluster}
            new.append(Local(server, cluster, s, Shared(*profile.total(cluster), 0) + prefix(s, min(cluster), 0)))
        trace.uploads[t] += len(new)
        links = nx.empty_graph(len(new))
        for a, b in itertools.combinations(range(len(new)), 2):  # line 7
            if new[a].server != new[b].server:
                one, two = new[a].shown, new[b].shown
                bound = alpha_2 * (f(one.count) + f(two.count))
                if trace.look(t, over(bound, distance(one.sums, two.sums))) > 0:
                    links.add_edge(a, b)
        groups = [[new[a] for a in sorted(group)] for group in nx.connected_components(links)]
        unions = [frozenset().union(*(local.users for local in group)) for group in groups]
        before, partition = partition, ({local.users for local in new}, set(unions))
        if before == partition:  # line 8
            return
        trace.renewed.append(t)
        trace.downloads[t] += len(new)
        clusters = []
        for union, group in zip(unions, groups):  # lines 10-18
            cluster = Global(union, group, functools.reduce(Shared.__add__, [local.shown for local in group]))
            clusters.append(cluster)
            for local in group:
                local.synced, local.up, local.down = cluster.shared, fresh(local), nothing()

    def width(cluster, local):
        n_local, times = len(cluster.members), local.synced.shift
        low, high = LAMBDA + (times - n_local) * rho, LAMBDA + (times + n_local) * rho
        return beta(subgaussian, local.synced.count, n_users, d, low, high, n_local * vector / np.sqrt(low))

    def ripe(t, new, old, threshold):
        if threshold == 1:
            return True
        if trigger == "count":
            return new.count / max(old.count, 1) >= threshold
        if not positive(new.sums):
            return True  # and fails
        (sign, now), (_, before) = (np.linalg.slogdet(regularized(one.sums)) for one in (new, old))
        assert sign > 0
        return trace.look(t, now - before - np.log(threshold)) >= 0

    def communicate(t, cluster, local):
        """Alg. 3 from line 2 on, and Alg. 4."""
        grown, grown_global = local.synced + local.up, cluster.shared + local.up
        if local.stopped or local.k == max_uploads or not ripe(t, grown, local.synced, upload):
            return
        if not (positive(grown.sums) and positive(grown_global.sums)):
            local.stopped = True
            trace.failures.append(t)
            return
        trace.uploads[t] += 1
        cluster.shared = grown_global  # line 4
        for other in cluster.members:  # lines 5-7
            if other is not local:
                other.down = other.down + local.up
        local.synced, local.k = grown, local.k + 1  # lines 8-10
        local.up = fresh(local)

        for other in cluster.members:
            behind = cluster.shared.count > other.synced.count
            assert behind == (other.down.count > 0)
            if behind and ripe(t, cluster.shared, other.synced, download):
                other.synced, other.down = other.synced + other.down, nothing()
                trace.downloads[t] += 1

    def note(row):
        trace.labels[row] = labels_of([local.users for c in clusters for local in c.members], n_users)
        trace.groups[row] = labels_of([c.users for c in clusters], n_users)

    for t, i in enumerate(map(int, users)):
        if phase_at(t) is not None:
            begin(t, phase_at(t))
        note(t)
        cluster, local = next((c, local) for c in clusters for local in c.members if i in local.users)
        assert local.server == i % n_servers
        a, trace.margins[t] = choose(contexts[t], local.synced.sums, width(cluster, local))
        trace.arms[t] = a
        x, y = contexts[t, a].astype(float), float(rewards[t, a])
        y = min(max(y, 0.0), 1.0) if private else y
        profile.update(i, x, y)
        local.up = local.up + Shared(np.outer(x, np.append(x, y)), 1, 0)  # Alg. 3 line 1
        communicate(t, cluster, local)
    note(len(users))
    trace.final = {
        "users": profile.sums,
        "counts": profile.counts,
        "local": {(local.server, local.users): local for c in clusters for local in c.members},
        "global": {c.users: c.shared for c in clusters},
    }
    return trace
