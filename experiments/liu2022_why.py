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
from curves import Curve, mean_error, pick, quotient, random_play, verdict
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
    "printed": "as printed",
    "as it is": "unchanged",
    "no width": "no widths",
    "neither": "no merging, no widths",
    "2ρI once, no 3ρI": "one shift",
    "2ρI once, neither": "one shift, no merging, no widths",
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


def in_words(label: str) -> str:
    """Returns the name of a bar: whose noise, and what is removed."""
    return ": ".join(WORDS.get(part, part) for part in label.split(": "))


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_why", lambda: measure(options))
    titles = list(dict.fromkeys(one.panel for one in curves))
    figure, axes = plt.subplots(1, len(titles), figsize=(11.0, 5.6), layout="constrained", sharey=True, squeeze=False)
    seen = []
    for letter, title, ax in zip("ab", titles, axes[0]):
        *bars, played = pick(curves, title)
        random, names = played.y[0, 0], [in_words(one.label) for one in bars]
        ends = 1.7, 2.1, 2.5  # of columns, in widths of the bar of random play
        for i, one in enumerate(bars):
            (mean, sent, clusters), error = one.mean, one.error[0]
            hatch = "///" if "less" in one.label else ""
            ax.barh(i, mean, xerr=error, color=one.style, hatch=hatch, edgecolor="white")
            for end, text in zip(ends, (f"{mean:,.0f} ± {error:,.0f}", f"{sent:,.0f}", f"{clusters:.0f}")):
                ax.text(end * random, i, text, va="center", ha="right", fontsize="small")
            print(f"{title}, {names[i]}: {mean:,.0f} ± {error:,.0f}, {sent:,.0f} sent, {clusters:.1f} clusters")
        for end, text in zip(ends, ("regret at T", "sent", "clusters")):
            ax.text(end * random, -0.9, text, va="center", ha="right", fontsize="small")
        ax.axvline(random, color="#999999", linestyle=":", label=f"random play: {random:,.0f}")
        ax.set(yticks=np.arange(len(bars)), xlim=(0, 2.53 * random), ylim=(len(bars) - 0.4, -1.4))
        ax.set_yticklabels(names, fontsize="small")
        ax.set_xticks((0, 10_000, 20_000))
        ax.set_xlabel("regret at T", x=0.5 / 2.53)
        ax.set_title(f"({letter}) {title.replace('printed', 'as printed')}", fontsize="medium")
        final = {name: one.y[0] for name, one in zip(names, bars)}
        private = {name: regret for name, regret in final.items() if ": " in name}
        parts = [f"{name} {{:,.0f}} ± {{:,.0f}}".format(*mean_error(regret)) for name, regret in private.items()]
        if private and "LinUCB" in final:
            least, linear = min(private, key=lambda name: private[name].mean()), final["LinUCB"]
            parts.append("LinUCB {:,.0f} ± {:,.0f}".format(*mean_error(linear)))
            parts.append(
                f"the least is {least}, {{:.1f}} ± {{:.1f}} times LinUCB".format(*quotient(final[least], linear))
            )
            printed = next(iter(private))
            parts.append(f"{printed} < LinUCB {verdict(final[printed], linear)} (95 %)")
        seen.append(f"({letter}) {title.split(';')[0]}: {'; '.join(parts)}")
    legend_of_all(figure)
    horizon, n_seeds = pick(curves, label="random play")[0].note, curves[0].n_seeds
    figure.suptitle(
        f"Liu et al. (2022): n = 40, m = 4 (consecutive seats), L = 5, K = 10, d = 10, δ = 0.1, T = {horizon}; "
        f"{n_seeds} seeds ± 1 standard error\norange: CDP-FCLUB-DC with causes removed, no privacy claim (less noise: "
        "hatched); worth: ε of its noise alone; sent: uploads and downloads",
        fontsize="medium",
    )
    claim = "CDP-FCLUB-DC beats LinUCB and is a little worse than FCLUB-DC"
    words = ". ".join(seen)
    caption(figure, "Liu et al. (2022)", Says("Fig. 2(a)", claim, f"T=10^5, 10 seeds; {n_seeds} seeds here", words))
    save("liu2022_why", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
