"""Every message of every silo, randomised, passed on and analysed, has the law of the noise drawn at once."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, released
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.privacy.accounting import gaussian_mu
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.noisy_sums import Aggregated, Messages, Rounded
from fedbandit_jax.privacy.packing import pack, pack_users, packed_size, unpack
from fedbandit_jax.privacy.releases import RELEASES, Release, make
from fedbandit_jax.privacy.trust import SecAgg, Shuffled, SiloLocal, VectorSum

M, B, D, S = 3, 2, 2, 5
BUDGET = fb.privacy.Budget(1.0, 0.1)
N, CHUNK = 6000, 2000  # runs of a law, so many of them at once


PAIRS = [
    ("silo_local", "tree"),  # releases/test_noise_in_runs.py has the messages of the others
    ("silo_local_matrix", "prefix_tree"),
    ("secagg", "honaker"),
    ("secagg", "blt"),
    ("central", "blt"),
    ("shuffle_amplified", "tree"),
    ("local", "input_perturbation"),
]
DEEPER = [
    ("secagg", "tree"),
    ("silo_local_matrix", "blt"),
    *(("silo_local", release) for release in RELEASES if release != "tree"),
]


def users():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((S, B, D, M))
    x /= np.linalg.norm(x, axis=2, keepdims=True) * 1.1
    return x.astype(np.float32), rng.random((S, B, M)).astype(np.float32)


def bound(trust, release, *, messages, visits=1):
    """The mechanism of M silos, B users each, S synchronisations."""
    mechanism = fb.privacy.Mechanism(
        BUDGET, release=release, trust=trust, messages=messages, unit=fb.privacy.Users(visits)
    )
    return mechanism.bind(BoundStatistic(D), n_agents=M, n_syncs=S, batch=B)


def formed(kind, mechanism, **changes):
    """The same mechanism in another form, or with other parts."""
    return kind(**{field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)} | changes)


def test_messages_need_users(key):
    """Without them the noise alone would be released, in place of the batch."""
    mechanism = bound("secagg", "tree", messages=True)
    with pytest.raises(NotImplementedError, match="made of the users of every silo"):
        released(mechanism, key, jnp.int32(1), mechanism.init(D), jnp.zeros((0, D, M)), jnp.zeros((0, M)))


def play(mechanism, key, x, y):
    """(S, d, d + 1) private statistics of one run, and what was shown at the end."""

    def body(state, inputs):
        k, x, y = inputs
        statistics, state = released(mechanism, jax.random.fold_in(key, k), k, state, x, y)
        return state, statistics

    state, statistics = jax.lax.scan(body, mechanism.init(D), (jnp.arange(1, S + 1), x, y))
    return statistics, state.view


@jax.jit
def chunk(mechanism, keys, x, y):
    return jax.vmap(lambda key: pack(play(mechanism, key, x, y)[0]).ravel())(keys)


def sample(mechanism, key, n=N):
    """(n, S * D) packed statistics, by one program for all mechanisms that differ in numbers only."""
    keys = jax.random.split(key, n)
    parts = [chunk(mechanism, keys[i : i + CHUNK], *users()) for i in range(0, n, CHUNK)]
    return np.concatenate(parts).astype(float)


PACK = jax.jit(pack)
PLAY = jax.jit(play)


def by_hand(trust, release, *, n_agents=M, batch=B, dim=D, n_syncs=S, budget=BUDGET, visits=1):
    """Standard deviation of each packed entry of one release's noise over all silos, from the budget alone.

    One user moves all messages by visits sqrt(kappa) Delta, kappa the largest squared column norm of C, Delta^2 = 4.5
    when she is replaced; on the joint matrix Delta^2 = 4 for noise with sqrt 2 on the packed covariance.
    """
    kappa = (Release.encoder(make(release, n_syncs)) ** 2).sum(0).max()
    matrix = trust == "silo_local_matrix"
    sigma = visits * math.sqrt(kappa * (4.0 if matrix else 4.5)) / gaussian_mu(budget.epsilon, budget.delta)
    sources = {"central": 1, "secagg": 1, "shuffle_vector_sum": 1, "local": n_agents * batch}.get(trust, n_agents)
    weights = np.ones(packed_size(dim))
    weights[:-dim] = math.sqrt(2) if matrix else 1
    return math.sqrt(sources) * sigma * weights


def exact():
    x, y = users()
    rows = np.concatenate([x, y[:, :, None]], 2)
    return np.asarray(PACK(np.cumsum(np.einsum("kbim,kbjm->kij", x, rows), 0))).ravel()


def assert_same_law(a, b):
    """Means and all covariances within 5 standard errors, and the last coordinates by Kolmogorov-Smirnov."""
    n = len(a)
    scale = a.std(0)
    assert (abs(a.mean(0) - b.mean(0)) < 5 * scale * np.sqrt(2 / n)).all()
    one, other = np.cov((a / scale).T), np.cov((b / scale).T)
    error = np.sqrt((1 + one**2) * 2 / n)
    assert (abs(one - other) < 5 * error).all()
    assert stats.ks_2samp(a[:, -1], b[:, -1]).pvalue > 1e-4


@pytest.mark.parametrize(("trust", "release"), deep([*PAIRS, *DEEPER], keep={0, 5}))
def test_messages_equal_aggregated_in_law(key, trust, release):
    one, other = (bound(trust, release, messages=mode) for mode in (True, False))
    assert type(one) is Messages
    assert type(other) is (Rounded if trust == "secagg" else Aggregated)
    a, b = sample(one, key), sample(other, jax.random.fold_in(key, 1))
    assert_same_law(a, b)
    spread = (a - exact()).reshape(N, S, -1)
    assert (abs(spread.mean(0)) < 5 * spread.std(0) / np.sqrt(N)).all()  # unbiased
    declared = by_hand(trust, release)  # and independent of the numbers that the code declares
    assert one.trust.sum_std() == pytest.approx(declared.max(), rel=5e-3)
    variance = (spread**2).mean(0) / np.outer(make(release, S).prefix_variance(), declared**2)
    for entries in (slice(None, -D), slice(-D, None)):  # of covariance and of bias
        found = variance[:, entries].mean(1)
        error = 5 * np.sqrt(2 / (N * variance[0, entries].size))
        np.testing.assert_allclose(found, 1, atol=error)
        assert (abs(found / 1.05**2 - 1) > error).all()  # a scale wrong by 5 % would be rejected


def test_integer_noise_on_batches_that_grow(key):
    """Absorbed in parts or not: the exact prefixes, with the noise of one budget, whatever the sizes of batches."""
    recipe = fb.privacy.Mechanism(BUDGET, release="blt", trust="secagg")
    mechanism = recipe.bind(BoundStatistic(D), n_agents=M, n_syncs=S, most=9)
    assert (type(mechanism), mechanism.batch) == (Rounded, 9)
    sums = np.random.default_rng(5).normal(0, 3, (S, 4, D, D + 1)).astype(np.float32)
    sums[..., :D] += np.swapaxes(sums[..., :D], -1, -2)
    nobody = jnp.zeros((0, D, M)), jnp.zeros((0, M))

    def run(key):
        state, found = mechanism.init(D), []
        for k in range(S):  # batch k + 1 has min(k + 1, 4) parts
            for part in sums[k, 1 : min(k + 1, 4)]:
                state = mechanism.absorb(state, part)
            statistics, state = mechanism.step(jax.random.fold_in(key, k), jnp.int32(k + 1), state, sums[k, 0], *nobody)
            found.append(statistics)
        return pack(jnp.stack(found))

    n = 2000
    total = np.cumsum([sums[k, : min(k + 1, 4)].sum(0, dtype=float) for k in range(S)], 0)
    spread = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(key, n)), float) - np.asarray(PACK(total))
    assert (abs(spread.mean(0)) < 5 * spread.std(0) / np.sqrt(n)).all()
    declared = np.outer(np.sqrt(make("blt", S).prefix_variance()), by_hand("secagg", "blt"))
    found, error = (spread.std(0) / declared).mean(), 5 / np.sqrt(2 * n * declared[0].size)
    assert found == pytest.approx(1, abs=error + 2e-3)  # rounding adds a thousandth
    assert abs(found / 1.05 - 1) > error + 2e-3  # a scale wrong by 5 % would be rejected


VISITED = [("silo_local", "tree"), ("silo_local_matrix", "tree"), ("central", "tree"), ("secagg", "blt")]


@pytest.mark.parametrize(("trust", "release"), deep(VISITED, keep={1}))
def test_visits_multiply_the_noise(key, trust, release):
    """Of every trust model, messages included: by r, recomputed from the budget."""
    mechanism = bound(trust, release, messages=True, visits=3)
    a = sample(mechanism, key, 4000).reshape(4000, S, -1)
    declared = by_hand(trust, release, visits=3)
    found = (a.std(0) / np.outer(np.sqrt(make(release, S).prefix_variance()), declared)).mean()
    assert found == pytest.approx(1, abs=5 / np.sqrt(2 * 4000 * S))


@pytest.mark.parametrize("trust", ["silo_local", "central", "secagg"])
def test_who_sees_single_messages(key, trust):
    """The server sees every silo's message, or their sum alone."""
    _, shown = jax.eval_shape(lambda: play(bound(trust, "tree", messages=True), key, *users()))
    assert (shown.shape[0] == M) == (trust == "silo_local")


