"""Bad tables: every fault of a log is one sentence that names argument, and row, column and value if there is one."""

import csv
import io
import itertools

import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb

N = 60
ROLES = dict(silo="hospital", arm="drug", reward="cured", user="who", propensity="p", features=["age", "ward"])
ARGUMENT = {"hospital": "silo", "drug": "arm", "cured": "reward", "who": "user", "p": "propensity", "age": "features"}
ARGUMENT |= {"ward": "features", "dose": "arm_features"}
LABELS, NUMBERS = ("hospital", "drug", "who", "ward"), ("cured", "age", "p")


def good():
    """A table without a fault: columns as lists."""
    i = np.arange(N)
    return {
        "hospital": [f"h{one}" for one in i % 3],
        "drug": ["ab"[one] for one in i // 3 % 2],
        "cured": [float(one) for one in i // 6 % 2],
        "who": [f"u{one}" for one in i % 20],
        "p": [0.5] * N,
        "age": [20.0 + one for one in i],
        "ward": ["xyz"[one] for one in i // 2 % 3],
    }


def as_mapping(table, folder):
    return table


def as_frame(table, folder):
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in table.items()})


def as_file(table, folder):
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerows([table, *zip(*table.values())])
    return wrote(folder, text.getvalue())


def wrote(folder, text, name="log.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


CONTAINERS = {"mapping": as_mapping, "frame": as_frame, "file": as_file}
FIRST = {"mapping": 0, "frame": 0, "file": 2}  # number of the first row


def refused(source, *, error=(ValueError, TypeError), **changes):
    """The one sentence that refuses a table."""
    options = {name: value for name, value in {**ROLES, **changes}.items() if value is not None}
    with pytest.raises(error) as caught:
        fb.data.table(source, **options)
    said = str(caught.value)
    assert " must " in said
    assert "got " in said
    assert "\n" not in said
    assert len(said) < 400
    return said


def test_the_table_is_good(tmp_path):
    for container in CONTAINERS.values():
        env = fb.data.table(container(good(), tmp_path), **ROLES)
        assert (env.spec.n_agents, env.spec.n_arms, env.spec.silos) == (3, 2, 3)


MISSING = ("", "NA", "nan", "NAN", "-nan", "null", None, float("nan"))
WRONG = {
    **{name: ("much", "1,5", "1.5 mg", float("inf"), float("-inf"), 1e200) for name in ("cured", "age")},
    "p": ("much", float("inf"), 0.0, -0.25, 1.5),
}
VALUES = [
    *itertools.product((*LABELS, *NUMBERS), MISSING),
    *((name, value) for name, values in WRONG.items() for value in values),
]


def begins(name, value, where):
    """Whether this is a text that begins a column of features, which is then one of texts: see below."""
    return where == 0 and name == "age" and isinstance(value, str) and value not in MISSING


PLACES = [(*one, where) for one in VALUES for where in (0, 31, N - 1) if not begins(*one, where)]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(("name", "value", "where"), PLACES)
def test_a_value(tmp_path, name, value, container, where):
    """Missing, not a number, or not finite, in a first, a middle and the last row."""
    table = good()
    table[name][where] = value
    said = refused(CONTAINERS[container](table, tmp_path))
    assert f"in row {FIRST[container] + where} of column {name!r}" in said
    assert said.startswith(f"{ARGUMENT[name]} must ")
    got = "nothing" if value in (None, "") else f"{value:g}" if isinstance(value, float) else value
    assert got.lower() in said.lower() or (container != "file" and "NaN" in said)


@pytest.mark.parametrize("name", good())
def test_a_value_that_is_masked(name):
    """What is behind the mask is not read."""
    table = good()
    table[name] = np.ma.masked_array(table[name], mask=np.arange(N) == 31)
    said = refused(table)
    assert said == (
        f"{ARGUMENT[name]} must have no missing values: fill them or leave such rows out, got NaN in row 31 of column "
        f"{name!r}"
    )


def test_columns_of_no_role_may_have_gaps():
    rest = np.ma.masked_array(np.arange(N), mask=np.arange(N) == 31)
    assert fb.data.table({**good(), "rest": rest, "other": [None] * N}, **ROLES).spec.n_agents == 3


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_column_of_texts_and_numbers(tmp_path, container):
    """What its first row is, all must be."""
    table = good()
    table["age"][0] = "young"
    assert f"row {FIRST[container] + 1} of column 'age'" in refused(CONTAINERS[container](table, tmp_path))


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", ARGUMENT)
def test_a_column_that_there_is_not(tmp_path, name, container):
    """Another name that is like it is offered."""
    table = {other: values for other, values in good().items() if other != name}
    argument = ARGUMENT[name]
    more = {"arm_features": ["dose"]} if name == "dose" else {}
    said = refused(CONTAINERS[container](table, tmp_path), **more)
    assert said.startswith(f"{argument} must be a column of ")
    assert repr(name) in said
    like = {**table, f"{name}s": [1.0] * N}
    assert f"did you mean '{name}s'?" in refused(CONTAINERS[container](like, tmp_path), **more)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("drug", "a", "arm must have 2 to 10,000 distinct values, got only 'a'"),
        ("cured", 1.0, "reward must vary, got 1 in all rows of column 'cured'"),
        ("age", 30.0, "features must have columns that vary, got 30 in all rows of column 'age'"),
        ("ward", "x", "features must have columns that vary, got 'x' in all rows of column 'ward'"),
    ],
)
def test_a_column_that_is_the_same_everywhere(tmp_path, name, value, words, container):
    assert words in refused(CONTAINERS[container]({**good(), name: [value] * N}, tmp_path))


