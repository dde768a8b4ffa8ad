"""Compares when to synchronise, at equal privacy: in fixed batches, in growing ones, or when a private test says so.

All have the best certified parts: BLT noise for at most S synchronisations, projection, and widths from the law of the
noise. The private test is a sparse vector test; the raw trigger leaks. (a) All agents are alike. (b) Each sees a third
of the directions only. (c) All see one third, then the next, which no fixed schedule knows of.
"""

import re
from typing import Any

import jax.numpy as jnp
from curves import ends, mean_error, panels, pick, pm
from drawing import LOGS, Axes, Curve, Panel, Picture, Size, main
from jax import lax

import fedbandit_jax as fb

S, M, K, D = fb.schedules, 50, 10, 10
SHARP = fb.algos.private_fed_lin_ucb(
    fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt"),
    policy=fb.algos.UCB(regularizer="project", confidence="known_noise"),
)
BATCHES, GROWTHS, THRESHOLDS = (25, 50, 100), (1.1, 1.2, 1.5), (30.0, 100.0, 300.0)
FAMILIES: dict[str, list[fb.schedules.Schedule]] = {
    "fixed batch, B = 25, 50, 100": [S.Every(batch) for batch in BATCHES],
    "growing by 1.1 ... 1.5 from 50": [S.Geometric(growth, first=50) for growth in GROWTHS],
    "sparse vector, 0.1 ε, S = 64": [S.PrivateLogDet(d, share=0.1, max_syncs=64) for d in THRESHOLDS],
    "raw log det, S = 64": [S.LogDet(d, max_syncs=64) for d in THRESHOLDS],
}
NAMES = ("fixed batches of B", "growing by a factor", "private test (sparse vector, 0.1 ε)", "raw log det")
OFFSETS = {"o": (5, 4), "s": (5, -9), "D": (5, 4), "v": (-18, -9)}  # of the numbers at these markers, in points
WHERE = {
    "all alike": "(a) all agents are alike",
    "own subspace": "(b) each sees a third of directions",
    "new subspaces": "(c) all see one third, then the next",
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


def compare(families: list[list[Curve]]) -> str:
    """Returns regret of the best schedule of every family minus the regret of the first, the best on half of the seeds.

    Curves have regret at 0; the other half of the seeds is compared.
    """
    half = families[0][0].n_seeds // 2
    best = [min(members, key=lambda one: one.y[0, :half].mean()).y[0, half:] for members in families]
    return ", ".join(pm(*mean_error(one - best[0]), digits=0) for one in best[1:])


def measure(options: Size) -> list[Curve]:
    run, curves = options.run(90, 4_000, 10_000, seeds=(4, 6, 50)), []
    sphere = fb.envs.sphere(*options.pick((4, 4, D), (M, K, D), (M, K, D)), rewards="bernoulli")
    algos = {f"{family}: {one}": SHARP.replace(schedule=one) for family, ones in FAMILIES.items() for one in ones}
    algos = dict(list(algos.items())[:: options.pick(3, 1, 1)])
    for name, period in zip(WHERE, (-1, 0, -(-run["horizon"] // 3))):
        env = Blocks(rewards=sphere.rewards, spec=sphere.spec, period=period)
        curves += ends(options.sweep(env, algos, **run), f"{name}, T = {run['horizon']:,}", "rounds")
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, words = [], []
    for title in panels(curves):
        found = [[one for one in pick(curves, title) if one.label.startswith(name)] for name in FAMILIES]
        where = WHERE[title.partition(",")[0]]
        words.append(f"{where} {compare(found)}")
        lines, numbers = [], []
        for name, ones, marker in zip(NAMES, found, OFFSETS):
            style = f"{ones[0].style} {'-' if ones[0].note == 'certified' else ':'} {marker}"
            x, y = [max(one.mean[1], 0.5) for one in ones], [one.y[0] for one in ones]
            lines.append(Curve(title, name, x, y, style, ones[0].note))
            own = [float(re.findall(r"(?:batch|growth|threshold)=([\d.]+)", one.label)[0]) for one in ones]
            numbers += [(f"{value:g}", (a, b.mean()), marker, ones[0].style) for value, a, b in zip(own, x, y)]

        def write(ax: Axes, numbers: list[Any] = numbers) -> None:
            for text, at, marker, colour in numbers:
                look: dict[str, Any] = dict(textcoords="offset points", fontsize="x-small", color=colour)
                ax.annotate(text, at, OFFSETS[marker], **look)
            ax.margins(x=0.22)

        shown.append(Panel(lines, where[4:], "synchronisations", **LOGS, also=write))
    seeds, horizon = curves[0].n_seeds, curves[0].panel.partition("T = ")[2]
    return Picture(
        shown,
        "Growing batches do well, unless contexts change",
        f"M = {M}, K = {K}, d = {D}, T = {horizon}, ε = 1, δ = 0.1. Mean of {seeds} seeds ± one standard error. "
        "Numbers are B, the factor or the threshold. Solid: certified; dotted: no privacy claim, as the times tell",
        "Regret of the best of growing batches, of the private test and of the raw trigger, less the best fixed "
        f"batch's, chosen on {seeds // 2} seeds and compared on {seeds - seeds // 2} others: {'; '.join(words)}.",
        ylabel="group regret at T",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
