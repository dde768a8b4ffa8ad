"""Measures the rates of Theorems 1 and 2 of Liu et al. (2022) for FCLUB-DC, which has no noise.

python experiments/liu2022_rates.py [--smoke | --full]

Theorem 1: regret is n log T (until clusters are found) + L d sqrt(m T) up to logarithms (10). Theorem 2: there are
O(d m L log T) uploads and downloads. (a) and (c) draw both over time, with the exponent of T between T/10 and T, and
how many uploads and downloads each doubling of t brings, which O(log T) bounds. (b) and (d) vary one of n, m, d, L
around the authors' instance; the legend has the exponents of the least squares lines through logarithms.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import LiuOptions, liu_users, mean_error, save

import fedbandit_jax as fb

VALUES = {
    "n": ("n_users", (20, 40, 80, 160)),
    "m": ("n_clusters", (2, 4, 8)),
    "d": ("dim", (5, 10, 20)),
    "L": ("n_servers", (2, 5, 10)),
}


def slope(x, curves) -> str:
    """Returns the exponent of x in curves (n_seeds, len(x)), and its standard error over seeds."""
    return "{:.2f} ± {:.2f}".format(*mean_error(np.polyfit(np.log(x), np.log(curves).T, 1)[0]))


def listed(means, errors) -> str:
    """Returns means with their standard errors, as text."""
    return ", ".join(f"{mean:,.0f} +- {error:,.0f}" for mean, error in zip(means, errors))


def main(options: LiuOptions) -> None:
    run = {**options.run(1_000, 100_000, 131_070), "seeds": options.pick(2, 5, 10), "stride": "log"}
    figure, axes = plt.subplots(1, 4, figsize=(21.0, 5.6), layout="constrained")
    env = liu_users()
    long = {**run, "horizon": options.pick(1_000, 131_070, 1_048_574)}
    for name in ("FCLUB-DC", "CDP-FCLUB-DC", "LinUCB"):
        one = fb.simulate(env, options.methods(fb.privacy.Budget(1.0, 0.1))[name], **long)
        colour = fb.plotting.colour(one)
        late = one.rounds >= long["horizon"] // 10
        text = f"{name}: {slope(one.rounds[late], one.regret[:, late])}"
        print(text)
        axes[0].loglog(one.rounds, one.regret.mean(0), color=colour, label=text)
        if name != "LinUCB":
            ends = long["horizon"] / 2.0 ** np.arange(7)[::-1]
            sent = np.array([np.interp(ends, one.rounds, curve) for curve in one.communication["rounds"]])
            mean, error = mean_error(np.diff(sent))
            axes[2].errorbar(ends[1:], mean, error, fmt="o-", color=colour, label=name, capsize=2)
            print(f"{name}, uploads and downloads in doublings of t: {listed(mean, error)}", flush=True)
    axes[0].set(title=f"(a) regret; exponent in (T/10, T], T={long['horizon']:,}", xlabel="round $t$", ylabel="regret")
    axes[2].set(title="(c) uploads and downloads in (t/2, t]", xlabel="round $t$", xscale="log", yscale="log")
    for (letter, (parameter, values)), marker, colour in zip(VALUES.items(), fb.plotting.MARKERS, fb.plotting.COLOURS):
        values, regrets, sent = values[: options.pick(2, 9, 9)], [], []
        for value in values:
            one = fb.simulate(liu_users(**{parameter: value}), fb.algos.FCLUB(), **run)
            regrets.append(one.regret[:, -1])
            sent.append(one.communication["rounds"][:, -1])
        for ax, what, finals in ((axes[1], "regret", regrets), (axes[3], "uploads and downloads", sent)):
            mean, error = mean_error(np.stack(finals, 1))
            text = f"{letter}: {slope(values, np.stack(finals, 1))}"
            print(f"{what}, {letter} in {values}: {listed(mean, error)}; exponent {text}", flush=True)
            ax.errorbar(values, mean, error, fmt=f"{marker}-", color=colour, label=text, capsize=2)
    for ax, what, letter in ((axes[1], "regret", "b"), (axes[3], "uploads and downloads", "d")):
        title = f"({letter}) FCLUB-DC, {what} at T={run['horizon']:,}; exponents"
        ax.set(xscale="log", yscale="log", xlabel="n, m, d or L", title=title)
    for ax in axes:
        ax.grid(alpha=0.3, which="both")
        ax.legend(fontsize="small")
    where = "n=40, m=4 (consecutive seats), L=5, d=10, K=10 where not varied"
    figure.suptitle(f"Rates of Theorems 1 and 2 of Liu et al. (2022): {where}; mean of {run['seeds']} seeds ± 1 s.e.")
    save("liu2022_rates", options, figure)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
