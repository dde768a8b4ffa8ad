"""Draws the running times of Appendix E.4 of Liu et al. (2022): seconds for T rounds against the number of users.

python experiments/liu2022_runtime.py [--smoke | --full]

The paper's appendix has the time of every method at n = 40 and T = 10^5, on synthetic users and on MovieLens.
Compilation is not counted, and as many seeds run together as there are cores. bench/clustering.py measures more.
"""

import math
import os
import time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS as COLOURED
from clusters import LiuOptions, dressed
from curves import Curve
from drawing import Says, caption, headline, legend_of_all, save

import fedbandit_jax as fb

LOOKS = {name: look for name, look in COLOURED.items() if name != "uniform play"}


def measure(options: LiuOptions) -> list[Curve]:
    """Returns seconds for all seeds together against n, of each repetition."""
    run = {**options.run(500, 20_480, 102_400), "progress": False}
    users, repeats = options.pick((20,), (40, 200), (40, 200, 1_000, 5_000)), options.pick(2, 3, 3)
    every, curves = options.methods(fb.privacy.Budget(1.0, 0.1)), []
    for name in list(LOOKS)[:: options.pick(5, 1, 1)]:
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


def main(options: LiuOptions) -> None:
    *curves, size = options.numbers("liu2022_runtime", lambda: measure(options))
    curves = dressed(curves)
    figure, ax = plt.subplots(figsize=(9.0, 5.0))
    users, n_repeats = curves[0].x, curves[0].n_seeds
    middle = {one.label: np.median(one.y, 1) for one in curves}
    order = sorted(curves, key=lambda one: middle[one.label][0])
    for i, one in enumerate(order):
        for j, (n, mark) in enumerate(zip(users, "osD^")):
            at, low, high = middle[one.label][j], one.y[j].min(), one.y[j].max()
            look: dict[str, Any] = dict(color=one.style.split()[0], capsize=3, markerfacecolor="w" if j else None)
            place = i + 0.24 * (j - (len(users) - 1) / 2)
            ax.errorbar(at, place, xerr=[[at - low], [high - at]], fmt=mark, **look)
            column: dict[str, Any] = dict(xycoords=("axes fraction", "data"), ha="right", va="center")
            ax.annotate(f"{at:.1f} s", (1.1 + 0.12 * j, i), **column)
            if i == 0:
                ax.annotate(f"n = {n:,g}", (1.1 + 0.12 * j, -0.8), **column)
                ax.plot([], [], mark, color="#333333", markerfacecolor="w" if j else None, label=f"n = {n:,g} users")
        print(f"{one.label}: " + ", ".join(f"n = {n:g}: {s:.2f} s" for n, s in zip(one.x, middle[one.label])))
    ax.set(yticks=range(len(order)), yticklabels=[one.label for one in order], xlim=(0, None))
    ax.set(xlabel=f"seconds for {size.label}", ylim=(len(order) - 0.4, -0.6))
    legend_of_all(figure, ncols=4)
    busy = "on a machine that others used too"
    headline(
        figure,
        "Seconds of a run by algorithm and users",
        f"Liu et al. (2022), running times of our programs: m = 4, L = 5, K = 10, d = 10, {busy}\n"
        f"points and columns: median of {n_repeats} runs; bars: shortest to longest; unstable, not a benchmark",
    )
    seen = f"unstable, medians of {n_repeats} runs {busy}: at n = {users[0]:g} from "
    seen += " to ".join(f"{middle[one.label][0]:.1f} s ({one.label})" for one in (order[0], order[-1]))
    if len(users) > 1:
        few, many = (np.array([(one.y[j].min(), one.y[j].max()) for one in order]) for j in (0, -1))
        words = {"overlap": np.maximum(few, many)[:, 0] <= np.minimum(few, many)[:, 1]}
        words |= {f"{users[-1]:g} users are slower": few[:, 1] < many[:, 0]}
        words |= {f"{users[-1]:g} users are faster": many[:, 1] < few[:, 0]}
        names = np.array([one.label for one in order])
        shown = "; ".join(f"{what} in {', '.join(names[rows])}" for what, rows in words.items() if rows.any())
        seen += (
            f". Runs with {users[0]:g} and {users[-1]:g} users {shown}. A round has one user, whatever n, so that n "
        )
        seen += "matters little, and a median with more users can be below one with fewer; by chance alone all runs of "
        seen += f"one n are faster in {2 / math.comb(2 * n_repeats, n_repeats):.0%} of rows"
    spread = max((one.y.max(1) / one.y.min(1)).max() for one in curves)
    seen += f". The longest of {n_repeats} runs takes up to {spread:.2f} times the shortest"
    claim = "running times of every method (not at hand, so that nothing is compared)"
    caption(figure, "Liu et al. (2022)", Says("Appendix E.4", claim, f"n=40, T=10^5; {size.label} here", seen))
    save("liu2022_runtime", options, figure, [*curves, size])


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
