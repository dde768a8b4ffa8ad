"""What is in a table before anybody says what its columns are."""

import numpy as np

from fedbandit_jax.data import overview as overviews
from fedbandit_jax.data.overview import overview

LINES = ["where,dose,score,name", "A,1,0.5,p1", "B,NA,-2,p2", "A,3,,p3", " B ,2,7,p4", "A,,NaN,p5", "B,1,7.0,p6"]


def test_columns_by_hand(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("\n".join(LINES) + "\n")
    where, dose, score, name = overview(path)
    assert (where.rows, where.missing, where.distinct, where.examples) == (6, 0, 2, ("A", "B"))
    assert (dose.missing, dose.kind, dose.low, dose.high, dose.distinct) == (2, "number", 1, 3, 3)
    assert (score.missing, score.kind, score.low, score.high) == (2, "number", -2, 7)
    assert where.kind == "text"
    assert where.can_be == ("silo", "arm", "features")
    assert dose.can_be == score.can_be == ()
    assert name.can_be == ("user", "features")
    assert dose.cells == ("dose", "number", "3", "2", "1 to 3", overviews.FILL)


def test_frames_and_vectors():
    """A text among numbers is no category, wherever it is."""
    table = {"a": np.arange(30) % 3, "b": [*range(29), "much"], "c": [0.25] * 30, "d": [None] * 30}
    table |= {"when": [f"2025-01-{day:02d}" for day in range(1, 31)], "flag": np.arange(30) % 3 == 0}
    a, b, c, d, when, flag = overview(table)
    assert (a.kind, b.kind, c.kind, flag.kind) == ("number", "unclear", "number", "text")
    assert b.can_be == ("user",)
    assert when.can_be == ("user", "features", "time")
    assert a.can_be == ("silo", "arm", "reward", "user", "features")
    assert c.can_be == ("propensity",)
    assert c.cells[-2:] == ("0.25 to 0.25", "propensity")
    assert (d.missing, d.cells[1]) == (30, "text")
    assert when.cells[4] == "2025-01-01, 2025-01-02, 2025-01-03, ..."  # whole values


def test_what_is_unclear_is_told_with_what_settles_it():
    log = {"cost": ["1,000", "950"] * 9, "age": [20, -999] * 9}
    cost, age = overview(log)
    assert (cost.kind, age.kind) == ("unclear", "unclear")
    assert "`decimal`" in cost.why
    assert "`missing` to -999" in age.why
    cost, age = overview(log, missing=["-999"])
    assert (age.low, age.high, age.why, age.missing) == (20, 20, "", 9)
