"""Runs that are stopped, killed or damaged go on to the same bits as a run alone; how many were tried is printed."""

import os
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest
from helpers import refused, same_runs, simulate

from fedbandit_jax.core import files
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.curves import RoundTally
from fedbandit_jax.report.result import Result

ADD, WRITE = RoundTally.add, files.write_atomic
OFTEN = dict(CHUNKS=10**6, CHUNK_SECONDS=0, CHUNK_WORK=0, CHECKPOINT_SECONDS=-1, CHECKPOINT_SHARE=1e9)


@pytest.fixture
def often(monkeypatch):
    """Every step of five rounds is a chunk, with a checkpoint after each."""
    for name, value in OFTEN.items():
        monkeypatch.setattr(driver, name, value)


@pytest.fixture(scope="module")
def whole():
    return simulate()


class Signal:
    """SIGTERM at the n-th chunk, and how many checkpoints are written."""

    def __init__(self, monkeypatch, at):
        self.at, self.chunks, self.written = at, 0, 0
        monkeypatch.setattr(RoundTally, "add", lambda record, *arguments: self.add(record, *arguments))
        monkeypatch.setattr(files, "write_atomic", self.write)

    def add(self, record, *arguments):
        self.chunks += 1
        if self.chunks == self.at:
            signal.raise_signal(signal.SIGTERM)
        return ADD(record, *arguments)

    def write(self, path, content, **options):
        WRITE(path, content, **options)
        self.written += 1


def test_stopped_and_continued(tmp_path, monkeypatch, often, whole):
    """Other ends are those of real processes, below, and Ctrl-C is asked of every row of `test_contract.py`."""
    monkeypatch.setattr(driver, "CHECKPOINT_SECONDS", 1e9)
    fault = Signal(monkeypatch, 4)
    with pytest.raises(SystemExit) as caught:
        simulate(checkpoint=tmp_path / "run")
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert [path.name for path in tmp_path.iterdir()] == ["run.0"]
    assert files.read_archive(tmp_path / "run.0", "checkpoint")[0]["steps"] == 3
    fault.at = 0
    same_runs(simulate(checkpoint=tmp_path / "run"), whole)
    assert (fault.chunks, fault.written) == (4 + 5, 2)


def test_chunks_that_take_long_shrink(monkeypatch, often, whole):
    """To a step in the end; and the first is short if there are many runs. No bit depends on it."""
    lengths = []

    def add(record, metrics, covered):
        lengths.append(len(covered))
        return ADD(record, metrics, covered)

    monkeypatch.setattr(RoundTally, "add", add)
    monkeypatch.setattr(driver, "CHUNKS", 2)
    monkeypatch.setattr(driver, "LONG_SECONDS", -1)
    same_runs(simulate(), whole)
    monkeypatch.setattr(driver, "FIRST_WORK", 2 * 5 * 9)  # two steps of five rounds, of three agents under three seeds
    monkeypatch.setattr(driver, "LONG_SECONDS", 1e9)
    same_runs(simulate(), whole)
    assert lengths == [4, 2, 1, 1, 2, 2, 2, 2]


def test_a_handler_that_takes_note(tmp_path, monkeypatch, often, whole):
    """What a program wants to do about SIGTERM is up to it: here the run goes on."""
    noted = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: noted.append(number))
    try:
        Signal(monkeypatch, 4)
        same_runs(simulate(checkpoint=tmp_path / "run"), whole)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert noted == [signal.SIGTERM]


