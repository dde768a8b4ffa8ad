"""Draws what rewards that come late cost: regret against their delay, by its law and by who adds noise.

python experiments/beyond_delays.py [--smoke | --full]

Greedy play in batches that double, with noise on every batch ("input_perturbation"), for epsilon = 1 at delta =
1 / (10 M T), without privacy, with noise of every silo, or under secure aggregation. Every reward comes so many rounds
late, or as many as a geometric law with that mean says. The first release comes when as many rewards have arrived as
the noise asks for. (a) Regret. (b) What it exceeds that without delay by, seed by seed, for each round of delay, beside
what uniform play loses in a round. Held-out seeds; all private runs are certified.
"""

from typing import Any

from curves import Curve, claimed, final, gathered, pick
from drawing import Panel, Picture, main, styled
from matplotlib.axes import Axes
from options import Size

import fedbandit_jax as fb

M, K, D, T = 100, 20, 10, 2_000
A, P = fb.algos, fb.privacy
DELAYS, LOW = (0, 10, 50, 200), -25  # LOW: the lower end of (b)
CHANCE = "uniform play, in a round"
LOOKS = {"no noise": "#000000 o", "noise of every silo": "#D55E00 s", "secure aggregation": "#009E73 D"}
PALE = {"no noise": "#888888 ^", "noise of every silo": "#F0A868 v", "secure aggregation": "#66C5AB <"}
LAWS = {"fixed": LOOKS, "geometric": PALE}
STYLES = {f"{name}, {law} delays": look.replace(" ", " -") for law, of in LAWS.items() for name, look in of.items()}


def recipe(name: str, spec: fb.Spec, horizon: int) -> fb.algos.Federated:
    """Returns greedy play with this trust model, whose first release is as late as its noise and the delay ask for."""
    privacy = None
    if name != "no noise":
        privacy = P.Mechanism(
            P.Budget(1.0, 1 / (10 * spec.n_agents * horizon)),
            "input_perturbation",
            "secagg" if name.startswith("secure") else "silo_local",
            statistic=P.Linear(centred=True, gram_scale=0.5),
        )
    schedule = fb.schedules.Geometric(2.0, first=5 + spec.late)
    algo = A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy)
    return algo if privacy is None else algo.patient(spec, horizon)


def measure(options: Size) -> list[Curve]:
    """Returns regret by the delay and its law, and what uniform play loses in as many rounds."""
    run = options.ends(60, T, 2 * T, seeds=(2, 16, 16), fresh=1000)
    delays, horizon = options.pick((0, 5), DELAYS, DELAYS), run["horizon"]
    still: Any = fb.envs.sphere(*options.pick((8, 4, 3), (M, K, D), (4 * M, K, D)), rewards="bernoulli")
    uniform = final(fb.simulate(still, A.Federated(policy=A.Greedy(), schedule=horizon), **run)) / horizon
    points = []
    for law in LAWS:
        none = {}
        for delay in delays:
            env = fb.envs.delay(still, delay, law) if delay else still
            algos = {name: recipe(name, env.spec, horizon) for name in LOOKS}
            result = options.sweep(env, algos, title=f"{delay} rounds late, {law}", **run)
            for name in LOOKS:
                regret, label, claim = final(result[name]), f"{name}, {law} delays", claimed(result[name])
                more = regret - none.setdefault(name, regret)
                points += [("regret", label, delay, regret, claim), ("more", label, delay, more, claim)]
    curves = sorted(gathered(points, STYLES), key=lambda one: (list(STYLES).index(one.label), one.panel != "regret"))
    return [*curves, Curve("more", CHANCE, delays, [n * uniform for n in delays], "#999999 -.", "not private")]


def picture(curves: list[Curve]) -> Picture:
    *more, chance = pick(curves, "more")
    each = [one.but(x=one.x[1:], y=one.y[1:]).per(one.x[1:]) for one in more]
    lost, n = chance.mean[-1] / chance.x[-1], chance.n_seeds
    last = {one.label: f"{one.mean[-1]:.1f} ± {one.error[-1]:.2g}" for one in each}
    fixed, geometric = ([last[f"{name}, {law} delays"] for name in reversed(LOOKS)] for law in LAWS)
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
    shown: Any = dict(places=True, spread=0.03, label="{label}: {note}", look=dict(capsize=3))
    regret = pick(curves, "regret")
    a = Panel(regret, "regret by the delay", late, "group regret at T", yscale="log", **shown)
    b = Panel(each, "what a round of delay costs", late, "extra regret per round of delay", also=cut, **shown)
    b.axes["ylim"], b.level = (LOW, 50), {f"(b): {CHANCE}": lost}
    return Picture(
        [a, b],
        "Each round of delay costs a round of uniform play",
        f"M = {M}, K = {K}, d = {D}, T = {T:,}, ε = 1, δ = 1/(10 M T). Mean of {n} seeds ± one standard error. "
        "Geometric delays have this mean. A bar that ends in a triangle is cut",
        f"A fixed delay of {chance.x[-1]:g} rounds costs, for each of them, {found.format(*fixed)}. Uniform play loses "
        f"{lost:.1f} in a round ({n} paired seeds). Geometric delays of this mean cost {found.format(*geometric)}.",
        ncols=2,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
