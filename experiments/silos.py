"""What the figures of Zhou & Chowdhury (2024) share: their options in two versions, the real data, and the drawing.

Letters: K arms, T rounds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import authors
import curves as kept
import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, random_play
from drawing import Says, caption, draw, headline, legend_of_all, named, save, spaced
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from options import Size
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import in_words


@dataclasses.dataclass(frozen=True)
class Options(Size):
    """Draw a figure, in one of two versions.

    Args:
        version: ours is certified: agents act on released statistics only, noise is calibrated exactly, and rewards are
            in [0, 1]. authors has the noise and the constants of the authors' code, agents that learn inside the batch,
            and Gaussian rewards, on instances of our own: that code has one for all seeds. Its certificate says what
            epsilon that noise really gives.
    """

    version: Annotated[Literal["ours", "authors"], tyro.conf.arg(name="as")] = "ours"

    @property
    def variant(self) -> str:
        """Returns what distinguishes the names of the files."""
        return self.version

    @property
    def rewards(self) -> str:
        """Returns the law of rewards: in [0, 1] for certified runs, and the paper's Gaussian law otherwise."""
        return "gaussian" if self.authors else "bernoulli"

    @property
    def authors(self) -> bool:
        """Returns whether the authors' version was asked for."""
        return self.version == "authors"

    def ucb(self, **parameters: Any) -> fb.algos.UCB:
        """Returns the UCB policy with the confidence width of this version."""
        return (authors.UCB if self.authors else fb.algos.UCB)(**parameters)

    def fed_lin_ucb(self, **widths: Any) -> fb.Algorithm:
        """Returns FedLinUCB, without privacy, in this version."""
        return fb.algos.fed_lin_ucb(policy=self.ucb(**widths))

    def private_fed_lin_ucb(
        self,
        budget: fb.privacy.Budget,
        name: str = "LDP-FedLinUCB",
        *,
        release: str = "tree",
        trust: str = "silo_local",
        **widths: Any,
    ) -> fb.Algorithm:
        """Returns Private-FedLinUCB in this version; `name` is the paper's for its trust model."""
        std = authors.NOISE[trust] if self.authors else None
        privacy = fb.privacy.Mechanism(
            budget, release, trust, std=std, statistic=fb.privacy.Linear(clip=not self.authors)
        )
        return fb.algos.private_fed_lin_ucb(privacy, policy=self.ucb(**widths), learns_in_batch=self.authors, name=name)


@dataclasses.dataclass(frozen=True)
class RealOptions(Options):
    """Draw a figure on real data.

    Args:
        mslr: folder of your copy of MSLR-WEB10K; by default scikit-learn's digits stand in for it.
    """

    mslr: tyro.conf.DisallowNone[Path | None] = None

    def environment(self, features: str, components: int, n_agents: int) -> tuple[Any, str]:
        """Returns the environment with these features of MSLR-WEB10K, or with its stand-in, and a title.

        The stand-in has so many principal components of digits. Ours on MSLR has the mean (1 + <x, theta>) / 2, which
        is in [0, 1] and linear in (x, 1) / sqrt 2, so that d is larger by one, and rewards are 0 or 1. That of the
        authors is `RawRewards`.
        """
        if self.mslr is None:
            table = fb.data.classification("digits", components=components)
            env = fb.envs.replay(**table.arguments(), n_agents=n_agents, rewards=self.rewards)
            return env, "digits in place of MSLR"
        if self.authors:
            raw = fb.data.mslr(self.mslr, features=features, penalty=1.0, normalise=False)
            return raw_rewards(raw, n_agents), f"{raw.title}, rewards without noise, not linear in what agents see"
        table = fb.data.mslr(self.mslr, features=features)
        rows = np.c_[table.features, np.ones(len(table.features), np.float32)] * np.float32(0.5**0.5 * (1 - 1e-6))
        theta = np.append(table.theta, 1.0) * 0.5**0.5
        env = fb.envs.replay(rows, table.query_sizes, theta, n_agents=n_agents, rewards="bernoulli")
        return env, table.title


