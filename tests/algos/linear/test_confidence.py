"""The widths are valid: noise bounds and confidence sets cover as often as they promise."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.algos.policies import confidence as widths

D, S, STD = 6, 20, 30.0


def built(rule, n_agents, dim, stds, failure, subgaussian, theta_norm, scale, regularizer):
    of = fb.algos.UCB(failure=failure, subgaussian=subgaussian, theta_norm=theta_norm, exploration_scale=scale)
    return getattr(widths, rule)(of, regularizer, fb.NoiseLaw(n_agents, dim, stds))


def symmetric(rng, n):
    g = rng.standard_normal((n, D, D)) * STD
    return (g + np.swapaxes(g, 1, 2)) / 2


@pytest.mark.parametrize("regularizer", ["shift", "project"])
@pytest.mark.parametrize("confidence", ["theory", "known_noise"])
@pytest.mark.parametrize("n", [50, 2_000, 20_000])
@pytest.mark.parametrize("rank", [1, D])
def test_coverage(regularizer, confidence, n, rank):
    """||theta_hat - theta*||_V <= beta in at least 1 - 2.5 failure of 2,000 runs, of few rows or many, of any rank."""
    rng = np.random.default_rng(1)
    failure, runs, agents = 0.05, 2000, 10
    lam, width, *rule = built(confidence, agents, D, np.full(1, STD), failure, 0.5, 1.0, 1.0, regularizer)
    theta = np.zeros(D)
    theta[0] = 1.0
    rows = rng.standard_normal((64, D)) * (np.arange(D) < rank)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    gram = rows.T @ rows * n / 64
    eta = rng.multivariate_normal(np.zeros(D), 0.25 * gram, size=runs, check_valid="ignore")
    statistic = gram + symmetric(rng, runs)
    values, vectors = np.linalg.eigh(statistic)
    beta = float(width(np.float32(n / agents)))
    if rule:
        lam, found = jax.vmap(rule[0], (None, 0))(np.float32(STD), values.astype(np.float32))
        lam, beta = np.asarray(lam)[..., None, None], np.asarray(found(np.float32(n / agents)))
    if regularizer == "project":
        statistic = np.einsum("nik,nk,njk->nij", vectors, values.clip(0), vectors)
    v = lam * np.eye(D) + statistic
    bias = gram @ theta + eta + STD * rng.standard_normal((runs, D))
    definite = np.linalg.eigvalsh(v)[:, 0] > 0
    error = np.linalg.solve(v, bias[..., None])[..., 0] - theta
    distance = np.sqrt(np.einsum("ni,nij,nj->n", error, v, error).clip(0))
    assert (~definite | (distance > beta)).mean() <= 2.5 * failure
    if rule and n == 20_000 and rank == D:  # at least half as wide as need be, and 0.4 of the theory's width
        assert np.quantile(distance / beta, 0.99) > 0.5
        _, theory = built("theory", agents, D, np.full(1, STD), failure, 0.5, 1.0, 1.0, regularizer)
        assert np.mean(beta) < 0.4 * theory(np.float32(n / agents))


@dataclasses.dataclass(frozen=True)
class Quarter(fb.privacy.Statistic):
    """Ridge regression in units of a quarter, so that x x' may be scaled up."""

    max_weight, responses = 0.25, (0.0, 0.25)

    def contribution(self, x, y, seen):
        return 0.25, 0.25 * y


@pytest.mark.parametrize("gram_scale", [0.5, 1.0, 4.0])
def test_noise_on_the_bias(gram_scale):
    """The mechanism's noise stays within q_k and Sigma_n as often as promised, also if x x' has less of it than x y."""
    env = fb.envs.sphere(n_agents=3, n_arms=4, dim=D, rewards="bernoulli")
    privacy = fb.privacy.Mechanism(
        fb.privacy.Budget(1.0, 1e-6), "input_perturbation", statistic=Quarter(gram_scale=gram_scale)
    )
    bound = fb.algos.Federated(schedule=5, privacy=privacy).bind(env.spec, horizon=5)
    mechanism, runs = bound.mechanism, 20_000
    keys = jax.random.split(jax.random.key(0), runs)
    noise = jax.vmap(lambda key: mechanism.statistic.unpack(mechanism.trust.noise(key, mechanism.row_size)))(keys)
    noise, theta = np.asarray(noise), np.eye(D)[0]
    law = fb.NoiseLaw(3, D, np.float64(bound.stds[:1]), mechanism)
    policy = fb.algos.UCB(failure=0.2)
    _, _, rule = widths.known_noise(policy, "project", law)
    moved = np.linalg.norm(noise[..., -1] - noise[..., :-1] @ theta, axis=1)
    assert (moved > rule.vector * law.stds[0]).mean() <= policy.failure / 2
    lam, width = widths.theory(policy, "shift", law)
    cov, _ = widths.noise_bounds(law.stds[0], D, 1, policy.failure)
    of_bias = (float(width.offset) - math.sqrt(lam + cov)) * math.sqrt(lam - cov)  # Sigma_n
    assert (np.linalg.norm(noise[..., -1], axis=1) > of_bias).mean() <= policy.failure / 2


