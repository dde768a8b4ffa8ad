"""Every shipped mechanism passes its audit, and every mechanism with a known flaw is caught."""

import functools
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import audits
from fedbandit_jax.audits.transcripts import farthest_user, neighbours
from fedbandit_jax.privacy.releases import RELEASES
from fedbandit_jax.privacy.trust import TRUST

BROKEN = Path(__file__).parent / "controls"


@functools.cache
def shipped():
    return {case.name: case for case in audits.shipped()}


@functools.cache
def controls():
    return {case.name: case for case in audits.load(BROKEN)}


ATTAINED = {  # the share of the claimed sensitivity that is measured, where it is not all of it
    "silo_local blt totals": (0.994, 0.996),  # the two users' clipped totals are nearly, and not exactly, opposite
    "silo_local blt logistic": (
        0.873,
        0.875,
    ),  # no pair has the angle at which both parts together move most
    "Shuffle-DP-SE": (0.96, 1),  # users round after the noise: five standard errors are taken off, here and below
    "Shuffle-DP-SE messages": (0.75, 1),
    "shuffle_amplified tree messages": (0.69, 0.72),  # and shuffled places are averaged, so that 1 / sqrt(2) is seen
}

PRIVATE = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(5.0, 0.1), schedule=2)


def test_everything_shipped_has_a_case():
    words = {word for name in shipped() for word in name.split()}
    assert set(TRUST) <= words
    assert set(RELEASES) <= words
    assert set(fb.algos.ELIMINATION) - {"SE"} <= words
    assert {"Thompson", "EpsilonGreedy", "DP-DPE", "AdaC-OFUL", "AdaC-UCB"} <= words
    assert len(controls()) >= 60


@pytest.mark.parametrize("name", ["LDP-SE", "Dist-DP-SE messages", "AdaC-UCB central", "silo_local tree"])
def test_mechanisms_are_programs_of_their_data(key, name):
    """A bound algorithm is an argument of the program that runs it, so that all with the same structure share one."""
    case = shipped()[name]
    shapes = jax.eval_shape(lambda mechanism, data: mechanism(key, data), case.mechanism, case.data)
    assert jax.tree.leaves(shapes)


def assert_passes(name, key):
    """And the bound is not vacuous: worst-case neighbours show more than a third of the claim (exact noise)."""
    audit = shipped()[name].run(key, n_runs=40_000 * shipped()[name].slow)
    assert audit.passed, audit
    assert audit.epsilon_lower > 0.33, audit
    if audit.sensitivity is not None:
        low, high = ATTAINED.get(name, (1, 1))
        assert low - 1e-3 < audit.sensitivity_measured / audit.sensitivity < high + 1e-3


@pytest.mark.slow  # and part of `fedbandit audit`, which CI runs
@pytest.mark.parametrize("eighth", range(8))
def test_all_shipped_mechanisms_pass(key, eighth):
    for name in [*shipped()][eighth::8]:
        assert_passes(name, key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["silo_local tree", "silo_local_matrix prefix_tree"])
def test_a_million_runs_show_nine_tenths_of_what_exact_noise_gives(key, name):
    audit = shipped()[name].run(key, n_runs=10**6)
    assert 0.9 * audit.epsilon < audit.epsilon_lower < audit.epsilon


@pytest.mark.parametrize("name", ["adaptive schedule"])
def test_controls_are_caught(key, name):
    audit = controls()[name].run(key, n_runs=20_000)
    assert not audit.passed, audit
    assert audit.epsilon_lower > 1.05 * audit.epsilon, audit  # by what the adversary sees, not by replay alone


SELDOM = {"noise left out in 0.1 %", "noise from float32 normals"}  # seen by draws of the noise, and by no run


@pytest.mark.slow  # and part of `fedbandit audit --controls`, which CI runs
@pytest.mark.parametrize("eighth", range(8))
def test_all_controls_are_caught(key, eighth):
    for name, case in [*controls().items()][eighth::8]:
        audit = case.run(key, n_runs=80_000 * case.slow)
        assert not audit.passed, (name, audit)
        assert audit.epsilon_lower > 1.05 * audit.epsilon or (name in SELDOM and audit.noise), (name, audit)