@pytest.mark.parametrize("container", CONTAINERS)
def test_too_few_rows(tmp_path, container):
    """To fit as many coefficients as there are, of each arm."""
    few = {name: values[:12] for name, values in good().items()}
    said = refused(CONTAINERS[container](few, tmp_path))
    assert said.startswith("source must have at least 5 rows of every arm among those that fit the model")
    rare = {**good(), "drug": ["rare"] + ["ab"[i % 2] for i in range(N - 1)]}
    assert "of 'rare' in column 'drug'" in refused(CONTAINERS[container](rare, tmp_path))
    described = {**few, "dose": [float(one == "b") for one in few["drug"]]}
    said = refused(CONTAINERS[container](described, tmp_path), arm_features=["dose"])
    assert said.startswith("source must have at least d = 10 rows that fit the model")


@pytest.mark.parametrize("container", CONTAINERS)
def test_too_many_features(tmp_path, container):
    """It is said which column makes them so many."""
    table = {**good(), "ward": [f"w{i}" for i in range(N)], "drug": ["abc"[i % 3] for i in range(N)]}
    said = refused(CONTAINERS[container](table, tmp_path))
    assert said.startswith("features must give at most d = 128 features, got d = 187")
    assert "leave out 'ward' (60)" in said
    table = {name: values * 3 for name, values in good().items()} | {"drug": [f"d{i}" for i in range(3 * N)]}
    said = refused(CONTAINERS[container](table, tmp_path))
    assert said.startswith("arm must give at most d = 128 features")
    assert said.endswith("give arm_features, or merge arms")


@pytest.mark.parametrize("container", CONTAINERS)
def test_arms_that_are_described_differently(tmp_path, container):
    table = {**good(), "dose": [float(one == "b") for one in good()["drug"]]}
    table["dose"][40] = 7.0
    said = refused(CONTAINERS[container](table, tmp_path), arm_features=["dose"])
    assert said.startswith("arm_features must be the same in all rows of an arm, got 7.0 in row ")
    assert f"in row {FIRST[container] + 40} of column 'dose'" in said


@pytest.mark.parametrize("name", good())
def test_columns_of_unequal_lengths(name):
    table = good()
    table[name] = table[name][:-1]
    assert repr(name) in refused(table)


@pytest.mark.parametrize("name", good())
@pytest.mark.parametrize("values", [np.zeros((N, 2)), 5, None, "a text", [[1]] * N, [{}] * N])
def test_columns_that_are_no_vectors(name, values):
    assert repr(name) in refused({**good(), name: values})


@pytest.mark.parametrize("name", NUMBERS)
def test_columns_of_complex_numbers(name):
    assert repr(name) in refused({**good(), name: np.zeros(N) + 1j})


@pytest.mark.parametrize(
    "source", [5, None, [1, 2], np.zeros((3, 2)), {}, "no such file.csv", "log.xlsx", "log", b"log.csv", "."]
)
def test_sources_that_are_no_tables(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.xlsx").write_bytes(b"PK")
    (tmp_path / "log").write_text("hospital,drug\n")
    assert refused(source, error=(ValueError, TypeError, FileNotFoundError)).startswith("source must ")


HEADER = ",".join(good())
ROW = "h1,a,1,u1,0.5,30,x\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("\n", "empty"),
        ("  \n \n", "empty"),
        (f"{HEADER}\n", "at least one row below its header"),
        (HEADER, "at least one row below its header"),
        (f"{HEADER},drug\n{ROW.strip()},b\n", "'drug'"),
        (f"{HEADER}\n{ROW}h1,a,1\n{ROW}", "row 3"),
        (f"{HEADER}\n{ROW}{ROW.strip()},7\n", "row 3"),
        (f"{HEADER}\n{ROW}\n{ROW}", "row 3"),
        (f"{HEADER.replace(',', ';')}\n{ROW.replace(',', ';')}", "semicolons"),
        (f"{HEADER.replace(',', chr(9))}\n{ROW.replace(',', chr(9))}", "tabs"),
        (f'{HEADER}\n{ROW}h1,"a,1,u1,0.5,30,x\n', "quotes"),
        (f"{HEADER}\n{ROW}h1,ä,1,u1,0.5,30,x\n".encode("latin-1"), f"of column {list(good())[1]!r}"),
        (f"{HEADER}\n{ROW}".encode("utf-16"), "UTF-8"),
    ],
)
def test_files_that_are_no_tables(tmp_path, text, words):
    said = refused(wrote(tmp_path, text))
    assert said.startswith("source must ")
    assert words in said
    assert "log.csv" in said


@pytest.mark.parametrize("content", [b"", b"PAR1", b"hospital,drug\n"])
def test_files_that_are_no_parquet(tmp_path, content):
    pytest.importorskip("pyarrow")
    said = refused(wrote(tmp_path, content, "log.parquet"))
    assert said.startswith("source must ")
    assert "log.parquet" in said


@pytest.mark.parametrize(
    ("one", "other"), [*itertools.combinations(("silo", "arm", "reward", "user", "propensity"), 2)]
)
def test_a_column_for_two_roles(one, other):
    assert refused(good(), **{other: ROLES[one]}).startswith(f"{other} must name another column than {one}")


@pytest.mark.parametrize("name", ["hospital", "drug", "cured", "who", "p"])
def test_a_feature_that_is_something_else(name):
    assert "must name another column" in refused(good(), features=["age", name])
    assert "must name another column" in refused(good(), features=["age", "age"])
