"""Every release multiplies to the prefix sum, and its closed forms are those of its matrices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.privacy import Budget, calibrate, releases
from fedbandit_jax.privacy.releases import RELEASES, Release, make
from fedbandit_jax.privacy.releases.release import in_float64, outputs

SIZES = [n if n in (1, 8, 33) else pytest.param(n, marks=pytest.mark.slow) for n in (*range(1, 34), 100, 400)]


def decoder(release):
    """R: feed the server the messages that are sent, one at a time. What is never sent is NaN."""
    k = np.arange(1, release.n_syncs + 1, dtype=np.int32)
    live = np.asarray(jax.jit(jax.vmap(release.live))(k))
    number = np.cumsum(live).reshape(live.shape) - 1
    messages = np.where(live[..., None], np.eye(live.sum())[number], np.nan)

    @jax.jit
    def run(*inputs):
        def step(state, inputs):
            prefix, state = release.decode(state, *inputs)
            return state, prefix

        return jax.lax.scan(step, release.init((live.sum(),)), inputs)[1]

    with jax.enable_x64(True):
        return np.asarray(run(k, messages))


@functools.cache
def matrices(name, n):
    """(release, C, R), without the closed forms of the class."""
    release = make(name, n)
    return release, Release.encoder(release), decoder(release)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", RELEASES)
def test_decoder_times_encoder_is_the_prefix_sum(name, n):
    _, c, r = matrices(name, n)
    np.testing.assert_allclose(r @ c, np.tril(np.ones((n, n))), atol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("make", "n"),
    [
        *((release, 255) for release in RELEASES.values()),
        *((releases.Decaying(1.5), 16), (releases.Banded(np.uint8(200)), 255), (releases.Window(np.uint8(200)), 255)),
    ],
)
def test_numbers_of_numpy_are_numbers(make, n):
    """255 + 1 = 0 in 8 bits."""
    found = make(np.uint8(n))
    assert type(found.n_syncs) is int
    np.testing.assert_array_equal(found.prefix_variance(), make(n).prefix_variance())
    assert found.largest_variance() == make(n).largest_variance() == found.prefix_variance().max()
    assert found.sensitivity_sq() == make(n).sensitivity_sq()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", RELEASES)
def test_closed_forms(name, n):
    release, c, r = matrices(name, n)
    np.testing.assert_allclose(release.encoder(), c, atol=1e-12)
    assert release.sensitivity_sq() == pytest.approx((c**2).sum(0).max(), rel=1e-12)
    assert release.touched() == np.count_nonzero(c, axis=0).max()
    assert release.message_bound() == pytest.approx(np.abs(c).sum(1).max(), rel=1e-12)
    np.testing.assert_allclose(release.prefix_variance(), (r**2).sum(1), rtol=1e-10)
    assert release.largest_variance() == pytest.approx((r**2).sum(1).max(), rel=1e-10)
    alone = (np.diff(r, axis=0, prepend=0) ** 2).sum(1)
    np.testing.assert_allclose(release.batch_variance(), alone, rtol=1e-10)
    assert (alone * release.sensitivity_sq() >= 1 - 1e-10).all()  # no release has less than sending every batch once
    if "toeplitz" not in name and name != "blt":  # plain sums of batches
        assert set(np.unique(c)) <= {0, 1}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", RELEASES)
def test_one_draw_per_step_has_the_law_of_all_messages(name, n):
    """Covariance of the noise of all prefixes: from one draw per synchronisation, and from one per part sent."""
    release, _, r = matrices(name, n)
    b = release.noise_factor()
    np.testing.assert_allclose(b @ b.T, r @ r.T, rtol=1e-10, atol=1e-12)


def test_tree_by_definition():
    """Algorithm 2: node k sums the last 2^ctz(k) batches; prefix k adds the nodes at the one-bits of k."""
    _, c, r = matrices("tree", 13)
    assert [int(row.sum()) for row in c] == [1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1, 4, 1]
    assert [sorted(np.flatnonzero(row) + 1) for row in r[[6, 10, 12]]] == [[4, 6, 7], [8, 10, 11], [8, 12, 13]]
    assert [make("tree", s).sensitivity_sq() for s in (1, 2, 3, 4, 7, 8, 400)] == [1, 2, 2, 3, 3, 4, 9]


def test_honaker_by_definition():
    """S = 4, by the recursion v_l = 2 v / (1 + 2 v): node 1-2 is 2/3 own + 1/3 (left + right), node 1-4 4/7, 3/7."""
    _, c, r = matrices("honaker", 4)
    sent = [[1], [2], [1, 2], [3], [4], [3, 4], [1, 2, 3, 4]]
    assert [list(np.flatnonzero(row) + 1) for row in c] == sent
    pair = np.array([1, 1, 2, 0, 0, 0, 0]) / 3
    np.testing.assert_allclose(r[0], [1, 0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(r[1], pair)
    np.testing.assert_allclose(r[2], [*pair[:3], 1, 0, 0, 0])
    np.testing.assert_allclose(r[3], 4 / 7 * np.eye(7)[6] + 3 / 7 * (pair + np.roll(pair, 3)), atol=1e-15)


def test_honaker_is_the_best_estimate_from_below():
    """Of all unbiased combinations of the nodes inside it, the estimate of a full tree's root has least variance."""
    _, c, _ = matrices("honaker", 32)
    gls = np.linalg.inv(c.T @ c).sum()  # variance of the generalised least-squares estimate of the total
    assert make("honaker", 32).prefix_variance()[-1] == pytest.approx(gls, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tree", [(20, 10.3), (72, 37.5), (156, 78.0)]),
        ("honaker", [(13.9, 7.09), (43.2, 22.4), (88.4, 44.2)]),
        ("sqrt_toeplitz", [(3.78, 3.23), (8.84, 7.90), (13.8, 12.6)]),
        ("blt", [(3.78, 3.23), (8.85, 7.91), (13.9, 12.7)]),
    ],
)
def test_noise_at_equal_privacy(name, expected):
    """Largest and mean prefix variance times squared sensitivity, S = 16, 400, 4096, to three digits."""
    for n, (largest, mean) in zip((16, 400, 4096), expected):
        release = make(name, n)
        noise = release.prefix_variance() * release.sensitivity_sq()
        assert [float(f"{x:.3g}") for x in (noise.max(), noise.mean())] == [largest, mean]


