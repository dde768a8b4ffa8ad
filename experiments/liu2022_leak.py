"""Shows what local clusters and upload times tell about one round, in CDP-FCLUB-DC of Liu et al. (2022).

python experiments/liu2022_leak.py [--smoke | --full]

The auditor sees nothing but (a) who is in one local cluster in the end, or (b) after which rounds something is
uploaded. As printed, raw statistics decide about both; in the certified algorithm they do not. (a) The last round of
one of two users decides whether their link is cut, so that every run tells which of two data sets it had. (b) There is
noise in the determinant that decides about uploads, but it is the same at every test until the next upload. So an
upload right after a round can only be due to what was in that round. The factor U is such that noise decides about the
first upload.
"""

import dataclasses
import math

import jax
import matplotlib.pyplot as plt
import tyro
from common import Size, save
from matplotlib.axes import Axes

import fedbandit_jax as fb
from fedbandit_jax.audits import Case, labels, uploads
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu

BUDGET, DELTA = fb.privacy.Budget(1.0, 0.1), 1e-3  # not 0.1, as one round decides about uploads in fewer runs
ALGOS = {
    "CDP-FCLUB-DC, exact noise": fb.algos.FCLUB(BUDGET),
    "CDP-FCLUB-DC, noise as printed": fb.algos.FCLUB(BUDGET, calibration="theorem"),
    "certified": fb.algos.FCLUB(BUDGET, alpha_1=math.inf, trigger="count"),
}


def bounds(ax: Axes, make, sizes: list[int], key) -> None:
    """Draws lower bounds of epsilon against the number of runs, and the epsilon that the noise is worth."""
    for (name, algo), marker in zip(ALGOS.items(), fb.plotting.MARKERS):
        case: Case = dataclasses.replace(make(algo, name=name), delta=DELTA)
        shown = [case.run(key, n_runs=n).epsilon_lower for n in sizes]
        found = ", ".join(f"{e:.2f} (N = {n:,})" for e, n in zip(shown, sizes))
        print(f"{make.__name__}, {name}: epsilon >= {found}")
        ax.semilogx(sizes, shown, marker + "-", color=fb.plotting.colour(algo), label=name, fillstyle="none")
    worth = gaussian_epsilon(gaussian_mu(BUDGET.epsilon, BUDGET.delta), DELTA)
    ax.axhline(worth, color="grey", linestyle="--", label=f"what noise for ε = 1, δ = 0.1 is worth: {worth:.2f}")
    ax.set(xlabel="runs with one datum, and with the other", ylabel=f"ε shown, δ = {DELTA:g}", ylim=(-0.3, None))


def main(options: Size) -> None:
    key = jax.random.key(options.seed)
    figure, axes = plt.subplots(1, 2, figsize=(11.0, 4.6), layout="constrained", sharey=True)
    most = options.pick(3, 5, 6)
    bounds(axes[0], labels, [10**n for n in range(3, most + 1)], key)
    axes[0].set_title("(a) local clusters alone")
    bounds(axes[1], uploads, [10**n for n in range(3, most + 1)], key)
    axes[1].set_title("(b) upload times alone")
    axes[0].legend(fontsize="small")
    printed = ALGOS["CDP-FCLUB-DC, noise as printed"]
    print(f"\nCertificate as printed\n{printed.certificate(fb.envs.clustered().spec, 10**5)}")
    save("liu2022_leak", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
