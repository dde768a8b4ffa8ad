"""Measures the rates of Theorems 1 and 2 of Liu et al. (2022) for FCLUB-DC, which has no noise.

Theorem 1: regret is n log T + L d √(m T) up to logarithms (10). Theorem 2: there are O(d m L log T) uploads and
downloads. (a), (c) Over time. (b), (d) One of n, m, d, L varies. Grey lines are the bounds.
"""

from functools import partial

import numpy as np
from clusters import LOOKS, SEATS, LiuOptions, between, doublings
from curves import Curve, exponent, final, mean_error, pick, pm, sent, standing, the
from drawing import LOGS, Axes, Panel, Picture, Says, dressed, main, slope

import fedbandit_jax as fb

VALUES = {  # letter -> parameter, the authors' value, values, colour of no method here
    "n": ("n_users", 40, (20, 40, 80, 160), "#882255 - o"),
    "m": ("n_clusters", 4, (2, 4, 8), "#009E73 - s"),
    "d": ("dim", 10, (5, 10, 20), "#E69F00 - ^"),
    "L": ("n_servers", 5, (2, 5, 10), "#CC79A7 - v"),
}
BOUNDS = {("a", "FCLUB-DC"): 0.5, ("a", "CDP-FCLUB-DC"): 0.5}
BOUNDS |= {("b", "n"): 1, ("b", "m"): 0.5, ("b", "d"): 1, ("b", "L"): 1, ("d", "m"): 1, ("d", "d"): 1, ("d", "L"): 1}
SHOWN = ("FCLUB-DC", "CDP-FCLUB-DC", "LinUCB")


def measure(options: LiuOptions) -> list[Curve]:
    run = options.run(500, 100_000, 131_070, stride="log")
    long = options.run(500, 131_070, 1_048_574, stride="log")
    points, ends, curves = doublings(long["horizon"], 7, 0.25), doublings(long["horizon"], 7), []
    for name in SHOWN:
        one = fb.simulate(options.instance(), options.methods()[name], **long)
        curves.append(Curve("a", name, points, between(one.rounds, one.regret, points), LOOKS[name]))
        counts = standing(one.rounds, one.communication["rounds"], ends)
        curves.append(Curve("c", name, ends, counts, LOOKS[name]))
    for letter, (parameter, _, values, look) in VALUES.items():
        values = values[: options.pick(2, 9, 9)]
        envs = [options.instance(**{parameter: value}) for value in values]
        runs = [fb.simulate(env, fb.algos.FCLUB(), **run) for env in envs]
        curves += [Curve(panel, letter, values, [*map(y, runs)], look) for panel, y in (("b", final), ("d", sent))]
    return [*curves, Curve("words", "T", [0], [run["horizon"]])]


def fitted(one: Curve) -> tuple[float, float]:
    """Returns the exponent of a curve, over time from a tenth of T on."""
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


def varied(curves: list[Curve], letter: str, low: float, ylabel: str, horizon: float) -> Panel:
    """Returns the panel against multiples of the authors' values, with the bounds as lines at the side."""
    home = the(curves, letter, "d")
    middle = low * home.mean[home.x == VALUES["d"][1]].sum()

    def bounds(ax: Axes) -> None:
        slope(ax, 1, (1.3, 3.9), middle, f"exponent 1: bound of {'n' if letter == 'b' else 'm'}, d, L")
        if letter == "b":
            ends = (middle, middle * 3**0.5)
            ax.plot((1.3, 3.9), ends, "--", color="#BBBBBB", label="exponent 1/2: bound of m")

    ones = []
    for one in pick(curves, letter):
        label = f"{one.label}: {pm(*fitted(one))}"
        ones.append(one.but(x=one.x / VALUES[one.label][1], label=label, style=VALUES[one.label][3]))
    words = f"{ylabel} of FCLUB-DC at T = {horizon:,.0f}", "multiple of n = 40, m = 4, d = 10, L = 5", ylabel
    ticks = {0.5: "1/2", 1: "1", 2: "2", 4: "4"}
    return Panel(ones, *words, spread=0.04, xticks=ticks, inside=True, also=bounds, **LOGS)


def picture(curves: list[Curve]) -> Picture:
    curves, horizon = dressed(curves, LOOKS), the(curves, "words").y[0, 0]
    first, n = curves[0], curves[0].n_seeds
    sent = [one.but(x=one.x[1:], y=np.diff(one.y, axis=0)) for one in pick(curves, "c") if one.label != "LinUCB"]
    over = [one.but(label=f"{one.label}: {pm(*fitted(one))}") for one in pick(curves, "a")]
    panel, many = partial(Panel, xlabel="round $t$", inside=True, **LOGS), "uploads and downloads"
    shown = [
        panel(over, f"regret up to T = {first.x[-1]:,.0f}", ylabel="regret"),
        varied(curves, "b", 0.37, "regret", horizon),
        panel(sent, f"{many} in (t/2, t]", ylabel=many, label=""),
        varied(curves, "d", 0.2, many, horizon),
    ]
    shown[0].also = lambda ax: slope(ax, 0.5, first.x[[0, -1]], 0.7 * first.mean[0], "exponent 1/2")
    last = np.diff(the(curves, "c", "CDP-FCLUB-DC").y, axis=0)[-2:]
    more = " and ".join(pm(*mean_error(values), digits=0) for values in last)
    claims = (
        ("Theorem 1", "regret is at most of order √T in T", "a", ""),
        ("Theorem 1", "regret grows at most as n, as √m, d and L", "b", ""),
        ("Theorem 2", "uploads and downloads grow at most as d, m and L", "d", f". The last doublings have {more} (c)"),
    )
    ours = f"asymptotic; {n} seeds here"
    return Picture(
        shown,
        "Regret and uploads against Theorems 1 and 2",
        f"{SEATS['consecutive']}, K = 10. Mean of {n} seeds ± one standard error. Legends have exponents ± half of "
        "their 95 % intervals, in (a) in (T/10, T]. Dotted: target ε = 1, no privacy claim; solid: not private",
        [Says(where, claim, ours, f"{against(curves, panel)} ({panel}){rest}") for where, claim, panel, rest in claims],
        shape=(2, 2),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
