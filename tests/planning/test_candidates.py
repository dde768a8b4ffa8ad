"""What is considered: exact communication, limits that are kept and used, reasons, and code that makes it again."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from helpers import deep

import fedbandit_jax as fb
from fedbandit_jax.planning import candidate
from fedbandit_jax.planning import candidates as module
from fedbandit_jax.planning.candidate import bits_per_silo
from fedbandit_jax.planning.candidates import candidates, without_privacy
from fedbandit_jax.planning.demands import Demands, fixed_arms, silos_away
from fedbandit_jax.planning.demands import units as units_of
from fedbandit_jax.planning.recommendation import code

ENV = fb.envs.sphere(3, 4, 3, rewards="bernoulli")
BUDGET = fb.privacy.Budget(1.0, 1e-5)
ALL = ("silo", "shuffler", "secagg", "server")


@pytest.fixture(autouse=True, scope="module")
def few():
    """Of every policy fewer numbers: candidates of one policy differ in nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        for name, values in dict(SCALES=(1.0, 0.1), DRAWS=(0.25,), COINS=(5.0,), PHASES=(0.15,)).items():
            patch.setattr(module, name, values)
        yield


def demands(horizon=100, trusted=("silo", "secagg"), unit=None, max_syncs=None, budget=BUDGET, spec=ENV.spec):
    return Demands(spec, horizon, budget, trusted, unit, max_syncs)


ASKED = demands(unit=fb.privacy.Users(2), max_syncs=1)
cached = functools.cache(candidates)


def considered(asked):
    return [one for one in cached(asked) if one.algo is not None]


GROW = fb.schedules.Geometric
EVERY, GROWING = fb.schedules.Every(3), GROW(1.5, first=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trust", "release", "schedule"),
    [("shuffle_vector_sum", "tree", EVERY), ("silo_local", "tree", GROWING), ("local", "input_perturbation", EVERY)],
)
def test_bits_are_those_of_a_run(trust, release, schedule):
    """Also where trees send several sums at a time, and users send bits."""
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release, trust)
    algo = fb.algos.private_fed_lin_ucb(mechanism, schedule=schedule)
    run = fb.simulate(ENV, algo, horizon=20, key=jax.random.key(0), seeds=1)
    bound = algo.bind(ENV.spec, 20)
    assert bits_per_silo(bound) * 3 == run.communication["bits"][0, -1] > 0
    assert bound.n_syncs == run.communication["rounds"][0, -1]


USERS = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=2, n_arms=4, dim=5)
ARMS = np.eye(3, dtype=np.float32)
SAME = fb.envs.replay(np.tile(ARMS, (3, 1)), [3, 3, 3], [0.2, 0.5, 0.9], n_agents=3, rewards="bernoulli")
RETURNING = Demands(USERS.spec, 200, BUDGET, ALL, "visit", None)
FIXED = Demands(SAME.spec, 200, BUDGET, ("silo",), None, None, fixed_arms(SAME))


@pytest.fixture(scope="module")
def everything(few):
    """Candidates where all parties are trusted, with arms that are always the same, and with users who return."""
    return [*considered(RETURNING), *(one for one in candidates(FIXED) if one.algo)]  # arms have no hash


def test_what_is_considered(everything):
    parts = {part for one in everything for part in (one.algo, one.algo.policy, getattr(one.algo, "grouping", None))}
    used = {type(part).__name__ for part in parts}
    linear = {"Thompson", "PhasedElimination", "Greedy", "EpsilonGreedy", "UCB", "Federated"}
    assert used == linear | {"Grouped", "Mixture", "Alone", "AsyncFederated", "NoneType"}
    releases = {one.algo.privacy.release for one in everything}
    assert {"input_perturbation", "blt"} <= releases  # the former is that of AdaC-OFUL and DP-DPE
    assert not any(one.excluded for one in everything)
    assert {one.certificate.claim for one in everything} == {"certified"}
    assert all(one.certificate.epsilon_exact <= 1 for one in everything)
    labels = [one.label for one in considered(RETURNING)]
    assert len(set(labels)) == len(labels)
    growing = {one.algo.privacy.trust for one in considered(RETURNING) if isinstance(one.algo.schedule, GROW)}
    assert growing == {"silo_local", "secagg", "central"}


