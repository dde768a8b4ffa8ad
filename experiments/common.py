"""What the figure scripts share: their options, the algorithms as each paper has them, drawing and saving.

Letters: K arms, T rounds (users, in figures of arms), m clusters of users, L servers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

import fedbandit_jax as fb

FIGURES = Path(__file__).parent / "figures"
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Size:
    """Draw a figure, at one of three sizes.

    Args:
        smoke: run a few rounds only, to see that everything works.
        full: run at the paper's size instead of the default, smaller one.
        seed: seed of the random number generator.
        out: folder for the picture; by default experiments/figures, or results with --smoke.
    """

    smoke: bool = False
    full: bool = False
    seed: int = 0
    out: Path | None = None

    def __post_init__(self):
        if self.smoke and self.full:
            raise SystemExit("--smoke and --full exclude each other")

    @property
    def folder(self) -> Path:
        """Returns the folder that the picture is written to."""
        return self.out or (Path("results") if self.smoke else FIGURES)

    def pick(self, smoke: T, default: T, full: T) -> T:
        """Returns the value for the size that was asked for."""
        return smoke if self.smoke else full if self.full else default

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
            in [0, 1]. released is what the authors' code does: its noise, its constants, agents that learn inside the
            batch, and Gaussian rewards. Its certificate says what epsilon that noise really gives.
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
        privacy = fb.privacy.Mechanism(budget, release, trust, calibration=noise, clip_rewards=not self.authors)
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


def liu_users(**shape: Any) -> fb.envs.Clustered:
    """Returns the instance of the authors' script, with other arguments of `fb.envs.clustered` where given.

    Preference vectors are random, and may be near to each other.
    """
    authors: dict[str, Any] = dict(n_clusters=4, seating="consecutive", gap=1e-3)
    return fb.envs.clustered(**{**authors, **shape})


def random_play(env: Any, seed: int) -> float:
    """Returns the mean regret per round of random recommendations, over 16 worlds and 4,096 rounds in each."""

    def of_world(key):
        world, keys = env.init(key), jax.random.split(jax.random.fold_in(key, 1), 4096)
        offered = jax.vmap(lambda key: env.observe(key, world, 0)[0])(keys)
        means = (offered.contexts[:, 0] @ world.thetas[offered.user[:, 0]][..., None])[..., 0]
        return (means.max(1) - means.mean(1)).mean()

    return float(jax.jit(jax.vmap(of_world))(jax.random.split(jax.random.key(seed), 16)).mean())


def worth(algo: Any, env: fb.Environment, horizon: int) -> float:
    """Returns the epsilon that the noise of FCLUB is worth by itself, for all phases together, at the delta asked for.

    The certificate of CDP-FCLUB-DC has no epsilon, since raw statistics also decide what the noise is added to.
    """
    return algo.bind(env.spec, horizon).noise.epsilon_exact


def liu_figure(name: str, options: LiuOptions, env: Any, methods: dict[str, Any], title: str, **run: Any) -> None:
    """Draws regret and clusters over time with one standard deviation, and prints where the paper's order holds."""
    result = fb.sweep(env, methods, **run)
    horizon, n_seeds = run["horizon"], run["seeds"]
    figure, axes = plt.subplots(1, 3, figsize=(17.0, 6.2), layout="constrained")
    figure.suptitle(f"{title}\nT={horizon:,}; mean of {n_seeds} seeds ± 1 standard deviation")
    for ax in axes[:2]:
        fb.plotting.regret(result, time_average=False, band="deviation", ax=ax)
    axes[0].set_ylim(0, 1.6 * result["LinUCB"].regret[:, -1].mean())
    axes[0].set_title("(a) regret, up to 1.6 times that of LinUCB", fontsize="medium")
    axes[1].set(yscale="log", ylabel="")
    axes[1].set_title("(b) all of it, on a logarithmic scale", fontsize="medium")
    axes[1].set_ylim(bottom=max(1.0, float(result.regret[..., len(result.rounds) // 100].min())))
    random = random_play(env, options.seed)
    axes[1].plot(result.rounds, random * result.rounds, "k:", linewidth=1, label="random play")
    fb.plotting.gauge(result, "adjusted Rand index", band="deviation", limits=(-0.05, 1.05), ax=axes[2])
    axes[2].set_ylabel("")
    axes[2].set_title("(c) adjusted Rand index of the clusters found", fontsize="medium")
    handles, labels = axes[1].get_legend_handles_labels()
    given = {label: worth(methods[label], env, horizon) for label in result if label.startswith("CDP")}
    of = [given.get(text.split(":")[0]) for text in labels]
    labels = [text if one is None else f"{text}, noise worth ε={one:.2g}" for text, one in zip(labels, of)]
    for ax in axes:
        ax.get_legend().remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    print(f"\n{title}\n{result.summary()}\n\nrandom play: {random * horizon:,.0f}\nnoise worth: {given}")
    print("\nThe paper's order, seed by seed:")
    order = ["FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CLUB", "SCLUB", "LinUCB", "Homo"]
    claims = [("FCLUB", "FCLUB-DC"), ("FCLUB-DC", "CDP-FCLUB-DC")]
    claims += [(one, other) for one in order[1:3] for other in order[3:]] + [(other, "Homo") for other in order[3:6]]
    for better, worse in claims:
        print(f"  {verdict(result, better, worse)}")
    if not options.smoke:
        result.save(Path("results") / name)
    save(name, options, figure)


@dataclasses.dataclass(frozen=True)
class RealOptions(Options):
    """Draw a figure on real data.

    Args:
        mslr: folder of your copy of MSLR-WEB10K; by default scikit-learn's digits stand in for it.
    """

    mslr: Path | None = None

    def table(self, features: str, components: int) -> fb.data.Table:
        """Returns MSLR-WEB10K with these features, or its stand-in: so many principal components of digits."""
        if self.mslr is None:
            return fb.data.classification("digits", components=components)
        return fb.data.mslr(self.mslr, features=features)

    @property
    def real_rewards(self) -> str:
        """Returns the law of rewards; ours is clipped Gaussian on MSLR, whose means can be negative."""
        return "clipped_gaussian" if self.mslr and not self.authors else self.rewards


def verdict(result: fb.Result, better: str, worse: str) -> str:
    """Returns whether one algorithm has less final regret than another, by paired differences of the seeds."""
    mean, error = mean_error(result[worse].regret[:, -1] - result[better].regret[:, -1])
    half = stats.t.ppf(0.975, result.status.shape[-1] - 1) * error  # 95 % confidence
    found = "holds" if mean > half else "reversed" if mean < -half else "undecided"
    return f"{better} < {worse}: {found}, by {mean:.0f} ± {error:.0f}"


def unclipped(result: fb.Result) -> list[str]:
    """Returns what the released noise would give if rewards were clipped, as certificates without a claim say it."""
    found = {
        label: re.search(r"were they.*gives (epsilon = \S+)", result[label].certificate.reason) for label in result
    }
    return [f"{label}: with clipped rewards its noise would give {m[1]}" for label, m in found.items() if m]


def finish(
    name: str,
    options: Options,
    panels: dict[str, fb.Result],
    claims: Sequence[tuple[str, str]] = (),
) -> None:
    """Draws the panels (title -> result) side by side, saves picture and results, prints summaries and claims.

    Args:
        name: name of the picture.
        options: the options of the command line.
        panels: title -> result.
        claims: pairs of labels, of which the paper says that the first has less regret; whether it was seen is written
            below the panels that have both.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(7.0 * len(panels), 6.2), layout="constrained", squeeze=False)
    suffix = f"{name}_{options.variant}"
    for i, ((title, result), ax) in enumerate(zip(panels.items(), axes[0])):
        fb.plotting.regret(result, title=f"{title}, {options.variant}", ax=ax)
        lines = [verdict(result, *pair) for pair in claims if set(pair) <= set(result)]
        if lines:
            head = f"the paper says, and {len(result.status[0])} pairs of seeds show (95 % confidence):"
            legend = ax.get_legend()
            legend.set_title("\n".join([head, *lines, *unclipped(result)]), prop={"size": "small"})
            legend.set_alignment("left")
        if not options.smoke:
            result.save(Path("results") / f"{suffix}_{'abcdef'[i]}")
        print(f"\n{title}\n{result.summary()}")
        for label in result:
            print(f"  {label}: {result[label].certificate.claim}, {result[label].certificate.reason}")
    save(suffix, options, figure)


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


def save(name: str, options: Size, figure: Figure) -> None:
    """Writes the picture as PNG and PDF, and prints where they are."""
    print(f"\nwrote {' and '.join(map(str, fb.plotting.save(figure, options.folder / name)))}")
