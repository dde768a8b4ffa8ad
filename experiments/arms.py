"""What the figures of Chowdhury & Zhou (2023) share: their options, algorithms by name, and ratios of regret.

Letters: K arms, T users, p the failure probability of the confidence radii, s the scale of Skellam noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from authors_arms import RELEASED
from curves import Curve, of_result, panels, pick, pm, quotient, ratio, the
from drawing import CHANCE, Panel, Picture, Says, show
from options import Size
from scipy.optimize import brentq

import fedbandit_jax as fb
from fedbandit_jax.core import random

HORIZONS = {"easy": 10**6, "hard": 10**7}
A = fb.algos
KINDS = A.SE, A.DPSE, A.CDPSE, A.LDPSE, A.DistDPSE, A.DistRDPSE, A.DistCDPSE, A.ShuffleDPSE
VARIANTS = {kind.title: kind for kind in KINDS}
LABELS = ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-RDP-SE (s=100)")  # of Figures 1 to 3
LIGHTER = {"Dist-RDP-SE (s=100)": "#66C2A5"}  # than with s = 10
HOW = {"theory": "radii of Lemma 2", "exact": "exact radii", "authors": "as the authors' code"}
LARGE = 0.2  # standard error of a ratio that tells nothing
FIRST = 1_000  # users up to whom nothing differs: all pull every arm equally often


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the paper says of the regret of two algorithms at T: that the first has less, or that it matches the other.

    Args:
        one, other, says: labels, and the paper's words.
        matches: whether it says that both have the same; seen where the ratio is 0.9 to 1.1.
        below: the ratio of regrets that the paper's words ask for; seen where it is less by 2 errors.
    """

    one: str
    other: str
    says: str
    matches: bool = False
    below: float = 1.0

    def holds(self, value: float, error: float) -> bool:
        """Returns whether a ratio of regrets, first over second, is what the paper says."""
        return 0.9 <= value <= 1.1 if self.matches else value < self.below - 2 * error

    def seen(self, curves: Sequence[Curve]) -> str:
        """Returns in how many panels it holds, and the ratios at T, if they vary much also without the largest."""
        right, words = [], []
        for letter, title in zip("abcdef", panels(curves)):
            one, other = (the(curves, title, label).y[-1] for label in (self.one, self.other))
            value, error = quotient(one, other)
            right.append(self.holds(value, error))
            words.append(f"({letter}) {pm(value, error)}")
            if error > LARGE:
                rest = np.arange(len(one)) != one.argmax()
                words[-1] += f", without one of {len(one)} instances {ratio(one[rest], other[rest])}"
        return f"{verdict(right)}; regret of {self.one} / {self.other}: {', '.join(words)}"


def verdict(right: Sequence[bool]) -> str:
    """Returns yes, no, or in how many of all cases."""
    return {0: "no", len(right): "yes"}.get(sum(right), f"in {sum(right)} of {len(right)}")


MATCHES = (  # of Figures 1 to 3
    Claim("Dist-DP-SE", "DP-SE", "as T becomes large, the regret of Dist-DP-SE matches DP-SE's", matches=True),
    Claim("Dist-RDP-SE (s=10)", "Dist-DP-SE", "Dist-RDP-SE gains considerably (a tenth), more at small ε", below=0.9),
    Claim("Dist-RDP-SE (s=100)", "Dist-RDP-SE (s=10)", "the gain is higher for a larger s (a hundredth)", below=0.99),
)


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
    def how(self) -> str:
        """Returns the words for the version in titles."""
        return HOW[self.variant]


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


def draw(
    asked: ArmsOptions,
    worlds: Mapping[str, tuple[str, Any, int, float]],
    where: Sequence[str],
    size: str,
    drawn: str = "instances",
    labels: Sequence[str] = LABELS,
    claims: Sequence[Claim] = MATCHES,
    growth: int = 4,
) -> None:
    """Draws panels side by side, below them regret in units of that of one algorithm, and says what the paper claims.

    Args:
        asked: the options of the command line.
        worlds: letter of a panel -> words, environment, T and epsilon.
        where, size: in which figure, for a panel and for all, and T beside the paper's.
        drawn: what differs between seeds.
        labels, claims: names of the algorithms, and what the paper says of them.
        growth: factor between the sizes of batches with --as authors.
    """
    version: dict[str, Any] = dict(released=True, growth=growth) if asked.version == "authors" else {}

    def measure() -> list[Curve]:
        curves, certificates = [], {label: [] for label in labels}
        for letter, (words, env, horizon, epsilon) in worlds.items():
            run = asked.arguments(horizon)
            size = f"K = {env.spec.n_arms}, T = {power(run['horizon'])}, p = 0.1, {asked.how}"
            title = f"{where[0]} ({letter}): {words}, ε = {epsilon:g}\n{size}"
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

    def picture(curves: list[Curve]) -> Picture:
        *curves, words = curves
        above, below, n, unit = [], [], curves[0].n_seeds, claims[0].other
        axes: dict[str, Any] = dict(kind="lines", xscale="log", yscale="log")
        for title in panels(curves):
            *ones, chance = pick(curves, title)
            ones, base = [dressed(one, mark) for one, mark in zip(ones, "osD^v")], the(curves, title, unit)
            axes["xlim"] = (FIRST, base.x[-1])
            averages, words_above = [one.per(one.x) for one in [*ones, chance]], title.partition(": ")[2]
            above.append(Panel(averages, words_above.partition(", p")[0], label="{label}: {note}", **axes))
            below.append(Panel([one.over(base.y) for one in ones], "", "user $t$", label="", **axes))
        above[0].axes["ylabel"] = "time-average regret, Reg$(t)/t$"
        below[0].axes["ylabel"] = f"regret over {unit}'s"
        shown = f"{size}, {n} {drawn}, ± one standard error"
        says = [Says("".join(where), one.says, shown, one.seen(curves)) for one in claims]
        noise = f". The noise gives, by panel: {words.label.replace('inf', '∞')}" if words.label else ""
        says[-1] = dataclasses.replace(says[-1], seen=says[-1].seen + noise)
        how = asked.how
        if version and (ours := [label for label in labels if label.partition(" (")[0] not in RELEASED]):
            how += f", which has no {' and no '.join(ours)} (these are ours)"
        setting = f"Mean of {n} {drawn} ± one standard error, {how}. Radii fail with p = 0.1"
        grid, title = dict(height_ratios=(2, 1), sharex="col"), "Private elimination: regret over time, and ratios"
        return Picture([*above, *below], title, setting, says, height=5, shape=(2, len(above)), grid=grid)

    show(asked, measure, picture)


def dressed(one: Curve, mark: str) -> Curve:
    """Returns a curve in its own colour with this mark, and with a note of what is asked for if nothing is claimed."""
    colour, line, *_ = one.style.split()
    note = one.note.replace("claim, ", "claim, asked for ")
    return one.but(style=f"{LIGHTER.get(one.label, colour)} {line} {mark}", note=note)


def time_average(number: int, instances: Sequence[tuple[str, float]], doc: str | None, **more: Any) -> None:
    """Draws Figure `number`, whose panels have easy or hard instances and an epsilon, as `draw` does."""
    worlds = {
        letter: (f"{kind} instances", fb.envs.arms(10, instance=kind), HORIZONS[kind], epsilon)
        for letter, (kind, epsilon) in zip("abc", instances)
    }
    where = f"Fig. {number}", ", Section 7, Appendix J"
    draw(tyro.cli(ArmsOptions, description=doc), worlds, where, "T as printed", **more)
