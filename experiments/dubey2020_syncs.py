"""Measures how often FedUCB synchronises in T rounds; Proposition 1 of Dubey & Pentland (2020) promises O(log T).

python experiments/dubey2020_syncs.py [--smoke | --full]

Dots are runs, solid lines Proposition 1, dotted lines our own bound (see `bounds`). With the threshold D of Theorem 1
there are O(log T) synchronisations also with privacy noise, so few because the noise is large. With D = 10 the trigger
as printed ("dp20") fires every other round until the data outweigh the noise. So Proposition 1 fails there, as Zhou &
Chowdhury (2024), Appendix B.3, feared; with the trigger as they restate it ("zc24") it was not violated.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import DubeyOptions, save

import fedbandit_jax as fb

ENV = fb.envs.gap(n_agents=10, n_arms=25, dim=10)
THRESHOLDS = {"M log T": "D of Theorem 1, in proportion to T / log T", 10.0: "D = 10, whatever T"}
PRIVATE = [(epsilon, trigger) for epsilon in (1, 10) for trigger in ("zc24", "dp20")]
SETTINGS = {"not private": (None, "zc24"), **{f"ε = {e}, {t}": (fb.privacy.Budget(e, 0.1), t) for e, t in PRIVATE}}


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


def measure(horizon: int, options: DubeyOptions) -> np.ndarray:
    """Returns synchronisations in T rounds and both bounds, with the axes (threshold, setting, these three)."""
    kinds = [(d, *setting) for d in THRESHOLDS for setting in SETTINGS.values()]
    algos = [fb.algos.fed_ucb(budget, schedule=fb.schedules.LogDet(d, trigger)) for d, budget, trigger in kinds]
    run = options.run(horizon, horizon, horizon, seeds=(1, 2, 10))
    result = fb.sweep(ENV, {str(i): algo for i, algo in enumerate(algos)}, **run)
    syncs = result.communication["rounds"][..., -1].mean(1)
    found = [(n, *bounds(algo, kind[-1], horizon)) for n, algo, kind in zip(syncs, algos, kinds)]
    return np.reshape(found, (len(THRESHOLDS), len(SETTINGS), 3))


def main(options: DubeyOptions) -> None:
    horizons = np.round(10 ** np.arange(2.5, options.pick(2.6, 5.6, 6.1), 0.5)).astype(int)
    measured = np.stack([measure(int(horizon), options) for horizon in horizons])  # axes: T, threshold, setting, three
    figure, axes = plt.subplots(1, 2, figsize=(13.0, 5.4), layout="constrained")
    for title, ax, of_threshold in zip(THRESHOLDS.values(), axes, np.moveaxis(measured, 0, -1)):
        for i, (name, curves, colour) in enumerate(zip(SETTINGS, of_threshold, fb.plotting.COLOURS)):
            ax.plot(horizons * 1.07**i, curves[0], "os"["dp20" in name], color=colour, markersize=5, label=name)
            ax.plot(horizons, curves[1], "-", color=colour, linewidth=1)
            ax.plot(horizons, curves[2], ":", color=colour, linewidth=1.5)
            print(f"\n{title}; {name}: syncs {curves[0]}, Prop. 1 {curves[1].round(1)}, ours {curves[2].round(1)}")
            print("  " + ("" if options.smoke else fits(horizons, curves[0])))
        ax.set(title=title, ylabel="synchronisations", xlabel="$T$, one run for each (points set apart)", xscale="log")
    axes[1].set_yscale("log")
    axes[1].legend(fontsize="small", title="solid: Proposition 1\ndotted: ours, if below T", title_fontsize="small")
    save("dubey2020_syncs", options, figure)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
