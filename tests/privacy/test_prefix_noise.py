"""Noise of prefixes: it telescopes, and has the law of the binary tree whose nodes it says it draws."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from fedbandit_jax.privacy import RELEASES, prefix_noise
from fedbandit_jax.privacy.statistic import pack
from fedbandit_jax.privacy.trust.protocols import matrix_weights

ALPHA = 1e-4  # a right law must have a p-value above this, a wrong one below 1e-6
D, LEAVES, KEYS = 2, 16, 2000

prefix = jax.jit(prefix_noise.prefix, static_argnums=2)
change = jax.jit(prefix_noise.change, static_argnums=2)


def nodes_of(leaves):
    """The nodes of a prefix by their last leaf: one for every one-bit, from the highest down."""
    ends, total = [], 0
    for level in reversed(range(leaves.bit_length())):
        if leaves >> level & 1:
            total += 1 << level
            ends.append(total)
    return ends


def mixing():
    """Prefixes (rows) from nodes (columns), which are as many: every leaf ends one node that is ever used."""
    mix = np.zeros((LEAVES, LEAVES))
    for k in range(LEAVES):
        mix[k, np.array(nodes_of(k + 1)) - 1] = 1
    return mix


def chi_square(z):
    law = stats.chi2(z.size)
    return 2 * min(law.sf((z**2).sum()), law.cdf((z**2).sum()))


def test_changes_telescope(key):
    ks = np.arange(201)
    prefixes, changes = (
        np.asarray(jax.jit(lambda f=f: jax.lax.map(lambda k: f(key, k, D), ks))())
        for f in (prefix_noise.prefix, prefix_noise.change)
    )
    np.testing.assert_allclose(np.diff(prefixes, axis=0), changes[:-1], atol=1e-5)
    np.testing.assert_array_equal(prefixes[0], prefix_noise.first(key, D))
    np.testing.assert_array_equal(prefixes[..., :D], prefixes[..., :D].transpose(0, 2, 1))
    assert len(np.unique(prefixes[:, 0, 0])) == 201


def test_side_by_side(key):
    """Lanes of different k, whose loops are of different lengths, equal each alone."""
    keys, ks = jax.random.split(key, 6), jnp.array([0, 1, 6, 7, 30, 127])
    for f, alone in ((prefix_noise.prefix, prefix), (prefix_noise.change, change)):
        lanes = jax.jit(jax.vmap(lambda key, k, f=f: f(key, k, D)))(keys, ks)
        for one, own, k in zip(lanes, keys, ks):
            np.testing.assert_allclose(one, alone(own, k, D), atol=1e-6)


def test_mixing_is_the_tree():
    mix, tree = mixing(), RELEASES["tree"](LEAVES)
    np.testing.assert_array_equal(mix.sum(1), tree.prefix_variance())
    np.testing.assert_array_equal(mix @ tree.encoder(), np.tri(LEAVES))  # and each node covers what the tree's does
    shared = mix @ mix.T
    for k in range(LEAVES):
        for j in range(k):  # two prefixes share the nodes above the highest bit in which they differ
            differ = ((k + 1) ^ (j + 1)).bit_length()
            assert shared[k, j] == ((k + 1) >> differ).bit_count()


def test_law(key):
    """Undoing the mixing leaves independent N(0, 1) for every node, entry and key; a scale 10 % off is refuted."""
    keys = jax.random.split(key, KEYS)
    draws = jax.jit(lambda: jax.lax.map(lambda k: jax.vmap(lambda key: prefix_noise.prefix(key, k, D))(keys),
                                        jnp.arange(LEAVES)))()  # fmt: skip
    packed = np.asarray(pack(draws), float)  # (k, key, entry)
    weights = matrix_weights(packed.shape[-1])
    np.testing.assert_allclose(weights[:3], np.sqrt(2))  # on the diagonal; off it once more divided by sqrt 2
    z = np.linalg.solve(mixing(), (packed / weights).reshape(LEAVES, -1)).reshape(packed.shape)
    assert chi_square(z) > ALPHA
    for factor in (0.9, 1.1):
        assert chi_square(z / factor) < 1e-6
    assert stats.kstest(z.ravel(), stats.norm.cdf).pvalue > ALPHA
    columns = z.transpose(1, 0, 2).reshape(KEYS, -1)  # nodes and entries do not depend on each other
    fisher = np.arctanh(np.corrcoef(columns.T)[np.triu_indices(columns.shape[1], 1)]) * np.sqrt(KEYS - 3)
    assert chi_square(fisher) > ALPHA
    draws = np.asarray(draws)
    for k, row in enumerate(draws):  # by hand: the matrix's own entries
        law = np.sqrt((k + 1).bit_count()) * np.array([[np.sqrt(2), 1, 1], [1, np.sqrt(2), 1]])
        np.testing.assert_allclose(row.std(0), law, rtol=0.1)
    shared = mixing() @ mixing().T
    bias = draws[..., 0, D]
    np.testing.assert_allclose(np.cov(bias), shared, atol=0.5)
    wrong = (packed[:, :, -1] / 1.0).T  # taken for independent of each other, prefixes are refuted
    fisher = np.arctanh(np.corrcoef(wrong.T)[np.triu_indices(LEAVES, 1)]) * np.sqrt(KEYS - 3)
    assert chi_square(fisher) < 1e-6
