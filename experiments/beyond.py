"""Shows what certified privacy costs when every part of Private-FedLinUCB is as good as we know how.

python experiments/beyond.py [--smoke | --full] [--redraw]

Left: regret against epsilon at delta = 0.1, on the synthetic instance of Zhou & Chowdhury (2024); all algorithms have
the same confidence constants alpha, R and S. Right: one ingredient after the other at epsilon = 1, for delta = 0.1 and
for delta = 10^-7 (there are 10^6 users). "Lazy" agents act on released statistics only. The width "from the known
noise" is narrower even without noise, so it is compared with itself at epsilon = 10^4, where noise is next to nothing.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, legend_below, mean_error, promised, save
from curves import Curve, against, ends, pick
from matplotlib.axes import Axes

import fedbandit_jax as fb

BEST: dict[str, Any] = dict(release="blt", regularizer="project", confidence="known_noise")
DELTAS = (0.1, 1e-7)


def private(name: str, delta: float = 0.1, **parameters) -> fb.Algorithm:
    budget = fb.privacy.Budget(parameters.pop("epsilon", 1.0), delta)
    return fb.algos.private_fed_lin_ucb(budget, name=name).replace(**parameters)


ACROSS = [
    fb.algos.fed_lin_ucb(name="not private"),
    private("tree, Thm 5.1, as printed", calibration="theorem", learns_in_batch=True),
    private("BLT, exact noise, lazy", release="blt"),
    private("BLT, projected, known noise", **BEST),
    private("secure aggregation, the same", trust="secagg", **BEST),
]
STEPS: dict[str, dict] = {
    "tree, Theorem 5.1, as printed": dict(calibration="theorem", learns_in_batch=True),
    "lazy agents: certified": dict(calibration="theorem"),
    "exact accounting": {},
    "BLT in place of the tree": dict(release="blt"),
    "projected Gram matrix": dict(release="blt", regularizer="project"),
    "secure aggregation, B = 25": dict(release="blt", regularizer="project", trust="secagg"),
    "BLT, projected, known noise": BEST,
    "the same, B = 50": dict(schedule=50, **BEST),
    "the same, secure aggregation, B = 25": dict(trust="secagg", **BEST),
    "the same, ε = 10⁴": dict(epsilon=1e4, **BEST),
}


def measure(options: Size) -> list[Curve]:
    """Returns final regret against epsilon, and that of every step at both delta."""
    env = fb.envs.sphere(*options.shape(100, 100, 10), rewards="bernoulli")
    run = {**options.run(50, 10_000, 10_000), "seeds": options.pick(2, 2, 25)}
    epsilons = options.pick((1.0,), (0.2, 1.0, 5.0), (0.2, 0.5, 1.0, 2.0, 5.0))
    across = fb.sweep(env, ACROSS[:: options.pick(3, 1, 1)], grid={"epsilon": epsilons}, **run)
    algos = [private(f"{name}, δ = {delta:g}", delta, **parts) for name, parts in STEPS.items() for delta in DELTAS]
    algos += [fb.algos.fed_lin_ucb(name="not private, lazy", learns_in_batch=False), ACROSS[0]]
    steps = fb.sweep(env, algos, **run)
    for result in (across, steps):
        print(f"\n{result.summary()}")
    title = f"T = {run['horizon']:,}"
    return against(across, "epsilon", f"against ε, {title}") + ends(steps, f"one ingredient after the other, {title}")


def draw(steps: dict[str, Curve], ax: Axes) -> None:
    """Draws the final regret of every step at both delta, and prints the price of privacy at equal widths."""
    names = [*STEPS, "not private, lazy", "not private"]
    for i, (delta, marker) in enumerate(zip(DELTAS, "oD")):
        ones = {name: steps[f"{name}, δ = {delta:g}" if name in STEPS else name] for name in names}
        for place, (name, one) in enumerate(ones.items()):
            if i and name not in STEPS:
                continue  # has no delta
            filled = one.style if one.note == "certified" else "white"
            look: dict[str, Any] = dict(fmt=marker, color=one.style, mfc=filled, markersize=7, capsize=2)
            place += 0.3 * i * (name in STEPS)
            ax.errorbar(one.mean[0], place, xerr=one.error[0], **look)
            ax.text(one.mean[0] * 1.12, place, f"{one.mean[0]:,.0f}", va="center", fontsize="small")
            base = "the same, ε = 10⁴" if "same" in name or "known" in name else "not private, lazy"
            more, of_more = mean_error(one.y[0] - ones[base].y[0])
            words = f"{one.mean[0]:,.0f} ± {one.error[0]:,.0f}, minus {base}: {more:+,.0f} ± {of_more:,.0f}"
            print(f"δ = {delta:g}, {name}: {words}")
        ax.plot([], [], marker, color="#555555", label=f"δ = {delta:g}")
    ax.set(xscale="log", xlim=(500, 4e5), xlabel="group regret at T")
    ax.set_yticks(np.arange(len(names)) + 0.15, names)
    ax.invert_yaxis()
    legend_below(ax, ncols=2)


def main(options: Size) -> None:
    curves = options.numbers("beyond", lambda: measure(options))
    figure, (left, right) = plt.subplots(1, 2, figsize=(15.5, 7.5), layout="constrained")
    titles = list(dict.fromkeys(one.panel for one in curves))
    lines = pick(curves, titles[0])
    for one, marker in zip(lines, ("", "o", "s", "^", "D")):
        look: dict[str, Any] = dict(color=one.style, marker=marker, capsize=2)
        if one.note != "not private":
            look |= dict(linestyle="-" if one.note == "certified" else "--")
            look |= dict(mfc=one.style if one.note == "certified" else "white")
        label = one.label if one.label == one.note else f"{one.label}: {promised(one.note)}"
        left.errorbar(one.x, one.mean, one.error, label=label, **look)
    left.set(xscale="log", yscale="log", xlabel="ε", ylabel="group regret at T", title=f"(a) {titles[0]}, δ = 0.1")
    left.set_xticks(lines[0].x, [f"{epsilon:g}" for epsilon in lines[0].x])
    left.minorticks_off()
    legend_below(left, ncols=1)
    right.set_title(f"(b) {titles[1]}, ε = 1")
    draw({one.label: one for one in pick(curves, titles[1])}, right)
    n = lines[0].n_seeds
    size = f"M = 100, K = 100, d = 10; mean of {n} seeds ± one standard error"
    figure.suptitle(f"What certified privacy costs: {size}; filled markers are certified", fontsize="medium")
    save("beyond", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
