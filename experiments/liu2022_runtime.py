"""Draws the running times of Appendix E.4 of Liu et al. (2022): seconds for T rounds against the number of users.

python experiments/liu2022_runtime.py [--smoke | --full]

The paper's appendix has the time of every method at n = 40 and T = 10^5, on synthetic users and on MovieLens.
Compilation is not counted, and as many seeds run together as there are cores. bench/clustering.py measures more.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS as COLOURED
from common import LiuOptions, Says, caption, save
from curves import Curve

import fedbandit_jax as fb

LOOKS = {name: f"{look} {'s' if '--' in look else 'o'}" for name, look in COLOURED.items() if name != "random play"}


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
    size = f"{run['seeds']} seeds x {run['horizon']:,} rounds, {os.cpu_count()} CPU cores"
    return [*curves, Curve("words", size, [0], [0])]


def main(options: LiuOptions) -> None:
    *curves, size = options.numbers("liu2022_runtime", lambda: measure(options))
    figure, ax = plt.subplots(figsize=(9.0, 7.0), layout="constrained")
    for one in curves:
        colour, line, *mark = one.style.split()
        least = one.y.min(1)
        ax.errorbar(
            one.x,
            least,
            [0 * least, one.y.max(1) - least],
            fmt="".join(mark) + line,
            color=colour,
            label=one.label,
            capsize=2,
        )
        print(f"{one.label}: " + ", ".join(f"n = {n:g}: {s:.2f} s" for n, s in zip(one.x, least)))
    ax.set(xscale="log", yscale="log", xlabel="users n", ylabel=f"seconds for {size.label}")
    ax.xaxis.minorticks_off()
    ax.set_xticks(curves[0].x, [f"{n:g}" for n in curves[0].x])
    ax.set_title("Running times: m=4, L=5, K=10, d=10; least of some runs, bars up to the largest", fontsize="medium")
    ax.grid(alpha=0.3, which="both")
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    order = sorted(curves, key=lambda one: one.y[0].min())
    seen = f"at n = {order[0].x[0]:g} the least is {order[0].label} with {order[0].y[0].min():.2f} s, the most "
    seen += f"{order[-1].label} with {order[-1].y[0].min():.2f} s; a machine that others used too"
    claim = "running times of every method (not at hand, and of another machine)"
    caption(figure, "Liu et al. (2022)", Says("Appendix E.4", claim, f"n=40, T=10^5; {size.label} here", seen))
    print(seen)
    save("liu2022_runtime", options, figure, [*curves, size])


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
