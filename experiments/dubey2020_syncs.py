"""Measures how often FedUCB synchronises in T rounds; Proposition 1 of Dubey & Pentland (2020) promises O(log T).

python experiments/dubey2020_syncs.py [--smoke | --full] [--redraw]

Solid lines are Proposition 1, the same for both triggers; dashed lines are a bound that holds with noise (see
`bounds`), where it is below T. With the threshold D of Theorem 1 there are O(log T) synchronisations also with privacy
noise, so few because the noise is large. With D = 10 the trigger as printed fires every other round until the data
outweigh the noise. So Proposition 1 fails there, as Zhou & Chowdhury (2024), Appendix B.3, feared; with the trigger as
they restate it, it was not violated. Without noise the two triggers are the same.
"""

import itertools
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, pick
from drawing import Says, caption, headline, legend_of_all, save
from options import DubeyOptions

import fedbandit_jax as fb

ENV = fb.envs.gap(n_agents=10, n_arms=25, dim=10)
THRESHOLDS = {"M log T": "D of Theorem 1, in proportion to T / log T", 10.0: "D = 10, whatever T"}
TRIGGERS = {"printed": "dp20", "restated": "zc24"}
COLOURS: dict[str, str] = dict(zip(("not private", "ε = 1", "ε = 10"), fb.plotting.COLOURS))
PRIVATE = {f"ε = {e}, {words}": (fb.privacy.Budget(e, 0.1), t) for e in (1, 10) for words, t in TRIGGERS.items()}
SETTINGS = {"not private": (None, "zc24"), **PRIVATE}
BOUNDS = ("Proposition 1", "bound with noise")
CLAIM = "there are at most 2 sqrt(d T L / D) + 4 synchronisations"


def bounds(algo: fb.algos.Federated, trigger: str, horizon: int) -> tuple[float, float]:
    """Computes Proposition 1, and a bound that holds with noise: n <= T / (2 D) (c + sqrt(c^2 + 4 d L D / T)) epochs.

    Noise may take back some of a log-determinant (Zhou & Chowdhury 2024, Appendix B.3), but as eigenvalues of the
    regulariser are between M rho_min and M rho_max, no more than c = d ln(rho_max / rho_min); for the printed trigger c
    = d ln(2 rho_max / rho_min - 1). With epochs of Dt rounds, D n^2 / T <= sum D / Dt <= d L + n c, where L =
    ln(rho_max / rho_min + T / (d rho_min)).
    """
    bound: Any = algo.bind(ENV.spec, horizon)
    d, (low, high) = ENV.spec.dim, bound.policy.rho
    per_round = float(bound.schedule.threshold) / horizon
    total = d * np.log(high / low + horizon / (d * low))
    c = d * np.log(high / low if trigger == "zc24" else 2 * high / low - 1)
    ours = (c + np.sqrt(c * c + 4 * total * per_round)) / per_round / 2
    return 2 * np.sqrt(total / per_round) + 4, ours if ours < horizon else np.nan


