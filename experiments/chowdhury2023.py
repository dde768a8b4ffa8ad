"""Figures of Chowdhury & Zhou (2023) on multi-armed bandits, and what its other algorithms cost.

Letters: K arms, T users, p the failure probability of the confidence radii, s the scale of Skellam noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from authors_arms import RELEASED
from curves import Curve, final, of_result, panels, pick, the
from drawing import CHANCE, LOGS, Experiment, Panel, Picture, dressed
from options import Size
from scipy.optimize import brentq
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.report.plotting.figure import tick

HORIZONS = {"easy": 10**6, "hard": 10**7}
A = fb.algos
KINDS = A.SE, A.DPSE, A.CDPSE, A.LDPSE, A.DistDPSE, A.DistRDPSE, A.DistCDPSE, A.ShuffleDPSE
VARIANTS = {kind.title: kind for kind in KINDS}
LABELS = ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-RDP-SE (s=100)")  # of Figures 1 to 3
LIGHTER = {"Dist-RDP-SE (s=100)": "#66C2A5"}  # than with s = 10
HOW = {"theory": "radii of Lemma 2", "exact": "exact radii", "authors": "as the authors' code"}
FIRST = 1_000  # users up to whom nothing differs: all pull every arm equally often


def elimination(label: str, epsilon: float | None, released: bool = False, **options: Any) -> Any:
    """Returns the algorithm of a curve, a name of `VARIANTS` maybe followed by "(s=10)".

    Options that it does not have, as growth for DP-SE, are left out. If `released`, the noise is the one of the
    authors' code, where that has any.
    """
    name, _, scale = label.removesuffix(")").partition(" (s=")
    kind: Any = RELEASED.get(name, VARIANTS[name]) if released else VARIANTS[name]
    known = {field.name for field in dataclasses.fields(kind)}
    given = {**options, "epsilon": epsilon, **({"scale": float(scale)} if scale else {})}
    return kind(name=label, **{key: value for key, value in given.items() if key in known})


def calibrated(
    label: str, epsilon: float, env: Any, horizon: int, search: Mapping[str, float], visits: int = 1, **options: Any
) -> Any:
    """Returns the algorithm with the epsilon of its own notion that makes so many sums together (epsilon, delta)-DP."""

    def excess(own: float) -> float:
        found = elimination(label, own, **options).certificate(env.spec, horizon)
        together = {number: given for number, _, given, _ in found.visits} | {1: found.epsilon_exact or 0.0}
        return together[visits] - epsilon

    return elimination(label, brentq(excess, **search), **options)  # pyright: ignore[reportArgumentType]


def given(label: str, certificates: Sequence[fb.privacy.Certificate]) -> str:
    """Returns the epsilon that the noise of an algorithm gives in each panel, if it differs from the one asked for."""
    shared = np.inf if label == "DP-SE" else 0.0  # of the authors' DP-SE, whose arms share one noise
    values = [found.epsilon_exact or shared for found in certificates]
    off = [abs(value - (found.epsilon or 0)) >= 0.01 * value for value, found in zip(values, certificates)]
    at = f" at δ = {np.format_float_positional(certificates[0].delta)}" if certificates[0].delta else ""
    return f"{label} ε = {', '.join(f'{value:.4g}' for value in values)}{at}" if all(values) and any(off) else ""


def power(number: float) -> str:
    """Returns a power of ten as mathematics."""
    return f"$10^{{{np.log10(number):g}}}$"


@dataclasses.dataclass(frozen=True)
class ArmsSize(Size):
    """Draw a figure about multi-armed bandits; the paper's size takes seconds and is therefore the default."""

    SEEDS = (2, 20, 20)  # instances; the paper has 20
    STRIDE = ("log", "log", "log")

    def arguments(self, horizon: int) -> dict[str, Any]:
        """Returns arguments of `fb.sweep` for T = `horizon`."""
        return self.run(min(horizon, 20_000), horizon, horizon)


