"""What the figure scripts share: their options, the algorithms as each paper has them, drawing and saving.

Letters: K arms, T rounds (users, in figures of arms), m clusters of users, L servers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import curves as kept
import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import Locator, LogFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import in_words, tick

FIGURES = Path(__file__).parent / "figures"
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Size:
    """Draw a figure, at one of three sizes.

    Args:
        smoke: run a few rounds only, to see that everything works.
        full: run at the paper's size instead of the default, smaller one.
        redraw: run nothing, and draw from the numbers (CSV) beside the picture.
        seed: seed of the random number generator.
        out: folder for the picture; by default experiments/figures, or results with --smoke.
    """

    smoke: bool = False
    full: bool = False
    redraw: bool = False
    seed: int = 0
    out: tyro.conf.DisallowNone[Path | None] = None

    def __post_init__(self):
        if self.smoke and self.full:
            raise SystemExit("--smoke and --full exclude each other")

    @property
    def folder(self) -> Path:
        """Returns the folder that the picture is written to."""
        return self.out or (Path("results") if self.smoke else FIGURES)

    @property
    def store(self) -> Path | None:
        """Returns the store of a long figure, whose pieces are computed once; none with --smoke."""
        return None if self.smoke else Path("results") / "store"

    def pick(self, smoke: T, default: T, full: T) -> T:
        """Returns the value for the size that was asked for."""
        return smoke if self.smoke else full if self.full else default

    def shape(self, n_agents: int, n_arms: int, dim: int) -> tuple[int, int, int]:
        """Returns these numbers, or with --smoke few, the same for all scripts, which then share compiled programs."""
        return self.pick((4, 4, 3), (n_agents, n_arms, dim), (n_agents, n_arms, dim))

    def numbers(self, name: str, measure: Callable[[], list[Curve]]) -> list[Curve]:
        """Returns the curves behind a picture: measured, or with --redraw those of its CSV; rounded to five digits."""
        path = self.folder / f"{name}.csv"
        return kept.parsed(path.read_text(encoding="utf-8") if self.redraw else kept.written(measure()))

    def run(self, *horizons: int) -> dict[str, Any]:
        """Returns arguments of `fb.sweep`, given T for smoke, default and full; these have 2, 8 and 25 seeds."""
        return dict(
            horizon=self.pick(*horizons),
            seeds=self.pick(2, 8, 25),
            key=jax.random.key(self.seed),
            stride=self.pick(1, 25, 25),
            progress=True,
            throw=False,
        )


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
class DubeyOptions(Size):
    """Draw a figure of Dubey & Pentland (2020)."""

    def run(self, *horizons: int, seeds: tuple[int, int, int] = (2, 8, 100)) -> dict[str, Any]:
        """Returns arguments of `fb.sweep` as `Size.run` does; the paper has 100 seeds, the default 8."""
        return {**super().run(*horizons), "seeds": self.pick(*seeds), "stride": "log"}


@dataclasses.dataclass(frozen=True)
class LiuOptions(Size):
    """Draw a figure of Liu et al. (2022)."""

    def run(self, *horizons: int) -> dict[str, Any]:
        """Returns arguments of `fb.sweep` as `Size.run` does; the paper has 10 seeds, and so has the default."""
        return {**super().run(*horizons), "seeds": self.pick(2, 10, 10), "stride": None}

    def instance(self, **shape: Any) -> fb.envs.Clustered:
        """Returns the instance of the authors' script, with other arguments of `fb.envs.clustered` where given.

        Preference vectors are random, and may be near to each other. With --smoke they are few and short.
        """
        few: dict[str, Any] = dict(n_users=8, n_servers=2, n_arms=4, dim=3) if self.smoke else {}
        return fb.envs.clustered(**{"n_clusters": 4, "seating": "consecutive", "gap": 1e-3, **shape, **few})

    def methods(self, budget: fb.privacy.Budget, scale: float = 1.0) -> dict[str, fb.Algorithm]:
        """Returns the methods of Figure 2 by name, with the thresholds of the authors' code.

        CDP-FCLUB-DC is there twice: with the noise and the shifts of Algorithms 2, 3 and 5, and with less noise, which
        is calibrated exactly; then nothing is shifted at uploads, and counts of rounds decide when to upload. At an
        equal epsilon asked for, the printed noise is worth a smaller one, see `worth`.

        Args:
            budget: budget of the private methods.
            scale: factor on all confidence widths.
        """
        algos = fb.algos
        wide: dict[str, Any] = dict(exploration_scale=scale)
        printed: dict[str, Any] = dict(calibration="theorem", spectral="printed")
        less: dict[str, Any] = dict(shift="once", trigger="count", upload=1.1, download=1.1)
        return {
            "FCLUB": algos.FCLUB(upload=1, download=1, **wide),
            "FCLUB-DC": algos.FCLUB(**wide),
            "CDP-FCLUB-DC": algos.FCLUB(budget, **printed, **wide),
            "CDP-FCLUB-DC, less noise": algos.FCLUB(budget, **less, **wide),
            "CLUB": algos.CLUB(**wide),
            "SCLUB": algos.SCLUB(**wide),
            "LinUCB": algos.LinUCB().replace(**wide),
            "Homo": algos.homo(**wide),
            "Homo-DC": algos.homo_dc(**wide),
        }


def random_play(env: Any, seed: int = 0) -> float:
    """Returns the mean group regret per round if arms are drawn at random, over 16 worlds."""
    rounds = max(64, 16_384 // env.spec.n_agents)

    def of_round(key, world, t):
        observed, drawn, paid = jax.random.split(key, 3)
        offered, world = env.observe(observed, world, t)
        there = jax.numpy.ones(offered.contexts.shape[:2]) if offered.mask is None else offered.mask
        return env.pull(paid, world, offered, jax.random.categorical(drawn, jax.numpy.log(there * 1.0))).gap.sum()

    def of_world(key):
        keys = jax.random.split(jax.random.fold_in(key, 1), rounds)
        return jax.vmap(of_round, (0, None, 0))(keys, env.init(key), jax.numpy.arange(rounds)).mean()

    return float(jax.jit(lambda keys: jax.lax.map(of_world, keys))(jax.random.split(jax.random.key(seed), 16)).mean())


def worth(algo: Any, env: fb.Environment, horizon: int) -> float:
    """Returns the epsilon that the noise of FCLUB is worth by itself, for all phases together, at the delta asked for.

    The certificate of CDP-FCLUB-DC has no epsilon, since raw statistics also decide what the noise is added to.
    """
    return algo.bind(env.spec, horizon).noise.epsilon_exact


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


def verdict(result: fb.Result, better: str, worse: str) -> str:
    """Returns whether one algorithm has less final regret than another, by paired differences of the seeds."""
    return f"{better} < {worse}: {kept.verdict(result[better].regret[:, -1], result[worse].regret[:, -1])}"


def unclipped(result: fb.Result, label: str) -> str:
    """Returns what the noise would be worth if rewards were clipped, as certificates without a claim say it, or ""."""
    certificate = result[label].certificate
    found = re.search(r"were they.*gives epsilon = (\S+?)[,;.]?(?:\s|$)", certificate.reason)
    return f", noise worth ε = {found[1]} at δ = {certificate.delta:g} were rewards clipped" if found else ""


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
    figure, axes = plt.subplots(1, len(titles), figsize=(8.0 * len(titles), 8.0), layout="constrained", squeeze=False)
    found = []
    for title, ax in zip(titles, axes[0]):
        panel = kept.pick(curves, title)
        draw(panel, ax, average=True)
        ends = {one.label: one for one in panel}
        for better, worse in claims:
            if better in ends and worse in ends:
                seen = kept.verdict(ends[better].y[-1], ends[worse].y[-1])
                found.append(f"{in_words(better)} < {in_words(worse)}: {seen}")
        after = np.array([one.mean[-1] / one.x[-1] for one in panel])
        spread = after.max() > 8 * after.min()
        ax.set(xlabel="round $t$", ylabel="time-average group regret, Reg$(t)/t$", yscale="log" if spread else "linear")
        if not spread:
            ax.set_ylim(0.8 * after.min(), 1.15 * after.max())
        who = "certified version" if options.variant == "ours" else "constants and agents of the authors' code"
        size = f"T = {panel[0].x[-1]:,.0f}, mean of {panel[0].n_seeds} seeds ± 1 standard error"
        ax.set_title(f"{title}\n{who}; {size}", fontsize="medium")
        legend_below(ax)
    seeds = max(one.n_seeds for one in curves)
    seen = f"{says.seen}; " if says.seen else ""
    seen += "; ".join(dict.fromkeys(found)) + f" (group regret at T, {seeds} paired seeds, 95 % intervals)"
    caption(figure, "Zhou & Chowdhury (2024)", dataclasses.replace(says, seen=seen))
    print("\n".join(found))
    save(suffix, options, figure, curves)


def tidy(figure: Figure) -> None:
    """Writes ticks as plain numbers with commas, at least three of them on a log axis, where powers of ten may be few.

    Places and words that a script has set itself stay.
    """
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatter):
                if isinstance(axis.get_major_locator(), LogLocator):
                    axis.set_major_locator(_log_ticks(*sorted(axis.get_view_interval())))
                axis.set_major_formatter(lambda x, _: f"{x:,g}" if 1e-3 <= x < 1e6 else tick(x))
                axis.set_minor_formatter(NullFormatter())
            elif type(axis.get_major_formatter()) is ScalarFormatter:
                axis.set_major_formatter("{x:,.10g}")


def _log_ticks(low: float, high: float) -> Locator:
    """Returns the first of three ways to place ticks that has at least three of them in an interval, or even steps."""
    for subs in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)):
        places = np.asarray(LogLocator(subs=subs).tick_values(low, high))
        if ((low <= places) & (places <= high)).sum() >= 3:
            return LogLocator(subs=subs)
    return MaxNLocator(5)


def promised(note: str) -> str:
    """Returns the words for a certificate's claim, or a note that is none."""
    return fb.plotting.CLAIMS[note][1] if note in fb.plotting.CLAIMS else note


