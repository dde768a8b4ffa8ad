"""Private FCLUB: the noise in what it recommends by has the law that was promised, and is all that its trees have."""

import functools
import math

import jax
import numpy as np
import pytest
from helpers import variance_test
from oracles.clustering import estimate
from scripted_users import canonical, draws, noise_of, play, population, scan
from test_clustering import ALIKE, FCLUB, LARGE, OURS, T, traced

from fedbandit_jax.privacy.packing import matrix_weights, pack

ALPHA, COMPARED = 1e-4, 40  # rounds


def test_rho_and_vector_bound_the_noise(key):
    """||N|| <= rho and ||h|| <= v for every prefix of a tree, as S must stay positive definite; each has its own."""
    bound = FCLUB(1.0, **OURS, **ALIKE).bind(population(*LARGE), T)
    noise = noise_of(bound, key, 3)
    prefixes = np.stack([noise(s, user, k) for s in (1, 4) for user in range(3) for k in range(0, 60, 6)])
    norms = np.abs(np.linalg.eigvalsh(prefixes[..., :3])).max(-1)
    assert bound.rho / 10 < norms.max() < bound.rho
    vectors = np.linalg.norm(prefixes[..., 3], axis=-1)
    assert bound.vector / 10 < vectors.max() < bound.vector
    assert len(np.unique(prefixes[:, 0, 0])) == len(prefixes)


@pytest.mark.slow
def test_what_partitions_and_uploads_tell(key):
    """With alpha_1 = inf and counts, nothing about rewards: who is in a local cluster, and who uploads when."""
    spec, given = population(*LARGE), draws(0, LARGE[0])
    bound = FCLUB(5.0, **OURS, **ALIKE).bind(spec, T)
    other = given._replace(rewards=given.rewards[::-1].copy(), contexts=given.contexts[::-1].copy())
    one, two = (play(bound, key, data, spec) for data in (given, other))
    for name in ("labels", "uploads"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert not np.array_equal(one.arms, two.arms)
    np.testing.assert_array_equal(canonical(one.labels)[-1], np.arange(8) % 3)


@functools.partial(jax.jit, static_argnames="spec")
def _sums(bound, keys, given, *, spec):
    def one(key):
        *_, (state, _) = scan(bound, key, *given, spec=spec)
        return state.local, state.uploads, state.status

    return jax.lax.map(one, keys)


@pytest.mark.slow
@pytest.mark.parametrize("download", [1, 3])
def test_noise_of_recommendations(key, download):
    """One arm, so that data are the same for all keys: sums minus data have the nodes of one prefix of each server."""
    n_keys, size = 300, (9, 2)
    given = draws(0, size[0], horizon=COMPARED, n_arms=1)
    given, spec = given._replace(rewards=given.rewards.clip(0, 1)), population(*size, n_arms=1)
    algo = FCLUB(1.0, trigger="count", shift="once", upload=1.2, download=download, **ALIKE)
    bound = algo.bind(spec, COMPARED)
    held, uploads, status = _sums(bound, jax.random.split(key, n_keys), given, spec=spec)
    assert status.max() == 0
    ones = dict(private=True, noise=lambda s, user, k: np.eye(3, 4) * (k + 1).bit_count())  # a node counts 1
    quiet, counted = (traced(algo, bound, given, size, **noise) for noise in ({}, ones))
    nodes, (shared,) = [], quiet.final["global"].values()
    for who, cluster in quiet.final["local"].items():
        slot, data = bound.seats.seat(who[0]), cluster.synced.sums
        assert (uploads[:, slot] == cluster.k).all()
        nodes.append(round((counted.final["local"][who].synced.sums - data)[0, 0]))
        packed = np.asarray(pack(held.sums[:, slot] - data))
        z = packed / matrix_weights(packed.shape[-1]) / (float(bound.noise.std) * math.sqrt(nodes[-1]))
        assert variance_test(z) > ALPHA
        assert all(variance_test(z / factor) < 1e-6 for factor in (0.9, 1.1))
        # entries do not depend on each other: Fisher's z of all their correlations
        fisher = np.arctanh(np.corrcoef(z.T)[np.triu_indices(z.shape[1], 1)]) * math.sqrt(n_keys - 3)  # pyright: ignore[reportIndexIssue]
        assert variance_test(fisher) > ALPHA
        ridge = (1 + bound.rho * held.shift[:, slot, None, None]) * np.eye(3)
        theta = np.linalg.solve(ridge + held.sums[:, slot, :, :3], held.sums[:, slot, :, 3:])[..., 0]
        np.testing.assert_allclose(held.theta[:, slot], theta, rtol=1e-3, atol=1e-4)
        assert (np.abs(theta - estimate(data)).max(1) > 0.01).all()
    assert min(nodes) >= 2
    behind = [cluster.synced.count < shared.count for cluster in quiet.final["local"].values()]
    assert any(behind) == (download > 1)
