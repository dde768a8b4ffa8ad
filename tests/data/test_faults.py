"""Damaged tables: each fault is one sentence that names the argument, and the row and column of the fault."""

import csv
import io
import itertools

import numpy as np
import pandas as pd
import pytest
from helpers import refused

import fedbandit_jax as fb

N = 60
ROLES = dict(silo="hospital", arm="drug", reward="cured", user="who", propensity="p", features=["age", "ward"])
ARGUMENT = {"hospital": "silo", "drug": "arm", "cured": "reward", "who": "user", "p": "propensity", "age": "features"}
ARGUMENT |= {"ward": "features", "dose": "arm_features"}
NUMBERS = np.arange(N)
GOOD = {
    "hospital": [f"h{one}" for one in NUMBERS % 3],
    "drug": ["ab"[one] for one in NUMBERS // 3 % 2],
    "cured": [float(one) for one in NUMBERS // 6 % 2],
    "who": [f"u{one}" for one in NUMBERS % 20],
    "p": [0.5] * N,
    "age": [20.0 + one for one in NUMBERS],
    "ward": ["xyz"[one] for one in NUMBERS // 2 % 3],
}
DOSE = {"dose": [float(one == "b") for one in GOOD["drug"]]}


def as_frame(table, folder):
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in table.items()})


def as_file(table, folder):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table, *zip(*table.values())])
    return wrote(folder, text.getvalue())


def wrote(folder, content, name="log.csv"):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


SOURCES = {"mapping": lambda table, folder: table, "frame": as_frame, "file": as_file}
FIRST = {"mapping": 0, "frame": 0, "file": 2}  # number of the first row


def said_of(source, **changes):
    """The one sentence that refuses a table."""
    with pytest.raises((ValueError, TypeError)) as caught:
        fb.data.table(source, **{**ROLES, **changes})
    said = str(caught.value)
    assert all(words in said for words in (" must ", "got "))
    assert "\n" not in said
    assert len(said) < 500
    return said


def replaced(name, where, value):
    """The table with another value in one row."""
    return {**GOOD, name: [*GOOD[name][:where], value, *GOOD[name][where + 1 :]]}


MISSING = ("", "NA", "-", "?", None, float("nan"))
WRONG = {name: ("much", "1.5 mg", float("inf"), 1e200) for name in ("cured", "age")}
WRONG |= {"p": ("much", float("inf"), 0.0, -0.25, 1.5)}


@pytest.mark.parametrize("container", SOURCES)
@pytest.mark.parametrize("name", GOOD)
def test_a_wrong_value_is_named_with_its_row_and_column(tmp_path, name, container):
    """Missing, not a number, or not finite, in the first and the last row."""
    for value, where in itertools.product((*MISSING, *WRONG.get(name, ())), (0, N - 1)):
        said = said_of(SOURCES[container](replaced(name, where, value), tmp_path))
        assert f"in row {FIRST[container] + where} of column {name!r}" in said
        assert said.startswith(f"{ARGUMENT[name]} must ")
        if value not in MISSING:
            assert (f"{value:g}" if isinstance(value, float) else value) in said


@pytest.mark.parametrize("name", GOOD)
def test_columns_must_be_whole_vectors_of_one_length(name):
    """What is masked is missing, and its value is not read."""
    said = said_of({**GOOD, name: np.ma.masked_array(GOOD[name], mask=NUMBERS == 31)})
    assert f"{ARGUMENT[name]} must have no missing values" in said
    assert f"got nothing in row 31 of column {name!r}" in said
    for values in (GOOD[name][:-1], np.zeros((N, 2)), None, [[1]] * N):
        said_of({**GOOD, name: values})
    assert "must hold texts, numbers or dates" in said_of(pd.DataFrame(GOOD).assign(**{name: [NUMBERS[:2]] * N}))
    if name in WRONG:
        assert repr(name) in said_of({**GOOD, name: np.zeros(N) + 1j})


@pytest.mark.parametrize(("name", "kind"), [("age", "Float64"), ("cured", "Int64"), ("drug", "string")])
def test_gaps_of_types_with_masks_are_named(name, kind):
    column = pd.Series(GOOD[name]).astype(kind).mask(NUMBERS == 31)
    assert f"got nothing in row 31 of column {name!r}" in said_of(pd.DataFrame(GOOD).assign(**{name: column}))


def test_a_good_table_may_have_gaps_in_columns_without_a_role(tmp_path):
    rest = {"rest": np.ma.masked_array(NUMBERS, mask=NUMBERS == 31), "other": [None] * N}
    for source in (GOOD, {**GOOD, **rest}, as_frame(GOOD, tmp_path), as_file(GOOD, tmp_path)):
        spec = fb.data.table(source, **ROLES).spec
        assert (spec.n_agents, spec.n_arms, spec.silos) == (3, 2, 3)


