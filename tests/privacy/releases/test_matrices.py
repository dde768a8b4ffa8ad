"""Every release multiplies to the prefix sum, and its closed forms are those of its matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from factors import ALL, OTHERS, SIZE, matrices, outputs
from helpers import deep, prefixes, refused, workload

from fedbandit_jax.core import struct
from fedbandit_jax.privacy import Budget, Discounted, calibrate, releases
from fedbandit_jax.privacy.releases import RELEASES, Decaying, Release, decaying, make
from fedbandit_jax.privacy.releases.toeplitz import MAX_SYNCS, sqrt_column

SIZES = deep([SIZE, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 100, 400], keep={0})
SUMS = ("tree", "input_perturbation")  # messages are plain sums of batches


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ALL)
def test_factors_and_closed_forms(name, n):
    if name == "Decaying" and n > 64:
        return
    release, c, r = matrices(name, n)
    rtol, atol = (1e-5, 1e-5) if name == "Decaying" else (1e-10, 1e-12)
    squares, alone = (r**2).sum(1), (np.diff(r, axis=0, prepend=0) ** 2).sum(1)
    total = release.sensitivity_sq()
    for found, expected in (
        (r @ c, np.tril(np.ones((n, n)))),
        (release.encoder(), c),
        (release.decoder(), r),
        (release.prefix_variance(), squares),
        (release.batch_variance(), alone),
    ):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
    assert total == pytest.approx((c**2).sum(0).max(), rel=rtol)
    assert release.touched() == np.count_nonzero(c, axis=0).max()
    assert release.message_bound() == pytest.approx(np.abs(c).sum(1).max(), rel=rtol)
    assert (alone * total >= 1 - rtol).all()  # no release has less than sending every batch once
    assert struct.is_sealed(release)
    if name in OTHERS:
        assert (np.diff(release.column()) <= 0).all()
        assert release.column().min() >= 0
    assert name not in SUMS or set(np.unique(c)) <= {0, 1}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [*RELEASES.values(), Discounted(0.5)])
def test_numbers_of_numpy_are_numbers(make):
    """255 + 1 = 0 in 8 bits."""
    found, same = make(np.uint8(255)), make(255)
    assert type(found.n_syncs) is int
    np.testing.assert_array_equal(found.prefix_variance(), same.prefix_variance())
    assert found.sensitivity_sq() == same.sensitivity_sq()


def test_tree_by_definition():
    """Algorithm 2: node k sums the last 2^ctz(k) batches; prefix k adds the nodes at the one-bits of k."""
    _, c, r = matrices("tree", SIZE)
    assert [int(row.sum()) for row in c] == [1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1, 4, 1]
    assert [sorted(np.flatnonzero(row) + 1) for row in r[[6, 10, 12]]] == [[4, 6, 7], [8, 10, 11], [8, 12, 13]]
    assert [make("tree", s).sensitivity_sq() for s in (1, 2, 3, 4, 7, 8, 400)] == [1, 2, 2, 3, 3, 4, 9]


def test_square_root_by_definition():
    """1, 1/2 and 3/8 are its coefficients. Batches are in fewer messages the later they come."""
    root = make("sqrt_toeplitz", 3)
    for found in (root.sensitivity_sq(), Release.sensitivity_sq(root)):
        assert found == pytest.approx(1 + 1 / 4 + 9 / 64)
    assert Release.sensitivity_sq(make("tree", 4)) == 3  # batch 1 is in messages 1, 2 and 4, which has four


ARRAYS = {  # kept by the silo, by the server
    **{name: (6, 6) for name in ("tree",)},
    **{"sqrt_toeplitz": (63, 64), "blt": (3, 4), "input_perturbation": (0, 1), "Decaying": (64, 64)},
    **{"BandMF": (3, 4), "BISR": (3, 4), "Discounted": (6, 7)},
}


@pytest.mark.parametrize("name", ALL)
def test_silos_encode_and_the_server_decodes_in_a_scan(name):
    """float32, one program: sums over silos of messages about matrices decode to the prefix sums. Memory is known."""
    shape, few = (2, 4), 57
    batches = np.random.default_rng(0).standard_normal((few, 3, *shape), np.float32)  # of three silos

    @jax.jit
    def run(release, ks, batches):
        def step(state, k, batch):
            silos, server = state
            messages, silos = jax.vmap(release.encode, (0, None, 0))(silos, k, batch)
            assert messages.shape == (3, *shape)
            prefix, server = release.decode(server, k, messages.sum(0))
            return prefix, (silos, server)

        silos = jax.vmap(lambda _: release.encode_init(shape))(jnp.arange(3))
        return outputs((silos, release.init(shape)), step, ks, batches)

    for n in (few, 60):
        release = make(ALL[name], n)
        found = run(release, np.arange(1, few + 1), batches)
        np.testing.assert_allclose(found, np.cumsum(np.asarray(batches, float).sum(1), axis=0), atol=3e-4)
    assert run._cache_size() == 1  # S and coefficients are leaves
    for init, arrays in zip((release.encode_init, release.init), ARRAYS[name]):
        leaves = jax.tree.leaves(jax.eval_shape(lambda init=init: init(shape)))
        assert sum(leaf.size for leaf in leaves) == arrays * 8
        assert all(leaf.dtype == jnp.float32 for leaf in leaves)


@pytest.mark.parametrize("name", RELEASES)
def test_releases_are_equal_by_their_size(name):
    assert make(name, SIZE) == make(name, SIZE) != make(name, SIZE + 2)


def blocks(n):
    """Sums of three batches, and the batches since, as in docs/extending.md."""
    c = np.eye(n)
    for k in range(2, n, 3):
        c[k, k - 2 : k] = 1
    return c


def test_a_release_needs_only_its_matrix(monkeypatch):
    """Sensitivity, reach and variance are found, not believed: batch 1 is in all messages. Blocks by hand at S = 7."""
    monkeypatch.setitem(RELEASES, "prefixes", prefixes)
    release = releases.make("prefixes", 7)
    assert (release.sensitivity_sq(), release.touched(), release.message_bound()) == (7.0, 7, 7.0)
    np.testing.assert_array_equal(release.prefix_variance(), np.ones(7))
    np.testing.assert_array_equal(release.decoder() @ release.encoder(), np.tril(np.ones((7, 7))))
    made = make(blocks, 7)
    assert made.sensitivity_sq() == pytest.approx(2)
    np.testing.assert_allclose(made.prefix_variance(), [1, 2, 1, 2, 3, 2, 3], rtol=1e-6)


def test_a_release_without_a_name_is_still_of_a_user(monkeypatch):
    monkeypatch.setattr(blocks, "__name__", "")
    assert make(blocks, 7).of_user == "function"


def test_what_has_no_closed_form_is_not_materialised_for_ever():
    for use in (
        lambda: make(prefixes, 2049),
        *(named(100_000).encoder for named in RELEASES.values()),
        *(lambda name=name: make(name, 10**7 + 1) for name in ("sqrt_toeplitz", "blt")),
        lambda: OTHERS["BandMF"](10**6),
    ):
        with refused("n_syncs"):
            use()


def test_a_billion_synchronisations():
    """Trees list no array of length S: their constants are found by arithmetic. Others have at most `MAX_SYNCS`."""
    release = make("tree", 10**9)
    assert (release.sensitivity_sq(), release.touched(), release.message_bound()) == (30.0, 30, 2.0**29)
    release = make("input_perturbation", MAX_SYNCS)
    assert (release.sensitivity_sq(), release.touched(), release.message_bound()) == (1.0, 1, 1.0)
    with refused("n_syncs"):
        make("input_perturbation", 10**9)


class Mine(releases.InputPerturbation):
    """Every batch once, as somebody else's class."""