@fb.pytree
class RawRewards:
    """Pays <raw features, theta> without noise, and offers normalised rows: the real-data bandit of the authors' code.

    Rewards are not bounded, and not linear in what agents are offered (Assumption 4.1 of the paper asks for both).
    """

    table: Any  # normalised rows, and their rewards as a last feature
    spec: fb.Spec = fb.static()

    def init(self, key: jax.Array) -> Any:
        """Returns the world of the table, and the rewards of a round."""
        return self.table.init(key), jax.numpy.zeros((self.spec.n_agents, self.spec.n_arms))

    def observe(self, key: jax.Array, world: Any, t: jax.Array) -> tuple[fb.Round, Any]:
        """Offers the normalised rows of a query to every agent."""
        offered, inner = self.table.observe(key, world[0], t)
        return fb.Round(offered.contexts[..., :-1], offered.mask), (inner, offered.contexts[..., -1])

    def pull(self, key: jax.Array, world: Any, offered: fb.Round, arms: jax.Array) -> fb.Feedback:
        """Returns the rewards of the rows played."""
        assert offered.mask is not None  # queries differ in size
        paid = jax.numpy.take_along_axis(world[1], arms[:, None], 1)[:, 0]
        return fb.Feedback(paid, jax.numpy.where(offered.mask, world[1], -jax.numpy.inf).max(1) - paid)


def raw_rewards(raw: fb.data.Queries, n_agents: int) -> RawRewards:
    """Returns the environment of raw rows and of a theta that was fitted to them."""
    rows = raw.features.astype(float)
    seen = rows / np.linalg.norm(rows, axis=1, keepdims=True) * (1 - 1e-6)
    both = np.c_[seen, rows @ raw.theta].astype(np.float32)
    table = fb.envs.replay(both, raw.query_sizes, np.eye(both.shape[1])[-1], n_agents=n_agents)
    spec = dataclasses.replace(
        table.spec, dim=seen.shape[1], max_norm=float(np.linalg.norm(both[:, :-1], axis=1).max())
    )
    return RawRewards(table=table, spec=spec)


def unclipped(result: fb.Result, label: str) -> str:
    """Returns for which epsilon the noise would do if rewards were clipped, as certificates without a claim say it."""
    certificate = result[label].certificate
    found = re.search(r"were they.*gives epsilon = (\S+?)[,;.]?(?:\s|$)", certificate.reason)
    return f", noise for ε = {float(found[1]):.2g}" if found else ""


def finish(
    name: str,
    options: Options,
    measure: Callable[[], dict[str, tuple[Any, fb.Result]]],
    claims: Sequence[tuple[str, str]] = (),
    *,
    says: Says,
    at_end: bool = False,
) -> None:
    """Draws panels side by side, saves picture, numbers and results, prints summaries and claims.

    Args:
        name: name of the picture.
        options: the options of the command line.
        measure: runs everything; returns title -> environment and result.
        claims: pairs of labels, of which the paper says that the first has less regret; whether it was seen is written
            below the picture.
        says: what the paper says; `seen` is put before the verdicts.
        at_end: draw regret at T and paired differences, as for curves that all lie on uniform play.
    """
    suffix = f"{name}_{options.variant}"

    def measured() -> list[Curve]:
        curves = []
        for i, (title, (env, result)) in enumerate(measure().items()):
            if not options.smoke:
                result.save(Path("results") / f"{suffix}_{'abcdef'[i]}")
            print(f"\n{title}\n{result.summary()}")
            for label in result:
                print(f"  {label}: {result[label].certificate.claim}, {result[label].certificate.reason}")
            panel = kept.of_result(result, title)
            panel = [dataclasses.replace(one, note=one.note + unclipped(result, one.label)) for one in panel]
            x = panel[0].x
            curves += [*panel, Curve(title, "uniform play", x, random_play(env, options.seed) * x, "#999999 -.")]
        return curves

    curves = options.numbers(suffix, measured)
    shown = [_worded(one) for one in curves] if at_end else _shaded([_worded(one) for one in curves])
    titles = list(dict.fromkeys(one.panel for one in shown))
    pairs = [(spaced(in_words(better)), spaced(in_words(worse))) for better, worse in claims]
    panels = {title: kept.pick(shown, title) for title in titles}
    lines = [
        dataclasses.replace(says, where=title.split(":")[0], seen=says.seen + _found(panel, pairs, at_end))
        for title, panel in panels.items()
    ]
    figure = _ends(shown, pairs) if at_end else _over_rounds(panels)
    who = "certified" if options.variant == "ours" else "with the authors' constants and agents"
    titled = f"{titles[0]}, " if at_end else ""
    size = f"T = {shown[0].x[-1]:,.0f}, mean of {shown[0].n_seeds} seeds ± 95 % interval"
    headline(figure, f"Private-FedLinUCB, {who}", f"{titled}{size}")
    caption(figure, "Zhou & Chowdhury (2024)", *lines)
    save(suffix, options, figure, curves)


