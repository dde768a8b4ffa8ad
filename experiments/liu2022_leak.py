"""Shows what clusters, upload times and actions of others tell about one round, in CDP-FCLUB-DC (Liu et al. 2022).

python experiments/liu2022_leak.py [--smoke | --full]

Two data sets differ in one round of one user. An auditor sees nothing but (a) who is in one local cluster in the end;
(b) after which rounds something is uploaded; or (c), as Definition 1 has it, one action of a local cluster of *another*
server. As printed, raw statistics decide about all three.

(a) The round decides whether the link of two users is cut. (b) There is noise in the determinant that decides about
uploads, but it is the same at every test until the next upload, so that an upload right after a round can only be due
to what was in that round. The factor U is such that noise decides about the first upload. (c) If the link is cut, a
phase begins with new sums, and else the old ones go on, to which 3 rho I has been added at every upload. The user of
the other server is offered a vector of length 1, and 18 others of length 0.99 along the other axes: whether noise can
make her choose one of these depends on how large estimates are beside widths, which differs between the two.
"""

import dataclasses
import math
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, pick
from drawing import Says, caption, headline, legend_of_all, save
from matplotlib.axes import Axes
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.audits import Case, labels, uploads
from fedbandit_jax.audits.clusters import TranscriptOfVisits, spec_of_visits
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu

BUDGET, DELTAS = fb.privacy.Budget(1.0, 0.1), (1e-3, 1e-2, 0.1)
DIM, SHORT = 10, 0.99  # of (c)
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
        offered[..., :2] = x
        offered[-1, 0] = items
        answers = np.tile(y, (1, 1, len(items))).astype(np.float32)
        answers[-1] = 0
        return offered, answers, np.append(users[:-1], 1).astype(np.int32)  # of three users, user 1 is on server 1

    spec = spec_of_visits(3, 2, n_arms=len(items), dim=DIM)
    data, neighbour = with_last(case.data), with_last(case.neighbour)
    whole = TranscriptOfVisits(algo=algo.bind(spec, len(data[0])), spec=spec)
    return dataclasses.replace(case, mechanism=LastArm(whole=whole), data=data, neighbour=neighbour)


def bounds(make: Any, n_runs: int, options: Size) -> list[Curve]:
    """Returns lower bounds of epsilon (95 % confidence) against delta."""
    curves, key, deltas = [], jax.random.key(options.seed), DELTAS[options.pick(-1, 0, 0) :]
    for (name, algo), look in list(zip(ALGOS.items(), LOOKS))[:: options.pick(2, 1, 1)]:
        case = make(algo, name=name)
        shown = [dataclasses.replace(case, delta=delta).run(key, n_runs=n_runs).epsilon_lower for delta in deltas]
        print(f"{make.__name__}, {name}, N = {n_runs:,}: {dict(zip(deltas, shown))}", flush=True)
        curves.append(Curve(make.__name__, name, deltas, shown, look, f"{n_runs:,}"))
    return curves


def draw(ax: Axes, curves: list[Curve], title: str) -> None:
    """Draws lower bounds against delta, and the epsilon that noise of (1, 0.1) is worth."""
    for one in curves:
        colour, line, mark = one.style.split()
        look: dict[str, Any] = dict(markersize=10, markerfacecolor="none") if "printed" in one.label else {}
        ax.plot(one.x, one.y[:, 0], mark + line, color=colour, label=WORDS.get(one.label, one.label), **look)
        for delta, bound in zip(one.x, one.y[:, 0]):
            if bound and ("exact" in one.label or one.y[0, 0] < 5):
                ax.annotate(f"{bound:.1f}", (delta, bound), (0, 8), textcoords="offset points", ha="center")
    deltas = np.geomspace(DELTAS[0], DELTAS[-1], 50)
    mu = gaussian_mu(BUDGET.epsilon, BUDGET.delta)
    allowed = [gaussian_epsilon(mu, delta) for delta in deltas]
    ax.plot(deltas, allowed, "-.", color="#999999", label="what Gaussian noise of (ε = 1, δ = 0.1) allows")
    ax.plot(BUDGET.delta, BUDGET.epsilon, "*", color="k", markersize=12, label="claim of Theorem 3", zorder=9)
    ax.set(xscale="log", xlabel="δ", xlim=(DELTAS[0] / 1.5, DELTAS[-1] * 1.5))
    ax.set_xticks(DELTAS)
    ax.set_title(f"{title}\n{curves[0].note} runs of each data set")


def main(options: Size) -> None:
    many = options.pick(1000, 100_000, 10**6)
    sizes = {labels: many, uploads: many, actions: options.pick(1000, 4_000, 100_000)}
    curves = options.numbers(
        "liu2022_leak", lambda: [one for make, n in sizes.items() for one in bounds(make, n, options)]
    )
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 4.9), sharey=True)
    titles = ("(a) who is in a local cluster", "(b) upload times", "(c) an action of another cluster")
    seen = []
    for ax, make, title in zip(axes, sizes, titles):
        panel = pick(curves, make.__name__)
        draw(ax, panel, title)
        names = [one.label.removeprefix("CDP-FCLUB-DC, ") for one in panel]
        found = [f"{name} {', '.join(f'{y:.2f}' for y in one.y[:, 0])}" for name, one in zip(names, panel)]
        seen.append(f"{title}: {'; '.join(found)}")
    axes[0].set_ylim(-0.4, 1.12 * max(one.y.max() for one in curves))
    axes[0].set_ylabel("ε is at least (95 % confidence)")
    legend_of_all(figure, ncols=2)
    headline(
        figure,
        "What others see of CDP-FCLUB-DC refutes ε = 1",
        "CDP-FCLUB-DC of Liu et al. (2022) with ε = 1, δ = 0.1: two data sets that differ in one round of one user,\n"
        "told apart by what others see; dotted: no privacy claim",
    )
    mu = gaussian_mu(BUDGET.epsilon, BUDGET.delta)
    allowed = ", ".join(f"{gaussian_epsilon(mu, delta):.2f}" for delta in curves[0].x)
    at = ", ".join(f"{delta:g}" for delta in curves[0].x)
    says = f"ε is at least, at δ = {at}, where Gaussian noise of (1, 0.1) allows {allowed}: {'. '.join(seen)}"
    claim = "CDP-FCLUB-DC is (1, 0.1, L, m)-CDP: actions of other local clusters hardly depend on one round"
    caption(figure, "Liu et al. (2022)", Says("Theorem 3, Definition 1", claim, "any", says))
    save("liu2022_leak", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
