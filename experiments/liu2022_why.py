"""Shows why CDP-FCLUB-DC of Liu et al. (2022) fails once its noise is really added: one cause removed at a time.

python experiments/liu2022_why.py [--smoke | --full]

The instance is that of Figure 2 (a), and epsilon = 1 or 10 is asked for. Bars are regret at T, with the standard error.

- Merging: noisy estimates of all local clusters are near 0, so that all merge; but Homo-DC, which merges everybody
  without noise, does better than what is left.
- Width: beta grows with the root of what is added to the diagonal, and with the noise on sum x y.
- Shift: the 3 rho I that is added at every upload hides the width. With c I on the diagonal and G = sum x x', the bonus
  sqrt(c x' (c I + G)^-1 x) is about 1 - x' G x / (2 c), nearly the same for all items. Recalibrated, 2 rho I is added
  once, so that widths do matter: that is why it does worse than the printed noise, at an equal epsilon, too.
- Lag: without 3 rho I determinants hardly grow, and there are far fewer uploads and downloads.
"""

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS, RECALIBRATED, SEATS, LiuOptions, worth
from curves import Curve, interval, pick, quotient, random_play
from drawing import Says, caption, headline, legend_of_all, save

import fedbandit_jax as fb

NAMES = ("CDP-FCLUB-DC", "CDP-FCLUB-DC, recalibrated")
APART: dict[str, Any] = dict(alpha_2=1e-6)  # no estimates are so near that clusters merge
GREEDY: dict[str, Any] = dict(exploration_scale=0.0)
CHANGES: dict[str, dict[str, Any]] = {  # what is removed -> how
    "": {},
    ", without merging": APART,
    ", without confidence widths": GREEDY,
    ", without merging and widths": {**APART, **GREEDY},
    ", regularised once": dict(shift="once"),
    ", regularised once, without merging and widths": {**APART, **GREEDY, "shift": "once"},
}


def measure(options: LiuOptions) -> list[Curve]:
    """Returns final regret, uploads and downloads, and clusters of all seeds, for each epsilon and cause removed."""
    env, curves = options.instance(), []
    run = options.run(500, 100_000, 131_070)
    horizon = run["horizon"]
    for epsilon in options.pick((1.0,), (1.0, 10.0), (1.0, 10.0)):
        every = options.methods(fb.privacy.Budget(epsilon, 0.1))
        algos = {name: every[name] for name in ("FCLUB-DC", "LinUCB", "Homo-DC")}
        for name in NAMES:
            kept = {change: with_ for change, with_ in CHANGES.items() if name == NAMES[0] or "once" not in change}
            algos |= {f"{name}{change}": every[name].replace(**with_) for change, with_ in kept.items()}
        algos = dict(list(algos.items())[:: options.pick(4, 1, 1)])
        result = fb.sweep(env, algos, **run, store=options.store)
        given = [worth(every[name], env, horizon) for name in NAMES]
        title = "target ε = {:g}; noise alone ε = {:.2g}, recalibrated {:.2g}".format(epsilon, *given)
        for label in result:
            one = result[label]
            values = (one.regret, one.communication["rounds"], one.gauges["clusters"])
            look = fb.plotting.colour(one)
            curves.append(Curve(title, label, [0, 1, 2], np.stack([value[:, -1] for value in values]), look))
        random = random_play(env, options.seed) * horizon
        curves.append(Curve(title, "uniform play", [0], [random], note=f"{horizon:,}"))
    return curves


def look(label: str) -> str:
    """Returns the colour of a bar, which is that of the algorithm without what is removed."""
    return next(LOOKS[name] for name in (*reversed(NAMES), label) if label.startswith(name)).split()[0]