def _worded(one: Curve) -> Curve:
    """Returns a curve with words for its label and panel, and a note of what is not private."""
    note = one.note or ("" if one.label == "uniform play" else "not private")
    return dataclasses.replace(one, label=spaced(in_words(one.label)), panel=spaced(one.panel), note=note)


def _shaded(curves: Sequence[Curve]) -> list[Curve]:
    """Returns curves with one style for every label in all panels.

    Those of an algorithm with other budgets are shades of its colour, the darker the later, and have markers.
    """
    alike: dict[str, list[str]] = {}
    for one in curves:
        names = alike.setdefault(one.style.split()[0], [])
        names += [one.label] * (one.label not in names)
    shown = []
    for one in curves:
        colour, line, *_ = one.style.split()
        n, i = len(alike[colour]), alike[colour].index(one.label)
        mixed = np.linspace(0.55, -0.55, n)[i] if n > 1 else 0.0
        red, green, blue = np.array(to_rgb(colour)) * (1 - abs(mixed)) + max(mixed, 0.0)
        style = " ".join([to_hex((red, green, blue)), line, ("", *fb.plotting.MARKERS)[i]]).strip()
        shown.append(dataclasses.replace(one, style=style))
    return shown


def _found(panel: Sequence[Curve], pairs: Sequence[tuple[str, str]], in_percent: bool) -> str:
    """Returns for the caption whether the claims hold in a panel, and what the noise of both would be enough for."""
    of, random = {one.label: one for one in panel}, panel[-1].mean[-1]
    found, unequal = [], []
    for better, worse in pairs:
        if not {better, worse} <= set(of):
            continue
        a, b = of[better].y[-1], of[worse].y[-1]
        found.append(f"{better} < {worse} {kept.verdict(a, b)}")
        if in_percent:
            found[-1] += " ({:.1f} ± {:.1f} % of uniform play's)".format(*np.array(kept.interval(b - a)) / random * 100)
        given = [re.findall(r"noise for (ε = .*)", of[label].note) for label in (better, worse)]
        if all(given) and given[0] != given[1] and re.findall("ε = .*", better) == re.findall("ε = .*", worse):
            unequal.append(f"{given[0][0]} against {given[1][0].removeprefix('ε = ')}")
    text = "; ".join(found) + f" (group regret at T, {panel[0].n_seeds} paired seeds, 95 % intervals)"
    if in_percent:
        shares = [(one.label, *np.array(kept.interval(one.y[-1])) / random * 100) for one in panel[:-1]]
        text += f"; in % of uniform play's {random:,.0f}: " + ", ".join("{} {:.1f} ± {:.1f}".format(*s) for s in shares)
    if enough := [f"{one.note.split('noise for ')[1]} ({one.label})" for one in panel if "noise for" in one.note]:
        text += f"; the noise would do for {', '.join(enough)} at the δ asked for, "
        text += "if rewards were clipped and agents acted on released statistics only"
        text += " (ε = 0: δ alone allows for less noise)" if any(one.startswith("ε = 0 ") for one in enough) else ""
    if unequal:
        text += f"; so the privacy compared is not equal: {', '.join(unequal)}"
    if "digits" in panel[0].panel:
        classes, d = (int(re.findall(rf"{what} (\d+)", panel[0].panel)[0]) for what in ("K ≤", "d ="))
        text += f"; digits: a user is one of scikit-learn's 1,797 images, the {classes} arms are its classes, and "
        text += f"d = {classes} · {(d - 1) // classes} principal components + 1"
    return text


