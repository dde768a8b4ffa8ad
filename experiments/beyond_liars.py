"""Draws the cost of Byzantine silos, by their share, their message, and the rule by which the server adds up.

Every silo sends its private sums [W | U]; a share of the silos sends something else. The server takes the plain sum, or
M times the median of every coordinate, the geometric median, or the mean of the middle half. Agents play greedily from
the round on that `Federated.patient` chooses for each rule. Regret is summed over the users of all silos.
"""

from curves import along, pick, ratio, the, uniform
from drawing import CHANCE, Curve, Panel, Picture, Size, level, main
from recipes import GREEDY, with_noise

import fedbandit_jax as fb

M, K, D = 100, 10, 5
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
RULES = {  # rule -> its words, colour and marker
    "sum": ("sum", "#882255 o"),
    "median": ("median", "#0072B2 s"),
    "geometric_median": ("geometric median", "#D55E00 D"),
    "trimmed_mean": ("trimmed mean", "#009E73 ^"),
}
ATTACKS = {
    "sign_flip": "minus its sums",
    "collude": "as if θ* were e₁",
    "random": "random messages",
    "large": "minus 1,000 × its sums",
}
EPSILONS = {"ε = 1": 1.0, "ε = 5": 5.0, "not private": None}


def measure(options: Size) -> list[Curve]:
    run = options.ends(20, 1000, 2000, seeds=(2, 16, 32), fresh=3000)
    shares = options.pick(SHARES[3:4], SHARES[1:], SHARES[1:])
    env, algos = fb.envs.sphere(*options.shape(M, K, D), rewards="bernoulli"), {}
    early = GREEDY.replace(schedule=fb.schedules.Geometric(1.5, first=2))
    asked = [(e, rule) for e in EPSILONS for rule in options.pick(["sum", "trimmed_mean"], [*RULES], [*RULES])]
    for e, rule in asked:
        plain = early.replace(aggregate=rule)
        algo = with_noise(plain, env, run["horizon"], EPSILONS[e], fb.privacy.Decaying(1.5))
        algos[f"{e} {rule}"] = algo.replace(liars=fb.privacy.Liars(0.0))
        algos |= {
            f"{e} {rule} {attack} {share}": algo.replace(liars=fb.privacy.Liars(share, attack))
            for attack in ATTACKS
            for share in shares
        }
    result, curves = options.sweep(env, algos, **run), []
    for e, rule in asked:
        for attack, words in ATTACKS.items():
            shown = [f"{e} {rule}", *(f"{e} {rule} {attack} {share}" for share in shares)]
            name, look = RULES[rule]
            curves.append(along(f"{e}, {words}", name, (0.0, *shares), map(result.__getitem__, shown), look))
    return [*curves, uniform(env, run["horizon"], x=run["horizon"])]


def picture(curves: list[Curve]) -> Picture:
    chance, n = the(curves, CHANCE), curves[0].n_seeds
    panels = []
    for e in EPSILONS:
        for words in ATTACKS.values():
            axis = "share of silos that lie" if e == "not private" else ""
            panels.append(Panel(pick(curves, f"{e}, {words}"), words, axis, level=level(curves), yscale="log"))
        panels[-len(ATTACKS)].axes["ylabel"] = f"{e}\nregret of all users"
    seen = []
    for e in EPSILONS:
        rules = {one.label: one for one in pick(curves, f"{e}, {ATTACKS['sign_flip']}")}
        if one := rules.get("geometric median"):
            seen.append(f"{ratio(one.at(0.2), rules['sum'].at(0.0))} ({e})")
    worst, *_, trimmed = pick(curves, f"ε = 1, {ATTACKS['large']}")
    fails = [f"{100 * x:.0f} %" for x, y in zip(trimmed.x, trimmed.mean) if y > chance.mean[0]]
    return Picture(
        panels,
        "The geometric median withstands a fifth of liars",
        f"Titles say what a silo that lies sends, and the legend by which rule the server adds up. M = {M}, K = {K}, d "
        f"= {D}, T = {chance.x[0]:,.0f}, δ = 1 / (10 M T). Private: noise of every silo, certified. Mean of {n} seeds "
        "± one standard error. Rows have scales of their own",
        f"If 20 % of the silos send minus their sums, regret of the geometric median over the plain sum's without "
        f"liars is {', '.join(seen)}. If {100 * worst.x[1]:.0f} % send minus 1,000 times their sums, the plain "
        f"sum has {worst.mean[1] / chance.mean[0]:.1f} times the regret of uniform play at ε = 1. The trimmed mean is "
        f"worse than uniform play at {' and '.join(fails)}.",
        shape=(len(EPSILONS), len(ATTACKS)),
        height=5.4,
        grid=dict(sharex=True, sharey="row"),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
