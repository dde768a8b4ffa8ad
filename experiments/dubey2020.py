"""FedUCB of Dubey & Pentland (2020): Figures 1 and 2, how often it synchronises, and networks without a server."""

import itertools
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from curves import Curve, exponent, final, lasts, of_result, panels, pick, pm, random_play, the
from drawing import CHANCE, LOGS, REFERENCE, Experiment, Panel, Picture, slope, write
from matplotlib.axes import Axes
from options import DubeyOptions

import fedbandit_jax as fb

RANDOM = 9 / 10 * (0.1 + 0.1)  # mean regret of an arm at random, per round and agent, with K = 10 and gap 0.1
FIG1A_LOOKS = {(2, 1.0): "#0072B2 : o", (2, 5.0): "#D55E00 : s", (5, 1.0): "#56B4E9 : ^", (5, 5.0): "#E69F00 : D"}


def fig1a(options: DubeyOptions) -> list[Curve]:
    """Draws Figure 1 (a) of Dubey & Pentland (2020): regret per agent of FedUCB after T rounds against epsilon.

    With the width as printed, the best arm has the smallest width. So agents play worse than at random until the data
    outweigh the noise (a). The paper names neither M nor K.
    """
    run, curves = options.run(50, 10_000_000, 10_000_000, seeds=(2, 10, 100)), []
    for (m, epsilon), look in list(FIG1A_LOOKS.items())[: options.pick(2, 2, 4)]:
        env, name = fb.envs.gap(*options.shape(m, 10, 10), gap=0.1), f"M = {m}, ε = {epsilon:g}"
        result = options.sweep(env, {name: fb.algos.fed_ucb(fb.privacy.Budget(epsilon, 0.1))}, **run)
        curves += [one.but(style=look) for one in of_result(result, "over rounds", each=m)]
    return curves


def draw_fig1a(curves: list[Curve]) -> Picture:
    horizon = curves[0].x[-1]
    shares = [one.mean[-1] / RANDOM / horizon for one in curves]
    words = "average up to round $t$", "round $t$", "regret per agent and round"
    averages, level = [one.per(one.x) for one in curves], {CHANCE: RANDOM}
    left = Panel(averages, *words, kind="lines", level=level, xlim=(1e3, horizon), **LOGS)
    names = [f"(b) {one.label}: {one.said()}, {share:.1%} of uniform play" for one, share in zip(curves, shares)]
    ends = [lasts([one], name, [epsilon]) for one, name, (_, epsilon) in zip(curves, names, FIG1A_LOOKS)]
    words = f"after T = {horizon:,.0f} rounds", "ε of the noise on messages", "regret per agent"
    right = Panel(ends, *words, xticks=(1, 5), xlim=(0, 6), ylim=(0, None))
    setting = f"""FedUCB with K = 10, d = 10, gap 0.1, δ = 0.1, the paper's width and exact noise. Mean of
        {curves[0].n_seeds} seeds ± one standard error. Dotted: no privacy claim, as raw data decide when to
        synchronise"""
    return Picture([left, right], "FedUCB: a larger budget has less regret", setting)


BUDGET, LONG = fb.privacy.Budget(1.0, 0.1), "ε = 1, width as printed"
SCHEDULES = {name: fb.schedules.LogDet(name) for name in ("M log T", "M^1.5")} | {"M T": fb.schedules.Every(1)}
PANELS: dict[str, tuple[Any, float, tuple[int, int, int], tuple[int, int, int]]] = {
    # title -> budget, factor on the width, T for smoke, default and full, and the seeds
    "not private, width as printed": (None, 1.0, (50, 10_000, 100_000), (2, 8, 100)),
    LONG: (BUDGET, 1.0, (50, 200_000, 1_000_000), (2, 3, 100)),
    "ε = 1, a tenth of the width": (BUDGET, 0.1, (50, 10_000, 100_000), (2, 8, 100)),
}


