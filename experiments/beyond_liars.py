"""Draws what silos that lie cost, by how many they are, what they say, and the rule by which the server adds up.

python experiments/beyond_liars.py [--smoke | --full] [--redraw]

Every silo sends its private sums [W | U], with noise of its own at delta = 1 / (10 M T), or without privacy. A share of
the silos sends something else: minus its sums, minus a thousand times its sums, a random message of the same size, or
the sums that it would have if the reward of every arm were its first feature. The server takes the plain sum of what it
is sent, or M times the median of every coordinate, the geometric median, or the mean of the middle half. Agents play
greedily on it, from the round on that `Federated.patient` chooses for the noise of each rule. Regret is that of the
users of all silos: those of silos that lie are served by the same rule.
"""

from typing import Any

from curves import Curve, claimed, final, pick, random_play, ratio, the
from drawing import CHANCE, Panel, Picture, main
from options import Size

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


def recipe(rule: str, epsilon: float | None, spec: fb.Spec, horizon: int) -> fb.algos.Federated:
    """Returns greedy play on growing batches."""
    made: dict[str, Any] = dict(policy=fb.algos.Greedy(), schedule=fb.schedules.Geometric(1.5, first=2), aggregate=rule)
    if epsilon is None:
        return fb.algos.Federated(**made)
    budget = fb.privacy.Budget(epsilon, 1 / (10 * spec.n_agents * horizon))
    statistic = fb.privacy.Linear(centred=True, gram_scale=0.5)
    mechanism = fb.privacy.Mechanism(budget, fb.privacy.Decaying(1.5), statistic=statistic)
    return fb.algos.Federated(**made, privacy=mechanism).patient(spec, horizon)


def measure(options: Size) -> list[Curve]:
    """Returns final regret against the share of liars, for every rule, attack and epsilon."""
    run = options.ends(20, 1000, 2000, seeds=(2, 16, 32), fresh=3000)
    shares = options.pick(SHARES[3:4], SHARES[1:], SHARES[1:])
    env, horizon = fb.envs.sphere(*options.shape(M, K, D), rewards="bernoulli"), run["horizon"]
    rules = options.pick(["sum", "trimmed_mean"], [*RULES], [*RULES])
    plain = {(e, rule): recipe(rule, value, env.spec, horizon) for e, value in EPSILONS.items() for rule in rules}
    algos: dict[str, fb.Algorithm] = {}
    for (e, rule), algo in plain.items():
        algos[f"{e} {rule}"] = algo.replace(liars=fb.privacy.Liars(0.0))
        for attack in ATTACKS:
            for share in shares:
                algos[f"{e} {rule} {attack} {share}"] = algo.replace(liars=fb.privacy.Liars(share, attack))
    result, curves = options.sweep(env, algos, **run), []
    for e, rule in plain:
        for attack, words in ATTACKS.items():
            shown = [result[f"{e} {rule}"], *(result[f"{e} {rule} {attack} {share}"] for share in shares)]
            name, look = RULES[rule]
            y = [final(one) for one in shown]
            curves.append(Curve(f"{e}, {words}", name, (0.0, *shares), y, look, claimed(shown[0])))
    return [*curves, Curve(CHANCE, CHANCE, [horizon], [horizon * random_play(env)])]


def picture(curves: list[Curve]) -> Picture:
    chance, n = the(curves, CHANCE), curves[0].n_seeds
    panels = [
        Panel(
            pick(curves, f"{e}, {words}"),
            words,
            "share of silos that lie" if e == "not private" else "",
            f"{e}\nregret of all users" if words == ATTACKS["sign_flip"] else "",
            level={CHANCE: chance.mean[0]},
            yscale="log",
        )
        for e in EPSILONS
        for words in ATTACKS.values()
    ]
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
        f"If 20 % of the silos send minus their sums, regret of the geometric median over that of the plain sum where "
        f"nobody lies is {', '.join(seen)}. If {100 * worst.x[1]:.0f} % send minus 1,000 times their sums, the plain "
        f"sum has {worst.mean[1] / chance.mean[0]:.1f} times the regret of uniform play at ε = 1. The trimmed mean is "
        f"worse than uniform play at {' and '.join(fails)}.",
        shape=(len(EPSILONS), len(ATTACKS)),
        height=5.4,
        ncols=5,
        grid=dict(sharex=True, sharey="row"),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
