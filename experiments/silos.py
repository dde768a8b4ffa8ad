"""What the figures of Zhou & Chowdhury (2024) share: their options in two versions, the real data, and the drawing.

Letters: K arms, T rounds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import authors
import jax
import numpy as np
import tyro
from curves import Curve, interval, of_result, panels, pick, pm, random_play, verdict
from drawing import CHANCE, Panel, Picture, Says, show, spaced
from matplotlib.colors import to_hex, to_rgb
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import in_words

LDP, SDP, VECTOR_SUM, SECAGG = "LDP-FedLinUCB", "SDP-FedLinUCB", "SDP-FedLinUCB (vector sum)", "SecAgg-FedLinUCB"
MODELS = {  # trust model and release; the paper has no secure aggregation
    LDP: ("silo_local", "tree"),
    SDP: ("shuffle_amplified", "tree"),
    VECTOR_SUM: ("shuffle_vector_sum", "tree"),
    SECAGG: ("secagg", "blt"),
}
WHO = {"ours": "certified", "authors": "with the authors' constants and agents"}
AnyOptions = TypeVar("AnyOptions", bound="Options")
Panels = dict[str, tuple[Any, fb.Result]]  # title -> environment and result
NARROW: dict[str, Any] = dict(exploration_scale=0.1, subgaussian=1.0)  # widths on real data


@dataclasses.dataclass(frozen=True)
class Options(Size):
    """Draw a figure, in one of two versions.

    Args:
        version: ours is certified. Agents act on released statistics only, noise is calibrated exactly, and rewards are
            in [0, 1]. authors has the noise and the constants of the authors' code, agents that learn inside the batch,
            and Gaussian rewards. Instances are our own, as that code has one for all seeds. Its certificate says which
            epsilon that noise really gives.
    """

    caveat = ""  # what captions say before the verdicts
    version: Annotated[Literal["ours", "authors"], tyro.conf.arg(name="as")] = "ours"

    @property
    def variant(self) -> str:
        return self.version

    @property
    def rewards(self) -> str:
        """Returns the law of rewards: in [0, 1] for certified runs, and the paper's Gaussian law otherwise."""
        return "gaussian" if self.version == "authors" else "bernoulli"

    def sphere(self) -> fb.Environment:
        """Returns the synthetic instance."""
        return fb.envs.sphere(*self.shape(100, 100, 10), rewards=self.rewards)

    def algorithms(self, budget: fb.privacy.Budget, *names: str, **widths: Any) -> list[fb.Algorithm]:
        """Returns FedLinUCB, and Private-FedLinUCB in these models; the authors' version leaves out `SECAGG`."""
        theirs = self.version == "authors"
        policy = (authors.UCB if theirs else fb.algos.UCB)(**widths)
        algos: list[fb.Algorithm] = [fb.algos.fed_lin_ucb(policy=policy)]
        for name in names:
            (trust, release), statistic = MODELS[name], fb.privacy.Linear(clip=not theirs)
            if theirs and name == SECAGG:
                continue
            std = authors.NOISE[trust] if theirs else None
            privacy = fb.privacy.Mechanism(budget, release, trust, std=std, statistic=statistic)
            algos.append(fb.algos.private_fed_lin_ucb(privacy, policy=policy, learns_in_batch=theirs, name=name))
        return algos