WRONG = [
    *("a matrix", None, [[1.0], [1.0, 1.0]], Mine(3), np.eye(4), np.ones(3), np.eye(3) * 1j),
    np.eye(3) + np.eye(3, k=1),  # messages of the future
    *(np.diag([1.0, 0.0, 1.0]), np.eye(3) * np.nan, np.eye(3) + np.tril(np.full((3, 3), np.inf), -1)),
    np.diag([1.0, 1e9, 1e9]),  # all batches but the first have noise of 1e-9 only: R R' is singular to 16 digits
    *(np.diag([1.0, 1.0, 1e-300]), 1e30 * np.eye(3), np.eye(3) + 1e200 * np.eye(3, k=-1)),
]


@pytest.mark.parametrize("matrix", WRONG, ids=str)
def test_matrices_are_checked(matrix, monkeypatch):
    """Nor is a release calibrated whose name is in the registry, but whose matrix is not what it should be."""

    def mine(n):
        return matrix

    with refused("mine"):
        make(mine, 3)
    monkeypatch.setitem(RELEASES, "own", mine)
    with refused("mine"):
        calibrate(Budget(1.0, 0.1), n_syncs=3, release="own")


def weighted(release, decay):
    return (decay ** -np.arange(release.n_syncs) * release.prefix_variance() * release.sensitivity_sq()).sum()


