"""Runs that are stopped, killed or damaged go on to the same bits as a run alone; how many were tried is printed."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused, same_runs, simulate

from fedbandit_jax.core import files
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.checkpoint import Checkpoints, Progress
from fedbandit_jax.engine.curves import RoundTally
from fedbandit_jax.report.result import Result

# A checkpoint by itself. `report/test_files.py` asks that damaged archives are refused.


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


def test_it_comes_back_to_the_same_run(tmp_path, checkpoints):
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
    with pytest.raises(ValueError, match="another configuration.* delete '.*run.1'"):
        Checkpoints(tmp_path / "run", "another run").restore(1, FRESH)
    with pytest.raises(ValueError, match="3 pieces, not 6 pieces"):
        checkpoints.restore(1, progress(layout="6 pieces"))


def test_a_damaged_one_is_refused_and_stays(tmp_path, checkpoints):
    checkpoints.save(0, progress(7))
    path = tmp_path / "run.0"
    whole = path.read_bytes()
    for content in (b"", b"Chapter 1", whole[:-1], whole[:700] + bytes([whole[700] ^ 4]) + whole[701:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"run.0' is unusable: it .* delete '.*run.0' to start anew"):
            checkpoints.restore(0, FRESH)
        assert path.read_bytes() == content


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on the size of files")
def test_a_disk_that_is_full_after_any_byte(tmp_path, checkpoints):
    """It is told once and does not end a run. What was there stays, and nothing is left lying around."""
    checkpoints.save(0, progress(5))
    size, rng = (tmp_path / "run.0").stat().st_size, np.random.default_rng(4)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(30):
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(rng.integers(size)), unlimited[1]))
            try:
                assert not checkpoints.save(0, progress(7))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            assert [path.name for path in tmp_path.iterdir()] == ["run.0"]
            assert checkpoints.restore(0, FRESH).k == 5
    assert ["File too large; the run continues" in str(one.message) for one in told] == [True]
    assert checkpoints.save(0, progress(7))  # there is room again
    assert checkpoints.restore(0, FRESH).k == 7


# Runs in this process. That Ctrl-C costs nothing, `test_contract.py` asks of every row.

OFTEN = dict(CHUNKS=10**6, CHUNK_SECONDS=0, CHUNK_WORK=0, CHECKPOINT_SECONDS=-1, CHECKPOINT_SHARE=1e9)


@pytest.fixture(scope="module")
def whole():
    return simulate()


class Faults(dict):
    """What happens at the n-th chunk, or at the n-th write of a checkpoint, by ("chunk" or "write", n)."""

    def __init__(self):
        self.counts = {"chunk": 0, "write": 0}

    def at(self, what, function):
        def called(*arguments, **options):
            self.counts[what] += 1
            self.get((what, self.counts[what]), lambda: None)()
            return function(*arguments, **options)

        return called


@pytest.fixture
def faults(monkeypatch):
    """Every step of five rounds is a chunk, with a checkpoint after each. Ctrl-C interrupts, also after nohup."""
    found = Faults()
    for name, value in OFTEN.items():
        monkeypatch.setattr(driver, name, value)
    monkeypatch.setattr(RoundTally, "add", found.at("chunk", RoundTally.add))
    monkeypatch.setattr(files, "write_atomic", found.at("write", files.write_atomic))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield found
    signal.signal(signal.SIGINT, before)


def terminate():
    signal.raise_signal(signal.SIGTERM)


def steps(folder):
    assert [path.name for path in folder.iterdir()] == ["run.0"]
    return files.read_archive(folder / "run.0", "checkpoint")[0]["steps"]


def test_stopped_and_continued(tmp_path, monkeypatch, faults, whole):
    """By SIGTERM, after which a checkpoint is written."""
    monkeypatch.setattr(driver, "CHECKPOINT_SECONDS", 1e9)
    faults["chunk", 4] = terminate
    with pytest.raises(SystemExit) as caught:
        simulate(checkpoint=tmp_path / "run")
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert steps(tmp_path) == 3
    same_runs(simulate(checkpoint=tmp_path / "run"), whole)
    assert faults.counts == {"chunk": 4 + 5, "write": 2}


def test_a_signal_during_a_save_costs_one_checkpoint(tmp_path, faults, whole):
    """The file before stays, and the exception that is raised first is the one that is seen."""

    def interrupt():
        raise KeyboardInterrupt

    faults["write", 4] = faults["write", 5] = interrupt
    with pytest.raises(KeyboardInterrupt):
        simulate(checkpoint=tmp_path / "run")
    assert steps(tmp_path) == 3
    same_runs(simulate(checkpoint=tmp_path / "run"), whole)


def test_handlers_of_a_program_and_its_threads_are_left_alone(tmp_path, faults, whole):
    noted, found = [], []
    before = signal.signal(signal.SIGTERM, lambda number, frame: noted.append(number))
    faults["chunk", 4] = terminate
    try:
        same_runs(simulate(checkpoint=tmp_path / "run"), whole)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert noted == [signal.SIGTERM]
    thread = threading.Thread(target=lambda: found.append(simulate(checkpoint=tmp_path / "other")))
    thread.start()
    thread.join()
    same_runs(found[0], whole)


def test_two_runs_cannot_have_one_checkpoint(tmp_path, faults, whole):
    def second():
        with refused("checkpoint", str(tmp_path / "run")) as caught:
            simulate(checkpoint=tmp_path / "run")
        assert caught.match(rf"held by process {os.getpid()} on ")

    faults["chunk", 1] = second
    same_runs(simulate(checkpoint=tmp_path / "run"), whole)
    assert steps(tmp_path) == 8
    assert faults.counts == {"chunk": 8, "write": 8}  # none is written twice


def test_chunks_that_take_long_shrink(monkeypatch, faults, whole):
    """To a step in the end; and the first is short if there are many runs. No bit depends on it."""
    lengths, add = [], RoundTally.add
    monkeypatch.setattr(RoundTally, "add", lambda *given: (lengths.append(len(given[-1])), add(*given))[1])
    monkeypatch.setattr(driver, "CHUNKS", 2)
    monkeypatch.setattr(driver, "LONG_SECONDS", -1)
    same_runs(simulate(), whole)
    monkeypatch.setattr(driver, "FIRST_WORK", 2 * 5 * 9)  # two steps of five rounds, of three agents under three seeds
    monkeypatch.setattr(driver, "LONG_SECONDS", 1e9)
    same_runs(simulate(), whole)
    assert lengths == [4, 2, 1, 1, 2, 2, 2, 2]


# Real processes; `tests/cli` stops commands.

PROGRAM = f"""
import os, resource, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
import jax
from helpers import simulate
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.curves import RoundTally
jax.config.update("jax_compilation_cache_dir", {jax.config.jax_compilation_cache_dir!r})
for name, value in {OFTEN}.items():
    setattr(driver, name, value)
