"""A checkpoint is continued exactly, or refused with one sentence. Nothing here is simulated."""

import subprocess
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.core import files
from fedbandit_jax.core.files import remove_unfinished
from fedbandit_jax.engine.checkpoint import Checkpoints, Progress
from fedbandit_jax.engine.curves import RoundTally


def progress(k=0, value=0.0, layout="3 pieces", **arrays):
    """Two configurations and three seeds, after k steps."""
    record = RoundTally(np.arange(1, 5), 2, 3, ("rounds",) * bool(k), arrays)
    return Progress(layout, k, ({"served": jnp.full(3, k)}, jnp.full((2, 3), value), jnp.zeros((), bool)), record)


LATER = progress(
    7, -0.0, total=np.full((2, 3), np.nan), regret=np.arange(12.0).reshape(2, 3, 2), rounds=np.asarray(2), status=0
)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "run", "this run")


def test_keys_come_back(checkpoints):
    """A world of one's own may hold keys, of any generator."""
    keys = [jax.random.split(jax.random.key(seed), 3) for seed in (0, 1)] + [jax.random.key(2, impl="rbg")]
    held = [progress()._replace(states=[one, keys[2]]) for one in keys[:2]]
    assert checkpoints.save(0, held[1])
    found = checkpoints.restore(0, held[0]).states
    assert (found[0] == keys[1]).all()
    assert found[1] == keys[2]


def test_it_comes_back(tmp_path, checkpoints):
    fresh = progress()
    assert checkpoints.restore(1, fresh) is fresh  # there is none
    checkpoints.save(1, LATER)
    assert [path.name for path in tmp_path.iterdir()] == ["run.1"]
    found = Checkpoints(str(tmp_path / "run"), "this run").restore(1, fresh)
    assert (found.layout, found.k, found.tally.names) == ("3 pieces", 7, ("rounds",))
    assert np.signbit(found.states[1]).all()
    np.testing.assert_array_equal(found.states[0]["served"], [7, 7, 7])
    assert found.states[2].dtype == bool
    assert set(found.tally.arrays) == {"total", "regret", "rounds", "status"}
    for name, array in LATER.tally.arrays.items():
        np.testing.assert_array_equal(found.tally.arrays[name], array)


def test_arrays_come_back_to_their_devices(checkpoints):
    """Arrays of other placement than at first would make the program compile once more."""
    fresh = progress()
    placed = fresh._replace(states=jax.device_put(fresh.states, jax.devices()[0]))
    checkpoints.save(0, placed)
    for old, found in zip(*map(jax.tree.leaves, (placed.states, checkpoints.restore(0, placed).states))):
        assert (found.committed, found.sharding) == (old.committed, old.sharding)


def test_another_run(tmp_path, checkpoints):
    checkpoints.save(0, LATER)
    checkpoints.save(0, LATER)
    path = str(tmp_path / "run.0")
    with pytest.raises(ValueError, match="belongs to another run") as caught:
        Checkpoints(tmp_path / "run", "another run").restore(0, progress())
    assert str(caught.value) == (
        f"checkpoint {path!r} belongs to another run, whose configuration, code or versions are not those of this one: "
        f"give another path, or delete {path!r} and {path + '.before'!r} to begin anew"
    )
    with pytest.raises(
        ValueError, match="3 pieces, and here they would be in 6 pieces: continue where there are as many"
    ):
        checkpoints.restore(0, progress(layout="6 pieces"))


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


def damaged(whole, rng):
    """A flipped bit, or a missing end, at a random place."""
    i = int(rng.integers(len(whole)))
    return whole[:i] if rng.integers(2) else whole[:i] + bytes([whole[i] ^ 1 << int(rng.integers(8))]) + whole[i + 1 :]


