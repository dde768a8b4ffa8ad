"""Draws what rewards that come late cost: regret against their delay, by its law and by who adds noise.

python experiments/beyond_delays.py [--smoke | --full]

Greedy play in batches that double, with noise on every batch ("input_perturbation"), for epsilon = 1 at delta =
1 / (10 M T), without privacy, with noise of every silo, or under secure aggregation. Every reward comes so many rounds
late, or, dashed, that many on average. The first release comes when as many rewards have arrived as the noise asks
for. Left: regret. Right: what it exceeds that without delay by, seed by seed, beside what uniform play loses in so many
rounds. Held-out seeds; all private runs are certified.
"""

import dataclasses
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, save
from curves import Curve, claimed, pick

import fedbandit_jax as fb

M, K, D, T = 100, 20, 10, 2_000
A, P = fb.algos, fb.privacy
DELAYS = (0, 10, 50, 200)
LAWS = {"fixed": "-", "geometric": "--"}
LOOKS = {"no noise": "0.4 o", "noise of every silo": "#0072B2 s", "secure aggregation": "#D55E00 D"}


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
    for law, line in LAWS.items():
        found: dict[str, list[tuple[np.ndarray, str]]] = {}
        for delay in delays:
            env = fb.envs.delay(still, delay, law) if delay else still
            result = fb.sweep(env, {name: recipe(name, env.spec, horizon) for name in LOOKS}, **run)
            print(f"{delay} rounds late, {law}\n{result.summary()}", flush=True)
            for name in LOOKS:
                found.setdefault(name, []).append((result[name].regret[:, -1], claimed(result[name])))
        for name, of in found.items():
            label = name if law == "fixed" else f"{name}, on average"
            note = "; ".join(dict.fromkeys(claim for _, claim in of))
            look = LOOKS[name].replace(" ", f" {line}")
            curves.append(Curve("regret", label, delays, [y for y, _ in of], look, note))
            curves.append(Curve("more", label, delays, [y - of[0][0] for y, _ in of], look, note))
    return [*curves, Curve("more", "uniform play", delays, [n * uniform for n in delays], "0.7 :", "not private")]


def main(options: DelaysSize) -> None:
    curves = options.numbers("beyond_delays", lambda: measure(options))
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    labels = {"regret": "group regret", "more": "group regret, minus that without delay"}
    for ax, (panel, label) in zip(axes, labels.items()):
        for one in pick(curves, panel):
            colour, look = one.style.split()
            ax.errorbar(one.x, one.mean, one.error, fmt=look, color=colour, capsize=3, label=one.label)
            shown = ", ".join(f"{x:g}: {y:,.0f} ± {e:,.0f}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"{panel}, {one.label}: {shown}; {one.note}")
        ax.set(xlabel="rounds by which rewards are late", ylabel=label)
        ax.grid(alpha=0.3)
        ax.legend(frameon=False)
    axes[0].set(ylim=(0, None))
    n = curves[0].n_seeds
    figure.suptitle(f"M = {M}, K = {K}, d = {D}, T = {T:,}, ε = 1, δ = 1/(10 M T), {n} seeds ± one standard error")
    save("beyond_delays", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DelaysSize, description=__doc__))
