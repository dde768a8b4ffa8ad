"""The baselines of the clustering benchmark: LinUCB per user, CLUB, SCLUB and FCLUB as one writes them for a paper.

They are written in NumPy and float64, and serve one user a round. Clusters are sets, graphs are sets of neighbours, and
inverses follow Sherman and Morrison where statistics grow by one round. All constants (widths, thresholds, noise) are
those of a bound algorithm of the library. Users, items and answers have the law of `fb.envs.clustered`, and come from a
generator of their own.

Letters: n users, L servers, m clusters, K arms, d features, t rounds so far; theta an estimate, rho a bound on noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

UPLOADED = 3  # multiple of rho I that every upload adds: Algorithm 2, line 15 of Liu et al. (2022)
Links = dict[int, set[int]]  # node -> its neighbours in a graph


def play(env: Any, bound: Any, *, horizon: int, seed: Sequence[int]) -> float:
    """Plays the algorithm that `bound` is, and returns its regret after `horizon` rounds."""
    rng = np.random.default_rng(seed)
    n, k, d = env.spec.n_users, env.spec.n_arms, env.spec.dim
    while True:
        centres = vectors(rng, env.n_clusters, d)
        if (np.linalg.norm(centres[:, None] - centres, axis=-1) + 10 * np.eye(env.n_clusters)).min() >= env.gap:
            break
    thetas = centres[rng.permutation(np.arange(n) % env.n_clusters)]
    learner, regret = LEARNERS[type(bound).__name__](env.spec, bound, rng), 0.0
    for t in range(horizon):
        user, items = int(rng.integers(n)), vectors(rng, k, d)
        learner.begin(t)
        arm = learner.recommend(user, items)
        means = items @ thetas[user]
        learner.update(user, items[arm], float(rng.random() < means[arm]))
        regret += means.max() - means[arm]
    return regret


def vectors(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    """Draws n vectors (u, 1) / sqrt 2 with u uniform on the unit sphere of R^(d-1), (n, d)."""
    u = rng.standard_normal((n, dim - 1))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    return np.concatenate([u, np.ones((n, 1))], axis=1) / np.sqrt(2)


def f(count: Any) -> Any:
    """Returns F(T) = sqrt((1 + ln(1 + T)) / (1 + T)) for T = `count` rounds."""
    return np.sqrt((1 + np.log1p(count)) / (1 + count))


def starts(t: int) -> bool:
    """Returns whether a phase begins before round t, i.e. whether t is 0, 2, 6, 14, ..."""
    return (t + 2) & (t + 1) == 0


def components(links: Links, nodes: Iterable[int]) -> list[list[int]]:
    """Returns the connected components of the graph on these nodes, each of them sorted."""
    rest, found = set(nodes), []
    for node in sorted(rest):
        if node in rest:
            rest.discard(node)
            stack, component = [node], [node]
            while stack and rest:
                new = links[stack.pop()] & rest
                rest -= new
                stack += new
                component += new
            found.append(sorted(component))
    return found


def complete(n_users: int, n_servers: int) -> Links:
    """Returns the graph in which all users of a server are linked; user i is at server i mod L."""
    return {i: set(range(i % n_servers, n_users, n_servers)) - {i} for i in range(n_users)}


class Models:
    """Ridge estimates, one for each user, or one for each cluster in the slot of its smallest user."""

    def __init__(self, n: int, dim: int, ridge: float):
        self.ridge = ridge * np.eye(dim)
        self.sums, self.counts = np.zeros((n, dim, dim + 1)), np.zeros(n, int)
        self.inverse, self.theta = np.repeat(np.eye(dim)[None] / ridge, n, axis=0), np.zeros((n, dim))

    def learn(self, i: int, x: np.ndarray, y: float) -> None:
        image = self.inverse[i] @ x
        scaled = image / (1 + x @ image)
        self.theta[i] += scaled * (y - x @ self.theta[i])
        self.inverse[i] -= np.outer(image, scaled)
        self.sums[i] += np.outer(x, np.append(x, y))
        self.counts[i] += 1

    def fit(self, i: int, sums: np.ndarray, count: int) -> None:
        self.sums[i], self.counts[i] = sums, count
        self.inverse[i] = np.linalg.inv(self.ridge + sums[:, :-1])
        self.theta[i] = self.inverse[i] @ sums[:, -1]


class LinUCB:
    """LinUCB with a model for every user; subclasses serve a user by the model of her cluster."""

    def __init__(self, spec: Any, bound: Any, rng: np.random.Generator):
        self.n, self.n_servers, self.dim = spec.n_users, spec.n_servers, spec.dim
        self.bound, self.exchange = bound, getattr(bound, "exchange", bound)  # of FCLUB
        self.ridge = float(self.exchange.regularization)
        self.scale, self.slope, self.log_term, self.theta_norm, _ = map(float, bound.width)
        self.users = self.models = Models(self.n, self.dim, self.ridge)
        self.label = np.arange(self.n)

    def begin(self, t: int) -> None:
        pass

    def recommend(self, i: int, items: np.ndarray) -> int:
        slot = self.label[i]
        beta = self.width(self.models.counts[slot], self.ridge, self.ridge, 0.0)
        return self.best(items, self.models.inverse[slot], self.models.theta[slot], beta)

    def update(self, i: int, x: np.ndarray, y: float) -> None:
        self.users.learn(i, x, y)

    def width(self, count: Any, low: float, high: float, kappa: float) -> float:
        inside = self.log_term + self.dim * math.log(high / low + count / (self.dim * low))
        return self.scale * (self.slope * math.sqrt(inside) + self.theta_norm * math.sqrt(high) + kappa)

    def best(self, items: np.ndarray, inverse: np.ndarray, theta: np.ndarray, beta: float) -> int:
        return int(np.argmax(items @ theta + beta * np.sqrt(((items @ inverse) * items).sum(1))))

    def found(self, members: list[int]) -> int:
        """Makes a cluster of these users, who are sorted, and returns its slot."""
        slot = members[0]
        self.models.fit(slot, self.users.sums[members].sum(0), int(self.users.counts[members].sum()))
        self.label[members] = slot
        return slot


class CLUB(LinUCB):
    """CLUB, which cuts links between users of a server; the components of what is left are the clusters."""

    def __init__(self, spec: Any, bound: Any, rng: np.random.Generator):
        super().__init__(spec, bound, rng)
        self.models = Models(self.n, self.dim, self.ridge)
        self.links, self.label = complete(self.n, self.n_servers), self.label % self.n_servers
        self.members = {s: list(range(s, self.n, self.n_servers)) for s in range(self.n_servers)}

    def update(self, i: int, x: np.ndarray, y: float) -> None:
        self.users.learn(i, x, y)
        slot = int(self.label[i])
        self.models.learn(slot, x, y)
        near = np.array(list(self.links[i]), int)
        theta, spread = self.users.theta, f(self.users.counts[near]) + f(self.users.counts[i])
        far = near[np.linalg.norm(theta[near] - theta[i], axis=1) > float(self.bound.alpha_edge) * spread]
        for j in far.tolist():
            self.links[i].remove(j)
            self.links[j].remove(i)
        pieces = components(self.links, self.members[slot]) if len(far) else []
        if len(pieces) > 1:
            del self.members[slot]
            self.members |= {self.found(piece): piece for piece in pieces}


class SCLUB(LinUCB):
    """SCLUB, whose sets of users of a server split and merge."""

    def __init__(self, spec: Any, bound: Any, rng: np.random.Generator):
        super().__init__(spec, bound, rng)
        self.models = Models(self.n, self.dim, self.ridge)
        self.alpha_theta, self.alpha_p = float(bound.alpha_theta), float(bound.alpha_p)
        self.label = self.label % self.n_servers
        self.sets = [{s: list(range(s, self.n, self.n_servers))} for s in range(self.n_servers)]
        self.clock, self.checked = [0] * self.n_servers, np.zeros(self.n, bool)
        self.noted_theta, self.noted_count = np.zeros((self.n, self.dim)), np.zeros(self.n)

    def update(self, i: int, x: np.ndarray, y: float) -> None:
        server, slot = i % self.n_servers, int(self.label[i])
        sets, users = self.sets[server], self.users
        if starts(self.clock[server]):
            for members in sets.values():
                self.note(members, self.models, int(self.label[members[0]]))
            self.checked[server :: self.n_servers] = False
        users.learn(i, x, y)
        self.models.learn(slot, x, y)
        self.clock[server] += 1
        if len(sets[slot]) > 1 and self.leaves(i, sets[slot], self.clock[server]):
            others = [j for j in sets.pop(slot) if j != i]
            sets |= {self.found(members): members for members in (others, [i])}
            self.note([i], users, i)
        self.checked[i] = True
        while (other := self.alike(i, sets, self.clock[server])) is not None:
            both = sorted(sets.pop(int(self.label[i])) + sets.pop(other))
            sets[self.found(both)] = both
            self.note(both, self.models, both[0])

    def note(self, members: list[int], models: Models, slot: int) -> None:
        self.noted_theta[members], self.noted_count[members] = models.theta[slot], models.counts[slot]

    def leaves(self, i: int, members: list[int], t: int) -> bool:
        counts, spread = self.users.counts, f(self.users.counts[i]) + f(self.noted_count[i])
        far = np.linalg.norm(self.users.theta[i] - self.noted_theta[i]) > self.alpha_theta * spread
        return bool(far or (np.abs(counts[members] - counts[i]) / t > 2 * self.alpha_p * f(t)).any())

    def alike(self, i: int, sets: dict[int, list[int]], t: int) -> int | None:
        """Returns the first cluster to merge with that of user i, or None."""
        slot, models = int(self.label[i]), self.models
        if not self.checked[sets[slot]].all():
            return None
        slots = sorted(sets)
        rate = models.counts[slots] / [len(sets[s]) for s in slots] / t
        own = models.counts[slot] / len(sets[slot]) / t
        bound = self.alpha_theta / 2 * (f(models.counts[slots]) + f(models.counts[slot]))
        near = np.linalg.norm(models.theta[slots] - models.theta[slot], axis=1) < bound
        near &= np.abs(rate - own) < self.alpha_p * f(t)
        return next((s for s, ok in zip(slots, near) if ok and s != slot and self.checked[sets[s]].all()), None)


class Statistics:
    """Regularised sums of a cluster; what follows from them is computed once, when it is asked for."""

    def __init__(self, gram: np.ndarray, bias: np.ndarray, count: float, shift: float):
        self.gram, self.bias, self.count, self.shift = gram, bias, count, shift

    def plus(self, sums: np.ndarray, count: float, shift: float) -> Statistics:
        return Statistics(self.gram + sums[:, :-1], self.bias + sums[:, -1], self.count + count, self.shift + shift)

    @cached_property
    def inverse(self) -> np.ndarray:
        return np.linalg.inv(self.gram)

    @cached_property
    def theta(self) -> np.ndarray:
        return self.inverse @ self.bias

    @cached_property
    def log_det(self) -> float:
        sign, value = np.linalg.slogdet(self.gram)
        if sign <= 0:
            raise FloatingPointError("not positive definite: the noise is too large for its shift")
        return float(value)


class Tree:
    """Tree noise of a growing prefix sum: one node for every bit that is 1 in its length."""

    def __init__(self, rng: np.random.Generator, std: float, dim: int):
        self.rng, self.std, self.dim = rng, std, dim
        self.leaves, self.nodes, self.total = 0, {}, np.zeros((dim, dim + 1))

    def grow(self) -> np.ndarray:
        """Adds a leaf, and returns by how much the noise of the prefix sum changes, (d, d + 1)."""
        if self.std == 0:
            return np.zeros((self.dim, self.dim + 1))
        self.leaves += 1
        level, before = (self.leaves & -self.leaves).bit_length() - 1, self.total
        self.nodes = {at: node for at, node in self.nodes.items() if at > level}
        g = self.std * self.rng.standard_normal((self.dim, self.dim + 1))
        g[:, :-1] = (g[:, :-1] + g[:, :-1].T) / math.sqrt(2)
        self.nodes[level] = g
        self.total = np.sum(list(self.nodes.values()), axis=0)
        return self.total - before


@dataclass
class Group:
    """A global cluster: its local clusters, and the statistics that they share."""

    members: list[Local]
    shared: Statistics


@dataclass(eq=False)
class Local:
    """A local cluster, i.e. some users of one server."""

    members: list[int]  # users
    released: Statistics  # what it released when the phase began
    tree: Tree  # its noise
    group: Group = field(init=False)  # its global cluster
    known: Statistics = field(init=False)  # what it has downloaded, and recommends by
    buffer: np.ndarray = field(init=False)  # (d, d + 1) what its next upload adds
    count: int = 0  # rounds in the buffer


class FCLUB(LinUCB):
    """FCLUB, whose local clusters of a server are merged into global ones, with which they exchange statistics."""

    def __init__(self, spec: Any, bound: Any, rng: np.random.Generator):
        super().__init__(spec, bound, rng)
        noise, self.rho = self.exchange.noise, float(self.exchange.rho)
        self.rng, self.std = rng, 0.0 if noise is None else float(noise.std)
        self.shift = UPLOADED if self.exchange.shifts else 0
        self.links, self.local = complete(self.n, self.n_servers), {}
        self.partition: Any = None

    def begin(self, t: int) -> None:
        if not starts(t):
            return
        users, d = self.users, self.dim
        theta = np.linalg.solve(users.ridge + users.sums[..., :-1], users.sums[..., -1:])[..., 0]
        spread = f(users.counts)
        for i, linked in self.links.items():
            near = np.array(list(linked), int)
            bound = float(self.bound.alpha_1) * (spread[near] + spread[i])
            for j in near[np.linalg.norm(theta[near] - theta[i], axis=1) > bound].tolist():
                linked.remove(j)
                self.links[j].remove(i)
        new = []
        for members in components(self.links, range(self.n)):
            tree = Tree(self.rng, self.std, d)
            sums = users.sums[members].sum(0) + tree.grow() + 2 * self.rho * np.eye(d, d + 1)
            nothing = Statistics(users.ridge, np.zeros(d), 0, 0)
            new.append(Local(members, nothing.plus(sums, users.counts[members].sum(), 2), tree))
        groups = self.merge(new)
        partition = [local.members for local in new], groups
        if partition != self.partition:
            self.partition = partition
            self.renew([Group([new[a] for a in group], new[group[0]].released) for group in groups])

    def merge(self, new: list[Local]) -> list[list[int]]:
        """Returns groups of local clusters, by index, that are alike and on different servers."""
        theta, spread = np.array([a.released.theta for a in new]), f(np.array([a.released.count for a in new]))
        server, links = np.array([a.members[0] % self.n_servers for a in new]), {}
        for a in range(len(new)):
            near = np.linalg.norm(theta - theta[a], axis=1) < float(self.bound.alpha_2) * (spread + spread[a])
            links[a] = set(np.flatnonzero(near & (server != server[a])).tolist())
        return components(links, range(len(new)))

    def renew(self, groups: list[Group]) -> None:
        for group in groups:
            for local in group.members[1:]:
                more = local.released
                sums = np.column_stack([more.gram - self.users.ridge, more.bias])
                group.shared = group.shared.plus(sums, more.count, more.shift)
            for local in group.members:
                local.group, local.known = group, group.shared
                self.empty(local)
                self.local |= dict.fromkeys(local.members, local)

    def empty(self, local: Local) -> None:
        """Empties the buffer of a local cluster, except for the noise and shift that its next upload adds."""
        local.buffer = local.tree.grow() + self.shift * self.rho * np.eye(self.dim, self.dim + 1)
        local.count = 0

    def recommend(self, i: int, items: np.ndarray) -> int:
        local = self.local[i]
        known, sharing = local.known, len(local.group.members)
        low, high = (self.ridge + self.rho * (known.shift + sign * sharing) for sign in (-1, 1))
        beta = self.width(known.count, low, high, sharing * float(self.bound.vector) / math.sqrt(low))
        return self.best(items, known.inverse, known.theta, beta)

    def update(self, i: int, x: np.ndarray, y: float) -> None:
        row, local = np.outer(x, np.append(x, y)), self.local[i]
        self.users.sums[i] += row
        self.users.counts[i] += 1
        local.buffer += row
        local.count += 1
        more, group = (local.buffer, local.count, self.shift), local.group
        grown = local.known.plus(*more)
        if not self.ripe(grown, local.known, float(self.exchange.upload)):
            return
        group.shared, local.known = group.shared.plus(*more), grown
        self.empty(local)
        for other in group.members:
            behind = group.shared.count > other.known.count
            if behind and self.ripe(group.shared, other.known, float(self.exchange.download)):
                other.known = group.shared

    def ripe(self, new: Statistics, old: Statistics, threshold: float) -> bool:
        return threshold == 0 or new.log_det - old.log_det >= threshold


LEARNERS = {"BoundUserLinUCB": LinUCB, "BoundCLUB": CLUB, "BoundSCLUB": SCLUB, "BoundFCLUB": FCLUB}
