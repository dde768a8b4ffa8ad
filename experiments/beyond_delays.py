"""Draws what rewards that come late cost: regret against their delay, by its law and by who adds noise.

python experiments/beyond_delays.py [--smoke | --full]

Greedy play in batches that double, with noise on every batch ("input_perturbation"), for epsilon = 1 at delta =
1 / (10 M T), without privacy, with noise of every silo, or under secure aggregation. Every reward comes so many rounds
late, or as many as a geometric law with that mean says. The first release comes when as many rewards have arrived as
the noise asks for. (a) Regret. (b) What it exceeds that without delay by, seed by seed, for each round of delay, beside
what uniform play loses in a round. Held-out seeds; all private runs are certified.
"""

import dataclasses
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, claimed, pick
from drawing import legend_of_all, remark, save
from options import Size

import fedbandit_jax as fb

M, K, D, T = 100, 20, 10, 2_000
A, P = fb.algos, fb.privacy
DELAYS = (0, 10, 50, 200)
LAWS = ("fixed", "geometric")
CHANCE = "random play, in a round"
LOOKS = {"no noise": "#000000 o", "noise of every silo": "#D55E00 s", "secure aggregation": "#009E73 D"}
PALE = {"no noise": "#888888 ^", "noise of every silo": "#F0A868 v", "secure aggregation": "#66C5AB <"}  # geometric


@dataclasses.dataclass(frozen=True)
class DelaysSize(Size):
    """Draw rewards that come late."""


def recipe(name: str, spec: fb.Spec, horizon: int) -> fb.algos.Federated:
    """Returns greedy play with this trust model, whose first release is as late as its noise and the delay ask for."""
    privacy = None
    if name != "no noise":
        privacy = P.Mechanism(
            P.Budget(1.0, 1 / (10 * spec.n_agents * horizon)),
            "input_perturbation",
            "secagg" if name.startswith("secure") else "silo_local",
            statistic=P.Linear(centred=True, gram_scale=0.5),
        )
    schedule = fb.schedules.Geometric(2.0, first=5 + spec.late)
    algo = A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy)
    return algo if privacy is None else algo.patient(spec, horizon)


def measure(options: DelaysSize) -> list[Curve]:
    """Returns regret by the delay and its law, and what uniform play loses in as many rounds."""
    m, k, d = options.pick((8, 4, 3), (M, K, D), (4 * M, K, D))
    horizon, seeds = options.pick(60, T, 2 * T), options.pick(2, 16, 16)
    delays = options.pick((0, 5), DELAYS, DELAYS)
    key = jax.random.key(options.seed + 1000)  # not the seeds on which anything was tried
    run: dict[str, Any] = dict(horizon=horizon, seeds=seeds, key=key, stride=horizon, throw=False, store=options.store)
    still, curves = fb.envs.sphere(m, k, d, rewards="bernoulli"), []
    uniform = fb.simulate(still, A.Federated(policy=A.Greedy(), schedule=horizon), **run).regret[:, -1] / horizon
    for law in LAWS:
        found: dict[str, list[tuple[np.ndarray, str]]] = {}
        for delay in delays:
            env = fb.envs.delay(still, delay, law) if delay else still
            result = fb.sweep(env, {name: recipe(name, env.spec, horizon) for name in LOOKS}, **run)
            print(f"{delay} rounds late, {law}\n{result.summary()}", flush=True)
            for name in LOOKS:
                found.setdefault(name, []).append((result[name].regret[:, -1], claimed(result[name])))
        for name, of in found.items():
            label = f"{name}, {law} delays"
            note = "; ".join(dict.fromkeys(claim for _, claim in of))
            look = (LOOKS if law == "fixed" else PALE)[name].replace(" ", " -")
            curves.append(Curve("regret", label, delays, [y for y, _ in of], look, note))
            curves.append(Curve("more", label, delays, [y - of[0][0] for y, _ in of], look, note))
    return [*curves, Curve("more", CHANCE, delays, [n * uniform for n in delays], "#999999 -.", "not private")]


def main(options: DelaysSize) -> None:
    curves = options.numbers("beyond_delays", lambda: measure(options))
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 5.2), layout="constrained")
    titles = {
        "regret": ("(a) regret by the delay", "group regret at T"),
        "more": ("(b) what a round of delay costs", "extra regret per round of delay"),
    }
    ticks, low = curves[0].x, -25  # the lower end of (b)
    for ax, (panel, (title, words)) in zip(axes, titles.items()):
        kept = slice(int(panel == "more"), None)  # without delay there is nothing more
        for i, one in enumerate(pick(curves, panel)):
            colour, look = one.style.split()
            shown = ", ".join(f"{x:g}: {y:,.0f} ± {e:,.0f}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"{panel}, {one.label}: {shown}; {one.note}")
            by = one.x[kept] if panel == "more" else 1
            if one.label == CHANCE:
                ax.axhline(one.mean[-1] / one.x[-1], color=colour, linestyle=look, label=f"(b): {CHANCE}")
                continue
            at = np.arange(len(ticks))[kept] + 0.03 * (i - 2.5)  # so that what is equal is seen
            y, error = one.mean[kept] / by, one.error[kept] / by
            label = f"{one.label}: {one.note}"
            ax.errorbar(at, y, error, fmt=look, color=colour, capsize=3, markersize=5, label=label)
            for place, value, more in zip(at, y, error):
                if panel == "more" and value - more < low:
                    ax.plot(place, low + 0.8, "v", color=colour, markersize=5)
                    ax.text(
                        place + 0.04,
                        low + 1,
                        f"{value:.0f} ± {more:.0f}".replace("-", "−"),
                        color="#555555",
                        fontsize="small",
                    )
        ax.set_xticks(np.arange(len(ticks))[kept], [f"{x:g}" for x in ticks[kept]])
        ax.set(xlabel="rounds by which rewards are late (not to scale)", ylabel=words)
        ax.set_title(title, fontsize="medium")
        ax.grid(alpha=0.3)
    axes[0].set(yscale="log")
    axes[1].set(ylim=(low, 50))
    n = curves[0].n_seeds
    size = f"M = {M}, K = {K}, d = {D}, T = {T:,}, ε = 1, δ = 1/(10 M T), {n} seeds ± one standard error"
    figure.suptitle(f"{size}; geometric delays have this mean", fontsize="medium")
    legend_of_all(figure, ncols=2)
    last = {one.label: (one.mean[-1] / one.x[-1], one.error[-1] / one.x[-1]) for one in pick(curves, "more")}
    late = {label: f"{value:.1f} ± {error:.2g}" for label, (value, error) in last.items()}
    found = [
        "{} under secure aggregation, {} with noise of every silo and {} without noise".format(
            *(late[f"{name}, {law} delays"] for name in ("secure aggregation", "noise of every silo", "no noise"))
        )
        for law in LAWS
    ]
    remark(
        figure,
        f"A fixed delay of {ticks[-1]:g} rounds costs, for each of them, {found[0]}, where random play loses "
        f"{last[CHANCE][0]:.1f} in a round ({n} paired seeds). Geometric delays of this mean cost {found[1]}. Points "
        "are shifted sideways so that they can be seen; a bar that ends in a triangle is cut.",
    )
    save("beyond_delays", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DelaysSize, description=__doc__))
