"""What figures of Liu et al. (2022) share: options, how methods look, what Figure 2 claims, and its drawing.

Letters: m clusters of users, L servers, T rounds.
"""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from curves import Curve, exponent, mean_error, pick, quotient, random_play, verdict
from drawing import Says, caption, headline, hides, legend_of_all, save
from drawing import draw as draw_curves
from matplotlib.ticker import MaxNLocator
from options import Size

import fedbandit_jax as fb

LOOKS = {  # colour of fb.plotting, or a paler or darker one of a variant, line (dotted: no privacy claim) and marker
    "FCLUB": "#000000 - s",
    "FCLUB-DC": "#0072B2 - o",
    "CDP-FCLUB-DC": "#D55E00 : o",
    "CDP-FCLUB-DC, recalibrated": "#F4A582 : s",
    "CLUB": "#E69F00 - v",
    "SCLUB": "#CC79A7 - D",
    "LinUCB": "#56B4E9 - ^",
    "Homo": "#00523B - P",
    "Homo-DC": "#009E73 - X",
    "uniform play": "#999999 -.",
}
SEATS = {"consecutive": "clusters of consecutive users", "random": "clusters at random servers"}
RECALIBRATED = (
    "Recalibrated (ours): noise calibrated exactly, 2ρI added once, uploads and downloads when numbers of "
    "rounds have grown by 1.1"
)
PLAIN = ("FCLUB", "FCLUB-DC")
PRIVATE, OTHERS = "CDP-FCLUB-DC", ("SCLUB", "CLUB", "LinUCB", "Homo", "Homo-DC")
CLAIMS: tuple[tuple[str, list[tuple[str, str]]], ...] = (  # words, pairs of less and more regret
    (
        "FCLUB and FCLUB-DC beat CLUB, SCLUB and LinUCB (as follows from what is said of CDP-FCLUB-DC)",
        [(one, other) for one in PLAIN for other in ("CLUB", "SCLUB", "LinUCB")],
    ),
    (f"{PRIVATE} beats {', '.join(OTHERS)}", [(PRIVATE, other) for other in OTHERS]),
    ("delayed communication costs regret", [("FCLUB", "FCLUB-DC")]),
)


@dataclasses.dataclass(frozen=True)
class LiuOptions(Size):
    """Draw a figure of Liu et al. (2022)."""

    def run(self, *horizons: int, seeds: tuple[int, int, int] = (2, 10, 10), fresh: int = 0, **more) -> dict[str, Any]:
        """Returns arguments of `fb.sweep` as `Size.run` does; the paper has 10 seeds, and so has the default."""
        return super().run(*horizons, seeds=seeds, fresh=fresh, **{"stride": None, **more})

    def instance(self, **shape: Any) -> fb.envs.Clustered:
        """Returns the instance of the authors' script, with other arguments of `fb.envs.clustered` where given.

        Preference vectors are random, and may be near to each other. With --smoke they are few and short.
        """
        few: dict[str, Any] = dict(n_users=8, n_servers=2, n_arms=4, dim=3) if self.smoke else {}
        return fb.envs.clustered(**{"n_clusters": 4, "seating": "consecutive", "gap": 1e-3, **shape, **few})

    def methods(self, budget: fb.privacy.Budget, scale: float = 1.0) -> dict[str, fb.Algorithm]:
        """Returns the methods of Figure 2 by name, with the thresholds of the authors' code.

        CDP-FCLUB-DC is there twice: with the noise and the shifts of Algorithms 2, 3 and 5, and recalibrated: noise is
        calibrated exactly, nothing is shifted at uploads, and counts of rounds decide when to upload. What epsilon the
        noise of either gives by itself says `worth`.

        Args:
            budget: budget of the private methods.
            scale: factor on all confidence widths.
        """
        algos = fb.algos
        wide: dict[str, Any] = dict(exploration_scale=scale)
        printed: dict[str, Any] = dict(calibration="theorem", spectral="printed")
        exact: dict[str, Any] = dict(shift="once", trigger="count", upload=1.1, download=1.1)
        return {
            "FCLUB": algos.FCLUB(upload=1, download=1, **wide),
            "FCLUB-DC": algos.FCLUB(**wide),
            "CDP-FCLUB-DC": algos.FCLUB(budget, **printed, **wide),
            "CDP-FCLUB-DC, recalibrated": algos.FCLUB(budget, **exact, **wide),
            "CLUB": algos.CLUB(**wide),
            "SCLUB": algos.SCLUB(**wide),
            "LinUCB": algos.LinUCB().replace(**wide),
            "Homo": algos.homo(**wide),
            "Homo-DC": algos.homo_dc(**wide),
        }