def test_wrong_law_is_rejected(key):
    """The comparison above can fail: one silo without noise, or noise on the joint matrix without its sqrt 2."""
    mechanism = bound("silo_local", "tree", messages=True)
    std = np.array([*mechanism.trust.std[:2], 0.0], np.float32)
    lazy_silo = dataclasses.replace(mechanism, trust=SiloLocal(std=std))
    honest = sample(bound("silo_local", "tree", messages=False), key)
    with pytest.raises(AssertionError):
        assert_same_law(sample(lazy_silo, key), honest)
    matrix = bound("silo_local_matrix", "tree", messages=True)
    flat = dataclasses.replace(matrix, trust=SiloLocal(std=matrix.trust.std))
    honest = sample(matrix, jax.random.fold_in(key, 1))
    with pytest.raises(AssertionError):
        assert_same_law(sample(flat, key), honest)
    assert_same_law(sample(matrix, key), honest)


def small_vector_sum():
    """A few coarse bits of every user, in the three levels of a tree over S = 5: (trust, bound mechanism)."""
    g, b = np.array([4, 5, 7], np.float32), np.array([9, 6, 5], np.float32)
    trust = VectorSum(g=g, b=b, n_batch=M * B, exact=True, width=int((2 * g + b).max()))
    mechanism = bound("shuffle_vector_sum", "tree", messages=False)
    assert len(mechanism.trust.g) == 3
    return trust, dataclasses.replace(mechanism, trust=trust)


