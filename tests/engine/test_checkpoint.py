"""A checkpoint is continued exactly, or refused with one sentence. Nothing here is simulated."""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.core import files
from fedbandit_jax.engine.checkpoint import Checkpoints, Progress
from fedbandit_jax.engine.curves import RoundTally


def progress(k=0, value=0.0, layout="3 pieces", **arrays):
    """Two configurations and three seeds, after k steps; a world of users may hold keys, of any generator."""
    record = RoundTally(np.arange(1, 5), 2, 3, ("rounds",) * bool(k), arrays)
    keys = jax.random.split(jax.random.key(k), 3), jax.random.key(k, impl="rbg")
    states = {"served": jnp.full(3, k)}, jnp.full((2, 3), value), jnp.zeros((), bool), *keys
    return Progress(layout, k, states, record)


FRESH, LATER = progress(), progress(
    7, -0.0, total=np.full((2, 3), np.nan), regret=np.arange(12.0).reshape(2, 3, 2), rounds=np.asarray(2), status=0
)  # fmt: skip


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "run", "this run")


def test_it_comes_back(tmp_path, checkpoints):
    assert checkpoints.restore(1, FRESH) is FRESH  # there is none
    checkpoints.save(1, LATER)
    assert [path.name for path in tmp_path.iterdir()] == ["run.1"]
    found = Checkpoints(str(tmp_path / "run"), "this run").restore(1, FRESH)
    assert (found.layout, found.k, found.tally.names) == ("3 pieces", 7, ("rounds",))
    assert np.signbit(found.states[1]).all()
    np.testing.assert_array_equal(found.states[0]["served"], [7, 7, 7])
    assert found.states[2].dtype == bool
    assert all((one == other).all() for one, other in zip(found.states[3:], LATER.states[3:], strict=True))
    assert set(found.tally.arrays) == {"total", "regret", "rounds", "status"}
    for name, array in LATER.tally.arrays.items():
        np.testing.assert_array_equal(found.tally.arrays[name], array)


def test_another_run(tmp_path, checkpoints):
    checkpoints.save(0, LATER)
    with pytest.raises(ValueError, match="another configuration.* delete '.*run.0'"):
        Checkpoints(tmp_path / "run", "another run").restore(0, FRESH)
    with pytest.raises(ValueError, match="3 pieces, not 6 pieces"):
        checkpoints.restore(0, progress(layout="6 pieces"))


def test_a_damaged_one_is_refused(tmp_path, checkpoints):
    """And stays. That every bit of an archive counts, `report/test_files.py` asks."""
    checkpoints.save(0, progress(7))
    path = tmp_path / "run.0"
    whole = path.read_bytes()
    for content in (b"", b"Chapter 1", whole[:-1], whole[:700] + bytes([whole[700] ^ 4]) + whole[701:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"run.0' is unusable: it .* delete '.*run.0' to start anew"):
            checkpoints.restore(0, FRESH)
        assert path.read_bytes() == content


@pytest.mark.filterwarnings("ignore:checkpoint:UserWarning")
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on the size of files")
def test_a_disk_that_is_full_after_any_byte(tmp_path, checkpoints):
    """What was there stays, and nothing is left lying around. That it is told once, `test_simulation.py` asks."""
    import resource

    checkpoints.save(0, progress(5))
    size, rng = (tmp_path / "run.0").stat().st_size, np.random.default_rng(4)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(30):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(rng.integers(size)), unlimited[1]))
        try:
            assert not checkpoints.save(0, progress(7))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert [path.name for path in tmp_path.iterdir()] == ["run.0"]
        assert checkpoints.restore(0, FRESH).k == 5
    assert checkpoints.save(0, progress(7))  # there is room again
    assert checkpoints.restore(0, FRESH).k == 7


WRITER = """
import sys
from pathlib import Path
import numpy as np
from fedbandit_jax.core import files
path, k = Path(sys.argv[1]), 0
while True:
    files.write_archive(path, "checkpoint", {"steps": k}, {"a": np.full(40_000, k)}, compress=False)
    print(k, flush=True)
    k += 1
"""


def test_a_writer_that_is_killed(tmp_path):
    """With kill -9, at any moment: what it had written last, or the next, is there and whole."""
    path, rng = tmp_path / "run.0", np.random.default_rng(5)
    for _ in range(4):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
        told = [writer.stdout.readline() for _ in range(3)]
        time.sleep(rng.uniform(0, 0.02))
        writer.kill()
        told += writer.communicate()[0].splitlines()
        about, arrays = files.read_archive(path, "checkpoint")
        assert about["steps"] - int(told[-1]) in (0, 1)
        assert (arrays["a"] == about["steps"]).all()
        files.remove_unfinished(path)
        assert [one.name for one in tmp_path.iterdir()] == ["run.0"]
