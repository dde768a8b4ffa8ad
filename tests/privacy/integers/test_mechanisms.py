"""Parameters are those of the theorems, and certificates state what the noise proves."""

import json
import math

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import wide
from fedbandit_jax.privacy import samplers
from fedbandit_jax.privacy.accounting.events import PureDP, returning
from fedbandit_jax.privacy.accounting.lattice import DiscreteGaussian, shift_epsilon
from fedbandit_jax.privacy.integers.mechanisms import (
    MECHANISMS,
    GaussianShares,
    LocalLaplace,
    Polya,
    ServerLaplace,
    ShuffledPolya,
    SkellamShares,
)
from fedbandit_jax.privacy.integers.protocol import certify
from fedbandit_jax.privacy.integers.ring import Aggregation
from fedbandit_jax.privacy.integers.shares import GaussianNoise, LocalNoise, SumProof

BY_HAND = {  # g, tau, m, bits of n = 64 at epsilon = 1/2, s = 10, p = 0.1, T = 10^6; ln 20 = 2.995732
    Polya: (4, 24, 305, 9),  # 4, 8 ln 20 = 23.97
    ServerLaplace: (4, 24, 305, 9),
    LocalLaplace: (4, 246, 749, 10),  # 8 (2 sqrt(64 ln 20) + ln 20) = 245.5
    ShuffledPolya: (2, 122, 373, None),  # of epsilon / 2 and p = 1 / 2T: 8 ln(4 10^6) = 121.6
    SkellamShares: (40, 282, 3125, 12),  # 160 sqrt(ln 20) + sqrt 2 ln 20 = 281.2
    GaussianShares: (40, 196, 2953, 12),  # 80 sqrt(2 ln 20) = 195.8
}


def made(kind, epsilon=0.5, scale=10.0, failure=0.1, horizon=10**6):
    return kind(epsilon, scale, failure, horizon)


def law(mechanism, n):
    """Of the noise that runs for a batch of n users."""
    return mechanism.noise([n]).law(0, n)


def proof(mechanism, n):
    """What the protocol that runs proves of a batch of n users."""
    return mechanism.sums([n]).proof(0)


def sent(mechanism, n):
    """Bits of a user."""
    return mechanism.aggregation.bits(n, mechanism.modulus(n))


@pytest.mark.parametrize("kind", BY_HAND)
def test_parameters_by_hand(kind):
    mechanism, (g, tau, m, bits) = made(kind), BY_HAND[kind]
    assert (mechanism.steps(64), mechanism.slack(64), mechanism.modulus(64)) == (g, tau, m)
    assert bits is None or sent(mechanism, 64) == bits
    assert mechanism.steps(50) == math.ceil(g / 8 * math.sqrt(50))
    variance = 2 / (4 * math.sinh(1 / 16) ** 2)  # of discrete Laplace of scale 8: 2 beta / (1 - beta)^2
    expected = {LocalLaplace: 64 * variance, SkellamShares: 6400.0, GaussianShares: 6400.0}.get(kind, variance)
    assert law(mechanism, 64).variance == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", BY_HAND)
def test_tables_are_the_parameters(kind):
    """What runs is what is certified: batch k's row is that of its number of users."""
    mechanism, users = made(kind), [2, 64, 50, 2**29]
    protocol = mechanism.sums(users)
    assert wide.to_int(protocol.modulus).tolist() == [mechanism.modulus(n) for n in users]
    assert wide.to_int(protocol.largest).tolist() == [n * mechanism.steps(n) + mechanism.slack(n) for n in users]
    np.testing.assert_array_equal(protocol.steps, [mechanism.steps(n) for n in users])
    np.testing.assert_allclose(protocol.bits, [float(sent(mechanism, n)) for n in users], rtol=1e-7)
    np.testing.assert_array_equal(protocol.users, users)
    size = np.array([mechanism.steps(n) for n in users]) / (0.25 if kind is ShuffledPolya else 0.5)
    (table,) = vars(protocol.noise).values()
    np.testing.assert_allclose(table, size**2 if kind is SkellamShares else size, rtol=1e-6)
    widths = [protocol.noise.width(k) for k in range(4)]
    np.testing.assert_allclose(widths, size, rtol=1e-6)
    assert (widths >= size).all()  # float32 rounds up: never less noise than asked for


