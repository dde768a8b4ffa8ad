"""What a sweep computes: programs one after the other, seeds side by side, and their curves as one result."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping

import jax
import numpy as np
from tqdm import tqdm

from fedbandit_jax.core import random
from fedbandit_jax.engine import driver, memory
from fedbandit_jax.engine.checkpoint import Checkpoints
from fedbandit_jax.engine.curves import Curves
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.provenance import provenance
from fedbandit_jax.engine.setup import set_up
from fedbandit_jax.interfaces import certify
from fedbandit_jax.report.result import Result, missing


def execute(configurations: Mapping[str, Configuration], run: Run) -> Result:
    """The result of all configurations, with one row for each."""
    setup = set_up(configurations, run)
    clocks, at, seeds, horizon = setup.clocks, run.at, run.seeds, run.horizon
    certificates = {label: certify(clock.algo).among(clock.env.spec.visits(horizon)) for label, clock in clocks.items()}
    keys = random.of_seeds(run.key, seeds)
    checkpoints = None if run.checkpoint is None else Checkpoints(run.checkpoint, setup.fingerprint())
    started = time.monotonic()
    by_label: dict[str, Curves] = {}
    programs, together = 0, len(seeds)
    bar = tqdm(
        total=len(clocks) * len(seeds) * horizon,
        unit=" rounds",
        unit_scale=True,
        desc="simulate",
        disable=None if run.progress is None else not run.progress,
    )
    with contextlib.nullcontext() if checkpoints is None else checkpoints.lock(), bar:
        for labels in setup.groups:
            group = [clocks[label].sharing(len(labels)) for label in labels]
            most = memory.seeds_together(group[0], len(group), len(seeds), len(at))
            together = min(together, most)
            if most < len(seeds):
                bar.set_postfix_str(f"{most} seeds at a time, to fit into memory")
            parts = []
            for first in range(0, len(seeds), most):
                few = keys[first : first + most]
                parts.append(driver.run(group, few, at=at, bar=bar, checkpoints=checkpoints, program=programs))
                programs += 1
            curves = parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: np.concatenate(x, 1), *parts)
            by_label |= {label: jax.tree.map(lambda curve, j=j: curve[j], curves) for j, label in enumerate(labels)}

    absent = {}  # an algorithm that lacks a counter has 0 there, one that lacks a gauge NaN
    for kind, value in (("counts", 0), ("gauges", math.nan)):
        names = (name for curves in by_label.values() for name in getattr(curves, kind))
        absent[kind] = {name: np.full((len(seeds), len(at)), value) for name in names}
    absent["records"] = {
        name: np.full_like(array, missing(array))
        for curves in by_label.values()
        for name, array in curves.records.items()
    }
    uniform = (
        curves._replace(**{kind: {**nothing, **getattr(curves, kind)} for kind, nothing in absent.items()})
        for curves in map(by_label.__getitem__, clocks)
    )
    stacked = jax.tree.map(lambda *curves: np.stack(curves), *uniform)
    return Result(
        rounds=at,
        regret=stacked.regret,
        communication=stacked.communication,
        counts=stacked.counts,
        gauges=stacked.gauges,
        status=stacked.status,
        records=stacked.records,
        record_rounds=setup.record_rounds,
        certificates=certificates,
        config=setup.config,
        provenance={
            **provenance(),
            "seconds": round(time.monotonic() - started, 3),
            "devices": jax.local_device_count(),
            "seeds_together": together,
        },
    )
