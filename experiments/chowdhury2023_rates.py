"""Measures the rates of Theorems 1 to 6 of Chowdhury & Zhou (2023), with the radii of Lemma 2.

python experiments/chowdhury2023_rates.py [--smoke]

Panels (a) to (e) have final regret against one quantity, with the slope of a line through the filled points, in
logarithms; in (a) and (b) the regret of SE, which is not private, is subtracted, so that the cost of privacy is left:

(a) 1/epsilon: the privacy cost K log T / epsilon, and 1 / epsilon^2 with local trust;
(b) log T, which is L = ln(2 K b^2 / p) with p = 1/T in batch b = 20: K log T / epsilon under pure DP, and
    K sqrt(log T) / epsilon under Renyi DP with large s and under concentrated DP, where privacy dominates;
(c) K - 1, of K arms of which all but one have the same gap;
(d) the gap: log T / gap without privacy; K log T / epsilon, whatever the gap, where privacy dominates;
(e) T, at the gap that is worst for it (p = 1/T): sqrt(K T log T) + K log T / epsilon;
(f) batches, of which there are O(log T).
"""

from typing import Any

import numpy as np
from arms import ArmsSize, elimination, verdict
from curves import POINTS, Curve, final, mean_error, pick, pm, the
from drawing import Panel, Picture, Says, main, styled
from drawing import slope as reference
from matplotlib.axes import Axes

import fedbandit_jax as fb

SPREAD = [0.8, *(0.8 - np.geomspace(0.1, 0.5, 9))]  # means of K = 10 arms: gaps from 0.1 to 0.5
ARMS = (2, 4, 8, 16, 32, 64)
GAPS = tuple(0.5 * 2.0**-i for i in range(9))
EPSILONS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
LOCAL = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FAILURES = (1e-2, 1e-4, 1e-6, 1e-9, 1e-13, 1e-18, 1e-25)
PRIVATE = ("Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-RDP-SE (s=100)", "Dist-CDP-SE (s=10)")


def called(name: str, epsilon: float | None) -> str:
    """Returns the label of an algorithm at an epsilon."""
    return name if epsilon is None else f"{name}, ε = {epsilon}"


LOOKS = {  # colour of the algorithm, lighter for another s, and a mark of its own where two have the same
    "CDP-SE": "#E69F00 o",
    "Shuffle-DP-SE": "#CC79A7 ^",
    "Dist-DP-SE": "#D55E00 o",
    "Dist-RDP-SE (s=10)": "#009E73 o",
    "Dist-RDP-SE (s=100)": "#7FCEB9 D",
    "Dist-CDP-SE (s=10)": "#CC79A7 s",
    "LDP-SE": "#56B4E9 o",
}
PLAIN = (("SE", None, "#000000 o"), ("Dist-DP-SE", 0.1, "#D55E00 o"), ("Dist-DP-SE", 0.01, "#F0A67A s"))
REFERENCES = {  # power and curve of the grey lines
    "a": ((1, "Dist-CDP-SE (s=10)"), (2, "LDP-SE")),
    "b": ((1, "Dist-DP-SE"), (0.5, "Dist-CDP-SE (s=10)")),
    "c": ((1, "SE"),),
    "d": ((-1, "SE"),),
    "e": ((0.5, "SE"),),
}
PANELS = {  # points that are fitted, axis, title
    "a": (slice(None, 3), "1/ε", "gaps 0.1 to 0.5, p = 0.1,\nT = 2 × 10$^7$ (LDP-SE 10$^8$)"),
    "b": (
        slice(None),
        "L = ln(2 K b$^2$ / p), b = 20",
        "gaps 0.1 to 0.5, ε = 0.01,\np from 10$^{-2}$ to 10$^{-25}$, T = 10$^8$",
    ),
    "c": (slice(None), "K - 1 arms that are not the best", "gap 0.25, p = 0.1, T = 10$^8$"),
    "d": (slice(None, 5), "gap of all arms but the best", "p = 1/T, T = 10$^8$"),
    "e": (slice(None), "T", "p = 1/T, at the gap of largest regret"),
    "f": (slice(None), "T", "gap 0.002, ε = 0.1, p = 0.1"),
}
CLAIMS = (  # where, what it says, the slope that this is, panel, curves that show it
    ("Theorems 1, 3, 5", "privacy costs K log T / ε", 1, "a", ("Dist-DP-SE", "CDP-SE", "Shuffle-DP-SE")),
    ("Theorem 6", "local trust costs log T / (ε² gap)", 2, "a", ("LDP-SE",)),
    ("Theorem 1", "the privacy cost is linear in log T", 1, "b", ("Dist-DP-SE",)),
    ("Theorems 2, 4", "it grows with sqrt(log T) for large s", 0.5, "b", PRIVATE[1:]),
    ("Theorem 1", "regret is linear in K", 1, "c", ("Dist-DP-SE, ε = 0.05", "SE")),
    ("Theorem 1", "without privacy regret is log T / gap", -1, "d", ("SE",)),
    ("footnote 7", "regret at the worst gap grows with sqrt(T)", 0.5, "e", tuple(called(*one[:2]) for one in PLAIN)),
)
STEP = 2.0  # factor between batches, and so between the regrets that one more of them makes


