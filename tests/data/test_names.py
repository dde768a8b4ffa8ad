"""Names and orders of arms, silos, columns and rows decide nothing: neither a fit, nor a law, nor a recommendation."""

import dataclasses

import jax
import numpy as np
import pytest

import fedbandit_jax as fb

SEEDS, HORIZON, BATCH = 48, 80, 20
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


BUDGET = fb.privacy.Budget(4.0, 1e-4)
SECAGG = fb.privacy.Mechanism(BUDGET, "tree", "secagg", unit="visit")
POLICIES = {
    "epsilon-greedy": fb.algos.Federated(policy=fb.algos.EpsilonGreedy(), schedule=BATCH),
    "UCB": fb.algos.Federated(policy=fb.algos.UCB(exploration_scale=0.1), schedule=BATCH),
    "greedy, private": fb.algos.Federated(policy=fb.algos.Greedy(), schedule=BATCH, privacy=SECAGG),
}


@fb.pytree
class First(fb.Policy):
    """Plays the first arm."""

    def update(self, k, belief, released):
        return ()

    def index(self, key, t, belief, contexts):
        return -jax.numpy.arange(len(contexts), dtype=float)


def apart(changed, policies=POLICIES):
    """Differences of mean regret at T and at the first release, in standard errors of them: label -> (2,)."""
    found = []
    for i, names in enumerate(((), changed)):
        run = dict(horizon=HORIZON, key=jax.random.key(i), seeds=SEEDS, progress=False)
        found.append(fb.sweep(table(*names), policies, **run))
    said = {}
    for label in policies:
        one, other = (result[label].regret[:, [BATCH - 1, -1]] for result in found)
        errors = np.hypot(*(x.std(0, ddof=1) / np.sqrt(SEEDS) for x in (one, other)))
        said[label] = (one.mean(0) - other.mean(0)) / errors
    return said


def test_laws_are_equal_if_arms_are_not_chosen_by_their_place():
    """No mean is four standard errors off. The first arm of the log is its worst one, or its best."""
    for label, off in apart(ORDERS).items():
        assert np.abs(off).max() < 4, label
    first = {"first": fb.algos.Federated(policy=First(), schedule=BATCH)}
    assert np.abs(apart(ORDERS, first)["first"]).min() > 20