@pytest.mark.slow
def test_replay_catches_the_cascade_and_unclipped_rewards(key):
    for name, moved in (("batch cascade", 100), ("unclipped rewards", 100)):
        audit = controls()[name].run(key, n_runs=1000)
        assert audit.sensitivity_measured > moved > audit.sensitivity
        assert any("sensitivity is at least" in reason for reason in audit.reasons)
    audit = controls()["adaptive schedule"].run(key, n_runs=1000)
    assert any("control flow depends on the data" in reason for reason in audit.reasons)


@pytest.mark.slow
def test_one_algorithm(key):
    """What a user would write."""
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(2.0, 1e-3)).replace(schedule=3, release="blt")
    audit = audits.linear(algo, n_agents=1).run(key, n_runs=20_000)
    assert audit.passed
    assert 1.5 < audit.epsilon_lower < 2.0
    assert audit.name == "silo_local blt"


def test_a_claim_in_words(key):
    """Of what is not certified: the neighbours are those of the claim."""
    budget, leaking = fb.privacy.Budget(1.0, 0.1, "zero_out"), PRIVATE.replace(learns_in_batch=True)
    case = audits.claimed(leaking, budget, n_agents=2, horizon=6, visits=2, name="words")
    assert (case.name, case.epsilon, case.delta, case.gaussian) == ("words", 1.0, 0.1, False)
    (x, y, _), (other, z, _) = case.data, case.neighbour
    assert ((x != other).any((1, 2, 3)) | (y != z).any((1, 2))).sum() == 2
    assert not other[0][0].any()
    fields = dict(algo=PRIVATE, budget=budget)
    for change, words in (
        (dict(algo=3), "^algo must be an fb.Algorithm, got 3"),
        (dict(budget=1.0), "^budget must be an fb.privacy.Budget, got 1.0"),
        (dict(visits=3, horizon=2), "^horizon must be >= 3, got 2"),
        (dict(n_agents=0), "^n_agents must be >= 1, got 0"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            audits.claimed(**fields | change)


@pytest.mark.parametrize(
    ("algo", "error", "words"),
    [
        (
            fb.algos.private_fed_lin_ucb([fb.privacy.Budget(1.0, 0.1)] * 2),
            TypeError,
            "algo must have one fb.privacy.Budget, got",
        ),
        (fb.algos.fed_lin_ucb(), TypeError, "algo must have one fb.privacy.Budget, got None"),
        (fb.algos.fed_lin_ucb(schedule=fb.schedules.LogDet()), TypeError, "one fb.privacy.Budget, got None"),
        (PRIVATE.replace(schedule=fb.schedules.LogDet()), ValueError, "algo must be certified .* got none"),
        (
            PRIVATE.replace(learns_in_batch=True),
            ValueError,
            "algo must be certified for its claim to be audited .fb.audits.claimed",
        ),
        (PRIVATE.replace(calibration="authors"), ValueError, "algo must be certified for its claim to be audited"),
    ],
)
def test_what_has_no_case(algo, error, words):
    with pytest.raises(error, match=words):
        audits.linear(algo, n_agents=2)


def test_the_sensitivity_is_that_of_the_mechanism_that_runs():
    """Visits, release and adjacency, by hand."""
    for options, kappa, delta_sq in (
        (dict(), 4, 4.5),
        (dict(adjacency="zero_out"), 4, 2.0),
        (dict(unit=fb.privacy.Users(2)), 4 * 2**2, 4.5),
        (dict(release="prefix_tree", trust="silo_local_matrix"), 4, 4.0),
        (dict(release="input_perturbation"), 1, 4.5),
    ):
        case = audits.linear(PRIVATE.replace(**options), n_agents=1)
        assert case.sensitivity == pytest.approx((kappa * delta_sq) ** 0.5)
    assert audits.linear(PRIVATE.replace(trust="secagg"), n_agents=2).sensitivity is None


def test_parts_must_fit():
    thompson = fb.algos.Federated(policy=fb.algos.Thompson())
    with pytest.raises(TypeError, match="^algo must have a policy UCB or LogDetUCB, got Thompson"):
        audits.brink(thompson)
    with pytest.raises(TypeError, match="^algo must be bound, as algo.bind\\(spec, horizon\\) is, got Federated"):
        audits.transcript(thompson, shipped()["silo_local tree"].mechanism.spec, 8)
    with pytest.raises(ValueError, match="^n_runs must be >= 1000, got 999"):
        shipped()["silo_local tree"].run(None, n_runs=999)
    with pytest.raises(ValueError, match="^slow must be >= 1, got 0"):
        audits.Case(name="never", mechanism=abs, data=0, neighbour=1, epsilon=1, delta=0, slow=0)
    with pytest.raises(TypeError, match="^cases must be a sequence of fb.audits.Case, got 3"):
        audits.run([shipped()["silo_local tree"], 3], key=None)


def test_controls_file_must_hold_controls(tmp_path):
    with pytest.raises(ValueError, match="controls must be a Python file, got"):
        audits.load(tmp_path / "nothing.py")
    for text, words in (
        ("def broken_x(:", "SyntaxError"),
        ("def broken_x():\n    raise KeyError('y')", "KeyError in broken_x"),
    ):
        bad = tmp_path / "bad.py"
        bad.write_text(text)
        with pytest.raises(ValueError, match=f"controls must run, got {words}"):
            audits.load(bad)
    bad.write_text("def broken_x():\n    return 3")
    with pytest.raises(ValueError, match="controls must return fb.audits.Case from broken_.*, got 3"):
        audits.load(bad)
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"controls must define functions broken_\*, got none in"):
        audits.load(empty)


def test_a_control_may_be_a_dataclass_whose_annotations_are_strings(tmp_path):
    (tmp_path / "control.py").write_text(
        "from __future__ import annotations\nimport fedbandit_jax as fb\n"
        "@fb.pytree\n"
        "class Laplace:\n"
        "    scale: float = 1.0\n"
        "def broken_laplace():\n"
        "    return fb.audits.Case(name='it', mechanism=Laplace, data=0, neighbour=1, epsilon=1, delta=0)\n"
    )
    assert [case.name for case in audits.load(tmp_path)] == ["it"]
    (tmp_path / "control.py").write_text("1 / 0")
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        audits.load(tmp_path)
    assert "fedbandit_controls_control" not in sys.modules


def test_folder_of_controls(tmp_path):
    """Files of one folder import each other; those that begin with an underscore are not controls."""
    (tmp_path / "_helper.py").write_text("def broken_not_this():\n    raise KeyError\nNAME = 'two'\n")
    (tmp_path / "one.py").write_text(
        "from _helper import NAME\nimport fedbandit_jax as fb\n"
        "def broken_it():\n"
        "    return fb.audits.Case(name=NAME, mechanism=abs, data=0, neighbour=1, epsilon=1, delta=0)\n"
    )
    assert [case.name for case in audits.load(tmp_path)] == ["two"]
    assert str(tmp_path) not in sys.path
    (tmp_path / "one.py").unlink()
    with pytest.raises(ValueError, match="controls must be Python files, got none in"):
        audits.load(tmp_path)


def test_users_differ_first_in_the_middle_and_last():
    """Of every pair exactly one user's data differ, her arm alone is not seen, and the statistic moves as is said."""
    pairs = neighbours(6, 3, "replace", 1)
    places = {}
    for name, ((x, y, seen), (other, z, also)) in pairs.items():
        differs = (x != other).any((2, 3)) | (y != z).any(2)
        np.testing.assert_array_equal(differs, ~seen)
        np.testing.assert_array_equal(seen, also)
        places[name] = tuple(np.argwhere(differs)[0].tolist())
        assert differs.sum() == 1
        one, two = ((u[differs][0, 0], r[differs][0, 0]) for u, r in ((x, y), (other, z)))
        one, two = ((u / max(np.linalg.norm(u), 1), np.clip(r, 0, 1)) for u, r in (one, two))  # what is enforced
        moved = np.linalg.norm(np.outer(one[0], one[0]) - np.outer(two[0], two[0])) ** 2
        moved += np.linalg.norm(one[0] * one[1] - two[0] * two[1]) ** 2
        assert moved == pytest.approx({"other direction": 4, "out of range": 4, "reward": 1}.get(name, 4.5), rel=1e-5)
    assert [places[f"{who} user"] for who in ("first", "middle", "last")] == [(0, 0), (2, 1), (5, 2)]
    (x, y, _), _ = pairs["out of range"]
    assert (np.abs(x).max(), y.max()) == (3, 50)
    (x, _, _), (other, _, _) = neighbours(6, 3, "replace", 1, farthest=(np.array([-1.0, 0.0]), 1.0))["first user"]
    np.testing.assert_array_equal(x[0, 0], -other[0, 0])


@pytest.mark.parametrize("options", [{}, dict(centred=True), dict(gram_scale=0.8), dict(centred=True, gram_scale=0.3)])
def test_the_farthest_user_attains_the_sensitivity(options):
    """Packed by the statistic that is bound, (1, 0) with reward 1 is as far from that user as the noise covers."""
    spec = fb.Spec(n_agents=1, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True, constant=True)
    statistic = fb.privacy.Linear(**options)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), statistic=statistic))
    mechanism = algo.bind(spec, 50).mechanism
    far, reward = farthest_user(mechanism)
    x, y, *_ = mechanism.admit(np.stack([[1.0, 0.0], far], 1), np.array([1.0, reward]))
    packed = mechanism.statistic.pack(np.einsum("im,jm->mij", x, np.concatenate([x, y[None]])))
    moved = np.linalg.norm(packed[0] - packed[1]) * mechanism.release.sensitivity_sq() ** 0.5
    assert moved == pytest.approx(mechanism.sensitivity, rel=1e-5)


