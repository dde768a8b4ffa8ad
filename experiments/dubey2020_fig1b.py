"""Draws Figure 1 (b) of Dubey & Pentland (2020): regret of FedUCB over rounds, for three amounts of communication.

The paper does not name T: (b) has as many rounds as agents need to learn. In (c) they learn at once from their own raw
rows. Communication is of order M log T, M^1.5 or M T (every round).
"""

from typing import Any

from curves import Curve, interval, of_result, pick, pm, random_play, verdicts
from drawing import CHANCE, Panel, Picture, Says, main, write
from options import DubeyOptions

import fedbandit_jax as fb

M, BUDGET, LONG = 100, fb.privacy.Budget(1.0, 0.1), "ε = 1, width as printed"
LOG_DET = fb.schedules.LogDet
SCHEDULES: dict[str, Any] = {"M log T": LOG_DET("M log T"), "M^1.5": LOG_DET("M^1.5"), "M T": fb.schedules.Every(1)}
CLAIM = "more communication has less regret, private or not"
PANELS: dict[str, tuple[Any, float, tuple[int, int, int], tuple[int, int, int]]] = {
    # title -> budget, factor on the width, T for smoke, default and full, and the seeds
    "not private, width as printed": (None, 1.0, (50, 10_000, 100_000), (2, 8, 100)),
    LONG: (BUDGET, 1.0, (50, 200_000, 1_000_000), (2, 3, 100)),
    "ε = 1, a tenth of the width": (BUDGET, 0.1, (50, 10_000, 100_000), (2, 8, 100)),
}


def measure(options: DubeyOptions) -> list[Curve]:
    env, curves = fb.envs.gap(*options.shape(M, 25, 10)), []
    for title, (budget, scale, horizons, seeds) in PANELS.items():
        for (name, schedule), colour, mark in zip(SCHEDULES.items(), fb.plotting.COLOURS[1:], "os^"):
            algo = fb.algos.fed_ucb(budget, schedule=schedule).replace(exploration_scale=scale)
            result = options.sweep(env, {name: algo}, title=title, **options.run(*horizons, seeds=seeds))
            (one,) = of_result(result, title, each=M)
            line = ":" if budget and result.certificate.claim == "none" else "-"
            syncs = f"{result.communication['rounds'][:, -1].mean():,.0f}"
            curves.append(one.but(style=f"{colour} {line} {mark}", note=syncs))
        x = curves[-1].x
        curves.append(Curve(title, CHANCE, x, random_play(env) / M * x, "#999999 -."))
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, lines = [], []
    for letter, title in zip("abc", PANELS):
        *runs, chance = pick(curves, title)
        over = [one.but(label=f"order {one.label}".replace("M^1.5", "$M^{1.5}$")).per(chance.mean) for one in runs]
        syncs = "\n".join(["synchronisations", *(f"{one.label}: {one.note}" for one in over)])
        size = f"T = {chance.x[-1]:,.0f}, {runs[0].n_seeds} seeds"
        axes: Any = dict(ylim=(0, None)) if title == LONG else dict(yscale="log")
        axes |= dict(ylabel="regret over uniform play's" * (letter == "a"), xscale="log", xlim=(10, None))
        panel = Panel(over, f"{title}\n{size}", "round $t$", kind="lines", level={CHANCE: 1}, band=None, **axes)
        panel.also = lambda ax, syncs=syncs: write(ax, 0.03, 0.03, syncs)
        shown.append(panel)
        ends = {one.label: one.y[-1] for one in runs}
        found = verdicts(ends, (("M^1.5", "M log T"), ("M T", "M^1.5")))
        values = ", ".join(f"{name} {pm(*interval(y), 0)}" for name, y in ends.items())
        text = f"({letter}) {title}, {size}: {found}; regret per agent, uniform play {chance.mean[-1]:,.0f}: {values}"
        lines.append(Says("Fig. 1B", CLAIM, "M = 100, T not said, 100 runs", text))
    setting = f"""FedUCB with M = {M}, K = 25, d = 10, δ = 0.1 and exact noise. Mean ± 95 % interval. The legend has the
        order of communication. Dotted: no privacy claim; solid in (b) and (c): certified"""
    return Picture(shown, "FedUCB: more communication has less regret", setting, lines)


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
