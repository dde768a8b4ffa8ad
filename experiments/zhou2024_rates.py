"""Rates and budgets of Zhou & Chowdhury (2024): Corollary 5.2, Theorem 5.5 and Definition 2.1."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from curves import Curve, exponent, final, panels, pick, random_play, the
from drawing import CHANCE, REFERENCE, Experiment, Panel, Picture, slope
from matplotlib.axes import Axes
from options import Size
from recipes import BUDGET, KNOWN, sharp

import fedbandit_jax as fb

LOCAL, VECTOR_SUM, SECAGG = "silo-level local, Thm 5.1", "shuffled vector sum, Thm 5.5", "secure aggregation"
TRUST: dict[str, Any] = {  # name -> release and trust model
    "not private": None,
    LOCAL: ("tree", "silo_local"),
    VECTOR_SUM: ("tree", "shuffle_vector_sum"),
    SECAGG: ("tree", "secagg"),
    "central": ("tree", "central"),
    "local, user by user": ("input_perturbation", "local"),
}
WORST, RANDOM = "worst gap", "random contexts"
PANELS = ((WORST, False, 4), (WORST, True, 4), (RANDOM, False, 3))  # whether M T is fixed and not T; how many M
WIDTHS = {WORST: fb.algos.UCB(), RANDOM: KNOWN}
LARGEST = 0.5  # gap of the fixed arms
PARTS = (0.6, 1)  # gaps that are tried, as parts of beta sqrt(d / (M T))


@fb.pytree
class FixedArms:
    """Offers everybody the d unit vectors as arms; the second has mean 1/4 + gap, and the others 1/4."""

    gap: float
    spec: fb.Spec = fb.static()

    def init(self, key: jax.Array) -> tuple[()]:
        return ()

    def observe(self, key: jax.Array, world: tuple[()], t: jax.Array) -> tuple[fb.Round, tuple[()]]:
        d = self.spec.dim
        return fb.Round(jnp.broadcast_to(jnp.eye(d), (self.spec.n_agents, d, d))), world

    def pull(self, key: jax.Array, world: tuple[()], offered: fb.Round, arms: jax.Array) -> fb.Feedback:
        lost = jnp.where(arms == 1, 0.0, self.gap)
        return fb.Feedback(jax.random.bernoulli(key, 0.25 + self.gap - lost).astype(jnp.float32), lost)


def bounds(algo: fb.algos.Federated, spec: fb.Spec, horizon: int) -> tuple[float, float]:
    """Returns beta sqrt(d M T), near M T times the worst gap, and the leading term of Lemma C.2 of the paper.

    That has the root of ln(1 + M T / (d lambda_min)) more, by which squared widths add up (the elliptical potential).
    """
    policy: Any = algo.bind(spec, horizon).policy
    scale = float(policy.width(horizon)) * math.sqrt(spec.dim * spec.n_agents * horizon)
    return scale, scale * math.sqrt(math.log1p(float(policy.width.growth) * horizon))


def regret(
    instance: str, policy: Any, privacy: Any, shape: tuple[int, int, int], horizon: int, seeds: int, key: jax.Array
) -> tuple[np.ndarray, float, Any, int]:
    """Returns the final regret (S,), the bound of Lemma C.2, the environment and T, a multiple of the batch.

    At the worst gap all d arms but one are worse by about beta sqrt(d / (M T)). Here beta is the width of the bounds of
    the algorithm. The worse of two gaps counts. Random contexts have no bound. `shape` is (M, K, d).
    """
    batch = max(1, round(math.sqrt(horizon / shape[0])))
    horizon -= horizon % batch
    algo = fb.algos.Federated(policy=policy, schedule=batch, privacy=privacy)
    envs, bound, (m, _, d) = [fb.envs.sphere(*shape, rewards="bernoulli")], math.nan, shape
    if instance == WORST:
        spec = fb.Spec(n_agents=m, n_arms=d, dim=d, fixed_contexts=True, max_norm=1.0, rewards_in_unit=True)
        scale, bound = bounds(algo, spec, horizon)
        envs = [FixedArms(gap=min(LARGEST, part * scale / m / horizon), spec=spec) for part in PARTS]
    run: dict[str, Any] = dict(horizon=horizon, key=key, seeds=seeds, stride=horizon, throw=False)
    found = [final(fb.simulate(env, algo, **run)) for env in envs]
    print(f"{instance}, {privacy}, {shape}, T={horizon}, B={batch}: {np.round(np.mean(found, 1))}", flush=True)
    return max(found, key=np.mean), bound, envs[-1], horizon


def silos(options: Size) -> list[Curve]:
    """Measures how regret grows with the number M of silos: Corollary 5.2 and Theorem 5.5 of Zhou & Chowdhury (2024).

    Batches have B = sqrt(T / M) rounds. Regret is of order M^(3/4) T^(1/2) under silo-level local privacy. It is of
    order M^(1/2) T^(1/2) with shuffled vector sums, as with a trusted server. Bounds are about the worst instance, so
    in (a) and (b) each algorithm meets its own worst gap. In (c) contexts are random, which takes no exploration.
    """
    rounds, users = options.pick((64, 128), (1_000, 1_000_000), (10_000, 10_000_000))
    k, d = options.pick((4, 3), (10, 10), (10, 10))
    agents, key, curves = options.pick([2, 4], *[[10, 100, 1_000, 10_000]] * 2), jax.random.key(options.seed), []
    for instance, split, few in PANELS:
        panel = f"{instance}, M T = {users:,} users" if split else f"{instance}, T = {rounds:,} rounds"
        for name, model in list(TRUST.items())[: options.pick(2, 6, 6)]:  # fewer programs to compile
            privacy = model and fb.privacy.Mechanism(BUDGET, *model)
            of = instance, WIDTHS[instance], privacy
            seeds, shapes = options.pick(2, 6, 25), [(m, k, 2 if instance == WORST else d) for m in agents[:few]]
            found = [regret(*of, shape, users // shape[0] if split else rounds, seeds, key) for shape in shapes]
            colour = fb.plotting.colour(fb.algos.Federated(policy=of[1], schedule=1, privacy=privacy))
            curves.append(Curve(panel, name, agents[:few], [one[0] for one in found], f"{colour} -"))
            if instance == WORST:
                bound = [one[1] for one in found]
                curves.append(Curve(panel, f"{name}, its bound", agents[:few], bound, f"{colour} :"))
        if instance == RANDOM:
            lost = random_play(fb.envs.sphere(10, 10, 10, rewards="bernoulli")) / 10 * rounds * np.array(agents[:few])
            curves.append(Curve(panel, CHANCE, agents[:few], lost, "#999999 -."))
    return curves


def draw_silos(curves: list[Curve]) -> Picture:
    shown = []
    for title, (_, split, _) in zip(panels(curves), PANELS):
        panel = {one.label: one for one in pick(curves, title)}
        ones = [panel[name].but(style=f"{panel[name].style} o") for name in TRUST if name in panel]
        local, central = panel[LOCAL], panel.get("central", panel["not private"])
        sums = [panel[name] for name in (VECTOR_SUM, SECAGG) if name in panel]  # like central, the paper says
        apart = f"within {max((np.abs(one.mean / central.mean - 1).max() for one in sums), default=0.0):.0%} of central"

        def also(ax: Axes, both: Any = (local, central), split: bool = split) -> None:
            for one, order in zip(both, (0.75 - 0.5 * split, 0.5 - 0.5 * split)):
                slope(ax, order, one.x, one.mean[0], "powers of the paper, through the first points")
                end = (one.x[-1], one.mean[0] * (one.x[-1] / one.x[0]) ** order)
                place: Any = dict(xytext=(7, 0), textcoords="offset points", va="center", size="small")
                ax.annotate(f"$M^{{{order:g}}}$", end, **place)

        words = f"{title.rpartition(' ')[0]}\nsums {apart}", "silos M"
        axes: Any = dict(xscale="log", yscale="log", xlim=(local.x[0] / 1.5, 8 * local.x[-1]))
        shown.append(Panel([*ones, *pick(curves, title, CHANCE)], *words, spread=0.04, also=also, **axes))
    setting = f"""$B=\\sqrt{{T/M}}$ but at least 1, ε = 1 and δ = 0.1. All but the black curve are certified. Mean
        of {pick(curves, label="not private")[0].n_seeds} seeds ± one standard error. Worst gap: K = d = 2, each
        algorithm at the worse of two gaps near $\\beta\\sqrt{{d/(MT)}}$ with the paper's β. Random contexts: K = d
        = 10, widths from the law of the noise"""
    title = "Silo-local noise costs more, the more silos"
    return Picture(shown, title, setting, ylabel="group regret at T")


LDP = "silo-level LDP"
MODELS = {LDP: ("silo_local", fb.plotting.COLOURS[1]), "central": ("central", fb.plotting.COLOURS[5])}
BOUND = "bound of Lemma C.2"
NAMES = {"M": "silos M", "T": "rounds T", "d": "features d", "epsilon": "ε", "delta": "ln(1/δ)"}
FIXED: dict[str, dict[str, float]] = {  # values of what does not vary
    WORST: dict(M=100, T=1e4, d=2, epsilon=1.0, delta=0.1),
    RANDOM: dict(M=100, T=1e3, d=10, epsilon=1.0, delta=0.1),
}
SWEEPS: dict[str, tuple[float, str, tuple[float, ...], dict[str, float]]] = {
    # panel -> power in the bound, what varies, its values, and other values of what does not
    "M": (0.75, "M", (10, 100, 1_000), {"T": 1e3}),
    "T": (0.5, "T", (1e3, 1e4, 1e5), {}),
    "d": (0.75, "d", (2, 4, 8), {}),
    "ε, δ = 0.1": (-0.5, "epsilon", (0.2, 1, 5, 25), {}),
    "ε, δ = $10^{-6}$": (-0.5, "epsilon", (0.2, 1, 5, 25), {"delta": 1e-6}),
    "ln(1/δ)": (0.25, "delta", (1e-3, 1e-6, 1e-9), {}),
}


def rates(options: Size) -> list[Curve]:
    """Measures the powers of M, T, d, epsilon and delta in Corollary 5.2 of Zhou & Chowdhury (2024).

    Batches have B = sqrt(T / M) rounds. Silo-level LDP has regret of order T^(1/2) (M d)^(3/4) log^(1/4)(1 / delta) /
    epsilon^(1/2). The central model has a factor of M^(1/4) less. As epsilon goes to 0, a finite noise is enough for
    delta = 0.1 alone. So epsilon is varied at delta = 10^-6, too.
    """
    curves, run = [], (options.pick(2, 8, 25), jax.random.key(options.seed))
    for (instance, base), (sweep, (_, what, x, other)) in itertools.product(FIXED.items(), SWEEPS.items()):
        if instance == RANDOM and what in "dT":
            x = (5, 10, 20) if what == "d" else x[: options.pick(2, 2, 3)]
        x = x[: options.pick(2, None, None)]
        points: list[dict[str, float]] = [{**base, **other, what: value} for value in x]
        panel, at = f"{instance}, {sweep}", np.log(1 / np.array(x)) if what == "delta" else np.array(x)
        for model, (trust, colour) in list(MODELS.items())[: 2 if what == "M" else 1]:
            found = []
            for of in points:
                privacy = fb.privacy.Mechanism(fb.privacy.Budget(of["epsilon"], of["delta"]), "tree", trust)
                horizon, m = (options.pick(few, *[int(of[name])] * 2) for name, few in (("T", 48), ("M", 4)))
                found.append(regret(instance, fb.algos.UCB(), privacy, (m, 10, int(of["d"])), horizon, *run))
            regrets, bound, envs, horizons = zip(*found)
            curves.append(Curve(panel, model, at, regrets, f"{colour} -"))
            if instance == WORST:
                curves.append(Curve(panel, f"{model}, {BOUND}", at, bound, f"{colour} --"))
            if model == LDP:
                played = [random_play(env) * horizon for env, horizon in zip(envs, horizons)]
                curves.append(Curve(panel, CHANCE, at, played, "#999999 -."))
    return curves


def draw_rates(curves: list[Curve]) -> Picture:
    shown = []
    for letter, (sweep, (order, what, *_)) in zip("abcdef", SWEEPS.items()):
        ones = []
        for instance, mark in zip(FIXED, "os"):
            for one in pick(curves, f"{instance}, {sweep}"):
                look = f"{one.style} {mark}" if one.label in MODELS else one.style
                look = "#999999 :" if (instance, one.label) == (RANDOM, CHANCE) else look
                ones.append(one.but(label=f"{instance}: {one.label}", style=look))
        local = the(curves, f"{WORST}, {sweep}", LDP)
        bound = exponent(the(curves, local.panel, f"{LDP}, {BOUND}"))[0]
        name = sweep if what == "epsilon" else NAMES[what]
        title = f"{name}: paper {order:g},\nbound {bound:.2f}, seen {exponent(local)[0]:.2f}"
        panel = Panel(ones, title, NAMES[what], "group regret at T" * (letter in "ad"), xscale="log", yscale="log")
        x = sorted({value for one in ones for value in one.x})
        panel.xticks = {value: f"{value:,.0f}" if value >= 25 else f"{value:.3g}" for value in x}
        panel.open = lambda one: one.label.startswith(RANDOM)
        line: Any = order, local.x, local.mean[0], f"{WORST}: power of Corollary 5.2"
        panel.also = lambda ax, line=line: slope(ax, *line)
        shown.append(panel)
    setting = f"""M = 100, B = √(T/M), ε = 1 and δ = 0.1 where they do not vary. All are certified. Mean of
        {the(curves, f"{WORST}, T", LDP).n_seeds} seeds ± one standard error. Worst gap:
        K = d unit vectors, d = 2, T = 10,000 (1,000 for M), at the worse of two gaps near β √(d/(MT)). Random
        contexts: a sphere, K = 10, d = 10, T = 1,000, the paper's widths"""
    return Picture(shown, "Regret against the powers of Corollary 5.2", setting, shape=(2, 3))


