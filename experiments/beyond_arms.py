"""Goes beyond Chowdhury & Zhou (2023): confidence radii from the exact law of the noise, and equal guarantees.

python experiments/beyond_arms.py [--smoke] [--redraw]

(a) Regret against the paper's epsilon, which is a different promise under pure, Renyi and concentrated DP. Every
mechanism has the confidence radius as printed and, with the same noise, the radius from the exact law of that noise.
(b) The same mechanisms, each with just the noise that it needs for (epsilon, delta)-DP, delta = 10^-6 = 1/T.
`chowdhury2023_delta.py` has other delta, at which the order is another one.
"""

import dataclasses
from typing import Any

import matplotlib.pyplot as plt
import tyro
from curves import Curve, against, claimed, final, pick, quotient
from drawing import legend_of_all, remark, save
from options import Size
from scipy.optimize import brentq

import fedbandit_jax as fb

DELTA = 1e-6
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0)
NAMES = ("Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE")
RADII = {"theory": "printed", "exact": "exact"}
MARKERS: dict[str, str] = dict(zip(("SE", *NAMES), (",", "o", "s", "^")))
PALE: dict[str, str] = dict(zip(("SE", *NAMES), ("#999999", "#F0A868", "#7FCFB3", "#E3B9D1")))  # printed radii


def private(name: str, epsilon: float, radius: str) -> fb.Algorithm:
    mechanism, trust = fb.algos.ELIMINATION[name]
    label = f"{name}, {RADII[radius]} radius"
    return fb.algos.SuccessiveElimination(
        epsilon=epsilon, mechanism=mechanism, trust=trust, radius=radius, delta=DELTA, name=label
    )


def of_equal_privacy(name: str, epsilon: float, env: fb.Environment, horizon: int) -> fb.Algorithm:
    """Returns an algorithm whose own epsilon makes it (epsilon, DELTA)-DP; under pure DP the two are the same."""

    def excess(own: float) -> float:
        return (private(name, own, "exact").certificate(env.spec, horizon).epsilon_exact or 0) - epsilon

    return private(name, epsilon if name == "Dist-DP-SE" else brentq(excess, epsilon / 30, epsilon), "exact")  # pyright: ignore


def measure(options: Size) -> list[Curve]:
    """Returns final regret against the paper's epsilon, and against that of equal (epsilon, delta)-DP."""
    env, horizon = fb.envs.arms(10, instance="easy"), options.pick(20_000, 10**6, 10**6)
    epsilons = EPSILONS[:: options.pick(5, 1, 1)]
    run = {**options.run(horizon, horizon, horizon), "seeds": options.pick(2, 20, 20), "stride": horizon}
    plain = [fb.algos.SuccessiveElimination(radius=radius, name=f"SE, {word} radius") for radius, word in RADII.items()]
    printed = [private(name, 1.0, radius) for radius in RADII for name in NAMES]
    across = fb.sweep(env, [*plain, *printed], grid={"epsilon": epsilons}, **run)
    equal = {
        f"{name} {epsilon}": of_equal_privacy(name, epsilon, env, horizon) for name in NAMES for epsilon in epsilons
    }
    fair = fb.sweep(env, {"SE": plain[1], **equal}, **run)
    for name, result in (("across", across), ("equal", fair)):
        print(f"\n{result.summary()}")
        if not options.smoke:
            result.save(f"results/beyond_arms_{name}")
    size = f"T = {horizon:,}"
    curves = [
        dataclasses.replace(one, style=PALE[one.label.split(",")[0]] if "printed" in one.label else one.style)
        for one in against(across, "epsilon", f"the paper's ε: pure, Rényi or concentrated DP; {size}")
    ]
    title = f"equal privacy: (ε, {DELTA:g})-DP, exact radius; {size}"
    y = [final(fair["SE"])] * len(epsilons)
    curves.append(Curve(title, "SE, exact radius", epsilons, y, fb.plotting.colour(fair["SE"]), "not private"))
    for name in NAMES:
        members = [fair[f"{name} {epsilon}"] for epsilon in epsilons]
        x = [one.certificate.epsilon_exact for one in members]
        y = [final(one) for one in members]
        curves.append(Curve(title, f"{name}, exact radius", x, y, fb.plotting.colour(members[0]), claimed(members[0])))
    return curves


def main(options: Size) -> None:
    curves = options.numbers("beyond_arms", lambda: measure(options))
    titles = list(dict.fromkeys(one.panel for one in curves))
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 5.8), layout="constrained", sharey=True)
    order = list(MARKERS)
    for ax, title in zip(axes, titles):
        ones = sorted(pick(curves, title), key=lambda one: order.index(one.label.split(",")[0]))
        for i, one in enumerate(ones):
            name, face = one.label.split(",")[0], "white" if "printed" in one.label else one.style
            if name == "SE":  # the same at all epsilon
                ax.plot(one.x, one.mean, color=one.style, label=one.label)
                low, high = one.mean - one.error, one.mean + one.error
                ax.fill_between(one.x, low, high, color=one.style, alpha=0.12, linewidth=0)
            else:
                at = one.x * 1.02 ** (i - len(ones) / 2)  # so that errors do not hide each other
                look: dict[str, Any] = dict(color=one.style, marker=MARKERS[name], mfc=face, markersize=5, capsize=2)
                ax.errorbar(at, one.mean, one.error, label=one.label, **look)
            found = ", ".join(f"{x:.3g}: {m:,.0f} ± {e:,.0f}" for x, m, e in zip(one.x, one.mean, one.error))
            print(f"{title}, {one.label}: {found}")
        ax.set(xscale="log", yscale="log", xlabel="ε")
        ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        ax.set_xticks([], minor=True)
        ax.grid(alpha=0.3)
    axes[0].set_title("(a) the paper's ε: pure, Rényi or concentrated DP", fontsize="medium")
    axes[1].set_title("(b) equal privacy: (ε, $10^{-6}$)-DP", fontsize="medium")
    axes[0].set_ylabel("regret at T")
    pure, *others = pick(curves, titles[1])[1:]
    said, least = [], True
    for one in others:
        ratios = [quotient(a, b) for a, b in zip(one.y, pure.y)]
        words = ["{:.2f} ± {:.2f}".format(*ratio) for ratio in ratios]
        least &= all(value > 1 for value, _ in ratios)
        name = one.label.split(",")[0]
        said.append(f"{name} has {words[0]} times as much at ε = {EPSILONS[0]:g} and {words[-2:][0]} times at ε = 1")
        print(f"equal privacy, {one.label} over {pure.label}: {', '.join(words)} at epsilon = {EPSILONS}")
    exact = [one for one in pick(curves, titles[0]) if "exact" in one.label]
    plain, near = exact[0].y[-1], EPSILONS[-3:]
    far = max(quotient(y, plain)[0] for one in exact[1:] for x, y in zip(one.x, one.y) if x in near or len(one.x) == 1)
    size = f"10 easy arms, T = 1,000,000, {curves[0].n_seeds} instances ± one standard error (SE: the band)"
    figure.suptitle(
        f"{size};\nall private curves are certified, SE is not private; points are shifted sideways", fontsize="medium"
    )
    legend_of_all(figure, ncols=4)
    words = "the least at all ε" if least else "not always the least"
    remark(
        figure,
        f"At equal privacy (δ = 1/T) the mean regret of Dist-DP-SE is {words}: "
        f"{', and '.join(said)} (paired over instances). From ε = {near[0]:g} on, all that have exact radii are within "
        f"{100 * (far - 1):.1f} % of SE in (a) by their means over the same instances.",
    )
    save("beyond_arms", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
