"""What figures of Liu et al. (2022) share: options, how methods look, what Figure 2 claims, and its drawing.

Letters: m clusters of users, L servers, T rounds.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
from curves import Curve, exponent, pick, pm, quotient, random_play, the, verdict, verdicts
from drawing import CHANCE, Panel, Picture, Says, dressed, show
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
    CHANCE: "#999999 -.",
}
SEATS = {"consecutive": "clusters of consecutive users", "random": "clusters at random servers"}
WHERE = f"n = 40, m = 4 {SEATS['consecutive']}, L = 5, K = 10, d = 10"  # the authors' instance
RECALIBRATED = "Recalibrated (ours): exact noise, 2ρI added once, exchanges when numbers of rounds grow by 1.1"
BUDGET = fb.privacy.Budget(1.0, 0.1)
FEW = ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CDP-FCLUB-DC, recalibrated", "Homo-DC")
PLAIN, PRIVATE, OTHERS = ("FCLUB", "FCLUB-DC"), "CDP-FCLUB-DC", ("SCLUB", "CLUB", "LinUCB", "Homo", "Homo-DC")
CLAIMS: tuple[tuple[str, list[tuple[str, str]]], ...] = (  # words, pairs of less and more regret
    ("FCLUB and FCLUB-DC beat CLUB, SCLUB and LinUCB", [(one, other) for one in PLAIN for other in OTHERS[:3]]),
    (f"{PRIVATE} beats {', '.join(OTHERS)}", [(PRIVATE, other) for other in OTHERS]),
    ("delayed communication costs regret", [("FCLUB", "FCLUB-DC")]),
)


@dataclasses.dataclass(frozen=True)
class LiuOptions(Size):
    """Draw a figure of Liu et al. (2022), who have 10 seeds."""

    SEEDS = (2, 10, 10)
    STRIDE = (None, None, None)

    def run(self, *horizons: int, **more: Any) -> dict[str, Any]:
        """Returns arguments of `fb.sweep`, which have a store."""
        return super().run(*horizons, **{"store": self.store, **more})

    def instance(self, **shape: Any) -> fb.envs.Clustered:
        """Returns the instance of the authors' script, with other arguments of `fb.envs.clustered` where given.

        Preference vectors are random, and may be near to each other. With --smoke they are few and short.
        """
        few: dict[str, Any] = dict(n_users=8, n_servers=2, n_arms=4, dim=3) if self.smoke else {}
        return fb.envs.clustered(**{"n_clusters": 4, "seating": "consecutive", "gap": 1e-3, **shape, **few})

    def methods(self, budget: fb.privacy.Budget = BUDGET, scale: float = 1.0) -> dict[str, fb.Algorithm]:
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


def noted(name: str, algo: Any, env: Any, horizon: int) -> str:
    """Returns the note of a method: what the noise of a private one gives by itself."""
    return f"noise alone ε = {worth(algo, env, horizon):.2g}" if name.startswith(PRIVATE) else ""


def doublings(last: float, n: float, step: float = 1.0) -> np.ndarray:
    """Returns last / 2^n, ..., last / 2^step, last, without the first."""
    return last / 2.0 ** np.arange(0, n, step)[::-1]


def between(rounds: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Returns values (S, N) of recorded rounds (N,) at the rounds `at` (n,), (n, S), linear between records."""
    return np.transpose([np.interp(at, rounds, seed) for seed in values])


def decided(final: dict[str, np.ndarray], pairs: list[tuple[str, str]]) -> str:
    """Returns in how many pairs the first has less regret, by paired seeds with 95 % confidence, and by how much."""
    found = [verdict(final[one], final[other]).split(",")[0] for one, other in pairs]
    word = {len(pairs): "yes", 0: "reversed" if "reversed" in found else "no"}.get(found.count("holds"), "in part")
    return f"{word}: {verdicts(final, pairs)}"


