"""Policies, schedules and statistics at equal privacy, and what three real logs say."""

import dataclasses
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from curves import CHANCE, Curve, along, ends, final, panels, pick, random_play, the, uniform
from drawing import LOGS, Axes, Experiment, Panel, Picture, dressed, styled
from jax import lax
from options import Size
from recipes import GREEDY, HALF, KNOWN, instance, sharp, table, with_noise

import fedbandit_jax as fb

DELTAS, EPSILONS, PURE = (0.1, 1e-6), (0.5, 1.0, 2.0, 5.0, 10.0), (0.1, 0.2, 0.5, 1.0, 2.0)
BANDITS = "AdaC-UCB", "Dist-DP-SE, printed radius", "ours: Dist-DP-SE, exact radius"
_, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, WINE = fb.plotting.COLOURS
OLIVE, INDIGO = "#999933", "#332288"  # of the palette of Tol (2021), as wine is
POLICIES_LOOKS = {  # a policy's colour and marker, which is filled if the release or the radius is ours
    "Private-FedLinUCB": f"{BLUE} o",
    "epsilon-greedy": f"{PURPLE} s",
    "AdaC-OFUL": f"{OLIVE} ^",
    "DP-DPE": f"{GREEN} D",
    "Thompson": f"{INDIGO} v",
    "ours: UCB": f"{SKY} P",
    "ours: greedy": f"{ORANGE} X",
    "ours: Thompson": f"{INDIGO} v",
    **dict(zip(BANDITS, (f"{WINE} <", f"{VERMILLION} h", f"{VERMILLION} h"))),
}


def policies(delta: float, arms: np.ndarray | None) -> dict[str, fb.Algorithm]:
    """Returns the algorithms for arms that are always these, or fresh (None)."""
    algos, geometric, fixed = fb.algos, fb.schedules.Geometric, arms is not None
    private = partial(fb.privacy.Mechanism, fb.privacy.Budget(1.0, delta), statistic=HALF)
    growing = partial(algos.Federated, schedule=geometric(1.5, first=4))
    ours, tree, once = private(fb.privacy.Decaying(1.5)), private("tree"), private("input_perturbation")
    scale = 0.1 if fixed else 0.05
    slight = dataclasses.replace(KNOWN, exploration_scale=scale)
    thompson = algos.Thompson(regularization=200.0, scale=1.0 if fixed else 0.25)
    explores = algos.EpsilonGreedy(explore=5.0 if fixed else 0.5, shrinkage=3.0)
    phased = partial(algos.dp_dpe, arms, once, exploration_scale=0.2, schedule=geometric(2.0, first=16))
    return {
        "Private-FedLinUCB": algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, delta)),
        "epsilon-greedy": growing(policy=explores, privacy=tree),
        "AdaC-OFUL": algos.adac_oful(once, policy=slight, schedule=geometric(2.0, first=4)),
        **({"DP-DPE": phased()} if fixed else {}),
        "Thompson": growing(policy=thompson, privacy=tree),
        "ours: UCB": growing(policy=slight, privacy=ours),
        "ours: greedy": growing(policy=algos.Greedy(), privacy=ours),
        "ours: Thompson": growing(policy=thompson, privacy=ours),
    }


def lines(title: str, note: str, *results: fb.Result, mean: bool = False) -> list[Curve]:
    """Returns regret of every algorithm against epsilon: of all seeds, or means over them, one for each result."""
    found: dict[str, dict[float, list[np.ndarray]]] = {}
    for result in results:
        for label, point in result.coordinates.items():
            assert result[label].certificate.claim == "certified"
            at = found.setdefault(point["algorithm"], {}).setdefault(point["epsilon"], [])
            at.append(final(result[label]).mean() if mean else final(result[label]))
    return [Curve(title, label, list(of), [np.ravel(y) for y in of.values()], note=note) for label, of in found.items()]


