"""Measures the rates of Theorems 1 to 6 of Chowdhury & Zhou (2023), with the radii of Lemma 2.

python experiments/chowdhury2023_rates.py [--smoke]

Panels (a) to (e) have final regret against one quantity, with the slope of a line through the filled points, in
logarithms; in (a) and (b) the regret of SE, which is not private, is subtracted, so that the cost of privacy is left:

(a) 1/epsilon: the privacy cost K log T / epsilon, and 1 / epsilon^2 with local trust;
(b) log T, which is L = ln(2 K b^2 / p) with p = 1/T in batch b = 20: K log T / epsilon under pure DP, and
    K sqrt(log T) / epsilon under Renyi DP with large s and under concentrated DP, where privacy dominates;
(c) K - 1, of K arms of which all but one have the same gap;
(d) the gap: log T / gap without privacy; K log T / epsilon, whatever the gap, where privacy dominates;
(e) T, at the gap that is worst for it (p = 1/T): sqrt(K T log T) + K log T / epsilon;
(f) batches, of which there are O(log T).
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import ArmsSize, elimination
from common import mean_error, save
from matplotlib.axes import Axes

import fedbandit_jax as fb

SPREAD = [0.8, *(0.8 - np.geomspace(0.1, 0.5, 9))]  # means of K = 10 arms: gaps from 0.1 to 0.5
ARMS = (2, 4, 8, 16, 32, 64)
GAPS = tuple(0.5 * 2.0**-i for i in range(9))
EPSILONS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
LOCAL = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FAILURES = (1e-2, 1e-4, 1e-6, 1e-9, 1e-13, 1e-18, 1e-25)
PRIVATE = ("Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-RDP-SE (s=100)", "Dist-CDP-SE (s=10)")
MARKS = {"Dist-RDP-SE (s=100)": "D", "Dist-CDP-SE (s=10)": "s", "Shuffle-DP-SE": "^"}  # of those that share a colour
PLAIN = (("SE", None, "#000000", "o"), ("Dist-DP-SE", 0.1, "#D55E00", "o"), ("Dist-DP-SE", 0.01, "#E69F00", "s"))


def equal(n_arms: int, gap: float) -> fb.Environment:
    """Returns K arms around 0.5, of which one is better than all others by the gap."""
    return fb.envs.arms(means=[0.5 + gap / 2] + [0.5 - gap / 2] * (n_arms - 1))


def line(ax: Axes, name: str, x: Sequence[float], finals: np.ndarray, fitted: slice, colour: str, mark="o") -> None:
    """Draws means and errors of `finals`, a column for each x, and the slope at the points of `fitted`."""
    mean, error = mean_error(finals)
    logs = np.log(np.asarray(x)[fitted])
    logs = logs - logs.mean()
    slopes = (np.log(finals[:, fitted]) @ logs) / (logs @ logs)
    slope, wrong = mean_error(slopes)
    points = ax.errorbar(x, mean, error, fmt="-", color=colour, label=f"{name}: slope {slope:.2f} ± {wrong:.2f}")
    ax.plot(x, mean, mark, color=colour, fillstyle="none")
    ax.plot(np.asarray(x)[fitted], mean[fitted], mark, color=points[0].get_color())
    print(f"  {name}: slope {slope:.3f} ± {wrong:.3f}; " + ", ".join(f"{a:.3g}: {m:,.0f}" for a, m in zip(x, mean)))


def main(options: ArmsSize) -> None:
    few = slice(None, 2) if options.smoke else slice(None)
    figure, axes = plt.subplots(2, 3, figsize=(18, 11), layout="constrained")
    (a, b, c), (d, e, f) = axes
    colour, spread = fb.plotting.colour, fb.envs.arms(means=SPREAD)

    print("(a) regret against 1/epsilon")
    for name in ("CDP-SE", "Shuffle-DP-SE", *PRIVATE, "LDP-SE"):
        epsilons, horizon = (LOCAL, 10**8) if name == "LDP-SE" else (EPSILONS, 2 * 10**7)
        algos = {f"{epsilon}": elimination(name, epsilon) for epsilon in epsilons[few]}
        result = fb.sweep(spread, {"SE": elimination("SE", None), **algos}, **options.arguments(horizon))
        finals = (result.regret[1:, :, -1] - result["SE"].regret[:, -1]).T
        ones, look = [1 / epsilon for epsilon in epsilons[few]], colour(elimination(name, 1.0))
        line(a, name, ones, finals, slice(None, 3), look, MARKS.get(name, "o"))
    a.set(xlabel="1/ε", title="(a) K=10, gaps 0.1 to 0.5, p=0.1, T=2·10$^7$ (LDP-SE 10$^8$)")

    print("(b) regret against L = ln(2 K b^2 / p)")
    for name in PRIVATE:
        algos = {f"{label} {p}": elimination(label, 0.01, failure=p) for label in ("SE", name) for p in FAILURES[few]}
        plain, private = np.split(fb.sweep(spread, algos, **options.arguments(10**8)).regret[:, :, -1].T, 2, axis=1)
        finals = private - plain
        logs = np.log(2 * 10 * 20**2 / np.array(FAILURES[few])).tolist()
        line(b, name, logs, finals, slice(None), colour(elimination(name, 1.0)), MARKS.get(name, "o"))
    b.set(
        xlabel="L = ln(2 K b$^2$ / p), b=20, p from 10$^{-2}$ to 10$^{-25}$",
        title="(b) the same gaps, ε=0.01, T=10$^8$",
    )

    print("(c) regret against K")
    for name, epsilon in (("SE", None), ("Dist-DP-SE", 0.05)):
        runs = [fb.simulate(equal(n, 0.25), elimination(name, epsilon), **options.arguments(10**8)) for n in ARMS[few]]
        finals = np.stack([one.regret[:, -1] for one in runs], 1)
        line(
            c,
            f"{name}{'' if epsilon is None else f', ε={epsilon}'}",
            [n - 1 for n in ARMS[few]],
            finals,
            slice(None),
            colour(elimination(name, epsilon)),
        )
    c.set(xlabel="K - 1 arms that are not the best", title="(c) gap 0.25, p=0.1, T=10$^8$")

    print("(d) regret against the gap, and (e) the largest over gaps against T")
    horizons = (10**6, 10**7, 10**8)[few]
    for name, epsilon, look, mark in PLAIN:
        label, worst = f"{name}{'' if epsilon is None else f', ε={epsilon}'}", []
        for horizon in horizons:
            algo = elimination(name, epsilon, failure=1 / horizon)
            runs = [fb.simulate(equal(10, gap), algo, **options.arguments(horizon)).regret[:, -1] for gap in GAPS[few]]
            finals = np.stack(runs, 1)
            worst.append(finals[:, finals.mean(0).argmax()])
            if horizon == horizons[-1]:
                line(d, label, GAPS[few], finals, slice(None, 5), look, mark)
        line(e, label, horizons, np.stack(worst, 1), slice(None), look, mark)
    d.set(xlabel="gap of all arms but the best", title="(d) K=10, p=1/T, T=10$^8$")
    e.set(xlabel="T", title="(e) K=10, p=1/T, at the gap of largest regret")

    print("(f) batches")
    algos = [elimination(name, 0.1) for name in ("SE", "Dist-DP-SE")]
    both = fb.sweep(equal(10, 0.002), algos, **options.arguments(10**8))
    for name in both:
        result = both[name]
        batches = result.communication["rounds"].mean(0)
        f.plot(result.rounds, batches, color=colour(result), label=name)
        print(f"  {name}: {batches[-1]:.1f} batches at T = {result.rounds[-1]:,}")
    f.plot(both.rounds, np.log2(both.rounds), "k--", label="log$_2$ T")
    f.set(xscale="log", xlabel="T", ylabel="batches", title="(f) K=10, gap 0.002, ε=0.1, p=0.1")
    for ax in axes.flat[:-1]:
        ax.set(xscale="log", yscale="log", ylabel="final regret" + (" above that of SE" if ax in (a, b) else ""))
    for ax in (b, c, d):
        ticks = np.asarray(ax.lines[0].get_xdata(), float)
        ax.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
        ax.set_xticks([], minor=True)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize="small")
    n_seeds = options.arguments(1)["seeds"]
    figure.suptitle(
        f"Rates of Theorems 1 to 6, radii of Lemma 2, batches of 2$^b$; means of {n_seeds} seeds ± 1 s.e. (often less "
        "than a line).\nThe paper: slopes (a) 1, LDP-SE 2; (b) 1 for Dist-DP-SE, 1/2 for Renyi (s large) and "
        "concentrated DP; (c) 1; (d) -1, or 0 where privacy dominates; (e) 1/2"
    )
    save("chowdhury2023_rates", options, figure)


if __name__ == "__main__":
    main(tyro.cli(ArmsSize, description=__doc__))
