"""Draws the regret of private arms with heavy tails, and with users who are corrupted before or after privatisation.

python experiments/robust_arms.py [--smoke | --full] [--redraw]

Truncation, radii and this setting are ours, after the abstracts of Wu et al. (2023) and Zhou & Zhang (2024).
"""

from collections.abc import Sequence
from typing import Any

import jax
from curves import Curve, final, pick, pm
from drawing import Panel, Picture, dressed, main
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.algos import CDPSE, RRSE, TruncatedSE

TAILS = fb.envs.arms(means=[1.0, 0.82, 0.5], rewards="pareto", shape=[2.2, 10.0, 10.0])  # E X^2 <= 3.3
PAIR = fb.envs.arms(means=[1.0, 0.2], rewards="pareto", shape=3.0)  # E X^2 <= 1.34
STAGES, EPSILONS, SHARES = ("rewards", "messages"), (0.25, 0.5, 1.0, 2.0, 4.0), (0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3)
LEVELS = {"fixed level 4": 4.0, "fixed level 16": 16.0, "growing level": None}
LOOKS = dict(zip(["clipped to [0, 1]", *LEVELS], ("#0072B2 s", "#E69F00 D", "#009E73 ^", "#882255 o")))
LOOKS |= {"nobody corrupted": "#332288 P", "rewards corrupted": "#56B4E9 <", "messages corrupted": "#D55E00 v"}
PANELS = {"heavy tails": "ε", "1 % corrupted, in radii": "ε", "corrupted, not in radii": "share of users"}


def measure(options: Size) -> list[Curve]:
    found: dict[tuple[str, str], dict[float, Any]] = {}
    tails, known, unknown = PANELS

    def play(panel: str, x: float, env: fb.Environment, algos: Sequence[Any], horizon: int) -> None:
        horizon, key = options.pick(2_000, horizon, horizon), jax.random.key(options.seed + 2302)
        result = fb.sweep(env, algos, horizon=horizon, stride=horizon, key=key, seeds=options.pick(2, 32, 100))
        for label in result:
            assert result[label].certificate.claim == "certified"
            found.setdefault((panel, label), {})[x] = final(result[label])

    for epsilon in EPSILONS[: options.pick(2, 5, 5)]:
        sums, bits = CDPSE(epsilon, name="clipped to [0, 1]"), RRSE(epsilon)
        cut = [TruncatedSE(sums, moment=3.3, level=level, name=name) for name, level in LEVELS.items()]
        play(tails, epsilon, TAILS, [sums, *cut], 10**6)
        robust = TruncatedSE(bits, moment=1.34, name="nobody corrupted")
        play(known, epsilon, PAIR, [robust], 10**7)
        one = robust.replace(corruption=0.01)
        both = [one.replace(sums=bits.replace(corrupted=what), name=f"{what} corrupted") for what in STAGES]
        play(known, epsilon, fb.envs.contaminate(PAIR, 0.01, favoured=1), both, 10**7)
    for share in SHARES[: options.pick(2, 7, 7)]:
        both = [RRSE(0.5, corrupted=what, name=f"{what} corrupted") for what in STAGES]
        play(unknown, share, fb.envs.contaminate(PAIR, share, favoured=1), both, 10**6)
    return [Curve(*where, list(by), list(by.values())) for where, by in found.items()]


def picture(curves: list[Curve]) -> Picture:
    panels, seen = [], []
    for title, xlabel in PANELS.items():
        ones, at = pick(curves, title), 1 if xlabel == "ε" else -2
        ticks = ones[0].x[:: len(ones[0].x) // 6 + 1]
        panels.append(Panel(dressed(ones, LOOKS), title, xlabel, xscale="log", yscale="log", xticks=ticks))
        values = ", ".join(f"{one.label} {pm(one.mean[at], one.error[at], 0)}" for one in ones)
        seen.append(f"{title}, at {xlabel} = {ones[0].x[at]:g}: {values}.")
    about = "(a) has a trusted server, and T = 10^6. In (b, c) users flip bits, with T = 10^7 and 10^6, ε = 0.5 in (c)"
    caption = f"Pareto rewards, {curves[0].n_seeds} seeds, mean ± s.e. All are certified, ε-DP. {about}"
    return Picture(panels, "Corrupted messages hurt more than rewards", caption, " ".join(seen), ylabel="regret")


if __name__ == "__main__":
    main(measure, picture, __doc__)