@dataclasses.dataclass(frozen=True)
class RadiusOptions(ArmsSize):
    """Draw a figure about multi-armed bandits; the paper's size takes seconds and is therefore the default.

    Args:
        radius: how confidence radii are computed: theory is the paper's Lemma 2, exact uses the law of the noise.
    """

    radius: Literal["theory", "exact"] = "theory"

    @property
    def variant(self) -> str:
        return self.radius

    @property
    def words(self) -> str:
        how = HOW[self.variant]
        return f"They are run {how if how.startswith('as ') else f'with {how}'}."


@dataclasses.dataclass(frozen=True)
class ArmsOptions(RadiusOptions):
    """Draw a figure of Chowdhury & Zhou (2023); the paper's size takes seconds and is therefore the default.

    Args:
        version: ours has the noise of the theorems and batches of 2^b users, as printed. released is what the authors'
            code does: batches of 4^b users, and noise whose certificate says what epsilon it really gives.
    """

    version: Annotated[Literal["ours", "authors"], tyro.conf.arg(name="as")] = "ours"

    def __post_init__(self):
        super().__post_init__()
        if self.version == "authors" and self.radius == "exact":
            raise SystemExit("--as authors has the radii of the paper, so --radius must be theory")

    @property
    def variant(self) -> str:
        return "authors" if self.version == "authors" else self.radius


def random_arms(env: Any, run: dict[str, Any]) -> np.ndarray:
    """Returns the mean regret of a user who pulls any arm, in each of the instances of a run (S,)."""
    keys = random.of_seeds(run["key"], np.arange(run["seeds"]))
    means = jax.vmap(lambda key: env.means(env.init(random.stream(key, "world"))))(keys)
    return np.asarray(means.max(1) - means.mean(1), float)


def averages(
    asked: ArmsOptions,
    figure: str,
    worlds: Mapping[str, tuple[str, Any, int, float]],
    labels: Sequence[str] = LABELS,
    growth: int = 4,
) -> list[Curve]:
    """Returns regret over time, and last a curve whose label says what epsilon noise gives, where that is another.

    Args:
        asked: the options of the command line.
        figure: the figure, for titles.
        worlds: letter of a panel -> words, environment, T and epsilon.
        labels: names of the algorithms.
        growth: factor between the sizes of batches with --as authors.
    """
    version: dict[str, Any] = dict(released=True, growth=growth) if asked.version == "authors" else {}
    curves, certificates = [], {label: [] for label in labels}
    for letter, (words, env, horizon, epsilon) in worlds.items():
        run = asked.arguments(horizon)
        size = f"K = {env.spec.n_arms}, T = {power(run['horizon'])}, p = 0.1, {HOW[asked.variant]}"
        title = f"{figure} ({letter}): {words}, ε = {epsilon:g}\n{size}"
        algos = [elimination(label, epsilon, radius=asked.radius, **version) for label in labels]
        result = asked.sweep(env, algos, title=title, **run)
        for label, found in certificates.items():
            found.append(result[label].certificate)
            print(f"  {label}: {found[-1].claim}, {found[-1].reason}")
        curves += of_result(result, title)
        x = curves[-1].x
        curves.append(Curve(title, CHANCE, x, x[:, None] * random_arms(env, run), "#999999 :"))
    found = [given(*one) for one in certificates.items()]
    return [*curves, Curve("words", "; ".join(filter(None, found)), [0], [0])]


