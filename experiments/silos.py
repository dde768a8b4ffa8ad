"""What certified federation costs linear bandits, and which ingredients make it cheap."""

import dataclasses
import re
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from curves import CHANCE, Curve, against, ends, panels, pick, the, uniform
from drawing import LOGS, Experiment, Panel, Picture, level, uncertified
from options import Size
from recipes import BUDGET, GREEDY, HALF, KNOWN, with_noise

import fedbandit_jax as fb

EPSILONS, DELTA = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0), 1e-7
TREE, NARROW, FREE = "published, tree noise", "published, width / 10", "not private"
LOCAL, SECURE = "greedy, less noise", "secure aggregation"
LOOKS = {TREE: "#0072B2 o", NARROW: "#56B4E9 v", LOCAL: "#D55E00 s", SECURE: "#009E73 D", FREE: "#000000"}
TRUST = {LOCAL: "silo_local", SECURE: "secagg"}


def price(options: Size) -> list[Curve]:
    """Draws what privacy costs: regret against epsilon at delta = 10^-7, and regret without privacy.

    All private curves have the same instance, delta and unit, one visit. The first is Algorithm 8 of Zhou & Chowdhury
    (2024) with exact accounting, the second the same with a tenth of its confidence width. The third has the same
    trust: every silo adds its own noise; beyond_silos has its ingredients. The fourth needs secure aggregation.
    """
    env = options.sphere()
    run, epsilons = options.ends(50, 10_000, 10_000), EPSILONS[: options.pick(2, 6, 6)]
    noisy = partial(with_noise, GREEDY, env, run["horizon"], release=fb.privacy.Decaying(1.5), delta=DELTA)
    published = {e: fb.algos.private_fed_lin_ucb(fb.privacy.Budget(e, DELTA)) for e in epsilons}
    algos: dict[str, Any] = {TREE: published}
    algos[NARROW] = {e: one.replace(exploration_scale=0.1) for e, one in published.items()}
    algos |= {name: {e: noisy(e, trust=trust) for e in epsilons} for name, trust in TRUST.items()}
    finals = partial(options.finals, env, looks=LOOKS, noted=True, **run)
    free = finals({FREE: {0: GREEDY}}, FREE)
    return [*finals(algos, f"T = {run['horizon']:,}"), *free, uniform(env, run["horizon"])]


def draw_price(curves: list[Curve]) -> Picture:
    *lines, free, chance = curves
    x = lines[0].x
    flat = free.but(x=x, y=[free.y[0]] * len(x))
    words = "", "ε at δ = $10^{-7}$", "group regret"
    panel = Panel([*lines, flat], *words, ends=True, xticks=x, level={CHANCE: chance.mean[0]}, **LOGS)
    at = min(range(len(x)), key=lambda i: abs(x[i] - 1))
    setting = f"""M = 100 silos, K = 100, d = 10, {lines[0].panel}. Mean of {lines[0].n_seeds} seeds ± one standard
        error. All curves in colour are certified. In the first three every silo adds its own noise"""
    return Picture(
        [panel], f"Same guarantee, same trust: {lines[1].mean[at] / lines[2].mean[at]:.0f} times less regret", setting
    )


BEST: dict[str, Any] = dict(release="blt", regularizer="project", confidence="known_noise")
DELTAS = (0.1, 1e-7)


def private(name: str, delta: float = 0.1, **parameters) -> fb.Algorithm:
    budget = fb.privacy.Budget(parameters.pop("epsilon", 1.0), delta)
    return fb.algos.private_fed_lin_ucb(budget, name=name).replace(**parameters)


