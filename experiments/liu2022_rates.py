"""Theorems 1 and 2 of Liu et al. (2022): regret, clusters and messages, over time and by n, m, d and L."""

from functools import partial

import numpy as np
from curves import (
    Curve,
    along,
    exponent,
    final,
    pick,
    pm,
    random_play,
    sent,
    standing,
    the,
)
from drawing import CHANCE, LOGS, Axes, Experiment, Panel, Picture, dressed, slope, styled
from liu2022 import FEW, LOOKS, SEATS, WHERE, LiuOptions, between, doublings, noted, right_from

import fedbandit_jax as fb

EPSILONS = (1.0, 4.0, 10.0)
BOUND = 2 * 10 * 4 * 5 * np.log(2) / np.log(1.01)  # d m L ln 2 / ln U, of uploads and of downloads
LONG_LOOKS = ("#0072B2 - o", "#56B4E9 - ^", "#F59B55 : P", "#D55E00 : X", "#7A3600 : D")  # FCLUB-DC, LinUCB, by epsilon


def long(options: LiuOptions) -> list[Curve]:
    """Draws what more rounds do to FCLUB-DC and CDP-FCLUB-DC of Liu et al. (2022): ten times those of Figure 2 (a).

    T = 2^20 - 2 ends a phase; from 2^21 on the sums of private statistics are too coarse in float32, and refused. The
    line of (c) to (f) is O(d m L log T / log U) of Theorem 2 with constant 1, for each of uploads and downloads.
    """
    run, env = options.run(500, 1_048_574, 1_048_574, stride="log"), options.instance()
    algos = {name: options.methods()[name] for name in ("FCLUB-DC", "LinUCB")}
    for epsilon in EPSILONS:
        private = options.methods(fb.privacy.Budget(epsilon, 0.1))["CDP-FCLUB-DC"]
        algos[f"CDP-FCLUB-DC, target ε = {epsilon:g}"] = private
    result = options.sweep(env, algos, **run)
    points, ends = doublings(run["horizon"], 7, 0.25), doublings(run["horizon"], 8)
    curves = [Curve("regret", CHANCE, points, random_play(env, options.seed) * points)]
    for name in result:
        one = result[name]
        curves.append(Curve("regret", name, points, between(one.rounds, one.regret, points)))
        found = {"adjusted Rand index": one.gauges["adjusted Rand index"]}
        found["uploads and downloads"] = one.communication["rounds"]
        curves += [Curve(panel, name, ends, standing(one.rounds, y, ends)) for panel, y in found.items()]
    return curves


def bursts(one: Curve, top: float) -> Panel:
    """Returns uploads and downloads in doublings of t, seed by seed, and the median."""
    more = np.diff(one.y, axis=0)

    def also(ax: Axes) -> None:
        ax.plot(one.x[1:], more, styled(one)[2], color=styled(one)[0], markersize=4, alpha=0.6)
        ax.axhline(BOUND, color="#333333", linewidth=1, label="(c)-(f) bound of Theorem 2 with constant 1")

    middle = Curve("", "", one.x[1:], np.median(more, 1), one.style.rpartition(" ")[0])
    panel = Panel([middle], one.label.replace(", ", ",\n"), "round $t$", label="", xscale="log", ylim=(0, top))
    panel.also, panel.xticks = also, {10**5: "$10^5$", 10**6: "$10^6$"}
    return panel


def draw_long(curves: list[Curve]) -> Picture:
    random, *regrets = pick(curves, "regret")
    looks = dict(zip((one.label for one in regrets), LONG_LOOKS))
    horizon, n, doubled = random.x[-1], regrets[0].n_seeds, slice(3, None, 4)
    each = []
    for one in regrets:
        share = np.diff(one.y[doubled], axis=0) / np.diff(random.y[doubled], axis=0)
        each.append(Curve("", one.label, one.x[doubled][1:], share, looks[one.label]))
    kept = [one.but(style=looks[one.label]) for one in curves if one.label in looks and one.label != "LinUCB"]
    found, many = pick(kept, "adjusted Rand index"), pick(kept, "uploads and downloads")
    words = "does it learn?", "round $t$", "regret in (t/2, t]\nover uniform play's"
    learns = Panel(each, *words, **LOGS, level={CHANCE: 1})
    learns.also = lambda ax: slope(ax, -0.5, (horizon / 16, horizon), 0.4, "(a) slope of regret $\\sqrt{T}$")
    words = "are the clusters found? (1: all)", "round $t$", "adjusted Rand index at $t$"
    top = 1.05 * max(np.diff(one.y, axis=0).max() for one in many)
    shown = [learns, Panel(found, *words, xscale="log"), *(bursts(one, top) for one in many)]
    shown[2].ylabel = "uploads and downloads\nin (t/2, t]"
    setting = f"""{WHERE}, δ = 0.1, T = {horizon:,.0f}. (a) and (b): mean of {n} seeds ± one standard error. (c) to
        (f): every seed, and lines through medians. Dotted: no privacy claim; solid: not private"""
    return Picture(shown, "CDP-FCLUB-DC learns late, if at all", setting, height=5.2, mosaic="aabb;cdef")