@dataclasses.dataclass(frozen=True)
class RealOptions(Options):
    """Draw a figure on real data.

    Args:
        mslr: folder of your copy of MSLR-WEB10K; by default scikit-learn's digits stand in for it.
    """

    mslr: tyro.conf.DisallowNone[Path | None] = None

    @property
    def caveat(self) -> str:
        missing = "not tested, as there is no copy of MSLR here; on digits, which are nothing like it, "
        return "" if self.mslr else missing

    def environment(self, features: str, components: int, n_agents: int) -> tuple[Any, str]:
        """Returns the environment with these features of MSLR-WEB10K, or with its stand-in, and a title.

        The stand-in has so many principal components of digits. Ours on MSLR has rewards of 0 or 1 with the mean
        (1 + <x, theta>) / 2, which is in [0, 1]. It is linear in (x, 1) / sqrt 2, so d is larger by one. The authors
        have `RawRewards`.
        """
        if self.mslr is None:
            table = fb.data.classification("digits", components=components)
            env = fb.envs.replay(**table.arguments(), n_agents=n_agents, rewards=self.rewards)
            return env, "digits in place of MSLR"
        if self.version == "authors":
            raw = fb.data.mslr(self.mslr, features=features, penalty=1.0, normalise=False)
            return raw_rewards(raw, n_agents), f"{raw.title}, rewards without noise, not linear in what agents see"
        table = fb.data.mslr(self.mslr, features=features)
        rows = np.c_[table.features, np.ones(len(table.features), np.float32)] * np.float32(0.5**0.5 * (1 - 1e-6))
        theta = np.append(table.theta, 1.0) * 0.5**0.5
        return fb.envs.replay(rows, table.query_sizes, theta, n_agents=n_agents, rewards="bernoulli"), table.title


@fb.pytree
class RawRewards:
    """Pays <raw features, theta> without noise, and offers normalised rows: the real-data bandit of the authors' code.

    Rewards are not bounded, and not linear in what agents are offered (Assumption 4.1 of the paper asks for both). The
    world has those of a round.
    """

    table: Any  # normalised rows, and their rewards as a last feature
    spec: fb.Spec = fb.static()

    def init(self, key: jax.Array) -> Any:
        return self.table.init(key), jax.numpy.zeros((self.spec.n_agents, self.spec.n_arms))

    def observe(self, key: jax.Array, world: Any, t: jax.Array) -> tuple[fb.Round, Any]:
        offered, inner = self.table.observe(key, world[0], t)
        return fb.Round(offered.contexts[..., :-1], offered.mask), (inner, offered.contexts[..., -1])

    def pull(self, key: jax.Array, world: Any, offered: fb.Round, arms: jax.Array) -> fb.Feedback:
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


def draw(
    measure: Callable[[AnyOptions], Panels],
    claims: Sequence[tuple[str, str]],
    says: tuple[str, str],
    doc: str | None,
    options: type[AnyOptions] = Options,
    at_end: bool = False,
) -> None:
    """Draws panels side by side, and says whether the paper's order was seen.

    Args:
        measure: runs everything.
        claims, says: pairs of labels, of which the paper says that the first has less regret; its words, and its size.
        doc, options: the text of --help, and the type of the options.
        at_end: draw regret at T and paired differences, as for curves that all lie on uniform play.
    """
    asked = tyro.cli(options, description=doc)

    def measured() -> list[Curve]:
        curves = []
        for title, (env, result) in measure(asked).items():
            print(f"\n{title}\n{result.summary()}")
            for one in of_result(result, title):
                found = result[one.label].certificate
                print(f"  {one.label}: {found.claim}, {found.reason}")
                enough = re.search(r"were they.*gives epsilon = (\S+?)[,;.]?(?:\s|$)", found.reason)  # if it clipped
                curves.append(one.but(note=one.note + (f", noise for ε = {float(enough[1]):.2g}" if enough else "")))
            x = curves[-1].x
            curves.append(Curve(title, CHANCE, x, random_play(env, asked.seed) * x, "#999999 -."))
        return curves

    def picture(curves: list[Curve]) -> Picture:
        curves = [one.but(label=spaced(in_words(one.label)), panel=spaced(one.panel)) for one in curves]
        curves = [one.but(note=one.note or "not private" * (one.label != CHANCE)) for one in curves]
        pairs, found = [(spaced(in_words(a)), spaced(in_words(b))) for a, b in claims], panels(curves)
        seen = {title: asked.caveat + _found(pick(curves, title), pairs, at_end) for title in found}
        lines = [Says(title.split(":")[0], *says, words) for title, words in seen.items()]
        name = f"Private-FedLinUCB, {WHO[asked.version]}"
        size = f"T = {curves[0].x[-1]:,.0f}. Mean of {curves[0].n_seeds} seeds ± 95 % interval"
        if at_end:
            return Picture(_ends(curves, pairs), name, f"{found[0]}, {size}", lines, height=1.4 + 0.32 * len(curves))
        return Picture(_over_rounds(_shaded(curves)), name, size, lines, ncols=len(found))

    show(asked, measured, picture)