def test_arms_that_are_the_same_for_all_are_found():
    """Not where they differ from user to user, or from world to world, or where some have fewer."""
    np.testing.assert_array_equal(fixed_arms(SAME), ARMS)
    assert fixed_arms(ENV) is None
    assert fixed_arms(fb.envs.sphere(1, 4, 3, contexts="fixed")) is None
    rows = np.concatenate([ARMS, ARMS[::-1]])
    assert fixed_arms(fb.envs.replay(rows, [3, 3], [0.2, 0.5, 0.9], n_agents=2)) is None
    assert fixed_arms(fb.envs.replay(ARMS[[0, 1, 0]], [2, 1], [0.2, 0.5, 0.9], n_agents=2)) is None


def test_users_who_return_are_served_by_themselves_unless_a_server_is_trusted():
    """What all users did together is seen by nobody whom users of several servers trust."""
    found = [one for one in considered(RETURNING) if one.algo.privacy.trust == "silo_local"]
    assert {type(one.algo).__name__ for one in found} == {"Grouped", "AsyncFederated"}
    one_server = fb.envs.clustered(n_users=6, n_servers=1, n_clusters=2, n_arms=4, dim=5)
    found = considered(Demands(one_server.spec, 200, BUDGET, ("silo",), "visit", None))
    assert {type(one.algo).__name__ for one in found} == {"Grouped", "AsyncFederated", "Federated"}


def test_shares_are_for_those_who_are_away():
    """On average and three standard deviations more, and as many as a schedule has away."""
    crowd = fb.envs.sphere(100, 4, 3, rewards="bernoulli")
    assert silos_away(crowd) == 0
    assert abs(silos_away(fb.envs.dropout(crowd, 0.2)) - (20 + 3 * 4)) <= 1
    assert silos_away(fb.envs.dropout(crowd, schedule=np.arange(100)[None] < 7)) == 7
    assert silos_away(fb.envs.delay(fb.envs.dropout(ENV, 0.9), 5)) == 2


def test_where_silos_drop_out_every_batch_is_in_one_message():
    asked = demands(horizon=60)._replace(spec=dataclasses.replace(ENV.spec, drops=True), away=1)
    found = considered(asked)
    assert {(one.excluded, one.certificate.claim) for one in found} == {("", "certified")}
    assert {one.algo.privacy.release for one in found} == {"input_perturbation"}
    assert {(one.algo.privacy.trust, one.algo.privacy.dropouts) for one in found} == {("silo_local", 0), ("secagg", 1)}
    stds = [
        next(one.certificate.server_noise_std for one in considered(some) if "secagg, Greedy" in one.label)
        for some in (asked, asked._replace(away=0))
    ]
    assert stds[0] > 1.1 * stds[1]


def test_where_silos_lie_the_server_takes_a_median_of_messages_it_sees():
    spec = fb.envs.sphere(5, 4, 3, rewards="bernoulli").spec
    asked = demands(horizon=60, trusted=("silo", "secagg"))._replace(spec=spec, liars=0.2)
    found, rules = candidates(asked), {"median", "geometric_median"}
    ran = [one for one in found if not one.excluded]
    assert {one.label for one in found if "no single messages" in one.excluded} == {"secagg"}
    assert {(one.algo.privacy.trust, one.certificate.claim) for one in ran} == {("silo_local", "certified")}
    assert {one.algo.aggregate for one in ran} == rules
    assert {one.algo.liars for one in ran} == {fb.privacy.Liars(0.2, "collude")}
    assert all(one.algo.aggregate in one.label.split(", ")[1] for one in ran)
    public = without_privacy(asked, ran)  # the same play, so that what privacy costs is what noise does
    assert [(one.algo.aggregate, one.algo.policy, one.algo.schedule) for one in public] == [
        (one.algo.aggregate, one.algo.policy, one.algo.schedule) for one in ran
    ]
    assert {one.algo.privacy for one in public} == {None}


def test_a_first_release_waits_for_rewards_that_are_late():
    def firsts(late):
        found = considered(demands(1000, ("silo",))._replace(spec=dataclasses.replace(ENV.spec, late=late)))
        return sorted({one.algo.schedule.first for one in found if isinstance(one.algo.schedule, GROW)})

    assert firsts(20) == [early + 20 for early in firsts(0)]
    assert 900 < min(firsts(900)) <= max(firsts(900)) < 1000


