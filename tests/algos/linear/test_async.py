"""Asynchronous FedLinUCB equals Algorithm 1 of He et al. (2022), with the same noise if private, and has its limits."""

import math

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from oracles.asynchronous import async_fed_lin_ucb, by_determinant, by_rounds
from oracles.linear import Tree
from scripted_users import draws, population, scan

import fedbandit_jax as fb
from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.core import random
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.samplers import discrete_laplace

A, S = fb.algos, fb.schedules
M, D, T = 5, 3, 300


@pytest.fixture(autouse=True)
def seven(monkeypatch):
    """Inverses are computed anew once in so many rounds of an agent, in all programs of this file."""
    monkeypatch.setattr(own_rows, "REFRESH", 7)


SPEC = population(M, 1)
BUDGET, SOME, LITTLE = (fb.privacy.Budget(epsilon, 0.1) for epsilon in (1.0, 20.0, 300.0))
ENV = fb.envs.clustered(6, 1, 1, n_arms=5, dim=4)
SHIFT, PROJECT = A.UCB(), A.UCB(regularizer="project")


def noisy(budget=BUDGET, release="tree", **options):
    return fb.privacy.Mechanism(budget, release, unit="visit", **options)


def algo(schedule, privacy=None, policy=SHIFT):
    return A.AsyncFederated(policy=policy, schedule=schedule, privacy=privacy)


def told(state, report):
    return report.rounds, state.server.high, state.users, state.variance


def play(bound, key, *given, spec=SPEC):
    """The last state; arms, uploads, the server's sum, rounds in it and the variance of its noise, every round."""
    arms, _, found, _, (state, _) = scan(bound, key, *given, spec=spec, told=told)
    return state, (arms, *found)


