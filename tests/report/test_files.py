"""Saved results come back as they were, or are refused with one sentence. Nothing here is simulated."""

import dataclasses
import functools
import io
import json
import zipfile

import numpy as np
import pytest
from handmade import PROVED, made
from helpers import refused as argument_refused
from helpers import same_runs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import files
from fedbandit_jax.core.validate import BadArgument
from fedbandit_jax.report.result import Result


def equal(one, other):
    same_runs(one, other)
    assert dict(one.provenance) == dict(other.provenance)
    assert [one.regret.dtype, one.status.dtype] == [other.regret.dtype, other.status.dtype]


@pytest.fixture
def path(tmp_path):
    return made().save(tmp_path / "run")


def refused(path):
    """Why a file is refused, in one sentence, after the part that names the file."""
    with argument_refused("path") as found:
        Result.load(path)
    _, _, why = str(found.value).partition(f"{str(path)!r}: ")
    assert why
    return why


def test_one_file_comes_back(tmp_path):
    result = made()
    path = result.save(tmp_path / "folder" / "run")
    assert [file.name for file in path.parent.iterdir()] == ["run.npz"]
    for name in (path, str(path), path.with_suffix("")):
        equal(Result.load(name), result)
    assert Result.load(path)["private"].certificate == PROVED
    assert Result.load(path).summary() == result.summary()
    equal(Result.load(result["private"].save(tmp_path / "v1.2")), result["private"])  # no ending is taken away
    assert (tmp_path / "v1.2.npz").exists()
    equal(Result.load(path.rename(tmp_path / "kept.bin")), result)  # a file that is there is read under any name
    assert refused(path) == "No such file or directory"
    path.mkdir()
    assert refused(path) == "Is a directory"


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
WORDS = st.sampled_from(["NaN", "Infinity", "-Infinity", "\\NaN", "\\\\Infinity"])  # numbers that JSON has not


@settings(deadline=None, max_examples=25)
@given(
    curves=hnp.array_shapes(min_dims=3, max_dims=3, max_side=3).flatmap(lambda s: hnp.arrays(np.float64, s)),
    names=st.lists(NAMES | st.sampled_from(["x", "x.npy", "../x", "result.json"]), unique=True, max_size=3),
    text=st.text(max_size=9) | WORDS,
    parameter=st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | WORDS | st.booleans(),
)
def test_all_that_is_saved_comes_back(tmp_path_factory, curves, names, text, parameter):
    labels = [f"{text}{i or ''}" for i in range(len(curves))]
    one = dataclasses.replace(PROVED, reason=text)
    result = made(
        curves.shape[1],
        curves.shape[2],
        labels,
        regret=curves,
        communication={name: curves for name in ("rounds", "floats", "bits")},
        counts={name: np.full(curves.shape, i) for i, name in enumerate(names)},
        gauges={name: curves + i for i, name in enumerate(names)},
        status=np.ones(curves.shape[:2], np.int32),
        certificates=dict.fromkeys(labels, one),
    )
    same = {label: {"parameter": parameter} for label in labels}
    result = dataclasses.replace(result, config=result.config | {"algorithms": same, "coordinates": same})
    for whole in (result, result[labels[0]]):
        equal(Result.load(whole.save(tmp_path_factory.mktemp("saved") / "run")), whole)
    assert Certificate.from_json(json.loads(json.dumps(one.to_json()))) == one