@pytest.mark.parametrize("more", [dict(late=20), dict(drops=True)])
def test_phases_are_not_for_what_comes_from_other_phases(more, everything):
    assert any("DP-DPE" in one.label for one in everything)
    asked = FIXED._replace(spec=dataclasses.replace(SAME.spec, **more), max_syncs=1)
    assert not any("DP-DPE" in one.label for one in candidates(asked))


def test_a_warning_of_delta_is_there_and_noise_that_cannot_be_drawn_is_a_reason():
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=50)
    one = candidate.considered("one", "one", algo, demands(budget=fb.privacy.Budget(1.0, 0.1)))
    assert "delta = 0.1 is not below 1 / 300 visits of users" in one.certificate.warning
    found = considered(demands(budget=fb.privacy.Budget(1.0, 1e-40), trusted=("silo",)))
    assert all(one.excluded for one in found)
    assert "delta must" in found[0].excluded


def test_untrusted_parties_are_excluded_as_a_whole_and_visits_asked_for():
    found = cached(ASKED)
    why = {one.label: one.excluded for one in found if one.excluded}
    assert why == {"shuffle_vector_sum": "it needs trust in a shuffler", "central": "it needs trust in the server"}
    assert {one.algo.privacy.trust for one in found if not one.excluded} == {"silo_local", "secagg"}
    assert {one.algo.privacy.unit for one in found if not one.excluded} == {fb.privacy.Users(2)}
    assert "2" in considered(ASKED)[0].certificate.unit


@pytest.mark.parametrize("most", deep([1, 20, 90], keep={0, 1}))
def test_a_limit_is_kept_and_used_up(most):
    """A message, and what comes back, are 9 numbers of 32 bits each."""
    found = considered(demands(unit=fb.privacy.Users(2), max_syncs=most))
    assert not any(one.excluded for one in found)
    assert len({(one.algo.privacy.trust, type(one.algo.schedule)) for one in found}) == 4
    assert max(one.syncs for one in found) <= most
    every = {(one.syncs, one.bits) for one in found if isinstance(one.algo.schedule, fb.schedules.Every)}
    assert most == 90 or every == {(most, most * 576)}


def test_few_batches_grow_by_more_than_prefixes_are_weighed_by():
    found = considered(demands(3000, ("silo",), max_syncs=1, budget=fb.privacy.Budget(8.0, 1e-2)))
    grown = [one for one in found if isinstance(one.algo.privacy.release, fb.privacy.Decaying)]
    assert max(one.algo.schedule.growth for one in grown) > 100
    assert {one.algo.privacy.release for one in grown} == {fb.privacy.Decaying(100.0)}  # which goes up to 100
    assert {(one.syncs, one.excluded) for one in grown} == {(1, "")}


def test_bounds_of_one_user_are_chosen_with_all_else():
    """One, four, and as many visits as there are; batches that are many are apart, and the release knows it."""
    asked = Demands(dataclasses.replace(ENV.spec, n_users=10), 200, BUDGET, ("silo",), "user", None, alone=False)
    found = considered(asked)
    assert not any(one.excluded for one in found)
    assert {type(one.algo).__name__ for one in found} == {"Federated"}
    assert len({one.label for one in found}) == len(found)
    units = {one.algo.privacy.unit for one in found if isinstance(one.algo.schedule, GROW)}
    assert units == {fb.privacy.Users(visits, per_batch=1) for visits in (1, 4, 20)}
    for one in found:
        unit, release = one.algo.privacy.unit, one.algo.privacy.release
        assert one.label.startswith(f"silo_local of {unit.visits} visit{'s' * (unit.visits > 1)}, ")
        assert one.certificate.unit.endswith("contributions beyond that are left out")
        if isinstance(one.algo.schedule, fb.schedules.Every):
            apart = {1: 1, 4: 12, 20: 2}[unit.visits]  # of 100 batches
            assert unit == fb.privacy.Users(unit.visits, 1, apart)
            assert release == ("blt" if unit.visits == 1 else fb.privacy.BandMF(100, unit))
        elif release != "input_perturbation":
            assert (release, one.algo.schedule.growth) == (fb.privacy.Decaying(1.0), 2.0)
    four = considered(asked._replace(unit=fb.privacy.Users(4, per_batch=1)))  # "who come up to four times"
    same = [one for one in found if " of 4 visits" in one.label]
    assert [repr(one.algo) for one in four] == [repr(one.algo) for one in same] != []
    few = Demands(dataclasses.replace(ENV.spec, n_users=100), 200, BUDGET, ("silo",), "user", None)
    assert [unit.visits for unit in units_of(few)] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [1, 9, 10**6])
