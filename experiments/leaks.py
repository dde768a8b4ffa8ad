"""What others see of printed algorithms and of shipped mechanisms, as lower bounds of epsilon."""

import collections
import dataclasses
import math
import re
from collections.abc import Collection
from typing import Any

import jax
import numpy as np
from curves import Curve, panels, pick, the
from drawing import Axes, Experiment, Panel, Picture, tick
from options import HERE, Size

import fedbandit_jax as fb
from fedbandit_jax.audits import Case
from fedbandit_jax.audits.clusters import TranscriptOfVisits, labels, spec_of_visits, uploads
from fedbandit_jax.audits.schedules import brink, timing
from fedbandit_jax.audits.transcripts import Transcript
from fedbandit_jax.cli.audit import CONTROLS, SHIPPED, AuditCommand
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu

S, BUDGET, DELTA = fb.schedules, fb.privacy.Budget(1.0, 0.1), 1e-6
D = brink(fb.algos.fed_ucb(BUDGET))
TESTED = fb.algos.fed_ucb(BUDGET, schedule=S.PrivateLogDet(D, share=0.5), learns_in_batch=False)
FED_UCB_ALGOS = {
    "FedUCB": fb.algos.fed_ucb(BUDGET, schedule=S.LogDet(D)),
    "sparse vector, half of ε": TESTED,
    "sparse vector, a tenth of ε": TESTED.replace(share=0.1),
    "fixed batch": fb.algos.fed_ucb(BUDGET, schedule=1),
}
LINES = ":---"  # dotted: the certificate of FedUCB proves nothing, the others hold
STYLES = {
    name: f"{fb.plotting.colour(FED_UCB_ALGOS[name])} {line} {mark}"
    for name, line, mark in zip(FED_UCB_ALGOS, LINES, "oDsv")
}
NORMS, TIMES, SENT = "Example 3.1", f"schedule alone, δ = {DELTA:g}", "Appendix B.2: what silo j has"
SHOWN, FIRST = ("FedUCB", "fixed batch"), {"Alice": "#000000", "Tracy": "#D55E00"}  # in (c) and (d)


def fed_ucb(options: Size) -> list[Curve]:
    """Shows what an adaptive schedule tells about a user: Example 3.1 and Appendix B of Zhou & Chowdhury (2024).

    FedUCB adds noise of epsilon = 1 to all that it sends, but its public threshold D is such that silo i asks after
    round 1 if its first user is Alice, x = (1, 0), and not if she is Tracy, x = 0. (a) So silo j learns about ||x||.
    (b) The times alone show an epsilon without bound; a sparse vector test keeps to what was paid. (c) What silo j then
    has of silo i.
    """
    timings = {name: timing(algo, name=name) for name, algo in FED_UCB_ALGOS.items()}
    key, few, many = jax.random.key(options.seed), options.pick(50, 1000, 10_000), options.pick(100, 20_000, 100_000)
    print(f"Certificate of FedUCB\n{FED_UCB_ALGOS['FedUCB'].certificate(fb.envs.gap(2, 4, 2).spec, 100)}")
    squares, sizes, curves = np.linspace(0, 1, 41), [10**n for n in range(3, options.pick(4, 7, 7))], []
    for name, case in timings.items():  # FedUCB synchronises after round 1 if ||x||^2 > λ (e^D - 1), λ its regulariser
        run, (contexts, answers) = jax.jit(jax.vmap(case.mechanism, (0, None))), case.data  # all other users have x = 0
        alices = [(contexts * np.float32(r**0.5), answers) for r in squares]
        often = [run(jax.random.split(key, few), alice)[0][:, 0].mean() for alice in alices]
        curves.append(Curve(NORMS, name, squares, often, STYLES[name], f"{few:,}"))
    for name, case in timings.items():  # lower bounds, 95 % confidence
        shown = [dataclasses.replace(case, delta=DELTA).run(key, n_runs=n).epsilon_lower for n in sizes]
        curves.append(Curve(TIMES, name, sizes, shown, STYLES[name]))
    for name in SHOWN:  # the first entry of silo i's sum of x y as silo j has it after round 1
        case, env = timings[name], fb.envs.script(*timings[name].data)
        algo = FED_UCB_ALGOS[name].bind(env.spec, len(env.contexts))
        run = jax.jit(jax.vmap(Transcript(algo=algo, spec=env.spec, horizon=1), (0, None)))
        for (who, colour), data in zip(FIRST.items(), (case.data, case.neighbour)):
            shown = jax.tree.leaves(run(jax.random.split(key, many), data))[0]  # (runs, T, d, d + 1): W, then U
            counts, edges = np.histogram(shown[:, 0, 0, 2], 80, (-40, 40))
            middles = (edges[1:] + edges[:-1]) / 2
            curves.append(Curve(SENT, f"{who}, {name}", middles, counts / many, f"{colour} -", f"{many:,}"))
    return curves


