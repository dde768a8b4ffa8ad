"""Sweeps in pieces: what is in the store is not computed again, and it does not matter who computed it."""

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import sys

import jax
import numpy as np
import pytest
from helpers import PLAIN, PRIVATE, same_runs, simulate
from helpers import sweep as swept

import fedbandit_jax as fb
from fedbandit_jax.engine import store
from fedbandit_jax.engine.executors import executor


@pytest.fixture
def computed(monkeypatch):
    """Pieces have one seed, unless a test changes it. Those that are computed, as labels and seeds."""
    found, compute = [], store.compute

    def noted(piece):
        found.append((tuple(piece.configurations), piece.seeds.tolist()))
        return compute(piece)

    monkeypatch.setattr(store, "compute", noted)
    monkeypatch.setattr(store, "SEEDS", 1)
    return found


def sweep(store, algos=(PLAIN,), **options):
    return swept(algos, store=store, **options)


def test_only_what_is_missing_is_computed(tmp_path, computed, monkeypatch):
    """Whatever the labels, by a simulation or a sweep. Another horizon, stride or key is another run."""
    monkeypatch.setattr(store, "SEEDS", 8)
    first = simulate(algo=PLAIN, seeds=2, store=tmp_path)
    other = sweep(tmp_path, {"another name": PLAIN}, seeds=[1, 2, 0])
    assert computed == [((PLAIN.name,), [0, 1]), (("another name",), [2])]
    np.testing.assert_array_equal(other.regret[0][[2, 0]], first.regret)
    algos = {"third name": PLAIN, "ours": PRIVATE}
    found = sweep(tmp_path, algos, grid={"epsilon": [2.0]}, seeds=[2, 1])
    assert computed[2:] == [(("ours",), [2, 1])]
    same_runs(found, sweep(None, algos, grid={"epsilon": [2.0]}, seeds=[2, 1]), atol=1e-4)
    before = len(computed)
    for change in (dict(horizon=39), dict(stride=20), dict(key=jax.random.key(1))):
        sweep(tmp_path, seeds=2, **change)
    assert len(computed) == before + 3
    files = list(tmp_path.rglob("*.npz"))
    assert {path.name for path in files} == {"seeds_0-2.npz", "seeds_2-3.npz", "seeds_1-2.npz"}
    for path in files:
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="damaged"):
        sweep(tmp_path, seeds=2)


def test_a_claim_is_not_read_from_a_store(tmp_path):
    """Whoever edits a file may write any, and seal it again."""
    simulate(algo=PLAIN, store=tmp_path)
    (path,) = tmp_path.rglob("*.npz")
    found = fb.Result.load(path)
    claimed = dataclasses.replace(found.certificate, claim="certified", epsilon=1.0, delta=0.1, epsilon_exact=1.0)
    dataclasses.replace(found, certificates=dict.fromkeys(found.labels, claimed)).save(path)
    assert simulate(algo=PLAIN, store=tmp_path).certificate.claim == "none"


def test_the_parts_of_a_sweep(tmp_path, computed):
    """Every n-th piece, whatever is there already; a lost one is computed when all is gathered."""
    assert sweep(tmp_path, seeds=5, part=(1, 3)) == 2
    assert sweep(tmp_path, seeds=5, part=(1, 3)) == 0
    assert sweep(tmp_path, seeds=5, part=(0, 2)) == 2
    assert [seeds for _, seeds in computed] == [[1], [4], [0], [2]]
    found = sweep(tmp_path, seeds=5)
    assert [seeds for _, seeds in computed[4:]] == [[3]]
    assert (found.provenance["pieces"], found.provenance["computed"]) == (5, 1)


# Workers.


class Workers:
    """An executor in this process, whose pool may refuse a call, and whose workers may fail."""

    def __init__(self, call):
        self.call = call

    def submit(self, function, piece):
        future = concurrent.futures.Future()
        try:
            future.set_result(self.call(function, piece))
        except RuntimeError as error:
            future.set_exception(error)
        return future


