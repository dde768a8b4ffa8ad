"""What the figures of Chowdhury & Zhou (2023) share: their options, algorithms by name, and ratios of regret.

Letters: K arms, T users, p the failure probability of the confidence radii, s the scale of Skellam noise.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, save

import fedbandit_jax as fb

HORIZONS = {"easy": 10**6, "hard": 10**7}
CURVES: dict[str, tuple[str, float | None]] = {  # label -> name in fb.algos.ELIMINATION, s
    **{name: (name, None) for name in fb.algos.ELIMINATION},
    "Dist-RDP-SE (s=10)": ("Dist-RDP-SE", 10.0),
    "Dist-RDP-SE (s=100)": ("Dist-RDP-SE", 100.0),
    "Dist-CDP-SE (s=10)": ("Dist-CDP-SE", 10.0),
}
LABELS = ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-RDP-SE (s=100)")  # of Figures 1 to 3
PAIRS = (("Dist-DP-SE", "DP-SE"), ("Dist-RDP-SE (s=10)", "Dist-DP-SE"), ("Dist-RDP-SE (s=100)", "Dist-RDP-SE (s=10)"))
MATCHES = (
    "as T becomes large, the regret of Dist-DP-SE matches that of DP-SE, the more so at large ε; Dist-RDP-SE is\n"
    "considerably better than Dist-DP-SE, more so at small ε, and the better the larger s is (Section 7, Appendix J).\n"
    "Whether it matches depends on radii and on the growth of batches: see chowdhury2023_matches.png."
)
AUTHORS = ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE")  # what the authors' code has


def elimination(label: str, epsilon: float | None, **options: Any) -> fb.algos.SuccessiveElimination:
    """Returns the algorithm of a curve; options that it has not, as growth for DP-SE, are left out."""
    name, scale = CURVES[label]
    mechanism, trust = fb.algos.ELIMINATION[name]
    if name == "DP-SE":
        options = {key: value for key, value in options.items() if key not in ("radius", "growth")}
    if name not in AUTHORS:
        options.pop("calibration", None)
    epsilon = None if name == "SE" else epsilon
    return fb.algos.SuccessiveElimination(
        epsilon=epsilon, mechanism=mechanism, trust=trust, scale=scale, name=label, **options
    )


def ratio(result: fb.Result, one: str, other: str) -> tuple[float, float]:
    """Returns the final regret of one algorithm over that of another, means over seeds, and its standard error.

    The error is that of the linearised ratio of paired means.
    """
    a, b = (result[label].regret[:, -1] for label in (one, other))
    value = a.mean() / b.mean()
    return float(value), float((a - value * b).std(ddof=1) / np.sqrt(len(a)) / b.mean())


def given(label: str, panels: dict[str, fb.Result]) -> str:
    """Returns the epsilon that the noise of an algorithm gives in each panel, if it differs from the one asked for."""
    certificates = [result[label].certificate for result in panels.values()]
    values = [found.epsilon_exact for found in certificates]
    if any(value is None for value in values) or all(
        abs(value - (found.epsilon or 0)) < 0.01 * value for value, found in zip(values, certificates) if value
    ):
        return ""
    at = f" at δ={certificates[0].delta:g}" if certificates[0].delta else ""
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
            own |= dict(calibration="authors", growth=growth)
        return fb.sweep(env, [elimination(label, epsilon, **own) for label in labels], **self.arguments(horizon))


def draw(
    name: str,
    options: ArmsOptions,
    panels: dict[str, fb.Result],
    pairs: tuple[tuple[str, str], ...],
    claim: str,
) -> None:
    """Draws the panels (title -> result) side by side, and below them how the paper's claim compares.

    Args:
        name: name of the files.
        options: those of the command line.
        panels: title -> result.
        pairs: pairs of labels whose ratios of final regret the claim is about.
        claim: what the paper says.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(5.8 * len(panels), 7.2), layout="constrained", squeeze=False)
    seen = {pair: [ratio(result, *pair) for result in panels.values()] for pair in pairs}
    labels = next(iter(panels.values())).labels
    words = [
        f"{one} / {other}: " + ", ".join(f"{r:.2f} ± {e:.2f}" for r, e in found) for (one, other), found in seen.items()
    ]
    words += ["The noise gives: " + "; ".join(filter(None, (given(label, panels) for label in labels)))]
    caption = f"The paper: {claim}\nRatios of mean regret at T seen here, by panel, ± 1 s.e.:\n" + "\n".join(words)
    suffix = f"{name}_{options.variant}"
    for i, ((title, result), ax) in enumerate(zip(panels.items(), axes[0])):
        fb.plotting.regret(result, title=title, ax=ax)
        if not options.smoke:
            result.save(f"results/{suffix}_{'abcdef'[i]}")
        print(f"\n{title}\n{result.summary()}")
        for label in result:
            print(f"  {label}: {result[label].certificate.claim}, {result[label].certificate.reason}")
    figure.supxlabel(caption, fontsize="medium", x=0.01, ha="left")
    print(f"\n{caption}")
    save(suffix, options, figure)


def time_average(
    number: int,
    labels: tuple[str, ...],
    panels: dict[str, tuple[str, float]],
    pairs: tuple[tuple[str, str], ...],
    claim: str,
    doc: str | None,
    growth: int = 4,
) -> None:
    """Draws Figure `number`, with the options of the command line.

    Args:
        number: number of the figure.
        labels: names of the algorithms, keys of `CURVES`.
        panels: letter of a panel -> ("easy" or "hard" instances, epsilon).
        pairs, claim: as in `draw`.
        doc: the text of --help.
        growth: factor between the sizes of batches with --as authors.
    """
    options = tyro.cli(ArmsOptions, description=doc)
    results = {}
    for panel, (instance, epsilon) in panels.items():
        result = options.compare(labels, epsilon, fb.envs.arms(10, instance=instance), HORIZONS[instance], growth)
        size = f"K=10, T={power(result.rounds[-1])}, p=0.1, {options.how}"
        results[f"Fig. {number}({panel}): {instance} instances, ε={epsilon}\n{size}"] = result
    draw(f"chowdhury2023_fig{number}", options, results, pairs, claim)
