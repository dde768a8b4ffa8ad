"""Sweeps in pieces: what is in the store is not computed again, and it does not matter who computed it."""

import concurrent.futures
import multiprocessing
import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from helpers import ENV, PLAIN, PRIVATE, same_runs

import fedbandit_jax as fb
from fedbandit_jax.engine import store

ALGOS = {"plain": PLAIN, "ours": PRIVATE}
GRID = {"epsilon": [1.0, 5.0]}


@pytest.fixture
def computed(monkeypatch):
    """The pieces that are computed, as labels and seeds."""
    found, compute = [], store.compute

    def noted(piece):
        found.append((tuple(piece.configurations), piece.seeds.tolist()))
        return compute(piece)

    monkeypatch.setattr(store, "compute", noted)
    return found


def sweep(store, seeds=3, algos=ALGOS, **options):
    options = dict(horizon=40, key=jax.random.key(0), grid=GRID) | options
    return fb.sweep(ENV, algos, seeds=seeds, store=store, **options)


@pytest.mark.slow
def test_a_sweep_in_pieces_is_the_sweep(tmp_path, computed, monkeypatch):
    monkeypatch.setattr(store, "SEEDS", 2)
    whole = sweep(None)
    found = sweep(tmp_path / "store")
    same_runs(found, whole, atol=1e-4)
    assert sorted(seeds for _, seeds in computed) == [[0], [0], [1, 2], [1, 2]]
    again = sweep(tmp_path / "store")
    same_runs(again, found)
    assert len(computed) == 4


def test_only_what_is_missing_is_computed(tmp_path, computed):
    sweep(tmp_path, algos={"plain": PLAIN}, grid={}, seeds=2)
    sweep(tmp_path, algos={"another name": PLAIN}, grid={}, seeds=[1, 2, 0])
    assert computed == [(("plain",), [0, 1]), (("another name",), [2])]
    found = sweep(tmp_path, algos={"third name": PLAIN, "ours": PRIVATE}, grid={"epsilon": [2.0]}, seeds=[2, 1])
    assert computed[2:] == [(("ours",), [2, 1])]
    alone = sweep(None, algos={"third name": PLAIN, "ours": PRIVATE}, grid={"epsilon": [2.0]}, seeds=[2, 1])
    same_runs(found, alone, atol=1e-4)
    before = len(computed)
    for change in (dict(horizon=39), dict(stride=20), dict(key=jax.random.key(1))):
        sweep(tmp_path, algos={"plain": PLAIN}, grid={}, seeds=2, **change)
    assert len(computed) == before + 3
    monitored = [path.name for path in tmp_path.rglob("*.npz")]
    assert {"seeds_0-2.npz", "seeds_2-3.npz", "seeds_1-2.npz"} == set(monitored)


def test_a_simulation_and_a_sweep_share_pieces(tmp_path, computed):
    options = dict(horizon=40, key=jax.random.key(0), store=tmp_path)
    found = fb.simulate(ENV, PLAIN, seeds=2, **options)
    assert found.regret.shape == (2, 40)
    swept = sweep(tmp_path, algos={"mine": PLAIN}, grid={}, seeds=3)
    assert computed == [((PLAIN.name,), [0, 1]), (("mine",), [2])]
    np.testing.assert_array_equal(fb.simulate(ENV, PLAIN, seeds=3, **options).regret, swept.regret[0])
    np.testing.assert_array_equal(swept.regret[0, :2], found.regret)
    assert len(computed) == 2
    with pytest.raises(ValueError, match="checkpoint must be None if there is a store, got 'file'"):
        fb.simulate(ENV, PLAIN, seeds=3, checkpoint="file", **options)


