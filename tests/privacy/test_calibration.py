"""Calibration for every trust model and release: never optimistic, never NaN, and the papers' tables."""

import dataclasses
import functools
import itertools
import math
import re

import dp_accounting
import numpy as np
import pytest
from helpers import AUTHORS, fits, recalibrated, refused
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit_jax as fb
from fedbandit_jax.privacy import Budget, Mechanism, calibrate, gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.accounting.shuffling import shuffled_sigma
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.printed import dubey2020
from fedbandit_jax.privacy.releases import RELEASES, make
from fedbandit_jax.privacy.trust import TRUST, Requirement, SecAgg, VectorSum

SIZE: dict = dict(n_agents=20, batch=5, dim=3)


PRINTED = [  # by the paper, and by its authors' code
    ("silo_local", "theorem_5_1"),
    ("silo_local_matrix", "dubey2020"),
    ("shuffle_amplified", "theorem_5_3"),
    ("shuffle_vector_sum", "theorem_5_5"),
    *AUTHORS.items(),
]


TIGHT = [(trust, release, None) for trust in TRUST for release in RELEASES if fits(trust, release)]
ALLOWED = [*TIGHT, *((trust, "tree", std) for trust, std in PRINTED)]


BUDGETS = (1.0, 0.1, "replace"), (0.3, 1e-6, "zero_out"), (20.0, 1e-9, "replace")
EXTREMES = [*itertools.product((1e-9, 1e-3, 1e6), (1e-300, 1 - 1e-12), (1, 10**4))]


@pytest.mark.parametrize(("trust", "release", "std"), ALLOWED)
def test_answers_are_finite_or_a_sentence_and_tight_ones_are_sound(trust, release, std):
    authors = std is AUTHORS["shuffle_vector_sum"]
    for budget in BUDGETS:
        c = calibrate(Budget(*budget), n_syncs=40, release=release, std=std, trust=trust, **SIZE)
        assert 0 < c.sigma < math.inf
        assert 0 < c.model.sum_std() < math.inf
        assert c.epsilon_exact >= (0.99 * c.requirement.budget.epsilon if std is None else 0)  # tight ones waste little
        assert c.sound or std
        if authors and budget[0] == 20:
            assert c.epsilon_exact == math.inf  # too few bits for a proof of anything
    sentences = []
    for epsilon, delta, n_syncs in EXTREMES:
        try:
            c = calibrate(Budget(epsilon, delta), n_syncs=n_syncs, release=release, std=std, trust=trust, **SIZE)
        except ValueError as error:
            sentences.append(str(error))
            continue
        assert 0 < c.sigma < math.inf
        nothing = c.sigma * 1e4 <= c.requirement.sensitivity  # epsilon would be above 10^7, and is not computed
        nothing |= epsilon > 100  # the tails that are never drawn cost more than any delta
        assert 0 <= c.epsilon_exact < math.inf or nothing or authors
        assert not (nothing and c.sound)
        assert np.isfinite(c.model.sum_std())
    assert all(re.search("got|no room|too small", sentence) for sentence in sentences)


@functools.cache
def encoder(release, n_syncs):
    """C, from what `encode` does."""
    return make(release, n_syncs).encoder()