def _shaded(curves: Sequence[Curve]) -> list[Curve]:
    """Returns curves with one style for every label in all panels.

    Those of an algorithm with other budgets are shades of its colour, the darker the later, and have markers.
    """
    shown = []
    for one in curves:
        colour, line, *_ = one.style.split()
        alike = list(dict.fromkeys(other.label for other in curves if other.style.split()[0] == colour))
        n, i = len(alike), alike.index(one.label)
        mixed = np.linspace(0.55, -0.55, n)[i] if n > 1 else 0.0
        red, green, blue = np.array(to_rgb(colour)) * (1 - abs(mixed)) + max(mixed, 0.0)
        shown.append(one.but(style=f"{to_hex((red, green, blue))} {line} {('', *fb.plotting.MARKERS)[i]}"))
    return shown


def _found(panel: Sequence[Curve], pairs: Sequence[tuple[str, str]], in_percent: bool) -> str:
    """Returns for the caption whether the claims hold in a panel, and what the noise would be enough for."""
    *others, chance = panel
    of, unit, found = {one.label: one.y[-1] for one in others}, chance.mean[-1] / 100, []
    for better, worse in pairs:
        if {better, worse} <= of.keys():
            share = f" ({pm(*interval((of[worse] - of[better]) / unit), 1)} %)" * in_percent
            found.append(f"{better} < {worse} {verdict(of[better], of[worse])}{share}")
    found[-1] += f" (group regret at T, {others[0].n_seeds} paired seeds, 95 % intervals"
    shares = ", ".join(f"{label} {pm(*interval(y / unit), 1)}" for label, y in of.items())
    found[-1] += f"; % of uniform play's {unit * 100:,.0f}); in %: {shares}" if in_percent else ")"
    if enough := [f"{one.note.split('noise for ')[1]} ({one.label})" for one in others if "noise for" in one.note]:
        words = "with clipped rewards and agents that act on released statistics, noise gives"
        found.append(f"{words} {', '.join(enough)}")
    if "digits" in chance.panel:
        found.append("digits: a user is one of scikit-learn's 1,797 images, and arms are its classes")
    return "; ".join(found)


def _over_rounds(curves: Sequence[Curve]) -> list[Panel]:
    """Returns panels of time-average regret over rounds with 95 % intervals."""
    shown = []
    for title in panels(curves):
        ones = [one.per(one.x) for one in pick(curves, title)]
        words = title, "round $t$", "time-average group regret, Reg$(t)/t$"
        after = np.array([one.mean[-1] for one in ones])
        far = after.max() > 8 * after.min()
        axes: Any = dict(yscale="log") if far else dict(ylim=(0.8 * after.min(), 1.15 * after.max()))
        shown.append(Panel(ones, *words, kind="lines", label="{label}: {note}", band=None, **axes))
    return shown


def _ends(curves: Sequence[Curve], pairs: Sequence[tuple[str, str]]) -> list[Panel]:
    """Returns panels of regret at T as a share of uniform play's, and of paired differences of the claims."""
    *others, chance = curves
    of = {one.label: one.y[-1] / chance.mean[-1] * 100 for one in others}
    axes: dict[str, Any] = dict(kind="rows", band=None, numbers="{mean:.1f} ± {error:.1f}")
    shares = [Curve("", f"{one.label}:\n{one.note}", [0], [of[one.label]], one.style.split()[0]) for one in others]
    pairs = [pair for pair in pairs if "FedLinUCB" not in pair]
    less = [Curve("", f"{b.split(',')[0]} −\n{a}", [0], [of[b] - of[a]], "#000000") for a, b in pairs]
    words = "every algorithm", "group regret at T in % of uniform play's"
    left = Panel(shares, *words, level={CHANCE: 100}, xlim=(-15, 120), **axes)
    right = Panel(less, "the paper claims more than 0", "paired difference, in the same %", **axes)
    right.also = lambda ax: (ax.axvline(0, color="#999999", linestyle=":"), ax.margins(x=0.2))
    return [left, right]
