"""Sweeps on a Dask cluster of two worker processes, one of which is killed midway: are the bits those of a sweep alone?

`fedbandit sweep experiments/sweep.toml` runs twice, with a store of its own each time: in this process, and on the
cluster. When half of the files are in the second store, one worker is ended by SIGKILL; Dask gives its pieces to the
other one, and starts a third. The exit code is 1 unless a worker was killed and all numbers are equal, bit by bit.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import measure
import numpy as np
import tyro
from distributed import Client, LocalCluster
from measure import Row, verdict

import fedbandit_jax as fb
from fedbandit_jax import cli

CONFIG = Path(__file__).resolve().parent.parent / "experiments" / "sweep.toml"
WORKERS = 2
FULL = ("horizon=200", "seeds=72")
SMOKE = ("horizon=50", "seeds=16", "grid={}", 'algorithms={plain={type="fed_lin_ucb"}}')


class Done(NamedTuple):
    """The output of `fedbandit sweep`."""

    result: fb.Result
    n_files: int  # in the store

    def row(self, who: str) -> Row:
        its = self.result.provenance
        rate = self.result.status.size / its["seconds"]
        return {"who": who, "runs": self.result.status.size, "pieces": its["pieces"], "computed": its["computed"],
                "seconds": its["seconds"], "runs per second": rate}  # fmt: skip


def sweep(folder: Path, changes: tuple[str, ...], *flags: str) -> Done:
    """Runs the command; what is computed is kept in `folder`/store."""
    sets = [word for change in changes for word in ("--set", change)]
    if code := cli.main(["sweep", str(CONFIG), "--out", str(folder), "--name", "result", *sets, *flags]):
        sys.exit(code)
    return Done(fb.Result.load(folder / "result"), n_files(folder))


def n_files(folder: Path) -> int:
    """Returns the number of complete files in the store of a sweep."""
    return len(list((folder / "store").glob("*/seeds_*.npz")))


def kill_when(folder: Path, n: int, process: int, killed: list[int]) -> None:
    """Kills a process when there are `n` files, and notes their number; gives up when it is gone already."""
    while (there := n_files(folder)) < n:
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    killed.append(there)


def main(json: bool = False, smoke: bool = False) -> None:
    """Compares a sweep on a cluster that loses a worker with the same sweep alone.

    Args:
        json: print JSON.
        smoke: a few runs only, to see that everything works.
    """
    changes, killed = SMOKE if smoke else FULL, []
    with tempfile.TemporaryDirectory() as folder:
        alone = sweep(Path(folder) / "alone", changes)
        there = Path(folder) / "cluster"
        with (
            LocalCluster(WORKERS, threads_per_worker=1, dashboard_address=":0", local_directory=folder) as cluster,
            Client(cluster) as client,
        ):
            first = next(iter(client.run(os.getpid).values()))  # pyright: ignore[reportAttributeAccessIssue]
            watch = threading.Thread(target=kill_when, args=(there, alone.n_files // 2, first, killed), daemon=True)
            watch.start()
            address = cluster.scheduler_address  # pyright: ignore[reportAttributeAccessIssue]
            shared = sweep(there, changes, "--executor", f"dask:{address}")
    one, other = alone.result, shared.result
    equal = one.labels == other.labels and all(
        np.array_equal(getattr(one, kind), getattr(other, kind)) for kind in ("regret", "status", "rounds")
    )
    equal = equal and all(np.array_equal(curve, other.communication[name]) for name, curve in one.communication.items())
    rows = [alone.row("this process, alone"), shared.row(f"Dask, {WORKERS} workers, one killed")]
    found = {
        "files in the store when a worker was killed": verdict(killed[0] if killed else None),
        "numbers that are not those of the sweep alone": verdict(float(not equal), most=0.0),
    }
    measure.output("A sweep on a cluster that loses a worker", rows, found, json=json)
    if not (killed and equal):
        sys.exit(1)


if __name__ == "__main__":
    tyro.cli(main)
