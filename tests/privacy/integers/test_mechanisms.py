"""Parameters are those of the theorems, and certificates state what the noise proves."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from four_arms import PRIVATE, RINGS, VARIANTS, algorithm

import fedbandit_jax as fb
from fedbandit_jax.core import wide
from fedbandit_jax.privacy.accounting.lattice import DiscreteGaussian, shift_epsilon
from fedbandit_jax.privacy.accounting.visits import PureDP, returning
from fedbandit_jax.privacy.integers.noise import (
    Asked,
    GaussianNoise,
    LocalNoise,
    PolyaNoise,
    ServerNoise,
    ShuffledNoise,
    SkellamNoise,
    SumProof,
    with_bits,
)
from fedbandit_jax.privacy.integers.proof import of_visits
from fedbandit_jax.privacy.integers.ring import RingSum

ROOT, KINDS = math.sqrt(2), tuple(VARIANTS[name].law for name in RINGS)
BY_HAND = {  # g, tau, m, bits, s, h of n = 64 at epsilon = 1/2, s = 10, p = 0.1, T = 10^6; ln 20 = 2.995732
    PolyaNoise: (4, 24, 305, 9, 2 * ROOT, 2),  # 4, 8 ln 20 = 23.97
    ServerNoise: (4, 24, 305, 9, 2 * ROOT, 2),
    LocalNoise: (4, 246, 749, 10, 32 + 2 * ROOT, 2),  # 8 (2 sqrt(64 ln 20) + ln 20) = 245.5
    ShuffledNoise: (2, 122, 373, None, 4 * ROOT, 4),  # of epsilon / 2 and p = 1 / 2T: 8 ln(4 10^6) = 121.6
    SkellamNoise: (40, 282, 3125, 12, 4 + ROOT / 5, ROOT / 40),  # 160 sqrt(ln 20) + sqrt 2 ln 20 = 281.2
    GaussianNoise: (40, 196, 2953, 12, 2.2 * ROOT, 0),  # 80 sqrt(2 ln 20) = 195.8
}


class Made(NamedTuple):
    """Noise of a kind, for what is asked."""

    kind: type
    asked: Asked

    def of(self, n):
        """Its parameters for a batch of n users."""
        return self.kind.parameters(self.asked, n)

    def noise(self, users):
        return self.kind.made(self.asked, users)

    def sums(self, users):
        return RingSum.of(self.kind, self.asked, users)

    def law(self, n):
        """Of the noise that runs for a batch of n users."""
        return self.noise([n]).law(0, n)

    def proof(self, n):
        """What the protocol that runs proves of a batch of n users."""
        return self.sums([n]).proof(0)

    def sent(self, n):
        """Bits of a user."""
        return self.noise([n]).bits(n, self.of(n).modulus)


def made(kind, epsilon=0.5, scale=10.0, failure=0.1, horizon=10**6):
    return Made(kind, Asked(epsilon, scale, failure, horizon))


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_by_hand(kind):
    """And the constants of the paper's radius, which pay for encoding by sqrt 2 / epsilon."""
    mechanism, (g, tau, m, bits, s, h) = made(kind), BY_HAND[kind]
    one = mechanism.of(64)
    assert (one.steps, one.slack, one.modulus) == (g, tau, m)
    assert bits is None or mechanism.sent(64) == bits
    assert mechanism.of(50).steps == math.ceil(g / 8 * math.sqrt(50))
    variance = 2 / (4 * math.sinh(1 / 16) ** 2)  # of discrete Laplace of scale 8: 2 beta / (1 - beta)^2
    expected = {LocalNoise: 64 * variance, SkellamNoise: 6400.0, GaussianNoise: 6400.0}.get(kind, variance)
    assert mechanism.law(64).variance == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose([one.s, one.h], [s, h], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_the_parameters(kind):
    """The certified numbers run: batch k's row belongs to its number of users."""
    mechanism, users = made(kind), [2, 64, 50, 2**29]
    protocol, rows = mechanism.sums(users), [mechanism.of(n) for n in users]
    steps = np.array([row.steps for row in rows])
    assert wide.to_int(protocol.modulus).tolist() == [row.modulus for row in rows]
    assert wide.to_int(protocol.largest).tolist() == [n * row.steps + row.slack for n, row in zip(users, rows)]
    np.testing.assert_array_equal(protocol.steps, steps)
    np.testing.assert_allclose(protocol.bits, [float(mechanism.sent(n)) for n in users], rtol=1e-7)
    np.testing.assert_array_equal(protocol.users, users)
    widths, size = [protocol.noise.width(k) for k in range(4)], steps / (0.25 if kind is ShuffledNoise else 0.5)
    np.testing.assert_allclose(protocol.noise.size, size**2 if kind is SkellamNoise else size, rtol=1e-6)
    np.testing.assert_allclose(widths, size, rtol=1e-6)
    assert (widths >= size).all()  # float32 rounds up: never less noise than asked for


@pytest.mark.parametrize("kind", KINDS)
def test_tails_are_within_their_bounds(kind):
    """Exact tails: beyond tau as often as stated, and at every p within s and h, less the share of rounding."""
    for epsilon, n in itertools.product((0.01, 0.3, 5.0), (2, 16, 300, 2**12, 2**20)):
        for failure in (0.1, 1e-6):
            mechanism = made(kind, epsilon, 1.0, failure)
            assert 2 * float(mechanism.law(n).tail(mechanism.of(n).slack)) <= mechanism.of(n).wrapping
        mechanism = made(kind, epsilon, 3.0)
        one = mechanism.of(n)
        for log in np.log([4, 20, 2e3, 2e8]):  # of 2 / p
            noise = one.s * math.sqrt(log) + one.h * log - math.sqrt(n * log / 2) / one.steps  # Hoeffding, two-sided
            assert mechanism.law(n).tail(noise * one.steps) <= math.exp(-log)


SIZES = [2**b for b in range(1, 30)] + [3, 50, 1000]


@pytest.mark.parametrize("kind", [PolyaNoise, ServerNoise, LocalNoise, ShuffledNoise])
def test_pure_epsilon_is_never_above_what_was_asked(kind):
    for epsilon in (1e-3, 1.0, 10.0):
        mechanism = made(kind, epsilon)
        sums = mechanism.sums(SIZES)
        proofs = [sums.proof(k) for k in range(len(SIZES))]
        given, half = np.array([found.pure for found in proofs]), epsilon / 2 if kind is ShuffledNoise else 0
        assert (given <= epsilon * (1 + 1e-12)).all()
        assert given.max() > 0.99 * epsilon  # and it is used
        assert (given >= half).all()
        assert ([mechanism.of(n).steps for n in SIZES] >= (epsilon - half) * np.sqrt(SIZES)).all()


def test_skellam_and_gaussian_by_hand():
    """Lemma 3 and Lemma 4 at n = 64: D = 40, v = 6400 and sigma = 10."""
    two = 2 * 1600 / 12800 + min((3 * 1600 + 240) / (4 * 6400**2), 120 / 12800)
    assert made(SkellamNoise).proof(64).renyi(2.0) == pytest.approx(two, rel=1e-7)
    privacy = made(GaussianNoise).proof(64).zcdp  # (rho, xi, ...)
    xi = 10 * sum(math.exp(-2 * math.pi**2 * 100 * k / (k + 1)) for k in range(1, 64))
    assert privacy[:2] == pytest.approx((0.125, xi), rel=1e-6)
    rough = made(GaussianNoise, scale=1.0, epsilon=1.0).proof(4).zcdp  # sigma = 1
    xi = 10 * sum(math.exp(-2 * math.pi**2 * k / (k + 1)) for k in range(1, 4))
    assert rough[:2] == pytest.approx((min(1 + xi / 2, (1 + xi) ** 2) / 2, xi), rel=1e-9, abs=0)


def certificate(label, horizon=10**6, **options):
    return algorithm(label, **options).certificate(fb.envs.arms().spec, horizon)


@pytest.mark.parametrize("label", PRIVATE)
def test_certificates(label):
    found, kind = certificate(label), getattr(VARIANTS[label], "law", None)
    assert (found.claim, found.epsilon, found.releases_per_user) == ("certified", 1.0, 1.0)
    assert found.adjacency.startswith("replace")
    orders, bounds = zip(*found.renyi)
    assert orders == (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    visits, deltas, *_ = zip(*found.visits)
    assert (visits, deltas) == ((10, 100), (1e-6, 1e-6))
    if found.notion == "pure DP":
        assert found.delta == 0
        assert 0.999 < found.epsilon_exact <= 1.0 + 1e-12
        assert max(bounds) <= found.epsilon_exact
    if label == "DP-SE":
        assert found.noise_std == pytest.approx(ROOT, rel=1e-8)  # less by 1 / (24 g^2) on the grid
        return
    sums = 10 * 19  # of ten arms; 2 + ... + 2^19 users reach the horizon
    mechanism, sizes = made(kind, 1.0, failure=0.1 / (100 * sums)), [2**b for b in range(1, 18)]
    assert found.notion == kind.notion
    assert found.releases == len(sizes)  # of two arms' 2 + ... + 2^18 users the last do not come
    assert found.bits_per_user == pytest.approx((mechanism.sent(2), mechanism.sent(2**17)), rel=1e-7)
    lost = 0.5e-6 if kind is ShuffledNoise else 0.0
    tails = [2 * float(mechanism.law(n).tail(mechanism.of(n).slack)) for n in sizes]
    assert found.wrap_probability == pytest.approx(max(tails) + lost, rel=1e-3, abs=0)
    std = max(math.sqrt(mechanism.law(n).variance) / mechanism.of(n).steps for n in sizes)
    assert found.server_noise_std == pytest.approx(std)
    whose = {LocalNoise: ROOT, ShuffledNoise: 2 * ROOT}.get(kind, found.noise_std)
    assert found.noise_std == pytest.approx(whose, rel=0.1)
    assert (found.zcdp is not None) == (kind is GaussianNoise)
    if kind is SkellamNoise:  # at n = 2 the third term is largest
        assert bounds[0] == pytest.approx(max(mechanism.proof(n).renyi(2.0) for n in sizes))
        assert 1 < bounds[0] < 1.02
    if kind is GaussianNoise:
        assert found.zcdp[0] == pytest.approx(0.5, rel=1e-6)
        assert bounds == pytest.approx([order / 2 for order in orders], rel=1e-6)
    if kind in (SkellamNoise, GaussianNoise):
        assert found.delta == 1e-6
        assert 4.3 < found.epsilon_exact < 5.0  # of a Gaussian of that size 4.38 (mu = 1)


def test_sums_of_discrete_gaussians_cost_twice_their_distance():
    """Both neighbours may be e^xi off one discrete Gaussian: xi = 10 e^(-2 pi^2 sigma^2 / 2) for two users."""
    share = 0.9
    xi = 10 * math.exp(-((math.pi * share) ** 2))
    noise, one = GaussianNoise(size=np.array([share * ROOT], np.float32)), DiscreteGaussian(share * ROOT)
    for delta in (1e-2, 1e-4):
        found = noise.proof(0, 2, 1, 9).at(delta)
        assert found == pytest.approx(2 * xi + shift_epsilon(one, 1, delta * math.exp(-xi)), rel=1e-5)


def test_tails_of_all_visits_are_charged():
    """(1 + e^epsilon) n times what one sum lacks; epsilon solves its own equation."""
    event, missing, at = PureDP(0.01), 1e-9, 1e-6
    for n in (10, 100):
        proved = of_visits([event], n, at, missing)[2]
        left = at - (1 + math.exp(proved)) * n * missing
        assert proved == pytest.approx(returning(event, left, n)[0], rel=1e-5)
        assert proved > (1 + 1e-4) * returning(event, at - (1 + math.exp(proved)) * missing, n)[0]


def test_a_sum_and_bits_that_attain_what_is_proved():
    """Two randomised responses: a sum of two values, and a bit whose odds depend on the sum and on the user."""
    noise, bits = 0.7, 0.5
    a, b = (np.array([math.exp(e), 1]) / (1 + math.exp(e)) for e in (noise, bits))
    p, q = np.outer(a, b).ravel(), np.outer(a[::-1], b[::-1]).ravel()
    behind = with_bits(SumProof(noise, PureDP(noise).rdp, lambda delta: noise), bits)
    assert behind.pure == behind.at(0.1) == pytest.approx(np.log(p / q).max())
    for alpha in (1.5, 2.0, 16.0):
        assert math.log((p**alpha * q ** (1 - alpha)).sum()) / (alpha - 1) == pytest.approx(behind.renyi(alpha))
    assert "bits that bypass the shuffler" in ShuffledNoise.assumes


def test_noise_is_for_the_same_grid_as_the_rewards():
    """float32(n) may have another ceil(epsilon sqrt(n)): at n = 3^17 and this epsilon, 6 for 7."""
    n = 3**17
    epsilon = 6 / math.sqrt(float(np.float32(n)))
    protocol = made(PolyaNoise, epsilon, 1.0, 0.1, 3 * n).sums([n])
    assert math.ceil(epsilon * math.sqrt(n)) == protocol.steps[0] == 7
    assert 7 / epsilon <= protocol.noise.size[0] <= np.nextafter(np.float32(7 / epsilon), np.float32(np.inf))