def compared(options: Size) -> list[Curve]:
    """Draws the policies of others and ours, at equal certified privacy and trust model: regret against epsilon.

    Linear bandits with noise at every silo, delta = 0.1 and 10^-6, on the same 20 arms (above) or fresh ones (below).
    All sum x (y - 1/2) and half of x x', except Private-FedLinUCB. DP-DPE and AdaC-OFUL release each batch once. (c),
    (f): multi-armed bandits under pure DP. Constants were chosen on other instances and seeds, for the two settings
    apart.
    """
    horizon, curves = options.pick(40, 1000, 1000), []
    m, few = options.pick(4, 50, 50), slice(options.pick(1, 5, 5))
    run: dict[str, Any] = dict(horizon=horizon, stride=horizon, key=jax.random.key(options.seed + 2026))
    run["grid"] = {"epsilon": EPSILONS[few]}
    for delta in DELTAS[: options.pick(1, 2, 2)]:
        same, new = f"the same 20 arms, δ = {delta:g}", f"20 fresh arms, δ = {delta:g}"
        worlds = [instance(20, 6, seed) for seed in range(300, options.pick(301, 312, 325))]
        envs = [table(m, *world) for world in worlds]
        each = [fb.sweep(env, policies(delta, arms), seeds=2, **run) for env, (arms, _) in zip(envs, worlds)]
        chance = [horizon * random_play(env) for env in envs]
        curves += lines(same, "instances of 2 seeds", *each, mean=True)
        curves.append(Curve(same, CHANCE, EPSILONS[:1], [chance], note="instances"))
        env = fb.envs.sphere(m, 20, 6, rewards="bernoulli")
        curves += lines(new, "seeds", fb.sweep(env, policies(delta, None), seeds=options.pick(2, 12, 25), **run))
        curves.append(uniform(env, horizon, new, EPSILONS[0]).but(note="worlds"))
    users = options.pick(20_000, 10**6, 10**6)
    run |= dict(horizon=users, stride=users, seeds=options.pick(2, 400, 400), grid={"epsilon": PURE[few]})
    bandits: list[fb.Algorithm] = [fb.algos.AdaCUCB(fb.algos.DistDPSE(1.0, radius="exact"))]
    bandits += [fb.algos.DistDPSE(1.0, radius=how, name=name) for name, how in zip(BANDITS[1:], ("theory", "exact"))]
    for kind in ("easy", "hard"):  # with many seeds, as rare losses are large
        env, title = fb.envs.arms(10, instance=kind), f"10 {kind} arms, T = {users:,}, pure ε-DP"
        curves += lines(title, "instances", fb.sweep(env, bandits, **run))
        curves.append(uniform(env, users, title, PURE[0]).but(note="worlds"))
    return curves


def draw_policies(curves: list[Curve]) -> Picture:
    shown = {}
    for letter, title in zip("adbecf", panels(curves)):
        *ones, chance = pick(curves, title)
        words, horizon, law = re.fullmatch(r"(.+?)(, T = [\d,]+)?(, pure ε-DP|)", title).groups("")  # pyright: ignore
        words = re.sub(r"1e-0?(\d+)", r"$10^{-\1}$", words) + f"{law}\n{ones[0].n_seeds} {ones[0].note}{horizon}"
        names = [one.label.replace("epsilon", "ε") + (" in (c), (f)" if one.label in BANDITS else "") for one in ones]
        ones = [one.but(label=name) for one, name in zip(dressed(ones, POLICIES_LOOKS), names)]
        panel = Panel(ones, words, "ε", spread=0.025, look=dict(linewidth=1.2), **LOGS)
        panel.level, panel.xticks = {CHANCE: chance.mean[0]}, ones[0].x
        panel.open = lambda one: not one.label.startswith("ours")
        shown[letter] = panel
    setting = """All are certified for the same ε. (a), (b), (d), (e): M = 50 silos with noise of their own, d = 6,
        T = 1,000. (c), (f): secure aggregation. Mean ± one standard error. Filled: our release for growing batches,
        or our radius. Scales differ"""
    return Picture(
        [shown[letter] for letter in sorted(shown)],
        "Regret of policies at equal privacy",
        setting,
        shape=(2, 3),
        ylabel="regret at T",
    )


