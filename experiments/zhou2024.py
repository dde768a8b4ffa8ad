"""Figures 2 and 3 of Zhou & Chowdhury (2024), certified and with the constants of the authors' code.

Letters: K arms, T rounds.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import authors
import jax
import numpy as np
import tyro
from curves import Curve, of_result, panels, pick, random_play
from drawing import CHANCE, Experiment, Panel, Picture, spaced
from matplotlib.colors import to_hex, to_rgb
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import in_words

PLAIN = "FedLinUCB"
LDP, SDP, VECTOR_SUM, SECAGG = "LDP-FedLinUCB", "SDP-FedLinUCB", "SDP-FedLinUCB (vector sum)", "SecAgg-FedLinUCB"
MODELS = {  # trust model and release; the paper has no secure aggregation
    LDP: ("silo_local", "tree"),
    SDP: ("shuffle_amplified", "tree"),
    VECTOR_SUM: ("shuffle_vector_sum", "tree"),
    SECAGG: ("secagg", "blt"),
}
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

    version: Annotated[Literal["ours", "authors"], tyro.conf.arg(name="as")] = "ours"

    @property
    def variant(self) -> str:
        return self.version

    @property
    def rewards(self) -> str:
        """Returns the law of rewards: in [0, 1] for certified runs, and the paper's Gaussian law otherwise."""
        return "gaussian" if self.version == "authors" else "bernoulli"

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


def curves_of(play: Callable[[Any], Panels]) -> Callable[[Any], list[Curve]]:
    """Returns a function of curves, with uniform play and claims, from one of environments and results by title."""

    @functools.wraps(play)
    def measure(options: Options) -> list[Curve]:
        curves = []
        for title, (env, result) in play(options).items():
            print(f"\n{title}\n{result.summary()}")
            for one in of_result(result, title):
                found = result[one.label].certificate
                print(f"  {one.label}: {found.claim}, {found.reason}")
                enough = re.search(r"were they.*gives epsilon = (\S+?)[,;.]?(?:\s|$)", found.reason)  # if it clipped
                curves.append(one.but(note=one.note + (f", noise for ε = {float(enough[1]):.2g}" if enough else "")))
            x = curves[-1].x
            curves.append(Curve(title, CHANCE, x, random_play(env, options.seed) * x, "#999999 -."))
        return curves

    return measure


def in_full(curves: Sequence[Curve]) -> tuple[list[Curve], str, str]:
    """Returns curves with labels and notes in words, the title of their picture, and their size."""
    found = [one.but(label=spaced(in_words(one.label)), panel=spaced(one.panel)) for one in curves]
    found = [one.but(note=one.note or "not private" * (one.label != CHANCE)) for one in found]
    ours = any(one.note == "certified" for one in found)
    who = "certified" if ours else "with the authors' constants and agents"
    return (
        found,
        f"Private-FedLinUCB, {who}",
        f"T = {found[0].x[-1]:,.0f}. Mean of {found[0].n_seeds} seeds ± 95 % interval",
    )


def draw_rounds(curves: list[Curve]) -> Picture:
    """Returns panels of time-average regret over rounds with 95 % intervals."""
    curves, name, setting = in_full(curves)
    curves, shown = shaded(curves), []
    for title in panels(curves):
        ones = [one.per(one.x) for one in pick(curves, title)]
        words = title, "round $t$", "time-average group regret, Reg$(t)/t$"
        after = np.array([one.mean[-1] for one in ones])
        far = after.max() > 8 * after.min()
        axes: Any = dict(yscale="log") if far else dict(ylim=(0.8 * after.min(), 1.15 * after.max()))
        shown.append(Panel(ones, *words, kind="lines", label="{label}: {note}", band=None, **axes))
    return Picture(shown, name, setting, ncols=len(shown))


def draw_ends(curves: list[Curve]) -> Picture:
    """Returns panels of regret at T as a share of uniform play's, where all curves lie, and of paired differences.

    The paper claims that shuffling has less regret, so that differences are more than 0.
    """
    curves, name, setting = in_full(curves)
    *others, chance = curves
    of = {one.label: one.y[-1] / chance.mean[-1] * 100 for one in others}
    axes: dict[str, Any] = dict(kind="rows", band=None, numbers="{mean:.1f} ± {error:.1f}")
    shares = [Curve("", f"{one.label}:\n{one.note}", [0], [of[one.label]], one.style.split()[0]) for one in others]
    pairs = [(label, label.replace(SDP, LDP)) for label in of if label.startswith(SDP)]
    less = [Curve("", f"{b.split(',')[0]} −\n{a}", [0], [of[b] - of[a]], "#000000") for a, b in pairs]
    words = "every algorithm", "group regret at T in % of uniform play's"
    left = Panel(shares, *words, level={CHANCE: 100}, xlim=(-15, 120), **axes)
    right = Panel(less, "the paper claims more than 0", "paired difference, in the same %", **axes)
    right.also = lambda ax: (ax.axvline(0, color="#999999", linestyle=":"), ax.margins(x=0.2))
    return Picture([left, right], name, f"{chance.panel}, {setting}", height=1.4 + 0.32 * len(curves))


