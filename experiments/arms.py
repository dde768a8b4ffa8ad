"""What the figures of Chowdhury & Zhou (2023) share: their options, algorithms by name, and ratios of regret.

Letters: K arms, T users, p the failure probability of the confidence radii, s the scale of Skellam noise.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import curves as kept
import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from authors_arms import RELEASED
from curves import Curve, quotient
from drawing import Says, caption, headline, legend_of_all, save, spaced
from drawing import draw as draw_curves
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
MOST = 2.5  # ratio of regrets up to which the lower panels show it
LARGE = 0.2  # standard error of a ratio that tells nothing
NEAR = 0.03  # share of regret by which curves may differ that can't be told apart
FIRST = 1_000  # users up to whom nothing differs: all pull every arm equally often
MARKS = "osD^v"  # of the curves of a figure, set apart along them, so that one under others is seen


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

    def seen(self, value: float, error: float) -> bool:
        """Returns whether a ratio of regrets, first over second, is what the paper says."""
        return 0.9 <= value <= 1.1 if self.matches else value < self.below - 2 * error

    def verdict(self, ratios: Mapping[str, tuple[float, float]]) -> str:
        """Returns in words whether the ratios and errors of all panels, by letter, are what the paper says.

        A ratio that is as small as the paper says, but not by 2 errors, decides nothing.
        """
        right, values = [self.seen(*one) for one in ratios.values()], [value for value, _ in ratios.values()]
        if not self.matches:
            words = [
                "yes" if ok else "undecided" if value < self.below < 1 else "no" for ok, value in zip(right, values)
            ]
            at = {
                word: " and ".join(x for x, one in zip(ratios, words) if one == word) for word in dict.fromkeys(words)
            }
            return words[0] if len(at) == 1 else ", ".join(f"{word} in {letters}" for word, letters in at.items())
        if all(right):
            return "yes"
        if max(values) <= 1.1:
            return (
                f"{'in part' if any(right) else 'no'}, it is lower in {len(right) - sum(right)} of {len(right)} panels"
            )
        if max(values) < 3:
            return "in order, not in constants"
        return "in part" if any(right) else "no"


MATCHES = (  # of Figures 1 to 3
    Claim("Dist-DP-SE", "DP-SE", "as T becomes large, the regret of Dist-DP-SE matches that of DP-SE", matches=True),
    Claim("Dist-RDP-SE (s=10)", "Dist-DP-SE", "Dist-RDP-SE gains considerably (a tenth), more at small ε", below=0.9),
    Claim(
        "Dist-RDP-SE (s=100)",
        "Dist-RDP-SE (s=10)",
        "the gain is the higher the larger s is (by a hundredth)",
        below=0.99,
    ),
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


def draw(
    name: str,
    options: ArmsOptions,
    measure: Callable[[], dict[str, tuple[fb.Environment, fb.Result]]],
    claims: tuple[Claim, ...],
    where: str,
    size: str,
    drawn: str,
) -> None:
    """Draws panels side by side, below them regret in units of that of one algorithm, and says what the paper claims.

    Args:
        name: name of the files.
        options: those of the command line.
        measure: runs everything; returns title, with a letter in brackets -> environment and result.
        claims: what the paper says.
        where: in which figure or section.
        size: T beside that of the paper.
        drawn: what differs between the seeds.
    """
    suffix = f"{name}_{options.variant}"

    def measured() -> list[Curve]:
        curves, panels = [], measure()
        for i, (title, (env, result)) in enumerate(panels.items()):
            if not options.smoke:
                result.save(f"results/{suffix}_{'abcdef'[i]}")
            print(f"\n{title}\n{result.summary()}")
            for label in result:
                print(f"  {label}: {result[label].certificate.claim}, {result[label].certificate.reason}")
            panel = kept.of_result(result, title)
            x, lost = panel[0].x, random_arms(env, options.arguments(1))
            curves += [*panel, Curve(title, "uniform play", x, x[:, None] * lost, "#999999 :")]
        words = "; ".join(filter(None, (given(label, [one for _, one in panels.values()]) for label in labels(curves))))
        return [*curves, Curve("words", words, np.array([0.0]), np.array([0.0]))]

    *curves, words = options.numbers(suffix, measured)
    titles = {title: title[title.index("(") :][:3] for title in dict.fromkeys(one.panel for one in curves)}
    figure, axes = plt.subplots(2, len(titles), figsize=(11, 7), height_ratios=(2, 1), sharex="col", squeeze=False)
    found: dict[Claim, list[tuple[float, float]]] = {claim: [] for claim in claims}
    unit, n_seeds, ends, lost = claims[0].other, curves[0].n_seeds, [], []
    for title, ax, below in zip(titles, *axes):
        panel = [shown(one, i, curves, titles) for i, one in enumerate(kept.pick(curves, title))]
        draw_curves(panel, ax, average=True, hidden=False)
        last = {one.label: one for one in kept.pick(curves, title)}
        for claim, ratios in found.items():
            one, other = last[claim.one].y, last[claim.other].y
            ratios.append(quotient(one[-1], other[-1]))
            if ratios[-1][1] > LARGE:
                rest = np.delete(np.arange(n_seeds), one[-1].argmax())
                ratio = "{:.2f} ± {:.2f}".format(*quotient(one[-1, rest], other[-1, rest]))
                lost.append(f"{claim.one} {titles[title]}: {failed(last[claim.one])}, without it {ratio}")
                below.set_title(f"{claim.one} without one of {n_seeds} instances: {ratio}", fontsize="small")
        ax.set(xscale="log", yscale="log", xlim=(FIRST, panel[0].x[-1]))
        ax.set_title(title.partition(", p")[0])  # the rest is in the title of all
        ax.set_ylim(0.6 * min(one.mean[-1] / one.x[-1] for one in panel), 1.3 * panel[-1].mean[-1] / panel[-1].x[-1])
        ax.text(0.03, 0.03, together(panel), transform=ax.transAxes, fontsize="small")
        (base,), left = kept.pick(panel, label=unit), []
        for i, one in enumerate(panel[:-1]):
            ratio, error = np.transpose([quotient(y, of) for y, of in zip(one.y, base.y)])
            colour, line, *mark = one.style.split()
            below.plot(one.x, ratio, line, color=colour, marker="".join(mark), markersize=4, markevery=(i, 8))
            below.fill_between(one.x, ratio - error, ratio + error, color=colour, alpha=0.15, linewidth=0)
            if ratio[-1] > MOST:
                left.append(f"{one.label} at T:\n{ratio[-1]:.1f} ± {error[-1]:.1f}")
            ends += [ratio[(one.x >= FIRST) & (ratio <= (1.2 if left else MOST))]]
        below.text(0.97, 0.9, "\n".join(left), transform=below.transAxes, fontsize="small", ha="right", va="top")
        below.set(xlabel="user $t$")
    least, most = np.min(np.concatenate(ends)), np.max(np.concatenate(ends))
    for below in axes[1]:
        below.set_ylim(least - 0.1, most + 0.1)
    axes[0, 0].set_ylabel("time-average regret, Reg$(t)/t$")
    axes[1, 0].set_ylabel(f"regret / that of {unit}")
    legend_of_all(figure)
    how, names = options.how, labels(curves)
    if options.version == "authors":
        ours = [CURVES[name][0] for name in names if CURVES[name][0] not in RELEASED]
        how += f", which has no {' and no '.join(ours)} (these are ours)" if ours else ""
    elif options.radius == "exact" and "DP-SE" in names:
        how += " but for DP-SE"
    title = f"{n_seeds} {drawn} ± one standard error; {how};"
    headline(figure, "Private elimination: regret over time, and ratios", f"{title} radii fail with p = 0.1")
    says = []
    for claim, ratios in found.items():
        ratio = ", ".join(
            f"{letter} {value:.2f} ± {error:.2f}" for letter, (value, error) in zip(titles.values(), ratios)
        )
        seen = (
            f"{claim.verdict(dict(zip(titles.values(), ratios)))}; regret at T of {claim.one} / {claim.other}: {ratio}"
        )
        seen += "".join(f"; {one}" for one in lost if one.startswith(f"{claim.one} "))
        if words.label and claim is claims[-1]:
            seen += f". What the noise gives in place of these ε, by panel: {words.label.replace('inf', '∞')}"
        ours = f"{size}, {n_seeds} {drawn}, ± one standard error"
        says.append(Says(where, claim.says, ours if claim is claims[0] else "the same", seen))
    caption(figure, "Chowdhury & Zhou (2023)", *says)
    save(suffix, options, figure, [*curves, words])


def shown(one: Curve, i: int, curves: list[Curve], titles: dict[str, str]) -> Curve:
    """Returns curve i of a panel as it is drawn: with a mark, and a note of what is claimed in all panels (letters)."""
    colour, line, *_ = one.style.split()
    if not one.note:
        return dataclasses.replace(one, style=f"{colour} -.")
    notes: dict[str, list[str]] = {}
    for other in kept.pick(curves, label=one.label):
        notes.setdefault(other.note.replace("claim, ", "claim, asked for "), []).append(titles[other.panel])
    first, *others = notes
    note = first + "".join(f"; {' and '.join(notes[other])}, dotted: {other.partition(',')[0]}" for other in others)
    style = f"{LIGHTER.get(one.label, colour)} {line} {MARKS[i]}"
    return dataclasses.replace(one, style=style, label=spaced(one.label), note=note)


def together(panel: list[Curve]) -> str:
    """Returns which curves of a panel can't be told apart, as they are `NEAR` each other everywhere."""
    left, groups = [one.label for one in panel], []
    values = {one.label: one.mean[one.x >= FIRST] for one in panel}
    while left:
        first, *others = left
        group = [first, *(one for one in others if np.abs(values[one] / values[first] - 1).max() <= NEAR)]
        left = [one for one in left if one not in group]
        names = ", ".join(one.replace(" ", "\N{NO-BREAK SPACE}") for one in group)
        groups += [textwrap.fill(names, 38, break_on_hyphens=False)] if len(group) > 1 else []
    return f"within {100 * NEAR:g} % everywhere:\n" + ";\n".join(groups) if groups else ""