def legend_below(ax: Axes, **style: Any) -> None:
    """Writes the legend below the axes, where it hides nothing, and draws a grid."""
    ax.grid(alpha=0.3)
    place: dict[str, Any] = dict(loc="upper left", bbox_to_anchor=(0, -0.11), frameon=False, fontsize="small")
    ax.legend(**{**place, **style})


def at(result: fb.Result, algorithm: str, **point: Any) -> fb.Result:
    """Returns the result of one algorithm of a sweep at one point of its grid."""
    (label,) = (label for label, where in result.coordinates.items() if where == {"algorithm": algorithm, **point})
    return result[label]


def mean_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean over seeds, which are the first axis, and its standard error."""
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))


def per_agent(result: fb.Result) -> np.ndarray:
    """Returns the cumulative regret of one algorithm, averaged over agents, (n_seeds, n_records)."""
    return result.regret / result.spec["n_agents"]


def curve(result: fb.Result, ax: Axes, **style: Any) -> None:
    """Draws the regret per agent over rounds, with a band of one standard error."""
    mean, error = mean_error(per_agent(result))
    (line,) = ax.plot(result.rounds, mean, **style)
    ax.fill_between(result.rounds, mean - error, mean + error, color=line.get_color(), alpha=0.2, linewidth=0)


def draw(curves: Sequence[Curve], ax: Axes, *, average: bool = False, band: bool = True) -> None:
    """Draws curves with a band of one standard error; `average` divides by the round.

    Later curves are thinner and dashes of equal ones are set apart. Of a curve that lies on a later one all the same,
    the legend says so.
    """
    for i, one in enumerate(curves):
        colour, line, *marker = one.style.split() or [fb.plotting.COLOURS[i % 7], "-"]
        by = one.x if average else 1.0
        width = 2.6 - 1.4 * i / max(1, len(curves) - 1)
        look: dict[str, Any] = dict(color=colour, marker=marker[0] if marker else "", markersize=5, markevery=(i, 8))
        ax.plot(one.x, one.mean / by, line, linewidth=width, label=named(one, curves[i + 1 :]), **look)
        if band and one.n_seeds > 1:
            low, high = (one.mean - one.error) / by, (one.mean + one.error) / by
            ax.fill_between(one.x, low, high, color=colour, alpha=0.15, linewidth=0)


def named(one: Curve, above: Sequence[Curve] = ()) -> str:
    """Returns the name of a curve in the legend, with its note, and the curve `above` that hides it, if one does."""
    name = in_words(one.label)
    over = [in_words(other.label) for other in above if hides(other, one)]
    name = f"{name} (under {over[-1]})" if over else name
    return f"{name}: {one.note}" if one.note else name


def hides(above: Curve, below: Curve) -> bool:
    """Returns whether a curve lies on another one: within one part in a hundred at all points but one in thirty."""
    if not np.array_equal(above.x, below.x):
        return False
    near = np.abs(above.mean - below.mean) <= 0.01 * np.maximum(np.abs(above.mean), np.abs(below.mean))
    return bool(near.mean() > 29 / 30)


def slope(ax: Axes, power: float, x: Sequence[float] | np.ndarray, y: float, text: str) -> None:
    """Draws a grey line of slope `power` in logarithms through the first of the points x at y, as a reference."""
    ends = np.array([x[0], x[-1]], float)
    ax.plot(ends, y * (ends / ends[0]) ** power, color="#999999", linestyle="-.", linewidth=1, label=text)


@dataclasses.dataclass(frozen=True)
class Says:
    """One claim of a paper, for the caption of a picture.

    Args:
        where: the figure or theorem.
        claim: what it says.
        size: the paper's size, and ours if it is another.
        seen: whether it was seen here, with the number.
    """

    where: str
    claim: str
    size: str
    seen: str


def caption(figure: Figure | SubFigure, paper: str, *says: Says) -> None:
    """Labels a figure with what the paper claims, at which size, and whether it was seen: `save` keeps it."""
    text = [f"{paper}, {one.where}: {one.claim}. Size: {one.size}. Seen here: {one.seen}." for one in says]
    root = figure.get_figure(root=True)
    assert root is not None
    root.set_label("\n".join(text))


def save(name: str, options: Size, figure: Figure, curves: Sequence[Curve] | None = None) -> None:
    """Writes the picture as PNG and PDF, the numbers behind it as CSV, and prints where they are."""
    tidy(figure)
    if options.smoke:
        figure.text(0.5, 0.5, "smoke run: smaller than captions say", color="#d62728", ha="center", fontsize="xx-large")
    paths = fb.plotting.save(figure, options.folder / name)
    if curves is not None:
        paths = (*paths, kept.keep(paths[0], curves, caption=str(figure.get_label())))
        print(figure.get_label())
    print(f"\nwrote {' and '.join(map(str, paths))}")
