"""Draws uploads and downloads over time, for Theorem 2 and Appendix E.3 of Liu et al. (2022).

python experiments/liu2022_communication.py [--smoke | --full]

Local clusters upload when their statistics have grown by a factor U, and download when those of their global cluster
are D times their own. (a) FCLUB exchanges something in every round; FCLUB-DC exchanges ever less, O(log T) if U and D
are 1.01. With the noise and shifts of CDP-FCLUB-DC there is an upload in nearly every round until the shifts that have
been added outweigh those of one more upload. (b) Regret of FCLUB-DC, and what it sends, for U = D from 1 to 10.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS as COLOURED
from clusters import LiuOptions, worth
from curves import Curve, interval, mean_error, pick, standing, verdict
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
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 5.6), layout="constrained")
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
    left.set_title("(a) uploads and downloads up to round $t$", fontsize="medium")
    (sent,), (regret,) = pick(curves, "sent"), pick(curves, "regret")
    colour = pick(curves, "time", "FCLUB-DC")[0].style.split()[0]
    right.errorbar(range(len(sent.x)), regret.mean, regret.error, fmt="o", color=colour, capsize=4)
    ticks = [f"{ratio:g}\n{mean:,.0f}" for ratio, mean in zip(sent.x, sent.mean)]
    right.set_xticks(range(len(sent.x)), ticks, fontsize="small")
    right.set(xlabel="U = D (below: uploads and downloads)", ylabel="regret at T", ylim=(0, None))
    right.set_title("(b) FCLUB-DC with other factors, T = 100,000", fontsize="medium")
    home, others, differ = int(np.argmin(np.abs(sent.x - 1.01))), [], []
    for ratio, count, value in zip(sent.x, sent.mean, regret.y):
        more, half = interval(value - regret.y[home])
        print(f"U = D = {ratio:g}: {count:,.0f} sent, regret {{:,.0f}} ± {{:,.0f}}".format(*mean_error(value)))
        if ratio != sent.x[home]:
            others.append(f"{ratio:g} {more:+,.0f} ± {half:,.0f} with {count:,.0f}")
            differ += [f"{ratio:g}"] * (abs(more) > half)
    legend_of_all(figure)
    for ax in (left, right):
        ax.grid(alpha=0.3)
    horizon, n_seeds = pick(curves, "time")[0].x[-1], sent.n_seeds
    figure.suptitle(
        "Liu et al. (2022): n = 40, m = 4 (consecutive seats), L = 5, K = 10, d = 10, δ = 0.1, ε = 1 asked; mean of "
        f"{n_seeds} seeds ± 1 standard error\nstatistics that have grown by U are uploaded, those of the global "
        "cluster are downloaded once they are D times the own ones\n(a) U = D = 1.01; FCLUB: 1, i.e. at once; "
        "less noise: 1.1, of numbers of rounds, calibrated exactly, no shifts; dotted: no privacy claim",
        fontsize="medium",
    )
    ours = f"T=10^5, 10 seeds; T={horizon:,.0f}, {n_seeds} seeds here"
    ends = {one.label: one.y[-1] for one in pick(curves, "time")}
    saves = f"(a) {verdict(ends['FCLUB-DC'], ends['FCLUB'])} (FCLUB-DC, 95 %); in all {', '.join(total)}"
    grows = f"(a) in (T/16, T/4] and (T/4, T], which a logarithm makes equal: {', '.join(late)}"
    chosen = (
        f"(b) FCLUB-DC has regret {regret.mean[home]:,.0f} ± {regret.error[home]:,.0f} and sends {sent.mean[home]:,.0f}"
    )
    chosen += (
        f" times; with other factors its regret differs by (95 %) {'; '.join(others)} times. That is more than its "
    )
    chosen += f"error at {', '.join(differ) or 'none of them'}"
    says = (
        Says("Appendix E.3", "delayed communication saves communication", ours, saves),
        Says("Theorem 2", "uploads and downloads are O(log T)", ours, grows),
        Says("Section 5", "U = D = 1.01, the authors' choice", "the same; T=100,000 in (b)", chosen),
    )
    print("\n".join(f"{one.claim}: {one.seen}" for one in says))
    caption(figure, "Liu et al. (2022)", *says)
    save("liu2022_communication", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
