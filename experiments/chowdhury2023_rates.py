"""Measures the rates of Theorems 1 to 6 of Chowdhury & Zhou (2023), with the radii of Lemma 2.

(a) to (e) have final regret against one quantity, and slopes of lines through the filled points, in logarithms. In (a)
and (b) the regret of SE, which is not private, is subtracted. (b) varies log T by L = ln(2 K b^2 / p) with p = 1/T.
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
ARMS, HORIZONS = (2, 4, 8, 16, 32, 64), (10**6, 10**7, 10**8)
GAPS = tuple(0.5 * 2.0**-i for i in range(9))
EPSILONS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FAILURES = (1e-2, 1e-4, 1e-6, 1e-9, 1e-13, 1e-18, 1e-25)
LOOKS = {  # colour of the algorithm, lighter for another s, and a mark of its own where two have the same
    "CDP-SE": "#E69F00 o",
    "Shuffle-DP-SE": "#CC79A7 ^",
    "Dist-DP-SE": "#D55E00 o",
    "Dist-RDP-SE (s=10)": "#009E73 o",
    "Dist-RDP-SE (s=100)": "#7FCEB9 D",
    "Dist-CDP-SE (s=10)": "#CC79A7 s",
    "LDP-SE": "#56B4E9 o",
}
PRIVATE, OPEN = tuple(LOOKS)[2:6], "#000000 o"
PLAIN = {"SE": (None, OPEN), "Dist-DP-SE, ε = 0.1": (0.1, "#D55E00 o"), "Dist-DP-SE, ε = 0.01": (0.01, "#F0A67A s")}
CDP, ALL, LOG = "Dist-CDP-SE (s=10)", slice(None), "L = ln(2 K b$^2$ / p), b = 20"
WIDE = "gaps 0.1 to 0.5, p = 0.1,\nT = 2 × 10$^7$ (LDP-SE 10$^8$)"
SMALL = "gaps 0.1 to 0.5, ε = 0.01,\np from 10$^{-2}$ to 10$^{-25}$, T = 10$^8$"
PANELS: dict[str, tuple[slice, str, str, dict[str, float]]] = {
    # points that are fitted, axis, title, and the powers of grey lines through curves
    "a": (slice(3), "1/ε", WIDE, {CDP: 1, "LDP-SE": 2}),
    "b": (ALL, LOG, SMALL, {"Dist-DP-SE": 1, CDP: 0.5}),
    "c": (ALL, "K - 1 arms that are not the best", "gap 0.25, p = 0.1, T = 10$^8$", {"SE": 1}),
    "d": (slice(5), "gap of all arms but the best", "p = 1/T, T = 10$^8$", {"SE": -1}),
    "e": (ALL, "T", "p = 1/T, at the gap of largest regret", {"SE": 0.5}),
    "f": (ALL, "T", "gap 0.002, ε = 0.1, p = 0.1", {}),
}
CLAIMS = (  # where, what it says, the slope that this is, panel, curves that show it
    ("Theorems 1, 3, 5", "privacy costs K log T / ε", 1, "a", ("Dist-DP-SE", "CDP-SE", "Shuffle-DP-SE")),
    ("Theorem 6", "local trust costs log T / (ε² gap)", 2, "a", ("LDP-SE",)),
    ("Theorem 1", "the privacy cost is linear in log T", 1, "b", ("Dist-DP-SE",)),
    ("Theorems 2, 4", "it grows with sqrt(log T) for large s", 0.5, "b", PRIVATE[1:]),
    ("Theorem 1", "regret is linear in K", 1, "c", ("Dist-DP-SE, ε = 0.05", "SE")),
    ("Theorem 1", "without privacy regret is log T / gap", -1, "d", ("SE",)),
    ("footnote 7", "regret at the worst gap grows with sqrt(T)", 0.5, "e", tuple(PLAIN)),
)
STEP = 2.0  # factor between batches, and so between the regrets that one more of them makes


def equal(n_arms: int, gap: float) -> fb.Environment:
    """Returns K arms around 0.5, of which one is better than all others by the gap."""
    return fb.envs.arms(means=[0.5 + gap / 2] + [0.5 - gap / 2] * (n_arms - 1))


def measure(options: ArmsSize) -> list[Curve]:
    few, spread, curves = slice(options.pick(2, None, None)), fb.envs.arms(means=SPREAD), []

    def above(panel: str, algos: dict[str, Any], horizon: int) -> Curve:
        plain, one = options.finals(spread, algos, panel, LOOKS, **options.arguments(horizon))
        return one.but(y=one.y - plain.y)

    def run(env: Any, algo: Any, horizon: int = 10**8) -> fb.Result:
        return fb.simulate(env, algo, **options.arguments(horizon))

    for name in LOOKS:
        epsilons, horizon = (EPSILONS[4:], 10**8) if name == "LDP-SE" else (EPSILONS, 2 * 10**7)
        algos = {"SE": {0: elimination("SE", None)}, name: {1 / e: elimination(name, e) for e in epsilons[few]}}
        curves.append(above("a", algos, horizon))
    for name in PRIVATE:
        at = dict(zip(np.log(2 * 10 * 20**2 / np.array(FAILURES[few])).tolist(), FAILURES))
        algos = {one: {x: elimination(one, 0.01, failure=p) for x, p in at.items()} for one in ("SE", name)}
        curves.append(above("b", algos, 10**8))
    for label, epsilon, look in (("SE", None, OPEN), ("Dist-DP-SE, ε = 0.05", 0.05, "#D55E00 o")):
        algo = elimination(label.partition(",")[0], epsilon)
        finals = [final(run(equal(n, 0.25), algo)) for n in ARMS[few]]
        curves.append(Curve("c", label, [n - 1 for n in ARMS[few]], finals, look))
    for label, (epsilon, look) in PLAIN.items():
        of = [elimination(label.partition(",")[0], epsilon, failure=1 / horizon) for horizon in HORIZONS[few]]
        found = [[final(run(equal(10, gap), *one)) for gap in GAPS[few]] for one in zip(of, HORIZONS)]
        worst = [max(finals, key=np.mean) for finals in found]
        curves += [Curve("d", label, GAPS[few], found[-1], look), Curve("e", label, HORIZONS[few], worst, look)]
    for name, look in (("SE", OPEN), ("Dist-DP-SE", LOOKS["Dist-DP-SE"])):
        one = run(equal(10, 0.002), elimination(name, 0.1))
        at = np.unique(np.geomspace(1, len(one.rounds), POINTS).astype(int)) - 1
        curves.append(Curve("f", name, one.rounds[at], one.communication["rounds"][:, at].T, look))
    return curves


def slope(one: Curve, fitted: slice) -> tuple[Any, Any]:
    """Returns the mean over seeds of the slope in logarithms of the points that are fitted, and its error."""
    return mean_error(np.polyfit(np.log(one.x[fitted]), np.log(one.y[fitted]), 1)[0])


def span(one: Curve) -> float:
    """Returns the largest of the means that are fitted in (d) over the smallest."""
    mean = one.mean[PANELS["d"][0]]
    return mean.max() / mean.min()


def drawn(panel: str, ones: list[Curve]) -> Panel:
    """Returns a panel with a legend of slopes of the points that are fitted, the filled ones."""
    fitted, xlabel, title, powers = PANELS[panel]
    axes: dict[str, Any] = dict(kind="points", yscale="log", ylabel="regret at T" + " above SE's" * (panel in "ab"))
    if panel == "f":
        axes = dict(kind="lines", xlim=(100, None), ylim=(0, None), ylabel="batches")
    if panel in "bcd":
        axes["xticks"] = {x: f"{x:.2g}" for x in ones[0].x[:: 2 if panel == "d" else 1]}
    found = [f"{slope(one, fitted)[0]:.2f}" for one in ones if panel != "f"]
    if panel == "d":
        found[1:] = [f"factor {span(one):.1f}" for one in ones[1:]]

    def also(ax: Axes) -> None:
        for one in ones if panel != "f" else ():
            colour, _, mark = styled(one)
            ax.plot(one.x[fitted], one.mean[fitted], mark, color=colour, markersize=4, zorder=5)
        for label, power in powers.items():
            one = the(ones, label=label)
            x, y = zip(*sorted(zip(one.x[fitted], one.mean[fitted])))
            reference(ax, power, x, 0.7 * y[0], "_")
            at = np.sqrt(x[0] * x[-1])
            ax.text(at, 0.55 * y[0] * (at / x[0]) ** power, f"slope {power:g}", fontsize="small", ha="center", va="top")
        if panel == "f":
            ends = np.array([100, ones[0].x[-1]])
            ax.plot(ends, np.log2(ends), "--", color="#999999", label="(f) log$_2$ T")
        else:
            small: Any = dict(fontsize="small", title_fontsize="small", handlelength=1, columnspacing=1)
            ax.legend(ax.get_legend_handles_labels()[0], found, title="slope", ncols=1 + (len(ones) > 3), **small)

    return Panel(ones, title, xlabel, xscale="log", also=also, open=lambda one: True, **axes)


def picture(curves: list[Curve]) -> Picture:
    n, says = curves[0].n_seeds, []
    size = f"asymptotic; T in the titles and {n} seeds of one instance here"
    for where, claim, power, panel, labels in CLAIMS:
        slopes = [slope(the(curves, panel, label), PANELS[panel][0]) for label in labels]
        found = ", ".join(f"{label} {pm(*one)}" for label, one in zip(labels, slopes))
        right = verdict([abs(one - power) <= 0.1 for one, _ in slopes])
        seen = f"{right}, within 0.1; slopes in ({panel}): {found}"
        says.append(Says(where, f"{claim}: slope {power:g}", size, seen))
    flat = {one.label: span(one) for one in pick(curves, "d") if one.label != "SE"}
    found = " and ".join(f"{label} {factor:.1f} times" for label, factor in flat.items())
    right = verdict([factor <= STEP + 0.05 for factor in flat.values()])
    seen = f"{right}, within the factor {STEP:g} of a batch more; largest regret in (d) over the smallest: {found}"
    says.append(Says("Theorem 1", "where privacy dominates, regret is the same for any gap", size, seen))
    counts = pick(curves, "f")
    log, most = np.log2(counts[0].x), max(one.y[-1].max() for one in counts)
    right = verdict([bool((one.y.max(1) <= log).all()) for one in counts])
    seen = f"{right}, at most log2 T in (f): {most:.0f} batches at T, log2 T = {log[-1]:.1f}"
    says.append(Says("Algorithm 1", "users are served in O(log T) batches", size, seen))
    setting = f"""K = 10 except in (c), radii of Lemma 2 and batches of 2$^b$. p is the failure probability of radii.
        Slopes fit the filled points. Mean of {n} seeds of one instance ± one standard error. SE is not private, and all
        others are certified"""
    shown = [drawn(panel, pick(curves, panel)) for panel in PANELS]
    return Picture(shown, "Regret against the rates of Theorems 1 to 6", setting, says, height=7.8, shape=(3, 2))


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