@pytest.mark.parametrize("kind", BY_HAND)
def test_sums_leave_the_ring_no_more_often_than_said(kind):
    """tau, from the paper's tail bounds, against the exact tail of the noise."""
    for epsilon in (0.01, 0.3, 5.0):
        for failure in (0.1, 1e-6):
            mechanism = made(kind, epsilon=epsilon, scale=1.0, failure=failure)
            for n in (2, 16, 300, 2**12, 2**20):
                outside = 2 * float(law(mechanism, n).tail(mechanism.slack(n)))
                assert outside <= mechanism.wrapping


@pytest.mark.parametrize("kind", BY_HAND)
def test_tail_constants(kind):
    """s and h bound noise and rounding at every p: |N| by its exact tail, beside the rounding's share of the paper."""
    for epsilon in (0.01, 0.3, 5.0):
        mechanism = made(kind, epsilon=epsilon, scale=3.0)
        for n in (2, 16, 300, 2**12):
            s, h = (float(np.max(x)) for x in mechanism.tail_constants(np.array([float(n)])))
            g = mechanism.steps(n)
            for p in (0.5, 0.1, 1e-3, 1e-8):
                log = math.log(2 / p)
                rounding = math.sqrt(n * log / 2) / g  # Hoeffding, two-sided at p
                noise = s * math.sqrt(log) + h * log - rounding
                assert 2 * law(mechanism, n).tail(noise * g) <= p


PURE = (Polya, ServerLaplace, LocalLaplace, ShuffledPolya)
SIZES = [2**b for b in range(1, 30)] + [3, 50, 1000]


@pytest.mark.parametrize("kind", PURE)
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
def test_pure_epsilon_is_never_above_what_was_asked(kind, epsilon):
    mechanism = made(kind, epsilon=epsilon)
    sums = mechanism.sums(SIZES)
    proofs = [sums.proof(k) for k in range(len(SIZES))]
    given = np.array([found.pure for found in proofs])
    assert (given <= epsilon * (1 + 1e-12)).all()
    assert given.max() > 0.99 * epsilon  # and it is used
    half = epsilon / 2 if kind is ShuffledPolya else 0
    steps = np.array([mechanism.steps(n) for n in SIZES])
    assert (given >= half).all()
    assert (np.array([found.at(1e-6) for found in proofs[:12]]) <= given[:12]).all()
    assert (steps >= (epsilon - half) * np.sqrt(SIZES)).all()


@pytest.mark.parametrize("kind", [Polya, ShuffledPolya])
def test_pure_epsilon_from_the_pmf(kind):
    """All shifts up to g of the wrapped pmf, summed over its copies."""
    mechanism = made(kind, epsilon=2.0)
    for n in (2, 9):
        g, m = mechanism.steps(n), mechanism.modulus(n)
        copies = np.arange(-50, 51)[:, None] * m + np.arange(m)
        pmf = np.exp(-np.abs(copies) * mechanism.noise_epsilon / g).sum(0)
        worst = max(np.abs(np.log(pmf / np.roll(pmf, shift))).max() for shift in range(1, g + 1))
        half = 1.0 if kind is ShuffledPolya else 0.0
        assert proof(mechanism, n).pure == pytest.approx(worst + half, rel=1e-6)


