"""Users with a private stream each: as the oracle plays them, with the noise that was promised, and what is proved."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Bias, silent
from oracles.streams import grouped, in_groups, mixture, pooled
from scipy import stats
from scripted_users import draws, population, scan

import fedbandit_jax as fb
from fedbandit_jax.algos import pooling
from fedbandit_jax.algos.loops.streams import Grouping, UserReleases
from fedbandit_jax.algos.pooling import fit
from fedbandit_jax.core import random

A, P, S = fb.algos, fb.privacy, fb.schedules
N, T, D = 6, 120, 3
SCHEDULE = S.Geometric(1.6, first=10)
SPEC = dataclasses.replace(population(N, 2), constant=True)
HALF = dict(statistic=fb.privacy.Linear(centred=True, gram_scale=0.5))


def mechanism(epsilon=1.0, **options):
    return P.Mechanism(P.Budget(epsilon, 0.1), **{"release": "blt", "unit": "visit", **options})


def at(key, t):
    """The keys of a release after round t, and of its grouping."""
    key = jax.random.fold_in(key, t)
    return random.stream(key, "release"), random.stream(key, "grouping")


@functools.partial(jax.jit, static_argnames=("n", "times"))
def noises(bound, key, n, times):
    """The noise on every release of every user, (S, n, d, d + 1): what is released of nothing."""
    d = bound.spec.dim
    nothing, none = jnp.zeros((d, d + 1)), (jnp.zeros((0, d, 1)), jnp.zeros((0, 1)))
    state, found = jax.vmap(lambda _: bound.mechanism.init(d))(jnp.arange(n)), []
    for k, t in enumerate(times):
        keys = jax.random.split(at(key, t - 1)[0], n)
        step = jax.vmap(lambda key, state: bound.mechanism.step(key, k + 1, state, nothing, *none))  # noqa: B023
        noise, state = step(keys, state)
        found.append(noise)
    return jnp.stack(found)


def greedy(gram, bias, std, shrinkage=12.0):
    values, vectors = np.linalg.eigh(gram)
    v = vectors @ np.diag(values.clip(0)) @ vectors.T + max(1.0, shrinkage * std) * np.eye(len(bias))
    return np.linalg.solve(v, bias)


def odd(key, t, max_groups, tries=4):
    """The users who are tried as one more kind, from the misfits to the kinds so far."""
    keys = jax.random.split(random.stream(at(key, t - 1)[1], "odd"), max_groups - 1)

    def chosen(c, misfits):
        return np.asarray(jax.random.categorical(keys[c - 2], jnp.log(jnp.float32(misfits) + 1e-9), shape=(tries,)))

    return chosen


@pytest.mark.parametrize(
    ("grouping", "epsilon", "options"),
    [
        (A.Alone(), None, {}),
        pytest.param(A.Together(), 20.0, {}, marks=pytest.mark.slow),
        (A.Mixture(max_groups=3, subgaussian=0.1), 300.0, HALF),
        pytest.param(A.Mixture(max_groups=3, subgaussian=0.1), None, {}, marks=pytest.mark.slow),
        pytest.param(A.Mixture(max_groups=3, subgaussian=0.1), 2000.0, HALF, marks=pytest.mark.slow),
        pytest.param(A.Alone(), 20.0, HALF, marks=pytest.mark.slow),
    ],
)
def test_oracle(key, grouping, epsilon, options):
    """The same arms in every round, the same releases, the same groups."""
    privacy = None if epsilon is None else mechanism(epsilon, **options)
    bound = A.Grouped(grouping=grouping, schedule=SCHEDULE, privacy=privacy).bind(SPEC, T)
    times = tuple(SCHEDULE.rounds(T).tolist())
    given = draws(1, N, horizon=T)
    stds = np.asarray(bound.stds, float) if privacy else np.zeros(len(times))
    noise = np.asarray(noises(bound, key, N, times), float) if privacy else np.zeros((len(times), N, D, D + 1))
    scale = options.get("statistic", P.Linear()).gram_scale
    last, seen = np.zeros(N, int), []

    def labels_at(k, released):
        nonlocal last
        if isinstance(grouping, A.Mixture):
            law = dict(std=stds[k], bias_std=scale * stds[k], subgaussian=grouping.subgaussian)
            last = mixture(released[..., :-1], released[..., -1], last, odd(key, times[k], 3), max_groups=3, **law)
        else:
            last = np.arange(N) if isinstance(grouping, A.Alone) else np.zeros(N, int)
        seen.append(last)
        return last

    def pool_at(k, released, counts, labels):
        gram, bias = released[..., :-1], released[..., -1]
        if isinstance(grouping, A.Mixture):
            law = dict(std=stds[k], bias_std=scale * stds[k], subgaussian=grouping.subgaussian)
            return pooled(gram, bias, counts, labels, **law)
        return in_groups(gram, bias, labels, stds[k])

    rewards = given.rewards if privacy else given.rewards.clip(0, 1)
    arms, found, _, _, (state, partition) = scan(bound, key, given.users, given.contexts, rewards, spec=SPEC)
    expected, shown = grouped(
        given.users, given.contexts, rewards, times=times, noise=lambda k, u: noise[k, u], stds=stds,
        labels_at=labels_at, pool_at=pool_at, estimate=greedy, dim=D, n_users=N,
        centre=0.5 * options.get("statistic", P.Linear()).centred,
    )  # fmt: skip
    np.testing.assert_array_equal(arms, expected)
    np.testing.assert_allclose(state.streams.view, shown[-1], rtol=2e-4, atol=2e-3)
    np.testing.assert_array_equal(partition.shared, seen[-1])
    np.testing.assert_array_equal(found.local[times[0]], seen[0])
    assert int(state.synced) == len(times)
    if isinstance(grouping, A.Mixture):
        assert (len(np.unique(seen[-1])) > 1) == bool(privacy)  # without noise, six users are one kind who differ


def users(seed, n=30, d=5, kinds=2, rounds=400, std=4.0, bias_std=2.0, spread=0.0, unseen=False):
    """Releases of users of some kinds, who saw random unit vectors, their kinds, and their theta.

    Theta differs by `spread` in every direction among the users of a kind. The last feature may be `unseen`.
    """
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((kinds, d))
    theta *= 0.7 / np.linalg.norm(theta, axis=1, keepdims=True)
    label = rng.integers(kinds, size=n)
    theta = theta[label] + (spread * rng.standard_normal((n, d)) if spread else 0)
    x = rng.standard_normal((n, rounds, d))
    x[..., -1] *= not unseen
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    y = np.einsum("ntd,nd->nt", x, theta) + 0.5 * rng.standard_normal((n, rounds))
    z = rng.standard_normal((n, d, d)) * std
    gram = np.einsum("nti,ntj->nij", x, x) + (z + np.swapaxes(z, 1, 2)) / 2
    bias = np.einsum("nti,nt->ni", x, y) + bias_std * rng.standard_normal((n, d))
    arrays = (np.float32(one) for one in (gram, bias, np.full(n, rounds), std, bias_std))
    return UserReleases(*arrays), label, theta


def same_partition(one, other):
    return len({*zip(one, other)}) == len({*one}) == len({*other})


def test_mixture_is_its_oracle(key):
    """On 6 draws of two to four kinds, with labels of before and without; near ties may differ in one of them."""
    group, equal, right = jax.jit(A.Mixture(max_groups=5).group), [], []
    for seed in range(6):
        released, label, _ = users(seed, kinds=2 + seed % 3)
        last = label.astype(np.int32) if seed % 2 else np.zeros(30, np.int32)
        found = np.asarray(group(key, released, last))
        keys = jax.random.split(random.stream(key, "odd"), 4)

        def odd(c, misfits):
            logits = jnp.log(jnp.float32(misfits) + 1e-9)
            return np.asarray(jax.random.categorical(keys[c - 2], logits, shape=(4,)))  # noqa: B023

        gram, bias = np.float64(released.gram), np.float64(released.bias)
        expected = mixture(gram, bias, last, odd, std=4.0, bias_std=2.0, max_groups=5)
        equal.append((found == expected).all())
        right.append(same_partition(found, label))
    assert sum(equal) >= 5
    assert sum(right) >= 5


def test_a_group_is_served_by_its_sums():
    """By a grouping that says nothing else: the sums of its users, whose noise adds up."""
    released, _, _ = users(2, n=6)
    label = np.array([0, 3, 0, 0, 3, 5])
    found = jax.jit(A.Together().pool)(released, label)
    for u, (gram, bias, std) in enumerate(in_groups(released.gram, released.bias, label, 4.0)):
        np.testing.assert_allclose(found.gram[u], gram, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(found.bias[u], bias, rtol=1e-5, atol=1e-4)
        assert float(found.std[u]) == pytest.approx(std)
        assert float(found.count[u]) == 400 * (label == label[u]).sum()


def served(released, label, subgaussian=0.5):
    """What the library and the oracle pool for every user."""
    law = dict(std=float(released.std), bias_std=float(released.bias_std), subgaussian=subgaussian)
    arrays = (np.float64(one) for one in released[:3])
    expected = pooled(*arrays, np.asarray(label), **law)
    found = jax.jit(A.Mixture(subgaussian=subgaussian).pool)(released, jnp.asarray(label, jnp.int32))
    return found, [np.array(one) for one in zip(*expected)]


@pytest.mark.parametrize(
    ("spread", "options"),
    [
        (0.0, {}),
        (0.2, {}),
        (0.2, dict(rounds=15, std=6.0)),  # releases with negative eigenvalues, which tell next to nothing
        (0.2, dict(unseen=True)),
    ],
)
def test_pooling_is_its_oracle(spread, options):
    """Also for users who differ within groups, of a group of one, and with unequal counts."""
    released, label, _ = users(3, spread=spread, **options)
    label[label == 0] = np.where(np.arange((label == 0).sum()) == 0, 7, 0)
    released = released._replace(count=np.float32(np.random.default_rng(0).uniform(100, 700, 30)))
    found, (gram, bias, std) = served(released, label)
    np.testing.assert_allclose(found.gram, gram, rtol=2e-3, atol=0.02)
    np.testing.assert_allclose(found.bias, bias, rtol=2e-3, atol=0.02)
    np.testing.assert_allclose(found.std, std, rtol=2e-3)
    np.testing.assert_allclose(found.gram[label == 7], released.gram[label == 7], rtol=1e-6)


@pytest.mark.parametrize("kinds", [1, 5])
def test_users_who_are_alike_are_pooled_in_full(kinds):
    """In five draws of six if the law is right, but for a few in a thousand of the sums of others.

    Noise that is said to be half of what it is makes them differ.
    """
    pool, in_full, wrong = jax.jit(A.Mixture().pool), [], []
    for seed in range(100):
        released, label, _ = users(seed, 40, kinds=kinds, rounds=300)
        for found, noise in ((in_full, 1.0), (wrong, 0.5)):
            said = released._replace(std=noise * released.std, bias_std=noise * released.bias_std)
            everybody = 300 * np.bincount(label)[label]
            found.append(np.allclose(pool(said, jnp.asarray(label)).count, everybody, rtol=0.02))
    assert 0.69 < np.mean(in_full) < 0.99  # 0.84 but for four standard errors
    assert np.mean(wrong) < 0.1


@pytest.mark.parametrize("kinds", [1, 10])
def test_estimate_of_how_users_differ(monkeypatch, kinds):
    """Without caution it is right on average, in groups of 40 and of 4, to four standard errors."""
    monkeypatch.setattr(pooling, "CAUTION", 0.0)

    @jax.jit
    def variance(released, label):
        theta = fit(released, label, 40)[label]
        return jnp.trace(pooling._differences(released, label, theta, 0.5, 1.0).spread) / 5

    found = [
        variance(released, jnp.asarray(label))
        for released, label, _ in (users(seed, 40, kinds=kinds, spread=0.3, rounds=1000) for seed in range(30))
    ]
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - 0.3**2) < 4 * error
    assert error < 0.1 * 0.3**2


def test_little_is_pooled_before_anything_is_known():
    """Noise of others is no more than a user's own, and users who turn out to be alike are then pooled in full."""
    pool = jax.jit(A.Mixture(theta_norm=0.7).pool)
    for n in (10, 90):
        shares = []
        for rounds in (1, 400):
            found = [pool(users(seed, n, kinds=1, rounds=rounds)[0], jnp.zeros(n, jnp.int32)) for seed in range(20)]
            shares.append([float(np.mean(one.count) / rounds - 1) / (n - 1) for one in found])
        assert np.median(shares[0]) < 1.5 / np.sqrt(n - 1)
        assert np.median(shares[1]) > 0.9
    released, _, _ = users(0, 40, kinds=40, rounds=60)  # who differ, although that is not clear from so little
    quiet = released._replace(std=np.float32(4.4), bias_std=np.float32(2.2))
    assert float(pool(quiet, jnp.zeros(40, jnp.int32)).count.mean()) < 60 * (1 + 39 * 0.3)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_kinds_are_found_where_nothing_hides_them(key, noise):
    """Once it is clear that users differ: neither kinds nor users who are all different are then favoured."""
    group = jax.jit(A.Mixture(theta_norm=0.7).group)
    for seed in range(4):
        released, label, _ = users(seed, 40, d=10, kinds=4, rounds=4000, std=noise, bias_std=noise)
        assert same_partition(np.asarray(group(key, released, np.zeros(40, np.int32))), label)