def worth(algo: Any, env: fb.Environment, horizon: int) -> float:
    """Returns the epsilon that the noise of FCLUB gives by itself, for all phases together, at the delta asked for.

    The certificate of CDP-FCLUB-DC has no epsilon, since raw statistics also decide what the noise is added to.
    """
    return algo.bind(env.spec, horizon).noise.epsilon_exact


def measured(options: LiuOptions, env: Any, methods: dict[str, Any], name: str, title: str, **run: Any) -> list[Curve]:
    """Runs the methods; returns regrets and adjusted Rand indices of all seeds at 40 rounds, and the title."""
    result = fb.sweep(env, methods, **run, store=options.store)
    print(result.summary())
    kept = np.unique(np.linspace(0, len(result.rounds) - 1, 40).round().astype(int))
    x, curves = result.rounds[kept], []
    for label in result:
        note = f"noise alone ε = {worth(methods[label], env, run['horizon']):.2g}" if label.startswith("CDP") else ""
        rand = result[label].gauges["adjusted Rand index"][:, kept].T
        curves.append(Curve("regret", label, x, result[label].regret[:, kept].T, LOOKS[label], note))
        curves.append(Curve("clusters", label, x, rand, LOOKS[label], note))
        sent = ", ".join(f"{what} {counts[:, -1].mean():,.0f}" for what, counts in result[label].counts.items())
        print(f"{label}: {sent}; adjusted Rand index at T {', '.join(f'{one:.2f}' for one in rand[-1])}")
    random = random_play(env, options.seed)
    if not options.smoke:
        result.save(Path("results") / name)
    random_curve = Curve("regret", "uniform play", x, random * x, LOOKS["uniform play"])
    return [*curves, random_curve, Curve("title", title, [0], [0])]


def dressed(curves: list[Curve]) -> list[Curve]:
    """Returns curves as their labels look in all figures, whatever their CSV has."""
    return [dataclasses.replace(one, style=LOOKS.get(one.label, one.style)) for one in curves]


def decided(final: dict[str, np.ndarray], pairs: list[tuple[str, str]]) -> str:
    """Returns whether the first of each pair has less regret, by paired seeds with 95 % confidence, in few words."""
    found: dict[str, list[str]] = {"holds": [], "undecided": [], "reversed": []}
    for one, other in pairs:
        found[verdict(final[one], final[other]).split(",")[0]].append(f"{one} < {other}")
    found = {word: names for word, names in found.items() if names}
    words = {"holds": "yes", "undecided": "undecided", "reversed": "no, reversed"}
    short = words[next(iter(found))] if len(found) == 1 else "in part"
    if len(pairs) == 1:
        return f"{short},{verdict(final[pairs[0][0]], final[pairs[0][1]]).partition(',')[2]} (95 %)"
    if len(found) == 1:
        more = [final[other].mean() - final[one].mean() for one, other in pairs]
        low, high = sorted((abs(min(more)), abs(max(more))))
        return f"{short} in all {len(pairs)} pairs, by {low:,.0f} to {high:,.0f} (95 %)"
    return f"{short}: " + "; ".join(f"{word} in {', '.join(names)}" for word, names in found.items()) + " (95 %)"


def covered(curves: list[Curve], top: float) -> dict[str, str]:
    """Returns names of curves, with the last of the later ones that a curve lies under on axes up to `top`."""
    names = {}
    for i, one in enumerate(curves):
        later = [other for other in curves[i + 1 :] if other.label != "uniform play"]
        near = [x.label for x in later if hides(x, one) or np.abs(x.mean - one.mean).max() < 0.015 * top]
        names[one.label] = f"{one.label} (under {near[-1]})" if near else one.label
    return names


