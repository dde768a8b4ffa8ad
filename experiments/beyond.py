"""Shows what certified privacy costs when every part of Private-FedLinUCB is as good as we know how.

python experiments/beyond.py [--smoke | --full]

Left: regret against epsilon at delta = 0.1, on the synthetic instance of Zhou & Chowdhury (2024); all algorithms have
the same confidence constants alpha, R and S. Right: one ingredient after the other at epsilon = 1, for delta = 0.1 and
for delta = 10^-7 (there are 10^6 users). "Lazy" agents act on released statistics only. The width "from the known
noise" is narrower even without noise, so it is compared with itself at epsilon = 10^4, where noise is next to nothing.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, mean_error, save
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


def bars(result: fb.Result, ax: Axes) -> None:
    """Draws the final regret of every step at both delta, and prints the price of privacy at equal widths."""
    names = [*STEPS, "not private, lazy", "not private"]
    ax.set(xscale="log", xlabel=f"group regret after {result.rounds[-1]:,} rounds")
    ax.set_xlim(right=4 * result.regret[..., -1].mean(1).max())
    for i, (delta, hatch) in enumerate(zip(DELTAS, ("", "///"))):
        ones = {name: result[f"{name}, δ = {delta:g}" if name in STEPS else name] for name in names}
        finals = {name: one.regret[:, -1] for name, one in ones.items()}
        (mean, error), where = mean_error(np.stack(list(finals.values()), axis=1)), np.arange(len(names)) + 0.4 * i
        colours = [fb.plotting.colour(one) for one in ones.values()]
        proved = [one.certificate.claim == "certified" for one in ones.values()]
        faces = [colour if filled else "white" for colour, filled in zip(colours, proved)]
        edges = ["white" if filled else colour for colour, filled in zip(colours, proved)]
        ax.barh(where, mean, 0.38, xerr=error, color=faces, edgecolor=edges, hatch=hatch, label=f"δ = {delta:g}")
        for y, name, value, of_value in zip(where, names, mean, error):
            ax.text(value * 1.08, y, f"{value:,.0f}", va="center", fontsize="small")
            base = "the same, ε = 10⁴" if "same" in name or "known" in name else "not private, lazy"
            more, of_more = mean_error(finals[name] - finals[base])
            print(f"δ = {delta:g}, {name}: {value:,.0f} ± {of_value:,.0f}, minus {base}: {more:+,.0f} ± {of_more:,.0f}")
    ax.set_yticks(np.arange(len(names)) + 0.2, names)
    ax.set_title("ε = 1; filled: certified; error bars: one standard error", fontsize="medium")
    ax.legend(fontsize="small")
    ax.invert_yaxis()


def main(options: Size) -> None:
    env = fb.envs.sphere(n_agents=100, n_arms=100, dim=10, rewards="bernoulli")
    run = {**options.run(200, 10_000, 10_000), "seeds": options.pick(2, 2, 25)}
    algos = [private(f"{name}, δ = {delta:g}", delta, **parts) for name, parts in STEPS.items() for delta in DELTAS]
    algos += [fb.algos.fed_lin_ucb(name="not private, lazy", learns_in_batch=False), ACROSS[0]]
    steps = fb.sweep(env, algos, **run)
    epsilons = options.pick((1.0,), (0.2, 1.0, 5.0), (0.2, 0.5, 1.0, 2.0, 5.0))
    across = fb.sweep(env, ACROSS, grid={"epsilon": epsilons}, **run)
    figure, (left, right) = plt.subplots(1, 2, figsize=(15.5, 7.5), layout="constrained")
    fb.plotting.against(across, "epsilon", title="M=100, K=100, d=10, δ=0.1", ax=left)
    bars(steps, right)
    for result in (across, steps):
        print(f"\n{result.summary()}")
    print(steps["the same, secure aggregation, B = 25, δ = 1e-07"].certificate)
    save("beyond", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
