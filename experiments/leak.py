"""Shows what an adaptive schedule tells about a user: Example 3.1 and Appendix B of Zhou & Chowdhury (2024).

python experiments/leak.py [--smoke | --full] [--redraw]

FedUCB adds noise of epsilon = 1 to all that it sends, but its public threshold D is such that silo i asks after round 1
if its first user is Alice, x = (1, 0), and not if she is Tracy, x = 0. (a) So silo j learns about ||x||. (b) The times
alone show an epsilon without bound; a sparse vector test keeps to what was paid. (c) What silo j then has of silo i.
"""

import dataclasses

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Says, Size, caption, legend_below, save
from curves import Curve, pick

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
STYLES = {name: f"{fb.plotting.colour(algo)} - {marker}" for (name, algo), marker in zip(ALGOS.items(), "oosv")}
CASES = {name: timing(algo, name=name) for name, algo in ALGOS.items()}
NORMS, TIMES, SENT = "(a) Example 3.1", f"(b) schedule alone, δ = {DELTA:g}", "(c) Appendix B.2: silo j has"


def norms(n_runs: int, key) -> list[Curve]:
    """Returns how often silos synchronise after round 1; FedUCB does if ||x||^2 > λ (e^D - 1), λ its regulariser."""
    squares, curves = np.linspace(0, 1, 41), []
    for name, case in CASES.items():
        run, (contexts, answers) = jax.jit(jax.vmap(case.mechanism, (0, None))), case.data  # all other users have x = 0
        alices = [(contexts * np.float32(r**0.5), answers) for r in squares]
        often = [run(jax.random.split(key, n_runs), alice)[0][:, 0].mean() for alice in alices]
        curves.append(Curve(NORMS, name, squares, often, STYLES[name], f"{n_runs:,}"))
    return curves


def bounds(sizes: list[int], key) -> list[Curve]:
    """Returns lower bounds of epsilon (95 % confidence) from the times of synchronisation, against the observations."""
    curves = []
    for name, case in CASES.items():
        shown = [dataclasses.replace(case, delta=DELTA).run(key, n_runs=n).epsilon_lower for n in sizes]
        curves.append(Curve(TIMES, name, sizes, shown, STYLES[name]))
    return curves


def messages(n_runs: int, key) -> list[Curve]:
    """Returns the histogram of the first entry of silo i's sum of x y as silo j has it after round 1."""
    curves = []
    for i, (name, line) in enumerate({"FedUCB": "-", "fixed batch": ":"}.items()):
        case, env = CASES[name], fb.envs.script(*CASES[name].data)
        run = jax.jit(jax.vmap(transcript(ALGOS[name].bind(env.spec, len(env.contexts)), env.spec, 1), (0, None)))
        for who, data, colour in (("Alice", case.data, i), ("Tracy", case.neighbour, 2 + i)):
            shown = jax.tree.leaves(run(jax.random.split(key, n_runs), data))[0]  # (runs, T, d, d + 1): W, then U
            counts, edges = np.histogram(shown[:, 0, 0, 2], 80, (-40, 40))
            style, middles = f"{fb.plotting.COLOURS[colour]} {line}", (edges[1:] + edges[:-1]) / 2
            curves.append(Curve(SENT, f"{who}, {name}", middles, counts / n_runs, style, f"{n_runs:,}"))
    return curves


def main(options: Size) -> None:
    key, few, many = jax.random.key(options.seed), options.pick(50, 1000, 10_000), options.pick(100, 20_000, 100_000)
    sizes = [10**n for n in range(3, options.pick(4, 7, 7))]
    curves = options.numbers("leak", lambda: norms(few, key) + bounds(sizes, key) + messages(many, key))
    figure, axes = plt.subplots(1, 3, figsize=(18.0, 7.2), layout="constrained")
    for ax, title in zip(axes, (NORMS, TIMES, SENT)):
        for i, one in enumerate(pick(curves, title)):
            colour, line, *marker = one.style.split()
            if title == SENT:
                ax.stairs(
                    one.mean, np.append(one.x - 0.5, one.x[-1] + 0.5), linestyle=line, color=colour, label=one.label
                )
                continue
            look = dict(color=colour, marker=marker[0], markevery=(i, 5) if title == NORMS else 1)
            ax.plot(one.x, one.mean, line, label=one.label, linewidth=3 - 0.6 * i, **look)
    axes[0].axvline(1 / (np.exp(D) + 1), color="grey", linestyle=":", label="C = λ(e$^D$ − 1)")  # λ = 1 / (e^2D - 1)
    axes[1].axhline(BUDGET.epsilon, color="grey", linestyle="--", label="ε of the noise, at δ = 0.1")
    runs = [pick(curves, title)[0].note for title in (NORMS, SENT)]
    axes[0].set(xlabel="Alice's $||x||^2$", ylabel=f"share of {runs[0]} runs that synchronise after round 1")
    axes[1].set(xlabel="observations of Alice, and of Tracy", ylabel="ε shown, with 95 % confidence", xscale="log")
    axes[2].set(xlabel="first entry of Σ x y", ylabel=f"share of {runs[1]} runs", yscale="log")
    for ax, title in zip(axes, (NORMS, TIMES, SENT)):
        ax.set_title(title, fontsize="medium")
        legend_below(ax)
    ends = ", ".join(f"{one.label} {one.mean[-1]:.2f}" for one in pick(curves, TIMES))
    found = f"yes, with certainty: from {pick(curves, TIMES)[0].x[-1]:,.0f} runs of each, ε of at least: {ends}"
    print(found)
    if not options.redraw:
        print(f"\nCertificate of FedUCB\n{ALGOS['FedUCB'].certificate(fb.envs.gap(2, 4, 2).spec, 100)}")
    claim = "when silos synchronise tells whether the norm of the first user exceeds C, so that FedUCB is not private"
    where = "Example 3.1 and Appendix B"
    caption(figure, "Zhou & Chowdhury (2024)", Says(where, claim, "no experiment in the paper", found))
    save("leak", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