def shaded(curves: Sequence[Curve]) -> list[Curve]:
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


EPSILONS, DELTA = (1e-4, 1e-3), 1e-4
BUDGETS = {"a): δ=0.1": [(0.2, 0.1), (1, 0.1), (5, 0.1)], "b): ε=5": [(5, 0.1), (5, 0.01), (5, 0.001)]}
NAMES = {panel: [f"{LDP} (ε={epsilon}, δ={delta})" for epsilon, delta in of] for panel, of in BUDGETS.items()}


@curves_of
def fig2a(options: Options) -> Panels:
    """Draws Figure 2 (a) of Zhou & Chowdhury (2024): silo-level LDP against shuffle DP by
    amplification, at tiny budgets.

    The paper says that shuffling lowers regret. By the constants of its lemma, shuffling needs more noise than no
    shuffling. So ours has the same noise in both models. The authors' noise leaves the constant out.
    """
    algos = options.algorithms(fb.privacy.Budget(EPSILONS[0], DELTA), LDP, SDP, SECAGG)
    run, env = options.run(50, 10_000, 10_000, grid={"epsilon": list(EPSILONS)}), options.sphere()
    return {f"Fig. 2 (a): δ={DELTA:g}, M=100, K=100, d=10, B=25": (env, fb.sweep(env, algos, **run))}


@curves_of
def fig2b(options: Options) -> Panels:
    """Draws Figure 2 (b) of Zhou & Chowdhury (2024): silo-level LDP against shuffle DP by the vector-sum protocol.

    The authors' regulariser for the vector sum does not follow from its noise: 4,259, and 4,877 for silo-level LDP.
    """
    algos, env = options.algorithms(fb.privacy.Budget(0.2, 0.1), LDP, VECTOR_SUM), options.sphere()
    result = fb.sweep(env, algos, **options.run(50, 10_000, 10_000))
    return {"Fig. 2 (b): ε=0.2, δ=0.1, M=100, K=100, d=10, B=25": (env, result)}


@curves_of
def fig3ab(options: Options) -> Panels:
    """Draws Figure 3 (a) and (b) of Zhou & Chowdhury (2024): the cost of silo-level LDP on the synthetic instance."""
    algos, env = {PLAIN: options.algorithms(fb.privacy.Budget(5, 0.1))[0]}, options.sphere()
    for name, budget in zip(chain(*NAMES.values()), chain(*BUDGETS.values())):
        algos[name] = options.algorithms(fb.privacy.Budget(*budget), LDP)[1]
    result = fb.sweep(env, algos, **options.run(50, 10_000, 10_000))
    of = {panel: fb.concat([result[name] for name in (PLAIN, *names)]) for panel, names in NAMES.items()}
    return {f"Fig. 3 ({panel}, M=100, K=100, d=10, B=25": (env, found) for panel, found in of.items()}


@curves_of
def real(options: RealOptions) -> Panels:
    """Draws Figures 2 (c) and 3 (c) of Zhou & Chowdhury (2024): the cost of silo-level LDP on real data, M = 10 silos.

    Without your copy of MSLR-WEB10K (--mslr DIR) they are drawn on scikit-learn's digits, and their titles say so.
    """
    algos, panels = options.algorithms(fb.privacy.Budget(5.0, 0.1), LDP, **NARROW), {}
    run = options.run(50, 5_000, 25_000, grid={"epsilon": [0.2, 1, 5]})
    for figure, features, components in (("Fig. 2 (c)", "title", 5), ("Fig. 3 (c)", "body", 7)):
        env, of = options.environment(features, components, n_agents=10)
        size = f"δ=0.1, M=10, K ≤ {env.spec.n_arms}, d={env.spec.dim}, B=25"
        panels[f"{figure}: {of}\n{size}"] = env, fb.sweep(env, algos, **run)
    return panels


@curves_of
def fig3d(options: RealOptions) -> Panels:
    """Draws Figure 3 (d) of Zhou & Chowdhury (2024): shuffle DP by amplification on real data, M = 100 silos.

    Without your copy of MSLR-WEB10K (--mslr DIR) it is drawn on scikit-learn's digits, and its title says so.
    """
    env, of = options.environment("body", 7, n_agents=options.pick(10, 100, 100))
    algos = options.algorithms(fb.privacy.Budget(1e-4, 1e-4), LDP, SDP, SECAGG, **NARROW)
    size = f"ε = δ = 0.0001, M=100, K ≤ {env.spec.n_arms}, d={env.spec.dim}, B=25"
    return {f"Fig. 3 (d): {of}\n{size}": (env, fb.sweep(env, algos, **options.run(50, 5_000, 25_000)))}


FIGURES = {
    "zhou2024_fig2a": Experiment(fig2a, draw_ends, Options),
    "zhou2024_fig2b": Experiment(fig2b, draw_rounds, Options),
    "zhou2024_fig2c_fig3c": Experiment(real, draw_rounds, RealOptions),
    "zhou2024_fig3ab": Experiment(fig3ab, draw_rounds, Options),
    "zhou2024_fig3d": Experiment(fig3d, draw_ends, RealOptions),
}
