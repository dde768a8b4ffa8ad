"""What an adaptive schedule tells: Example 3.1 and Appendix B of Zhou & Chowdhury (2024).

python experiments/leak.py [--smoke | --full]

FedUCB with the noise of epsilon = 1 on everything that it sends. The first user of silo i is Alice, x = (1, 0), or
Tracy, x = 0; D is public and such that Alice makes her silo ask for a synchronisation after round 1. (a) Silo j sees
that it happens, and knows ||x||^2 > C = lambda (e^D - 1). (b) Alice or Tracy, from the rounds of synchronisation
alone: the lower bound of epsilon (95 %) grows without end with the number of observations; with a sparse vector test
it stays below the share that was paid for, with a fixed batch it is 0. (c) What silo j then holds of silo i, nothing
or a noisy sum: noise on what is sent hides no message.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size
from matplotlib.axes import Axes

import fedbandit_jax as fb
from fedbandit_jax.audits import brink, timing, transcript

BUDGET, DELTA = fb.privacy.Budget(1.0, 0.1), 1e-6
FEDUCB = fb.algos.fed_ucb(BUDGET)
D = brink(FEDUCB)
ALGOS = {
    "FedUCB": FEDUCB.replace(schedule=fb.schedules.logdet(D)),
    "sparse vector, half of ε": FEDUCB.replace(schedule=fb.schedules.private_logdet(D, share=0.5), lazy=True),
    "sparse vector, a tenth of ε": FEDUCB.replace(schedule=fb.schedules.private_logdet(D, share=0.1), lazy=True),
    "fixed batch": FEDUCB.replace(schedule=fb.schedules.every(1)),
}
CASES = {name: timing(algo, name=name) for name, algo in ALGOS.items()}


def norms(ax: Axes, n_runs: int, key) -> None:
    """How often silos synchronise after round 1, by the norm of Alice's features."""
    squares = np.linspace(0, 1, 41)
    for (name, case), colour in zip(CASES.items(), fb.plotting.COLOURS):
        contexts, answers = case.data
        run = jax.jit(jax.vmap(case.mechanism, (0, None)))
        scaled = [jnp.asarray(contexts).at[0, 0].multiply(math.sqrt(r)) for r in squares]
        often = [run(jax.random.split(key, n_runs), (x, answers))[0][:, 0].mean() for x in scaled]
        ax.plot(squares, often, color=colour, label=name)
    lam = 1 / math.expm1(2 * D)  # Alice has ln(1 + 1 / lambda) = 2 D
    ax.axvline(lam * math.expm1(D), color="grey", linestyle=":", label="C = λ(e$^D$ − 1)")
    ax.set(xlabel="Alice's $||x||^2$", ylabel="P(synchronisation after round 1)", title="(a) Example 3.1")


def bounds(ax: Axes, sizes: list[int], key) -> None:
    """Lower bounds of epsilon from the rounds of synchronisation."""
    for (name, case), colour in zip(CASES.items(), fb.plotting.COLOURS):
        shown = [dataclasses.replace(case, delta=DELTA).run(key, n_runs=n).epsilon_lower for n in sizes]
        print(f"{name}: epsilon >= " + ", ".join(f"{e:.2f} (N = {n:,})" for e, n in zip(shown, sizes)))
        ax.semilogx(sizes, shown, "o-", color=colour, label=name)
    ax.axhline(BUDGET.epsilon, color="grey", linestyle="--", label="ε of the noise, at δ = 0.1")
    ax.set(xlabel="observations of Alice, and of Tracy", ylabel="ε shown", title=f"(b) schedule alone, δ = {DELTA:g}")


def messages(ax: Axes, n_runs: int, key) -> None:
    """x y of silo i, as silo j has it after round 1."""
    bins = list(np.linspace(-40, 40, 81))
    for name, hatch in (("FedUCB", "-"), ("fixed batch", ":")):
        case, algo = CASES[name], ALGOS[name]
        for who, (contexts, answers), colour in (("Alice", case.data, 0), ("Tracy", case.neighbour, 2)):
            env = fb.envs.script(contexts, answers)
            run = transcript(algo.bind(dataclasses.replace(env.spec, max_norm=1.0), len(contexts)), env, 1)
            (view, _, _), _ = jax.jit(jax.vmap(run, (0, None)))(jax.random.split(key, n_runs), (contexts, answers))
            colour = fb.plotting.COLOURS[colour + (name == "fixed batch")]
            ax.hist(np.asarray(view[:, 0, 0, 2]), bins, histtype="step", linestyle=hatch, color=colour,
                    weights=np.full(n_runs, 1 / n_runs), label=f"{who}, {name}")  # fmt: skip
    ax.set(
        xlabel="first entry of Σ x y", ylabel="share of runs", yscale="log", title="(c) Appendix B.2: what silo j has"
    )


def main(options: Size) -> None:
    key = jax.random.key(options.seed)
    figure, axes = plt.subplots(1, 3, figsize=(16.0, 4.8), layout="constrained")
    norms(axes[0], options.pick(50, 1000, 10_000), key)
    bounds(axes[1], [10**n for n in range(3, options.pick(4, 7, 7))], key)
    messages(axes[2], options.pick(100, 20_000, 100_000), key)
    for ax in axes:
        ax.legend(fontsize="small")
    print(f"\nCertificate of FedUCB\n{ALGOS['FedUCB'].certificate(fb.envs.gap(2, 4, 2).spec, 100)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    print(f"\nwrote {fb.plotting.save_png(figure, options.folder / 'leak.png')}")


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
