"""A sweep whose pieces are kept in a folder: computed where they are missing, and gathered from there."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

import jax

from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.setup import set_up
from fedbandit_jax.engine.store import pieces
from fedbandit_jax.engine.store.pieces import Executor
from fedbandit_jax.report.files import OF_LABELS
from fedbandit_jax.report.result import Result, concat


class Stored:
    """A sweep in pieces."""

    def __init__(self, configurations: Mapping[str, Configuration], run: Run):
        self.run, self.folder = run, Path(run.store)
        self.setup = set_up(configurations, run)
        self.names = {
            label: pieces.name(self.setup.marks[label], clock, at=run.at, key=run.key)
            for label, clock in self.setup.clocks.items()
        }
        self.pieces = pieces.cut(configurations, self.names, self.setup.groups, run)

    def compute(self, i: int, n: int, executor: Executor | None) -> tuple[int, int]:
        """Computes what the folder lacks of part i of n, and returns the numbers of its pieces and of its runs."""
        missing = pieces.lacking(pieces.share(self.pieces, i, n))
        pieces.compute_all(missing, executor, progress=self.run.progress)
        return len(missing), pieces.n_runs(missing)

    def result(self, executor: Executor | None) -> Result:
        """The result, after computing what is not in the folder yet.

        Of a job of several processes (`jax.distributed`) each computes its part, and waits for the others.
        """
        started = time.monotonic()
        computed, _ = self.compute(jax.process_index(), jax.process_count(), executor)
        if jax.process_count() > 1:
            pieces.wait(self.pieces)
        config, found = self.setup.config, []
        for label, name in self.names.items():
            its = config | {kind: {label: config[kind][label]} for kind in OF_LABELS}
            found.append(pieces.gather(self.folder, name, label, its, self.run.seeds))
        whole = concat(found)
        account = {"pieces": len(self.pieces), "computed": computed, "seconds": round(time.monotonic() - started, 3)}
        return dataclasses.replace(whole, provenance={**whole.provenance, **account})