def draw_averages(curves: list[Curve]) -> Picture:
    """Returns panels of time-average regret, and below them regret in units of that of one algorithm."""
    *curves, words = curves
    unit = "DP-SE" if pick(curves, label="DP-SE") else "CDP-SE"
    above, below = [], []
    axes: dict[str, Any] = dict(kind="lines", xscale="log", yscale="log")
    for title in panels(curves):
        *ones, chance = pick(curves, title)
        ones, base = [marked(one, mark) for one, mark in zip(ones, "osD^v")], the(curves, title, unit)
        axes["xlim"] = (FIRST, base.x[-1])
        shown = [one.per(one.x) for one in [*ones, chance]]
        above.append(Panel(shown, title.partition(": ")[2].partition(", p")[0], label="{label}: {note}", **axes))
        below.append(Panel([one.over(base.y) for one in ones], "", "user $t$", label="", **axes))
    above[0].ylabel = "time-average regret, Reg$(t)/t$"
    below[0].ylabel = f"regret over {unit}'s"
    noise = f". The noise gives, by panel: {words.label.replace('inf', '∞')}" if words.label else ""
    setting = f"""Mean of {curves[0].n_seeds} instances ± one standard error. Radii fail with p = 0.1{noise}"""
    grid, title = dict(height_ratios=(2, 1), sharex="col"), "Private elimination: regret over time, and ratios"
    return Picture([*above, *below], title, setting, height=5, shape=(2, len(above)), grid=grid)


def marked(one: Curve, mark: str) -> Curve:
    """Returns a curve in its own colour with this mark, and with a note of what is asked for if nothing is claimed."""
    colour, line, *_ = one.style.split()
    note = one.note.replace("claim, ", "claim, asked for ")
    return one.but(style=f"{LIGHTER.get(one.label, colour)} {line} {mark}", note=note)


def of_kinds(instances: Sequence[tuple[str, float]]) -> dict[str, tuple[str, Any, int, float]]:
    """Returns the worlds of panels, which have easy or hard instances and an epsilon."""
    return {
        letter: (f"{kind} instances", fb.envs.arms(10, instance=kind), HORIZONS[kind], epsilon)
        for letter, (kind, epsilon) in zip("abc", instances)
    }


def fig1(options: ArmsOptions) -> list[Curve]:
    """Draws Figure 1 of Chowdhury & Zhou (2023): regret under pure and Renyi DP without a trusted server, and with one.

    DP-SE trusts the server, and the others use secure aggregation. chowdhury2023_mslr draws (d) to (f).
    """
    return averages(options, "Fig. 1", of_kinds((("easy", 0.1), ("easy", 0.5), ("hard", 0.1))))


def fig2(options: ArmsOptions) -> list[Curve]:
    """Draws Figure 2 of Chowdhury & Zhou (2023): regret on easy instances at epsilon = 0.1, 0.5 and 1."""
    return averages(options, "Fig. 2", of_kinds((("easy", 0.1), ("easy", 0.5), ("easy", 1.0))))


def fig3(options: ArmsOptions) -> list[Curve]:
    """Draws Figure 3 of Chowdhury & Zhou (2023): regret on hard instances at epsilon = 0.1, 0.5 and 1."""
    return averages(options, "Fig. 3", of_kinds((("hard", 0.1), ("hard", 0.5), ("hard", 1.0))))


def fig4(options: ArmsOptions) -> list[Curve]:
    """Draws Figure 4 of Chowdhury & Zhou (2023): regret by trust model and notion of privacy, on easy instances.

    CDP-SE trusts the server, LDP-SE nobody, and the others use secure aggregation. With --as authors batches double, as
    in their plot. CDP-SE, LDP-SE and Dist-CDP-SE are then ours, as their code has not been released.
    """
    labels = ("CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-CDP-SE (s=10)")
    return averages(options, "Fig. 4", of_kinds((("easy", 0.1), ("easy", 0.5), ("easy", 1.0))), labels, growth=2)


@dataclasses.dataclass(frozen=True)
class MslrOptions(ArmsOptions):
    """Draw a figure of Chowdhury & Zhou (2023) on real data.

    Args:
        mslr: folder of your copy of MSLR-WEB10K; by default scikit-learn's digits stand in for it.
    """

    mslr: tyro.conf.DisallowNone[Path | None] = None

    def means(self) -> np.ndarray:
        """Returns the mean reward of each of 50 clusters."""
        if self.mslr is not None:
            return fb.data.mslr_arms(self.mslr, n_arms=50)
        images, digits = load_digits(return_X_y=True)
        cluster = KMeans(50, random_state=0).fit_predict(images)
        return np.bincount(cluster, digits, 50) / np.bincount(cluster, minlength=50) / 9


