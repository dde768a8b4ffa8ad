"""What the figures of Zhou & Chowdhury (2024) share: their options in two versions, the real data, and the drawing.

Letters: K arms, T rounds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import curves as kept
import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, random_play
from drawing import Says, caption, draw, legend_of_all, save, spaced
from options import Size

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
        return fb.algos.UCB(confidence="authors" if self.authors else "theory", **parameters)

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
        noise = "authors" if self.authors else "tight"
        privacy = fb.privacy.Mechanism(
            budget, release, trust, calibration=noise, statistic=fb.privacy.Linear(clip=not self.authors)
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
            return fb.envs.replay(**table.replay_arguments(), n_agents=n_agents, rewards=self.rewards), table.title
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


def raw_rewards(raw: fb.data.Table, n_agents: int) -> RawRewards:
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
    """Returns what the noise would be worth if rewards were clipped, as certificates without a claim say it, or ""."""
    certificate = result[label].certificate
    found = re.search(r"were they.*gives epsilon = (\S+?)[,;.]?(?:\s|$)", certificate.reason)
    return f", noise worth ε = {float(found[1]):.2g}" if found else ""


def finish(
    name: str,
    options: Options,
    measure: Callable[[], dict[str, tuple[Any, fb.Result]]],
    claims: Sequence[tuple[str, str]] = (),
    *,
    says: Says,
) -> None:
    """Draws panels side by side, saves picture, numbers and results, prints summaries and claims.

    Args:
        name: name of the picture.
        options: the options of the command line.
        measure: runs everything; returns title -> environment and result.
        claims: pairs of labels, of which the paper says that the first has less regret; whether it was seen is written
            below the picture.
        says: what the paper says; `seen` is put before the verdicts.
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
            curves += [*panel, Curve(title, "random play", x, random_play(env, options.seed) * x, "#999999 :")]
        return curves

    curves = options.numbers(suffix, measured)
    titles = list(dict.fromkeys(one.panel for one in curves))
    near = any(len(_near(kept.pick(curves, title))) > 1 for title in titles)
    rows: dict[str, Any] = dict(nrows=2, height_ratios=(2, 1), sharex="col") if near else dict(nrows=1)
    size = (min(7.0 * len(titles), 11.0), 6.6 if near else 5.2)
    figure, axes = plt.subplots(ncols=len(titles), figsize=size, layout="constrained", squeeze=False, **rows)
    found = []
    for title, ax, *under in zip(titles, *axes):
        panel = [dataclasses.replace(one, label=spaced(in_words(one.label))) for one in kept.pick(curves, title)]
        draw(panel, ax, average=True)
        ends = {one.label: one.y[-1] for one in panel}
        for better, worse in (map(spaced, map(in_words, claim)) for claim in claims):
            if better in ends and worse in ends:
                found.append(f"{title.split(':')[0]}, {better} < {worse}: {kept.verdict(ends[better], ends[worse])}")
        after = np.array([one.mean[-1] / one.x[-1] for one in panel])
        if after.max() > 8 * after.min():
            ax.set(yscale="log")
        else:
            ax.set(ylim=(0.8 * after.min(), 1.15 * after.max()))
        for below in under:
            draw(_near(panel), below)
            below.set(ylabel="regret / random play's")
            below.axhline(1, color="#999999", linestyle=":")
        for one in (ax, *under):
            one.grid(alpha=0.3)
        ax.set(ylabel="time-average group regret, Reg$(t)/t$")
        ax.set_title(spaced(title), fontsize="medium")
        (ax, *under)[-1].set_xlabel("round $t$")
    who = "certified version" if options.variant == "ours" else "constants and agents of the authors' code"
    size = f"T = {curves[0].x[-1]:,.0f}, mean of {curves[0].n_seeds} seeds ± one standard error"
    figure.suptitle(f"{who}; {size}", fontsize="medium")
    legend_of_all(figure, ncols=len(titles))
    seeds = max(one.n_seeds for one in curves)
    seen = f"{says.seen}; " if says.seen else ""
    seen += "; ".join(found) + f" (group regret at T, {seeds} paired seeds, 95 % intervals)"
    if any("worth" in one.note for one in curves):
        seen += "; the noise would be worth the ε of the legend, at the δ asked for, if rewards were clipped"
    caption(figure, "Zhou & Chowdhury (2024)", dataclasses.replace(says, seen=seen))
    print("\n".join(found))
    save(suffix, options, figure, curves)


def _near(panel: Sequence[Curve]) -> list[Curve]:
    """Returns the curves of a panel whose regret ends near that of random play, its last, and in units of that."""
    *others, random = panel
    return [
        dataclasses.replace(one, y=one.y / random.mean[:, None])
        for one in others
        if 0.7 < one.mean[-1] / random.mean[-1] < 1.3
    ]
