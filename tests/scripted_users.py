"""Scripted users for clustering algorithms, and how a bound algorithm of the library plays them round by round."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from helpers import within_ball

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters import phase_trees
from fedbandit_jax.core import lots, random


class Draws(NamedTuple):
    """Who comes, what is offered, what every arm would pay."""

    users: np.ndarray  # (T,)
    contexts: np.ndarray  # (T, K, d)
    rewards: np.ndarray  # (T, K)


def draws(seed, n_users, *, horizon=300, n_arms=4, dim=3, n_clusters=2, noise=0.1):
    """Users of some clusters, some of them rare, feature vectors long and short, rewards also outside [0, 1]."""
    rng = np.random.default_rng(seed)
    users = rng.choice(n_users, horizon, p=rng.dirichlet(np.full(n_users, 5.0))).astype(np.int32)
    contexts = within_ball(rng, (horizon, n_arms, dim), 0.3)
    theta = rng.standard_normal((n_clusters, dim))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    means = 0.5 + 0.5 * (contexts @ theta[users // 2 % n_clusters, :, None])[..., 0]  # 0, 1: one cluster, two servers
    return Draws(users, *(x.astype(np.float32) for x in (contexts, means + noise * rng.standard_normal(means.shape))))


def population(n_users, n_servers, *, n_arms=4, dim=3):
    """A spec of users, for draws."""
    return fb.Spec(n_agents=1, n_arms=n_arms, dim=dim, max_norm=1.0, n_users=n_users, n_servers=n_servers)


class Played(NamedTuple):
    """As `Trace`; states are the algorithm's own."""

    arms: np.ndarray  # (T,)
    labels: np.ndarray  # (T + 1, n)
    groups: np.ndarray  # (T + 1, n)
    uploads: np.ndarray  # (T,)
    downloads: np.ndarray  # (T,)
    status: np.ndarray  # (T,)
    state: Any


def play(bound, key, draws, spec, choices=None):
    """A bound algorithm on given draws, as `Sequential` plays it; without `choices` the first of best arms."""
    arms, found, counts, status, (state, last) = scan(bound, key, *draws, choices, spec=spec)
    labels, groups = (np.concatenate([rows, row[None]]) for rows, row in zip(found, last))
    sent = (np.asarray(counts.get(name, np.zeros(len(arms), int))) for name in ("uploads", "downloads"))
    return Played(np.asarray(arms), labels, groups, *sent, np.asarray(status), jax.tree.map(np.asarray, state))


@functools.partial(jax.jit, static_argnames=("spec", "told"))
def scan(bound, key, users, contexts, rewards, choices=None, *, spec, told=lambda state, report: report.counts):
    """Arms, clusters, what is `told` and status of all rounds, and (state, clusters) at the end."""

    def one(state, row):
        t, user, x, y = row
        state, before = bound.begin(key, t, state)
        found = clusters(bound, state)
        index = bound.index(key, t, state, user, x)
        arm = jnp.argmax(index) if choices is None else lots.best(random.fold_in(choices, t), index[:, None])[0]
        state, after = bound.serve(key, t, state, user, x[arm], y[arm])
        counts = {name: count + before.counts.get(name, 0) for name, count in after.counts.items()}
        report = after._replace(counts=counts)
        return state, (arm, found, told(state, report), jnp.asarray(before.status) | after.status)

    rows = jnp.arange(len(users), dtype=jnp.int32), users, contexts, rewards
    state, results = jax.lax.scan(one, bound.init(key, spec), rows)
    return *results, (state, clusters(bound, state))


def clusters(bound, state):
    """Of users on servers, and over all servers."""
    over_all = bound.partition(state)
    return bound.seats.of_users(state.clusters.local) if hasattr(state, "clusters") else over_all, over_all


def noise_of(bound, key, dim):
    """[H_k | h_k] of the trees of a bound private FCLUB, for the oracle."""
    return lambda s, user, k: np.asarray(_noise(bound, key, s, bound.seats.seat(user), k, dim), float)


@functools.partial(jax.jit, static_argnames="dim")
def _noise(bound, key, s, seat, k, dim):
    return prefix(bound.exchange.noise, key, s, seat, k, dim)


def prefix(noise, key, phase, slot, k, dim):
    """H_k, (d, d + 1), of the tree that a local cluster plants in a phase: the nodes at the one-bits of k + 1."""
    leaves, tree = k + 1, phase_trees._tree(key, phase, slot)

    def add(level, total):
        node = phase_trees._node(tree, level, leaves >> level, dim)
        return total + jnp.where((leaves >> level) & 1 == 1, node, 0)

    return noise.std * jax.lax.fori_loop(0, 32 - jax.lax.clz(leaves), add, jnp.zeros((dim, dim + 1)))


def canonical(labels):
    """Every label the smallest user who has it."""
    return np.argmax(labels[..., None] == labels[..., None, :], axis=-1)