ACROSS = [
    fb.algos.fed_lin_ucb(name="not private"),
    private("binary tree, as printed (Theorem 5.1)", std="theorem_5_1", learns_in_batch=True),
    private("buffered linear Toeplitz noise", release="blt"),
    private("the same, projected, widths from the law of the noise", **BEST),
    private("the same under secure aggregation", trust="secagg", **BEST),
]
STEPS: dict[str, dict] = {  # + is added to all before it
    "binary tree, as printed (Theorem 5.1)": dict(std="theorem_5_1", learns_in_batch=True),
    "+ agents act on released sums only": dict(std="theorem_5_1"),
    "+ exact accounting": {},
    "+ buffered linear Toeplitz noise, not a tree": dict(release="blt"),
    "+ projection of the Gram matrix": dict(release="blt", regularizer="project"),
    "+ confidence widths from the law of the noise": BEST,
    "+ batches of 50, not 25": dict(schedule=50, **BEST),
    "secure aggregation, projected, batches of 25": dict(release="blt", regularizer="project", trust="secagg"),
    "secure aggregation, + widths from that law": dict(trust="secagg", **BEST),
    "those widths, batches of 25, ε = 10⁴": dict(epsilon=1e4, **BEST),
}
PLAIN = ("not private, acts on synchronised sums only", "not private")


def beyond(options: Size) -> list[Curve]:
    """Shows what certified privacy costs when every part of Private-FedLinUCB is as good as we know how.

    (a) Regret against epsilon, on the synthetic instance of Zhou & Chowdhury (2024). All have the same widths. (b), (c)
    One ingredient after the other, for delta = 0.1 and 10^-7 (there are 10^6 users). The width "from known noise" is
    narrower even without noise, so the last but two has it at epsilon = 10^4.
    """
    env, run = options.sphere(), options.run(50, 10_000, 10_000)
    epsilons = options.pick((1.0,), (0.2, 1.0, 5.0), (0.2, 0.5, 1.0, 2.0, 5.0))
    across = options.sweep(env, ACROSS[:: options.pick(3, 1, 1)], grid={"epsilon": epsilons}, **run)
    algos = [private(f"{name}, δ = {delta:g}", delta, **parts) for name, parts in STEPS.items() for delta in DELTAS]
    algos += [fb.algos.fed_lin_ucb(name=PLAIN[0], learns_in_batch=False), ACROSS[0]]
    title = f"T = {run['horizon']:,}"
    steps = ends(options.sweep(env, algos, **run), f"one ingredient after the other, {title}")
    return [*against(across, "epsilon", f"against ε, {title}"), uniform(env, run["horizon"]), *steps]


def draw_beyond(curves: list[Curve]) -> Picture:
    first, _, last = panels(curves)
    lines = [one.but(label=one.label.replace("not private", "FedLinUCB")) for one in pick(curves, first)]
    steps = {one.label: one for one in pick(curves, last)}
    looks = ("--" if uncertified(one) else "-" for one in lines)
    lines = [one.but(style=f"{one.style} {look} {mark}") for one, look, mark in zip(lines, looks, "oos^D")]
    left = Panel(lines, "against ε, at δ = 0.1", "ε", "group regret at T", label="{label}: {promise}", xscale="log")
    left.xticks, left.yscale = lines[0].x, "log"
    shown = [left]
    for delta, title in zip(DELTAS, ("ε = 1, δ = 0.1", "ε = 1, $δ = 10^{-7}$")):
        named = {name: steps[f"{name}, δ = {delta:g}"] for name in STEPS} | {name: steps[name] for name in PLAIN}
        rows = [one.but(label=name, style=f"{one.style} o") for name, one in named.items()]
        shown.append(Panel(rows, title, "group regret at T", kind="rows", numbers="{mean:,.0f}"))
        shown[-1].xscale, shown[-1].xlim = "log", (500, 6e5)
    for panel in shown:
        panel.level, panel.open = level(curves), uncertified
    shown[2].label = ""
    setting = f"""M = 100, K = 100, d = 10, {first.partition(", ")[2]}. Mean of {lines[0].n_seeds} seeds ± one
        standard error. Open markers: not certified. What rows with + have is added to all above"""
    return Picture(
        shown, "What certified privacy costs, ingredient by ingredient", setting, grid=dict(width_ratios=(1.1, 1, 1))
    )