RATIOS = (1.0, 1.001, 1.01, 1.1, 1.5, 3.0, 10.0)


def communication(options: LiuOptions) -> list[Curve]:
    """Draws uploads and downloads over time, for Theorem 2 and Appendix E.3 of Liu et al. (2022).

    Local clusters upload when their statistics have grown by a factor U, and download when their global cluster has D
    times as much. (a) Over time; O(log T) is the grey curve. (b) Regret of FCLUB-DC, and what it sends, by U = D.
    """
    env, every, curves = options.instance(), options.methods(), []
    run = options.run(500, 131_070, 1_048_574, stride="log")
    result = options.sweep(env, {name: every[name] for name in FEW}, **run)
    at = doublings(run["horizon"], 10.25, 0.25)
    for name in FEW:
        many = standing(result.rounds, result[name].communication["rounds"], at)
        curves.append(Curve("time", name, at, many, LOOKS[name], noted(name, every[name], env, run["horizon"])))
    ratios, run = RATIOS[:: options.pick(3, 1, 1)], options.run(500, 100_000, 100_000, stride="log")
    runs = [fb.simulate(env, every["FCLUB-DC"].replace(upload=ratio, download=ratio), **run) for ratio in ratios]
    both = [along(panel, "U = D", ratios, runs, value=value) for panel, value in (("sent", sent), ("regret", final))]
    return curves + [one.but(note="") for one in both]


def draw_communication(curves: list[Curve]) -> Picture:
    lines, many, regret = dressed(pick(curves, "time"), LOOKS), the(curves, "sent"), the(curves, "regret")
    delayed = the(lines, label="FCLUB-DC")
    ends = delayed.x[delayed.x >= delayed.x[-1] / 16]
    low, high = np.interp(ends[-1] / np.array([16, 4]), delayed.x, delayed.mean)
    line = low + (high - low) * np.log(16 * ends / ends[-1]) / np.log(4)
    words = "U = D = 1.01, FCLUB 1", "round $t$", "uploads and downloads"
    left = Panel(lines, *words, kind="lines", label="{label}: {note}", **LOGS)
    left.also = lambda ax: ax.plot(ends, line, "-.", color="#999999", label="c log t + c', through FCLUB-DC")

    def numbers(ax: Axes) -> None:
        for ratio, x, top in zip(many.x, many.mean, regret.mean + regret.error):
            ax.annotate(f"{ratio:g}", (x, top), (0, 3), textcoords="offset points", ha="center")
        ax.margins(0.12)

    points = Curve("", "FCLUB-DC, U = D at the points", many.mean, regret.y, "#0072B2 o")
    right = Panel([points], "FCLUB-DC, T = 100,000", "uploads and downloads", "regret at T", xscale="log", also=numbers)
    right.look = dict(linestyle="none")
    setting = f"""{WHERE}, δ = 0.1, target ε = 1. T = {delayed.x[-1]:,.0f} in (a). Mean of {many.n_seeds} seeds ±
        one standard error. Dotted: no privacy claim; solid: not private"""
    return Picture([left, right], "Messages, and regret, of delayed communication", setting)


VALUES = {  # letter -> parameter, the authors' value, values, colour of no method here
    "n": ("n_users", 40, (20, 40, 80, 160), "#882255 - o"),
    "m": ("n_clusters", 4, (2, 4, 8), "#009E73 - s"),
    "d": ("dim", 10, (5, 10, 20), "#E69F00 - ^"),
    "L": ("n_servers", 5, (2, 5, 10), "#CC79A7 - v"),
}
SHOWN = ("FCLUB-DC", "CDP-FCLUB-DC", "LinUCB")


def rates(options: LiuOptions) -> list[Curve]:
    """Measures the rates of Theorems 1 and 2 of Liu et al. (2022) for FCLUB-DC, which has no noise.

    Theorem 1: regret is n log T + L d √(m T) up to logarithms (10). Theorem 2: there are O(d m L log T) uploads and
    downloads. (a), (c) Over time. (b), (d) One of n, m, d, L varies. Grey lines are the bounds.
    """
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


def draw_rates(curves: list[Curve]) -> Picture:
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
    setting = f"""{SEATS["consecutive"]}, K = 10. Mean of {n} seeds ± one standard error. Legends have exponents ±
        half of their 95 % intervals, in (a) in (T/10, T]. Dotted: target ε = 1, no privacy claim; solid: not
        private"""
    return Picture(shown, "Regret and uploads against Theorems 1 and 2", setting, shape=(2, 2))