def failed(one: Curve) -> str:
    """Returns what is known of the seed of largest regret: its arm is lost if regret grows far more than elsewhere."""
    growth, worst = (one.y[-1] - one.y[-4]) / (one.x[-1] - one.x[-4]), one.y[-1].argmax()
    lost = growth[worst] > 5 * np.delete(growth, worst).max()
    why = f" and still grows by {growth[worst]:.3f} a user, so that its best arm is lost" if lost else ""
    return f"one regret is {one.y[-1, worst]:,.0f} (median {np.median(one.y[-1]):,.0f}){why}"


def labels(curves: list[Curve]) -> list[str]:
    """Returns the names of the algorithms, without that of uniform play."""
    return [label for label in dict.fromkeys(one.label for one in curves) if label != "uniform play"]


def time_average(
    number: int,
    names: tuple[str, ...],
    panels: dict[str, tuple[str, float]],
    claims: tuple[Claim, ...],
    doc: str | None,
    growth: int = 4,
) -> None:
    """Draws Figure `number`, with the options of the command line.

    Args:
        number: number of the figure.
        names: names of the algorithms, keys of `CURVES`.
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
            result = options.compare(names, epsilon, env, HORIZONS[instance], growth)
            size = f"K = 10, T = {power(result.rounds[-1])}, p = 0.1, {options.how}"
            results[f"Fig. {number} ({panel}): {instance} instances, ε = {epsilon:g}\n{size}"] = env, result
        return results

    where = f"Fig. {number}, Section 7, Appendix J"
    draw(f"chowdhury2023_fig{number}", options, measure, claims, where, "T as printed", "instances")
