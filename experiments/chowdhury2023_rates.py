"""Claims of Chowdhury & Zhou (2023) on rates and ratios: when regret matches, and its powers."""

from typing import Any

import numpy as np
from chowdhury2023 import HORIZONS, HOW, ArmsSize, calibrated, elimination, power
from curves import POINTS, Curve, final, mean_error, panels, pick, ratio, the
from drawing import LOGS, Experiment, Panel, Picture, styled, write
from drawing import slope as reference
from matplotlib.axes import Axes

import fedbandit_jax as fb

LABELS = {f"Dist-DP-SE, {HOW[radius]}": radius for radius in ("theory", "exact")}
MATCHES_LOOKS = dict(zip(("DP-SE", *LABELS), ("#0072B2 -", "#D55E00 - o", "#F0A67A - s")))  # the lighter one is ours


def matches(options: ArmsSize) -> list[Curve]:
    """Asks with which constants Dist-DP-SE matches DP-SE, as Chowdhury & Zhou (2023) say of their Figures 1 to 3.

    Batches grow by a factor of 2 in Algorithm 1, and of 4 in the authors' code. DP-SE has epochs and radii of its own.
    A cumulative regret is constant once one arm is left, so that more users hardly change the ratio.
    """
    curves, growths = [], (2, 3, 4, 6, 8, 12, 16)[: options.pick(2, 7, 7)]
    for instance in ("easy", "hard"):
        run, env = options.arguments(HORIZONS[instance]), fb.envs.arms(10, instance=instance)
        for epsilon in (0.1, 0.5, 1.0):
            algos = {"DP-SE": {run["horizon"]: elimination("DP-SE", epsilon)}}
            for label, radius in LABELS.items():
                algos[label] = {b: elimination("Dist-DP-SE", epsilon, radius=radius, growth=b) for b in growths}
            title = f"{instance} instances, ε = {epsilon:g}, T = {power(run['horizon'])}"
            curves += options.finals(env, algos, title, MATCHES_LOOKS, **run)
    return curves


def draw_matches(curves: list[Curve]) -> Picture:
    shown, n = [], curves[0].n_seeds
    for letter, title in zip("abcdef", panels(curves)):
        pure, *others = pick(curves, title)
        ratios, rest = [one.over(pure.y) for one in others], ""
        for one, drawn in zip(others, ratios):
            if drawn.error[0] > 0.2:  # a few instances decide
                kept = np.arange(n) != one.y[0].argmax()
                rest = f"without the largest\nof {n} regrets: {ratio(one.y[0, kept], pure.y[0, kept])}"

        def also(ax: Axes, pure: Curve = pure, rest: str = rest) -> None:
            ax.axhline(1, color=styled(pure)[0], label=pure.label)
            write(ax, 0.03, 0.8, rest)

        words = f"{title}\nDP-SE: {pure.said()}", "factor between sizes of batches" * (letter in "def")
        ticks = dict(xticks=others[0].x, yticks=(0.6, 0.8, 1, 1.5, 2, 3, 4))
        shown.append(Panel(ratios, *words, also=also, **ticks, **LOGS))
    setting = f"K = 10 and p = 0.1. Mean of {n} instances ± one standard error of the paired ratio. All are certified"
    grid, ylabel = dict(sharex=True, sharey=True), "regret over DP-SE's"
    title = "When Dist-DP-SE matches DP-SE"
    return Picture(shown, title, setting, shape=(2, 3), ylabel=ylabel, grid=grid)


