"""Successive elimination has the limits and orderings of the paper."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, HORIZON, SOME, algorithm, lemma_2, play
from helpers import deep
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.core import wide


@pytest.mark.slow
@pytest.mark.parametrize("radius", deep(["theory", "exact"], keep={1}))
def test_gap_of_one(key, radius):
    """Sums are 0 and n: the worse arm is dropped by the first batch with 2 beta < 1, and costs nothing from then on."""
    env = fb.envs.arms(means=[0, 1], rewards="bernoulli")
    clock, regret, counters, _ = play(algorithm("SE", radius=radius), key, env)
    users = np.cumsum(clock.algo.users[:, 2])
    last = np.flatnonzero(clock.algo.radius[:, 2] < 0.5)[0]
    if radius == "theory":
        assert lemma_2(last + 1, 2.0 ** (last + 1), 2, 0, 0) < 0.5 <= lemma_2(last, 2.0**last, 2, 0, 0)
    assert regret[-1] == users[last]
    end = 2 * users[last]
    assert (regret[end - 1 :] == regret[-1]).all()
    assert counters["bits"][end - 1] == counters["bits"][-1] == 32 * end
    assert counters["eliminations"][end - 2 : end].tolist() == [0, 1]


@pytest.mark.slow
def test_one_arm_left(key):
    """With intervals of no width one arm is left soon: for ever, at no cost or at its gap, and nobody is asked."""
    env = fb.envs.arms(means=[0.4, 0.6], rewards="bernoulli")
    algo = algorithm("SE").bind(env.spec, HORIZON)
    algo = algo.replace(radius=np.zeros_like(algo.radius))
    survivors = set()
    for seed in range(8):
        _, regret, counters, states = play(algo, jax.random.fold_in(key, seed), env)
        (alone,) = np.flatnonzero(states[-1].active)
        end = np.argmax(counters["eliminations"])  # users before the last of the two
        np.testing.assert_allclose(np.diff(regret[end:]), 0.2 * (alone == 0), atol=1e-5)
        assert len(set(counters["bits"][end:])) == 1
        assert counters["bits"][-1] == 32 * (end + 1)
        survivors.add(int(alone))
    assert survivors == {0, 1}


@pytest.mark.slow
def test_nothing_fits(key):
    """Seven users, two for each of four arms: all are served, nothing is sent, and the certificate says so."""
    result = fb.simulate(ARMS, algorithm("Dist-DP-SE"), horizon=7, key=key, seeds=2)
    means = np.asarray(ARMS.means(ARMS.fixed))
    np.testing.assert_allclose(
        np.diff(result.regret, prepend=0), [(means.max() - means)[[0, 0, 1, 1, 2, 2, 3]]] * 2, atol=1e-6
    )
    assert not any(curve.any() for curve in (*result.communication.values(), *result.counts.values()))
    assert result.certificate.claim == "certified"
    assert result.certificate.reason.startswith("nothing is released: the horizon is reached before the first batch")


# What the paper reports, over paired instances: the same arms and users for every algorithm.

ALPHA = 1e-3


@cache
def regrets(name, epsilon, radius="theory", horizon=100_000, n_arms=5, seeds=40):
    """Regret (n_seeds, N) of random instances."""
    env, algo = fb.envs.arms(n_arms=n_arms), algorithm(name, epsilon, radius=radius)
    return fb.simulate(env, algo, horizon=horizon, key=jax.random.key(1), seeds=seeds, stride="log").regret


def smaller(a, b):
    """Is a < b on paired instances, by a sign test of those that differ?"""
    less, more = (a[:, -1] < b[:, -1]).sum(), (a[:, -1] > b[:, -1]).sum()
    return stats.binom.sf(less - 1, less + more, 0.5) < ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_without_noise_it_is_se(name):
    """epsilon = 500: the regret of SE at every user, for all seeds but those where a mean is next to a threshold."""
    short = dict(horizon=20_000, seeds=20)
    plain = regrets("SE", None, **short)
    runs = (regrets(name, epsilon, **short) for epsilon in (500.0, 0.1))
    equal, differ = (np.isclose(run, plain, rtol=1e-5).all(1).mean() for run in runs)
    assert equal >= 0.9
    assert differ <= 0.1


@pytest.mark.slow
def test_without_noise_dp_se_does_not_depend_on_epsilon():
    quiet, quieter, noisy = (regrets("DP-SE", epsilon) for epsilon in (250.0, 500.0, 0.1))
    assert np.isclose(quiet, quieter, rtol=1e-5).all(1).mean() >= 0.9
    assert np.isclose(noisy, quieter, rtol=1e-5).all(1).mean() <= 0.1


def orderings(**options):
    """Of the paper's Figure 4 and Section 7."""
    for epsilon in (0.1, 1.0):
        ldp, pure, rdp, zcdp = (
            regrets(f"{name}-SE", epsilon, **options) for name in ("LDP", "Dist-DP", "Dist-RDP", "Dist-CDP")
        )
        for better in (pure, rdp, zcdp):
            assert smaller(better, ldp)
            assert smaller(regrets("SE", None, **options), better)
        assert smaller(zcdp, rdp)
        assert smaller(rdp, pure)