def test_users_who_are_all_different_are_no_kinds(key):
    """Nor are they taken for a few: in one of 40 draws at most, at any number of rounds."""
    group, few = jax.jit(A.Mixture(theta_norm=0.7).group), []
    for seed in range(40):
        released, _, _ = users(seed, 40, kinds=40, rounds=(100, 200, 400, 800)[seed % 4])
        found = np.unique(np.asarray(group(key, released, np.zeros(40, np.int32)))).size
        few.append(found not in (1, 40))
    assert np.sum(few) <= 1


def test_pooling_weighs_how_different_users_are():
    """Users who are alike are served by nearly all of their group's sums, different ones by little beside their own.

    Estimates from what is pooled are nearer to a user's theta than those from her own sums, and than her group's.
    """
    rounds, shares, errors = 4000, [], []
    group_sums, pool = jax.jit(A.Together().pool), jax.jit(A.Mixture().pool)
    for spread in (0.0, 0.05, 0.15, 0.6):
        released, label, theta = users(1, n=60, kinds=1, rounds=rounds, spread=spread)
        found = pool(released, jnp.asarray(label))
        shares.append(float(np.mean((np.asarray(found.count) - rounds) / (59 * rounds))))
        every = [found, (released.gram, released.bias), group_sums(released, jnp.asarray(label))]
        estimates = [np.linalg.solve(one[0] + np.eye(5), np.asarray(one[1])[..., None])[..., 0] for one in every]
        errors.append([np.mean((one - theta) ** 2) for one in estimates])
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    assert shares[-1] < 0.05
    for mine, own, common in errors:
        assert mine < 1.1 * min(own, common)
    assert errors[1][0] < 0.9 * min(errors[1][1:])
    assert errors[0][0] < errors[0][1] / 4