@pytest.mark.parametrize("decay", [1.5, 10.0])
def test_it_is_the_best_for_its_weights(decay):
    """No release by name has less weighted variance, nor any C nearby with columns of norm 1, column by column."""
    n, rng = 64, np.random.default_rng(0)
    best, sums = Decaying(decay)(n), np.tril(np.ones((n, n)))
    weights = np.maximum(decay ** -np.arange(n), 1e-12)
    for j in range(0, n - 1, 3):
        variances = []
        for size in (0.0, 0.05, -0.05):
            c = best.encoder()
            c[j + 1 :, j] += size * rng.random(n - 1 - j)
            c[:, j] /= np.linalg.norm(c[:, j])
            variances.append(weights[j:] @ (np.linalg.solve(c.T, sums.T) ** 2).sum(0)[j:])
        assert variances[0] < min(variances[1:])
    for name in RELEASES:
        assert weighted(make(name, n), decay) > (1.1 if decay == 1.5 else 1) * weighted(best, decay)


def test_it_is_made_once_and_in_few_steps(monkeypatch):
    """In 65 steps for weights down to 1.5^-27: by eigenvalues of B' B rounding moved the fixed point for ever."""
    steps, svd = [], np.linalg.svd
    decaying._optimal.cache_clear()  # of what other tests have made
    monkeypatch.setattr(np.linalg, "svd", lambda x: steps.append(1) or svd(x))
    assert weighted(Decaying(1.5)(28), 1.5) == pytest.approx(5.9174409336131, rel=1e-6)  # of 1,478 steps
    assert Decaying(1.5)(28) is Decaying(1.5)(28)
    assert 40 < len(steps) <= 100
    with refused("n_syncs", 300):
        Decaying(1.1)(300)


# Sums that forget: their weights, the noise in them under every release, and the release that suits them.

MEMORY = Discounted(0.7)


def test_weights():
    a, total, found = workload(MEMORY, SIZE), np.zeros(SIZE, np.float32), []
    np.testing.assert_allclose(scipy.linalg.toeplitz(MEMORY.weights(SIZE), np.zeros(SIZE)), a, atol=1e-15)
    for row in np.eye(SIZE, dtype=np.float32):
        found.append(total := MEMORY.add(total, row))
    np.testing.assert_allclose(found, a, rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_noise_by_matrices(name):
    """A gamma is made of differences of prefixes, whose noise is R z: its noise is A D R z, D taking differences."""
    differences = np.eye(SIZE) - np.eye(SIZE, k=-1)
    made, _, r = matrices(name, SIZE)
    wanted = ((workload(MEMORY, SIZE) @ differences @ r) ** 2).sum(1)
    np.testing.assert_allclose(MEMORY.variance(made), wanted, rtol=1e-5)


def test_the_release_is_a_square_root():
    """C C = A, as far as there are bands."""
    c = Discounted(0.9)(20).encoder()  # 20 bands
    np.testing.assert_allclose(c @ c, workload(Discounted(0.9), 20), atol=1e-6)
    assert Discounted(0.9)(300).touched() == 20


@pytest.mark.parametrize(("memory", "share"), [(Discounted(0.5), 0.88), (Discounted(0.98), 0.15)])
def test_less_noise_than_single_batches_and_than_prefix_sums(memory, share):
    n = 400
    mine, single, blt = (
        memory.variance(release).max() * release.sensitivity_sq()
        for release in (memory(n), make("input_perturbation", n), make("blt", n))
    )
    assert mine < min(share * single, blt)
    assert single == pytest.approx(1 / (1 - memory.decay**2), rel=1e-6)
    whole = sqrt_column(n) * memory.decay ** np.arange(n)  # with all bands: what is cut off costs less than 1 %
    assert mine < 1.01 * (whole**2).sum() ** 2
