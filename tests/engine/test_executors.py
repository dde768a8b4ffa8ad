"""Executors by name: which names there are, what is refused, and that the workers work."""

import sys

import numpy as np
import pytest
from helpers import PLAIN, sweep

from fedbandit_jax.engine.executors import executor


def test_processes_are_spawned():
    with executor("processes:3") as pool:
        assert pool._max_workers == 3
        assert pool._mp_context.get_start_method() == "spawn"
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("", TypeError, "executor must be a string of at least one character, got ''"),
        (3, TypeError, "executor must be a string of at least one character, got 3"),
        ("processes", ValueError, "executor must be processes:N with an integer N >= 1, got processes"),
        ("processes:-1", ValueError, "executor must be processes:N with an integer N >= 1, got processes:-1"),
        ("slurm:4", ValueError, "executor must be one of processes:N, dask:ADDRESS, slurm, got slurm:4"),
        (
            "dask:nonsense://x",
            ValueError,
            "executor must have the address of a Dask scheduler, got dask:nonsense://x: ",
        ),
    ],
)
def test_names_that_there_are_not(name, kind, words):
    pytest.importorskip("distributed")
    with pytest.raises(kind, match=words), executor(name):
        pass


@pytest.mark.parametrize(("name", "module"), [("dask:tcp://127.0.0.1:1", "distributed"), ("slurm", "dask_jobqueue")])
def test_what_is_not_installed_is_said(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"is not installed: pip install 'fedbandit_jax\[cluster\]'"):
        executor(name).__enter__()


class FakeJob:
    """The parameters that jobs of dask_jobqueue have."""

    def __init__(self, scheduler=None, queue=None, cores=None, memory=None):
        pass


class FakeCluster:
    def __init__(self, name=None, **job_kwargs):
        pass

    job_cls = FakeJob


FakeJob.__module__ = FakeCluster.__module__ = "dask_jobqueue.core"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"jobs": 2, "quue": "long"}, "slurm must have .*, got 'quue': did you mean 'queue'?"),
        ({"jobs": 2, "xyzzy": 1}, "got 'xyzzy', but they are cores, jobs, memory, name, queue"),
        ({"jobs": 2, "scheduler": 1}, "got 'scheduler', but they are"),
        ({"cores": 2}, "slurm's jobs must be an integer >= 1, got None"),
        ({"jobs": 0, "cores": 2}, "slurm's jobs must be >= 1, got 0"),
        (None, "slurm's jobs must be an integer >= 1, got None"),
    ],
)
def test_options_of_slurm(options, words, monkeypatch):
    module = type(sys)("dask_jobqueue")
    module.SLURMCluster = FakeCluster
    monkeypatch.setitem(sys.modules, "dask_jobqueue", module)
    with pytest.raises((ValueError, TypeError), match=words):
        executor("slurm", options).__enter__()


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
        there = sweep([PLAIN], store=tmp_path / "there", executor=client)
    here = sweep([PLAIN], store=tmp_path / "here")
    np.testing.assert_array_equal(there.regret, here.regret)