EPSILON, DELTAS = 0.1, (0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
SEARCH = dict(a=EPSILON / 50, b=10 * EPSILON, xtol=1e-5)
ALIKE = (10**6, "theory")  # the line with both at an equal guarantee
LINES = {
    (10**5, "theory"): "#009E73 o",
    ALIKE: "#0072B2 s",
    (10**7, "theory"): "#D55E00 D",
    (10**6, "exact"): "#7FB8DA X",
}
RENYI, PURE, BOTH = "Dist-RDP-SE (s=10)", "Dist-DP-SE", "Dist-DP-SE, (0.1, δ)-DP"


def delta(options: ArmsSize) -> list[Curve]:
    """Draws at which delta Renyi DP beats pure DP, as Section 5 of Chowdhury & Zhou (2023) says: if delta > 1/T.

    Dist-RDP-SE has just the noise that its certificate needs for (0.1, delta)-DP. Its regret is drawn over Dist-DP-
    SE's, which is pure DP at 0.1. On one line that is (0.1, delta)-DP, too. Failure probabilities are p = 1/T.
    """
    env, deltas, curves = fb.envs.arms(10, instance="easy"), DELTAS[: options.pick(2, 8, 8)], []
    for horizon, radius in list(LINES)[1::2] if options.smoke else LINES:
        run = options.arguments(horizon)
        how: Any = dict(radius=radius, failure=1 / run["horizon"])
        algos: dict[str, dict[float, Any]] = {PURE: {run["horizon"]: elimination(PURE, EPSILON, **how)}}
        algos[RENYI] = {d: calibrated(RENYI, EPSILON, env, run["horizon"], SEARCH, delta=d, **how) for d in deltas}
        if (horizon, radius) == ALIKE:  # the least noise on every grid: that of one step decides
            least = {d: np.log((np.exp(EPSILON) + d) / (1 - d)) for d in deltas[:3]}
            algos[BOTH] = {d: elimination(PURE, float(epsilon), **how) for d, epsilon in least.items()}
        for one in options.finals(env, algos, f"T = {power(run['horizon'])}, {HOW[radius]}", **run):
            own = ", ".join(f"{algo.epsilon:.4g}" for algo in algos[one.label].values())
            curves.append(one.but(note="" if one.label == PURE else f"own epsilon {own}"))
    return curves


def draw_delta(curves: list[Curve]) -> Picture:
    shown, ends = [], []
    for name, look in zip(panels(curves), LINES.values()):
        pure, one, *others = pick(curves, name)
        ratio = one.but(label=name, style=look).over(pure.y)
        shown.append(ratio)
        for other in others:
            label = f"{name}, over Dist-DP-SE that is (0.1, δ)-DP too (run for δ ≥ {other.x.min():g})"
            some = one.but(label=label, x=other.x, y=one.y[: len(other.x)], style="#00426B ^")
            shown.append(some.over(other.y))
        if HOW["theory"] in name:
            ends.append((1 / pure.x[0], look.split()[0]))

    def also(ax: Axes) -> None:
        ax.axhline(1, color="k", linewidth=1)
        for x, colour in ends:
            ax.axvline(x, color=colour, linestyle="--", linewidth=1)

    words = "", "δ (dashed: 1/T)", "regret at T over Dist-DP-SE's"
    setting = f"""Dist-RDP-SE (s = 10) is certified at ε = 0.1 and δ, Dist-DP-SE at ε = 0.1 and δ = 0. K = 10 and p
        = 1/T. Mean of {curves[0].n_seeds} easy instances ± one standard error of the paired ratio"""
    panel = Panel(shown, *words, also=also, xscale="log", ylim=(0.3, None))
    return Picture([panel], "Rényi DP beats pure DP at large δ", setting)


RETURNING_LOOKS = {
    "Dist-DP-SE": "#D55E00 - o",
    "Dist-RDP-SE (s=10)": "#009E73 - s",
    "Dist-CDP-SE (s=10)": "#CC79A7 - D",
}


def returning(options: ArmsSize) -> list[Curve]:
    """Draws what users who return cost in regret, at equal privacy: Appendix H of Chowdhury & Zhou (2023).

    The B sums of a user together are (1, 10^-6)-DP, by the exact accounting of certificates. The paper says that Renyi
    DP then saves a factor sqrt log(B / delta) over advanced composition. Pure DP is linear in B.
    """
    env, run, curves = fb.envs.arms(10, instance="easy"), options.arguments(HORIZONS["easy"]), []
    visits = (1, 10, 100)[: options.pick(2, 3, 3)]
    search = {b: dict(a=0.05 / b, b=3.0, rtol=1e-4) for b in visits}
    for radius in ("theory", "exact"):
        algos = {
            label: {
                b: calibrated(label, 1.0, env, run["horizon"], search[b], b, delta=1e-6, radius=radius) for b in visits
            }
            for label in RETURNING_LOOKS
        }
        for one in options.finals(env, algos, radius, RETURNING_LOOKS, **run):
            curves.append(one.but(note=", ".join(f"{algo.epsilon:.3g}" for algo in algos[one.label].values())))
    return curves


def draw_returning(curves: list[Curve]) -> Picture:
    shown = []
    for radius in ("theory", "exact"):
        panel = pick(curves, radius)
        words = HOW[radius], "sums B that a user may be in", "regret at T"
        shown.append(Panel(panel, *words, xticks=panel[0].x, yticks=(5000, 10_000, 20_000, 40_000), **LOGS))
    setting = f"""All B sums together are certified at ε = 1 and δ = $10^{{-6}}$. K = 10, T =
        {power(HORIZONS["easy"])} and p = 0.1. Mean of {curves[0].n_seeds} easy instances ± one standard error"""
    title = "For returning users Rényi DP composes better"
    return Picture(shown, title, setting, grid=dict(sharey=True))


SPREAD = [0.8, *(0.8 - np.geomspace(0.1, 0.5, 9))]  # means of K = 10 arms: gaps from 0.1 to 0.5
ARMS, TIMES = (2, 4, 8, 16, 32, 64), (10**6, 10**7, 10**8)
GAPS = tuple(0.5 * 2.0**-i for i in range(9))
EPSILONS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FAILURES = (1e-2, 1e-4, 1e-6, 1e-9, 1e-13, 1e-18, 1e-25)
RATES_LOOKS = {  # colour of the algorithm, lighter for another s, and a mark of its own where two have the same
    "CDP-SE": "#E69F00 o",
    "Shuffle-DP-SE": "#CC79A7 ^",
    "Dist-DP-SE": "#D55E00 o",
    "Dist-RDP-SE (s=10)": "#009E73 o",
    "Dist-RDP-SE (s=100)": "#7FCEB9 D",
    "Dist-CDP-SE (s=10)": "#CC79A7 s",
    "LDP-SE": "#56B4E9 o",
}
PRIVATE, OPEN = tuple(RATES_LOOKS)[2:6], "#000000 o"
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


def equal(n_arms: int, gap: float) -> fb.Environment:
    """Returns K arms around 0.5, of which one is better than all others by the gap."""
    return fb.envs.arms(means=[0.5 + gap / 2] + [0.5 - gap / 2] * (n_arms - 1))


def rates(options: ArmsSize) -> list[Curve]:
    """Measures the rates of Theorems 1 to 6 of Chowdhury & Zhou (2023), with the radii of Lemma 2.

    (a) to (e) have final regret against one quantity, and slopes of lines through the filled points, in logarithms. In
    (a) and (b) the regret of SE, which is not private, is subtracted. (b) varies log T by L = ln(2 K b^2 / p) with p =
    1/T.
    """
    few, spread, curves = slice(options.pick(2, None, None)), fb.envs.arms(means=SPREAD), []

    def above(panel: str, algos: dict[str, Any], horizon: int) -> Curve:
        plain, one = options.finals(spread, algos, panel, RATES_LOOKS, **options.arguments(horizon))
        return one.but(y=one.y - plain.y)

    def run(env: Any, algo: Any, horizon: int = 10**8) -> fb.Result:
        return fb.simulate(env, algo, **options.arguments(horizon))

    for name in RATES_LOOKS:
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
        of = [elimination(label.partition(",")[0], epsilon, failure=1 / horizon) for horizon in TIMES[few]]
        found = [[final(run(equal(10, gap), *one)) for gap in GAPS[few]] for one in zip(of, TIMES)]
        worst = [max(finals, key=np.mean) for finals in found]
        curves += [Curve("d", label, GAPS[few], found[-1], look), Curve("e", label, TIMES[few], worst, look)]
    for name, look in (("SE", OPEN), ("Dist-DP-SE", RATES_LOOKS["Dist-DP-SE"])):
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
        for label, order in powers.items():
            one = the(ones, label=label)
            x, y = zip(*sorted(zip(one.x[fitted], one.mean[fitted])))
            reference(ax, order, x, 0.7 * y[0], "_")
            at = np.sqrt(x[0] * x[-1])
            ax.text(at, 0.55 * y[0] * (at / x[0]) ** order, f"slope {order:g}", fontsize="small", ha="center", va="top")
        if panel == "f":
            ends = np.array([100, ones[0].x[-1]])
            ax.plot(ends, np.log2(ends), "--", color="#999999", label="(f) log$_2$ T")
        else:
            small: Any = dict(fontsize="small", title_fontsize="small", handlelength=1, columnspacing=1)
            ax.legend(ax.get_legend_handles_labels()[0], found, title="slope", ncols=1 + (len(ones) > 3), **small)

    return Panel(ones, title, xlabel, xscale="log", also=also, open=lambda one: True, **axes)


def draw_rates(curves: list[Curve]) -> Picture:
    setting = f"""K = 10 except in (c), radii of Lemma 2 and batches of 2$^b$. p is the failure probability of
        radii. Slopes fit the filled points. Mean of {curves[0].n_seeds} seeds of one instance ± one standard error.
        SE is not private, and all others are certified"""
    shown = [drawn(panel, pick(curves, panel)) for panel in PANELS]
    return Picture(shown, "Regret against the rates of Theorems 1 to 6", setting, height=7.8, shape=(3, 2))


FIGURES = {
    "chowdhury2023_matches": Experiment(matches, draw_matches, ArmsSize),
    "chowdhury2023_delta": Experiment(delta, draw_delta, ArmsSize),
    "chowdhury2023_returning": Experiment(returning, draw_returning, ArmsSize),
    "chowdhury2023_rates": Experiment(rates, draw_rates, ArmsSize),
}