def test_shipped_cases_have_the_neighbours_of_their_budgets():
    """All rounds of who returns, or one; nobody instead of a user, no promise about rewards, and one who decides."""
    twice = fb.algos.private_fed_lin_ucb(
        fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), unit=fb.privacy.Users(2)),
        schedule=fb.schedules.Geometric(2.0, first=2),
    )
    scheduled = audits.linear(twice, n_agents=2, horizon=6)
    for case, rounds in (
        (shipped()["silo_local tree"], 1),
        (shipped()["silo_local tree 2 visits"], 16),
        (scheduled, 6),
    ):
        for (x, y, _), (other, z, _) in ((case.data, case.neighbour), *case.others.values()):
            assert ((x != other).any((1, 2, 3)) | (y != z).any((1, 2))).sum() == rounds
        assert not case.mechanism.spec.rewards_in_unit
    removed = shipped()["silo_local tree zero_out"]
    assert not removed.neighbour[0][0].any()
    assert removed.data[0][0].any()
    for label in ("CDP-SE", "Dist-CDP-SE"):  # batches of 4 and 16 users: half of what one of 16 moves a mean by, halved
        np.testing.assert_allclose(shipped()[label].mechanism.algo.radius[1:, 1:], 1 / 64)
    messages = {"LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE", "Shuffle-DP-SE"}
    assert {name.removesuffix(" messages") for name in shipped() if name.endswith("-SE messages")} == messages


@pytest.mark.slow
def test_arms_of_others_are_in_the_transcript(key):
    """Everybody else chooses between -e and e by the sign of what is believed; hers is not shown."""
    case = shipped()["silo_local tree"]
    shown, rounds, arms = jax.jit(case.mechanism)(key, case.data)
    assert (rounds.shape, arms.shape) == ((8,), (16, 1))
    believed = np.sign(np.asarray(shown)[:, 0, 2])  # of U_1, which theta has where W is nearly diagonal
    assert set(np.unique(arms)) == {0, 1}
    assert arms[0] == 0
    assert np.mean(np.asarray(arms)[2:].reshape(7, 2)[:, 0] == (believed[:-1] > 0)) > 0.5


@pytest.mark.slow
def test_picture(key):
    found = audits.run([shipped()["silo_local tree"], controls()["kappa = 1"]], key=key, n_runs=20_000)
    words = [[text.get_text() for text in ax.texts] for ax in fb.plotting.audits(found[:1], found[1:]).axes]
    assert "pass" in words[0]
    assert "caught" in words[1]
