"""Figures of Liu et al. (2022) on clusters of users, its study of parameters, and why its private version fails.

Letters: m clusters of users, L servers, T rounds.
"""

from __future__ import annotations

import dataclasses
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from curves import Curve, final, panels, pick, random_play, the
from drawing import CHANCE, Experiment, Panel, Picture, dressed
from options import Size
from scipy import stats

import fedbandit_jax as fb

LOOKS = {  # colour of fb.plotting, or a paler or darker one of a variant, line (dotted: no privacy claim) and marker
    "FCLUB": "#000000 - s",
    "FCLUB-DC": "#0072B2 - o",
    "CDP-FCLUB-DC": "#D55E00 : o",
    "CDP-FCLUB-DC, recalibrated": "#F4A582 : s",
    "CLUB": "#E69F00 - v",
    "SCLUB": "#CC79A7 - D",
    "LinUCB": "#56B4E9 - ^",
    "Homo": "#00523B - P",
    "Homo-DC": "#009E73 - X",
    CHANCE: "#999999 -.",
}
SEATS = {"consecutive": "clusters of consecutive users", "random": "clusters at random servers"}
WHERE = f"n = 40, m = 4 {SEATS['consecutive']}, L = 5, K = 10, d = 10"  # the authors' instance
BUDGET = fb.privacy.Budget(1.0, 0.1)
FEW = ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CDP-FCLUB-DC, recalibrated", "Homo-DC")
PRIVATE = "CDP-FCLUB-DC"


@dataclasses.dataclass(frozen=True)
class LiuOptions(Size):
    """Draw a figure of Liu et al. (2022), who have 10 seeds."""

    SEEDS = (2, 10, 10)
    STRIDE = (None, None, None)

    def run(self, *horizons: int, **more: Any) -> dict[str, Any]:
        """Returns arguments of `fb.sweep`, which have a store."""
        return super().run(*horizons, **{"store": self.store, **more})

    def instance(self, **shape: Any) -> fb.envs.Clustered:
        """Returns the instance of the authors' script, with other arguments of `fb.envs.clustered` where given.

        Preference vectors are random, and may be near to each other. With --smoke they are few and short.
        """
        few: dict[str, Any] = dict(n_users=8, n_servers=2, n_arms=4, dim=3) if self.smoke else {}
        return fb.envs.clustered(**{"n_clusters": 4, "seating": "consecutive", "gap": 1e-3, **shape, **few})

    def methods(self, budget: fb.privacy.Budget = BUDGET, scale: float = 1.0) -> dict[str, fb.Algorithm]:
        """Returns the methods of Figure 2 by name, with the thresholds of the authors' code.

        CDP-FCLUB-DC is there twice: with the noise and the shifts of Algorithms 2, 3 and 5, and recalibrated: noise is
        calibrated exactly, nothing is shifted at uploads, and counts of rounds decide when to upload. What epsilon the
        noise of either gives by itself says `worth`.

        Args:
            budget: budget of the private methods.
            scale: factor on all confidence widths.
        """
        algos = fb.algos
        wide: dict[str, Any] = dict(exploration_scale=scale)
        printed: dict[str, Any] = dict(calibration="theorem", spectral="printed")
        exact: dict[str, Any] = dict(shift="once", trigger="count", upload=1.1, download=1.1)
        return {
            "FCLUB": algos.FCLUB(upload=1, download=1, **wide),
            "FCLUB-DC": algos.FCLUB(**wide),
            "CDP-FCLUB-DC": algos.FCLUB(budget, **printed, **wide),
            "CDP-FCLUB-DC, recalibrated": algos.FCLUB(budget, **exact, **wide),
            "CLUB": algos.CLUB(**wide),
            "SCLUB": algos.SCLUB(**wide),
            "LinUCB": algos.LinUCB().replace(**wide),
            "Homo": algos.homo(**wide),
            "Homo-DC": algos.homo_dc(**wide),
        }


def worth(algo: Any, env: fb.Environment, horizon: int) -> float:
    """Returns the epsilon that the noise of FCLUB gives by itself, for all phases together, at the delta asked for.

    The certificate of CDP-FCLUB-DC has no epsilon, since raw statistics also decide what the noise is added to.
    """
    return algo.bind(env.spec, horizon).exchange.noise.epsilon_exact


