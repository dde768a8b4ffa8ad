"""Measures the rates of Theorems 1 and 2 of Liu et al. (2022) for FCLUB-DC, which has no noise.

python experiments/liu2022_rates.py [--smoke | --full]

Theorem 1: regret is n log T (until clusters are found) + L d sqrt(m T) up to logarithms (10). Theorem 2: there are O(d
m L log T) uploads and downloads. (a) and (c) draw both over time, with the exponent of T between T/10 and T, and how
many uploads and downloads each doubling of t brings, which O(log T) bounds. (b) and (d) vary one of n, m, d, L around
the authors' instance, as multiples of its value; the legend has the exponents of the least squares lines through
logarithms, and grey lines those of the bounds, at the side.
"""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS as COLOURED
from clusters import SEATS, LiuOptions
from curves import Curve, exponent, mean_error, pick, standing
from drawing import Says, caption, headline, legend_below, save, slope

import fedbandit_jax as fb

VALUES = {
    "n": ("n_users", (20, 40, 80, 160)),
    "m": ("n_clusters", (2, 4, 8)),
    "d": ("dim", (5, 10, 20)),
    "L": ("n_servers", (2, 5, 10)),
}
HOME = {"n": 40, "m": 4, "d": 10, "L": 5}
BOUNDS = {("a", "FCLUB-DC"): 0.5, ("a", "CDP-FCLUB-DC"): 0.5}
BOUNDS |= {("b", "n"): 1, ("b", "m"): 0.5, ("b", "d"): 1, ("b", "L"): 1, ("d", "m"): 1, ("d", "d"): 1, ("d", "L"): 1}
LOOKS = {name: COLOURED[name] for name in ("FCLUB-DC", "CDP-FCLUB-DC", "LinUCB")}
PARAMETERS = {
    "n": "#882255 - o",
    "m": "#009E73 - s",
    "d": "#E69F00 - ^",
    "L": "#CC79A7 - v",
}  # colours of no method here