def mslr(options: MslrOptions) -> list[Curve]:
    """Draws Figure 1 (d) to (f) of the ICLR version of Chowdhury & Zhou (2023): clusters of MSLR-WEB10K as K = 50 arms.

    Without your copy (--mslr DIR) they are clusters of scikit-learn's digits, and titles say so. Their mean reward is
    the mean digit / 9. Rewards are Gaussian around the means, of standard deviation 0.1, clipped to [0, 1].
    """
    env, data = fb.envs.arms(means=options.means()), "MSLR-WEB10K" if options.mslr else "digits"
    return averages(options, "ICLR Fig. 1", {a: (data, env, 10**7, e) for a, e in zip("def", (1.0, 5.0, 10.0))})


SHUFFLE_LOOKS = {
    "CDP-SE": "#E69F00 - o",
    "LDP-SE": "#56B4E9 - s",
    "Dist-DP-SE": "#D55E00 - o",
    "Shuffle-DP-SE": "#CC79A7 - ^",
}
EPSILONS = {"a": 0.1, "b": 0.5, "c": 1.0}


def shuffle(options: RadiusOptions) -> list[Curve]:
    """Draws Theorem 3 of Chowdhury & Zhou (2023): pure DP by a shuffler of bits in place of secure aggregation.

    The theorem has the orders of regret and of bits with secure aggregation. It counts the bits of a message. (d) has
    the bits that are shuffled, by the protocol of Cheu & Yan (2021) with the constants of its proof.
    """
    env, run, curves = fb.envs.arms(10, instance="easy"), options.arguments(HORIZONS["easy"]), []
    for letter, epsilon in EPSILONS.items():
        algos = {label: elimination(label, epsilon, radius=options.radius) for label in SHUFFLE_LOOKS}
        curves += of_result(options.sweep(env, algos, **run), f"({letter}) ε = {epsilon:g}")
    for label, look in SHUFFLE_LOOKS.items():
        protocol = elimination(label, EPSILONS["c"]).bind(env.spec, run["horizon"]).protocol
        asked = np.flatnonzero(protocol.users)
        users, bits = (np.asarray(of)[asked] for of in (protocol.users, protocol.bits))
        curves.append(Curve("bits", label, users, bits, look))
    return curves


def draw_shuffle(curves: list[Curve]) -> Picture:
    shown, n = [], curves[0].n_seeds
    for title in panels(curves)[:-1]:
        panel = [one.per(one.x) for one in dressed(pick(curves, title), SHUFFLE_LOOKS)]
        words = title[4:], "user $t$", "time-average regret, Reg$(t)/t$"
        shown.append(Panel(panel, *words, kind="lines", xlim=(1000, panel[0].x[-1]), **LOGS))
    words = "bits; all but Shuffle-DP-SE coincide", "n users in a batch", "bits that a user sends"
    shown.append(Panel(pick(curves, "bits"), *words, label="", **LOGS))
    setting = f"""K = 10, T = {power(HORIZONS["easy"])}, p = 0.1. Mean of {n} easy instances ± one standard error.
        All are certified (pure DP). A flat curve is uniform play. (d) is at ε = 1"""
    title = "Shuffling stays within twice secure aggregation"
    return Picture(shown, title, setting, shape=(2, 2))


SCALES = (1, 2, 4, 10, 30, 100, 300, 1000)
EPSILON, INSTANCE, DELTA = 0.1, "easy", 1e-6
SCALING_LOOKS = {"Dist-DP-SE": "#D55E00 -", "Dist-RDP-SE": "#009E73 - o", "Dist-CDP-SE": "#CC79A7 - s"}


