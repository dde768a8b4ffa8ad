"""What the papers' lemmas and theorems say that does not hold, each by a counterexample (docs/reproduction)."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.accounting.lattice import DiscreteLaplace, shift_epsilon
from fedbandit_jax.privacy.accounting.shuffling import shuffled_epsilon, shuffled_sigma

DIM_ONE = np.cumsum(np.ones(1000))  # U_t - U_0 of d = 1, x_t = 1


@pytest.mark.parametrize(("nu", "holds"), [(1.5, True), (math.e, True), (4.0, True), (4.01, False), (1000.0, False)])
def test_dubey2020_lemma_2_holds_up_to_nu_4(nu, holds):
    """sum |x_t|^2 in the norm of U_(t-1)^-1 <= 2 d log_nu(...) holds term by term up to nu = 4, and beyond it fails."""
    terms = np.linspace(0, 1, 1001)
    bounds = 2 * np.log1p(terms) / math.log(nu)
    assert (terms <= bounds + 1e-12).all() == holds
    left, right = (1 / DIM_ONE).sum(), 2 * math.log(1 + len(DIM_ONE)) / math.log(nu)  # U_(t-1) = t
    assert left <= right or nu > 6
    ratio = 100.0 * nu  # L^2 / U_0
    assert ratio > 2 * math.log1p(ratio) / math.log(nu)


def test_dubey2020_theorem_3_bounds_a_sum_of_norms_by_that_of_squares():
    """Its proof bounds a sum of norms, 2 sqrt(n) here, by Lemma 2, which is about the sum of squares, ln n here."""
    norms, squares = (1 / np.sqrt(DIM_ONE)).sum(), (1 / DIM_ONE).sum()
    lemma = 2 * math.log(1 + len(DIM_ONE))
    assert squares <= lemma < norms / 4


def test_dubey2020_corollary_1_does_not_follow_from_theorem_1():
    """The theorem's sqrt(M T d) (ln + S sqrt(M rho_max) + kappa sqrt M) grows as M sqrt T, eq. (10) as sqrt(M T)."""

    def per_agent(m, terms=1.0, horizon=1e6, dim=10, rho_max=1e3, kappa=10.0):
        log = math.log(3 + horizon / (dim * rho_max / 3))
        return math.sqrt(m * horizon * dim) * (log + terms * (math.sqrt(m * rho_max) + kappa * math.sqrt(m))) / m

    assert per_agent(10_000) / per_agent(100) > 0.9  # hardly falls
    assert per_agent(10_000, terms=0) / per_agent(100, terms=0) == pytest.approx(0.1)


def delta_of(mu, epsilon):
    """The delta at epsilon of a Gaussian mechanism with sensitivity mu sigma (Balle & Wang, 2018, Theorem 8)."""
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(
    ("epsilon", "delta", "n", "exact", "classical"),
    [(0.1, 1e-6, 10, 15.55, 0.0032), (0.5, 1e-5, 2, 2.55, 0.0041), (0.01, 1e-8, 100, 163, 0.0021)],
)
def test_zhou2024_lemma_f2_takes_n_points_for_n_times_one(epsilon, delta, n, exact, classical):
    """n points cost n epsilon at an equal delta with its footnote 7's classical noise, and more with exact noise."""
    low, high = 1e-9, 10.0
    for _ in range(200):  # the mu of a mechanism that is (epsilon, delta)-DP for one point
        mu = (low + high) / 2
        low, high = (low, mu) if gaussian_epsilon(mu, delta) > epsilon else (mu, high)
    mu = low
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon)
    assert delta_of(n * mu, n * epsilon) / delta == pytest.approx(exact, rel=0.02)
    assert gaussian_epsilon(n * mu, delta) > 1.02 * n * epsilon
    printed = epsilon / math.sqrt(2 * math.log(1.25 / delta))
    assert delta_of(n * printed, n * epsilon) / delta == pytest.approx(classical, rel=0.05)


def test_zhou2024_theorem_5_3_asks_for_epsilon_below_3e_5_if_c1_is_1():
    """Its epsilon <= sqrt(kappa) / (C1 T sqrt M) leaves C1 open, at the size of Figure 2 (a)."""
    horizon, batch, agents = 10_000, 25, 100
    kappa = 1 + math.log2(horizon / batch)
    assert math.sqrt(kappa) / (horizon * math.sqrt(agents)) == pytest.approx(3.1e-5, rel=0.01)


def test_zhou2024_lemma_f2_has_noise_for_1e_4_and_no_less_above_6e_4():
    """By Lemma F.2 with e_n noise falls up to epsilon = 5.7 10^-4 and not beyond, at the size of Figure 2 (a)."""
    case: Any = dict(delta=1e-4, sensitivity=math.sqrt(4.5), n_agents=100, points=[25 * 2**level for level in range(9)])
    variance = {epsilon: shuffled_sigma(epsilon=epsilon, **case) ** 2 for epsilon in (1e-4, 5e-4, 6e-4, 1e-3)}
    assert variance[1e-4] == pytest.approx(1.22e11, rel=0.01)
    assert variance[5e-4] > variance[6e-4] == pytest.approx(variance[1e-3]) == pytest.approx(8.85e9, rel=0.01)
    assert shuffled_epsilon(sigma=variance[1e-3] ** 0.5, **case) == pytest.approx(5.7e-4, rel=0.01)
    for epsilon, times in ((1e-4, 395), (1e-3, 249)):  # without any shuffler; a user is in 9 nodes
        alone = 9 * 4.5 / gaussian_mu(epsilon, 1e-4) ** 2
        assert variance[epsilon] / alone == pytest.approx(times, rel=0.01)
    alone = 9 * 4.5 / gaussian_mu(1e-4, 1e-4) ** 2  # shuffling helps from about 10^7 silos on
    shares = [shuffled_sigma(epsilon=1e-4, **(case | {"n_agents": m})) ** 2 / alone for m in (10**6, 10**7)]
    assert shares == pytest.approx([1.57, 0.80], rel=0.01)


