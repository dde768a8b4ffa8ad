"""Saved results come back as they were, or are refused with one sentence. Nothing here is simulated."""

import copy
import dataclasses
import hashlib
import io
import json
import math
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import files
from fedbandit_jax.report.result import Result, concat

PROVED = Certificate(
    claim="certified",
    reason="nan",  # a text that looks like a number stays a text
    epsilon=1.0,
    delta=1e-6,
    epsilon_exact=math.inf,
    noise_std=np.float32(0.1),  # pyright: ignore[reportArgumentType]
    per_silo=((1.0, 1e-6, math.inf), (2.0, 1e-6, 1.5)),
    visits=((2, 1e-6, 2.0, 3.0),),
)


WORLD = {"type": "Sphere", "n_agents": 3, "noise": math.inf, "spec": {"n_agents": 3, "dim": 2}}


def made(seeds=2, horizon=3, labels=("plain", "private"), **changes):
    """A result of two algorithms, written down by hand."""
    curve = np.arange(len(labels) * seeds * horizon, dtype=float).reshape(len(labels), seeds, horizon)
    config = {
        "environments": {label: copy.deepcopy(WORLD) for label in labels},
        "algorithms": {label: {"type": "Made", "lambda": 0.5} for label in labels},
        "coordinates": {label: {"algorithm": label} for label in labels},
        **dict(horizon=horizon, seeds=[[0, seeds]], stride=None, key=[0, 7]),
    }
    attributes = dict(
        rounds=np.arange(1, horizon + 1),
        regret=curve,
        communication={name: curve.astype(int) for name in ("rounds", "floats", "bits")},
        counts={"decodings": curve.astype(int)},
        gauges={"adjusted Rand index": np.where(curve > 4, np.nan, curve)},
        status=np.zeros(curve.shape[:2], int),
        certificates=dict(zip(labels, (no_privacy("it adds no noise"), PROVED))),
        config=config,
        provenance={"fedbandit_jax": "0.1", "seconds": np.float64(0.25)},
    )
    return Result(**{**attributes, **changes})


def arrays(result):
    maps = {kind: getattr(result, kind) for kind in ("communication", "counts", "gauges")}
    curves = {(kind, name): curve for kind, named in maps.items() for name, curve in named.items()}
    return {"rounds": result.rounds, "regret": result.regret, "status": result.status} | curves


def equal(one, other):
    mine, yours = arrays(one), arrays(other)
    assert set(mine) == set(yours)
    for name, array in mine.items():
        assert array.dtype == yours[name].dtype
        np.testing.assert_array_equal(array, yours[name])
    for name in ("certificates", "config", "provenance"):
        assert dict(getattr(one, name)) == dict(getattr(other, name))
    assert one.labels == other.labels


@pytest.fixture
def path(tmp_path):
    return made().save(tmp_path / "run")


def refused(path):
    """The one sentence with which a file is refused, after the part that names the file."""
    with pytest.raises(ValueError, match="path must be a saved result") as caught:
        Result.load(path)
    text, start = str(caught.value), f"path must be a saved result, got {str(path)!r}: "
    assert text.startswith(start)
    assert "\n" not in text
    return text.removeprefix(start)


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


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "\\NaN", "\\\\Infinity"])
def test_only_numbers_come_back_as_numbers(tmp_path, word):
    """JSON has no infinite numbers, whose words are also texts that somebody may choose."""
    one = dataclasses.replace(PROVED, reason=word)
    result = made(labels=(word, "other"), certificates={word: one, "other": PROVED})
    equal(Result.load(result.save(tmp_path / "run")), result)
    assert Certificate.from_json(json.loads(json.dumps(one.to_json()))) == one


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


@settings(deadline=None)
@given(
    curves=hnp.array_shapes(min_dims=3, max_dims=3, max_side=3).flatmap(lambda s: hnp.arrays(np.float64, s)),
    whole=st.booleans(),
    names=st.lists(NAMES | st.sampled_from(["x", "x.npy", "../x", "result.json"]), unique=True, max_size=3),
    text=st.text(max_size=9),
    parameter=st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.booleans(),
)
def test_whatever_is_saved_comes_back(tmp_path_factory, curves, whole, names, text, parameter):
    labels = [f"{text}{i}" for i in range(len(curves))]
    result = made(
        curves.shape[1],
        curves.shape[2],
        ("plain", "private")[: len(labels)],
        regret=curves,
        communication={name: curves for name in ("rounds", "floats", "bits")},
        counts={name: np.full(curves.shape, i) for i, name in enumerate(names)},
        gauges={name: curves + i for i, name in enumerate(names)},
        status=np.ones(curves.shape[:2], np.int32),
        certificates={label: dataclasses.replace(PROVED, reason=text) for label in labels},
    )
    same = {label: {"parameter": parameter} for label in labels}
    result = dataclasses.replace(
        result,
        config={
            **result.config,
            "algorithms": same,
            "coordinates": same,
            "environments": {label: WORLD for label in labels},
        },
    )
    result = result if whole else result[labels[0]]
    equal(Result.load(result.save(tmp_path_factory.mktemp("saved") / "run")), result)