FIRST = {0.1: 12, 1e-7: 50}  # delta -> the first round after which greedy agents synchronise
SLIGHT = dataclasses.replace(KNOWN, exploration_scale=0.05)
ALMOST_NOTHING = 1e-3  # factor on x x' that leaves all the noise that counts to x y


class Average(NamedTuple):
    """What the oracle believes."""

    gram: Any  # (d, d) the mean of sum x x', given all that was played
    theta: Any  # (d,)
    count: Any  # users in these sums


@fb.pytree
class Oracle(fb.Policy):
    """Greedy play that knows E[x x'] of what it plays, where x = (u, 1) / sqrt 2 and u is uniform on a sphere.

    Of K such u the one with the largest inner product with a unit vector v has E<u, v> = `mean`, E<u, v>^2 = `square`.
    """

    mean: float
    square: float

    def start(self, dim: int) -> Average:
        """Returns nothing."""
        return Average(jnp.zeros((dim, dim)), jnp.zeros(dim), jnp.float32(0))

    def update(self, k: Any, belief: Average, released: Any) -> Average:
        """Adds what x x' was on average since the last release, and estimates theta."""
        n, played = released.dim - 1, jnp.any(belief.theta != 0)  # before the first release any arm is played
        v = belief.theta[:-1] / jnp.maximum(jnp.linalg.norm(belief.theta[:-1]), 1e-9)
        along, square = jnp.where(played, self.mean, 0.0) * v, jnp.where(played, self.square, 1 / n)
        inner = (1 - square) / (n - 1) * (jnp.eye(n) - jnp.outer(v, v)) + square * jnp.outer(v, v)
        inner = jnp.where(played, inner, jnp.eye(n) / n)
        mean = jnp.block([[inner, along[:, None]], [along[None], jnp.ones((1, 1))]]) / 2
        gram = belief.gram + (released.count - belief.count) * mean
        ridge = 1 + 8 * ALMOST_NOTHING * released.std  # 8 standard deviations of the noise on sum x y
        theta = jnp.linalg.solve(gram + ridge * jnp.eye(n + 1), released.bias)
        return Average(gram, theta, released.count)

    def index(self, key: Any, t: Any, belief: Average, contexts: Any) -> Any:
        """Returns <x, theta>."""
        return contexts @ belief.theta


def oracle() -> Oracle:
    """Returns the oracle for K arms of d features, whose two numbers are means over 20,000 draws."""
    u = np.random.default_rng(0).standard_normal((20_000, 100, 9), np.float32)
    largest = (u[..., 0] / np.linalg.norm(u, axis=-1)).max(1)
    return Oracle(mean=float(largest.mean()), square=float((largest**2).mean()))


def ladder(delta: float) -> dict[str, fb.Algorithm]:
    """Returns the algorithms by what was added last."""
    algos, growing, first = fb.algos, partial(fb.schedules.Geometric, 1.5), FIRST[delta]

    def private(policy: Any, schedule: Any, release: Any = "blt", **options: Any) -> fb.Algorithm:
        privacy = fb.privacy.Mechanism(fb.privacy.Budget(1.0, delta), release, **options)
        return algos.Federated(policy=policy, schedule=schedule, privacy=privacy)

    linear, decaying = partial(fb.privacy.Linear, centred=True), fb.privacy.Decaying(1.5)
    knows = private(oracle(), growing(first), decaying, statistic=linear(gram_scale=ALMOST_NOTHING))
    return {
        "optimism, buffered linear Toeplitz noise, batches of 50": private(KNOWN, 50),
        "+ batches that grow by half, confidence width / 20": private(SLIGHT, growing(25)),
        "+ centred rewards, x (y − 1/2)": private(SLIGHT, growing(25), statistic=linear()),
        "+ x x' halved before noise is added": private(SLIGHT, growing(25), statistic=HALF),
        "+ matrix mechanism for growing batches": private(SLIGHT, growing(25), decaying, statistic=HALF),
        f"+ greedy play, first release after round {first}": private(
            GREEDY.policy, growing(first), decaying, statistic=HALF
        ),
        "oracle: knows the mean of x x'": knows,
        f"not private: greedy, the same rounds ({first})": algos.Federated(
            policy=GREEDY.policy, schedule=growing(first)
        ),
        "not private: greedy, from round 2 on": algos.Federated(policy=GREEDY.policy, schedule=growing(2)),
        "not private: FedLinUCB, batches of 25": algos.fed_lin_ucb(learns_in_batch=False),
    }