folder, pause, limit, add = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), RoundTally.add
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
def slowly(record, *arguments):
    os.write(1, b"chunk\\n")
    time.sleep(pause)
    return add(record, *arguments)
RoundTally.add = slowly
simulate(horizon=1000, checkpoint=folder + "/run").save(folder + "/result")
"""
ENDS = {"SIGTERM": 143, "Ctrl-C twice": -signal.SIGINT}


def begun(folder, pause=0.05, limit=0):
    """A process that says when it is at a chunk; no file of it can be longer than the limit."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", PROGRAM, str(folder), str(pause), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(folder):
    process = begun(folder, pause=0)
    _, told = process.communicate()
    assert not process.returncode, told
    return Result.load(folder / "result")


@pytest.mark.slow
@pytest.mark.parametrize(("how", "tries"), [("kill -9", 20), ("SIGTERM", 4), ("Ctrl-C twice", 6), ("full disk", 6)])
def test_stopped_again_and_again(tmp_path, how, tries):
    """At random moments after the first checkpoint; what is found in the end is what a run alone finds."""
    rng, folder, twice = np.random.default_rng(7), tmp_path / "here", how == "Ctrl-C twice"
    for i in range(tries):
        full = how == "full disk" and i  # after a first checkpoint, others find too little room, or just enough
        process = begun(folder, limit=int(rng.integers(1, 2 * (folder / "run.0").stat().st_size)) if full else 0)
        for _ in range(rng.integers(2, 7)):
            assert process.stdout.readline() == "chunk\n", process.communicate()
        time.sleep(rng.uniform(0, 0.1))
        for _ in range(1 + twice):
            process.send_signal(signal.SIGINT if twice else getattr(signal, how, signal.SIGKILL))
            time.sleep(rng.uniform(0, 0.01))
        _, told = process.communicate()
        assert process.returncode == ENDS.get(how, -signal.SIGKILL), told
        assert (folder / "run.0").exists()
    same_runs(result(folder), result(tmp_path / "alone"))
    print(f"\n{how}: {tries} tried, all survived")