def failing(function, piece):
    if piece.seeds[0] == 0:
        raise RuntimeError("the worker has gone")
    if piece.seeds[0] == 2:
        raise OSError("it refuses")
    return function(piece)


def outdated(function, piece):
    with pytest.MonkeyPatch.context() as there:
        there.setattr(store, "code", lambda: "old")
        return function(piece)


def test_what_others_found_is_kept(tmp_path, computed):
    with pytest.raises(RuntimeError, match="2 of 3 pieces failed at a worker, the first with OSError: it refuses"):
        sweep(tmp_path, executor=Workers(failing))
    assert [seeds for _, seeds in computed] == [[1]]
    found = sweep(tmp_path)
    assert [seeds for _, seeds in computed[1:]] == [[0], [2]]
    np.testing.assert_allclose(found.regret[:, :2], sweep(None, seeds=[0, 1]).regret, atol=1e-5)


def test_workers_of_other_code_write_nothing(tmp_path, computed):
    with pytest.raises(RuntimeError, match="a worker must have the code"):
        sweep(tmp_path, executor=Workers(outdated))
    assert not list(tmp_path.rglob("*.npz"))


def test_processes_are_spawned():
    with executor("processes:3") as pool:
        assert pool._max_workers == 3
        assert pool._mp_context.get_start_method() == "spawn"
    with pytest.raises(RuntimeError):
        pool.submit(int)


@pytest.mark.parametrize(("name", "module"), [("dask:tcp://127.0.0.1:1", "distributed"), ("slurm", "dask_jobqueue")])
def test_what_is_not_installed_is_said(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'fedbandit_jax\[cluster\]'"):
        executor(name).__enter__()


@contextlib.contextmanager
def processes():
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


@contextlib.contextmanager
def dask():
    distributed = pytest.importorskip("distributed")
    local = distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None)
    with local as cluster, executor(f"dask:{cluster.scheduler_address}") as client:
        yield client


def die_once(flag, function, piece):
    try:
        os.unlink(flag)
    except FileNotFoundError:
        return function(piece)
    os._exit(9)


class Deadly:
    def __init__(self, executor, flag):
        self.executor, self.flag = executor, flag

    def submit(self, function, piece):
        return self.executor.submit(die_once, str(self.flag), function, piece)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [processes, dask])
def test_a_killed_worker(tmp_path, monkeypatch, workers):
    """A pool of processes is broken then, and the next call computes what is missing; Dask asks the other worker."""
    monkeypatch.setattr(store, "SEEDS", 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flag").touch()
    algos, grid = {"plain": PLAIN, "ours": PRIVATE}, {"epsilon": [1.0, 5.0]}
    broken = workers is processes
    error = pytest.raises(RuntimeError, match="BrokenProcessPool") if broken else contextlib.nullcontext()
    with workers() as pool, error:
        there = sweep(tmp_path / "there", algos, grid=grid, executor=Deadly(pool, tmp_path / "flag"))
    assert not (tmp_path / "flag").exists()
    if broken:
        with workers() as pool:
            there = sweep(tmp_path / "there", algos, grid=grid, executor=pool)
    same_runs(there, sweep(tmp_path / "here", algos, grid=grid))


SBATCH = """#!/bin/sh
sh "$1" > {folder}/job.log 2>&1 &
echo $! > {folder}/pid
echo "Submitted batch job $!"
"""


@pytest.mark.slow
def test_slurm(tmp_path, monkeypatch):
    """With an `sbatch` that runs the script of a job on this machine, the whole way is walked: job, worker, piece."""
    pytest.importorskip("dask_jobqueue")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", "#!/bin/sh\nkill $(cat {folder}/pid)\n")):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    options = dict(jobs=1, cores=1, memory="2GB", walltime="00:10:00", queue="short", local_directory=str(tmp_path))
    with executor("slurm", {**options, "interface": "lo"}) as client:
        there = sweep(tmp_path / "there", executor=client)
    np.testing.assert_array_equal(there.regret, sweep(tmp_path / "here").regret)