def test_damage_costs_one_generation(tmp_path, checkpoints):
    """The run goes on from the one before, and says so; where both are damaged, it says what to do."""
    for k in (3, 5, 7):
        checkpoints.save(0, progress(k, regret=np.full((2, 3, 4), k)))
    path, before, fresh, rng = tmp_path / "run.0", tmp_path / "run.0.before", progress(), np.random.default_rng(3)
    newest, older = path.read_bytes(), before.read_bytes()
    survived = 0
    for _ in range(tried := 100):
        path.write_bytes(damaged(newest, rng))
        before.write_bytes(older)
        with pytest.warns(UserWarning, match="cannot be continued") as told:
            found = checkpoints.restore(0, fresh)
        assert str(told[0].message).startswith(f"checkpoint {str(path)!r} cannot be continued: it ")
        assert str(told[0].message).endswith(
            f"; the run goes on from the one before, {str(before)!r}, 5 steps after its beginning"
        )
        survived += found.k == 5 and bool((found.tally.arrays["regret"] == 5).all())
        assert path.read_bytes() == older  # the damaged one does not become the one before
        assert not before.exists()
    print(f"\ndamage: {tried} tried, {survived} survived")
    assert survived == tried
    path.unlink()
    before.write_bytes(older)  # killed between two moves
    assert checkpoints.restore(0, fresh).k == 5
    path.write_bytes(newest[:-1])
    before.write_bytes(older[:-1])
    words = r"run.0' cannot be continued, delete both to begin anew or give another path: it does not end.*; nor can"
    with pytest.raises(ValueError, match=rf"^checkpoint .*{words} the one before, .*run.0.before': it does not end"):
        checkpoints.restore(0, fresh)


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on the size of files")
def test_a_disk_that_is_full_after_any_byte(tmp_path, checkpoints):
    """What was there stays, and nothing is left lying around."""
    import resource

    for k in (3, 5):
        checkpoints.save(0, progress(k))
    size, rng = (tmp_path / "run.0").stat().st_size, np.random.default_rng(4)
    unlimited, survived = resource.getrlimit(resource.RLIMIT_FSIZE), 0
    for _ in range(tried := 30):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(rng.integers(size)), unlimited[1]))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                written = checkpoints.save(0, progress(7))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert not written
        assert {path.name for path in tmp_path.iterdir()} == {"run.0", "run.0.before"}
        survived += checkpoints.restore(0, progress()).k == 5
    print(f"\nfull disk: {tried} tried, {survived} survived")
    assert survived == tried
    assert checkpoints.save(0, progress(7))
    assert checkpoints.restore(0, progress()).k == 7


WRITER = """
import sys
from pathlib import Path
import numpy as np
from fedbandit_jax.core import files
path, before, k = Path(sys.argv[1]), Path(sys.argv[2]), 0
while True:
    files.write_archive(path, "checkpoint", {"steps": k}, {"a": np.full(40_000, k)}, compress=False, before=before)
    print(k, flush=True)
    k += 1
"""


def test_a_writer_that_is_killed(tmp_path):
    """With kill -9, at any moment: what it had written last, or the next, is there and whole."""
    path, before, rng, survived = tmp_path / "run.0", tmp_path / "run.0.before", np.random.default_rng(5), 0
    for _ in range(tried := 4):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path, before], stdout=subprocess.PIPE, text=True)
        told = [writer.stdout.readline() for _ in range(3)]
        time.sleep(rng.uniform(0, 0.02))
        writer.kill()
        told += writer.communicate()[0].splitlines()
        newest = path if path.exists() else before
        about, arrays = files.read_archive(newest, "checkpoint")
        survived += about["steps"] - int(told[-1]) in (0, 1) and bool((arrays["a"] == about["steps"]).all())
        remove_unfinished(path)
        assert {one.name for one in tmp_path.iterdir()} <= {"run.0", "run.0.before"}
    print(f"\nkilled writers: {tried} tried, {survived} survived")
    assert survived == tried


def test_a_full_disk_is_told_once(tmp_path, monkeypatch, checkpoints):
    checkpoints.save(0, LATER)
    written = (tmp_path / "run.0").read_bytes()

    def full(path, content, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patch.setattr(files, "write_atomic", full)
        for program in (0, 0, 1, 1):
            checkpoints.save(program, progress(9))
    assert [str(warning.message).partition("; ")[0] for warning in told] == [
        f"checkpoint {str(tmp_path / 'run.0')!r} could not be written: No space left on device"
    ]
    assert (tmp_path / "run.0").read_bytes() == written
    checkpoints.save(0, progress(9))  # there is room again
    assert checkpoints.restore(0, progress()).k == 9
