"""Measures how often FedUCB synchronises in T rounds; Proposition 1 of Dubey & Pentland (2020) promises O(log T).

python experiments/dubey2020_syncs.py [--smoke | --full] [--redraw]

Markers are means of runs, solid lines Proposition 1, which is the same for both triggers, and dashed and dotted lines
our own bound (see `bounds`), where it is below T. With the threshold D of
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

COLOURS: dict[str, str] = dict(zip(("not private", "ε = 1", "ε = 10"), fb.plotting.COLOURS))
LOOKS: tuple[tuple[dict[str, Any], str], ...] = (
    (dict(marker="o", linestyle=""), "counts, trigger as restated"),
    (dict(marker="s", mfc="white", linestyle=""), "counts, trigger as printed"),
    (dict(linestyle="-", linewidth=1), "Proposition 1, for both triggers"),
    (dict(linestyle="--"), "our bound, trigger as restated"),
    (dict(linestyle=":"), "our bound, trigger as printed"),
)
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
    for (d, name), of, colour in zip(kinds, found.values(), fb.plotting.COLOURS[: len(SETTINGS)] * 2):
        values, panel = np.stack(of), THRESHOLDS[d]
        curves.append(Curve(panel, name, horizons, values[:, :-2], f"{colour} {'os'['dp20' in name]}"))
        curves.append(Curve(panel, f"{name}: Proposition 1", horizons, values[:, -2], f"{colour} -"))
        curves.append(Curve(panel, f"{name}: ours", horizons, values[:, -1], f"{colour} :"))
    return curves


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_syncs", lambda: measure(options))
    figure, axes = plt.subplots(1, 2, figsize=(11.0, 5.0), layout="constrained")
    lines, n = [], max(one.n_seeds for one in curves)
    for title, letter, ax in zip(THRESHOLDS.values(), "ab", axes):
        counts = np.concatenate([pick(curves, title, name)[0].y.ravel() for name in SETTINGS])
        few = counts.max() < 10
        broken, holds, missing = [], [], []
        for name in SETTINGS:
            (runs,), (printed,), (ours,) = (pick(curves, title, name + of) for of in ("", ": Proposition 1", ": ours"))
            words, colour, restated = NAMES.get(name, name), COLOURS[name.split(",")[0]], "dp20" not in name
            marker: dict[str, Any] = dict(marker="o") if restated else dict(marker="s", mfc="none")
            size = 4 + 3 * list(COLOURS)[::-1].index(name.split(",")[0])  # so that equal counts are seen
            ax.plot(runs.x, runs.mean, linestyle="", color=colour, markersize=size, clip_on=False, **marker)
            if restated:
                ax.plot(printed.x, printed.mean, "-", color=colour, linewidth=1)
            ax.plot(ours.x, ours.mean, "--" if restated else ":", color=colour, linewidth=1.5)
            missing += [words] * bool(np.isnan(ours.mean).all())
            print(f"{title}; {words}: {fits(runs.x, runs.mean) if len(runs.x) > 2 else ''}")
            over = np.flatnonzero(runs.mean > printed.mean)
            at = over[-1] if len(over) else -1
            found = f"{words} {runs.mean[at]:,.0f} of at most {printed.mean[at]:,.0f} at T = {runs.x[at]:,.0f}"
            (broken if len(over) else holds).append(found)
        seen = f"({letter}) {title}: {counts.min():.0f} to {counts.max():,.0f} synchronisations; "
        seen += f"more than the bound: {', '.join(broken)}; " if broken else ""
        seen += f"no more than the bound: {', '.join(holds)} (means of {n} runs)"
        seen += f"; our bound is above T, and not drawn, for {', '.join(missing)}" if missing else ""
        lines.append(Says("Proposition 1", CLAIM, "no experiment in the paper", seen))
        if missing:
            ax.text(0.02, 0.97, "our bound with noise is above T", transform=ax.transAxes, va="top", fontsize="small")
        ax.set(ylabel="synchronisations", xlabel="rounds $T$", xscale="log", yscale="linear" if few else "log")
        ax.set_title(f"({letter}) {title}", fontsize="medium")
        ax.grid(alpha=0.3)
    axes[0].yaxis.set_major_locator(MaxNLocator(6, integer=True))
    for name, colour in COLOURS.items():
        axes[0].plot([], [], "-", color=colour, linewidth=6, label=name)
    for look, label in LOOKS:
        axes[0].plot([], [], color="#000000", label=label, **look)
    legend_of_all(figure, ncols=3)
    m, d, k = ENV.spec.n_agents, ENV.spec.dim, ENV.spec.n_arms
    figure.suptitle(
        f"FedUCB: M = {m}, K = {k}, d = {d}, gap 0.1, δ = 0.1, exact noise; mean of {n} runs of each T; "
        "equal counts are concentric\n"
        "with noise: no privacy claim; the trigger as printed, and as restated by Zhou & Chowdhury (2024)",
        fontsize="medium",
    )
    caption(figure, "Dubey & Pentland (2020)", *lines)
    print(figure.get_label())
    save("dubey2020_syncs", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
