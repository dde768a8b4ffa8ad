"""Executors by name: local processes, a running Dask cluster, or workers in SLURM jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context, parent_process
from typing import Any

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine.store import Executor

NAMES = ("processes:N", "dask:ADDRESS", "slurm")
ANSWER = 30  # seconds to wait for a Dask scheduler


@contextlib.contextmanager
def executor(name: str, slurm: Mapping[str, Any] | None = None) -> Iterator[Executor]:
    """Makes a named executor for `fb.sweep`, and ends its workers with the block.

    Args:
        name: "processes:4" for local processes; "dask:tcp://host:8786" for the workers of a Dask cluster, which
            keep running; or "slurm" for workers in SLURM jobs. The last two need the extra `cluster`.
        slurm: for "slurm", the number of "jobs" and keywords of `dask_jobqueue.SLURMCluster`: "cores" and "memory" are
            required, "queue" or "walltime" optional.

    Raises:
        ValueError, TypeError: the name or an option is invalid, or the scheduler does not answer.
        ImportError: the extra `cluster` is not installed.

    Example:
        >>> with executor("processes:two"):
        ...     pass
        Traceback (most recent call last):
        fedbandit_jax.BadValue: executor must be processes:N with an integer N >= 1, got processes:two
    """
    kind, _, rest = validate.text("executor", name).partition(":")
    if kind == "processes":
        if not (rest.isdecimal() and int(rest)):
            raise BadValue("executor", "must be processes:N with an integer N >= 1", name, got=name)
        others = set(active_children())
        pool = ProcessPoolExecutor(int(rest), get_context("spawn"), _follow)  # JAX does not survive a fork
        try:
            yield pool
        except BaseException:  # such as Ctrl-C: do not wait for running pieces
            for worker in set(active_children()) - others:
                worker.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    elif kind == "dask" and rest:
        try:
            client = require("distributed", "cluster").Client(rest, timeout=ANSWER)
        except (OSError, ValueError) as error:  # no answer, or no address
            got = f"{name}: {error}"
            raise BadValue("executor", "must have the address of a Dask scheduler", name, got=got) from error
        with client:
            yield client
    elif name == "slurm":
        options = dict(slurm or {})
        jobqueue = require("dask_jobqueue", "cluster")
        jobs = validate.integer("slurm's jobs", options.pop("jobs", None), at_least=1)
        try:
            made = jobqueue.SLURMCluster(**options)
        except (TypeError, ValueError) as error:
            must = 'must have "jobs" and keywords of dask_jobqueue.SLURMCluster'
            raise BadValue("slurm", must, slurm, got=" ".join(str(error).split())) from error
        with made as cluster, require("distributed", "cluster").Client(cluster) as client:
            cluster.scale(jobs=jobs)
            yield client
    else:
        raise BadValue("executor", f"must be one of {', '.join(NAMES)}", name, got=name)


def _follow() -> None:
    parent = parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end, daemon=True).start()
