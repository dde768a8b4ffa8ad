"""Draws what privacy costs: regret against epsilon at delta = 10^-7, and regret without privacy.

python experiments/price.py [--smoke | --full] [--redraw]

All private curves have the same instance, delta and unit, one visit. The first is Algorithm 8 of Zhou & Chowdhury
(2024) with exact accounting. The second has the same trust: every silo adds its own noise. Its ingredients are in
experiments/beyond_silos.py. The others need secure aggregation, with which the silos share the noise. The best play
without privacy that we know is greedy, in batches that grow.
"""

import dataclasses

from curves import Curve, random_play
from drawing import CHANCE, Panel, Picture, main
from options import Size

import fedbandit_jax as fb

EPSILONS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TREE, LOCAL, SECURE, FREE = "published, tree noise", "greedy, less noise", "secure aggregation", "not private"
LOOKS = {TREE: "#0072B2 o", LOCAL: "#D55E00 s", SECURE: "#009E73 D", FREE: "#000000"}


def algorithms(env: fb.Environment, epsilon: float, horizon: int) -> list[fb.Algorithm]:
    """Returns the private algorithms at one epsilon; greedy ones wait for their first release as long as is best."""
    budget, statistic = fb.privacy.Budget(epsilon, 1e-7), fb.privacy.Linear(centred=True, gram_scale=0.5)
    local = fb.privacy.Mechanism(budget, release=fb.privacy.Decaying(1.5), statistic=statistic)
    greedy = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=fb.schedules.Geometric(1.5), privacy=local)
    secure = greedy.replace(privacy=dataclasses.replace(local, trust="secagg"), name=SECURE)
    waiting = [one.patient(env.spec, horizon=horizon) for one in (greedy.replace(name=LOCAL), secure)]
    return [fb.algos.private_fed_lin_ucb(budget, name=TREE), *waiting]


def measure(options: Size) -> list[Curve]:
    """Returns final regret (epsilons, seeds) by algorithm, and the two levels without privacy."""
    env = fb.envs.sphere(*options.shape(100, 100, 10), rewards="bernoulli")
    run, epsilons = options.ends(50, 10_000, 10_000), EPSILONS[: options.pick(2, 6, 6)]
    panel, found = f"T = {run['horizon']:,}", {}
    for epsilon in epsilons:
        result = options.sweep(env, algorithms(env, epsilon, run["horizon"]), title=f"epsilon = {epsilon:g}", **run)
        for label in result:
            assert result[label].certificate.claim == "certified"
            found.setdefault(label, []).append(result[label].regret[:, -1])
    curves = [Curve(panel, label, epsilons, regret, LOOKS[label], "certified") for label, regret in found.items()]
    schedule = fb.schedules.Geometric(1.5)
    free = options.sweep(env, [fb.algos.Federated(policy=fb.algos.Greedy(), schedule=schedule, name=FREE)], **run)
    uniform = Curve(CHANCE, CHANCE, [0], [random_play(env) * run["horizon"]], "#999999 :", "not private")
    return [*curves, Curve(FREE, FREE, [0], [free[FREE].regret[:, -1]], LOOKS[FREE], "not private"), uniform]


def picture(curves: list[Curve]) -> Picture:
    *lines, free, uniform = curves
    x = lines[0].x
    flat = free.but(x=x, y=[free.y[0]] * len(x))
    panel = Panel([*lines, flat], "", "ε at δ = $10^{-7}$", "group regret", ends=True, xscale="log", yscale="log")
    panel.xticks, panel.level = x, {CHANCE: uniform.mean[0]}
    at = min(range(len(x)), key=lambda i: abs(x[i] - 1))
    tree, local, secure = (one.said(at) for one in lines)
    return Picture(
        [panel],
        f"Same guarantee, same trust: {lines[0].mean[at] / lines[1].mean[at]:.0f} times less regret",
        f"M = 100 silos, K = 100, d = 10, {lines[0].panel}. Mean of {lines[0].n_seeds} seeds ± one standard error. "
        "All curves in colour are certified. In the first two every silo adds its own noise",
        f"At ε = {x[at]:g} the published algorithm has {tree}, and ours with the same trust {local}. With secure "
        f"aggregation it has {secure}. Greedy play without privacy has {free.said()}, and uniform play "
        f"{uniform.said()}.",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