DELTA_SQ = {  # of one user: see test_cascade.py, which attains them
    ("replace", False): 4.5,
    ("zero_out", False): 2.0,
    ("replace", True): 4.0,
    ("zero_out", True): 1.5,
}
D = 3 * (3 + 3) // 2  # packed entries at d = 3


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.05, 20),
    st.floats(-30, -0.1).map(math.exp),
    st.sampled_from([pair for pair in TIGHT if pair[0] != "shuffle_vector_sum"]),
    st.sampled_from(["replace", "zero_out"]),
    st.sampled_from([1, 20, 97]),  # each is a program to compile
    st.integers(1, 4),
)
def test_never_optimistic(epsilon, delta, pair, adjacency, n_syncs, visits):
    """dp-accounting, told only the noise drawn and how far one user moves it, never finds more epsilon than asked."""
    trust, release, _ = pair
    budget = Budget(epsilon, delta, adjacency)
    c = calibrate(budget, n_syncs=n_syncs, release=release, trust=trust, users=fb.privacy.Users(visits), **SIZE)
    c_matrix, matrix = encoder(release, n_syncs), trust == "silo_local_matrix"
    moved = visits * math.sqrt((c_matrix**2).sum(0).max() * DELTA_SQ[adjacency, matrix])
    assert moved == pytest.approx(c.requirement.sensitivity, rel=1e-9)
    if trust == "secagg":
        sigma = float(c.model.share) * math.sqrt(SIZE["n_agents"])
        touched = (c_matrix != 0).sum(0).max()  # messages that one batch enters
        moved = moved * float(c.model.scale) + visits * math.sqrt(D * touched)
    else:
        sigma = float(np.min(c.model.std)) / (1 + 1e-6) ** 2  # the rest is for vectors of norm 1 + 1e-6
    assert dp_accounting.get_epsilon_gaussian(sigma / moved, delta) <= epsilon * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
@pytest.mark.parametrize("visits", [1, 3])
def test_vector_sums_pay_for_rounding(adjacency, visits):
    """A user moves the ones of an entry by (g times the statistic) + 1, and so all D by sqrt D; level by level."""
    budget, users = Budget(1.0, 1e-3, adjacency), fb.privacy.Users(visits)
    need = Requirement(budget=budget, release=make("tree", 5), users=users, **SIZE)
    coarse = dict(g=np.float32([5, 6, 9]), b=np.float32([4e5, 3e5, 2.5e5]))
    few = VectorSum(**coarse, n_batch=100, exact=False, width=int(4e5 + 10))
    tight = calibrate(budget, n_syncs=5, trust="shuffle_vector_sum", users=users, **SIZE).model
    for model in (few, tight):
        g, b, n = np.asarray(model.g, float), np.asarray(model.b, float), 100 * 2.0 ** np.arange(3)
        step = visits * (math.sqrt(DELTA_SQ[adjacency, False]) * g + math.sqrt(D))
        mu = math.sqrt((step**2 / (n * b / 4)).sum())
        expected = gaussian_epsilon(mu, 1e-3)
        assert expected * (1 - 1e-9) <= model.proof(need).epsilon <= 1.01 * expected
    assert dp_accounting.get_epsilon_gaussian(1 / mu, 1e-3) <= 1 + 1e-6


def test_vector_sum_of_figure_2b():
    """privacy.md 5 at (0.2, 0.1): tight tends to the tree's 214 as the grid gets fine, released has 223.6."""
    common: dict = dict(n_syncs=400, trust="shuffle_vector_sum", n_agents=100, batch=25, dim=10)
    budget = Budget(0.2, 0.1)
    tight, released, theorem = (
        calibrate(budget, std=one, **common) for one in (None, AUTHORS["shuffle_vector_sum"], "theorem_5_5")
    )
    assert released.sigma**2 == pytest.approx(223.6, rel=2e-3)
    assert 214 < tight.sigma**2 < 214 * 1.1
    finest = tight.model.b[-1] * 2500 * 2**8 / 4 / tight.model.g[-1] ** 2
    assert finest == pytest.approx(214, rel=0.02)
    assert theorem.sigma**2 > 1e11
    assert (tight.model.b == np.round(tight.model.b)).all()


