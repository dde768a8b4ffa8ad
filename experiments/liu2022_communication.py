"""Draws uploads and downloads over time, for Theorem 2 and Appendix E.3 of Liu et al. (2022).

python experiments/liu2022_communication.py [--smoke | --full]

Local clusters upload when their statistics have grown by a factor U, and download when those of their global cluster
are D times their own. (a) FCLUB exchanges something in every round; FCLUB-DC exchanges ever less, O(log T) if U and D
are 1.01. With the noise and shifts of CDP-FCLUB-DC there is an upload in nearly every round until the shifts that have
been added outweigh those of one more upload. (b) Regret against communication, for U = D from 1 to 10.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS as COLOURED
from clusters import LiuOptions, worth
from curves import Curve, pick, standing, verdict
from drawing import Says, caption, legend_of_all, save

import fedbandit_jax as fb

RATIOS = (1.0, 1.001, 1.01, 1.1, 1.5, 3.0, 10.0)
LOOKS = {name: COLOURED[name] for name in ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CDP-FCLUB-DC, less noise", "Homo-DC")}


def measure(options: LiuOptions) -> list[Curve]:
    """Returns uploads and downloads over time, and regret against them for each U = D, of all seeds."""
    env, every, curves = options.instance(), options.methods(fb.privacy.Budget(1.0, 0.1)), []
    run = {**options.run(500, 131_070, 1_048_574), "seeds": options.pick(2, 5, 10), "stride": "log"}
    result = fb.sweep(env, {name: every[name] for name in LOOKS}, **run, store=options.store)
    at = run["horizon"] / 2.0 ** np.arange(0, 10.25, 0.25)[::-1]
    for name, look in LOOKS.items():
        given = f"noise worth ε = {worth(every[name], env, run['horizon']):.2g}" if name.startswith("CDP") else ""
        sent = standing(result.rounds, result[name].communication["rounds"], at)
        curves.append(Curve("time", name, at, sent, look, given))
    how: dict[str, Any] = {**run, "horizon": options.pick(500, 100_000, 100_000)}
    ratios = RATIOS[:: options.pick(3, 1, 1)]
    algos = [every["FCLUB-DC"].replace(upload=ratio, download=ratio) for ratio in ratios]
    runs = [fb.simulate(env, algo, **how, store=options.store) for algo in algos]
    curves.append(Curve("sent", "U = D", ratios, np.stack([one.communication["rounds"][:, -1] for one in runs])))
    return [*curves, Curve("regret", "U = D", ratios, np.stack([one.regret[:, -1] for one in runs]))]


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_communication", lambda: measure(options))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 5.2), layout="constrained")
    late, total = [], []
    for one in pick(curves, "time"):
        colour, line, *mark = one.style.split()
        seen = one.mean > 0  # 0 before the first step of 64 rounds has been counted
        label = f"{one.label}: {one.note}" if one.note else one.label
        look = dict(color=colour, marker="".join(mark), markevery=4, markersize=5)
        left.plot(one.x[seen], one.mean[seen], line, label=label, **look)
        left.fill_between(
            one.x, np.maximum(one.mean - one.error, 1), one.mean + one.error, seen, color=colour, alpha=0.2
        )
        more = np.diff(np.interp(one.x[-1] / np.array([16, 4, 1]), one.x, one.mean))
        late.append(f"{one.label} {more[0]:,.0f} and {more[1]:,.0f}")
        print(f"{one.label}: {one.mean[-1]:,.0f} ± {one.error[-1]:,.0f}; in (T/16, T/4] and (T/4, T]: {late[-1]}")
        total.append(f"{one.label} {one.mean[-1]:,.0f}")
    left.set(xscale="log", yscale="log", xlabel="round $t$", ylabel="uploads and downloads")
    left.set_title("(a) up to round $t$", fontsize="medium")
    (sent,), (regret,) = pick(curves, "sent"), pick(curves, "regret")
    for i, ratio in enumerate(sent.x):
        above = (4, 6) if i % 2 else (4, -12)
        where = (sent.mean[i], regret.mean[i])
        right.annotate(f"{ratio:g}", where, xytext=above, textcoords="offset points")
        print(f"U = D = {ratio:g}: {sent.mean[i]:,.0f} sent, regret {regret.mean[i]:,.0f} ± {regret.error[i]:,.0f}")
    colour = pick(curves, "time", "FCLUB-DC")[0].style.split()[0]
    right.errorbar(sent.mean, regret.mean, regret.error, sent.error, fmt="o-", color=colour, capsize=2)
    right.set(xscale="log", xlabel="uploads and downloads", ylabel="regret (axis from 1,000)", ylim=(1000, None))
    right.set_title("(b) FCLUB-DC, T = 100,000; numbers: U = D", fontsize="medium")
    legend_of_all(figure)
    for ax in (left, right):
        ax.grid(alpha=0.3)
    horizon, n_seeds = pick(curves, "time")[0].x[-1], sent.n_seeds
    figure.suptitle(
        f"n = 40, m = 4 (consecutive seats), L = 5, K = 10, d = 10, δ = 0.1, ε = 1 asked; mean of {n_seeds} seeds ± 1 "
        "standard error\n(a) U = D = 1.01, FCLUB 1, with less noise 1.1 on counts of rounds; dotted: no privacy claim",
        fontsize="medium",
    )
    ours = f"T=10^5, 10 seeds; T={horizon:,.0f}, {n_seeds} seeds here"
    ends = {one.label: one.y[-1] for one in pick(curves, "time")}
    saves = f"{verdict(ends['FCLUB-DC'], ends['FCLUB'])} (FCLUB-DC, 95 %); in all {', '.join(total)}"
    grows = f"in (T/16, T/4] and (T/4, T], which a logarithm makes equal: {', '.join(late)}"
    says = (
        Says("Appendix E.3", "delayed communication saves communication", ours, saves),
        Says("Theorem 2", "uploads and downloads are O(log T)", ours, grows),
    )
    print("\n".join(f"{one.claim}: {one.seen}" for one in says))
    caption(figure, "Liu et al. (2022)", *says)
    save("liu2022_communication", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
