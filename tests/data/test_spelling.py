"""Numbers, dates and gaps as people write them are read as what they are or refused, and never categories."""

import numpy as np
import pandas as pd
import pytest
from helpers import refused
from hypothesis import given
from hypothesis import strategies as st

import fedbandit_jax as fb
from fedbandit_jax.data import spelling

N = 120
RNG = np.random.default_rng(0)
LOG = dict(silo=["a", "b"] * (N // 2), arm=["x", "x", "y", "y"] * (N // 4), reward=RNG.integers(0, 2, N))
ROLES = dict(silo="silo", arm="arm", reward="reward", features=["age"])
NUMBERS = st.lists(st.integers(-(10**9), 10**9).map(lambda n: n / 100), min_size=1, max_size=20)


def read(values, **options):
    """A table with these values, again and again."""
    return fb.data.table(LOG | {"age": [values[i % len(values)] for i in range(N)]}, **(ROLES | options))


@given(NUMBERS, st.sampled_from(["", "$", "€"]), st.sampled_from([",.", ".,", " ,", "'.", "’.", "\xa0,"]))
def test_numbers_are_what_was_written(numbers, unit, marks):
    """In all spellings of thousands, decimals and currencies; two readings are there only if both are possible."""
    swap = str.maketrans(",.", marks)
    texts = ["-" * (number < 0) + unit + f"{abs(number):,.2f}".translate(swap) for number in numbers]
    for decimal in (None, marks[1]):
        for found in spelling.numbers(texts, decimal, pointed=False):
            np.testing.assert_array_equal(found, numbers)
    if not unit:
        shares = spelling.numbers([f"{text} %" for text in texts], marks[1])[0]
        np.testing.assert_allclose(100 * shares, numbers, rtol=1e-12)


READ = {  # as it is written -> as a program writes it
    "0,5 1,5": [0.5, 1.5],
    "1,000 1,250,000": [1000, 1250000],
    "12% 7%": [0.12, 0.07],
    "84kg 12kg": [84, 12],
    "2025-01-31 2025-02-01": [31, 32],
    "-2,5 .5e1": None,
}


@pytest.mark.parametrize("texts", READ)
def test_a_feature_is_encoded_as_its_numbers(texts):
    if READ[texts] is None:
        with refused("features", "-2,5"):
            read(texts.split())
    else:
        np.testing.assert_allclose(read(texts.split()).rows, read(READ[texts]).rows, atol=1e-6)


@pytest.mark.parametrize(("texts", "point", "comma"), [(["1,000", "950"], [1000, 950], [1, 950])])
def test_what_may_be_a_thousand_or_one_is_refused_until_the_mark_is_said(tmp_path, texts, point, comma):
    with refused("features", "1,000"):
        read(texts)
    for decimal, numbers in ((".", point), (",", comma)):
        assert read(texts, decimal=decimal).encoding == read(numbers).encoding
    with refused("features", "1,5"):
        read(["1,5", "2,25"], decimal=".")
    path = tmp_path / "log.csv"  # between semicolons a point may be a mark, too
    pd.DataFrame(LOG | {"age": ["1.000", "950"] * (N // 2)}).to_csv(path, sep=";", index=False)
    with refused("features", "1.000"):
        fb.data.table(path, **ROLES)
    assert fb.data.table(path, **ROLES, decimal=",").encoding == read(point).encoding
    assert fb.data.table(path, **ROLES, decimal=".").encoding == read(comma).encoding


MIXED = ["1 2 young", "a b 3", "$1 2 3", "12% 3 4", "1,5 2.5", "2025-01-31 later", "31.01.2025 1.2.2025", "2025-13-01"]


@pytest.mark.parametrize("texts", MIXED)
def test_what_is_neither_numbers_nor_texts_is_refused(texts):
    with refused("features") as caught:
        read(texts.split())
    assert caught.value.value in texts.split()
    assert ("missing=" in str(caught.value)) == (caught.value.value == "young")
    assert "in row " in str(caught.value)
    assert "of column 'age'" in str(caught.value)


@pytest.mark.parametrize(
    "labels", ["2020-01 2020-02", "a1 b2", "1-2 3-4", "v1.2.3 v1.2.4", "e5 e6", "10mg 7ml", "1a 2a", "1_000 2_000"]
)
def test_labels_stay_labels(labels):
    assert read(labels.split()).encoding.startswith(f"age: 1 if it is {labels.split()[1]}, ")


@pytest.mark.parametrize("gap", ["", "NA", "-", "?", "-999"])
def test_rows_with_gaps_are_left_out_if_it_is_said_what_gaps_are(gap):
    """The others are as in a table without such rows, and keep their numbers."""
    ages = [gap if i % 7 == 3 else str(20 + i % 50) for i in range(N)]
    with refused("features", gap):
        read(ages)
    env, rows = read(ages, missing=[gap]), [i for i in range(N) if i % 7 != 3]
    without = fb.data.table(
        {name: [values[i] for i in rows] for name, values in (LOG | {"age": ages}).items()}, **ROLES
    )
    assert np.array_equal(env.log.row, np.array(rows)[without.log.row])
    assert np.array_equal(env.rows, without.rows)
    assert f"left out: {N - len(rows)} rows with missing values" in env.encoding
    if gap == "-999":
        assert "left out" not in read(ages, missing=[]).encoding
    else:
        with refused("features", gap):  # it is no number
            read(ages, missing=[])
    with refused("missing"):
        read([gap], missing=[gap])


@pytest.mark.parametrize("gap", [None, np.nan, np.float32("nan")])
def test_gaps_of_vectors_are_called_nan(gap):
    with refused("features", "NaN"):
        read([gap, 1.0, 2.0])
    assert f"left out: {N // 3} rows" in read([gap, 1.0, 2.0], missing=["NaN"]).encoding


def test_yes_and_no_are_rewards():
    one, plain = LOG["reward"] == 1, fb.data.table(LOG, **ROLES | {"features": None})
    for reward in (one, np.where(one, "yes", "No"), np.where(one, "TRUE", "false")):
        env = fb.data.table(LOG | {"reward": reward}, **ROLES | {"features": None})
        assert np.array_equal(env.log.reward, plain.log.reward)


@pytest.mark.parametrize("users", [None, "who"])
def test_the_earliest_rows_fit_the_model(users):
    """Of every silo, or of users the ones who came first; dates and numbers alike."""
    days = RNG.permutation(N)
    log = LOG | {"age": [1, 2] * (N // 2), "who": RNG.integers(0, 30, N), "day": days}
    log["date"] = [str(np.datetime64("2024-01-01") + int(day)) for day in days]
    env, dated = (fb.data.table(log, **ROLES, user=users, time=time) for time in ("day", "date"))
    assert np.array_equal(env.log.row, dated.log.row)
    replayed = np.isin(np.arange(N), env.log.row)
    silo = np.asarray(LOG["silo"])  # rows
    if users is None:
        for one in "ab":
            assert days[(silo == one) & ~replayed].max() < days[(silo == one) & replayed].min()
    else:
        first = {who: days[log["who"] == who].min() for who in set(log["who"])}
        fitted, others = ({log["who"][i] for i in np.flatnonzero(rows)} for rows in (~replayed, replayed))
        assert not fitted & others
        assert max(first[who] for who in fitted) < min(first[who] for who in others)
    assert "the earliest rows by day fit the model" in env.encoding


def test_wrong_options_are_refused():
    for name, value in (("decimal", ";"), ("missing", "NA"), ("time", "arm")):
        with refused(name):
            read([1, 2], **{"arm": "age", "features": None, name: value})