STRICT, LOOSE, SILOS = 0.2, 5.0, (0, 10, 25, 50, 75, 100)


def budgets(options: Size) -> list[Curve]:
    """Draws what Zhou & Chowdhury (2024) allow for and do not measure: a budget of its own for every silo.

    Definition 2.1 has an (epsilon_i, delta_i) for every silo. The noise of the sum has the mean of the variances of all
    silos, so that few strict silos cost all others much.
    """
    env, algos = fb.envs.sphere(100, 100, 10, rewards="bernoulli"), {}
    run = options.run(100, 2_000, 10_000, throw=True, store=options.store)
    for n in SILOS:
        budgets = tuple(fb.privacy.Budget(epsilon, 0.1) for epsilon in [STRICT] * n + [LOOSE] * (100 - n))
        algos[n] = sharp(budgets)
        found = algos[n].certificate(env.spec, run["horizon"])
        print(f"{n} strict silos: {found.claim}, epsilon {sorted({round(one[2], 2) for one in found.per_silo})}")
    return options.finals(env, {"certified": algos}, f"T = {run['horizon']:,}", {"certified": "#0072B2 - o"}, **run)


def draw_budgets(curves: list[Curve]) -> Picture:
    (one,) = curves

    def ends(ax: Axes) -> None:
        for strict, words in ((0, f"all at ε = {LOOSE:g}"), (-1, f"all at ε = {STRICT:g}")):
            ax.axhline(one.mean[strict], **REFERENCE)
            ax.annotate(words, (50, one.mean[strict]), xytext=(0, 3), textcoords="offset points", size="small")

    setting = f"""LDP-FedLinUCB with a budget for every silo, certified. M = 100, K = 100, d = 10, {one.panel}, δ =
        0.1. Mean of {one.n_seeds} seeds ± one standard error"""
    words = "", f"silos that ask for ε = {STRICT:g}, of 100; others for {LOOSE:g}", "group regret at T"
    title = f"{SILOS[1]} strict silos of 100 raise regret {one.mean[1] / one.mean[0]:.1f} times"
    panel = Panel(curves, *words, label="", also=ends, ylim=(0, None))
    return Picture([panel], title, setting)


FIGURES = {
    "zhou2024_silos": Experiment(silos, draw_silos),
    "zhou2024_rates": Experiment(rates, draw_rates),
    "zhou2024_budgets": Experiment(budgets, draw_budgets),
}
