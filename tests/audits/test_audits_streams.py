"""What is released of users with a stream each: covered by noise as shipped, and glaring in the controls."""

from pathlib import Path

import jax
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import audits
from fedbandit_jax.audits.arrivals import shipped_streams

CONTROLS = {case.name: case for case in audits.load(Path(__file__).parent / "controls" / "streams.py")}


@pytest.mark.slow
@pytest.mark.parametrize("i", range(4))
def test_shipped_cases_pass(key, i):
    audit = shipped_streams()[i].run(key, n_runs=20_000)
    assert audit.passed, audit
    assert audit.same_control_flow
    assert audit.sensitivity_measured == pytest.approx(audit.sensitivity, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CONTROLS))
def test_controls_are_caught(key, name):
    assert not CONTROLS[name].run(key, n_runs=20_000).passed


@pytest.mark.slow
def test_the_sensitivity_is_attained(key):
    """By the first pair, in all streams together; streams of others do not move."""
    case = shipped_streams()[1]
    one, other = (jax.jit(case.mechanism)(key, data) for data in (case.data, case.neighbour))
    assert case.measure is not None
    assert case.measure(one, other) == pytest.approx(case.sensitivity, rel=1e-5)
    np.testing.assert_array_equal(one[0][:, 1:], other[0][:, 1:])
    assert np.abs(np.asarray(one[0][-1, 0]) - other[0][-1, 0]).max() > 0.1


def test_only_certified_algorithms_have_a_case():
    with pytest.raises(TypeError, match=r"algo must have one fb.privacy.Budget, got None"):
        audits.streams(fb.algos.Grouped())
    with pytest.raises(TypeError, match=r"algo must be an fb.algos.Grouped"):
        audits.streams(fb.algos.CLUB())
