"""Compares when to synchronise, at equal privacy: in fixed batches, in growing ones, or when a private test says so.

python experiments/beyond_schedules.py [--smoke | --full] [--redraw]

All have the best certified parts: BLT noise for at most S synchronisations, projection, and widths from the law of the
noise. The private test is a sparse vector test with threshold D; the raw trigger leaks. Left, all agents are alike.
Then each agent sees a third of the directions only ("own subspace"), or all see one third, then another, then the
last ("new subspaces"), which no schedule that is fixed in advance knows of: growing batches win in the first instance
and lose in the last.
"""

from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import tyro
from common import Size, mean_error, promised, save
from curves import Curve, ends, pick
from jax import lax

import fedbandit_jax as fb

S, M, K, D = fb.schedules, 50, 10, 10
THRESHOLDS = (30.0, 100.0, 300.0)
SHARP = fb.algos.private_fed_lin_ucb(
    fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt"),
    policy=fb.algos.UCB(regularizer="project", confidence="known_noise"),
)
FAMILIES: dict[str, list[fb.schedules.Schedule]] = {
    "fixed batch, B = 25, 50, 100": [S.Every(batch) for batch in (25, 50, 100)],
    "growing by 1.1 ... 1.5 from 50": [S.Geometric(growth, first=50) for growth in (1.1, 1.2, 1.5)],
    "sparse vector, 0.1 ε, S = 64": [S.PrivateLogDet(d, share=0.1, max_syncs=64) for d in THRESHOLDS],
    "raw log det, S = 64": [S.LogDet(d, max_syncs=64) for d in THRESHOLDS],
}


@fb.pytree
class Blocks(fb.envs.Sphere):
    """The sphere, where a user's features lie in one of three blocks of directions, by her agent or by the round."""

    period: int  # rounds until the next block; 0: agent i has block i mod 3; -1: all have all blocks

    def features_at(self, key, world, t, arm, agent):
        """Returns (u, 1) / sqrt 2, with u uniform on the unit sphere of the block."""
        *u, one = super().features_at(key, world, t, arm, agent)
        block = jnp.where(self.period > 0, t // jnp.maximum(self.period, 1), agent % 3)
        kept = [jnp.where((i // 3 == block) | (self.period < 0), x, 0) for i, x in enumerate(u)]
        scale = one * lax.rsqrt(sum(x * x for x in kept))
        return [*(x * scale for x in kept), one]


def compare(title: str, families: dict[str, list[Curve]]) -> None:
    """Prints how the best schedule of every family, chosen on half of the seeds, does on the others against fixed B.

    Curves have regret at 0 and synchronisations at 1.
    """
    half = next(iter(families.values()))[0].n_seeds // 2
    best = {name: min(members, key=lambda one: one.y[0, :half].mean()) for name, members in families.items()}
    fixed = next(iter(best.values())).y[0, half:]
    for one in best.values():
        (mean, error), (less, paired) = (mean_error(one.y[0, half:] - base) for base in (0, fixed))
        print(f"{title}, {len(fixed)} seeds, {one.label}: {mean:.0f} ± {error:.0f}", end=", ")
        print(f"minus fixed {less:+.0f} ± {paired:.0f}, {one.mean[1]:g} syncs", flush=True)


def measure(options: Size) -> list[Curve]:
    """Returns final regret and synchronisations of every schedule, on the three instances."""
    run = {**options.run(90, 4_000, 10_000), "seeds": options.pick(4, 6, 50)}
    sphere = fb.envs.sphere(*options.pick((4, 4, D), (M, K, D), (M, K, D)), rewards="bernoulli")
    periods = {"all alike": -1, "own subspace": 0, "new subspaces": -(-run["horizon"] // 3)}
    algos = {f"{family}: {one}": SHARP.replace(schedule=one) for family, ones in FAMILIES.items() for one in ones}
    algos = dict(list(algos.items())[:: options.pick(3, 1, 1)])
    curves = []
    for name, period in periods.items():
        env = Blocks(rewards=sphere.rewards, spec=sphere.spec, period=period)
        curves += ends(fb.sweep(env, algos, **run), f"{name}, T = {run['horizon']:,}", "rounds")
    return curves


def main(options: Size) -> None:
    curves = options.numbers("beyond_schedules", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(17.0, 6.0), layout="constrained")
    for ax, title in zip(axes, dict.fromkeys(one.panel for one in curves)):
        found = {name: [one for one in pick(curves, title) if one.label.startswith(name)] for name in FAMILIES}
        compare(title, found)
        for (family, ones), marker in zip(found.items(), "osDv"):
            claim, colour = ones[0].note, ones[0].style
            look: dict[str, Any] = dict(
                fmt=f"{marker}-", linewidth=1, label=f"{family}: {promised(claim)}", color=colour
            )
            x = [max(one.mean[1], 0.5) for one in ones]
            y, error = [one.mean[0] for one in ones], [one.error[0] for one in ones]
            ax.errorbar(x, y, error, **look, mfc=colour if claim == "certified" else "white", capsize=2)
        ax.set(title=title, xscale="log", yscale="log", xlabel="synchronisations", ylabel="group regret at T")
        ax.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize="small", loc="outside lower center", ncols=4)
    size = f"M = {M}, K = {K}, d = {D}, ε = 1, δ = 0.1, {curves[0].n_seeds} seeds ± one standard error"
    figure.suptitle(f"When to synchronise: {size}", fontsize="medium")
    save("beyond_schedules", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
