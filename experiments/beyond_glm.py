"""Draws linear and logistic statistics on clicks, and truncated rewards with heavy tails, all certified.

python experiments/beyond_glm.py [--smoke | --full]

(a), (b): users who click with probability 1 / (1 + exp(-8 (<x, theta*> - 1/2))), offered fresh arms or, each agent,
always the same; regret is in clicks. The same greedy recipe sums x (y - 1/2) and x x' (`Linear`) or what one Newton
step of logistic regression needs (`Logistic`). (c): rewards <x, theta*> plus noise of Gauss's law or of Student's with
2 or 3 degrees of freedom, or <x, theta*> times a draw of Pareto's law, clipped to a range of length R around 1/2,
against R; regret is in units of reward. Constants of the statistics were chosen on other seeds.
"""

import dataclasses
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, pick, random_play
from drawing import legend_of_all, remark, save
from options import Size

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
    "Gaussian, standard deviation 1": dict(rewards="gaussian", noise_std=1.0),
    "Student, 3 degrees of freedom": dict(rewards="student_t", noise_std=1.0, shape=3.0),
    "Student, 2 degrees of freedom": dict(rewards="student_t", noise_std=1.0, shape=2.0),
    "Pareto, tail index 2": dict(rewards="pareto", shape=2.0),
}
LOOKS = ("#000000 o", "#E69F00 s", "#56B4E9 D", "#CC79A7 ^")  # of the tails


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
    for panel, rewards in (("random play", "logistic"), ("random play, tails", "gaussian")):
        uniform = random_play(instance(options, rewards=rewards)) * horizon
        curves.append(Curve(panel, "random play", [0], [uniform], "#999999 :", "not private"))
    return curves


def main(options: GlmSize) -> None:
    curves = options.numbers("beyond_glm", lambda: measure(options))
    widths: dict[str, Any] = dict(width_ratios=(1, 1, 2), layout="constrained")
    figure, (fresh, fixed, right) = plt.subplots(1, 3, figsize=(11, 4.8), **widths)
    of_clicks, of_tails = (round(one.mean[0], -2) for one in pick(curves, label="random play"))
    said: dict[tuple[str, str], list[str]] = {}
    for one in curves:
        said[one.panel, one.label] = [f"{m:,.0f} ± {e:,.0f}" for m, e in zip(one.mean, one.error)]
        print(f"{one.panel}, {one.label}: {', '.join(said[one.panel, one.label])}")
    for ax, contexts, letter in ((fresh, "fresh", "a"), (fixed, "fixed", "b")):
        *private, free = pick(curves, contexts)
        at = np.arange(len(free.x))
        for i, one in enumerate(private):
            look: dict[str, Any] = dict(color=fb.plotting.COLOURS[1 + i], label=f"(a), (b): {one.label}, certified")
            ax.bar(at + 0.4 * i - 0.2, one.mean, 0.38, yerr=one.error, capsize=3, **look)
        look = dict(color="0.6", label="(a), (b): linear, no noise")
        ax.bar(len(at), free.mean[0], 0.38, yerr=free.error[0], capsize=3, **look)
        ax.set_title(f"({letter}) clicks, {contexts} arms", fontsize="medium")
        ax.set(xlim=(-0.6, len(at) + 0.5), ylim=(0, 1_900), ylabel="regret at T, in clicks")
        ax.set_xticks([*at, len(at)], [*(f"ε = {e:g}" for e in free.x), "no noise"])
    tails = pick(curves, "tails")
    ends = tails[0].x[-1] * np.array([2.5, 5])  # where runs without noise and clipping are drawn, and where axes end
    for i, (one, free, style) in enumerate(zip(tails, pick(curves, "tails, no noise"), LOOKS)):
        colour, marker = style.split()
        shown: dict[str, Any] = dict(color=colour, fmt=f"{marker}-", capsize=3)
        right.errorbar(one.x * 1.06 ** (i - 1.5), one.mean, one.error, label=f"(c): {one.label}", **shown)
        right.errorbar(ends[0] * 1.06 ** (i - 1.5), free.mean[0], free.error[0], mfc="white", **shown)
    right.axhline(of_tails, color="#999999", linestyle=":", label="(c): random play")
    right.set(xscale="log", yscale="log", xlim=(0.2, ends[1]), ylabel="regret at T, in units of reward")
    right.set_xlabel("length R of the range that rewards are clipped to")
    right.set_xticks([*tails[0].x, ends[0]], [*(f"{r:g}" for r in tails[0].x), "no noise,\nno clipping"])
    right.set_xticks([], minor=True)
    right.set_title("(c) heavy tails, ε = 1, certified", fontsize="medium")
    for ax in figure.axes:
        ax.grid(alpha=0.3)
        ax.set_axisbelow(True)
    size = f"M = {M}, K = {K}, d = {D}, T = 2,000, δ = {DELTA:g}, {curves[0].n_seeds} seeds ± one standard error"
    figure.suptitle(f"{size}; random play in (a), (b): {of_clicks:,.0f} clicks", fontsize="medium")
    legend_of_all(figure)
    name = "Student, 2 degrees of freedom" if not options.smoke else tails[0].label
    remark(
        figure,
        f"On clicks of fresh arms at ε = 1 the linear statistic has {said['fresh', 'linear'][0]}, and the logistic one "
        f"{said['fresh', 'logistic'][0]}; at ε = 8 {said['fresh', 'linear'][1]} and {said['fresh', 'logistic'][1]}. "
        f"The narrowest range has the least regret: with Student's law of 2 degrees of freedom it is "
        f"{said['tails', name][0]}, where sums of raw rewards without noise have {said['tails, no noise', name][0]}.",
    )
    save("beyond_glm", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(GlmSize, description=__doc__))