def stairs(curves: list[Curve], ax: Axes) -> None:
    """Draws histograms of bins of length 1."""
    for one in curves:
        edges, colour = np.append(one.x - 0.5, one.x[-1] + 0.5), one.style.split()[0]
        label = f"(c), (d): the first user is {one.label.partition(',')[0]}"
        ax.stairs(one.mean, edges, color=colour, alpha=0.3, fill=True)
        ax.stairs(one.mean, edges, color=colour, label=label, linewidth=1.6)


def draw_fed_ucb(curves: list[Curve]) -> Picture:
    shares, times = pick(curves, NORMS), pick(curves, TIMES)
    worth, where = gaussian_epsilon(gaussian_mu(BUDGET.epsilon, BUDGET.delta), DELTA), "first entry of Σ x y"
    words = "Example 3.1: who synchronises after round 1", "Alice's $||x||^2$"
    asked = Panel(shares, *words, f"share of {shares[0].note} runs that\nsynchronise after round 1", kind="lines")
    asked.also = lambda ax: ax.axvline(1 / (np.exp(D) + 1), color="grey", linestyle="--", label="(a) C = λ(e$^D$ − 1)")
    words = f"what the times alone show at δ = {tick(DELTA)}", "observations of Alice, and of Tracy"
    shown = Panel(times, *words, "ε shown, with 95 % confidence", xscale="log", spread=0.05)
    shown.level = {f"(b) ε of the noise: {worth:.2f}": worth}
    panels = [asked, shown]
    for name in SHOWN:
        ones = [the(curves, SENT, f"{who}, {name}") for who in FIRST]
        title, runs = f"{name}: what silo j then has of silo i", f"share of {ones[0].note} runs"
        panels.append(Panel([], title, where, runs, yscale="log", xlim=(-26, 26), ylim=(2e-5, 2)))
        panels[-1].also = lambda ax, ones=ones: stairs(ones, ax)
    setting = f"""FedUCB, whose first user is Alice, x = (1, 0), or Tracy, x = 0. M = 2 silos, K = 2, d = 2, noise
        of ε = 1 at δ = {BUDGET.delta:g}, D = {D:.4f}. Dotted: not private, whatever the noise; solid: certified"""
    return Picture(panels, "When silos synchronise tells who came", setting, shape=(2, 2))


DELTAS = (1e-3, 1e-2, 0.1)
MU = gaussian_mu(BUDGET.epsilon, BUDGET.delta)
DIM, SHORT = 10, 0.99  # of (c): one vector of length 1, and others of this length along the other axes
FCLUB_ALGOS = {
    "CDP-FCLUB-DC, exact noise": fb.algos.FCLUB(BUDGET),
    "CDP-FCLUB-DC, noise as printed": fb.algos.FCLUB(BUDGET, calibration="theorem"),
    "certified variant": fb.algos.FCLUB(BUDGET, alpha_1=math.inf, trigger="count"),
}
LOOKS = ("#D55E00 : o", "#D55E00 : s", "#009E73 - ^")
WORDS = {"certified variant": "variant with fixed local clusters and uploads by numbers of rounds: certified"}


@fb.pytree
class LastArm:
    """The arm of the last round, as the one view of an auditor."""

    whole: Any

    def __call__(self, key: jax.Array, data: Any) -> jax.Array:
        """Returns the number of the item that the user of the other server is recommended."""
        return self.whole(key, data)[1][-1].astype(int)