CLUSTERS, DISTANCES = (2, 4, 8), (0.5, 1.0)
DISTANCES_LOOKS = ("#7FB8DA o", "#0072B2 s")  # shades of FCLUB-DC


def apart(n_clusters: int, distance: float) -> fb.Environment:
    """Returns 40 users on 5 servers in m clusters of equal sizes, whose vectors are all `distance` apart.

    They are (sqrt(1 - distance^2) e_0 + distance e_i, 1) / sqrt 2.
    """
    items = np.random.default_rng(0).standard_normal((4096, 9))
    u = np.zeros((n_clusters, 9))
    u[:, 0], u[:, 1 : n_clusters + 1] = np.sqrt(1 - distance**2), distance * np.eye(n_clusters)
    cluster, units = np.arange(40) % n_clusters, (u, items / np.linalg.norm(items, axis=1, keepdims=True))
    thetas, items = (np.hstack([part, np.ones((len(part), 1))]) / np.sqrt(2) for part in units)
    return fb.envs.community(items, thetas[cluster], cluster, n_servers=5)


def distances(options: LiuOptions) -> list[Curve]:
    """Measures Theorem 1 of Liu et al. (2022) in m and in the distance of clusters, with all pairs at one distance.

    Where there are more clusters, random preference vectors are nearer to each other, which mixes up √m and 1 / γ².
    Here all pairs of the m vectors are γ apart. Clusters change at ends of phases, whose lengths double.
    """
    run = options.run(500, 131_070, 131_070, seeds=(2, 16, 16), stride="log")
    clusters, curves = CLUSTERS[: options.pick(1, 3, 3)], []
    for distance in DISTANCES[: options.pick(1, 2, 2)]:
        runs = [fb.simulate(apart(m, distance), fb.algos.FCLUB(), **run) for m in clusters]
        found = []
        for one in runs:
            right = right_from(one.gauges["adjusted Rand index"])
            first = one.rounds[np.minimum((~right).sum(1), len(one.rounds) - 1)]
            found.append(np.where(right[:, -1], first, np.nan))
        both = (("regret", [final(one) for one in runs]), ("round", found))
        curves += [Curve(panel, f"distance {distance}", clusters, values) for panel, values in both]
    return sorted(curves, key=lambda one: one.panel)


def seeds(rounds: list[Curve], ax: Axes) -> None:
    """Draws in how many seeds all clusters are right from a round on, a row for each m and distance."""
    ends, rows = sorted({first for one in rounds for first in one.y.ravel() if np.isfinite(first)}), []
    for j, m in enumerate(rounds[0].x):
        for i, (late, look) in enumerate(zip(rounds, DISTANCES_LOOKS)):
            rows.append((3 * j + i, f"m = {m:g}, {late.label.replace('distance', 'γ =')}"))
            place = np.where(np.isfinite(late.y[j]), np.searchsorted(ends, late.y[j]), len(ends))
            for at, count in zip(*np.unique(place, return_counts=True)):
                ax.plot(at, 3 * j + i, look[-1], color=look[:7], markersize=3 * count**0.5)
                ax.annotate(f"{count}", (at, 3 * j + i), (7, -3), textcoords="offset points", fontsize="small")
    ax.set_yticks(*zip(*rows))
    ax.set_xticks(range(len(ends) + 1), [*(f"{end:,.0f}" for end in ends), "later"], fontsize="small", rotation=45)
    ax.margins(0.1)
    ax.invert_yaxis()


def draw_distances(curves: list[Curve]) -> Picture:
    regrets, rounds = pick(curves, "regret"), pick(curves, "round")
    m, n = regrets[0].x, regrets[0].n_seeds
    shades = zip(regrets, DISTANCES_LOOKS)
    shown = [one.but(label=one.label.replace("ce", "ce γ ="), style=look) for one, look in shades]
    left = Panel(shown, "regret by the number of clusters", "clusters m", "regret at T", **LOGS)
    left.xticks, left.also = m, lambda ax: slope(ax, 0.5, m, 0.8 * regrets[0].mean[0], "slope of $\\sqrt{m}$")
    right = Panel([], "from when on all clusters are right", "round (numbers: seeds)")
    right.also = lambda ax: seeds(rounds, ax)
    setting = f"""FCLUB-DC, not private, with all pairs of preference vectors at one distance γ. n = 40,
        {SEATS["random"]}, L = 5, K = 10 of 4,096 items, d = 10, T = 131,070. Mean of {n} seeds ± one standard error"""
    return Picture([left, right], "Closer clusters are found later", setting)


FIGURES = {
    "liu2022_long": Experiment(long, draw_long, LiuOptions),
    "liu2022_communication": Experiment(communication, draw_communication, LiuOptions),
    "liu2022_rates": Experiment(rates, draw_rates, LiuOptions),
    "liu2022_distances": Experiment(distances, draw_distances, LiuOptions),
}
