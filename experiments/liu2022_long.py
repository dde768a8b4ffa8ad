"""Draws what more rounds do to FCLUB-DC and CDP-FCLUB-DC of Liu et al. (2022): ten times those of Figure 2 (a).

T = 2^20 - 2 ends a phase; from 2^21 on the sums of private statistics are too coarse in float32, and refused. The line
of (c) to (f) is O(d m L log T / log U) of Theorem 2 with constant 1, for each of uploads and downloads.
"""

import numpy as np
from clusters import WHERE, LiuOptions, between, doublings
from curves import Curve, exponent, pick, pm, random_play, standing
from drawing import CHANCE, LOGS, Axes, Panel, Picture, Says, main, slope, styled

import fedbandit_jax as fb

EPSILONS = (1.0, 4.0, 10.0)
BOUND = 2 * 10 * 4 * 5 * np.log(2) / np.log(1.01)  # d m L ln 2 / ln U, of uploads and of downloads
LOOKS = ("#0072B2 - o", "#56B4E9 - ^", "#F59B55 : P", "#D55E00 : X", "#7A3600 : D")  # FCLUB-DC, LinUCB, by epsilon


def measure(options: LiuOptions) -> list[Curve]:
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


def picture(curves: list[Curve]) -> Picture:
    random, *regrets = pick(curves, "regret")
    looks = dict(zip((one.label for one in regrets), LOOKS))
    horizon, n, doubled = random.x[-1], regrets[0].n_seeds, slice(3, None, 4)
    each, powers = [], {}
    for one in regrets:
        share = np.diff(one.y[doubled], axis=0) / np.diff(random.y[doubled], axis=0)
        each.append(Curve("", one.label, one.x[doubled][1:], share, looks[one.label]))
        powers[one.label] = exponent(one, one.x > horizon / 10.1)
    kept = [one.but(style=looks[one.label]) for one in curves if one.label in looks and one.label != "LinUCB"]
    found, many = pick(kept, "adjusted Rand index"), pick(kept, "uploads and downloads")
    words = "does it learn?", "round $t$", "regret in (t/2, t]\nover uniform play's"
    learns = Panel(each, *words, **LOGS, level={CHANCE: 1})
    learns.also = lambda ax: slope(ax, -0.5, (horizon / 16, horizon), 0.4, "(a) slope of regret $\\sqrt{T}$")
    words = "are the clusters found? (1: all)", "round $t$", "adjusted Rand index at $t$"
    top = 1.05 * max(np.diff(one.y, axis=0).max() for one in many)
    shown = [learns, Panel(found, *words, xscale="log"), *(bursts(one, top) for one in many)]
    shown[2].axes["ylabel"] = "uploads and downloads\nin (t/2, t]"
    private = {name: power for name, power in powers.items() if name != "LinUCB"}
    slow = [mean - half <= 0.5 for mean, half in private.values()]
    seen = f"{'yes' if all(slow) else 'in part' if any(slow) else 'no'}; exponents of T in (T/10, T] (95 %): "
    seen += ", ".join(f"{name} {pm(*power)}" for name, power in private.items())
    says = "not yet for all: change of the median in the last doubling, and the last over the bound: "
    medians = {one.label: np.median(np.diff(one.y, axis=0), axis=1)[-2:] for one in many}
    says += "; ".join(f"{name} {b / a - 1:+.0%} and {b / BOUND:.2f}" for name, (a, b) in medians.items())
    ours = f"asymptotic; T = {horizon:,.0f}, {n} seeds here"
    claim = "uploads and downloads of CDP-FCLUB-DC are O(d m L log T / log U), which makes doublings of t equal"
    return Picture(
        shown,
        "CDP-FCLUB-DC learns late, if at all",
        f"{WHERE}, δ = 0.1, T = {horizon:,.0f}. (a) and (b): mean of {n} seeds ± one standard error. (c) to (f): every "
        "seed, and lines through medians. Dotted: no privacy claim; solid: not private",
        [Says("Theorem 1", "regret grows as √T log^1.5 T", ours, seen), Says("Theorem 2", claim, ours, says)],
        height=5.2,
        mosaic="aabb;cdef",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
