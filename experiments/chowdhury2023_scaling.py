"""Draws what the scaling factor s of Chowdhury & Zhou (2023) buys and costs: regret, bits per user and privacy.

python experiments/chowdhury2023_scaling.py [--radius exact] [--smoke]

Theorems 2 and 4: with a larger s, Dist-RDP-SE (Skellam noise) and Dist-CDP-SE (discrete Gaussian noise) round rewards
to a finer grid of about s epsilon sqrt(n) steps, so that regret and privacy improve, and users send O(log m) bits,
which grow with ln s. Dist-DP-SE has no s.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import HORIZONS, RadiusOptions, elimination, power
from common import mean_error, save

import fedbandit_jax as fb

SCALES = (1, 2, 4, 10, 30, 100, 300, 1000)
EPSILON, INSTANCE, DELTA = 0.1, "easy", 1e-6
NAMES = ("Dist-RDP-SE", "Dist-CDP-SE")


def printed(scale: float) -> float:
    """Returns epsilon at DELTA by the curve of Theorem 2 as printed and the conversion of Lemma 10."""
    alpha = np.arange(2.0, 1e4)
    extra = (2 * alpha - 1) * EPSILON**2 / (4 * scale**2) + 3 * EPSILON / (2 * scale**3)
    curve = alpha * EPSILON**2 / 2 + np.minimum(extra, 3 * EPSILON**2 / (2 * scale))
    return float((curve + np.log(1 / (alpha * DELTA)) / (alpha - 1) + np.log1p(-1 / alpha)).min())


def main(options: RadiusOptions) -> None:
    scales, env, run = SCALES[:2] if options.smoke else SCALES, fb.envs.arms(10, instance=INSTANCE), {}
    algos = {"Dist-DP-SE": elimination("Dist-DP-SE", EPSILON, radius=options.radius)}
    for name in NAMES:
        made = elimination(name, EPSILON, radius=options.radius, delta=DELTA)
        algos |= {f"{name} {s}": made.replace(scale=float(s)) for s in scales}
    run = options.arguments(HORIZONS[INSTANCE])
    result = fb.sweep(env, algos, **run)
    figure, axes = plt.subplots(1, 3, figsize=(16, 5.4), layout="constrained")
    pure = result["Dist-DP-SE"]
    for name in ("Dist-DP-SE", *NAMES):
        points = [result[f"{name} {s}"] for s in scales] if name in NAMES else [pure] * len(scales)
        colour = fb.plotting.colour(points[0])
        regret, error = np.transpose([mean_error(one.regret[:, -1]) for one in points])
        bits = np.array([one.certificate.bits_per_user for one in points])
        exact = [one.certificate.epsilon_exact for one in points]
        style = "o-" if name in NAMES else "-"
        axes[0].errorbar(scales, regret, error, fmt=style, color=colour, label=name)
        axes[1].plot(scales, bits[:, 1], style, color=colour, label=f"{name}, largest batch")
        axes[1].plot(scales, bits[:, 0], style, color=colour, alpha=0.4, label=f"{name}, smallest batch")
        axes[2].plot(scales, exact, style, color=colour, label=f"{name}: {points[0].certificate.notion}")
        for s, r, e, b, x in zip(scales, regret, error, bits, exact):
            print(f"{name}, s={s}: regret {r:,.0f} ± {e:,.0f}, {b[0]:.0f} to {b[1]:.0f} bits, epsilon {x:.4f}")
        if name in NAMES:
            gain = [points[i].regret[:, -1] - points[-1].regret[:, -1] for i in range(len(points))]
            shown = ", ".join(f"{s}: {g.mean():.0f} ± {mean_error(g)[1]:.0f}" for s, g in zip(scales, gain))
            print(f"{name}, regret more than at s={scales[-1]}, paired: {shown}")
    theorem = [printed(s) for s in scales]
    axes[2].plot(scales, theorem, "k:", label="Theorem 2 and Lemma 10, as printed")
    print("Theorem 2 and Lemma 10:", ", ".join(f"s={s}: {x:.4f}" for s, x in zip(scales, theorem)))
    titles = ("final regret, mean ± 1 s.e.", "bits that a user sends", f"ε that the noise gives, at δ={DELTA:g}")
    for ax, title in zip(axes, titles):
        ax.set(xscale="log", xlabel="scaling factor s", title=title, ylim=(0, None))
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize="small")
    figure.suptitle(
        f"{INSTANCE} instances, K=10, T={power(result.rounds[-1])}, ε={EPSILON}, p=0.1, {options.how}, "
        f"{run['seeds']} seeds.\n"
        "The paper: a larger s improves regret and privacy, and bits grow logarithmically (Theorems 2 and 4)"
    )
    save(f"chowdhury2023_scaling_{options.variant}", options, figure)


if __name__ == "__main__":
    main(tyro.cli(RadiusOptions, description=__doc__))