def helps(final: dict[str, np.ndarray]) -> str:
    """Returns what lowers the regret of the first private method if it is removed, with 95 % confidence."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for change in list(CHANGES)[1:]:
        mean, half = interval(final[NAMES[0]] - final[NAMES[0] + change])
        found[mean > half].append(f"{change[2:]} {mean:,.0f} ± {half:,.0f}" if mean > half else change[2:])
    return f"less regret by (95 %): {'; '.join(found[True]) or 'none'}; not seen: {'; '.join(found[False]) or 'none'}"


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_why", lambda: measure(options))
    titles = list(dict.fromkeys(one.panel for one in curves))
    figure, axes = plt.subplots(1, len(titles), figsize=(11.0, 6.2), sharey=True, squeeze=False)
    seen, better = [], []
    for letter, title, ax in zip("ab", titles, axes[0]):
        *bars, played = pick(curves, title)
        random, names = played.y[0, 0], [textwrap.fill(one.label, 32, break_on_hyphens=False) for one in bars]
        ends = 1.42, 1.7  # of columns, in widths of the bar of uniform play
        for i, one in enumerate(bars):
            (mean, sent, clusters), error = one.mean, one.error[0]
            ax.barh(i, mean, xerr=error, color=look(one.label), height=0.7)
            for end, text in zip(ends, (f"{mean:,.0f} ± {error:,.0f}", f"{clusters:.0f}")):
                ax.text(end * random, i, text, va="center", ha="right", fontsize="small")
            print(f"{title}, {one.label}: {mean:,.0f} ± {error:,.0f}, {sent:,.0f} sent, {clusters:.1f} clusters")
        for end, text in zip(ends, ("regret at T", "clusters at T\n(true: 4)")):
            ax.text(end * random, -0.65, text, va="bottom", ha="right", fontsize="small")
        ax.axvline(random, color="#999999", linestyle="-.", label=f"uniform play: {random:,.0f}")
        ax.set(yticks=np.arange(len(bars)), xlim=(0, 1.73 * random), ylim=(len(bars) - 0.4, -1.7))
        ax.set_yticklabels(names, fontsize="small")
        ax.set_xticks((0, 10_000, 20_000))
        ax.set_xlabel("regret at T", x=0.5 / 1.73)
        ax.set_title(f"({letter}) {title}")
        final = {one.label: one.y[0] for one in bars}
        private = [name for name in final if name.startswith(NAMES)]
        if {NAMES[0] + change for change in CHANGES} <= final.keys():
            linear = final["LinUCB"]
            label = f"LinUCB: {linear.mean():,.0f}"
            ax.axvline(linear.mean(), color=look("LinUCB"), linewidth=1, label=label, zorder=5)
            least = min(private, key=lambda name: final[name].mean())
            ratios = [quotient(final[name], linear) for name in (NAMES[0], least)]
            better.append(ratios[0][0] < 1)
            words = "{:.1f} ± {:.1f} times LinUCB".format(*ratios[0])
            words += f"; {helps(final)}; the least of all has {least}, " + "{:.1f} ± {:.1f} times LinUCB".format(
                *ratios[1]
            )
            seen.append(f"({letter}) {title.split(';')[0]}: {words}")
    legend_of_all(figure)
    horizon, n_seeds = pick(curves, label="uniform play")[0].note, curves[0].n_seeds
    where = f"n = 40, m = 4 {SEATS['consecutive']}, L = 5, K = 10, d = 10, δ = 0.1, T = {horizon}"
    headline(
        figure,
        "CDP-FCLUB-DC without merging and widths loses less",
        f"Liu et al. (2022), CDP-FCLUB-DC without some of its parts: {where}\n"
        f"mean of {n_seeds} seeds ± 1 standard error; CDP-FCLUB-DC: no privacy claim; others: not private",
    )
    claim = "CDP-FCLUB-DC beats LinUCB and is a little worse than FCLUB-DC"
    words = f"{'yes' if all(better) else 'in part' if any(better) else 'no'}: {'. '.join(seen)}. Regularised once: "
    words += f"2ρI once in place of 3ρI at every upload. {RECALIBRATED}"
    caption(figure, "Liu et al. (2022)", Says("Fig. 2(a)", claim, f"T=10^5, 10 seeds; {n_seeds} seeds here", words))
    save("liu2022_why", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