def fig1b(options: DubeyOptions) -> list[Curve]:
    """Draws Figure 1 (b) of Dubey & Pentland (2020): regret of FedUCB over rounds, for three amounts of communication.

    The paper does not name T: (b) has as many rounds as agents need to learn. In (c) they learn at once from their own
    raw rows. Communication is of order M log T, M^1.5 or M T (every round).
    """
    env, curves = fb.envs.gap(*options.shape(100, 25, 10)), []
    for title, (budget, scale, horizons, seeds) in PANELS.items():
        for (name, schedule), colour, mark in zip(SCHEDULES.items(), fb.plotting.COLOURS[1:], "os^"):
            algo = fb.algos.fed_ucb(budget, schedule=schedule).replace(exploration_scale=scale)
            result = options.sweep(env, {name: algo}, title=title, **options.run(*horizons, seeds=seeds))
            (one,) = of_result(result, title, each=100)
            line = ":" if budget and result.certificate.claim == "none" else "-"
            syncs = f"{result.communication['rounds'][:, -1].mean():,.0f}"
            curves.append(one.but(style=f"{colour} {line} {mark}", note=syncs))
        x = curves[-1].x
        curves.append(Curve(title, CHANCE, x, random_play(env) / 100 * x, "#999999 -."))
    return curves


def draw_fig1b(curves: list[Curve]) -> Picture:
    shown = []
    for letter, title in zip("abc", PANELS):
        *runs, chance = pick(curves, title)
        over = [one.but(label=f"order {one.label}".replace("M^1.5", "$M^{1.5}$")).per(chance.mean) for one in runs]
        syncs = "\n".join(["synchronisations", *(f"{one.label}: {one.note}" for one in over)])
        size = f"T = {chance.x[-1]:,.0f}, {runs[0].n_seeds} seeds"
        axes: Any = dict(ylim=(0, None)) if title == LONG else dict(yscale="log")
        axes |= dict(ylabel="regret over uniform play's" * (letter == "a"), xscale="log", xlim=(10, None))
        panel = Panel(over, f"{title}\n{size}", "round $t$", kind="lines", level={CHANCE: 1}, band=None, **axes)
        panel.also = lambda ax, syncs=syncs: write(ax, 0.03, 0.03, syncs)
        shown.append(panel)
    setting = """FedUCB with M = 100, K = 25, d = 10, δ = 0.1 and exact noise. Mean ± 95 % interval. The legend has
        the order of communication. Dotted: no privacy claim; solid in (b) and (c): certified"""
    return Picture(shown, "FedUCB: more communication has less regret", setting)


DIMENSIONS = (4, 8, 16)
FIG1C_ALGOS = {"ε = 1": fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1)), "not private": fb.algos.fed_ucb()}
FIG1C_LOOKS = {"ε = 1": "#CC79A7 :", "not private": "#000000 -"}
HORIZONS = {100: (50, 5_000, 100_000), 2: (50, 500_000, 2_000_000)}  # M -> T for smoke, default and full


def fig1c(options: DubeyOptions) -> list[Curve]:
    """Draws Figure 1 (c) of Dubey & Pentland (2020): regret of FedUCB for d = 4, 8 and 16 features.

    With M = 100 as in the paper (a), private agents still play at random after our T rounds. (b) has M = 2 agents and
    more rounds. (c) is regret after T rounds. K is 16 for all d; the paper says K <= d^2.
    """
    curves = []
    for m, horizons in HORIZONS.items():
        for d, colour, mark in zip(DIMENSIONS[: options.pick(2, 3, 3)], fb.plotting.COLOURS[1:], "os^"):
            env = fb.envs.gap(n_agents=options.pick(4, m, m), n_arms=16, dim=d)
            result = options.sweep(env, FIG1C_ALGOS, title=f"M = {m}, d = {d}", **options.run(*horizons))
            for one in of_result(result, f"M = {m}", each=m):
                look = f"{colour} {FIG1C_LOOKS[one.label][-1]} {mark}"
                curves.append(one.but(label=f"d = {d}, {one.label}", style=look))
        each, x = random_play(fb.envs.gap(n_agents=m, n_arms=16, dim=4)) / m, curves[-1].x  # the same for all d
        curves.append(Curve(f"M = {m}", CHANCE, x, each * x, "#999999 :"))
    return curves