ARRAYS = {  # kept by the silo, by the server
    "tree": (9, 9),
    "prefix_tree": (9, 9),
    "honaker": (9, 9),
    "sqrt_toeplitz": (512, 512),
    "blt": (3, 4),
    "input_perturbation": (0, 1),
}


@pytest.mark.parametrize("name", RELEASES)
def test_memory(name):
    release, shape = make(name, 400), (5, 6)
    for init, arrays in zip((release.encode_init, release.init), ARRAYS[name]):
        leaves = jax.tree.leaves(init(shape))
        assert sum(leaf.size for leaf in leaves) == arrays * 30
        assert all(leaf.dtype == jnp.float32 for leaf in leaves)


@pytest.mark.parametrize("name", RELEASES)
def test_silos_encode_and_the_server_decodes_in_a_scan(name):
    """float32, compiled: sums over silos of the messages about matrices decode to the prefix sums."""
    release = make(name, 100)
    batches = np.random.default_rng(0).standard_normal((100, 3, 2, 4), np.float32)  # synchronisations, silos, matrices

    @jax.jit
    def run(batches):
        def step(state, inputs):
            silos, server = state
            messages, silos = jax.vmap(release.encode, (0, None, 0))(silos, *inputs)
            assert messages.shape == (3, release.n_parts, 2, 4)
            prefix, server = release.decode(server, inputs[0], messages.sum(0))
            return (silos, server), prefix

        silos = jax.vmap(lambda _: release.encode_init((2, 4)))(jnp.arange(3))
        return jax.lax.scan(step, (silos, release.init((2, 4))), (jnp.arange(1, 101), batches))[1]

    exact = np.cumsum(np.asarray(batches, float).sum(1), axis=0)
    np.testing.assert_allclose(run(batches), exact, atol=3e-4)


def test_who_sends_what():
    made = {name: make(name, 8) for name in RELEASES}
    assert [name for name in made if made[name].prefix_at_silo] == ["prefix_tree"]
    assert {name: made[name].n_parts for name in made if made[name].n_parts != 1} == {"honaker": 4}
    assert jax.jit(jax.vmap(made["honaker"].live))(np.arange(1, 9)).sum(1).tolist() == [1, 2, 1, 3, 1, 2, 1, 4]


@pytest.mark.parametrize("name", RELEASES)
def test_releases_of_other_horizons_share_a_program(name):
    """S and coefficients are leaves; the numbers of a compiled release are those of the one that it is given."""
    few, many = make(name, 9), make(name, 15)
    assert few == make(name, 9) != many
    assert jax.tree.structure(few) == jax.tree.structure(many)

    @jax.jit
    def noise(release, z):
        return outputs(release.init(()), release.step, jnp.arange(1, 10), z)

    impulse = np.eye(9)[0]
    for release in (few, many):
        np.testing.assert_allclose(noise(release, impulse), _numbers(release, impulse), rtol=1e-6)
    assert noise._cache_size() == 1