def test_amplification_is_used_where_it_helps():
    """At the papers' size, see accounting/test_shuffling.py, it gains nothing."""
    common: dict = dict(n_syncs=400, trust="shuffle_amplified", n_agents=100, batch=25)
    tight = calibrate(Budget(1e-4, 1e-4), **common)
    assert tight.sigma == calibrate(Budget(1e-4, 1e-4), n_syncs=400).sigma
    assert "proves nothing more" in tight.proof.accountant
    common, budget = dict(n_syncs=1, trust="shuffle_amplified", n_agents=10**6, batch=1), Budget(0.05, 1e-6)
    tight, theorem = (calibrate(budget, std=one, **common) for one in (None, "theorem_5_3"))
    assert tight.sigma == theorem.sigma < 0.2 * calibrate(budget, n_syncs=1).sigma
    assert "Lemma F.2" in tight.proof.accountant
    removed = calibrate(Budget(0.05, 1e-6, "zero_out"), std="theorem_5_3", **common)
    any_two = shuffled_sigma(epsilon=0.05, delta=1e-6, sensitivity=4.5**0.5, n_agents=10**6, points=[1])
    assert removed.sigma == theorem.sigma == pytest.approx(any_two, rel=1e-5)
    users = fb.privacy.Users(2)  # and says nothing of one who returns
    assert calibrate(budget, **common, users=users).sigma == pytest.approx(2 * calibrate(budget, n_syncs=1).sigma)
    need = dataclasses.replace(theorem.requirement, users=users)
    assert theorem.model.proof(need).epsilon == pytest.approx(gaussian_epsilon(2 * 4.5**0.5 / theorem.sigma, 1e-6))
    for argument, wrong in (("n_agents", dict(n_agents=10)), ("visits", dict(users=users))):
        with refused(argument):
            calibrate(budget, std="theorem_5_3", **{**common, **wrong})


@pytest.mark.parametrize(("trust", "factor"), [("central", 4), ("silo_local", 2), ("secagg", 4)])
def test_users_of_four_silos(trust, factor):
    """By hand: noise of their own adds squares. Silos that count together need the noise of one."""
    common = dict(n_syncs=10, trust=trust, **SIZE)
    one, four, together = (
        calibrate(Budget(1.0, 1e-5), users=fb.privacy.Users(silos=silos), **common).sigma
        for silos in (1, 4, "together")
    )
    assert four == pytest.approx(factor * one, rel=1e-2 if trust == "secagg" else 1e-6)  # of integer noise
    assert together == one


@pytest.mark.parametrize("trust", TRUST)
def test_the_noise_of_a_trust_model(trust):
    """By hand, at the size of the paper, M = 100, B = 25, d = 10; any other is drawn, and accounted."""
    release, bits = "input_perturbation" if trust == "local" else "tree", trust == "shuffle_vector_sum"
    paper = dict(n_syncs=400, n_agents=100, batch=25, dim=10)
    found = calibrate(Budget(1.0, 0.1), release=release, trust=trust, **paper).model
    kappa, matrix = (encoder(release, 400) ** 2).sum(0).max(), trust == "silo_local_matrix"
    sigma = math.sqrt(kappa * DELTA_SQ["replace", matrix]) / gaussian_mu(1.0, 0.1)
    sources = {"central": 1, "secagg": 1, "shuffle_vector_sum": 1, "local": 2500}.get(trust, 100)
    assert found.sum_std() == pytest.approx(math.sqrt(sources * (1 + matrix)) * sigma, rel=0.1 if bits else 0.01)

    common: dict = dict(n_syncs=16, release=release, trust=trust, n_agents=20, batch=25, dim=3)
    least = calibrate(Budget(1.0, 1e-5), **common)
    mu = gaussian_mu(least.epsilon_exact, 1e-5)
    for times in (0.5, 1.0, 2.0):
        c = calibrate(Budget(1.0, 1e-5), std=times * least.sigma, **common)
        rounding = 0.03 if bits else 1e-4  # of users, which its sigma has in it
        assert c.sigma == pytest.approx(times * least.sigma, rel=rounding)
        assert gaussian_mu(c.epsilon_exact, 1e-5) * times == pytest.approx(mu, rel=max(rounding, 1e-3))
        assert c.sound == (times > 1.0) or times == 1.0

    if trust not in ("secagg", "shuffle_vector_sum"):
        need = dataclasses.replace(least.requirement, pure=0.3)  # of a private schedule
        expected = gaussian_epsilon(need.sensitivity / least.sigma, 1e-5, 0.3)
        assert least.model.proof(need).epsilon == pytest.approx(expected, rel=1e-6)


