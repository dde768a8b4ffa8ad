"""What missing tails cost, against the exact trade-off of noise that is cut, and the claims that are left."""

import math
import re

import numpy as np
import pytest
from helpers import refused
from scipy import integrate, stats

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.samplers import GAUSSIAN_CUT, LAPLACE_CUT
from fedbandit_jax.privacy.tails import CUT

ENV = fb.envs.sphere(4, 5, 3, rewards="bernoulli")
ARMS = fb.envs.arms(n_arms=4, instance="easy")


def delta_of_cut_noise(epsilon, mu, reach):
    """The least delta of N(0, 1) without its tails beyond `reach`, between a sum and the same sum moved by mu."""
    kept = stats.norm.cdf(reach) - stats.norm.cdf(-reach)

    def density(x):
        return stats.norm.pdf(x) / kept if abs(x) <= reach else 0.0

    def excess(x):
        return max(0.0, density(x) - math.exp(epsilon) * density(x + mu))

    points = sorted({-reach, reach - mu, min(reach, max(-reach, -epsilon / mu - mu / 2))})
    return integrate.quad(excess, -reach, reach, points=points, limit=500)[0]


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 1.0), (2.0, 4.0)])
@pytest.mark.parametrize("reach", [2.5, 4.0])
def test_cut_gaussian(mu, epsilon, reach):
    """Charging the missing mass covers the truth, and without it the ideal law's delta is refuted where tails count."""
    missing = 2 * stats.norm.sf(reach)
    ideal = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    truth = delta_of_cut_noise(epsilon, mu, reach)
    assert truth <= ideal + tails.smallest_delta(epsilon, missing)
    if (mu, epsilon, reach) == (2.0, 4.0, 2.5):
        assert truth > 1.02 * ideal


def test_epsilon_is_charged_at_what_is_given():
    """delta(epsilon) + (1 + e^epsilon) missing = delta, solved by hand on a grid; asked for less, given more."""
    mu, delta, missing = 2.0, 1e-4, 1e-9
    grid = np.linspace(0, 12, 1_200_001)
    given = stats.norm.cdf(mu / 2 - grid / mu) - np.exp(grid) * stats.norm.cdf(-mu / 2 - grid / mu)
    right = grid[np.argmax(given + (1 + np.exp(grid)) * missing <= delta)]

    def at(delta):
        return gaussian_epsilon(mu, delta)

    assert tails.epsilon(at, delta, 0.0, missing) == pytest.approx(right, abs=2e-5)
    assert right - at(delta) > 1e-3
    more = tails.epsilon(at, delta, 9.0, missing)  # all that was asked for is charged, and proved
    assert at(delta) < right < more < 9
    assert tails.epsilon(at, 1e-9, 1.0, 1e-9) == math.inf
    assert tails.epsilon(at, delta, 0.0, 0.0) == at(delta)


def tiny(value):
    """Approximately; whatever is smaller than 1e-12 would be by default."""
    return pytest.approx(value, rel=1e-6, abs=0)


def certificate(epsilon=1.0, delta=0.1, **options):
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(epsilon, delta), **options)
    return fb.algos.private_fed_lin_ucb(mechanism).certificate(ENV.spec, 200)


def test_smallest_delta_of_sums():
    """By hand: S = 8 releases of D = 9 numbers, r visits; a trust model that counts all silos' noise; tests."""
    silo, central = certificate(), certificate(trust="central", unit=fb.privacy.Users(3))
    assert silo.smallest_delta == tiny((1 + math.e) * 8 * 9 * CUT)
    assert central.smallest_delta == tiny((1 + math.e) * 3 * 8 * 9 * CUT)
    assert certificate(trust="secagg").smallest_delta == tiny((1 + math.e) * 4 * 8 * 9 * GAUSSIAN_CUT)
    adaptive = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1)).replace(
        schedule=fb.schedules.PrivateLogDet(max_syncs=3)
    )
    found = adaptive.certificate(ENV.spec, 200)
    assert found.smallest_delta == tiny((1 + math.e) * (3 * 9 * CUT + 2.0**32 * LAPLACE_CUT))
    assert f"delta is at least {silo.smallest_delta:.6g}" in str(silo)
    assert silo.claim == central.claim == found.claim == "certified"


