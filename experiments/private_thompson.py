"""Compares Thompson sampling that is private by its own samples with algorithms that add noise to sums once.

python experiments/private_thompson.py [--smoke | --full] [--redraw]

Ours, after Ou, Avella Medina & Cummings (2024): every sample of a posterior is a Gaussian mechanism. The variance of
samples grows by a constant (ours) or by a factor (theirs) until the budget holds. Phased Thompson (ours), AdaC-UCB
(Azize & Basu 2024) and Phased KL-UCB (ours after Azize et al. 2025) add discrete Laplace noise to every sum once, at a
trusted server. Their pure epsilon-DP is also (epsilon, delta)-DP. An arm starts with 100 users or more for Thompson
sampling: 30 / epsilon for the constant, 100 / epsilon for the factor, 60 / epsilon on sums. This was chosen on other
seeds.
"""

from typing import Any

import jax
from curves import Curve, pick, pm
from drawing import Panel, Picture, dressed, main
from options import Size

import fedbandit_jax as fb

INSTANCES = {"5 arms": (0.75, 0.625, 0.5, 0.375, 0.25), "10 close arms": (0.55, *[0.45] * 9)}
EPSILONS, DELTA = (0.1, 0.3, 1.0, 3.0, 10.0), 1e-6
LOOKS = {
    "Thompson, constant": "#56B4E9 o",
    "Thompson, factor": "#0072B2 s",
    "Phased Thompson": "#CC79A7 ^",
    "AdaC-UCB": "#882255 <",
    "Phased KL-UCB": "#332288 v",
    "Thompson, not private": "#666666 -- D",
}


def algorithms(epsilon: float) -> list[fb.Algorithm]:
    """Returns the algorithms at one epsilon, with a trusted server."""
    thompson = fb.algos.ThompsonArms(epsilon, delta=DELTA)
    sums = fb.algos.CDPSE(epsilon, radius="exact")
    return [
        thompson.replace(first=max(100, round(30 / epsilon)), name="Thompson, constant"),
        thompson.replace(first=max(100, round(100 / epsilon)), inflate="factor", name="Thompson, factor"),
        fb.algos.PhasedThompson(sums, first=max(100, round(60 / epsilon))),
        fb.algos.AdaCUCB(sums),
        fb.algos.PhasedKLUCB(sums),
    ]


def measure(options: Size) -> list[Curve]:
    """Returns regret (epsilons, seeds), by instance and algorithm."""
    horizon, curves, seeds = options.pick(20_000, 10**6, 10**7), [], options.pick(2, 100, 100)
    run: dict[str, Any] = dict(horizon=horizon, stride=horizon, key=jax.random.key(options.seed + 2060), seeds=seeds)
    epsilons = EPSILONS[: options.pick(2, 5, 5)]
    for title, means in INSTANCES.items():
        env, found = fb.envs.arms(means=means, rewards="bernoulli"), {}
        plain = fb.algos.ThompsonArms(1e6, growth=1.2, name="Thompson, not private")
        free = fb.simulate(env, plain, **run).regret[:, -1]
        for epsilon in epsilons:
            result = fb.sweep(env, algorithms(epsilon), **run)
            for label in result:
                assert result[label].certificate.claim == "certified"
                assert result[label].certificate.epsilon_exact <= epsilon * (1 + 1e-6)
                found.setdefault(label, []).append(result[label].regret[:, -1])
            found.setdefault(plain.name, []).append(free)
        note = f"T = {horizon:,}"
        curves += [Curve(title, label, epsilons, regrets, note=note) for label, regrets in found.items()]
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, seen = [], []
    for title in INSTANCES:
        ones = pick(curves, title)
        shown.append(Panel(dressed(ones, LOOKS), title, "ε", xscale="log", yscale="log", xticks=ones[0].x))
        at = list(ones[0].x).index(1.0) if 1.0 in ones[0].x else 0
        values = ", ".join(f"{one.label} {pm(one.mean[at], one.error[at], 0)}" for one in ones)
        seen.append(f"{title} at ε = {ones[0].x[at]:g}: {values}.")
    shown[0].axes["ylabel"] = "regret"
    return Picture(
        shown,
        "A sample pays every time, a sum once",
        f"Bernoulli arms, {curves[0].note}, {curves[0].n_seeds} seeds, mean ± s.e. Solid curves are certified with a "
        "trusted server: (ε, 10⁻⁶)-DP for constant and factor, and ε-DP for the others. 5 arms have means 0.75 to "
        "0.25, and of 10 close arms one has 0.55 and nine have 0.45",
        " ".join(seen),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