def liu_figure(options: LiuOptions, env: Any, methods: dict[str, Any], title: str, paper: Says, run: Any) -> None:
    """Draws regret and clusters over time, and says where the paper's order holds.

    Args:
        options: options of the command line.
        env: the environment; not used with --redraw.
        methods: algorithms by name.
        title: title of the figure; with --redraw the CSV has it.
        paper: figure of the paper, and its size.
        run: arguments of `fb.sweep`.
    """

    def measure() -> list[Curve]:
        result = options.sweep(env, methods, **run)
        kept = np.unique(np.linspace(0, len(result.rounds) - 1, 40).round().astype(int))
        x, curves = result.rounds[kept], []
        for label in result:
            values = dict(regret=result[label].regret, clusters=result[label].gauges["adjusted Rand index"])
            note = noted(label, methods[label], env, run["horizon"])
            curves += [Curve(panel, label, x, y[:, kept].T, LOOKS[label], note) for panel, y in values.items()]
        random = Curve("regret", CHANCE, x, random_play(env, options.seed) * x, LOOKS[CHANCE])
        return [*curves, random, Curve("title", title, [0], [0])]

    show(options, measure, lambda curves: liu_picture(curves, paper))


def liu_picture(curves: list[Curve], paper: Says) -> Picture:
    """Returns regret and clusters over time, and where the paper's order holds."""
    *curves, titled = dressed(curves, LOOKS)
    regrets, clusters = pick(curves, "regret"), pick(curves, "clusters")
    unit, n, horizon = the(regrets, label="LinUCB").mean, regrets[0].n_seeds, regrets[0].x[-1]
    low = [one.per(unit) for one in regrets if one.mean[-1] < 1.6 * unit[-1]]
    found = [one for one in clusters if np.nanmax(one.mean) > 0.005]
    none = ", ".join(one.label for one in clusters if one not in found)
    panel = partial(Panel, kind="lines", label="{label}: {note}", xlabel="round $t$")
    shown = [
        panel(regrets, "regret", ylabel="regret", yscale="log", ylim=(0.25 * unit[-1], None)),
        panel(low, "least regrets over LinUCB's", ylabel="regret / mean of LinUCB"),
        panel(found, "clusters found (1: all)", ylabel="adjusted Rand index"),
    ]
    words = titled.label.partition(": ")[2].replace("\n", ". ").replace(". t", ". T")
    final = {one.label: one.y[-1] for one in regrets}
    lines = [(claim, decided(final, pairs)) for claim, pairs in CLAIMS]
    ratios = {one: quotient(final[PRIVATE], final[one]) for one in PLAIN}
    more = "yes" if all(1 < value < 1.5 for value, _ in ratios.values()) else "no"
    more += ": regret is " + " and ".join(f"{pm(*ratio, digits=1)} times {one}'s" for one, ratio in ratios.items())
    share = (f"{final[one].mean() / final[CHANCE][0]:.2f}" for one in (PRIVATE, f"{PRIVATE}, recalibrated"))
    more += ", and {} of uniform play's; recalibrated {}. ".format(*share)
    lines.append((f"{PRIVATE} is a little worse than FCLUB and FCLUB-DC", more + RECALIBRATED))
    if paper.where.endswith("(a)"):
        late = {one.label: exponent(one, one.x > 0.1 * horizon) for one in regrets if "Homo" in one.label}
        seen = "yes: " if all(power > 0.95 for power, _ in late.values()) else "no: "
        seen += ", ".join(f"{label} T^({pm(*power)})" for label, power in late.items())
        lines.append(("Homo and Homo-DC suffer linear regret", f"{seen} in (T/10, T] (95 %)"))
    else:
        ours = [one for one in clusters if "FCLUB" in one.label]
        best = max(ours, key=lambda one: np.nanmax(one.mean))
        right = ", ".join(f"{one.label} {(one.y[-1] > 1 - 1e-6).mean():.0%}" for one in ours)
        seen = f"all clusters are right at T in: {right}; "
        seen += f"the largest mean index is {np.nanmax(best.mean):.2f}, of {best.label}"
        lines.append((f'{PRIVATE} is ahead "after all user clusters are correctly detected"', seen))
    return Picture(
        shown,
        "Regret of clustering algorithms, and clusters found",
        f"{words}, T = {horizon:,.0f}. Mean of {n} seeds ± one standard error. Dotted: no privacy claim; solid: not "
        f"private. In (c) these are at 0: {none}",
        [dataclasses.replace(paper, claim=claim, seen=seen) for claim, seen in lines],
    )
