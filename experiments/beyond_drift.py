"""Draws a world that changes: regret of algorithms that forget, private and not, and how much to forget.

python experiments/beyond_drift.py [--smoke | --full]

Half-way there is a new theta*, or theta* turns all the time, from one world to the next in half the rounds. Policies
act in batches of 25 rounds, on sums of all batches ("blt"), or on discounted ones (the release of the discount),
without privacy and at epsilon 8 and 1 for noise of every silo, at delta = 1 / (10 M T). Left: regret in a batch, of
greedy play. Middle: its regret against the discount. Right: that of three policies after the change. Held-out seeds;
all private runs are certified.
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

M, K, D, T, BATCH, DECAY = 50, 10, 6, 1_000, 25, 0.8
A, P = fb.algos, fb.privacy
EPSILONS = {"no noise": None, "ε = 8": 8.0, "ε = 1": 1.0}
DECAYS = {"jump": (1.0, 0.9, DECAY, 0.6, 0.4), "slide": (1.0, 0.9, DECAY, 0.6, 0.4)}  # 1: nothing is forgotten
COLOURS = dict(zip(EPSILONS, ("0.4", "#0072B2", "#D55E00")))
LOOKS = {"jump": ("after the change", "-o"), "slide": ("theta* turns, all rounds", "--s")}


@dataclasses.dataclass(frozen=True)
class DriftSize(Size):
    """Draw a world that moves."""


def recipe(name: str, epsilon: float | None, decay: float, spec: fb.Spec, horizon: int) -> fb.algos.Federated:
    """Returns a policy that forgets with this discount, and nothing at 1; Thompson's ridge is as large as the noise."""
    memory, privacy = P.Discounted(decay) if decay < 1 else None, None
    if epsilon is not None:
        budget = P.Budget(epsilon, 1 / (10 * spec.n_agents * horizon))
        privacy = P.Mechanism(budget, memory or "blt", statistic=P.Linear(centred=True, gram_scale=0.5))

    def made(policy: fb.Policy) -> fb.algos.Federated:
        shown = policy if memory is None else A.Forgetting(policy=policy, memory=memory)
        return A.Federated(policy=shown, schedule=BATCH, privacy=privacy)

    if name == "greedy":
        return made(A.Greedy())
    if name == "UCB":
        return made(A.UCB(regularizer="project", confidence="known_noise"))
    bound: Any = made(A.Thompson()).bind(spec, horizon)
    std = float(np.max(bound.stds if memory is None else bound.policy.stds))
    return made(A.Thompson(regularization=max(1.0, std * spec.dim**0.5)))


