"""Successive elimination has the limits and orderings of the paper."""

import dataclasses
from functools import cache

import jax
import numpy as np
import pytest
from four_arms import ARMS, PRIVATE, algorithm
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.privacy.integers.noise import Asked, PolyaNoise
from fedbandit_jax.privacy.integers.ring import RingSum

pytestmark = pytest.mark.slow  # runs to a horizon, which the oracle has at a smaller one by default


def test_nothing_fits(key):
    """Seven users, two for each of four arms in any order: all are served, nothing is sent, as the certificate says."""
    result = fb.simulate(ARMS, algorithm("Dist-DP-SE"), horizon=7, key=key, seeds=2)
    means = np.asarray(ARMS.means(ARMS.fixed))
    gaps = np.diff(result.regret, prepend=0)
    np.testing.assert_allclose(np.sort(gaps[:, ::2]), [np.sort(means.max() - means)] * 2, atol=1e-6)
    np.testing.assert_allclose(gaps[:, 1::2], gaps[:, :6:2], atol=1e-6)
    assert not any(curve.any() for curve in (*result.communication.values(), *result.counts.values()))
    assert result.certificate.claim == "certified"
    assert result.certificate.reason.startswith("nothing is released")


# Orderings of the paper, over paired instances: the same arms and users for every algorithm.

ALPHA = 1e-3


@cache
def regrets(name, epsilon, horizon=100_000, seeds=40):
    """Regret (n_seeds, N) of random instances of five arms."""
    env, algo = fb.envs.arms(n_arms=5), algorithm(name, epsilon)
    return fb.simulate(env, algo, horizon=horizon, key=jax.random.key(1), seeds=seeds, stride="log").regret


def smaller(a, b):
    """Is a < b on paired instances, by a sign test of those that differ?"""
    less, more = (a[:, -1] < b[:, -1]).sum(), (a[:, -1] > b[:, -1]).sum()
    return stats.binom.sf(less - 1, less + more, 0.5) < ALPHA


@pytest.mark.parametrize("name", PRIVATE)
def test_without_noise_it_is_se(name):
    """epsilon = 500: the regret of SE at every user, for all seeds but those where a mean is next to a threshold.

    DP-SE has epochs of its own, and is compared with itself.
    """
    own = name == "DP-SE"
    run = {} if own else dict(horizon=20_000, seeds=20)
    plain = regrets(name, 250.0) if own else regrets("SE", None, **run)
    close = [np.isclose(regrets(name, epsilon, **run), plain, rtol=1e-5).all(1).mean() for epsilon in (500.0, 0.1)]
    assert close[0] >= 0.9
    assert close[1] <= 0.1


@pytest.mark.parametrize("horizon", [10**5, 10**6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_orderings(horizon, epsilon):
    """Of the paper's Figure 4 and Section 7; what shuffling costs is seen at its size only."""
    names = ("LDP", "Dist-DP", "Dist-RDP", "Dist-CDP")
    ldp, pure, rdp, zcdp = (regrets(f"{name}-SE", epsilon, horizon=horizon) for name in names)
    for better in (pure, rdp, zcdp):
        assert smaller(better, ldp)
        assert smaller(regrets("SE", None, horizon=horizon), better)
    assert smaller(zcdp, rdp)
    assert smaller(rdp, pure)
    if horizon == 10**6:
        cdp, shuffle = (regrets(f"{name}-SE", epsilon, horizon=horizon) for name in ("CDP", "Shuffle-DP"))
        assert abs(pure[:, -1].mean() / cdp[:, -1].mean() - 1) < 0.1
        assert smaller(cdp, ldp)
        assert smaller(shuffle, ldp)
        assert smaller(pure, shuffle)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Printed(fb.algos.DistDPSE):
    """tau with p for every sum, as in Theorem 1."""

    def bind(self, spec, horizon):
        bound = super().bind(spec, horizon)
        asked = Asked(self.epsilon, 1.0, self.failure, horizon)
        narrow = RingSum.of(PolyaNoise, asked, bound.protocol.users.tolist())
        return dataclasses.replace(bound, protocol=narrow)


def test_the_printed_ring_loses_the_best_arm(key):
    """A mean near 0 wraps in 2.5 % of its sums at p = 0.1, and then seems large; Lemma 2 allows 3 p of runs."""
    env = fb.envs.arms(means=[0.05, *[0.0] * 9], rewards="bernoulli")
    ours = algorithm("Dist-DP-SE")
    printed = Printed(**{**dataclasses.asdict(ours), "name": "printed"})
    result = fb.sweep(env, [ours, printed], horizon=10**6, key=key, seeds=24, stride=10**5)
    lost = {label: np.diff(result[label].regret)[:, -1] > 0.99 * 0.05 * 10**5 for label in result}
    failures = {label: result[label].counts["decoding failures"][:, -1] for label in result}
    assert lost[ours.name].sum() == failures[ours.name].sum() == 0
    assert lost["printed"].mean() > 0.5
    assert failures["printed"].sum() > len(failures["printed"])
    wraps = [result.certificates[label].wrap_probability for label in (ours.name, "printed")]
    assert wraps[0] < 1e-4 < 0.02 < wraps[1] < 0.1  # read from the ring that ran
