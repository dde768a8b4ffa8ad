"""Every shipped mechanism passes its audit, and every mechanism with a known flaw is refuted by the same audit."""

import dataclasses
import functools
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import PRIVATE as ELIMINATIONS
from helpers import AUTHORS, refused

import fedbandit_jax as fb
from fedbandit_jax import audits
from fedbandit_jax.audits import noise
from fedbandit_jax.audits.clusters import TranscriptOfVisits, _flat, labels, one_item, spec_of_visits, uploads
from fedbandit_jax.audits.transcripts import farthest_user, neighbours
from fedbandit_jax.engine.runners import Sequential
from fedbandit_jax.envs import Script
from fedbandit_jax.privacy.releases import RELEASES
from fedbandit_jax.privacy.trust import TRUST

BROKEN = Path(__file__).parent / "controls"
BUDGET = fb.privacy.Budget(1.0, 0.1)
PRIVATE = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(5.0, 0.1), schedule=2)
HOMO = fb.algos.homo_dc(BUDGET, trigger="count")

SURE = 1 - 1e-6  # confidence of every audit here: 75 true claims pass together with probability 0.9999 and more
RUNS = 8000  # of a shipped mechanism; as many are compiled briefly
TRIES = 4000, 16_000, 64_000  # runs of a control, most of which need no second try
PARTS = 12  # of the cases, which workers share; those that share programs follow each other
SHOWN = {  # the share of the claim that is shown at least, where it is not 0.3
    "silo_local tree": 0.8,  # exact noise, and users as far apart as may be
    "silo_local_matrix tree": 0.8,
    "LDP-SE": 0,  # every user's message is as private as the claim, and a sum of them far more
    "Shuffle-DP-SE messages": 0.2,  # half of epsilon is charged for bits, which spend less
}
ATTAINED = {  # the share of the claimed sensitivity that is measured, where it is not all of it
    "silo_local blt logistic": (0.873, 0.875),  # no pair has the angle at which both parts together move most
    "Shuffle-DP-SE": (0.96, 1),  # users round after the noise: five standard errors are taken off, here and below
    "Shuffle-DP-SE messages": (0.75, 1),
    "RR-SE messages": (0.32, 0.47),  # bits are flipped by chance, so that the mean message moves by 1 - 2 q
    "shuffle_amplified tree messages": (0.69, 0.72),  # and shuffled places are averaged, so that 1 / sqrt(2) is seen
}
SELDOM = "noise left out in 0.1 %", "noise from float32 normals"  # seen by draws of the noise, and by no run
FAR = "batch cascade", "unclipped rewards"  # one user moves the view by far more than the sensitivity


@functools.cache
def shipped():
    return {case.name: case for case in audits.shipped()}


@functools.cache
def controls():
    return {case.name: case for case in audits.load(BROKEN)}


