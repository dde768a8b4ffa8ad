"""Trust models alone, a call at a time: what a silo, its users or the server add, against the budget by hand."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.privacy import Budget, Mechanism, Users, calibrate, gaussian_mu
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.releases import make
from fedbandit_jax.privacy.trust import SecAgg, SiloLocal, SiloLocalMatrix, secagg, vector_sum
from fedbandit_jax.privacy.trust.ask import Ask

M, B, S = 3, 4, 5
BUDGET = Budget(1.0, 0.1)
N, DIM = 20_000, 2  # messages drawn, each of 5 entries
WIDE = 200  # features of one message of 20,300 entries


def model(trust, dim=DIM):
    release = "input_perturbation" if trust == "local" else "tree"
    return calibrate(BUDGET, n_syncs=S, release=release, trust=trust, n_agents=M, batch=B, dim=dim).model


def sigma(trust):
    """Of one source: sqrt(kappa) Delta / mu, for trees of three levels."""
    kappa, delta_sq = 1 if trust == "local" else 3, 4.0 if trust == "silo_local_matrix" else 4.5
    return math.sqrt(kappa * delta_sq) / gaussian_mu(1.0, 0.1)


@pytest.mark.parametrize("trust", ["silo_local", "silo_local_matrix", "central", "shuffle_amplified"])
@pytest.mark.parametrize(("adjacency", "delta_sq", "matrix_sq"), [("replace", 4.5, 4.0), ("zero_out", 2.0, 1.5)])
def test_noise_is_that_of_the_budget(trust, adjacency, delta_sq, matrix_sq):
    """r sqrt(kappa) Delta / mu; and beside tests of a schedule, for what they leave of epsilon."""
    for visits in (1, 3):
        sizes = dict(n_syncs=S, trust=trust, n_agents=M, batch=B, users=Users(visits))
        found = calibrate(Budget(1.0, 0.1, adjacency), **sizes)
        moved = visits * math.sqrt(3 * (matrix_sq if "matrix" in trust else delta_sq))
        assert found.sigma == pytest.approx(moved / gaussian_mu(1.0, 0.1), rel=1e-6)
        assert found.epsilon_exact == pytest.approx(1.0, rel=1e-5)
        if trust != "shuffle_amplified":
            beside = calibrate(Budget(1.0, 0.1, adjacency), **sizes, pure=0.1)
            assert beside.sigma == pytest.approx(moved / gaussian_mu(1.0, 0.1, 0.1 * visits), rel=1e-6)
            assert beside.epsilon_exact == pytest.approx(1.0, rel=1e-5)


def test_a_calibration_is_sound_if_it_keeps_the_budget():
    """The authors' constants, of which one half is missing, give epsilon between one and two."""
    tight, released = (
        calibrate(BUDGET, n_syncs=S, trust="silo_local", n_agents=M, method=m) for m in ("tight", "authors")
    )
    assert tight.sound
    assert 1.1 < released.epsilon_exact < 2
    assert not released.sound


def within(draws, std):
    """Whether the standard deviation is right to 5 of its errors; a wrong factor sqrt 2 would be seen."""
    return draws.size > 100 and abs(draws.std() / std - 1) < 5 / math.sqrt(2 * draws.size)


@pytest.mark.parametrize(
    ("trust", "sources"),
    [("silo_local", 1), ("silo_local_matrix", 1), ("shuffle_amplified", 1), ("local", B), ("secagg", 1 / M)],
)
def test_the_noise_of_a_message(key, trust, sources):
    """Each silo adds noise of its own; locally every user of a batch does; with secure aggregation each a part."""
    found = model(trust)
    sent = np.asarray(jax.jit(found.randomize)(key, 1, 1, np.zeros((N, packed_size(DIM)), np.float32)))
    if trust == "secagg":
        sent = sent.astype(np.int32) / float(found.scale)
    one = sigma(trust) * math.sqrt(sources) * (1.0008 if trust == "secagg" else 1)  # rounding is paid for
    assert within(sent[:, 3:], one)
    assert within(sent[:, :3], one * (math.sqrt(2) if trust == "silo_local_matrix" else 1))
    assert abs(np.corrcoef(sent.T) - np.eye(5)).max() < 5 / math.sqrt(N)


@pytest.mark.parametrize(
    ("trust", "sources"),
    [("silo_local", M), ("silo_local_matrix", M), ("shuffle_amplified", M), ("central", 1), ("local", M * B)],
)
def test_the_noise_of_a_sum(key, trust, sources):
    """And what the certificate says of it."""
    found, one = model(trust), math.sqrt(sources) * sigma(trust)
    noise, weight = np.asarray(found.noise(key, packed_size(WIDE))), math.sqrt(2) if "matrix" in trust else 1
    assert within(noise[-WIDE:], one)
    assert within(noise[:-WIDE], one * weight)
    assert found.sum_std() == pytest.approx(one * weight, rel=1e-5)


def test_silos_with_noise_of_their_own(key):
    """Variances add up; the proof is that of the silo with the least noise, and every silo has its own."""
    for kind, delta_sq in ((SiloLocal, 4.5), (SiloLocalMatrix, 4.0)):
        ask = Ask(budget=BUDGET, release=make("tree", S), n_agents=3, joint_matrix=kind.joint_matrix)
        uneven = kind(std=np.array([30.0, 10.0, 20.0], np.float32))
        least, last = (gaussian_epsilon(math.sqrt(3 * delta_sq) / std, 0.1) for std in (10.0, 20.0))
        assert uneven.proof(ask).epsilon == pytest.approx(least, rel=1e-5)
        assert uneven.silo(2).proof(ask).epsilon == pytest.approx(last, rel=1e-5)
        assert within(np.asarray(uneven.noise(key, packed_size(WIDE)))[-WIDE:], math.sqrt(1400))
        assert within(np.asarray(uneven.randomize(key, 2, 1, jnp.zeros((N, 5))))[:, 3:], 20.0)


