"""Draws the running times of Appendix E.4 of Liu et al. (2022): seconds for T rounds against the number of users.

python experiments/liu2022_runtime.py [--smoke | --full]

The paper's appendix has the time of every method at n = 40 and T = 10^5, on synthetic users and on MovieLens.
Compilation is not counted, and as many seeds run together as there are cores. bench/clustering.py measures more.
"""

import os
import time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS as COLOURED
from clusters import LiuOptions
from curves import Curve
from drawing import Says, caption, legend_below, save

import fedbandit_jax as fb

LOOKS = {name: look for name, look in COLOURED.items() if name != "random play"}


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
    figure, ax = plt.subplots(figsize=(9.0, 4.6), layout="constrained")
    users = curves[0].x
    for i, one in enumerate(curves):
        least, most = one.y.min(1), one.y.max(1)
        for j, mark in zip(range(len(users)), "osD^"):
            at = i + 0.18 * (j - (len(users) - 1) / 2)
            look: dict[str, Any] = dict(
                fmt=mark, color=one.style.split()[0], capsize=2, markerfacecolor="w" if j else None
            )
            ax.errorbar(least[j], at, xerr=[[0], [most[j] - least[j]]], **look)
        ax.annotate(" and ".join(f"{s:.1f}" for s in least), (1.01, i), xycoords=("axes fraction", "data"), va="center")
        print(f"{one.label}: " + ", ".join(f"n = {n:g}: {s:.2f} s" for n, s in zip(one.x, least)))
    for j, (n, mark) in enumerate(zip(users, "osD^")):
        ax.plot([], [], mark, color="#333333", markerfacecolor="w" if j else None, label=f"n = {n:,g} users")
    ax.set(yticks=range(len(curves)), yticklabels=[one.label for one in curves], xlim=(0, None))
    ax.set(xlabel=f"seconds for {size.label}; right: least")
    ax.invert_yaxis()
    legend_below(ax, ncols=4)
    n = curves[0].n_seeds
    ax.set_title(
        f"Running times: m = 4, L = 5, K = 10, d = 10; least of {n} runs, bars up to the largest", fontsize="medium"
    )
    order = sorted(curves, key=lambda one: one.y[0].min())
    seen = f"at n = {order[0].x[0]:g} the least is {order[0].label} with {order[0].y[0].min():.2f} s, the most "
    seen += f"{order[-1].label} with {order[-1].y[0].min():.2f} s; a machine that others used too"
    claim = "running times of every method (not at hand, and of another machine)"
    caption(figure, "Liu et al. (2022)", Says("Appendix E.4", claim, f"n=40, T=10^5; {size.label} here", seen))
    print(seen)
    save("liu2022_runtime", options, figure, [*curves, size])


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
