"""Measures how often FedUCB synchronises in T rounds; Proposition 1 of Dubey & Pentland (2020) promises O(log T).

python experiments/dubey2020_syncs.py [--smoke | --full] [--redraw]

Markers are means of runs, solid lines Proposition 1, which is the same for both triggers, and dotted lines our own
bound (see `bounds`), where it is below T. With the threshold D of
Theorem 1 there are O(log T) synchronisations also with privacy noise, so few because the noise is large. With D = 10
the trigger as printed ("dp20") fires every other round until the data outweigh the noise. So Proposition 1 fails there,
as Zhou & Chowdhury (2024), Appendix B.3, feared; with the trigger as they restate it ("zc24") it was not violated.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, pick
from drawing import Says, caption, legend_of_all, save
from matplotlib.ticker import MaxNLocator
from options import DubeyOptions

import fedbandit_jax as fb

ENV = fb.envs.gap(n_agents=10, n_arms=25, dim=10)
THRESHOLDS = {"M log T": "D of Theorem 1, in proportion to T / log T", 10.0: "D = 10, whatever T"}
PRIVATE = [(epsilon, trigger) for epsilon in (1, 10) for trigger in ("zc24", "dp20")]
SETTINGS = {"not private": (None, "zc24"), **{f"ε = {e}, {t}": (fb.privacy.Budget(e, 0.1), t) for e, t in PRIVATE}}
NAMES = {f"ε = {e}, {t}": f"ε = {e}, as {'printed' if t == 'dp20' else 'restated'}" for e, t in PRIVATE}


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
    for (d, name), of, colour in zip(kinds, found.values(), fb.plotting.COLOURS[: len(SETTINGS)] * 2):
        values, panel = np.stack(of), THRESHOLDS[d]
        curves.append(Curve(panel, name, horizons, values[:, :-2], f"{colour} {'os'['dp20' in name]}"))
        curves.append(Curve(panel, f"{name}: Proposition 1", horizons, values[:, -2], f"{colour} -"))
        curves.append(Curve(panel, f"{name}: ours", horizons, values[:, -1], f"{colour} :"))
    return curves


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_syncs", lambda: measure(options))
    figure, axes = plt.subplots(1, 2, figsize=(11.0, 5.0), layout="constrained")
    broken = []
    for title, ax in zip(THRESHOLDS.values(), axes):
        for i, name in enumerate(SETTINGS):
            (runs,), (printed,), (ours,) = (pick(curves, title, name + of) for of in ("", ": Proposition 1", ": ours"))
            colour, marker = runs.style.split()
            words, one = NAMES.get(name, name), name.split(",")[0]
            ax.plot(runs.x * 1.2 ** (i - 2), runs.mean, marker, color=colour, markersize=4, label=words)
            if "dp20" not in name:
                ax.plot(printed.x, printed.mean, "-", color=colour, linewidth=1, label=f"Proposition 1, {one}")
            ax.plot(ours.x, ours.mean, ":", color=colour, linewidth=1.5)
            counts = f"synchronisations {runs.mean}, Prop. 1 {printed.mean.round(1)}, ours {ours.mean.round(1)}"
            print(f"\n{title}; {name}: {counts}\n  {fits(runs.x, runs.mean) if len(runs.x) > 2 else ''}")
            if (over := runs.mean > printed.mean).any():
                at = np.flatnonzero(over)[-1]
                counts = f"{runs.mean[at]:,.0f} against {printed.mean[at]:,.0f} at T = {runs.x[at]:,.0f}"
                broken.append(f"{title}: {NAMES.get(name, name)} has more than Proposition 1, {counts}")
        ax.set(ylabel="synchronisations", xlabel="$T$ (points set apart)", xscale="log")
        ax.set_title(title, fontsize="medium")
        ax.grid(alpha=0.3)
    axes[0].yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes[1].set_yscale("log")
    axes[1].plot([], [], ":", color="#000000", label="our bound, each in its colour")
    legend_of_all(figure, ncols=3)
    n = max(one.n_seeds for one in curves)
    m, d, k = ENV.spec.n_agents, ENV.spec.dim, ENV.spec.n_arms
    figure.suptitle(
        f"FedUCB: M = {m}, K = {k}, d = {d}, gap 0.1, δ = 0.1, exact noise; mean of {n} runs of each T\n"
        "private: no privacy claim; the trigger as printed, and as restated by Zhou & Chowdhury (2024)",
        fontsize="medium",
    )
    claim = "there are at most 2 sqrt(d T L / D) + 4 synchronisations"
    found = ("; ".join(broken) or "the bound holds in all runs") + "; all others are below it"
    caption(figure, "Dubey & Pentland (2020)", Says("Proposition 1", claim, "no experiment in the paper", found))
    save("dubey2020_syncs", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