def measure(options: LiuOptions) -> list[Curve]:
    """Returns regret over time, and regret, uploads and downloads at T against each parameter, of all seeds."""
    run = {**options.run(500, 100_000, 131_070), "stride": "log"}
    long = {**run, "horizon": options.pick(500, 131_070, 1_048_574)}
    env, every, curves = options.instance(), options.methods(fb.privacy.Budget(1.0, 0.1)), []
    for name in LOOKS:
        one = fb.simulate(env, every[name], **long, store=options.store)
        points, ends = long["horizon"] / 2.0 ** np.arange(0, 7, 0.25)[::-1], long["horizon"] / 2.0 ** np.arange(7)[::-1]
        regret = np.transpose([np.interp(points, one.rounds, seed) for seed in one.regret])
        curves.append(Curve("a", name, points, regret, LOOKS[name]))
        sent = standing(one.rounds, one.communication["rounds"], ends)
        curves.append(Curve("c", name, ends, sent, LOOKS[name]))
        print(f"{name}: {one.regret[:, -1].mean():,.0f}", flush=True)
    for letter, (parameter, values) in VALUES.items():
        values = values[: options.pick(2, 9, 9)]
        runs = [
            fb.simulate(options.instance(**{parameter: value}), fb.algos.FCLUB(), **run, store=options.store)
            for value in values
        ]
        look = PARAMETERS[letter]
        curves.append(Curve("b", letter, values, np.stack([one.regret[:, -1] for one in runs]), look))
        curves.append(Curve("d", letter, values, np.stack([one.communication["rounds"][:, -1] for one in runs]), look))
        print(f"{letter} in {values}: {', '.join(f'{mean:,.0f}' for mean in curves[-2].mean)}", flush=True)
    return [*curves, Curve("words", "T", [0], [run["horizon"]])]


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_rates", lambda: measure(options))
    looks = {**LOOKS, **PARAMETERS}
    curves = [dataclasses.replace(one, style=looks.get(one.label, one.style)) for one in curves]
    horizon = pick(curves, "words")[0].y[0, 0]
    figure, grid = plt.subplots(2, 2, figsize=(11.0, 8.8))
    axes = grid.ravel()
    powers: dict[tuple[str, str], tuple[float, float]] = {}
    for ax, panel in zip(axes, "abcd"):
        for i, one in enumerate(pick(curves, panel)):
            colour, line, mark = one.style.split()
            if panel == "c":
                if one.label == "LinUCB":
                    continue
                one = Curve("c", one.label, one.x[1:], np.diff(one.y, axis=0))
                label = one.label
            else:
                last = (one.x > one.x[-1] / 10.1) if panel == "a" else slice(None)
                power, half = exponent(one, last)
                powers[panel, one.label] = power, half
                label = f"{one.label}: {power:.2f} ± {half:.2f}"
            x = one.x / HOME.get(one.label, 1) * (1.04 ** (i - 1.5) if panel in "bd" else 1)
            ax.errorbar(x, one.mean, one.error, fmt=mark + line, color=colour, label=label, capsize=2, markersize=4)
            print(f"({panel}) {label}: ", end="")
            print(", ".join(f"{x:,.0f}: {m:,.0f} ± {e:,.0f}" for x, m, e in zip(one.x, one.mean, one.error)))
        ax.set(xscale="log", yscale="log")
    (a, b, c, d), (first, *_) = axes, pick(curves, "a")
    slope(a, 0.5, first.x[[0, -1]], 0.7 * first.mean[0], "exponent 1/2")
    for ax in (b, d):
        home = pick(curves, "bd"[ax is d], "d")[0]
        middle = home.mean[home.x == HOME["d"]].sum()
        ends, low = (1.3, 3.9), (0.37 if ax is b else 0.2) * middle
        slope(ax, 1, ends, low, f"exponent 1: bound of {'n, d, L' if ax is b else 'm, d, L'}")
        if ax is b:
            ax.plot(ends, low * np.sqrt([1, 3]), "--", color="#999999", label="exponent 1/2: bound of m")
    multiple = "multiple of " + ", ".join(f"{letter} = {value}" for letter, value in HOME.items())
    a.set(title=f"(a) regret up to T = {first.x[-1]:,.0f}", xlabel="round $t$")
    b.set(title=f"(b) regret of FCLUB-DC at T = {horizon:,.0f}", xlabel=multiple)
    c.set(title="(c) uploads and downloads in (t/2, t]", xlabel="round $t$")
    d.set(title=f"(d) uploads and downloads of FCLUB-DC at T = {horizon:,.0f}", xlabel=multiple)
    for ax in axes:
        ax.set_title(ax.get_title())
        ax.set_ylabel("regret" if ax in (a, b) else "uploads and downloads")
        legend_below(ax, ncols=2)
        ax.xaxis.minorticks_off()
    for ax in (b, d):
        ax.set_xticks((0.5, 1, 2, 4), ("1/2", 1, 2, 4))
    n_seeds = first.n_seeds
    headline(
        figure,
        "Regret and uploads against Theorems 1 and 2",
        f"Liu et al. (2022), rates of Theorems 1 and 2: {SEATS['consecutive']}, K = 10; mean of {n_seeds} seeds ± 1 "
        "standard error\nlegends: exponents ± half of their 95 % intervals, (a) in (T/10, T]; dotted: target ε = 1, no "
        "privacy claim; solid: not private",
    )

    def found(panel: str) -> str:
        """Returns the exponents of a panel against their bounds, with the verdict first."""
        words: dict[str, list[str]] = {"faster than its bound": [], "within its bound": [], "consistent with it": []}
        for (where, label), (power, half) in powers.items():
            if bound := BOUNDS.get((where, label)) if where == panel else None:
                kind = int(power - half <= bound) + int(power - half <= bound < power + half)
                words[list(words)[kind]].append(f"{label} {power:.2f} ± {half:.2f} (bound {bound:g})")
        faster, within, open_ = words.values()
        whole = "in part" if faster and within + open_ else "no" if faster else "consistent" if open_ else "yes"
        return f"{whole}: " + "; ".join(f"{word}: {', '.join(those)}" for word, those in words.items() if those)

    last = np.diff(pick(curves, "c", "CDP-FCLUB-DC")[0].y, axis=0)[-2:]
    pairs = (number for values in last for number in mean_error(values))
    more = "(c) CDP-FCLUB-DC has {:,.0f} ± {:,.0f} and {:,.0f} ± {:,.0f} in the last two doublings".format(*pairs)
    ours = f"asymptotic; {n_seeds} seeds here"
    says = (
        Says(
            "Theorem 1", "regret is at most of order √T in T", ours, f"{found('a')} (a), exponents with 95 % intervals"
        ),
        Says("Theorem 1", "regret grows at most as n, as √m, d and L", "the same", f"{found('b')} (b; set apart)"),
        Says(
            "Theorem 2",
            "uploads and downloads grow at most as d, m and L",
            "the same",
            f"{found('d')} (d). In {more} (± 1 standard error)",
        ),
    )
    caption(figure, "Liu et al. (2022)", *says)
    save("liu2022_rates", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