def test_vector_sum_messages(key):
    """All bits of all users in all nodes: the server's counts are unbiased and have the aggregated law."""
    trust, rounded = small_vector_sum()
    assert type(rounded) is Rounded
    n = 100
    a = sample(formed(Messages, rounded), key, n)
    b = sample(rounded, jax.random.fold_in(key, 1), n)
    assert (abs(a.mean(0) - exact()) < 5 * a.std(0) / np.sqrt(n)).all()
    scale = a.std(0)
    one, other = np.cov((a / scale).T), np.cov((b / scale).T)
    assert (abs(one - other) < 5 * np.sqrt((1 + one**2) * 2 / n)).all()
    # exact variance, level by level: (sum f (1 - f) + n b / 4) / g^2
    x, y = users()
    w = np.asarray(jax.jit(pack_users)(x, y), float)  # (S, B, D, M)
    z = [(w + 1) * g for g in trust.g]
    rounding = [np.cumsum(((v % 1) * (1 - v % 1)).sum((1, 3)), 0) for v in z]
    ratios = []
    for k, level in ((0, 0), (1, 1), (3, 2)):  # prefixes 1, 2, 4 are single nodes that start at batch 1
        nodes = a.reshape(n, S, -1)[:, k]
        users_in = M * B << level
        variance = (rounding[level][k] + users_in * trust.b[level] / 4) / trust.g[level] ** 2
        np.testing.assert_allclose(nodes.var(0), variance, rtol=5 * np.sqrt(2 / n))
        ratios.append(nodes.var(0) / variance)
    found, error = np.mean(ratios), 5 * np.sqrt(2 / (n * np.size(ratios)))
    assert abs(found - 1) < error
    assert (abs(found * np.array([0.85, 1.15]) ** 2 - 1) > error).all()  # 15 % of scale would be seen
    assert trust.sum_std() ** 2 >= max(variance)