def test_schedules_suit_every_horizon(horizon):
    found = considered(demands(horizon=horizon, trusted=("silo",)))
    assert all(0 <= one.syncs <= horizon for one in found)
    assert not any(one.excluded for one in found)


def test_code_makes_it_again():
    for one in considered(ASKED):
        made = eval(code(one.algo), {"fb": fb})
        assert code(made) == code(one.algo)
        assert made.certificate(ENV.spec, 100) == one.algo.certificate(ENV.spec, 100)
    other = fb.algos.fed_ucb(fb.privacy.Budget(2.0, 0.1, "zero_out"), policy=fb.algos.LogDetUCB(failure=0.1))
    assert eval(code(other), {"fb": fb}) == other


BANDIT = fb.envs.arms(means=[0.3, 0.7, 0.5]).spec


def of_arms(**options):
    return demands(1_000, **{"spec": BANDIT, **options})._replace(sums=True)


def test_candidates_of_arms():
    """All are certified for the budget, by the least trust among the least noise; others have a reason."""
    found = candidates(of_arms(trusted=ALL))
    able = {one.label: one for one in found if one.algo is not None}
    assert [one.label for one in found if one.excluded] == ["central", "shuffle", "local"]
    kinds = ["elimination", "AdaC-UCB", "IMED", "KL-UCB", "Thompson"]
    assert list(able) == [f"secagg, {kind}" for kind in kinds]
    for one in able.values():
        bound = one.algo.bind(BANDIT, 1_000)
        assert (one.certificate.claim, one.certificate.notion) == ("certified", "pure DP")
        assert one.certificate.epsilon_exact == pytest.approx(1.0, abs=0.02)
        assert one.syncs == bound.n_batches
        assert one.bits == max(bound.protocol.bits)
        assert eval(code(one.algo), {"fb": fb}) == one.algo
    plain = without_privacy(of_arms(), able.values())
    assert [one.label for one in plain] == [f"not private, {kind}" for kind in kinds]
    assert {one.certificate.claim for one in plain} == {"none"}
    assert [one.syncs for one in plain[:4]] == [able[f"secagg, {kind}"].syncs for kind in kinds[:4]]
    for trusted, trust in (("silo", "local"), ("shuffler", "shuffle"), ("server", "central")):
        (one, *_) = (one for one in candidates(of_arms(trusted=(trusted,))) if one.algo is not None)
        assert one.label == f"{trust}, elimination"


def test_limits_of_arms():
    """Batches grow faster if they must be few. Whoever returns is protected by elimination only."""
    few = {one.label: one for one in candidates(of_arms(max_syncs=18)) if one.algo is not None}
    assert few["secagg, IMED"].algo.growth == 4
    assert not few["secagg, IMED"].excluded
    assert few["secagg, IMED"].syncs <= 18
    assert all(one.excluded for one in candidates(of_arms(max_syncs=1)))
    back = fb.envs.returning(fb.envs.arms(3), n_users=100).spec
    found = candidates(of_arms(unit="user", spec=back, trusted=("server",)))
    assert [one.label for one in found if one.algo is not None] == [
        f"central of {visits}, elimination" for visits in ("1 visit", "4 visits", "10 visits")
    ]


@pytest.mark.slow
def test_plan_of_arms():
    """It recommends the candidate of the least regret, which a run confirms within its interval."""
    env = fb.envs.arms(means=[0.3, 0.7, 0.5], rewards="bernoulli")
    run = dict(horizon=4_000, key=jax.random.key(1), progress=False)
    best = fb.plan(env, BUDGET, trusted="secagg", **run).best
    regret = fb.simulate(env, best.algo, seeds=100, stride=4_000, **run).regret[:, -1].mean()
    assert best.forecast.low < regret < best.forecast.high
    assert not best.label.endswith(("elimination", "AdaC-UCB"))