def liu_figure(
    name: str,
    options: LiuOptions,
    env: Any,
    methods: dict[str, Any],
    title: str,
    where: str,
    size: str,
    **run: Any,
) -> None:
    """Draws regret and clusters over time with one standard error, and writes where the paper's order holds.

    Args:
        name: name of the files.
        options: those of the command line.
        env: the environment; not used with --redraw.
        methods: algorithms by name.
        title: title of the figure; with --redraw it is that of the CSV.
        where: figure of the paper.
        size: its size.
        run: arguments of `fb.sweep`.
    """
    *curves, titled = options.numbers(name, lambda: measured(options, env, methods, name, title, **run))
    curves = dressed(curves)
    regrets, clusters = pick(curves, "regret"), pick(curves, "clusters")
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 5.2))
    n_seeds, horizon = regrets[0].n_seeds, regrets[0].x[-1]
    where_it_is, asked = titled.label.split("\n")
    heading = f"{where_it_is}, T = {horizon:,.0f}\n{asked}; mean of {n_seeds} seeds ± 1 standard error; "
    headline(
        figure,
        "Regret of clustering algorithms, and clusters found",
        f"{heading}dotted: no privacy claim; solid: not private",
    )
    final = {one.label: one.y[-1] for one in regrets}
    unit = pick(regrets, label="LinUCB")[0].mean
    names = covered(regrets, 1.6 * unit[-1])
    shown = [dataclasses.replace(one, label=names[one.label]) for one in regrets]
    shown.sort(key=lambda one: not one.label.endswith(")"))  # wide lines first, so that they are seen on both sides
    draw_curves(shown, axes[0], hidden=False)
    axes[0].set(yscale="log", ylim=(0.25 * unit[-1], None), ylabel="regret")
    low = [one for one in shown if one.mean[-1] < 1.6 * unit[-1]]
    low = [dataclasses.replace(one, x=one.x[1:], y=one.y[1:] / unit[1:, None]) for one in low]
    draw_curves(low, axes[1], hidden=False)
    axes[1].set_ylabel("regret / mean of LinUCB")
    found = [one for one in clusters if np.nanmax(one.mean) > 0.005]
    draw_curves([dataclasses.replace(one, label=names[one.label]) for one in found], axes[2], hidden=False)
    high = 1.0 if max((np.nanmax(one.mean) for one in found), default=1.0) > 0.15 else 0.15
    axes[2].set(ylim=(-0.22 * high, 1.05 * high), ylabel="adjusted Rand index")
    axes[2].set_yticks(np.linspace(0, high, 6 if high == 1 else 4))
    none = ", ".join(one.label for one in clusters if np.nanmax(one.mean) <= 0.005)
    none = none.replace(f"{PRIVATE}, {PRIVATE}, recalibrated", f"both {PRIVATE}")
    lines = textwrap.fill(f"at 0: {none}", 44, break_on_hyphens=False)
    axes[2].text(0.5 * horizon, -0.12 * high, lines, ha="center", va="center", fontsize="small")
    titles = ("(a) regret", "(b) the least regrets over that of LinUCB", "(c) are the clusters found? (1: all)")
    for ax, title in zip(axes, titles):
        ax.set_title(title)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
        ax.set_xlabel("round $t$")
    legend_of_all(figure, ncols=4)
    for label, values in final.items():
        mean, error = mean_error(values) if len(values) > 1 else (values[0], 0.0)
        print(f"{label}: {mean:,.0f} ± {error:,.0f}")
    says = []
    for claim, pairs in CLAIMS:
        says.append(Says(where, claim, f"{size}; {n_seeds} seeds here", decided(final, pairs)))
    ratios = {one: quotient(final[PRIVATE], final[one]) for one in PLAIN}
    more = "yes" if all(1 < value < 1.5 for value, _ in ratios.values()) else "no"
    more += ": regret is " + " and ".join(
        f"{value:.1f} ± {e:.1f} times that of {o}" for o, (value, e) in ratios.items()
    )
    more += " (± 1 standard error), and {:.2f} of uniform play's; recalibrated {:.2f}. ".format(
        *(final[one].mean() / final["uniform play"][0] for one in (PRIVATE, f"{PRIVATE}, recalibrated"))
    )
    claim = f"{PRIVATE} is a little worse than FCLUB and FCLUB-DC"
    says.append(Says(where, claim, "the same", more + RECALIBRATED))
    if where.endswith("(a)"):
        late = {one.label: exponent(one, one.x > 0.1 * horizon) for one in regrets if "Homo" in one.label}
        words = "yes: " if all(power > 0.95 for power, _ in late.values()) else "no: "
        words += ", ".join(f"{label} T^({power:.2f} ± {half:.2f})" for label, (power, half) in late.items())
        says.append(Says(where, "Homo and Homo-DC suffer linear regret", "the same", f"{words} in (T/10, T] (95 %)"))
    else:
        right = {one.label: (one.y[-1] > 1 - 1e-6).mean() for one in clusters if "FCLUB" in one.label}
        words = ", ".join(f"{label} {share:.0%}" for label, share in right.items() if share) or "no seed"
        claim = f'{PRIVATE} is ahead "after all user clusters are correctly detected"'
        best = max((one for one in clusters if one.label in right), key=lambda one: np.nanmax(one.mean))
        words = f"{'' if right[PRIVATE] else 'not '}reached: all clusters of k-means are right at T in {words}; the "
        words += f"largest mean of the adjusted Rand index is {np.nanmax(best.mean):.2f}, of {best.label} at t = "
        words += f"{best.x[np.nanargmax(best.mean)]:,.0f} (c)"
        says.append(Says(where, claim, "the same", words))
    caption(figure, "Liu et al. (2022)", *says)
    save(name, options, figure, [*curves, titled])