DAMAGED = "it was damaged after it was written, as its SHA-256 digest shows"
UNSEALED = "it does not end as a result ends that fedbandit_jax has written: it was cut short or damaged, or is "
ADVICE = "; use a copy that is whole, or run the simulation again"


def test_no_bit_can_change(path):
    """A random one of every third byte (headers, arrays, texts, directory), and of every byte of the seal."""
    whole = path.read_bytes()
    seal = whole.index(b"fedbandit_jax result; ")
    assert seal == len(whole) - 64 - len("fedbandit_jax result; SHA-256 of all before: ")
    assert len(whole) > 2000
    bits = np.random.default_rng(0).integers(8, size=len(whole))
    for position in [*range(0, seal, 3), *range(seal - 2, len(whole))]:
        changed = bytearray(whole)
        changed[position] ^= 1 << int(bits[position])
        path.write_bytes(changed)
        words = len(whole) - 64 > position >= seal
        assert refused(path) == (UNSEALED + "something else" if words else DAMAGED) + ADVICE
    path.write_bytes(whole)
    equal(Result.load(path), made())


def test_nothing_can_be_cut_off_or_added(path):
    whole = path.read_bytes()
    for length in [*range(1, len(whole), 5), *range(len(whole) - 120, len(whole))]:
        path.write_bytes(whole[:length])
        assert refused(path) == UNSEALED + "something else" + ADVICE
    for more in (b"\0", b"\n", whole[-64:], whole[:9], b" " * 500):
        path.write_bytes(whole + more)
        assert refused(path) == UNSEALED + "something else" + ADVICE
    for front in (b"\0", whole):  # a self-extracting archive is still an archive
        path.write_bytes(front + whole)
        assert refused(path) == DAMAGED + ADVICE
    path.write_bytes(b"")
    assert refused(path) == "it is empty" + ADVICE


def test_the_digest_is_of_all_of_a_long_file(tmp_path):
    path = tmp_path / "run.npz"
    files.write_archive(path, "result", {}, {"noise": np.random.default_rng(0).bytes(3 << 20)}, compress=False)
    whole = bytearray(path.read_bytes())
    whole[5 << 19] ^= 1  # behind the second of three megabytes
    path.write_bytes(whole)
    assert refused(path) == DAMAGED + ADVICE


def test_what_is_no_result(tmp_path):
    path = tmp_path / "run.npz"
    assert refused(path) == "No such file or directory"
    path.mkdir()
    assert refused(path) == "Is a directory"
    path.rmdir()
    np.savez(path, rounds=np.arange(3), regret=np.zeros((1, 3)))  # another program's
    assert refused(path) == UNSEALED + "something else" + ADVICE
    files.write_archive(path, "checkpoint", {"format": 2}, {})
    assert refused(path) == UNSEALED + "something else" + ADVICE
    for wrong in (None, 3, b"run"):
        for call in (Result.load, made().save):
            with pytest.raises(TypeError, match=f"path must be a str or a Path, got {wrong}"):
                call(wrong)


def seal(content):
    """Seals anything by hand."""
    content += b"fedbandit_jax result; SHA-256 of all before: "
    return content + hashlib.sha256(content).hexdigest().encode()


def test_a_sealed_file_may_still_be_none(tmp_path):
    path = tmp_path / "run.npz"
    names, objects = io.BytesIO(), io.BytesIO()
    np.savez(names, about=np.zeros(3))
    with zipfile.ZipFile(objects, "w") as parts:  # unpickling runs whatever is in it
        parts.writestr("result.json", "{}")
        with parts.open("rounds.npy", "w") as part:
            np.lib.format.write_array(part, np.array([{}]), allow_pickle=True)
    for content in (b"", b"nothing", b"PK\3\4" + bytes(50), names.getvalue(), objects.getvalue()):
        path.write_bytes(seal(content))
        assert refused(path).startswith("it is sealed, but is no archive of arrays and result.json (")
    assert "Object arrays cannot be loaded" in refused(path)
    files.write_archive(path, "result", [], {})  # pyright: ignore[reportArgumentType]
    assert refused(path).endswith("(its text is no dictionary)" + ADVICE)


def edited(path, edit):
    """Seals a result in which the texts and the arrays were changed."""
    about, held = files.read_archive(path, "result")
    edit(about, held)
    files.write_archive(path, "result", about, held)


