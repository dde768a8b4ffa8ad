"""Private FCLUB equals its oracle, noise included; the noise in what it recommends by has the law that was promised."""

import functools
import itertools
import math

import jax
import numpy as np
import pytest
from helpers import variance_test
from oracles.clustering import estimate
from scripted_users import canonical, draws, noise_of, play, population, scan
from test_clustering import LARGE, SMALL, STARTS, A, T, eventful, fclub_trace, same, same_clusters

import fedbandit_jax as fb
from fedbandit_jax.privacy.packing import matrix_weights, pack

INF, ALPHA = math.inf, 1e-4


def budget(epsilon):
    return fb.privacy.Budget(epsilon, 0.1)


def both(key, algo, size, seed, spec=None, **changes):
    """What the library does and what the oracle does, with the same noise."""
    spec = population(*size) if spec is None else spec
    bound = algo.bind(spec, T)
    bound = bound.replace(**changes)
    given = draws(seed, size[0])
    private = dict(private=True, rho=float(bound.rho), vector=float(bound.vector), noise=noise_of(bound, key, 3))
    return bound, play(bound, key, given, spec), fclub_trace(algo, bound, given, size, **private)


def uploads_of_phases(played, users):
    """Most that one local cluster made in every phase, beside what it showed when the phase began."""
    most = []
    for start, end in itertools.pairwise((*STARTS, T)):
        rounds = np.arange(start, end)
        sent = played.uploads[rounds]
        sent[0] -= len(set(played.labels[start].tolist()))
        assert set(sent.tolist()) <= {0, 1}
        most.append(np.bincount(played.labels[rounds, users[rounds]], weights=sent).max())
    return most


PRINTED, OURS = dict(), dict(trigger="count", shift="once", upload=1.3, download=1.2)
SPLIT = dict(alpha_1=0.6, alpha_2=0.4)
ALIKE = dict(alpha_1=INF, alpha_2=INF)
CASES = [  # epsilon, parameters, size, seed, splits at least, global clusters of several local ones?
    (3000.0, dict(PRINTED, **SPLIT), SMALL, 1, 3, True),
    (300.0, dict(PRINTED, **SPLIT), SMALL, 7, 2, True),
    (1.0, dict(PRINTED, **SPLIT), SMALL, 0, 2, False),
    (3000.0, dict(PRINTED, upload=1, download=1, **SPLIT), SMALL, 1, 3, True),
    (1e4, dict(PRINTED, upload=1.3, download=1.3, alpha_1=0.6, alpha_2=0.5), SMALL, 1, 2, True),
    (100.0, dict(PRINTED, max_uploads=3, spectral="theory", **ALIKE), SMALL, 3, 0, False),
]
OTHERS = [
    (3000.0, dict(OURS, alpha_1=0.6, alpha_2=0.2), LARGE, 2, 3, True),
    (3000.0, dict(OURS, max_uploads=2, **SPLIT), LARGE, 2, 3, True),
    (1.0, dict(OURS, **ALIKE), LARGE, 0, 0, False),
    (50.0, dict(OURS, upload=1, download=1, calibration="theorem", **ALIKE), LARGE, 1, 0, False),
    (1e4, dict(OURS, **SPLIT), LARGE, 2, 3, True),
    (3000.0, dict(trigger="determinant", shift="once", **SPLIT), LARGE, 2, 3, True),
    (3000.0, dict(trigger="count", shift="every", upload=1.1, download=1.1, **SPLIT), SMALL, 1, 2, True),
    (3000.0, dict(OURS, **SPLIT), SMALL, 1, 2, True),
    (3000.0, dict(PRINTED, **SPLIT), LARGE, 2, 2, True),
]


@pytest.mark.parametrize(
    ("epsilon", "options", "size", "seed", "splits", "sharing"),
    CASES + [pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS],
)
def test_private_fclub(key, epsilon, options, size, seed, splits, sharing):
    algo = A.FCLUB(budget(epsilon), **options)
    bound, played, trace = both(key, algo, size, seed)
    assert bound.noise.std > 0
    assert bound.rho > 0
    eventful(trace, splits, sharing)
    same(played, trace)
    same_clusters(bound, played.state, trace)
    assert played.status.max() == 0
    assert not trace.failures
    assert trace.uploads.sum() > 10
    most, leaves = uploads_of_phases(played, draws(seed, size[0]).users), np.array(algo.leaves(T))
    goes_on = algo.alpha_1 == algo.alpha_2 == np.inf  # the first tree
    assert (most < (leaves[0] if goes_on else leaves)).all()
    rewards = draws(seed, size[0]).rewards[np.arange(T), played.arms]
    assert ((rewards < 0) | (rewards > 1)).any()  # so that clipping is seen


