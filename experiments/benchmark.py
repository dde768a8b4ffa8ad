"""Plays the entries of experiments/entries in all tasks of the benchmark, and tries to choose a key.

Rows that are there already, of the same entry, tasks and code, are left as they are. --keys measures the gain of
editing a comment until the seeds are kind: the best of N keys, and the same code under a fresh key. Writes no picture.
"""

import dataclasses
from pathlib import Path

import numpy as np
import tyro
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.benchmark import board

ENTRIES, TUNED = Path(__file__).parent / "entries", {"best": 168}
TASK, AGAIN = "arms-hard", 10


@dataclasses.dataclass(frozen=True)
class BenchmarkSize(Size):
    """Play all entries.

    Args:
        keys: how many keys are tried; 0: none.
    """

    keys: int = 50


def chosen(keys: int) -> None:
    """Prints the gain of the best of several keys in a task, and its gain under a fresh key."""
    source = (ENTRIES / "exact_radius_se.py").read_text(encoding="utf-8")
    entries = [fb.benchmark.Entry.read(f"{source}# {i}\n", "recipe", "edited") for i in range(keys)]
    rows = [fb.benchmark.run(entry, tasks=[TASK], progress=False) for entry in entries]
    scores = np.array([row.score for row in rows])
    best, error = rows[int(scores.argmax())], np.mean([row.error for row in rows])
    again = [fb.benchmark.verify(best, progress=False) for _ in range(AGAIN)]
    fresh, far = [one.again.score for one in again], sum(bool(one.far) for one in again)
    print(f"{TASK}, {keys} keys: S {scores.mean():.3f}, standard deviation {scores.std(ddof=1):.3f} between keys,")
    print(f"error as computed {error:.3f}; the best {best.score:.3f}; the same code again, {AGAIN} times: mean")
    print(f"{np.mean(fresh):.3f}, {min(fresh):.3f} to {max(fresh):.3f}, {far} not repeated within 3 standard errors")


def main(options: BenchmarkSize) -> None:
    out = (options.out or Path("results")) / "rows" if options.smoke else board.SHIPPED
    for path in sorted(ENTRIES.glob("*.py")):
        if options.smoke and path.stem != "dist_dp_se":
            continue
        trials = TUNED.get(path.stem, 0)
        tasks, track = [TASK] if options.smoke else None, "tuned" if trials else "one recipe"
        row = fb.benchmark.run(path, tasks=tasks, out=out, track=track, trials=trials)
        print(f"{row.score:.3f} ({row.interval[0]:.3f} to {row.interval[1]:.3f})  {row.name}", flush=True)
    if options.keys:
        chosen(options.pick(2, options.keys, options.keys))


if __name__ == "__main__":
    main(tyro.cli(BenchmarkSize, description=__doc__))
