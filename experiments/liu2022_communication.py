"""Draws uploads and downloads over time, for Theorem 2 and Appendix E.3 of Liu et al. (2022).

python experiments/liu2022_communication.py [--smoke | --full]

Local clusters upload when their statistics have grown by a factor U, and download when those of their global cluster
are D times their own. (a) FCLUB exchanges something in every round; FCLUB-DC exchanges ever less, O(log T) if U and D
are 1.01, the grey curve. With the noise and shifts of CDP-FCLUB-DC there is an upload in nearly every round until the
shifts that have been added outweigh those of one more upload. (b) Regret of FCLUB-DC, and what it sends, for U = D from
1 to 10.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS as COLOURED
from clusters import RECALIBRATED, SEATS, LiuOptions, decided, dressed, worth
from curves import Curve, interval, mean_error, pick, quotient, standing
from drawing import Says, caption, headline, legend_of_all, save

import fedbandit_jax as fb

RATIOS = (1.0, 1.001, 1.01, 1.1, 1.5, 3.0, 10.0)
LOOKS = {
    name: COLOURED[name] for name in ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CDP-FCLUB-DC, recalibrated", "Homo-DC")
}


def measure(options: LiuOptions) -> list[Curve]:
    """Returns uploads and downloads over time, and regret against them for each U = D, of all seeds."""
    env, every, curves = options.instance(), options.methods(fb.privacy.Budget(1.0, 0.1)), []
    run = {**options.run(500, 131_070, 1_048_574), "stride": "log"}
    result = fb.sweep(env, {name: every[name] for name in LOOKS}, **run, store=options.store)
    at = run["horizon"] / 2.0 ** np.arange(0, 10.25, 0.25)[::-1]
    for name, look in LOOKS.items():
        given = f"noise alone ε = {worth(every[name], env, run['horizon']):.2g}" if name.startswith("CDP") else ""
        sent = standing(result.rounds, result[name].communication["rounds"], at)
        curves.append(Curve("time", name, at, sent, look, given))
    how: dict[str, Any] = {**run, "horizon": options.pick(500, 100_000, 100_000)}
    ratios = RATIOS[:: options.pick(3, 1, 1)]
    algos = [every["FCLUB-DC"].replace(upload=ratio, download=ratio) for ratio in ratios]
    runs = [fb.simulate(env, algo, **how, store=options.store) for algo in algos]
    curves.append(Curve("sent", "U = D", ratios, np.stack([one.communication["rounds"][:, -1] for one in runs])))
    return [*curves, Curve("regret", "U = D", ratios, np.stack([one.regret[:, -1] for one in runs]))]


def main(options: LiuOptions) -> None:
    curves = dressed(options.numbers("liu2022_communication", lambda: measure(options)))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 5.4))
    lines, grown = pick(curves, "time"), {}
    for one in lines:
        colour, line, *mark = one.style.split()
        label = f"{one.label}: {one.note}" if one.note else one.label
        look = dict(color=colour, marker="".join(mark), markevery=4, markersize=5)
        left.plot(one.x, one.mean, line, label=label, **look)
        left.fill_between(one.x, one.mean - one.error, one.mean + one.error, color=colour, alpha=0.2, linewidth=0)
        before, after = np.diff([np.interp(one.x[-1] / np.array([16, 4, 1]), one.x, seed) for seed in one.y.T]).T
        grown[one.label] = quotient(after, before)
        print(
            f"{one.label}: {one.mean[-1]:,.0f} ± {one.error[-1]:,.0f}; {before.mean():,.0f} in (T/16, T/4] and", end=" "
        )
        print("{:,.0f} in (T/4, T], {:.2f} ± {:.2f} times that".format(after.mean(), *grown[one.label]))
    (delayed,) = pick(lines, label="FCLUB-DC")
    ends = delayed.x[delayed.x >= delayed.x[-1] / 16]
    low, high = np.interp(ends[-1] / np.array([16, 4]), delayed.x, delayed.mean)
    line = low + (high - low) * np.log(16 * ends / ends[-1]) / np.log(4)
    left.plot(ends, line, "-.", color="#999999", label="c log t + c', through FCLUB-DC at T/16 and T/4")
    left.set(xscale="log", yscale="log", xlabel="round $t$", ylabel="uploads and downloads")
    left.set_title("(a) uploads and downloads up to round $t$: U = D = 1.01, FCLUB 1")
    (sent,), (regret,) = pick(curves, "sent"), pick(curves, "regret")
    right.errorbar(sent.mean, regret.mean, regret.error, fmt="o", color=delayed.style.split()[0], capsize=4)
    for ratio, x, y in zip(sent.x, sent.mean, regret.mean):
        right.annotate(f"{ratio:g}", (x, y), (-6, 0), textcoords="offset points", ha="right", va="center")
    right.set(xscale="log", xlabel="uploads and downloads", ylabel="regret at T")
    right.margins(x=0.12, y=0.12)
    right.set_title("(b) FCLUB-DC with factors U = D at the points, T = 100,000")
    home, differ = int(np.argmin(np.abs(sent.x - 1.01))), []
    for ratio, count, value in zip(sent.x, sent.mean, regret.y):
        more, half = interval(value - regret.y[home])
        print(f"U = D = {ratio:g}: {count:,.0f} sent, regret {{:,.0f}} ± {{:,.0f}}".format(*mean_error(value)), end="")
        print(f", {more:+,.0f} ± {half:,.0f} (95 %) against {sent.x[home]:g}")
        differ += [f"{ratio:g} by {more:+,.0f} ± {half:,.0f}"] * (abs(more) > half)
    legend_of_all(figure)
    horizon, n_seeds = delayed.x[-1], sent.n_seeds
    headline(
        figure,
        "Messages, and regret, of delayed communication",
        f"Liu et al. (2022): n = 40, m = 4 {SEATS['consecutive']}, L = 5, K = 10, d = 10, δ = 0.1, target ε = 1\n"
        f"(a) T = {horizon:,.0f}; {n_seeds} seeds ± 1 standard error; dotted: no privacy claim, solid: not private",
    )
    ours = f"T=10^5, 10 seeds; T={horizon:,.0f}, {n_seeds} seeds here"
    final = {one.label: one.y[-1] for one in lines}
    saves = decided(final, [("FCLUB-DC", "FCLUB")])
    saves += f": FCLUB-DC sends {final['FCLUB-DC'].mean():,.0f} and FCLUB {final['FCLUB'].mean():,.0f}"
    level = all(value - 2 * error < 1 for value, error in (grown["FCLUB-DC"], grown["CDP-FCLUB-DC"]))
    rates = ", ".join("{} {:.2f} ± {:.2f}".format(name, *grown[name]) for name in grown)
    grows = f"{'yes' if level else 'not yet at this T'}: a logarithm makes equal counts in (T/16, T/4] and (T/4, T]; "
    grows += f"the later has (± 1 standard error) times the earlier {rates} (a). {RECALIBRATED}"
    chosen = (
        f"{'it matters' if differ else 'no gain is seen'}: with FCLUB-DC (b) regret differs from that at 1.01 (95 %) "
    )
    chosen += f"at {', '.join(differ) or 'no other factor'}, but {sent.mean[home]:,.0f} messages are sent, at "
    chosen += (
        f"{sent.x[-1]:g} only {sent.mean[-1]:,.0f}. Statistics that have grown by a factor U are uploaded, those of "
    )
    chosen += "the global cluster are downloaded once they are D times the own ones; FCLUB has U = D = 1"
    says = (
        Says("Appendix E.3", "delayed communication saves communication", ours, saves),
        Says("Theorem 2", "uploads and downloads are O(log T)", ours, grows),
        Says("Section 5", "U = D = 1.01, the authors' choice", "the same; T=100,000 in (b)", chosen),
    )
    caption(figure, "Liu et al. (2022)", *says)
    save("liu2022_communication", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