def draw_fig1c(curves: list[Curve]) -> Picture:
    shown, ends = [], []
    for m, mark in zip(HORIZONS, "os"):
        panel = pick(curves, f"M = {m}")
        horizon = panel[0].x[-1]
        title = f"up to round $t$,\nM = {m}, T = {horizon:,.0f}"
        shown.append(Panel([one.per(one.x) for one in panel], title, "round $t$", kind="lines", xlim=(0, horizon)))
        for algo, look in FIG1C_LOOKS.items():
            mine = [one for one in panel if one.label.endswith(f", {algo}")]
            one = lasts(mine, "", DIMENSIONS[: len(mine)], f"{look} {mark}")
            ends.append(one.but(label=f"(c) M = {m}, {algo}: power {pm(*exponent(one))}"))
    shown[0].ylim, shown[0].ylabel = (0, None), "regret per agent and round"
    last = shown[1].xlim[1]
    shown[1].xscale, shown[1].yscale, shown[1].xlim = "log", "log", (last / 1000, last)
    words = "after T rounds", "features $d$", "regret per agent"
    powers = Panel(ends, *words, xscale="log", yscale="log", xticks=DIMENSIONS)
    powers.also = lambda ax: slope(ax, 2.0, DIMENSIONS, 0.6 * ends[2].mean[0], "(c) $d^2$, as the paper says")
    setting = f"""FedUCB with K = 16, gap 0.1, δ = 0.1, the paper's width and exact noise. Mean of
        {curves[0].n_seeds} seeds ± one standard error. Exponents have 95 % intervals. Dotted: no privacy claim, as
        raw data decide when to synchronise"""
    return Picture([*shown, powers], "FedUCB: regret against the number of features", setting)


GAPS = (0.05, 0.1, 0.2, 0.3)
FIG2_ALGOS = {f"ε = {e}": fb.algos.fed_ucb(fb.privacy.Budget(float(e), 0.1)) for e in (1, 10)}
SHADES = "#5C2800 : o", "#D55E00 : s", "#F08A3C : ^", "#F7BC8B : D"


def fig2(options: DubeyOptions) -> list[Curve]:
    """Draws Figure 2 of Dubey & Pentland (2020): regret of FedUCB against the gap between the best arm and the others.

    The paper says that regret falls with the gap. But nobody learns before the first synchronisation, whose time D ~ T
    / log T sets. Until then an agent loses about the gap + 0.1 a round.
    """
    run, curves = options.run(50, 200_000, 1_000_000), []
    for gap in GAPS[:: options.pick(3, 1, 1)]:
        env = fb.envs.gap(*options.shape(10, 10, 10), gap=gap)
        result = options.sweep(env, FIG2_ALGOS, title=f"gap {gap}", **run)
        for one, colour in zip(of_result(result, f"{gap}", each=10), fb.plotting.COLOURS[1:]):
            curves.append(one.but(style=f"{colour} : o"))
    return curves


def draw_fig2(curves: list[Curve]) -> Picture:
    gaps, horizon = np.array([float(gap) for gap in panels(curves)]), curves[0].x[-1]
    ends = [lasts(pick(curves, label=name), name, gaps) for name in FIG2_ALGOS]
    words = f"after T = {horizon:,.0f} rounds", "gap $\\Delta$", "regret per agent"
    left = Panel(ends, *words, ylim=(0, None), xticks=gaps)
    left.also = lambda ax: ax.plot(gaps, 9 / 10 * (gaps + 0.1) * horizon, label=CHANCE, **REFERENCE)
    over = zip(pick(curves, label="ε = 10"), SHADES)
    over = [one.but(label=f"(b) gap {one.panel}", style=look) for one, look in over]
    right = Panel(over, "over rounds at ε = 10", "round $t$", kind="lines", ylim=(0, None))
    setting = f"""FedUCB with M = 10, K = 10, d = 10, δ = 0.1 and T = {horizon:,.0f}. It has the paper's width and
        exact noise. Mean of {curves[0].n_seeds} seeds ± one standard error. Dotted: no privacy claim, as raw data
        decide when to synchronise"""
    title = "FedUCB: regret rises with the gap, unlike claimed"
    return Picture([left, right], title, setting)


