"""Draws the regret of private multi-armed algorithms over the least that any can have as T grows, against epsilon.

The least regret is the sum over arms of gap log T / d(mean, best mean), with d of Azize et al. (2025) for pure DP at a
trusted server. At a finite T regret may be smaller. Every sum has discrete Laplace noise. With secure aggregation
(`DistDPSE`) it has the same law.
"""

from collections.abc import Callable
from typing import Any

import jax
from curves import final, pick, pm
from drawing import LOGS, Curve, Panel, Picture, Size, dressed, main

import fedbandit_jax as fb

INSTANCES = {"5 arms": (0.75, 0.625, 0.5, 0.375, 0.25), "10 close arms": (0.55, *[0.45] * 9)}
EPSILONS, HORIZONS = (0.1, 0.3, 1.0, 3.0, 10.0), (10**6, 10**7)
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


def against_epsilon(
    options: Size, make: Callable[[float], list[fb.Algorithm]], fresh: int, unit: Any, longest: int = 10**6
) -> list[Curve]:
    """Returns regret over a unit (means, epsilon, T) by instance and algorithm, all certified at epsilon."""
    horizon, curves = options.pick(longest // 50, longest, longest), []
    run: dict[str, Any] = dict(horizon=horizon, stride=horizon, key=jax.random.key(options.seed + fresh))
    epsilons = EPSILONS[: options.pick(2, 5, 5)]
    for title, means in INSTANCES.items():
        env, found = fb.envs.arms(means=means, rewards="bernoulli"), {}
        for epsilon in epsilons:
            result = fb.sweep(env, make(epsilon), seeds=options.pick(2, 100, 100), **run)
            for label in result:
                certificate = result[label].certificate
                assert certificate.claim == "certified"
                assert (certificate.epsilon_exact or 0) <= epsilon * (1 + 1e-6)
                found.setdefault(label, []).append(final(result[label], each=unit(means, epsilon, horizon)))
        curves += [Curve(title, label, epsilons, regret, note=f"T = {horizon:,}") for label, regret in found.items()]
    return curves


def measure(options: Size) -> list[Curve]:
    found = (against_epsilon(options, algorithms, 2030, fb.algos.regret_lower_bound, longest) for longest in HORIZONS)
    return [one.but(panel=f"{one.panel}, {one.note}", note="") for curves in found for one in curves]


def by_instance(curves: list[Curve], looks: dict[str, str], digits: int, **more: Any) -> tuple[list[Panel], str]:
    """Returns a panel for every instance, and the regrets at epsilon = 0.1, 1 and 10 in words."""
    shown, seen = [], []
    for title in dict.fromkeys(one.panel for one in curves):
        ones = pick(curves, title)
        shown.append(Panel(dressed(ones, looks), title, "ε", xticks=ones[0].x, **LOGS, **more))
        for at in (i for i, epsilon in enumerate(ones[0].x) if epsilon in (0.1, 1.0, 10.0)):
            values = ", ".join(f"{one.label} {pm(one.mean[at], one.error[at], digits)}" for one in ones)
            seen.append(f"{title} at ε = {ones[0].x[at]:g}: {values}.")
    return shown, " ".join(seen)


def picture(curves: list[Curve]) -> Picture:
    shown, seen = by_instance(curves, LOOKS, 2, level={"lower bound, as T grows": 1})
    return Picture(
        shown,
        "Remembering sums comes near the least regret",
        f"Bernoulli arms, {curves[0].n_seeds} seeds, mean ± s.e. All are certified: ε-DP with a trusted server. 5 arms "
        "have means 0.75 to 0.25, and of 10 close arms one has 0.55 and nine have 0.45",
        seen,
        shape=(2, 2),
        ylabel="regret over lower bound",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
