"""Executors by name: which names there are, which options are refused, and that the workers work."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from helpers import PLAIN, refused, sweep

from fedbandit_jax.engine.executors import executor


def test_processes_are_spawned():
    with executor("processes:3") as pool:
        assert pool._max_workers == 3
        assert pool._mp_context.get_start_method() == "spawn"
    with pytest.raises(RuntimeError):
        pool.submit(int)


def test_a_pool_that_forks_is_refused(tmp_path):
    with ProcessPoolExecutor(2, get_context("fork")) as pool, refused("executor", pool):
        sweep([PLAIN], store=tmp_path, executor=pool)


@pytest.mark.parametrize("name", ["processes", "processes:-1", "slurm:4", "dask:nonsense://x"])
def test_names_that_there_are_not(name):
    pytest.importorskip("distributed")
    with refused("executor", name), executor(name):
        pass


@pytest.mark.parametrize(("name", "module"), [("dask:tcp://127.0.0.1:1", "distributed"), ("slurm", "dask_jobqueue")])
def test_what_is_not_installed_is_said(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'fedbandit_jax\[cluster\]'"):
        executor(name).__enter__()


def test_options_of_slurm(monkeypatch):
    """Those of the cluster and of its jobs, and how many jobs; another one is refused before a job is asked for."""
    module = type(sys)("dask_jobqueue")
    module.SLURMCluster = lambda queue=None, cores=None: pytest.fail("jobs are asked for")
    monkeypatch.setitem(sys.modules, "dask_jobqueue", module)
    with refused("slurm"):
        executor("slurm", {"jobs": 2, "quue": "long"}).__enter__()
    for options in ({"jobs": 0, "cores": 2}, None):
        with refused("slurm's jobs"):
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
