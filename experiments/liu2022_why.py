"""Shows why CDP-FCLUB-DC of Liu et al. (2022) fails once its noise is really added: one cause removed at a time.

python experiments/liu2022_why.py [--smoke | --full]

The instance is that of Figure 2 (a), and epsilon = 1 or 10 is asked for. Bars are regret at T, with the standard error.

- Merging: noisy estimates of all local clusters are near 0, so that all merge; but Homo-DC, which merges everybody
  without noise, does better than what is left.
- Width: beta grows with the root of what is added to the diagonal, and with the noise on sum x y.
- Shift: the 3 rho I that is added at every upload hides the width. With c I on the diagonal and G = sum x x', the bonus
  sqrt(c x' (c I + G)^-1 x) is about 1 - x' G x / (2 c), nearly the same for all items. "Less noise" adds 2 rho I once,
  so that its widths do matter: that is why it does worse than the printed noise, at an equal worth, too.
- Lag: without 3 rho I determinants hardly grow, and there are far fewer uploads and downloads.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LiuOptions, worth
from curves import Curve, mean_error, pick, random_play, verdict
from drawing import Says, caption, legend_of_all, save

import fedbandit_jax as fb

APART: dict[str, Any] = dict(alpha_2=1e-6)  # no estimates are so near that clusters merge
GREEDY: dict[str, Any] = dict(exploration_scale=0.0)
CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no merging": APART,
    "no width": GREEDY,
    "neither": {**APART, **GREEDY},
    "2ρI once, no 3ρI": dict(shift="once"),
    "2ρI once, neither": {**APART, **GREEDY, "shift": "once"},
}

WORDS = {
    "as it is": "unchanged",
    "no width": "no widths",
    "neither": "neither of both",
    "2ρI once, no 3ρI": "shifted once",
    "2ρI once, neither": "shifted once, neither of both",
}


def measure(options: LiuOptions) -> list[Curve]:
    """Returns final regret, uploads and downloads, and clusters of all seeds, for each epsilon and cause removed."""
    env, curves = options.instance(), []
    run = {**options.run(500, 100_000, 131_070), "seeds": options.pick(2, 5, 10)}
    horizon = run["horizon"]
    for epsilon in options.pick((1.0,), (1.0, 10.0), (1.0, 10.0)):
        every = options.methods(fb.privacy.Budget(epsilon, 0.1))
        algos = {name: every[name] for name in ("FCLUB-DC", "LinUCB", "Homo-DC")}
        given = {}
        for name, short in (("CDP-FCLUB-DC", "printed"), ("CDP-FCLUB-DC, less noise", "less noise")):
            given[short] = worth(every[name], env, horizon)
            kept = {change: with_ for change, with_ in CHANGES.items() if short == "printed" or "once" not in change}
            algos |= {f"{short}: {change}": every[name].replace(**with_) for change, with_ in kept.items()}
        algos = dict(list(algos.items())[:: options.pick(4, 1, 1)])
        result = fb.sweep(env, algos, **run, store=options.store)
        worths = ", ".join(f"{short} worth {value:.2g}" for short, value in given.items())
        title = f"ε = {epsilon:g} asked; {worths}"
        for label in result:
            one = result[label]
            values = (one.regret, one.communication["rounds"], one.gauges["clusters"])
            look = fb.plotting.colour(one)
            curves.append(Curve(title, label, [0, 1, 2], np.stack([value[:, -1] for value in values]), look))
        random = random_play(env, options.seed) * horizon
        curves.append(Curve(title, "random play", [0], [random], note=f"{horizon:,}"))
    return curves


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_why", lambda: measure(options))
    titles = list(dict.fromkeys(one.panel for one in curves))
    figure, axes = plt.subplots(1, len(titles), figsize=(11.0, 5.6), layout="constrained", sharey=True, squeeze=False)
    seen = []
    for title, ax in zip(titles, axes[0]):
        *bars, played = pick(curves, title)
        random, final = played.y[0, 0], {one.label: one.y[0] for one in bars}
        print(title)
        for i, one in enumerate(bars):
            (mean, sent, clusters), error = one.mean, one.error[0]
            hatch = "///" if "less" in one.label else ""
            ax.barh(i, mean, xerr=error, color=one.style, hatch=hatch, edgecolor="white")
            for place, text in zip(
                (1.62, 2.02, 2.4), (f"{mean:,.0f} ± {error:,.0f}", f"{sent:,.0f}", f"{clusters:.0f}")
            ):
                ax.text(place * random, i, text, va="center", ha="right", fontsize="small")
            print(f"{one.label}: {mean:,.0f} ± {error:,.0f}, {sent:,.0f} sent, {clusters:.1f} clusters")
        for place, text in zip((1.62, 2.02, 2.4), ("regret", "sent", "clusters")):
            ax.text(place * random, -0.9, text, va="center", ha="right", fontsize="small")
        ax.axvline(random, color="#999999", linestyle=":", label=f"random play: {random:,.0f}")
        names = [": ".join(WORDS.get(part, part) for part in one.label.split(": ")) for one in bars]
        ax.set(yticks=np.arange(len(bars)), xlim=(0, 2.43 * random), ylim=(len(bars) - 0.4, -1.4))
        ax.set_yticklabels(names, fontsize="small")
        ax.set(xticks=(0, 10_000, 20_000), xlabel="regret at T")
        ax.set_title(title, fontsize="medium")
        parts = [
            f"{label.removeprefix('printed: ')} " + "{:,.0f} ± {:,.0f}".format(*mean_error(final[label]))
            for label in ("printed: as it is", "printed: no merging", "printed: no width", "printed: neither", "LinUCB")
            if label in final
        ]
        if "LinUCB" in final and "printed: as it is" in final:
            parts.append(f"as it is < LinUCB {verdict(final['printed: as it is'], final['LinUCB'])} (95 %)")
        seen.append(f"{title.split(';')[0]}: {', '.join(parts)}")
    legend_of_all(figure)
    horizon, n_seeds = pick(curves, label="random play")[0].note, curves[0].n_seeds
    figure.suptitle(
        f"n = 40, m = 4 (consecutive seats), L = 5, K = 10, d = 10, δ = 0.1, T = {horizon}; {n_seeds} seeds ± 1 "
        "standard error\nred: CDP-FCLUB-DC, causes removed, no privacy claim; titles: what its noise is worth, in ε",
        fontsize="medium",
    )
    claim = "CDP-FCLUB-DC beats LinUCB and is a little worse than FCLUB-DC"
    words = "; ".join(seen)
    caption(figure, "Liu et al. (2022)", Says("Fig. 2(a)", claim, f"T=10^5, 10 seeds; {n_seeds} seeds here", words))
    save("liu2022_why", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