def part_of(cases, part):
    return [*cases.values()][len(cases) * part // PARTS : len(cases) * (part + 1) // PARTS]


def refuted(case, key):
    """The first of several audits, of ever more runs, whose bound is above the claim by 5 %, or the last of them.

    Draws of the noise alone are not looked at, since `tests/privacy/test_behaviour.py` does.
    """
    fields = {field.name: getattr(case, field.name) for field in dataclasses.fields(case) if field.name != "slow"}
    for n_runs in TRIES:
        audit = audits.audit(**fields, key=key, n_runs=n_runs, confidence=SURE)
        if audit.epsilon_lower > 1.05 * audit.epsilon:
            break
    return audit


def test_everything_shipped_has_a_case(key):
    """And a bound algorithm is an argument of the program that runs it."""
    words = {word for name in shipped() for word in name.split()}
    assert {*TRUST, *RELEASES, *ELIMINATIONS} <= words
    assert {"Thompson", "EpsilonGreedy", "DP-DPE", "AdaC-OFUL", "AdaC-UCB", "ThompsonArms", "Truncated"} <= words
    messages = {"LDP-SE", "RR-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE", "Shuffle-DP-SE"}
    assert {name.removesuffix(" messages") for name in shipped() if name.endswith("-SE messages")} == messages
    assert len(controls()) > 100
    assert {*SHOWN, *ATTAINED} <= {*shipped()}
    assert {*SELDOM, *FAR} <= {*controls()}
    for name in ("CDP-SE", "silo_local tree"):
        case = shipped()[name]
        assert jax.tree.leaves(jax.eval_shape(lambda run, data: run(key, data), case.mechanism, case.data))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_shipped_mechanisms_pass(key, part):
    """Their noise has its size and law, and the bound is not vacuous: worst-case neighbours show most of the claim."""
    for case in part_of(shipped(), part):
        audit = dataclasses.replace(case, slow=1).run(key, n_runs=RUNS, confidence=SURE)
        assert audit.passed, audit
        assert audit.epsilon_lower >= SHOWN.get(case.name, 0.3) * audit.epsilon, audit
        if audit.sensitivity is not None:
            low, high = ATTAINED.get(case.name, (1, 1))
            assert low - 1e-3 < audit.sensitivity_measured / audit.sensitivity < high + 1e-3, audit


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_controls_are_caught(key, part):
    """By runs, and not by replay alone."""
    for case in part_of(controls(), part):
        if case.name in SELDOM:
            assert case.run(key, n_runs=1000).noise
            continue
        audit = refuted(case, key)
        assert audit.epsilon_lower > 1.05 * audit.epsilon, audit
        assert case.name not in FAR or audit.sensitivity_measured > 40 * audit.sensitivity, audit


@pytest.mark.parametrize("kind", [fb.algos.AdaCUCB, fb.algos.PhasedKLUCB, fb.algos.PhasedThompson])
def test_nobody_comes_twice(kind):
    """Data have rewards for three batches, and runs of one arm at a time have no more, whatever their phases."""
    case = audits.arms(kind(fb.algos.CDPSE(1.0)))
    first, second, third = case.mechanism.algo.users[:3]
    assert len(case.data) == 3
    assert 2 * first + second <= case.mechanism.horizon < 2 * first + second + min(first, second, third)


def test_a_control_is_caught(key):
    """By what the adversary sees, and by replay."""
    audit = refuted(controls()["FedUCB, timing"], key)
    assert not audit.passed
    assert audit.epsilon_lower > 1.05 * audit.epsilon, audit
    assert not audit.same_control_flow


ODD = {  # what hides in the tails, or happens once in a thousand runs, is seen by millions of draws
    "silo_local tree": "",
    "noise from float32 normals": "its noise repeats .* values beyond 4 standard deviations in .*",
    "noise left out in 0.1 %": "its noise takes the value 0, in standard deviations, .* times in .*",
    "bounded noise": "its noise is beyond 1 standard deviations .* times, a normal law .*",
}


@pytest.mark.parametrize("name", ODD)
def test_the_law_of_noise(key, name):
    found = noise.odd((shipped() | controls())[name].mechanism.algo.mechanism, key)
    assert re.fullmatch(ODD[name], found), found


def test_a_claim_in_words():
    """An algorithm without a certificate has the neighbours of the words."""
    budget, leaking = fb.privacy.Budget(1.0, 0.1, "zero_out"), PRIVATE.replace(learns_in_batch=True)
    case = audits.claimed(leaking, budget, n_agents=2, horizon=6, visits=2, name="words")
    assert (case.name, case.epsilon, case.delta, case.gaussian) == ("words", 1.0, 0.1, False)
    assert differing(case.data, case.neighbour).sum() == 2
    assert not case.neighbour[0][0][0].any()
    for argument, change in (("algo", dict(algo=3)), ("budget", dict(budget=1.0)), ("horizon", dict(visits=3))):
        with refused(argument):
            audits.claimed(**dict(algo=PRIVATE, budget=budget, horizon=2) | change)


def differing(data, other):
    """In which rounds and silos two data sets of a transcript differ."""
    (x, y, _), (other_x, other_y, _) = data, other
    return (x != other_x).any((2, 3)) | (y != other_y).any(2)


OTHER = fb.algos.Federated(policy=fb.algos.Thompson())
NO_CASE = {  # with several budgets, with none, without a certificate, or of another kind
    audits.linear: [
        fb.algos.private_fed_lin_ucb([fb.privacy.Budget(1.0, 0.1)] * 2),
        fb.algos.fed_lin_ucb(),
        PRIVATE.replace(schedule=fb.schedules.LogDet()),
        PRIVATE.replace(learns_in_batch=True),
        PRIVATE.replace(std=AUTHORS["silo_local"]),
    ],
    audits.clusters: [OTHER, HOMO.replace(alpha_1=1.5), HOMO.replace(trigger="determinant"), fb.algos.homo_dc()],
    audits.turns: [OTHER, fb.algos.Grouped()],
}


@pytest.mark.parametrize(("build", "algo"), [(build, algo) for build, some in NO_CASE.items() for algo in some])
def test_what_has_no_case(build, algo):
    with refused("algo"):
        build(algo, **{"n_agents": 2} if build is audits.linear else {})


HEAD = "from __future__ import annotations\nimport fedbandit_jax as fb\n"
CASE = "fb.audits.Case(name=NAME, mechanism=abs, data=0, neighbour=1, epsilon=1, delta=0)"
NO_CONTROLS = {
    None: "file",
    "x = 1\n": "none",
    "def broken_x():\n    return 3": "3",
    "def broken_x():\n    raise KeyError('y')": "KeyError in broken_x",
    "def broken_x(:": "SyntaxError",
}


def test_files_of_controls(tmp_path):
    """They import each other; those that begin with an underscore are not controls. Annotations may be strings."""
    (tmp_path / "_helper.py").write_text("def broken_not_this():\n    raise KeyError\nNAME = 'it'\n")
    laplace = "@fb.pytree\nclass Laplace:\n    scale: float = 1.0\n"
    broken = f"def broken_it():\n    return {CASE.replace('abs', 'Laplace')}\n"
    (tmp_path / "one.py").write_text(f"{HEAD}from _helper import NAME\n{laplace}{broken}")
    (tmp_path / "two.py").write_text(f"{HEAD}NAME = 'more'\ndef broken_two():\n    return [{CASE}, {CASE}]\n")
    assert [case.name for case in audits.load(tmp_path)] == ["it", "more", "more"]
    assert str(tmp_path) not in sys.path
    for text, why in NO_CONTROLS.items():
        (tmp_path / "one.py").unlink(missing_ok=True)
        if text is not None:
            (tmp_path / "one.py").write_text(text)
        with refused("controls") as found:
            audits.load(tmp_path / "one.py")
        assert why in str(found.value)
    (tmp_path / "empty").mkdir()
    with refused("controls"):
        audits.load(tmp_path / "empty")
    assert "fedbandit_controls_one" not in sys.modules


MOVED = {"other direction": 4, "out of range": 4, "reward": 1}  # the square of what is moved, else 4.5


def test_users_differ_first_in_the_middle_and_last():
    """Of every pair exactly one user's data differ, her arm alone is not seen, and the statistic moves as is said."""
    pairs = neighbours(6, 3, "replace", 1)
    places = {}
    for name, ((x, y, seen), (other, z, also)) in pairs.items():
        differs = differing((x, y, seen), (other, z, also))
        np.testing.assert_array_equal(differs, ~seen)
        np.testing.assert_array_equal(seen, also)
        places[name] = tuple(np.argwhere(differs)[0].tolist())
        assert differs.sum() == 1
        one, two = ((u[differs][0, 0], r[differs][0, 0]) for u, r in ((x, y), (other, z)))
        one, two = ((u / max(np.linalg.norm(u), 1), np.clip(r, 0, 1)) for u, r in (one, two))  # what is enforced
        moved = np.linalg.norm(np.outer(one[0], one[0]) - np.outer(two[0], two[0])) ** 2
        moved += np.linalg.norm(one[0] * one[1] - two[0] * two[1]) ** 2
        assert moved == pytest.approx(MOVED.get(name, 4.5), rel=1e-5)
    assert [places[f"{who} user"] for who in ("first", "middle", "last")] == [(0, 0), (2, 1), (5, 2)]
    (x, y, _), _ = pairs["out of range"]
    assert (np.abs(x).max(), y.max()) == (3, 50)
    (x, _, _), (other, _, _) = neighbours(6, 3, "replace", 1, farthest=(np.array([-1.0, 0.0]), 1.0))["first user"]
    np.testing.assert_array_equal(x[0, 0], -other[0, 0])


@pytest.mark.parametrize("options", [{}, dict(centred=True), dict(gram_scale=0.8), dict(centred=True, gram_scale=0.3)])
def test_the_farthest_user_attains_the_sensitivity(options):
    """Packed by the statistic that is bound, (1, 0) with reward 1 is as far from that user as the noise covers."""
    spec = fb.Spec(n_agents=1, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True, constant=True)
    mechanism = PRIVATE.replace(statistic=fb.privacy.Linear(**options)).bind(spec, 50).mechanism
    far, reward = farthest_user(mechanism)
    x, y, *_ = mechanism.admit(np.stack([[1.0, 0.0], far], 1), np.array([1.0, reward]))
    packed = mechanism.statistic.pack(np.einsum("im,jm->mij", x, np.concatenate([x, y[None]])))
    moved = np.linalg.norm(packed[0] - packed[1]) * mechanism.release.sensitivity_sq() ** 0.5
    assert moved == pytest.approx(mechanism.sensitivity, rel=1e-5)


def test_shipped_cases_have_the_neighbours_of_their_budgets():
    """All rounds of who returns, or one; nobody instead of a user, no promise about rewards, and one who decides."""
    twice = PRIVATE.replace(unit=fb.privacy.Users(2), schedule=fb.schedules.Geometric(2.0, first=2))
    for case, rounds in (
        (shipped()["silo_local tree"], 1),
        (shipped()["silo_local tree 2 visits"], 16),
        (audits.linear(twice, n_agents=2, horizon=6), 6),
    ):
        for pair in ((case.data, case.neighbour), *case.others.values()):
            assert differing(*pair).sum() == rounds
        assert not case.mechanism.spec.rewards_in_unit
    removed = shipped()["silo_local tree zero_out"]
    assert not removed.neighbour[0][0].any()
    assert removed.data[0][0].any()
    for label in ("CDP-SE", "Dist-CDP-SE"):  # batches of 4 and 16 users: half of what one of 16 moves a mean by, halved
        np.testing.assert_allclose(shipped()[label].mechanism.algo.radius[1:, 1:], 1 / 64)


# What is seen of clusters of users: covered by noise if certified, else glaring.

PRINTED, EXACT = fb.algos.FCLUB(BUDGET, calibration="theorem"), fb.algos.FCLUB(BUDGET)
LEAKS = [  # what is shown of an algorithm, runs, and the least epsilon: every run may differ, and noise may be exact
    *((labels, PRINTED.replace(**by), 1000, 4.0)  # at 99.9 % 500 runs can show 4.2
      for by in ({}, dict(alpha_1=3.0), dict(alpha_1=0.05, adjacency="zero_out"))),
    (uploads, PRINTED, 20_000, 3.0),
    *((uploads, EXACT.replace(**by), 20_000, 1.4) for by in (dict(shift="once"), dict(adjacency="zero_out"))),
    (labels, HOMO, 4000, 0.0),
    (uploads, HOMO, 4000, 0.0),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("leak", "algo", "runs", "least"), LEAKS)
def test_what_noise_does_not_hide(key, leak, algo, runs, least):
    """Local clusters, and when they upload, as printed; certified runs show neither."""
    audit = leak(algo, name="it").run(key, n_runs=runs)
    if algo == HOMO:
        assert (audit.passed, audit.same_control_flow, audit.epsilon_lower) == (True, True, 0)
    else:
        assert audit.epsilon_lower > least * (audit.epsilon if leak is uploads else 1), audit
        assert leak is uploads or not audit.same_control_flow


@fb.pytree
class OneUser(Script):
    """Rounds of user 0 alone."""

    n_clusters: int = fb.static(default=1)

    def observe(self, key, world, t):
        offered, t = super().observe(key, world, t)
        return offered._replace(user=jnp.zeros(1, jnp.int32)), t

    def clusters(self, world):
        return jnp.zeros(self.spec.n_users, jnp.int32)


@pytest.mark.slow
def test_transcripts_are_those_of_a_run(key):
    """One item, one user: rounds are alike, and the runner of arrivals may draw them at once."""
    data, spec = one_item([[1.0, 0.0]] * 3, [1.0] * 3, [0] * 3), spec_of_visits(2, 2)
    env = OneUser(contexts=data[0], answers=data[1], means=data[1], spec=spec)
    algo = HOMO.bind(spec, 3)
    shown, _ = jax.jit(TranscriptOfVisits(algo=algo, spec=spec))(key, data)
    runner = Sequential(env=env, algo=algo, horizon=3)

    def run(key):
        world, state = jax.jit(runner.init)(key)
        return runner.step(key, world, state, jnp.int32(0))[1]

    released, shared, _, _ = algo.view(jax.jit(run)(key))
    np.testing.assert_allclose(shown.released[-1], _flat(released), rtol=1e-6)
    total = shown.released[0].sum(0) + shown.messages.sum(0)  # one group, which is never renewed
    np.testing.assert_allclose(total, _flat(shared).sum(0), rtol=1e-4, atol=1e-4)
    assert shown.uploaded.tolist() == [False, True, True]  # a round is no more than none, in units of one round


def test_sums_are_shown_in_units_of_their_noise():
    flat = _flat(jnp.array([[2.0, 1.0, 3.0], [1.0, 0.0, 4.0]]))
    np.testing.assert_allclose(flat, [2**0.5, 1, 0, 3, 4], rtol=1e-6)
