"""The real logs: what is read, by which digest, and what is in them by a count of its own."""

import importlib.util
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.data import examples

SIZES = {  # rows, M, K, d, users of all rows, and whether contexts are fixed
    "insteval": (73_421, 14, 12, 25, 2_972, False),
    "star": (5_731, 78, 3, 13, 0, False),
    "films": (99_566, 671, 14, 15, 671, True),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    rows, m, k, d, users, fixed = SIZES[name]
    env = fb.data.EXAMPLES[name]()
    spec, fit = env.spec, env.fit
    assert (fit.fitted_rows + fit.replayed_rows, spec.n_agents, spec.n_arms, spec.dim) == (rows, m, k, d)
    assert spec.fixed_contexts == fixed
    assert spec.n_users == (users if fit.seen == users else users - round(0.5 * users))  # half of them fit the model
    assert fb.algos.fed_lin_ucb().certificate(spec, 10).claim == "none"


def test_students_cross_departments():
    """On average each was in 5.5 departments, of all rows; one of the half that is replayed in 13."""
    frame = examples._frame("lme4/InstEval")
    assert round(frame.groupby("s").dept.nunique().mean(), 1) == 5.5
    assert fb.data.insteval().spec.silos == 13


def test_schools_drew_classes():
    """The propensity of a row is the share of its school's pupils who were in such a class, fitted or replayed."""
    env, other = fb.data.star(), fb.data.star(fit_share=0.2, seed=3)
    school = np.repeat(np.arange(78), env.counts)
    shares = {(i, a): p for i, a, p in zip(school, env.log.arm.tolist(), env.log.propensity.tolist())}
    there = np.repeat(np.arange(78), other.counts)
    for i, a, p in zip(there, other.log.arm.tolist(), other.log.propensity.tolist()):
        assert shares.setdefault((i, a), p) == p
    sums = [sum(shares[i, a] for a in range(3)) for i in range(78)]
    np.testing.assert_allclose(sums, 1, rtol=1e-5)
    inside = np.array([shares[i, a] for i, a in zip(there, other.log.arm.tolist())])
    assert abs((1 / inside).mean() - 3) < 0.1  # sum of p (1 / p) over three arms


@pytest.mark.slow
def test_every_processor_has_the_same_table():
    """OpenBLAS has kernels for each, whose sums differ in their last bits; the digest of an environment must not."""
    code = "import fedbandit_jax as fb; print(fb.benchmark.TASKS['insteval'].digest)"
    kernels = ("Nehalem", "Haswell", "SkylakeX", "Zen")
    runs = [subprocess.run([sys.executable, "-c", code], env={**os.environ, "OPENBLAS_CORETYPE": kernel},
                           capture_output=True, text=True) for kernel in kernels]  # fmt: skip
    able = [run for run in runs if run.returncode != -signal.SIGILL]  # SkylakeX needs AVX-512
    assert len(able) >= 2
    assert [run.returncode for run in able] == [0] * len(able), able
    assert {run.stdout.strip() for run in able} == {fb.benchmark.TASKS["insteval"].digest}


def test_another_file_and_a_missing_package_are_refused(monkeypatch):
    monkeypatch.setitem(examples.DIGESTS, "AER/STAR", "0")
    with pytest.raises(ValueError, match="AER/STAR as version"):
        fb.data.star()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"fedbandit_jax\[examples\]"):
        fb.data.films()
