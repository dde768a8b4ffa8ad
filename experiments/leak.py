"""Shows what an adaptive schedule tells about a user: Example 3.1 and Appendix B of Zhou & Chowdhury (2024).

python experiments/leak.py [--smoke | --full]

FedUCB adds noise of epsilon = 1 to all that it sends, but its public threshold D is such that silo i asks after round 1
if its first user is Alice, x = (1, 0), and not if she is Tracy, x = 0. (a) So silo j learns about ||x||. (b) The times
alone show an epsilon without bound; a sparse vector test keeps to what was paid. (c) What silo j then has of silo i.
"""

import dataclasses

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, save
from matplotlib.axes import Axes

import fedbandit_jax as fb
from fedbandit_jax.audits import brink, timing, transcript

S, BUDGET, DELTA = fb.schedules, fb.privacy.Budget(1.0, 0.1), 1e-6
D = brink(fb.algos.fed_ucb(BUDGET))
TESTED = fb.algos.fed_ucb(BUDGET, schedule=S.PrivateLogDet(D, share=0.5), learns_in_batch=False)
ALGOS = {
    "FedUCB": fb.algos.fed_ucb(BUDGET, schedule=S.LogDet(D)),
    "sparse vector, half of ε": TESTED,
    "sparse vector, a tenth of ε": TESTED.replace(share=0.1),
    "fixed batch": fb.algos.fed_ucb(BUDGET, schedule=1),
}
MARKERS = "oosv"  # two of one colour
CASES = {name: timing(algo, name=name) for name, algo in ALGOS.items()}


def norms(ax: Axes, n_runs: int, key) -> None:
    """Draws how often silos synchronise after round 1; FedUCB does if ||x||^2 > C = λ (e^D - 1), λ its regulariser."""
    squares = np.linspace(0, 1, 41)
    for (name, case), marker in zip(CASES.items(), MARKERS):
        run, (contexts, answers) = jax.jit(jax.vmap(case.mechanism, (0, None))), case.data  # all other users have x = 0
        alices = [(contexts * np.float32(r**0.5), answers) for r in squares]
        often = [run(jax.random.split(key, n_runs), alice)[0][:, 0].mean() for alice in alices]
        ax.plot(squares, often, marker + "-", markevery=5, color=fb.plotting.colour(ALGOS[name]), label=name)
    ax.axvline(1 / (np.exp(D) + 1), color="grey", linestyle=":", label="C = λ(e$^D$ − 1)")  # λ = 1 / (e^2D - 1)
    ax.set(xlabel="Alice's $||x||^2$", ylabel="P(synchronisation after round 1)", title="(a) Example 3.1")


def bounds(ax: Axes, sizes: list[int], key) -> None:
    """Draws lower bounds of epsilon (95 % confidence) from the times of synchronisation, against the observations."""
    for (name, case), marker in zip(CASES.items(), MARKERS):
        shown = [dataclasses.replace(case, delta=DELTA).run(key, n_runs=n).epsilon_lower for n in sizes]
        print(f"{name}: epsilon >= " + ", ".join(f"{e:.2f} (N = {n:,})" for e, n in zip(shown, sizes)))
        ax.semilogx(sizes, shown, marker + "-", color=fb.plotting.colour(ALGOS[name]), label=name)
    ax.axhline(BUDGET.epsilon, color="grey", linestyle="--", label="ε of the noise, at δ = 0.1")
    ax.set(xlabel="observations of Alice, and of Tracy", ylabel="ε shown", title=f"(b) schedule alone, δ = {DELTA:g}")


def messages(ax: Axes, n_runs: int, key) -> None:
    """Draws the first entry of silo i's sum of x y as silo j has it after round 1: 0 if nothing was sent, or noisy."""
    for i, (name, line) in enumerate({"FedUCB": "-", "fixed batch": ":"}.items()):
        case, env = CASES[name], fb.envs.script(*CASES[name].data)
        run = jax.jit(jax.vmap(transcript(ALGOS[name].bind(env.spec, len(env.contexts)), env.spec, 1), (0, None)))
        for who, data, colour in (("Alice", case.data, i), ("Tracy", case.neighbour, 2 + i)):
            shown = jax.tree.leaves(run(jax.random.split(key, n_runs), data))[0]  # (runs, T, d, d + 1): W, then U
            counts, edges = np.histogram(shown[:, 0, 0, 2], 80, (-40, 40))
            ax.stairs(counts / n_runs, edges, linestyle=line, color=fb.plotting.COLOURS[colour], label=f"{who}, {name}")
    ax.set(xlabel="first entry of Σ x y", ylabel="share of runs", yscale="log", title="(c) Appendix B.2: silo j has")


def main(options: Size) -> None:
    key, (figure, axes) = jax.random.key(options.seed), plt.subplots(1, 3, figsize=(16.0, 4.8), layout="constrained")
    norms(axes[0], options.pick(50, 1000, 10_000), key)
    bounds(axes[1], [10**n for n in range(3, options.pick(4, 7, 7))], key)
    messages(axes[2], options.pick(100, 20_000, 100_000), key)
    for ax in axes:
        ax.legend(fontsize="small")
    print(f"\nCertificate of FedUCB\n{ALGOS['FedUCB'].certificate(fb.envs.gap(2, 4, 2).spec, 100)}")
    save("leak", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