def test_the_noise_of_all_silos_has_room(key):
    """A hundredth of 1,600 silos is enough, and all of them have ten times the noise: in the range of integers, too."""
    sizes = dict(n_syncs=S, trust="secagg", n_agents=1600, batch=B, dim=50)
    found = calibrate(Budget(0.01, 1e-6), **sizes, dropouts=1584).model
    all_there = float(found.share) * 40
    assert all_there <= 2**24
    zeros = jnp.zeros((1, packed_size(50)))
    drawn = np.asarray(jax.jit(found.noisy_sum)(key, 1, (), zeros, None, None)[0])
    assert within(drawn, found.message_stds(1)[0])
    assert within(drawn, all_there / float(found.scale))


def test_what_one_silo_knows_of_the_noise_is_stated():
    """The certificate names the epsilon of the noise of all silos but one, whose share that one may subtract."""
    for dropouts in (0, 1):
        ask = Ask(budget=BUDGET, release=make("tree", S), n_agents=M, batch=B, dim=DIM, dropouts=dropouts)
        bound = SecAgg.calibrate(ask)
        fewer = dataclasses.replace(bound, dropouts=dropouts + 1).proof(ask)
        assert fewer.epsilon > bound.proof(ask).epsilon
        assert f"one of {M - dropouts} silos epsilon is {fewer.epsilon:.4g}" in bound.proof(ask).assumes[0]


def test_the_server_adds_its_noise_once(key):
    central = model("central")
    shown = jnp.ones((M, N, 5))
    assert within(np.asarray(central.analyze(key, 1, shown)), sigma("central"))
    np.testing.assert_array_equal(central.randomize(key, 1, 1, shown), shown)


def test_formulas_of_papers():
    """Dubey & Pentland (2020): 8 sqrt(m) ln(2 / delta) / epsilon, m = 1 + ceil(log2 S), without a schedule's share."""
    for pure, left in ((0.0, 0.5), (0.1, 0.4)):
        found = calibrate(
            Budget(0.5, 0.01),
            n_syncs=400,
            release="prefix_tree",
            trust="silo_local_matrix",
            method="theorem",
            pure=pure,
        )
        assert found.sigma == pytest.approx(8 * math.sqrt(10) * math.log(200) / left, rel=1e-6)


@pytest.mark.parametrize("trust", ["secagg", "shuffle_vector_sum"])
def test_rounding_and_noise_have_keys_of_their_own(key, trust, monkeypatch):
    """And neither is that of the other form."""
    used = []

    def watched(key, x, *rest, **options):
        used.append(tuple(np.asarray(jax.random.key_data(key)).tolist()))
        return jnp.zeros(rest[0]) if rest else x

    found = model(trust)
    x, y = jnp.full((B, DIM, M), 0.3), jnp.full((B, M), 0.7)
    for module in (secagg, vector_sum):
        for name in ("stochastic_round", "discrete_gaussian", "centred_binomial", "normal"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, watched)
    if trust == "secagg":
        found.randomize(key, 1, 1, jnp.zeros((1, 5)))
        assert len(used) == len(set(used)) == 2
        used.clear()
    monkeypatch.setattr(vector_sum, "normal", lambda key, shape: watched(key, 0, shape))
    _, rounding = found.noisy_sum(key, jnp.int32(1), found.init(5), jnp.zeros((1, 5)), x, y)
    if trust == "shuffle_vector_sum":  # of nodes that go on after the first batch
        assert (np.asarray(rounding) > 0).any(1).tolist() == [False, True, True]
    assert len(used) == len(set(used)) == {"secagg": 2, "shuffle_vector_sum": 3}[trust]


def test_what_users_send():
    """A silo's users report one by one if they trust nobody, and the sum of a silo is one message elsewhere."""
    assert model("local").uplink(1, 15, 5) == (15 * B, 32)
    for trust in ("silo_local", "central", "secagg"):
        assert model(trust).uplink(1, 15, 5) == (15, 32)
    honaker = Mechanism(BUDGET, release="honaker").bind(BoundStatistic(DIM), n_agents=M, n_syncs=S)
    assert [int(honaker.uplink(jnp.int32(k), DIM)[0]) for k in (1, 2, 4)] == [15, 30, 45]  # as many parts as levels


def test_residues_have_signs():
    trust = SecAgg(share=np.float32(1.0), scale=np.float32(8.0), n_agents=2)
    shown = jnp.array([[0, 16, 2**32 - 16]], jnp.uint32)
    np.testing.assert_array_equal(trust.analyze(None, 1, shown), [[0, 2, -2]])


def test_shuffled_bits_move_by_themselves(key):
    """Of every entry another permutation, so that bits of one user do not stay together."""
    bits = model("shuffle_vector_sum").third_party(key, jnp.arange(24, dtype=jnp.int8).reshape(2, 3, 1, 4).repeat(2, 2))
    assert bits.shape == (2, 24)
    np.testing.assert_array_equal(np.sort(bits, 1), [range(24)] * 2)
    assert not np.array_equal(bits[0], bits[1])
    assert not np.array_equal(bits[0], np.sort(bits[0]))