@pytest.mark.parametrize("n", [10, 40, pytest.param(400, marks=pytest.mark.slow)])
def test_mixture_does_not_split_users_who_are_alike(key, n):
    """In at most 5 % of draws."""
    group = jax.jit(A.Mixture(max_groups=3).group)
    draws = [users(seed, n, kinds=1, rounds=60)[0] for seed in range(40)]
    assert np.mean([np.asarray(group(key, one, np.zeros(n, np.int32))).any() for one in draws]) <= 0.05


@pytest.mark.parametrize("options", [pytest.param({}, marks=pytest.mark.slow), HALF])
def test_law_of_the_noise(key, options):
    """Every entry of every user's every release has its own noise, of the variance promised; 5 % more is noticed."""
    n, times = 1200, (10, 16, 26)
    spec = dataclasses.replace(SPEC, n_users=n)
    bound = A.Grouped(schedule=SCHEDULE, privacy=mechanism(**options)).bind(spec, 30)
    noise = np.asarray(bound.mechanism.statistic.pack(noises(bound, key, n, times)), float)  # (S, n, D)
    scale = options.get("statistic", P.Linear()).gram_scale
    for k in range(len(times)):
        z = noise[k] / (scale * float(bound.stds[k]))
        low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], z.size)
        assert low < (z**2).sum() < high
        assert not low < (1.05**2 * z**2).sum() < high
        between = z[: n // 2].ravel() @ z[n // 2 :].ravel() / (z.size / 2)
        assert abs(between) < 4 / np.sqrt(z.size / 2)


@pytest.mark.parametrize("trust", ["silo_local", "silo_local_matrix"])
def test_what_is_said_of_the_noise(key, trust):
    """A grouping is told the standard deviations that the noise on U and on the diagonal of W really has."""
    n, times = 2000, (10, 16)
    spec = dataclasses.replace(SPEC, n_users=n)
    bound = A.Grouped(schedule=SCHEDULE, privacy=mechanism(trust=trust)).bind(spec, 16)
    noise = np.asarray(noises(bound, key, n, times), float)
    for k in range(len(times)):
        diagonal = np.diagonal(noise[k], axis1=1, axis2=2)
        assert diagonal.std() == pytest.approx(float(bound.stds[k]), rel=0.05)
        assert noise[k][..., -1].std() == pytest.approx(float(bound.bias_scale * bound.stds[k]), rel=0.05)


@pytest.mark.slow
def test_without_noise_it_is_not_private_and_nothing_else(key):
    """A mechanism whose noise is silenced plays as none does."""
    given = draws(1, N, horizon=T)
    rewards = given.rewards.clip(0, 1)
    plain, noisy = (A.Grouped(schedule=SCHEDULE, privacy=privacy).bind(SPEC, T) for privacy in (None, mechanism()))
    runs = [scan(bound, key, given.users, given.contexts, rewards, spec=SPEC)[0] for bound in (plain, silent(noisy))]
    np.testing.assert_array_equal(*runs)


@pytest.mark.slow
def test_one_user_by_herself(key):
    """Is a mixture, too."""
    given = draws(1, N, horizon=T)
    rewards = given.rewards.clip(0, 1)
    one = dataclasses.replace(SPEC, n_users=1, n_servers=1)
    lonely = [A.Grouped(grouping=kind(), schedule=SCHEDULE).bind(one, T) for kind in (A.Alone, A.Mixture)]
    nobody = np.zeros(T, np.int32)
    runs = [scan(bound, key, nobody, given.contexts, rewards, spec=one)[0] for bound in lonely]
    np.testing.assert_array_equal(*runs)


def test_rows_are_handed_over(key):
    """A stream that takes rows every 5 rounds of its user plays and releases as one that waits for the release."""
    given = draws(1, N, horizon=T)
    bound = A.Grouped(schedule=SCHEDULE, privacy=mechanism()).bind(SPEC, T)
    often = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, longest=5))
    arms, shown = zip(*(
        (run[0], run[-1][0].streams.view)
        for run in (scan(one, key, given.users, given.contexts, given.rewards, spec=SPEC) for one in (bound, often))
    ))  # fmt: skip
    np.testing.assert_array_equal(*arms)
    np.testing.assert_allclose(*shown, rtol=1e-5, atol=1e-4)
    assert A.Grouped(privacy=mechanism()).bind(SPEC, 10**7).mechanism.longest == 1000