def _numbers(release, z):
    return in_float64(lambda z: outputs(release.init(()), release.step, jnp.arange(1, 10), z), z)


class Blocks(Release):
    """Sums within blocks of three: a release somebody else might write."""

    def encode_init(self, shape):
        return jnp.zeros(shape, jnp.float32)

    def encode(self, state, k, gamma):
        block = state + gamma
        return block[None], jnp.where(k % 3 == 0, 0, block)

    def init(self, shape):
        return jnp.zeros(shape)

    def decode(self, state, k, message):
        prefix = state + message[0]
        return prefix, jnp.where(k % 3 == 0, prefix, state)


def test_a_release_needs_only_its_recurrences(monkeypatch):
    """Sensitivity, reach and variance are found, not believed: batch 1 is in messages 1, 2, 3."""
    monkeypatch.setitem(RELEASES, "blocks", Blocks)
    release = releases.make("blocks", 7)
    assert (release.sensitivity_sq(), release.touched(), release.message_bound()) == (3.0, 3, 3.0)
    np.testing.assert_array_equal(release.prefix_variance(), [1, 1, 1, 2, 2, 2, 3])
    np.testing.assert_array_equal(decoder(release) @ release.encoder(), np.tril(np.ones((7, 7))))
    assert jnp.zeros(1).dtype == jnp.float32  # float64 does not leak out


def test_parts_need_a_step():
    class Twice(Blocks):
        @property
        def n_parts(self):
            return 2

    with pytest.raises(NotImplementedError, match="Twice sends 2 parts at once and must define step"):
        Twice(4).prefix_variance()


def test_what_has_no_closed_form_is_not_materialised_for_ever():
    with pytest.raises(ValueError, match="n_syncs must be <= 10000 unless Blocks has closed forms, got 20000"):
        Blocks(20_000).sensitivity_sq()
    for named in RELEASES.values():
        with pytest.raises(ValueError, match="n_syncs must be <= 10000 unless .* has closed forms, got 100000"):
            named(100_000).encoder()


@pytest.mark.parametrize("name", RELEASES)
def test_bad_n_syncs(name):
    for n, error, words in (
        (0, ValueError, "n_syncs must be >= 1, got 0"),
        (-1, ValueError, "n_syncs must be >= 1, got -1"),
        (2.5, TypeError, "n_syncs must be an integer >= 1, got 2.5"),
        (True, TypeError, "n_syncs must be an integer >= 1, got True"),
    ):
        with pytest.raises(error, match=words):
            make(name, n)


def test_bad_names_and_buffers():
    with pytest.raises(ValueError, match="release must be one of 'tree', .* got 'bush'"):
        make("bush", 3)
    with pytest.raises(ValueError, match="n_buffers must be >= 1, got 0"):
        releases.Blt(3, n_buffers=0)
    for name in ("sqrt_toeplitz", "blt"):
        with pytest.raises(ValueError, match=r"n_syncs must be in \[1, 10000000\], got 10000001"):
            make(name, 10**7 + 1)


def test_a_billion_synchronisations():
    """No array of length S: constants of the certificate by arithmetic."""
    for name in ("tree", "prefix_tree", "honaker"):
        release = make(name, 10**9)
        assert (release.sensitivity_sq(), release.touched(), release.message_bound()) == (30.0, 30, 2.0**29)
    release = make("input_perturbation", 10**9)
    assert (release.sensitivity_sq(), release.touched(), release.message_bound()) == (1.0, 1, 1.0)


@pytest.mark.parametrize(
    ("encode", "decode", "words"),
    [
        (
            lambda s, k, g: (jnp.sign(g)[None] * (2 * g[None]) ** 2, s),
            lambda s, k, m: (s + m[0], s + m[0]),
            "decode must return the sum of all batches",
        ),
        (lambda s, k, g: (g[None], s), lambda s, k, m: (m[0], s), "decode must return the sum of all batches"),
        (lambda s, k, g: (g, s), lambda s, k, m: (s + m, s + m), "encode must return a message of shape"),
    ],
)
def test_releases_of_users_are_checked(monkeypatch, encode, decode, words):
    """Entered in the registry, a release whose matrices are not what they should be is never calibrated."""

    class Mine(Release):
        def encode_init(self, shape):
            return jnp.zeros(shape)

        def encode(self, state, k, gamma):
            return encode(state, k, gamma)

        def init(self, shape):
            return jnp.zeros(shape)

        def decode(self, state, k, message):
            return decode(state, k, message)

    monkeypatch.setitem(RELEASES, "mine", Mine)
    with pytest.raises((ValueError, TypeError), match=f"Mine.{words}"):
        calibrate(Budget(1.0, 0.1), n_syncs=10, release="mine")