@pytest.mark.parametrize("regularizer", ["shift", "project"])
@pytest.mark.parametrize("std", [0.1, 5.0])
def test_constants_by_hand(regularizer, std):
    """linear.md's formulas (shift) and the module's derivation (project), written out again at M=7, d=4, S=9."""
    m, d, s, failure, r, norm = 7, 4, 9, 0.02, 0.5, 0.8
    lam, width = built("theory", m, d, np.full(s, std), failure, r, norm, 1.0, regularizer)
    tail = np.sqrt(2 * np.log(2 * s / failure))
    cov, bias = std * (np.sqrt(2 * d) + tail), std * (np.sqrt(d) + tail)
    t = 123.0
    if regularizer == "shift":
        expected = max(1, 2 * cov)
        low, high = expected - cov, expected + cov
        noise = r * np.sqrt(2 * np.log(1 / failure) + d * np.log(1 + m * t / (d * low)))
        beta = noise + norm * np.sqrt(high) + bias / np.sqrt(low)
    else:
        expected = max(1, cov)
        share = min(1, expected / (2 * cov))
        ridge = expected / share - cov
        noise = r / np.sqrt(share) * np.sqrt(2 * np.log(1 / failure) + d * np.log(1 + m * t / (d * ridge)))
        beta = noise + norm * np.sqrt(expected + 2 * cov) + bias / np.sqrt(expected)
    assert lam == pytest.approx(expected)
    assert float(width(np.float32(t))) == pytest.approx(beta, rel=1e-5)


@pytest.mark.parametrize("regularizer", ["shift", "project"])
def test_known_noise_by_hand(regularizer):
    """Bounds at all S = 9 releases together, and lambda and width before the first and after the fourth, by hand."""
    m, d, s, failure, r, norm = 7, 4, 9, 0.02, 0.5, 0.8
    stds = np.linspace(1.0, 3.0, s)
    first_lam, first, rule = built("known_noise", m, d, stds, failure, r, norm, 0.4, regularizer)
    weights = np.array([1 + norm**2, *[1 + norm**2 / 2] * (d - 1)])
    x = np.linspace(1e-6, 1 / (2 * weights.max()) * (1 - 1e-6), 400_000)[:, None]
    exponents = (np.log(2 * s / failure) - 0.5 * np.log(1 - 2 * x * weights).sum(1)) / x[:, 0]
    vector = np.sqrt(exponents.min()) * stds
    matrix = (np.sqrt(2 * d) + np.sqrt(2 * np.log(2 * s / failure))) * stds
    np.testing.assert_allclose(rule.vector * stds, vector, rtol=1e-5)
    np.testing.assert_allclose(rule.matrix * stds, matrix, rtol=1e-5)
    assert first_lam == pytest.approx((2 if regularizer == "shift" else 1) * matrix[-1])
    e, k, t = np.array([-2.0, 1.0, 30.0, 50.0]), 3, 123.0
    log = np.sqrt(2 * np.log(1 / failure) + d * np.log(1 + m * t / (d * matrix[-1])))
    assert float(first(np.float32(t))) == pytest.approx(0.4 * (norm * np.sqrt(first_lam) + r * log), rel=1e-5)
    lam, width = rule(np.float32(stds[k]), e.astype(np.float32))
    kept = e.clip(0) if regularizer == "project" else e
    expected = max(1, vector[k] / norm + 2.0) if regularizer == "project" else 2 * matrix[-1]  # kept[0] = 0, p_1 = 2
    v, ridge = expected + kept, matrix[-1]
    share = min(1, v[0] / (kept[0] + matrix[k] + ridge))
    offset = norm * ((expected + kept - e) / np.sqrt(v)).max() + vector[k] / np.sqrt(v[0])
    assert float(lam) == pytest.approx(expected, rel=1e-5)
    assert float(width(np.float32(t))) == pytest.approx(0.4 * (offset + r / np.sqrt(share) * log), rel=1e-5)


@pytest.mark.parametrize("spectral", ["theory", "quantile"])
def test_width_by_hand(spectral):
    """Proposition 2 with the noise of PRIVATIZER at M = 3, d = 4, T = 50, one silo's tree of 6 levels."""
    m, d, horizon, failure, budget = 3, 4, 50, 0.02, fb.privacy.Budget(2.0, 0.05)
    mechanism = fb.privacy.Mechanism(budget, release="tree", trust="silo_local_matrix", std="dubey2020")
    changes = dict(spectral=spectral, failure=failure, theta_norm=0.8, subgaussian=0.3)
    algo = fb.algos.fed_ucb(mechanism, schedule=fb.schedules.LogDet()).replace(**changes)
    policy = algo.bind(fb.envs.gap(m, 5, d).spec, horizon).policy
    levels = 1 + math.ceil(math.log2(horizon))
    assert levels == 7
    sigma = 8 * math.sqrt(levels) * math.log(2 / 0.05) / 2.0  # the printed sigma_N
    nodes = levels if spectral == "theory" else 5  # of 31 = 11111 and 47 = 101111 <= 50, the worst prefixes
    tail = failure / (2 * horizon * m)
    kappa = math.sqrt(nodes) * sigma * stats.chi(d).isf(tail / 2)  # on ||h||; over sqrt(Lambda), on its norm
    low = policy.rho[0]
    if spectral == "theory":
        logs = math.log(4 / 0.05) * (4 * math.sqrt(d) + 2 * math.log(1 / tail))
        assert low == pytest.approx(math.sqrt(32) * levels * 2 * logs / 2.0)
    assert policy.rho[1] == pytest.approx(3 * low)
    assert float(policy.first_regularization) == pytest.approx(m * low)
    assert float(policy.regularization) == pytest.approx(2 * m * low)
    log_det = d * math.log(m * low) + 1.7
    expected = 0.3 * math.sqrt(2 * math.log(2 / failure) + 1.7)
    expected += 0.8 * math.sqrt(m * 3 * low) + math.sqrt(m) * kappa / math.sqrt(low)
    assert float(policy.width._replace(log_det=np.float32(log_det))(0)) == pytest.approx(expected, rel=1e-5)