@pytest.mark.parametrize(
    ("delta", "enough"), [(0.1, True), (1e-6, True), (1e-35, True), (1e-36, False), (1e-60, False)]
)
def test_zhou2024_theorem_5_1_takes_1_for_the_move_of_a_replaced_user(delta, enough):
    """Replacing a user moves two streams by sqrt(4.5), not 1; the proof's slack pays for it, unless delta is tiny."""

    def worth(epsilon):
        mu = math.sqrt(4.5 * epsilon**2 / (8 * (math.log(2 / delta) + epsilon)))
        return gaussian_epsilon(mu, delta)

    assert all(worth(epsilon) <= epsilon for epsilon in np.logspace(-3, 3, 200)) == enough


def test_dubey2020_noise_is_worth_less_than_it_claims():
    """Its noise is 11 to 13 times what is needed: a move is worth half of its squared Frobenius norm, at most 4."""
    # (G + G') / sqrt 2 in a node: off the diagonal of variance 16 m (L^2 + 1)^2 ln^2(2/delta) / epsilon^2, on it twice.
    rng = np.random.default_rng(0)
    users = rng.standard_normal((2, 20_000, 2))
    users /= np.linalg.norm(users, axis=2, keepdims=True)
    z, w = np.concatenate([users, rng.integers(0, 2, (2, 20_000, 1))], 2)
    moves = ((z[:, :, None] * z[:, None] - w[:, :, None] * w[:, None]) ** 2).sum((1, 2)) / 2
    assert 3.99 < moves.max() < 4 + 1e-9
    worth = {}
    for epsilon, delta in ((1, 0.1), (1, 1e-5), (5, 1e-5)):
        mu = math.sqrt(4.0) * epsilon / (8 * math.log(2 / delta))
        worth[epsilon, delta] = 0.0 if 2 * stats.norm.cdf(mu / 2) - 1 <= delta else gaussian_epsilon(mu, delta)
    assert worth[1, 0.1] == 0.0
    assert worth[1, 1e-5] == pytest.approx(0.0602, abs=1e-4)
    assert worth[5, 1e-5] == pytest.approx(0.350, abs=1e-3)


@pytest.mark.parametrize(
    ("scale", "horizon", "xi", "promised"),
    [(1.0, 10**6, 0.0139, 0.114), (1.0, 10**8, 1.338, 0.824), (1.5, 10**8, 2.3e-9, 0.1), (2.0, 10**8, 7.2e-17, 0.1)],
)
def test_chowdhury2023_theorem_4_promises_less_and_less_at_scale_1(scale, horizon, xi, promised):
    """xi = 10 sum exp(-2 pi^2 s^2 k / (k + 1)) over k < T / 2 grows with T: at s = 1 epsilon is 0.82 for 0.1 asked."""
    exponent, k = 2 * np.pi**2 * scale**2, np.arange(1.0, 10**5)
    later = horizon / 2 - len(k)  # of which each is its limit, up to a factor exp(10^-3)
    found = 10 * (np.exp(-exponent * k / (k + 1)).sum() + later * np.exp(-exponent))
    assert found == pytest.approx(xi, rel=0.02)
    assert min(math.sqrt(0.1**2 + found / 2), 0.1 + found) == pytest.approx(promised, abs=1e-3)


@pytest.mark.parametrize(("delta", "enough"), [(0.1, 0.292), (1e-2, 0.119), (1e-3, 0.1019), (1e-6, 0.1)])
def test_chowdhury2023_section_5_compares_with_pure_noise_that_asks_more(delta, enough):
    """At (0.1, delta)-DP Theorem 1 may have a third of its noise at delta = 0.1, and hardly less from 10^-3 on."""
    epsilon = math.log((math.exp(0.1) + delta) / (1 - delta))
    assert epsilon == pytest.approx(enough, abs=5e-4)
    found = [shift_epsilon(DiscreteLaplace(g / epsilon), g, delta) for g in (1, 2, 3, 10, 100)]
    assert found[0] == pytest.approx(0.1, abs=1e-6)
    assert max(found) <= 0.1 + 1e-6


def test_dubey2020_width_alone_is_worse_than_an_arm_at_random():
    """Before the first synchronisation width decides alone, and the best arm of Section 4.4 has the smallest."""
    env, rounds = fb.envs.gap(1, 10, 10, gap=0.05), 1_500

    @jax.jit
    def drawn(key):
        world = env.init(key)
        offered = jax.vmap(lambda key: env.observe(key, world, 0)[0].contexts[0])(jax.random.split(key, rounds))
        return offered, world.theta

    arms, theta = (np.asarray(found, float) for found in drawn(jax.random.key(0)))
    inverse, lost, best = np.eye(10) / 500, [], []
    for offered in arms:
        arm = int(np.einsum("ka,ab,kb->k", offered, inverse, offered).argmax())
        means, moved = offered @ theta, inverse @ offered[arm]
        inverse -= np.outer(moved, moved) / (1 + offered[arm] @ moved)
        lost.append(means.max() - means[arm])
        best.append(arm == means.argmax())
    at_random = (arms @ theta).max(1).mean() - (arms @ theta).mean()
    assert np.mean(lost) - 4 * np.std(lost) / np.sqrt(rounds) > 1.1 * at_random
    assert np.mean(best) < 0.02  # an arm at random is the best in a tenth of rounds
