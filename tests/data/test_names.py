"""Names and orders of arms, silos, columns and rows change no fit."""

import dataclasses

import numpy as np
import pytest

import fedbandit_jax as fb

RNG = np.random.default_rng(0)
N = 900
SILO, ARM, USER = RNG.integers(0, 3, N), RNG.integers(0, 4, N), RNG.integers(0, 300, N)
AGE, SEX = RNG.integers(20, 80, 300)[USER], RNG.integers(0, 2, 300)[USER]
CURED = RNG.random(N) < np.array([0.15, 0.35, 0.35, 0.85])[ARM] + 0.1 * (SEX - 0.5)
ORDERS = ("arms", "silos", "columns", "rows")


def table(*changed):
    """The log as an environment, with these in another order; the best arm is the last, or the first."""
    letters = np.array(list("ABCD"))
    log = dict(
        clinic=letters[::-1][SILO] if "silos" in changed else letters[SILO],
        drug=np.char.add("drug ", letters[::-1][ARM] if "arms" in changed else letters[ARM]),
        patient=USER,
        sex=np.where(SEX == 1, "f", "m"),
        age=AGE,
        cured=CURED,
    )
    features = ["age", "sex"]
    if "columns" in changed:
        log, features = dict(reversed(log.items())), features[::-1]
    if "rows" in changed:
        log = {name: column[np.random.default_rng(7).permutation(N)] for name, column in log.items()}
    return fb.data.table(log, silo="clinic", arm="drug", reward="cured", user="patient", features=features)


@pytest.mark.parametrize("changed", [*((one,) for one in ORDERS), ORDERS], ids=" and ".join)
def test_fits_are_equal(changed):
    """To six digits, as sums are added up in another order: as many rows, of the same users, by the same model."""
    plain, other = (dataclasses.asdict(table(*names).fit) for names in ((), changed))
    calibration = [np.array(one.pop("calibration"))[:, 1] for one in (plain, other)]  # rows that tie may change groups
    texts = [name for name, value in plain.items() if isinstance(value, str)]
    assert [plain.pop(name) for name in texts] == [other.pop(name) for name in texts]
    for one, two in ((list(plain.values()), list(other.values())), calibration):
        np.testing.assert_allclose(np.hstack(one), np.hstack(two), rtol=1e-6)