def test_a_damaged_file_is_named(tmp_path):
    sweep(tmp_path, seeds=1, algos={"plain": PLAIN}, grid={})
    (path,) = tmp_path.rglob("*.npz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"got '{path}': it was damaged"):
        sweep(tmp_path, seeds=1, algos={"plain": PLAIN}, grid={})


class Failing:
    """An executor some of whose calls fail, and that refuses another one."""

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        if arguments[0].seeds[0] == 0:
            future.set_exception(OSError("the worker has gone"))
        elif arguments[0].seeds[0] == 2 and "plain" in arguments[0].names:
            raise OSError("it refuses")
        else:
            future.set_result(function(*arguments))
        return future


def test_what_others_found_is_kept(tmp_path, computed, monkeypatch):
    monkeypatch.setattr(store, "SEEDS", 1)
    with pytest.raises(RuntimeError, match="3 of 6 pieces failed at a worker, the first with OSError: it refuses"):
        sweep(tmp_path, executor=Failing())
    assert [seeds for _, seeds in computed] == [[1], [1], [2]]
    sweep(tmp_path)
    assert [seeds for _, seeds in computed[3:]] == [[0], [2], [0]]


class Outdated:
    """An executor whose worker has loaded other code."""

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        with pytest.MonkeyPatch.context() as there:
            there.setattr(store, "code", lambda: "old")
            try:
                future.set_result(function(*arguments))
            except RuntimeError as error:
                future.set_exception(error)
        return future


def test_workers_of_other_code_write_nothing(tmp_path, computed):
    """Else their numbers would have the name of this code's."""
    with pytest.raises(RuntimeError, match="RuntimeError: a worker must have the code, the versions and the devices"):
        sweep(tmp_path, executor=Outdated())
    assert not list(tmp_path.rglob("*.npz"))


def die_once(flag, function, *arguments):
    """Ends the process, the first time that it is called."""
    try:
        os.unlink(flag)
    except FileNotFoundError:
        return function(*arguments)
    os._exit(9)


class Deadly:
    """An executor one of whose workers is killed at a piece."""

    def __init__(self, executor, flag):
        self.executor, self.flag = executor, flag

    def submit(self, function, *arguments):
        return self.executor.submit(die_once, str(self.flag), function, *arguments)


@pytest.mark.slow
def test_processes_and_a_killed_worker(tmp_path, monkeypatch):
    """A pool of processes is broken if one is killed; the next call computes what is missing, the same bits."""
    monkeypatch.setattr(store, "SEEDS", 1)
    (tmp_path / "flag").touch()
    here = sweep(tmp_path / "here")
    spawn = multiprocessing.get_context("spawn")
    with (
        concurrent.futures.ProcessPoolExecutor(2, spawn) as pool,
        pytest.raises(RuntimeError, match="pieces failed at a worker, the first with BrokenProcessPool"),
    ):
        sweep(tmp_path / "there", executor=Deadly(pool, tmp_path / "flag"))
    with concurrent.futures.ProcessPoolExecutor(2, spawn) as pool:
        there = sweep(tmp_path / "there", executor=pool)
    same_runs(there, here)


@pytest.mark.slow
def test_dask_and_a_killed_worker(tmp_path, monkeypatch):
    """A Dask cluster of two processes gives the pieces of a worker that was killed to the other one."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(store, "SEEDS", 1)
    (tmp_path / "flag").touch()
    here = sweep(tmp_path / "here")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = sweep(tmp_path / "there", executor=Deadly(client, tmp_path / "flag"))
    assert not (tmp_path / "flag").exists()
    same_runs(there, here)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (
            dict(store=None, executor=Failing()),
            ValueError,
            "executor must be None unless there is a store, got <",
        ),
        (dict(store="here", executor=5), TypeError, "executor must have the method submit, or be None, got 5"),
        (dict(store="here", checkpoint="file"), ValueError, "checkpoint must be None if there is a store, got 'file'"),
        (dict(store="here", progress="yes"), TypeError, "progress must be True or False, got 'yes'"),
        (dict(store="file/inside"), ValueError, "store must be a folder that can be written to"),
        (dict(store=5), TypeError, "store must be a str or a Path, got 5"),
    ],
)
def test_errors(options, kind, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(kind, match=words):
        sweep(**options)


# Tasks that do not know of each other.


def test_the_parts_of_a_sweep(tmp_path, computed, monkeypatch):
    """Every n-th piece, whatever is there already; a lost one is computed when all is gathered."""
    monkeypatch.setattr(store, "SEEDS", 1)
    options = dict(env=ENV, algos={"plain": PLAIN}, horizon=40, key=jax.random.key(0), seeds=5, store=tmp_path)
    assert fb.sweep(part=(1, 3), **options) == 2
    assert fb.sweep(part=(1, 3), **options) == 0
    assert fb.sweep(part=(0, 2), **options) == 2
    assert [seeds for _, seeds in computed] == [[1], [4], [0], [2]]
    found = fb.sweep(**options)
    assert [seeds for _, seeds in computed[4:]] == [[3]]
    assert (found.provenance["pieces"], found.provenance["computed"]) == (5, 1)


def test_a_job_of_several_processes_waits_for_all(tmp_path, computed, monkeypatch):
    """Process 1 of 2 computes every second piece, and returns all when process 0 has computed the rest."""
    monkeypatch.setattr(store, "SEEDS", 1)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    options = dict(horizon=40, key=jax.random.key(0), seeds=3)

    def other(seconds):
        assert [seeds for _, seeds in computed] == [[1]]
        assert fb.sweep(ENV, [PLAIN], part=(0, 2), store=tmp_path, **options) == 2

    monkeypatch.setattr(store.time, "sleep", other)
    assert fb.sweep(ENV, [PLAIN], store=tmp_path, **options).regret.shape == (1, 3, 40)


@pytest.mark.parametrize(
    ("part", "kind", "words"),
    [
        ((2, 2), ValueError, r"part must be \(i, n\) with 0 <= i < n, got \(2, 2\)"),
        ((0,), ValueError, r"part must be two integers \(i, n\), got \(0,\)"),
        ((-1, 2), ValueError, "part must be >= 0, got -1"),
        ((0, 1.5), TypeError, "part must be an integer >= 1, got 1.5"),
        ("0/2", TypeError, r"part must be a sequence of two integers \(i, n\), got '0/2'"),
    ],
)
def test_parts_that_there_are_not(part, kind, words, tmp_path):
    with pytest.raises(kind, match=words):
        fb.sweep(ENV, [PLAIN], part=part, horizon=40, key=jax.random.key(0), seeds=1, store=tmp_path)


DISTRIBUTED = """
import sys, jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
address, i, folder, path = sys.argv[1:]
jax.distributed.initialize(coordinator_address=address, num_processes=2, process_id=int(i))
import fedbandit_jax as fb
from fedbandit_jax.engine import store
store.SEEDS = 1
assert (jax.process_count(), len(jax.devices()), len(jax.local_devices())) == (2, 2, 1)
env = fb.envs.sphere(3, 4, 5, rewards="gaussian")
algos = {"plain": fb.algos.fed_lin_ucb(schedule=5)}
result = fb.sweep(env, algos, horizon=40, key=jax.random.key(0), seeds=5, store=folder)
result.save(path)
"""


@pytest.mark.slow
def test_jax_distributed(tmp_path, monkeypatch):
    """Two processes of one job on loopback: each computes a part and returns all, with the same bits as alone."""
    monkeypatch.setattr(store, "SEEDS", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [[address, str(i), str(tmp_path / "store"), str(tmp_path / f"{i}.npz")] for i in range(2)]
    job = [subprocess.Popen([sys.executable, "-c", DISTRIBUTED, *one]) for one in words]
    assert [one.wait(300) for one in job] == [0, 0]
    found = [fb.Result.load(tmp_path / f"{i}.npz") for i in range(2)]
    alone = sweep(tmp_path / "alone", seeds=5, algos={"plain": PLAIN}, grid={})
    for i, one in enumerate(found):
        same_runs(one, alone)
        assert (one.provenance["pieces"], one.provenance["computed"]) == (5, 3 - i)