@fb.pytree
class Parity(Grouping):
    """A grouping of one's own: users of even and of odd numbers."""

    def group(self, key, released, last):
        return jnp.arange(len(last), dtype=jnp.int32) % 2


@fb.pytree
class Nosy(Grouping):
    """Asks the host who is alike."""

    def group(self, key, released, last):
        return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(last.shape, jnp.int32), last)


@fb.pytree
class Frank(Nosy):
    calls_host = True


def test_certificates(key):
    env = fb.envs.clustered(6, 2, 2, n_arms=4, dim=3)
    algo = A.Grouped(privacy=P.Budget(1.0, 0.1), schedule=20)
    found = algo.certificate(env.spec, 100)
    assert (found.claim, round(found.epsilon_exact, 6), found.releases) == ("certified", 1.0, 5)
    assert "one interaction" in found.unit
    assert any("who comes when" in one for one in found.not_covered)
    assert algo.replace(policy=Bias()).certificate(env.spec, 100).claim == "certified"
    assert algo.replace(grouping=Parity()).certificate(env.spec, 100).claim == "certified"  # post-processing
    with pytest.raises(TypeError, match="Nosy.group must compute its result .* got pure_callback in .*test_grouped.py"):
        algo.replace(grouping=Nosy()).certificate(env.spec, 100)
    assert algo.replace(grouping=Frank()).certificate(env.spec, 100).claim == "none"
    assert A.Grouped().certificate(env.spec, 100).claim == "none"
    again = algo.replace(unit=P.Users(2)).certificate(env.spec, 100)
    assert again.claim == "certified"
    assert again.noise_std == pytest.approx(2 * found.noise_std, rel=1e-6)
    bound = algo.bind(env.spec, 100)
    trust = bound.mechanism.trust
    less = dataclasses.replace(bound.mechanism, trust=dataclasses.replace(trust, std=0.9 * np.asarray(trust.std)))
    assert dataclasses.replace(bound, mechanism=less).guarantee().claim == "none"
    result = fb.simulate(env, algo.replace(grouping=Parity(), policy=Bias()), horizon=60, key=key, seeds=2)
    assert result.gauges["clusters"][:, -1].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("algo", "message"),
    [
        (lambda: A.Grouped(grouping="mixture"), "grouping must be"),
        (lambda: A.Grouped(policy=3), "policy must be"),
        (lambda: A.Grouped(privacy=mechanism(trust="central")), "trust must be 'silo_local'"),
        (lambda: A.Grouped(schedule=S.LogDet()), "schedule must be one that reads nothing"),
        (lambda: A.Grouped(schedule=S.PrivateLogDet(), privacy=mechanism()), "schedule must be one that reads nothing"),
        (lambda: A.Grouped(grouping=A.Mixture(max_groups=0)), "max_groups must be"),
        (lambda: A.Grouped(grouping=A.Mixture(tries=0)), "tries must be"),
        (lambda: A.Grouped(grouping=A.Mixture(theta_norm=-1.0)), "theta_norm must be"),
        (lambda: A.Grouped(grouping=A.Mixture(subgaussian=np.nan)), "subgaussian must be"),
        (lambda: A.Grouped(privacy=mechanism(unit=None)), "unit must say"),
        (lambda: A.Grouped(privacy=mechanism(messages=True)), "messages must be False where every user has a stream"),
    ],
)
def test_bad_input(algo, message):
    with pytest.raises((ValueError, TypeError), match=message):
        algo().bind(SPEC, T)


