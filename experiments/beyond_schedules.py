"""Compares when to synchronise, at equal privacy: in fixed batches, in growing ones, or when a private test says so.

python experiments/beyond_schedules.py [--smoke | --full]

All but FedUCB have the best certified parts: BLT noise for at most S synchronisations, projection, and widths from the
law of the noise. Growing batches, fixed in advance, win: they have the regret of the best fixed batch or less, with a
tenth to a third as many synchronisations. The private test (a sparse vector test with threshold D) ties with the raw
trigger, which leaks, at equal S and noise, and with the best fixed batch. So privacy costs adaptivity nothing, but
adaptivity gains nothing either, and it needs a limit S and a D that is tuned to epsilon.
"""

from typing import Any

import matplotlib.pyplot as plt
import tyro
from common import Size, at, mean_error, save

import fedbandit_jax as fb

EPSILONS, S = (1.0, 0.2), fb.schedules
GROWTH, THRESHOLDS = (1.1, 1.2, 1.5, 2.0, 4.0), (10.0, 30.0, 100.0, 300.0, 1000.0)
BUDGET = fb.privacy.Budget(1.0, 0.1)
SHARP = fb.algos.private_fed_lin_ucb(
    fb.privacy.Mechanism(BUDGET, release="blt"),
    exploration=fb.algos.UCB(regularizer="project", confidence="known_noise"),
)
FED_UCB = fb.algos.fed_ucb(BUDGET)
FAMILIES: dict[str, tuple[fb.algos.Federated, list[fb.schedules.Schedule]]] = {
    "fixed batch, B = 5 ... 500": (SHARP, [S.Every(batch) for batch in (5, 10, 25, 50, 100, 200, 500)]),
    "growing by 1.1 ... 4 from 10": (SHARP, [S.Geometric(growth, first=10) for growth in GROWTH]),
    "growing by 1.1 ... 4 from 50": (SHARP, [S.Geometric(growth, first=50) for growth in GROWTH]),
    "sparse vector, 0.1 ε, S = 64": (SHARP, [S.PrivateLogDet(d, share=0.1, max_syncs=64) for d in THRESHOLDS]),
    "sparse vector, 0.02 ε, S = 64": (SHARP, [S.PrivateLogDet(d, share=0.02, max_syncs=64) for d in THRESHOLDS]),
    "sparse vector, 0.1 ε, S = T": (SHARP, [S.PrivateLogDet(d, share=0.1) for d in THRESHOLDS]),
    "raw log det, S = 64": (SHARP, [S.LogDet(d, max_syncs=64) for d in (3.0, *THRESHOLDS[:4])]),
    "FedUCB, raw log det": (FED_UCB, [S.LogDet("M log T"), S.LogDet("M^1.5"), S.LogDet(10.0), S.Every(1)]),
}


def compare(title: str, families: dict[str, list[fb.Result]]) -> None:
    """Prints how the best schedule of every family, chosen on half of the seeds, does on the others against fixed B."""
    half = len(next(iter(families.values()))[0].regret) // 2
    best = {name: min(members, key=lambda one: one.regret[:half, -1].mean()) for name, members in families.items()}
    fixed = next(iter(best.values())).regret[half:, -1]
    print(f"\n{title}, {len(fixed)} seeds")
    for one in best.values():
        (mean, error), (less, paired) = (mean_error(one.regret[half:, -1] - base) for base in (0, fixed))
        print(f"  {one.labels[0]}: {mean:.0f} ± {error:.0f}, minus fixed {less:+.0f} ± {paired:.0f}", end=", ")
        print(f"{one.communication['rounds'][:, -1].mean():g} syncs, claim {one.certificate.claim}")


def main(options: Size) -> None:
    env = fb.envs.sphere(n_agents=50, n_arms=20, dim=10, rewards="bernoulli")
    run = {**options.run(100, 4_000, 10_000), "seeds": options.pick(4, 24, 50)}
    members, few = {}, options.pick(1, 99, 99)
    for family, (algo, schedules) in list(FAMILIES.items())[:: options.pick(2, 1, 1)]:
        members[family] = {f"{family}: {one}": algo.replace(schedule=one) for one in schedules[:few]}
    algos = {label: algo for ones in members.values() for label, algo in ones.items()}
    result = fb.sweep(env, algos, grid={"epsilon": EPSILONS}, **run)
    figure, axes = plt.subplots(1, 2, figsize=(13.0, 6.6), layout="constrained", sharey=True)
    for epsilon, ax in zip(EPSILONS, axes):
        families = {family: [at(result, label, epsilon=epsilon) for label in ones] for family, ones in members.items()}
        compare(f"ε = {epsilon:g}, δ = 0.1", families)
        for (family, ones), colour in zip(families.items(), fb.plotting.COLOURS):
            x = [max(one.communication["rounds"][:, -1].mean(), 0.5) for one in ones]
            mean, error = zip(*(mean_error(one.regret[:, -1]) for one in ones))
            claims = " or ".join(dict.fromkeys(one.certificate.claim for one in ones))
            style: dict[str, Any] = dict(fmt="o-", markersize=6, linewidth=1, label=f"{family}: claim {claims}")
            ax.errorbar(x, mean, error, **style, color=colour, mfc=colour if claims == "certified" else "white")
        ax.set(title=f"ε = {epsilon:g}, δ = 0.1, M = 50, K = 20, d = 10, {run['seeds']} seeds")
        ax.set(xscale="log", yscale="log", xlabel="synchronisations (0 at the left edge)")
        ax.set_ylabel(f"group regret after {run['horizon']:,} rounds")
        ax.grid(alpha=0.3, which="both")
    axes[0].legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.1), frameon=False, ncols=2)
    save("beyond_schedules", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