FEW = {name: values[:12] for name, values in (GOOD | DOSE).items()}
WIDE = {**GOOD, "ward": [f"w{one}" for one in NUMBERS], "drug": ["abc"[one % 3] for one in NUMBERS]}
MANY_ARMS = {name: values * 3 for name, values in GOOD.items()} | {"drug": [f"d{one}" for one in range(3 * N)]}
TABLES = {  # a table, more options, and what its refusal begins with and ends with; {r[2]} is the number of row 2
    "texts and numbers": (replaced("age", 0, "young"), {}, "features must be all", "in row {r[0]} of column 'age'"),
    "yes and 3": ({**GOOD, "cured": ["yes", "3"] * (N // 2)}, {}, "reward must be numbers, or yes", "in row {r[0]}"),
    "one arm": ({**GOOD, "drug": ["a"] * N}, {}, "arm must have 2 ", "got 1, such as 'a', in column 'drug'"),
    "one reward": ({**GOOD, "cured": [1.0] * N}, {}, "reward must vary", "got 1 in all rows of column 'cured'"),
    "one age": ({**GOOD, "age": [30.0] * N}, {}, "features must have", "got 30 in all rows of column 'age'"),
    "one ward": ({**GOOD, "ward": ["x"] * N}, {}, "features must have", "got 'x' in all rows of column 'ward'"),
    "few rows": (FEW, {}, "source must have at least 5 rows of every arm", ""),
    "few rows of an arm": (replaced("drug", 0, "rare"), {}, "source must have at least 5 rows of every arm", "'drug'"),
    "fewer rows than d": (FEW, dict(arm_features=["dose"]), "source must have at least d = 10 rows", ""),
    "wide": (WIDE, {}, "features must give at most d = 128 features, got d = 187", "leave out 'ward' (60)"),
    "many arms": (MANY_ARMS, {}, "arm must give at most d = 128", "give arm_features, or merge arms"),
    "arms described twice": (
        {**GOOD, "dose": [*DOSE["dose"][:40], 7.0, *DOSE["dose"][41:]]},
        dict(arm_features=["dose"]),
        "arm_features must be the same in all rows of an arm, such as 'b', got 7 in row ",
        "in row {r[40]} of column 'dose'",
    ),
}


@pytest.mark.parametrize("container", SOURCES)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_cannot_be_fitted_is_refused(tmp_path, name, container):
    table, more, begin, end = TABLES[name]
    said = said_of(SOURCES[container](table, tmp_path), **more)
    assert said.startswith(begin)
    assert end.format(r=range(FIRST[container], FIRST[container] + N)) in said


@pytest.mark.parametrize("container", SOURCES)
@pytest.mark.parametrize("name", ARGUMENT)
def test_an_absent_column_is_named_and_a_similar_name_offered(tmp_path, name, container):
    table, more = {other: values for other, values in GOOD.items() if other != name}, {}
    if name == "dose":
        more = {"arm_features": ["dose"]}
    said = said_of(SOURCES[container]({**table, f"{name}s": [1.0] * N}, tmp_path), **more)
    assert said.startswith(f"{ARGUMENT[name]} must be a column of ")
    assert f"{name!r}: did you mean '{name}s'?" in said


def test_a_column_has_one_role():
    for one, other in itertools.combinations([*ROLES][:5], 2):
        for argument, columns in ((other, ROLES[one]), ("features", ["age", ROLES[one]])):
            with refused(argument, ROLES[one], other=one):
                fb.data.table(GOOD, **{**ROLES, argument: columns})
    with refused("features", "age"):
        fb.data.table(GOOD, **{**ROLES, "features": ["age", "age"]})


HEAD = ",".join(GOOD)
ROW = "h1,a,1,u1,0.5,30,x\n"
LOGS = {  # the text of a file -> a word of the refusal; a row that is too short lacks the values at its end
    "": "No columns to parse",
    HEAD: "at least one row below it",
    f"{HEAD},drug\n{ROW.strip()},b\n": "Duplicate names",
    f"{HEAD}\n{ROW}h1,a,1\n{ROW}": "nothing in row 3 of column 'who'",
    f"{HEAD}\n{ROW}{ROW.strip()},7\n": "Expected 7 fields in line 3, saw 8",
    f"{HEAD}\n{ROW.strip()},7\n{ROW}": "longer rows",
    f'{HEAD}\n{ROW}h1,"a,1,u1,0.5,30,x\n': "EOF inside string",
    f"{HEAD}\n{ROW}h1,ä,1,u1,0.5,30,x\n".encode("latin-1"): "UTF-8",
    f"{HEAD}\n{ROW}".replace(",", ";"): "decimal must be ",
}


@pytest.mark.parametrize("text", LOGS)
def test_a_file_that_is_not_a_table_is_refused(tmp_path, text):
    assert LOGS[text] in said_of(wrote(tmp_path, text))


def test_other_files_are_no_sources(tmp_path):
    archives = [wrote(tmp_path, b"PK\3\4\0\0,\n1,2\n", f"log.{ending}") for ending in ("parquet", "csv.gz")]
    for source in (*archives, tmp_path / "absent.csv", tmp_path, {}, 5):
        assert said_of(source).startswith("source must ")
