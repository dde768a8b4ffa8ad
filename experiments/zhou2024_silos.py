"""Measures how regret grows with the number M of silos: Corollaries 5.2 and 5.4 of Zhou & Chowdhury (2024).

python experiments/zhou2024_silos.py [--smoke | --full]

The paper's main claim: with batches of B = sqrt(T / M) rounds, regret is of order M^(3/4) T^(1/2) under silo-level
local privacy, and M^(1/2) T^(1/2) with a shuffler, as with a trusted server. Bounds are about the worst instance, so on
the left everybody is offered the same two arms, one of which is better by a gap of about beta sqrt(d / (M T)), where
beta is the width of the confidence bounds. First T is fixed, then M T, so that the same users are split over more
silos. On the right contexts are random, which takes no exploration, so that regret grows more slowly than the bound. A
label has the slope of log regret in log M from M = 10 on, with a 95 % interval over seeds; the power of M in the
paper's bound; and, for the gap, the slope of beta sqrt(d M T), which is that bound with its logarithms.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, mean_error, save
from scipy import stats

import fedbandit_jax as fb

TRUST = {  # name -> trust model and release, and the powers of M in the bound for T fixed and for M T fixed
    "not private": (None, (0.5, 0.0)),
    "silo-level local, Thm 5.1": (("silo_local", "tree"), (0.75, 0.25)),
    "shuffled vector sum, Thm 5.5": (("shuffle_vector_sum", "tree"), (0.5, 0.0)),
    "secure aggregation": (("secagg", "tree"), (0.5, 0.0)),
    "central": (("central", "tree"), (0.5, 0.0)),
    "local, user by user": (("local", "input_perturbation"), (0.75, 0.0)),
}
WIDTHS = {"random contexts": ("known_noise", "project"), "worst gap": ("theory", "shift")}  # of both instances
PANELS = (  # instance, whether M T is fixed and not T, and which numbers of silos
    ("worst gap", False, slice(None)),
    ("worst gap", True, slice(1, None)),  # M = 1 would have M T rounds
    ("random contexts", False, slice(4)),
)
LARGEST = 0.5  # gap of the fixed arms
PARTS = (0.6, 1)  # gaps that are tried, as parts of beta sqrt(d / (M T))
BUDGET = fb.privacy.Budget(1.0, 0.1)


@fb.pytree
class FixedArms:
    """Offers everybody the d unit vectors as arms; the second has mean 1/4 + gap, and the others 1/4."""

    gap: float
    spec: fb.Spec = fb.static()

    def init(self, key: jax.Array) -> tuple[()]:
        """Returns nothing: all seeds have the same arms."""
        return ()

    def observe(self, key: jax.Array, world: tuple[()], t: jax.Array) -> tuple[fb.Round, tuple[()]]:
        """Offers all arms to every user."""
        d = self.spec.dim
        return fb.Round(jnp.broadcast_to(jnp.eye(d), (self.spec.n_agents, d, d))), world

    def pull(self, key: jax.Array, world: tuple[()], offered: fb.Round, arms: jax.Array) -> fb.Feedback:
        """Draws rewards of 0 or 1."""
        lost = jnp.where(arms == 1, 0.0, self.gap)
        return fb.Feedback(jax.random.bernoulli(key, 0.25 + self.gap - lost).astype(jnp.float32), lost)


def recipe(instance: str, name: str, batch: int) -> fb.algos.Federated:
    """Returns the algorithm with this trust model."""
    ucb, private = fb.algos.UCB(confidence=WIDTHS[instance][0], regularizer=WIDTHS[instance][1]), TRUST[name][0]
    privacy = private and fb.privacy.Mechanism(BUDGET, private[1], private[0])
    return fb.algos.Federated(policy=ucb, schedule=batch, privacy=privacy)


def measure(instance: str, name: str, m: int, horizon: int, options: Size) -> tuple[np.ndarray, float]:
    """Returns the final regret of the seeds (S,), at the worse of two gaps, and beta sqrt(d M T), nan without gaps."""
    batch = max(1, round(math.sqrt(horizon / m)))
    horizon -= horizon % batch
    algo = recipe(instance, name, batch)
    envs, bound = [fb.envs.sphere(m, 10, 10, rewards="bernoulli")], math.nan
    if instance == "worst gap":
        spec = fb.Spec(n_agents=m, n_arms=2, dim=2, fixed_contexts=True, max_norm=1.0, rewards_in_unit=True)
        policy: Any = algo.bind(spec, horizon).policy
        bound = float(policy.width(horizon)) * math.sqrt(spec.dim * m * horizon)
        envs = [FixedArms(gap=min(LARGEST, part * bound / m / horizon), spec=spec) for part in PARTS]
    seeds, key = options.pick(2, 6, 25), jax.random.key(options.seed)
    run: dict[str, Any] = dict(horizon=horizon, key=key, seeds=seeds, stride=horizon, throw=False)
    found = [fb.simulate(env, algo, **run) for env in envs]
    means = [one.regret[:, -1].mean() for one in found]
    worst = found[int(np.argmax(means))]
    setting = f"{instance}, {name}, M={m}, T={horizon}, B={batch}, {worst.certificate.claim}"
    print(f"{setting}: regret {np.round(means)}, beta sqrt(d M T) {bound:.0f}", flush=True)
    return worst.regret[:, -1], bound


def random_play() -> float:
    """Returns what a user of random contexts loses on average if her arm is drawn at random."""
    env, key = fb.envs.sphere(10_000, 10, 10), jax.random.key(0)
    world = env.init(key)
    means = env.observe(key, world, 0)[0].contexts @ world.theta
    return float((means.max(1) - means.mean(1)).mean())


def slope(agents: list[int], values: np.ndarray) -> np.ndarray:
    """Returns the slopes of the logarithms of values (n, ...) in log M, from M = 10 on."""
    kept = np.array(agents) >= min(10, agents[-2])
    return np.polyfit(np.log(agents)[kept], np.log(values[kept]), 1)[0]


def main(options: Size) -> None:
    rounds, users = options.pick((64, 128), (1_000, 1_000_000), (10_000, 10_000_000))
    agents = options.pick([2, 4], [1, 10, 100, 1_000, 10_000], [1, 10, 100, 1_000, 10_000])
    models = list(TRUST.items())[: options.pick(2, 6, 6)]  # fewer programs to compile
    seeds = options.pick(2, 6, 25)
    figure, axes = plt.subplots(1, 3, figsize=(20.0, 6.8), layout="constrained")
    for ax, (instance, split, kept) in zip(axes, PANELS):
        many = agents if options.smoke else agents[kept]
        for name, (_, powers) in models:
            colour = fb.plotting.colour(recipe(instance, name, 1))
            found = [measure(instance, name, m, users // m if split else rounds, options) for m in many]
            regret, bounds = np.stack([one for one, _ in found]), np.array([bound for _, bound in found])
            mean, error = mean_error(slope(many, regret))
            half = stats.t.ppf(0.975, seeds - 1) * error
            label = f"{name}: {mean:.2f} ± {half:.2f}, bound {powers[split]:g}"
            label += f", with logarithms {slope(many, bounds):.2f}" if instance == "worst gap" else ""
            print(f"{instance}, {('T', 'M T')[split]} fixed: {label}", flush=True)
            ax.errorbar(many, *mean_error(regret.T), fmt="o-", markersize=4, color=colour, label=label, capsize=2)
        if instance == "random contexts":
            ax.plot(many, random_play() * rounds * np.array(many), ":", color="grey", label="random play")
        size = f"M T = {users:,} users" if split else f"T = {rounds:,} rounds"
        ax.set(xscale="log", yscale="log", xlabel="silos M", ylabel="group regret", title=f"{instance}, {size}")
        ax.legend(title="slope in M from M = 10 on", fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.12))
        ax.grid(alpha=0.3)
    figure.suptitle(
        f"$B=\\sqrt{{T/M}}$, ε=1, δ=0.1, certified. Mean of {seeds} seeds ± 1 s.e., slopes with 95 % intervals.\n"
        "Worst gap: K=d=2, the paper's confidence widths; random contexts: K=d=10, confidence='known_noise'"
    )
    save("zhou2024_silos", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