ENV = fb.envs.gap(n_agents=10, n_arms=25, dim=10)
THRESHOLDS = {"M log T": "D of Theorem 1, in proportion to T / log T", 10.0: "D = 10, whatever T"}
TRIGGERS = {"printed": "dp20", "restated": "zc24"}
COLOURS: dict[str, str] = dict(zip(("not private", "ε = 1", "ε = 10"), fb.plotting.COLOURS))
PRIVATE = {f"ε = {e}, {words}": (fb.privacy.Budget(e, 0.1), t) for e in (1, 10) for words, t in TRIGGERS.items()}
SETTINGS = {"not private": (None, "zc24"), **PRIVATE}  # without noise the two triggers are the same


def bounds(algo: fb.algos.Federated, trigger: str, horizon: int) -> tuple[float, float]:
    """Computes Proposition 1, and a bound that holds with noise: n <= T / (2 D) (c + sqrt(c^2 + 4 d L D / T)) epochs.

    Noise may take back some of a log-determinant (Zhou & Chowdhury 2024, Appendix B.3). Eigenvalues of the regulariser
    are between M rho_min and M rho_max, so this is no more than c = d ln(rho_max / rho_min). The printed trigger has c
    = d ln(2 rho_max / rho_min - 1). With epochs of Dt rounds, D n^2 / T <= sum D / Dt <= d L + n c, where L =
    ln(rho_max / rho_min + T / (d rho_min)).
    """
    bound: Any = algo.bind(ENV.spec, horizon)
    d, (low, high) = ENV.spec.dim, bound.policy.rho
    per_round = float(bound.schedule.threshold) / horizon
    total = d * np.log(high / low + horizon / (d * low))
    c = d * np.log(high / low if trigger == "zc24" else 2 * high / low - 1)
    ours = (c + np.sqrt(c * c + 4 * total * per_round)) / per_round / 2
    return 2 * np.sqrt(total / per_round) + 4, ours if ours < horizon else np.nan


def syncs(options: DubeyOptions) -> list[Curve]:
    """Measures how often FedUCB synchronises in T rounds; Proposition 1 of Dubey & Pentland (2020) promises O(log T).

    With D = 10 the trigger as printed fires every other round until the data outweigh the noise. There Proposition 1
    fails, as Zhou & Chowdhury (2024), Appendix B.3, feared. With the trigger as they restate it, it was not violated.
    """
    horizons = np.round(10 ** np.arange(2.5, options.pick(2.6, 5.6, 6.1), 0.5)).astype(int).tolist()
    algos: dict[str, Any] = {
        f"{d}, {name}": fb.algos.fed_ucb(budget, schedule=fb.schedules.LogDet(d, trigger))
        for d in THRESHOLDS
        for name, (budget, trigger) in SETTINGS.items()
    }
    found = {horizon: fb.sweep(ENV, algos, **options.run(*[horizon] * 3, seeds=(1, 2, 10))) for horizon in horizons}
    curves = []
    for d, name in itertools.product(THRESHOLDS, SETTINGS):
        label, panel, colour = f"{d}, {name}", THRESHOLDS[d], COLOURS[name.split(",")[0]]
        syncs = [result[label].communication["rounds"][..., -1].ravel() for result in found.values()]
        curves.append(Curve(panel, name, horizons, syncs, f"{colour} o"))
        of = np.array([bounds(algos[label], SETTINGS[name][1], horizon) for horizon in horizons]).T
        for values, line, bound in zip(of, ("-", "--"), ("Proposition 1", "bound with noise")):
            curves.append(Curve(panel, f"{name}: {bound}", horizons, values, f"{colour} {line}"))
    return curves


