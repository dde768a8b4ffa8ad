"""Shows how much of its claim every shipped mechanism is seen to leak, and that flawed mechanisms are caught.

What `fedbandit audit --controls tests/audits/controls` prints. A point is the largest lower bound of epsilon (95 %
confidence) over the claim; one beyond 1 refutes it. Some controls hide their flaw from samples of this size, and are
caught by other tests.
"""

import collections
import re
from collections.abc import Collection

import numpy as np
from curves import HERE, pick
from drawing import Axes, Curve, Panel, Picture, Size, main

import fedbandit_jax as fb
from fedbandit_jax.cli.audit import CONTROLS, SHIPPED, AuditCommand

LEAST = 0.5  # the left end of (b)
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
    "own": "parts that a user has written",
}


def measure(options: Size) -> list[Curve]:
    command = AuditCommand(runs=options.pick(1_000, 50_000, 50_000), random_seed=options.seed, controls=FOLDER)
    flaws = {case.name: words for file, words in FLAWS.items() for case in fb.audits.load(FOLDER / f"{file}.py")}
    curves = []
    for group, cases in command.cases().items():
        cases = options.pick([case for case in cases if case.name in ("DP-SE", "half the local noise")], cases, cases)
        for one in command.audited(group, cases):
            words = flaws.get(one.name) or next(words for name, words in GROUPS.items() if re.search(name, one.name))
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


def picture(curves: list[Curve]) -> Picture:
    shipped, flawed = ([one for one in curves if one.panel.startswith(group)] for group in (SHIPPED, CONTROLS))
    proved = collections.Counter(one.mean[0] for one in flawed)
    most = sorted(value for value, n in proved.items() if n > 2)  # the same for several: all that the runs can prove

    def of_flawed(ax: Axes) -> None:
        strips(ax, curves, CONTROLS, FLAWS.values())
        for value in most:
            ax.axvline(value, color="0.6", linestyle=":", zorder=0, label="(b): the most that so many runs can show")

    words = "largest lower bound of ε over the claim"
    above = Panel([], f"{len(shipped)} shipped mechanisms", words, xlim=(0, 1.1))
    above.also = lambda ax: strips(ax, curves, SHIPPED, GROUPS.values())
    below = Panel([], f"{len(flawed)} mechanisms with a known flaw", words, xscale="log", xlim=(LEAST, 80))
    below.also = of_flawed
    hidden = sum(bool(one.note) and share(one) <= 1 for one in flawed)
    missed, passed = (sum(not one.note for one in ones) for ones in (flawed, shipped))
    return Picture(
        [above, below],
        "Audits refute known flaws, and no shipped mechanism",
        "What experiments show of the ε that is claimed. A mechanism runs up to 50,000 times on each of two data sets "
        "that differ in one user. Lower bounds hold with 95 % confidence each, and those that refute with 99.9 %",
        f"Nothing refutes {passed} of {len(shipped)} shipped mechanisms. Half of them are seen to leak "
        f"{np.median([share(one) for one in shipped]):.2f} of their claim or more. Of {len(flawed)} with a known flaw "
        f"a lower bound of ε refutes {len(flawed) - hidden - missed}, other tests catch {hidden}, and {missed} are "
        f"missed. Many are at {', '.join(f'{value:.3g}' for value in most)} (dotted), the largest possible bound.",
        height=7.2,
        shape=(2, 1),
        grid=dict(height_ratios=(12, 9)),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