def test_smallest_delta_of_rewards():
    """By hand: one discrete Laplace variable in a user's sum, pure DP included; one share of every user."""
    for kind in (fb.algos.CDPSE, fb.algos.LDPSE, fb.algos.DistDPSE):
        found = kind(0.5).certificate(ARMS.spec, 1000)
        assert found.smallest_delta == tiny((1 + math.exp(found.epsilon_exact)) * LAPLACE_CUT)
        assert found.claim == "certified"
        said = dict(found.lines())
        assert said["noise gives"] == "epsilon = 0.5 at delta = 0 apart from the tails"
        assert said["tails"] == f"noise lacks far tails, so delta is in truth {found.smallest_delta:.6g}"
    gaussian = fb.algos.DistCDPSE(0.5)
    bound = gaussian.bind(ARMS.spec, 1000)
    one, shares = certify(bound), certify(fb.audits.by_message(bound))
    users = fb.algos.SE().bind(ARMS.spec, 1000).protocol.users.max()
    assert one.smallest_delta == tiny((1 + math.exp(one.epsilon_exact)) * GAUSSIAN_CUT)
    assert shares.smallest_delta == pytest.approx(users * one.smallest_delta, rel=0.1, abs=0)


def test_what_the_tails_do_not_support():
    """A delta that no epsilon gives is refused; a large epsilon runs, and nothing is claimed."""
    arms = fb.algos.CDPSE(0.5)
    tree = dict(n_syncs=8, dim=3)
    fb.privacy.calibrate(fb.privacy.Budget(1.0, 1e-30), **tree)
    with refused("delta", 8e-37):
        fb.privacy.calibrate(fb.privacy.Budget(1.0, 8e-37), **tree)
    with refused("delta", 1e-26):
        arms.replace(delta=1e-26).certificate(ARMS.spec, 1000)
    assert certificate(70.0).claim == "certified"
    for trust in ("silo_local", "secagg", "shuffle_vector_sum", "central"):
        large = certificate(90.0, trust=trust)
        assert (large.claim, large.epsilon_exact) == ("none", math.inf)
        assert "far tails" in large.reason
    budget, silos = fb.privacy.Budget(1e6, 1e-5), fb.envs.sphere(100, 3, 10).spec
    for trust in ("silo_local", "secagg", "shuffle_vector_sum", "central"):  # the grid has room for noise so small
        algo = fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(budget, trust=trust), schedule=25)
        assert algo.certificate(silos, 10_000).claim == "none"
    for kind in (fb.algos.DistRDPSE, fb.algos.DistCDPSE):  # a large epsilon at delta = 1e-6, and so are its tails
        algo = kind(10.0)
        renyi = algo.certificate(ARMS.spec, 1000)
        assert (renyi.claim, renyi.epsilon_exact, renyi.smallest_delta) == ("none", math.inf, 1)
        (needed,) = re.findall(r"at epsilon = ([\d.]+) it gives no delta", renyi.reason)
        assert 98 < float(needed) < 120  # not 10: 98 for a Gaussian, and more by Renyi orders
        assert algo.replace(epsilon=5.0).certificate(ARMS.spec, 1000).claim == "certified"
    assert "far tails" in arms.replace(epsilon=60.0).certificate(ARMS.spec, 1000).reason
    assert arms.replace(epsilon=40.0).certificate(ARMS.spec, 1000).claim == "certified"
    bound = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1)).bind(ENV.spec, 200)
    assert "no delta below 1.57e-36" in bound.replace(delta=1e-36).guarantee().reason