def fits(t: np.ndarray, n: np.ndarray) -> str:
    """Fits a + b ln T and c T^p by least squares; returns both as text, with the root mean squares of the residuals."""
    b, a = np.polyfit(np.log(t), n, 1)
    basis = t[:, None] ** (power := np.linspace(0, 1.5, 1501))
    scale = n @ basis / (basis**2).sum(0)
    rest = np.sqrt(np.mean((scale * basis - n[:, None]) ** 2, 0))
    best, log = rest.argmin(), np.sqrt(np.mean((a + b * np.log(t) - n) ** 2))
    return f"{a:.3g} + {b:.3g} ln T (± {log:.2g}), {scale[best]:.3g} T^{power[best]:.2f} (± {rest[best]:.2g})"


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns synchronisations against T for every threshold and setting, Proposition 1 and our bound."""
    horizons = np.round(10 ** np.arange(2.5, options.pick(2.6, 5.6, 6.1), 0.5)).astype(int).tolist()
    kinds = {(d, name): of for d in THRESHOLDS for name, of in SETTINGS.items()}
    algos = {
        f"{d}, {name}": fb.algos.fed_ucb(budget, schedule=fb.schedules.LogDet(d, trigger))
        for (d, name), (budget, trigger) in kinds.items()
    }
    found: dict[str, list[np.ndarray]] = {label: [] for label in algos}
    for horizon in horizons:
        result = fb.sweep(ENV, algos, **options.run(horizon, horizon, horizon, seeds=(1, 2, 10)))
        for (label, algo), (_, trigger) in zip(algos.items(), kinds.values()):
            syncs = result[label].communication["rounds"][..., -1].ravel()
            found[label].append(np.append(syncs, bounds(algo, trigger, horizon)))
        print(f"T = {horizon:,}: " + ", ".join(f"{label} {of[-1][:-2]}" for label, of in found.items()), flush=True)
    curves = []
    for (d, name), of in zip(kinds, found.values()):
        values, panel, colour = np.stack(of), THRESHOLDS[d], COLOURS[name.split(",")[0]]
        curves.append(Curve(panel, name, horizons, values[:, :-2], f"{colour} o"))
        for column, line, bound in zip((-2, -1), ("-", "--"), BOUNDS):
            curves.append(Curve(panel, f"{name}: {bound}", horizons, values[:, column], f"{colour} {line}"))
    return curves


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_syncs", lambda: measure(options))
    figure, axes = plt.subplots(2, 2, figsize=(11.0, 8.0), sharex=True, sharey="col")
    says, n = [], max(one.n_seeds for one in curves)
    for (trigger, title), letter, ax in zip(itertools.product(TRIGGERS, THRESHOLDS.values()), "abcd", axes.flat):
        over, found, missing, horizon = False, [], [], pick(curves, title)[0].x[-1]
        for i, (name, colour) in enumerate(COLOURS.items()):
            label = f"{name}, {trigger}" if i else name
            runs, *bounds = (pick(curves, title, label + of)[0] for of in ("", *(f": {bound}" for bound in BOUNDS)))
            for bound in bounds:
                ax.plot(bound.x, bound.mean, bound.style.split()[1], color=colour, linewidth=1.5)
            missing += [name] * bool(np.isnan(bounds[1].mean).all())
            x = np.repeat(runs.x * 1.2 ** (i - 1), n)  # set apart, as counts are often equal
            ax.plot(x, runs.y.ravel(), ("o", "s", "^")[i], color=colour, markersize=6, fillstyle="none")
            print(f"{title}; {label}: {fits(runs.x, runs.mean) if len(runs.x) > 2 else ''}")
            over |= bool((runs.y.max(1) > bounds[0].mean).any())
            found.append(f"{name}: {runs.mean[-1]:,.0f} (at most {bounds[0].mean[-1]:,.0f})")
        seen = f"({letter}) {'no' if over else 'yes'}, trigger as {trigger}, {title}: {', '.join(found)}, "
        seen += f"at T = {horizon:,.0f}, means of {n} runs"
        seen += f"; the bound that holds with noise is above T for {' and '.join(missing)}" if missing else ""
        says.append(Says("Proposition 1", CLAIM, "no experiment in the paper" if not says else "the same", seen))
        words = f"our bound is above T for {' and '.join(missing)}" if missing else ""
        ax.text(0.02, 0.97, words, transform=ax.transAxes, va="top", fontsize="small")
        ax.set(xscale="log", yscale="log" if title == THRESHOLDS[10.0] else "symlog")
        ax.set_title(f"({letter}) trigger as {trigger}; {title}")
    axes[0, 0].set_yticks((0, 1, 2, 5, 10, 20), (0, 1, 2, 5, 10, 20))
    for ax in axes[1]:
        ax.set_xlabel("rounds $T$")
    for ax in axes[:, 0]:
        ax.set_ylabel("synchronisations")
    for (name, colour), mark in zip(COLOURS.items(), "os^"):
        for line, words in ((mark, "each run"), ("-", "Proposition 1"), ("--", "our bound, which holds with noise")):
            axes[0, 0].plot([], [], line, color=colour, fillstyle="none", label=f"{name}: {words}")
    legend_of_all(figure)
    m, d, k = ENV.spec.n_agents, ENV.spec.dim, ENV.spec.n_arms
    headline(
        figure,
        "The printed trigger fires too often under noise",
        f"FedUCB: M = {m}, K = {k}, d = {d}, gap 0.1, δ = 0.1, exact noise; {n} runs of each T, points set apart\n"
        "with noise: no privacy claim; trigger as printed, and as restated by Zhou & Chowdhury (2024): "
        "the same without noise",
    )
    caption(figure, "Dubey & Pentland (2020)", *says)
    save("dubey2020_syncs", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