def noted(name: str, algo: Any, env: Any, horizon: int) -> str:
    """Returns the note of a method: what the noise of a private one gives by itself."""
    return f"noise alone ε = {worth(algo, env, horizon):.2g}" if name.startswith(PRIVATE) else ""


def doublings(last: float, n: float, step: float = 1.0) -> np.ndarray:
    """Returns last / 2^n, ..., last / 2^step, last, without the first."""
    return last / 2.0 ** np.arange(0, n, step)[::-1]


def between(rounds: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Returns values (S, N) of recorded rounds (N,) at the rounds `at` (n,), (n, S), linear between records."""
    return np.transpose([np.interp(at, rounds, seed) for seed in values])


def over_time(options: LiuOptions, env: fb.Environment, scale: float, title: str, *horizons: int) -> list[Curve]:
    """Returns regret and clusters of all methods over time, and last a curve whose label is the title.

    Args:
        options: options of the command line.
        env: the environment.
        scale: factor on all confidence widths.
        title: what is played.
        horizons: T for smoke, default and full.
    """
    methods, run = options.methods(scale=scale), options.run(*horizons)
    result = options.sweep(env, methods, **run)
    kept = np.unique(np.linspace(0, len(result.rounds) - 1, 40).round().astype(int))
    x, curves = result.rounds[kept], []
    for label in result:
        values = dict(regret=result[label].regret, clusters=result[label].gauges["adjusted Rand index"])
        note = noted(label, methods[label], env, run["horizon"])
        curves += [Curve(panel, label, x, y[:, kept].T, LOOKS[label], note) for panel, y in values.items()]
    random = Curve("regret", CHANCE, x, random_play(env, options.seed) * x, LOOKS[CHANCE])
    title += f", confidence widths × {scale:g}" if scale != 1 else ""
    return [*curves, random, Curve("title", title, [0], [0])]


def draw_over_time(curves: list[Curve]) -> Picture:
    *curves, titled = dressed(curves, LOOKS)
    regrets, clusters = pick(curves, "regret"), pick(curves, "clusters")
    unit, n, horizon = the(regrets, label="LinUCB").mean, regrets[0].n_seeds, regrets[0].x[-1]
    low = [one.per(unit) for one in regrets if one.mean[-1] < 1.6 * unit[-1]]
    found = [one for one in clusters if np.nanmax(one.mean) > 0.005]
    none = ", ".join(one.label for one in clusters if one not in found)
    panel = partial(Panel, kind="lines", label="{label}: {note}", xlabel="round $t$")
    shown = [
        panel(regrets, "regret", ylabel="regret", yscale="log", ylim=(0.25 * unit[-1], None)),
        panel(low, "least regrets over LinUCB's", ylabel="regret / mean of LinUCB"),
        panel(found, "clusters found (1: all)", ylabel="adjusted Rand index"),
    ]
    words = titled.label.partition(": ")[2].replace("\n", ". ").replace(". t", ". T")
    setting = f"""{words}, T = {horizon:,.0f}. Mean of {n} seeds ± one standard error. Dotted: no privacy claim;
        solid: not private. In (c) these are at 0: {none}"""
    return Picture(shown, "Regret of clustering algorithms, and clusters found", setting)


@dataclasses.dataclass(frozen=True)
class Fig2a(LiuOptions):
    """Draw the figure.

    Args:
        clusters: m, the number of clusters of users.
        seating: whether clusters fill up servers one after the other, or are spread over servers at random.
        scale: factor on all confidence widths.
    """

    clusters: int = 4
    seating: Literal["consecutive", "random"] = "consecutive"
    scale: float = 1.0

    @property
    def variant(self) -> str:
        return f"m{self.clusters}_{self.seating}_{self.scale:g}"


def fig2a(options: Fig2a) -> list[Curve]:
    """Draws Figure 2 (a) of Liu et al. (2022): regret and clusters on synthetic data, 40 users on 5 servers, T = 10^5.

    The authors' script loads one draw of preference vectors from a file; here every seed has its own. Their factor on
    confidence widths is 1, but 0.005 for CDP-FCLUB-DC; here --scale applies to all methods.
    """
    env = options.instance(n_clusters=options.clusters, seating=options.seating)
    where = f"n = 40 users on L = 5 servers, m = {options.clusters} {SEATS[options.seating]}, K = 10, d = 10"
    title = f"Liu et al. (2022), Fig. 2 (a): {where}\ntarget ε = 1, δ = 0.1"
    return over_time(options, env, options.scale, title, 500, 100_000, 131_070)


@dataclasses.dataclass(frozen=True)
class Fig2b(LiuOptions):
    """Draw the figure.

    Args:
        movielens: folder of your copy of MovieLens; by default ratings are made up.
        thetas: whether a user's preference vector is her own (user) or her cluster's (centroid).
        clusters: m, the number of clusters that k-means finds.
        users: largest number of users; the most active ones are taken.
        scale: factor on all confidence widths.
    """

    movielens: tyro.conf.DisallowNone[Path | None] = None
    thetas: Literal["user", "centroid"] = "centroid"
    clusters: int = 4
    users: int = 40
    scale: float = 1.0

    @property
    def variant(self) -> str:
        return f"{self.thetas}_{self.users}_{self.scale:g}"

    def data(self) -> fb.data.Community:
        """Returns the data of the folder, or made-up users around random centres."""
        if self.movielens is not None:
            shape: dict[str, Any] = dict(n_users=self.users, n_clusters=self.clusters, thetas=self.thetas)
            return fb.data.movielens(self.movielens, **shape)
        rng = np.random.default_rng(self.seed)
        clusters = np.arange(self.users) % self.clusters
        spread = 0.0 if self.thetas == "centroid" else 0.3
        rows = rng.standard_normal((self.clusters, 9))[clusters] + spread * rng.standard_normal((self.users, 9))
        thetas, items = (
            np.hstack([part / np.linalg.norm(part, axis=1, keepdims=True), np.ones((len(part), 1))]) / np.sqrt(2)
            for part in (rows, rng.standard_normal((500, 9)))
        )
        return fb.data.Community(items=items, thetas=thetas, clusters=clusters, title="made up, no MovieLens here")


def fig2b(options: Fig2b) -> list[Curve]:
    """Draws Figure 2 (b) of Liu et al. (2022): regret and clusters on MovieLens, 40 users on 5 servers, T = 200,000.

    The authors take 40 of 1,000 users of a file that is not published. Here users and items come from your copy of
    MovieLens (ml-latest-small; the most active users), or are made up without a copy, as the title says.
    """
    data, what = options.data(), "made-up" if options.movielens is None else "MovieLens"
    where = f"n = {len(data.thetas)} users on L = 5 servers, m = {options.clusters} clusters (k-means)"
    own = f"one preference vector per {'cluster' if options.thetas == 'centroid' else 'user'}"
    title = f"Liu et al. (2022), Fig. 2 (b): {what}, {where}, K = 10, d = 10\n{own}. Target ε = 1, δ = 0.1"
    env = fb.envs.community(**data.arguments(), n_servers=5)
    return over_time(options, env, options.scale, title, 500, 200_000, 262_142)


SHOWN = ("FCLUB", "FCLUB-DC", "CLUB", "SCLUB", "LinUCB")
CLAIMS = [("FCLUB", "FCLUB-DC")] + [(one, other) for one in SHOWN[:2] for other in SHOWN[2:]]  # less regret, more


def right_from(rand_index: np.ndarray) -> np.ndarray:
    """Returns whether all clusters are right at this record and at all later ones, given an adjusted Rand index."""
    return np.logical_and.accumulate((rand_index > 1 - 1e-6)[..., ::-1], axis=-1)[..., ::-1]


def order(options: LiuOptions) -> list[Curve]:
    """Decides the order of Figure 2 (a) of Liu et al. (2022) without noise, on 48 seeds, as ten leave it open.

    (a) Paired differences of final regret, one row for each inequality that Section 5 implies. Seeds differ in how near
    two of their four preference vectors are. (b) In which share of seeds the clusters are exactly right from round t
    on.
    """
    run, every = options.run(500, 100_000, 100_000, seeds=(2, 48, 100), stride="log"), options.methods()
    result = options.sweep(options.instance(), {name: every[name] for name in SHOWN}, **run)
    curves = [Curve("regret", name, [run["horizon"]], [final(result[name])]) for name in SHOWN]
    few = np.unique(np.linspace(0, len(result.rounds) - 1, 40).round().astype(int))  # rounds are spaced by logarithms
    right = [right_from(result[name].gauges["adjusted Rand index"])[:, few].T for name in SHOWN[:2]]
    return curves + [Curve("right", name, result.rounds[few], one) for name, one in zip(SHOWN, right)]


def draw_order(curves: list[Curve]) -> Picture:
    ends, n = {one.label: one.y[-1] for one in pick(curves, "regret")}, curves[0].n_seeds
    differ = [Curve("", f"{b} minus {a}", [0], [ends[b] - ends[a]], LOOKS[a].split()[0]) for a, b in CLAIMS]
    left = Panel(differ, "right of 0: as the paper implies", "difference of regret at T, paired", kind="rows")
    left.band, left.also = float(stats.t.ppf(0.975, n - 1)), lambda ax: ax.axvline(0, color="#999999")
    right = [one.but(style=LOOKS[one.label]) for one in pick(curves, "right")]
    shares = Panel(right, "all clusters exactly right from $t$ on", "round $t$", "share of seeds", xscale="log")
    shares.xticks = (10_000, 30_000, 100_000)
    shares.ylim, shares.xlim = (0, 0.5), (9e3, 1.1e5)
    setting = f"""{WHERE}, T = {curves[0].x[0]:,.0f}, {n} seeds, not private. Bars are 95 % intervals in (a), and
        one standard error of a share in (b)"""
    return Picture([left, shares], "FCLUB and FCLUB-DC have the least regret", setting)


EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
HOME = dict(n_users=40, n_servers=5, n_clusters=4, dim=10)
STUDIES = {  # title -> axis, its words, values, the shape at a value
    "(b) features (n=40, m=4, L=5)": ("d", "features d", (5, 10, 20), lambda d: dict(dim=d)),
    "(c) users (m=4, L=5)": ("n", "users n", (20, 40, 80), lambda n: dict(n_users=n)),
    "(d) clusters (n=5m, L=5)": ("m", "clusters m", (2, 5, 10), lambda m: dict(n_clusters=m, n_users=5 * m)),
    "(e) servers (n=5L, m=5)": ("L", "servers L", (2, 5, 10), lambda s: dict(n_clusters=5, n_servers=s, n_users=5 * s)),
}
HOME_TITLE = "(a) privacy (n=40, m=4, L=5, d=10)"


def parameters(options: LiuOptions) -> list[Curve]:
    """Draws the parameter study of Liu et al. (2022), Appendix E.2: regret after T rounds against epsilon, d, n, m and
    L.

    As in the authors' script m is varied with n = 5 m users, L with n = 5 L users in 5 clusters. FCLUB-DC and LinUCB
    have no epsilon: (a) shows their runs of (b) at d = 10.
    """
    run, every, env = options.run(500, 100_000, 100_000), options.methods(), options.instance()
    epsilons, horizon = EPSILONS[:: options.pick(5, 1, 1)], run["horizon"]
    private = {name: every[name] for name in LOOKS if name.startswith(PRIVATE)}
    result, curves = fb.sweep(env, private, grid=dict(epsilon=epsilons), **run), []
    for name, algo in private.items():
        finals = [final(result[f"{name}(epsilon={e})"]) for e in epsilons]
        given = [worth(algo.replace(epsilon=e), env, horizon) for e in epsilons]
        curves += [Curve(HOME_TITLE, name, epsilons, finals, LOOKS[name]), Curve("worth", name, epsilons, given)]
    random = random_play(env, options.seed) * horizon
    curves.append(Curve(HOME_TITLE, CHANCE, epsilons, [random] * len(epsilons), LOOKS[CHANCE]))
    for title, (_, _, values, shape) in STUDIES.items():
        values = values[: options.pick(1, 9, 9)]
        envs = [options.instance(**HOME | shape(value)) for value in values]
        results = [
            options.sweep(env, {name: every[name] for name in ("FCLUB-DC", PRIVATE, "LinUCB")}, title=title, **run)
            for env in envs
        ]
        for name in ("FCLUB-DC", PRIVATE, "LinUCB"):
            curves.append(Curve(title, name, values, [final(one[name]) for one in results], LOOKS[name]))
        chance = [random_play(env, options.seed) * horizon for env in envs]
        curves.append(Curve(title, CHANCE, values, chance, LOOKS[CHANCE]))
    return [*curves, Curve("words", "T", [0], [horizon])]


def draw_parameters(curves: list[Curve]) -> Picture:
    curves, horizon, n = dressed(curves, LOOKS), the(curves, "words").y[0, 0], curves[0].n_seeds
    ends, home = np.array([EPSILONS[0], EPSILONS[-1]]), []
    for one in pick(curves, next(iter(STUDIES))):  # (a) shows them too, as they have no epsilon
        if one.label in ("FCLUB-DC", "LinUCB"):
            home.append(one.but(x=ends, y=one.y[one.x == HOME["dim"]].repeat(2, 0), style=one.style.split()[0]))
    shown = []
    epsilon = {HOME_TITLE: ("ε", "target ε (below: noise alone)")}
    for title, (letter, words, *_) in (epsilon | STUDIES).items():
        panel = pick(curves, title)
        *values, chance = panel
        ones = [one.per(chance.mean) for one in values]
        ones += [one.per(chance.mean[0]) for one in home] if letter == "ε" else []
        shown.append(Panel(ones, title[4:], words, level={CHANCE: 1}, yscale="log", xticks=panel[0].x))
    given = the(curves, "worth", PRIVATE)
    shown[0].xscale = "log"
    shown[0].xticks = {e: f"{e:g}\n{w:.2g}" for e, w in zip(given.x, given.mean) if e != 8}  # too near to 10
    setting = f"""{SEATS["consecutive"]}, K = 10, δ = 0.1, T = {horizon:,.0f}, target ε = 1 except in (a). Mean of
        {n} seeds ± one standard error. Dotted: no privacy claim; solid: not private. (a) has below its axis what
        the noise gives"""
    return Picture(
        shown,
        "CDP-FCLUB-DC against budget, features, users, clusters and servers",
        setting,
        height=4.6,
        shape=(2, 3),
        ylabel="regret over uniform play's",
        grid=dict(sharey=True),
    )


NAMES = ("CDP-FCLUB-DC", "CDP-FCLUB-DC, recalibrated")
APART: dict[str, Any] = dict(alpha_2=1e-6)  # no estimates are so near that clusters merge
GREEDY: dict[str, Any] = dict(exploration_scale=0.0)
CHANGES: dict[str, dict[str, Any]] = {  # removed part -> how
    "": {},
    ", without merging": APART,
    ", without confidence widths": GREEDY,
    ", without merging and widths": {**APART, **GREEDY},
    ", regularised once": dict(shift="once"),
    ", regularised once, without merging and widths": {**APART, **GREEDY, "shift": "once"},
}


def why(options: LiuOptions) -> list[Curve]:
    """Shows why CDP-FCLUB-DC of Liu et al. (2022) fails once its noise is really added: one cause removed at a time.

    The instance of Figure 2 (a), at target epsilon = 1 or 10. Noisy estimates of all local clusters are near 0, and all
    merge. Widths grow with the noise, and the 3 ρI that is added at every upload makes them equal.
    """
    env, run, curves = options.instance(), options.run(500, 100_000, 131_070), []
    horizon = run["horizon"]
    for epsilon in options.pick((1.0,), (1.0, 10.0), (1.0, 10.0)):
        every = options.methods(fb.privacy.Budget(epsilon, 0.1))
        algos = {name: every[name] for name in ("FCLUB-DC", "LinUCB", "Homo-DC")}
        for name in NAMES:
            kept = {change: with_ for change, with_ in CHANGES.items() if name == NAMES[0] or "once" not in change}
            algos |= {f"{name}{change}": every[name].replace(**with_) for change, with_ in kept.items()}
        result = options.sweep(env, dict(list(algos.items())[:: options.pick(4, 1, 1)]), **run)
        given = [worth(every[name], env, horizon) for name in NAMES]
        title = "target ε = {:g}; noise alone ε = {:.2g}, recalibrated {:.2g}".format(epsilon, *given)
        for label in result:
            one = result[label]
            values = (one.regret, one.communication["rounds"], one.gauges["clusters"])
            curves.append(Curve(title, label, [0, 1, 2], [y[:, -1] for y in values], fb.plotting.colour(one)))
        curves.append(Curve(title, CHANCE, [0], [random_play(env, options.seed) * horizon], note=f"{horizon:,}"))
    return curves


def look(label: str) -> str:
    """Returns the colour of a bar, by the algorithm with all its parts."""
    return next(LOOKS[name] for name in (*reversed(NAMES), label) if label.startswith(name)).split()[0]


def draw_why(curves: list[Curve]) -> Picture:
    shown = []
    for title in panels(curves):
        *bars, chance = pick(curves, title)
        names = [one.label.removeprefix(f"{NAMES[0]}, ") for one in bars]
        ones = [Curve("", name, [0], one.y[:1], look(one.label)) for name, one in zip(names, bars)]
        shown.append(Panel(ones, title.replace("; ", ";\n"), "regret at T", kind="rows"))
        shown[-1].level = {CHANCE: chance.mean[0]}
    horizon, n = the(curves, panels(curves)[0], CHANCE).note, curves[0].n_seeds
    setting = f"""CDP-FCLUB-DC without some of its parts. {WHERE}, δ = 0.1, T = {horizon}. Mean of {n} seeds ± one
        standard error. CDP-FCLUB-DC has no privacy claim; others are not private"""
    return Picture(shown, "CDP-FCLUB-DC without merging and widths loses less", setting, grid=dict(sharey=True))


def runtime(options: LiuOptions) -> list[Curve]:
    """Draws the running times of Appendix E.4 of Liu et al. (2022): seconds for T rounds against the number of users.

    Compilation is not counted, and as many seeds run together as there are cores. bench/run.py measures more.
    """
    run, every, curves = options.run(500, 20_480, 102_400, progress=False, store=None), options.methods(), []
    users, repeats = options.pick((20,), (40, 200), (40, 200, 1_000, 5_000)), options.pick(2, 3, 3)
    for name in [name for name in LOOKS if name != CHANCE][:: options.pick(5, 1, 1)]:
        seconds = np.empty((len(users), repeats))
        for i, n in enumerate(users):
            env = options.instance(n_users=n)
            fb.simulate(env, every[name], **run)  # compiles the program, untimed
            for j in range(repeats):
                started = time.perf_counter()
                fb.simulate(env, every[name], **run)
                seconds[i, j] = time.perf_counter() - started
        curves.append(Curve("seconds", name, users, seconds, LOOKS[name]))
        print(name, seconds.min(1), flush=True)
    size = f"{run['seeds']} seeds × {run['horizon']:,} rounds, {os.cpu_count()} CPU cores"
    return [*curves, Curve("words", size, [0], [0])]


def draw_runtime(curves: list[Curve]) -> Picture:
    *curves, size = curves
    n, order, shown = curves[0].n_seeds, sorted(curves, key=lambda one: np.median(one.y[0])), []
    for i, users in enumerate(curves[0].x):
        ones = [Curve("", one.label, [users], one.y[i : i + 1], LOOKS[one.label].split()[0]) for one in order]
        shown.append(Panel(ones, f"n = {users:g} users", "seconds", kind="rows", numbers="{mean:.1f} ± {error:.1f}"))
        shown[-1].xlim = (0, None)
    setting = f"""Running times of our programs for {size.label}, with m = 4, L = 5, K = 10 and d = 10, on a machine
        that others used too. Mean of {n} runs ± one standard error. They are unstable, and no benchmark"""
    return Picture(shown, "Seconds of a run by algorithm and users", setting)


FIGURES = {
    "liu2022_fig2a": Experiment(fig2a, draw_over_time, Fig2a),
    "liu2022_fig2b": Experiment(fig2b, draw_over_time, Fig2b),
    "liu2022_order": Experiment(order, draw_order, LiuOptions),
    "liu2022_parameters": Experiment(parameters, draw_parameters, LiuOptions),
    "liu2022_why": Experiment(why, draw_why, LiuOptions),
    "liu2022_runtime": Experiment(runtime, draw_runtime, LiuOptions),
}