def measure(options: DriftSize) -> list[Curve]:
    """Returns the regret of every batch, and that of the rounds that count, against the discount and by policy."""
    m, k, d = options.pick((4, 4, 3), (M, K, D), (2 * M, 2 * K, 10))
    horizon, found = options.pick(4 * BATCH, T, 2 * T), []
    for how, (_, style) in LOOKS.items():
        still = fb.envs.sphere(m, k, d, rewards="bernoulli")
        env = fb.envs.drift(still, when=(horizon // 2,) if how == "jump" else horizon // 2, how=how)
        asked = [("greedy", decay) for decay in options.pick((1.0, DECAY), DECAYS[how], DECAYS[how])]
        if how == "jump":
            asked += [
                (name, decay)
                for name in options.pick((), ("UCB", "Thompson"), ("UCB", "Thompson"))
                for decay in (1.0, DECAY)
            ]
        algos = {
            f"{name} {decay:g}, {noise}": recipe(name, epsilon, decay, env.spec, horizon)
            for name, decay in asked
            for noise, epsilon in EPSILONS.items()
        }
        key = jax.random.key(options.seed + 1000)  # not the seeds on which anything was tried
        run: dict[str, Any] = dict(horizon=horizon, seeds=options.pick(2, 16, 16), key=key, store=options.store)
        result = fb.sweep(env, algos, **run, stride=BATCH, throw=False)
        print(f"{how}\n{result.summary()}", flush=True)
        steps = {label: np.diff(result[label].regret, axis=1, prepend=0) for label in result}
        counts = slice(horizon // 2 // BATCH if how == "jump" else 0, None)
        for noise, colour in COLOURS.items():
            claim = claimed(result[f"greedy 1, {noise}"])
            decays = [decay for name, decay in asked if name == "greedy"]
            y = [steps[f"greedy {decay:g}, {noise}"][:, counts].sum(1) for decay in decays]
            found.append(Curve(f"{how}, by discount", noise, decays, y, f"{colour} {style}", claim))
            for decay, line in ((1.0, "--"), (DECAY, "-")):
                one = steps[f"greedy {decay:g}, {noise}"]
                label = f"{noise}, " + (f"discount {decay:g}" if decay < 1 else "nothing forgotten")
                x = np.arange(1, one.shape[1] + 1) * BATCH
                found.append(Curve(how, label, x, one.T / (m * BATCH), f"{colour} {line}", claim))
                names = list(dict.fromkeys(name for name, _ in asked))
                y = [steps[f"{name} {decay:g}, {noise}"][:, counts].sum(1) for name in names]
                found.append(Curve(f"{how}, by policy", label, np.arange(len(names)), y, f"{colour} {line}", claim))
    return found


def main(options: DriftSize) -> None:
    curves = options.numbers("beyond_drift", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(17, 5), layout="constrained", width_ratios=(1.3, 1, 1))
    for one in pick(curves, "jump"):
        colour, line = one.style.split()
        axes[0].plot(one.x, one.mean, line, color=colour, label=one.label)
        axes[0].fill_between(one.x, one.mean - one.error, one.mean + one.error, color=colour, alpha=0.15, linewidth=0)
    axes[0].set(xlabel="rounds", ylabel="regret of a user", yscale="log", title="greedy play, a new world half-way")
    for how, (where, _) in LOOKS.items():
        for one in pick(curves, f"{how}, by discount"):
            colour, look = one.style.split()
            axes[1].errorbar(
                one.x, one.mean, one.error, fmt=look, color=colour, capsize=3, label=f"{one.label}, {where}"
            )
            shown = ", ".join(f"{x:g}: {y:,.0f} ± {e:,.0f}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"greedy, {how}, {one.label}: {shown}; {one.note}")
    axes[1].set(
        xlabel="discount of a batch; 1: nothing is forgotten", ylabel="group regret", yscale="log", title="greedy play"
    )
    bars = pick(curves, "jump, by policy")
    names = ("greedy", "UCB", "Thompson")[: len(bars[0].x)]
    for i, one in enumerate(bars):
        colour, line = one.style.split()
        fill: dict[str, Any] = dict(color=colour) if line == "-" else dict(color="white", edgecolor=colour, hatch="//")
        axes[2].bar(one.x + 0.13 * (i - 2.5), one.mean, 0.12, yerr=one.error, label=one.label, capsize=2, **fill)
        shown = ", ".join(f"{name}: {y:,.0f} ± {e:,.0f}" for name, y, e in zip(names, one.mean, one.error))
        print(f"after the change, {one.label}: {shown}; {one.note}")
    axes[2].set_xticks(np.arange(len(names)), names)
    axes[2].set(ylabel="group regret after the change", ylim=(0, None), title="policies, colours as on the left")
    axes[0].legend(frameon=False, fontsize="small", loc="lower center", ncols=3, bbox_to_anchor=(0.5, -0.32))
    axes[1].legend(frameon=False, fontsize="small")
    for ax in axes:
        ax.grid(alpha=0.3)
    title = f"M = {M}, K = {K}, d = {D}, T = {T:,}, batches of {BATCH} rounds, {curves[0].n_seeds} held-out seeds ± SE"
    figure.suptitle(title)
    save("beyond_drift", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DriftSize, description=__doc__))