def equal(n_arms: int, gap: float) -> fb.Environment:
    """Returns K arms around 0.5, of which one is better than all others by the gap."""
    return fb.envs.arms(means=[0.5 + gap / 2] + [0.5 - gap / 2] * (n_arms - 1))


def measure(options: ArmsSize) -> list[Curve]:
    """Returns final regrets of all seeds in panels a to e, and batches over T in f."""
    few, spread, curves = slice(None, 2) if options.smoke else slice(None), fb.envs.arms(means=SPREAD), []

    def keep(panel: str, label: str, x: Any, finals: np.ndarray, look: str) -> None:
        curves.append(Curve(panel, label, x, finals, look))
        print(f"({panel}) {label}: {', '.join(f'{value:.3g}' for value in curves[-1].mean)}", flush=True)

    for name in ("CDP-SE", "Shuffle-DP-SE", *PRIVATE, "LDP-SE"):
        epsilons, horizon = (LOCAL, 10**8) if name == "LDP-SE" else (EPSILONS, 2 * 10**7)
        algos = {f"{epsilon}": elimination(name, epsilon) for epsilon in epsilons[few]}
        result = fb.sweep(spread, {"SE": elimination("SE", None), **algos}, **options.arguments(horizon))
        finals = result.regret[1:, :, -1] - result["SE"].regret[:, -1]
        keep("a", name, [1 / epsilon for epsilon in epsilons[few]], finals, LOOKS[name])
    for name in PRIVATE:
        algos = {f"{label} {p}": elimination(label, 0.01, failure=p) for label in ("SE", name) for p in FAILURES[few]}
        plain, private = np.split(fb.sweep(spread, algos, **options.arguments(10**8)).regret[:, :, -1], 2)
        keep("b", name, np.log(2 * 10 * 20**2 / np.array(FAILURES[few])).tolist(), private - plain, LOOKS[name])
    for name, epsilon, look in (("SE", None, "#000000 o"), ("Dist-DP-SE", 0.05, "#D55E00 o")):
        runs = [fb.simulate(equal(n, 0.25), elimination(name, epsilon), **options.arguments(10**8)) for n in ARMS[few]]
        finals = np.stack([final(one) for one in runs])
        keep("c", called(name, epsilon), [n - 1 for n in ARMS[few]], finals, look)
    horizons = (10**6, 10**7, 10**8)[few]
    for name, epsilon, look in PLAIN:
        worst = []
        for horizon in horizons:
            algo = elimination(name, epsilon, failure=1 / horizon)
            runs = [fb.simulate(equal(10, gap), algo, **options.arguments(horizon)).regret[:, -1] for gap in GAPS[few]]
            worst.append(max(runs, key=np.mean))
            if horizon == horizons[-1]:
                keep("d", called(name, epsilon), GAPS[few], np.stack(runs), look)
        keep("e", called(name, epsilon), horizons, np.stack(worst), look)
    for name in ("SE", "Dist-DP-SE"):
        one = fb.simulate(equal(10, 0.002), elimination(name, 0.1), **options.arguments(10**8))
        at = np.unique(np.geomspace(1, len(one.rounds), POINTS).astype(int)) - 1
        keep("f", name, one.rounds[at], one.communication["rounds"][:, at].T, LOOKS.get(name, "#000000 o"))
    return curves


