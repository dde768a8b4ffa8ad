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

import jax
import matplotlib.pyplot as plt
import tyro
from curves import Curve, claimed, final, pick, quotient, random_play
from drawing import legend_of_all, remark, save
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
CHANCE = "random play"


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
    horizon, shares = options.pick(20, 1000, 2000), options.pick(SHARES[3:4], SHARES[1:], SHARES[1:])
    rules = options.pick(["sum", "trimmed_mean"], [*RULES], [*RULES])
    env = fb.envs.sphere(*options.shape(M, K, D), rewards="bernoulli")
    plain = {(e, rule): recipe(rule, value, env.spec, horizon) for e, value in EPSILONS.items() for rule in rules}
    algos: dict[str, fb.Algorithm] = {}
    for (e, rule), algo in plain.items():
        algos[f"{e} {rule}"] = algo.replace(liars=fb.privacy.Liars(0.0))
        for attack in ATTACKS:
            for share in shares:
                algos[f"{e} {rule} {attack} {share}"] = algo.replace(liars=fb.privacy.Liars(share, attack))
    key = jax.random.key(options.seed + 3000)  # not the seeds on which constants were chosen
    run: dict[str, Any] = dict(
        horizon=horizon, stride=horizon, seeds=options.pick(2, 16, 32), key=key, throw=False, store=options.store
    )
    result = fb.sweep(env, algos, **run, progress=True)
    curves = []
    for e, rule in plain:
        for attack in ATTACKS:
            shown = [result[f"{e} {rule}"], *(result[f"{e} {rule} {attack} {share}"] for share in shares)]
            y = [final(one) for one in shown]
            name, look = RULES[rule]
            curves.append(Curve(f"{e}, {ATTACKS[attack]}", name, (0.0, *shares), y, look, claimed(shown[0])))
    return [*curves, Curve(CHANCE, CHANCE, [horizon], [horizon * random_play(env)])]


def main(options: Size) -> None:
    curves = options.numbers("beyond_liars", lambda: measure(options))
    figure, axes = plt.subplots(
        len(EPSILONS), len(ATTACKS), figsize=(10.5, 7.6), layout="constrained", sharex=True, sharey="row"
    )
    (chance,), seen = pick(curves, CHANCE), []
    letters = iter("abcdefghijkl")
    for row, e in zip(axes, EPSILONS):
        for ax, attack in zip(row, ATTACKS.values()):
            panel = pick(curves, f"{e}, {attack}")
            honest = panel[0].y[0]
            ax.axhline(chance.mean[0], color="#999999", linestyle="-.", label=CHANCE)
            for one in panel:
                colour, mark = one.style.split()
                look: dict[str, Any] = dict(color=colour, marker=mark, label=one.label)
                ax.errorbar(one.x, one.mean, one.error, markersize=5, capsize=2, **look)
                found = [f"{x:g}: {y:,.0f} ± {s:,.0f}" for x, y, s in zip(one.x, one.mean, one.error)]
                times, error = quotient(one.y[min(3, len(one.x) - 1)], honest)
                print(f"{e}, {attack}, {one.label} ({one.note}): {', '.join(found)}; {times:.2f} ± {error:.2f} at 20 %")
                if (one.label, attack) == ("geometric median", ATTACKS["sign_flip"]):
                    seen.append(f"{times:.2f} ± {error:.2f} ({e})")
            ax.set_title(f"({next(letters)}) {attack}", fontsize="medium")
            ax.set(yscale="log")
            ax.grid(alpha=0.3)
        row[0].set_ylabel(f"{e}\nregret of all users")
    for ax in axes[-1]:
        ax.set_xlabel("share of silos that lie")
    legend_of_all(figure, ncols=5)
    figure.suptitle(
        f"What a silo that lies sends (titles), and the rule by which the server adds up: M = {M}, K = {K}, d = {D}, "
        f"T = {chance.x[0]:,.0f},\nδ = 1 / (10 M T), private: noise of every silo, certified; {curves[0].n_seeds} "
        "seeds ± one standard error; rows have scales of their own",
        fontsize="medium",
    )
    worst = pick(curves, f"ε = 1, {ATTACKS['large']}")[0]
    trimmed = pick(curves, f"ε = 1, {ATTACKS['large']}", "trimmed mean")[0]
    fails = [f"{100 * x:.0f} %" for x, y in zip(trimmed.x, trimmed.mean) if y > chance.mean[0]]
    times = worst.mean[1] / chance.mean[0]
    remark(
        figure,
        "If 20 % of the silos send minus their sums, the geometric median has "
        f"{', '.join(seen)} times the regret of the plain sum where nobody lies. Minus 1,000 times their sums from "
        f"{100 * worst.x[1]:.0f} % of the silos make the plain sum {times:.1f} times as bad as "
        f"random play at ε = 1; the trimmed mean is worse than random play at "
        f"{' and '.join(fails)}. {M} silos, {curves[0].n_seeds} seeds.",
    )
    save("beyond_liars", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
