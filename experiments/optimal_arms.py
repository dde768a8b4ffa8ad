"""Draws the regret of private multi-armed algorithms over the least that any can have as T grows, against epsilon.

python experiments/optimal_arms.py [--smoke | --full] [--redraw]

The least regret is the sum over arms of gap log T / d(mean, best mean), with d of Azize et al. (2025) for pure DP at a
trusted server. At a finite T regret may be smaller. Phased KL-UCB and IMED are ours, after that paper. AdaC-UCB is
from Azize & Basu (2024), elimination from Chowdhury & Zhou (2023) and Sajed & Sheffet (2019). Every sum has discrete
Laplace noise. With secure aggregation (`DistDPSE`) it has the same law.
"""

from typing import Any

import jax
from curves import Curve, pick, pm
from drawing import Panel, Picture, dressed, main
from options import Size

import fedbandit_jax as fb

INSTANCES = {"5 arms": (0.75, 0.625, 0.5, 0.375, 0.25), "10 close arms": (0.55, *[0.45] * 9)}
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
LOOKS = {
    "Phased KL-UCB": "#332288 o",
    "Phased IMED": "#332288 v",
    "AdaC-UCB": "#882255 <",
    "CDP-SE, exact radius": "#E69F00 s",
    "CDP-SE": "#E69F00 D",
    "DP-SE": "#0072B2 ^",
}


def algorithms(epsilon: float) -> list[fb.Algorithm]:
    """Returns the algorithms at one epsilon, with noise at a trusted server."""
    sums = fb.algos.CDPSE(epsilon, radius="exact", name="CDP-SE, exact radius")
    one_arm = fb.algos.PhasedKLUCB(sums), fb.algos.PhasedIMED(sums), fb.algos.AdaCUCB(sums)
    return [*one_arm, sums, fb.algos.CDPSE(epsilon), fb.algos.DPSE(epsilon)]


def measure(options: Size) -> list[Curve]:
    """Returns regret over the lower bound (epsilons, seeds), by instance and algorithm."""
    horizon, curves = options.pick(20_000, 10**6, 10**7), []
    run: dict[str, Any] = dict(horizon=horizon, stride=horizon, key=jax.random.key(options.seed + 2030))
    epsilons = EPSILONS[: options.pick(2, 5, 5)]
    for title, means in INSTANCES.items():
        env, found = fb.envs.arms(means=means, rewards="bernoulli"), {}
        for epsilon in epsilons:
            least = fb.algos.regret_lower_bound(means, epsilon, horizon)
            result = fb.sweep(env, algorithms(epsilon), seeds=options.pick(2, 100, 100), **run)
            for label in result:
                assert result[label].certificate.claim == "certified"
                found.setdefault(label, []).append(result[label].regret[:, -1] / least)
        note = f"T = {horizon:,}"
        curves += [Curve(title, label, epsilons, ratios, note=note) for label, ratios in found.items()]
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, seen = [], []
    for title in INSTANCES:
        ones = pick(curves, title)
        panel = Panel(dressed(ones, LOOKS), title, "ε", xscale="log", yscale="log", xticks=ones[0].x)
        panel.level = {"lower bound, as T grows": 1}
        shown.append(panel)
        at = list(ones[0].x).index(1.0) if 1.0 in ones[0].x else 0
        values = ", ".join(f"{one.label} {pm(one.mean[at], one.error[at], 2)}" for one in ones)
        seen.append(f"{title} at ε = {ones[0].x[at]:g}: {values}.")
    shown[0].axes["ylabel"] = "regret over lower bound"
    return Picture(
        shown,
        "Remembering sums comes near the least regret",
        f"Bernoulli arms, {curves[0].note}, {curves[0].n_seeds} seeds, mean ± s.e. All are certified: ε-DP with "
        "a trusted server. 5 arms have means 0.75 to 0.25, and of 10 close arms one has 0.55 and nine have 0.45",
        " ".join(seen),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
