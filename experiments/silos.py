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
import jax
import numpy as np
import tyro
from curves import Curve, interval, of_result, panels, pick, pm, random_play, verdict
from drawing import CHANCE, Panel, Picture, Says, show, spaced
from matplotlib.colors import to_hex, to_rgb
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
    options: Options,
    measure: Callable[[], dict[str, tuple[Any, fb.Result]]],
    claims: Sequence[tuple[str, str]],
    says: Says,
    *,
    at_end: bool = False,
) -> None:
    """Draws panels side by side, and says whether the paper's order was seen.

    Args:
        options: the options of the command line.
        measure: runs everything; returns title -> environment and result.
        claims: pairs of labels, of which the paper says that the first has less regret.
        says: what the paper says; `seen` is put before the verdicts.
        at_end: draw regret at T and paired differences, as for curves that all lie on uniform play.
    """

    def measured() -> list[Curve]:
        curves = []
        for title, (env, result) in measure().items():
            print(f"\n{title}\n{result.summary()}")
            for label in result:
                print(f"  {label}: {result[label].certificate.claim}, {result[label].certificate.reason}")
            panel = of_result(result, title)
            x = panel[0].x
            curves += [one.but(note=one.note + unclipped(result, one.label)) for one in panel]
            curves.append(Curve(title, CHANCE, x, random_play(env, options.seed) * x, "#999999 -."))
        return curves

    def picture(curves: list[Curve]) -> Picture:
        curves = [_worded(one) for one in curves]
        pairs = [(spaced(in_words(better)), spaced(in_words(worse))) for better, worse in claims]
        found = {title: pick(curves, title) for title in panels(curves)}
        lines = [
            dataclasses.replace(says, where=title.split(":")[0], seen=says.seen + _found(panel, pairs, at_end))
            for title, panel in found.items()
        ]
        who = "certified" if options.variant == "ours" else "with the authors' constants and agents"
        size = f"T = {curves[0].x[-1]:,.0f}. Mean of {curves[0].n_seeds} seeds ± 95 % interval"
        shown, titled = (
            (_ends(curves, pairs), f"{next(iter(found))}, ") if at_end else (_over_rounds(_shaded(curves)), "")
        )
        height, ncols = (1.4 + 0.32 * len(curves), 3) if at_end else (3.7, len(found))
        return Picture(shown, f"Private-FedLinUCB, {who}", f"{titled}{size}", lines, height=height, ncols=ncols)

    show(options, measured, picture)


def _worded(one: Curve) -> Curve:
    """Returns a curve with words for its label and panel, and a note of what is not private."""
    note = one.note or ("" if one.label == CHANCE else "not private")
    return one.but(label=spaced(in_words(one.label)), panel=spaced(one.panel), note=note)


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
        shown.append(one.but(style=f"{to_hex((red, green, blue))} {line} {('', *fb.plotting.MARKERS)[i]}"))
    return shown


def _found(panel: Sequence[Curve], pairs: Sequence[tuple[str, str]], in_percent: bool) -> str:
    """Returns for the caption whether the claims hold in a panel, and what the noise would be enough for."""
    ends, chance, found = {one.label: one.y[-1] for one in panel}, panel[-1].mean[-1], []
    for better, worse in pairs:
        if {better, worse} <= ends.keys():
            share = pm(*np.array(interval(ends[worse] - ends[better])) / chance * 100, digits=1)
            found.append(f"{better} < {worse} {verdict(ends[better], ends[worse])}" + f" ({share} %)" * in_percent)
    text = f"{'; '.join(found)} (group regret at T, {panel[0].n_seeds} paired seeds, 95 % intervals"
    text += f"; % of uniform play's {chance:,.0f})" if in_percent else ")"
    if in_percent:
        shares = [f"{one.label} {pm(*np.array(interval(one.y[-1])) / chance * 100, digits=1)}" for one in panel[:-1]]
        text += f"; in %: {', '.join(shares)}"
    if enough := [f"{one.note.split('noise for ')[1]} ({one.label})" for one in panel if "noise for" in one.note]:
        text += f"; with clipped rewards and agents that act on released statistics, noise gives {', '.join(enough)}"
    if "digits" in panel[0].panel:
        text += "; digits: a user is one of scikit-learn's 1,797 images, and arms are its classes"
    return text


def _over_rounds(curves: Sequence[Curve]) -> list[Panel]:
    """Returns panels of time-average regret over rounds with 95 % intervals."""
    shown, band = [], float(stats.t.ppf(0.975, curves[0].n_seeds - 1))
    for title in panels(curves):
        ones = [one.per(one.x) for one in pick(curves, title)]
        words = title, "round $t$", "time-average group regret, Reg$(t)/t$"
        shown.append(Panel(ones, *words, kind="lines", label="{label}: {note}", band=band))
        after = np.array([one.mean[-1] for one in ones])
        far = after.max() > 8 * after.min()
        shown[-1].axes |= dict(yscale="log") if far else dict(ylim=(0.8 * after.min(), 1.15 * after.max()))
    return shown


def _ends(curves: Sequence[Curve], pairs: Sequence[tuple[str, str]]) -> list[Panel]:
    """Returns panels of regret at T as a share of uniform play's, and of paired differences of the claims."""
    *others, chance = curves
    of = {one.label: one.y[-1] / chance.mean[-1] * 100 for one in others}
    band = float(stats.t.ppf(0.975, others[0].n_seeds - 1))
    axes: dict[str, Any] = dict(kind="rows", band=band, numbers="{mean:.1f} ± {error:.1f}", label="{label}")
    shares = [Curve("", f"{one.label}:\n{one.note}", [0], [of[one.label]], one.style.split()[0]) for one in others]
    left = Panel(shares, "every algorithm", "group regret at T in % of uniform play's", **axes)
    left.level, left.axes["xlim"] = {CHANCE: 100}, (-15, 120)
    pairs = [pair for pair in pairs if "FedLinUCB" not in pair]
    less = [Curve("", f"{b.split(',')[0]} −\n{a}", [0], [of[b] - of[a]], "#000000") for a, b in pairs]
    right = Panel(less, "the paper claims more than 0", "paired difference, in the same %", **axes)
    right.also = lambda ax: (ax.axvline(0, color="#999999", linestyle=":"), ax.margins(x=0.2))
    return [left, right]
