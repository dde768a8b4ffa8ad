"""Goes beyond Chowdhury & Zhou (2023): confidence radii from the exact law of the noise, and equal guarantees.

(a) Regret against the paper's epsilon, which is a different promise under pure, Renyi and concentrated DP, with the
radius as printed and with that from the exact law of the same noise. (b) The same, each with just the noise that it
needs for (epsilon, delta)-DP, delta = 10^-6 = 1/T. `chowdhury2023_delta.py` has other delta.
"""

from typing import Any

from curves import against, along, panels, pick, quotient, ratio
from drawing import LOGS, Curve, Panel, Picture, Size, main
from scipy.optimize import brentq

import fedbandit_jax as fb

DELTA, EPSILONS = 1e-6, (0.1, 0.2, 0.5, 1.0, 2.0)
NAMES: dict[str, Any] = {kind.title: kind for kind in (fb.algos.DistDPSE, fb.algos.DistRDPSE, fb.algos.DistCDPSE)}
SE, PURE = "SE", "Dist-DP-SE"
RADII = {"theory": "printed", "exact": "exact"}
MARKERS = dict(zip(NAMES, "os^"))
PALE = dict(zip((SE, *NAMES), ("#999999", "#F0A868", "#7FCFB3", "#E3B9D1")))  # printed radii
TITLES = "the paper's ε: pure, Rényi or concentrated DP", "equal privacy: (ε, $10^{-6}$)-DP"


def private(name: str, epsilon: float, radius: str = "exact") -> fb.Algorithm:
    return NAMES[name](epsilon, radius=radius, delta=DELTA, name=f"{name}, {RADII[radius]} radius")


def of_equal_privacy(name: str, epsilon: float, env: fb.Environment, horizon: int) -> fb.Algorithm:
    """Returns an algorithm whose own epsilon makes it (epsilon, DELTA)-DP; under pure DP the two are the same."""

    def excess(own: float) -> float:
        return (private(name, own).certificate(env.spec, horizon).epsilon_exact or 0) - epsilon

    return private(name, epsilon if name == PURE else brentq(excess, epsilon / 30, epsilon))  # pyright: ignore


def measure(options: Size) -> list[Curve]:
    run, env = options.ends(20_000, 10**6, 10**6, seeds=(2, 20, 20), store=None), fb.envs.arms(10, instance="easy")
    horizon, epsilons = run["horizon"], EPSILONS[:: options.pick(5, 1, 1)]
    plain = [fb.algos.SE(radius=radius, name=f"SE, {word} radius") for radius, word in RADII.items()]
    printed = [private(name, 1.0, radius) for radius in RADII for name in NAMES]
    across = options.sweep(env, [*plain, *printed], grid={"epsilon": epsilons}, **run)
    equal = {f"{name} {e}": of_equal_privacy(name, e, env, horizon) for name in NAMES for e in epsilons}
    fair = options.sweep(env, {SE: plain[1], **equal}, **run)
    curves = []
    for one in against(across, "epsilon", f"{TITLES[0]}; T = {horizon:,}"):
        curves.append(one.but(style=PALE[of(one)]) if "printed" in one.label else one)
    title = f"equal privacy: (ε, {DELTA:g})-DP, exact radius; T = {horizon:,}"
    for name in (SE, *NAMES):
        ones = [fair[SE if name == SE else f"{name} {epsilon}"] for epsilon in epsilons]
        x = epsilons if name == SE else [one.certificate.epsilon_exact for one in ones]
        curves.append(along(title, f"{name}, exact radius", x, ones, fb.plotting.colour(ones[0])))
    return curves


def of(one: Curve) -> str:
    """Returns the algorithm of a curve, without its radius."""
    return one.label.partition(",")[0]


def picture(curves: list[Curve]) -> Picture:
    both, shown = [pick(curves, panel) for panel in panels(curves)], []
    for title, ones in zip(TITLES, both):
        ones = sorted(ones, key=lambda one: (SE, *NAMES).index(of(one)))
        ones = [one.but(style=f"{one.style} {MARKERS.get(of(one), '')}") for one in ones]
        shown.append(Panel(ones, title, "ε", spread=0.02, xticks=EPSILONS, **LOGS))
        shown[-1].open = lambda one: "printed" in one.label
    (plain, *exact), (_, pure, *others) = ([one for one in ones if "exact" in one.label] for ones in both)
    said = []
    for one in others:
        words = [ratio(a, b) for a, b in zip(one.y, pure.y)]
        said.append(f"{of(one)} has {words[0]} times as much at ε = {EPSILONS[0]:g} and {words[-2:][0]} times at ε = 1")
    near = exact[0].x[-3:]
    far = max(quotient(y, plain.y[-1])[0] for one in exact for x, y in zip(one.x, one.y) if x in near)
    return Picture(
        shown,
        "At equal privacy Dist-DP-SE has the least regret",
        f"10 easy arms and T = 1,000,000. Mean of {curves[0].n_seeds} instances ± one standard error (SE: the band). "
        "All private curves are certified, and SE is not private",
        f"At equal privacy (δ = 1/T) Dist-DP-SE has the least regret: {', and '.join(said)} (paired over instances). "
        f"From ε = {near[0]:g} on, all that have exact radii are within {100 * (far - 1):.1f} % of SE in (a).",
        ylabel="regret at T",
        grid=dict(sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