def _over_rounds(panels: dict[str, list[Curve]]) -> Figure:
    """Draws time-average regret over rounds with 95 % intervals, and one legend for all panels."""
    figure, axes = plt.subplots(ncols=len(panels), figsize=(min(7.0 * len(panels), 11.0), 5.2))
    for (title, panel), ax in zip(panels.items(), np.atleast_1d(axes)):
        draw(panel, ax, average=True, band=float(stats.t.ppf(0.975, panel[0].n_seeds - 1)))
        after = np.array([one.mean[-1] / one.x[-1] for one in panel])
        if after.max() > 8 * after.min():
            ax.set(yscale="log")
        else:
            ax.set(ylim=(0.8 * after.min(), 1.15 * after.max()))
        ax.set(xlabel="round $t$", ylabel="time-average group regret, Reg$(t)/t$")
        ax.set_title(title)
    legend_of_all(figure, ncols=len(panels))
    return figure


def _ends(panel: Sequence[Curve], pairs: Sequence[tuple[str, str]]) -> Figure:
    """Draws regret at T as a share of that of uniform play, and paired differences of the pairs of the claims."""
    *others, random = panel
    size = 11.0, 1.9 + 0.45 * len(others)
    figure, (left, right) = plt.subplots(ncols=2, figsize=size, width_ratios=(3, 2))
    of = {one.label: one.y[-1] / random.mean[-1] * 100 for one in others}
    for place, one in enumerate(others):
        _dot(left, place, of[one.label], one.style.split()[0])
    left.set_yticks(range(len(others)), [named(one).replace(": no p", ":\nno p") for one in others])
    left.axvline(100, color="#999999", linestyle="-.")
    left.annotate("uniform play", (100, -0.95), ha="right", va="center", xytext=(-4, 0), textcoords="offset points")
    left.set(xlabel="group regret at T in % of uniform play's", xlim=(-13, 118), ylim=(len(others) - 0.5, -1.4))
    left.set_title("(a) every algorithm")
    pairs = [pair for pair in pairs if "FedLinUCB" not in pair]
    for place, (better, worse) in enumerate(pairs):
        _dot(right, place, of[worse] - of[better], "#000000")
    right.set_yticks(range(len(pairs)), [f"{worse.split(',')[0]} −\n{better}" for better, worse in pairs])
    right.axvline(0, color="#999999", linestyle=":")
    reach = 1.15 * max(map(abs, right.get_xlim()))
    right.set(xlabel="paired difference, in the same %", xlim=(-reach, reach), ylim=(len(pairs) - 0.5, -0.5))
    right.set_title("(b) the paper claims more than 0")
    for ax in (left, right):
        ax.grid(False, axis="y")
    return figure


def _dot(ax: Axes, place: int, values: np.ndarray, colour: str) -> None:
    """Draws the mean of values (S,) with its 95 % interval, and writes both above."""
    mean, half = kept.interval(values)
    ax.errorbar(mean, place, xerr=half, fmt="o", color=colour, capsize=3)
    look: dict[str, Any] = dict(fontsize="small", bbox=dict(facecolor="white", edgecolor="none", pad=1))
    place_of_text: dict[str, Any] = dict(ha="center", va="bottom", xytext=(0, 6), textcoords="offset points")
    digits = 1 if half >= 0.05 else 2
    ax.annotate(f"{mean:.{digits}f} ± {half:.{digits}f}", (mean, place), **place_of_text, **look)
