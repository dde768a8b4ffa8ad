"""Draws at which delta Renyi DP beats pure DP, as Section 5 of Chowdhury & Zhou (2023) says: if delta > 1/T.

python experiments/chowdhury2023_delta.py [--smoke]

Dist-RDP-SE (s = 10) has just the noise that it needs for (0.1, delta)-DP, by its certificate, and Dist-DP-SE is (0.1,
0)-DP, which is more, at every delta. Drawn is the ratio of their regrets at T, below 1 where Renyi DP is worth it.
Failure probabilities are p = 1/T, as in the theorems.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import ArmsSize, elimination, power
from common import Says, caption, save
from curves import Curve, quotient
from scipy.optimize import brentq

import fedbandit_jax as fb

EPSILON, DELTAS = 0.1, (0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
HORIZONS = (10**5, 10**6, 10**7)
LINES = (*((horizon, "theory") for horizon in HORIZONS), (10**6, "exact"))


def renyi(delta: float, env: fb.Environment, horizon: int, **how) -> fb.algos.SuccessiveElimination:
    """Returns Dist-RDP-SE with the epsilon of its own notion that makes it (EPSILON, delta)-DP."""

    def made(own: float) -> fb.algos.SuccessiveElimination:
        return elimination("Dist-RDP-SE (s=10)", own, delta=delta, **how)

    def excess(own: float) -> float:
        return (made(own).certificate(env.spec, horizon).epsilon_exact or 0) - EPSILON

    return made(brentq(excess, EPSILON / 50, 10 * EPSILON, xtol=1e-5))  # pyright: ignore[reportArgumentType]


def measure(options: ArmsSize) -> list[Curve]:
    """Returns the final regret of every seed against delta, and that of Dist-DP-SE, a panel a line of the figure."""
    env, deltas, curves = fb.envs.arms(10, instance="easy"), DELTAS[:2] if options.smoke else DELTAS, []
    for horizon, radius in LINES[:: 3 if options.smoke else 1]:
        run = options.arguments(horizon)
        how = dict(radius=radius, failure=1 / run["horizon"])
        algos = {f"{delta:g}": renyi(delta, env, run["horizon"], **how) for delta in deltas}
        result = fb.sweep(env, {"Dist-DP-SE": elimination("Dist-DP-SE", EPSILON, **how), **algos}, **run)
        name = f"T={power(run['horizon'])}, {'radii of Lemma 2' if radius == 'theory' else 'exact radii'}"
        regret = np.stack([result[label].regret[:, -1] for label in algos])
        curves += [Curve(name, "Dist-RDP-SE", np.array(deltas), regret)]
        curves += [Curve(name, "Dist-DP-SE", np.array([run["horizon"]]), result["Dist-DP-SE"].regret[:, -1][None])]
        print(f"{name}, own epsilon: " + ", ".join(f"{label}: {algo.epsilon:.4g}" for label, algo in algos.items()))
    return curves


def main(options: ArmsSize) -> None:
    curves = options.numbers("chowdhury2023_delta", lambda: measure(options))
    figure, ax = plt.subplots(figsize=(9.0, 6.6), layout="constrained")
    right = []
    for renyi, pure, mark, colour in zip(curves[::2], curves[1::2], "osDX", fb.plotting.COLOURS):
        value, error = np.transpose([quotient(regret, pure.y[0]) for regret in renyi.y])
        line = "-" if "Lemma" in renyi.panel else "--"
        ax.errorbar(renyi.x, value, error, fmt=f"{mark}{line}", color=colour, label=renyi.panel, capsize=2)
        if line == "-":
            ax.axvline(1 / pure.x[0], color=colour, linestyle=":", linewidth=1)
        print(f"{renyi.panel}: " + ", ".join(f"{d:g}: {v:.2f} ± {e:.2f}" for d, v, e in zip(renyi.x, value, error)))
        right += [bool(v < 1 - 2 * e) for d, v, e in zip(renyi.x, value, error) if d > 1.5 / pure.x[0]]
    ax.axhline(1, color="k", linewidth=1)
    ax.set(xscale="log", xlabel="δ", ylabel="regret of Dist-RDP-SE over that of Dist-DP-SE", ylim=(0, None))
    title = f"Equal privacy: ({EPSILON:g}, δ)-DP by certificate, dotted: δ = 1/T"
    ax.set_title(f"{title}\nK=10, easy instances, p=1/T, {curves[0].n_seeds} instances, ± 1 s.e. of the paired ratio")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    seen = f"{'yes' if all(right) else 'in part'}, at {sum(right)} of {len(right)} points right of δ = 1/T by 2 s.e."
    claim = "as (ε, δ)-DP Renyi DP has less regret than pure DP if δ > 1/T"
    caption(figure, "Chowdhury & Zhou (2023)", Says("Section 5", claim, "none given; T = 10^5 to 10^7 here", seen))
    save("chowdhury2023_delta", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(ArmsSize, description=__doc__))
