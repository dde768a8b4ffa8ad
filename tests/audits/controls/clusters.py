"""Trees of local clusters whose noise is wrong, or missing, or not drawn for what it is added to."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from _damage import changed, damaged_clusters, turned

import fedbandit_jax as fb
from fedbandit_jax.audits import clusters, uploads
from fedbandit_jax.privacy.phase_trees import Replanted


@fb.pytree
class Flawed(Replanted):
    """Trees with these flaws, each of which is a number, so that all share a program."""

    replayed: bool = False  # every phase plants the tree of the first
    shared: bool = False  # all local clusters have the same tree
    bare: float = 0.0  # how often an upload has no noise; what is shown when phases begin has
    unclipped: bool = False  # features and rewards enter as they come

    def _tree(self, phase, slot):
        return jnp.where(self.replayed, 1, phase), jnp.where(self.shared, 0, slot)

    def first(self, key, phase, slot, dim):
        return Replanted.first(self, key, *self._tree(phase, slot), dim)

    def change(self, key, phase, slot, k, dim):
        there = jax.random.bernoulli(jax.random.fold_in(jax.random.fold_in(key, k), 3), 1 - self.bare)
        return jnp.where(there, Replanted.change(self, key, *self._tree(phase, slot), k, dim), 0)

    def admit(self, x, y):
        bounded = Replanted.admit(self, x, y)
        return jax.tree.map(lambda raw, fine: jnp.where(self.unclipped, raw, fine), (x, y), bounded)


def flawed(name, **flaws):
    """Federated clusters whose trees have these flaws."""
    return damaged_clusters(name, lambda noise: turned(Flawed, noise, **flaws))


def broken_replayed_tree():
    """A phase's tree reused in the next one: the difference of two releases has no noise."""
    return flawed("tree of the first phase", replayed=True)


def broken_tree_of_all_clusters():
    """One draw for all local clusters: what another one shows takes the noise off."""
    return flawed("one tree for all clusters", shared=True)


def broken_uploads():
    """Noise at the beginning of phases only."""
    return flawed("bare uploads", bare=1.0)


def broken_sometimes():
    """Uploads without noise, more often than delta = 0.1 allows."""
    return flawed("uploads bare in half of all cases", bare=0.5)


def broken_clipping():
    """Nobody bounds what a user adds."""
    return flawed("unclipped rewards of clusters", unclipped=True)


def broken_one_tree():
    """Noise calibrated for the largest tree, composition over phases forgotten."""

    def change(noise):
        return replace(noise, std=noise.std * np.float32((1 / 3) ** 0.5))  # two leaves, and one in each later phase

    return damaged_clusters("one phase's noise", change, horizon=14, max_uploads=1)


def broken_cluster_variance():
    """sqrt(sigma) for sigma."""
    change = lambda noise: replace(noise, std=np.sqrt(noise.std) * np.ones(3, np.float32))  # noqa: E731
    return damaged_clusters("std for variance, clusters", change)


def weighted(*weights):
    """A change of the noise in the columns of [x x' | x y]."""
    return lambda noise: replace(noise, std=noise.std * np.float32(weights))


def broken_cluster_bias():
    """Noise on the features, and none on the rewards."""
    return damaged_clusters("clusters without noise on x y", weighted(1, 1, 0))


def broken_cluster_gram():
    """Noise on the rewards, and none on the features: x and -x have the same x x'."""
    return damaged_clusters("clusters without noise on x x'", weighted(0, 0, 1))


def broken_determinants():
    """FCLUB as printed: when a local cluster uploads depends on the determinant of raw sums."""
    return uploads(fb.algos.FCLUB(fb.privacy.Budget(1.0, 0.1)), name="uploads by raw determinants")


@fb.pytree
class RawRecommendations(fb.ArrivalAlgorithm):
    """Recommends to the users of all servers by what any user answered."""

    algo: fb.ArrivalAlgorithm

    def init(self, key, spec):
        return self.algo.init(key, spec), jnp.zeros(spec.dim)

    def begin(self, key, t, state):
        inner, report = self.algo.begin(key, t, state[0])
        return (inner, state[1]), report

    def index(self, key, t, state, user, contexts):
        return contexts @ state[1]

    def serve(self, key, t, state, user, x, y):
        inner, report = self.algo.serve(key, t, state[0], user, x, y)
        return (inner, state[1] + x * jnp.clip(y, 0, 1)), report

    def view(self, state):
        return self.algo.view(state[0])


def broken_recommendations():
    """All releases are right; what another server's user is recommended is not made of them."""
    algo = fb.algos.homo_dc(fb.privacy.Budget(1.0, 0.1), trigger="count")
    return changed(clusters(algo), "recommends by raw sums", lambda bound: RawRecommendations(algo=bound))