def silos(options: Size) -> list[Curve]:
    """Draws how little silo-level privacy need cost federated linear bandits, one ingredient after the other.

    Every silo adds its own noise; all private rows are certified for epsilon = 1. The first is the best of `beyond.py`.
    An oracle knows all except theta*: it needs no sum of x x', and all noise is on x y. The last rows are not private.
    FedLinUCB is Algorithm 8 of Zhou & Chowdhury (2024). Numbers were chosen on other seeds.
    """
    run = options.run(50, 10_000, 10_000, seeds=(2, 16, 25), fresh=2024, stride="log", throw=True)
    env, curves = options.sphere(), []
    for delta in list(FIRST)[: options.pick(1, 2, 2)]:
        result = options.sweep(env, ladder(delta), title=f"delta = {delta:g}", **run)
        for one in ends(result, f"δ = {delta:g}, T = {run['horizon']:,}"):
            colour = "#555555" if one.note != "certified" else "#56B4E9" if "oracle" in one.label else "#0072B2"
            curves.append(one.but(style=colour))
    return [*curves, uniform(env, run["horizon"], x=run["horizon"])]


def draw_silos(curves: list[Curve]) -> Picture:
    chance, shown = the(curves, CHANCE), []
    for title in panels(curves)[:-1]:
        panel = pick(curves, title)
        start = re.findall(r"\d+", panel[5].label)[0]
        ones = []
        for one in panel:
            ones.append(one.but(label=one.label.replace(f"round {start}", "round n").replace(f"({start})", "(n)")))
        words = re.sub(r"1e-0?(\d+)", r"$10^{-\1}$", f"{title}, n = {start}")
        shown.append(Panel(ones, words, "group regret at T", kind="rows"))
        shown[-1].xlim = (0, 1.2 * max(one.mean[0] for one in panel))
    setting = f"""Silo-local noise, ε = 1, M = 100, K = 100, d = 10. Mean of {curves[0].n_seeds} seeds ± one
        standard error. What rows with + have is added to all above. Dark blue: certified; light blue: an oracle
        that nobody can run; grey: not private. n: first release of greedy play. Uniform play has
        {round(chance.mean[0], -3):,.0f}"""
    return Picture(shown, "What each ingredient saves under silo-local noise", setting, grid=dict(sharey=True))


A = fb.algos
WIDE, THEORY = A.LogDetUCB(regularization=1 / 100), A.LogDetUCB(spectral="theory")
PRINTED = fb.privacy.Mechanism(BUDGET, "tree", "silo_local_matrix", std="dubey2020")
BLT, SHARP = (fb.privacy.Mechanism(BUDGET, one, statistic=HALF) for one in ("blt", fb.privacy.Decaying(1.5)))
LOG_DET, GROWING = fb.schedules.LogDet, fb.schedules.Geometric
NETWORKS = {"complete": (1, 12, 0.3), "grid": (6, 50, 1.0), "ring": (10, 50, 1.0)}  # gamma, first release, their D