def put(where, key, value):
    where[key] = value


private = "private"
FAULTS = {
    "its format is 4, but this version of fedbandit_jax reads 3: install": lambda a, _: put(a, "format", 4),
    "its format is None, but": lambda a, _: a.pop("format"),
    "it must have certificates, got": lambda a, _: a.pop("certificates"),
    "it must have config, got": lambda a, _: a.pop("config"),
    "it must have provenance, got": lambda a, _: a.pop("provenance"),
    "it must have rounds, got regret": lambda _, b: b.pop("rounds"),
    "it must have regret, got rounds": lambda _, b: b.pop("regret"),
    "it must have status, got rounds": lambda _, b: b.pop("status"),
    "provenance must be a dictionary, got 3": lambda a, _: put(a, "provenance", 3),
    "certificates must be a dictionary, got []": lambda a, _: put(a, "certificates", []),
    "the certificate of 'plain' must be a dictionary, got 1": lambda a, _: put(a["certificates"], "plain", 1),
    "the certificate of 'private' must have claim": lambda a, _: a["certificates"][private].pop("claim"),
    "the certificate of 'private' must have delta": lambda a, _: a["certificates"][private].pop("delta"),
    "the claim of 'private' must be one of none, as_printed, certified, got 'perfect'": (
        lambda a, _: put(a["certificates"][private], "claim", "perfect")
    ),
    "config must have key, got environments": lambda a, _: a["config"].pop("key"),
    "config must have horizon, got": lambda a, _: a["config"].pop("horizon"),
    "config must have seeds, got": lambda a, _: a["config"].pop("seeds"),
    "config's environments must have private, got plain": lambda a, _: a["config"]["environments"].pop(private),
    "the environment of 'private' must have spec, got": lambda a, _: a["config"]["environments"][private].pop("spec"),
    "the spec of the environment of 'private' must have n_agents": (
        lambda a, _: a["config"]["environments"][private]["spec"].pop("n_agents")
    ),
    "config's algorithms must have private, got plain": lambda a, _: a["config"]["algorithms"].pop(private),
    "config's coordinates must have private, got plain": lambda a, _: a["config"]["coordinates"].pop(private),
    "config's environments must be private, got plain, private": lambda a, _: a["certificates"].pop("plain"),
    "communication must have bits, got rounds, floats": lambda _, b: b.pop("communication_bits"),
    "regret must be numbers of shape (2, 2, 3), got float64 of shape (2, 3)": (
        lambda _, b: put(b, "regret", b["regret"][0])
    ),
    "regret must be numbers of shape (2, 2, 3), got <U3": lambda _, b: put(b, "regret", b["regret"].astype("U3")),
    "regret must be numbers of shape (2, 4, 3), got": lambda a, _: put(a["config"], "seeds", [[0, 4]]),
    "config's seeds must be stretches [[first, end], ...], got 'two'": lambda a, _: put(a["config"], "seeds", "two"),
    "config's seeds must be stretches [[first, end], ...], got [[0, 0]]": (
        lambda a, _: put(a["config"], "seeds", [[0, 0]])
    ),
    "status must be numbers of shape (2, 2), got int64": lambda _, b: put(b, "status", b["status"][:, 0]),
    "status must be numbers of shape (2, 2), got float64": lambda _, b: put(b, "status", b["status"] / 2),
    "counts_decodings must be numbers of shape (2, 2, 3)": (
        lambda _, b: put(b, "counts_decodings", b["counts_decodings"][..., :2])
    ),
    "rounds must be numbers of shape (3,), got float64": lambda _, b: put(b, "rounds", b["rounds"] / 1),
    "rounds must be numbers of shape (9,), got int64": lambda _, b: put(b, "rounds", np.ones((3, 3), int)),
    "rounds must increase from 1 to the horizon 3, got [1 3 2]": lambda _, b: put(b, "rounds", np.array([1, 3, 2])),
    "rounds must increase from 1 to the horizon 3, got [0 1 3]": lambda _, b: put(b, "rounds", np.array([0, 1, 3])),
    "rounds must increase from 1 to the horizon 4, got [1 2 3]": lambda a, _: put(a["config"], "horizon", 4),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sealed_result_must_make_sense(path, fault):
    edited(path, FAULTS[fault])
    why = refused(path)
    assert why.startswith(fault)
    assert not why.endswith(ADVICE)  # the file is whole


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
    assert str(warning.message) == (
        f"{str(path)!r} was written by a newer version: this one leaves out variances, mood, a certificate's colour"
    )
    assert warning.filename == __file__
    assert loaded.config["tags"] == ["kept"]
    equal(dataclasses.replace(loaded, config=made().config), made())


def test_what_makes_no_sense_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match=r"regret must be numbers of shape \(2, 2, 3\), got float64 of shape \(2, 3\)"):
        made(regret=np.zeros((2, 3))).save(tmp_path / "run")
    with pytest.raises(TypeError, match="what is saved must be numbers, texts, lists and dictionaries, got {1}"):
        made(provenance={"odd": {1}}).save(tmp_path / "run")
    with pytest.raises(TypeError, match="what is saved must be numbers, texts, lists and dictionaries, got 1j"):
        made(provenance={"odd": 1j}).save(tmp_path / "run")
    with pytest.raises(ValueError, match="names of arrays must be such as a zip archive can hold"):
        made(counts={"a\0b": made().regret}).save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_others_can_read_it(path, monkeypatch):
    """NumPy, zip and sha256sum are enough, and the same result is the same file at any time."""
    with np.load(path) as file:
        np.testing.assert_array_equal(file["regret"], made().regret)
        text = json.loads(file["result.json"])
    assert text["certificates"]["private"]["claim"] == "certified"
    whole = path.read_bytes()
    assert hashlib.sha256(whole[:-64]).hexdigest().encode() == whole[-64:]
    monkeypatch.setattr("time.localtime", lambda *seconds: (2040, 1, 2, 3, 4, 6, 0, 2, 0))
    assert made().save(path.with_name("again.npz")).read_bytes() == whole


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_crash_leaves_the_old_file(tmp_path, monkeypatch, existing, error):
    """Before the file is moved into place, which is the only moment at which anything changes."""
    if existing:
        made(seeds=4).save(tmp_path / "run")

    def crash(*_):
        raise error

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(type(error)):
        made().save(tmp_path / "run")
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"] * existing
    if existing:
        equal(Result.load(tmp_path / "run"), made(seeds=4))


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A limit on the size of files stops the writing at any byte, as a full disk does."""
    resource = pytest.importorskip("resource")
    path = made(seeds=4).save(tmp_path / "run")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = len(made().save(tmp_path / "other").read_bytes())
    for limit in (0, 10, 500, size - 65, size - 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        try:
            with pytest.raises(OSError, match=r"run\.npz'$"):
                made().save(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        equal(Result.load(path), made(seeds=4))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other.npz", "run.npz"]


def test_concat_names_the_difference():
    one = made()
    for change, words in [
        ({"horizon": 9}, "the horizon, got 3 and 9"),
        ({"key": [0, 8]}, r"the key, got \[0, 7\] and \[0, 8\]"),
        ({"seeds": [[2, 4]]}, r"the seeds, or all labels, got seeds \[\[0, 2\]\] and \[\[2, 4\]\]"),
    ]:
        other = dataclasses.replace(one, config={**one.config, **change})
        with pytest.raises(ValueError, match=f"^results to concat must share {words}$"):
            concat([one["plain"], one["private"], other])
    world = one.config["environments"]["plain"]
    for change, words in [
        ({"plain": {**world, "n_agents": 4}}, "environments.plain.n_agents, got 3 and 4"),
        ({"plain": {**world, "spec": {"n_agents": 4, "dim": 2}}}, "environments.plain.spec.n_agents, got 3 and 4"),
        ({"plain": "another"}, "environments.plain, got {'type': 'Sphere', .*} and 'another'"),
    ]:
        config = {**one.config, "seeds": [[2, 4]], "environments": {**one.config["environments"], **change}}
        with pytest.raises(ValueError, match=f"^results of other seeds must share {words}$"):
            concat([one, dataclasses.replace(one, config=config)])
    config = {**one.config, "seeds": [[2, 4]]}
    proved = dataclasses.replace(one, certificates=dict.fromkeys(one.certificates, PROVED), config=config)
    with pytest.raises(ValueError, match="^results of other seeds must share their certificates"):
        concat([one, proved])
    with pytest.raises(ValueError, match="^results must have distinct labels or seeds, got seeds"):
        concat([one, one])
    with pytest.raises(ValueError, match="^results of other seeds must all be of simulate, or all of sweep, got both"):
        concat([one["plain"], one.sel(algorithm=["plain"])])
    for wrong in (5, None, one, {"one": one}):
        with pytest.raises(TypeError, match="results must be a list of results, got"):
            concat(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="results must be a list of results, got 5 in it"):
        concat([one, 5])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="at least one result, got none"):
        concat([])


def test_a_folder_that_cannot_be_written_to_is_named():
    """And not the hidden file that would have been moved into place."""
    for path in ("/proc/x.npz", "/sys/x.npz"):
        with pytest.raises(OSError, match=f"'{path}'$"):
            made().save(path)


def test_labels_are_an_array(tmp_path):
    with np.load(made().save(tmp_path / "run")) as found:
        assert found["labels"].tolist() == ["plain", "private"]
