"""What the commands share: checks, a resumable run, and what is printed and written at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit_jax.report.results import Result

if TYPE_CHECKING:
    from fedbandit_jax.interfaces import Algorithm, Environment


def check_budgets(epsilon: tuple[float, ...], delta: float) -> None:
    """Each a valid budget, at least one."""
    from fedbandit_jax.privacy import Budget

    if not epsilon:
        raise ValueError("epsilon must name at least one budget, got none")
    for value in epsilon:
        Budget(value, delta)


def run_and_save(
    world: Environment,
    algos: Sequence[Algorithm],
    *,
    grid: Mapping[str, Any],
    request: str,
    out: Path,
    name: str,
    title: str,
    notes: str = "",
    seed: int,
    gauge: str = "",
    **run: Any,
) -> None:
    """Sweep, print, write OUT/NAME.npz, .json and .png, and a picture of a gauge.

    An interrupted run with the same `request` continues.
    """
    import jax

    import fedbandit_jax as fb

    checkpoint = out / f".{name}-{hashlib.sha256(request.encode()).hexdigest()[:8]}.checkpoint"
    result = fb.sweep(
        world, algos, grid=grid, key=jax.random.key(seed), progress=True, checkpoint=checkpoint, throw=False, **run
    )
    report(result)
    if notes:
        print(f"\n{notes}")
    saved = result.save(out / name)
    picture = fb.plotting.save_png(fb.plotting.regret(result, title=title), out / f"{name}.png")
    for part in out.glob(f"{checkpoint.name}.*"):
        part.unlink()
    written = [saved, saved.with_suffix(".json"), picture]
    if gauge:
        path = out / f"{name}_{gauge.lower().replace(' ', '_')}.png"
        written.append(fb.plotting.save_png(fb.plotting.gauge(result, gauge, title=title), path))
    print(f"\nwrote {', '.join(map(str, written[:-1]))} and {written[-1]}")


def report(result: Result) -> None:
    """Summary, and the certificates of what is meant to be private."""
    print("\n" + result.summary())
    for label in result.labels:
        if result[label].certificate.epsilon is not None or result[label].certificate.claim == "certified":
            print(f"\nCertificate of {label}\n{result[label].certificate}")