def draw_syncs(curves: list[Curve]) -> Picture:
    shown = []
    for (trigger, title), letter in zip(itertools.product(TRIGGERS, THRESHOLDS.values()), "abcd"):
        drawn = []
        for (name, colour), mark in zip(COLOURS.items(), "os^"):
            label = f"{name}, {trigger}" if name != "not private" else name
            runs, proved, ours = (
                the(curves, title, label + of) for of in ("", ": Proposition 1", ": bound with noise")
            )
            drawn.append(proved.but(label=f"{name}: Proposition 1", style=f"{colour} -"))
            drawn.append(ours.but(label=f"{name}: our bound, which holds with noise", style=f"{colour} --"))
            drawn.append(runs.but(label=f"{name}: runs", style=f"{colour} {mark}"))
        axes: Any = dict(xscale="log", yscale="log" if title == THRESHOLDS[10.0] else "symlog")
        axes |= dict(yticks=(0, 1, 2, 5, 10, 20) if letter in "ac" else None, look=dict(linestyle="none", mfc="none"))
        shown.append(Panel(drawn, f"trigger as {trigger};\n{title}", "rounds $T$", "synchronisations", **axes))
    setting = f"""FedUCB with M = 10, K = 25, d = 10, gap 0.1, δ = 0.1 and exact noise. Means of {curves[0].n_seeds}
        runs. With noise there is no privacy claim. The trigger is as printed, or as Zhou & Chowdhury (2024) restate
        it, which is the same without noise"""
    title, grid = "The printed trigger fires too often under noise", dict(sharex=True, sharey="col")
    return Picture(shown, title, setting, shape=(2, 2), grid=grid)


GAMMAS = (1, 2, 3, 4)
REGRET, HOPS, PRODUCT = "group regret", "messages times hops", "group regret against chi gamma"
NAMES = {"erdos_renyi": "Erdős–Rényi", "hierarchical": "binary tree"}
ALONE = ("controller", "nobody talks")


def common(n_agents: int) -> dict[str, Any]:
    """Returns the schedule and the policy of all algorithms on networks of so many agents."""
    return dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / n_agents))


def cliques(name: str, gamma: int) -> fb.networks.Network:
    """Returns the cliques of a graph whose messages live gamma hops, or as many as its diameter."""
    graph = fb.networks.make(name, 16)
    return fb.networks.network(graph, min(gamma, max(1, nx.diameter(graph))))


def draw_graphs(names: list[str], ax: Axes) -> None:
    """Draws graphs side by side, coloured by clique at gamma = 2."""
    for i, name in enumerate(names):
        graph, network = fb.networks.make(name, 16), cliques(name, 2)
        sparse = name in ("line", "ring", "grid", "star", "hierarchical")
        layout = nx.kamada_kawai_layout(graph) if sparse else nx.circular_layout(graph)
        layout = {node: place + np.array([2.4 * i, 0]) for node, place in layout.items()}
        look: Any = dict(node_color=plt.get_cmap("tab20")(network.clique % 20), node_size=9, edge_color="#999999")
        nx.draw_networkx(graph, layout, ax=ax, with_labels=False, **look)
        ax.text(2.4 * i, 1.15, f"{NAMES.get(name, name)}: {len(network.sizes)}", ha="center", fontsize="small")
    ax.axis("off")


def networks(options: DubeyOptions) -> list[Curve]:
    """Draws regret of FedUCB without a controller (Algorithm 3 of Dubey & Pentland, 2020) against graph and time
    to live.

    Messages are dropped after gamma hops. With a larger gamma fewer cliques (chi) cover the graph, but gamma estimators
    share the data. The paper's factor is sqrt(chi gamma). Agents of a clique answer each other's requests.
    """
    names, run = options.pick(("star",), *[tuple(fb.networks.GRAPHS)] * 2), options.run(48, 3_000, 24_000)
    graphs, curves = {name: fb.networks.make(name, 16) for name in names}, []
    chosen = {name: [gamma for gamma in GAMMAS if gamma <= nx.diameter(graph)] for name, graph in graphs.items()}
    made, same = fb.algos.GossipFedUCB, common(16)
    algos = dict(zip(ALONE, (fb.algos.fed_ucb(**same), made(graph=nx.empty_graph(16), **same))))
    for name, graph in graphs.items():
        algos |= {f"{name}, γ={g}": made(graph=graph, gamma=g, **same) for g in chosen[name]}
    result = options.sweep(fb.envs.gap(16, 10, 5), algos, **run)
    note = f"T = {run['horizon']:,}"
    for i, (name, gammas) in enumerate(chosen.items()):
        style, of = f"{fb.plotting.COLOURS[i]} - {'os^vDPX'[i]}", [result[f"{name}, γ={g}"] for g in gammas]
        regret, hops = [final(one) for one in of], [one.counts["hops"][:, -1] for one in of]
        product = [len(cliques(name, g).sizes) * g for g in gammas]
        points = {REGRET: (gammas, regret), HOPS: (gammas, hops), PRODUCT: (product, regret)}
        curves += [Curve(panel, name, *values, style, note) for panel, values in points.items()]
    return curves + [Curve(REGRET, name, [0], [final(result[name])], note=note) for name in ALONE]


