"""Shows why CDP-FCLUB-DC of Liu et al. (2022) fails once its noise is really added: one cause removed at a time.

The instance of Figure 2 (a), at target epsilon = 1 or 10. Noisy estimates of all local clusters are near 0, and all
merge. Widths grow with the noise, and the 3 ρI that is added at every upload makes them equal.
"""

from typing import Any

import numpy as np
from clusters import LOOKS, RECALIBRATED, WHERE, LiuOptions, worth
from curves import Curve, interval, panels, pick, pm, quotient, random_play, the
from drawing import CHANCE, Panel, Picture, Says, main

import fedbandit_jax as fb

NAMES = ("CDP-FCLUB-DC", "CDP-FCLUB-DC, recalibrated")
APART: dict[str, Any] = dict(alpha_2=1e-6)  # no estimates are so near that clusters merge
GREEDY: dict[str, Any] = dict(exploration_scale=0.0)
CHANGES: dict[str, dict[str, Any]] = {  # removed part -> how
    "": {},
    ", without merging": APART,
    ", without confidence widths": GREEDY,
    ", without merging and widths": {**APART, **GREEDY},
    ", regularised once": dict(shift="once"),
    ", regularised once, without merging and widths": {**APART, **GREEDY, "shift": "once"},
}


def measure(options: LiuOptions) -> list[Curve]:
    env, run, curves = options.instance(), options.run(500, 100_000, 131_070), []
    horizon = run["horizon"]
    for epsilon in options.pick((1.0,), (1.0, 10.0), (1.0, 10.0)):
        every = options.methods(fb.privacy.Budget(epsilon, 0.1))
        algos = {name: every[name] for name in ("FCLUB-DC", "LinUCB", "Homo-DC")}
        for name in NAMES:
            kept = {change: with_ for change, with_ in CHANGES.items() if name == NAMES[0] or "once" not in change}
            algos |= {f"{name}{change}": every[name].replace(**with_) for change, with_ in kept.items()}
        result = options.sweep(env, dict(list(algos.items())[:: options.pick(4, 1, 1)]), **run)
        given = [worth(every[name], env, horizon) for name in NAMES]
        title = "target ε = {:g}; noise alone ε = {:.2g}, recalibrated {:.2g}".format(epsilon, *given)
        for label in result:
            one = result[label]
            values = (one.regret, one.communication["rounds"], one.gauges["clusters"])
            curves.append(Curve(title, label, [0, 1, 2], [y[:, -1] for y in values], fb.plotting.colour(one)))
        curves.append(Curve(title, CHANCE, [0], [random_play(env, options.seed) * horizon], note=f"{horizon:,}"))
    return curves


def look(label: str) -> str:
    """Returns the colour of a bar, by the algorithm with all its parts."""
    return next(LOOKS[name] for name in (*reversed(NAMES), label) if label.startswith(name)).split()[0]


def helps(final: dict[str, np.ndarray]) -> str:
    """Returns which removed parts lower the regret of the first private method, with 95 % confidence."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for change in list(CHANGES)[1:]:
        mean, half = interval(final[NAMES[0]] - final[NAMES[0] + change])
        found[mean > half].append(f"{change[2:]} {mean:,.0f} ± {half:,.0f}" if mean > half else change[2:])
    return f"less regret by (95 %): {'; '.join(found[True]) or 'none'}; not seen: {'; '.join(found[False]) or 'none'}"


def picture(curves: list[Curve]) -> Picture:
    shown, seen, better = [], [], []
    for letter, title in zip("ab", panels(curves)):
        *bars, chance = pick(curves, title)
        names = [one.label.removeprefix(f"{NAMES[0]}, ") for one in bars]
        ones = [Curve("", name, [0], one.y[:1], look(one.label)) for name, one in zip(names, bars)]
        shown.append(Panel(ones, title.replace("; ", ";\n"), "regret at T", kind="rows"))
        shown[-1].level, final = {CHANCE: chance.mean[0]}, {one.label: one.y[0] for one in bars}
        if {NAMES[0] + change for change in CHANGES} <= final.keys():
            least = min((name for name in final if name.startswith(NAMES)), key=lambda name: final[name].mean())
            whole, rest = (quotient(final[name], final["LinUCB"]) for name in (NAMES[0], least))
            better.append(whole[0] < 1)
            words = f"{pm(*whole, 1)} times LinUCB; {helps(final)}; the least has {least}, {pm(*rest, 1)} times LinUCB"
            seen.append(f"({letter}) {title.split(';')[0]}: {words}")
    horizon, n = the(curves, panels(curves)[0], CHANCE).note, curves[0].n_seeds
    words = f"{'yes' if all(better) else 'in part' if any(better) else 'no'}: {'. '.join(seen)}. {RECALIBRATED}"
    claim = "CDP-FCLUB-DC beats LinUCB and is a little worse than FCLUB-DC"
    return Picture(
        shown,
        "CDP-FCLUB-DC without merging and widths loses less",
        f"CDP-FCLUB-DC without some of its parts. {WHERE}, δ = 0.1, T = {horizon}. Mean of {n} seeds ± one standard "
        "error. CDP-FCLUB-DC has no privacy claim; others are not private",
        [Says("Fig. 2(a)", claim, f"T=10^5, 10 seeds; {n} seeds here", words)],
        grid=dict(sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
