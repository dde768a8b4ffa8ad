"""What is considered: exact communication, limits that are kept and used, reasons, and code that makes it again."""

import jax
import pytest
from helpers import deep

import fedbandit_jax as fb
from fedbandit_jax.planning.candidates import SCALES, Demands, bits_per_silo, candidates, without_privacy
from fedbandit_jax.planning.recommend import code

ENV = fb.envs.sphere(3, 4, 3, rewards="bernoulli")
BUDGET = fb.privacy.Budget(1.0, 1e-5)
ALL = ("silo", "shuffler", "secagg", "server")


def demands(horizon=100, trusted=("silo", "secagg"), visits=None, max_syncs=None, max_bits=None, budget=BUDGET):
    return Demands(ENV.spec, horizon, budget, trusted, visits, max_syncs, max_bits)


def considered(asked):
    """Those of trust models that are allowed."""
    return [one for one in candidates(asked) if one.algo is not None]


EVERY, GROWING = fb.schedules.Every(3), fb.schedules.Geometric(1.5, first=2)


@pytest.mark.parametrize(
    ("trust", "release", "schedule"),
    deep(
        [
            ("shuffle_vector_sum", "tree", EVERY),
            *(
                ("silo_local", "tree", GROWING),
                ("silo_local", "blt", EVERY),
                ("silo_local", "honaker", EVERY),
                ("secagg", "blt", EVERY),
            ),
            *(("central", "blt", GROWING), ("local", "input_perturbation", EVERY)),
        ],
        keep=set(),
    ),
)
def test_bits_are_those_of_a_run(trust, release, schedule):
    """Also where trees send several sums at a time, and users send bits."""
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release, trust)
    algo = fb.algos.private_fed_lin_ucb(mechanism, schedule=schedule)
    run = fb.simulate(ENV, algo, horizon=20, key=jax.random.key(0), seeds=1)
    bound = algo.bind(ENV.spec, 20)
    assert bits_per_silo(bound) * 3 == run.communication["bits"][0, -1] > 0
    assert bound.n_syncs == run.communication["rounds"][0, -1]


@pytest.mark.slow
def test_all_are_certified_and_of_few_programs():
    found = candidates(demands(horizon=1000, trusted=ALL))
    assert {one.certificate.claim for one in found} == {"certified"}
    assert all(one.certificate.epsilon_exact <= 1 for one in found)
    wide = [one.group for one in found if "greedy" not in one.label]  # greedy agents have no widths
    assert len(wide) == len(SCALES) * len(set(wide)) < len(found)
    assert {one.algo.privacy.trust for one in found} == {"silo_local", "shuffle_vector_sum", "secagg", "central"}
    growing = {one.algo.privacy.trust for one in found if isinstance(one.algo.schedule, fb.schedules.Geometric)}
    assert growing == {"silo_local", "secagg", "central"}


def test_a_warning_of_delta_is_there():
    (first, *_) = candidates(demands(budget=fb.privacy.Budget(1.0, 0.1), trusted=("silo",)))
    assert "delta = 0.1 is not below 1 / 300 visits of users" in first.certificate.warning


@pytest.mark.slow
def test_who_is_not_trusted_is_excluded_as_a_whole():
    found = candidates(demands())
    why = {one.label: one.excluded for one in found if one.excluded}
    assert why == {"shuffle_vector_sum": "it needs trust in a shuffler", "central": "it needs trust in the server"}
    assert {one.algo.privacy.trust for one in found if not one.excluded} == {"silo_local", "secagg"}


@pytest.mark.parametrize("most", deep([1, 7, 90, 1000], keep={0}))
def test_a_limit_on_synchronisations_is_kept_and_used_up(most):
    found = considered(demands(horizon=1000 if most > 1 else 100, max_syncs=most))
    able = [one for one in found if not one.excluded]
    assert max(one.syncs for one in able) <= most
    assert all(
        one.bits is None and one.syncs > most and f"more than {most:,}" in one.excluded for one in found if one.excluded
    )
    kinds = {(one.algo.privacy.trust, type(one.algo.schedule)) for one in able}
    assert len(kinds) == 4
    if most in (1, 7):
        assert {one.syncs for one in able if isinstance(one.algo.schedule, fb.schedules.Every)} == {most}


def test_a_limit_on_bits_is_kept_and_used():
    """A message, and what comes back, are 9 numbers of 32 bits each: 20 synchronisations fit."""
    found = considered(demands(max_bits=20 * 2 * 9 * 32, trusted=("silo",)))
    able = [one for one in found if not one.excluded]
    assert {one.syncs for one in able if isinstance(one.algo.schedule, fb.schedules.Every)} == {20}
    assert max(one.bits for one in able) == 20 * 2 * 9 * 32
    assert any("bits of a silo are more than 11,520" in one.excluded for one in found)


@pytest.mark.slow
def test_less_than_one_message_is_nothing():
    found = considered(demands(max_bits=500))
    assert all(one.excluded for one in found)


def test_noise_that_cannot_be_drawn_is_a_reason():
    found = considered(demands(budget=fb.privacy.Budget(1.0, 1e-40), trusted=("silo",)))
    assert all(one.excluded for one in found)
    assert "delta must" in found[0].excluded


def test_visits_are_asked_for():
    one = candidates(demands(visits=3, trusted=("silo",)))[0]
    assert one.algo.privacy.visits == 3
    assert "3" in one.certificate.unit


@pytest.mark.slow
def test_without_privacy_is_as_often_as_can_be():
    able = [one for one in considered(demands(max_syncs=20)) if not one.excluded]
    found = without_privacy(demands(max_syncs=20), able)
    assert [one.algo.policy.exploration_scale for one in found] == list(SCALES)
    assert {(one.algo.privacy, one.syncs) for one in found} == {(None, 20)}


def test_without_privacy_where_no_fixed_batch_will_do():
    """Float32 cannot hold a batch of 166,667 rounds of 1,000 silos; growing batches are handed over before they end."""
    spec = fb.envs.sphere(1000, 5, 3, rewards="bernoulli").spec
    asked = Demands(spec, 10**6, fb.privacy.Budget(1.0, 1e-6), ("silo",), None, 5, None)
    able = [one for one in considered(asked) if not one.excluded]
    assert {type(one.algo.schedule) for one in able} == {fb.schedules.Geometric}
    assert without_privacy(asked, able)[0].algo.schedule == max(able, key=lambda one: one.syncs).algo.schedule


@pytest.mark.parametrize("horizon", deep([1, 2, 9, 10**6], keep={0, 1}))
@pytest.mark.slow
def test_schedules_suit_every_horizon(horizon):
    found = considered(demands(horizon=horizon, trusted=("silo",)))
    assert all(1 <= one.syncs <= horizon for one in found)
    assert not any(one.excluded for one in found)


def test_code_makes_it_again():
    for one in considered(demands(visits=2)):
        assert eval(code(one.algo), {"fb": fb}) == one.algo
    other = fb.algos.fed_ucb(fb.privacy.Budget(2.0, 0.1, "add_remove"), policy=fb.algos.LogDetUCB(failure=0.1))
    assert eval(code(other), {"fb": fb}) == other