@pytest.mark.slow
def test_orderings():
    orderings()


@pytest.mark.slow
@pytest.mark.parametrize("n_arms", [5, 10])
def test_orderings_at_the_paper_s_size(n_arms):
    options = dict(horizon=10**6, n_arms=n_arms)
    orderings(**options)
    for epsilon in (0.1, 1.0):
        ldp, pure, cdp, shuffle = (
            regrets(f"{name}-SE", epsilon, **options) for name in ("LDP", "Dist-DP", "CDP", "Shuffle-DP")
        )
        assert abs(pure[:, -1].mean() / cdp[:, -1].mean() - 1) < 0.1
        assert smaller(cdp, ldp)
        assert smaller(shuffle, ldp)
        assert smaller(pure, shuffle)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SE", *SOME])
def test_exact_radii_cost_less(name):
    for epsilon in {"SE": [None], "LDP-SE": [1.0]}.get(name, [0.1, 1.0]):  # of LDP-SE no arm is dropped at 0.1
        assert smaller(regrets(name, epsilon, "exact"), regrets(name, epsilon))


@jax.jit
def decoded_sums(protocol, keys, collected):
    """(S, n_runs) of all batches."""
    return jax.vmap(lambda key, k, sums: protocol.decode(key, k, sums).sums)(keys, jnp.arange(len(keys)), collected)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_intervals_hold(key, name):
    """Fair coins for rewards: the interval of an arm and batch misses the mean no more often than its part of 3 p."""
    n_runs, n_arms, p = 2000, 4, 0.3
    missed = {}
    for radius in ("theory", "exact"):
        bound = algorithm(name, 0.3, radius=radius, failure=p).bind(fb.envs.arms(n_arms=n_arms).spec, 50_000)
        asked = 2 * np.cumsum(bound.users[:, 2]) <= 50_000
        sizes, steps = bound.users[asked, 2][:, None], bound.protocol.steps[asked].astype(int)[:, None]
        heads = np.random.default_rng(0).binomial(sizes, 0.5, (len(sizes), n_runs)) * steps
        collected = wide.Wide(*((heads >> shift).astype(np.uint32) for shift in (32, 0)))
        sums = np.asarray(decoded_sums(bound.protocol, jax.random.split(key, len(sizes)), collected))
        missed[radius] = np.abs(sums / sizes - 0.5) > bound.radius[asked, n_arms, None]
        stated = 3 * p * 6 / (np.pi * np.arange(1, len(sizes) + 1)) ** 2 / n_arms
        assert (stats.binom.sf(missed[radius].sum(1) - 1, n_runs, stated) > ALPHA / len(sizes)).all()
    assert missed["exact"][0].mean() > stated[0] / 20  # not needlessly wide, though Hoeffding's bound is not attained
    assert missed["exact"].sum() > missed["theory"].sum()