def test_users_must_be_told_apart():
    with pytest.raises(ValueError, match="users who are told apart"):
        A.Grouped().bind(fb.Spec(n_agents=1, n_arms=2, dim=2, max_norm=1.0), 10)


@pytest.mark.slow
def test_order_of_the_groupings(key):
    """40 users of two kinds, epsilon = 1, 40,000 rounds: a mixture is better than all together and than all alone."""
    env = fb.envs.clustered(n_clusters=2)
    algos = [A.Grouped(grouping=kind(), privacy=mechanism(**HALF)) for kind in (A.Mixture, A.Together, A.Alone)]
    result = fb.sweep(env, algos, horizon=40_000, key=key, seeds=6)
    mixed, together, alone = (result[label].regret[:, -1] for label in result)
    for worse in (together, alone):
        gain = worse - mixed
        assert gain.mean() > 2.5 * gain.std(ddof=1) / np.sqrt(len(gain))


def test_phases_are_not_for_groups_that_change():
    arms = np.eye(3, dtype=np.float32)
    for made in (A.Grouped, A.AsyncFederated):
        with pytest.raises(ValueError, match="policy must not be PhasedElimination"):
            made(policy=A.PhasedElimination(arms=arms))


def test_streams_never_add_up_too_much():
    """A stream that says it hands nothing over proves nothing; counts of rounds are integers."""
    bound = A.Grouped(privacy=mechanism()).bind(SPEC, T)
    assert (
        dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, longest=0)).guarantee().claim
        == "none"
    )
    assert jax.eval_shape(lambda key: bound.init(key, SPEC), jax.random.key(0)).count.dtype == jnp.int32


@pytest.mark.parametrize(
    ("method", "answer", "error"),
    [
        ("group", lambda last: (last, last), r"Odd.group must return int32 of shape \(6,\), got \(Shape"),
        ("group", lambda last: 1.0 * last, r"Odd.group must return int32 of shape \(6,\), got float32 of shape \(6,\)"),
        ("group", lambda last: last[:2], r"Odd.group must return int32 of shape \(6,\), got int32 of shape \(2,\)"),
        (
            "pool",
            lambda released: None,
            r"Odd.pool must return an fb.Released of arrays of shapes .* got None",
        ),
        ("pool", lambda released: released, r"Odd.pool must return an fb.Released of arrays .* got UserReleases"),
    ],
)
def test_what_a_grouping_returns(method, answer, error):
    """Before anything is compiled, by its name."""

    @fb.pytree
    class Odd(Grouping):
        def group(self, key, released, last):
            return answer(last) if method == "group" else last

        def pool(self, released, label):
            return answer(released) if method == "pool" else super().pool(released, label)

    with pytest.raises(TypeError, match=error):
        A.Grouped(grouping=Odd(), schedule=SCHEDULE).bind(SPEC, T)
