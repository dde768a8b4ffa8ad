"""What the figures of Chowdhury & Zhou (2023) share: their options, algorithms by name, and ratios of regret.

Letters: K arms, T users, p the failure probability of the confidence radii, s the scale of Skellam noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from authors_arms import RELEASED
from curves import Curve, of_result, panels, pick, pm, quotient, ratio, the
from drawing import CHANCE, Panel, Picture, Says, show
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.core import random

HORIZONS = {"easy": 10**6, "hard": 10**7}
A = fb.algos
KINDS = A.SE, A.DPSE, A.CDPSE, A.LDPSE, A.DistDPSE, A.DistRDPSE, A.DistCDPSE, A.ShuffleDPSE
VARIANTS = {kind.title: kind for kind in KINDS}
CURVES: dict[str, tuple[str, float | None]] = {  # label -> name of the variant, s
    **{name: (name, None) for name in VARIANTS},
    "Dist-RDP-SE (s=10)": ("Dist-RDP-SE", 10.0),
    "Dist-RDP-SE (s=100)": ("Dist-RDP-SE", 100.0),
    "Dist-CDP-SE (s=10)": ("Dist-CDP-SE", 10.0),
}
LABELS = ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-RDP-SE (s=100)")  # of Figures 1 to 3
LIGHTER = {"Dist-RDP-SE (s=100)": "#66C2A5"}  # than with s = 10
LARGE = 0.2  # standard error of a ratio that tells nothing
FIRST = 1_000  # users up to whom nothing differs: all pull every arm equally often


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the paper says of the regret of two algorithms at T: that the first has less, or that it matches the other.

    Args:
        one, other: labels.
        says: the paper's words.
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
        """Returns in how many panels it holds, and the ratios at T.

        A ratio with a large error is followed by that without the instance of most regret.
        """
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
    """Returns the algorithm of a curve; options that it does not have, as growth for DP-SE, are left out.

    If `released`, the noise is that of the authors' code where it has any.
    """
    name, scale = CURVES[label]
    kind: Any = RELEASED.get(name, VARIANTS[name]) if released else VARIANTS[name]
    known = {field.name for field in dataclasses.fields(kind)}
    given = {**options, "epsilon": epsilon, **({} if scale is None else {"scale": scale})}
    return kind(name=label, **{key: value for key, value in given.items() if key in known})


def given(label: str, results: list[fb.Result]) -> str:
    """Returns the epsilon that the noise of an algorithm gives in each panel, if it differs from the one asked for."""
    certificates = [result[label].certificate for result in results]
    shared = np.inf if label == "DP-SE" else None  # of the authors' DP-SE, whose arms share one noise
    values = [shared if found.epsilon_exact is None else found.epsilon_exact for found in certificates]
    if any(value is None for value in values) or all(
        abs(value - (found.epsilon or 0)) < 0.01 * value for value, found in zip(values, certificates) if value
    ):
        return ""
    at = f" at δ = {np.format_float_positional(certificates[0].delta)}" if certificates[0].delta else ""
    return f"{label} ε = {', '.join(f'{value:.4g}' for value in values)}{at}"


def power(number: float) -> str:
    """Returns a power of ten as mathematics."""
    return f"$10^{{{np.log10(number):g}}}$"


@dataclasses.dataclass(frozen=True)
class ArmsSize(Size):
    """Draw a figure about multi-armed bandits; the paper's size takes seconds and is therefore the default."""

    def arguments(self, horizon: int) -> dict[str, Any]:
        """Returns arguments of `fb.sweep` for T = `horizon`; all sizes but smoke have the paper's 20 instances."""
        return dict(
            horizon=min(horizon, 20_000) if self.smoke else horizon,
            seeds=2 if self.smoke else 20,
            key=jax.random.key(self.seed),
            stride="log",
            progress=True,
            throw=False,
        )


@dataclasses.dataclass(frozen=True)
class RadiusOptions(ArmsSize):
    """Draw a figure about multi-armed bandits; the paper's size takes seconds and is therefore the default.

    Args:
        radius: how confidence radii are computed: theory is the paper's Lemma 2, exact uses the law of the noise.
    """

    radius: Literal["theory", "exact"] = "theory"

    @property
    def how(self) -> str:
        """Returns the words for the radii in titles."""
        return "radii of Lemma 2" if self.radius == "theory" else "exact radii"

    @property
    def variant(self) -> str:
        """Returns what distinguishes the names of the files."""
        return self.radius


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
    def how(self) -> str:
        """Returns the words for the version in titles."""
        return "as the authors' code" if self.version == "authors" else super().how

    @property
    def variant(self) -> str:
        """Returns what distinguishes the names of the files."""
        return "authors" if self.version == "authors" else super().variant

    def compare(
        self, labels: tuple[str, ...], epsilon: float, env: fb.Environment, horizon: int, growth: int = 4
    ) -> fb.Result:
        """Runs these algorithms on 20 instances of T = `horizon` users; `growth` is that of the authors' batches."""
        own: dict[str, Any] = dict(radius=self.radius)
        if self.version == "authors":
            own |= dict(released=True, growth=growth)
        return fb.sweep(env, [elimination(label, epsilon, **own) for label in labels], **self.arguments(horizon))


