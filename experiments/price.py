"""Draws what privacy costs: regret against epsilon at delta = 10^-7, and regret without privacy.

All private curves have the same instance, delta and unit, one visit. The first is Algorithm 8 of Zhou & Chowdhury
(2024) with exact accounting, the second the same with a tenth of its confidence width. The third has the same trust:
every silo adds its own noise; `beyond_silos.py` has its ingredients. The fourth needs secure aggregation.
"""

from curves import final, uniform
from drawing import CHANCE, LOGS, Curve, Panel, Picture, Size, main
from recipes import GREEDY, with_noise

import fedbandit_jax as fb

EPSILONS, DELTA = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0), 1e-7
TREE, NARROW, FREE = "published, tree noise", "published, width / 10", "not private"
LOCAL, SECURE = "greedy, less noise", "secure aggregation"
LOOKS = {TREE: "#0072B2 o", NARROW: "#56B4E9 v", LOCAL: "#D55E00 s", SECURE: "#009E73 D", FREE: "#000000"}
TRUST = {LOCAL: "silo_local", SECURE: "secagg"}


def measure(options: Size) -> list[Curve]:
    env = fb.envs.sphere(*options.shape(100, 100, 10), rewards="bernoulli")
    run, epsilons = options.ends(50, 10_000, 10_000), EPSILONS[: options.pick(2, 6, 6)]
    horizon, found = run["horizon"], {}
    for e in epsilons:
        published = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(e, DELTA))
        algos: dict[str, fb.Algorithm] = {TREE: published, NARROW: published.replace(exploration_scale=0.1)}
        for name, trust in TRUST.items():
            algos[name] = with_noise(GREEDY, env, horizon, e, fb.privacy.Decaying(1.5), trust, DELTA)
        result = options.sweep(env, algos, title=f"epsilon = {e:g}", **run)
        for label in result:
            assert result[label].certificate.claim == "certified"
            found.setdefault(label, []).append(final(result[label]))
    panel = f"T = {horizon:,}"
    curves = [Curve(panel, label, epsilons, regret, LOOKS[label], "certified") for label, regret in found.items()]
    free = options.sweep(env, {FREE: GREEDY}, **run)
    return [*curves, Curve(FREE, FREE, [0], [final(free[FREE])], LOOKS[FREE], "not private"), uniform(env, horizon)]


def picture(curves: list[Curve]) -> Picture:
    *lines, free, chance = curves
    x = lines[0].x
    flat = free.but(x=x, y=[free.y[0]] * len(x))
    words = "", "ε at δ = $10^{-7}$", "group regret"
    panel = Panel([*lines, flat], *words, ends=True, xticks=x, level={CHANCE: chance.mean[0]}, **LOGS)
    at = min(range(len(x)), key=lambda i: abs(x[i] - 1))
    tree, narrow, local, secure = (one.said(at) for one in lines)
    return Picture(
        [panel],
        f"Same guarantee, same trust: {lines[1].mean[at] / lines[2].mean[at]:.0f} times less regret",
        f"M = 100 silos, K = 100, d = 10, {lines[0].panel}. Mean of {lines[0].n_seeds} seeds ± one standard error. "
        "All curves in colour are certified. In the first three every silo adds its own noise",
        f"At ε = {x[at]:g} the published algorithm has {tree}, and {narrow} with a tenth of its width, the best of "
        f"five widths tried. Greedy play with the same trust has {local}, and {secure} with secure aggregation. "
        f"Greedy play without privacy has {free.said()}, and uniform play "
        f"{chance.said()}.",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
