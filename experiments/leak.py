"""Shows what an adaptive schedule tells about a user: Example 3.1 and Appendix B of Zhou & Chowdhury (2024).

FedUCB adds noise of epsilon = 1 to all that it sends, but its public threshold D is such that silo i asks after round 1
if its first user is Alice, x = (1, 0), and not if she is Tracy, x = 0. (a) So silo j learns about ||x||. (b) The times
alone show an epsilon without bound; a sparse vector test keeps to what was paid. (c) What silo j then has of silo i.
"""

import dataclasses

import jax
import numpy as np
from curves import Curve, pick, the
from drawing import Axes, Panel, Picture, Says, Size, main, tick

import fedbandit_jax as fb
from fedbandit_jax.audits.schedules import brink, timing
from fedbandit_jax.audits.transcripts import Transcript
from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon, gaussian_mu

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
SHOWN, FIRST = ("FedUCB", "fixed batch"), {"Alice": "#000000", "Tracy": "#D55E00"}  # in (c) and (d)


def measure(options: Size) -> list[Curve]:
    key, few, many = jax.random.key(options.seed), options.pick(50, 1000, 10_000), options.pick(100, 20_000, 100_000)
    print(f"Certificate of FedUCB\n{ALGOS['FedUCB'].certificate(fb.envs.gap(2, 4, 2).spec, 100)}")
    squares, sizes, curves = np.linspace(0, 1, 41), [10**n for n in range(3, options.pick(4, 7, 7))], []
    for name, case in CASES.items():  # FedUCB synchronises after round 1 if ||x||^2 > λ (e^D - 1), λ its regulariser
        run, (contexts, answers) = jax.jit(jax.vmap(case.mechanism, (0, None))), case.data  # all other users have x = 0
        alices = [(contexts * np.float32(r**0.5), answers) for r in squares]
        often = [run(jax.random.split(key, few), alice)[0][:, 0].mean() for alice in alices]
        curves.append(Curve(NORMS, name, squares, often, STYLES[name], f"{few:,}"))
    for name, case in CASES.items():  # lower bounds, 95 % confidence
        shown = [dataclasses.replace(case, delta=DELTA).run(key, n_runs=n).epsilon_lower for n in sizes]
        curves.append(Curve(TIMES, name, sizes, shown, STYLES[name]))
    for name in SHOWN:  # the first entry of silo i's sum of x y as silo j has it after round 1
        case, env = CASES[name], fb.envs.script(*CASES[name].data)
        algo = ALGOS[name].bind(env.spec, len(env.contexts))
        run = jax.jit(jax.vmap(Transcript(algo=algo, spec=env.spec, horizon=1), (0, None)))
        for (who, colour), data in zip(FIRST.items(), (case.data, case.neighbour)):
            shown = jax.tree.leaves(run(jax.random.split(key, many), data))[0]  # (runs, T, d, d + 1): W, then U
            counts, edges = np.histogram(shown[:, 0, 0, 2], 80, (-40, 40))
            middles = (edges[1:] + edges[:-1]) / 2
            curves.append(Curve(SENT, f"{who}, {name}", middles, counts / many, f"{colour} -", f"{many:,}"))
    return curves


def stairs(curves: list[Curve], ax: Axes) -> None:
    """Draws histograms of bins of length 1."""
    for one in curves:
        edges, colour = np.append(one.x - 0.5, one.x[-1] + 0.5), one.style.split()[0]
        label = f"(c), (d): the first user is {one.label.partition(',')[0]}"
        ax.stairs(one.mean, edges, color=colour, alpha=0.3, fill=True)
        ax.stairs(one.mean, edges, color=colour, label=label, linewidth=1.6)


def picture(curves: list[Curve]) -> Picture:
    shares, times = pick(curves, NORMS), pick(curves, TIMES)
    worth, where = gaussian_epsilon(gaussian_mu(BUDGET.epsilon, BUDGET.delta), DELTA), "first entry of Σ x y"
    words = "Example 3.1: who synchronises after round 1", "Alice's $||x||^2$"
    asked = Panel(shares, *words, f"share of {shares[0].note} runs that\nsynchronise after round 1", kind="lines")
    asked.also = lambda ax: ax.axvline(1 / (np.exp(D) + 1), color="grey", linestyle="--", label="(a) C = λ(e$^D$ − 1)")
    words = f"what the times alone show at δ = {tick(DELTA)}", "observations of Alice, and of Tracy"
    shown = Panel(times, *words, "ε shown, with 95 % confidence", xscale="log", spread=0.05)
    shown.level = {f"(b) ε of the noise: {worth:.2f}": worth}
    panels = [asked, shown]
    for name in SHOWN:
        ones = [the(curves, SENT, f"{who}, {name}") for who in FIRST]
        title, runs = f"{name}: what silo j then has of silo i", f"share of {ones[0].note} runs"
        panels.append(Panel([], title, where, runs, yscale="log", xlim=(-26, 26), ylim=(2e-5, 2)))
        panels[-1].also = lambda ax, ones=ones: stairs(ones, ax)
    ends = ", ".join(f"{one.label} {one.mean[-1]:.2f}" for one in times)
    found = f"yes, with certainty: from {times[0].x[-1]:,.0f} runs of each, ε of at least: {ends}"
    claim = "when silos synchronise tells whether the norm of the first user exceeds C, so that FedUCB is not private"
    return Picture(
        panels,
        "When silos synchronise tells who came",
        "FedUCB, whose first user is Alice, x = (1, 0), or Tracy, x = 0. M = 2 silos, K = 2, d = 2, noise of ε = 1 at "
        f"δ = {BUDGET.delta:g}, D = {D:.4f}. Dotted: not private, whatever the noise; solid: certified",
        [Says("Example 3.1 and Appendix B", claim, "no experiment in the paper", found)],
        shape=(2, 2),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