def test_skellam_and_gaussian_by_hand():
    """Lemma 3 and Lemma 4 at n = 64: D = 40, v = 6400 and sigma = 10."""
    two = 2 * 1600 / 12800 + min((3 * 1600 + 240) / (4 * 6400**2), 120 / 12800)
    assert proof(made(SkellamShares), 64).renyi(2.0) == pytest.approx(two, rel=1e-7)
    privacy = proof(made(GaussianShares), 64).zcdp
    xi = 10 * sum(math.exp(-2 * math.pi**2 * 100 * k / (k + 1)) for k in range(1, 64))
    assert privacy.xi == pytest.approx(xi, rel=1e-6)
    assert privacy.rho == pytest.approx(0.125, rel=1e-6)
    rough = proof(made(GaussianShares, scale=1.0, epsilon=1.0), 4).zcdp  # sigma = 1
    xi = 10 * sum(math.exp(-2 * math.pi**2 * k / (k + 1)) for k in range(1, 4))
    assert rough.xi == pytest.approx(xi, rel=1e-9)
    assert rough.rho == pytest.approx(min(1 + xi / 2, (1 + xi) ** 2) / 2, rel=1e-9)


def certificate(label, horizon=10**6, **options):
    mechanism, trust = fb.algos.ELIMINATION[label]
    algo = fb.algos.SuccessiveElimination(mechanism=mechanism, trust=trust, **{"epsilon": 1.0, **options})
    return algo.certificate(fb.envs.arms().spec, horizon)


LABELS = {"DP-SE": None, "CDP-SE": ServerLaplace, "LDP-SE": LocalLaplace, "Dist-DP-SE": Polya,
          "Dist-RDP-SE": SkellamShares, "Dist-CDP-SE": GaussianShares, "Shuffle-DP-SE": ShuffledPolya}  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
