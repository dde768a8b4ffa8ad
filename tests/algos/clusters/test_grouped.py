"""Users with a private stream each: as the oracle plays them, with the noise that was promised, and certificates."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Bias, deep, refused
from oracles.streams import grouped, in_groups, mixture, pooled
from scripted_users import draws, population, scan

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.pooling import UserReleases
from fedbandit_jax.core import random
from fedbandit_jax.privacy.bound import VISIT_TIMES

A, P, S = fb.algos, fb.privacy, fb.schedules
N, T, D = 6, 120, 3
SCHEDULE = S.Geometric(1.6, first=10)
SPEC = dataclasses.replace(population(N, 2), constant=True)
HALF = dict(statistic=P.Linear(centred=True, gram_scale=0.5))
GROUP = jax.jit(lambda grouping, *given: grouping.group(*given))
POOL = jax.jit(lambda grouping, *given: grouping.pool(*given))


def mechanism(epsilon=1.0, **options):
    return P.Mechanism(P.Budget(epsilon, 0.1), **{"release": "blt", "unit": "visit", **options})


def at(key, t):
    """The keys of a release after round t, and of its grouping."""
    key = jax.random.fold_in(key, t)
    return random.stream(key, "release"), random.stream(key, "grouping")


@functools.partial(jax.jit, static_argnames="n")
def noises(bound, key, n, times):
    """The noise on every release of every user, (S, n, d, d + 1): the releases of no data."""
    d = bound.spec.dim
    nothing, none = jnp.zeros((d, d + 1)), (jnp.zeros((0, d, 1)), jnp.zeros((0, 1)))

    def step(state, row):
        k, t = row
        one = jax.vmap(lambda key, state: bound.mechanism.step(key, k + 1, state, nothing, *none))
        noise, state = one(jax.random.split(at(key, t - 1)[0], n), state)
        return state, noise

    state = jax.vmap(lambda _: bound.mechanism.init(d))(jnp.arange(n))
    return jax.lax.scan(step, state, (jnp.arange(len(times)), times))[1]


def greedy(gram, bias, std, shrinkage=12.0):
    values, vectors = np.linalg.eigh(gram)
    v = vectors @ np.diag(values.clip(0)) @ vectors.T + max(1.0, shrinkage * std) * np.eye(len(bias))
    return np.linalg.solve(v, bias)


FOUR = jax.jit(lambda key, misfits: jax.random.categorical(key, jnp.log(misfits + 1e-9), shape=(4,)))


def odd(key, max_groups):
    """The users who are tried as one more kind, from the misfits to the kinds so far."""
    keys = jax.random.split(key, max_groups - 1)
    return lambda c, misfits: np.asarray(FOUR(keys[c - 2], np.float32(misfits)))


MIXTURE = A.Mixture(max_groups=3, subgaussian=0.1)
LABELS = {A.Alone: np.arange(N), A.Together: np.zeros(N, int)}
CASES = [  # grouping, epsilon, options, rows that a stream holds at most
    (A.Together(), 20.0, HALF, 5),
    (MIXTURE, 300.0, HALF, 1000),
    (A.Alone(), None, {}, 1000),
    (MIXTURE, None, {}, 1000),
    (MIXTURE, 2000.0, HALF, 5),
]


@pytest.mark.parametrize(("grouping", "epsilon", "options", "longest"), deep(CASES, keep=(0, 1)))
def test_oracle(key, grouping, epsilon, options, longest):
    """The same arms in every round, the same releases, the same groups; rows are handed over every so many rounds."""
    privacy = None if epsilon is None else mechanism(epsilon, **options)
    bound = A.Grouped(grouping=grouping, schedule=SCHEDULE, privacy=privacy).bind(SPEC, T)
    if longest < T:
        bound = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, longest=longest))
    times = SCHEDULE.rounds(T)
    given = draws(1, N, horizon=T)
    stds = np.asarray(bound.stds, float) if privacy else np.zeros(len(times))
    noise = np.asarray(noises(bound, key, N, times), float) if privacy else np.zeros((len(times), N, D, D + 1))
    scale = options.get("statistic", P.Linear()).gram_scale
    last, seen = np.zeros(N, int), []

    def labels_at(k, released):
        nonlocal last
        if isinstance(grouping, A.Mixture):
            law = dict(std=stds[k], bias_std=scale * stds[k], subgaussian=grouping.subgaussian)
            chosen = odd(random.stream(at(key, times[k] - 1)[1], "odd"), 3)
            last = mixture(released[..., :-1], released[..., -1], last, chosen, max_groups=3, **law)
        else:
            last = LABELS[type(grouping)]
        seen.append(last)
        return last

    def pool_at(k, released, counts, labels):
        gram, bias = released[..., :-1], released[..., -1]
        if isinstance(grouping, A.Mixture):
            law = dict(std=stds[k], bias_std=scale * stds[k], subgaussian=grouping.subgaussian)
            return pooled(gram, bias, counts, labels, **law)
        return in_groups(gram, bias, labels, stds[k])

    rewards = given.rewards if privacy else given.rewards.clip(0, 1)
    arms, (found, _), _, _, (state, (_, last)) = scan(bound, key, given.users, given.contexts, rewards, spec=SPEC)
    expected, shown = grouped(
        given.users, given.contexts, rewards, times=times, noise=lambda k, u: noise[k, u], stds=stds,
        labels_at=labels_at, pool_at=pool_at, estimate=greedy, dim=D, n_users=N,
        centre=0.5 * options.get("statistic", P.Linear()).centred,
    )  # fmt: skip
    np.testing.assert_array_equal(arms, expected)
    np.testing.assert_allclose(state.ledgers.mechanism.view, shown[-1], rtol=2e-4, atol=2e-3)
    np.testing.assert_array_equal(last, seen[-1])
    np.testing.assert_array_equal(found[times[0]], seen[0])
    assert int(state.synced) == len(times)
    if isinstance(grouping, A.Mixture):
        assert (len(np.unique(seen[-1])) > 1) == bool(privacy)  # without noise, six users are one kind who differ


def users(seed, n=40, d=5, kinds=2, rounds=400, std=4.0, bias_std=2.0, spread=0.0, unseen=False):
    """Releases of users of some kinds (theta differs by `spread` within), their kinds and theta; x_d may be unseen."""
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


DRAWS = [  # kinds, rounds, noise; whether kinds can be told apart
    (2, 100, 8.0, False),
    (5, 100, 8.0, False),
    (40, 60, 4.0, False),
    (3, 400, 4.0, True),
    (4, 4000, 0.0, True),
    (4, 4000, 1.0, True),
]


def test_mixture_is_its_oracle(key):
    """With labels of before and without; one draw may be a near tie. Users who all differ are no few kinds."""
    equal, right = [], []
    for seed, (kinds, rounds, noise, clear) in enumerate(DRAWS):
        released, label, _ = users(seed, kinds=kinds, rounds=rounds, std=noise, bias_std=noise / 2)
        last = label.astype(np.int32) if rounds == 400 else np.zeros(40, np.int32)
        found = np.asarray(GROUP(A.Mixture(max_groups=5), key, released, last))
        gram, bias = np.float64(released.gram), np.float64(released.bias)
        chosen = odd(random.stream(key, "odd"), 5)
        expected = mixture(gram, bias, last, chosen, std=noise, bias_std=noise / 2, max_groups=5)
        equal.append((found == expected).all())
        right += [same_partition(found, label)] * clear + [np.unique(found).size in (1, 40)] * (kinds == 40)
    assert sum(equal) >= len(DRAWS) - 1
    assert sum(right) >= len(right) - 1


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
    released = released._replace(count=np.float32(np.random.default_rng(0).uniform(100, 700, 40)))
    found = POOL(A.Mixture(), released, label.astype(np.int32))
    law = dict(std=float(released.std), bias_std=float(released.bias_std), subgaussian=0.5)
    gram, bias, std = map(np.array, zip(*pooled(*map(np.float64, released[:3]), label, **law)))
    np.testing.assert_allclose(found.gram, gram, rtol=2e-3, atol=0.02)
    np.testing.assert_allclose(found.bias, bias, rtol=2e-3, atol=0.02)
    np.testing.assert_allclose(found.std, std, rtol=2e-3)
    np.testing.assert_allclose(found.gram[label == 7], released.gram[label == 7], rtol=1e-6)


@pytest.mark.parametrize("kinds", [1, 5])
def test_users_who_are_alike_are_pooled_in_full(kinds):
    """In five draws of six if the law is right; noise said to be half of what it is makes them differ."""
    in_full, wrong = [], []
    for seed in range(100):
        released, label, _ = users(seed, kinds=kinds, rounds=300)
        for found, noise in ((in_full, 1.0), (wrong, 0.5)):
            said = released._replace(std=noise * released.std, bias_std=noise * released.bias_std)
            everybody = 300 * np.bincount(label)[label]
            found.append(np.allclose(POOL(A.Mixture(), said, label.astype(np.int32)).count, everybody, rtol=0.02))
    assert 0.69 < np.mean(in_full) < 0.99  # 0.84 but for four standard errors
    assert np.mean(wrong) < 0.1


def test_mixture_does_not_split_users_who_are_alike(key):
    """In at most 5 % of draws."""
    draws = [users(seed, kinds=1, rounds=60)[0] for seed in range(40)]
    found = [GROUP(A.Mixture(max_groups=5), key, one, np.zeros(40, np.int32)) for one in draws]
    assert np.mean([np.asarray(one).any() for one in found]) <= 0.05


def test_certificates():
    env = fb.envs.clustered(6, 2, 2, n_arms=4, dim=3)
    algo = A.Grouped(privacy=P.Budget(1.0, 0.1), schedule=20)
    found, bound = algo.certificate(env.spec, 100), algo.bind(env.spec, 100)
    assert (found.claim, round(found.epsilon_exact, 6), found.releases) == ("certified", 1.0, 5)
    assert VISIT_TIMES in found.not_covered
    again = algo.replace(unit=P.Users(2)).certificate(env.spec, 100)
    assert again.claim == "certified"
    assert again.noise_std == pytest.approx(2 * found.noise_std, rel=1e-6)
    assert algo.replace(policy=Bias()).certificate(env.spec, 100).claim == "certified"
    mine = type("Mine", (A.Together,), {})()
    for nothing in (bound.replace(grouping=mine).guarantee(), A.Grouped().certificate(env.spec, 100)):
        assert nothing.claim == "none"
    with refused("grouping", mine):
        algo.replace(grouping=mine)
    endless = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, longest=0))
    assert endless.guarantee().claim == "none"  # a stream that hands nothing over adds up too much
    assert A.Grouped(privacy=mechanism()).bind(SPEC, 10**5).mechanism.longest == 1000
    assert jax.eval_shape(lambda key: bound.init(key, SPEC), jax.random.key(0)).count.dtype == jnp.int32