def draw_networks(curves: list[Curve]) -> Picture:
    every = pick(curves, PRODUCT)
    x = np.concatenate([one.x for one in every])
    order = np.argsort(x, kind="stable")
    whole = Curve("", "", x[order], np.concatenate([one.y for one in every])[order])
    power, half = exponent(whole)
    fit = np.exp(np.mean(np.log(whole.mean)) + power * (np.log(whole.x) - np.log(whole.x).mean()))
    live: dict[str, Any] = dict(xlabel="time to live γ, in hops", yscale="log", xticks=GAMMAS, spread=0.02)
    named = [one.but(label=NAMES.get(one.label, one.label)) for one in curves if one.label not in ALONE]
    shown = [Panel(pick(named, panel), panel.replace("times", "×"), **live) for panel in (REGRET, HOPS)]

    def alone(ax: Axes) -> None:
        for one in (the(curves, REGRET, name) for name in ALONE):
            ax.axhline(one.mean[0], **REFERENCE)
            place: Any = dict(xycoords=("axes fraction", "data"), textcoords="offset points", ha="center", size="small")
            ax.annotate(one.label, (0.5, one.mean[0]), (0, 2), **place)

    def lines(ax: Axes) -> None:
        ax.plot(whole.x, fit, color="#333333", linewidth=1, label=f"(c) fit: $(χγ)^{{{power:.2f} \\pm {half:.2f}}}$")
        slope(ax, 0.5, whole.x, fit[0], "(c) $(χγ)^{0.5}$, as in Theorem 2")

    shown[0].also = alone
    axes: Any = dict(label="", xscale="log", yscale="log", look=dict(linestyle="none"), also=lines)
    shown.append(Panel(every, "group regret against χγ", "cliques × time to live, χγ", **axes))
    shown.append(Panel([], "cliques at γ = 2", also=lambda ax: draw_graphs([one.label for one in every], ax)))
    setting = f"""FedUCB without a controller, with M = 16, K = 10, d = 5, gap 0.1, D = 20, {every[0].note}, not
        private. Mean of {every[0].n_seeds} seeds ± one standard error, exponent ± half of its 95 % interval. Graphs
        have a colour for each clique at γ = 2"""
    layout: Any = dict(height=4.6, mosaic="abc;ddd", grid=dict(height_ratios=(3, 1)))
    return Picture(shown, "Regret grows with cliques and hops of a network", setting, **layout)


EPSILONS, OPEN = (1.0, 5.0, 20.0), "not private"
NETWORKS = {"complete": 1, "ring": 1}  # graph -> hops after which a message is dropped, gamma


def algorithms(privacy: fb.privacy.Budget | None, chosen: slice) -> dict[str, fb.Algorithm]:
    """Returns FedUCB with a controller, on every network, and on one without an edge."""
    same: dict[str, Any] = dict(privacy=privacy, **common(8))
    algos: dict[str, fb.Algorithm] = {"controller": fb.algos.fed_ucb(**same)}
    for name, gamma in NETWORKS.items():
        graph = fb.networks.make(name, 8)
        label = f"{name}, γ = {gamma}, χ = {len(fb.networks.network(graph, gamma).sizes)}"
        algos[label] = fb.algos.GossipFedUCB(graph=graph, gamma=gamma, **same)
    algos["nobody talks"] = fb.algos.GossipFedUCB(graph=nx.empty_graph(8), **same)
    return dict(list(algos.items())[chosen])