S = fb.schedules
BATCHES, GROWTHS, THRESHOLDS = (25, 50, 100), (1.1, 1.2, 1.5), (30.0, 100.0, 300.0)
FAMILIES: dict[str, list[fb.schedules.Schedule]] = {
    "fixed batch, B = 25, 50, 100": [S.Every(batch) for batch in BATCHES],
    "growing by 1.1 ... 1.5 from 50": [S.Geometric(growth, first=50) for growth in GROWTHS],
    "sparse vector, 0.1 ε, S = 64": [S.PrivateLogDet(d, share=0.1, max_syncs=64) for d in THRESHOLDS],
    "raw log det, S = 64": [S.LogDet(d, max_syncs=64) for d in THRESHOLDS],
}
NAMES = ("fixed batches of B", "growing by a factor", "private test (sparse vector, 0.1 ε)", "raw log det")
OFFSETS = {"o": (5, 4), "s": (5, -9), "D": (5, 4), "v": (-18, -9)}  # of the numbers at these markers, in points
WHERE = {
    "all alike": "(a) all agents are alike",
    "own subspace": "(b) each sees a third of directions",
    "new subspaces": "(c) all see one third, then the next",
}


@fb.pytree
class Blocks(fb.envs.Sphere):
    """The sphere, where a user's features lie in one of three blocks of directions, by her agent or by the round."""

    period: int  # rounds until the next block; 0: agent i has block i mod 3; -1: all have all blocks

    def features_at(self, key, world, t, arm, agent):
        """Returns (u, 1) / sqrt 2, with u uniform on the unit sphere of the block."""
        *u, one = super().features_at(key, world, t, arm, agent)
        block = jnp.where(self.period > 0, t // jnp.maximum(self.period, 1), agent % 3)
        kept = [jnp.where((i // 3 == block) | (self.period < 0), x, 0) for i, x in enumerate(u)]
        scale = one * lax.rsqrt(sum(x * x for x in kept))
        return [*(x * scale for x in kept), one]


def schedules(options: Size) -> list[Curve]:
    """Compares when to synchronise, at equal privacy: in fixed batches, in growing ones, or when a private test says
    so.

    All have the best certified parts: BLT noise for at most S synchronisations, projection, and widths from the law of
    the noise. The private test is a sparse vector test; the raw trigger leaks. (a) All agents are alike. (b) Each sees
    a third of the directions only. (c) All see one third, then the next, which no fixed schedule knows of.
    """
    run, curves = options.run(90, 4_000, 10_000, seeds=(4, 6, 50)), []
    sphere = fb.envs.sphere(*options.pick((4, 4, 10), (50, 10, 10), (50, 10, 10)), rewards="bernoulli")
    algos = {f"{family}: {one}": sharp().replace(schedule=one) for family, ones in FAMILIES.items() for one in ones}
    algos = dict(list(algos.items())[:: options.pick(3, 1, 1)])
    for name, period in zip(WHERE, (-1, 0, -(-run["horizon"] // 3))):
        env = Blocks(rewards=sphere.rewards, spec=sphere.spec, period=period)
        curves += ends(options.sweep(env, algos, **run), f"{name}, T = {run['horizon']:,}", "rounds")
    return curves


def draw_schedules(curves: list[Curve]) -> Picture:
    shown = []
    for title in panels(curves):
        found = [[one for one in pick(curves, title) if one.label.startswith(name)] for name in FAMILIES]
        where = WHERE[title.partition(",")[0]]
        lines, numbers = [], []
        for name, ones, marker in zip(NAMES, found, OFFSETS):
            style = f"{ones[0].style} {'-' if ones[0].note == 'certified' else ':'} {marker}"
            x, y = [max(one.mean[1], 0.5) for one in ones], [one.y[0] for one in ones]
            lines.append(Curve(title, name, x, y, style, ones[0].note))
            own = [float(re.findall(r"(?:batch|growth|threshold)=([\d.]+)", one.label)[0]) for one in ones]
            numbers += [(f"{value:g}", (a, b.mean()), marker, ones[0].style) for value, a, b in zip(own, x, y)]

        def write(ax: Axes, numbers: list[Any] = numbers) -> None:
            for text, at, marker, colour in numbers:
                look: dict[str, Any] = dict(textcoords="offset points", fontsize="x-small", color=colour)
                ax.annotate(text, at, OFFSETS[marker], **look)
            ax.margins(x=0.22)

        shown.append(Panel(lines, where[4:], "synchronisations", **LOGS, also=write))
    seeds, horizon = curves[0].n_seeds, curves[0].panel.partition("T = ")[2]
    setting = f"""M = 50, K = 10, d = 10, T = {horizon}, ε = 1, δ = 0.1. Mean of {seeds} seeds ± one standard error.
        Numbers are B, the factor or the threshold. Solid: certified; dotted: no privacy claim, as the times tell"""
    return Picture(shown, "Growing batches do well, unless contexts change", setting, ylabel="group regret at T")


RANGES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
STATISTICS = {"linear": HALF, "logistic": fb.privacy.Logistic()}
TAILS: dict[str, dict[str, Any]] = {
    "Gaussian, standard deviation 1": dict(rewards="gaussian", noise_std=1.0),
    "Student, 3 degrees of freedom": dict(rewards="student_t", noise_std=1.0, shape=3.0),
    "Student, 2 degrees of freedom": dict(rewards="student_t", noise_std=1.0, shape=2.0),
    "Pareto, tail index 2": dict(rewards="pareto", shape=2.0),
}
GLM_LOOKS = dict(zip(TAILS, ("#882255 o", "#E69F00 s", "#56B4E9 D", "#CC79A7 ^")))
GLM_LOOKS |= dict(zip(STATISTICS, fb.plotting.COLOURS[1:]))


def clipped(r: float) -> fb.privacy.Linear:
    """Returns the statistic whose rewards are clipped to a range of length r around 1/2."""
    return fb.privacy.Linear(0.5, centred=True, low=0.5 - r / 2, high=0.5 + r / 2)


def glm(options: Size) -> list[Curve]:
    """Draws linear and logistic statistics on clicks, and truncated rewards with heavy tails, all certified.

    (a), (b) Users click with probability 1 / (1 + exp(-8 (<x, theta*> - 1/2))). The same greedy recipe sums x (y - 1/2)
    and x x' (`Linear`) or what one Newton step of logistic regression needs (`Logistic`). (c) Rewards <x, theta*> with
    noise, or times a draw of Pareto's law, clipped to a range around 1/2. Constants were chosen on other seeds.
    """
    run, curves = options.ends(20, 2000, 2000, seeds=(2, 16, 32), fresh=1000), []
    instance = partial(fb.envs.sphere, *options.shape(100, 100, 10))
    studies = [(each, STATISTICS, (1.0, 8.0), dict(contexts=each, rewards="logistic")) for each in ("fresh", "fixed")]
    ranges = options.pick(RANGES[:2], RANGES, RANGES)
    studies += [("tails", {name: None}, ranges, law) for name, law in list(TAILS.items())[options.pick(3, 0, 0) :]]
    for panel, statistics, x, world in studies:
        env = instance(**world)
        make = partial(with_noise, GREEDY, env, run["horizon"], release=fb.privacy.Decaying(1.5), delta=0.1)
        algos = {
            label: {v: make(v if one else 1.0, statistic=one or clipped(v)) for v in x}
            for label, one in statistics.items()
        }
        curves += options.finals(env, algos, panel, noted=True, **run)
        free = along(panel, "no noise", x, [fb.simulate(env, GREEDY, **run)] * len(x)).but(note="none")
        curves.append(free.but(panel="tails, no noise", label=next(iter(statistics))) if panel == "tails" else free)
    chances = ((CHANCE, "logistic"), (f"{CHANCE}, tails", "gaussian"))
    return [*curves, *(uniform(instance(rewards=rewards), run["horizon"], panel) for panel, rewards in chances)]


def draw_glm(curves: list[Curve]) -> Picture:
    curves, shown = dressed(curves, GLM_LOOKS), []
    clicks, chance = (round(the(curves, panel).mean[0], -2) for panel in (CHANCE, f"{CHANCE}, tails"))
    for contexts in ("fresh", "fixed"):
        *private, free = pick(curves, contexts)
        words = dict(enumerate([*(f"ε = {e:g}" for e in free.x), "no\nnoise"]))
        bars = Panel(private, f"clicks, {contexts} arms", "", "regret at T, in clicks", kind="bars", spread=0.4)
        bars.label, bars.places, bars.xticks = "(a), (b): {label}, certified", True, words
        bars.xlim, bars.ylim = (-0.6, len(free.x) + 0.5), (0, 1_900)
        look: dict[str, Any] = dict(yerr=free.error[0], capsize=2, color="0.6", label="(a), (b): linear, no noise")
        bars.also = lambda ax, free=free, look=look: ax.bar(len(free.x), free.mean[0], 0.38, **look)
        shown.append(bars)
    tails, frees = pick(curves, "tails"), pick(curves, "tails, no noise")
    last = tails[0].x[-1] * 2.5  # where runs without noise and clipping are drawn

    def raw(ax: Axes) -> None:
        for i, free in enumerate(frees):
            look: dict[str, Any] = dict(color=styled(free)[0], fmt=styled(free)[2], mfc="white", capsize=3)
            ax.errorbar(panel.aside(i, last), free.mean[0], free.error[0], **look)

    words = "length R of the range of clipped rewards", "regret at T, in units of reward"
    panel = Panel(tails, "heavy tails, ε = 1, certified", *words, label="(c): {label}", spread=0.06, also=raw, **LOGS)
    panel.xticks = {**{r: f"{r:g}" for r in tails[0].x}, last: "none"}
    panel.xlim = (0.2, 2 * last)
    panel.level = {f"(c): {CHANCE}": chance}
    setting = f"""M = 100, K = 100, d = 10, T = 2,000, δ = 0.1. Mean of {curves[0].n_seeds} seeds ± one standard
        error. Uniform play in (a) and (b) has {clicks:,.0f} clicks. Open markers in (c): no noise, no clipping"""
    return Picture(
        [*shown, panel], "Simple statistics and narrow ranges lose least", setting, grid=dict(width_ratios=(1, 1, 2))
    )


BUDGETS = (0.5, 2.0, 8.0)
TITLES = {"insteval": "lectures", "star": "schools", "films": "films"}
LET_IN = {"insteval": 1, "films": 16}  # visits of one user
NONE, WORLD = "no noise, not private", "schools: in the world"
SILOS = {
    "silos trust nobody, one visit": "#D55E00 - o",
    "secure aggregation, one visit": "#0072B2 - s",
    "secure aggregation, a user with all visits": "#CC79A7 - D",
    NONE: "#000000 -",
}
PLAIN = fb.algos.Federated(
    policy=fb.algos.Thompson(scale=0.3, shrinkage=12.0), schedule=fb.schedules.Geometric(2.0, first=1)
)


def recipes(name: str, env: Any, horizon: int, epsilon: float) -> dict[str, fb.algos.Federated]:
    """Returns the private recipes for this data set and budget."""
    delta, made = 1 / (10 * env.fit.replayed_rows), partial(with_noise, PLAIN, env, horizon, epsilon)
    made = partial(made, fb.privacy.Decaying(1.0), delta=delta)
    found = [made(trust, unit="visit") for trust in ("silo_local", "secagg")]
    if name in LET_IN:
        found.append(made("secagg", unit=fb.privacy.Users(LET_IN[name], silos=env.spec.silos)))
    return dict(zip(SILOS, found))


def real_silos(options: Size) -> list[Curve]:
    """Draws what private federation costs on three real logs, whose silos are theirs: lectures, schools and films.

    Rewards come from a model that was fitted to half of each log. The other half is replayed, each row once on average.
    The unit is one visit, which is a row of the log, or a user with a bounded number of visits. Numbers were chosen on
    other seeds. (d) The worth of the arms played in schools, by doubly robust estimates.
    """
    curves, budgets = [], options.pick(BUDGETS[-1:], BUDGETS, BUDGETS)
    for name, title in list(TITLES.items())[: options.pick(2, 3, 3)]:
        env = fb.data.EXAMPLES[name]()
        rounds = env.fit.replayed_rows // env.spec.n_agents
        run = options.run(30, rounds, rounds, seeds=(2, 16, 25), fresh=2026, stride="log", throw=True)
        made = {epsilon: recipes(name, env, run["horizon"], epsilon) for epsilon in budgets}
        algos = {f"{label}, ε = {epsilon:g}": algo for epsilon, of in made.items() for label, algo in of.items()}
        algos[NONE] = PLAIN
        result = options.sweep(env, algos, title=f"{title}\n{env.fit}\n{env.encoding}", **run)
        chance = (env.fit.best - env.fit.uniform) * run["horizon"] * env.spec.n_agents
        panel = f"{title}: {env.spec.n_agents} silos, T = {run['horizon']:,}, random arms lose {chance:,.0f}"
        for label in (*made[budgets[0]], NONE):
            own = [result[NONE if label == NONE else f"{label}, ε = {epsilon:g}"] for epsilon in budgets]
            one = along(panel, label, budgets, own, SILOS[label], partial(final, each=chance))
            note = "; ".join(f"{each.certificate.claim} {each.certificate.epsilon_exact or 0:.3g}" for each in own)
            curves.append(one if label == NONE else one.but(note=note))
        if name == "star":
            values = fb.off_policy(env, algos, horizon=run["horizon"], key=run["key"], seeds=run["seeds"])
            print(values, flush=True)
            curves.append(Curve(WORLD, "in the log", [0], [values.logged]))
            for label in values:
                model, (mean, low, high) = values[label].model, values[label].doubly_robust
                curves.append(Curve(WORLD, label, range(4), [model, low, mean, high]))
    return curves


def draw_real_silos(curves: list[Curve]) -> Picture:
    logs, (logged, *worth) = [panel for panel in panels(curves) if panel != WORLD], pick(curves, WORLD)
    panel = partial(Panel, xlabel="ε", look=dict(markersize=6))
    panel = partial(panel, xscale="log", ylim=(0, 1.08), xticks=BUDGETS, level={"random arms": 1})
    shown = [panel(pick(curves, title), title) for title in logs]
    names = [one.label.replace(", one visit, ", "\n") for one in reversed(worth)]

    def of_schools(ax: Axes) -> None:
        ax.axvline(logged.mean[0], color="#999999", linestyle="--", label="mean score in the log of schools")
        for name, mark in (("by the log, doubly robust, with its 95 % interval", "o-"), ("by the model", "x")):
            ax.plot([], [], mark, color="#777777", label=name)
        for place, one in enumerate(reversed(worth)):
            model, low, mean, high = one.mean
            colour = SILOS[one.label.partition(", ε")[0]].split()[0]
            ax.errorbar(mean, place, xerr=[[mean - low], [high - mean]], fmt="o", markersize=4, color=colour)
            ax.plot(model, place, "x", color=colour)
        ax.set_yticks(range(len(worth)), names, fontsize="small")
        ax.locator_params(axis="x", nbins=5)

    schools = Panel([], "schools: what their log says of the arms played", "mean score of the arms played", kind="rows")
    schools.also, schools.ylim = of_schools, (-0.5, len(worth) - 0.5)
    setting = f"""Rewards in (a) to (c) come from models, not from the world. Thompson sampling, δ = 1 / (10 rows).
        Mean of {curves[0].n_seeds} seeds ± one standard error. All coloured lines are certified"""
    return Picture(
        [*shown, schools],
        "What privacy costs on three real logs",
        setting,
        shape=(2, 2),
        ylabel="regret over random arms'",
    )


FIGURES = {
    "beyond_policies": Experiment(compared, draw_policies),
    "beyond_schedules": Experiment(schedules, draw_schedules),
    "beyond_glm": Experiment(glm, draw_glm),
    "real_silos": Experiment(real_silos, draw_real_silos),
}
