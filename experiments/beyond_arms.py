"""Goes beyond Chowdhury & Zhou (2023): confidence radii from the exact law of the noise, and equal guarantees.

python experiments/beyond_arms.py [--smoke]

Left: regret against the paper's epsilon, which is a different promise under pure, Renyi and concentrated DP. Every
mechanism has the confidence radius as printed and, with the same noise, the radius from the exact law of that noise.
Right: the same mechanisms, each with just the noise that it needs for (epsilon, delta)-DP, delta = 10^-6.
"""

import matplotlib.pyplot as plt
import tyro
from common import Size, save
from scipy.optimize import brentq

import fedbandit_jax as fb

DELTA = 1e-6
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0)
NAMES = ("Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE")


def private(name: str, epsilon: float, radius: str) -> fb.Algorithm:
    mechanism, trust = fb.algos.ELIMINATION[name]
    return fb.algos.SuccessiveElimination(
        epsilon=epsilon, mechanism=mechanism, trust=trust, radius=radius, delta=DELTA, name=f"{name}, {radius} radius"
    )


def of_equal_privacy(name: str, epsilon: float, env: fb.Environment, horizon: int) -> fb.Algorithm:
    """Returns an algorithm whose own epsilon makes it (epsilon, DELTA)-DP; under pure DP the two are the same."""

    def excess(own: float) -> float:
        return (private(name, own, "exact").certificate(env.spec, horizon).epsilon_exact or 0) - epsilon

    return private(name, epsilon if name == "Dist-DP-SE" else brentq(excess, epsilon / 30, epsilon), "exact")  # pyright: ignore


def main(options: Size) -> None:
    env, horizon = fb.envs.arms(10, instance="easy"), options.pick(20_000, 10**6, 10**6)
    run = {**options.run(horizon, horizon, horizon), "seeds": options.pick(2, 20, 20), "stride": horizon}
    plain = [
        fb.algos.SuccessiveElimination(radius=radius, name=f"SE, {radius} radius") for radius in ("theory", "exact")
    ]
    printed = [private(name, 1.0, radius) for radius in ("theory", "exact") for name in NAMES]
    across = fb.sweep(env, [*plain, *printed], grid={"epsilon": EPSILONS}, **run)
    lines = {f"{name}(epsilon={epsilon})": (name, epsilon) for name in NAMES for epsilon in EPSILONS}
    equal = {label: of_equal_privacy(*point, env, horizon) for label, point in lines.items()}
    fair = fb.sweep(env, {"SE": plain[1], **equal}, **run)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 6.4), layout="constrained", sharey=True)
    fb.plotting.against(across, "epsilon", title="The paper's epsilon: a different promise in every curve", ax=left)
    title = f"Equal privacy: (ε, {DELTA:g})-DP, exact radius"
    of = {label: name for label, (name, _) in lines.items()}
    fb.plotting.privacy_frontier(fair, title=title, lines=of, ax=right)
    for name, result in (("across", across), ("equal", fair)):
        print(f"\n{result.summary()}")
        if not options.smoke:
            result.save(f"results/beyond_arms_{name}")
    save("beyond_arms", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