def slope(one: Curve, fitted: slice) -> tuple[float, float]:
    """Returns the mean over seeds of the slope in logarithms of the points that are fitted, and its error."""
    logs = np.log(one.x[fitted])
    logs = logs - logs.mean()
    mean, error = mean_error((logs @ np.log(one.y[fitted])) / (logs @ logs))
    return float(mean), float(error)


def drawn(panel: str, ones: list[Curve]) -> Panel:
    """Returns a panel, whose legend has slopes of the points that are fitted, the filled ones."""
    fitted, xlabel, title = PANELS[panel]
    named = []
    for one in ones:
        factor = panel == "d" and one.label != "SE"
        text = f"factor {span(one, fitted):.1f}" if factor else f"slope {slope(one, fitted)[0]:.2f}"
        named.append(one.but(label=f"({panel}) {one.label}" + f": {text}" * (panel != "f")))

    def also(ax: Axes) -> None:
        for one in ones if panel != "f" else ():
            colour, _, mark = styled(one)
            ax.plot(one.x[fitted], one.mean[fitted], mark, color=colour, markersize=4, zorder=5)
        for power, label in REFERENCES.get(panel, ()):
            one = the(ones, label=label)
            x, y = zip(*sorted(zip(one.x[fitted], one.mean[fitted])))
            reference(ax, power, x, 0.7 * y[0], "_")
            at = np.sqrt(x[0] * x[-1])
            ax.text(at, 0.55 * y[0] * (at / x[0]) ** power, f"slope {power:g}", fontsize="small", ha="center", va="top")
        if panel == "f":
            ends = np.array([100, ones[0].x[-1]])
            ax.plot(ends, np.log2(ends), "--", color="#999999", label="(f) log$_2$ T")

    ylabel = "batches" if panel == "f" else "regret at T" + " above SE's" * (panel in "ab")
    shown = Panel(named, title, xlabel, ylabel, kind="lines" if panel == "f" else "points", xscale="log", also=also)
    shown.open = lambda one: True
    shown.axes |= dict(xlim=(100, None), ylim=(0, None)) if panel == "f" else dict(yscale="log")
    if panel in "bcd":
        shown.xticks = {x: f"{x:.2g}" for x in ones[0].x[:: 2 if panel == "d" else 1]}
    return shown


def span(one: Curve, fitted: slice) -> float:
    """Returns the largest of the means that are fitted over the smallest."""
    return one.mean[fitted].max() / one.mean[fitted].min()


def picture(curves: list[Curve]) -> Picture:
    n, says = curves[0].n_seeds, []
    size = f"asymptotic; T in the titles and {n} seeds of one instance here"
    for where, claim, power, panel, labels in CLAIMS:
        slopes = [slope(the(curves, panel, label), PANELS[panel][0]) for label in labels]
        found = ", ".join(f"{label} {pm(*one)}" for label, one in zip(labels, slopes))
        right = verdict([abs(one - power) <= 0.1 for one, _ in slopes])
        says.append(
            Says(where, f"{claim}: slope {power:g}", size, f"{right}, within 0.1; slopes in ({panel}): {found}")
        )
    flat = {one.label: span(one, PANELS["d"][0]) for one in pick(curves, "d") if one.label != "SE"}
    found = " and ".join(f"{label} {factor:.1f} times" for label, factor in flat.items())
    right = verdict([factor <= STEP + 0.05 for factor in flat.values()])
    seen = f"{right}, within the factor {STEP:g} of a batch more; largest regret in (d) over the smallest: {found}"
    says.append(Says("Theorem 1", "where privacy dominates, regret is the same for any gap", size, seen))
    counts = pick(curves, "f")
    log, most = np.log2(counts[0].x), max(one.y[-1].max() for one in counts)
    seen = (
        f"{verdict([bool((one.y.max(1) <= log).all()) for one in counts])}, at most log2 T in (f): {most:.0f} batches "
    )
    says.append(
        Says("Algorithm 1", "users are served in O(log T) batches", size, f"{seen}at T, log2 T = {log[-1]:.1f}")
    )
    return Picture(
        [drawn(panel, pick(curves, panel)) for panel in PANELS],
        "Regret against the rates of Theorems 1 to 6",
        "K = 10 except in (c), radii of Lemma 2 and batches of 2$^b$. p is the failure probability of radii. Slopes "
        f"fit the filled points. Mean of {n} seeds of one instance ± one standard error. SE is not private, and "
        "all others are certified",
        says,
        height=7.8,
        shape=(3, 2),
        ncols=3,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
