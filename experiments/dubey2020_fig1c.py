"""Draws Figure 1 (c) of Dubey & Pentland (2020): regret of FedUCB for d = 4, 8 and 16 features.

With M = 100 as in the paper (a), private agents still play at random after our T rounds. (b) has M = 2 agents and more
rounds. (c) is regret after T rounds. K is 16 for all d; the paper says K <= d^2.
"""

from curves import Curve, exponent, lasts, of_result, pick, pm, random_play, the
from drawing import CHANCE, Panel, Picture, Says, main, slope
from options import DubeyOptions

import fedbandit_jax as fb

DIMENSIONS, K = (4, 8, 16), 16
ALGOS = {"ε = 1": fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1)), "not private": fb.algos.fed_ucb()}
LOOKS = {"ε = 1": "#CC79A7 :", "not private": "#000000 -"}
HORIZONS = {100: (50, 5_000, 100_000), 2: (50, 500_000, 2_000_000)}  # M -> T for smoke, default and full
CLAIM = 'with ε = 1 and M = 100 regret has "essentially a quadratic dependence" on d'


def measure(options: DubeyOptions) -> list[Curve]:
    curves = []
    for m, horizons in HORIZONS.items():
        for d, colour, mark in zip(DIMENSIONS[: options.pick(2, 3, 3)], fb.plotting.COLOURS[1:], "os^"):
            env = fb.envs.gap(n_agents=options.pick(4, m, m), n_arms=K, dim=d)
            result = options.sweep(env, ALGOS, title=f"M = {m}, d = {d}", **options.run(*horizons))
            for one in of_result(result, f"M = {m}", each=m):
                look = f"{colour} {LOOKS[one.label][-1]} {mark}"
                curves.append(one.but(label=f"d = {d}, {one.label}", style=look))
        each, x = random_play(fb.envs.gap(n_agents=m, n_arms=K, dim=4)) / m, curves[-1].x  # the same for all d
        curves.append(Curve(f"M = {m}", CHANCE, x, each * x, "#999999 :"))
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, ends, seen = [], [], []
    for m, mark in zip(HORIZONS, "os"):
        panel = pick(curves, f"M = {m}")
        horizon, chance = panel[0].x[-1], the(panel, label=CHANCE).mean[-1]
        title = f"up to round $t$,\nM = {m}, T = {horizon:,.0f}"
        shown.append(Panel([one.per(one.x) for one in panel], title, "round $t$", kind="lines", xlim=(0, horizon)))
        for algo, look in LOOKS.items():
            mine = [one for one in panel if one.label.endswith(f", {algo}")]
            one = lasts(mine, "", DIMENSIONS[: len(mine)], f"{look} {mark}")
            power = pm(*exponent(one))
            ends.append(one.but(label=f"(c) M = {m}, {algo}: power {power}"))
            share = ", ".join(f"{value:.0%}" for value in one.mean / chance)
            seen.append(f"M = {m}, {algo}: d^({power}), {share} of uniform play at d = 4, 8, 16")
    shown[0].axes |= dict(ylim=(0, None), ylabel="regret per agent and round")
    last = shown[1].axes["xlim"][1]
    shown[1].axes |= dict(xscale="log", yscale="log", xlim=(last / 1000, last))
    words = "after T rounds", "features $d$", "regret per agent"
    powers = Panel(ends, *words, xscale="log", yscale="log", xticks=DIMENSIONS)
    powers.also = lambda ax: slope(ax, 2.0, DIMENSIONS, 0.6 * ends[2].mean[0], "(c) $d^2$, as the paper says")
    found = "not tested at M = 100 with privacy, where agents play at random in so few rounds; " + "; ".join(seen)
    says = Says("Fig. 1C", CLAIM, "M = 100, K <= d², T not said, 100 runs", found)
    setting = f"""FedUCB with K = {K}, gap 0.1, δ = 0.1, the paper's width and exact noise. Mean of {curves[0].n_seeds}
        seeds ± one standard error. Exponents have 95 % intervals. Dotted: no privacy claim, as raw data decide when to
        synchronise"""
    return Picture([*shown, powers], "FedUCB: regret against the number of features", setting, [says])


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
