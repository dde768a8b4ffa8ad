"""Shows what an adaptive schedule tells about a user: Example 3.1 and Appendix B of Zhou & Chowdhury (2024).

python experiments/leak.py [--smoke | --full] [--redraw]

FedUCB adds noise of epsilon = 1 to all that it sends, but its public threshold D is such that silo i asks after round 1
if its first user is Alice, x = (1, 0), and not if she is Tracy, x = 0. (a) So silo j learns about ||x||. (b) The times
alone show an epsilon without bound; a sparse vector test keeps to what was paid. (c) What silo j then has of silo i.
"""

import dataclasses
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, pick
from drawing import Says, caption, headline, legend_of_all, save
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.audits import brink, timing, transcript
from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fedbandit_jax.report.plotting.figure import tick

S, BUDGET, DELTA = fb.schedules, fb.privacy.Budget(1.0, 0.1), 1e-6
D = brink(fb.algos.fed_ucb(BUDGET))
TESTED = fb.algos.fed_ucb(BUDGET, schedule=S.PrivateLogDet(D, share=0.5), learns_in_batch=False)
ALGOS = {
    "FedUCB": fb.algos.fed_ucb(BUDGET, schedule=S.LogDet(D)),
    "sparse vector, half of ε": TESTED,
    "sparse vector, a tenth of ε": TESTED.replace(share=0.1),
    "fixed batch": fb.algos.fed_ucb(BUDGET, schedule=1),
}
LINES = ":---"  # dotted: the certificate of FedUCB proves nothing, the others hold
STYLES = {name: f"{fb.plotting.colour(ALGOS[name])} {line} {mark}" for name, line, mark in zip(ALGOS, LINES, "oDsv")}
CASES = {name: timing(algo, name=name) for name, algo in ALGOS.items()}
NORMS, TIMES, SENT = "Example 3.1", f"schedule alone, δ = {DELTA:g}", "Appendix B.2: what silo j has"
TITLES = (
    "(a) Example 3.1: who synchronises after round 1",
    f"(b) what the times alone show at δ = {tick(DELTA)}",
    "(c) FedUCB: what silo j then has of silo i",
    "(d) fixed batch: the same",
)
BESIDE: dict[str, Any] = dict(textcoords="offset points", va="center", fontsize="small")


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
    for name in ("FedUCB", "fixed batch"):
        case, env = CASES[name], fb.envs.script(*CASES[name].data)
        run = jax.jit(jax.vmap(transcript(ALGOS[name].bind(env.spec, len(env.contexts)), env.spec, 1), (0, None)))
        for who, data, colour in (("Alice", case.data, "#000000"), ("Tracy", case.neighbour, "#D55E00")):
            shown = jax.tree.leaves(run(jax.random.split(key, n_runs), data))[0]  # (runs, T, d, d + 1): W, then U
            counts, edges = np.histogram(shown[:, 0, 0, 2], 80, (-40, 40))
            middles = (edges[1:] + edges[:-1]) / 2
            curves.append(Curve(SENT, f"{who}, {name}", middles, counts / n_runs, f"{colour} -", f"{n_runs:,}"))
    return curves


def main(options: Size) -> None:
    key, few, many = jax.random.key(options.seed), options.pick(50, 1000, 10_000), options.pick(100, 20_000, 100_000)
    sizes = [10**n for n in range(3, options.pick(4, 7, 7))]
    curves = options.numbers("leak", lambda: norms(few, key) + bounds(sizes, key) + messages(many, key))
    figure, axes = plt.subplots(2, 2, figsize=(10, 8.6))
    worth = gaussian_epsilon(gaussian_mu(BUDGET.epsilon, BUDGET.delta), DELTA)
    for ax, title in ((axes[0, 0], NORMS), (axes[0, 1], TIMES)):
        for i, one in enumerate(pick(curves, title)):
            colour, line, marker = one.style.split()
            look = dict(color=colour, marker=marker, markevery=(i, 5) if title == NORMS else 1)
            ax.plot(one.x, one.mean, line, label=one.label, linewidth=2.4 - 0.3 * i, **look)
            if title == TIMES:
                ax.annotate(f"{one.mean[-1]:.2f}", (one.x[-1], one.mean[-1]), (7, (0, 7, 3, -5)[i]), **BESIDE)
    for ax, name in zip(axes[1], ("FedUCB", "fixed batch")):
        for who in ("Alice", "Tracy"):
            (one,) = pick(curves, SENT, f"{who}, {name}")
            edges, colour = np.append(one.x - 0.5, one.x[-1] + 0.5), one.style.split()[0]
            ax.stairs(one.mean, edges, color=colour, alpha=0.3, fill=True)
            ax.stairs(one.mean, edges, color=colour, label=f"the first user is {who} (c, d)", linewidth=1.6)
        ax.set(xlabel="first entry of Σ x y", yscale="log", xlim=(-26, 26), ylim=(2e-5, 2))
    axes[0, 0].axvline(1 / (np.exp(D) + 1), color="grey", linestyle="--", label="C = λ(e$^D$ − 1)")
    axes[0, 1].axhline(worth, color="grey", linestyle="-.", label=f"ε of the noise at δ = {tick(DELTA)}: {worth:.2f}")
    runs = [pick(curves, title)[0].note for title in (NORMS, SENT)]
    axes[0, 0].set(xlabel="Alice's $||x||^2$", ylabel=f"share of {runs[0]} runs that\nsynchronise after round 1")
    axes[0, 1].set(xlabel="observations of Alice, and of Tracy", ylabel="ε shown, with 95 % confidence", xscale="log")
    axes[0, 1].margins(x=0.17)
    axes[1, 0].set(ylabel=f"share of {runs[1]} runs")
    for ax, title in zip(axes.flat, TITLES):
        ax.set_title(title)
    legend_of_all(figure)
    headline(
        figure,
        "When silos synchronise tells who came",
        "FedUCB, whose first user is Alice, x = (1, 0), or Tracy, x = 0; M = 2 silos, K = 2, d = 2,\nnoise of ε = 1 at "
        f"δ = {BUDGET.delta:g}, D = {D:.4f}. Dotted: not private, whatever the noise; solid: certified",
    )
    ends = ", ".join(f"{one.label} {one.mean[-1]:.2f}" for one in pick(curves, TIMES))
    found = f"yes, with certainty: from {pick(curves, TIMES)[0].x[-1]:,.0f} runs of each, ε of at least: {ends}"
    if not options.redraw:
        print(f"\nCertificate of FedUCB\n{ALGOS['FedUCB'].certificate(fb.envs.gap(2, 4, 2).spec, 100)}")
    claim = "when silos synchronise tells whether the norm of the first user exceeds C, so that FedUCB is not private"
    where = "Example 3.1 and Appendix B"
    caption(figure, "Zhou & Chowdhury (2024)", Says(where, claim, "no experiment in the paper", found))
    save("leak", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
