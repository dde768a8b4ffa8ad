"""The README's numbers and commands are true (its Python runs as a doctest)."""

import re
from pathlib import Path

import pytest

from fedbandit_jax.privacy import Budget, calibrate

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_table_of_released_epsilons():
    rows = re.findall(r"^\| \(([\d.e-]+), ([\d.e-]+)\) \| (.*), (.*) \| (.*), (.*) \| (.*) \|$", README, re.M)
    assert len(rows) == 4
    for epsilon, delta, *cells in rows:
        budget = Budget(float(epsilon), float(delta))
        theorem, theorem_epsilon, released, released_epsilon, tight = (float(cell.strip("* ")) for cell in cells)
        for method, variance in (("theorem", theorem), ("released", released), ("tight", tight)):
            assert calibrate(budget, n_syncs=400, method=method).sigma ** 2 == pytest.approx(variance, rel=5e-4)
        for method, value in (("theorem", theorem_epsilon), ("released", released_epsilon)):
            exact = calibrate(budget, n_syncs=400, method=method).epsilon_exact
            assert exact == pytest.approx(value, abs=0.006 if value > 0.1 else 5e-4, rel=3e-3)


def test_files_it_names_exist():
    for path in re.findall(r"\]\((?!#|http)([^)]+)\)", README) + re.findall(
        r"python ((?:experiments|bench)/\w+\.py)", README
    ):
        assert (ROOT / path).exists(), path


def test_ci_finds_the_commands():
    for mark in ("# install and run the main job", "# install and run the tests"):
        assert README.count(f"\n{mark}\npip install") == 1
