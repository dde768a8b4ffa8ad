"""Draws a world that changes: regret of algorithms that forget, private and not, and how much to forget.

python experiments/beyond_drift.py [--smoke | --full]

Half-way there is a new theta*. Greedy play in batches of 25 rounds, on sums of all batches ("blt"), or on discounted
ones (the release of the discount), without privacy and at epsilon 8 and 1 for noise of every silo, at delta = 1 / (10 M
T). Left: regret of a batch, with the discount that is best after the change. Middle: regret after the change against
the discount. Right: the same in a world that turns slowly, all rounds. Held-out seeds; all private runs are certified.
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

M, K, D, BATCH = 100, 20, 10, 25
A, P = fb.algos, fb.privacy
EPSILONS = {"no noise": None, "ε = 8": 8.0, "ε = 1": 1.0}
DECAYS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.6)  # 1: nothing is forgotten
COLOURS = dict(zip(EPSILONS, ("0.4", "#0072B2", "#D55E00")))
WORLDS = {"jump": "a new world half-way", "slide": "a world that turns all the time"}


@dataclasses.dataclass(frozen=True)
class DriftSize(Size):
    """Draw a world that moves."""


def recipe(epsilon: float | None, decay: float, delta: float) -> fb.algos.Federated:
    """Returns greedy play that forgets with this discount, and not at all at 1."""
    memory = P.Discounted(decay) if decay < 1 else None
    policy = A.Greedy() if memory is None else A.Forgetting(policy=A.Greedy(), memory=memory)
    privacy = None
    if epsilon is not None:
        statistic = P.Linear(centred=True, gram_scale=0.5)
        privacy = P.Mechanism(P.Budget(epsilon, delta), memory or "blt", statistic=statistic)
    return A.Federated(policy=policy, schedule=BATCH, privacy=privacy)


def measure(options: DriftSize) -> list[Curve]:
    """Returns the regret of every batch, and that of all rounds that count, against the discount."""
    m, k, d = options.pick((4, 4, 3), (M, K, D), (M, K, D))
    horizon, found = options.pick(4 * BATCH, 2_000, 2_000), []
    for how in WORLDS:
        still = fb.envs.sphere(m, k, d, rewards="bernoulli")
        env = fb.envs.drift(still, when=(horizon // 2,) if how == "jump" else horizon // 2, how=how)
        decays = options.pick((1.0, 0.8), DECAYS, DECAYS)
        algos = {
            f"{name}, {decay:g}": recipe(epsilon, decay, 1 / (10 * m * horizon))
            for name, epsilon in EPSILONS.items()
            for decay in decays
        }
        key = jax.random.key(options.seed + 1000)  # not the seeds on which anything was tried
        run: dict[str, Any] = dict(horizon=horizon, seeds=options.pick(2, 16, 16), key=key, store=options.store)
        result = fb.sweep(env, algos, **run, stride=BATCH, throw=False)
        print(f"{how}\n{result.summary()}", flush=True)
        first = horizon // 2 // BATCH if how == "jump" else 0
        for name in EPSILONS:
            each = [result[f"{name}, {decay:g}"] for decay in decays]
            steps = [np.diff(one.regret, axis=1, prepend=0) / (m * BATCH) for one in each]
            after = [step[:, first:].sum(1) * m * BATCH for step in steps]
            found.append(Curve(f"{how}: by decay", name, decays, after, COLOURS[name], claimed(each[0])))
            best = 1 + int(np.argmin([one.mean() for one in after[1:]]))
            for i, line in ((0, "--"), (best, "-")):
                label = f"{name}, " + (f"discount {decays[i]:g}" if i else "nothing forgotten")
                x = np.arange(1, steps[i].shape[1] + 1) * BATCH
                found.append(Curve(how, label, x, steps[i].T, f"{COLOURS[name]} {line}", claimed(each[i])))
    return found


def main(options: DriftSize) -> None:
    curves = options.numbers("beyond_drift", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(17, 5), layout="constrained", width_ratios=(1.5, 1, 1))
    for one in pick(curves, "jump"):
        colour, line = one.style.split()
        axes[0].plot(one.x, one.mean, line, color=colour, label=one.label)
        axes[0].fill_between(one.x, one.mean - one.error, one.mean + one.error, color=colour, alpha=0.15, linewidth=0)
    axes[0].set(xlabel="rounds", ylabel="regret of a user, in a batch", yscale="log", title=WORLDS["jump"])
    axes[0].legend(frameon=False, fontsize="small", ncols=2)
    for ax, how in zip(axes[1:], WORLDS):
        for one in pick(curves, f"{how}: by decay"):
            at = np.arange(len(one.x))
            ax.errorbar(at, one.mean, one.error, marker="o", capsize=3, color=one.style, label=one.label)
            shown = ", ".join(f"{x:g}: {y:,.0f} ± {e:,.0f}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"{how}, {one.label}: {shown}; {one.note}")
            ax.set_xticks(at, [f"{x:g}" if x < 1 else "all" for x in one.x])
        where = "after the change" if how == "jump" else "in all rounds"
        ax.set(xlabel="discount of a batch", ylabel=f"group regret {where}", ylim=(0, None), title=WORLDS[how])
        ax.grid(alpha=0.3)
    axes[1].legend(frameon=False)
    seeds = curves[0].n_seeds
    figure.suptitle(
        f"M = {M}, K = {K}, d = {D}, T = 2,000, batches of {BATCH} rounds, {seeds} held-out seeds, ± one SE"
    )
    save("beyond_drift", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DriftSize, description=__doc__))