@pytest.mark.slow
def test_many_private_runs(key):
    rng, safe = np.random.default_rng(1), []
    for _ in range(60):
        options = dict(
            upload=rng.choice([1, 1.01, 1.3, 2]),
            download=rng.choice([1, 1.01, 1.3, 2]),
            alpha_1=rng.choice([0.4, 0.6, 0.8, INF]),
            alpha_2=rng.choice([0.05, 0.2, 0.4, INF]),
            trigger=str(rng.choice(["count", "determinant"])),
            shift=str(rng.choice(["every", "once"])),
            max_uploads=[None, 3, 10][rng.integers(3)],
        )
        algo = A.FCLUB(budget(rng.choice([3.0, 300.0, 3000.0, 1e4])), **options)
        _, played, trace = both(key, algo, (SMALL, LARGE)[rng.integers(2)], int(rng.integers(10**6)))
        safe.append(trace.safe(1e-5))
        same(played, trace, safe[-1])
    assert np.mean(np.array(safe) == T) > 0.9


@pytest.mark.slow
def test_an_upload_that_fails(key):
    """Noise that a twentieth of rho cannot bear: nothing more of this tree is uploaded, and it is told."""
    key = jax.random.key(31)
    algo = A.FCLUB(budget(300.0), **OURS, **SPLIT)
    rho = algo.bind(population(*LARGE), T).rho
    _, played, trace = both(key, algo, LARGE, 31, rho=np.float32(0.05) * rho)
    assert trace.failures
    same(played, trace)
    bad = played.status & fb.Status.NO_ESTIMATE != 0
    np.testing.assert_array_equal(np.flatnonzero(bad), np.arange(trace.failures[0], T))


# --- Limits ---


@pytest.mark.slow
@pytest.mark.parametrize("options", [dict(PRINTED, upload=1.1, **SPLIT), dict(OURS, **SPLIT)])
def test_silence_is_the_run_without_a_budget(key, options):
    size = LARGE if options.get("trigger") == "count" else SMALL
    spec, given = population(*size), draws(0, size[0])
    given = given._replace(rewards=given.rewards.clip(0, 1))
    public = {name: value for name, value in options.items() if name != "shift"}
    private, plain = (
        A.FCLUB(budget(1.0), **options).bind(spec, T),
        A.FCLUB(**public).bind(spec, T),
    )
    zero = np.float32(0)
    mute = play(private.replace(std=zero, rho=zero, vector=zero), key, given, spec)
    expected = play(plain, key, given, spec)
    for name in ("arms", "labels", "groups", "uploads", "downloads"):
        np.testing.assert_array_equal(getattr(mute, name), getattr(expected, name), err_msg=name)
    np.testing.assert_allclose(mute.state.local.theta, expected.state.local.theta, atol=1e-5)
    assert not np.array_equal(play(private, key, given, spec).arms, expected.arms)


@pytest.mark.slow
def test_epsilon_does_not_matter_where_it_is_huge(key):
    """Mean regret over draws is that without privacy, to a tenth; with epsilon = 1 it is much more."""
    spec = population(*LARGE)
    public = {name: value for name, value in OURS.items() if name != "shift"}
    algos = A.FCLUB(**public, **SPLIT), *(A.FCLUB(budget(epsilon), **OURS, **SPLIT) for epsilon in (1e6, 1.0))
    regret = np.zeros((3, 12))
    for seed in range(12):
        given = draws(seed, LARGE[0])
        given = given._replace(rewards=given.rewards.clip(0, 1))
        for row, algo in zip(regret, algos):
            arms = play(algo.bind(spec, T), key, given, spec).arms
            row[seed] = (given.rewards.max(1) - given.rewards[np.arange(T), arms]).sum()
    plain, huge, little = regret.mean(1)
    assert abs(huge / plain - 1) < 0.1
    assert little > 1.5 * plain


@pytest.mark.slow
def test_noise_is_the_key_s(key):
    """Another key, other noise; the same key, the same run; two servers, two trees."""
    spec, given = population(*LARGE), draws(0, LARGE[0])
    bound = A.FCLUB(budget(1.0), **OURS, **ALIKE).bind(spec, T)
    one, again, other = (play(bound, k, given, spec).state for k in (key, key, jax.random.fold_in(key, 1)))
    np.testing.assert_array_equal(one.local.sums, again.local.sums)
    assert not np.array_equal(one.local.sums, other.local.sums)
    noise = noise_of(bound, key, 3)
    nodes = np.stack([noise(s, user, 0) for s in (1, 2) for user in range(3)])
    assert len(np.unique(nodes[:, 0, 0])) == 6


# --- The law of the noise in what is recommended by ---

COMPARED = 40  # rounds


@functools.partial(jax.jit, static_argnames="spec")
def _sums(bound, keys, given, *, spec):
    def one(key):
        *_, (state, _) = scan(bound, key, *given, spec=spec)
        return state.local, state.uploads, state.status

    return jax.lax.map(one, keys)