def compare(played, trace, *, uploads):
    """As long as no decision was close; `uploads` is how many there must be at least."""
    end = trace.safe()
    arms, sent, server, counts, _ = (np.asarray(x)[:end] for x in played)
    assert end >= 0.6 * len(trace.arms)
    np.testing.assert_array_equal(arms, trace.arms[:end])
    np.testing.assert_array_equal(sent, trace.uploads[:end])
    assert uploads <= sent.sum() < end
    np.testing.assert_allclose(server, trace.server[:end], rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(counts, trace.counts[:end])


def width(bound):
    one = bound.policy.width
    return lambda t: float(one.offset) + float(one.slope) * np.sqrt(one.log_term + D * np.log1p(float(one.growth) * t))


def noise_of(bound, key):
    """The noise of a tree at every agent, from the draws of the library."""
    trees = {}
    draw = jax.jit(lambda key: bound.mechanism.statistic.unpack(bound.mechanism.trust.noise(key, packed_size(D))))

    def noise(m, k, t):
        drawn = draw(random.stream(random.fold_in(key, jnp.int32(t)), "release"))
        return trees.setdefault(m, Tree()).release(k, 0.0, np.asarray(drawn, float))

    return noise


def by_test(bound, key):
    """AboveThreshold of every agent on sums that are rounded up, from the draws of the library."""
    scale, d = bound.schedule._scale(), float(bound.schedule.threshold)
    draw = jax.jit(lambda key: discrete_laplace(key, scale, (1,))[0])
    of = lambda t, name: draw(random.stream(random.fold_in(key, jnp.int32(t)), name))  # noqa: E731
    shift = {m: int(draw(one)) for m, one in enumerate(jax.random.split(key, M))}
    sums = dict.fromkeys(range(M), 0)

    def trigger(t, m, own, since, v, buffer, leverage):
        inverse = np.linalg.inv(v)
        cap = np.log1p(1.001 * min(abs(inverse).sum(0).max(), np.linalg.norm(inverse)))
        share = 64 * np.log1p(leverage) / cap
        sums[m] += math.ceil(share)
        level = 64 * d / cap
        asks = sums[m] + int(of(t, "requests")) >= math.ceil(level) + shift[m]
        if asks:
            shift[m], sums[m] = int(of(t, "epoch")), 0
        return asks, min(abs(share - round(share)), abs(level - round(level)))

    return trigger


FIXED, TESTED = S.Geometric(1.4, first=4), S.PrivateLogDet(0.1, share=0.05, trigger="he22")
ROUNDS = by_rounds(set(FIXED.rounds(T).tolist()))
PRINTED = A.async_fed_lin_ucb()
PLAYED = [  # an algorithm, its trigger (None: by tests), and the least number of uploads
    (PRINTED, by_determinant(2.0), 20),
    (A.async_fed_lin_ucb(1.1), by_determinant(1.1), 20),
    (algo(FIXED, noisy(LITTLE), PROJECT), ROUNDS, 5),
    (algo(TESTED, noisy(SOME), PROJECT), None, 5),
    (algo(S.LogDet(0.3, "he22"), noisy(LITTLE), PROJECT), by_determinant(math.exp(0.3)), 5),
    (algo(FIXED, noisy(LITTLE)), ROUNDS, 5),
    (algo(S.LogDet(0.3, "he22"), noisy(LITTLE)), by_determinant(math.exp(0.3)), 5),
]


@pytest.mark.parametrize(("one", "trigger", "uploads"), deep(PLAYED, keep={0, 2, 3}))
def test_algorithm_1(key, one, trigger, uploads):
    """Every agent of a private one has a tree, tests and counts of its own."""
    given, bound = draws(5 if one.privacy else 3, M), one.bind(SPEC, T)
    _, played = play(bound, key, *given)
    trace = async_fed_lin_ucb(
        given, M, beta=width(bound), ridge=float(bound.policy.regularization), trigger=trigger or by_test(bound, key),
        noise=noise_of(bound, key) if one.privacy else None, project=one.policy is PROJECT,
    )  # fmt: skip
    compare(played, trace, uploads=uploads)


def test_nobody_uploads_after_one_round_that_doubles_the_determinant(key):
    """Of unit vectors det(I + x x') = 2, up to rounding, and line 8 asks for more than (1 + alpha) det V."""
    bound, users = PRINTED.bind(SPEC, T), np.zeros(T, np.int32)
    users[: 2 * M] = np.repeat(np.arange(M), 2)
    for seed in range(12):
        given = draws(seed, M)._replace(users=users)
        units = given.contexts / np.linalg.norm(given.contexts, axis=-1, keepdims=True)
        sent = play(bound, key, *given._replace(contexts=units))[1][1]
        np.testing.assert_array_equal(np.reshape(sent[: 2 * M], (M, 2)), [[0, 1]] * M)


def test_uploads_that_are_too_many(key):
    bound = algo(S.LogDet(1e-6, "he22", max_syncs=3), noisy()).bind(SPEC, T)
    state, played = play(bound, key, *draws(3, M))
    assert np.asarray(state.agents.synced).tolist() == [3] * M
    assert np.asarray(played[1]).sum() == 3 * M


def test_an_upload_is_answered():
    sent = ex.played("Async-FedLinUCB").result.communication
    np.testing.assert_array_equal(sent["bits"], sent["rounds"] * 2 * 32 * packed_size(ex.D))


VISIT = noisy(release="blt", trust="silo_local_matrix")
TESTED_ONLY = algo(S.PrivateLogDet(1.0, trigger="he22"), noisy(), PROJECT)


@pytest.mark.parametrize("one", [algo(S.Every(7), VISIT), TESTED_ONLY, TESTED_ONLY.replace(unit=fb.privacy.Users(3))])
def test_claims(one):
    """The server's sum has the noise of all agents. Raw determinants void the claim."""
    certificate = one.certificate(ENV.spec, 200)
    assert certificate.claim == "certified"
    assert 0.99 <= certificate.epsilon_exact <= 1.0
    stds = one.bind(ENV.spec, 200).stds
    assert certificate.server_noise_std == pytest.approx(math.sqrt(6) * float(stds.max()), rel=1e-5)
    for trigger in ("he22", "zc24"):
        leaks = one.replace(schedule=S.LogDet(0.7, trigger)).certificate(ENV.spec, 200)
        assert (leaks.claim, leaks.epsilon_exact) == ("none", math.inf)
