"""Draws what rewards that come late cost: regret against their delay, by its law and by who adds noise.

Greedy play in batches that double, with noise on every batch ("input_perturbation"), on held-out seeds. The delay of
every reward is fixed, or geometric with this mean. (a) Regret. (b) Extra regret over no delay, seed by seed, for each
round of delay.
"""

from functools import partial

from curves import claimed, final, gathered, pick
from drawing import Axes, Curve, Panel, Picture, Size, main, styled
from recipes import GREEDY, with_noise

import fedbandit_jax as fb

M, K, D, T = 100, 20, 10, 2_000
DELAYS, LOW = (0, 10, 50, 200), -25  # LOW: the lower end of (b)
CHANCE = "uniform play, in a round"
TRUST = {"no noise": "", "noise of every silo": "silo_local", "secure aggregation": "secagg"}
LAWS = {"fixed": ("#000000 -o", "#D55E00 -s", "#009E73 -D"), "geometric": ("#888888 -^", "#F0A868 -v", "#66C5AB -<")}
STYLES = {f"{name}, {law} delays": look for law, looks in LAWS.items() for name, look in zip(TRUST, looks)}


def measure(options: Size) -> list[Curve]:
    run = options.ends(60, T, 2 * T, seeds=(2, 16, 16), fresh=1000)
    delays, horizon, points = options.pick((0, 5), DELAYS, DELAYS), run["horizon"], []
    still = fb.envs.sphere(*options.pick((8, 4, 3), (M, K, D), (4 * M, K, D)), rewards="bernoulli")
    lost = final(fb.simulate(still, GREEDY.replace(schedule=horizon), **run)) / horizon
    for law in LAWS:
        none = {}
        for delay in delays:
            env = fb.envs.delay(still, delay, law) if delay else still
            late = GREEDY.replace(schedule=fb.schedules.Geometric(2.0, 5 + env.spec.late))
            make = partial(with_noise, late, env, horizon, release="input_perturbation")
            algos = {name: make(1.0 if trust else None, trust=trust) for name, trust in TRUST.items()}
            result = options.sweep(env, algos, title=f"{delay} rounds late, {law}", **run)
            for name in TRUST:
                regret, point = final(result[name]), (f"{name}, {law} delays", delay)
                more = regret - none.setdefault(name, regret)
                points += [
                    (panel, *point, y, claimed(result[name])) for panel, y in (("regret", regret), ("more", more))
                ]
    curves = sorted(gathered(points, STYLES), key=lambda one: (list(STYLES).index(one.label), one.panel != "regret"))
    return [*curves, Curve("more", CHANCE, delays, [n * lost for n in delays], "#999999 -.", "not private")]


def picture(curves: list[Curve]) -> Picture:
    *more, chance = pick(curves, "more")
    each = [one.but(x=one.x[1:], y=one.y[1:]).per(one.x[1:]) for one in more]
    lost, n = chance.mean[-1] / chance.x[-1], chance.n_seeds
    last = {one.label: f"{one.mean[-1]:.1f} ± {one.error[-1]:.2g}" for one in each}
    fixed, geometric = ([last[f"{name}, {law} delays"] for name in reversed(TRUST)] for law in LAWS)
    found = "{} under secure aggregation, {} with noise of every silo and {} without noise"

    def cut(ax: Axes) -> None:
        """Writes the numbers of points below the axes."""
        for i, one in enumerate(each):
            for x, (y, error) in enumerate(zip(one.mean, one.error)):
                if y - error < LOW:
                    at, words = b.aside(i, x), f"{y:.0f} ± {error:.0f}".replace("-", "−")
                    ax.plot(at, LOW + 0.8, "v", color=styled(one)[0], markersize=5)
                    ax.text(at + 0.04, LOW + 1, words, color="#555555", fontsize="small")

    late = "rounds by which rewards are late (not to scale)"
    panel = partial(Panel, xlabel=late, places=True, spread=0.03, label="{label}: {note}", look=dict(capsize=3))
    a = panel(pick(curves, "regret"), "regret by the delay", ylabel="group regret at T", yscale="log")
    b = panel(each, "what a round of delay costs", ylabel="extra regret per round of delay", ylim=(LOW, 50), also=cut)
    b.level = {f"(b): {CHANCE}": lost}
    return Picture(
        [a, b],
        "Each round of delay costs a round of uniform play",
        f"M = {M}, K = {K}, d = {D}, T = {T:,}, ε = 1, δ = 1/(10 M T). Mean of {n} seeds ± one standard error. "
        "Geometric delays have this mean. A bar that ends in a triangle is cut",
        f"A fixed delay of {chance.x[-1]:g} rounds costs, for each of them, {found.format(*fixed)}. Uniform play loses "
        f"{lost:.1f} in a round ({n} paired seeds). Geometric delays of this mean cost {found.format(*geometric)}.",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