def z_scores(sums, data, sigma):
    """Of packed entries, N(0, 1) if the noise is that of so many nodes of scale sigma."""
    packed = np.asarray(pack(sums - data))
    return packed / matrix_weights(packed.shape[-1]) / sigma


@pytest.mark.slow
@pytest.mark.parametrize("download", [1, 3])
def test_noise_of_recommendations(key, download):
    """One arm, so that data are the same for all keys: sums minus data have the nodes of one prefix of each server."""
    n_keys, size = 300, (9, 2)
    given = draws(0, size[0], horizon=COMPARED, n_arms=1)
    given = given._replace(rewards=given.rewards.clip(0, 1))
    spec = population(*size, n_arms=1)
    algo = A.FCLUB(budget(1.0), trigger="count", shift="once", upload=1.2, download=download, **ALIKE)
    bound = algo.bind(spec, COMPARED)
    keys = jax.random.split(key, n_keys)
    held, uploads, status = _sums(bound, keys, given, spec=spec)
    assert status.max() == 0
    quiet = fclub_trace(algo, bound, given, size)
    count = fclub_trace(
        algo, bound, given, size, private=True, noise=lambda s, user, k: np.eye(3, 4) * (k + 1).bit_count()
    )
    nodes, (shared,) = [], quiet.final["global"].values()
    for who, cluster in quiet.final["local"].items():
        slot, data = bound.seats.seat(who[0]), cluster.synced.sums
        assert (uploads[:, slot] == cluster.k).all()
        nodes.append(round((count.final["local"][who].synced.sums - data)[0, 0]))
        z = z_scores(held.sums[:, slot], data, float(bound.noise.std) * math.sqrt(nodes[-1]))
        assert variance_test(z) > ALPHA
        for factor in (0.9, 1.1):
            assert variance_test(z / factor) < 1e-6
        # entries do not depend on each other: Fisher's z of all their correlations
        fisher = np.arctanh(np.corrcoef(z.T)[np.triu_indices(z.shape[1], 1)]) * math.sqrt(n_keys - 3)  # pyright: ignore[reportIndexIssue]
        assert variance_test(fisher) > ALPHA
        ridge = (1 + bound.rho * held.shift[:, slot, None, None]) * np.eye(3)
        theta = np.linalg.solve(ridge + held.sums[:, slot, :, :3], held.sums[:, slot, :, 3:])[..., 0]
        np.testing.assert_allclose(held.theta[:, slot], theta, rtol=1e-3, atol=1e-4)
        assert (np.abs(theta - estimate(data, 1.0)).max(1) > 0.01).all()
    assert min(nodes) >= 2
    behind = [cluster.synced.count < shared.count for cluster in quiet.final["local"].values()]
    assert any(behind) == (download > 1)


def test_rho_and_vector_bound_the_noise(key):
    """||N|| <= rho and ||h|| <= v for every prefix of a tree, as S must stay positive definite."""
    bound = A.FCLUB(budget(1.0), **OURS, **ALIKE).bind(population(*LARGE), T)
    noise = noise_of(bound, key, 3)
    prefixes = np.stack([noise(s, user, k) for s in (1, 4) for user in range(3) for k in range(0, 60, 6)])
    norms = np.abs(np.linalg.eigvalsh(prefixes[..., :3])).max(-1)
    assert bound.rho / 10 < norms.max() < bound.rho
    vectors = np.linalg.norm(prefixes[..., 3], axis=-1)
    assert bound.vector / 10 < vectors.max() < bound.vector


def test_bad_environments():
    long = fb.Spec(n_agents=1, n_arms=2, dim=3, max_norm=2.0, n_users=4, n_servers=2)
    with pytest.raises(ValueError, match="needs feature vectors of norm <= 1, the environment's largest has norm 2"):
        A.FCLUB(budget(1.0)).bind(long, 10)
    assert A.FCLUB().bind(long, 10).noise is None


@pytest.mark.slow
def test_same_partition_for_all_keys_where_it_is_fixed(key):
    """With alpha_1 = inf and counts, who is in a local cluster and who uploads when tell nothing about rewards."""
    spec = population(*LARGE)
    bound = A.FCLUB(budget(5.0), trigger="count", shift="once", upload=1.3, download=1.2, **ALIKE).bind(spec, T)
    given = draws(0, LARGE[0])
    other = given._replace(rewards=given.rewards[::-1].copy(), contexts=given.contexts[::-1].copy())
    one, two = (play(bound, key, data, spec) for data in (given, other))
    for name in ("labels", "uploads"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert not np.array_equal(one.arms, two.arms)
    np.testing.assert_array_equal(canonical(one.labels)[-1], np.arange(8) % 3)