def actions(algo: fb.algos.FCLUB, *, name: str) -> Case:
    """Builds a case of one action of another local cluster: the data of `labels`, and a last round on server 1."""
    case = labels(algo, name=name)
    items = np.concatenate([np.eye(DIM)[:1], SHORT * np.eye(DIM)[1:], -SHORT * np.eye(DIM)[1:]])

    def with_last(data: Any) -> Any:
        x, y, users = data
        offered = np.zeros((len(x), 1, len(items), DIM), np.float32)
        offered[..., :2], offered[-1, 0] = x, items
        answers = np.tile(y, (1, 1, len(items))).astype(np.float32)
        answers[-1] = 0
        return offered, answers, np.append(users[:-1], 1).astype(np.int32)  # of three users, user 1 is on server 1

    spec = spec_of_visits(3, 2, n_arms=len(items), dim=DIM)
    data, neighbour = with_last(case.data), with_last(case.neighbour)
    whole = TranscriptOfVisits(algo=algo.bind(spec, len(data[0])), spec=spec)
    return dataclasses.replace(case, mechanism=LastArm(whole=whole), data=data, neighbour=neighbour)


VIEWS = {labels: "who is in a local cluster", uploads: "upload times", actions: "an action of another cluster"}


def fclub(options: Size) -> list[Curve]:
    """Shows what clusters, upload times and actions of others tell about one round, in CDP-FCLUB-DC (Liu et al. 2022).

    As printed, raw statistics decide about all three. (a) The round decides whether the link of two users is cut. (b)
    An upload right after a round can only be due to it, as noise is the same at every test until the next upload. (c)
    If the link is cut, a phase begins with new sums, and an action of a local cluster of another server tells
    (Definition 1).
    """
    curves, key, deltas = [], jax.random.key(options.seed), DELTAS[options.pick(-1, 0, 0) :]
    for make in VIEWS:
        n = options.pick(1000, *((4_000, 100_000) if make is actions else (100_000, 10**6)))
        for (name, algo), look in list(zip(FCLUB_ALGOS.items(), LOOKS))[:: options.pick(2, 1, 1)]:
            case = make(algo, name=name)
            shown = [dataclasses.replace(case, delta=delta).run(key, n_runs=n).epsilon_lower for delta in deltas]
            curves.append(Curve(make.__name__, name, deltas, shown, look, f"{n:,}"))
    return curves


def allowed(ax: Axes) -> None:
    """Draws the epsilon that noise of (1, 0.1) is worth, and the claim."""
    deltas, label = np.geomspace(DELTAS[0], DELTAS[-1], 50), "what Gaussian noise of (ε = 1, δ = 0.1) allows"
    ax.plot(deltas, [gaussian_epsilon(MU, delta) for delta in deltas], "-.", color="#999999", label=label)
    ax.plot(BUDGET.delta, BUDGET.epsilon, "*", color="k", markersize=9, label="claim of Theorem 3", zorder=9)


def draw_fclub(curves: list[Curve]) -> Picture:
    shown = []
    for panel, words in zip(panels(curves), VIEWS.values()):
        ones = pick(curves, panel)
        named, title = [one.but(label=WORDS.get(one.label, one.label)) for one in ones], f"{words}\n{ones[0].note}"
        shown.append(Panel(named, f"{title} runs of each data set", "δ", spread=0.1, xscale="log", also=allowed))
        shown[-1].open, shown[-1].xticks = lambda one: "printed" in one.label, DELTAS
    setting = """CDP-FCLUB-DC of Liu et al. (2022) with ε = 1 and δ = 0.1. Two data sets differ in one round of one
        user, and others tell them apart by what they see. Dotted: no privacy claim"""
    return Picture(
        shown,
        "What others see of CDP-FCLUB-DC refutes ε = 1",
        setting,
        ylabel="ε is at least (95 % confidence)",
        grid=dict(sharey=True),
    )


FOLDER = HERE.parent / "tests" / "audits" / "controls"
GROUPS = {  # names of shipped mechanisms -> words for them; the first that fits
    "private_logdet": "private tests of when to synchronise",
    "geometric": "batches that grow; gossip; agents alone",
    "silo_local": "noise of every silo",
    "^(central|local)": "noise of the server, or of every user",
    "^secagg": "secure aggregation",
    "^shuffle": "a shuffler",
    "^(Thompson|Forgetting|DP-DPE|AdaC-OFUL|EpsilonGreedy)": "other linear policies",
    "^(DP-SE|CDP-SE|AdaC-UCB central)": "arms: noise of the server",
    "^(Dist-|AdaC-UCB secagg)": "arms: secure aggregation",
    "^(LDP-SE|Shuffle-DP-SE)": "arms: noise of users, a shuffler",
    "^CDP-": "clusters of users",
    "^(mixture|alone)": "a stream for each user",
}
FLAWS = {  # file of controls -> words for its flaws
    "linear": "noise of linear sums: missing, too small, of another law",
    "messages": "single messages: bare, or noise that is known",
    "actions": "raw data in actions, bounds that are not enforced",
    "schedules": "times of synchronisation",
    "arms": "noise of sums of arms",
    "clusters": "noise and messages of clusters",
    "streams": "noise of users with a stream each",
}
OWN = "parts that a user has written"  # controls whose names begin with "own"