def test_noise_that_nobody_may_have():
    with refused("std", -1.0):
        calibrate(Budget(1.0, 0.1), n_syncs=4, std=lambda use: -1.0)
    with refused("epsilon"):  # Theorem 5.5 has a condition
        calibrate(Budget(1000.0, 0.1), n_syncs=4, std="theorem_5_5", trust="shuffle_vector_sum", **SIZE)


def test_the_noise_of_all_silos_has_room(key):
    """A hundredth of 1,600 silos is enough, and all of them have ten times the noise: in the range of integers, too."""
    found = calibrate(Budget(0.01, 1e-6), n_syncs=5, trust="secagg", n_agents=1600, batch=4, dim=50)
    found = recalibrated(found, dropouts=1584)
    all_there = float(found.model.share) * 40
    assert all_there <= 2**24
    drawn = found.model.noise(key, packed_size(50))
    for std in (found.model.message_stds(1)[0], all_there / float(found.model.scale)):
        assert np.std(drawn) == pytest.approx(std, rel=5 / math.sqrt(2 * drawn.size))


def test_what_one_silo_knows_of_the_noise_is_stated():
    """The certificate names the epsilon of the noise of all silos but one, whose share that one may subtract."""
    for dropouts in (0, 1):
        sizes = dict(n_agents=3, batch=2, dim=2, dropouts=dropouts)
        need = Requirement(budget=Budget(1.0, 0.1), release=make("tree", 5), **sizes)
        model = SecAgg.calibrate(need)
        fewer = dataclasses.replace(model, dropouts=dropouts + 1).proof(need)
        assert fewer.epsilon > model.proof(need).epsilon
        assert f"one of {3 - dropouts} shares epsilon is {fewer.epsilon:.4g}" in model.proof(need).assumes[0]


def test_the_formula_of_dubey_and_pentland():
    """(2020): 8 sqrt(m) ln(2 / delta) / epsilon, m = 1 + ceil(log2 S), without the epsilon that a schedule spends."""
    paper = dict(n_syncs=400, release="tree", trust="silo_local_matrix", std="dubey2020")
    for pure, left in ((0.0, 0.5), (0.1, 0.4)):
        need = dataclasses.replace(calibrate(Budget(0.5, 0.01), **paper).requirement, pure=pure)
        assert dubey2020(need) == pytest.approx(8 * math.sqrt(10) * math.log(200) / left, rel=1e-6)


@pytest.mark.parametrize("trust", TRUST)
def test_a_mechanism_has_the_noise_of_its_calibration(trust):
    """It asks for the same, besides the rounding of its sums."""
    common = dict(release="input_perturbation" if trust == "local" else "tree", trust=trust)
    users, budget = fb.privacy.Users(3, per_batch=1, apart=2, silos=2), Budget(1.0, 1e-3, "zero_out")
    bound = Mechanism(budget, unit=users, **common).bind(BoundStatistic(SIZE["dim"]), n_agents=20, batch=5, n_syncs=10)
    alone, asked = calibrate(budget, n_syncs=10, users=users, **common, **SIZE), bound.requirement(0)
    same = dict(release=asked.release, moves_sq=2.0, rounding=asked.rounding)
    assert dataclasses.replace(alone.requirement, **same) == asked
    assert bound.trust.sum_std() == pytest.approx(alone.model.sum_std(), rel=1e-3)


@pytest.mark.parametrize("std", [None, "theorem_5_1"])
@pytest.mark.parametrize("pure", [-0.1, 1.0, 50.0])
def test_a_schedule_leaves_some_of_epsilon(std, pure):
    with refused("pure", pure):
        Mechanism(Budget(1.0, 1e-5), std=std).bind(BoundStatistic(3), n_agents=4, n_syncs=4, pure=pure)
