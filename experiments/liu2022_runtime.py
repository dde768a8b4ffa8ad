"""Draws the running times of Appendix E.4 of Liu et al. (2022): seconds for T rounds against the number of users.

Compilation is not counted, and as many seeds run together as there are cores. bench/clustering.py measures more.
"""

import os
import time

import numpy as np
from clusters import LOOKS, LiuOptions
from drawing import CHANCE, Curve, Panel, Picture, Says, main

import fedbandit_jax as fb

NAMES = [name for name in LOOKS if name != CHANCE]


def measure(options: LiuOptions) -> list[Curve]:
    run, every, curves = options.run(500, 20_480, 102_400, progress=False, store=None), options.methods(), []
    users, repeats = options.pick((20,), (40, 200), (40, 200, 1_000, 5_000)), options.pick(2, 3, 3)
    for name in NAMES[:: options.pick(5, 1, 1)]:
        seconds = np.empty((len(users), repeats))
        for i, n in enumerate(users):
            env = options.instance(n_users=n)
            fb.simulate(env, every[name], **run)  # compiles the program, untimed
            for j in range(repeats):
                started = time.perf_counter()
                fb.simulate(env, every[name], **run)
                seconds[i, j] = time.perf_counter() - started
        curves.append(Curve("seconds", name, users, seconds, LOOKS[name]))
        print(name, seconds.min(1), flush=True)
    size = f"{run['seeds']} seeds × {run['horizon']:,} rounds, {os.cpu_count()} CPU cores"
    return [*curves, Curve("words", size, [0], [0])]


def picture(curves: list[Curve]) -> Picture:
    *curves, size = curves
    n, order, shown = curves[0].n_seeds, sorted(curves, key=lambda one: np.median(one.y[0])), []
    for i, users in enumerate(curves[0].x):
        ones = [Curve("", one.label, [users], one.y[i : i + 1], LOOKS[one.label].split()[0]) for one in order]
        shown.append(Panel(ones, f"n = {users:g} users", "seconds", kind="rows", numbers="{mean:.1f} ± {error:.1f}"))
        shown[-1].axes["xlim"] = (0, None)
    seen = f"unstable, on a machine that others used too; medians of {n} runs at n = {curves[0].x[0]:g}: "
    seen += ", ".join(f"{one.label} {np.median(one.y[0]):.1f} s" for one in order)
    spread = max((one.y.max(1) / one.y.min(1)).max() for one in curves)
    seen += ". A round has one user, so that n matters little. The longest run takes up to "
    seen += f"{spread:.2f} times the shortest"
    claim = "running times of every method (not at hand, so that nothing is compared)"
    return Picture(
        shown,
        "Seconds of a run by algorithm and users",
        f"Running times of our programs for {size.label}, with m = 4, L = 5, K = 10 and d = 10, on a machine that "
        f"others used too. Mean of {n} runs ± one standard error. They are unstable, and no benchmark",
        [Says("Appendix E.4", claim, f"n=40, T=10^5; {size.label} here", seen)],
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