class Mine(Release):
    """Every batch once, as somebody else might write it."""

    def encode_init(self, shape):
        return ()

    def encode(self, state, k, gamma):
        return gamma[None], state

    def init(self, shape):
        return jnp.zeros(shape)

    def decode(self, state, k, message):
        return state + message[0], state + message[0]


@pytest.mark.parametrize(
    ("method", "value", "error", "words"),
    [
        ("encode", lambda self, s, k, g: g[None], TypeError, r"next state, got float32 of shape \(1, 3\)"),
        ("encode", lambda self, s, k, g: [g[None]], TypeError, r"message of .* next state, got \["),
        ("encode", lambda self, s, k, g: ([g], s), TypeError, r"message of shape \(n_parts, ...\), \(1, 3\), got \["),
        ("encode", lambda self, s, k, g: (1j * g[None], s), TypeError, r"message of .*, got complex64 of shape"),
        ("encode", lambda self, s, k, g: (1.0, s), TypeError, r"message of .*, \(1, 3\), got float32 of shape \(\)"),
        ("encode", lambda self, s, k, g: (g[None], g), TypeError, r"next state .*\(\), got \(\(3,\), .float32.\)"),
        ("encode", lambda self, s, k, g: (jnp.nan * g[None], s), ValueError, "finite numbers .*, got nan"),
        ("decode", lambda self, s, k, m: (m, s), TypeError, r"prefix sum of .*, \(3,\), got float32 of shape \(1, 3\)"),
        ("decode", lambda self, s, k, m: (s, (s,)), TypeError, r"next state .*, got \(\(\(3,\), .float32.\),\)"),
        ("decode", lambda self, s, k, m: (s, None), TypeError, r"next state .*, got None"),
        ("decode", lambda self, s, k, m: (None, s), TypeError, "prefix sum .*, got None"),
        ("decode", lambda self, s, k, m: (jnp.inf * m[0], s), ValueError, "finite numbers .*, got (nan|inf)"),
        ("live", lambda self, k: True, TypeError, r"bools of shape \(n_parts,\), \(1,\), got bool of shape \(\)"),
        ("live", lambda self, k: [True], TypeError, r"bools of shape .*, got \[Shape.*bool"),
        ("live", lambda self, k: jnp.ones(1), TypeError, r"bools of shape .*, got float32 of shape \(1,\)"),
        ("n_parts", 0, ValueError, "Mine.n_parts must be >= 1, got 0"),
        ("n_parts", 1.5, TypeError, "Mine.n_parts must be an integer >= 1, got 1.5"),
        ("n_parts", 2, TypeError, r"Mine.encode must return a message of .*, \(2, 3\), got float32 of shape \(1, 3\)"),
    ],
)
def test_what_methods_return_is_checked(method, value, error, words):
    own = type("Mine", (Mine,), {method: value})
    with pytest.raises(error, match=words if method == "n_parts" else f"^Mine.{method} must return .*{words}"):
        releases.explicit(own(3))


def test_noise_that_float64_loses_is_refused():
    """R R' is singular to 16 digits: every batch but the first has noise of 1e-9 only."""

    class Large(Mine):
        def encode(self, state, k, gamma):
            return gamma[None] * jnp.where(k == 1, 1, 1e9), state

        def decode(self, state, k, message):
            prefix = state + message[0] / jnp.where(k == 1, 1, 1e9)
            return prefix, prefix

    with pytest.raises(ValueError, match="Large must have noise that float32 holds"):
        releases.explicit(Large(3))


def test_what_is_not_live_may_be_anything():
    class Two(Mine):
        n_parts = 2

        def live(self, k):
            return jnp.array([True, False])

        def encode(self, state, k, gamma):
            return jnp.stack([gamma, jnp.nan * gamma]), state

    assert releases.explicit(Two(3)).encoder().tolist() == np.eye(3).tolist()


def test_a_release_is_as_sensitive_as_its_first_batch():
    """Of the square root: batches are in fewer messages the later they come; 1, 1/2 and 3/8 are its coefficients."""
    root = make("sqrt_toeplitz", 3)
    for sensitivity_sq in (root.sensitivity_sq(), Release.sensitivity_sq(root)):
        assert sensitivity_sq == pytest.approx(1 + 1 / 4 + 9 / 64)
    assert Release.sensitivity_sq(make("tree", 4)) == 3  # the first batch is in messages 1, 2 and 4, which has four
