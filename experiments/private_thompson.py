"""Compares Thompson sampling that is private by its own samples with algorithms that add noise to sums once.

Ours, after Ou, Avella Medina & Cummings (2024): every sample of a posterior is a Gaussian mechanism. The variance of
samples grows by a constant (ours) or by a factor (theirs) until the budget holds. An arm starts with 100 users or more
for Thompson sampling, which was chosen on other seeds.
"""

import jax
from curves import final
from drawing import Curve, Picture, Size, main
from optimal_arms import INSTANCES, against_epsilon, by_instance

import fedbandit_jax as fb

DELTA = 1e-6
LOOKS = {
    "Thompson, constant": "#56B4E9 o",
    "Thompson, factor": "#0072B2 s",
    "Phased Thompson": "#CC79A7 ^",
    "AdaC-UCB": "#882255 <",
    "Phased KL-UCB": "#332288 v",
    "Phased IMED": "#332288 o",
    "Thompson, not private": "#666666 -- D",
}


def algorithms(epsilon: float) -> list[fb.Algorithm]:
    """Returns the algorithms at one epsilon, with a trusted server."""
    thompson = fb.algos.ThompsonArms(epsilon, delta=DELTA)
    sums = fb.algos.CDPSE(epsilon, radius="exact")
    return [
        thompson.replace(first=max(100, round(30 / epsilon)), name="Thompson, constant"),
        thompson.replace(first=max(100, round(100 / epsilon)), inflate="factor", name="Thompson, factor"),
        fb.algos.PhasedThompson(sums),
        fb.algos.AdaCUCB(sums),
        fb.algos.PhasedKLUCB(sums),
        fb.algos.PhasedIMED(sums),
    ]


def measure(options: Size) -> list[Curve]:
    curves = against_epsilon(options, algorithms, 2060, lambda *_: 1.0)
    plain = fb.algos.ThompsonArms(1e6, growth=1.2, name=list(LOOKS)[-1])
    for title, means in INSTANCES.items():
        env, first = fb.envs.arms(means=means, rewards="bernoulli"), next(one for one in curves if one.panel == title)
        horizon, key = options.pick(20_000, 10**6, 10**6), jax.random.key(options.seed + 2060)
        free = final(fb.simulate(env, plain, horizon=horizon, stride=horizon, key=key, seeds=first.n_seeds))
        curves.append(first.but(label=plain.name, y=[free] * len(first.x)))
    return sorted(curves, key=lambda one: list(INSTANCES).index(one.panel))


def picture(curves: list[Curve]) -> Picture:
    shown, seen = by_instance(curves, LOOKS, 0)
    return Picture(
        shown,
        "A sample pays every time, a sum once",
        f"Bernoulli arms, {curves[0].note}, {curves[0].n_seeds} seeds, mean ± s.e. Solid curves are certified with a "
        "trusted server: (ε, 10⁻⁶)-DP for constant and factor, and ε-DP for the others. 5 arms have means 0.75 to "
        "0.25, and of 10 close arms one has 0.55 and nine have 0.45",
        seen,
        ylabel="regret",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