def gossip(options: DubeyOptions) -> list[Curve]:
    """Draws what privacy costs FedUCB without a server (Algorithm 3 of Dubey & Pentland, 2020), by network.

    Agents add noise to their sums before they send them to neighbours, by one tree for each of gamma estimators.
    Nothing is certified, as raw statistics decide when an agent asks. Remark 2 has regret grow like sqrt(chi gamma).
    """
    env, run = fb.envs.gap(8, 10, 5), options.run(48, 15_000, 100_000, seeds=(2, 8, 100))
    chosen, curves = options.pick(slice(1, 2), slice(99), slice(99)), []
    private, open_ = (algorithms(privacy, chosen) for privacy in (fb.privacy.Budget(1.0, 0.1), None))
    result = options.sweep(env, private, grid=dict(epsilon=EPSILONS), **run)
    print(result.certificates[result.labels[-1]])
    without = options.sweep(env, open_, **run)
    for epsilon in (None, *EPSILONS):
        panel = f"ε = {epsilon:g}" if epsilon else OPEN
        for name, colour, mark in zip(private, fb.plotting.COLOURS, "os^D"):
            one = result[f"{name}(epsilon={epsilon})"] if epsilon else without[name]
            look = f"{colour} {':' if epsilon else '-'} {mark}"
            curves += [drawn.but(label=name, style=look) for drawn in of_result(one, panel)]
        x = curves[-1].x
        curves.append(Curve(panel, CHANCE, x, random_play(env) * x, "#999999 :"))
    return curves


def draw_gossip(curves: list[Curve]) -> Picture:
    horizon, where = curves[0].x[-1], [*(f"ε = {epsilon:g}" for epsilon in EPSILONS), OPEN]
    names = list(dict.fromkeys(one.label for one in curves if one.label != CHANCE))
    ends = [lasts([pick(curves, panel, name)[0] for panel in where], name, range(len(where))) for name in names]
    control, *others = ends
    axes: dict[str, Any] = dict(yscale="log", spread=0.12, look=dict(linestyle="none"))
    axes["xticks"] = dict(enumerate(one.replace(" p", "\np") for one in where))
    level = {CHANCE: curves[-1].mean[-1]}
    left = Panel(ends, f"group regret, T = {horizon:,.0f}", "", "group regret at T", level=level, **axes)
    over = [one.over(control.y) for one in others]
    middle = Panel(over, "regret over a controller's", "", "ratio", label="", yticks=(1, 2, 3, 5), **axes)
    runs = [one for panel in (where[-2], OPEN) for one in pick(curves, panel) if one.label != CHANCE]
    words = f"not private, and dotted {where[-2]}", "round $t$", "group regret up to $t$"
    axes = dict(xscale="log", yscale="log", xlim=(10, None), ylim=(10, None))
    right = Panel(runs, *words, kind="lines", label="", **axes)
    setting = f"""FedUCB without a server, with M = 8, K = 10, d = 5, gap 0.1, D = 20 and δ = 0.1. Mean of
        {curves[0].n_seeds} seeds ± one standard error. γ is the number of hops of a message, χ the number of
        cliques. Dotted: no privacy claim"""
    title = "Without privacy the network matters, under noise hardly"
    return Picture([left, middle, right], title, setting)


FIGURES = {
    "dubey2020_fig1a": Experiment(fig1a, draw_fig1a, DubeyOptions),
    "dubey2020_fig1b": Experiment(fig1b, draw_fig1b, DubeyOptions),
    "dubey2020_fig1c": Experiment(fig1c, draw_fig1c, DubeyOptions),
    "dubey2020_fig2": Experiment(fig2, draw_fig2, DubeyOptions),
    "dubey2020_syncs": Experiment(syncs, draw_syncs, DubeyOptions),
    "dubey2020_networks": Experiment(networks, draw_networks, DubeyOptions),
    "dubey2020_gossip": Experiment(gossip, draw_gossip, DubeyOptions),
}