@pytest.mark.parametrize("trust", [trust for trust in fb.privacy.TRUST])
def test_noise_has_the_declared_scale_at_the_size_of_the_paper(key, trust):
    """M=100, B=25, d=10: the drawn noise of every tree level is as large as the budget asks, and not 3 % larger or
    smaller."""
    m, batch, d, n = 100, 25, 10, 300
    release = "input_perturbation" if trust == "local" else "tree"
    model = fb.privacy.calibrate(
        BUDGET, n_syncs=400, release=release, trust=trust, n_agents=m, batch=batch, dim=d
    ).model
    x, y = jnp.zeros((batch, d, m)), jnp.zeros((batch, m))
    state, nothing = model.init(packed_size(d)), jnp.zeros((1, packed_size(d)))

    def noise(key, k):
        if model.on_grid:
            return model.noisy_sum(key, k, state, nothing, x, y)[0][0]
        return model.noise(key, packed_size(d))

    draw = jax.jit(jax.vmap(noise, (0, None)))
    hand = by_hand(trust, release, n_agents=m, batch=batch, dim=d, n_syncs=400)
    assert model.sum_std() == pytest.approx(hand.max(), rel=0.01 if trust != "shuffle_vector_sum" else 0.1)
    for k in (1, 2, 64, 256):
        declared = hand
        if trust == "shuffle_vector_sum":  # the bound is that of the lowest level; x = 0 needs no rounding
            g, b = model.g[k.bit_length() - 1], model.b[k.bit_length() - 1]
            declared = np.sqrt(m * batch * k * b / 4) / g
            assert 0.95 * model.sum_std() < declared < model.sum_std()
        z = np.asarray(draw(jax.random.split(key, n), jnp.int32(k)), float) / declared
        for entries in (slice(None, -d), slice(-d, None)):
            assert np.sqrt((z[:, entries] ** 2).mean()) == pytest.approx(
                1, rel=0.01 + 4 / np.sqrt(2 * z[:, entries].size)
            )
        assert np.sqrt((z**2).mean()) == pytest.approx(1, rel=4 / np.sqrt(2 * z.size) + 0.005)
        assert 4 / np.sqrt(2 * z.size) < 0.03


def test_vector_sum_shows_only_mixed_bits(key):
    trust, rounded = small_vector_sum()
    mechanism = formed(Messages, rounded)
    x, y = users()
    _, shown = PLAY(mechanism, key, x, y)
    assert shown.shape == (packed_size(D), M * mechanism.release.size * B * trust.width)
    assert ((shown >= 0).sum(1) == M * B * (2 * 4 + 9)).all()  # node 5 is one batch: 2 g_0 + b_0 bits of each user
    _, again = PLAY(mechanism, jax.random.fold_in(key, 1), x, y)
    assert not np.array_equal(shown, again)


def test_shuffler_permutes_silos(key):
    messages = np.arange(5.0)[:, None, None] * np.ones((5, 1, 3))
    trust = Shuffled(std=np.zeros(5, np.float32))
    run = jax.jit(jax.vmap(lambda k: trust.third_party(k, messages)[:, 0, 0]))
    seen = np.asarray(run(jax.random.split(key, 4000)))
    assert (np.sort(seen, 1) == np.arange(5)).all()
    counts = np.stack([(seen == silo).sum(0) for silo in range(5)])
    assert stats.chi2.sf(((counts - 800) ** 2 / 800).sum(), 16) > 1e-4


def test_secagg_is_modular(key):
    """Sums wrap modulo 2^32 and come back with their sign; single messages are noise-covered residues."""
    trust = SecAgg(share=np.float32(1.0), scale=np.float32(2.0**16), n_agents=3)

    @jax.jit
    def run(messages):
        keys = jax.random.split(key, 3)
        sent = jax.vmap(trust.randomize, (0, 0, None, 0))(keys, jnp.arange(3), 1, messages)
        assert sent.dtype == jnp.uint32
        shown = trust.third_party(key, sent)
        assert shown.shape == (1, 4)
        return trust.analyze(key, 1, shown)

    for total in (-21_000.0, 0.0, 21_000.0):
        messages = np.full((3, 1, 4), total / 3, np.float32)
        np.testing.assert_allclose(run(messages), total, atol=1e-3 * abs(total) + 0.01)


@pytest.mark.parametrize("kind", [Aggregated, Messages])
@pytest.mark.parametrize("release", deep(RELEASES, keep={0, 2}))
def test_zero_noise_is_exact(key, release, kind):
    trust = SiloLocal(std=np.zeros(M, np.float32))
    mechanism = formed(kind, bound("silo_local", release, messages=False), trust=trust)
    found = sample(mechanism, key, CHUNK)
    np.testing.assert_allclose(found, np.broadcast_to(exact(), found.shape), atol=2e-5)


@pytest.mark.parametrize("dim", deep([1, 2, 5], keep={1}))
def test_packing_is_an_isometry(dim):
    rng = np.random.default_rng(dim)
    w = rng.standard_normal((7, dim, dim))
    statistics = np.concatenate([w + np.swapaxes(w, 1, 2), rng.standard_normal((7, dim, 1))], -1).astype(np.float32)
    vector = PACK(statistics)
    assert vector.shape == (7, packed_size(dim))
    np.testing.assert_allclose(np.linalg.norm(vector, axis=-1), np.sqrt((statistics**2).sum((1, 2))), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(unpack, static_argnums=1)(vector, dim), statistics, rtol=1e-6)
    x, y = rng.standard_normal((dim, 3)), rng.random(3)
    rows = np.concatenate([x, y[None]])
    one = PACK(np.einsum("im,jm->mij", x, rows))
    np.testing.assert_allclose(jax.jit(pack_users)(x, y).T, one, rtol=1e-5)