def audits(options: Size) -> list[Curve]:
    """Shows how much of its claim every shipped mechanism is seen to leak, and that flawed mechanisms are caught.

    What `fedbandit audit --controls tests/audits/controls` prints. A point is the largest lower bound of epsilon (95 %
    confidence) over the claim; one beyond 1 refutes it. Some controls hide their flaw from samples of this size, and
    are caught by other tests.
    """
    command = AuditCommand(runs=options.pick(1_000, 50_000, 50_000), random_seed=options.seed, controls=FOLDER)
    flaws = {case.name: words for file, words in FLAWS.items() for case in fb.audits.load(FOLDER / f"{file}.py")}
    curves = []
    for group, cases in command.cases().items():
        cases = options.pick([case for case in cases if case.name in ("DP-SE", "half the local noise")], cases, cases)
        for one in command.audited(group, cases):
            words = OWN if one.name.startswith("own ") else flaws.get(one.name)
            words = words or next(words for name, words in GROUPS.items() if re.search(name, one.name))
            note, panel = "; ".join(one.reasons), f"{group}: {words}"
            curves.append(Curve(panel, one.name, [one.epsilon], [one.epsilon_lower], note=note))
    return curves


def strips(ax: Axes, curves: list[Curve], group: str, words: Collection[str]) -> None:
    """Draws a row of points for each of these words of a group."""
    for row, name in enumerate(words):
        panel = sorted(pick(curves, f"{group}: {name}"), key=share)
        for one, aside in zip(panel, np.linspace(-0.25, 0.25, len(panel))):
            colour = fb.plotting.COLOURS[2 if one.note else 1]
            label = "passed" if not one.note else "claim refuted" if share(one) > 1 else "caught by other tests"
            face = "none" if label == "caught by other tests" else colour
            ax.plot(share(one), row + aside, "o", markersize=4.5, color=colour, markerfacecolor=face, label=label)
    ax.axvline(1, color="k", linestyle="--", linewidth=1)
    ax.set_yticks(range(len(words)), list(words))
    ax.set_ylim(len(words) - 0.5, -0.5)
    ax.grid(False, axis="y")


def share(one: Curve) -> float:
    """Returns the lower bound over the claim."""
    return one.mean[0] / one.x[0]


def draw_audits(curves: list[Curve]) -> Picture:
    shipped, flawed = ([one for one in curves if one.panel.startswith(group)] for group in (SHIPPED, CONTROLS))
    proved = collections.Counter(one.mean[0] for one in flawed)
    most = sorted(value for value, n in proved.items() if n > 2)  # the same for several: all that the runs can prove

    def of_flawed(ax: Axes) -> None:
        strips(ax, curves, CONTROLS, [*FLAWS.values(), OWN])
        for value in most:
            ax.axvline(value, color="0.6", linestyle=":", zorder=0, label="(b): the most that so many runs can show")

    words = "largest lower bound of ε over the claim"
    above = Panel([], f"{len(shipped)} shipped mechanisms", words, xlim=(0, 1.1))
    above.also = lambda ax: strips(ax, curves, SHIPPED, GROUPS.values())
    below = Panel([], f"{len(flawed)} mechanisms with a known flaw", words, xscale="log", xlim=(0.5, 80))
    below.also = of_flawed
    setting = """What experiments show of the ε that is claimed. A mechanism runs up to 50,000 times on each of two
        data sets that differ in one user. Lower bounds hold with 95 % confidence each, and those that refute with
        99.9 %"""
    return Picture(
        [above, below],
        "Audits refute known flaws, and no shipped mechanism",
        setting,
        height=7.2,
        shape=(2, 1),
        grid=dict(height_ratios=(12, 9)),
    )


FIGURES = {
    "leak": Experiment(fed_ucb, draw_fed_ucb),
    "liu2022_leak": Experiment(fclub, draw_fclub),
    "audits": Experiment(audits, draw_audits),
}