def random_arms(env: Any, run: dict[str, Any]) -> np.ndarray:
    """Returns the mean regret of a user who pulls any arm, in each of the instances of a run (S,)."""
    keys = random.of_seeds(run["key"], np.arange(run["seeds"]))
    means = jax.vmap(lambda key: env.means(env.init(random.stream(key, "world"))))(keys)
    return np.asarray(means.max(1) - means.mean(1), float)


def measured(options: ArmsOptions, results: dict[str, tuple[fb.Environment, fb.Result]]) -> list[Curve]:
    """Returns regret over time, title by title, and in a last label what the noise gives in place of epsilon."""
    curves = []
    for title, (env, result) in results.items():
        print(f"\n{title}\n{result.summary()}")
        for label in result:
            print(f"  {label}: {result[label].certificate.claim}, {result[label].certificate.reason}")
        panel = of_result(result, title)
        x, lost = panel[0].x, random_arms(env, options.arguments(1))
        curves += [*panel, Curve(title, CHANCE, x, x[:, None] * lost, "#999999 :")]
    found = [given(label, [one for _, one in results.values()]) for label in names(curves)]
    return [*curves, Curve("words", "; ".join(filter(None, found)), [0], [0])]


def draw(
    options: ArmsOptions,
    measure: Callable[[], dict[str, tuple[fb.Environment, fb.Result]]],
    claims: tuple[Claim, ...],
    where: str,
    size: str,
    drawn: str,
) -> None:
    """Draws panels side by side, below them regret in units of that of one algorithm, and says what the paper claims.

    Args:
        options: those of the command line.
        measure: runs everything; returns title, with a letter in brackets -> environment and result.
        claims: what the paper says.
        where: in which figure or section.
        size: T beside that of the paper.
        drawn: what differs between the seeds.
    """

    def picture(curves: list[Curve]) -> Picture:
        *curves, words = curves
        above, below, n, unit = [], [], curves[0].n_seeds, claims[0].other
        axes: dict[str, Any] = dict(kind="lines", xscale="log", yscale="log")
        for title in panels(curves):
            *ones, chance = pick(curves, title)
            ones = [dressed(one, mark) for one, mark in zip(ones, "osD^v")]
            base = the(curves, title, unit)
            words_above = title.partition(": ")[2].partition(", p")[0]
            axes["xlim"] = (FIRST, base.x[-1])
            averages = [one.per(one.x) for one in [*ones, chance]]
            above.append(Panel(averages, words_above, label="{label}: {note}", **axes))
            below.append(Panel([one.over(base.y) for one in ones], "", "user $t$", label="", **axes))
        above[0].axes["ylabel"] = "time-average regret, Reg$(t)/t$"
        below[0].axes["ylabel"] = f"regret over {unit}'s"
        says = [Says(where, one.says, f"{size}, {n} {drawn}, ± one standard error", one.seen(curves)) for one in claims]
        if words.label:
            given = words.label.replace("inf", "∞")
            says[-1] = dataclasses.replace(says[-1], seen=f"{says[-1].seen}. The noise gives, by panel: {given}")
        how, title = options.how, "Private elimination: regret over time, and ratios"
        if options.version == "authors" and (ours := [one for one in names(curves) if CURVES[one][0] not in RELEASED]):
            how += f", which has no {' and no '.join(ours)} (these are ours)"
        setting = f"Mean of {n} {drawn} ± one standard error, {how}. Radii fail with p = 0.1"
        grid = dict(height_ratios=(2, 1), sharex="col")
        return Picture([*above, *below], title, setting, says, height=5, shape=(2, len(above)), grid=grid)

    show(options, lambda: measured(options, measure()), picture)


def dressed(one: Curve, mark: str) -> Curve:
    """Returns a curve in its own colour with this mark, and with a note of what is asked for if nothing is claimed."""
    colour, line, *_ = one.style.split()
    note = one.note.replace("claim, ", "claim, asked for ")
    return one.but(style=f"{LIGHTER.get(one.label, colour)} {line} {mark}", note=note)


def names(curves: Sequence[Curve]) -> list[str]:
    """Returns the names of the algorithms, without that of uniform play."""
    return [label for label in dict.fromkeys(one.label for one in curves) if label != CHANCE]


def time_average(
    number: int,
    labels: tuple[str, ...],
    panels: dict[str, tuple[str, float]],
    claims: tuple[Claim, ...],
    doc: str | None,
    growth: int = 4,
) -> None:
    """Draws Figure `number`, with the options of the command line.

    Args:
        number: number of the figure.
        labels: names of the algorithms, keys of `CURVES`.
        panels: letter of a panel -> ("easy" or "hard" instances, epsilon).
        claims: as in `draw`.
        doc: the text of --help.
        growth: factor between the sizes of batches with --as authors.
    """
    options = tyro.cli(ArmsOptions, description=doc)

    def measure() -> dict[str, tuple[fb.Environment, fb.Result]]:
        results: dict[str, tuple[fb.Environment, fb.Result]] = {}
        for panel, (instance, epsilon) in panels.items():
            env = fb.envs.arms(10, instance=instance)
            result = options.compare(labels, epsilon, env, HORIZONS[instance], growth)
            size = f"K = 10, T = {power(result.rounds[-1])}, p = 0.1, {options.how}"
            results[f"Fig. {number} ({panel}): {instance} instances, ε = {epsilon:g}\n{size}"] = env, result
        return results

    draw(options, measure, claims, f"Fig. {number}, Section 7, Appendix J", "T as printed", "instances")
