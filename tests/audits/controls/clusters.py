"""Trees of local clusters whose noise is wrong, or missing, or not drawn for what it is added to."""

import jax
import jax.numpy as jnp
from _damage import changed, damaged_clusters, override, resized, turned

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.phase_trees import Replanted
from fedbandit_jax.audits.clusters import clusters, uploads


@fb.pytree
class Flawed(Replanted):
    """Trees with these flaws, each of which is a number, so that all share a program."""

    replayed: bool = False  # every phase plants the tree of the first: differences of two releases have no noise
    shared: bool = False  # all local clusters have the same tree: what another one shows takes the noise off
    bare: float = 0.0  # how often an upload has no noise; the first release of a phase has noise
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


def flawed(**flaws):
    return lambda noise: turned(Flawed, noise, **flaws)


TREES = {  # change of the trees, and options
    "tree of the first phase": (flawed(replayed=True), {}),
    "one tree for all clusters": (flawed(shared=True), {}),
    "bare uploads": (flawed(bare=1.0), {}),
    "uploads bare in half of all cases": (flawed(bare=0.5), {}),  # more often than delta = 0.1 allows
    "unclipped rewards of clusters": (flawed(unclipped=True), {}),
    "one phase's noise": (  # of two leaves, and one in each later phase: composition over phases is forgotten
        lambda noise: resized(noise, std=(1 / 3) ** 0.5), dict(horizon=14, max_uploads=1),
    ),
    "clusters without noise on x y": (lambda noise: resized(noise, std=[1, 1, 0]), {}),
    "clusters without noise on x x'": (lambda noise: resized(noise, std=[0, 0, 1]), {}),  # of x and -x it is the same
}  # fmt: skip


def broken_trees():
    return [damaged_clusters(name, change, **options) for name, (change, options) in TREES.items()]


def broken_determinants():
    """FCLUB as printed: when a local cluster uploads depends on the determinant of raw sums."""
    return uploads(fb.algos.FCLUB(fb.privacy.Budget(1.0, 0.1)), name="uploads by raw determinants")


def broken_recommendations():
    """All releases are right; another server's user is recommended what any user's raw answers say."""
    case = clusters(fb.algos.homo_dc(fb.privacy.Budget(1.0, 0.1), trigger="count"))

    def by_raw_sums(honest, self, key, t, state, user, contexts):
        return contexts @ state.users.sums[..., -1].sum(0)

    return changed(case, "recommends by raw sums", lambda bound: override(bound, index=by_raw_sums))
