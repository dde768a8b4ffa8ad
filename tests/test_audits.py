"""Every shipped mechanism passes its audit, and every mechanism with a known flaw is caught."""

from pathlib import Path

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import audits
from fedbandit_jax.privacy.releases import RELEASES
from fedbandit_jax.privacy.trust.calibration import TRUST

BROKEN = Path(__file__).parent / "privacy" / "broken.py"
SHIPPED = {case.name: case for case in audits.shipped()}
CONTROLS = {case.name: case for case in audits.load(BROKEN)}


QUICK = {"silo_local tree", "silo_local tree messages", "secagg blt", "central blt"}
QUICK |= {"CDP-SE", "LDP-SE messages", "noise shared across arms"}
QUICK |= {"kappa = 1", "noise never added", "three of four silos add no noise", "batch cascade", "adaptive schedule"}


def some(names):
    """The others are slow, and part of `fedbandit audit --controls`, which CI runs at full size."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


def test_everything_shipped_has_a_case():
    words = {word for name in SHIPPED for word in name.split()}
    assert set(TRUST) <= words
    assert set(RELEASES) <= words
    assert set(fb.algos.ELIMINATION) - {"SE"} <= words


@pytest.mark.parametrize("name", some(SHIPPED))
def test_shipped_mechanisms_pass(key, name):
    """And the bound is not vacuous: worst-case neighbours show more than a third of the claim (exact noise)."""
    audit = SHIPPED[name].run(key, n_runs=20_000)
    assert audit.passed, audit
    assert audit.epsilon_lower > 0.33, audit
    if audit.sensitivity is not None:
        assert audit.sensitivity_measured == pytest.approx(audit.sensitivity, rel=1e-3)  # the worst case is attained


@pytest.mark.parametrize("name", some(CONTROLS))
def test_controls_are_caught(key, name):
    audit = CONTROLS[name].run(key, n_runs=40_000)
    assert not audit.passed, audit
    assert audit.epsilon_lower > 1.05 * audit.epsilon, audit  # by what the adversary sees, not by replay alone


def test_replay_catches_the_cascade_and_unclipped_rewards(key):
    for name, moved in (("batch cascade", 300), ("unclipped rewards", 100)):
        audit = CONTROLS[name].run(key, n_runs=1000)
        assert audit.sensitivity_measured > moved > audit.sensitivity
        assert any("sensitivity is at least" in reason for reason in audit.reasons)
    audit = CONTROLS["adaptive schedule"].run(key, n_runs=1000)
    assert any("control flow depends on the data" in reason for reason in audit.reasons)


def test_one_algorithm(key):
    """What a user would write."""
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(2.0, 1e-3), batch=3, release="blt")
    audit = audits.linear(algo, n_agents=1).run(key, n_runs=20_000)
    assert audit.passed
    assert 1.5 < audit.epsilon_lower < 2.0
    assert audit.name == "silo_local blt"


def test_cases_need_one_budget():
    budgets = [fb.privacy.Budget(1.0, 0.1)] * 2
    with pytest.raises(TypeError, match="algo must have one fb.privacy.Budget, got"):
        audits.linear(fb.algos.private_fed_lin_ucb(budgets), n_agents=2)


@pytest.mark.parametrize("options", [{"lazy": False}, {"calibration": "released"}])
def test_only_certified_algorithms_have_a_case(options):
    with pytest.raises(ValueError, match="algo must be certified for its claim to be audited, got"):
        audits.linear(fb.algos.private_fed_lin_ucb(fb.privacy.Budget(5.0, 0.1), batch=2, **options), n_agents=1)


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


def test_picture(key):
    found = audits.run([SHIPPED["silo_local tree"], CONTROLS["noise never added"]], key=key, n_runs=1000)
    figure = fb.plotting.audits(found)
    titles = [ax.get_title() for ax in figure.axes]
    assert "pass" in titles[0]
    assert "FAIL" in titles[1]
    assert all(np.isfinite(audit.edges).all() for audit in found)