def objects():
    """Arrays of objects, whose unpickling runs the code in them."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as parts:
        parts.writestr("result.json", "{}")
        with parts.open("rounds.npy", "w") as part:
            np.lib.format.write_array(part, np.array([{}]), allow_pickle=True)
    return held.getvalue()


WRONG = "it is damaged, or is no result of fedbandit_jax"


def test_damaged_files_are_refused(path):
    """Cut short, or not of arrays."""
    whole = path.read_bytes()
    for content in (*(whole[:n] for n in (0, 1, 99, 1500, -1)), b"nothing", b"PK\3\4" + bytes(50), objects()):
        path.write_bytes(content)
        assert refused(path).startswith(WRONG)


def test_files_of_other_kinds_are_refused(path):
    np.savez(path, rounds=np.arange(3), regret=np.zeros((1, 3)))
    assert refused(path).startswith(WRONG)
    for kind, about in (("row", {"format": 2}), ("result", [])):
        files.write_archive(path, kind, about, {})  # pyright: ignore[reportArgumentType]
        assert refused(path).startswith(WRONG)


def test_no_bit_can_change_the_result(path):
    """A random one of every third byte (headers, arrays, texts), and of all in the directory, where dates count not."""
    whole, same = path.read_bytes(), 0
    assert len(whole) > 2000
    bits = np.random.default_rng(0).integers(8, size=len(whole))
    tried = [*range(0, len(whole) - 800, 3), *range(len(whole) - 800, len(whole))]
    for position in tried:
        changed = bytearray(whole)
        changed[position] ^= 1 << int(bits[position])
        path.write_bytes(changed)
        try:
            found = Result.load(path)
        except BadArgument as error:
            why = str(error)
        else:
            equal(found, made())
            same, why = same + 1, WRONG
        assert WRONG in why
    assert same < len(tried) / 3


def edited(path, edit):
    """Saves a result in which the texts and the arrays were changed."""
    about, held = files.read_archive(path, "result")
    edit(about, held)
    files.write_archive(path, "result", about, held)


TEXTS = [  # where, what is put there (None: it is taken away), and the word that is named if it is not the last
    ("format", 4),
    *((name, None) for name in ("format", "certificates", "config", "provenance")),
    *((f"config.{name}", None) for name in ("key", "horizon", "seeds")),
    *((f"config.{name}.private", None) for name in ("environments", "algorithms", "coordinates")),
    *((f"certificates.private.{name}", None) for name in ("claim", "delta")),
    ("config.environments.private.spec", None),
    ("config.environments.private.spec.n_agents", None),
    ("certificates.plain", None),
    ("certificates.plain", 1),
    ("certificates.private.claim", "perfect"),
    ("provenance", 3),
    ("certificates", []),
    ("config.seeds", [[0, 4]], "regret"),
    ("config.seeds", "two"),
    ("config.seeds", [[0, 0]]),
    ("config.horizon", 4, "rounds"),
]
ARRAYS = [  # which array, and a change of it
    *((name, None) for name in ("rounds", "regret", "status", "communication_bits")),
    ("regret", lambda array: array[0]),
    ("regret", lambda array: array.astype("U3")),
    ("status", lambda array: array[:, 0]),
    ("status", lambda array: array / 2),
    ("counts_decodings", lambda array: array[..., :2]),
    ("rounds", lambda array: array / 1),
    ("rounds", lambda array: np.ones((3, 3), int)),
    ("rounds", lambda array: np.array([1, 3, 2])),
    ("rounds", lambda array: np.array([0, 1, 3])),
]


@pytest.mark.parametrize("fault", [*TEXTS, *ARRAYS])
def test_a_whole_result_must_make_sense(path, fault):
    way, value = fault[:2]

    def edit(about, held):
        *outer, last = way.split(".")
        place = functools.reduce(lambda found, name: found[name], outer, held if fault in ARRAYS else about)
        old = place.pop(last)
        if value is not None:
            place[last] = value(old) if callable(value) else value

    edited(path, edit)
    why = refused(path)
    assert way.rpartition(".")[2].removeprefix("communication_") in why or fault[2] in why
    assert "use an intact copy" not in why  # the file is whole


def test_a_newer_result_is_read_with_a_warning(path):
    def newer(about, held):
        about["mood"] = "good"
        about["config"]["tags"] = ["kept"]
        for certificate in about["certificates"].values():
            certificate["colour"] = "green"
        held["variances"] = np.zeros(3)

    edited(path, newer)
    with pytest.warns(UserWarning, match="newer version") as told:
        loaded = Result.load(path)
    (warning,) = told
    assert all(name in str(warning.message) for name in (str(path), "variances", "mood", "colour"))
    assert warning.filename == __file__
    assert loaded.config["tags"] == ["kept"]
    equal(dataclasses.replace(loaded, config=made().config), made())


def test_what_makes_no_sense_is_not_saved(tmp_path):
    regret, counts = np.zeros((2, 3)), {"a\0b": np.zeros((2, 2, 3))}
    for changes in (dict(regret=regret), dict(counts=counts), *(dict(provenance={"odd": odd}) for odd in ({1}, 1j))):
        with pytest.raises(BadArgument):
            made(**changes).save(tmp_path / "run")
        assert list(tmp_path.iterdir()) == []


def test_labels_are_an_array(path, monkeypatch):
    """NumPy and zip are enough, and the same result is the same file at any time."""
    with np.load(path) as file:
        np.testing.assert_array_equal(file["regret"], made().regret)
        assert file["labels"].tolist() == ["plain", "private"]
        text = json.loads(file["result.json"])
    assert text["certificates"]["private"]["claim"] == "certified"
    whole = path.read_bytes()
    monkeypatch.setattr("time.localtime", lambda *seconds: (2040, 1, 2, 3, 4, 6, 0, 2, 0))
    assert made().save(path.with_name("again.npz")).read_bytes() == whole


def test_what_cannot_be_written_is_named(tmp_path):
    """A folder, or a disk that is full in the middle; the old file stays, asks `engine/test_survival.py`."""

    def full(file):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"run'$"):
        files.write_atomic(tmp_path / "run", full)
    for path in ("/proc/x.npz", "/sys/x.npz"):
        with pytest.raises(OSError, match=f"'{path}'$"):
            made().save(path)