@pytest.mark.slow  # releases/test_noise_in_runs.py tests the same law, entry by entry
def test_unpacked_noise_has_the_symmetric_law(key):
    """(G + G')/2: variance 1 on the diagonal and in the bias, 1/2 off it, symmetric, uncorrelated."""
    noise = np.asarray(unpack(jax.random.normal(key, (200_000, packed_size(3))), 3))
    np.testing.assert_array_equal(noise[..., :3], np.swapaxes(noise[..., :3], 1, 2))
    expected = np.full((3, 4), 0.5)
    expected[np.arange(3), np.arange(3)] = expected[:, 3] = 1
    np.testing.assert_allclose(noise.var(0), expected, rtol=5 * np.sqrt(2 / 200_000))
    assert abs(np.corrcoef(noise[:, 0, 0], noise[:, 0, 1])[0, 1]) < 5 / np.sqrt(200_000)


@pytest.mark.parametrize(
    ("trust", "release", "messages"),
    deep(
        [
            ("secagg", "tree", False),
            ("secagg", "tree", True),
            ("secagg", "blt", False),
            ("secagg", "blt", True),
            ("shuffle_vector_sum", "tree", False),  # its messages are bits, their counts integers by construction
        ],
        keep={0, 3, 4},
    ),
)
def test_nothing_shows_between_the_lines_of_the_grid(key, trust, release, messages):
    """Integer noise on a sum that is not an integer would give it away modulo one step, without any noise."""
    mechanism = bound(trust, release, messages=messages)
    x, y = users()

    @jax.jit
    def step(x, y):
        view = released(mechanism, key, jnp.int32(1), mechanism.init(D), x, y)[1].view
        return view if messages else pack(view.reshape(D, D + 1))

    counts = np.asarray(step(x[0], y[0]), float)
    steps = counts * float(mechanism.trust.scale if trust == "secagg" else mechanism.trust.g[0])
    centre = 0.0 if trust == "secagg" else float(M * B * mechanism.trust.b[0] / 2)
    assert abs(steps + centre - np.round(steps + centre)).max() < 0.05  # float32 of 10^5 steps


@pytest.mark.slow
def test_rounding_is_unbiased_whatever_the_silos_have(key):
    """All silos with the same fraction of a step: rounding to the nearest would add up to M/2 steps."""
    trust = SecAgg(share=np.float32(1.0), scale=np.float32(1.0), n_agents=50)
    messages = jnp.full((50, 1, 2000), 0.49)

    def run(key):
        sent = jax.vmap(trust.randomize, (0, 0, None, 0))(jax.random.split(key, 50), jnp.arange(50), 1, messages)
        return trust.analyze(key, 1, trust.third_party(key, sent))

    errors = np.asarray(run(key)) - 50 * 0.49
    assert abs(errors.mean()) < 5 * errors.std() / np.sqrt(errors.size)
    assert errors.std() < 1.05 * trust.sum_std()


@pytest.mark.slow
def test_long_nodes_do_not_overflow(key):
    """n = M B 2^19 = 5.2e9 users in a node: more than 32 bits count."""
    c = fb.privacy.calibrate(BUDGET, n_syncs=2**19, trust="shuffle_vector_sum", n_agents=10_000, batch=1, dim=1)
    x, y = jnp.zeros((1, 1, 10_000)), jnp.zeros((1, 10_000))
    keys = jax.random.split(key, 2000)
    zeros = jnp.zeros((1, 2))
    noise = jax.vmap(lambda k: c.model.noisy_sum(k, jnp.int32(2**19), c.model.init(2), zeros, x, y)[0])(keys)
    g, b = float(c.model.g[-1]), float(c.model.b[-1])
    assert np.asarray(noise).std() == pytest.approx(np.sqrt(10_000 * 2.0**19 * b / 4) / g, rel=0.06)
    numbers, bits = c.model.uplink(jnp.int32(2**19), 0, 2)
    assert float(numbers) == pytest.approx(2 * 10_000 * 2.0**19)
    assert float(bits) == pytest.approx(2 * g + b)


def test_messages_that_would_not_fit_are_refused():
    env = fb.envs.sphere(100, 2, 10, rewards="bernoulli")
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(BUDGET, trust="shuffle_vector_sum", messages=True))
    with pytest.raises(ValueError, match="messages=True would hold .* bits of users' messages at once"):
        fb.simulate(env, algo, horizon=1000, key=jax.random.key(0), seeds=2)