def printed(scale: float) -> float:
    """Returns epsilon at DELTA by the curve of Theorem 2 as printed and the conversion of Lemma 10."""
    alpha = np.arange(2.0, 1e4)
    extra = (2 * alpha - 1) * EPSILON**2 / (4 * scale**2) + 3 * EPSILON / (2 * scale**3)
    curve = alpha * EPSILON**2 / 2 + np.minimum(extra, 3 * EPSILON**2 / (2 * scale))
    return float((curve + np.log(1 / (alpha * DELTA)) / (alpha - 1) + np.log1p(-1 / alpha)).min())


def scaling(options: RadiusOptions) -> list[Curve]:
    """Draws what the scaling factor s of Chowdhury & Zhou (2023) buys and costs: regret, bits per user and privacy.

    By Theorems 2 and 4 a larger s rounds rewards to a finer grid, of about s epsilon sqrt(n) steps. Regret and privacy
    improve. Users send O(log m) bits, which grow with ln s. Dist-DP-SE has no s.
    """
    scales, env, curves = SCALES[: options.pick(2, 8, 8)], fb.envs.arms(10, instance=INSTANCE), []
    made = {name: elimination(name, EPSILON, radius=options.radius, delta=DELTA) for name in SCALING_LOOKS}
    algos = {f"{name} {s}": made[name].replace(scale=float(s)) for name in list(SCALING_LOOKS)[1:] for s in scales}
    result = options.sweep(env, made | algos, **options.arguments(HORIZONS[INSTANCE]))
    for name, look in SCALING_LOOKS.items():
        points = [result[f"{name} {s}" if f"{name} {s}" in algos else name] for s in scales]
        bits = np.array([one.certificate.bits_per_user for one in points])
        kept: dict[str, Any] = {
            "regret": [final(one) for one in points],
            "bits, largest batch": bits[:, 1],
            "bits, smallest batch": bits[:, 0],
            "epsilon": [one.certificate.epsilon_exact for one in points],
        }
        notion = points[0].certificate.notion
        curves += [Curve(panel, name, scales, values, look, notion) for panel, values in kept.items()]
    theorem = [printed(scale) for scale in scales]
    return [*curves, Curve("epsilon", "Theorem 2 and Lemma 10, as printed", scales, theorem, "#777777 -.")]


def draw_scaling(curves: list[Curve]) -> Picture:
    sizes = [*pick(curves, "bits, largest batch"), *pick(curves, "bits, smallest batch")]
    words = (
        (pick(curves, "regret"), "regret at T", "regret at T", None),
        (sizes, "bits in the largest and the smallest batch", "bits that a user sends", 0),
        (pick(curves, "epsilon"), f"what the noise gives at δ = {tick(DELTA)}", "ε", 0),
    )
    axes: Any = dict(xscale="log", spread=0.03, label="{label}: {note}")
    shown = [Panel(one[0], one[1], "scaling factor s", one[2], ylim=(one[3], None), **axes) for one in words]
    n = curves[0].n_seeds
    setting = f"""K = 10, T = {power(HORIZONS[INSTANCE])}, ε = {EPSILON}, p = 0.1. Mean of {n} {INSTANCE} instances
        ± one standard error. All are certified in their notions"""
    return Picture(shown, "Regret, bits and privacy against the scale s", setting)


FIGURES = {
    "chowdhury2023_fig1": Experiment(fig1, draw_averages, ArmsOptions),
    "chowdhury2023_fig2": Experiment(fig2, draw_averages, ArmsOptions),
    "chowdhury2023_fig3": Experiment(fig3, draw_averages, ArmsOptions),
    "chowdhury2023_fig4": Experiment(fig4, draw_averages, ArmsOptions),
    "chowdhury2023_mslr": Experiment(mslr, draw_averages, MslrOptions),
    "chowdhury2023_shuffle": Experiment(shuffle, draw_shuffle, RadiusOptions),
    "chowdhury2023_scaling": Experiment(scaling, draw_scaling, RadiusOptions),
}
