"""Shows what clusters, upload times and actions of others tell about one round, in CDP-FCLUB-DC (Liu et al. 2022).

As printed, raw statistics decide about all three. (a) The round decides whether the link of two users is cut. (b) An
upload right after a round can only be due to it, as noise is the same at every test until the next upload. (c) If the
link is cut, a phase begins with new sums, and an action of a local cluster of another server tells (Definition 1).
"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from curves import Curve, panels, pick
from drawing import Axes, Panel, Picture, Says, Size, main

import fedbandit_jax as fb
from fedbandit_jax.audits import Case
from fedbandit_jax.audits.clusters import TranscriptOfVisits, labels, spec_of_visits, uploads
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu

BUDGET, DELTAS = fb.privacy.Budget(1.0, 0.1), (1e-3, 1e-2, 0.1)
MU = gaussian_mu(BUDGET.epsilon, BUDGET.delta)
DIM, SHORT = 10, 0.99  # of (c): one vector of length 1, and others of this length along the other axes
ALGOS = {
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


CASES = {labels: "who is in a local cluster", uploads: "upload times", actions: "an action of another cluster"}


def measure(options: Size) -> list[Curve]:
    curves, key, deltas = [], jax.random.key(options.seed), DELTAS[options.pick(-1, 0, 0) :]
    for make in CASES:
        n = options.pick(1000, *((4_000, 100_000) if make is actions else (100_000, 10**6)))
        for (name, algo), look in list(zip(ALGOS.items(), LOOKS))[:: options.pick(2, 1, 1)]:
            case = make(algo, name=name)
            shown = [dataclasses.replace(case, delta=delta).run(key, n_runs=n).epsilon_lower for delta in deltas]
            curves.append(Curve(make.__name__, name, deltas, shown, look, f"{n:,}"))
    return curves


def allowed(ax: Axes) -> None:
    """Draws the epsilon that noise of (1, 0.1) is worth, and the claim."""
    deltas, label = np.geomspace(DELTAS[0], DELTAS[-1], 50), "what Gaussian noise of (ε = 1, δ = 0.1) allows"
    ax.plot(deltas, [gaussian_epsilon(MU, delta) for delta in deltas], "-.", color="#999999", label=label)
    ax.plot(BUDGET.delta, BUDGET.epsilon, "*", color="k", markersize=9, label="claim of Theorem 3", zorder=9)


def picture(curves: list[Curve]) -> Picture:
    shown, seen, deltas = [], [], curves[0].x
    for panel, words in zip(panels(curves), CASES.values()):
        ones = pick(curves, panel)
        named, title = [one.but(label=WORDS.get(one.label, one.label)) for one in ones], f"{words}\n{ones[0].note}"
        shown.append(Panel(named, f"{title} runs of each data set", "δ", spread=0.1, xscale="log", also=allowed))
        shown[-1].open, shown[-1].xticks = lambda one: "printed" in one.label, DELTAS
        found = [f"{one.label} {', '.join(f'{y:.2f}' for y in one.mean)}" for one in ones]
        seen.append(f"{words}: {'; '.join(found)}")
    noise = ", ".join(f"{gaussian_epsilon(MU, delta):.2f}" for delta in deltas)
    says = f"lower bounds of ε at δ = {', '.join(f'{delta:g}' for delta in deltas)}, where Gaussian noise of (1, 0.1) "
    says += f"allows {noise}. {'. '.join(seen)}"
    claim = "CDP-FCLUB-DC is (1, 0.1, L, m)-CDP: actions of other local clusters hardly depend on one round"
    return Picture(
        shown,
        "What others see of CDP-FCLUB-DC refutes ε = 1",
        "CDP-FCLUB-DC of Liu et al. (2022) with ε = 1 and δ = 0.1. Two data sets differ in one round of one user, and "
        "others tell them apart by what they see. Dotted: no privacy claim",
        [Says("Theorem 3, Definition 1", claim, "any", says)],
        ylabel="ε is at least (95 % confidence)",
        grid=dict(sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