@pytest.fixture(autouse=True)
def interruptible():
    """Ctrl-C interrupts, also where whoever started the tests ignores it (`nohup pytest &`)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_during_a_save_costs_one_checkpoint(tmp_path, monkeypatch, often, whole):
    """The file before stays, and the exception that is raised first is the one that is seen."""
    fault = Signal(monkeypatch, 0)

    def write(path, content, **options):
        if fault.written == 3:
            raise KeyboardInterrupt
        fault.write(path, content, **options)

    monkeypatch.setattr(files, "write_atomic", write)
    with pytest.raises(KeyboardInterrupt):
        simulate(checkpoint=tmp_path / "run")
    assert files.read_archive(tmp_path / "run.0", "checkpoint")[0]["steps"] == 3
    fault.written = 4
    same_runs(simulate(checkpoint=tmp_path / "run"), whole)


def test_elsewhere_than_in_the_main_thread_runs_have_no_handlers(tmp_path, often, whole):
    found = []
    thread = threading.Thread(target=lambda: found.append(simulate(checkpoint=tmp_path / "run")))
    thread.start()
    thread.join()
    same_runs(found[0], whole)


def test_two_runs_cannot_have_one_checkpoint(tmp_path, monkeypatch, often, whole):
    found = []

    def second(record, *arguments):
        if not found:
            with refused("checkpoint", str(tmp_path / "run")) as caught:
                simulate(checkpoint=tmp_path / "run")
            found.append(caught)
        return ADD(record, *arguments)

    monkeypatch.setattr(RoundTally, "add", second)
    same_runs(simulate(checkpoint=tmp_path / "run"), whole)
    assert found[0].match(rf"held by process {os.getpid()} on ")
    assert [path.name for path in tmp_path.iterdir()] == ["run.0"]


# Real processes.

BEGIN = f"""
import os, resource, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
import jax
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.curves import RoundTally
jax.config.update("jax_compilation_cache_dir", {jax.config.jax_compilation_cache_dir!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_disable_most_optimizations", {jax.config.values["jax_disable_most_optimizations"]!r})
for name, value in {OFTEN}.items():
    setattr(driver, name, value)
pause, limit, add = float(sys.argv.pop(1)), int(sys.argv.pop(1)), RoundTally.add
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
def slowly(record, *arguments):
    os.write(1, b"chunk\\n")
    time.sleep(pause)
    return add(record, *arguments)
RoundTally.add = slowly
"""
API = """
from helpers import simulate
folder, horizon = sys.argv[1], int(sys.argv[2])
simulate(horizon=horizon, checkpoint=folder + "/run").save(folder + "/result")
"""
COMMAND = """
from fedbandit_jax import cli
sys.argv += "--agents 3 --arms 4 --dim 3 --seeds 2 --name result".split()
cli.entry()
"""


def begun(code, *words, pause=0.05, limit=0):
    """A process that says when it is at a chunk; no file of it can be longer than the limit."""
    command = [sys.executable, "-c", BEGIN + code, str(pause), str(limit), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


ENDS = {"SIGTERM": 143, "Ctrl-C twice": -signal.SIGINT, "the command, twice": 130}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "faults"),
    [("kill -9", 20), ("SIGTERM", 4), ("Ctrl-C twice", 6), ("the command, twice", 6), ("full disk", 6)],
)
def test_stopped_again_and_again(tmp_path, how, faults):
    """At random moments after the first checkpoint; what is found in the end is what a run alone finds."""
    rng, command = np.random.default_rng(7), how.startswith("the command")

    def start(folder, **options):
        folder.mkdir(exist_ok=True)
        words = ["simulate", "--out", folder, "--horizon", 5000] if command else [folder, 1000]
        return begun(COMMAND if command else API, *words, **options)

    def result(folder):
        process = start(folder, pause=0)
        _, told = process.communicate()
        assert not process.returncode, told
        return Result.load(folder / "result")

    alone, folder = result(tmp_path / "alone"), tmp_path / "here"
    for _ in range(faults):
        process = start(folder, limit=int(rng.integers(30_000)) if how == "full disk" else 0)
        for _ in range(rng.integers(2, 7)):
            assert process.stdout.readline() == "chunk\n", process.communicate()
        time.sleep(rng.uniform(0, 0.1))
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        elif how.endswith("twice"):
            for _ in range(2):
                process.send_signal(signal.SIGINT)
                time.sleep(rng.uniform(0, 0.01))
        else:
            process.kill()
        _, told = process.communicate()
        assert process.returncode == ENDS.get(how, -signal.SIGKILL), told
        assert not command or ("Traceback" not in told and "fedbandit: stopped" in told)
        assert (folder / (".result.checkpoint.0" if command else "run.0")).exists()
    same_runs(result(folder), alone)
    print(f"\n{how}: {faults} tried, all survived")