def controlled() -> dict[str, fb.Algorithm]:
    tests = fb.schedules.PrivateLogDet(10.0, max_syncs=32)
    growing = A.fed_ucb(SHARP, policy=GREEDY.policy, schedule=GROWING(1.5, 12), learns_in_batch=False)
    return {
        "FedUCB as printed, D = 30": A.fed_ucb(PRINTED, policy=THEORY, schedule=LOG_DET(30.0, "dp20")),
        "private test, D = 10": A.fed_ucb(BLT, policy=SLIGHT, schedule=tests, learns_in_batch=False),
        "growing batches, greedy": growing,
        "growing batches, greedy, secure aggregation": growing.replace(trust="secagg", first=3),
        "not private: FedLinUCB, lazy": A.fed_lin_ucb(learns_in_batch=False),
        "not private: FedLinUCB": A.fed_lin_ucb(),
        "not private: FedUCB, D = 30": A.fed_ucb(policy=WIDE, schedule=LOG_DET(30.0)),
        "not private: FedUCB, D = 0.3": A.fed_ucb(policy=WIDE, schedule=LOG_DET(0.3)),
    }


def on_networks(options: Size, n_agents: int) -> dict[str, fb.Algorithm]:
    algos: dict[str, fb.Algorithm] = {}
    for name, (gamma, first, own) in list(NETWORKS.items())[: options.pick(1, 3, 3)]:
        graph: dict[str, Any] = dict(graph=fb.networks.make(name, n_agents))
        plain = A.Gossip(gamma=gamma, policy=A.Greedy(), schedule=GROWING(1.5, first=first), **graph)
        printed = A.GossipFedUCB(privacy=BUDGET, schedule=LOG_DET(30.0), **graph)
        algos[f"{name}: Algorithm 3 with noise, γ = 1"] = printed
        algos[f"{name}: Gossip, γ = {gamma}"] = plain.replace(privacy=SHARP)
        algos[f"{name}: Gossip, γ = {gamma}, not private"] = plain
        free = A.GossipFedUCB(policy=WIDE, schedule=LOG_DET(own), **graph)
        algos[f"{name}: Algorithm 3, γ = 1, not private"] = free
    return algos


def feducb(options: Size) -> list[Curve]:
    """Draws certified FedUCB and gossip, and the printed algorithms with and without privacy.

    Filled markers are certified for epsilon = 1. (a) Algorithm 1 of Dubey & Pentland (2020) as printed; a private test
    in place of its trigger; batches that grow, fixed in advance; and the same with secure aggregation. (b) On networks
    Gossip adds up what all silos within gamma hops release. D and the first release were chosen on other seeds.
    """
    env, curves = options.sphere(), []
    run = options.run(60, 10_000, 10_000, fresh=2024, stride="log")
    both = {"with a controller": controlled(), "on a network": on_networks(options, env.spec.n_agents)}
    for title, algos in both.items():
        curves += ends(options.sweep(env, algos, **run), f"{title}, T = {run['horizon']:,}", "rounds")
    return [*curves, uniform(env, run["horizon"])]


def draw_feducb(curves: list[Curve]) -> Picture:
    shown = []
    for title in panels(curves)[:-1]:
        ones = []
        for one in pick(curves, title):
            name = one.label.replace(", secure", ",\nsecure").replace(", lazy", ",\nsynchronised sums only")
            look = {"certified": f"{fb.plotting.COLOURS[1]} o", "none": "#555555 s"}.get(one.note, "#555555 o")
            ones.append(Curve(title, name, one.x[:1], one.y[:1], look, one.note))
        panel = Panel(ones, title.partition(", T")[0], "group regret at T", kind="rows", xscale="log", xlim=(150, 6e5))
        panel.level, panel.open = level(curves), uncertified
        shown.append(panel)
    setting = f"""M = K = 100, d = 10, T = 10,000, ε = 1, δ = 0.1. Mean of {curves[0].n_seeds} seeds ± one standard
        error. Blue: certified; squares: with noise, no privacy claim; open circles: not private"""
    return Picture(shown, "Certified variants of FedUCB, and FedUCB as printed", setting)


FIGURES = {
    "price": Experiment(price, draw_price),
    "beyond": Experiment(beyond, draw_beyond),
    "beyond_silos": Experiment(silos, draw_silos),
    "beyond_feducb": Experiment(feducb, draw_feducb),
}