def test_certificates(label):
    found, kind = certificate(label), LABELS[label]
    assert found.claim == "certified"
    assert found == Certificate.from_json(json.loads(json.dumps(found.to_json())))
    assert found.epsilon == 1.0
    assert found.releases_per_user == 1.0
    assert found.adjacency.startswith("replace")
    orders, bounds = zip(*found.renyi)
    assert orders == (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    assert (np.diff(bounds) >= 0).all()
    visits, deltas, proved, advanced = zip(*found.visits)
    assert visits == (10, 100)
    assert set(deltas) == {1e-6}
    assert (np.diff(proved) > 0).all()
    assert (np.array(proved) <= np.array(advanced) * (1 + 1e-9)).all()
    assert all(rows in str(found) for rows in ("visits", "Renyi curve", "not covered"))
    if found.notion == "pure DP":
        assert found.delta == 0
        assert 0.999 < found.epsilon_exact <= 1.0 + 1e-12
        assert max(bounds) <= found.epsilon_exact
        assert proved[0] <= visits[0] * found.epsilon_exact * (1 + 1e-9)
    if kind is None:
        assert found.noise_std == pytest.approx(math.sqrt(2), rel=1e-8)  # less by 1 / (24 g^2) on the grid
        return
    sums = 10 * 19  # of ten arms; 2 + ... + 2^19 users reach the horizon
    mechanism, sizes = made(kind, epsilon=1.0, failure=0.1 / (100 * sums)), [2**b for b in range(1, 18)]
    assert found.notion == mechanism.noise(sizes).notion
    assert found.releases == len(sizes)  # of two arms' 2 + ... + 2^18 users the last do not come
    assert found.bits_per_user == (sent(mechanism, 2), sent(mechanism, 2**17))
    lost = 0.5e-6 if kind is ShuffledPolya else 0.0
    tails = [2 * float(law(mechanism, n).tail(mechanism.slack(n))) for n in sizes]
    assert found.wrap_probability == pytest.approx(max(tails) + lost, rel=1e-3, abs=1e-12)
    assert found.wrap_probability <= (lost or 0.1 / 19_000) + lost
    std = max(math.sqrt(law(mechanism, n).variance) / mechanism.steps(n) for n in sizes)
    assert found.server_noise_std == pytest.approx(std)
    assert (found.zcdp is not None) == (kind is GaussianShares)
    if kind is LocalLaplace:
        assert found.noise_std == pytest.approx(math.sqrt(2), rel=0.1)
        assert found.noise_whose == "of a user's message"
    if kind is ShuffledPolya:
        assert found.noise_std == pytest.approx(2 * math.sqrt(2), rel=0.1)
    if kind is SkellamShares:  # at n = 2 the third term is largest
        assert bounds[0] == pytest.approx(max(proof(mechanism, n).renyi(2.0) for n in sizes))
        assert 1 < bounds[0] < 1.02
    if kind is GaussianShares:
        assert found.zcdp[0] == pytest.approx(0.5, rel=1e-6)
        assert bounds == pytest.approx([order / 2 for order in orders], rel=1e-6)
    if kind in (SkellamShares, GaussianShares):
        assert found.delta == 1e-6
        assert 4.3 < found.epsilon_exact < 5.0  # of a Gaussian of that size 4.38 (mu = 1)


def test_shuffled_messages_are_long():
    """The paper's construction needs 7.5e8 bits at n = 256, epsilon = 1 and T = 10^6; a better proof half of them."""
    mechanism = made(ShuffledPolya, epsilon=1.0)
    assert 0.2 < sent(mechanism, 256) / 7.5e8 < 0.6
    lost = float(mechanism.aggregation.lost(256))
    assert 0.99 / (2 * 10**6) < lost <= 1 / (2 * 10**6)
    pure = proof(mechanism, 256).pure
    assert pure <= 1.0
    assert pure - 0.5 == pytest.approx(proof(Polya(0.5, 1.0, 5e-7, 10**6), 256).pure)


@pytest.mark.parametrize(
    ("kind", "s", "h"),
    [
        (Polya, 2 * math.sqrt(2), 2),
        (ServerLaplace, 2 * math.sqrt(2), 2),
        (LocalLaplace, 32 + 2 * math.sqrt(2), 2),
        (ShuffledPolya, 4 * math.sqrt(2), 4),
        (SkellamShares, 4 + math.sqrt(2) / 5, math.sqrt(2) / 40),
        (GaussianShares, 2.2 * math.sqrt(2), 0),
    ],
)
def test_tail_constants_by_hand(kind, s, h):
    """Of the paper's radius for n = 64 at epsilon = 1/2 and s = 10, which pay for encoding by sqrt 2 / epsilon."""
    found = [np.broadcast_to(one, 1)[0] for one in made(kind).tail_constants(np.array([64.0]))]
    np.testing.assert_allclose(found, [s, h], rtol=1e-12)


def test_local_noise_is_that_of_all_users(monkeypatch):
    """The sum of n messages has n draws in it, of which each user makes one."""
    asked = []
    monkeypatch.setattr(samplers, "discrete_laplace_sum", lambda key, scale, n, shape: asked.append((scale, n, shape)))
    monkeypatch.setattr(samplers, "discrete_laplace", lambda key, scale, shape: asked.append((scale, 1, shape)))
    noise = LocalNoise(scale=np.array([3.0, 8.0], np.float32))
    noise.total(None, 1, 64, (5,))
    noise.share(None, 1, 64, (5,))
    assert asked == [(8.0, 64, (5,)), (8.0, 1, (5,))]


def test_sums_of_discrete_gaussians_cost_twice_their_distance():
    """Both neighbours may be e^xi off one discrete Gaussian: xi = 10 e^(-2 pi^2 sigma^2 / 2) for two users."""
    share = 0.9
    xi = 10 * math.exp(-((math.pi * share) ** 2))
    noise, law = GaussianNoise(sigma=np.array([share * math.sqrt(2)], np.float32)), DiscreteGaussian(share * 2**0.5)
    for delta in (1e-2, 1e-4):
        found = noise.proof(0, 2, 1, 9).at(delta)
        assert found == pytest.approx(2 * xi + shift_epsilon(law, 1, delta * math.exp(-xi)), rel=1e-5)


def test_tails_of_all_visits_are_charged():
    """(1 + e^epsilon) n times what one sum lacks; epsilon solves its own equation."""
    event, missing, at = PureDP(0.01), 1e-9, 1e-6
    fields = dict(notion="pure DP", epsilon=0.01, epsilon_exact=0.01, delta=0.0)
    for n, _, proved, _ in certify(event, at=at, missing=missing, spent=0.01, **fields).visits:
        left = at - (1 + math.exp(proved)) * n * missing
        assert proved == pytest.approx(returning(event, left, n)[0], rel=1e-5)
        assert proved > (1 + 1e-4) * returning(event, at - (1 + math.exp(proved)) * missing, n)[0]


def test_a_sum_and_bits_that_attain_what_is_proved():
    """Two randomised responses: a sum of two values, and a bit whose odds depend on the sum and on the user."""
    noise, bits = 0.7, 0.5
    a, b = (np.array([math.exp(e), 1]) / (1 + math.exp(e)) for e in (noise, bits))
    p, q = np.outer(a, b).ravel(), np.outer(a[::-1], b[::-1]).ravel()
    alone = SumProof(noise, PureDP(noise).rdp, lambda delta: math.log((a[0] - delta) / a[1]))
    behind = Aggregation(epsilon=bits, failure=1e-9).behind(alone)
    for alpha in (1.5, 2.0, 16.0):
        assert math.log((p**alpha * q ** (1 - alpha)).sum()) / (alpha - 1) == pytest.approx(behind.renyi(alpha))
    for delta in (1e-3, 0.05, 0.2):
        assert np.maximum(p - math.exp(behind.at(delta)) * q, 0).sum() <= delta


def test_what_bits_spend_by_hand():
    """As randomised response of epsilon = 1/2 beside the noise; what the noise proves at delta is 1/2 more."""
    noise = SumProof(2.0, lambda alpha: alpha / 10, lambda delta: -math.log(delta))
    behind = Aggregation(epsilon=0.5, failure=1e-9).behind(noise)
    assert behind.pure == 2.5
    p = np.array([1, math.exp(0.5)]) / (1 + math.exp(0.5))
    assert behind.renyi(8.0) == pytest.approx(0.8 + math.log((p**8 * p[::-1] ** -7).sum()) / 7)
    assert behind.at(0.5) == pytest.approx(math.log(2) + 0.5)
    assert behind.at(1e-6) == 2.5
    assert Aggregation().behind(noise) is noise
    assert "bits that bypass the shuffler" in Aggregation(epsilon=0.5, failure=1e-9).assumes


def test_little_noise_is_worth_little():
    """Skellam and discrete Gaussian at scale 1: fewer bits, and a curve that says what that costs."""
    for label in ("Dist-RDP-SE", "Dist-CDP-SE"):
        coarse, fine = (certificate(label, scale=scale) for scale in (1.0, 100.0))
        assert coarse.bits_per_user[1] < fine.bits_per_user[1]
        assert coarse.renyi[0][1] > fine.renyi[0][1] > 0.99
        assert coarse.epsilon_exact == pytest.approx(fine.epsilon_exact, rel=0.02)


def test_every_pair_has_a_mechanism():
    assert set(MECHANISMS) | {("none", "none"), ("laplace", "central")} == set(fb.algos.ELIMINATION.values())
    assert set(MECHANISMS.values()) == set(BY_HAND)


def test_noise_is_for_the_same_grid_as_the_rewards():
    """float32(n) may have another ceil(epsilon sqrt(n)): at n = 3^17 and this epsilon, 6 for 7."""
    n = 3**17
    epsilon = 6 / math.sqrt(float(np.float32(n)))
    protocol = Polya(epsilon, 1.0, 0.1, 3 * n).sums([n])
    assert math.ceil(epsilon * math.sqrt(n)) == 7
    assert protocol.steps[0] == 7
    assert 7 / epsilon <= protocol.noise.scale[0] <= np.nextafter(np.float32(7 / epsilon), np.float32(np.inf))
