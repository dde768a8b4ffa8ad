"""Shows how much of its claim every shipped mechanism is seen to leak, and that flawed mechanisms are caught.

python experiments/audits.py [--smoke] [--redraw]

What `fedbandit audit --controls tests/audits/controls` prints, as a picture: a mechanism is run up to 50,000 times on
each of two neighbouring data sets, and epsilon is at least what tells these apart (95 % confidence). A point is the
largest lower bound of a mechanism over its claim. One beyond 1 refutes the claim; one that is near 1 says that the
claim is tight for these neighbours, and one that is far below 1 that the proof is a bound, or the audit not the
sharpest. The controls are mechanisms with a flaw that is known. Some hide it from samples of this size, and are caught
by a measured sensitivity, by numbers that depend on data under equal keys, or by draws of the noise itself.
"""

import collections
import dataclasses
import re
from collections.abc import Collection
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import HERE, Curve, pick
from drawing import headline, legend_of_all, remark, save
from matplotlib.axes import Axes
from options import Size

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


@dataclasses.dataclass(frozen=True)
class AuditsSize(Size):
    """Audit all mechanisms, shipped and flawed; about an hour on two cores."""


def group_of(name: str) -> str:
    return next(words for pattern, words in GROUPS.items() if re.search(pattern, name))


def measure(options: AuditsSize) -> list[Curve]:
    """Returns a point for every mechanism: its claim, and the lower bound that was shown."""
    command = AuditCommand(runs=options.pick(1_000, 50_000, 50_000), random_seed=options.seed, controls=FOLDER)
    groups = command.cases()
    flaws = {case.name: words for file, words in FLAWS.items() for case in fb.audits.load(FOLDER / f"{file}.py")}
    curves = []
    for group, cases in groups.items():
        cases = options.pick([case for case in cases if case.name in ("DP-SE", "half the local noise")], cases, cases)
        for one in command.audit_all(group, cases):
            words = flaws[one.name] if group == CONTROLS else group_of(one.name)
            note = "; ".join(one.reasons)
            curves.append(Curve(f"{group}: {words}", one.name, [one.epsilon], [one.epsilon_lower], note=note))
    return curves


def strips(ax: Axes, curves: list[Curve], group: str, words: Collection[str]) -> None:
    """Draws a row of points for each of these words of a group."""
    for row, name in enumerate(words):
        panel = sorted(pick(curves, f"{group}: {name}"), key=share)
        hidden = [one for one in panel if one.note and share(one) <= 1]
        places = dict(zip((one.label for one in panel), np.linspace(-0.25, 0.25, len(panel))))
        places |= {one.label: place for one, place in zip(hidden, np.linspace(-0.25, 0.25, len(hidden)))}  # well apart
        for one in panel:
            colour = fb.plotting.COLOURS[2 if one.note else 1]
            label = "passed" if not one.note else "claim refuted" if share(one) > 1 else "caught by other tests"
            full = "none" if label == "caught by other tests" else colour
            look: dict[str, Any] = dict(markersize=4.5, color=colour, markerfacecolor=full, label=label)
            ax.plot(share(one), row + places[one.label], "o", **look)
    ax.axvline(1, color="k", linestyle="--", linewidth=1)
    ax.set_yticks(range(len(words)), list(words))
    ax.set(ylim=(len(words) - 0.5, -0.5), xlabel="largest lower bound of ε over the claim")
    ax.grid(False, axis="y")


def share(one: Curve) -> float:
    """Returns the lower bound over the claim."""
    return one.mean[0] / one.x[0]


def main(options: AuditsSize) -> None:
    curves = options.numbers("audits", lambda: measure(options))
    shipped, flawed = ([one for one in curves if one.panel.startswith(group)] for group in (SHIPPED, CONTROLS))
    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 9.6), height_ratios=(12, 9))
    strips(above, curves, SHIPPED, GROUPS.values())
    strips(below, curves, CONTROLS, FLAWS.values())
    above.set(xlim=(0, 1.1), title=f"(a) {len(shipped)} shipped mechanisms")
    below.set(xscale="log", xlim=(LEAST, 80), title=f"(b) {len(flawed)} mechanisms with a known flaw")
    headline(
        figure,
        "Audits refute known flaws, and no shipped mechanism",
        "What experiments show of the ε that is claimed: up to 50,000 runs of a mechanism on each of two data sets\n"
        "that differ in one user; lower bounds hold with 95 % confidence each, those that refute with 99.9 %",
    )
    for words in GROUPS.values():
        found = [share(one) for one in pick(curves, f"{SHIPPED}: {words}")]
        print(f"{words}: {min(found, default=np.nan):.2f} to {max(found, default=np.nan):.2f} of the claim")
    proved = collections.Counter(one.mean[0] for one in flawed)
    most = sorted(value for value, n in proved.items() if n > 2)  # the same for several: all that the runs can prove
    for value in most:
        below.axvline(value, color="0.6", linestyle=":", zorder=0, label="(b): the most that so many runs can show")
    legend_of_all(figure, ncols=2)
    ceilings = ", ".join(f"{value:.3g}" for value in most)
    hidden = [one.label for one in flawed if one.note and share(one) <= 1]
    missed = [one.label for one in flawed if not one.note]
    print(f"caught by other tests: {', '.join(hidden)}")
    passed, refuted = sum(not one.note for one in shipped), len(flawed) - len(hidden) - len(missed)
    remark(
        figure,
        f"Nothing refutes {passed} of {len(shipped)} shipped mechanisms; half of them are seen to leak "
        f"{np.median([share(one) for one in shipped]):.2f} of their claim or more. Of {len(flawed)} with a known flaw "
        f"{refuted} are refuted by a lower bound of ε, {len(hidden)} are caught by other tests, and {len(missed)} are "
        f"missed. Many are at {ceilings} (dotted): with this number of runs no bound can be larger; "
        "which of them holds depends on the law of the claim.",
    )
    save("audits", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(AuditsSize, description=__doc__))
