"""Draws linear and logistic statistics on clicks, and truncated rewards with heavy tails, all certified.

python experiments/beyond_glm.py [--smoke | --full]

Above: users who click with probability 1 / (1 + exp(-8 (<x, theta*> - 1/2))), offered fresh arms or, each agent, always
the same; regret is in clicks. The same greedy recipe sums x (y - 1/2) and x x' (`Linear`) or what one Newton step of
logistic regression needs (`Logistic`). Below: rewards <x, theta*> plus noise of Student's law with 2 or 3 degrees of
freedom, or <x, theta*> times a draw of Pareto's law, clipped to a range of length R around 1/2, against R; regret is in
units of reward. Constants of the statistics were chosen on other seeds.
"""

import dataclasses
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, save
from curves import Curve, pick

import fedbandit_jax as fb

P, A, S = fb.privacy, fb.algos, fb.schedules
M, K, D, DELTA = 100, 100, 10, 0.1
EPSILONS = (1.0, 8.0)
RANGES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
STATISTICS = {
    "linear": P.Linear(centred=True, gram_scale=0.5),
    "logistic": P.Logistic(),
}
TAILS: dict[str, dict[str, Any]] = {
    "Gaussian, std 1": dict(rewards="gaussian", noise_std=1.0),
    "Student, 3 degrees of freedom": dict(rewards="student_t", noise_std=1.0, shape=3.0),
    "Student, 2 degrees of freedom": dict(rewards="student_t", noise_std=1.0, shape=2.0),
    "Pareto, tail index 2": dict(rewards="pareto", shape=2.0),
}


@dataclasses.dataclass(frozen=True)
class GlmSize(Size):
    """Draw statistics of clicks and of heavy tails."""


def recipe(statistic: fb.privacy.Statistic, epsilon: float | None, spec: fb.Spec, horizon: int) -> fb.Algorithm:
    """Returns greedy play on growing batches, with noise at every silo; None: without noise, on what is summed."""
    if epsilon is None:
        return A.Federated(policy=A.Greedy(), schedule=S.Geometric(1.5, first=1))
    mechanism = P.Mechanism(P.Budget(epsilon, DELTA), P.Decaying(1.5), statistic=statistic)
    return A.Federated(policy=A.Greedy(), schedule=S.Geometric(1.5, first=1), privacy=mechanism).patient(spec, horizon)


def instance(options: GlmSize, **rewards: Any) -> Any:
    return fb.envs.sphere(*options.shape(M, K, D), **rewards)


def finals(options: GlmSize, env: Any, algos: dict[str, fb.Algorithm], horizon: int) -> dict[str, Any]:
    """Returns the final regrets of all seeds and the claim of every algorithm."""
    seeds = options.pick(2, 16, 32)
    key = jax.random.key(options.seed + 1000)  # not the seeds on which constants were chosen
    result = fb.sweep(env, algos, horizon=horizon, stride=horizon, key=key, seeds=seeds, throw=False)
    return {name: (result[name].regret[:, -1], result[name].certificate.claim) for name in algos}


def measure(options: GlmSize) -> list[Curve]:
    """Returns final regrets: of clicks against epsilon, and of heavy tails against the range."""
    horizon, curves = options.pick(20, 2000, 2000), []
    for contexts in ("fresh", "fixed"):
        env = instance(options, contexts=contexts, rewards="logistic")
        made = {(name, e): recipe(one, e, env.spec, horizon) for name, one in STATISTICS.items() for e in EPSILONS}
        algos = {f"{name}, {e:g}": algo for (name, e), algo in made.items()}
        found = finals(options, env, {**algos, "no noise": recipe(P.Linear(), None, env.spec, horizon)}, horizon)
        for name in STATISTICS:
            values = [found[f"{name}, {e:g}"] for e in EPSILONS]
            curves.append(Curve(contexts, name, EPSILONS, [y for y, _ in values], note=values[0][1]))
        curves.append(Curve(contexts, "no noise", EPSILONS, [found["no noise"][0]] * len(EPSILONS), note="none"))
    for name, law in list(TAILS.items())[options.pick(3, 0, 0) :]:
        env = instance(options, **law)
        ranges = options.pick(RANGES[:2], RANGES, RANGES)
        algos = {
            f"{r:g}": recipe(P.Linear(0.5, centred=True, low=0.5 - r / 2, high=0.5 + r / 2), 1.0, env.spec, horizon)
            for r in ranges
        }
        found = finals(options, env, {**algos, "no noise": recipe(P.Linear(), None, env.spec, horizon)}, horizon)
        values = [found[f"{r:g}"] for r in ranges]
        curves.append(Curve("tails", name, ranges, [y for y, _ in values], note=values[0][1]))
        curves.append(Curve("tails, no noise", name, ranges, [found["no noise"][0]] * len(ranges), note="none"))
    return curves


def main(options: GlmSize) -> None:
    curves = options.numbers("beyond_glm", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained", width_ratios=(1, 1, 1.6))
    for ax, contexts in zip(axes, ("fresh", "fixed")):
        shown = pick(curves, contexts)
        for i, one in enumerate(shown):
            at = np.arange(len(one.x)) + 0.27 * (i - 1)
            colour = "0.6" if one.label == "no noise" else fb.plotting.COLOURS[1 + i]
            ax.bar(at, one.mean, 0.25, yerr=one.error, color=colour, label=one.label, capsize=3)
            print(f"{contexts}, {one.label}: " + ", ".join(f"{m:,.0f} ± {e:,.0f}" for m, e in zip(one.mean, one.error)))
        ax.set(title=f"clicks, {contexts} arms", ylabel="regret, clicks")
        ax.set_xticks(np.arange(len(shown[0].x)), [f"ε = {e:g}" for e in shown[0].x])
        ax.grid(alpha=0.3, axis="y")
    axes[0].legend(frameon=False)
    ax = axes[2]
    tails = pick(curves, "tails")
    for i, (one, free) in enumerate(zip(tails, pick(curves, "tails, no noise"))):
        colour = fb.plotting.COLOURS[1 + i]
        ax.errorbar(one.x, one.mean, 2 * one.error, color=colour, marker="osD^"[i], label=one.label, capsize=3)
        ax.axhline(free.mean[0], color=colour, linestyle=":", linewidth=1)
        found = ", ".join(f"{r:g}: {m:,.0f} ± {e:,.0f}" for r, m, e in zip(one.x, one.mean, one.error))
        print(f"{one.label}: {found}, without noise {free.mean[0]:,.0f} ± {free.error[0]:,.0f}")
    ax.set(xscale="log", yscale="log", xlabel="length R of the range that rewards are clipped to", ylabel="regret")
    ax.set_xticks(tails[0].x, [f"{r:g}" for r in tails[0].x])
    ax.minorticks_off()
    ax.set_title("heavy tails, ε = 1 (dotted: no noise, no clipping)")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False, fontsize="small")
    save("beyond_glm", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(GlmSize, description=__doc__))
