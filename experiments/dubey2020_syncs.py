"""Measures how often FedUCB synchronises in T rounds; Proposition 1 of Dubey & Pentland (2020) promises O(log T).

With D = 10 the trigger as printed fires every other round until the data outweigh the noise. There Proposition 1
fails, as Zhou & Chowdhury (2024), Appendix B.3, feared. With the trigger as they restate it, it was not violated.
"""

import itertools
from typing import Any

import numpy as np
from curves import Curve, the
from drawing import Panel, Picture, Says, main
from options import DubeyOptions

import fedbandit_jax as fb

ENV = fb.envs.gap(n_agents=10, n_arms=25, dim=10)
THRESHOLDS = {"M log T": "D of Theorem 1, in proportion to T / log T", 10.0: "D = 10, whatever T"}
TRIGGERS = {"printed": "dp20", "restated": "zc24"}
COLOURS: dict[str, str] = dict(zip(("not private", "ε = 1", "ε = 10"), fb.plotting.COLOURS))
PRIVATE = {f"ε = {e}, {words}": (fb.privacy.Budget(e, 0.1), t) for e in (1, 10) for words, t in TRIGGERS.items()}
SETTINGS = {"not private": (None, "zc24"), **PRIVATE}  # without noise the two triggers are the same
CLAIM = "there are at most 2 sqrt(d T L / D) + 4 synchronisations"


def bounds(algo: fb.algos.Federated, trigger: str, horizon: int) -> tuple[float, float]:
    """Computes Proposition 1, and a bound that holds with noise: n <= T / (2 D) (c + sqrt(c^2 + 4 d L D / T)) epochs.

    Noise may take back some of a log-determinant (Zhou & Chowdhury 2024, Appendix B.3). Eigenvalues of the regulariser
    are between M rho_min and M rho_max, so this is no more than c = d ln(rho_max / rho_min). The printed trigger has c
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


def measure(options: DubeyOptions) -> list[Curve]:
    horizons = np.round(10 ** np.arange(2.5, options.pick(2.6, 5.6, 6.1), 0.5)).astype(int).tolist()
    algos: dict[str, Any] = {
        f"{d}, {name}": fb.algos.fed_ucb(budget, schedule=fb.schedules.LogDet(d, trigger))
        for d in THRESHOLDS
        for name, (budget, trigger) in SETTINGS.items()
    }
    found = {horizon: fb.sweep(ENV, algos, **options.run(*[horizon] * 3, seeds=(1, 2, 10))) for horizon in horizons}
    curves = []
    for d, name in itertools.product(THRESHOLDS, SETTINGS):
        label, panel, colour = f"{d}, {name}", THRESHOLDS[d], COLOURS[name.split(",")[0]]
        syncs = [result[label].communication["rounds"][..., -1].ravel() for result in found.values()]
        curves.append(Curve(panel, name, horizons, syncs, f"{colour} o"))
        of = np.array([bounds(algos[label], SETTINGS[name][1], horizon) for horizon in horizons]).T
        for values, line, bound in zip(of, ("-", "--"), ("Proposition 1", "bound with noise")):
            curves.append(Curve(panel, f"{name}: {bound}", horizons, values, f"{colour} {line}"))
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, says, n = [], [], max(one.n_seeds for one in curves)
    for (trigger, title), letter in zip(itertools.product(TRIGGERS, THRESHOLDS.values()), "abcd"):
        drawn, found, missing, over, where = [], [], [], False, f"trigger as {trigger}"
        for (name, colour), mark in zip(COLOURS.items(), "os^"):
            label = f"{name}, {trigger}" if name != "not private" else name
            runs, proved, ours = (
                the(curves, title, label + of) for of in ("", ": Proposition 1", ": bound with noise")
            )
            drawn.append(proved.but(label=f"{name}: Proposition 1", style=f"{colour} -"))
            drawn.append(ours.but(label=f"{name}: our bound, which holds with noise", style=f"{colour} --"))
            drawn.append(runs.but(label=f"{name}: runs", style=f"{colour} {mark}"))
            missing += [name] * bool(np.isnan(ours.mean).all())
            over |= bool((runs.y.max(1) > proved.mean).any())
            found.append(f"{name}: {runs.mean[-1]:,.0f} (at most {proved.mean[-1]:,.0f})")
        axes: Any = dict(xscale="log", yscale="log" if title == THRESHOLDS[10.0] else "symlog")
        axes |= dict(yticks=(0, 1, 2, 5, 10, 20) if letter in "ac" else None, look=dict(linestyle="none", mfc="none"))
        shown.append(Panel(drawn, f"{where};\n{title}", "rounds $T$", "synchronisations", **axes))
        seen = f"({letter}) {'no' if over else 'yes'}, {where}, {title}: {', '.join(found)} at "
        seen += f"T = {drawn[0].x[-1]:,.0f}, means of {n} runs"
        seen += f"; the bound that holds with noise is above T for {' and '.join(missing)}" if missing else ""
        says.append(Says("Proposition 1", CLAIM, "no experiment in the paper", seen))
    m, d, k = ENV.spec.n_agents, ENV.spec.dim, ENV.spec.n_arms
    setting = f"""FedUCB with M = {m}, K = {k}, d = {d}, gap 0.1, δ = 0.1 and exact noise. Means of {n} runs. With noise
        there is no privacy claim. The trigger is as printed, or as Zhou & Chowdhury (2024) restate it, which is the
        same without noise"""
    title, grid = "The printed trigger fires too often under noise", dict(sharex=True, sharey="col")
    return Picture(shown, title, setting, says, shape=(2, 2), grid=grid)


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
