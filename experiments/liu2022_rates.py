"""Measures the rates of Theorems 1 and 2 of Liu et al. (2022) for FCLUB-DC, which has no noise.

python experiments/liu2022_rates.py [--smoke | --full]

Theorem 1: regret is n log T (until clusters are found) + L d sqrt(m T) up to logarithms (10). Theorem 2: there are O(d
m L log T) uploads and downloads. (a) and (c) draw both over time, with the exponent of T between T/10 and T, and how
many uploads and downloads each doubling of t brings, which O(log T) bounds. (b) and (d) vary one of n, m, d, L around
the authors' instance, as multiples of its value; the legend has the exponents of the least squares lines through
logarithms, and grey lines those of the bounds, at the side.
"""

from typing import Any

import numpy as np
from clusters import LOOKS, SEATS, LiuOptions
from curves import Curve, exponent, final, mean_error, pick, pm, standing, the
from drawing import Panel, Picture, Says, dressed, main, slope
from matplotlib.axes import Axes

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
SHOWN = ("FCLUB-DC", "CDP-FCLUB-DC", "LinUCB")
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
    for name in SHOWN:
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
        curves.append(Curve("b", letter, values, [final(one) for one in runs], look))
        curves.append(Curve("d", letter, values, [one.communication["rounds"][:, -1] for one in runs], look))
        print(f"{letter} in {values}: {', '.join(f'{mean:,.0f}' for mean in curves[-2].mean)}", flush=True)
    return [*curves, Curve("words", "T", [0], [run["horizon"]])]


def fitted(one: Curve) -> tuple[float, float]:
    """Returns the exponent of a curve, over time that of the last tenth."""
    return exponent(one, one.x > one.x[-1] / 10.1 if one.panel == "a" else slice(None))


def against(curves: list[Curve], panel: str) -> str:
    """Returns the exponents of a panel against their bounds, with the verdict first."""
    words: dict[str, list[str]] = {"faster than its bound": [], "within its bound": [], "consistent with it": []}
    for one in pick(curves, panel):
        if bound := BOUNDS.get((panel, one.label)):
            power, half = fitted(one)
            kind = int(power - half <= bound) + int(power - half <= bound < power + half)
            words[list(words)[kind]].append(f"{one.label} {pm(power, half)} (bound {bound:g})")
    faster, within, open_ = words.values()
    whole = "in part" if faster and within + open_ else "no" if faster else "consistent" if open_ else "yes"
    return f"{whole}: " + "; ".join(f"{word}: {', '.join(those)}" for word, those in words.items() if those)


def picture(curves: list[Curve]) -> Picture:
    curves, horizon = dressed(curves, {**LOOKS, **PARAMETERS}), the(curves, "words").y[0, 0]
    first, n = curves[0], curves[0].n_seeds
    log: dict[str, Any] = dict(xscale="log", yscale="log")
    sent = [one.but(x=one.x[1:], y=np.diff(one.y, axis=0)) for one in pick(curves, "c") if one.label != "LinUCB"]
    over = [one.but(label=f"(a) {one.label}: {pm(*fitted(one))}") for one in pick(curves, "a")]
    shown = [
        Panel(over, f"regret up to T = {first.x[-1]:,.0f}", "round $t$", "regret", **log),
        Panel([], f"regret of FCLUB-DC at T = {horizon:,.0f}", "", "regret", **log),
        Panel(sent, "uploads and downloads in (t/2, t]", "round $t$", "uploads and downloads", label="", **log),
        Panel([], f"uploads and downloads of FCLUB-DC at T = {horizon:,.0f}", "", "uploads and downloads", **log),
    ]
    shown[0].also = lambda ax: slope(ax, 0.5, first.x[[0, -1]], 0.7 * first.mean[0], "(a) exponent 1/2")
    for panel, letter, low in ((shown[1], "b", 0.37), (shown[3], "d", 0.2)):
        ones, home = pick(curves, letter), the(curves, letter, "d")
        panel.curves = [
            one.but(x=one.x / HOME[one.label], label=f"({letter}) {one.label}: {pm(*fitted(one))}") for one in ones
        ]
        panel.spread, panel.axes["xlabel"] = 0.04, "multiple of n = 40, m = 4, d = 10, L = 5"
        panel.xticks, middle = {0.5: "1/2", 1: "1", 2: "2", 4: "4"}, low * home.mean[home.x == HOME["d"]].sum()

        def bounds(ax: Axes, letter: str = letter, middle: float = middle) -> None:
            slope(ax, 1, (1.3, 3.9), middle, f"({letter}) exponent 1: bound of {'n' if letter == 'b' else 'm'}, d, L")
            if letter == "b":
                ax.plot(
                    (1.3, 3.9), (middle, middle * 3**0.5), "--", color="#BBBBBB", label="(b) exponent 1/2: bound of m"
                )

        panel.also = bounds
    last = np.diff(the(curves, "c", "CDP-FCLUB-DC").y, axis=0)[-2:]
    more = " and ".join(pm(*mean_error(values), digits=0) for values in last)
    ours = f"asymptotic; {n} seeds here"
    claims = (
        ("Theorem 1", "regret is at most of order √T in T", "a", ""),
        ("Theorem 1", "regret grows at most as n, as √m, d and L", "b", ""),
        ("Theorem 2", "uploads and downloads grow at most as d, m and L", "d", f". The last doublings have {more} (c)"),
    )
    return Picture(
        shown,
        "Regret and uploads against Theorems 1 and 2",
        f"{SEATS['consecutive']}, K = 10. Mean of {n} seeds ± one standard error. Legends have exponents ± half of "
        "their 95 % intervals, in (a) in (T/10, T]. Dotted: target ε = 1, no privacy claim; solid: not private",
        [Says(where, claim, ours, f"{against(curves, panel)} ({panel}){rest}") for where, claim, panel, rest in claims],
        height=6.2,
        shape=(2, 2),
        ncols=4,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
