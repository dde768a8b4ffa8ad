"""A checkpoint is continued exactly, or refused with one sentence. Nothing here is simulated."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.core import archive
from fedbandit_jax.engine import provenance
from fedbandit_jax.engine.checkpoint import Checkpoints, Progress
from fedbandit_jax.engine.recording import RoundRecord


def progress(k=0, value=0.0, layout="3 pieces", **arrays):
    """Two configurations and three seeds, after k steps."""
    record = RoundRecord(np.arange(1, 5), 2, 3, ("rounds",) * bool(k), arrays)
    return Progress(layout, k, ({"served": jnp.full(3, k)}, jnp.full((2, 3), value), jnp.zeros((), bool)), record)


LATER = progress(
    7, -0.0, total=np.full((2, 3), np.nan), regret=np.arange(12.0).reshape(2, 3, 2), rounds=np.asarray(2), status=0
)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "run", "this run")


def test_it_comes_back(tmp_path, checkpoints):
    fresh = progress()
    assert checkpoints.restore(1, fresh) is fresh  # there is none
    checkpoints.save(1, LATER)
    assert [path.name for path in tmp_path.iterdir()] == ["run.1"]
    found = Checkpoints(str(tmp_path / "run"), "this run").restore(1, fresh)
    assert (found.layout, found.k, found.record.names) == ("3 pieces", 7, ("rounds",))
    assert np.signbit(found.states[1]).all()
    np.testing.assert_array_equal(found.states[0]["served"], [7, 7, 7])
    assert found.states[2].dtype == bool
    assert set(found.record.arrays) == {"total", "regret", "rounds", "status"}
    for name, array in LATER.record.arrays.items():
        np.testing.assert_array_equal(found.record.arrays[name], array)


def test_another_run(tmp_path, checkpoints):
    checkpoints.save(0, LATER)
    for other, layout in (("another run", "3 pieces"), ("this run", "6 pieces")):
        with pytest.raises(ValueError, match=r"^checkpoint .*run.0' belongs to another run: delete it or give another"):
            Checkpoints(tmp_path / "run", other).restore(0, progress(layout=layout))


def test_no_damage_is_continued(tmp_path, checkpoints):
    """One bit of every fifth byte, and every fifth length."""
    checkpoints.save(0, LATER)
    path, fresh = tmp_path / "run.0", progress()
    whole = path.read_bytes()
    assert len(whole) > 2000
    bits = np.random.default_rng(1).integers(8, size=len(whole))
    changed = [b"PK\3\4", whole + b"\0"]
    for i in range(0, len(whole), 5):
        changed += [whole[:i], whole[:i] + bytes([whole[i] ^ 1 << int(bits[i])]) + whole[i + 1 :]]
    start = f"checkpoint {str(path)!r} cannot be continued, delete it to begin anew or give another path: it "
    for content in changed:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be continued") as caught:
            checkpoints.restore(0, fresh)
        assert str(caught.value).startswith(start)
        assert str(caught.value).removeprefix(start) in (
            "is empty",
            "was damaged after it was written, as its SHA-256 digest shows",
            "does not end as a checkpoint ends that fedbandit_jax has written: it was cut short or damaged, or is "
            "something else",
        )
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="another path: Is a directory"):
        checkpoints.restore(0, fresh)


def test_a_full_disk_is_told_once(tmp_path, monkeypatch, checkpoints):
    checkpoints.save(0, LATER)
    written = (tmp_path / "run.0").read_bytes()

    def full(path, content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patch.setattr(archive, "write_atomic", full)
        for program in (0, 0, 1, 1):
            checkpoints.save(program, progress(9))
    assert [str(warning.message).partition("; ")[0] for warning in told] == [
        f"checkpoint {str(tmp_path / 'run.0')!r} could not be written: No space left on device"
    ]
    assert (tmp_path / "run.0").read_bytes() == written
    checkpoints.save(0, progress(9))  # there is room again
    assert checkpoints.restore(0, progress()).k == 9


def test_a_fingerprint_knows_the_configuration_and_the_versions(monkeypatch):
    config = {"horizon": 3, "key": [0, 7]}
    one = provenance.fingerprint(config, [])
    assert one == provenance.fingerprint(dict(config), [])
    assert one != provenance.fingerprint({**config, "key": [0, 8]}, [])
    monkeypatch.setattr(provenance, "versions", lambda: {"jax": "0"})
    assert one != provenance.fingerprint(config, [])
